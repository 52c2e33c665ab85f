#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# local_shards.sh - machines that share no file system: each keeps the shards of
# its own ranks (checkpoint.local), and the run goes on with other placement and
# other ranks, from what the agents fetch from each other.
#
# Each agent has a mount namespace of its own: RUN and DIR are other directories
# there than in the next one.
#
#     BUILD=build tests/drills/local_shards.sh
. "${0%/*}/common.sh"
prepare
. "$tree/tests/drills/machines.sh"
lockstep data prepare config.yaml >log 2>&1 ||
    must train config.yaml --run first --set train.steps=1

# supervise RANKS ARGUMENT...: its process is in $child then.
supervise() {
    local ranks=$1
    shift
    port=$(free_port)
    # shellcheck disable=SC2086
    "$program" supervise config.yaml --run run/it --ranks "$ranks" \
        --token token --listen 127.0.0.1:$port \
        --set checkpoint.local=shards --set train.threads=1 \
        --set comm.limit=60 "$@" >log 2>&1 &
    child=$!
    children="$children $child"
    await log 'listens'
}

must train config.yaml --run whole --set train.threads=1

layout="--set mesh.data=2 --set mesh.tensor=2 --set zero=zero1"

# until DISK FILE PATTERN: waits for a line in a file of RUN on that disk.
until_disk() { await "disks/$1/run/it/$2" "$3"; }

stop() { # NAME: asks the supervisor to save and end
    kill -TERM "$child"
    ended "$child"
    check_said "$1" 75 "stopped" $? log
}

# --- saved on two machines, ended, and gathered ---
# shellcheck disable=SC2086
supervise 4 $layout
export LOCKSTEP_FAULT=train.step@0:13:stop
agent_on a 2
agent_on b 2
unset LOCKSTEP_FAULT
await run/it/control/journal.jsonl '"event": "start"'
zero=$(grep '"event": "start"' run/it/control/journal.jsonl |
    grep -o '"process": [0-9]*' | sed -n 's/.* //; 1p')
stopped "${zero:-0}" || bad "rank 0 stops" "it did not" log.a
(told "$zero" && kill -CONT "$zero") &
stop "two machines without a common file system: stopped"
if [ -e disks/a/shards/a/ckpt/latest ] && [ ! -e disks/a/shards/b ] &&
    [ -e disks/b/shards/b/ckpt/latest ] && [ ! -e run/it/ckpt ]; then
    ok "each has its own shards"
else bad "each has its own shards" "$(find disks -maxdepth 4)" log; fi

# --- the same two, and the ranks change places ---
# shellcheck disable=SC2086
supervise 4 $layout
agent_on b 2
agent_on a 2
ended "$child"
code=$?
[ $code -eq 0 ] && ok "the ranks change places: it ends" ||
    bad "the ranks change places: it ends" "exit $code" log
if gather a b && same_run whole got; then ok "gathered: the same bytes"
else bad "gathered: the same bytes" "${why:-not gathered}" out; fi

# The same through agents: each reads its own disk only.
port=$(free_port)
rm -rf run/got
"$program" gather run/got --local shards --listen 127.0.0.1:$port \
    --token token --nodes 2 >log 2>&1 &
child=$!
children="$children $child"
await log 'listens'
agent_on a 2 -
# It is asked before it knows where its shards are.
LOCKSTEP_FAULT=agent.stores:1:slow agent_on b 2 -
ended "$child"
code=$?
rm -rf got
[ ! -d run/got ] || mv run/got got
if [ $code -eq 0 ] && same_run whole got; then ok "gathered by agents"
else bad "gathered by agents" "exit $code, $why" log; fi

# Nothing is left of the last run.
fresh() {
    local disk
    rm -rf run/it
    for disk in "$@"; do rm -rf "disks/$disk"; done
}

# finished NAME DISK...: the run ends well, and equals the one on one machine.
finished() {
    local name=$1
    shift
    ended "$child"
    code=$?
    if [ $code -ne 0 ]; then bad "$name" "exit $code" log
    elif ! gather "$@"; then bad "$name" "not gathered" out
    elif same_run "$like" got; then ok "$name"
    else bad "$name" "$why" out
    fi
}

says() { # NAME FILE PATTERN
    if grep -q "$3" "$2"; then ok "$1"; else bad "$1" "not said" "$2"; fi
}

like=long
length="--set train.steps=300 --set checkpoint.every=50"
# shellcheck disable=SC2086
must train config.yaml --run long --set train.threads=1 $length

# --- other ranks: two on a, then four on a and b, then two on b ---
fresh a b
# shellcheck disable=SC2086
supervise 2 --set mesh.data=2 --set zero=zero1 --set checkpoint.keep_last=20 \
    $length
agent_on a 2
until_disk a metrics.jsonl '"step": 20,'
stop "two ranks on one machine: stopped"
# shellcheck disable=SC2086
supervise 4 $layout
agent_on b 2
agent_on a 2
reached=$(grep -o '"step": [0-9]*' disks/a/run/it/metrics.jsonl | tail -n 1)
until_disk b metrics.jsonl "\"step\": $((${reached##* } + 20)),"
stop "four on two machines: stopped"
cp -a disks/a disks/kept_a
cp -a disks/b disks/kept_b
cp -a run/it kept_it
supervise 2 --set mesh.data=2
agent_on b 2
agent_on a 2
says "it waits for the machine with the rest" log 'node *a joined'
finished "two on the other one, which fetches the rest" a b

# --- a machine is gone with its disk: the newest step that is whole ---
again() { # NAME...: the disks as they were before the last one
    local disk
    fresh a b
    cp -a kept_it run/it
    for disk in "$@"; do cp -a "disks/kept_$disk" "disks/$disk"; done
}
again a
supervise 2 --set mesh.data=2
agent_on a 2
finished "a disk is lost: an older step that is whole" a
says "and who has the others" log.a 'the shards of b are not here'
again b
supervise 2 --set mesh.data=2
agent_on b 2
ended "$child"
check_said "no step is whole" 66 "the shards of a are not here" $? log
[ -e "disks/b/shards/b/ckpt/$(cat disks/b/shards/b/ckpt/latest)" ] &&
    ok "and nothing was changed" || bad "and nothing was changed" "gone"

# --- a damaged shard ---
again a b
step=disks/b/shards/b/ckpt/$(cat disks/b/shards/b/ckpt/latest)
for file in "$step"/*.safetensors; do
    head -c 2000 /dev/zero | tr '\0' '\377' | dd of="$file" bs=1 conv=notrunc \
        seek=$(($(stat -c %s "$file") / 2)) 2>/dev/null
done
supervise 2 --set mesh.data=2
agent_on a 2
agent_on b 2
finished "a damaged shard: an older step" a b
says "and which one it was" log.a 'on b: is damaged: block'

# --- one disk is full: saves fail, the run goes on ---
fresh a b
# shellcheck disable=SC2086
supervise 4 $layout $length
agent_on a 2
full=4m
agent_on b 2
full=
filler=/proc/$agent/root$room/shards/filler
head -c 8m /dev/zero >"$filler" 2>/dev/null
await log.a 'disk full' 900
says "a full disk: the run goes on" log.a 'could not be saved, training goes on'
rm -f "$filler"
ended "$child"
code=$?
[ $code -eq 0 ] && ok "and ends when there is room" ||
    bad "and ends when there is room" "exit $code" log

# --- a machine dies: from memory, and its successor keeps the shards ---
lose_one() { # NAME ARGUMENT...: of the machine, while a spare waits
    local lost=$1
    shift
    fresh a b c
    # shellcheck disable=SC2086
    supervise 4 $layout $length "$@"
    agent_on a 2
    first=$agent
    agent_on b 2
    second=$agent
    agent_on c 2
    until_disk a metrics.jsonl '"step": 120,'
    [ "$lost" = a ] && kill -9 "$first" || kill -9 "$second"
}
lose_one b
finished "another machine dies: from memory" a c
says "from the partner" run/it/control/journal.jsonl '"from": "peer memory"'
# The newest copy, of step 70, is older than step 100, whose shards are lost with
# the machine.
LOCKSTEP_FAULT=train.step:1:slow,train.step:122:slow,train.step:123:slow \
    lose_one b --copies 70
finished "another machine dies: a copy older than what is lost" a c
says "from the partner, though" run/it/control/journal.jsonl \
    '"from": "peer memory", "step": 70,'
# With a step that is skipped between the newest checkpoint and its death.
# shellcheck disable=SC2086
told="--set train.on_nan=skip --set observe.layers=6 --set validate.prompts=[ba]"
LOCKSTEP_FAULT=train.nan:110 must train config.yaml --run left $length \
    --set train.threads=1 $told
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.nan@0:110 lose_one a $told
ended "$child"
code=$?
if [ $code -ne 0 ]; then bad "rank 0's machine dies" "exit $code" log
elif gather b c && lockstep compare left/ckpt/step-00000300 \
    got/ckpt/step-00000300 >out 2>&1; then
    ok "rank 0's machine dies: the same weights and states"
    if same_run left got; then ok "no line of metrics.jsonl is lost"
    else bad "no line of metrics.jsonl is lost" "$why" log.c; fi
else bad "rank 0's machine dies" "$(cat out)" log.c; fi
for file in consumed ledger layers samples; do
    if cmp -s "left/$file.jsonl" "got/$file.jsonl" && [ -s "left/$file.jsonl" ]
    then ok "no line of $file.jsonl is lost"
    else bad "no line of $file.jsonl is lost" "another file" log.c; fi
done
expect "no sample is lost" 0 " 8 left out on purpose, 0 lost, 0 repeated" \
    data audit got
says "from the partner, too" run/it/control/journal.jsonl \
    '"from": "peer memory"'
if grep -q 'were lost' log.c; then bad "nothing is said to be lost" "it is" log.c
else ok "nothing is said to be lost"; fi
report
