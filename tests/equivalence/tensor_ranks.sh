#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tensor_ranks.sh - ranks that share every weight and every sequence change no
# bit: losses, gradients and weights of whole runs equal those of one rank, with
# any mixture of micro-batches, recomputation, chunks of logits and other axes.
. "${0%/*}/../drills/common.sh"
prepare

# exact NAME CONFIG LAYOUT...: every layout has the bits of one rank; verify
# also holds the bytes sent and the memory used against the plan.
exact() {
    local name=$1 config=$2
    shift 2
    printf '%s\n' "$@" >layouts.txt
    if lockstep verify "$config" --layouts layouts.txt --steps 3 >log 2>&1
    then
        ok "$name ($# layouts)"
    else
        bad "$name" "exit $?" log
    fi
}

sed 's/steps: 30/steps: 3/' config.yaml >llama.yaml
sed 's/family: llama/family: gpt2/; s/ kv_heads: 2, head_width: 6,//' \
    llama.yaml >gpt2.yaml
# Four leaves where the key-value heads are two or one; a vocabulary and a
# length that four do not divide; biases; one matrix for both ends.
sed 's/vocab: 304/vocab: 309/; s/heads: 4, kv_heads: 2/heads: 8, kv_heads: 2/; s/sequence: 48/sequence: 50/; s/feed_forward: 40/feed_forward: 40, tied: true, attention_bias: true, mlp_bias: true/' \
    llama.yaml >odd.yaml
sed 's/kv_heads: 2/kv_heads: 1/; s/head_width: 6/head_width: 8/; s/float32/float64/' \
    odd.yaml >one_head.yaml
sed 's/heads: 4, kv_heads: 2/heads: 6, kv_heads: 3/; s/feed_forward: 40/feed_forward: 42/' \
    llama.yaml >three.yaml

exact "llama" llama.yaml \
    "ranks=2 mesh.tensor=2" \
    "ranks=4 mesh.tensor=4" \
    "ranks=2 mesh.tensor=2 train.micro_batch=1 train.recompute=block" \
    "ranks=4 mesh.tensor=4 train.micro_batch=8 train.logits_chunk=48" \
    "ranks=4 mesh.tensor=2 mesh.data=2" \
    "ranks=4 mesh.tensor=2 mesh.data=2 mesh.order=tensor,data" \
    "ranks=8 mesh.tensor=4 mesh.data=2 train.recompute=norm" \
    "ranks=4 mesh.tensor=2 zero=zero1 train.micro_batch=2"
exact "messages beside products" llama.yaml \
    "ranks=2 mesh.tensor=2 tensor.overlap=2 train.micro_batch=8" \
    "ranks=4 mesh.tensor=4 tensor.overlap=3 train.recompute=block" \
    "ranks=4 mesh.tensor=2 mesh.data=2 tensor.overlap=8" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 tensor.overlap=2 schedule.name=zb-h1"
exact "sub-batches one behind the other" llama.yaml \
    "ranks=2 mesh.tensor=2 tensor.overlap=2 tensor.domino=true" \
    "ranks=4 mesh.tensor=4 tensor.overlap=3 tensor.domino=true" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 tensor.overlap=2 tensor.domino=true"
exact "with other axes" odd.yaml \
    "ranks=4 mesh.tensor=2 zero=fsdp tensor.overlap=2 tensor.domino=true" \
    "ranks=8 mesh.tensor=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
    "ranks=8 mesh.tensor=4 mesh.pipe=2 train.micro_batch=2"
exact "gpt2" gpt2.yaml \
    "ranks=2 mesh.tensor=2 train.micro_batch=2" \
    "ranks=2 mesh.tensor=2 tensor.overlap=4" \
    "ranks=4 mesh.tensor=4 train.recompute=block" \
    "ranks=4 mesh.tensor=2 train.logits_chunk=7"
exact "few key-value heads, odd sizes" odd.yaml \
    "ranks=2 mesh.tensor=2" \
    "ranks=4 mesh.tensor=4 train.micro_batch=2" \
    "ranks=8 mesh.tensor=4 train.recompute=block"
exact "one key-value head, float64" one_head.yaml \
    "ranks=2 mesh.tensor=2 train.micro_batch=8" \
    "ranks=4 mesh.tensor=4 train.logits_chunk=25"
exact "three ranks" three.yaml \
    "ranks=3 mesh.tensor=3"

# Whole runs, validation and checkpoints included.
same_as_one() { # RUN
    if same_run one "$1"; then ok "$1 equals one rank"
    else bad "$1 equals one rank" "$why" log
    fi
}

must train config.yaml --run one
must train config.yaml --run four --ranks 4 --set mesh.tensor=4
same_as_one four
must train config.yaml --run mixed --ranks 4 --set mesh.tensor=2 --threads 1
same_as_one mixed

# Begun on one rank, gone on with four, ended with two.
must train config.yaml --run moved --set train.steps=30 \
    --set checkpoint.at_end=false --set checkpoint.every=10
rm -rf moved/ckpt/step-00000030
printf 'step-00000020' >moved/ckpt/latest
must resume moved --ranks 4 --set mesh.tensor=4
rm -rf moved/ckpt/step-00000030
printf 'step-00000020' >moved/ckpt/latest
must resume moved --ranks 2 --set mesh.tensor=2
same_as_one moved

# As processes, under each MPI that is here.
launched() { # MPI RANKS RUN ARGUMENT...
    local mpi=$1 ranks=$2 run=$3
    shift 3
    with_mpi "$mpi" "$ranks" "$program" train config.yaml --run "$run" "$@" \
        >log 2>&1
}
find_mpi
for mpi in $mpis; do
    if launched $mpi 4 ${mpi}4 --set mesh.tensor=2 --set mesh.data=2 \
        --set tensor.overlap=2
    then same_as_one ${mpi}4
    else bad "$mpi, 4 ranks" "exit $?" log
    fi
done

expect "domino without sub-batches" 78 "tensor.domino: the sub-batches are" \
    train config.yaml --run none --ranks 2 --set mesh.tensor=2 \
    --set tensor.domino=true
expect "more tensor ranks than leaves" 78 "tensor" \
    train config.yaml --run eight --ranks 8 --set mesh.tensor=8
report
