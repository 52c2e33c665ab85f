#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# launched.sh - rows of the equivalence table whose ranks are processes, under
# `lockstep launch` (called "own" here) and each MPI of this machine;
# checkpoints that processes write together; and a process that dies.
#
#     BUILD=build tests/equivalence/launched.sh [own|openmpi|mpich...]
. "${0%/*}/../drills/common.sh"
find_mpi
. "$tree/tests/equivalence/rows.sh"
prepare

before= # words before the program of each process

# mpi NAME RANKS COMMAND...
mpi() {
    local name=$1 ranks=$2
    shift 2
    if [ "$name" = own ]; then
        # shellcheck disable=SC2086
        timeout --kill-after=5 "${LIMIT:-400}" "$program" launch \
            --ranks "$ranks" -- $before "$program" "$@"
        return
    fi
    # shellcheck disable=SC2086
    with_mpi "$name" "$ranks" $before "$program" "$@"
}

two() {
    printf '%s\n' "ranks=2 mesh.data=2" "ranks=2 mesh.data=2 zero=zero1" \
        "ranks=2 mesh.data=2 zero=zero2 train.micro_batch=1" \
        "ranks=2 mesh.shard=2 zero=fsdp" \
        "ranks=2 mesh.tensor=2 tensor.overlap=2 tensor.domino=true" \
        "ranks=2 mesh.pipe=2 train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-v"
}

four() {
    printf '%s\n' "ranks=4 mesh.data=4 zero=zero1" \
        "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp" \
        "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero1" \
        "ranks=4 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1" \
        "ranks=4 mesh.data=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-h1"
}

eight() {
    printf '%s\n' \
        "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1" \
        "ranks=8 mesh.data=4 mesh.tensor=2 zero=zero1"
}

cut() {
    printf '%s\n' "ranks=2 mesh.context=2" \
        "ranks=2 mesh.context=2 context.kind=ulysses"
}

# Ranks divide the experts of a mixture.
experts() {
    printf '%s\n' "ranks=4 mesh.expert=4" "ranks=4 mesh.expert=4 mesh.node=2" \
        "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp train.micro_batch=1" \
        "ranks=4 mesh.expert=2 mesh.tensor=2" \
        "ranks=4 mesh.expert=4 mesh.expert_tensor=2" \
        "ranks=4 mesh.context=2 mesh.expert_context=true mesh.tensor=2 mesh.expert_tensor=1" \
        "ranks=4 mesh.context=2 mesh.expert_context=true mesh.tensor=2 mesh.expert_tensor=4"
}

# Every family with experts, a third of them where THIRD=2/3 says which.
latent="model.kv_heads=0 model.head_width=0 mla.rank=16 mla.nope=8 mla.rope=4
    mla.value=6"
mixtures() { # MPI
    local family at=0 sets third=${THIRD:-0/1}
    for family in mixtral olmoe qwen2_moe qwen3_moe granitemoe deepseek \
        deepseek_v2 deepseek_v3 glm4_moe gpt_oss phimoe llama4; do
        at=$((at + 1))
        [ $((at % ${third#*/})) -eq $((${third%/*} % ${third#*/})) ] || continue
        sets="model.family=$family moe.experts=4 train.steps=2 model.layers=2"
        sets="$sets moe.top_k=$([ $family = llama4 ] && echo 1 || echo 2)"
        [[ $family != deepseek_v* ]] ||
            sets="$sets $latent moe.groups=2 moe.groups_chosen=1"
        echo "ranks=4 mesh.expert=2 mesh.tensor=2" >layouts.txt
        # shellcheck disable=SC2086
        rows_of "$1" 4 $sets
    done
    printf '%s\n' "ranks=4 mesh.expert=2 mesh.tensor=2" \
        "ranks=4 mesh.expert=4 mesh.expert_tensor=2" >layouts.txt
    rows_of "$1" 4 model.family=mixtral moe.experts=4 train.dtype=bfloat16 \
        lora.rank=2 'lora.targets=[w1,w2,w3,router]'
}

small="data.sequence=24 train.batch=8 train.micro_batch=4
    model.layers=4 numerics.grid_tensor=2"

rows_of() { # MPI RANKS SETTING...: layouts.txt
    local name=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2046,SC2086
    mpi "$name" "$ranks" verify config.yaml --layouts layouts.txt --json \
        --set train.steps=5 --set train.threads=1 \
        $(printf -- '--set %s ' $small "$@") >table.json 2>log
    count "$name"
}

# Begun by four processes, gone on with by two threads, ended by one rank.
moves() { # MPI
    local name=$1
    mpi "$name" 4 train config.yaml --run "moved$name" --set mesh.tensor=2 \
        --set zero=zero1 --set checkpoint.every=10 \
        --set checkpoint.keep_last=9 >log 2>&1 ||
        { bad "$name: four processes train" "exit $?" log; return; }
    back "moved$name" 10
    must resume "moved$name" --ranks 2 --set mesh.tensor=2 --set zero=ddp
    back "moved$name" 20
    must resume "moved$name" --ranks 1 --set mesh.tensor=1
    if same_run one "moved$name"; then ok "$name: moved equals one rank"
    else bad "$name: moved equals one rank" "$why"
    fi
}

# The others end within seconds, name the one that is gone, and leave the
# checkpoints that were there.
dies() { # MPI
    local name=$1 code start=$SECONDS victim tries=0
    mpi "$name" 3 train config.yaml --run "dead$name" --set comm.limit=20 \
        --set train.batch=12 --set numerics.grid_data=3 \
        --set train.micro_batch=4 --set train.steps=100000 --threads 1 \
        --set validate.every=0 >log 2>&1 &
    child=$!
    children="$children $child"
    until [ -s "dead$name/ckpt/latest" ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -gt 1800 ] && break
    done
    victim=$(sed -n 's/.*process \([0-9]*\)$/\1/p' \
        "dead$name/logs/rank-00002.log" | head -n 1)
    if [ -z "$victim" ]; then
        kill "$child"
        bad "$name: a process dies" "its log does not say its number" log
        return
    fi
    start=$SECONDS
    kill -9 "$victim"
    wait "$child"
    code=$?
    if [ $code -eq 0 ] || [ $((SECONDS - start)) -gt 90 ]; then
        bad "$name: a process dies" \
            "exit $code after $((SECONDS - start)) s" log
    # UCX, below MPICH, aborts in a survivor that reads the memory of the dead
    # process just then (uct_cma), and MPICH names that one instead.
    elif ! grep -qi 'rank 2\|EXIT CODE: 9\|uct_cma_ep_tx' log; then
        bad "$name: a process dies" "nobody says which" log
    elif ! lockstep generate "dead$name" --prompt ba --tokens 2 >out 2>&1; then
        bad "$name: a process dies" "its checkpoints are not whole" out
    else
        ok "$name: a process dies, the others end in $((SECONDS - start)) s"
    fi
}

# Processes find their nodes when they begin: ranks 0 and 1 are told to be on
# one, 2 and 3 on another; then in turns, which are no nodes of neighbours.
cat >named.sh <<'END'
#!/bin/bash
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$LOCKSTEP_RANK}}
by=$1
shift
if [ "$by" = neighbours ]; then rank=$((rank / 2)); else rank=$((rank % 2)); fi
SLURMD_NODENAME=node$rank exec "$@"
END
chmod +x named.sh
nodes() { # MPI
    local name=$1 by
    for by in neighbours turns; do
        before="$PWD/named.sh $by"
        mpi "$name" 4 train config.yaml --run "nodes$name$by" \
            --set model.family=mixtral --set moe.experts=4 \
            --set mesh.expert=4 --set train.steps=2 --set validate.every=0 \
            --threads 1 >log 2>&1 || bad "$name: nodes" "exit $?" log
    done
    before=
    if grep -q "nodes of 2 ranks; rows of experts go once to each" \
        "nodes${name}neighbours/log.txt" &&
        ! grep -q "rows of experts go" "nodes${name}turns/log.txt" &&
        same_run "nodes${name}neighbours" "nodes${name}turns"
    then ok "$name: processes find their nodes"
    else bad "$name: processes find their nodes" "another log or weights" \
        "nodes${name}neighbours/log.txt"
    fi
}

# Processes share the items of a task, and the first one speaks.
asks() { # MPI
    local name=$1 task="--task text.jsonl --kind lambada --limit 20 --json"
    # shellcheck disable=SC2086
    lockstep eval one $task --out alone.jsonl >alone.json 2>log
    # shellcheck disable=SC2086
    mpi "$name" 3 eval one $task --out shared.jsonl >shared.json 2>log
    sed -i 's/"seconds":.*//' alone.json shared.json
    if [ -s alone.jsonl ] && cmp -s alone.jsonl shared.jsonl &&
        cmp -s alone.json shared.json; then
        ok "$name: three processes evaluate"
    else
        bad "$name: three processes evaluate" "something else" log
    fi
}

must train config.yaml --run one
for name in ${*:-own $mpis}; do
    two >layouts.txt
    # Two processes under the check of lives (docs/faults.md).
    late=lives:late
    [ $name = openmpi ] || late=lives:early
    LOCKSTEP_CHECK=$late rows_of $name 2
    four >layouts.txt
    rows_of $name 4
    experts >layouts.txt
    rows_of $name 4 model.family=mixtral moe.experts=4 \
        numerics.grid_context=2 numerics.grid_tensor=4
    mixtures $name
    printf '%s\n' "ranks=4 mesh.expert=4 moe.dispatch_format=recipe" \
        "ranks=4 mesh.expert=4 mesh.node=2 moe.dispatch_format=recipe" >layouts.txt
    rows_of $name 4 model.family=mixtral moe.experts=4 train.dtype=bfloat16 \
        numerics.recipe=bitnet
    echo "ranks=4 mesh.data=4 zero=fsdp fsdp.gather_format=recipe" >layouts.txt
    rows_of $name 4 train.dtype=bfloat16 numerics.recipe=mxfp8 numerics.high_last=0
    echo "ranks=4 mesh.data=4 zero=fsdp zero_format=int8 mesh.node=2" >layouts.txt
    rows_of $name 4 numerics.mode=fast
    printf '%s\n' "ranks=4 mesh.data=4 zero=zero2" \
        "ranks=4 mesh.data=2 mesh.pipe=2 zero=zero1" >layouts.txt
    rows_of $name 4 numerics.sums=integer train.micro_batch=1
    eight >layouts.txt
    rows_of $name 8
    cut >layouts.txt
    rows_of $name 2 numerics.grid_context=2 data.sequence=48
    moves $name
    asks $name
    nodes $name
    dies $name
done
echo "$rows rows of processes in $SECONDS s"
report
