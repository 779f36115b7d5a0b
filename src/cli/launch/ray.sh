#!/bin/sh
# Nodes on the machines of a Ray cluster, an actor for each.
#
#   sh ray.sh up [OPTION OF droste serve...]
#   sh ray.sh down
#   sh ray.sh status
#
# `droste cluster` runs it with these variables:
#   CLUSTER      the cluster's name
#   JOIN         the addresses of NATS
#   PORT         where each node listens
#   PROGRAM      the droste of the machines
#   RAY_ADDRESS  of the Ray cluster; unset: the one that Ray finds
#   PYTHON       a Python with the packages ray and droste; unset: python3
set -eu
command=$1
shift
exec "${PYTHON:-python3}" -m droste.integrations.ray "$command" --cluster "$CLUSTER" \
    ${JOIN:+--join "$JOIN"} --port "$PORT" --program "$PROGRAM" -- "$@"
