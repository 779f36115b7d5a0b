#!/bin/sh
# Nodes as the tasks of a Slurm job array, one for each machine.
#
#   sh slurm.sh up [OPTION OF droste serve...]
#   sh slurm.sh down
#   sh slurm.sh status
#
# `droste cluster` runs it with these variables:
#   CLUSTER    the cluster's name; the job is droste-CLUSTER
#   JOIN       the addresses of NATS
#   NODES      the number of nodes
#   PORT       where each node listens
#   PROGRAM    the droste of the nodes
#   OPTIONS    options of sbatch: '--partition=cpu --cpus-per-task=16 --mem=64G --time=2-0'
#
# A task is requeued when its machine fails, and the node comes back under its name. A minute before
# its time is up it gets SIGTERM and drains; `down` sends the same, and lets it drain.
set -eu
job=droste-$CLUSTER

# Quotes a word for the shell.
quote()
{
    printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}

up()
{
    if [ -n "$(squeue --noheader --me --name="$job" --states=all --format=%T 2>/dev/null |
        grep -E '^(PENDING|RUNNING|CONFIGURING|COMPLETING|REQUEUED|SUSPENDED)$' | head -n 1)" ]; then
        echo "the job $job is there already; droste cluster down slurm ends it" >&2
        exit 1
    fi
    words=
    for word; do
        words="$words$(quote "$word")"
    done
    # $OPTIONS is several words. The rest of the script is expanded on the node.
    # shellcheck disable=SC2086
    sbatch --job-name="$job" --array="0-$((NODES - 1))" --requeue --signal=B:TERM@60 \
        --open-mode=append --output="$job-%a.log" $OPTIONS <<END
#!/bin/sh
exec $(quote "$PROGRAM") serve --join $(quote "$JOIN") --node "$job-\$SLURM_ARRAY_TASK_ID" \
    --listen "0.0.0.0:$PORT" --advertise "\$(hostname -I | cut -d ' ' -f 1):$PORT" $words
END
}

# scancel fails for a task that ends meanwhile; here only one that stays is a failure.
cancel()
{
    scancel --me --name="$job" "$@" && return
    left=$(squeue --noheader --me --name="$job" --states=PENDING,RUNNING,CONFIGURING,SUSPENDED \
        --format=%i | head -n 1)
    [ -z "$left" ] || { echo "scancel failed, and the job $left is still there" >&2 && exit 1; }
}

down()
{
    cancel --state=PENDING
    cancel --full --signal=TERM
}

status()
{
    squeue --me --name="$job" --array --format='%.20j %.8K %.12T %.12M %N %r'
}

case ${1-} in
up | down | status) command=$1 && shift && "$command" "$@" ;;
*) echo "usage: slurm.sh up|down|status" >&2 && exit 2 ;;
esac
