#!/bin/sh
# Starts nats-server with the users of deploy/auth/server, in a container of compose.yaml.
users=/etc/admittance/auth/auth.conf
store=/data/nats/jetstream
me=$(id -u)

refuse() {
  echo "error: $1" >&2
  exit 1
}

for one in "${users%/*}" "$users"; do
  [ ! -e "$one" ] || [ -r "$one" ] ||
    refuse "Unix user $me may not read $one: run \`docker compose run --rm auth\`"
done
[ -e "$users" ] || refuse "there are no users yet: run \`docker compose run --rm auth\`"
mkdir -p "$store" 2>/dev/null && [ -w "$store" ] ||
  refuse "Unix user $me may not write to the volume nats at $store: give the folder to user $me"

# Before users were needed, streams were in the account $G. They go on in CORE, where the services
# are; `admit up` does the same to its folder (runtime/nats_server/server_accounts.py). One rename,
# before the server runs, so a crash leaves all streams in one account.
has_streams() {
  for one in "$1"/streams/*; do
    [ -e "$one" ] && return
  done
  return 1
}
if has_streams "$store/\$G"; then
  if has_streams "$store/CORE"; then
    echo "warning: streams in $store/\$G are ignored: the account CORE has streams" >&2
  else
    [ ! -e "$store/CORE" ] || rm -r "$store/CORE" # no streams are in it
    mv "$store/\$G" "$store/CORE" || refuse "cannot move $store/\$G to $store/CORE"
    echo "streams of $store/\$G moved to the account CORE" >&2
  fi
fi
exec nats-server "$@"
