#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# effects.sh - every option that divides or orders the work changes a plan.
# Results never show these options (that is the promise), so a row that trains
# the right bits cannot tell whether one was read at all; plans can.
#
#     BUILD=build tests/cases/effects.sh
. "${0%/*}/common.sh"

cat >config.yaml <<'END'
version: 1
model: {family: llama, vocab: 304, layers: 4, width: 32, heads: 4, feed_forward: 48}
data: {sequence: 1024}
train: {steps: 1, batch: 10, micro_batch: 1, threads: 1}
numerics: {grid_data: 2, grid_context: 4}
END

# differ OPTION VIEW RANKS VALUES SETTING...: each two of the values, which
# have spaces between them, give different plans. OPTION may have a place @ for
# the value.
differ() {
    local option=$1 view=$2 ranks=$3 values=$4 value setting settings=()
    shift 4
    for value; do settings+=(--set "$value"); done
    : >plans
    for value in $values; do
        setting=$option=$value
        [[ $option == *@* ]] && setting=${option/@/$value}
        if ! timeout 200 "$program" plan config.yaml --ranks "$ranks" \
            --explain "$view" "${settings[@]}" --set "$setting" \
            >plan 2>&1; then
            bad "$setting: $(head -n 1 plan)"
            return
        fi
        cksum <plan >>plans
    done
    if [ -z "$(sort plans | uniq -d)" ]; then ok
    else
        bad "$option has no effect on the $view: of $values some give the" \
            "same plan"
    fi
}

context="mesh.context=4 context.kind=hybrid"
interleaved="mesh.pipe=2 schedule.name=interleaved"

# shellcheck disable=SC2086
{
differ device memory 1 "cpu far"
differ mesh.@=2 mesh 2 "data shard context tensor pipe"
differ mesh.order mesh 4 "pipe,tensor tensor,pipe" mesh.pipe=2 mesh.tensor=2
differ mesh.layers mesh 2 "[2,2] [1,3] [3,1]" mesh.pipe=2
differ zero mesh 4 "ddp zero1 zero2 zero3 hsdp" mesh.shard=2 train.batch=8 \
    numerics.grid_data=4
differ fsdp.prefetch memory 2 "0 1 3" zero=fsdp
differ fsdp.gather_format memory 2 "dtype auto" zero=fsdp train.dtype=bfloat16 \
    numerics.recipe=fp8-tiles
differ moe.dispatch_format memory 2 "dtype auto" mesh.expert=2 train.dtype=bfloat16 \
    numerics.recipe=hfp8 model.family=mixtral moe.experts=4 moe.top_k=2
differ zero_format mesh 2 "real int8 int4" mesh.data=2 zero=fsdp numerics.mode=fast
differ train.saved_activations memory 1 "dtype auto" train.dtype=bfloat16 \
    numerics.recipe=mxfp8
differ train.kept_weights memory 1 "dtype auto" train.dtype=bfloat16 \
    numerics.recipe=fp8-tiles
differ optimizer.masters memory 1 "float32 split" train.dtype=bfloat16
differ fsdp.reshard mesh 2 "true false" zero=fsdp
differ tensor.overlap memory 2 "1 2" mesh.tensor=2
differ tensor.domino memory 2 "false true" mesh.tensor=2 tensor.overlap=2 \
    numerics.grid_context=1
# (for 2 ranks and equal times zb-1p is zb-h1, v-half and v-min are zb-v)
differ schedule.name schedule 2 "gpipe gpipe-early-send 1f1b 1f1b-early-send \
    interleaved breadth-first zb-h1 zb-h2 zb-2p zb-v dualpipe dualpipev" \
    mesh.pipe=2
differ schedule.chunks schedule 2 "1 2" $interleaved
differ schedule.group schedule 2 "2 3 5" $interleaved
differ schedule.memory_limit schedule 2 "2 3 4" mesh.pipe=2 \
    schedule.name=zb-2p
differ context.kind mesh 4 "allgather ring ulysses" mesh.context=4
differ context.ulysses mesh 4 "1 2 4" $context
mixture="model.family=mixtral moe.experts=4 mesh.expert=4 train.batch=8 \
    numerics.grid_data=4 numerics.grid_context=1"
differ mesh.node experts 4 "0 1 2" $mixture
differ moe.exchange experts 4 "flat two_level" $mixture mesh.node=2
differ model.dropout memory 1 "0 0.1"
differ train.z_loss memory 1 "0 1e-4"
differ optimizer.qk_clip memory 1 "0 100"
differ numerics.grid_data numerics 1 "1 2"
differ numerics.grid_tensor numerics 1 "1 2 4"
differ numerics.grid_context numerics 1 "1 2 4"
differ numerics.recipe precision 1 "none hfp8 fp8-tensor fp8-delayed \
    fp8-tiles mxfp8 mxfp8-floor mxfp4 mxfp4-quartet nvfp4 nvfp4-delayed bitnet" train.dtype=bfloat16
printf 'numerics:\n  recipe: mxfp8\n  recipe_rows: ["weights e5m2 1x32 up"]\n' >own.yaml
differ numerics.recipe precision 1 "mxfp8 own.yaml" train.dtype=bfloat16
differ numerics.accumulator precision 1 \
    "off 14:32:128 13:32:128 14:16:128 14:32:0" train.dtype=bfloat16 \
    numerics.recipe=fp8-tiles
differ numerics.high_first precision 1 "0 1 2" train.dtype=bfloat16 \
    numerics.recipe=mxfp8
differ numerics.high_last precision 1 "0 1 2" train.dtype=bfloat16 \
    numerics.recipe=nvfp4
}

cd "$tree" || exit 1
report
