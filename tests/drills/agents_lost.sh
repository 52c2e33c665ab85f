#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# agents_lost.sh - all ranks are lost at once with their agent: the local one of
# --spares, and one of two right after a rewind; the supervisor of --spares is
# killed, and another takes its ranks over; one of three nodes is lost whose newest
# copies were kept from leaving; a copy is still arriving where its rank comes to be;
# a run that nobody supervised goes on with spares.
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
# A copy that an update writes saves nothing when it is made more rarely.
if grep -q 'copy in memory after [0-9]* steps' log; then
    bad "copies of --spares stay with each step" "they do not" log
else ok "copies of --spares stay with each step"; fi

# --- the supervisor of --spares is killed: the next one listens where the agent
# of its ranks knocks, and replaces ranks again ---
more="--set train.steps=1000 --set checkpoint.every=500"
# shellcheck disable=SC2086
must train config.yaml --run long $more --set train.threads=1
# shellcheck disable=SC2086
"$program" train config.yaml --run taken $four $more --supervised --spares 1 \
    --copies 1 >log.first 2>&1 &
child=$!
children="$children $child"
await_step taken 20
kill -9 "$child"
wait "$child" 2>/dev/null
# shellcheck disable=SC2086
"$program" resume taken --ranks 4 --supervised --spares 1 --copies 1 >log 2>&1 &
child=$!
children="$children $child"
await log 'took over 4 ranks'
ok "the next supervisor of --spares takes its ranks over"
victim=$(grep '"event": "start"' taken/control/journal.jsonl | tail -n 1 |
    grep -o '"process": [0-9]*' | sed -n 's/.* //; 2p')
if [ "${victim:-0}" -gt 1 ]; then kill -9 "$victim"
else bad "processes of ranks taken over" "not told" taken/control/journal.jsonl; fi
await taken/control/journal.jsonl '"event": "recovered"'
says "and replaces one that dies" taken/control/journal.jsonl '"from": "memory"'
ends "taken over: the same bytes" taken "$child" 0 long

# --- a run that nobody supervised goes on with spares ---
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run plain \
    $some --set train.threads=1 >log 2>&1
# shellcheck disable=SC2086
"$program" resume plain $four --supervised --spares 1 >log 2>&1 &
child=$!
children="$children $child"
ends "a run that nobody supervised goes on with spares" plain "$child" 0 short

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
port=$(free_port)
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
ends "undone steps are not gone back to" rewound "$child" 0 undone

# --- copies of a node do not leave it, as their sender is stopped. All ranks wait
# before anything overwrites the copy before, so that all go back to that when the
# node is lost ---
steps="--set train.steps=400 --set checkpoint.every=1000"
# shellcheck disable=SC2086
must train config.yaml --run stays $steps --set train.threads=1
port=$(free_port)
# shellcheck disable=SC2086
"$program" supervise config.yaml --run kept $four $steps --copies 1 \
    --token token --listen 127.0.0.1:$port >log 2>&1 &
child=$!
children="$children $child"
await log 'listens'
for name in a b c; do
    LOCKSTEP_FAULT=$([ $name != a ] || echo courier.carry:60:stop) "$program" \
        agent --join 127.0.0.1:$port --token token --slots 2 --name $name \
        >log.$name 2>&1 &
    [ $name != a ] || agent=$!
    children="$children $!"
    await log "node *$name joined"
done
is_stopped() {
    cat /proc/[0-9]*/stat 2>/dev/null | grep -q "(lockstep:sends) T $agent "
}
for ((tries = 0; tries < 3000; tries++)); do
    ! is_stopped || break
    sleep 0.02
done
is_stopped || bad "a sender that is stopped" "none is" log.a
# Others wait for a rank of it in a call; 2 s and five steps are a hang.
await log 'waits until node . has its copy; that is no hang'
sleep 2
if grep -q '"event": "incident"' kept/control/journal.jsonl; then
    bad "a rank that waits for a partner" "blamed" kept/control/journal.jsonl
else ok "a rank that waits for a partner is not blamed"; fi
kill -9 "$agent"
wait "$agent" 2>/dev/null
await kept/control/journal.jsonl '"event": "recovered"'
lockstep incidents kept >said
if grep -q '(peer memory), [01] redone' said; then ok "no copy was given up"
else bad "no copy was given up" "not from a peer's memory" said; fi
ends "a node is lost with copies under way" kept "$child" 0 stays

# --- the node of rank 0 is lost while its copy arrives at the other one, which has
# a place: it is seated there, and nothing of that copy may come into its state ---
port=$(free_port)
# shellcheck disable=SC2086
"$program" supervise config.yaml --run arrives --ranks 2 --set mesh.data=2 \
    --set zero=zero1 --set train.threads=1 --set comm.limit=60 $steps --copies 1 \
    --token token --listen 127.0.0.1:$port >log 2>&1 &
child=$!
children="$children $child"
await log 'listens'
for name in a b; do
    LOCKSTEP_FAULT=$([ $name = a ] || echo courier.keep:60:stop) "$program" \
        agent --join 127.0.0.1:$port --token token \
        --slots $([ $name = a ] && echo 1 || echo 2) --name $name >log.$name 2>&1 &
    [ $name != a ] || lost=$!
    agent=$!
    children="$children $!"
    await log "node *$name joined"
done
keeper() { # the process of agent b that receives, if it is stopped
    cat /proc/[0-9]*/stat 2>/dev/null |
        sed -n "s/^\([0-9]*\) (lockstep:keeps) T $agent .*/\1/p"
}
for ((tries = 0; tries < 3000; tries++)); do
    [ -z "$(keeper)" ] || break
    sleep 0.02
done
stopped=$(keeper)
[ -n "$stopped" ] || bad "a receiver that is stopped" "none is" log.b
kill -9 "$lost"
wait "$lost" 2>/dev/null
await arrives/control/journal.jsonl '"event": "recovered"'
if [ -z "$(keeper)" ]; then ok "a receiver ends before a rank is seated"
else
    bad "a receiver ends before a rank is seated" "it is there" log.b
    kill -CONT "$stopped"
fi
ends "a rank is seated where its copy arrives" arrives "$child" 0 stays
report
