#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill.sh - a run that is killed at any moment and resumed ends in the same
# bytes as one that was never interrupted.
. "${0%/*}/common.sh"
prepare
must train config.yaml --run whole

# resumed NAME RUN: finishes it and compares
resumed() {
    if ! lockstep resume "$2" >log 2>&1; then
        bad "$1" "resume: exit $?" log
    elif same_run whole "$2"; then
        ok "$1"
        no_remains "$1: nothing left" "$2"
        rm -rf "$2"
    else
        bad "$1" "$why" log
    fi
}

# A real kill -9, of a run that waits for it.
for step in 2 13 21; do
    if hold killed-$step train.step:$((step + 1)) train config.yaml; then
        kill -9 "$child"
        wait "$child" 2>/dev/null
        [ $? -eq 137 ] || bad "kill -9 near step $step" "it had ended" log
        resumed "kill -9 near step $step" killed-$step
    else
        bad "kill -9 near step $step" "never got there" log
    fi
done

# The exact promise: 13 steps, kill -9, resume to 30; the metrics of the steps
# after the checkpoint are dropped, as is half a line.
LOCKSTEP_FAULT=train.step:14:kill lockstep train config.yaml --run thirteen \
    >log 2>&1
if [ "$(grep -c '"kind": "step"' thirteen/metrics.jsonl)" -ne 13 ]; then
    bad "13 steps, killed" "other metrics than 13 lines" thirteen/metrics.jsonl
else
    printf '{"kind": "step", "ste' >>thirteen/metrics.jsonl
    resumed "13 steps, kill -9, resume to 30" thirteen
fi

# At named points of a save, of the files around it and of resuming itself.
for fault in file.write:1 file.rename:1 file.write:4 file.rename:4 file.rename:6 \
    file.write:9 checkpoint.tensor:1 checkpoint.tensor:29 checkpoint.tensor:61 \
    checkpoint.sync:1 checkpoint.sync:4 checkpoint.rename:1 \
    checkpoint.rename:3 checkpoint.latest:1 checkpoint.latest:2 \
    checkpoint.remove:1 checkpoint.remove:3 metrics.append:17 train.step:1; do
    run=at-${fault%:*}-${fault#*:}
    LOCKSTEP_FAULT=$fault:kill lockstep train config.yaml --run "$run" \
        >log 2>&1
    code=$?
    if [ $code -ne 137 ]; then
        bad "killed at $fault" "exit $code: it was not killed" log
        continue
    fi
    if [ ! -e "$run/config.yaml" ]; then # nothing had begun: begin again
        lockstep train config.yaml --run "$run" >log 2>&1
        if same_run whole "$run"; then ok "killed at $fault"
        else bad "killed at $fault" "$why" log; fi
        continue
    fi
    LOCKSTEP_FAULT=checkpoint.rename:1:kill lockstep resume "$run" >log 2>&1
    resumed "killed at $fault, again in the next save" "$run"
done
# At each save, between its name and `latest`: no checkpoint is ever named.
lockstep() {
    LOCKSTEP_FAULT=checkpoint.latest:1:kill timeout --kill-after=5 600 \
        "$program" "$@"
}
lockstep train config.yaml --run unnamed >log 2>&1
for step in 5 10 15 20 25; do
    lockstep resume unnamed >log 2>&1
    grep -q "latest names no checkpoint: step $step is the newest" log ||
        bad "killed before latest, step $step" "it is not said" log
done
lockstep train config.yaml --run unnamed.too --ranks 2 --threads 1 \
    --supervised >log 2>&1
check_said "killed before latest, supervised" 0 finished $? log
unset -f lockstep
lockstep() { timeout --kill-after=5 600 "$program" "$@"; }
if same_run whole unnamed.too
then ok "killed before latest, supervised: the end is named"
else bad "killed before latest, supervised: the end is named" "$why" log; fi
[ ! -e unnamed/ckpt/latest ] || bad "killed before latest" "there is one"
expect "killed before latest, not resumed" 78 "continue it with: lockstep resume" \
    train config.yaml --run unnamed --ranks 2 --supervised
must resume unnamed
if same_run whole unnamed && ls unnamed/ckpt/latest >out 2>&1
then ok "killed before latest: goes on from the newest, which has a name then"
else bad "killed before latest" "$why" log; fi
# While the text becomes tokens: nothing half-written stays.
must train config.yaml --run own --set data.cache=
LOCKSTEP_FAULT=tokens.write:1:kill lockstep train config.yaml --run early \
    --set data.cache= >log 2>&1
must train config.yaml --run early --set data.cache=
if [ "$(ls early/tokens)" != "$(ls own/tokens)" ]; then
    bad "killed while tokenizing" "left $(ls early/tokens)"
elif same_run own early; then ok "killed while tokenizing"
else bad "killed while tokenizing" "$why" log; fi

# A start removes what a killed run left of its own files at the top of a run,
# and no file of anybody else; one that is refused removes nothing.
ending=.tmp-123-4-0123456789abcdef
mkdir mine
touch mine/thesis.tmp-draft.txt mine/thesis$ending mine/report.html$ending
must train config.yaml --run mine
if [ -e mine/report.html$ending ]; then
    bad "its own remains go" "report.html$ending stayed"
elif [ ! -e mine/thesis.tmp-draft.txt ] || [ ! -e mine/thesis$ending ]; then
    bad "files of others stay" "a start removed one"
else
    ok "its own remains go, files of others stay"
fi
touch mine/report.html$ending
code=0
for refused in "train config.yaml --run mine" \
    "resume mine --set train.steps=3" "resume mine --set model.layers=7"; do
    lockstep $refused >log 2>&1 && code=1
    [ -e mine/report.html$ending ] && [ -e mine/thesis$ending ] || code=2
done
if [ $code -eq 0 ]; then ok "what is refused removes nothing"
else bad "what is refused removes nothing" "case $code of $refused" log; fi
must resume mine
rm mine/thesis*
no_remains "its own remains go when it resumes" mine

# Options that resume may change, change no bit either.
LOCKSTEP_FAULT=train.step:17:kill lockstep train config.yaml --run moved \
    >log 2>&1
must resume moved --set train.micro_batch=1 --threads 3 \
    --set numerics.isa=plain --set train.recompute=[block]
if same_run whole moved; then ok "resumed with other micro-batches and kernels"
else bad "resumed with other micro-batches and kernels" "$why" log; fi
report
