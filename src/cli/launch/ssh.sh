#!/bin/sh
# Nodes on machines that are reached over ssh and share nothing but the network: as processes, or as
# services of their systemd.
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
#   LAUNCHER   "systemd": as services; without it, as processes
#
# ssh asks for nothing: keys and known hosts are set up before. The log and process id of a node
# that is a process are in ~/.local/state/droste of its user. A service is droste-CLUSTER: of the
# system if the user of ssh is root, and otherwise of that user, whose services outlive its sessions
# only with `loginctl enable-linger`. All hosts are asked at once; the worst status is returned.
set -eu

quote()
{
    printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}

# What runs on the host: variables are set before it.
as_process=$(cat <<'END'
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
END
)

as_service=$(cat <<'END'
set -eu
unit=droste-$cluster.service
if [ "$(id -u)" = 0 ]; then
    scope=--system place=/etc/systemd/system target=multi-user.target
else
    scope=--user place=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user target=default.target
    export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
fi

# A word of ExecStart= (systemd.service(5)).
word()
{
    printf '"%s" ' "$(printf %s "$1" | sed 's/[\\"]/\\&/g; s/%/%%/g; s/\$/$$/g')"
}

# Of the system: another user, and what packaging/systemd has for it.
restrict()
{
    echo "User=droste"
    echo "Environment=DROSTE_HOME=/var/lib/droste"
    echo "StateDirectory=droste"
    echo "StateDirectoryMode=0700"
    echo "UMask=0077"
    echo "NoNewPrivileges=yes"
    echo "CapabilityBoundingSet="
    echo "ProtectSystem=strict"
    echo "ProtectHome=yes"
    echo "PrivateTmp=yes"
    echo "PrivateDevices=yes"
}

write_unit()
{
    address=$(hostname -I | cut -d " " -f 1)
    echo "[Unit]"
    echo "Description=Node of the cluster $cluster"
    echo "Documentation=man:droste-serve(1)"
    echo "Wants=network-online.target"
    echo "After=network-online.target"
    echo
    echo "[Service]"
    echo "Type=notify"
    echo "NotifyAccess=main"
    printf 'ExecStart='
    for given in "$(command -v "$program")" serve --join "$join" --listen "0.0.0.0:$port" \
        --advertise "$address:$port" "$@"; do
        word "$given"
    done
    echo
    echo 'ExecReload=/bin/kill -HUP $MAINPID'
    echo "TimeoutStopSec=$drain"
    echo "Restart=always"
    echo "RestartSec=2"
    echo "LimitNOFILE=1048576"
    echo "TasksMax=infinity"
    echo "Delegate=memory pids cpu"
    [ $scope = --user ] || restrict
    echo
    echo "[Install]"
    echo "WantedBy=$target"
}

case $command in
up)
    command -v "$program" >/dev/null || { echo "there is no $program on this host"; exit 127; }
    [ $scope = --user ] || id droste >/dev/null 2>&1 || {
        echo "there is no user droste: adduser --system --group --home /var/lib/droste droste"
        exit 1
    }
    [ "$(printf %s "$*" | wc -l)" = 0 ] || { echo "an option has a line break"; exit 2; }
    mkdir -p "$place"
    write_unit "$@" >"$place/$unit.new"
    if cmp -s "$place/$unit.new" "$place/$unit" && systemctl $scope --quiet is-active "$unit"; then
        rm "$place/$unit.new"
        echo "runs already, $unit"
        exit 0
    fi
    mv "$place/$unit.new" "$place/$unit"
    systemctl $scope daemon-reload
    systemctl $scope --quiet enable "$unit"
    systemctl $scope restart "$unit" || { journalctl $scope -n 3 -o cat -u "$unit"; exit 1; }
    echo "started, $unit" ;;
down)
    [ -e "$place/$unit" ] || { echo "does not run"; exit 0; }
    systemctl $scope --quiet disable --now "$unit"
    rm "$place/$unit"
    systemctl $scope daemon-reload
    echo "stopped" ;;
status)
    systemctl $scope --property=ActiveState,MainPID,NRestarts show "$unit" | paste -s -d " "
    systemctl $scope --quiet is-active "$unit" ;;
esac
END
)

case ${LAUNCHER-} in
systemd) remote=$as_service ;;
*) remote=$as_process ;;
esac

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
        printf '\n%s\n' "$remote"
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
