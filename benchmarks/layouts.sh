#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layouts.sh - the cost of dividing the work on this machine: pairs of layouts
# of the same run, taken in turns, as a ratio of tokens a second (the median of
# the pairs). Run it on an otherwise idle machine.
#
#     benchmarks/layouts.sh [OUT_DIR]      default: benchmarks/results
#
# PAIRS (5) and STEPS (4; the first is not counted) make it shorter or longer;
# ONLY=TEXT takes pairs with that in the name, stored under it;
# QUICK=1 takes one pair of a small model: to see that it works.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
program=$root/${LOCKSTEP:-build/lockstep}
out=${1:-$root/benchmarks/results}
pairs=${PAIRS:-5} steps=${STEPS:-4} vocab=50257 layers=12
[ -z "${QUICK:-}" ] || pairs=1 steps=2 vocab=512 layers=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" && out=$(cd "$out" && pwd)
cd "$work"

# The project's own pages as text; the shapes of GPT-2 124M around a small
# tokenizer.
cat "$root"/docs/*.md "$root"/README.md >text.txt
"$program" tokenizer train text.txt --vocab 512 --out tokenizer >log 2>&1
cat >gpt2.yaml <<YAML
model: {family: gpt2, vocab: $vocab, layers: $layers, width: 768, heads: 12,
        context: 1024}
tokenizer: {from: tokenizer}
data: {train: [text.txt], valid_share: 0, sequence: 256, cache: cache}
train: {batch: 4, steps: $steps}
checkpoint: {at_end: false}
YAML

# A mixture of 60M parameters: 8 experts, 2 for each token.
cat >mixture.yaml <<YAML
model: {family: mixtral, vocab: 512, layers: $((layers > 4 ? 4 : layers)),
        width: 512, heads: 8, kv_heads: 8, feed_forward: 1024}
moe: {experts: 8, top_k: 2}
tokenizer: {from: tokenizer}
data: {train: [text.txt], valid_share: 0, sequence: 256, cache: cache}
train: {batch: 8, steps: $steps}
checkpoint: {at_end: false}
YAML

# rate RUN WORD... - tokens a second, the median of the steps after the first
rate() {
    local run=$1
    shift
    rm -rf "$run"
    "$program" train "$config" --run "$run" "$@" >log 2>&1 \
        || { cat log >&2; exit 1; }
    sed -n 's/.*"kind": *"step".*"tokens_per_s": *\([0-9.e+]*\).*/\1/p' \
        "$run/metrics.jsonl" | tail -n +2 | sort -g | median
}

median() {
    awk '{ v[NR] = $1 }
         END { i = int((NR + 1) / 2)
               print (v[i] + v[NR + 1 - i]) / 2 }'
}

# pair NAME A B - words of the two sides; prints A / B and keeps it
pair() {
    local name=$1 a b i
    [[ $name == *"${ONLY:-}"* ]] || return 0
    : >ratios
    : >both
    for ((i = 0; i < pairs; i++)); do
        # shellcheck disable=SC2086
        a=$(rate a $2)
        # shellcheck disable=SC2086
        b=$(rate b $3)
        echo "[$a,$b]" >>both
        awk -v a="$a" -v b="$b" 'BEGIN { print a / b }' >>ratios
        echo "  $name: $a against $b tokens/s" >&2
    done
    sort -g ratios >sorted
    local mid least most
    mid=$(median <sorted) least=$(head -n 1 sorted) most=$(tail -n 1 sorted)
    printf '%-44s %6.3f  (%.3f to %.3f)\n' "$name" "$mid" "$least" "$most"
    printf '%s{"pair":"%s","a":"%s","b":"%s","ratio":%s,"least":%s,"most":%s,' \
        "$comma" "$name" "$2" "$3" "$mid" "$least" "$most" >>rows
    printf '"tokens_per_s":[%s]}' "$(paste -sd, both)" >>rows
    comma=,
}

comma=
: >rows
config=gpt2.yaml
pair "2 ranks of 1 thread over 1 rank of 2" "--ranks 2 --threads 1" \
    "--threads 2"
pair "grid of 4 data leaves over no grid" \
    "--threads 2 --set numerics.grid_data=4 --set numerics.grid_tensor=1" \
    "--threads 2 --set numerics.grid_data=1 --set numerics.grid_tensor=1"
pair "default grid over no grid" "--threads 2" \
    "--threads 2 --set numerics.grid_data=1 --set numerics.grid_tensor=1"
config=mixture.yaml
pair "2 ranks that divide 8 experts over 1 rank of 2 threads" \
    "--ranks 2 --threads 1 --set mesh.expert=2" "--threads 2"

[ -s rows ] || { echo "ONLY=$ONLY: no pair has that in its name" >&2; exit 2; }
day=$(date -u +%Y-%m-%d)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
name=$(printf '%s' "$cpu" | tr -cs 'A-Za-z0-9' '-' | sed 's/^-//; s/-$//')
part=${ONLY:+-$(printf '%s' "$ONLY" | tr -cs 'A-Za-z0-9' '-')}
printf '{"date":"%s","cpu":"%s","cores":%s,"command":"%s","result":[%s]}\n' \
    "$day" "$cpu" "$(nproc)" "${ONLY:+ONLY='$ONLY' }benchmarks/layouts.sh" \
    "$(cat rows)" \
    >"$out/$day-$name-layouts$part.json"
echo "$out/$day-$name-layouts$part.json"
