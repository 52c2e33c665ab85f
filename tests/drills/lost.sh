#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lost.sh - work that must not be lost: checkpoints by time, disks that fail
# for a while, files of a run that are gone or damaged.
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

# --- checkpoints by time ---
sed 's/^checkpoint:.*//' config.yaml >plain.yaml
must train plain.yaml --run plain --dry-run
must train plain.yaml --run plain
says "the default is said" "checkpoint every 15 minutes and at the end"
# After each step, however short: the bits are those of a run that saves once.
must train plain.yaml --run timed --set checkpoint.minutes=0.000001 \
    --set checkpoint.keep_last=100
if [ "$(ls timed/ckpt | grep -c step-)" -eq 30 ]; then ok "saved by time"
else bad "saved by time" "$(ls timed/ckpt)"; fi
same "when it is saved changes no bit" timed plain
LOCKSTEP_FAULT=train.step:14:kill lockstep train plain.yaml --run hours \
    --set checkpoint.minutes=0.000001 >log 2>&1
must resume hours
says "kill -9 loses only what the clock allows" "resumed   after step 13"
same "kill -9, saved by time" hours plain
# Ranks follow the clock of rank 0.
must train plain.yaml --run ranks --ranks 4 --set checkpoint.minutes=0.000001 \
    --set checkpoint.keep_last=100 --threads 1
if [ "$(ls ranks/ckpt | grep -c step-)" -eq 30 ]; then ok "4 ranks save by time"
else bad "4 ranks save by time" "$(ls ranks/ckpt)"; fi
same "4 ranks that save by time" ranks plain
expect "a run that rewinds needs checkpoints" 78 "set checkpoint.every" \
    train plain.yaml --run none --set train.on_spike=rewind
must train plain.yaml --run back --set train.on_spike=rewind \
    --set checkpoint.every=10 --set checkpoint.minutes=0.000001
says "a run that rewinds follows no clock" "not by time"

# --- a disk that fails for a while: training goes on ---
for fault in checkpoint.tensor:70 checkpoint.sync:3 checkpoint.rename:2 \
    checkpoint.latest:2 checkpoint.flip:70; do
    run=went-${fault%:*}
    LOCKSTEP_FAULT=$fault:fail lockstep train config.yaml --run "$run" \
        >log 2>&1
    code=$?
    if [ $code -ne 0 ]; then bad "$fault" "exit $code" log; continue; fi
    says "$fault: said" "could not be saved, training goes on"
    same "$fault: went on" "$run"
    no_remains "$fault: nothing half-written" "$run"
done
# The same at the end: tried again at once.
LOCKSTEP_FAULT=checkpoint.rename:1:fail lockstep train plain.yaml --run end \
    >log 2>&1
says "a save at the end fails once" "is not saved yet"
same "a save at the end is tried again" end plain
# A rank that is not the first one; each writes a part.
LOCKSTEP_FAULT=checkpoint.tensor:100:fail lockstep train config.yaml \
    --run parts --ranks 4 --threads 1 >log 2>&1
says "a rank's part fails" "could not be saved, training goes on"
same "a rank's part fails: went on" parts

# --- what is read back decides; old ones stay until then ---
# Every save from the second on stores a flipped bit: the first one stays.
faults=$(for i in 70 71 72 73 74 75 76 77; do printf 'checkpoint.flip:%d,' \
    $((i * 3)); done)
LOCKSTEP_FAULT=${faults%,} lockstep train config.yaml --run flipped \
    --set checkpoint.keep_last=1 >log 2>&1
says "flipped bits are seen" "the disk gives back something else"
for step in flipped/ckpt/step-*; do
    lockstep compare "$step" "whole/ckpt/${step##*/}" >log 2>&1
    [ $? -ne 65 ] || bad "flipped bits" "$step is damaged" log
done

# --- lines of metrics and others wait in memory ---
watched="--set observe.tensorboard=true --set observe.layers=4"
LOCKSTEP_FAULT=metrics.append:17:full,metrics.append:18:fail,metrics.append:19,layers.append:2,events.append:5 \
    lockstep train config.yaml --run lines $watched >log 2>&1
says "lines that cannot be written are said" "waits in memory"
says "and that they are written again" "written up to now again"
same "lines that cannot be written follow later" lines
must train config.yaml --run watched $watched
if cmp -s watched/layers.jsonl lines/layers.jsonl; then ok "lines of layers"
else bad "lines of layers" "differ"; fi

# --- damaged lines of old metrics take no other line with them ---
LOCKSTEP_FAULT=train.step:18:kill lockstep train config.yaml --run damaged \
    $watched >log 2>&1
for file in metrics layers; do
    cp damaged/$file.jsonl $file.before
    sed -i '2s/"step": \([0-9]*\),/"step" \1,/' damaged/$file.jsonl
done
must resume damaged
says "a damaged line is said" "metrics.jsonl: line 2"
sed 2d $PWD/whole/metrics.jsonl | sed -E "s/, \"(${clock%|})\": [^,}]*//g" >rows.a
exact_rows damaged >rows.b
if cmp -s rows.a rows.b; then ok "all other lines stay"
else bad "all other lines stay" "$(diff rows.a rows.b | head -n 3)"; fi
if [ "$(wc -l <damaged/layers.jsonl)" -eq 6 ]; then ok "all other lines of layers stay"
else bad "all other lines of layers stay" "$(cut -c 1-12 damaged/layers.jsonl)"; fi
if sed -n 2p damaged/metrics.jsonl.cut | grep -q '"step": 16' &&
    sed -n 1p damaged/metrics.jsonl.cut | grep -q '"step" 2,'; then
    ok "what was cut is kept"
else
    bad "what was cut is kept" "other lines" damaged/metrics.jsonl.cut
fi

# A thousand damaged lines were a thousand warnings, and seconds of them.
cp -r damaged flooded
yes damaged | head -n 1000 >>flooded/metrics.jsonl
must resume flooded --set train.steps=32
says "many damaged lines are counted" "996 more damaged lines were moved"
[ "$(grep -c "a damaged line was moved" log)" -le 4 ] &&
    ok "many damaged lines: few warnings" ||
    bad "many damaged lines: few warnings" "one for each" log

# --- old checkpoints that cannot be removed ---
LOCKSTEP_FAULT=checkpoint.remove:1:fail lockstep train config.yaml \
    --run pruned >log 2>&1
code=$?
if [ $code -eq 0 ]; then ok "a failed removal ends nothing"
else bad "a failed removal ends nothing" "exit $code" log; fi
says "a failed removal is said" "was not removed"
same "a failed removal changes nothing" pruned
no_remains "a failed removal is made up for" pruned
report
