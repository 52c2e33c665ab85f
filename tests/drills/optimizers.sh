#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# optimizers.sh - every optimizer, and every type of its states: killed, resumed
# under another layout, and again under a third: the bytes of the checkpoint and
# the metrics are those of a run that was never interrupted.
#
#     BUILD=build tests/drills/optimizers.sh [NAME...]
. "${0%/*}/common.sh"
prepare
sed -i 's/steps: 30/steps: 12/; s/every: 5/every: 4/' config.yaml
names=" $* "

# optimizer NAME SETTING...
optimizer() {
    local name=$1 set sets=()
    shift
    [ "$names" = "  " ] || [[ $names == *" $name "* ]] || return
    for set; do sets+=(--set "$set"); done
    must train config.yaml --run "whole-$name" "${sets[@]}"
    LOCKSTEP_FAULT=train.step:6:kill lockstep train config.yaml \
        --run "$name" "${sets[@]}" >log 2>&1
    [ -e "$name/ckpt/step-00000004" ] || bad "$name" "not killed at 6" log
    LOCKSTEP_FAULT=train.step:18:kill lockstep resume "$name" --ranks 4 \
        --set mesh.tensor=2 --set mesh.shard=2 --set zero=fsdp \
        --set train.micro_batch=2 >log 2>&1
    [ -e "$name/ckpt/step-00000008" ] || bad "$name" "not killed at 9" log
    must resume "$name" --ranks 2 --set mesh.tensor=1 --set mesh.shard=1 \
        --set mesh.pipe=2 --set zero=ddp --set train.micro_batch=1
    if same_run "whole-$name" "$name"; then ok "$name"
    else bad "$name" "$why" log; fi
}

optimizer adamw
optimizer adamw16 optimizer.state_dtype=bfloat16
optimizer adamw8 optimizer.state_dtype=int8
optimizer gpt2_8 optimizer.state_dtype=int8 model.family=gpt2 model.kv_heads=0
optimizer adamw8_bfloat16 optimizer.state_dtype=int8 train.dtype=bfloat16
optimizer lion optimizer.name=lion optimizer.beta2=0.99
optimizer lion8 optimizer.name=lion optimizer.state_dtype=int8 model.tied=true
optimizer sgd optimizer.name=sgd optimizer.lr=0.1
optimizer sgd16 optimizer.name=sgd optimizer.state_dtype=bfloat16
optimizer sgd8 optimizer.name=sgd optimizer.state_dtype=int8 model.vocab=309
# Regularization has no state: masks come from the sequence's number.
optimizer regular model.dropout=0.2 train.z_loss=0.01 optimizer.qk_clip=0.05 \
    model.attention_dropout=0.1
optimizer regular_bfloat16 model.dropout=0.2 train.z_loss=0.01 \
    optimizer.qk_clip=0.05 train.dtype=bfloat16 model.family=gpt2 \
    model.kv_heads=0
optimizer schedule_free optimizer.name=schedule_free \
    optimizer.schedule=constant optimizer.beta1=0.95 model.tied=true
optimizer schedule_free16 optimizer.name=schedule_free \
    optimizer.schedule=constant train.dtype=bfloat16
# Frozen matrices: their states are in no checkpoint, what a kind keeps among
# the gradients lies where those of the others do.
optimizer lora_free optimizer.name=schedule_free \
    optimizer.schedule=constant lora.rank=2
optimizer lora_8 optimizer.state_dtype=int8 optimizer.ema=0.9 lora.rank=2
optimizer frozen_muon optimizer.name=muon model.tied=true \
    'optimizer.groups=["embedding frozen", "layers.0.* frozen"]'

# The weights of a checkpoint are the average that validation measured: a run
# that begins with them, at rate 0, measures the same.
average_is_saved() {
    local found wanted
    must train config.yaml --run average --set init.from=whole-schedule_free \
        --set model.tied=true --set optimizer.lr=0 --set optimizer.min_lr=0 \
        --set train.steps=1 --set optimizer.warmup=0
    wanted=$(grep -o '"val_loss": [^,]*' whole-schedule_free/metrics.jsonl |
        tail -n 1)
    found=$(grep -o '"val_loss": [^,]*' average/metrics.jsonl | tail -n 1)
    if [ -n "$found" ] && [ "$found" = "$wanted" ]; then
        ok "checkpoints have the average"
    else
        bad "checkpoints have the average" "$found where $wanted is expected"
    fi
}
[ ! -e whole-schedule_free ] || average_is_saved

# A run goes on with what it began with.
if [ -e whole-adamw ]; then
    expect "another type of states is refused" 78 "optimizer.state_dtype" \
        resume whole-adamw --set optimizer.state_dtype=int8
    expect "another optimizer is refused" 78 "optimizer.name" \
        resume whole-adamw --set optimizer.name=lion
    expect "an optimizer that there is not" 78 "nearest: lion" \
        train config.yaml --run none --set optimizer.name=lionn
    expect "narrow states where there are none" 78 "adafactor stores" \
        train config.yaml --run none --set optimizer.name=adafactor \
        --set optimizer.state_dtype=int8
    expect "narrow states beside float64" 78 "float64" \
        train config.yaml --run none --set train.dtype=float64 \
        --set optimizer.state_dtype=int8
    expect "an average needs no schedule" 78 "set it to constant" \
        train config.yaml --run none --set optimizer.name=schedule_free
    expect "a group cannot average alone" 78 "is for whole runs" \
        train config.yaml --run none \
        --set 'optimizer.groups=["*.norm* optimizer=schedule_free"]'
fi
optimizer muon optimizer.name=muon
optimizer muon_bfloat16 optimizer.name=muon train.dtype=bfloat16 \
    model.family=gpt2 model.kv_heads=0
optimizer muon8 optimizer.name=muon optimizer.state_dtype=int8
optimizer adafactor optimizer.name=adafactor model.tied=true
optimizer soap optimizer.name=soap optimizer.frequency=2
report
