#!/usr/bin/env bash
# An admission check in bash, with nothing but the text protocol of NATS over /dev/tcp.
#
# While the file FREEZE_FILE exists nothing new starts: every request is answered with Retry, and a
# delay. Once it is gone, Ready. Put a question of your own into decide(); the rest may stay.
set -u
LC_ALL=C # lengths are bytes

url=${ADMIT_NATS_URL:-nats://127.0.0.1:4222}
creds=${ADMIT_NATS_CREDS:-} # a file of `admit auth add check`
controller=${CONTROLLER:-example.com/freeze} # controllerName of the AdmissionCheck
freeze=${FREEZE_FILE:-/tmp/freeze}
delay=${DELAY_SECONDS:-30}
beat=${BEAT_SECONDS:-10} # three missed ones, and the check counts as inactive

decide() { # of $namespace, $name, $check, $retry_count and the whole $payload: state, message, after
  if [[ -e $freeze ]]; then
    state=Retry after=$delay message="frozen; asked again after $delay s"
  else
    state=Ready after= message="not frozen"
  fi
}

# --- What follows is the protocol. ----------------------------------------------------------------
# Some of it stands in every sample in shell: each is one file, to be copied alone.

credentials() { # reads the credentials file $1: $user_key or $jwt, $inbox, and $seed, kept in here
  local line
  user_key= jwt= seed= inbox=_INBOX.$me
  while IFS= read -r line; do
    case $line in
      '# public key: '*) user_key=${line#*: } ;;
      '# inbox prefix: '*) inbox=${line#*: } ;;
      eyJ*) jwt=$line ;;
      SU*) seed=$line ;;
    esac
  done <"$1" && [[ $user_key && $seed ]] && return
  note "cannot use the credentials file $1"
  return 1
}

sign() { # the signature of $1 by the seed, whose bytes 3 to 34 are an Ed25519 key; needs openssl
  local file
  file=$(mktemp) && printf '%s' "$1" >"$file"
  openssl pkeyutl -sign -rawin -in "$file" -keyform DER -inkey <(
    printf '\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20'
    printf '%s======' "$seed" | base32 -d | head -c 34 | tail -c 32
  ) | base64 -w 0 | tr '+/' '-_' | tr -d '='
  rm -f "$file"
}

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

field() { # the first value of "$1" in $payload, as it stands in JSON, without its quotes
  local pattern='"'$1'":("(([^"\]|\\.)*)"|[0-9]+)'
  [[ $payload =~ $pattern ]] || return 1
  value=${BASH_REMATCH[2]:-${BASH_REMATCH[1]}}
}

say() { # $1 subject, $2 payload, $3 subject for the answer, if one is wanted
  printf 'PUB %s %s\r\n%s\r\n' "$1${3:+ $3}" "${#2}" "$2" >&3
}

note() { printf '%s\n' "$*" >&2; }

next() { # the next line of the server in $line; meanwhile the heart beats. Fails at the end.
  local part status
  line=
  while :; do
    IFS= read -r -t "$beat" part <&3
    status=$?
    line+=$part
    ((status == 0)) && line=${line%$'\r'} && return 0
    ((status > 128)) || return 1
    alive
  done
}

alive() { # at most once per $beat, however much is to do
  ((SECONDS >= due)) || return 0
  say "admit.alive.check.$me" '{}'
  due=$((SECONDS + beat))
}

answer() { # a request has come, in $payload on the subject $1
  local namespace name check cycle uid retry_count=0 state after message value verdict
  # What we look for stands before the workload and the parameters, so the first of a name is it.
  field namespace && namespace=$value && field name && name=$value && field uid && uid=$value &&
    field check && check=$value && field cycle && cycle=$value || { note "unreadable: $1"; return; }
  field retryCount && retry_count=$value
  decide
  verdict='{"namespace":"'$namespace'","name":"'$name'","uid":"'$uid'","check":"'$check'"'
  verdict+=',"cycle":'$cycle',"state":"'$state'","message":"'$message'"'
  verdict+=${after:+',"requeueAfterSeconds":'$after}'}'
  # The tokens of the workload are those of the request; the log acknowledges to the inbox.
  say "admit.check.reported.$me.${1#admit.check.requested."$me".}" "$verdict" "$inbox"
  note "$namespace/$name cycle $cycle retry $retry_count: $state ($message)"
}

serve() { # one connection, until it ends
  local line payload value subject sid size due=0 inbox=_INBOX.$me user_key jwt seed
  if [[ -n $creds ]]; then
    credentials "$creds" || return
  fi
  inbox+=.$$.$RANDOM
  next && [[ $line == INFO* ]] || return
  if [[ -n $creds ]]; then
    payload=$line
    field nonce || { note "the server asks for no signature"; return; }
    login=',"sig":"'$(sign "$value")'",'${jwt:+'"jwt":"'$jwt'"'}
    [[ $jwt ]] || login+='"nkey":"'$user_key'"'
  fi
  # Without headers: the server leaves those of a message out, and MSG is all there is.
  printf 'CONNECT {"verbose":false,"pedantic":false,"headers":false,"name":"%s"%s}\r\n' \
    "check $controller" "$login" >&3
  # A queue group: several of us share the work.
  printf 'SUB admit.check.requested.%s.*.* %s 1\r\nSUB %s 2\r\nPING\r\n' "$me" "$me" "$inbox" >&3
  while next; do
    case $line in
      PING) printf 'PONG\r\n' >&3 ;;
      PONG) note "check $controller listens at $address" ;;
      MSG*)
        read -r _ subject sid _ <<<"$line"
        size=${line##* }
        IFS= read -r -N "$size" payload <&3 && next || return
        case $sid in
          1) answer "$subject" ;;
          2) [[ $payload != *'"error"'* ]] || note "the log refused a verdict: $payload" ;;
        esac
        ;;
      -ERR*) note "$line" ;;
    esac
    alive
  done
}

trap 'exit 0' INT TERM
me=$(token "$controller")
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
