#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpi.sh - ranks that are processes: the same body under `lockstep launch`
# (called "own" here) and under each MPI that is here.
set -u
BUILD=${BUILD:-build}
program=$BUILD/tests/unit/comm/test_launch
export LOCKSTEP_PLUGINS=$BUILD
export MPIEXEC_TIMEOUT=120
# MPI libraries keep memory of their own at the end; under the address
# sanitizer our leaks are found by every other test.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
mpis=own
for mpi in openmpi mpich; do
    if [ -e "$BUILD/comm_$mpi.so" ] && command -v mpirun.$mpi >/dev/null
    then mpis="$mpis $mpi"
    else echo "left out: no $mpi"
    fi
done
make BUILD="$BUILD" "$program" >/dev/null || exit 1
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# start MPI ARGUMENTS...: what mpirun takes after its options
start() {
    local mpi=$1
    shift
    case $mpi in
    openmpi) timeout 150 mpirun.openmpi --allow-run-as-root --oversubscribe \
        "$@" ;;
    mpich) timeout 150 mpirun.mpich "$@" ;;
    own)
        shift # -n
        timeout 150 "$BUILD/lockstep" launch --ranks "$1" -- "${@:2}" ;;
    esac >"$log" 2>&1
}

# launch MPI RANKS COMMAND...
launch() {
    local mpi=$1 ranks=$2
    shift 2
    start "$mpi" -n "$ranks" "$@"
}

complain() {
    failed=1
    echo "FAILED $*"
    tail -n 20 "$log" | sed 's/^/    /'
}

# drill MPI NAME SENTENCE...: must fail, and each sentence must be said. A
# launcher ends the other ranks when the first one fails; on a busy machine
# their words can be lost: three attempts.
drill() {
    local mpi=$1 name=$2 tries=0 missing
    shift 2
    while :; do
        LOCKSTEP_DRILL=$name launch "$mpi" 3 "$program" \
            && complain "$mpi $name succeeds"
        missing=
        for sentence; do
            grep -q "$sentence" "$log" || missing=$sentence
        done
        [ -n "$missing" ] || return 0
        tries=$((tries + 1))
        [ $tries -lt 3 ] || break
    done
    complain "$mpi $name: no '$missing'"
}

# Three ranks, one with another configuration: each says which line, and the
# exit code says what kind of mistake it is.
for i in $(seq 200); do echo "line $i of a text that repeats itself"; done \
    >"$work/text.txt"
"$BUILD/lockstep" tokenizer train "$work/text.txt" --vocab 270 \
    --out "$work/tokenizer.json" >/dev/null || failed=1
cat >"$work/config.yaml" <<END
version: 1
model: {layers: 1, width: 16, heads: 2, vocab: 270}
tokenizer: {from: $work/tokenizer.json}
data: {train: [$work/text.txt], sequence: 16}
train: {steps: 2, batch: 8}
END
unlike() {
    local mpi=$1 train=("$BUILD/lockstep" train "$work/config.yaml")
    train+=(--run "$work/$mpi" --set comm.limit=20)
    start "$mpi" -n 2 "${train[@]}" : -n 1 "${train[@]}" --set seed=7
    code=$?
    [ $code -eq 78 ] || complain "$mpi unlike: exit code $code"
    [ "$(grep -c '"seed=7" here, "seed=1" there' "$log")" -eq 3 ] \
        || complain "$mpi unlike: not said by three ranks"
}

# More ranks of an axis than one sum has leaves, and more than threads may be:
# fast mode has no cap there. The sums are others, so losses are compared.
many() { # MPI AXIS
    local mpi=$1 loss='' train=("$BUILD/lockstep" train "$work/config.yaml")
    train+=(--set data.sequence=132 --set train.steps=1 --set train.batch=1
        --set train.dtype=float64 --set numerics.mode=fast
        --set numerics.grid_tensor=1 --set train.threads=1)
    # Two ranks share a key-value head.
    [ "$2" != tensor ] || train+=(--set model.heads=66 --set model.kv_heads=33
        --set model.head_width=2 --set model.feed_forward=66
        --set model.vocab=330)
    "${train[@]}" --run "$work/one$2" >"$log" 2>&1 || complain "$mpi many: one"
    launch "$mpi" 66 "${train[@]}" --run "$work/many$2" --set "mesh.$2=66" ||
        complain "$mpi: 66 $2 ranks"
    for run in "one$2" "many$2"; do
        loss="$loss $(sed -n 's/.*"loss": \([0-9.]\{12\}\).*/\1/p' \
            "$work/$run/metrics.jsonl")"
    done
    [ "$(tr ' ' '\n' <<<"$loss" | grep -c '[0-9]')" -eq 2 ] &&
        [ "$(tr ' ' '\n' <<<"$loss" | grep '[0-9]' | sort -u | wc -l)" -eq 1 ] ||
        complain "$mpi: losses of 1 and 66 $2 ranks:$loss"
}

under() { # MPI
    local mpi=$1 ranks
    for ranks in 1 2 4; do
        launch $mpi $ranks "$program" || complain "$mpi, $ranks ranks"
    done
    drill $mpi late "broadcast on group world: rank 1 has not come within 1.0"
    drill $mpi chain "agree on group world: rank 1 has not come within 2.0"
    drill $mpi fail "the disk of rank 1 is full"
    # Own messages never outlive the call that sends them.
    [ $mpi = own ] || drill $mpi pending "rank 0: memory under way is there" \
        "rank 2: memory under way is there"
    drill $mpi agree "rank 1 has a cold"
    drill $mpi size "expected 12 bytes from rank 0, found 16"
    drill $mpi count "77 ranks were asked for, but the launcher started 3"
    # Own ranks are all of one program.
    if [ "$mpi" = own ]; then
        echo "done: own"
        return
    fi
    LOCKSTEP_DRILL=begin start $mpi -n 1 sleep 30 : -n 2 "$program" \
        && complain "$mpi: a rank that never begins"
    grep -q "MPI has not begun within 1.5 s" "$log" \
        || complain "$mpi: nothing is said of a rank that never begins"
    unlike $mpi
    [ "$mpi" != mpich ] || many $mpi context
    [ "$mpi" != own ] || many $mpi tensor
    echo "done: $mpi"
}

# Beside each other: most of the time somebody waits for a limit.
begun=
for mpi in $mpis; do
    { log=$work/$mpi.log; under $mpi; exit $failed; } &
    begun="$begun $!"
done
for child in $begun; do wait "$child" || failed=1; done
exit $failed
