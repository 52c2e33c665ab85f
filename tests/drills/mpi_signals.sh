#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpi_signals.sh - signals to processes of a run under each MPI of this machine:
# to all of them and to one, twice in a row, during a save, to the launcher.
# Every time all stop after the same step, saved, with exit code 75, and `resume`
# ends with the bytes of a run that nobody stopped. A rank that hangs is 68.
. "${0%/*}/common.sh"
need_mpi
only= # ranks that stop themselves
stops= # where
prepare
must train config.yaml --run whole

mpirun_of() { # MPI ARGUMENT...
    local name=$1 flags=
    shift
    [ "$name" = openmpi ] && flags="--allow-run-as-root --oversubscribe"
    # shellcheck disable=SC2086
    exec "mpirun.$name" $flags "$@"
}

process_of() { # RUN RANK
    local log=$1/logs/rank-0000$2.log
    [ "$2" -ne 0 ] || log=$1/log.txt
    sed -n 's/.*process \([0-9]*\)$/\1/p' "$log" 2>/dev/null | head -n 1
}

# all_stopped RUN: until every rank of $waits has stopped itself
all_stopped() {
    local rank process tries=0
    for rank in $waits; do
        until process=$(process_of "$1" "$rank") && [ -n "$process" ]; do
            sleep 0.02
            tries=$((tries + 1))
            [ $tries -lt 9000 ] && kill -0 "$child" 2>/dev/null || return 1
        done
        stopped "$process" || return 1
    done
}

# begin MPI RANKS RUN ARGUMENT...: until the ranks of $waits, all unless it is
# said, have stopped themselves in or before step 7: nothing comes too late.
begin() {
    local name=$1 ranks=$2 run=$3
    shift 3
    waits=${only:-$(seq -s ' ' 0 $((ranks - 1)))}
    all=$(seq -s ' ' 0 $((ranks - 1)))
    LOCKSTEP_FAULT=${stops:-train.step:7:stop} mpirun_of "$name" -n "$ranks" \
        "$program" train config.yaml --run "$run" --set comm.limit=60 "$@" \
        >log 2>&1 &
    child=$!
    children="$children $child"
    all_stopped "$run"
}

# go_on RUN: all ranks
go_on() {
    local rank
    for rank in $all; do kill -CONT "$(process_of "$1" "$rank")"; done
}

# all_told RUN: until a signal has reached every rank, which is stopped
all_told() {
    local rank
    for rank in $all; do told "$(process_of "$1" "$rank")" || return 1; done
}

# resumes NAME RUN: exit code, sentence, one step on all ranks, then resumes
resumes() {
    local name=$1 run=$2 code
    wait "$child"
    code=$?
    # MPICH's launcher sometimes ends with 0 after it passed a signal on, whatever
    # its ranks ended with.
    [ $code -ne 0 ] || [ "$name" != "mpich: SIGUSR1 to mpirun" ] ||
        [ "$(grep -c 'exit 75 (stopped)' log)" -ne 2 ] || code=75
    if [ $code -ne 75 ]; then
        bad "$name" "exit $code where 75 is expected" log
    elif ! grep -q "stopped on SIG[A-Z0-9]* after step .*, saved" log; then
        bad "$name" "does not say that it saved" log
    elif [ "$(grep -o 'after step [0-9]*, saved' log | sort -u | wc -l)" -ne 1 ]
    then
        bad "$name" "ranks stopped after different steps" log
    elif grep -q "was not matched" log; then
        bad "$name" "messages were left that nobody received" log
    elif ! lockstep resume "$run" --ranks 1 \
        --set mesh.data=1 --set mesh.tensor=1 >out 2>&1; then
        bad "$name" "does not resume" out
    elif ! same_run whole "$run"; then
        bad "$name" "$why"
    else
        ok "$name"
    fi
}

# tell SIGNAL RUN RANK...: to these ranks
tell() {
    local signal=$1 run=$2 rank
    shift 2
    for rank; do kill -"$signal" "$(process_of "$run" "$rank")"; done
}

# sent NAME SIGNAL RUN RANK...: to these ranks, which then go on
sent() {
    local name=$1 run=$3
    shift
    tell "$@"
    go_on "$run"
    resumes "$name" "$run"
}

# One that hangs is no request: nothing is saved, and another exit code says so.
hangs() { # MPI
    local m=$1 code
    begin "$m" 2 "$m-hangs" --set comm.limit=10 ||
        { bad "$m: a rank hangs" "did not begin" log; return; }
    kill -CONT "$(process_of "$m-hangs" 0)"
    wait "$child"
    code=$?
    if [ $code -ne 68 ] || ! grep -q "rank 1 has not come within 10.0 s" log
    then bad "$m: a rank hangs" "exit $code where 68 is expected" log
    else ok "$m: a rank hangs: exit 68"
    fi
}

# The launcher alone is killed, of ranks that would step for as long as anybody
# likes: they see that they are alone, save after their step and end.
orphans() { # MPI
    local m=$1 run=$1-orphans long="--set optimizer.schedule=constant" \
        process tries=0 steps
    # shellcheck disable=SC2086
    mpirun_of "$m" -n 2 "$program" train config.yaml --run "$run" \
        --set train.steps=1000000 --set checkpoint.every=1000 $long \
        --set validate.every=0 >log 2>&1 &
    child=$!
    children="$children $child"
    await "$run/metrics.jsonl" '"step": 5,'
    kill -9 "$child"
    wait "$child" 2>/dev/null
    for process in $(process_of "$run" 0) $(process_of "$run" 1); do
        while grep -q '^State:.[^ZX]' "/proc/$process/status" 2>/dev/null; do
            sleep 0.1
            tries=$((tries + 1))
            [ $tries -lt 600 ] && continue
            bad "$m: kill -9 of mpirun alone" "a rank goes on" log
            kill -9 "$process"
            break
        done
    done
    if [ ! -e "$run/ckpt/latest" ]; then
        ok "$m: kill -9 of mpirun: its ranks are killed, too"
        return
    fi
    steps=$(($(sed 's/step-0*//' "$run/ckpt/latest") + 3))
    # shellcheck disable=SC2086
    must train config.yaml --run "$run.alike" --set train.steps=$steps $long \
        --set validate.every=0
    (mpirun_of "$m" -n 2 "$program" resume "$run" --set train.steps=$steps) \
        >out 2>&1
    if [ $? -ne 0 ]; then bad "$m: kill -9 of mpirun alone" "does not resume" out
    elif same_run "$run.alike" "$run"; then ok "$m: kill -9 of mpirun alone"
    else bad "$m: kill -9 of mpirun alone" "$why"; fi
}

under() { # MPI
    local m=$1
    begin "$m" 2 "$m-all" && sent "$m: SIGUSR1 to all" USR1 "$m-all" 0 1 ||
        bad "$m: SIGUSR1 to all" "did not begin" log
    begin "$m" 4 "$m-one" --set mesh.tensor=2 --threads 2 &&
        sent "$m: SIGTERM to rank 3 of 4, 2 threads each" TERM "$m-one" 3 ||
        bad "$m: SIGTERM to rank 3" "did not begin" log
    # The second one in the midst of the step that the first one ends: of 28
    # instructions, the twelfth of step 7.
    stops=train.step:7:stop,step.instruction:180:stop
    if begin "$m" 2 "$m-twice" && tell TERM "$m-twice" 0 1 &&
        go_on "$m-twice" && all_stopped "$m-twice"
    then sent "$m: SIGTERM twice to all" TERM "$m-twice" 1 0
    else bad "$m: twice" "did not begin" log
    fi
    only=0 stops=checkpoint.latest:7:stop
    begin "$m" 2 "$m-save" --set checkpoint.every=1 && sent \
        "$m: SIGHUP to rank 1 during a save" HUP "$m-save" 1 ||
        bad "$m: during a save" "did not begin" log
    only= stops=
    if begin "$m" 2 "$m-launcher"; then
        kill -USR1 "$child"
        all_told "$m-launcher" ||
            bad "$m: SIGUSR1 to mpirun" "it does not come" log
        go_on "$m-launcher"
        resumes "$m: SIGUSR1 to mpirun" "$m-launcher"
    else bad "$m: SIGUSR1 to mpirun" "did not begin" log
    fi
    hangs "$m"
    orphans "$m"
}

for name in $mpis; do under "$name"; done

# Between threads of one process, too: a signal before the first step.
"$program" train config.yaml --run early --ranks 2 --threads 1 >log 2>&1 &
child=$!
children="$children $child"
until [ -s early/log.txt ] || ! kill -0 $child; do sleep 0.01; done
kill -USR1 "$child"
resumes "SIGUSR1 to two ranks that are threads, while they begin" early
report
