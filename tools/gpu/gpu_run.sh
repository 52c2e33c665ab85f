#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu_run.sh - everything that a machine with a GPU proves and measures, in less
# than 25 minutes. Figures are appended to a file as they are made, each with
# the date, the GPU and its driver, so that nothing is lost if it is ended.
#
#     [BUILD=build] [OUT=gpu_run] [STAGES="env train"] tools/gpu/gpu_run.sh
#
#   env        the driver, the GPU and the plug-in
#   kernels    what nvcc made has no spills; the driver loads every kernel
#   runs       models, layouts and runs on the GPU have the bits of the CPU
#   nccl       ranks whose messages NCCL moves have the bits of one rank
#   fast       products by cuBLASLt have the same bits in every layout
#   train      a longer run on the GPU, then on the CPU: equal losses, weights
#   bench      steps on GPU and CPU in turns: milliseconds, tokens a second
#   trace      kernels' times by the GPU's clock, joined by instruction
#   memory     the run's memory is the planned
#   sanitizer  compute-sanitizer finds nothing in a step
#
# Each stage prints "passed NAME" or "failed NAME: why"; one that this machine
# cannot do prints "not run NAME: why". The last line counts all three. Exit code
# 1: something failed, or nothing passed.
#
#   EMULATED=1   against the driver of tests/driver (make driver): the same
#                stages, short, with figures that say nothing about a GPU
#   OUT          figures.jsonl, and what the stages wrote (gpu_run)
#   STAGES       only these
set -u
export LC_ALL=C
: "${BUILD:=build}" "${OUT:=gpu_run}" "${EMULATED:=}"
all="env kernels runs nccl fast train bench trace memory sanitizer"
: "${STAGES:=$all}"
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
mkdir -p "$OUT" || exit 1
OUT=$(cd "$OUT" && pwd)
tree=$(cd "${0%/*}/../.." && pwd)
lockstep=$BUILD/lockstep
figures=$OUT/figures.jsonl
date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
gpu=unknown
passed=0 failed=0 not_run=0
why=

if [ -n "$EMULATED" ]; then
    export LD_LIBRARY_PATH=$BUILD/tests/driver LOCKSTEP_DRIVER=early
    steps=3 layers=1 width=32 heads=2 batch=4 sequence=32
    only='^sgd$'
    bench="--model llama-1m --batch 1 --length 16 --steps 1"
else
    steps=40 layers=6 width=512 heads=8 batch=32 sequence=512
    only=.
    bench="--model gpt2-124m --batch 16 --length 1024 --steps 10"
fi

# figure NAME VALUE UNIT: a line of figures.jsonl.
figure() {
    printf '{"date": "%s", "gpu": "%s", "emulated": %s, "figure": "%s", "value": %s, "unit": "%s"}\n' \
        "$date" "$gpu" "$([ -n "$EMULATED" ] && echo true || echo false)" \
        "$1" "$2" "$3" >>"$figures"
}

fails() { # WHY [FILE]
    why=$1
    [ -z "${2:-}" ] || tail -n 8 "$2" | sed 's/^/    /'
    return 1
}

cannot() { # WHY
    why=$1
    return 2
}

train() { # RUN ARGUMENT...
    local run=$1
    shift
    rm -rf "$run"
    "$lockstep" train config.yaml --run "$run" --set "train.steps=$steps" \
        "$@" >"$run.log" 2>&1
}

# The median of a metric of the steps behind the first.
median() { # RUN METRIC
    sed -n '2,$s/.*"'"$2"'": *\([0-9.eE+-]*\).*/\1/p' "$1/metrics.jsonl" |
        sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}

stage_env() {
    local found
    found=$("$lockstep" doctor 2>/dev/null |
        sed -n 's/^CUDA *\(yes\|no\) *\(.*[^ -]\)[ -]*$/\2/p')
    echo "    $found"
    grep -q 'compute capability' <<<"$found" ||
        { fails "doctor finds no GPU: $found"; return; }
    gpu=${found//\"/}
    figure env 1 found
}

stage_kernels() {
    local log count=0
    for log in "$BUILD"/src/kernels/cuda/*.fatbin.log; do
        [ -e "$log" ] || { fails "nvcc left no logs in $BUILD"; return; }
        "$tree/tools/spills.sh" "$log" || { fails "$log"; return; }
        count=$((count + 1))
    done
    figure kernels.files "$count" files
}

stage_runs() {
    local real=1
    [ -z "$EMULATED" ] || real=
    (cd "$tree" && ONLY=$only REAL=$real BUILD=$BUILD timeout 900 \
        tests/equivalence/cuda_ranks.sh) >"$OUT/runs.log" 2>&1 ||
        { fails "cuda_ranks.sh" "$OUT/runs.log"; return; }
    figure runs.passed "$(grep -c '^ok ' "$OUT/runs.log")" rows
}

stage_fast() {
    local real=1
    [ -z "$EMULATED" ] || real=
    (cd "$tree" && REAL=$real BUILD=$BUILD timeout 600 \
        tests/equivalence/fast_ranks.sh) >"$OUT/fast.log" 2>&1 ||
        { fails "fast_ranks.sh" "$OUT/fast.log"; return; }
    figure fast.passed "$(grep -c '^ok ' "$OUT/fast.log")" rows
}

# One GPU has nobody to send to.
stage_nccl() {
    local real=1 gpus
    [ -e "$BUILD/comm_nccl.so" ] ||
        { cannot "make found no nccl.h, or no nvcc"; return; }
    if [ -n "$EMULATED" ]; then real=
    else
        gpus=$(nvidia-smi -L 2>/dev/null | grep -c .)
        [ "$gpus" -ge 2 ] || { cannot "there are $gpus GPUs, 2 are needed"; return; }
    fi
    (cd "$tree" && REAL=$real BUILD=$BUILD timeout 600 \
        tests/equivalence/nccl_ranks.sh) >"$OUT/nccl.log" 2>&1 ||
        { fails "nccl_ranks.sh" "$OUT/nccl.log"; return; }
    figure nccl.passed "$(grep -c '^ok ' "$OUT/nccl.log")" rows
}

stage_train() {
    train on_gpu --set device=cuda || { fails "on the GPU" on_gpu.log; return; }
    train in_graphs --set device=cuda --set device_graphs=true ||
        { fails "in graphs" in_graphs.log; return; }
    "$lockstep" compare on_gpu in_graphs >compare.log 2>&1 ||
        { fails "other weights in graphs" compare.log; return; }
    train on_cpu --set device=cpu || { fails "on the CPU" on_cpu.log; return; }
    "$lockstep" compare on_gpu on_cpu >compare.log 2>&1 ||
        { fails "other weights" compare.log; return; }
    cmp -s <(grep -o '"loss": [^,]*' on_gpu/metrics.jsonl) \
        <(grep -o '"loss": [^,]*' on_cpu/metrics.jsonl) ||
        { fails "other losses"; return; }
    figure train.steps_equal "$steps" steps
}

# In turns: GPU, CPU, GPU, CPU.
stage_bench() {
    local turn device
    for turn in 1 2; do
        train bench_graphs --set device=cuda --set device_graphs=true \
            --set checkpoint.every=0 ||
            { fails "device_graphs=true" bench_graphs.log; return; }
        figure "bench.step_ms.graphs.$turn" "$(median bench_graphs step_ms)" ms
        for device in cuda cpu; do
            train "bench_$device" --set device=$device --set checkpoint.every=0 ||
                { fails "device=$device" "bench_$device.log"; return; }
            figure "bench.step_ms.$device.$turn" \
                "$(median "bench_$device" step_ms)" ms
        done
    done
    # shellcheck disable=SC2086
    "$lockstep" bench step --device cuda $bench --json >bench.json \
        2>bench.log || { fails "bench step" bench.log; return; }
    figure bench.step_ms.alone "$(sed -n \
        's/^  "step_ms": \([0-9.e+-]*\),*$/\1/p' bench.json)" ms
}

# Each kernel's span names its instruction and lasts some time.
stage_trace() {
    local spans products
    train traced --set device=cuda --trace trace.json ||
        { fails "train --trace" traced.log; return; }
    spans=$(grep '"ph":"X"' trace.json | grep '"tid":2,' |
        grep -c '"instruction":[0-9]')
    [ "$spans" -gt 0 ] || { fails "the trace has no kernels"; return; }
    products=$(grep '"ph":"X"' trace.json | grep -c '"name":"matmul')
    cp trace.json "$OUT"
    figure trace.kernels "$spans" spans
    figure trace.products "$products" spans
}

stage_memory() {
    "$lockstep" plan config.yaml --set device=cuda --explain memory \
        >plan.log 2>&1 || { fails "plan" plan.log; return; }
    grep -q 'what kernels are told' plan.log ||
        { fails "the plan does not list what kernels are told" plan.log; return; }
    cp plan.log "$OUT"
    figure memory.rows "$(grep -c . plan.log)" rows
}

stage_sanitizer() {
    local tool
    [ -z "$EMULATED" ] ||
        { cannot "compute-sanitizer needs a GPU (EMULATED=1)"; return; }
    tool=$(command -v compute-sanitizer) ||
        { cannot "there is no compute-sanitizer"; return; }
    rm -rf checked
    timeout 300 "$tool" --error-exitcode 9 "$lockstep" train config.yaml \
        --run checked --set train.steps=1 --set device=cuda \
        >sanitizer.log 2>&1 || { fails "compute-sanitizer" sanitizer.log; return; }
    figure sanitizer.errors 0 errors
}

# The corpus and the model of the longer stages.
prepare() {
    local i
    for ((i = 0; i < 400; i++)); do
        echo "{\"text\": \"the $i. word of $((i * 7919 % 1000)) is $((i * i % 97)) and no other\"}"
    done >text.jsonl
    "$lockstep" tokenizer train text.jsonl --vocab 300 --out tokenizer.json \
        >tokenizer.log 2>&1 || { cat tokenizer.log; exit 1; }
    cat >config.yaml <<END
version: 1
seed: 3
model: {family: llama, vocab: 304, layers: $layers, width: $width, heads: $heads, feed_forward: $((2 * width))}
tokenizer: {from: tokenizer.json}
data: {train: [text.jsonl], sequence: $sequence, cache: cache}
train: {steps: $steps, batch: $batch, dtype: float32}
optimizer: {lr: 3.0e-4, warmup: 1}
END
}

room=$(mktemp -d) || exit 1
trap 'rm -rf "$room"' EXIT
cd "$room" || exit 1
prepare
for stage in $STAGES; do
    case " $all " in *" $stage "*) ;; *) echo "no stage $stage; there are: $all"; exit 1 ;; esac
    began=$SECONDS why=
    "stage_$stage"
    case $? in
    0) passed=$((passed + 1)); echo "passed $stage ($((SECONDS - began)) s)" ;;
    2) not_run=$((not_run + 1)); echo "not run $stage: $why" ;;
    *) failed=$((failed + 1)); echo "failed $stage: $why" ;;
    esac
done
echo "$passed passed, $failed failed, $not_run not run, $SECONDS s; $figures"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
