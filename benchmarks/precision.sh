#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# precision.sh - the ladder: a small Llama trained with every recipe for products
# in few bits, and with ingredients of nvfp4 and quartet left out, from the same seed and
# data; the loss of each less that of bfloat16, as JSON and as a picture.
#
#     benchmarks/precision.sh [OUT_DIR]      default: benchmarks/results
#
# SIZE=1m (default) or 10m; SIZE=demo: the model of `make demo`, on its corpus
# (tools/corpus.sh; TEXT as there). STEPS (400); BATCH (16 sequences); THREADS;
# ONLY=REGEX: recipes whose names it matches, and bfloat16; WORK=DIR: runs are kept
# there, and those that have ended there are not made again; QUICK=1: two steps of
# two recipes, to see that it works.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
program=$root/${LOCKSTEP:-build/lockstep}
out=${1:-$root/benchmarks/results}
size=${SIZE:-1m} only=${ONLY:-}
case $size in
1m) shape="layers: 4, width: 128, heads: 4, kv_heads: 2" ;;
10m) shape="layers: 8, width: 320, heads: 8, kv_heads: 4" ;;
demo) ;;
*) echo "precision.sh: SIZE=$size is none of 1m, 10m and demo" >&2; exit 2 ;;
esac
steps=${STEPS:-400}
[ -z "${QUICK:-}" ] || steps=2 only=mxfp8
if [ -n "${WORK:-}" ]; then
    work=$WORK
    mkdir -p "$work"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$out" && out=$(cd "$out" && pwd)
cd "$work"

every=$((steps / 4 > 0 ? steps / 4 : 1))
: >rungs

# The project's own pages as text: every machine has them.
own_model() {
    if [ ! -f tokenizer.json ]; then
        mkdir -p text
        for page in "$root"/docs/*.md "$root"/docs/*/*.md "$root"/README.md; do
            page_name=${page#"$root"/}
            cp "$page" "text/${page_name//\//_}.txt"
        done
        "$program" tokenizer train text --vocab 1024 --out tokenizer.json >log 2>&1
    fi
    cat >config.yaml <<YAML
model: {$shape}
tokenizer: {from: tokenizer.json}
data: {train: [text], valid_share: 0.05, sequence: 128, cache: cache}
train: {batch: ${BATCH:-16}, steps: $steps, dtype: bfloat16, threads: ${THREADS:-0}}
optimizer: {lr: 1.0e-3, warmup: 20, min_lr: 1.0e-4}
validate: {every: $every, sequences: 64}
checkpoint: {at_end: false}
YAML
}

# As tools/demo.sh trains it, but for the format of products.
demo_model() {
    if [ ! -f demo/tokenizer.json ]; then
        # shellcheck disable=SC2086
        "$root/tools/corpus.sh" demo/corpus ${TEXT:-} >&2
        "$program" tokenizer train demo/corpus/train.jsonl --vocab 2048 \
            --out demo/tokenizer.json >log 2>&1
    fi
    cp "$root/examples/01_first_run/config.yaml" config.yaml
    always=(--set train.dtype=bfloat16 --set train.steps="$steps"
        --set train.batch="${BATCH:-16}" --set train.threads="${THREADS:-0}"
        --set validate.every="$every" --set checkpoint.every=0
        --set checkpoint.at_end=false --set data.cache=cache)
    [ "$steps" -gt 20 ] || always+=(--set optimizer.warmup=0)
}

always=()
if [ "$size" = demo ]; then demo_model; else own_model; fi

# rung NAME SETTING... - one run
rung() {
    local name=$1 sets=() set
    shift
    [[ $name == bfloat16 || $name =~ $only ]] || return 0
    for set; do sets+=(--set "$set"); done
    if [ ! -f "$name.ended" ]; then
        rm -rf "$name"
        "$program" train config.yaml --run "$name" \
            ${always[@]+"${always[@]}"} ${sets[@]+"${sets[@]}"} >log 2>&1 ||
            { cat log >&2; exit 1; }
        touch "$name.ended"
    fi
    echo "$name" >>rungs
    echo "$name: $(tail -n 1 "$name/metrics.jsonl")" >&2
}

rung bfloat16
# The same sums in another order: how far rounding alone carries a run.
rung "bfloat16 in tiles" numerics.bfloat16=tiles
for recipe in hfp8 fp8-tensor fp8-delayed fp8-tiles mxfp8 mxfp8-floor mxfp4 \
    mxfp4-quartet nvfp4 nvfp4-delayed bitnet; do
    rung "$recipe" numerics.recipe=$recipe
done
nvfp4="numerics.recipe=nvfp4"
rung "nvfp4 without high blocks" $nvfp4 numerics.high_last=0
rung "nvfp4 without stochastic gradients" $nvfp4 \
    'numerics.recipe_rows=[gradients e2m1 1x16 two nearest]'
rung "nvfp4 without Hadamard" $nvfp4 'numerics.recipe_rows=[hadamard off]'
rung "nvfp4 without square blocks" $nvfp4 \
    'numerics.recipe_rows=[weights e2m1 1x16 two nearest]'
rung "nvfp4 with one scale, a power of two" $nvfp4 \
    'numerics.recipe_rows=["weights e2m1 16x16 up", "activations e2m1 1x16 up",
        "gradients e2m1 1x16 up stochastic"]'
# The paper's late switch: bfloat16 for the last fifth.
[ "$steps" -lt 5 ] ||
    rung "nvfp4 with bfloat16 at the end" $nvfp4 numerics.recipe_steps=$((steps * 4 / 5))
rung "mxfp4 with nearest gradients" numerics.recipe=mxfp4 \
    'numerics.recipe_rows=[gradients e2m1 1x32 up nearest]'
quartet="numerics.recipe=mxfp4-quartet"
rung "quartet without masks" $quartet 'numerics.recipe_rows=[trust off]'
rung "quartet without rotation" $quartet 'numerics.recipe_rows=[rotate off]'
rung "quartet without Hadamard of gradients" $quartet \
    'numerics.recipe_rows=[hadamard off]'
rung "quartet with scales of the largest" $quartet \
    'numerics.recipe_rows=["weights e2m1 1x32 up", "activations e2m1 1x32 up"]'
rung "quartet with nearest gradients" $quartet \
    'numerics.recipe_rows=[gradients e2m1 1x32 up nearest]'
python3 "$root/benchmarks/precision.py" "$size" "$out" rungs
