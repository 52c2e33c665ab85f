#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# far_ranks.sh - the device far trains the bits of the device cpu: losses, norms,
# gradients, weights and moments of models of several kinds on every axis that
# far has, with its work done late and at once; validation, prompts,
# checkpoints and resumed runs; and what far does not have is refused in one
# sentence.
. "${0%/*}/../drills/common.sh"
prepare

# all_exact NAME ARGUMENT...: every layout of layouts.txt, on far. Layouts are
# held against one rank on the CPU.
all_exact() {
    local name=$1 rows found
    shift
    sed -i 's/$/ device=far/' layouts.txt
    rows=$(grep -c . layouts.txt)
    LIMIT=600 lockstep verify config.yaml --layouts layouts.txt --steps 3 \
        --set train.steps=3 --set comm.limit=100 --set train.threads=1 \
        --set data.sequence=24 --set numerics.grid_tensor=2 \
        "$@" >out 2>&1 || { bad "$name, $LOCKSTEP_FAR" "exit $?" out; return; }
    found=$(grep -c 'device=far .*EXACT *$' out)
    if [ "$found" -eq "$rows" ]
    then ok "$name, $LOCKSTEP_FAR: $rows layouts"
    else bad "$name, $LOCKSTEP_FAR" "$found of $rows rows are exact" out
    fi
}

dense() {
    printf '%s\n' "ranks=1" "ranks=1 train.micro_batch=1 train.threads=3" \
        "ranks=1 train.recompute=block train.logits_chunk=100" \
        "ranks=2 mesh.data=2" "ranks=4 mesh.data=4 zero=zero1" \
        "ranks=2 mesh.data=2 zero=zero2" \
        "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
        "ranks=2 mesh.shard=2 zero=fsdp fsdp.reshard=false" \
        "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp" \
        "ranks=2 mesh.tensor=2" "ranks=2 mesh.tensor=2 tensor.overlap=2" \
        "ranks=2 mesh.pipe=2" \
        "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
        "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 zero=zero1 schedule.name=zb-h1" \
        >layouts.txt
}

few() {
    printf '%s\n' "ranks=1" "ranks=2 mesh.data=2 zero=zero1" \
        "ranks=2 mesh.tensor=2" "ranks=2 mesh.pipe=2" >layouts.txt
}

for LOCKSTEP_FAR in late early; do
    export LOCKSTEP_FAR
    dense
    all_exact "llama" --set model.layers=4 --set model.tied=true \
        --set model.vocab=303
    few
    all_exact "gpt2" --set model.family=gpt2 --set model.kv_heads=0 \
        --set model.dropout=0.1
    few
    all_exact "bfloat16" --set train.dtype=bfloat16 --set model.tied=true
    few
    all_exact "qwen3, qk norm" --set model.family=qwen3
    few
    all_exact "gemma2, caps and norms plus one" --set model.family=gemma2 \
        --set train.dtype=float64
    printf '%s\n' "ranks=1" "ranks=2 mesh.context=2" \
        "ranks=2 mesh.context=2 context.kind=ulysses" \
        "ranks=4 mesh.context=2 mesh.data=2 zero=fsdp" \
        "ranks=4 mesh.context=2 mesh.tensor=2" >layouts.txt
    all_exact "context ranks" --set numerics.grid_context=2
    printf '%s\n' "ranks=2 mesh.context=2 context.kind=ring" \
        "ranks=2 mesh.context=2 context.kind=hybrid" \
        "ranks=4 mesh.context=2 mesh.tensor=2 context.kind=ring train.micro_batch=1" \
        >layouts.txt
    all_exact "context ranks in a ring" --set numerics.grid_context=2 \
        --set data.sequence=512 --set model.layers=1
    few
    all_exact "modules for later tokens" --set mtp.depth=2
    few
    all_exact "adapters" --set lora.rank=2
    few
    all_exact "muon, an average" --set optimizer.name=muon \
        --set optimizer.ema=0.9
    few
    all_exact "schedule_free" \
        --set optimizer.name=schedule_free --set optimizer.schedule=constant
    few
    all_exact "adamw, states of 8 bits" --set optimizer.state_dtype=int8
    few
    all_exact "gpt_oss, sinks" --set model.family=gpt_oss \
        --set moe.experts=4 --set moe.top_k=2
    few
    all_exact "mixtral, dropped tokens" --set model.family=mixtral \
        --set moe.experts=4 --set moe.capacity_factor=0.8
    few
    all_exact "glm4_moe, biases of the choice" --set model.family=glm4_moe \
        --set moe.experts=4 --set moe.top_k=2 --set moe.bias_rate=0.01
done

# ---- whole runs ----

# alike NAME RUN: the run equals `whole`, which the CPU made.
alike() {
    if ! lockstep compare whole "$2" >out 2>&1; then
        bad "$1" "compare: other weights or states" out
    elif same_run whole "$2"; then ok "$1"
    else bad "$1" "$why" log
    fi
}

run="--set train.steps=12 --set checkpoint.every=4 --set optimizer.schedule=constant --set validate.every=6"
# shellcheck disable=SC2086
{
must train config.yaml --run whole $run
for LOCKSTEP_FAR in late early; do
    export LOCKSTEP_FAR
    must train config.yaml --run far $run --set device=far
    alike "a run, $LOCKSTEP_FAR" far
    rm -rf far
    must train config.yaml --run far $run --set device=far --set train.steps=6
    must resume far --set train.steps=12 --set device=cpu
    alike "a run that goes on on the CPU, $LOCKSTEP_FAR" far
    rm -rf far
    must train config.yaml --run far $run --set train.steps=6 --ranks 2
    must resume far --set train.steps=12 --ranks 1 --set device=far
    alike "a run that comes from the CPU, $LOCKSTEP_FAR" far
    rm -rf far
    must train config.yaml --run far $run --set device=far --ranks 2 \
        --set zero=zero1 --set checkpoint.async=true
    alike "a run of two ranks, $LOCKSTEP_FAR" far
    rm -rf far
    must train config.yaml --run far $run --set device=far --ranks 2 \
        --supervised --set zero=fsdp --set mesh.shard=2
    alike "a run of two processes, $LOCKSTEP_FAR" far
    rm -rf far
done
}

# ---- what is not there ----

expect "a layer is refused" 78 "device: far does not have the layer" \
    plan config.yaml --set device=far --set model.family=deepseek_v2 \
    --set model.kv_heads=4 --set model.head_width=0 --set moe.experts=4 \
    --set moe.top_k=2 --set moe.groups=1 --set moe.groups_chosen=1
expect "an optimizer is refused" 78 "far does not have the optimizer soap" \
    plan config.yaml --set device=far --set optimizer.name=soap
expect "a device that there is not" 78 "device is gpu" \
    plan config.yaml --set device=gpu
LOCKSTEP_FAR=soon expect "LOCKSTEP_FAR is checked" 78 \
    "expected late or early" train config.yaml --run no --set device=far
report
