#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# search_lines.sh - what `search` proposes, `train` takes: the lines of random
# layouts of random models, pasted below the configuration, train a step.
#
#     [SEED=N] [DRAWS=N] tests/drills/search_lines.sh
. "${0%/*}/common.sh"
prepare

SEED=${SEED:-183300} DRAWS=${DRAWS:-6}
RANDOM=$SEED
one_of() { eval "chosen=\${$((1 + RANDOM % $#))}"; }

# draw: model.yaml, and in $settings what is searched and trained with it.
draw() {
    local family layers recipe
    one_of llama gpt2 gemma3 smollm3 mixtral deepseek_v3
    family=$chosen
    one_of 2 3 4 5 6 8
    layers=$chosen
    {
        echo "tokenizer: {from: tokenizer.json}"
        echo "data: {train: [text.jsonl], sequence: 64, cache: cache}"
        case $family in
        gemma3) echo "model: {family: gemma3, vocab: 304, layers: $layers, width: 64, heads: 8, kv_heads: 4, window: 32}" ;;
        *) echo "model: {family: $family, vocab: 304, layers: $layers, width: 64, heads: 8}" ;;
        esac
        case $family in
        mixtral) echo "moe: {experts: 8, top_k: 2}" ;;
        deepseek_v3)
            echo "mla: {query_rank: 32, rank: 16, nope: 16, rope: 8, value: 16}"
            echo "moe: {experts: 8, top_k: 2, groups: 1, intermediate_size: 64, first_dense: 1, shared_intermediate_size: 64}" ;;
        esac
    } >model.yaml
    one_of 2 3 4 6 8
    ranks=$chosen
    one_of 1 2 4 8
    batch=$((chosen * ranks))
    one_of adamw adamw muon lion
    settings="--set train.steps=1 --set train.threads=1 --set train.batch=$batch"
    settings+=" --set optimizer.name=$chosen"
    one_of none none none fp8-tiles mxfp4 # they need bfloat16
    recipe=$chosen
    settings+=" --set numerics.recipe=$recipe"
    one_of float32 bfloat16
    [ "$recipe" = none ] || chosen=bfloat16
    settings+=" --set train.dtype=$chosen"
    one_of time memory
    objective=$chosen
}

# lines K: the K-th configuration of found.json.
lines() {
    printf '%b' "$(sed -n 's/^ *"config": "\(.*\)"$/\1/p' found.json |
        sed -n "$1p")"
}

for ((i = 0; i < DRAWS; i++)); do
    draw
    # shellcheck disable=SC2086 # words
    if ! lockstep search model.yaml $settings --ranks $ranks --machine h100 \
        --objective $objective --top 32 --json >found.json 2>err; then
        # Nothing fits some of them.
        if ! grep -q '^exit 79' err; then
            bad "draw $i: a search" "refused" err
        fi
        continue
    fi
    count=$(grep -c '^ *"config": ' found.json)
    for place in 1 $((1 + RANDOM % count)); do
        { cat model.yaml; lines $place; } >pasted.yaml
        rm -rf run
        # shellcheck disable=SC2086 # words
        if grep -q '^mesh: {' pasted.yaml &&
            lockstep train pasted.yaml $settings --ranks $ranks \
                --run run >log 2>&1; then
            ok "draw $i: $objective, layout $place of $count trains"
        else
            bad "draw $i: $objective, layout $place of $count trains" \
                "refused (seed $SEED)" log
            sed 's/^/    /' pasted.yaml
            echo "    $settings --ranks $ranks"
        fi
    done
done
[ "$passed" -ge "$DRAWS" ] ||
    bad "draws" "$passed layouts of $DRAWS draws have trained" /dev/null
report
