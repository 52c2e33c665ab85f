#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# predicted.sh - the prediction of a run beside its measurement: the same number
# as `plan --time`, in the log, metrics, report and picture; the largest
# differences by name; a picture joined by the number of the instruction.
. "${0%/*}/common.sh"

prepare
sed -i 's/steps: 30/steps: 6/' config.yaml
echo 'machine: cpu,devices=4' >>config.yaml

# metric RUN NAME: of its last step.
metric() {
    grep '"kind": "step"' "$1/metrics.jsonl" | tail -n 1 |
        sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p"
}
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && a / b < 1.001 && b / a < 1.001) }'; }

# shows NAME RUN ARGUMENT...: everything that a run with a machine shows.
shows() {
    local name=$1 run=$2 planned missing
    shift 2
    must train config.yaml --run "$run" "$@"
    if [ "$(grep -c '^predicted .* a step by cpu; measured' log)" -eq 1 ] &&
        [ "$(grep -c 'instruction [0-9]*, .* measured, .* predicted' log)" \
            -eq 3 ]; then
        ok "$name: the log has it, and three differences"
    else bad "$name: the log has it, and three differences" "not" log; fi
    # Predictions add up; measured times also have other work between two clocks.
    if awk '/^predicted / { step = $2 }
            /^(by cause )?  *[a-z -]*: .* ms measured, .* predicted$/ && !/instruction/ {
                sub(/^.*: /, ""); measured += $1; sum += $4; causes++ }
            END { far = sum / step - 1
                  exit !(causes >= 4 && measured > 0 && far < 0.02 && far > -0.02) }' log
    then ok "$name: predicted times of causes add up to the step"
    else bad "$name: predicted times of causes add up to the step" "not" log; fi
    lockstep plan config.yaml --time --machine cpu,devices=4 --json "$@" >plan.json \
        2>err
    planned=$(sed -n 's/^  "step_s": \(.*\),/\1/p' plan.json)
    if near "$(metric "$run" predicted_ms)" \
        "$(awk -v s="$planned" 'BEGIN { print 1000 * s }')"; then
        ok "$name: the metric is the step of plan --time"
    else bad "$name: the metric is the step of plan --time" \
        "$(metric "$run" predicted_ms) ms, planned $planned s" err; fi
    if grep -q 'Prediction beside measurement' "$run/report.html" &&
        [ "$(grep -c '^<tr><td>[A-Za-z].* of .*</td><td>[0-9]' \
            "$run/report.html")" -eq 3 ]; then ok "$name: the report has it"
    else bad "$name: the report has it" "not"; fi
    # Every piece of work stands twice, with one number.
    grep -o '<title>instruction [0-9]*' "$run/timeline.svg" | sort | uniq -c |
        awk '{ n++; odd += $1 % 2 } END { exit !(n > 1 && odd == 0) }'
    missing=$?
    if [ $missing -eq 0 ] && grep -q '>predicted<' "$run/timeline.svg"; then
        ok "$name: the picture has both, joined by number"
    else bad "$name: the picture has both, joined by number" "not"; fi
}
shows "one rank" alone --ranks 1
shows "two data ranks" data --ranks 2
shows "a pipe" pipe --ranks 2 --set mesh.pipe=2
shows "a pipe of two, sharded" both --ranks 4 --set mesh.pipe=2 \
    --set zero=fsdp
if [ -s alone/machine.json ]; then ok "the run keeps the machine"
else bad "the run keeps the machine" "no machine.json"; fi
must resume alone --set machine= --set train.steps=8 \
    --set optimizer.schedule=constant
if grep -q '^predicted .* by cpu; measured' log; then
    ok "a resumed run has the same machine"
else bad "a resumed run has the same machine" "no prediction" log; fi
must train config.yaml --run ramped --set 'train.batch_ramp=[0=4,3=8]'
if [ "$(grep -c predicted_ms ramped/metrics.jsonl)" -eq 3 ] &&
    ! grep -q 'instruction .*: 0 ms measured' log; then
    ok "steps of another batch have none"
else bad "steps of another batch have none" \
    "$(grep -c predicted_ms ramped/metrics.jsonl) of 6 have one" log; fi
must train config.yaml --run plain --set machine=
if grep -q predicted_ms plain/metrics.jsonl || grep -q '^predicted' log; then
    bad "no machine, no prediction" "there is one" log
else ok "no machine, no prediction"; fi
if same_run plain alone 2>/dev/null; then
    bad "the runs differ in steps" "they do not"
else
    must train config.yaml --run again --ranks 1
    if same_run plain again; then ok "a prediction changes no bit"
    else bad "a prediction changes no bit" "$why"; fi
fi
# A pipe: a message that is awaited first may be posted last, and the batch of a
# ramp is that of its end.
step_of() { # SETTING...
    lockstep plan config.yaml --time --machine cpu,devices=4 --ranks 2 --json \
        --set mesh.pipe=2 --set model.layers=4 "$@" 2>err |
        sed -n 's/^  "step_s": \(.*\),/\1/p'
}
for name in interleaved breadth-first; do
    if near "$(step_of --set schedule.name=$name --set train.micro_batch=8)" \
        "$(step_of --set schedule.name=$name --set train.micro_batch=8 \
            --set 'train.batch_ramp=[0=4,3=8]')"
    then ok "one micro-batch, $name, and a ramp"
    else bad "one micro-batch, $name, and a ramp" "no steps of like time" err; fi
done
expect "an unknown machine" 78 "nearest preset is h100" train config.yaml \
    --run none --set machine=h10
expect "a constant out of range" 78 "gemm is 2" train config.yaml --run none \
    --set machine=h100,gemm=2
if [ ! -e none ]; then ok "nothing was made"
else bad "nothing was made" "a directory"; fi
report
