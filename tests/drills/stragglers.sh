#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stragglers.sh - one rank of a supervised run is stopped for three quarters of
# the time: status, incidents and the log name it, and nothing is replaced; one
# on another node, which is slow for some steps, is named by the supervisor.
#
#     BUILD=build tests/drills/stragglers.sh
. "${0%/*}/common.sh"
prepare

"$program" train config.yaml --run slow --ranks 2 --supervised \
    --set mesh.data=2 --set train.threads=1 --set train.steps=1000000 \
    --set train.batch=16 --set checkpoint.every=100000 \
    --set validate.every=100000 >log 2>&1 &
child=$!
children="$children $child"
tries=0
until grep -q '"step": 20,' slow/metrics.jsonl 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 900 ] && kill -0 $child 2>/dev/null ||
        { bad "a run" "makes no steps" log; report; }
done
victim=$(rank_process slow 1)

# named NAME FILE COMMAND...: what it prints into FILE names rank 1, in the end
named() {
    local name=$1 file=$2 until=$((SECONDS + 120))
    shift 2
    while [ $SECONDS -lt $until ]; do
        for i in 1 2 3 4 5; do
            kill -STOP "$victim"
            sleep 0.15
            kill -CONT "$victim"
            sleep 0.05
        done
        "$@" >"$file" 2>&1
        ! grep -q "$pattern" "$file" ||
            { ok "$name"; return; }
    done
    bad "$name" "not within 120 s" "$file"
}

pattern='the others waited .* for rank 1 ('
named "status names the rank" out lockstep status slow
named "incidents do, too" out lockstep incidents slow
named "the log does" out cat slow/log.txt
pattern='"waited_share"'
named "as JSON" out lockstep status slow --json
kill -TERM $child
ended $child
code=$?
if [ $code -eq 75 ]; then ok "the run was not disturbed"
else bad "the run was not disturbed" "exit $code" log; fi
if lockstep incidents slow | grep -q '^0 incidents'; then ok "no incident"
else bad "no incident" "$(lockstep incidents slow | head -n 3)"; fi

# --- on two nodes, whose clocks are not compared ---
port=$(free_port)
"$program" supervise config.yaml --run far --ranks 2 --set mesh.data=2 \
    --set train.threads=1 --set train.steps=1000000 --set train.batch=128 \
    --set checkpoint.every=100000 --set validate.every=100000 \
    --token token --listen "127.0.0.1:$port" >log 2>&1 &
child=$!
children="$children $child"
await log 'listens'
slow=
for i in 30 31 32 33 34 35 36 37; do slow="$slow,train.step:$i:slow"; done
for name in a b; do
    [ $name = a ] || export LOCKSTEP_FAULT=${slow#,}
    "$program" agent --join "127.0.0.1:$port" --token token --name $name \
        >log.$name 2>&1 &
    children="$children $!"
    unset LOCKSTEP_FAULT
    await log "node *$name joined"
done
# A machine that does other work may make rank 0 late before.
rank=
tries=0
until [ -n "$rank" ] || [ $tries -eq 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
    rank=$(lockstep status far --json 2>/dev/null |
        grep -B 3 -A 3 '"node": "b"' |
        sed -n 's/.*"rank": \([0-9]*\).*/\1/p' | head -n 1)
done
if until_line log "^straggler .* for rank ${rank:-none}, on node b" 1200
then ok "the supervisor names the rank of the slow node"
else bad "the supervisor names the rank of the slow node" "rank $rank" log; fi
tries=0
until lockstep status far >out 2>&1 &&
    grep -q "^straggler .* of the last steps for rank $rank" out; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || break
done
if [ $tries -lt 300 ]; then ok "status does, too"
else bad "status does, too" "not said" out; fi
kill -TERM $child
ended $child
code=$?
if [ $code -eq 75 ] && lockstep incidents far | grep -q '^0 incidents'
then ok "nothing was replaced"
else bad "nothing was replaced" "exit $code" log; fi
report
