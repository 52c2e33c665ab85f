#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# policies.sh - steps that go wrong: a run that skips or rewinds ends in the
# bytes of one whose data never had the samples, on any ranks, killed or not.
. "${0%/*}/common.sh"
prepare

# left_out RUN: what its ledger leaves out, as rows of data.skip
left_out() {
    sed -nE '/"action": "(warn|replay)"/d; s/.*"first": ([0-9]*), "samples": ([0-9]*).*/\1 \2/p' \
        "$1/ledger.jsonl" | paste -sd ,
}

# as_if_gone NAME RUN ARGUMENT...: equals a run without what it left out
as_if_gone() {
    local name=$1 run=$2 gone
    shift 2
    gone=$(left_out "$run")
    rm -rf without
    if [ -z "$gone" ]; then
        bad "$name" "nothing was left out" log
    elif ! lockstep train config.yaml --run without "$@" \
        --set "data.skip=[$gone]" >log 2>&1; then
        bad "$name" "without $gone: exit $?" log
    elif [ -e without/ledger.jsonl ]; then
        bad "$name" "the run without $gone has events of its own" log
    elif same_run without "$run"; then ok "$name"
    else bad "$name" "$why"
    fi
}

# events NAME RUN LINE...: the ledger's lines, in short
events() {
    local name=$1 run=$2 found
    shift 2
    found=$(sed 's/.*"step": \([0-9]*\), "cause": "\([a-z]*\)", "what": "\([a-z ]*\)".*"action": "\([a-z]*\)", "back_to": \([0-9]*\),.*/\1 \2 \3 \4 \5/' \
        "$run/ledger.jsonl" 2>&1)
    if [ "$found" = "$(printf '%s\n' "$@")" ]; then ok "$name"
    else bad "$name" "found: $found"
    fi
}

# wrong RUN FAULTS ARGUMENT...: a run in which steps go wrong
wrong() {
    local run=$1 faults=$2
    shift 2
    LOCKSTEP_FAULT=$faults lockstep train config.yaml --run "$run" "$@" \
        >log 2>&1 || bad "$run" "exit $?" log
}

# --- what is not finite ---
LOCKSTEP_FAULT=train.nan:13 lockstep train config.yaml --run stops >log 2>&1
check_said "stop is the default" 76 "step 13: a loss is not finite" $? log

wrong skips train.nan:13,train.nan:14,train.nan:22 --set train.on_nan=skip
events "skipped, two in a row" skips "13 nan loss skip 12" \
    "13 nan loss skip 12" "20 nan loss skip 19"
as_if_gone "skipped: as if the batches were not there" skips
grep -q "Steps that went wrong" skips/report.html &&
    ok "the report shows events" || bad "the report shows events" "none"

wrong rewinds train.nan:13,train.nan:25 --set train.on_nan=rewind
events "rewound to checkpoints" rewinds "13 nan loss rewind 10" \
    "22 nan loss rewind 20"
as_if_gone "rewound: as if the samples were not there" rewinds
wrong early train.nan:3 --set train.on_nan=rewind
events "rewound to the beginning" early "3 nan loss rewind 0"
as_if_gone "rewound to the beginning: as if they were not there" early

LOCKSTEP_FAULT=train.nan:5,train.nan:6 lockstep train config.yaml --run limit \
    --set train.on_nan=skip --set train.event_limit=1 >log 2>&1
check_said "once too often" 76 "1 steps were undone before" $? log
must resume limit --set train.event_limit=2
as_if_gone "a larger limit goes on" limit

# A batch whose tokens are all masked (a question without an answer) has no
# loss.
awk 'NR % 6 == 1 { gsub(/"text"/, "\"content\""); sub(/^{/, "")
        q = substr($0, 1, length($0) - 1)
        answer = NR % 12 == 1 ? "" : ", {\"role\": \"assistant\", " q "}"
        print "{\"messages\": [{\"role\": \"user\", " q "}" answer "]}" }' \
    text.jsonl >asked.jsonl
masked="--set data.chat=plain --set data.train=[asked.jsonl]
    --set data.valid_share=0 --set train.batch=2 --set train.micro_batch=1"
# shellcheck disable=SC2086
{
lockstep train config.yaml --run masked $masked >log 2>&1
check_said "no target stops by default" 76 "no token of the batch has a target" \
    $? log
must train config.yaml --run unmasked $masked --set train.on_nan=skip
grep -q '"what": "targets"' unmasked/ledger.jsonl &&
    ok "no target is in the ledger" || bad "no target is in the ledger" "none"
as_if_gone "no target: as if the batches were not there" unmasked $masked \
    --set train.on_nan=skip
}

# --- spikes ---
spikes="--set train.spike_window=8"
# shellcheck disable=SC2086
{
wrong high train.spike:13,train.norm:21 $spikes --set train.on_spike=skip
events "spikes of loss and of norm" high "13 spike loss skip 12" \
    "20 spike gradient norm skip 19"
as_if_gone "spikes: as if the batches were not there" high $spikes \
    --set train.on_spike=skip
wrong back train.spike:14,train.norm:24 $spikes --set train.on_spike=rewind
events "spikes rewound" back "14 spike loss rewind 10" \
    "20 spike gradient norm rewind 15"
as_if_gone "spikes rewound: as if they were not there" back $spikes \
    --set train.on_spike=rewind
wrong warned train.norm:13 $spikes --set train.on_spike=warn --set optimizer.clip=0
events "warned" warned "13 spike gradient norm warn 13"
must train config.yaml --run calm $spikes --set train.on_spike=warn
[ ! -e calm/ledger.jsonl ] && ok "nothing is wrong with a calm run" ||
    bad "nothing is wrong with a calm run" "$(cat calm/ledger.jsonl)"
wrong soon train.spike:8 $spikes --set train.on_spike=skip
[ ! -e soon/ledger.jsonl ] && ok "no spike before the window is full" ||
    bad "no spike before the window is full" "$(cat soon/ledger.jsonl)"
}

# --- killed ---
# The event comes in step 14, the kill some steps later: the checkpoint that is
# resumed from does not know of it, the ledger does.
killed() { # NAME RUN FAULTS ARGUMENT...
    local name=$1 like=$2 faults=$3
    shift 3
    rm -rf killed
    LOCKSTEP_FAULT=$faults lockstep train config.yaml --run killed "$@" \
        >log 2>&1
    if [ $? -ne 137 ]; then bad "$name" "it was not killed" log; return; fi
    printf '{"event": 9, "st' >>killed/ledger.jsonl
    if ! lockstep resume killed >log 2>&1; then bad "$name" "resume" log
    elif ! cmp -s killed/ledger.jsonl "$like/ledger.jsonl"; then
        bad "$name" "another ledger: $(cat killed/ledger.jsonl)"
    elif same_run "$like" killed; then ok "$name"
    else bad "$name" "$why"
    fi
}
wrong one train.nan:13 --set train.on_nan=skip
killed "skipped, then killed" one train.nan:13,train.step:16:kill \
    --set train.on_nan=skip
killed "skipped, then killed after a checkpoint" one \
    train.nan:13,train.step:19:kill --set train.on_nan=skip
wrong two train.nan:13 --set train.on_nan=rewind
killed "rewound, then killed" two train.nan:13,train.step:16:kill \
    --set train.on_nan=rewind
# shellcheck disable=SC2086
{
wrong three train.spike:13 $spikes --set train.on_spike=skip
killed "a spike, then killed" three train.spike:13,train.step:20:kill $spikes \
    --set train.on_spike=skip
}
# A warning comes again after a resume and is written once.
LOCKSTEP_FAULT=train.norm:13,train.step:15:kill lockstep train config.yaml \
    --run twice $spikes --set train.on_spike=warn --set optimizer.clip=0 \
    >log 2>&1
LOCKSTEP_FAULT=train.norm:3 lockstep resume twice >log 2>&1
if cmp -s twice/ledger.jsonl warned/ledger.jsonl && same_run warned twice; then
    ok "a warning is written once"
else bad "a warning is written once" "$(cat twice/ledger.jsonl) $why"
fi
printf '{"event": 1, "step": "x"}\n' >>one/ledger.jsonl
expect "a damaged ledger" 65 "ledger.jsonl: line 2" resume one

# --- on several ranks ---
ranks() { # NAME LIKE FAULTS ARGUMENT...
    local name=$1 like=$2 faults=$3
    shift 3
    rm -rf ranks
    wrong ranks "$faults" "$@"
    if cmp -s "$like/ledger.jsonl" ranks/ledger.jsonl &&
        same_run "$like" ranks; then ok "$name"
    else bad "$name" "${why:-another ledger}" log
    fi
}
# shellcheck disable=SC2086
ranks "no target on ranks" unmasked "" --ranks 2 --set mesh.data=2 $masked \
    --set train.on_nan=skip
for mesh in mesh.data=2 mesh.tensor=2 mesh.pipe=2 mesh.shard=2,zero=fsdp; do
    # shellcheck disable=SC2086
    ranks "rewound on ranks: $mesh" rewinds train.nan:13,train.nan:25 \
        --ranks 2 ${mesh:+$(printf -- '--set %s ' ${mesh//,/ })} \
        --set train.on_nan=rewind
    # shellcheck disable=SC2086
    ranks "spikes skipped on ranks: $mesh" high train.spike:13,train.norm:21 \
        --ranks 2 $(printf -- '--set %s ' ${mesh//,/ }) $spikes \
        --set train.on_spike=skip
done

# The step that a pipeline draws goes wrong, and is drawn again.
wrong second train.nan:2 --set train.on_nan=skip
ranks "skipped in the step that is drawn" second train.nan:2 --ranks 2 \
    --set mesh.pipe=2 --set train.micro_batch=1 --set train.on_nan=skip

# --- beside other features ---
# beside NAME ARGUMENT...: rewound, as if the samples were not there
beside() {
    local name=$1
    shift
    rm -rf beside
    wrong beside train.nan:13,train.nan:18 "$@" --set train.on_nan=rewind
    as_if_gone "rewound: $name" beside "$@"
}
beside "Muon, a moving average" --set optimizer.name=muon \
    --set optimizer.ema=0.9
beside "states of 8 bits, dropout" --set optimizer.state_dtype=int8 \
    --set model.dropout=0.1
beside "float16" --set train.dtype=float16
beside "a mixture with phases" --set data.train=[] \
    --set "data.mixture=[a 3 text.jsonl,b 1 text.jsonl]" \
    --set "data.phases=[12 a=1]"

# --- what cannot be ---
expect "no such action" 78 "the nearest is rewind" train config.yaml \
    --run none --set train.on_nan=rewinds
expect "nothing is a spike" 78 "so nothing is a spike" train config.yaml \
    --run none --set train.on_spike=skip --set train.spike_sigma=0 \
    --set train.spike_norm=0
expect "no range" 78 "is not FIRST COUNT" train config.yaml --run none \
    --set "data.skip=[12]"

# --- a bad step is made again, to tell the machine from the data ---
# shellcheck disable=SC2086
{
guarded="$spikes --set train.on_spike=rewind --set train.replay=true"
must train config.yaml --run unhurt $guarded
for ranks in 1 4; do
    wrong flipped$ranks train.spike:13,train.norm:20 $guarded --ranks $ranks \
        --set mesh.data=$ranks --set train.threads=1
    grep -q "a machine was wrong" log && ok "$ranks ranks: the machine is named" ||
        bad "$ranks ranks: the machine is named" "it is not" log
    events "$ranks ranks: wrong once" flipped$ranks "13 spike loss replay 12" \
        "19 spike gradient norm replay 18"
    if same_run unhurt flipped$ranks; then
        ok "$ranks ranks: wrong once: the bytes of a run that was not"
    else bad "$ranks ranks: wrong once: the bytes" "$why"; fi
done
# Batches that are really out of line are so again.
real="--set train.spike_window=8 --set train.spike_sigma=0
    --set train.spike_norm=1.05 --set train.on_spike=skip
    --set train.event_limit=100"
must train config.yaml --run real $real
must train config.yaml --run again $real --set train.replay=true
[ -s real/ledger.jsonl ] && cmp -s real/ledger.jsonl again/ledger.jsonl &&
    same_run real again && ok "the data were wrong: left out as without" ||
    bad "the data were wrong: left out as without" "${why:-other events}"
LOCKSTEP_FAULT=train.spike:13,train.spike:14,train.spike:15 lockstep train \
    config.yaml --run broken $guarded --set train.event_limit=2 >log 2>&1
check_said "a machine that is wrong again and again" 76 "were undone before" \
    $? log

# --- the rate after an event ---
slower="--set train.on_nan=skip --set train.event_lr=0.5
    --set optimizer.schedule=constant"
wrong slower train.nan:13,train.nan:20 $slower
rates=$(sed -n 's/.*"step": \(12\|13\|20\), .*"lr": \([^,]*\),.*/\2/p' \
    slower/metrics.jsonl | paste -sd ' ')
[ "$rates" = "0.003 0.0015 0.00075" ] && ok "each event halves the rate" ||
    bad "each event halves the rate" "$rates"
killed "each event halves the rate, killed" slower \
    train.nan:13,train.nan:20,train.step:24:kill $slower
}

# --- under a supervisor, an event and a kill in each generation: the state lies in
# its copies ---
# each NAME RUN CODE FAULTS ARGUMENT...: 30 steps of two ranks, so often killed
each() {
    local name=$1 run=$2 want=$3 faults=$4 code
    shift 4
    LOCKSTEP_FAULT=$faults lockstep train config.yaml --run "$run" \
        --supervised --ranks 2 --threads 1 --set mesh.data=2 \
        --set train.event_limit=100 "$@" >log 2>&1
    code=$?
    killed=$(grep -c '"event": "incident"' "$run/control/journal.jsonl")
    if [ $code -eq "$want" ] && [ "$killed" -ge 5 ]; then
        ok "$name: exit $want after $killed kills"
    else bad "$name" "exit $code, not $want, after $killed kills" log; fi
}
skips_on="--set train.on_nan=skip --set checkpoint.every=100"
# shellcheck disable=SC2086
{
each "skipped and killed, each time" each 0 train.nan:3,train.step:6:kill $skips_on
as_if_gone "skipped and killed, each time: as if they were not there" each \
    $skips_on
# Every second step is made twice, and one of them wrong.
each "wrong, skipped and killed, each time" made 0 \
    sum.flip-1:2,train.nan:5,train.step:8:kill $skips_on \
    --set train.repeat_every=2
grep -q '"what": "gradients"' made/ledger.jsonl &&
    ok "wrong passes are in the ledger" ||
    bad "wrong passes are in the ledger" "$(tail -n 3 made/ledger.jsonl)"
as_if_gone "wrong, skipped and killed: as if they were not there" made \
    $skips_on --set train.repeat_every=2
each "rewound to later checkpoints and killed, each time" later 0 \
    train.nan:3,train.step:5:kill --set train.on_nan=rewind \
    --set checkpoint.every=2
as_if_gone "rewound and killed, each time: as if they were not there" later \
    --set train.on_nan=rewind --set checkpoint.every=2
# Nothing is left of what a generation did: it goes nowhere.
each "rewound to the beginning and killed, each time" nowhere 68 \
    train.nan:3,train.step:5:kill --set train.on_nan=rewind \
    --set checkpoint.every=100
grep -q "13 times in a row without getting further; the checkpoints stand" log &&
    [ "$killed" -le 91 ] && ok "it says that nothing gets further" ||
    bad "it says that nothing gets further" "$killed kills" log
}

# --- options that change at a restart stand beside the curves ---
rm -rf changed
cp -r skips changed
back changed 25
must resume changed --set optimizer.lr=1e-3 --set checkpoint.every=2
lockstep note changed >log 2>&1
grep -q "resumed after step 25 with optimizer.lr: 0.001, was 0.003; checkpoint.every: 2, was 5" \
    log && grep -q "optimizer.lr: 0.001, was 0.003" changed/report.html &&
    ok "changed options are noted" ||
    bad "changed options are noted" "they are not" log
must resume changed
[ "$(lockstep note changed | grep -c resumed)" -eq 1 ] &&
    ok "unchanged options are not" || bad "unchanged options are not" "they are"
# A rewind that reads its checkpoint from a slow storage: five seconds, where a
# rank in its steps may be silent for little more than two.
LOCKSTEP_FAULT=train.nan:13,checkpoint.read@0:100:late lockstep train \
    config.yaml --run slow --ranks 2 --threads 1 --supervised \
    --set train.on_nan=rewind --set checkpoint.every=10 \
    --set validate.every=0 --set train.steps=20 >log 2>&1
check_said "a slow rewind" 0 finished $? log
gap=$(sed -n 's/.*"step": 1[01],.*"time_s": \([0-9.]*\).*/\1/p' \
    slow/metrics.jsonl | awk 'NR == 1 { a = $1 } END { print int($1 - a) }')
if ! grep -q '"event": "incident"' slow/control/journal.jsonl &&
    [ "${gap:-0}" -ge 5 ]
then ok "a slow rewind is no hang"
else bad "a slow rewind is no hang" "an incident, or it took $gap s" log; fi
report
