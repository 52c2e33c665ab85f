#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ramp.sh - a batch that grows: the bits of one rank on any ranks, killed in the
# middle or not, within the memory that was planned.
. "${0%/*}/common.sh"
prepare
ramp="--set train.batch=24 --set train.micro_batch=2
    --set train.batch_ramp=[0=4,4=8,11=16,20=24]"

# same NAME ARGUMENT...: a run with the ramp equals that of one rank
same() {
    local name=$1
    shift
    rm -rf other
    # shellcheck disable=SC2086
    if ! lockstep train config.yaml --run other $ramp "$@" >log 2>&1; then
        bad "$name" "exit $?" log
    elif same_run whole other; then ok "$name"
    else bad "$name" "$why" log
    fi
}

# shellcheck disable=SC2086
must train config.yaml --run whole $ramp
batches=$(sed -n 's/.*"kind": "step".*"batch": \([0-9]*\).*/\1/p' \
    whole/metrics.jsonl | uniq -c | tr -s ' \n' ' ')
if [ "$batches" = " 4 4 7 8 9 16 10 24 " ]; then ok "the batch grows"
else bad "the batch grows" "found $batches"
fi
planned=$(sed -n 's/^memory *\([0-9.]* [KMG]iB\) planned.*/\1/p' log)
# shellcheck disable=SC2086
lockstep train config.yaml --run none --dry-run $ramp >log 2>&1
if [ -n "$planned" ] && grep -q "^memory *$planned planned" log; then
    ok "the plan has room for every batch"
else bad "the plan has room for every batch" "$planned was taken" log
fi

# The plan prints what each batch takes alone, and what all take.
cell() { # FILE KEY: of its last row
    sed -n "s/.*\"$2\": \([0-9.e-]*\),*$/\1/p" "$1" | tail -n 1
}
planned() { # ARGUMENT...: of the second stage
    lockstep plan config.yaml --ranks 2 --rank 1 --set mesh.pipe=2 \
        --set train.micro_batch=2 --set numerics.grid_data=2 "$@"
}
# shellcheck disable=SC2086
planned $ramp --explain ramp --json >phases.json 2>log
most=0 wrong=
for part in "4 1 4" "8 5 11" "16 12 20" "24 21 30"; do
    read -r batch first last <<<"$part"
    planned --set train.batch="$batch" --explain memory --json >alone.json \
        2>log
    bytes=$(cell alone.json bytes)
    [ "$bytes" -gt "$most" ] && most=$bytes
    # shellcheck disable=SC2086
    planned $ramp --step "$last" --explain schedule --json >step.json 2>log
    [ "$(grep -c '"forward"' step.json)" -eq "$batch" ] ||
        wrong="step $last has not the schedule of $batch"
    grep -q "\"batch\": $batch,\$" step.json ||
        wrong="step $last: another batch"
    row="\"first_step\":$first,\"last_step\":$last,\"batch\":$batch,"
    row+="\"tokens\":$((batch * 48)),\"micro_batches\":$((batch / 2)),"
    tr -d '\n ' <phases.json | grep -q "$row\"memory_bytes\":$bytes," ||
        wrong="no row of $batch with $bytes bytes"
done
# shellcheck disable=SC2086
planned $ramp --explain memory --json >all.json 2>log
[ "$(cell all.json bytes)" -ge "$most" ] || wrong="less than one batch takes"
if [ -z "$wrong" ]; then ok "a plan of each batch"
else bad "a plan of each batch" "$wrong" phases.json; fi
# shellcheck disable=SC2086
if planned $ramp --step 7 --explain memory |
    grep -q "^with the batch of 8 sequences from step 5 on, one of 4"; then
    ok "a plan names its batch"
else bad "a plan names its batch" "it does not"; fi

# Three steps do not come to the batches of 8 to 24: a step of each follows, and
# what it sends is held against its plan.
printf 'ranks=2 mesh.pipe=2\nranks=2 mesh.data=2 zero=zero2\n' >layouts.txt
# shellcheck disable=SC2086
if lockstep verify config.yaml $ramp --steps 3 --layouts layouts.txt \
    >log 2>&1 && grep -q "6 steps with 4 batches" log; then
    ok "each batch is verified"
else bad "each batch is verified" "exit $?" log; fi

same "another micro-batch" --set train.micro_batch=1 --threads 3
same "the micro-batch is chosen" --set train.micro_batch=0
same "two ranks" --ranks 2
same "four ranks" --ranks 4 --set train.micro_batch=1
same "two tensor ranks" --ranks 2 --set mesh.tensor=2
same "a pipeline" --ranks 2 --set mesh.pipe=2
same "a pipeline in a v" --ranks 2 --set mesh.pipe=2 \
    --set schedule.name=zb-h1 --set train.micro_batch=1
same "fsdp" --ranks 2 --set mesh.shard=2 --set zero=fsdp
same "data x tensor, zero2" --ranks 4 --set mesh.tensor=2 --set zero=zero2
same "recompute" --set 'train.recompute=[block]'

# --- killed, stopped, moved ---
for step in 3 6 15 23; do
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=train.step:$step:kill lockstep train config.yaml \
        --run killed $ramp >log 2>&1
    if [ $? -ne 137 ]; then bad "killed at $step" "it was not" log
    elif ! lockstep resume killed --ranks 2 >log 2>&1; then
        bad "killed at $step" "resume" log
    elif same_run whole killed; then ok "killed in step $step, two ranks after"
    else bad "killed in step $step, two ranks after" "$why"
    fi
    rm -rf killed
done
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.nan:13 lockstep train config.yaml --run back $ramp \
    --set train.on_nan=rewind >log 2>&1
# shellcheck disable=SC2086
must train config.yaml --run without $ramp --set "data.skip=[$(sed \
    's/.*"first": \([0-9]*\), "samples": \([0-9]*\).*/\1 \2/' back/ledger.jsonl)]"
if same_run without back; then ok "rewound over a border"
else bad "rewound over a border" "$why"
fi

# --- beside optimizers whose updates know more than the step ---
for name in schedule_free muon; do
    rm -rf alone moved
    # shellcheck disable=SC2086
    must train config.yaml --run alone $ramp --set optimizer.name=$name \
        --set optimizer.schedule=constant
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=train.step:14:kill lockstep train config.yaml --run moved \
        $ramp --set optimizer.name=$name --set optimizer.schedule=constant \
        --ranks 2 >log 2>&1
    must resume moved --ranks 2 --set mesh.tensor=2
    if same_run alone moved; then ok "a ramp under $name"
    else bad "a ramp under $name" "$why"; fi
done

# --- what it is ---
# Plain gradient descent has no memory: the second batch goes on as a run of
# that batch from those weights, on the samples that come then.
plain="--set optimizer.name=sgd --set optimizer.beta1=0 --set validate.every=0
    --set optimizer.schedule=constant --set optimizer.warmup=0
    --set numerics.grid_data=4 --set checkpoint.keep_last=9"
# shellcheck disable=SC2086
{
must train config.yaml --run both $plain --set train.steps=10 \
    --set train.batch=8 --set train.batch_ramp=[0=4,5=8]
must train config.yaml --run first $plain --set train.steps=5 \
    --set train.batch=4
must train config.yaml --run second $plain --set train.steps=5 \
    --set train.batch=8 --set init.from=first --set "data.skip=[0 20]"
}
if lockstep compare "$(newest both)" "$(newest second)" >log 2>&1; then
    ok "two batches are two runs"
else bad "two batches are two runs" "other weights" log
fi

# Megatron's form; the rate follows the tokens.
must train config.yaml --run levels --set train.batch=16 --set train.steps=8 \
    --set train.batch_ramp=[8,8,24]
must train config.yaml --run rows --set train.batch=16 --set train.steps=8 \
    --set train.batch_ramp=[0=8,3=16]
if same_run rows levels; then ok "levels are rows"
else bad "levels are rows" "$why"
fi
must train config.yaml --run tokens --set train.batch=16 --set train.steps=8 \
    --set train.batch_ramp=[0=8,4=16] --set optimizer.warmup=0 \
    --set optimizer.schedule=linear --set optimizer.lr=0.006 \
    --set optimizer.min_lr=0 --set optimizer.schedule_by=tokens
rates=$(sed -n 's/.*"lr": \([0-9.e-]*\),.*/\1/p' tokens/metrics.jsonl |
    tr '\n' ' ')
# 96 samples in all; before step 5, 32 of them.
case $rates in
0.006\ 0.0055\ 0.005\ 0.0045*\ 0.004\ 0.003\ 0.002\ 0.001\ *)
    ok "the rate follows the tokens" ;;
*) bad "the rate follows the tokens" "$rates" ;;
esac

expect "a batch that leaves do not divide" 78 "numerics.grid_data" train \
    config.yaml --run none --set train.batch=24 \
    --set train.batch_ramp=[0=6,4=24] --set numerics.grid_data=4
expect "a batch that the ranks do not divide" 78 "2 ranks cannot share" train \
    config.yaml --run none --set train.batch=24 --ranks 2 \
    --set train.batch_ramp=[0=3,4=24]
expect "a micro-batch that does not divide" 78 "a batch of 12 over 1" train \
    config.yaml --run none --set train.batch=24 --set train.micro_batch=8 \
    --set train.batch_ramp=[0=12,4=24]
expect "no ramp" 78 "train.batch is 24" train config.yaml --run none \
    --set train.batch=24 --set train.batch_ramp=[0=8,4=16]

# search proposes nothing that a batch of the ramp refuses.
few="--ranks 4 --set train.batch=6 --set train.batch_ramp=[0=3,4=6]
    --set train.micro_batch=0 --set model.layers=4"
# shellcheck disable=SC2086
must search config.yaml --machine cpu,devices=8 --json $few
mv log found
layouts=0
while IFS=' ' read -r -a words; do
    layouts=$((layouts + 1))
    # shellcheck disable=SC2086
    must train config.yaml --run none --dry-run $few "${words[@]}"
done < <(awk '/^ *"set": / { line = ""; inside = 1; next }
    inside && /^ *\],?$/ { print line; inside = 0 }
    inside { gsub(/^ *"|",?$| /, ""); line = line " --set " $0 }' found)
if [ $layouts -ge 4 ]; then ok "search knows the ramp: $layouts layouts"
else bad "search knows the ramp" "$layouts layouts"; fi
report
