#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nccl_ranks.sh - comm.library=nccl trains the bits of one rank on the CPU: sums
# of integers, gathers of weights, rows of experts that NCCL moves between GPUs;
# and what goes wrong in NCCL ends in one sentence.
#
#     BUILD=build [REAL=1] tests/equivalence/nccl_ranks.sh
#
# GPUs and NCCL are those of tests/driver, whose sums are added in an order that
# is drawn; with REAL=1 those of this machine, as many ranks as it has GPUs.
. "${0%/*}/../drills/common.sh"
prepare
echo "device: cpu" >>config.yaml
[ -n "${REAL:-}" ] ||
    export LD_LIBRARY_PATH=$BUILD/tests/driver GPUS=8 LOCKSTEP_DRIVER=early
mkdir boxes
export NCCL_BOXES=$PWD/boxes # in /dev/shm those of another run would lie, too
most=8
[ -z "${REAL:-}" ] || most=$(nvidia-smi -L 2>/dev/null | wc -l)

# all_exact NAME KINDS ARGUMENT...: every layout of layouts.txt has the bits of
# one rank on the CPU, and NCCL did calls of all kinds (gathers, sums, sends).
all_exact() {
    local name=$1 kinds=$2 rows found kind
    shift 2
    awk -F'[= ]' -v most="$most" '$2 <= most' layouts.txt |
        sed 's/$/ device=cuda comm.library=nccl/' >used.txt
    rows=$(grep -c . used.txt)
    rm -f counts
    NCCL_COUNTS=$PWD/counts LIMIT=300 lockstep verify config.yaml \
        --layouts used.txt --steps 2 --set train.steps=2 \
        --set comm.limit=60 --set train.threads=1 --set data.sequence=24 \
        "$@" >out 2>&1 || { bad "$name" "exit $?" out; return; }
    found=$(grep -c 'device=cuda .*EXACT *$' out)
    for kind in $kinds; do
        [ -n "${REAL:-}" ] || grep -q "$kind [1-9]" counts ||
            { bad "$name" "NCCL did no $kind" counts; return; }
    done
    if [ "$found" -eq "$rows" ]
    then ok "$name: $rows layouts; NCCL: $(cat counts 2>/dev/null)"
    else bad "$name" "$found of $rows rows are exact" out
    fi
}

printf '%s\n' "ranks=2 mesh.data=2" "ranks=4 mesh.data=4 zero=zero1" \
    "ranks=2 mesh.data=2 zero=zero2 train.micro_batch=1" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp" \
    "ranks=4 mesh.data=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
    "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 zero=zero1" >layouts.txt
all_exact "integer sums" "gathers sums" --set numerics.sums=integer \
    --set numerics.grid_tensor=2 --set model.tied=true --set model.vocab=303
printf '%s\n' "ranks=4 mesh.shard=4 zero=fsdp" >layouts.txt
LOCKSTEP_DRIVER=late all_exact "ordered sums, gathers of weights" gathers \
    --set numerics.grid_tensor=2
printf '%s\n' "ranks=2 mesh.expert=2" \
    "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp" >layouts.txt
all_exact "rows of experts" "gathers sums sends" --set model.family=mixtral \
    --set moe.experts=4 --set numerics.sums=integer

# ---- whole runs: processes, killed ones, and what goes wrong ----

run="--set train.steps=4 --set checkpoint.every=2 --set data.sequence=24
    --set numerics.sums=integer --set validate.every=2"
gpus="$run --ranks 2 --set device=cuda --set comm.library=nccl"
# shellcheck disable=SC2086
if [ "$most" -ge 2 ]; then
    must train config.yaml --run whole $run
    for how in "" --supervised; do
        rm -rf gpus
        must train config.yaml --run gpus $gpus --set zero=zero1 $how
        if ! lockstep compare whole gpus >out 2>&1
        then bad "a run of two ranks $how" "other weights" out
        elif same_run whole gpus; then ok "a run of two ranks $how"
        else bad "a run of two ranks $how" "$why" log
        fi
    done
fi

# The others wait in NCCL for a rank that is killed; all begin again.
# shellcheck disable=SC2086
if [ "$most" -ge 2 ]; then
    rm -rf gpus
    LOCKSTEP_FAULT=step.instruction@1:45:kill must train config.yaml \
        --run gpus $gpus --set zero=zero1 --supervised
    if ! grep -q 'was killed by signal 9' gpus/control/journal.jsonl
    then bad "a killed rank" "nobody was killed" gpus/control/journal.jsonl
    elif lockstep compare whole gpus >out 2>&1; then ok "a killed rank"
    else bad "a killed rank" "other weights" out
    fi
    # Killed ranks leave messages of the library for tests.
    rm -f boxes/*
fi

# shellcheck disable=SC2086
if [ -z "${REAL:-}" ]; then
    rm -rf gpus
    NCCL_HANGS=1:3 expect "a call that never ends" 68 \
        "NCCL has not ended the call within 3.0 s" train config.yaml \
        --run gpus $gpus --set comm.limit=3
    rm -rf gpus
    NCCL_FAILS=1:3 expect "a call that fails" 68 \
        'NCCL answers "remote process exited' train config.yaml \
        --run gpus $gpus
    rm -rf gpus
    NCCL_ALONE=1 expect "ranks that never meet" 68 \
        "NCCL has not connected its ranks within 2.0 s" train config.yaml \
        --run gpus $gpus --set comm.limit=2
    rm -rf gpus
    GPUS=1 expect "two ranks on one GPU" 68 "Duplicate GPU detected" \
        train config.yaml --run gpus $gpus
    mkdir none && cp "$BUILD/tests/driver/libcuda.so.1" none
    : >none/libnccl.so.2 # where the system has a real one
    rm -rf gpus
    LD_LIBRARY_PATH=$PWD/none expect "no NCCL" 69 \
        "there is no NCCL: libnccl.so.2 cannot be opened" train config.yaml \
        --run gpus $gpus
    left=$(find boxes -type f | wc -l)
    [ "$left" -eq 0 ] && ok "nothing is left in memory" ||
        bad "messages of NCCL" "$left are left"
fi

# ---- what is refused ----

expect "on the CPU" 78 \
    "nccl moves memory of GPUs, and device is cpu; set comm.library=own" \
    plan config.yaml --set comm.library=nccl
expect "another name" 78 "is not own, nccl or ipc; nearest: nccl" \
    plan config.yaml --set comm.library=ncl --set device=cuda
report
