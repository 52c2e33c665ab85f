#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# networks.sh - nodes in network namespaces of their own: a link that is slow,
# one that is down for a second, one that is down for good. The run goes on and
# ends in the same bytes.
#
#     BUILD=build [NODES=3 SLOTS=2 RANKS=4 MESH="--set mesh.data=4"] [STEPS=400] \
#         tests/drills/networks.sh
#
# NODES=4 SLOTS=5 RANKS=16 MESH="--set mesh.data=8 --set mesh.tensor=2" is the
# large one.
. "${0%/*}/apart.sh"
. "${0%/*}/common.sh"
nodes=${NODES:-3}
slots=${SLOTS:-2}
ranks=${RANKS:-4}
mesh=${MESH:---set mesh.data=4}
steps=${STEPS:-400}
if ! mount -t tmpfs none /run 2>/dev/null || ! mkdir /run/netns ||
    ! ip link add bridge type bridge 2>/dev/null; then
    echo "not run: no bridge between namespaces here"
    exit 77
fi
bridge_nodes "$nodes" 10.77.0
prepare
base="--set train.steps=$steps --set checkpoint.every=1000
    --set validate.every=1000 --set numerics.grid_tensor=2"
# shellcheck disable=SC2086
must train config.yaml --run whole $base

step() { grep -c '"step"' kept/metrics.jsonl 2>/dev/null; }
journal=kept/control/journal.jsonl

# shellcheck disable=SC2086
"$program" supervise config.yaml --run kept $base --ranks "$ranks" $mesh \
    --set train.threads=1 --set zero=zero1 --set comm.limit=60 --token token \
    --listen 0.0.0.0:7077 >log 2>&1 &
child=$!
children="$children $child"
await log listens
for ((i = 1; i <= nodes; i++)); do
    ip netns exec "n$i" "$program" agent --join 10.77.0.254:7077 \
        --token token --slots "$slots" --name "n$i" >"log.$i" 2>&1 &
    children="$children $!"
    await log "node *n$i joined"
done
if until_line kept/metrics.jsonl '"step": 10,'; then ok "steps over a network"
else bad "steps over a network" "none" log; fi

# --- a slow link, and one that is down for a moment: no incident ---
tc qdisc add dev v1 root tbf rate 10mbit burst 64kbit latency 50ms 2>/dev/null
before=$(step)
sleep 1
began=$(date +%s%N)
ip link set v1 down
sleep 1
ip link set v1 up
down=$((($(date +%s%N) - began) / 1000000))
tries=0
until [ "$(step)" -gt $((before + 20)) ] || [ $tries -gt 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
if ! grep -q '"event": "incident"' $journal; then
    ok "a link down for a second"
elif [ $down -ge 1900 ]; then
    echo "left out: the link was down for $down ms"
else
    bad "a link down for a second" "an incident" $journal
fi
tc qdisc del dev v1 root 2>/dev/null

# --- a link that is down for good: half of every connection is open ---
ip link set v1 down
await_incident $journal '"event": "incident"'
if in_time $journal; then ok "a partition is noticed"
else bad "a partition is noticed" "$(grep incident $journal)" log; fi
await $journal '"event": "recovered"'
ends "a partition: the same bytes" kept "$child"
if grep -q 'was lost with node n1: its machine is silent' $journal; then ok "the node is named"
else bad "the node is named" "not so" $journal; fi
grep -h 'incident\|recovered\|layout' log
if until_line log.1 "lost its supervisor" 600; then
    ok "the isolated agent knows that it is alone"
else
    bad "the isolated agent knows that it is alone" "not said" log.1
fi
report
