#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# alone.sh - the supervisor of two agents is killed, and a rank then waits for its
# data, measures a validation or saves for longer than ranks may stand still: the
# run goes on to its end by itself. Where a rank is stopped, or computes without
# end, its agent ends it, and the others give up, until a supervisor is back. One
# that is asked to save before it listens, or before its agents are back, saves.
#
#     BUILD=build tests/drills/alone.sh
. "${0%/*}/common.sh"
prepare
sed -i 's/every: 7/every: 300/; s/every: 5/every: 300/; s/steps: 30/steps: 400/' \
    config.yaml
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
two="--ranks 2 --set mesh.data=2 --set zero=zero1 --set train.threads=1
    --set comm.limit=120 --copies 1"
must train config.yaml --run whole

supervise() {
    # shellcheck disable=SC2086
    "$program" supervise config.yaml --run "$run" $two --token token \
        --listen 127.0.0.1:$port >>"log.$run" 2>&1 &
    child=$!
    children="$children $child"
    disown # its end is not news
}

join() { # NAME FAULT
    LOCKSTEP_FAULT=$2 "$program" agent --join 127.0.0.1:$port --token token \
        --slots 1 --name "$1" >"log.$run.$1" 2>&1 &
    agents="$agents $!"
    children="$children $!"
}

# begin RUN FAULT: up to its step 30, and then without a supervisor
begin() {
    run=$1
    port=$(free_port)
    agents=
    supervise
    await "log.$run" 'listens'
    join a "$2"
    join b "$2"
    await "$run/metrics.jsonl" '"step": 30,'
    kill -9 "$child"
}

# finish NAME INCIDENTS: another supervisor, to the end
finish() {
    local agent journal=$run/control/journal.jsonl
    supervise
    ended "$child" 400
    if ! grep -q '"event": "end".*"ok"' "$journal"; then
        bad "$1" "no end" "log.$run"
    elif ! same_run whole "$run"; then bad "$1" "$why" "log.$run"
    elif [ "$(grep -c '"event": "incident"' "$journal")" -gt "$2" ]; then
        bad "$1" "more than $2 incidents" "$journal"
    elif grep -q '"redone": \([2-9]\|1[0-9]\)' "$journal"; then
        bad "$1" "more than one step redone" "$journal"
    else ok "$1"
    fi
    for agent in $agents; do ended "$agent" 60; done
}

# Each takes five seconds; a rank may stand still for little more than three.
for slow in data:data.ahead@1:200 validation:validate.measure@0:1 \
    save:checkpoint.sync@0:1; do
    name=${slow%%:*}
    begin "$name" "${slow#*:}:late"
    if until_line "$run/metrics.jsonl" '"step": 400,'
    then ok "a slow $name: the run goes on without a supervisor"
    else bad "a slow $name: the run goes on without a supervisor" "it does not" \
        "log.$run.a"; fi
    step=$(lockstep status "$run" --json 2>log |
        sed -n 's/^ *"step": \([0-9]*\),$/\1/p' | head -n 1)
    if [ "$step" = 400 ]; then ok "a slow $name: status says which step it has"
    else bad "a slow $name: status says which step it has" "$step" log; fi
    if ! grep -q "incident" "$run/control/journal.jsonl" &&
        ! grep -q "its ranks end" "log.$run.a" "log.$run.b"
    then ok "a slow $name: no rank ends"
    else bad "a slow $name: no rank ends" "one does" "log.$run.a"; fi
    finish "a slow $name: taken over, the same bytes" 0
done

# Ranks, not spares, of the agents that are left.
ranks_of() {
    local process
    for process in /proc/[0-9]*; do
        [[ " $agents " = *" $(sed -n 's/^PPid:\t//p' \
            "$process/status" 2>/dev/null) "* ]] &&
            grep -q '^lockstep:[0-9]' "$process/comm" 2>/dev/null &&
            echo "${process#/proc/}"
    done
}

for how in stop spin; do
    begin "$how" "step.instruction@1:4000:$how"
    tries=0
    while [ -n "$(ranks_of)" ] && [ $tries -lt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    if [ -z "$(ranks_of)" ] && ! grep -q '"step": 400,' "$run/metrics.jsonl"
    then ok "a rank stands still ($how): the ranks end"
    else bad "a rank stands still ($how): the ranks end" "they do not" \
        "log.$run.b"; fi
    finish "a rank stands still ($how): the same bytes" 1
done

# Until the supervisor has said so, that often.
said() { # WORDS TIMES
    local tries count
    for ((tries = 0; tries < 2400; tries++)); do
        count=$(grep -c "$1" "log.$run" 2>/dev/null)
        [ "${count:-0}" -lt "$2" ] || return
        sleep 0.05
    done
    bad "asked: $1" "not said in time" "log.$run"
}

# Another run's supervisor has the port.
take_port() {
    rm -f log.other
    "$program" supervise config.yaml --run other --ranks 2 \
        --set mesh.data=2 --token token --listen 127.0.0.1:$port \
        >log.other 2>&1 &
    other=$!
    children="$children $other"
    disown
    until_line log.other '^listens'
}

# saves NAME: what was asked of it
saves() {
    # shellcheck disable=SC2086
    kill -CONT $agents
    ended "$child" 400
    for agent in $agents; do ended "$agent" 60; done
    if grep -q 'stopped on SIGUSR1 after step [0-9]*, saved' "log.$run"
    then ok "$1: saved"
    else bad "$1: saved" "not so" "log.$run"; fi
    agents=
    join a ''
    join b ''
    finish "$1: the same bytes" 0
}

# A new supervisor is asked to save and to end before its agents are back, as by
# a batch system at its time limit.
begin asked ''
# shellcheck disable=SC2086
kill -STOP $agents
supervise
said '^listens' 2
kill -USR1 "$child"
sleep 0.3 # a moment that it could end in
saves "asked while it takes over"

# It is asked before it listens: while it waits for its port, which another
# process leaves, or does not.
# Ranks of an agent that is stopped have a lease of 4 s, and it waits 3 s for its
# port: where this machine took longer, once more.
for ((try = 1; try <= 5; try++)); do
    begin "early$try" ''
    since=$(date +%s%N)
    # shellcheck disable=SC2086
    kill -STOP $agents
    take_port
    supervise
    said '^waiting .*another process listens' 1
    kill -USR1 "$child"
    kill -9 "$other"
    while kill -0 "$child" 2>/dev/null &&
        [ "$(grep -c '^listens' "log.$run")" -lt 2 ]; do sleep 0.05; done
    took=$((($(date +%s%N) - since) / 1000000))
    [ $took -gt 2000 ] || break
    # shellcheck disable=SC2086
    [ $try -eq 5 ] || kill -9 "$child" $agents 2>/dev/null
done
saves "asked before it listens"

run=never
port=$(free_port)
take_port
"$program" supervise config.yaml --run never --ranks 2 --set mesh.data=2 \
    --token token --listen 127.0.0.1:$port >log.never 2>&1 &
child=$!
children="$children $child"
said '^waiting .*another process listens' 1
kill -USR1 "$child"
ended "$child" 60
check_said "asked, and never listens" 75 "before it listened for agents" $? \
    log.never

report
