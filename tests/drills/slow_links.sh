#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slow_links.sh - two nodes, one of them behind a link (wire.c) whose round trips
# take 800 ms while it joins and 400 ms then, with a frame of 100 lost: it joins,
# no connection is given up, copies reach the other node, and the run ends in the
# bytes of one that was left alone.
#
#     BUILD=build [STEPS=2] tests/drills/slow_links.sh
. "${0%/*}/apart.sh"
. "${0%/*}/common.sh"
steps=${STEPS:-2}
begin_wires 2
prepare
base="--set train.steps=$steps --set checkpoint.every=1000 --set validate.every=0"
# shellcheck disable=SC2086
must train config.yaml --run whole $base
journal=kept/control/journal.jsonl

echo "1 400 10000" >&9
# shellcheck disable=SC2086
"$program" supervise config.yaml --run kept $base --ranks 2 --copies 1 \
    --set mesh.data=2 --set train.threads=1 --set zero=zero1 \
    --set comm.limit=60 --token token --listen 10.77.0.254:7077 \
    >log 2>&1 9>&- &
child=$!
children="$children $child"
await log listens
for i in 1 2; do
    ip netns exec "n$i" "$program" agent --join 10.77.0.254:7077 \
        --token token --slots 1 --name "n$i" >"log.$i" 2>&1 9>&- &
    children="$children $!"
done
if until_line log 'node *n1 joined' 600; then ok "joins over 800 ms"
else bad "joins over 800 ms" "not within a minute" log.1; report; fi
echo "1 200 10000" >&9
# Where all copies of a step are on the other node, too.
others() {
    lockstep status kept --json 2>/dev/null |
        sed -n 's/.*"step_on_other_nodes": \([0-9]*\).*/\1/p'
}
tries=0
until [ "$(others)" -gt 0 ] 2>/dev/null || ! kill -0 "$child" 2>/dev/null ||
    [ $tries -ge 1800 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
if [ "$(others)" -gt 0 ] 2>/dev/null; then ok "copies reach the other node"
else bad "copies reach the other node" "none did" log; fi
ends "round trips of 400 ms: the same bytes" kept "$child"
if grep -q '"event": "incident"' $journal; then
    bad "slow links are no incident" "$(grep -c incident $journal)" $journal
elif grep -h 'is gone\|lost its supervisor\|is back' log log.*; then
    bad "connections are kept" "given up" log
else ok "connections are kept"
fi
end_wires
report
