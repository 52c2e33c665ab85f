#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gone.sh - a run that goes on where something is gone, cannot be read for a
# while, is no file, or where more is asked of it than was planned.
. "${0%/*}/common.sh"
prepare
must train config.yaml --run whole

# says NAME WORDS: the last run printed them
says() {
    if grep -qF -- "$2" log; then ok "$1"
    else bad "$1" "does not say \"$2\"" log; fi
}

# same NAME RUN [LIKE]: the bytes of the run that nothing happened to
same() {
    if same_run "${3:-whole}" "$2"; then ok "$1"; else bad "$1" "$why" log; fi
}

# --- checkpoints that are gone ---
LOCKSTEP_FAULT=train.step:18:kill lockstep train config.yaml --run gone \
    >log 2>&1
cp gone/metrics.jsonl metrics.before
mv gone/ckpt away
expect "no ckpt" 66 "--from-scratch" resume gone
expect "no ckpt, ranks" 66 "--from-scratch" resume gone --ranks 2
mkdir gone/ckpt
expect "an empty ckpt: nothing is mounted" 66 "--from-scratch" resume gone
cp away/latest gone/ckpt/
expect "only latest is left" 66 "--from-scratch" resume gone
if cmp -s metrics.before gone/metrics.jsonl; then ok "no line of metrics is cut"
else bad "no line of metrics is cut" "they differ"; fi
expect "train where checkpoints are gone" 78 "holds a run already" \
    train config.yaml --run gone
must resume gone --from-scratch
same "begun again when told" gone
if [ "$(grep -c . gone/metrics.jsonl.cut)" -eq "$(grep -c . metrics.before)" ]
then ok "the old metrics are kept"
else bad "the old metrics are kept" "$(wc -l gone/metrics.jsonl.cut)"; fi
expect "from scratch where checkpoints are" 78 "leave it out" \
    resume gone --from-scratch
mkdir -p stray && cp metrics.before stray/metrics.jsonl
expect "train into metrics without config.yaml" 66 "no config.yaml" \
    train config.yaml --run stray
# Killed before the first checkpoint: it begins again without being told.
LOCKSTEP_FAULT=train.step:3:kill lockstep train config.yaml --run early \
    >log 2>&1
expect "the same command again" 78 "ended before its first checkpoint" \
    train config.yaml --run early
if grep -q 'at step 0.*: lockstep resume early;' out; then
    ok "it says the command that begins again"
else
    bad "it says the command that begins again" "it does not" out
fi
expect "the same command again, supervised" 78 \
    "ended before its first checkpoint" train config.yaml --run early \
    --ranks 2 --supervised
must resume early
same "killed before the first checkpoint" early

# --- reads that fail for a while ---
LOCKSTEP_FAULT=train.step:36:kill lockstep train config.yaml --run moment \
    --ranks 2 >log 2>&1
cp -r moment forever
LOCKSTEP_FAULT=checkpoint.read:3 lockstep resume moment --set train.threads=1 \
    >log 2>&1
says "a read that fails is tried again" "the next attempt is in"
says "and goes on from the newest" "resumed   after step 15"
same "a read that fails for a moment" moment
cp -r forever forever.ranks
(ulimit -n 12; lockstep resume forever >log 2>&1)
code=$?
if [ $code -eq 0 ] || [ $code -eq 65 ]; then
    bad "reads that always fail" "exit $code" log
elif grep -q "passed over" log; then bad "reads that always fail" "went back" log
else ok "reads that always fail go back to no older step"; fi
LOCKSTEP_FAULT=checkpoint.read:40,checkpoint.read:90 lockstep resume \
    forever.ranks --ranks 2 >log 2>&1
same "reads that fail on ranks" forever.ranks

# --- a file system that cannot exchange names ---
LOCKSTEP_FAULT=train.step:18:kill lockstep train config.yaml --run twice \
    >log 2>&1
cp -r twice/ckpt/step-00000015 whole.15
printf 'step-00000010\n' >twice/ckpt/latest # step 15 is made again
for fault in none aside:1:kill replaced:1:kill aside:1:fail replaced:1:fail; do
    faults=checkpoint.exchange:1
    [ $fault = none ] || faults=$faults,checkpoint.$fault
    rm -rf again
    cp -r twice again
    LOCKSTEP_FAULT=$faults lockstep resume again >log 2>&1
    code=$?
    case $fault in *:kill)
        [ $code -eq 137 ] || bad "$fault" "exit $code: it was not killed" log
        # Whatever has the name then is whole.
        LOCKSTEP_FAULT=train.step:1:kill lockstep resume again >log 2>&1
        lockstep compare again/ckpt/step-00000015 whole.15 >log 2>&1 ||
            bad "$fault" "step 15 is not there" log
        must resume again ;;
    esac
    same "names cannot be exchanged: $fault" again
    left=$(ls -A again/ckpt | grep '^\.')
    [ -z "$left" ] || bad "$fault" "left $left"
done

# --- files that are none ---
for file in metrics.jsonl config.yaml samples.jsonl ledger.jsonl; do
    rm -rf again
    cp -r twice again
    rm -f again/$file
    mkfifo again/$file
    LIMIT=20 lockstep resume again >log 2>&1
    code=$?
    if [ $code -eq 65 ]; then ok "a pipe as $file"
    else bad "a pipe as $file" "exit $code, expected 65" log; fi
    rm again/$file
    mkdir again/$file
    LIMIT=20 lockstep resume again >log 2>&1
    code=$?
    if [ $code -eq 65 ] || [ $code -eq 74 ]; then ok "a directory as $file"
    else bad "a directory as $file" "exit $code, expected 65 or 74" log; fi
done

# --- the command that is printed ---
sed 's/^train:.*/&\nmesh: {data: 2, tensor: 2}/' config.yaml >mesh.yaml
must train mesh.yaml --run meshed --ranks 4 --set train.threads=1
rm -rf meshed
# Each of the four ranks passes the point once in a step.
if hold meshed train.step:37 train mesh.yaml --ranks 4 --threads 1; then
    kill -TERM "$child"
    kill -CONT "$child"
    wait "$child"
    command=$(sed -n 's/.*go on with: lockstep //p' log)
    if [ "$command" = "resume meshed --ranks 4" ]; then
        ok "the whole command is printed"
    else
        bad "the whole command is printed" "\"$command\"" log
    fi
    cp -r meshed plainly
    # shellcheck disable=SC2086
    must $command
    same "the command that is printed" meshed
    must resume plainly
    says "resume takes as many ranks as there were" "ranks     4:"
    same "resume without --ranks" plainly
else
    bad "the command that is printed" "never got to step 10" log
fi
must train config.yaml --run auto --ranks 2 --set train.steps=6
must resume auto --set train.steps=8
says "also where the mesh was chosen" "ranks     2:"

# --- longer runs ---
must resume whole
says "a finished run says so" "has done all of its 30 steps"
cp -r whole longer
must resume longer --set train.steps=60
says "a rate that rises is said" "rises from 0.0003 to 0.00"
must train config.yaml --run wsd --set optimizer.schedule=wsd \
    --set checkpoint.keep_last=9
back wsd 20
must resume wsd --set train.steps=60
if grep -q "learning rate rises" log; then bad "wsd before its decay" "warns" log
else ok "wsd before its decay does not warn"; fi
# --- launch.json is only a hint ---
must train config.yaml --run hint --ranks 2 --set train.steps=2
for damage in ': >' 'echo {\"ranks\":-1} >' 'ln -sf /etc/hostname'; do
    rm -f hint/launch.json
    eval "$damage hint/launch.json"
    expect "resume beside: $damage launch.json" 0 "is not known, --ranks N" \
        resume hint
done
printf '%s\n' 'ranks=2 mesh.data=2' 'ranks=3 mesh.tensor=3' >illegal.txt
expect "verify says what cannot run apart from what differs" 78 \
    "1 of 3 layouts do not fit" verify config.yaml --layouts illegal.txt \
    --steps 2 --set train.steps=2
report
