#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# precision.sh - the ladder: a small Llama trained with every recipe for products
# in few bits, and with ingredients of nvfp4 and quartet left out, from the same seed and
# data; the loss of each less that of bfloat16, as JSON and as a picture.
#
#     benchmarks/precision.sh [OUT_DIR]      default: benchmarks/results
#
# SIZE=1m (default) or 10m; STEPS (400); BATCH (16 sequences); THREADS;
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
10m) shape="layers: 8, width: 320, heads: 8, kv_heads: 4" steps=${STEPS:-400} ;;
*) shape="layers: 4, width: 128, heads: 4, kv_heads: 2" steps=${STEPS:-400} ;;
esac
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

# The project's own pages as text: every machine has them.
: >rungs
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
validate: {every: $((steps / 4 > 0 ? steps / 4 : 1)), sequences: 64}
checkpoint: {at_end: false}
YAML

# rung NAME SETTING... - one run
rung() {
    local name=$1 sets=() set
    shift
    [[ $name == bfloat16 || $name =~ $only ]] || return 0
    for set; do sets+=(--set "$set"); done
    if [ ! -f "$name.ended" ]; then
        rm -rf "$name"
        "$program" train config.yaml --run "$name" "${sets[@]}" >log 2>&1 ||
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
