#!/usr/bin/env bash
# A provider of capacity in bash: the text protocol of NATS over /dev/tcp, and jq.
#
# A rack of machines: each file in the folder RACK is one, empty, or with the id of the request that
# has it. Put capacity of your own into provide() and free(); the rest may stay.
set -u
LC_ALL=C # lengths are bytes

url=${ADMIT_NATS_URL:-nats://127.0.0.1:4222}
class=${CLASS:-rack.example.com} # provisioningClassName of the ProvisioningRequestConfig
rack=${RACK:-/tmp/rack}
beat=${BEAT_SECONDS:-10} # three missed ones, and the class counts as inactive

provide() { # for $id, once however often it is called: word, and what is told beside the names
  local machine
  machine=$(machine_of "$id")
  [[ $machine ]] || machine=$(find "$rack" -maxdepth 1 -type f -empty -print -quit)
  if [[ $machine ]]; then
    printf %s "$id" >"$machine"
    machine=${machine##*/}
    word=provisioned more='{"message":"on '$machine'","details":{"machine":"'$machine'"}}'
  else
    word=failed more='{"message":"every machine is taken","retryAfter":60}'
  fi
}

free() { # what $id has, if anything
  local machine
  machine=$(machine_of "$id")
  [[ -z $machine ]] || : >"$machine"
}

machine_of() { grep -lxF -- "$1" "$rack"/*; }

# --- What follows is the protocol. ----------------------------------------------------------------
# Some of it stands in every sample in shell: each is one file, to be copied alone.

token() { # $1 as one token of a subject: a dot is _, anything else but A-Z a-z 0-9 - is =XX
  local out= char i
  for ((i = 0; i < ${#1}; i++)); do
    char=${1:i:1}
    case $char in
      [A-Za-z0-9-]) out+=$char ;;
      .) out+=_ ;;
      *) printf -v char '=%02X' "$(($(printf '%d' "'$char") & 255))" && out+=$char ;;
    esac
  done
  printf '%s' "$out"
}

say() { printf 'PUB %s %d\r\n%s\r\n' "$1" "${#2}" "$2" >&3; }

note() { printf '%s\n' "$*" >&2; }

ask() { # the durable for one message; it answers within $beat, with nothing where there is none
  say "admit.alive.provisioning.$me" ''
  printf 'PUB $JS.API.CONSUMER.MSG.NEXT.ADMITTANCE.provider-%s %s %d\r\n%s\r\n' \
    "$me" "$inbox" "${#next}" "$next" >&3
}

requested() { # in $payload, on a subject that ends in $1
  local word more status
  if [[ -e $gone ]]; then
    return # Taken back before: with several of us, or after a crash, the end may come first.
  elif [[ $late == true ]]; then
    word=failed more='{"message":"received after its deadline"}'
  else
    provide
  fi
  status=$(jq -c --argjson more "$more" '{namespace, name, uid, id} + $more' <<<"$payload")
  say "admit.provisioning.$word.$me.$1" "$status"
  note "$id: $word"
}

heard() { # $payload on the subject $1
  local id asked late gone filter
  filter='select(type == "object" and (.id | type) == "string")
    | [.id, (.podSets | type), (.deadline // "9999")[:19] < (now | todate[:19])] | @tsv'
  IFS=$'\t' read -r id asked late < <(jq -r "$filter" <<<"$payload" 2>/dev/null)
  gone=$rack/.gone/${id//\//_}
  if [[ $id && $1 == admit.provisioning.requested.* && $asked == array ]]; then
    requested "${1#admit.provisioning.requested."$me".}"
  elif [[ $id && $1 == admit.provisioning.cancelled.* ]]; then
    : >"$gone" # first, so that a request which comes again books nothing
    free
    note "$id: freed"
  else
    # An unreadable message is acknowledged as well, or it would be delivered without end.
    note "unreadable: $1"
  fi
}

serve() { # one connection, until it ends
  local line payload subject words inbox="inbox.$$.$RANDOM"
  printf 'CONNECT {"verbose":false,"pedantic":false,"headers":false,"name":"provider %s"%s}\r\n' \
    "$class" "$login" >&3
  printf 'SUB %s 1\r\n' "$inbox" >&3
  ask
  # Twice as long as any answer may take: the durable does not exist, for example.
  while IFS= read -r -t $((2 * beat)) line <&3 || { (($? > 128)) && ask && line=; }; do
    case $line in
      PING*) printf 'PONG\r\n' >&3 ;;
      INFO*) note "provider $class listens at $address" ;;
      MSG*) # subject, sid, subject for the acknowledgement (none: nothing came), size
        read -ra words <<<"${line%$'\r'}"
        subject=${words[1]}
        IFS= read -r -N "${words[-1]}" payload <&3 && IFS= read -r line <&3 || return
        [[ $subject == admit.provisioning.* ]] && heard "$subject"
        ((${#words[@]} == 5)) && say "${words[3]}" +ACK # last: until then it comes again
        ask
        ;;
      -ERR*) note "$line" ;;
    esac
  done
}

trap 'exit 0' INT TERM
mkdir -p "$rack/.gone"
me=$(token "$class")
next='{"batch":1,"expires":'$beat'000000000}'
address=${url#*://} login=
if [[ $address == *@* ]]; then
  user=${address%@*} address=${address##*@}
  login=',"user":"'${user%%:*}'","pass":"'${user#*:}'"'
fi
address=${address%%/*}
while :; do
  # In a group, since a failed redirection of exec alone would end the shell.
  if { exec 3<>"/dev/tcp/${address%:*}/${address##*:}"; } 2>/dev/null; then
    serve
    exec 3>&-
  fi
  note "no connection to $address; trying again"
  sleep 1
done
