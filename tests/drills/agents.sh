#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# agents.sh - ranks, spares, agents and the supervisor itself are killed or fall
# silent; the run goes on with what is left, grows again, and ends in the same
# bytes.
#
#     BUILD=build [STEPS=1300] tests/drills/agents.sh
. "${0%/*}/common.sh"
steps=${STEPS:-1300}
prepare
base="--set train.steps=$steps --set checkpoint.every=500
    --set validate.every=500"
four="--ranks 4 --set mesh.data=4 --set zero=zero1 --set train.threads=1
    --set comm.limit=60"
# shellcheck disable=SC2086
must train config.yaml --run whole $base

# until_line FILE PATTERN [TENTHS]: false if it does not come.
until_line() {
    local tries=0
    until grep -q "$2" "$1" 2>/dev/null; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt "${3:-300}" ] || return 1
    done
}

until_step() { until_line "$1/metrics.jsonl" "\"step\": $2,"; }

process() { # RUN RANK: it may take a moment until its node says it
    local tries=0 found=0
    until [ "${found:-0}" -gt 1 ] || [ $tries -gt 100 ]; do
        found=$(lockstep status "$1" --json 2>/dev/null |
            grep -A 1 "\"rank\": $2," |
            sed -n 's/.*"process": \([0-9]*\).*/\1/p')
        tries=$((tries + 1))
    done
    echo "${found:-0}"
}

slay() { # RUN RANK
    local victim
    victim=$(process "$1" "$2")
    [ "${victim:-0}" -gt 1 ] && kill -9 "$victim" 2>/dev/null
}

# ends NAME RUN CHILD: it ends well, and equals the whole one.
ends() {
    local code
    wait "$3"
    code=$?
    if [ $code -ne 0 ]; then bad "$1" "exit $code" log
    elif ! lockstep compare whole "$2" >out 2>&1; then
        bad "$1" "compare: other weights or states" out
    elif same_run whole "$2"; then ok "$1"
    else bad "$1" "$why" log
    fi
}

says() { # NAME FILE PATTERN
    if grep -q "$3" "$2"; then ok "$1"; else bad "$1" "not said" "$2"; fi
}

# --- a warm spare takes the place of a rank; the others keep their process;
# without one the run goes on with fewer ranks, and grows again ---
# shellcheck disable=SC2086
"$program" train config.yaml --run spares $base $four --supervised --spares 1 \
    >log 2>&1 &
child=$!
children="$children $child"
until_step spares 10
others="$(process spares 0) $(process spares 2) $(process spares 3)"
slay spares 1
until_line spares/control/journal.jsonl '"generation": 2, "from": "memory"'
now="$(process spares 0) $(process spares 2) $(process spares 3)"
if [ "$others" = "$now" ]; then ok "the others keep their process"
else bad "the others keep their process" "$others, then $now" log; fi
for i in 3 4 5; do # both places fail twice
    slay spares 1
    until_line spares/control/journal.jsonl "\"generation\": $i" 300
    until_line spares/control/journal.jsonl \
        "recovered.*\"generation\": [$i-9]" 300
done
until_line spares/control/journal.jsonl '"event": "layout".*"ranks": 2' 100
until_line spares/control/journal.jsonl '"event": "grows"'
survivor=$(process spares 0)
until_line spares/control/journal.jsonl '"event": "layout".*"ranks": 4'
[ "${others%% *}" = "$survivor" ] && ok "rank 0 was never restarted"
ends "spares, fewer ranks, more again" spares "$child"
says "it went on with fewer ranks" spares/control/journal.jsonl \
    '"event": "layout".*"ranks": 2'
says "it grew again" spares/control/journal.jsonl \
    '"event": "layout".*"ranks": 4'
expect "spares without a supervisor" 2 "add --supervised" train config.yaml \
    --run no --spares 1
expect "spares, and a layout that shows in the bits" 78 "numerics.mode" train \
    config.yaml --run no --ranks 3 --supervised --spares 1 \
    --set numerics.mode=fast --set train.batch=24

# --- three nodes; the supervisor and two nodes are killed, one after the other:
# the first one's ranks go to a spare node, with copies that a third one kept;
# after the second, places are missing ---
port=$((20000 + RANDOM % 12000))
supervise() {
    # shellcheck disable=SC2086
    "$program" supervise config.yaml --run nodes $base $four --token token \
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
until_line log 'listens' 100
if [ "$(stat -c %a token)" = 600 ]; then ok "the token is private"
else bad "the token is private" "$(stat -c %a token)"; fi
join a
a=$agent
until_line log 'node *a joined' 100
join b
until_line log 'node *b joined' 100
join c
c=$agent
until_step nodes 20
says "which losses are survived" log 'of two at once 0 of 3 pairs'
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >forged
chmod 600 forged
expect "an agent with another token" 68 "another token" agent \
    --join 127.0.0.1:$port --token forged
chmod 644 forged
expect "a token that others can read" 78 "only its owner" agent \
    --join 127.0.0.1:$port --token forged
lose "$child"
before=$(grep -c '"step"' nodes/metrics.jsonl)
until [ "$(grep -c '"step"' nodes/metrics.jsonl)" -gt $((before + 5)) ] ||
    ! kill -0 "$a" 2>/dev/null; do sleep 0.05; done
ok "ranks step without their supervisor"
supervise
until_line log 'took over 4 ranks' 200
says "the next supervisor takes them over" log 'took over 4 ranks'
victim=$(process nodes 3)
[ "${victim:-0}" -gt 1 ] && kill -STOP "$victim"
until_line $journal '"event": "recovered"' 300
says "a rank that is stopped is named, long before comm.limit" $journal \
    '"kind": "hang", "rank": 3.*hangs (stopped)'
sleep 0.5
lose "$a"
until_line $journal '"from": "peer memory"'
says "a lost node's ranks go on elsewhere, from peer memory" $journal \
    '"from": "peer memory"'
sleep 0.5
lose "$c"
until_line $journal '"event": "layout".*"ranks": 2'
join a
ends "a supervisor and two nodes killed" nodes "$child"
says "it grew when a node came back" $journal '"event": "layout".*"ranks": 4'
wait "$agent"
code=$?
if [ $code -eq 0 ]; then ok "agents end with the run"
else bad "agents end with the run" "exit $code" log.a; fi
if lockstep status nodes | grep -q 'has ended: ok'; then ok "status of the end"
else bad "status of the end" "$(lockstep status nodes 2>&1)"; fi
if awk -F'[:,]' '/"event": "recovered"/ {
        for (i = 1; i <= NF; i++)
            if ($i ~ /"redone"/ && $(i + 1) > 1) exit 1
    }' $journal; then ok "at most one step is done again"
else bad "at most one step is done again" "more" $journal; fi
report
