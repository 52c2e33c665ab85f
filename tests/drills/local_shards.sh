#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# local_shards.sh - machines that share no file system: each keeps the shards of
# its own ranks (checkpoint.local), and the run goes on with other placement and
# other ranks, from what the agents fetch from each other.
#
# Each agent has a mount namespace of its own: RUN and DIR are other directories
# there than in the next one.
#
#     BUILD=build tests/drills/local_shards.sh
. "${0%/*}/common.sh"
prepare
unshare -rm true 2>/dev/null || unshare -m true 2>/dev/null || {
    echo "not run: no mount namespaces on this machine"
    exit 77
}
spaces="unshare -m"
$spaces true 2>/dev/null || spaces="unshare -rm"

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >token
chmod 600 token
mkdir -p run shards cache
lockstep data prepare config.yaml >log 2>&1 ||
    must train config.yaml --run first --set train.steps=1

# Agents keep their disks in disks/NAME: run and shards of the next ones.
agent_on() { # NAME SLOTS
    mkdir -p "disks/$1/run" "disks/$1/shards" "disks/$1/cache"
    cp -n cache/* "disks/$1/cache/" 2>/dev/null
    # shellcheck disable=SC2016
    $spaces sh -c 'mount --bind "disks/$2/run" run &&
        mount --bind "disks/$2/shards" shards &&
        mount --bind "disks/$2/cache" cache && cd "$PWD" &&
        exec "$1" agent --join "127.0.0.1:$4" --token token --slots "$3" \
            --name "$2"' sh "$program" "$1" "$2" "$port" >"log.$1" 2>&1 &
    agent=$!
    children="$children $agent"
    await log "node *$1 joined"
}

# supervise RANKS ARGUMENT...: its process is in $child then.
supervise() {
    local ranks=$1
    shift
    port=$(free_port)
    # shellcheck disable=SC2086
    "$program" supervise config.yaml --run run/it --ranks "$ranks" \
        --token token --listen 127.0.0.1:$port \
        --set checkpoint.local=shards --set train.threads=1 \
        --set comm.limit=60 "$@" >log 2>&1 &
    child=$!
    children="$children $child"
    await log 'listens'
}

# gather DISKS...: the shards of all these disks into the run `got`.
gather() {
    local disk
    rm -rf got all
    mkdir all
    for disk in "$@"; do cp -a "disks/$disk/shards/$disk" all/; done
    lockstep gather got --local all >out 2>&1
}

must train config.yaml --run whole --set train.threads=1

layout="--set mesh.data=2 --set mesh.tensor=2 --set zero=zero1"

# until DISK FILE PATTERN: waits for a line in a file of RUN on that disk.
until_disk() { await "disks/$1/run/it/$2" "$3"; }

stop() { # NAME: asks the supervisor to save and end
    kill -TERM "$child"
    ended "$child"
    check_said "$1" 75 "stopped" $? log
}

# --- saved on two machines, ended, and gathered ---
# shellcheck disable=SC2086
supervise 4 $layout
agent_on a 2
agent_on b 2
until_disk a metrics.jsonl '"step": 12,'
stop "two machines without a common file system: stopped"
if [ -e disks/a/shards/a/ckpt/latest ] && [ ! -e disks/a/shards/b ] &&
    [ -e disks/b/shards/b/ckpt/latest ] && [ ! -e run/it/ckpt ]; then
    ok "each has its own shards"
else bad "each has its own shards" "$(find disks -maxdepth 4)" log; fi

# --- the same two, and the ranks change places ---
# shellcheck disable=SC2086
supervise 4 $layout
agent_on b 2
agent_on a 2
ended "$child"
code=$?
[ $code -eq 0 ] && ok "the ranks change places: it ends" ||
    bad "the ranks change places: it ends" "exit $code" log
if gather a b && same_run whole got; then ok "gathered: the same bytes"
else bad "gathered: the same bytes" "${why:-not gathered}" out; fi
report
