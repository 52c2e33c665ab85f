#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# whole_ranks.sh - optimizers that see whole matrices give the bits of one rank
# on ranks that have parts of them: losses, gradients, weights, states. verify
# also holds bytes sent and memory used against the plan.
#
#     BUILD=build tests/equivalence/whole_ranks.sh [OPTIMIZER...]
. "${0%/*}/../drills/common.sh"
LIMIT=600
wanted=" $* "
prepare

# exact NAME CONFIG SETTING... -- LAYOUT...
exact() {
    local name=$1 config=$2 sets=()
    shift 2
    while [ "$1" != -- ]; do
        sets+=(--set "$1")
        shift
    done
    shift
    printf '%s\n' "$@" >layouts.txt
    if lockstep verify "$config" --layouts layouts.txt --steps 3 \
        --set train.threads=1 --set comm.limit=100 "${sets[@]}" >log 2>&1
    then
        ok "$name ($# layouts)"
    else
        bad "$name" "exit $?" log
        grep -v EXACT log | head -n 12
    fi
}

# A layout writes what one rank writes, and another goes on from it.
moved() {
    rm -rf one many
    must train moves.yaml --run one --set optimizer.name=$optimizer
    must train moves.yaml --run many --set optimizer.name=$optimizer \
        --ranks 4 --set mesh.tensor=2 --set zero=fsdp
    if same_run one many; then ok "$optimizer: bytes of checkpoints"
    else bad "$optimizer: bytes of checkpoints" "$why" log
    fi
    back many 2
    must resume many --ranks 2 --set mesh.tensor=1 --set mesh.pipe=2 \
        --set mesh.data=1 --set zero=ddp
    back many 4
    must resume many --ranks 4 --set mesh.tensor=1 --set mesh.pipe=1 \
        --set mesh.data=4 --set zero=zero1
    if same_run one many; then ok "$optimizer: moved through three layouts"
    else bad "$optimizer: moved through three layouts" "$why" log
    fi
}

# States of an expert's matrices move between degrees of the expert axis.
moved_experts() {
    local mixture=(--set optimizer.name=$optimizer --set moe.top_k=2
        --set model.family=mixtral --set moe.experts=4)
    rm -rf one many
    must train moves.yaml --run one "${mixture[@]}"
    must train moves.yaml --run many "${mixture[@]}" --ranks 4 \
        --set mesh.expert=2 --set zero=fsdp
    back many 2
    must resume many --ranks 1 --set mesh.expert=1 --set mesh.data=1 \
        --set mesh.shard=1 --set zero=ddp
    back many 4
    must resume many --ranks 4 --set mesh.expert=4 --set mesh.data=1
    if same_run one many; then ok "$optimizer: experts moved between degrees"
    else bad "$optimizer: experts moved between degrees" "$why" log
    fi
}

sed 's/steps: 30/steps: 6/; s/every: 5/every: 2, keep_last: 9/' config.yaml >moves.yaml
sed -i '/micro_batch/!s/batch: 8/batch: 8, micro_batch: 1/' moves.yaml
sed 's/steps: 30/steps: 3/' config.yaml >llama.yaml
# An odd vocabulary; four tensor ranks on two key-value heads; biases; tied.
sed 's/vocab: 304/vocab: 309/; s/heads: 4, kv_heads: 2/heads: 8, kv_heads: 2/; s/feed_forward: 40/feed_forward: 40, tied: true, attention_bias: true/' \
    llama.yaml >odd.yaml
# One fused tensor outside, stored transposed.
sed 's/family: llama/family: gpt2/; s/ kv_heads: 2, head_width: 6,//' \
    llama.yaml >gpt2.yaml

for optimizer in muon adafactor soap; do
    [ "$wanted" = "  " ] || [[ $wanted == *" $optimizer "* ]] || continue
    exact "$optimizer: axes" llama.yaml optimizer.name=$optimizer -- \
        "ranks=1 train.threads=3 train.micro_batch=1" \
        "ranks=1 numerics.isa=plain" \
        "ranks=2 mesh.data=2" \
        "ranks=2 mesh.tensor=2" \
        "ranks=4 mesh.tensor=4" \
        "ranks=2 mesh.pipe=2" \
        "ranks=4 zero=fsdp" \
        "ranks=4 zero=zero1"
    exact "$optimizer: mixtures" odd.yaml optimizer.name=$optimizer -- \
        "ranks=4 mesh.tensor=4" \
        "ranks=4 mesh.tensor=2 zero=fsdp" \
        "ranks=8 mesh.tensor=2 mesh.shard=2 mesh.data=2 zero=hsdp" \
        "ranks=4 mesh.tensor=2 mesh.pipe=2 train.micro_batch=2" \
        "ranks=4 mesh.tensor=2 mesh.data=2 mesh.order=tensor,data" \
        "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1"
    exact "$optimizer: context" llama.yaml optimizer.name=$optimizer \
        numerics.grid_context=2 -- \
        "ranks=2 mesh.context=2" \
        "ranks=4 mesh.context=2 mesh.data=2 zero=zero2" \
        "ranks=4 mesh.context=2 mesh.tensor=2"
    exact "$optimizer: fused and transposed" gpt2.yaml \
        optimizer.name=$optimizer train.dtype=bfloat16 -- \
        "ranks=2 mesh.tensor=2" \
        "ranks=4 zero=zero3 train.micro_batch=2" \
        "ranks=4 mesh.tensor=2 zero=zero1" \
        "ranks=2 mesh.pipe=2"
    [ $optimizer != muon ] || exact "$optimizer: 8 bits" odd.yaml \
        optimizer.name=$optimizer optimizer.state_dtype=int8 -- \
        "ranks=2 mesh.tensor=2" "ranks=4 mesh.tensor=2 zero=fsdp" \
        "ranks=2 mesh.pipe=2" "ranks=2 mesh.data=2 zero=zero1"
    exact "$optimizer: float64" odd.yaml optimizer.name=$optimizer \
        train.dtype=float64 -- \
        "ranks=2 mesh.tensor=2" "ranks=4 mesh.data=2 mesh.shard=2 zero=mics"
    # Experts that ranks divide; groups that speak of one expert alone.
    exact "$optimizer: divided experts" llama.yaml optimizer.name=$optimizer \
        model.family=mixtral moe.experts=4 moe.top_k=2 \
        'optimizer.groups=["layers.1.experts.3.* frozen",
"layers.0.experts.1.w2 optimizer=adamw", "*.experts.2.* lr_factor=0.1"]' -- \
        "ranks=2 mesh.expert=2" \
        "ranks=4 mesh.expert=4" \
        "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp train.micro_batch=1" \
        "ranks=4 mesh.expert=2 mesh.tensor=2" \
        "ranks=8 mesh.expert=2 mesh.pipe=2 mesh.data=2 zero=zero1 train.micro_batch=1"
    moved
    moved_experts
done
report
