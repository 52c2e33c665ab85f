#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tree_ranks.sh - degrees that are no powers of two: the tree over 5, 6, 7, 10 or
# 12 leaves gives ranks that cut it into subtrees the bits of one rank, and so
# do ranks of the data axis that have several subtrees each (3 of 12 leaves).
. "${0%/*}/../drills/common.sh"
. "$tree/tests/equivalence/rows.sh"
LIMIT=600
prepare

always=(train.threads=1 train.micro_batch=0 numerics.grid_tensor=1)

table "12 data leaves" train.batch=24 numerics.grid_data=12 <<'END'
ranks=3 mesh.data=3
ranks=12 mesh.data=12
ranks=6 mesh.data=2 mesh.shard=3 zero=fsdp
ranks=6 mesh.data=6 zero=zero1 train.micro_batch=2
ranks=6 mesh.data=6 zero=fsdp train.micro_batch=1
ranks=3 mesh.data=3 zero=fsdp train.micro_batch=2
ranks=6 mesh.data=3 mesh.shard=2 zero=hsdp
ranks=12 mesh.data=3 mesh.shard=4 zero=mics
ranks=6 mesh.data=3 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1
END
table "several subtrees a rank" train.batch=24 numerics.grid_data=12 <<'END'
ranks=4 mesh.data=4
ranks=2 mesh.data=2 train.micro_batch=1
ranks=4 mesh.data=4 zero=zero1 train.micro_batch=2
ranks=4 mesh.data=2 mesh.shard=2 zero=fsdp train.micro_batch=1
ranks=4 mesh.data=4 zero=zero2 train.micro_batch=6
ranks=8 mesh.data=4 mesh.pipe=2 train.micro_batch=2
ranks=4 mesh.data=2 mesh.pipe=2 zero=fsdp train.micro_batch=3
END
table "several subtrees, tensor and context ranks" train.batch=15 \
    numerics.grid_data=15 numerics.grid_context=2 data.sequence=32 <<'END'
ranks=5 mesh.data=5
ranks=6 mesh.data=3 mesh.context=2 train.micro_batch=1
ranks=3 mesh.data=3 zero=fsdp train.micro_batch=5
END
table "several subtrees of vectors" train.batch=10 numerics.grid_data=10 \
    numerics.grid_tensor=2 <<'END'
ranks=4 mesh.data=2 mesh.tensor=2 train.micro_batch=1
ranks=4 mesh.data=2 mesh.tensor=2 zero=zero1 train.micro_batch=5
END
table "10 data leaves" train.batch=10 numerics.grid_data=10 <<'END'
ranks=5 mesh.data=5
ranks=5 mesh.data=5 train.micro_batch=1
ranks=1 train.micro_batch=2
ranks=10 mesh.data=5 mesh.pipe=2
ranks=10 mesh.data=10 zero=fsdp
END
table "7 data, 3 context leaves" train.batch=14 numerics.grid_data=7 \
    numerics.grid_context=3 data.sequence=30 <<'END'
ranks=7 mesh.data=7 zero=zero2
ranks=1 train.micro_batch=1
ranks=3 mesh.context=3
ranks=21 mesh.data=7 mesh.context=3
END
table "6 data, 5 context leaves" train.batch=12 numerics.grid_data=6 \
    numerics.grid_context=5 data.sequence=50 <<'END'
ranks=5 mesh.context=5
ranks=15 mesh.context=5 mesh.data=3
END
tensor() { # HEADS KEY-VALUE-HEADS RANKS FEWER-RANKS
    local model=(train.batch=4 model.heads="$1" model.kv_heads="$2"
        model.head_width=12 model.feed_forward=420 numerics.grid_tensor="$3")
    table "$3 tensor leaves of $1 heads, $2 of keys" "${model[@]}" \
        data.sequence=31 model.layers=2 <<END
ranks=$3 mesh.tensor=$3
ranks=$4 mesh.tensor=$4
ranks=$(($3 * 2)) mesh.tensor=$3 mesh.data=2 tensor.overlap=2
ranks=$(($3 * 2)) mesh.tensor=$3 mesh.data=2 zero=fsdp zero_reduce=each train.micro_batch=2 tensor.overlap=2 tensor.domino=true
ranks=$(($3 * 2)) mesh.tensor=$3 mesh.pipe=2 schedule.name=1f1b-early-send train.micro_batch=1
END
    table "$3 tensor, 2 context leaves" "${model[@]}" data.sequence=48 \
        numerics.grid_context=2 <<END
ranks=$(($3 * 2)) mesh.tensor=$3 mesh.context=2 train.recompute=block
ranks=$(($3 * 2)) mesh.tensor=$3 mesh.shard=2 zero=fsdp zero_reduce=each train.micro_batch=1 tensor.overlap=2
END
}
tensor 5 5 5 1
tensor 6 3 6 3
tensor 6 1 6 3
tensor 7 7 7 1
tensor 12 12 12 6

# In fast mode odd tensor leaves give way to context ranks as a whole: half of
# them would divide no head (it ended in an assertion).
for heads in 5 7; do
    expect "$heads tensor leaves give way to 16 context ranks" 0 "finished" \
        train config.yaml --ranks 16 --run "odd$heads" --set mesh.context=16 \
        --set numerics.mode=fast --set numerics.grid_tensor=$heads \
        --set model.heads=$heads --set model.kv_heads=$heads \
        --set model.head_width=12 --set model.feed_forward=420 \
        --set data.sequence=64 --set train.steps=2 --set train.threads=1
done

# Leaves that are no subtree are refused, and what is named instead works.
expect "four ranks of three leaves under hsdp" 78 "subtrees; 3 can" \
    train config.yaml --ranks 4 --run none --set train.batch=24 \
    --set zero=hsdp --set mesh.shard=4 --set mesh.data=1 \
    --set numerics.grid_data=12 --dry-run
expect "whole gradients, and why" 0 "are several subtrees" plan config.yaml \
    --ranks 4 --set train.batch=24 --set zero=fsdp \
    --set train.micro_batch=0 --set numerics.grid_data=12
expect "shards that are no subtree" 78 "mesh.shard=2 or zero=fsdp" train \
    config.yaml --ranks 6 --run none --set train.batch=24 --set zero=hsdp \
    --set numerics.grid_data=12 --set mesh.data=2 --set mesh.shard=3 --dry-run
report
