#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# agents.sh - ranks, spares, agents and the supervisor itself are killed or fall
# silent; the run goes on with what is left, grows again, and ends in the same
# bytes. Runs go on until everything has happened, on any machine.
#
#     BUILD=build tests/drills/agents.sh
. "${0%/*}/common.sh"
prepare
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
base="--set checkpoint.every=500 --set validate.every=0"
long="--set train.steps=1000000"
four="--ranks 4 --set mesh.data=4 --set zero=zero1 --set train.threads=1
    --set comm.limit=60 --copies 1"

await_step() { await "$1/metrics.jsonl" "\"step\": $2,"; }

process() { # RUN RANK: it may take a moment until its node says it
    local tries=0 found=0
    until [ "${found:-0}" -gt 1 ] || [ $tries -gt 100 ]; do
        found=$(rank_process "$1" "$2")
        tries=$((tries + 1))
    done
    echo "${found:-0}"
}

slay() { # RUN RANK
    local victim
    victim=$(process "$1" "$2")
    [ "${victim:-0}" -gt 1 ] && kill -9 "$victim" 2>/dev/null
}

says() { # NAME FILE PATTERN
    if grep -q "$3" "$2"; then ok "$1"; else bad "$1" "not said" "$2"; fi
}

# --- a warm spare takes the place of a rank; the others keep their process;
# without one the run goes on with fewer ranks, and grows again. Its schedule is
# from a file, which is for all ranks only ---
printf 'F0.0 F0.1 B0.0 B0.1 W0.0 W0.1\nF1.0 B1.0 F1.1 B1.1 W1.0 W1.1\n' >late.txt
pipe="--ranks 4 --set mesh.pipe=2 --set mesh.data=2 --set mesh.layers=[2,0]
    --set schedule.name=late.txt --set zero=zero1 --set train.micro_batch=2
    --set train.threads=1 --set comm.limit=60 --copies 1"
# shellcheck disable=SC2086
"$program" train config.yaml --run spares $base $long $pipe --supervised --spares 1 \
    >log 2>&1 &
child=$!
children="$children $child"
await_step spares 10
others="$(process spares 0) $(process spares 2) $(process spares 3)"
slay spares 1
await spares/control/journal.jsonl '"generation": 2, "from": "memory"'
now="$(process spares 0) $(process spares 2) $(process spares 3)"
if [ "$others" = "$now" ]; then ok "the others keep their process"
else bad "the others keep their process" "$others, then $now" log; fi
# Until both places rest at the same time: four failures, or more on a machine
# where the first one's pause is over by then.
fewer='"event": "layout".*"ranks": 2'
goes_on() { # RECOVERIES
    grep -q "$fewer" spares/control/journal.jsonl ||
        [ "$(grep -c '"recovered"' spares/control/journal.jsonl)" -ge "$1" ]
}
for ((i = 2; i < 16; i++)); do
    grep -q "$fewer" spares/control/journal.jsonl && break
    slay spares 1
    for ((tries = 0; tries < 1800; tries++)); do
        goes_on $i && break
        sleep 0.1
    done
done
await spares/control/journal.jsonl "$fewer"
says "fewer ranks have another schedule" spares/control/journal.jsonl \
    '"event": "layout".*mesh.pipe=2.*schedule.name=1f1b.*"ranks": 2'
await spares/control/journal.jsonl '"event": "grows"'
survivor=$(process spares 0)
await spares/control/journal.jsonl '"event": "layout".*"ranks": 4'
if [ "${others%% *}" = "$survivor" ]; then ok "rank 0 was never restarted"
else bad "rank 0 was never restarted" "$survivor after ${others%% *}" log; fi
# shellcheck disable=SC2086
stops "spares, fewer ranks, more again" spares "$child" config.yaml $base
says "it went on with fewer ranks" spares/control/journal.jsonl \
    '"event": "layout".*"ranks": 2'
says "it grew again, with its own schedule and blocks" \
    spares/control/journal.jsonl \
    '"event": "layout".*layers=\[2,0\] schedule.name=late.txt.*"ranks": 4'
expect "spares without a supervisor" 2 "add --supervised" train config.yaml \
    --run no --spares 1
expect "spares, and a layout that shows in the bits" 78 "numerics.mode" train \
    config.yaml --run no --ranks 3 --supervised --spares 1 \
    --set numerics.mode=fast --set train.batch=24

# --- three nodes; the supervisor and two nodes are killed, one after the other:
# the first one's ranks go to a spare node, with copies that a third one kept;
# after the second, places are missing ---
port=$(free_port)
supervise() {
    # shellcheck disable=SC2086
    "$program" supervise config.yaml --run nodes $base $long $four --token token \
        --listen 127.0.0.1:$port >>log 2>&1 &
    child=$!
    children="$children $child"
}
join() { # NAME
    "$program" agent --join 127.0.0.1:$port --token token --slots 2 --name "$1" \
        >"log.$1" 2>&1 &
    agent=$!
    children="$children $agent"
}
# lose AGENT: its processes end with it.
lose() {
    kill -9 "$1"
    wait "$1" 2>/dev/null
}
journal=nodes/control/journal.jsonl
: >log
supervise
await log 'listens'
await log 'waiting *for agents'
lockstep status nodes >seen 2>&1
says "a run that waits for its first ranks is no missing one" seen \
    'waits for its first ranks'
lockstep status nodes --json >seen 2>&1
says "... for programs, too" seen '"state": "waits"'
# shellcheck disable=SC2086
expect "a second supervisor of a run that waits" 78 "in use by process" supervise \
    config.yaml --run nodes $base $long $four --token token --listen 127.0.0.1:0
if [ "$(stat -c %a token)" = 600 ]; then ok "the token is private"
else bad "the token is private" "$(stat -c %a token)"; fi
join a
a=$agent
await log 'node *a joined'
join b
await log 'node *b joined'
join c
c=$agent
await_step nodes 20
# All processes that carry copies are killed. What is restored from another
# node below was carried by those that were started then.
couriers() {
    cat /proc/[0-9]*/stat 2>/dev/null |
        sed -n 's/^\([0-9]*\) (lockstep:\(sends\|keeps\)) [A-Z] \([0-9]*\) .*/\1 \3/p' |
        awk -v of=" $children " 'index(of, " " $2 " ") { print $1 }'
}
before=$(couriers)
[ "$(echo "$before" | wc -w)" = 6 ] || bad "couriers" "not 6: $before" log
# shellcheck disable=SC2086
kill -9 $before
await log.a 'sends copies has ended; it is started again'
await log.a 'keeps copies has ended; it is started again'
says "which losses are survived" log 'of two at once 0 of 3 pairs'
says_where() {
    lockstep status nodes >seen
    grep -q 'all ranks have step [1-9]' seen &&
        grep -q 'other nodes have step [1-9]' seen &&
        grep -q 'survives .*of two at once 0 of 3 pairs' seen &&
        lockstep status nodes --json | tr -d '\n' |
        grep -q '"copies": {[^}]*"step": [1-9].*"step_on_other_nodes": [1-9].*"survives": "copies on 3.*"every": 1,'
}
for ((tries = 0; tries < 600; tries++)); do says_where && break; done
if [ $tries -lt 600 ]; then ok "status says where copies are"
else bad "status says where copies are" "it does not" seen; fi
# copied: waits until other nodes have copies of a step that is made from now on.
copied() {
    local from copy tries
    from=$(step_now nodes)
    for ((tries = 0; tries < 1800; tries++)); do
        copy=$(lockstep status nodes |
            sed -n 's/^copies .*other nodes have step \([0-9]*\).*/\1/p')
        [ "${copy:-0}" -le "$from" ] || return 0
        sleep 0.1
    done
    bad "copies of step $((from + 1))" "none on other nodes" log
}
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >forged
chmod 600 forged
expect "an agent with another token" 68 "another token" agent \
    --join 127.0.0.1:$port --token forged
chmod 644 forged
"$program" agent --join 127.0.0.1:$port --token token --slots 2 --name a \
    >log.twin 2>&1 &
twin=$!
children="$children $twin"
until_line log.twin 'is not taken (another agent has its name' 600
says "an agent with a name that is taken" log.twin 'is not taken (another agent has'
lose "$twin"
expect "a token that others can read" 78 "only its owner" agent \
    --join 127.0.0.1:$port --token forged
lose "$child"
before=$(grep -c '"step"' nodes/metrics.jsonl)
tries=0
until [ "$(grep -c '"step"' nodes/metrics.jsonl)" -gt $((before + 5)) ] ||
    [ $tries -gt 3600 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
if [ $tries -le 3600 ]; then ok "ranks step without their supervisor"
else bad "ranks step without their supervisor" "they do not" log.a; fi
supervise
await log 'took over 4 ranks'
says "the next supervisor takes them over" log 'took over 4 ranks'
victim=$(process nodes 3)
[ "${victim:-0}" -gt 1 ] && kill -STOP "$victim"
await $journal '"event": "recovered"'
says "a rank that is stopped is named, long before comm.limit" $journal \
    '"kind": "hang", "rank": 3.*hangs (stopped)'
if ! grep '"event": "incident"' $journal | grep -q 'no record that'; then
    ok "nodes say all calls of their ranks"
else
    bad "nodes say all calls of their ranks" "some are not on record" $journal
fi
copied
lose "$a"
await $journal '"from": "peer memory"'
says "a lost node's ranks go on elsewhere, from peer memory" $journal \
    '"from": "peer memory"'
copied
lose "$c"
await $journal '"event": "layout".*"ranks": 2'
join a
await $journal '"event": "layout".*"ranks": 4'
# shellcheck disable=SC2086
stops "a supervisor and two nodes killed" nodes "$child" config.yaml $base
says "it grew when a node came back" $journal '"event": "layout".*"ranks": 4'
ended "$agent" 60
code=$?
if [ $code -eq 0 ]; then ok "agents end with the run"
else bad "agents end with the run" "exit $code" log.a; fi
if lockstep status nodes | grep -q 'has ended: stopped'; then ok "status of the end"
else bad "status of the end" "$(lockstep status nodes 2>&1)"; fi
if awk -F'[:,]' '/"event": "recovered"/ {
        for (i = 1; i <= NF; i++)
            if ($i ~ /"redone"/ && $(i + 1) > 1) exit 1
    }' $journal; then ok "at most one step is done again"
else
    grep recovered $journal >redone
    bad "at most one step is done again" "more" redone
fi
report
