#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stale.sh - two agents with all ranks are stopped; the run begins again on two
# others, as no memory is left; then the first ones are back, with newer copies of
# steps whose lines are gone, and the others die. Those copies do not count.
#
#     BUILD=build tests/drills/stale.sh
. "${0%/*}/common.sh"
prepare
base="--set checkpoint.every=100000 --set validate.every=0"
two="--ranks 2 --set mesh.data=2 --set zero=zero1 --set train.threads=1
    --set comm.limit=60 --copies 1"
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
port=$(free_port)
# shellcheck disable=SC2086
"$program" supervise config.yaml --run it $base $two --set train.steps=1000000 \
    --token token --listen 127.0.0.1:$port >log 2>&1 &
child=$!
children="$children $child"
await log listens

agent() { # NAME [FAULT]
    LOCKSTEP_FAULT=${2:-} "$program" agent --join 127.0.0.1:$port \
        --token token --slots 1 --name "$1" >"log.$1" 2>&1 &
    agent=$!
    children="$children $agent"
    await log "node *$1 joined"
}

# joined NAME TIMES
joined() {
    local tries=0
    until [ "$(grep -c "node *$1 joined" log)" -ge "$2" ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || { bad "$1 is back" "it did not come" log; report; }
    done
}

agent a
a=$agent
agent b
b=$agent
await it/metrics.jsonl '"step": 60,'
kill -STOP $a $b
await log 'node *a is gone'
await log 'node *b is gone'
newest=$(step_now it)
# Rank 0 and rank 1 have no batch for 15 s, and then for as long.
late=data.ahead:4:late,data.ahead:5:late,data.ahead:6:late
agent c "$late,data.ahead:7:late,data.ahead:8:late"
c=$agent
agent d
d=$agent
until_line it/control/journal.jsonl '"event": "start", .*"generation": 2' ||
    bad "begins again" "no second generation" log
tries=0
now=$newest
until [ "${now:-$newest}" -lt 20 ] || [ $tries -ge 1200 ]; do
    sleep 0.1
    tries=$((tries + 1))
    now=$(step_now it)
done
if [ "${now:-$newest}" -lt "$newest" ]; then ok "begins again without copies"
else bad "begins again without copies" "at step $now" log; fi
kill -CONT $a $b
joined a 2
joined b 2
disown $c $d # their end is not news
kill -9 $c $d
tries=0
now=0
until [ "${now:-0}" -gt $((newest + 20)) ] || [ $tries -ge 1800 ]; do
    sleep 0.1
    tries=$((tries + 1))
    now=$(step_now it)
done
# shellcheck disable=SC2086
stops "older copies do not count: the bytes of a run that was left alone" it \
    $child config.yaml $base
expect "no sample is lost" 0 " 0 lost, 0 repeated" data audit it
report
