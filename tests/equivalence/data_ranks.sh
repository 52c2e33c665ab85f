#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# data_ranks.sh - ranks that share the batch change no bit: weights, moments and
# every exact column of the metrics equal those of one rank; a run may change
# its ranks when it resumes.
. "${0%/*}/../drills/common.sh"
prepare 2

same_as_one() { # RUN
    if same_run one "$1"; then ok "$1 equals one rank"
    else bad "$1 equals one rank" "$why" log
    fi
}

must train config.yaml --run one
for ranks in 2 4 8; do
    must train config.yaml --run "ranks$ranks" --ranks $ranks
    same_as_one "ranks$ranks"
done
must train config.yaml --run small --ranks 2 --set train.micro_batch=1 \
    --threads 1
same_as_one small
must train config.yaml --run again --ranks 4 --set 'train.recompute=[block]'
same_as_one again

# The same ranks as processes, under each MPI that is here.
launched() { # MPI RANKS RUN
    with_mpi "$1" "$2" "$program" train config.yaml --run "$3" >log 2>&1
}
find_mpi
for mpi in $mpis; do
    for ranks in 2 4; do
        if launched $mpi $ranks $mpi$ranks; then same_as_one $mpi$ranks
        else bad "$mpi, $ranks ranks" "exit $?" log
        fi
    done
done

# Begun on one rank, gone on with four, ended with two.
must train config.yaml --run moved --set train.steps=30 \
    --set checkpoint.at_end=false --set checkpoint.every=10
rm -rf moved/ckpt/step-00000030
printf 'step-00000020' >moved/ckpt/latest
must resume moved --ranks 4
rm -rf moved/ckpt/step-00000030
printf 'step-00000020' >moved/ckpt/latest
must resume moved --ranks 2
same_as_one moved

expect "verify finds every layout exact" 0 "EXACT" verify config.yaml --ranks 4 \
    --steps 3 --set train.steps=3 --draw curves.svg
grep -q '<polyline' curves.svg && ok "verify draws" || bad "verify draws" "no curve"
printf 'ranks=2\nranks=2 seed=4 # other weights\n' >layouts.txt
printf '?ranks=3\n' >unfit.txt
expect "verify proves nothing with nothing" 78 "nothing was compared" \
    verify config.yaml --layouts unfit.txt
expect "verify notices another seed" 77 "1 of 3 layouts" verify config.yaml \
    --layouts layouts.txt --steps 2 --set train.steps=3
large="--set numerics.sums=integer --set numerics.sums_bits=52
    --set model.init_std=4 --set train.steps=4"
for ranks in 4 1; do
    # shellcheck disable=SC2086
    expect "$ranks ranks: a gradient too large for its integers" 76 \
        "step 1: the gradient of layers.0.attention_norm is not finite, or too large for its integers; a smaller numerics.sums_bits than 52" \
        train config.yaml --run "large$ranks" --ranks $ranks $large
done
expect "sums in no order" 78 "intger is not ordered or integer; nearest: integer" \
    train config.yaml --run sums --set numerics.sums=intger
expect "integers in fast mode" 78 "numerics.mode=fast gives the grid up" \
    train config.yaml --run sums --set numerics.sums=integer \
    --set numerics.mode=fast
expect "integers of float64" 78 "those of train.dtype=float64 are float64" \
    train config.yaml --run sums --set numerics.sums=integer \
    --set train.dtype=float64
expect "three ranks do not fit" 78 "mesh.data: 3 ranks cannot share" \
    train config.yaml --run three --ranks 3
expect "mesh.data against --ranks" 78 "--ranks 2 --set mesh.data=2" \
    train config.yaml --run four --ranks 2 --set mesh.data=4
report
