#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# elastic.sh - a run skips or rewinds, loses a machine and goes on with fewer
# ranks, grows when another one joins, and loses the machine of rank 0; with one
# file system for all machines, and with none (checkpoint.local). `data audit`
# finds nothing lost or repeated, and the run equals one whose data never had
# the samples. Guards issue 22, points 4 and 6.
#
#     BUILD=build tests/drills/elastic.sh
. "${0%/*}/common.sh"
prepare
# shellcheck source=tests/drills/machines.sh
. "$tree/tests/drills/machines.sh"
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
lockstep data prepare config.yaml >log 2>&1 ||
    must train config.yaml --run first --set train.steps=1

# here NAME: the run as that machine sees it.
here() { [ -n "$local" ] && echo "disks/$1/run/it" || echo run/it; }

machine() { # NAME
    if [ -n "$local" ]; then agent_on "$1" 2; return; fi
    "$program" agent --join "127.0.0.1:$port" --token token --slots 2 \
        --name "$1" >"log.$1" 2>&1 &
    agent=$!
    children="$children $agent"
    await log "node *$1 joined"
}

# layouts RANKS COUNT: waits for the layout of that many ranks to come so often.
layouts() {
    local tries=0
    until [ "$(grep -c "\"event\": \"layout\".*\"ranks\": $1" \
        run/it/control/journal.jsonl)" -ge "$2" ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 1800 ] && continue
        bad "$name: $1 ranks" "they did not come" log
        last_words
        report
    done
}

# further NAME STEPS: waits until the run on that machine has made as many more.
further() {
    local file from
    file=$(here "$1")/metrics.jsonl
    await "$file" '"step": [0-9]*,'
    from=$(grep -o '"step": [0-9]*' "$file" | tail -n 1)
    await "$file" "\"step\": $((${from##* } + $2)),"
}

# lose PROCESS: of an agent; all of its machine ends with it.
lose() {
    kill -9 "$1"
    wait "$1" 2>/dev/null
}

# left_out RUN: what its ledger leaves out, as rows of data.skip
left_out() {
    sed -n '/"action": "\(warn\|replay\)"/d; s/.*"first": \([0-9]*\), "samples": \([0-9]*\).*/\1 \2/p' \
        "$1/ledger.jsonl" | paste -sd ,
}

supervise() { # SETTING...
    # shellcheck disable=SC2086
    "$program" supervise config.yaml --run run/it --ranks 4 --token token \
        --listen "127.0.0.1:$port" --copies 1 --set train.threads=1 \
        --set comm.limit=60 --set mesh.data=4 --set zero=zero1 \
        --set validate.every=0 ${local:+--set checkpoint.local=shards} "$@" \
        >log 2>&1 &
    child=$!
    children="$children $child"
    await log 'listens'
}

# changes NAME FAULTS SETTING...: of one run. Each process of machine a has the
# faults once.
changes() {
    local name=$1 faults=$2 first gone steps
    shift 2
    rm -rf run/it disks all got without log.?
    port=$(free_port)
    supervise --set train.steps=1000000 --set checkpoint.every=20 \
        --set checkpoint.keep_last=3 "$@"
    LOCKSTEP_FAULT=$faults machine a
    first=$agent
    machine b
    await "$(here a)/ledger.jsonl" '"event": 2,'
    further a 25
    lose "$agent"
    layouts 2 1
    further a 5
    machine c
    layouts 4 1
    further a 5
    lose "$first"
    layouts 2 2
    further c 5
    kill -TERM "$child"
    ended "$child"
    check_said "$name: stopped" 75 "stopped" $? log
    if [ -z "$local" ]; then mv run/it got
    elif ! gather c; then
        bad "$name: gathered" "not" out
        return
    fi
    if lockstep data audit got >said 2>&1 &&
        grep -q " 0 lost, 0 repeated" said
    then ok "$name: nothing is lost or repeated"
    else bad "$name: nothing is lost or repeated" "$(cat said)" log; fi
    gone=$(left_out got)
    steps=$(step_now got)
    if [[ $* = *keep_best* ]]; then # the last step is validated: not by SIGTERM
        steps=$((steps + 5))
        must resume got --ranks 4 --set mesh.data=4 --set train.steps=$steps
    fi
    must train config.yaml --run without --set train.steps="$steps" \
        --set checkpoint.every=20 --set validate.every=0 \
        --set "data.skip=[$gone]" "$@"
    [[ $* = *keep_best* ]] ||
        sed -i '${/"kind": "validation"/d}' without/metrics.jsonl
    if [ -n "$gone" ] && same_run without got &&
        lockstep compare "$(newest without)" "$(newest got)" >out 2>&1
    then ok "$name: as if the samples were not there"
    else bad "$name: as if the samples were not there" "${why:-other weights}" out
    fi
    cmp -s without/consumed.jsonl got/consumed.jsonl &&
        ok "$name: the same record" ||
        bad "$name: the same record" "another one" log
}

for local in "" yes; do
    with=${local:+, no common file system}
    changes "a skip and a rewind$with" train.nan:20,train.spike:35 \
        --set train.on_nan=skip --set train.on_spike=rewind \
        --set train.spike_window=8
done

# The best checkpoint stays, and stays the same, whoever measured and saved it.
local=
changes "the best is kept" train.nan:20,train.spike:35 \
    --set train.on_nan=skip --set train.on_spike=rewind \
    --set train.spike_window=8 --set validate.every=10 \
    --set checkpoint.keep_best=true
if lockstep compare without/best got/best >out 2>&1
then ok "the best is kept: it is the same"
else bad "the best is kept: it is the same" "$(ls without/ckpt got/ckpt)" out; fi

# A machine is lost with shards of all checkpoints, a spare takes its ranks, and
# the run rewinds before it would have saved again.
rm -rf run/it disks all got without log.?
local=yes
port=$(free_port)
supervise --set train.steps=160 --set checkpoint.every=100 \
    --set train.on_nan=rewind
LOCKSTEP_FAULT=train.nan:125 machine a
machine b
b=$agent
machine c
await disks/a/run/it/metrics.jsonl '"step": 103,'
lose "$b"
ended "$child"
code=$?
if [ $code -eq 0 ] && gather a c &&
    grep -q '"rewind", "back_to": 1[0-9][0-9],' got/ledger.jsonl &&
    lockstep data audit got >said 2>&1
then ok "a rewind right after a machine is lost"
else bad "a rewind right after a machine is lost" "exit $code" log.a; fi
report
