#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# context_ranks.sh - context leaves are part of the numerics: for one grid, the
# bits show neither micro-batches, threads, instruction sets and logits chunks
# nor the ranks that cut the sequences.
. "${0%/*}/../drills/common.sh"
prepare 2

# same NAME ARGUMENT...: trains and compares with the run `first`
same() {
    local name=$1
    shift
    rm -rf other
    # shellcheck disable=SC2086
    if ! lockstep train "$config" --run other $common "$@" >log 2>&1; then
        bad "$name" "exit $?" log
    elif same_run first other; then
        ok "$name"
    else
        bad "$name" "$why" log
    fi
}

# first CONFIG ARGUMENT...: the run that others are compared with
first() {
    config=$1
    shift
    common=$*
    rm -rf first
    # shellcheck disable=SC2086
    must train "$config" --run first $common
}

# One rank may change these.
one_rank() { # NAME
    local value
    for value in 1 2 8; do
        same "$1, micro-batch $value" --set train.micro_batch=$value
    done
    for value in 1 7 100; do
        same "$1, $value logits at once" --set train.logits_chunk=$value
    done
    same "$1, 3 threads, plain" --threads 3 --set numerics.isa=plain
    same "$1, recompute" --set 'train.recompute=[block]'
}

sed 's/steps: 30/steps: 5/' config.yaml >llama.yaml
sed 's/family: llama/family: gpt2/; s/ kv_heads: 2, head_width: 6,//' \
    llama.yaml >gpt2.yaml
# Chunks of more than a granule of 256, no multiple of attention's 128.
sed 's/sequence: 48/sequence: 1200/; s/batch: 8, micro_batch: 4/batch: 2, micro_batch: 1/; s/valid_share: 0.1/valid_share: 0/; s/steps: 5/steps: 3/; s/, every: 7//' \
    llama.yaml >long.yaml

for c in 2 3 4; do
    first llama.yaml --set numerics.grid_context=$c
    one_rank "llama, $c context leaves"
done
first gpt2.yaml --set numerics.grid_context=2 --set data.documents=joined \
    --set numerics.grid_data=2
one_rank "gpt2, 2 context leaves"

# Ranks that cut the sequences.
ranks() { # NAME CONTEXT ARGUMENT...
    local name="$1, $2 context ranks" count=$2
    shift 2
    same "$name${*:+ ($*)}" --ranks $count --set mesh.context=$count "$@"
}
first llama.yaml --set numerics.grid_context=4
for c in 2 4; do
    ranks llama $c
    ranks llama $c --set train.micro_batch=1
    ranks llama $c --set 'train.recompute=[block]'
    ranks llama $c --set train.logits_chunk=7
done

ranks llama 2 --set context.kind=ulysses
ranks llama 2 --set context.kind=ulysses --set train.micro_batch=1
ranks llama 4 --set context.kind=hybrid
ranks llama 4 --set context.kind=hybrid --set 'train.recompute=[block]'
expect "more ranks than heads" 78 "2 can (context.kind=hybrid" train llama.yaml \
    --run none --ranks 4 --set mesh.context=4 --set context.kind=ulysses \
    --set numerics.grid_context=4
same "llama, data 2 x context 2" --ranks 4 --set mesh.context=2
same "llama, data 4 x context 2, micro-batch 1" --ranks 8 \
    --set mesh.context=2 --set train.micro_batch=1 --threads 1
same "llama, context 2 x tensor 2" --ranks 4 --set mesh.context=2 \
    --set mesh.tensor=2
same "llama, data 2 x context 2 x tensor 2" --ranks 8 --set mesh.context=2 \
    --set mesh.tensor=2 --threads 1
first gpt2.yaml --set numerics.grid_context=2 --set data.documents=joined \
    --set numerics.grid_data=2 --set train.dtype=float64
ranks gpt2 2
ranks gpt2 2 --set train.micro_batch=1
ranks gpt2 2 --set context.kind=ulysses
same "gpt2, context 2 x tensor 2" --ranks 4 --set mesh.context=2 \
    --set mesh.tensor=2 --set train.micro_batch=2
first llama.yaml --set numerics.grid_context=3
ranks llama 3
first long.yaml --set numerics.grid_context=2 --set numerics.grid_data=1
ranks "long sequences" 2
ranks "long sequences" 2 --set train.logits_chunk=256 --set train.micro_batch=2

# Rings: spans of 128 and of 256 tokens.
sed 's/sequence: 1200/sequence: 1024/' long.yaml >ring.yaml
first ring.yaml --set numerics.grid_context=4 --set numerics.grid_data=1
ranks ring 4 --set context.kind=ring
ranks ring 4 --set context.kind=ring --set train.micro_batch=2
ranks ring 2 --set context.kind=ring
ranks ring 4 --set context.kind=hybrid
ranks ring 2 --set context.kind=allgather
expect "spans that are no nodes" 78 "any" train long.yaml --run none \
    --ranks 2 --set mesh.context=2 --set context.kind=ring \
    --set numerics.grid_context=2
first long.yaml --set numerics.grid_context=2 --set numerics.grid_data=1

# Outside the grid: striped tokens, to rounding, in float64.
printf '%s\n' "ranks=2 mesh.context=2 context.kind=striped" \
    "ranks=3 mesh.context=3 context.kind=striped" \
    "ranks=4 mesh.context=2 mesh.tensor=2 context.kind=striped" |
    sed 's/$/ numerics.mode=fast/' >striped.txt
expect "striped tokens hold to 1e-12" 0 holds verify llama.yaml \
    --layouts striped.txt --dtype float64 --steps 3 \
    --set numerics.grid_context=2
expect "striped tokens are outside the grid" 78 "numerics.mode=fast" train \
    llama.yaml --run none --ranks 2 --set mesh.context=2 \
    --set context.kind=striped --set numerics.grid_context=2

# The same ranks as processes, under each MPI that is here.
find_mpi
for mpi in $mpis; do
    rm -rf other
    # shellcheck disable=SC2086
    if with_mpi $mpi 2 "$program" train "$config" \
        --run other $common --set mesh.context=2 >log 2>&1 &&
        same_run first other; then ok "$mpi, 2 context ranks"
    else bad "$mpi, 2 context ranks" "$why" log
    fi
done

# A variation that must be seen: otherwise nothing above means anything.
if rm -rf other && must train gpt2.yaml --run other --set data.documents=joined \
    --set numerics.grid_data=2 && same_run first other; then
    bad "another grid" "has the same bits: the comparison is blind"
else
    ok "another grid has other bits"
fi
expect "sequences that are not 2c chunks" 78 "sequence: 48 tokens are not 64" \
    train llama.yaml --run none --set numerics.grid_context=32 \
    --set numerics.grid_tensor=1
report
