#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# agents_lost.sh - all ranks are lost at once with their agent: the local one of
# --spares, and one of two right after a rewind.
#
#     BUILD=build tests/drills/agents_lost.sh
. "${0%/*}/common.sh"
prepare
four="--ranks 4 --set mesh.data=4 --set zero=zero1 --set train.threads=1
    --set comm.limit=60"

await_step() { await "$1/metrics.jsonl" "\"step\": $2,"; }

says() { # NAME FILE PATTERN
    if grep -q "$3" "$2"; then ok "$1"; else bad "$1" "not said" "$2"; fi
}

# --- the local agent is killed, and all ranks with it: another one is started,
# and the run goes on from the newest checkpoint ---
some="--set train.steps=300 --set checkpoint.every=50"
# shellcheck disable=SC2086
must train config.yaml --run short $some --set train.threads=1
# shellcheck disable=SC2086
"$program" train config.yaml --run killed $four $some --supervised --spares 1 \
    >log 2>&1 &
child=$!
children="$children $child"
await_step killed 60
kill -9 "$(cat /proc/[0-9]*/stat 2>/dev/null |
    sed -n "s/^\([0-9]*\) .*) [A-Z] $child .*/\1/p")"
ended "$child"
code=$?
says "the local agent is killed: another one" log 'of this machine is gone'
if [ $code -eq 0 ] && same_run short killed; then ok "the local agent is killed"
else bad "the local agent is killed" "exit $code, $why" log; fi

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >token
chmod 600 token

# --- a rewind undoes steps whose copies another node has: they are not gone back
# to when all ranks are lost before there are newer ones ---
rewinds="--ranks 2 --set mesh.data=2 --set train.threads=1 --set comm.limit=60
    --set train.steps=500 --set checkpoint.every=300 --set train.on_nan=rewind"
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.nan:430 must train config.yaml --run undone \
    --set train.threads=1 --set train.steps=500 --set checkpoint.every=300 \
    --set train.on_nan=rewind
port=$((20000 + RANDOM % 12000))
# shellcheck disable=SC2086
"$program" supervise config.yaml --run rewound $rewinds --copies 400 \
    --token token --listen 127.0.0.1:$port >log 2>&1 &
child=$!
children="$children $child"
await log 'listens'
for name in a b; do
    LOCKSTEP_FAULT=$([ $name = b ] || echo train.nan:430) "$program" agent \
        --join 127.0.0.1:$port --token token --slots 2 --name $name \
        >log.$name 2>&1 &
    [ $name = b ] || agent=$!
    children="$children $!"
    await log "node *$name joined"
done
for ((tries = 0; tries < 12000; tries++)); do
    [ ! -s rewound/ledger.jsonl ] && kill -0 "$child" 2>/dev/null || break
    sleep 0.02
done
[ -s rewound/ledger.jsonl ] || bad "a rewind" "none came" log
kill -9 "$agent"
wait "$agent" 2>/dev/null
ended "$child"
code=$?
if [ $code -eq 0 ] && same_run undone rewound; then
    ok "undone steps are not gone back to"
else
    bad "undone steps are not gone back to" "exit $code, $why" log
fi
report
