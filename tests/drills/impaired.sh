#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# impaired.sh - 16 ranks on 4 nodes whose links delay and lose packets (wire.c):
# no wrong bit, no verdict without a cause; then one node is cut off: it is named,
# and the run goes on without it.
#
#     BUILD=build [STEPS=24] tests/drills/impaired.sh
. "${0%/*}/apart.sh"
. "${0%/*}/common.sh"
nodes=4 slots=4 ranks=16 steps=${STEPS:-24}
begin_wires $nodes
prepare
base="--set train.steps=$steps --set checkpoint.every=1000
    --set validate.every=1000 --set numerics.grid_tensor=2"
# shellcheck disable=SC2086
must train config.yaml --run whole $base

step() {
    local count
    count=$(grep -c '"step"' kept/metrics.jsonl 2>/dev/null)
    echo "${count:-0}"
}
# until_step N: steps of the run, for at most three minutes
until_step() {
    local tries
    for ((tries = 0; tries < 1800; tries++)); do
        [ "$(step)" -lt "$1" ] || return 0
        sleep 0.1
    done
    return 1
}
journal=kept/control/journal.jsonl

# Each frame takes 2 to 4 ms each way, and one of 200 is lost.
echo "0 2 5000 2" >&9
# shellcheck disable=SC2086
"$program" supervise config.yaml --run kept $base --ranks $ranks \
    --set mesh.data=8 --set mesh.tensor=2 --set train.threads=1 \
    --set zero=zero1 --set comm.limit=60 --token token \
    --listen 10.77.0.254:7077 >log 2>&1 9>&- &
child=$!
children="$children $child"
await log listens
for ((i = 1; i <= nodes; i++)); do
    ip netns exec "n$i" "$program" agent --join 10.77.0.254:7077 \
        --token token --slots $slots --name "n$i" >"log.$i" 2>&1 9>&- &
    children="$children $!"
    await log "node *n$i joined"
done
if until_step 4; then ok "steps over links that delay and lose"
else bad "steps over links that delay and lose" "only $(step)" log; fi

# --- worse, for two steps: 75 to 125 ms each way, one frame of 100 is lost ---
echo "2 75 10000 50" >&9
if until_step $(($(step) + 2)); then ok "steps beside a link that is far worse"
else bad "steps beside a link that is far worse" "only $(step)" log; fi
echo "2 2 5000 2" >&9
found=$(grep -c '"event": "incident"' $journal)

# --- a node that nothing reaches any more ---
echo "3 0 1000000" >&9
await_incident $journal '"rank": [0-9]*, .*was lost with node n3'
grep '"event": "incident"' $journal | grep 'node n3' | head -n 1 >lost_n3
await $journal '"event": "recovered"'
ends "impaired links: the same bytes" kept "$child"
if grep -Eq 'was lost with node n3: (its machine is silent|silent)' $journal
then ok "the node is named"
else bad "the node is named" "not so" $journal; fi
end_wires
# Wires that waited for a processor delay far more than they were told.
wires_late=$(sed -n 's/.*, late \([0-9]*\) ms/\1/p' wire.log)
[ "${wires_late:-0}" -le $late ] || late=$wires_late
if in_time lost_n3; then ok "a node that is cut off is noticed"
else bad "a node that is cut off is noticed" "not in time" lost_n3; fi
if [ "$found" -eq 0 ]; then ok "impaired links are no incident"
elif [ "${wires_late:-0}" -ge 200 ]; then
    echo "left out: no incident, where wires wait $wires_late ms for a processor"
else bad "impaired links are no incident" "$found" $journal; fi
if awk '/carried/ { exit !($2 + 0 > 1000 && $4 + 0 > 10) }' wire.log; then
    ok "frames were delayed and lost"
else
    bad "frames were delayed and lost" "too few" wire.log
fi
report
