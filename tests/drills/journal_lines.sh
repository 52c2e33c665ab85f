#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# journal_lines.sh - the supervisor of a run with agents is killed at each line
# that it writes into its journal, while a rank is killed, too: ranks that need
# nothing of it keep stepping, and the next supervisor takes over.
#
#     BUILD=build tests/drills/journal_lines.sh
. "${0%/*}/common.sh"
prepare
sed -i 's/every: 7/every: 0/; s/every: 5/every: 5000/; s/steps: 30/steps: 200/' \
    config.yaml
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
four="--ranks 4 --set mesh.data=4 --set zero=zero1 --set train.threads=1
    --set comm.limit=60 --copies 1"
must train config.yaml --run whole

supervise() { # [FAULT]
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=${1:-} "$program" supervise config.yaml --run "$run" $four \
        --token token --listen 127.0.0.1:$port >>"log.$run" 2>&1 &
    child=$!
    children="$children $child"
    disown # its end is not news
}

# Rank 1 is killed in about its hundredth step: a step has some 34 instructions.
join() { # NAME
    LOCKSTEP_FAULT=step.instruction@1:3400:kill "$program" agent \
        --join 127.0.0.1:$port --token token --slots 2 --name "$1" \
        >"log.$run.$1" 2>&1 &
    agents="$agents $!"
    children="$children $!"
}

steps() {
    cat "$run/metrics.jsonl" 2>/dev/null | grep -c '"step"'
}

# Whether the ranks make steps without a supervisor, or their last one.
step_on() {
    local before tries
    before=$(steps)
    for ((tries = 0; tries < 600; tries++)); do
        [ "$(steps)" -le $((before + 2)) ] || return 0
        ! grep -q '"step": 200,' "$run/metrics.jsonl" || return 0
        sleep 0.05
    done
    return 1
}

turn=0
for line in 1 1 1 {2..39}; do # the first in the first step, sooner or later
    turn=$((turn + 1))
    port=$(free_port)
    run=turn$turn
    agents=
    supervise "journal.append:$line:kill"
    await "log.$run" 'listens'
    join a
    join b
    ended "$child" 400
    journal=$run/control/journal.jsonl
    grep -q '"event": "end"' "$journal" && break # the line of its end
    last=$(cat "$journal" 2>/dev/null | tail -n 1 | sed 's/.*"event": "\([a-z]*\)".*/\1/')
    last=${last:-none yet}
    # Ranks that have not met yet, or have lost one, need a supervisor.
    case $last in
    start | recovered)
        if step_on; then ok "line $line, $last: ranks step on"
        else bad "line $line, $last: ranks step on" "they do not" "log.$run.a"
        fi ;;
    esac
    supervise
    ended "$child" 400
    if ! grep -q '"event": "end".*"ok"' "$journal"; then
        bad "line $line, $last: taken over" "no end" "log.$run"
    elif ! same_run whole "$run"; then
        bad "line $line, $last: the same bytes" "$why" "log.$run"
    elif grep -q '"redone": \([2-9]\|1[0-9]\)' "$journal"; then
        bad "line $line, $last: redone" "more than one step" "$journal"
    else ok "line $line, $last: taken over, the same bytes"
    fi
    for agent in $agents; do
        ended "$agent" 60 || bad "line $line: an agent ends" "exit $?" "log.$run.a"
    done
done
[ $line -gt 4 ] || bad "lines" "only $line"
report
