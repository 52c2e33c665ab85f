#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# async.sh - checkpoints that are written in the background: the bytes of a
# save at once, on every kind of ranks; disks that fail, hang, are full or
# vanish; kills in the middle. Guards issue 22, point 5.
. "${0%/*}/common.sh"
prepare
find_mpi >/dev/null
all="--set checkpoint.keep_last=100"
beside="--set checkpoint.async=true $all"
# shellcheck disable=SC2086
must train config.yaml --run whole $all

says() { # NAME WORDS
    if grep -qF -- "$2" log; then ok "$1"
    else bad "$1" "does not say \"$2\"" log; fi
}

# Every checkpoint that both have is the same, not only the last.
same() { # NAME RUN [LIKE]
    local step like=${3:-whole}
    if ! same_run "$like" "$2"; then bad "$1" "$why" log; return; fi
    for step in "$2"/ckpt/step-*; do
        [ -d "$like/ckpt/${step##*/}" ] || continue
        diff -r "$step" "$like/ckpt/${step##*/}" >differ || {
            bad "$1" "${step##*/}: $(head -n 1 differ)"
            return
        }
    done
    ok "$1"
}

run() { # RUN ARGUMENT...: says its exit code
    local name=$1
    shift
    lockstep train config.yaml --run "$name" "$@" >log 2>&1
}

# --- the same bytes, while training changes the weights ---
flat="--set optimizer.schedule=constant --set train.steps=200"
# shellcheck disable=SC2086
{
must train config.yaml --run long $all $flat
LOCKSTEP_FAULT=checkpoint.tensor:3:slow run slow $beside $flat
}
says "a slow disk: training goes on" "is not saved yet: the checkpoint of step 5"
says "the waiting is told" "checkpoints were written in the background; steps"
same "a slow disk: the same bytes" slow long
[ -d slow/ckpt/step-00000005 ] && ok "a slow disk: the copy was of its step" ||
    bad "a slow disk: the copy was of its step" "$(ls slow/ckpt)"

four="--ranks 4 --set mesh.data=4 --set train.threads=1"
# shellcheck disable=SC2086
{
run threads $beside $four --set zero=zero1
same "4 ranks, zero1" threads
run fsdp $beside $four --set zero=fsdp
same "4 ranks, fsdp" fsdp
must train config.yaml --run owners $all $four --set optimizer.name=adafactor
run owned $beside $four --set optimizer.name=adafactor
same "4 ranks that own whole matrices" owned owners
run pipe $beside --ranks 4 --set mesh.pipe=2 --set mesh.data=2 \
    --set train.threads=1 --set train.micro_batch=2
same "pipe 2 x data 2" pipe
# Ranks are killed while the others still write.
LOCKSTEP_FAULT=checkpoint.sync:1:slow,train.step:12:kill \
    run supervised $beside $four --set zero=zero1 --supervised
says "4 supervised ranks, killed during a save" "recovered generation 2"
same "4 supervised ranks, killed during a save" supervised
no_remains "4 supervised ranks, killed: nothing left" supervised
lockstep launch --ranks 2 -- "$program" train config.yaml --run launched \
    $beside >log 2>&1
same "2 launched ranks" launched
for m in $mpis; do
    with_mpi $m 2 "$program" train config.yaml --run $m $beside >log 2>&1
    same "2 ranks under $m" $m
done
for set in optimizer.name=schedule_free optimizer.state_dtype=int8 \
    optimizer.ema=0.99 optimizer.name=soap optimizer.masters=split; do
    more="--set $set --set optimizer.schedule=constant --set train.steps=10"
    [ "$set" != optimizer.masters=split ] || more="$more --set train.dtype=bfloat16"
    run "plain-$set" $all ${more/masters=split/masters=float32} || bad "$set" "it fails" log
    run "beside-$set" $beside $more
    same "$set" "beside-$set" "plain-$set"
done
more="--set train.batch=8 --set train.batch_ramp=[0=4,11=8]"
run plain-ramp $all $more || bad "a batch that grows" "it fails" log
LOCKSTEP_FAULT=checkpoint.tensor:70:slow run ramp $beside $more
same "a batch that grows while a save is under way" ramp plain-ramp
}

# --- disks that fail: training goes on, and tries again ---
# shellcheck disable=SC2086
for fault in checkpoint.tensor:5:fail checkpoint.sync:1:full \
    checkpoint.latest:1:full checkpoint.flip:5:fail; do
    LOCKSTEP_FAULT=$fault run "went-$fault" $beside $flat
    code=$?
    [ $code -eq 0 ] || bad "$fault" "exit $code" log
    says "$fault: said" "could not be saved, training goes on"
    no_remains "$fault: nothing half-written" "went-$fault"
done
# shellcheck disable=SC2086
LOCKSTEP_FAULT=checkpoint.tensor:40:fail run parts $beside $four
says "a rank's part fails" "could not be saved, training goes on"
same "a rank's part fails: the same bytes" parts

# The storage is away while the run saves, and comes back before its end.
# shellcheck disable=SC2086
if start_until vanish 6 train config.yaml --run vanish $beside \
    $flat --set train.steps=1000; then
    mv vanish/ckpt away
    tries=0
    until : >vanish/ckpt || [ $tries -gt 1000 ]; do
        rm -rf vanish/ckpt
        tries=$((tries + 1))
    done 2>/dev/null
    until_line log "could not be saved"
    rm vanish/ckpt
    mv away vanish/ckpt
    ended "$child" && ok "storage that vanishes for a while" ||
        bad "storage that vanishes for a while" "it failed" log
    says "storage that vanishes: said" "could not be saved, training goes on"
    expect "storage that vanishes: saved in the end" 0 "" \
        compare vanish/ckpt/step-00001000 vanish/ckpt/step-00001000
fi

# --- kills in the middle ---
# shellcheck disable=SC2086
for fault in checkpoint.tensor:50 checkpoint.latest:2; do
    LOCKSTEP_FAULT=$fault:kill run "killed-$fault" $beside
    must resume "killed-$fault"
    same "killed at $fault" "killed-$fault"
    no_remains "killed at $fault: nothing left" "killed-$fault"
done
# A signal while a save is under way: that one ends, then the last one is made.
# shellcheck disable=SC2086
if hold asked checkpoint.sync:1:slow,train.step:8 \
    train config.yaml $beside $flat; then
    kill -TERM "$child"
    kill -CONT "$child"
    ended "$child"
    check_said "a signal during a save" 75 "saved; go on with" $? log
    [ -d asked/ckpt/step-00000005 ] && [ "$(ls -d asked/ckpt/step-* |
        wc -l)" -ge 2 ] && ok "a signal during a save: both are there" ||
        bad "a signal during a save: both are there" "$(ls asked/ckpt)"
    must resume asked
    same "a signal during a save: the same bytes" asked long
fi
# A run that rewinds goes back where a save at once would have let it.
back="--set train.on_spike=rewind --set train.spike_window=4
    --set train.spike_sigma=50"
# shellcheck disable=SC2086
if LOCKSTEP_FAULT=train.spike:18 run back-plain $all $back; then
    LOCKSTEP_FAULT=train.spike:18,checkpoint.tensor:70:slow \
        run back $beside $back
    same "a rewind waits for the save" back back-plain
else
    bad "a rewind waits for the save" "the plain run fails" log
fi

# --- memory: the plan says it to the byte ---
lockstep plan config.yaml $beside --explain memory --json >plan.json 2>log
python3 - <<'END' >log 2>&1 && ok "the plan lists the copy" ||
import json
rows = json.load(open("plan.json"))
rows = rows if isinstance(rows, list) else \
    next(v for v in rows.values() if isinstance(v, list))
size = {row.get("name"): row["bytes"] for row in rows}
want = sum(b for name, b in size.items() if name in
           ("weights", "first moments", "second moments"))
assert want > 0 and size["snapshot of a checkpoint"] == want, size
END
    bad "the plan lists the copy" "other bytes" log
report
