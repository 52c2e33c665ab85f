#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# replicas.sh - wrong numbers that no loss shows: a bit of the weights of one
# rank, or of a gradient, is flipped. The run finds it, names rank and tensor,
# makes the steps again and ends in the bytes of a run without it; a fault that
# stays ends the run, or its node, and the checkpoints are right.
. "${0%/*}/common.sh"
LIMIT=120
prepare
sed -i 's/steps: 30/steps: 16/; s/batch: 8, micro_batch: 4/batch: 8, micro_batch: 1/
        s/sequence: 48/sequence: 32/; s/layers: 2/layers: 4/' config.yaml
echo 'numerics: {grid_data: 4, grid_tensor: 4, grid_context: 2}' >>config.yaml
must train config.yaml --run whole --set train.check_every=0
must train config.yaml --run narrow --set train.check_every=0 \
    --set train.dtype=bfloat16

# events RUN: the ledger's lines, in short
events() {
    sed 's/.*"step": \([0-9]*\), "cause": "\([a-z]*\)", "what": "\([a-z ]*\)".*"action": "\([a-z]*\)", "back_to": \([0-9]*\),.*/\1 \2 \3 \4 \5/' \
        "$1/ledger.jsonl" 2>/dev/null | paste -sd ,
}

# heals NAME FAULTS EVENTS WORDS RANKS ARGUMENT...: ends in the bytes of $like,
# with these events and these words on the terminal
like=whole
heals() {
    local name=$1 faults=$2 events=$3 words=$4 ranks=$5 code
    shift 5
    rm -rf found
    LOCKSTEP_FAULT=$faults lockstep train config.yaml --run found \
        --ranks "$ranks" --threads 1 "$@" >log 2>&1
    code=$?
    if [ $code -ne 0 ]; then bad "$name" "exit $code" log
    elif ! same_run $like found; then bad "$name" "$why" log
    elif [ "$(events found)" != "$events" ]; then
        bad "$name" "events: $(events found)" log
    elif ! grep -qF -- "$words" log; then bad "$name" "not said: $words" log
    elif ! lockstep data audit found >out 2>&1; then
        bad "$name" "data audit" out
    else ok "$name"
    fi
}

# --- nothing is wrong: nothing is found, under any layout ---
while read -r ranks line; do
    set -f
    # shellcheck disable=SC2086
    set -- ${line//mesh./--set mesh.}
    set +f
    heals "right numbers: $ranks ranks, $line" none.such:1 "" finished \
        "$ranks" "$@" --set train.check_every=1 --set train.repeat_every=3
done <<'ROWS'
1
4 mesh.data=2 mesh.tensor=2 --set zero=zero2
4 mesh.context=2 mesh.shard=2 --set zero=fsdp
4 mesh.data=2 mesh.pipe=2 --set zero=zero1 --set checkpoint.async=true
2 mesh.pipe=2 --set schedule.name=dualpipev
8 mesh.data=2 mesh.shard=2 mesh.tensor=2 --set zero={states:[data,shard],gradients:[shard]}
ROWS
like=narrow
heals "right numbers: bfloat16" none.such:1 "" finished 4 \
    --set train.dtype=bfloat16 --set mesh.data=4 --set zero=zero1 \
    --set train.check_every=1 --set train.repeat_every=2

# --- a bit of one rank's weights: a checkpoint is gone back to ---
heals "narrow weights of a shard" state.flip-2:8 "8 replica weights replay 5" \
    "rank 2 was wrong in the narrow weight of embed" 4 --set train.dtype=bfloat16 \
    --set mesh.data=4 --set zero=zero1 --set train.check_every=1
like=whole
heals "four replicas" state.flip-3:12 "12 replica weights replay 10" \
    "rank 3 of 4 holds another weight of" 4 --set mesh.data=4 \
    --set train.check_every=1
heals "two replicas: the steps made again tell" state.flip-1:7 \
    "8 replica weights replay 5" "rank 1 was wrong in the weight of" 4 \
    --set mesh.data=2 --set mesh.tensor=2 --set train.check_every=4
heals "found before a save" state.flip-0:13 "15 replica weights replay 10" \
    "all replicas are equal; rank 0 was wrong" 4 --set mesh.data=4
heals "found before a save in the background" state.flip-2:9 \
    "10 replica weights replay 5" "rank 2 was wrong" 4 --set mesh.data=4 \
    --set checkpoint.async=true
heals "twice" state.flip-1:7,state.flip-2:16 \
    "10 replica weights replay 5,15 replica weights replay 10" "rank 2 was" 4 \
    --set mesh.data=4

# --- gradients: no rank has a copy of them ---
heals "a gradient" gradient.flip-1:2 "4 repeat gradients replay 3" \
    "pass 2 was wrong by rank 1:" 4 --set mesh.shard=4 --set zero=fsdp \
    --set train.repeat_every=4
heals "a gradient of one rank" gradient.flip-0:1 "4 repeat gradients replay 3" \
    "made twice, it has two gradients of" 1 --set train.repeat_every=4
LOCKSTEP_FAULT=gradient.flip-0:1,gradient.flip-0:2 lockstep train config.yaml \
    --run thrice --set train.repeat_every=4 >log 2>&1
check_said "another gradient in each pass" 69 "another one in each of 3" $? log
# A wrong number goes to all ranks with its sum, or on with what is made of it:
# the one that was wrong is named.
while read -r ranks wrong line; do
    set -f
    # shellcheck disable=SC2086
    set -- ${line//mesh./--set mesh.}
    set +f
    heals "a number of a sum: rank $wrong, $line" "sum.flip-$wrong:2" \
        "4 repeat gradients replay 3" "pass 2 was wrong by rank $wrong:" \
        "$ranks" "$@" --set train.repeat_every=4
done <<'ROWS'
4 2 mesh.data=4 --supervised
4 1 mesh.data=2 mesh.tensor=2 --set zero=zero2
4 3 mesh.pipe=2 mesh.shard=2 --set zero=fsdp --set device=far
4 0 mesh.context=2 mesh.shard=2 --set zero=zero1
ROWS
LOCKSTEP_FAULT=sum.flip-1:1,sum.flip-1:2,sum.flip-1:3 lockstep train \
    config.yaml --run wrong --ranks 2 --threads 1 --set mesh.data=2 \
    --set train.repeat_every=4 >log 2>&1
check_said "a rank that is wrong each time" 69 "rank 1 computes wrong" $? log

# --- faults that stay ---
LOCKSTEP_FAULT=state.wrong-1:7 lockstep train config.yaml --run stays --ranks 4 \
    --threads 1 --set mesh.data=4 --set train.check_every=1 >log 2>&1
check_said "it stays" 69 "rank 1 differs in the weight of" $? log
must resume stays --ranks 4 --threads 1
if same_run whole stays; then ok "what was saved is right"
else bad "what was saved is right" "$why"; fi
LOCKSTEP_FAULT=state.flip-1:3 lockstep train config.yaml --run first --ranks 2 \
    --threads 1 --set mesh.data=2 --set train.check_every=1 >log 2>&1
check_said "nothing to go back to" 69 "there is no checkpoint yet" $? log
must resume first --ranks 2 --threads 1
if same_run whole first; then ok "it begins again"
else bad "it begins again" "$why"; fi

# --- supervised: from memory ---
heals "one step from memory" state.flip-1:7 "7 replica weights replay 6" \
    "back to step 6 (memory)" 2 --set mesh.data=2 --set zero=zero1 \
    --set train.check_every=1 --supervised --copies 1
heals "copies that were not compared" state.flip-1:7 \
    "8 replica weights replay 5" "back to step 5 (checkpoint)" 2 \
    --set mesh.data=2 --set train.check_every=4 --supervised --copies 1
rm -rf both
LOCKSTEP_FAULT=state.flip-1:7,train.step:8:kill lockstep train config.yaml \
    --run both --ranks 2 --threads 1 --set mesh.data=2 --set zero=zero1 \
    --set train.check_every=1 --supervised --copies 1 >log 2>&1
if same_run whole both; then ok "killed right after it went back"
else bad "killed right after it went back" "$why" log; fi

# The only machine is wrong: the run waited for others that never come. Before
# there is a verdict another rank is killed: it stays wrong.
LOCKSTEP_FAULT=state.wrong-1:7,train.step@2:8:kill lockstep train config.yaml --run alone --ranks 4 \
    --threads 1 --supervised --spares 1 --set mesh.data=4 \
    --set train.check_every=1 >log 2>&1
check_said "spares: the only machine is wrong" 69 \
    "also after the steps were made again; there is no other machine" $? log

# --- MPI ---
find_mpi
for mpi in $mpis; do
    rm -rf found
    LIMIT=400 LOCKSTEP_FAULT=state.flip-1:7 with_mpi $mpi 2 \
        "$program" train config.yaml --run found --threads 1 \
        --set mesh.data=2 --set train.check_every=1 >log 2>&1
    if [ "$(events found)" != "7 replica weights replay 5" ]; then
        bad "$mpi" "events: $(events found)" log
    elif same_run whole found; then ok "$mpi"
    else bad "$mpi" "$why" log
    fi
done

# --- a node that computes wrong numbers again and again is left out ---
port=$(free_port)
join() { # NAME SLOTS [FAULTS]
    LOCKSTEP_FAULT=${3:-} "$program" agent --join 127.0.0.1:$port \
        --token token --name "$1" --slots "$2" >"log.$1" 2>&1 &
    children="$children $!"
}
"$program" supervise config.yaml --run node --ranks 4 --threads 1 \
    --listen 127.0.0.1:$port --token token --set mesh.data=4 \
    --set train.check_every=1 >log 2>&1 &
child=$!
children="$children $child"
await log "listens"
wrong=
for rank in 0 1 2 3; do wrong=$wrong,state.wrong-$rank:7; done
join good 3
join bad 1 "${wrong#,}"
await log "node *bad joined"
await log "recovered" 1200
join spare 1
ends "a node that is wrong is left out" node "$child"
if grep -q "node      bad computes wrong numbers" log; then
    ok "its name is said"
else bad "its name is said" "not said" log; fi
# Step 7 from a copy of step 6 in memory, step 6 from the checkpoint of step 5:
# how often copies are made depends on their cost.
if lockstep incidents node >out 2>&1 &&
    grep -q "gave up: step [67]: rank [0-3] has another weight of" out; then
    ok "the incident names rank, tensor and step"
else bad "the incident names rank, tensor and step" "not said" out; fi

# --- and one whose sums are others in each pass over a step ---
port=$(free_port)
"$program" supervise config.yaml --run sums --ranks 2 --threads 1 \
    --listen 127.0.0.1:$port --token token --set mesh.data=2 \
    --set train.repeat_every=4 >log 2>&1 &
child=$!
children="$children $child"
await log "listens"
wrong=
for pass in 1 2 3; do wrong=$wrong,sum.flip-0:$pass,sum.flip-1:$pass; done
join good 1
join bad 1 "${wrong#,}"
await log "node *bad joined"
join spare 1
ends "a node with other sums is left out" sums "$child"
if grep -q "gave up: step 4: rank [01] sends other numbers" log &&
    grep -q "node      bad computes wrong numbers" log; then
    ok "rank, step and node are said"
else bad "rank, step and node are said" "not said" log; fi
report
