#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# signals.sh - a run that is asked to stop saves and ends.
. "${0%/*}/common.sh"
prepare
must train config.yaml --run whole

# stop NAME SIGNAL: saved, exit 75, resumed to the same bytes
stop() {
    local run=by-$2 code
    if ! hold "$run" train.step:10 train config.yaml; then
        bad "$1" "never got to step 10" log
        return
    fi
    kill -"$2" "$child"
    kill -CONT "$child"
    wait "$child"
    code=$?
    check_said "$1: exit and sentence" 75 "saved; go on with: lockstep resume" \
        $code log
    grep -q "stopped on SIG$2 after step" log \
        && [ "$(sed -n 's/.*"step": \([0-9]*\),.*/\1/p' "$run/metrics.jsonl" \
            | tail -n 1)" -eq "$(basename "$(newest "$run")" | sed 's/step-0*//')" ] \
        || bad "$1: saved the last step" "$(ls "$run/ckpt")" log
    if lockstep resume "$run" >log 2>&1 && same_run whole "$run"; then
        ok "$1: resumed"
    else
        bad "$1: resumed" "${why:-it failed}" log
    fi
}

stop "SIGTERM" TERM
stop "SIGUSR1" USR1
# Bash starts background programs with SIGINT ignored; a run watches it anyway.
stop "Ctrl-C" INT

# A second SIGTERM or Ctrl-C, after either, ends at once, without a checkpoint: a
# long step here.
sed 's/steps: 30, batch: 8, micro_batch: 4/steps: 30, batch: 512, micro_batch: 8/' \
    config.yaml >long.yaml
twice() { # FIRST SECOND CODE
    rm -rf twice
    "$program" train long.yaml --run twice --set train.batch=4096 \
        --set data.valid_share=0 --threads 1 >log 2>&1 &
    child=$!
    children="$children $child"
    until_line log '^data  '
    sleep 0.3
    began=$(date +%s%N)
    kill "-$1" "$child"
    sleep 0.05
    kill "-$2" "$child"
    wait "$child" 2>/dev/null
    code=$?
    took=$((($(date +%s%N) - began) / 1000000))
    if [ $code -ne "$3" ]; then bad "$1, then $2" "exit $code, expected $3" log
    elif [ -e twice/ckpt/latest ]; then bad "$1, then $2" "saved something"
    elif [ $took -gt 3000 ]; then bad "$1, then $2" "took $took ms"
    else ok "$1, then $2: ends at once"; fi
}
twice TERM TERM 143
twice TERM INT 130

# Batch systems warn with SIGUSR1, and send SIGTERM while the run saves.
if start_until warned 5 train config.yaml --run warned --ranks 2 \
    --set mesh.data=2 --set train.threads=1 --set train.steps=100000 --supervised
then
    kill -USR1 "$child"
    kill -TERM "$child"
    ended "$child"
    check_said "supervised: SIGUSR1, then SIGTERM" 75 "saved" $? log
else bad "supervised: SIGUSR1, then SIGTERM" "it did not start" log; fi

# A signal in the last step: the run is finished, not stopped.
if start_until last 30 train config.yaml --run last; then
    kill -TERM "$child" 2>/dev/null
    wait "$child"
    code=$?
    if { [ $code -eq 0 ] || [ $code -eq 143 ]; } && same_run whole last; then
        ok "SIGTERM after the last step loses nothing"
    else
        bad "SIGTERM after the last step" "exit $code, ${why:-}" log
    fi
fi
report
