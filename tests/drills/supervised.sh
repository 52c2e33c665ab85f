#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# supervised.sh - a supervised run whose ranks are killed, stopped and crashed,
# at any moment, ends in the same bytes as one to which nothing happened.
#
#     BUILD=build [KILLS=4] [STEPS=60] tests/drills/supervised.sh
. "${0%/*}/common.sh"
kills=${KILLS:-4}
steps=${STEPS:-60}
prepare
base="--set train.steps=$steps --set checkpoint.every=10 --set validate.every=50"
four="--ranks 4 --set mesh.data=4 --set zero=zero1 --set train.threads=1
    --set comm.limit=60 --supervised"
# shellcheck disable=SC2086
must train config.yaml --run whole $base

# begin RUN ARGUMENT...: in the background; its number is in $child.
begin() {
    # shellcheck disable=SC2086
    "$program" train config.yaml --run "$@" $base $four >log 2>&1 &
    child=$!
    children="$children $child"
}

# until_step RUN STEP: false if the run ends before.
until_step() {
    local tries=0
    until grep -q "\"step\": $2," "$1/metrics.jsonl" 2>/dev/null; do
        sleep 0.02
        tries=$((tries + 1))
        [ $tries -lt 9000 ] && kill -0 "$child" 2>/dev/null || return 1
    done
}

# hold_rank RUN RANK STEP: a run whose rank stops itself before that step. Its
# process is in $victim. Nobody looks: the supervisor is stopped, too.
hold_rank() {
    export LOCKSTEP_FAULT=train.step@$2:$3:stop
    begin "$1"
    unset LOCKSTEP_FAULT
    until_step "$1" 1
    victim=$(rank_process "$1" "$2")
    kill -STOP "$child"
    stopped "${victim:-0}" || bad "hold $1" "rank $2 did not stop" log
}

# orphan RUN RANK: a run whose supervisor is killed, and whose rank stops itself
# before step 17. The system lets a group go on that was stopped when its parent
# died, and sends it SIGHUP, which is ignored here: there is a second stop.
orphan() {
    trap '' HUP
    export LOCKSTEP_FAULT=train.step@$2:16:stop,train.step@$2:17:stop
    begin "$1"
    unset LOCKSTEP_FAULT
    trap - HUP
    until_step "$1" 1
    victim=$(rank_process "$1" "$2")
    stopped "${victim:-0}" || bad "orphan $1" "rank $2 did not stop" log
    kill -9 "$child"
    wait "$child" 2>/dev/null
    stopped "${victim:-0}" || bad "orphan $1" "rank $2 did not stop again" log
}

# nobody NAME RUN: no process of the run is left.
nobody() {
    local rank left=
    for rank in 0 1 2 3; do
        kill -0 "$(rank_process "$2" $rank)" 2>/dev/null && left="$left $rank"
    done
    if [ -z "$left" ]; then ok "$1"; else bad "$1" "ranks$left live"; fi
}

begin calm
ends "no fault" calm "$child"
nobody "nobody is left" calm
if lockstep status calm | grep -q "has ended: ok"; then ok "status of the end"
else bad "status of the end" "$(lockstep status calm 2>&1)"; fi

# --- kill -9 of ranks drawn at random, again and again ---
# The first one by a fault: a quiet machine makes all steps in a second.
export LOCKSTEP_FAULT=train.step@2:8:kill
begin killed --copies 1
unset LOCKSTEP_FAULT
until_step killed 5
done_kills=1
while [ $done_kills -lt "$kills" ] && kill -0 "$child" 2>/dev/null; do
    victim=$(rank_process killed $((RANDOM % 4)))
    [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null &&
        done_kills=$((done_kills + 1))
    sleep 0.$((RANDOM % 10))$((RANDOM % 10))
done
ends "kill -9 of $done_kills ranks" killed "$child"
lockstep incidents killed --explain >out 2>&1
if [ "$(grep -c 'was killed by signal 9' out)" -ge 1 ] &&
    grep -q 'recovered: generation' out; then ok "incidents are listed"
else bad "incidents are listed" "not so" out; fi
lockstep incidents killed --json >json 2>&1
for key in incident generation redone lost_ms; do
    grep -o "\"$key\": [0-9.-]*" json >"json.$key"
done
# A kill after the last step is an incident that nothing follows.
open=$(awk '/^[0-9]+: after/ { n++ } /recovered: gen/ { n = 0 }
    END { print n + 0 }' out)
if [ "$(wc -l <json.incident)" -eq "$(grep -c '^[0-9]*: after' out)" ] &&
    [ "$(wc -l <json.redone)" -eq $(($(wc -l <json.incident) - open)) ] &&
    [ "$(grep -o '"recovered": null' json | wc -l)" -eq "$open" ] &&
    [ "$(sort -u json.lost_ms | wc -l)" -eq "$(grep -c 'recovered: gen' out)" ] &&
    grep -q '"cause": "was killed by signal 9' json &&
    grep -q '"steps_s": [0-9]' json && grep -q '"rank 3: ' json; then
    ok "incidents as JSON"
else
    bad "incidents as JSON" "not those of the list" json
fi

if lockstep incidents killed | grep -q '(memory)'; then
    ok "it went on from memory"
else
    bad "it went on from memory" "$(lockstep incidents killed)"
fi

# --- without copies in memory: from checkpoints ---
export LOCKSTEP_FAULT=train.step@3:17:kill
begin disk --copies 0
unset LOCKSTEP_FAULT
ends "without copies" disk "$child"
if lockstep incidents disk | grep -q 'step [0-9]*0 (checkpoint)'; then
    ok "it went on from a checkpoint"
else
    bad "it went on from a checkpoint" "$(lockstep incidents disk)"
fi
expect "copies without a supervisor" 2 "add --supervised" train config.yaml \
    --run no --copies 3

# --- a copy with flipped bits is not used ---
hold_rank flipped 1 17
file=$(grep -o '"state": [0-9]*' flipped/control/journal.jsonl | tail -n 1)
file=/proc/$victim/fd/${file##* }
slot=$(($(stat -L -c %s "$file") / 8))
# Behind COPY_ROWS (control/copy_slot.h): weights, then moments. Weights that
# other ranks update are gathered anew, so changes of those alone do no harm.
for i in 2 3; do # both of rank 1
    for ((at = 6315216; at < 6315216 + 16 * 32768; at += 32768)); do
        printf 'ZZZZZZZZ' | dd of="$file" bs=1 seek=$((slot * i + at)) \
            conv=notrunc 2>dd.log || bad "flip" "not written" dd.log
    done
done
kill -9 "$victim"
kill -CONT "$child"
ends "flipped bits in memory" flipped "$child"
if lockstep incidents flipped | grep -q 'step [0-9]*0 (checkpoint)'; then
    ok "a flipped copy is not used"
else
    bad "a flipped copy is not used" "$(lockstep incidents flipped)"
fi

# --- all ranks at once, at named points ---
for fault in train.step:14 checkpoint.tensor:70 checkpoint.rename:2; do
    export LOCKSTEP_FAULT=$fault:kill
    begin "at-$fault"
    unset LOCKSTEP_FAULT
    ends "killed at $fault" "at-$fault" "$child"
done

# --- ranks that end by themselves: as if they had finished, or by an abort ---
for fault in exit abort; do
    export LOCKSTEP_FAULT=train.step:14:$fault
    begin "by-$fault"
    unset LOCKSTEP_FAULT
    ends "ranks that $fault" "by-$fault" "$child"
done
if lockstep incidents by-exit | grep -q 'ended with exit code 0' &&
    lockstep incidents by-abort | grep -q 'signal 6'; then ok "and it is said"
else bad "and it is said" "$(lockstep incidents by-exit by-abort 2>&1)"; fi

# --- a stopped rank is named and replaced; one that goes on is left alone ---
export LOCKSTEP_FAULT=train.step@2:21:stop
begin stopped --set machine=cpu,devices=4
unset LOCKSTEP_FAULT
ends "a stopped rank" stopped "$child"
# The deadline is planned, or measured on a busy machine; that of messages, 60 s,
# is none of it.
usual=$(lockstep incidents stopped |
    sed -n 's/.*hang of rank 2 .*hangs (stopped): .*at most \([0-9.]*\) s.*/\1/p')
if awk -v usual="${usual:-1000}" 'BEGIN { exit !(usual < 30) }'
then ok "the stopped rank is named"
else bad "the stopped rank is named" "$(lockstep incidents stopped)"; fi
hold_rank paused 1 21
kill -CONT "$child"
began=$(date +%s%N)
sleep 0.5
kill -CONT "$victim"
took=$((($(date +%s%N) - began) / 1000000))
ends "a pause" paused "$child"
if lockstep incidents paused | grep -q '^0 incidents'; then ok "no incident"
elif [ $took -ge 1900 ]; then echo "left out: the pause took $took ms"
else bad "no incident" "$(lockstep incidents paused)"; fi

# --- SIGTERM saves; the run goes on later ---
hold_rank asked 0 21
kill -TERM "$child"
kill -CONT "$child"
kill -CONT "$victim"
ends "SIGTERM" asked "$child" 75
if grep -q "go on with: lockstep resume .* --ranks 4 --supervised" log; then
    ok "SIGTERM: it goes on under a supervisor"
else bad "SIGTERM: it goes on under a supervisor" "other words" log; fi

# --- a rank that crashes again and again ends the run, with a reason ---
LOCKSTEP_FAULT=train.step:1:abort lockstep resume asked --ranks 4 --supervised \
    >log 2>&1
check_said "a rank that crashes without end" 68 "times in a row" $? log
if grep -q 'was killed by signal 6 .* times in a row' log; then ok "its reason"
else bad "its reason" "not said" log; fi
must resume asked --ranks 4 --supervised
if same_run whole asked; then ok "resumed after SIGTERM and crashes"
else bad "resumed after SIGTERM and crashes" "$why"; fi

# --- nohup: a closed terminal is ignored ---
# shellcheck disable=SC2086
(trap '' HUP; exec "$program" train config.yaml --run nohup $base $four) \
    >log 2>&1 &
child=$!
children="$children $child"
until_step nohup 10
kill -HUP "$child"
ends "SIGHUP under nohup" nohup "$child"

# --- errors that would come again end the run with their own exit code ---
export LOCKSTEP_FAULT=file.write:1:full
# shellcheck disable=SC2086
expect "a full disk at the start" 74 "disk full" train config.yaml \
    --run full $base $four
unset LOCKSTEP_FAULT
export LOCKSTEP_FAULT=train.nan:9
# shellcheck disable=SC2086
expect "a loss that is not finite" 76 "step 9" train config.yaml --run numeric \
    $base $four
unset LOCKSTEP_FAULT
if lockstep incidents numeric | grep -q '^0 incidents'; then
    ok "that is no incident"
else
    bad "that is no incident" "$(lockstep incidents numeric)"
fi
export LOCKSTEP_FAULT=journal.append:1,journal.append:2
begin late
unset LOCKSTEP_FAULT
until_step late 10
kill -9 "$(rank_process late 2)" 2>/dev/null
ends "a journal whose disk fails" late "$child"

# --- without its supervisor a run goes on, too; nobody else may have it ---
orphan alone 2
if lockstep status alone | grep -q 'its supervisor is gone'; then
    ok "status without a supervisor"
else
    bad "status without a supervisor" "$(lockstep status alone)"
fi
expect "a run that is there" 78 "holds a run already" train config.yaml \
    --run alone --ranks 4 --set mesh.data=4 --supervised
kill -CONT "$victim"
tries=0
until lockstep status alone | grep -q 'is dead\|has ended' ||
    [ $tries -gt 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
if same_run whole alone; then ok "kill -9 of the supervisor: the ranks finish"
else bad "kill -9 of the supervisor: the ranks finish" "$why" log; fi

# --- a new supervisor takes the ranks over, and replaces them again ---
orphan taken 3
"$program" resume taken --ranks 4 --supervised >log 2>&1 &
child=$!
children="$children $child"
tries=0
until lockstep status taken 2>/dev/null | grep -q "^supervisor process $child" ||
    [ $tries -gt 6000 ]; do
    sleep 0.02
    tries=$((tries + 1))
done
expect "a third supervisor" 78 "in use by process" resume taken --ranks 4 \
    --supervised
# It would take the run while its ranks are started again.
expect "a run without its supervisor" 78 "taken/control/lock: in use by process" \
    resume taken --ranks 4
[ "$(rank_process taken 3)" = "$victim" ] && kill -9 "$victim"
ends "taken over, then a rank is killed" taken "$child"
if lockstep incidents taken | grep -q "death of rank 3 (process $victim)"
then ok "the same process was taken over"
else bad "the same process was taken over" "$(lockstep incidents taken)"; fi
# (A kill between the save of a step and its copy finds the checkpoint newer.)
if lockstep incidents taken | grep -q '(memory)\|(checkpoint), 0 redone'; then
    ok "with the copies in memory"
else
    bad "with the copies in memory" "$(lockstep incidents taken)"
fi
# --- a run that is under way has no end and no first checkpoint to go on from:
# `resume` was advised ---
hold plain train.step:3 train config.yaml
# shellcheck disable=SC2086
expect "a run that trains without a supervisor" 78 \
    "it trains here without a supervisor" train config.yaml --run plain $four
kill -9 "$child"
# --- a supervisor whose lines nobody reads: SIGPIPE ended it, and its ranks ---
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.step@1:20:kill "$program" train config.yaml --run unread \
    $base $four >out 2> >(head -n 1 >/dev/null) &
child=$!
children="$children $child"
ends "the reader of stderr is gone" unread "$child"
[ "$(grep -c '"event": "incident"' unread/control/journal.jsonl)" = 1 ] ||
    bad "the reader of stderr is gone" "not one incident" log
# --- the calls before an incident are kept with it: they are there when the run is
# over ---
lockstep incidents unread --calls 1 >said 2>&1
if [ "$(awk 'NR > 1 { print $3 }' said | sort -u | tr '\n' ' ')" = "0 1 2 3 " ] &&
    grep -q ' on group .* (call [0-9]*)' said &&
    lockstep incidents unread --explain | grep -q 'incidents unread --calls 1'
then ok "the calls before an incident"
else bad "the calls before an incident" "not of all ranks" said; fi
echo 'nonsense' >>unread/control/calls-1.jsonl
expect "a damaged line of calls" 0 "1 lines of unread/control/calls-1.jsonl" \
    incidents unread --calls 1
expect "calls before an incident that was none" 2 "the run had 1 incidents" \
    incidents unread --calls 2
rm unread/control/calls-1.jsonl
expect "calls that are gone" 66 "there is no unread/control/calls-1.jsonl" \
    incidents unread --calls 1
# --- a rank fails while the journal cannot be opened: another has its lock. The
# sentence was lost, as that of a supervisor which another one was quicker than ---
mkdir -p other/control
(exec 9>other/control/lock && flock 9 && exec sleep 100000) &
children="$children $!"
until ! flock -n other/control/lock true; do sleep 0.02; done
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.nan:2 expect "a failure beside a journal that is shut" 76 \
    "is not finite" train config.yaml --run other $base $four \
    --set train.on_nan=stop
# --- standard files that are closed: sockets of the run got their numbers, and
# its messages ---
# shellcheck disable=SC2086
"$program" train config.yaml --run closed $base $four <&- >&- 2>&- &
child=$!
children="$children $child"
ends "standard files are closed" closed "$child"
report
