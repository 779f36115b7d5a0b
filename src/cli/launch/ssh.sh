#!/bin/sh
# Nodes over ssh, on machines that share nothing but the network.
#
#   sh ssh.sh up [OPTION OF droste serve...]
#   sh ssh.sh down
#   sh ssh.sh status
#
# `droste cluster` runs it with these variables:
#   CLUSTER    the cluster's name
#   JOIN       the addresses of NATS
#   HOSTS      a file: a line for each node, [USER@]HOST, and behind it options of ssh
#   PORT       where each node listens
#   PROGRAM    the droste of the nodes
#   DRAIN      seconds that `down` waits for each node
#
# ssh asks for nothing: keys and known hosts are set up before. A node's log and process id are in
# ~/.local/state/droste of its user. All hosts are asked at once; the worst status is returned.
set -eu

quote()
{
    printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}

# What runs on the host: variables are set before it.
remote='
set -eu
state=${XDG_STATE_HOME:-$HOME/.local/state}/droste
pid_file=$state/node-$cluster.pid
log=$state/node-$cluster.log
mkdir -p "$state"

# The id counts only while it is that of a node of this cluster: ids are used again.
running()
{
    pid=$(cat "$pid_file" 2>/dev/null) && [ -r "/proc/$pid/cmdline" ] &&
        tr "\0" "\n" <"/proc/$pid/cmdline" | grep -qx -e --join
}

case $command in
up)
    if running; then
        echo "runs already, process $pid"
        exit 0
    fi
    command -v "$program" >/dev/null || { echo "there is no $program on this host"; exit 127; }
    address=$(hostname -I | cut -d " " -f 1)
    setsid "$program" serve --join "$join" --listen "0.0.0.0:$port" \
        --advertise "$address:$port" "$@" >>"$log" 2>&1 </dev/null &
    echo $! >"$pid_file"
    sleep 1
    running || { tail -n 3 "$log"; exit 1; }
    echo "started, process $pid" ;;
down)
    running || { echo "does not run"; exit 0; }
    kill -TERM "$pid"
    while running && [ "$drain" -gt 0 ]; do
        sleep 1
        drain=$((drain - 1))
    done
    running && { echo "still drains, process $pid"; exit 1; }
    rm -f "$pid_file"
    echo "stopped" ;;
status)
    running && echo "runs, process $pid" || { echo "does not run"; exit 1; } ;;
esac
'

# ask HOST [OPTION OF ssh...] -- COMMAND [WORD...]: prefixes what the host says with its name.
ask()
{
    host=$1
    shift
    options=
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    {
        echo "command=$(quote "$1") cluster=$(quote "$CLUSTER") join=$(quote "$JOIN")"
        echo "port=$(quote "$PORT") program=$(quote "$PROGRAM") drain=$(quote "$DRAIN")"
        shift
        printf 'set -- '
        for word; do
            quote "$word"
        done
        echo "$remote"
    } | {
        # shellcheck disable=SC2086
        said=$(ssh -o BatchMode=yes -o ConnectTimeout=10 $options -- "$host" sh -s 2>&1) &&
            status=0 || status=$?
        printf '%s\n' "$said" | sed "s/^/$(printf %s "$host" | sed 's/[\/&]/\\&/g'): /"
        return "$status"
    }
}

[ -r "$HOSTS" ] || { echo "the file of hosts, $HOSTS, cannot be read" >&2 && exit 2; }
case ${1-} in
up | down | status) ;;
*) echo "usage: ssh.sh up|down|status" >&2 && exit 2 ;;
esac
waiting=''
worst=0
count=0
while read -r host options; do
    case $host in '' | '#'*) continue ;; esac
    count=$((count + 1))
    # shellcheck disable=SC2086
    ask "$host" $options -- "$@" </dev/null &
    waiting="$waiting $!"
done <"$HOSTS"
[ "$count" -gt 0 ] || { echo "$HOSTS names no host" >&2 && exit 2; }
for job in $waiting; do
    wait "$job" || worst=$?
done
exit "$worst"
