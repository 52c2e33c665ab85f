#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# zero_ranks.sh - what the ranks divide changes no bit: weights, moments and
# every exact column of the metrics equal those of one rank, with clipping, in
# micro-batches, with recomputation, and when a run changes what it divides.
. "${0%/*}/../drills/common.sh"
prepare

same_as_one() { # RUN
    if same_run one "$1"; then ok "$1 equals one rank"
    else bad "$1 equals one rank" "$why" log
    fi
}

row() { # RUN RANKS SETTING...
    local run=$1 ranks=$2
    shift 2
    local sets=()
    for s in "$@"; do sets+=(--set "$s"); done
    must train config.yaml --run "$run" --ranks "$ranks" "${sets[@]}"
    same_as_one "$run"
    rm -rf "$run"
}

must train config.yaml --run one
for zero in zero1; do
    for ranks in 2 4 8; do
        row $zero-$ranks $ranks zero=$zero
    done
    row $zero-small 2 zero=$zero train.micro_batch=1
    row $zero-again 4 zero=$zero 'train.recompute=[block]'
    row $zero-mixed 4 zero=$zero mesh.data=2 mesh.shard=2
done
report
