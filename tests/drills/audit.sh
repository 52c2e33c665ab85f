#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# audit.sh - `lockstep data audit` after kills, restarts on other ranks,
# rewinds, skips and growing batches: nothing is lost or repeated, and the
# record has the same bytes as that of a run that was left alone. And it says
# so when something is. Guards issue 22, point 6.
. "${0%/*}/common.sh"
prepare
must train config.yaml --run whole

sound() { # NAME RUN [LIKE]
    local like=${3:-whole}
    if ! lockstep data audit "$2" >said 2>&1; then bad "$1" "exit $?" said
    elif ! grep -q " 0 lost, 0 repeated" said; then bad "$1" "says" said
    elif ! cmp -s "$like/consumed.jsonl" "$2/consumed.jsonl"; then
        bad "$1" "another record than $like's"
    else ok "$1"; fi
}
unsound() { # NAME WORDS: of the run `bad`
    lockstep data audit bad >out 2>&1
    check_said "$1" "${3:-77}" "$2" $? out
}

sound "one rank" whole
lockstep data audit whole --json >json 2>log
grep -q '"consumed": 240' json && grep -q '"sound": true' json &&
    ok "as JSON" || bad "as JSON" "other numbers" json
one="--set train.threads=1"
# shellcheck disable=SC2086
{
must train config.yaml --run data4 --ranks 4 --set mesh.data=4 $one
sound "4 data ranks" data4
must train config.yaml --run mixed --ranks 8 --set mesh.data=2 \
    --set mesh.tensor=2 --set mesh.context=2 --set numerics.grid_context=2 $one
sound "data 2 x tensor 2 x context 2" mixed
must train config.yaml --run pipe --ranks 4 --set mesh.pipe=2 \
    --set mesh.data=2 --set zero=fsdp --set train.micro_batch=1 $one
sound "pipe 2 x fsdp 2" pipe
must train config.yaml --run dual --ranks 2 --set mesh.pipe=2 \
    --set schedule.name=dualpipe --set train.micro_batch=1 $one
sound "DualPipe" dual

# Killed twice, and each time on other ranks.
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run moved \
    >log 2>&1
LOCKSTEP_FAULT=train.step:9:kill lockstep resume moved --ranks 4 \
    --set mesh.data=4 $one >log 2>&1
LOCKSTEP_FAULT=consumed.append:7:kill lockstep resume moved --ranks 2 \
    --set mesh.tensor=2 --set mesh.data=1 $one >log 2>&1
must resume moved --ranks 1 --set mesh.tensor=1
sound "kills, 1 to 4 to 2 to 1 ranks" moved
# Killed under a supervisor: goes on from memory.
LOCKSTEP_FAULT=train.step:13:kill lockstep train config.yaml --run watched \
    --ranks 2 --set mesh.data=2 $one --supervised >log 2>&1
sound "supervised, killed again and again" watched
}
LOCKSTEP_FAULT=consumed.append:5:full,consumed.append:6:fail lockstep train \
    config.yaml --run disk >log 2>&1
sound "a disk that fails for a while" disk

# Samples that are left out.
for action in skip rewind; do
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=train.nan:13,train.nan:22 lockstep train config.yaml \
        --run $action --set train.on_nan=$action >log 2>&1 ||
        bad "$action" "the run fails" log
    LOCKSTEP_FAULT=train.nan:13,train.nan:22 lockstep train config.yaml \
        --run $action-2 --ranks 2 --set train.on_nan=$action >log 2>&1
    sound "$action" $action $action
    left=$(sed 's/.*"samples": \([0-9]*\).*/\1/' $action/ledger.jsonl |
        awk '{ sum += $1 } END { print sum }')
    lockstep data audit $action >said
    grep -q " $left left out on purpose" said && [ "$left" -ge 16 ] &&
        ok "$action: counted" || bad "$action: counted" "other numbers" said
    sound "$action on 2 ranks" $action-2 $action
done
must train config.yaml --run without --set 'data.skip=[16 9,100 1]'
sound "data.skip" without without
grep -q " 10 left out on purpose" said && ok "data.skip: counted" ||
    bad "data.skip: counted" "other numbers" said
must train config.yaml --run ramp --set 'train.batch_ramp=[0=4,11=8]'
sound "a batch that grows" ramp ramp
# 512 samples an epoch: places go on counting.
must train config.yaml --run epochs --set train.steps=150
sound "two epochs" epochs epochs

# --- what is wrong is found ---
change() { # SED: of a copy's record
    rm -rf bad
    cp -r whole bad
    sed -i "$@" bad/consumed.jsonl
}
change 12d
unsound "a line is missing" "steps 12 to 12 have no line"
change 1,3d
unsound "the first lines are missing" "steps 1 to 3 have no line"
change '9s/"from": 64, "to": 72/"from": 66, "to": 74/'
unsound "a step elsewhere" "2 samples are lost"
change '9s/"from": 64, "to": 72/"from": 62, "to": 70/'
unsound "a step that repeats" "2 samples are repeated"
change '9s/"order": "./"order": "x/'
unsound "no sum" "line 9: order is no sum" 65
change '9s/"order": "\(.\)\(.\)/"order": "\2\1/'
unsound "another sum" "step 9 consumed 8 samples that are not the 8"
change '30d'
unsound "the checkpoint's step has no line" "of the newest checkpoint, has no"
change '30s/"to": 240/"to": 4611686018427387904/'
unsound "an absurd range" "cannot have consumed places" 65
rm bad/consumed.jsonl
unsound "no record" "there is no such file" 66

# --- an independent count: what each step must have read, token by token ---
# recount NAME RUN NAME=FILE...: count_samples.py and the audit agree
recount() {
    local name=$1 run=$2
    shift 2
    if ! python3 "$tree/tests/drills/count_samples.py" "$run" "$@" \
        >counted 2>&1; then bad "$name" "another count" counted
    elif ! lockstep data audit "$run" >said 2>&1; then bad "$name" "audit" said
    elif [ "$(tail -n 1 counted | sed 's/^.*steps, //; s/ samples,//')" != \
        "$(sed -n 's/^samples *\([0-9]*\) consumed, \([0-9]*\) left out .*/\1 \2 left out/p' said)" ]
    then bad "$name" "other numbers" counted
    else ok "$name"; fi
}
if ! python3 -c 'import sys; assert sys.version_info >= (3, 8)' 2>/dev/null
then echo "left out: no python3 counts samples here"; report; fi
tokens=$(ls cache/*.tokens)
recount "recounted: kills, 1 to 4 to 2 to 1 ranks" moved "train=$tokens"
recount "recounted: rewinds" rewind "train=$tokens"
recount "recounted: data.skip" without "train=$tokens"
recount "recounted: two epochs" epochs "train=$tokens"
head -n 80 text.jsonl >a.jsonl
tail -n 160 text.jsonl >b.jsonl
must tokenize tokenizer.json a.jsonl --out a.tokens
must tokenize tokenizer.json b.jsonl --out b.tokens
# shellcheck disable=SC2086
{
LOCKSTEP_FAULT=train.nan:8,train.step:20:kill lockstep train config.yaml \
    --run both --set data.train=[] --set data.packing=best_fit --set \
    'data.mixture=["a 1 a.tokens","b 0.5 b.tokens"]' --set train.on_nan=rewind \
    --set train.steps=150 --set 'train.batch_ramp=[0=4,11=8]' $one >log 2>&1
LOCKSTEP_FAULT=train.step:9:kill lockstep resume both --ranks 4 --set \
    mesh.data=4 $one --set 'data.phases=["40 a=0.2 b=1"]' --set 'data.skip=[300 9]' \
    >log 2>&1
LOCKSTEP_FAULT=train.nan:9 lockstep resume both --ranks 2 --set mesh.data=2 $one \
    --supervised --set 'data.phases=["40 a=0.2 b=1","60 a=2"]' >log 2>&1 ||
    bad "a mixture that changes" "exit $?" log
}
recount "recounted: a mixture that changes at restarts, packed, ramp, rewinds" \
    both a=a.tokens b=b.tokens
rm -rf bad
cp -r both bad
sed -i '77s/"tokens": "\(.*\)\(.\)\(.\)"/"tokens": "\1\3\2"/; 99s/"tokens": "\(.*\)\(.\)\(.\)"/"tokens": "\1\3\2"/' bad/consumed.jsonl
if python3 "$tree/tests/drills/count_samples.py" bad a=a.tokens b=b.tokens \
    >counted; then bad "recounted: other tokens" "they are not seen" counted
else ok "recounted: other tokens are seen"; fi
report
