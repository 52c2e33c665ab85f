#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# throttled.sh - the control group of a rank, or of all but its first thread, may
# hardly use a processor for a while: that is no hang, is said, and the run ends
# in the bytes of one that was left alone. A rank that computes without end, or is stopped, hangs as before
# (moments.sh, supervised.sh).
#
#     BUILD=build tests/drills/throttled.sh
#
# Exit 77 where no control group with a limit of processor time can be made.
. "${0%/*}/common.sh"
LIMIT=240
control_group "processor time" cpu cpu.cfs_quota_us cpu.max

# may MICROSECONDS: of each second; -1: all of them
may() {
    if [ -e "$group/cpu.max" ]; then
        [ "$1" -gt 0 ] || set -- max
        echo "$1 1000000" >"$group/cpu.max"
    else
        echo 1000000 >"$group/cpu.cfs_period_us" 2>/dev/null
        echo "$1" >"$group/cpu.cfs_quota_us"
    fi
}

prepare
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
# Instructions of some 50 ms: with what the group gets, one takes a minute.
base="--set checkpoint.every=1000 --set validate.every=0
    --set model.feed_forward=30000"
# hold_rank PROCESS: the group has it; held=threads: all but its first thread
hold_rank() {
    local thread
    if [ "$held" = all ]; then
        echo "$1" >"$group/cgroup.procs"
        return
    fi
    for thread in "/proc/$1/task/"*; do
        [ "${thread##*/}" = "$1" ] || echo "${thread##*/}" >"$group/tasks"
    done
}
# throttled RUN ARGUMENT...: rank 1 may not run for a while
held=all
throttled() {
    local run=$1 rank before i
    # shellcheck disable=SC2086
    start_until "$run" 5 train config.yaml --run "$@" $base --ranks 2 \
        --set mesh.data=2 --set train.steps=1000000 --set train.threads=$threads \
        --supervised || { bad "$run trains" "no step 5" log; report; }
    rank=$(rank_process "$run" 1)
    may 1000 # a millisecond of each second
    hold_rank "$rank"
    if until_line log '^kept      rank 1 wants to run' 300
    then ok "$run: it is said"
    else bad "$run: it is said" "not within 30 s" log; fi
    sleep 4
    may -1
    before=$(step_now "$run")
    for ((i = 0; i < 600; i++)); do
        [ "$(step_now "$run")" -le $((before + 2)) ] || break
        sleep 0.1
    done
    # shellcheck disable=SC2086
    stops "$run: a rank that may not run" "$run" "$child" config.yaml $base
    if grep -q '"event": "incident"' "$run/control/journal.jsonl"; then
        bad "$run: that is no incident" "$(grep -o '"cause": "[^"]*' \
            "$run/control/journal.jsonl" | head -n 1)"
    else ok "$run: that is no incident"; fi
}

threads=1
throttled alone
throttled agent --spares 1
# The first thread waits for the other one, so it does not want to run.
if [ -e "$group/tasks" ]; then # not in version 2 of control groups
    threads=2
    held=threads
    throttled threads
    throttled threads_agent --spares 1
fi
report
