#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpi.sh - ranks that are processes: the same body under each MPI that is here.
set -u
BUILD=${BUILD:-build}
program=$BUILD/tests/unit/comm/test_launch
export LOCKSTEP_PLUGINS=$BUILD
export MPIEXEC_TIMEOUT=120
# MPI libraries keep memory of their own at the end; under the address
# sanitizer our leaks are found by every other test.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
make BUILD="$BUILD" "$program" >/dev/null || exit 1
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# launch MPI RANKS COMMAND...
launch() {
    local mpi=$1 ranks=$2
    shift 2
    case $mpi in
    openmpi) timeout 150 mpirun.openmpi --allow-run-as-root --oversubscribe \
        -n "$ranks" "$@" ;;
    mpich) timeout 150 mpirun.mpich -n "$ranks" "$@" ;;
    esac >"$log" 2>&1
}

complain() {
    failed=1
    echo "FAILED $*"
    tail -n 20 "$log" | sed 's/^/    /'
}

# drill MPI NAME SENTENCE...: must fail, and each sentence must be said
drill() {
    local mpi=$1 name=$2
    shift 2
    LOCKSTEP_DRILL=$name launch "$mpi" 3 "$program" \
        && complain "$mpi $name succeeds"
    for sentence; do
        grep -q "$sentence" "$log" || complain "$mpi $name: no '$sentence'"
    done
}

for mpi in openmpi mpich; do
    if ! [ -e "$BUILD/comm_$mpi.so" ] || ! command -v mpirun.$mpi >/dev/null
    then
        echo "skipped: no $mpi"
        continue
    fi
    for ranks in 1 2 4; do
        launch $mpi $ranks "$program" || complain "$mpi, $ranks ranks"
    done
    drill $mpi late "broadcast on group world: rank 1 has not come within 1.0"
    drill $mpi chain "agree on group world: rank 1 has not come within 0.5"
    drill $mpi fail "the disk of rank 1 is full"
    drill $mpi agree "rank 1 has a cold"
    drill $mpi size "expected 12 bytes from rank 0, found 16"
    drill $mpi count "77 ranks were asked for, but the launcher started 3"
    echo "done: $mpi"
done
exit $failed
