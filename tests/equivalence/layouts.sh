# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# layouts.sh - the rows of the equivalence table: functions that print layouts,
# one a line, as `lockstep verify --layouts` reads them.

# One rank may choose these; none of them may show.
alone() {
    printf '%s\n' \
        "ranks=1 train.micro_batch=1" \
        "ranks=1 train.micro_batch=2" \
        "ranks=1 train.micro_batch=8" \
        "ranks=1 train.threads=1" \
        "ranks=1 train.threads=3" \
        "ranks=1 train.recompute=block" \
        "ranks=1 train.recompute=[norm,activation]" \
        "ranks=1 train.recompute=attention train.micro_batch=1" \
        "ranks=1 train.logits_chunk=100"
}

data() { # RANKS...
    local n
    for n; do
        printf '%s\n' "ranks=$n mesh.data=$n" \
            "ranks=$n mesh.data=$n train.micro_batch=1" \
            "ranks=$n mesh.data=$n train.recompute=block"
    done
}

zero() { # RANKS...
    local n kind
    for n; do
        for kind in zero1 zero2 zero3; do
            printf '%s\n' "ranks=$n mesh.data=$n zero=$kind" \
                "ranks=$n mesh.data=$n zero=$kind train.micro_batch=1"
        done
        printf '%s\n' "ranks=$n mesh.shard=$n zero=fsdp train.recompute=block" \
            "ranks=$n mesh.shard=$n zero=fsdp fsdp.prefetch=0" \
            "ranks=$n mesh.shard=$n zero=fsdp fsdp.gather=once" \
            "ranks=$n mesh.shard=$n zero=fsdp fsdp.reshard=false"
    done
    printf '%s\n' "ranks=4 mesh.data=2 mesh.shard=2 zero=zero2" \
        "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
        "ranks=4 mesh.data=2 mesh.shard=2 zero=mics" \
        "ranks=8 mesh.data=2 mesh.shard=4 zero=hsdp" \
        "ranks=8 mesh.data=4 mesh.shard=2 zero=hsdp train.recompute=block" \
        "ranks=8 mesh.data=4 mesh.shard=2 mesh.order=shard,data zero=hsdp"
}

tensor() { # RANKS...
    local n
    for n; do
        printf '%s\n' "ranks=$n mesh.tensor=$n" \
            "ranks=$n mesh.tensor=$n train.micro_batch=1" \
            "ranks=$n mesh.tensor=$n train.recompute=block" \
            "ranks=$n mesh.tensor=$n train.recompute=[norm,activation]" \
            "ranks=$((2 * n)) mesh.data=2 mesh.tensor=$n" \
            "ranks=$((2 * n)) mesh.data=2 mesh.tensor=$n mesh.order=tensor,data" \
            "ranks=$((2 * n)) mesh.data=2 mesh.tensor=$n zero=zero1" \
            "ranks=$((2 * n)) mesh.data=2 mesh.tensor=$n zero=zero2" \
            "ranks=$((2 * n)) mesh.shard=2 mesh.tensor=$n zero=fsdp" \
            "ranks=$((2 * n)) mesh.data=2 mesh.tensor=$n train.micro_batch=1 train.recompute=block"
    done
}

schedules="gpipe 1f1b 1f1b-early-send interleaved breadth-first zb-h1 zb-h2
    zb-1p zb-2p zb-v v-half v-min dualpipe dualpipev"

pipe() { # RANKS...
    local n name
    for n; do
        for name in $schedules; do
            echo "ranks=$n mesh.pipe=$n schedule.name=$name train.micro_batch=1"
        done
        printf '%s\n' "ranks=$n mesh.pipe=$n train.micro_batch=2" \
            "ranks=$n mesh.pipe=$n train.micro_batch=1 train.recompute=block" \
            "ranks=$n mesh.pipe=$n train.micro_batch=1 schedule.name=zb-h1 train.recompute=[norm,activation]" \
            "ranks=$((2 * n)) mesh.data=2 mesh.pipe=$n train.micro_batch=1" \
            "ranks=$((2 * n)) mesh.data=2 mesh.pipe=$n train.micro_batch=1 schedule.name=zb-v" \
            "ranks=$((2 * n)) mesh.data=2 mesh.pipe=$n train.micro_batch=1 zero=zero1" \
            "ranks=$((2 * n)) mesh.tensor=2 mesh.pipe=$n train.micro_batch=1" \
            "ranks=$((2 * n)) mesh.tensor=2 mesh.pipe=$n train.micro_batch=1 schedule.name=interleaved" \
            "ranks=$((2 * n)) mesh.tensor=2 mesh.pipe=$n train.micro_batch=1 schedule.name=zb-h1"
    done
}

context() { # RANKS...
    local n kind
    for n; do
        for kind in allgather ulysses hybrid; do
            printf '%s\n' "ranks=$n mesh.context=$n context.kind=$kind" \
                "ranks=$n mesh.context=$n context.kind=$kind train.micro_batch=1 train.recompute=block"
        done
        printf '%s\n' "ranks=$((2 * n)) mesh.data=2 mesh.context=$n" \
            "ranks=$((2 * n)) mesh.data=2 mesh.context=$n zero=zero2" \
            "ranks=$((2 * n)) mesh.tensor=2 mesh.context=$n" \
            "ranks=$((2 * n)) mesh.pipe=2 mesh.context=$n train.micro_batch=1"
    done
}

# Three axes and more.
mixed() {
    printf '%s\n' \
        "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1" \
        "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 zero=zero1 schedule.name=zb-h1" \
        "ranks=8 mesh.shard=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 zero=zero1 schedule.name=interleaved" \
        "ranks=8 mesh.data=2 mesh.shard=2 mesh.tensor=2 zero=hsdp" \
        "ranks=8 mesh.data=2 mesh.shard=2 mesh.tensor=2 zero=zero2 train.micro_batch=1" \
        "ranks=8 mesh.data=2 mesh.shard=2 mesh.pipe=2 train.micro_batch=1 zero=zero1" \
        "ranks=16 mesh.data=4 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1" \
        "ranks=16 mesh.data=2 mesh.shard=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 zero=zero1"
}

# Modules that predict later tokens.
later() {
    printf '%s\n' \
        "ranks=1 train.micro_batch=1 train.recompute=block" \
        "ranks=2 mesh.data=2 zero=zero1" \
        "ranks=4 mesh.data=4 zero=zero2 train.micro_batch=1" \
        "ranks=2 mesh.shard=2 zero=fsdp fsdp.prefetch=8" \
        "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
        "ranks=2 mesh.tensor=2" \
        "ranks=2 mesh.context=2 train.micro_batch=1" \
        "ranks=4 mesh.tensor=2 mesh.context=2 tensor.overlap=2" \
        "ranks=4 mesh.tensor=2 mesh.shard=2 zero=fsdp train.recompute=block" \
        "ranks=2 mesh.expert=2" \
        "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp train.micro_batch=1" \
        "ranks=4 mesh.expert=2 mesh.context=2 train.micro_batch=1"
}

# ... on a pipeline: the last stage holds the table of the first one, too.
later_pipe() {
    printf '%s\n' \
        "ranks=2 mesh.pipe=2 train.micro_batch=1" \
        "ranks=4 mesh.pipe=4 schedule.name=gpipe train.recompute=block" \
        "ranks=2 mesh.pipe=2 schedule.name=interleaved train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 schedule.name=breadth-first train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 schedule.name=zb-h1 train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 schedule.name=dualpipev train.micro_batch=1" \
        "ranks=4 mesh.pipe=2 mesh.data=2 zero=zero2 train.micro_batch=1" \
        "ranks=4 mesh.pipe=2 mesh.shard=2 zero=fsdp train.micro_batch=1 schedule.name=zb-h2" \
        "ranks=4 mesh.pipe=2 mesh.tensor=2 train.micro_batch=1" \
        "ranks=4 mesh.pipe=2 mesh.context=2 train.micro_batch=2 zero=zero1" \
        "ranks=4 mesh.pipe=2 mesh.expert=2 train.micro_batch=1"
}

# ... in families whose published files have none.
later_few() {
    printf '%s\n' \
        "ranks=2 mesh.data=2 zero=zero1 train.micro_batch=1" \
        "ranks=2 mesh.shard=2 zero=fsdp" \
        "ranks=2 mesh.tensor=2" \
        "ranks=2 mesh.context=2 train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 train.micro_batch=1" \
        "ranks=4 mesh.pipe=2 mesh.tensor=2 schedule.name=zb-h1 train.micro_batch=1"
}
