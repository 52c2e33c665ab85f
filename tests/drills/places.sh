#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# places.sh - full disks, directories that cannot be written, two runs in one
# directory, locks after a kill.
. "${0%/*}/common.sh"
prepare 2
must train config.yaml --run whole

# --- a run in the directory of a running one ---
"$program" train config.yaml --run busy --set train.steps=100000 \
    --set optimizer.schedule=constant >log 2>&1 &
child=$!
children="$children $child"
until_line busy/metrics.jsonl '"step": 1,'
expect "a second run" 78 "process $child" train config.yaml --run busy
expect "resume of a running one" 78 "process $child" resume busy
kill -9 "$child"
wait "$child" 2>/dev/null
lockstep resume busy --set train.steps=12 --set optimizer.schedule=cosine \
    >log 2>&1
code=$?
if [ $code -eq 0 ] || grep -q "is beyond\|already" log; then
    ok "no lock survives kill -9"
else
    bad "no lock survives kill -9" "exit $code" log
fi

# --- directories ---
: >file
expect "a file where the run should be" 78 "is a file" \
    train config.yaml --run file
expect "a file on the way" 74 "file" train config.yaml --run file/below
mkdir locked
chmod 500 locked
# Root may write anywhere; then somebody else tries.
as=
by=$program
if [ "$(id -u)" -eq 0 ]; then
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    cp "$program" here
    by=./here
    chmod 755 .
fi
if [ -z "$as" ] || $as "$by" version >log 2>&1; then
    for run in locked locked/run; do
        # shellcheck disable=SC2086
        $as "$by" train config.yaml --run $run >log 2>&1
        check_said "$run cannot be written" 74 "locked" $? log
    done
else
    echo "left out: no other user can be tried here"
fi
chmod 700 locked

# --- an address space that is smaller than the plan ---
(ulimit -v 300000; lockstep train config.yaml --run narrow \
    --set model.width=512 --set model.head_width=128 \
    --set model.feed_forward=2048 --set model.layers=8 >log 2>&1)
check_said "an address space below the plan" 71 \
    "MiB of address space (ulimit -v)" $? log

# --- a full disk ---
# At the end every attempt fails: what was saved stays, and with room again the
# run ends as if nothing had happened. (lost.sh: a disk that fails for a while.)
for fault in checkpoint.rename:6 checkpoint.latest:6; do
    run=full-${fault%:*}
    faults=
    for i in 0 1 2 3 4; do
        faults=$faults,${fault%:*}:$((${fault#*:} + i)):full
    done
    LOCKSTEP_FAULT=${faults#,} lockstep train config.yaml --run "$run" \
        >log 2>&1
    check_said "full disk at $fault" 74 "full" $? log
    no_remains "full disk at $fault: nothing half-written" "$run"
    if lockstep resume "$run" >log 2>&1 && same_run whole "$run"; then
        ok "full disk at $fault: resumed"
    else
        bad "full disk at $fault: resumed" "${why:-it failed}" log
    fi
done

# The real thing, where we may mount.
mkdir disk
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=400k tmpfs disk 2>/dev/null
then
    sed 's/width: 24/width: 48/' config.yaml >wide.yaml
    lockstep train wide.yaml --run disk/run >log 2>&1
    check_said "a disk of 400 kB" 74 "disk full" $? log
    grep -q "bytes are missing" log ||
        bad "a disk of 400 kB" "does not say how much is missing" log
    no_remains "a disk of 400 kB: nothing half-written" disk/run
    mount -o remount,size=20m disk
    must train wide.yaml --run wide
    if lockstep resume disk/run >log 2>&1 && same_run wide disk/run; then
        ok "a disk of 400 kB: resumed with room"
    else
        bad "a disk of 400 kB: resumed with room" "${why:-it failed}" log
    fi
    umount disk

    # Room for bytes, but none for another file.
    mount -t tmpfs -o size=20m,nr_inodes=24 tmpfs disk
    lockstep train config.yaml --run disk/files >log 2>&1
    check_said "a disk that has no file left" 74 "no file is left" $? log
    no_remains "a disk that has no file left: nothing half-written" disk/files
    mount -o remount,nr_inodes=1000 disk
    if lockstep resume disk/files >log 2>&1 && same_run whole disk/files; then
        ok "a disk that has no file left: resumed with some"
    else
        bad "a disk that has no file left: resumed" "${why:-it failed}" log
    fi
    umount disk

    # Read-only for some saves of a run, which no file that is open there stops.
    hold shut train.step:8:stop,train.step:19 train config.yaml ||
        bad "read-only" "the run did not stop" log
    mount --bind shut/ckpt shut/ckpt && mount -o remount,bind,ro shut/ckpt ||
        bad "read-only" "cannot be mounted"
    kill -CONT "$child"
    until_line shut/metrics.jsonl '"step": 18,'
    stopped "$child"
    umount shut/ckpt
    kill -CONT "$child"
    ended "$child"
    check_said "read-only for a while" 0 "could not be saved, training goes on" \
        $? log
    grep -q "Read-only file system" log ||
        bad "read-only for a while" "the cause is not said" log
    if same_run whole shut; then ok "read-only for a while: the same bytes"
    else bad "read-only for a while: the same bytes" "$why" log; fi
else
    echo "left out: a real full disk needs root and mount"
fi

# A limit on the size of files stands for it elsewhere.
(ulimit -f 40; lockstep train config.yaml --run limited >log 2>&1)
check_said "a limit on the size of files" 74 "limited" $? log
no_remains "a limit on the size of files: nothing half-written" limited
if lockstep resume limited >log 2>&1 && same_run whole limited; then
    ok "a limit on the size of files: resumed without it"
else
    bad "a limit on the size of files: resumed" "${why:-it failed}" log
fi

# A small limit on stacks is raised, where the hard one allows it.
(ulimit -S -s 128; lockstep train config.yaml --run stacks --ranks 2 \
    --set mesh.data=2 --supervised >log 2>&1)
code=$?
if [ $code -eq 0 ] && same_run whole stacks; then ok "a small soft limit on stacks"
else bad "a small soft limit on stacks" "exit $code" log; fi
lockstep train config.yaml --run crowd --set train.threads=600 \
    --set train.steps=1 --set train.batch=4 >log 2>&1
check_said "600 threads" 0 "600 threads of a rank take turns on" $? log

# Guards a supervisor that waited without end for ranks that it could not let in.
(ulimit -n 18; LIMIT=120 lockstep train config.yaml --run few --ranks 4 \
    --supervised >log 2>&1)
check_said "a limit on open files" 74 "(ulimit -n)" $? log
# Guards a save that asked whether all ranks see the same file system.
(ulimit -n 16; LIMIT=120 lockstep train config.yaml --run few_threads \
    --ranks 4 --set mesh.data=4 >log 2>&1)
check_said "a limit on open files of threads" 74 "(ulimit -n)" $? log
# Guards an agent that tried again and again to open a connection.
(ulimit -n 12; LIMIT=120 lockstep agent --join 127.0.0.1:1 --token none \
    >log 2>&1)
check_said "an agent's limit on open files" 74 "the agent of 1 slots needs" $? log
(ulimit -f 100; lockstep train config.yaml --run few --ranks 2 --supervised \
    >log 2>&1)
check_said "memory of ranks in a file" 71 "(ulimit -f)" $? log

# Guards a kernel that overflowed a small stack: the process died by a signal.
(ulimit -s 256; lockstep train config.yaml --run shallow >log 2>&1)
code=$?
if [ $code -eq 0 ]; then ok "a hard limit on the stack is raised" # by root
else check_said "a limit on the stack" 71 "(ulimit -s)" $code log; fi

# Disk full in the cache of tokens.
rm -rf cache
LOCKSTEP_FAULT=tokens.write:1:full lockstep train config.yaml --run new \
    >log 2>&1
check_said "full disk while tokenizing" 74 "full" $? log
[ -z "$(ls cache 2>/dev/null)" ] ||
    bad "full disk while tokenizing" "left $(ls cache)"
rm -rf new
lockstep train config.yaml --run new >log 2>&1
if same_run whole new; then ok "tokenized again"
else bad "tokenized again" "$why" log; fi
report
