#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# best.sh - checkpoint.keep_best: the checkpoint with the lowest validation loss
# is saved and stays, on every kind of ranks, in the background, through kills,
# signals and other layouts; commands find it as RUN/best.
. "${0%/*}/common.sh"
prepare 2
# Rates at which the loss rises and falls.
sed -i 's/lr: 3.0e-3, schedule: cosine, warmup: 3, min_lr: 3.0e-4/lr: 1.0e-1, schedule: constant/
        s/every: 7/every: 3/; s/every: 5/every: 5, keep_best: true, keep_last: 1/' config.yaml

# The step with the lowest val_loss, the first of equal ones.
least() { # RUN
    sed -n 's/.*"step": \([0-9]*\),.*"val_loss": \([0-9.e+-]*\),.*/\2 \1/p' \
        "$1/metrics.jsonl" | sort -s -g -k 1,1 | head -n 1 | cut -d ' ' -f 2
}

# kept NAME RUN: the best and the newest checkpoint, and no other.
kept() {
    local step
    step=$(least "$2")
    if [ "$(ls "$2/ckpt" | tr '\n' ' ')" = \
        "latest $(printf 'step-%08d' "$step") step-00000030 " ]
    then ok "$1"; else bad "$1" "best $step, there are $(ls "$2/ckpt")" log; fi
}

# like NAME RUN: all checkpoints and metrics are those of `whole`.
like() {
    kept "$1: kept" "$2"
    if ! same_run whole "$2"; then bad "$1" "$why" log
    elif diff -r whole/ckpt "$2/ckpt" >differ; then ok "$1"
    else bad "$1" "$(head -n 1 differ)"; fi
}

must train config.yaml --run whole
kept "the best and the newest" whole
best=$(least whole)
name=step-$(printf %08d "$best")
if [ "$best" -gt 3 ] && [ "$best" -lt 27 ] && [ $((best % 5)) -ne 0 ]
then ok "the best is neither first nor last, nor one of every 5"
else bad "the best is one that shows something" "it is step $best"; fi
if grep -q "\"val_best_step\": $best," <(tail -n 1 whole/metrics.jsonl)
then ok "metrics name it"
else bad "metrics name it" "$(tail -n 1 whole/metrics.jsonl)"; fi
if grep -q "lowest, step $best" whole/report.html; then ok "the report names it"
else bad "the report names it" "no \"lowest, step $best\""; fi

# --- ranks, the background, kills ---
four="--ranks 4 --set train.threads=1"
# shellcheck disable=SC2086
{
must train config.yaml --run fsdp $four --set mesh.data=4 --set zero=fsdp
like "4 ranks, fsdp" fsdp
must train config.yaml --run pipe $four --set mesh.pipe=2 --set mesh.tensor=2 \
    --set checkpoint.async=true
like "pipe 2 x tensor 2, in the background" pipe
LOCKSTEP_FAULT=checkpoint.tensor:3:slow lockstep train config.yaml --run slow \
    --set checkpoint.async=true >log 2>&1
kept "a slow disk" slow
LOCKSTEP_FAULT=train.step:14:kill lockstep train config.yaml --run replaced \
    $four --set mesh.data=4 --set zero=zero1 --supervised >log 2>&1
like "a rank that is replaced" replaced
for ranks in 1 2; do
    LOCKSTEP_FAULT=validate.measure:$((2 + 4 * ranks)):kill lockstep train \
        config.yaml --run killed$ranks >log 2>&1
    must resume killed$ranks --ranks $ranks
    like "killed, resumed on $ranks" killed$ranks
done
}
LOCKSTEP_FAULT=checkpoint.remove:2:kill lockstep train config.yaml \
    --run removed >log 2>&1
must resume removed
like "killed while an old one is removed" removed
# Shards of machines: gather brings the newest step and the best.
# shellcheck disable=SC2086
must train config.yaml --run apart $four --set mesh.data=4 --set zero=zero1 \
    --set checkpoint.local=shards
if [ "$(ls shards/here/ckpt)" = "$(ls whole/ckpt)" ]
then ok "shards of the best are kept"
else bad "shards of the best are kept" "$(ls shards/here/ckpt)" log; fi
freeze file.write:1 gather apart ||
    bad "two gathers at once" "the first never began" log
expect "two gathers at once" 78 "apart/gather.lock: in use by process $child" \
    gather apart
kill -CONT $child
ended $child || bad "two gathers at once" "the first failed" log
expect "gather brings the best" 0 "apart/best is the checkpoint of step $best" \
    gather apart
like "gathered" apart
rm -rf apart/ckpt shards/here/ckpt/$name
expect "shards of the best are gone" 0 \
    "lowest at step $best, which is not whole here" gather apart
# The save of the best fails: then the best is the best of those that are there,
# here the last.
improved=$(sed -n 's/.*"step": \([0-9]*\),.*"val_best_step": \1,.*/\1/p' \
    whole/metrics.jsonl)
saves=$({ echo "$improved"; seq 5 5 30; } | sort -n -u | grep -n -x "$best")
LOCKSTEP_FAULT=checkpoint.rename:${saves%:*} lockstep train config.yaml \
    --run failed >log 2>&1
expect "the save of the best failed" 66 \
    "the best that is here: failed/ckpt/step-00000030" \
    export failed/best none
LOCKSTEP_FAULT=train.nan:29 lockstep train config.yaml --run rewound \
    --set train.on_nan=rewind >log 2>&1
kept "a run that went back" rewound

# --- commands ---
expect "compare takes it" 0 equal compare whole/best "whole/ckpt/$name"
lockstep compare whole/ckpt/best "$(newest whole)" >out 2>&1
if [ $? -eq 1 ]; then ok "another than the newest"
else bad "another than the newest" "exit $?" out; fi
expect "generate" 0 "" generate whole/best --prompt a --tokens 2
expect "export" 0 "" export whole/best exported
expect "init.from" 0 "" train config.yaml --run again \
    --set init.from=whole/best --set train.steps=1
sed 's/^model: .*/init: {from: whole\/best}/' config.yaml >brought.yaml
expect "init.from brings the architecture" 0 "" train brought.yaml \
    --run brought --set train.steps=1
expect "plan finds it" 0 "" plan brought.yaml
! grep "no directory" out || bad "plan finds it" "a note that it is missing"
mv "whole/ckpt/$name" elsewhere
expect "it is gone" 66 "lowest at step $best, whose checkpoint is not here" \
    export whole/best none
mv elsewhere "whole/ckpt/$name"
must train config.yaml --run without --set checkpoint.keep_best=false
must train config.yaml --run less --set train.steps=12
must resume less --set train.steps=18 --set checkpoint.keep_best=false
found=$(sed -n 's/.*"step": \([0-9]*\),.*"val_best_step": .*/\1/p' \
    less/metrics.jsonl | tail -n 1)
if [ "$found" = 12 ] && grep -q '"step": 18,.*"val_loss"' less/metrics.jsonl
then ok "switched off, none is named"
else bad "switched off, none is named" "val_best_step at step $found"; fi
expect "none was recorded" 66 "no checkpoint has a validation loss" \
    export without/best none
[ "$(ls without/ckpt | tr '\n' ' ')" = "latest step-00000030 " ] &&
    ok "without it, none is kept" || bad "without it" "$(ls without/ckpt)"

# --- what is refused ---
expect "no validation" 78 "validate.every is 0" train config.yaml --run none \
    --set validate.every=0
expect "nothing to validate with" 78 "nothing to validate with" train \
    config.yaml --run none --set data.valid_share=0
report
