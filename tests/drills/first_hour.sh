#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# first_hour.sh - what a newcomer types in the first hour: names of model hubs,
# trial runs of one step, ranks that do not fit. Each gets a sentence whose
# advice works.
. "${0%/*}/common.sh"
prepare
LIMIT=200

# --- names of hubs ---
for name in gpt2 meta-llama/Llama-3.1-8B; do
    expect "tokenizer.from=$name" 66 "nothing is downloaded" plan config.yaml \
        --set tokenizer.from=$name
    grep -qF "lockstep tokenizer train" out ||
        bad "tokenizer.from=$name" "does not say what to do" out
done
expect "model.from=gpt2" 66 "nothing is downloaded by name" plan config.yaml \
    --set model.from=gpt2
expect "a tokenizer that is not there" 66 "no such file or directory" \
    plan config.yaml --set tokenizer.from=../none/tokenizer.json
expect "a trial of one step" 0 "warms up during all of them" \
    train config.yaml --run trial --set train.steps=1
expect "--task hellaswag" 66 "a task is a file of items" \
    eval trial --task hellaswag
expect "--task hellaswag of a kind" 66 "docs/evaluation.md" \
    eval trial --task hellaswag --kind hellaswag
echo "ba be bo" >one.txt
expect "a task of one document" 0 "bits_per_byte" eval trial --task one.txt
grep -qw nan out && bad "a task of one document" "has an error of nan" out
expect "a task of no known kind" 78 "name it: --kind hellaswag" \
    eval trial --task text.jsonl

# --- runs that are shorter than their warm-up ---
rate() { # RUN STEP
    sed -n "s/^.*\"step\": *$2,.*\"lr\": *\([^,}]*\).*/\1/p" "$1/metrics.jsonl"
}
[ "$(rate trial 1)" = 0.003 ] && ok "the one step has the full rate" ||
    bad "the one step has the full rate" "$(rate trial 1)" trial/metrics.jsonl
expect "plan says it" 0 "optimizer.warmup is 3 steps, but the run has 2" \
    plan config.yaml --set train.steps=2
# The layout of the configuration is a row; every other row replaces its mesh.
expect "verify tests the configuration's own layout" 0 "ranks=4 as configured" \
    verify config.yaml --steps 1 --set mesh.data=2 --set mesh.pipe=2
expect "verify says it" 0 "optimizer.warmup is 3 steps, but the run has 2" \
    verify config.yaml --set train.steps=2 --steps 1
expect "resume says it" 0 "optimizer.warmup is 3 steps, but the run has 2" \
    resume trial --set train.steps=2
must train config.yaml --run longer --set train.steps=6
grep -q "optimizer.warmup is" log &&
    bad "a longer run" "speaks of its warm-up" log
[ "$(rate longer 1)" = 0.001 ] && ok "a longer run warms up as told" ||
    bad "a longer run warms up as told" "$(rate longer 1)" log

# --- decays without effect, and before the warm-up ends ---
expect "a decay without wsd" 0 "decay_type: sqrt has no effect with" \
    plan config.yaml --set optimizer.decay_type=sqrt
expect "train says it" 0 "optimizer.decay_type: sqrt has no effect with" \
    train config.yaml --run idle --set optimizer.decay_type=sqrt \
    --set train.steps=1
set -- --set optimizer.schedule=wsd --set train.steps=10
expect "a decay that begins early" 0 "falls from 0.003 to 0.0024 where" \
    plan config.yaml "$@" --set optimizer.decay_share=0.9 \
    --set optimizer.min_lr=3.0e-4
expect "a decay after the warm-up" 0 "" plan config.yaml "$@" \
    --set optimizer.decay_share=0.7
grep -q "optimizer.decay" out &&
    bad "a decay after the warm-up" "speaks of it" out

# --- layouts that do not fit: what the hint names is accepted ---
advice() { # NAME ARGUMENT...
    local name=$1 words
    shift
    lockstep plan config.yaml "$@" >out 2>&1 &&
        { bad "$name" "is accepted" out; return; }
    words=$(sed -n 's/^hint: .*\(--ranks .*\) fits$/\1/p' out)
    [ -n "$words" ] || { bad "$name" "advises nothing" out; return; }
    # shellcheck disable=SC2086
    expect "$name: $words" 0 "" plan config.yaml $words
}
advice "3 ranks" --ranks 3
advice "1000 ranks" --ranks 1000
advice "mesh.data=4 on 2 ranks" --ranks 2 --set mesh.data=4
advice "data 4 x tensor 4 on 8 ranks" --ranks 8 --set mesh.data=4 \
    --set mesh.tensor=4
advice "mesh.tensor=3" --ranks 3 --set mesh.tensor=3
advice "mesh.pipe=5" --ranks 5 --set mesh.pipe=5
advice "mesh.context=7" --ranks 7 --set mesh.context=7
expect "what one rank cannot do" 78 "is above the peak" plan config.yaml \
    --ranks 3 --set optimizer.min_lr=1
grep -q "fits$" out && bad "what one rank cannot do" "has advice" out

# --- a dash in a table ---
expect "a dash is explained" 0 "-: a frozen parameter has no rate" \
    plan config.yaml --explain parameters \
    --set "optimizer.groups=[\"*norm* frozen\"]"

# --- zero that leaves gradients whole ---
whole="keeps whole gradients"
expect "fsdp beside a pipeline" 0 "$whole beside mesh.pipe" \
    plan config.yaml --ranks 4 --set mesh.pipe=2 --set zero=fsdp
expect "zero2 beside context ranks" 0 "$whole beside mesh.context" \
    plan config.yaml --ranks 4 --set mesh.context=2 --set zero=zero2 \
    --set numerics.grid_context=2
expect "micro-batches smaller than a leaf" 0 "train.micro_batch=2 is one" \
    plan config.yaml --ranks 2 --set numerics.grid_data=4 --set zero=fsdp \
    --set train.micro_batch=1
expect "... as it says" 0 "" plan config.yaml --ranks 2 --set zero=fsdp \
    --set numerics.grid_data=4 --set train.micro_batch=2
grep -q "$whole" out && bad "... as it says" "warns still" out
expect "memory" 0 "gradients" plan config.yaml --explain memory
lockstep plan config.yaml --explain memory --set train.dtype=bfloat16 >out 2>&1
if grep -q "statistics s[0-9]*, float32" out &&
    grep -q "linear s[0-9]*, bfloat16" out; then ok "the type of a slot"
else bad "the type of a slot" "none, or another" out; fi
grep -qE '^total  .*[0-9] [KM]iB  +[0-9]+ bytes$' out &&
    ok "memory in units, then in bytes" ||
    bad "memory in units, then in bytes" "has another form" out

# --- the hint where checkpoints are gone, under mpirun ---
find_mpi
for mpi in $mpis; do
    [ -e many ] || { must train config.yaml --run many --ranks 2; }
    rm -rf many/ckpt
    LIMIT=400 with_mpi $mpi 2 "$program" resume many >out 2>&1
    if grep -qF "mpirun -n 2 lockstep resume many --from-scratch" out
    then ok "the 66 hint is a whole command, $mpi"
    else bad "the 66 hint, $mpi" "is not a whole command" out; fi
done
# Guards a straggler that every supervised run named at its first step.
make_text large.jsonl 3000 # rank 0 takes a while to encode it
expect "one supervised step" 0 "finished 1 step" train config.yaml \
    --run brief --ranks 4 --supervised --set train.steps=1 \
    --set data.cache=new --set data.train=[large.jsonl]
grep -q straggler out && bad "one supervised step" "names a straggler" out
# A run is continued from another directory than the one where it began.
must train config.yaml --run trial_moved
mkdir -p elsewhere
cd elsewhere || exit 1
expect "relative data, from elsewhere" 66 \
    "hint: relative paths begin in the directory of the command, here $PWD" \
    resume ../trial_moved --set train.steps=40
cd ..
# Guards the refusal that said only "outside 1 to 64".
for command in "train config.yaml" "resume trial" "eval trial --task x"; do
    # shellcheck disable=SC2086
    expect "$command on 65 threads" 2 "it takes at most 64; for more, start" \
        $command --ranks 65
done
expect "verify on 65 threads" 2 "compare layouts with fewer ranks" \
    verify config.yaml --ranks 65
# Guards a schedule file that was silently not read on one stage.
echo 'F0.0 B0.0 W0.0' >one.txt
expect "a schedule file on one stage" 0 "one.txt is not read: mesh.pipe is 1" \
    train config.yaml --run one_stage --set train.steps=1 \
    --set schedule.name=one.txt
expect "... plan says it" 0 "one.txt is not read: mesh.pipe is 1" \
    plan config.yaml --set schedule.name=one.txt
expect "a mesh of four without --ranks" 78 "hint: --ranks 4 " train \
    config.yaml --run none --set mesh.data=4 --dry-run
# Guards a hint that was missing for experts and above 4,096 ranks.
for preset in "64 mixtral_8x7b" "2048 deepseek_v3_671b" "16384 llama3_405b"; do
    expect "a preset without --ranks: $preset" 78 \
        "hint: --ranks ${preset% *} fits" plan \
        "$tree/examples/presets/${preset#* }.yaml"
done
expect "short names of types in flags" 0 "EXACT" verify config.yaml --dtype bf16 \
    --ranks 2 --steps 2 --set train.steps=2
expect "zero_stage" 78 "zero" plan config.yaml --set zero_stage=3
expect "more actions than memory" 2 "--microbatches 8138 works" schedule zb-2p \
    --ranks 4096 --microbatches 100000
report
