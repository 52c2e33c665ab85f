#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# largest_rank.sh - `plan --time` and `search` plan few ranks of a long pipe: the
# largest is among them where stages are uneven, as `plan` without a clock says,
# which plans all.
. "${0%/*}/common.sh"
presets=$tree/examples/presets
uneven="mesh.layers=[2,2,2,2,2,2,2,2,2,2,42,2,2,2,2,2,2,2,2,2]"

expect "a large stage in the middle" 79 "rank at pipe rank 10 needs 266" \
    plan "$presets/llama3_70b.yaml" --ranks 160 --set mesh.tensor=8 \
    --set mesh.pipe=20 --set mesh.data=1 --set "$uneven" --time --machine h100

# 105 blocks on 32 pipe ranks: the fourth is the first that has four.
mt_nlg=$presets/mt_nlg_530b.yaml
lockstep search "$mt_nlg" --machine h100 --max-memory 80e9 --nodes 128 --top 1 \
    --json >search.json 2>err
sets=()
while read -r set; do sets+=(--set "$set"); done < <(
    sed -n '/"set": \[/,/^ *\]/s/^ *"\(.*=.*\)",*$/\1/p' search.json)
lockstep plan "$mt_nlg" --ranks 1024 "${sets[@]}" >plan.txt 2>err
found=$(awk '/^ *"memory_bytes"/ { printf "%.1f GiB", $2 / 2 ^ 30; exit }' \
            search.json)
if [ -n "$found" ] && grep -q "^memory of the largest rank *$found " plan.txt
then ok "105 blocks on 32 pipe ranks"
else bad "105 blocks on 32 pipe ranks" "$found" plan.txt; fi

# Frozen parameters, 24 ranks that share the batch: neither the largest shard of
# weights nor that of gradients is where states, which are rounded up one by one,
# take the most.
printf 'model: {family: gpt2, vocab: 1000, layers: 3, width: 128, heads: 4}
data: {sequence: 64}\ntrain: {batch: 96, steps: 10}
optimizer: {groups: ["layers.0.* frozen", "*norm* frozen"]}\n' >frozen.yaml
lockstep search frozen.yaml --ranks 48 --machine h100 --top 6 --json >search.json 2>err
sets=()
while read -r set; do sets+=(--set "$set"); done < <(
    sed -n '/"set": \[/,/^ *\]/{s/^ *"\(.*=.*\)",*$/\1/p;/^ *\]/q}' search.json)
lockstep plan frozen.yaml --ranks 48 --machine h100 --time --json "${sets[@]}" >plan.json 2>err
bytes() { awk -F'[:,]' '/"memory_bytes"/ { print $2 + 0; exit }' "$1"; }
if [ "${#sets[@]}" -gt 0 ] && [ "$(bytes search.json)" = "$(bytes plan.json)" ]
then ok "frozen parameters on 24 ranks that share the batch"
else bad "frozen parameters on 24 ranks that share the batch" "$(bytes search.json)" plan.json; fi

# Other ways to divide gradients and states, and matrices with an owner, who has
# room to work on them: search plans few of the ranks, plan all.
same() { # NAME RANKS CONFIGURATION
    local name=$1 ranks=$2 count=0 wrong=0
    printf '%b' "$3" >drawn.yaml
    lockstep search drawn.yaml --ranks "$ranks" --machine h100 --top 6 --json >search.json 2>err
    awk '/"memory_bytes"/ { bytes = $2 + 0 } /"memory_exact": false/ { bytes = 0 }
        /"set": \[/ { on = 1; line = bytes; next }
        on && /^ *\],?$/ { on = 0; if (bytes) print line; next }
        on { sub(/^ *"/, ""); sub(/",?$/, ""); line = line "|" $0 }' OFMT=%.15g CONVFMT=%.15g \
        search.json >found
    while IFS='|' read -r -a row; do
        sets=("${row[@]:1}")
        lockstep plan drawn.yaml --ranks "$ranks" --machine h100 --time --json \
            "${sets[@]/#/--set=}" >plan.json 2>err
        count=$((count + 1))
        [ "$(bytes plan.json)" = "${row[0]}" ] || wrong=$((wrong + 1))
    done <found
    if [ $count -gt 3 ] && [ $wrong = 0 ]; then ok "$name: $count layouts"
    else bad "$name" "$wrong of $count differ" plan.json; fi
}
same "moments of 8 bits, of all ranks" 40 "model: {family: gpt2, vocab: 257, layers: 5, width: 96, heads: 6}
data: {sequence: 64}\ntrain: {batch: 40, steps: 10}
optimizer: {state_dtype: int8, groups: [\"*wqkv frozen\", \"*embed* frozen\"]}\n"
same "owners of matrices" 64 "model: {family: llama, vocab: 1000, layers: 4, width: 96, heads: 6}
data: {sequence: 64}\ntrain: {batch: 256, steps: 10}\noptimizer: {name: muon}\n"
same "owners of matrices, a pipe" 36 "model: {family: llama, vocab: 257, layers: 4, width: 32, heads: 4}
data: {sequence: 64}\ntrain: {batch: 144, steps: 10}\noptimizer: {name: soap}\n"
report
