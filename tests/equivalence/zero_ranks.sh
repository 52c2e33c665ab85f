#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# zero_ranks.sh - dividing state over ranks changes no bit: losses, gradients,
# weights, moments and every exact column of the metrics equal those of one
# rank, with clipping, in micro-batches, with recomputation, with any gathering,
# and when a run changes what it divides. Every row of verify also holds the
# bytes sent and taken against the plan.
#
# Each of these changes of src/step/zero.c turned rows red when it was tried:
# no reduce-scatter (the shard keeps the rank's own sum); the shard of the next
# rank (own_of with rank + 1); no sum over copies (hsdp); a sum of rounds that
# is not added; weights that are not gathered after the update (zero1); a
# gather that is not repeated after the update (fsdp.reshard=false); and in
# src/step/step.c the targets of this rank alone as the divisor.
. "${0%/*}/../drills/common.sh"
prepare

same_as_one() { # RUN
    if same_run one "$1"; then ok "$1 equals one rank"
    else bad "$1 equals one rank" "$why" log
    fi
}

run_row() { # RUN RANKS SETTING...
    local run=$1 ranks=$2 sets=() setting
    shift 2
    for setting in "$@"; do sets+=(--set "$setting"); done
    must train config.yaml --run "$run" --ranks "$ranks" "${sets[@]}"
    same_as_one "$run"
    rm -rf "$run"
}

# all_exact NAME ARGUMENT...: every layout of layouts.txt.
all_exact() {
    local name=$1 rows found
    shift
    rows=$(grep -c . layouts.txt)
    LIMIT=600 lockstep verify config.yaml --layouts layouts.txt --steps 3 \
        --set train.steps=3 --set comm.limit=100 "$@" >out 2>&1 || { bad "$name" "exit $?" out
                                                return; }
    found=$(grep -c 'EXACT *$' out)
    if [ "$found" -ge "$rows" ]; then ok "$name: $rows layouts"
    else bad "$name" "$found of $rows rows are exact" out
    fi
}

: >layouts.txt
for zero in zero1 zero2 zero3; do
    for ranks in 2 4 8; do
        echo "ranks=$ranks zero=$zero"
        echo "ranks=$ranks zero=$zero train.micro_batch=1 train.recompute=[block]"
    done
    echo "ranks=2 zero=$zero train.micro_batch=2"
    echo "ranks=4 zero=$zero mesh.data=2 mesh.shard=2"
    echo "ranks=4 zero=$zero mesh.data=1 mesh.shard=4"
done >layouts.txt
for zero in hsdp mics; do
    echo "ranks=2 zero=$zero mesh.data=1 mesh.shard=2"
    echo "ranks=4 zero=$zero mesh.data=2 mesh.shard=2"
    echo "ranks=8 zero=$zero mesh.data=2 mesh.shard=4"
    echo "ranks=8 zero=$zero mesh.data=4 mesh.shard=2"
    echo "ranks=4 zero=$zero mesh.data=2 mesh.shard=2 train.micro_batch=1"
done >>layouts.txt
for gather in fsdp.prefetch=0 fsdp.prefetch=4 fsdp.reshard=false; do
    echo "ranks=4 zero=fsdp $gather"
    echo "ranks=2 zero=fsdp $gather train.micro_batch=1"
done >>layouts.txt
all_exact "llama"
all_exact "llama, tied" --set model.tied=true --set train.logits_chunk=48
sed -n '1~4p' layouts.txt >some && mv some layouts.txt
all_exact "gpt2" --set model.family=gpt2 --set model.kv_heads=4
all_exact "float64" --dtype float64
grep -v ranks=8 layouts.txt >some && mv some layouts.txt
all_exact "a grid of 4 x 1" --set numerics.grid_data=4 \
    --set numerics.grid_tensor=1

# With every other axis.
cat >layouts.txt <<'END'
ranks=4 zero=zero1 mesh.tensor=2
ranks=4 zero=zero2 mesh.tensor=2 train.micro_batch=1
ranks=8 zero=fsdp mesh.tensor=2 train.micro_batch=1
ranks=4 zero=zero1 mesh.pipe=2
ranks=4 zero=fsdp mesh.pipe=2 train.micro_batch=1
ranks=4 zero=fsdp mesh.pipe=2 fsdp.reshard=false train.micro_batch=1
ranks=4 zero=zero2 mesh.pipe=2 schedule.name=zb-h1 train.micro_batch=1
ranks=4 zero=fsdp mesh.pipe=2 schedule.name=interleaved train.micro_batch=1
ranks=4 zero=fsdp mesh.pipe=2 schedule.name=dualpipev train.micro_batch=1
ranks=8 zero=hsdp mesh.pipe=2 mesh.shard=2 mesh.data=2
ranks=8 zero=fsdp mesh.pipe=2 mesh.tensor=2 mesh.data=2
END
all_exact "other axes" --set train.batch=16 --set model.layers=4
all_exact "other axes, tied" --set train.batch=16 --set model.layers=4 \
    --set model.tied=true
# Rounds of ranks that hold parts of every matrix: the vectors of which each has
# some tokens are joined unit by unit, before the unit is reduced.
cat >layouts.txt <<'END'
ranks=4 zero=zero2 mesh.tensor=2
ranks=4 zero=zero2 mesh.tensor=2 train.micro_batch=2
ranks=4 zero=fsdp mesh.tensor=2 train.micro_batch=2 train.recompute=[block]
ranks=8 zero=fsdp mesh.tensor=2 fsdp.prefetch=0 train.micro_batch=1
ranks=8 zero=zero2 mesh.tensor=4 train.micro_batch=2 tensor.overlap=2
ranks=4 zero=fsdp mesh.tensor=2 train.micro_batch=4 tensor.overlap=2 tensor.domino=true
ranks=8 zero=hsdp mesh.tensor=2 mesh.data=2 mesh.shard=2
ranks=8 zero=hsdp mesh.tensor=2 mesh.data=2 mesh.shard=2 train.micro_batch=2 fsdp.reshard=false
ranks=8 zero=fsdp mesh.tensor=2 mesh.order=tensor,data train.recompute=[norm,activation]
END
all_exact "rounds of tensor ranks" --set train.batch=16 \
    --set numerics.grid_tensor=4
sed -i 's/mesh.tensor=4/mesh.tensor=2/' layouts.txt # two key-value heads
all_exact "rounds of tensor ranks, tied" --set train.batch=16 \
    --set model.tied=true --set train.logits_chunk=48 --set model.layers=3
all_exact "rounds of tensor ranks, gpt2" --set train.batch=16 \
    --set model.family=gpt2 --set model.kv_heads=4 --dtype float64

# The gain: gradients of a quarter of the model's half, and two units
# (verify held the plan against what was taken).
gradient_bytes() { # SETTING
    lockstep plan config.yaml --ranks 8 --set mesh.tensor=2 \
        --set model.layers=24 --set "zero=$1" --explain memory |
        awk '/^(partial )?gradients / {
                 sum += $(NF - 1) # "4.5 MiB 4718592 bytes"
             }
             END { print sum + 0 }'
}
whole=$(gradient_bytes zero1)
divided=$(gradient_bytes zero2)
if [ "$divided" -gt 0 ] && [ $((2 * divided)) -lt "$whole" ]
then ok "gradients of tensor ranks are divided: $divided of $whole bytes"
else bad "gradients of tensor ranks are divided" "$divided of $whole bytes"
fi

cat >layouts.txt <<'END'
ranks=4 zero=zero1 mesh.context=2
ranks=4 zero=fsdp mesh.context=2
ranks=8 zero=fsdp mesh.context=2 mesh.tensor=2
END
all_exact "context" --set numerics.grid_context=2

# Whole runs: metrics, validation and checkpoints too.
must train config.yaml --run one
for zero in zero1 zero2 fsdp; do
    run_row $zero-2 2 zero=$zero
    run_row $zero-8 8 zero=$zero train.micro_batch=1
    run_row $zero-tensor 4 zero=$zero mesh.tensor=2 train.micro_batch=2
done
run_row hsdp-4 4 zero=hsdp mesh.shard=2 'train.recompute=[block]'

# Begun with everything whole, gone on divided, ended otherwise divided.
back_to_20() {
    rm -rf moved/ckpt/step-00000030
    printf 'step-00000020' >moved/ckpt/latest
}
must train config.yaml --run moved --ranks 2 --set train.steps=30 \
    --set checkpoint.at_end=false --set checkpoint.every=10
back_to_20
must resume moved --ranks 4 --set zero=zero3
back_to_20
must resume moved --ranks 2 --set zero=zero1 --set train.micro_batch=1
same_as_one moved

# The same ranks as processes.
find_mpi
for mpi in $mpis; do
    for zero in zero1 zero2 fsdp; do
        if with_mpi $mpi 4 "$program" train config.yaml \
            --run $mpi-$zero --set zero=$zero >log 2>&1
        then same_as_one $mpi-$zero
        else bad "$mpi, $zero" "exit $?" log
        fi
    done
done

expect "a wrong name" 78 "nearest: zero3" train config.yaml --run no --ranks 2 \
    --set zero=zero33
expect "hsdp without mesh.shard" 78 "set mesh.shard" train config.yaml \
    --run no --ranks 2 --set zero=hsdp
report
