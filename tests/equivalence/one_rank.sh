#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# one_rank.sh - settings that must not change a bit: the size of a micro-batch,
# threads, the instruction set, recomputation, how many logits exist at once.
. "${0%/*}/../drills/common.sh"
prepare

isas=plain
grep -qw avx2 /proc/cpuinfo && isas="$isas avx2"
grep -qw avx512vl /proc/cpuinfo && isas="$isas avx512"
[ "$(uname -m)" = aarch64 ] && isas="plain neon"

# same NAME ARGUMENT...: trains and compares with the run `first`
same() {
    local name=$1
    shift
    rm -rf other
    if ! lockstep train "$config" --run other $common "$@" >log 2>&1; then
        bad "$name" "exit $?" log
    elif same_run first other; then
        ok "$name"
    else
        bad "$name" "$why" log
    fi
}

# every NAME: all variations of $config with $common
every() {
    local name=$1 value
    rm -rf first
    # shellcheck disable=SC2086
    must train "$config" --run first $common --set train.micro_batch=16
    for value in 1 2 4 8; do
        same "$name, micro-batch $value" --set train.micro_batch=$value
    done
    for value in 2 3 4; do
        same "$name, $value threads" --threads $value
    done
    for value in $isas; do
        same "$name, $value" --set numerics.isa="$value" \
            --set train.micro_batch=4
    done
    for value in block norm 'activation,norm' attention; do
        same "$name, recompute $value" --set "train.recompute=[$value]" \
            --set train.micro_batch=8
    done
    for value in 1 7 100; do
        same "$name, $value logits at once" --set train.logits_chunk=$value
    done
    # A variation that must be seen: otherwise nothing above means anything.
    rm -rf other
    # shellcheck disable=SC2086
    must train "$config" --run other $common --set numerics.grid_data=1
    if same_run first other; then
        bad "$name, another grid" "has the same bits: the comparison is blind"
    else
        ok "$name, another grid has other bits"
    fi
}

# 16 leaves of data, so that micro-batches of 1 to 16 sequences are allowed.
sed 's/batch: 8, micro_batch: 4/batch: 16, micro_batch: 2/; s/steps: 30/steps: 6/' \
    config.yaml >llama.yaml
sed 's/family: llama/family: gpt2/; s/ kv_heads: 2, head_width: 6,//' \
    llama.yaml >gpt2.yaml
config=llama.yaml
common="--set numerics.grid_tensor=2"
every "llama float32"
config=gpt2.yaml
common="--set data.documents=joined"
every "gpt2 float32"
config=llama.yaml
common="--set train.dtype=float64 --set model.tied=true"
every "llama float64"

# Queries, keys and values of latents are made again: less is kept, and no bit
# is another.
latent="--set model.kv_heads=0 --set model.head_width=0 --set mla.rank=16
    --set mla.query_rank=20 --set mla.nope=8 --set mla.rope=4
    --set mla.value=6 --set moe.experts=4 --set moe.top_k=2 --set moe.groups=1
    --set moe.groups_chosen=1 --set moe.intermediate_size=12"
kept() { # POLICY: bytes of the frame
    # shellcheck disable=SC2086
    lockstep plan llama.yaml $common --set train.recompute="$1" \
        --explain memory | sed -n 's/.*frame of .*(\([0-9]*\) bytes).*/\1/p'
}
config=llama.yaml
for family in deepseek_v2 deepseek_v3; do
    common="--set model.family=$family $latent"
    [ $family = deepseek_v2 ] && common="$common --set mla.query_rank=0"
    rm -rf first
    # shellcheck disable=SC2086
    must train llama.yaml --run first $common --set train.recompute=none
    for value in latent 'latent,norm,activation' 'latent,attention'; do
        same "$family, recompute $value" --set "train.recompute=[$value]" \
            --set train.micro_batch=8
    done
    [ "$(kept '[latent]')" -lt "$(kept '[none]')" ] &&
        [ "$(kept '[latent,norm]')" -lt "$(kept '[norm]')" ] &&
        ok "$family keeps less with latents made again" ||
        bad "$family, recompute latent" "the frame is not smaller"
done

# Inputs of products as codes between F and W: the same bits in less memory.
frame() { # VALUE: bytes of the frame
    lockstep plan llama.yaml $common --set train.saved_activations="$1" \
        --explain memory | sed -n 's/.*frame of .*(\([0-9]*\) bytes).*/\1/p'
}
for recipe in fp8-tiles mxfp8 mxfp8-floor hfp8 fp8-tensor fp8-delayed mxfp4 \
    bitnet; do
    common="--set train.dtype=bfloat16 --set train.recompute=none
        --set numerics.recipe=$recipe"
    rm -rf first
    # shellcheck disable=SC2086
    must train llama.yaml --run first $common \
        --set train.saved_activations=dtype --set train.micro_batch=16
    config=llama.yaml
    same "$recipe, inputs as codes" --set train.saved_activations=recipe
    [ "$(frame recipe)" -lt "$(frame dtype)" ] &&
        ok "$recipe, codes take less memory" ||
        bad "$recipe, codes" "the frame is not smaller"
done

# Weights kept as codes: what the plan says is gone is missing from its total.
total() { # VALUE
    lockstep plan llama.yaml $common --set train.kept_weights="$1" \
        --explain memory | sed -n 's/^total .* \([0-9]*\) bytes$/\1/p'
}
for recipe in fp8-tiles hfp8 fp8-tensor nvfp4 nvfp4-delayed; do
    common="--set train.dtype=bfloat16 --set numerics.high_last=0
        --set numerics.recipe=$recipe"
    # shellcheck disable=SC2086
    gone=$(lockstep plan llama.yaml $common --set train.kept_weights=recipe \
        --explain precision |
        awk '/^weights are kept as codes/ { print $(NF - 2) - $7 }')
    [ "${gone:-0}" -gt 0 ] && [ $(($(total dtype) - $(total recipe))) -eq "$gone" ] &&
        ok "$recipe, weights as codes: $gone bytes less" ||
        bad "$recipe, weights as codes" "not ${gone:-any} bytes less"
done
# A changed recipe is told so, its fraction is one, and a format has one name.
shown=$(lockstep plan llama.yaml --set train.dtype=bfloat16 --explain precision \
    --set numerics.recipe=mxfp4-quartet --set numerics.high_last=1 \
    --set 'numerics.recipe_rows=["weights e2m1 1x32 up"]')
plain=$(lockstep plan llama.yaml --set train.dtype=bfloat16 --explain precision \
    --set numerics.recipe=bitnet --set numerics.high_last=1)
[[ $shown == *"mxfp4-quartet, changed by numerics.recipe_rows"*"multiplied by 16/9"* &&
    $plain != *"changed by"* && $plain != *bf16* && $plain == *" bfloat16 "* ]] &&
    ok "the plan names rows, fractions and formats" ||
    bad "the plan of a changed recipe" "${shown:0:300}"
report
