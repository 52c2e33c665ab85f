#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# signals.sh - a run that is asked to stop saves and ends.
. "${0%/*}/common.sh"
prepare 2
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

# A second SIGTERM or Ctrl-C, after either, ends at once, without a checkpoint: in
# a step that never ends here, so that nothing else does.
catches_terms() { # PROCESS: whether it has a handler for SIGTERM
    local caught
    caught=$(sed -n 's/^SigCgt:.*\(....\)$/\1/p' "/proc/$1/status")
    [ $((0x${caught:-0} >> 14 & 1)) -eq 1 ]
}
twice() { # FIRST SECOND CODE
    local tries=0
    rm -rf twice
    hold twice step.instruction:40:spin,train.step:2 train config.yaml \
        --threads 1 ||
        { bad "$1, then $2" "never got to step 2" log; return; }
    kill "-$1" "$child"
    kill -CONT "$child"
    while catches_terms "$child" && [ $tries -lt 6000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    kill "-$2" "$child"
    ended "$child" 2>/dev/null
    code=$?
    if [ $code -ne "$3" ]; then bad "$1, then $2" "exit $code, expected $3" log
    elif [ -e twice/ckpt/latest ]; then bad "$1, then $2" "saved something"
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

# A launcher that is killed says nothing to its ranks: they see it, save and end.
"$program" launch --ranks 2 -- "$program" train config.yaml --run orphans \
    --set mesh.data=2 --set train.threads=1 --set optimizer.schedule=constant \
    --set train.steps=1000000 --set checkpoint.every=1000000 \
    --set validate.every=0 >log 2>&1 &
child=$!
children="$children $child"
disown
await orphans/metrics.jsonl '"step": 5,'
# Ranks that did not see it would go on.
for process in $(sed -n 's/.*process \([0-9]*\)$/\1/p' orphans/log.txt \
    orphans/logs/rank-00001.log); do children="$children $process"; done
kill -9 "$child"
if until_line log "stopped on the end of its launcher after step .*, saved" 600
then ok "the launcher is killed: saved"
else bad "the launcher is killed: saved" "not said" log; report; fi
code=78 tries=0
while [ $code -eq 78 ] && [ $tries -lt 100 ]; do # the last may be about to end
    tries=$((tries + 1))
    lockstep resume orphans --ranks 1 --set mesh.data=1 \
        --set train.steps=$((steps = $(step_now orphans) + 3)) >out 2>&1
    code=$?
done
must train config.yaml --run alike --set train.steps=$steps \
    --set optimizer.schedule=constant --set validate.every=0
if [ $code -eq 0 ] && same_run alike orphans
then ok "the launcher is killed: resumed"
else bad "the launcher is killed: resumed" "exit $code, ${why:-}" out; fi
report
