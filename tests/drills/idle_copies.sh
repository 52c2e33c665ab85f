#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# idle_copies.sh - two nodes whose ranks send gradients and copies of their state:
# the log, `status` and the metrics say which share of the copies travelled while
# nobody else sent, and how long a step waited; a rank is killed; same bytes.
#
#     BUILD=build tests/drills/idle_copies.sh
. "${0%/*}/common.sh"
prepare
base="--set train.steps=60 --set checkpoint.every=1000 --set validate.every=0"
# shellcheck disable=SC2086
must train config.yaml --run whole $base
journal=kept/control/journal.jsonl
# shellcheck disable=SC2086
"$program" supervise config.yaml --run kept $base --ranks 2 --copies 1 \
    --set mesh.data=2 --set zero=zero1 --set train.threads=1 \
    --set comm.limit=60 --token token --listen 127.0.0.1:0 >log 2>&1 &
child=$!
children="$children $child"
await log listens
address=$(sed -n 's/.*listens.* \([0-9.]*:[0-9]*\).*/\1/p' log | head -n 1)
for i in 1 2; do
    LOCKSTEP_FAULT=train.step:1:slow,train.step:20:slow,train.step:21:slow \
        "$program" agent --join "$address" --token token --slots 1 \
        --name "n$i" >"log.$i" 2>&1 &
    children="$children $!"
done
# Copies have a cost from the third one on, which a look at it says.
idle() {
    lockstep status kept --json 2>/dev/null |
        sed -n 's/.*"idle_share": \([0-9.e-]*\).*/\1/p'
}
found=
for ((tries = 0; tries < 1800; tries++)); do
    found=$(idle)
    [ -z "$found" ] && kill -0 "$child" 2>/dev/null || break
    sleep 0.1
done
if awk "BEGIN { exit !(\"$found\" != \"\" && ${found:-2} >= 0 && ${found:-2} <= 1) }"; then
    ok "status: the share in idle time"
else bad "status: the share in idle time" "${found:-none}" log; fi
# The rank of the first node, while steps and copies go on.
victim=$(rank_process kept 0)
[ "${victim:-0}" -gt 1 ] && kill -9 "$victim" 2>/dev/null
ends "copies in idle time, a rank killed: the same bytes" kept "$child"
if grep -q '"event": "recovered".*"from": "\(peer \)*memory"' $journal ||
    ! grep -q '"event": "incident"' $journal; then ok "from memory"
else bad "from memory" "not" $journal; fi
if grep -q '% of the bytes travelled while the network was idle' kept/log.txt; then
    ok "the log says it"
else bad "the log says it" "not" kept/log.txt; fi
if awk -F'"copy_idle_share": ' 'NF > 1 { n++; if ($2 + 0 < 0 || $2 + 0 > 1) bad = 1 }
    END { exit !(n >= 20 && !bad) }' kept/metrics.jsonl &&
    grep -q '"copy_wait_ms": ' kept/metrics.jsonl; then
    ok "metrics have it"
else bad "metrics have it" "too few rows" kept/metrics.jsonl; fi
if grep -q 'of copies sent in idle time' kept/report.html &&
    ! grep -q 'copies sent in idle time' whole/report.html; then
    ok "the report draws it"
else bad "the report draws it" "not, or without copies, too"; fi
if grep -q copy_ whole/metrics.jsonl; then
    bad "a run alone has no copies elsewhere" "it says so" whole/metrics.jsonl
else ok "a run alone has no copies elsewhere"; fi
report
