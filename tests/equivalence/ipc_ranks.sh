#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ipc_ranks.sh - comm.library=ipc trains the bits of one rank on the CPU: ranks
# that are processes read each other's memory of GPUs, and so do threads; and
# where they cannot, messages go through host memory, and the log says why.
#
#     BUILD=build [REAL=1] tests/equivalence/ipc_ranks.sh
#
# GPUs are those of tests/driver, late and early; with REAL=1 those of this
# machine, whose first one all ranks may share.
. "${0%/*}/../drills/common.sh"
prepare
echo "device: cpu" >>config.yaml
[ -n "${REAL:-}" ] || export LD_LIBRARY_PATH=$BUILD/tests/driver GPUS=1
small="--steps 2 --set train.steps=2 --set comm.limit=60 --set train.threads=1
    --set data.sequence=24 --set numerics.grid_tensor=2 --set model.layers=4"

# all_exact NAME RANKS ARGUMENT...: every layout of layouts.txt has the bits of
# one rank on the CPU. RANKS processes; 0: threads. islands=1: some ranks cannot
# read each other, and the log says so.
all_exact() {
    local name=$1 ranks=$2 rows found opened
    shift 2
    sed -i 's/$/ device=cuda comm.library=ipc/' layouts.txt
    rows=$(grep -c . layouts.txt)
    rm -f counts
    # shellcheck disable=SC2046,SC2086
    DRIVER_COUNTS=$PWD/counts LIMIT=300 lockstep \
        $([ "$ranks" -eq 0 ] || echo launch --ranks "$ranks" -- "$program") \
        verify config.yaml --layouts layouts.txt $small "$@" >out 2>log ||
        { bad "$name" "exit $?" log; return; }
    found=$(grep -c 'device=cuda .*EXACT *$' out)
    opened=$(sed -n 's/.* opened \([1-9][0-9]*\) early 0 left 0 .*/\1/p' counts \
        2>/dev/null | wc -l)
    if [ "$found" -ne "$rows" ]
    then bad "$name" "$found of $rows rows are exact" out
    elif [ -z "${islands:-}" ] && grep -q "groups send through" log
    then bad "$name" "ranks do not read each other" log
    elif [ -z "${islands:-}" ] && grep -q "send in part through" log
    then bad "$name" "some ranks do not read each other" log
    elif [ -n "${islands:-}" ] && ! grep -q "send in part through" log
    then bad "$name" "the log does not speak of islands" log
    elif [ -z "${REAL:-}" ] && [ "$opened" -ne "$ranks" ]
    then bad "$name" "$opened of $ranks processes opened what others have and kept it until they parted" counts
    else ok "$name: $rows layouts"
    fi
}

export LOCKSTEP_DRIVER=late
printf '%s\n' "ranks=2 mesh.data=2" "ranks=2 mesh.data=2 zero=zero1" \
    "ranks=2 mesh.shard=2 zero=fsdp" \
    "ranks=2 mesh.tensor=2 tensor.overlap=2" \
    "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
    >layouts.txt
all_exact "two processes" 2 --set model.tied=true --set model.vocab=303
export LOCKSTEP_DRIVER=early
printf '%s\n' "ranks=4 mesh.data=4 zero=zero1" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero1 device_graphs=true" \
    >layouts.txt
all_exact "four processes" 4
printf '%s\n' "ranks=2 mesh.data=2" \
    "ranks=2 mesh.data=2 zero=zero2 train.micro_batch=1" >layouts.txt
all_exact "two threads, integer sums" 0 --set numerics.sums=integer
printf '%s\n' "ranks=3 mesh.data=3" "ranks=3 mesh.shard=3 zero=fsdp" \
    >layouts.txt
all_exact "three ranks, six leaves" 0 --set train.batch=12 \
    --set numerics.grid_data=6 --set train.micro_batch=2
printf '%s\n' "ranks=2 mesh.expert=2" "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp" \
    "ranks=2 mesh.context=2 context.kind=ulysses" >layouts.txt
all_exact "experts, context" 0 --set model.family=mixtral \
    --set moe.experts=4 --set numerics.grid_context=2
printf '%s\n' "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero1" >layouts.txt
all_exact "whole tensors" 4 --set optimizer.name=muon

# Messages of pipelines: between threads, and between processes, one of which
# has two stages; a matrix that the first and the last stage share.
export LOCKSTEP_DRIVER=late
printf '%s\n' "ranks=2 mesh.pipe=2 train.micro_batch=1" \
    "ranks=4 mesh.pipe=4 schedule.name=gpipe train.micro_batch=1" \
    "ranks=4 mesh.pipe=2 mesh.data=2 zero=zero1 train.micro_batch=1 device_graphs=true" \
    >layouts.txt
all_exact "pipes of threads" 0 --set model.tied=true
export LOCKSTEP_DRIVER=early
printf '%s\n' "ranks=2 mesh.pipe=2 schedule.name=interleaved train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" >layouts.txt
all_exact "pipes of processes" 2 --set model.tied=true

# Two ranges of a rank lie in one block, which the other ranks open twice.
if [ -z "${REAL:-}" ]; then
    export BLOCKS=1
    echo "ranks=2 mesh.pipe=2 schedule.name=interleaved train.micro_batch=1" \
        >layouts.txt
    all_exact "pipes of processes whose stages share a block" 2
    unset BLOCKS
fi

# More messages under way than travel unasked, where answers have no shared
# memory: a job of several machines.
printf '%s\n' '#!/bin/sh' 'unset LOCKSTEP_SHARED' "exec $program \"\$@\"" >apart
chmod +x apart
echo "ranks=2 mesh.pipe=2 schedule.name=gpipe train.micro_batch=1" >layouts.txt
together=$program
program=$PWD/apart
all_exact "72 messages under way" 2 --set train.batch=72
program=$together

# Ranks on two islands, as on two machines: of four ranks 0 and 2 read each
# other, and 1 and 3.
if [ -z "${REAL:-}" ]; then
    export GPUS=2 PEERS=0
    islands=1
    printf '%s\n' "ranks=4 mesh.data=4 zero=zero1" \
        "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
        "ranks=4 mesh.tensor=4 tensor.overlap=2" >layouts.txt
    all_exact "islands of processes" 4 --set numerics.grid_tensor=4
    LOCKSTEP_DRIVER=late
    printf '%s\n' "ranks=4 mesh.data=4 zero=zero2 device_graphs=true" \
        "ranks=4 mesh.expert=4 train.micro_batch=1" \
        "ranks=4 mesh.context=4 context.kind=ulysses" >layouts.txt
    all_exact "islands of threads" 0 --set model.family=mixtral \
        --set moe.experts=4 --set numerics.grid_context=4 --set model.heads=4 \
        --set model.kv_heads=4
    LOCKSTEP_DRIVER=early
    printf '%s\n' "ranks=3 mesh.shard=3 zero=fsdp" >layouts.txt
    all_exact "a rank alone beside two" 0 --set train.batch=12 \
        --set numerics.grid_data=6 --set train.micro_batch=2
    export GPUS=1
    unset PEERS
    # Two of four ranks read nobody: no rank alone chooses how all send.
    LOCKSTEP_DRIVER=late
    printf '%s\n' '#!/bin/sh' "[ \"\${LOCKSTEP_RANK:-0}\" -lt 2 ] || export IPC=0" \
        "exec $program \"\$@\"" >partly
    chmod +x partly
    program=$PWD/partly
    echo "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=two_level train.micro_batch=1" \
        >layouts.txt
    all_exact "a hierarchy, and two ranks that read nobody" 4 \
        --set model.family=mixtral --set moe.experts=4
    program=$together
    LOCKSTEP_DRIVER=early
    islands=
fi

# ---- whole runs ----

run="--set train.steps=3 --set checkpoint.every=2 --set data.sequence=24
    --set validate.every=0 --set model.layers=2"
gpus="$run --ranks 2 --supervised --set zero=zero1 --set device=cuda
    --set comm.library=ipc"
# shellcheck disable=SC2086
must train config.yaml --run whole $run

# trains NAME SENTENCE ARGUMENT...: a run of two processes equals `whole`, and
# its log says the sentence; "": it does not say that messages are staged.
trains() {
    local name=$1 sentence=$2
    shift 2
    rm -rf gpus
    # shellcheck disable=SC2086
    must train config.yaml --run gpus $gpus "$@"
    if ! lockstep compare whole gpus >out 2>&1
    then bad "$name" "other weights" out
    elif ! same_run whole gpus; then bad "$name" "$why" log
    elif [ -z "$sentence" ] && grep -q "send through" gpus/log.txt
    then bad "$name" "ranks do not read each other" gpus/log.txt
    elif ! grep -qF "$sentence" gpus/log.txt
    then bad "$name" "the log does not say: $sentence" gpus/log.txt
    else ok "$name"
    fi
}

trains "a run of two processes" ""
if [ -z "${REAL:-}" ]; then
    LOCKSTEP_FAULT=step.instruction@1:25:kill trains "a killed rank" ""
    grep -q 'was killed by signal 9' gpus/control/journal.jsonl ||
        bad "a killed rank" "nobody was killed" gpus/control/journal.jsonl
    LOCKSTEP_FAULT=step.instruction@1:25:kill trains "a killed stage" "" \
        --set mesh.pipe=2 --set zero=ddp \
        --set train.micro_batch=1
    grep -q 'was killed by signal 9' gpus/control/journal.jsonl ||
        bad "a killed stage" "nobody was killed" gpus/control/journal.jsonl
    IPC=0 trains "a driver without IPC" \
        "send through host memory: GPU 0: the driver answers CUDA_ERROR_NOT_SUPPORTED to memory for other processes"
    GPUS=2 PEERS=0 trains "GPUs that do not see each other" \
        "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED to memory of another process"
    GPUS=2 trains "GPUs that see each other" ""
    BLOCKS=1 trains "ranges that share a block of the driver's" ""
    ASTRAY=1 trains "handles that lead beside what was shown" \
        "send through host memory: rank 1: GPU 0: a handle of another process leads to other memory"
fi

# Memory that is read takes none: each process has what it has with `own`.
took() { # LIBRARY
    rm -rf gpus counts
    # shellcheck disable=SC2086
    DRIVER_COUNTS=$PWD/counts must train config.yaml --run gpus $gpus \
        --set train.steps=1 --set comm.library="$1"
    sed -n 's/.* bytes //p' counts | sort | xargs
}
if [ -z "${REAL:-}" ]; then
    own=$(took own) ipc=$(took ipc)
    if [ "$(wc -w <<<"$ipc")" -ge 2 ] && [ "$own" = "$ipc" ]
    then ok "memory of the processes: $ipc bytes, as without ipc"
    else bad "memory of the processes" "$own bytes with own, $ipc with ipc"
    fi
fi

# A message of a pipeline is one copy, not one to the host and one back: of
# sixteen sequences each goes up and its gradient comes down. Ranks copy a number
# into what they show, and look for that of the other one.
copied() { # LIBRARY
    rm -rf gpus counts
    # shellcheck disable=SC2086
    DRIVER_COUNTS=$PWD/counts must train config.yaml --run gpus $gpus \
        --set train.steps=1 --set mesh.pipe=2 --set zero=ddp --set train.batch=16 \
        --set train.micro_batch=1 --set comm.library="$1"
    awk '{ sum += $4 } END { print sum }' counts
}
if [ -z "${REAL:-}" ]; then
    own=$(copied own) ipc=$(copied ipc)
    if [ $((own - ipc)) -ge 24 ]
    then ok "copies of a pipe: $ipc, $own with own"
    else bad "copies of a pipe" "$own with own, $ipc with ipc" counts
    fi
fi

# A sender of a pipe does not wait for its GPU, as it does with own.
waited() { # LIBRARY
    copied "$1" >/dev/null
    sed -n 's/.* stops \([0-9]*\) .*/\1/p' counts | awk '{ sum += $1 } END { print sum }'
}
if [ -z "${REAL:-}" ]; then
    own=$(waited own) ipc=$(waited ipc)
    if [ $((own - ipc)) -ge 16 ]
    then ok "waits of a pipe: $ipc, $own with own"
    else bad "waits of a pipe" "$own with own, $ipc with ipc" counts
    fi
fi

# ---- device: auto, and a GPU on rank 0 alone ----

cat >some.sh <<'END'
#!/bin/bash
[ "$LOCKSTEP_RANK" = 0 ] || export GPUS=0
exec "$@"
END
chmod +x some.sh
some() {
    rm -rf gpus
    # shellcheck disable=SC2086
    lockstep launch --ranks 2 -- "$PWD/some.sh" "$program" train config.yaml \
        --run gpus $run --set zero=zero1 --set device=auto "$@" >log 2>&1
}

if [ -z "${REAL:-}" ]; then
    if ! some --set comm.library=ipc; then bad "one of two ranks has a GPU" "exit $?" log
    elif ! lockstep compare whole gpus >out 2>&1
    then bad "one of two ranks has a GPU" "other weights" out
    elif ! grep -q "rank 0 .*device cuda, chosen" gpus/log.txt ||
        ! grep -rqs "rank 1 .*device cpu, chosen" gpus/logs ||
        ! grep -q "one of two ranks has no GPU" gpus/log.txt
    then bad "one of two ranks has a GPU" "the logs do not say so" gpus/log.txt
    else ok "one of two ranks has a GPU: the bits are the same"
    fi
    some --set comm.library=nccl
    code=$?
    if [ $code -eq 78 ] && grep -q "wants a GPU for each rank" log
    then ok "one of two ranks has a GPU, NCCL"
    else bad "one of two ranks has a GPU, NCCL" "exit $code" log
    fi
fi
report
