#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# far_ranks.sh - the device far trains the bits of the device cpu: losses, norms,
# gradients, weights and moments of models of several kinds on every axis that
# far has, with its work done late and at once; validation, prompts,
# checkpoints and resumed runs; and what far does not have is refused in one
# sentence.
#
#     BUILD=build [ONLY=PATTERN] tests/equivalence/far_ranks.sh
#
# ONLY: only models whose names contain a match (grep -E), and the rest of it if
# "runs" has one.
. "${0%/*}/../drills/common.sh"
prepare

# all_exact NAME ARGUMENT...: every layout of layouts.txt, on far. Layouts are
# held against one rank on the CPU.
all_exact() {
    local name=$1 rows found
    shift
    grep -qE "${ONLY:-.}" <<<"$name" || return 0
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

latent="--set model.kv_heads=0 --set model.head_width=0 --set mla.rank=16
    --set mla.nope=8 --set mla.rope=4 --set mla.value=6 --set moe.experts=4
    --set moe.top_k=2 --set moe.groups=1 --set moe.groups_chosen=1"
narrow="--set train.dtype=bfloat16 --set numerics.high_last=0"
# shellcheck disable=SC2086
for LOCKSTEP_FAR in late early; do
    export LOCKSTEP_FAR
    # Once with the check of lives, and once as a run is.
    export LOCKSTEP_CHECK=
    [ $LOCKSTEP_FAR = late ] || LOCKSTEP_CHECK=lives:late
    dense
    all_exact "integer sums" --set numerics.sums=integer \
        --set model.layers=4 --set model.tied=true
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
    all_exact "split masters" --set train.dtype=bfloat16 \
        --set optimizer.masters=split --set optimizer.ema=0.9
    few
    all_exact "gpt_oss, sinks" --set model.family=gpt_oss \
        --set moe.experts=4 --set moe.top_k=2
    few
    all_exact "mixtral, dropped tokens" --set model.family=mixtral \
        --set moe.experts=4 --set moe.capacity_factor=0.8
    few
    all_exact "glm4_moe, biases of the choice" --set model.family=glm4_moe \
        --set moe.experts=4 --set moe.top_k=2 --set moe.bias_rate=0.01
    few
    all_exact "qwen2_moe, one choice beside two" --set model.family=qwen2_moe \
        --set moe.experts=4 --set moe.top_k=2
    printf '%s\n' "ranks=2 mesh.expert=2" \
        "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp train.micro_batch=1 moe.rows_bound=0.5" \
        "ranks=2 mesh.expert=2 moe.rows_bound=0.01 train.recompute=block" \
        "ranks=4 mesh.expert=2 mesh.tensor=2 tensor.overlap=2" \
        "ranks=2 mesh.expert=2 mesh.expert_tensor=2" \
        "ranks=2 mesh.tensor=2 mesh.expert_tensor=1 moe.rows_bound=0.5" \
        "ranks=4 mesh.expert=2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe" \
        "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=two_level" \
        "ranks=4 mesh.expert=4 mesh.node=1 moe.rows_bound=0.1" \
        "ranks=2 mesh.context=2 mesh.expert_context=true" >layouts.txt
    all_exact "expert ranks" --set model.family=mixtral --set moe.experts=4 \
        --set model.layers=4 --set numerics.grid_context=2
    printf '%s\n' "ranks=2 mesh.expert=2" \
        "ranks=2 mesh.tensor=2 mesh.expert_tensor=1" >layouts.txt
    all_exact "expert ranks, gpt_oss" --set model.family=gpt_oss \
        --set moe.experts=4 --set moe.top_k=2 --set train.dtype=bfloat16
    few
    all_exact "latent attention" $latent --set model.family=deepseek_v2
    few
    all_exact "latent attention, bfloat16" $latent \
        --set model.family=deepseek_v3 --set train.dtype=bfloat16 \
        --set mla.query_rank=20
    # Operands in few bits: spans, places and tallies are the host's.
    few
    all_exact "recipe mxfp8, inputs as codes" $narrow \
        --set numerics.recipe=mxfp8 --set train.saved_activations=recipe
    few
    all_exact "recipe fp8-delayed" $narrow --set numerics.recipe=fp8-delayed \
        --set numerics.recipe_history=2 --set fsdp.gather_format=auto
    few
    all_exact "recipe nvfp4" $narrow --set numerics.recipe=nvfp4
    few
    all_exact "recipe bitnet, integers" $narrow --set numerics.recipe=bitnet
    few
    all_exact "recipe mxfp4-quartet" $narrow --set model.width=64 \
        --set numerics.recipe=mxfp4-quartet
    printf '%s\n' "ranks=1" "ranks=2 mesh.expert=2 train.micro_batch=1" \
        "ranks=2 mesh.tensor=2 mesh.expert_tensor=1" >layouts.txt
    all_exact "recipe nvfp4, experts" $narrow --set model.family=mixtral \
        --set moe.experts=4 --set numerics.recipe=nvfp4
    kept_codes="--set train.saved_activations=recipe"
    printf '%s\n' "ranks=1" \
        "ranks=2 mesh.expert=2 moe.dispatch_format=recipe moe.rows_bound=0.3" >layouts.txt
    all_exact "rows of experts as codes" $narrow $kept_codes --set model.family=mixtral \
        --set moe.experts=4 --set numerics.recipe=hfp8
    printf '%s\n' "ranks=1" \
        "ranks=2 mesh.expert=2 moe.dispatch_format=recipe" >layouts.txt
    all_exact "rows of experts as codes with scales" $narrow \
        --set model.family=mixtral --set moe.experts=4 --set numerics.recipe=bitnet
    printf '%s\n' "ranks=1" "ranks=2 mesh.expert=2 train.micro_batch=1" \
        "ranks=2 mesh.tensor=2 mesh.expert_tensor=1" >layouts.txt
    all_exact "recipe mxfp4-quartet, experts" $narrow \
        --set model.family=mixtral --set moe.experts=4 \
        --set numerics.recipe=mxfp4-quartet --set model.width=64
    few
    all_exact "soap" --set optimizer.name=soap --set optimizer.frequency=2
    few
    all_exact "adafactor, clipped scores" --set optimizer.name=adafactor \
        --set optimizer.schedule=constant --set optimizer.qk_clip=0.05
done
unset LOCKSTEP_CHECK
grep -qE "${ONLY:-.}" <<<runs || report

# ---- whole runs ----

# alike NAME RUN [LIKE]: the run equals `whole`, or LIKE, which the CPU made.
alike() {
    local like=${3:-whole}
    if ! lockstep compare "$like" "$2" >out 2>&1; then
        bad "$1" "compare: other weights or states" out
    elif same_run "$like" "$2"; then ok "$1"
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

# States that one rank has whole, and a snapshot of them.
# shellcheck disable=SC2086
for name in soap muon; do
    whole="$run --set train.steps=8 --set optimizer.name=$name"
    rm -rf near
    must train config.yaml --run near $whole
    for LOCKSTEP_FAR in late early; do
        rm -rf far
        must train config.yaml --run far $whole --set device=far --ranks 2 \
            --set zero=zero2 --set checkpoint.async=true
        alike "a run with $name, $LOCKSTEP_FAR" far near
    done
done

# Observed values are the same.
# shellcheck disable=SC2086
{
seen="$run --set observe.layers=3 --set observe.tensorboard=true
    --set observe.histograms=4 --set train.steps=6"
rm -rf seen
must train config.yaml --run seen $seen
for LOCKSTEP_FAR in late early; do
    rm -rf far
    must train config.yaml --run far $seen --set device=far --ranks 2 \
        --set mesh.pipe=2
    if cmp -s seen/layers.jsonl far/layers.jsonl && [ -s far/layers.jsonl ]
    then ok "observed layers, $LOCKSTEP_FAR"
    else bad "observed layers, $LOCKSTEP_FAR" "other numbers" log
    fi
done
}

# The layer that is not finite is found, behind a border of the pipeline, too.
wild="--ranks 2 --set mesh.pipe=2 --set optimizer.lr=100 --set optimizer.clip=0
    --set optimizer.warmup=0 --set optimizer.schedule=constant
    --set optimizer.name=sgd --set train.dtype=float16 --set train.steps=12"
for device in cpu far; do
    # shellcheck disable=SC2086
    expect "a layer that is not finite, $device" 76 \
        "step 3: the output of layer linear of block 0" \
        train config.yaml --run wild $wild --set device=$device
    rm -rf wild
done

# Kernels count where they run: names, calls, operations and bytes.
kernels_of() { # RUN
    awk '/"rows": \[/ { rows = 1 } rows && /"(kind|name|label|calls|flops|bytes)"/ {
        gsub(/^ */, ""); row = row $0 }
        rows && /}/ { if (row ~ /matmul|attention|memory|optimizer/) print row
                      row = "" }' "$1/profile.json" | sort
}
kernels_of whole >near.rows
# shellcheck disable=SC2086
for LOCKSTEP_FAR in late early; do
    rm -rf far
    must train config.yaml --run far $run --set device=far --trace far.json
    kernels_of far >far.rows
    if [ "$(grep -c . near.rows)" -ge 15 ] && cmp -s near.rows far.rows &&
        grep -q '"name":"thread_name".*"name":"kernels"' far.json
    then ok "a profile of kernels, $LOCKSTEP_FAR"
    else bad "a profile of kernels, $LOCKSTEP_FAR" "$(diff near.rows far.rows)"
    fi
done

# ---- other commands ----

# prints WORD...: the same bytes on both devices.
prints() {
    local name=$1 way
    shift
    lockstep "$@" >near.out 2>log || bad "$name" "exit $?" log
    for way in late early; do
        if LOCKSTEP_FAR=$way lockstep "$@" --device far >far.out 2>log &&
            cmp -s near.out far.out
        then ok "$name, $way"
        else bad "$name, $way" "other bytes, or none" log
        fi
    done
}

must train config.yaml --run latent $latent --set model.family=deepseek_v2 \
    --set train.steps=3
must train config.yaml --run later --set mtp.depth=2 --set train.steps=3
prints "text" generate whole --prompt ba --tokens 40
prints "text in bfloat16" generate whole --prompt ba --dtype bfloat16
prints "text over latents" generate latent --prompt ba --cache latent
prints "text over keys of latents" generate latent --prompt ba
prints "guessed text" generate later --prompt ba --speculative
prints "likelihoods" eval whole --task text.jsonl --kind lambada --limit 20 \
    --ranks 2 --out /dev/stdout
echo '[[7, 1, 2], [8, 3, 5]]' >ids.json
prints "losses" score whole --tokens ids.json
for way in near far; do
    must score whole --tokens ids.json --gradients "$way.grad" \
        --logits "$way.logits" --device ${way/near/cpu}
done
if cmp -s near.grad far.grad && cmp -s near.logits far.logits
then ok "logits and gradients"
else bad "logits and gradients" "other bytes"
fi

# ---- what is not there ----

expect "a device that there is not" 78 "device is gpu" \
    plan config.yaml --set device=gpu
LOCKSTEP_FAR=soon expect "LOCKSTEP_FAR is checked" 78 \
    "expected late or early" train config.yaml --run no --set device=far
report
