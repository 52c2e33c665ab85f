#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu_run.sh - what a machine with a GPU proves and measures, what matters most
# first. Every stage has its own limit, and one that fails or hangs leaves the
# others running. Rows of checks and figures go to files as they are made, so that
# nothing is lost if it is ended; a summary of all comes last.
#
#     [BUILD=build] [OUT=gpu_run] [BUDGET=780] [STAGES="env step"] \
#         tools/gpu/gpu_run.sh
#
#   env        the driver, the GPU, its clocks, the plug-in, the libraries
#   step       two steps of a small model have the bits of the CPU: exact, in
#              graphs, on two ranks; and are near it with numerics.gpu=fast, whose
#              attention is cuDNN's
#   kernels    what nvcc made has no spills
#   runs       models, layouts and runs on the GPU have the bits of the CPU
#   fast       products by cuBLASLt and attention by cuDNN have the same bits in
#              every layout
#   bench      milliseconds of steps: exact and fast, with graphs and without
#   peer       PyTorch on the same shapes, where it can be imported
#   profile    time of each kernel in a step, by the GPU's clock
#   train      a longer run on GPU and CPU: equal losses and weights
#   larger     few tokens at once; Llama 1B and GPT-2 1.5B; PyTorch on the same
#   trace      each kernel's span names its instruction
#   memory     the plan of the run
#   ipc        ranks on one GPU that read each other's memory have the bits of
#              one rank, and processes do
#   nccl       ranks whose messages NCCL moves have the bits of one rank
#   sanitizer  compute-sanitizer finds nothing in a step
#
# Each stage prints "passed NAME" or "failed NAME: why"; one that this machine
# cannot do, or that has no time left, prints "not run NAME: why". The last line
# counts all three. Exit code 1: something failed, or nothing passed.
#
# A row of `step` that fails is run again with CUDA_LAUNCH_BLOCKING=1, so that what
# it says names the kernel; then `sanitizer` comes next.
#
# Where the system has no cuBLASLt, cuDNN or NCCL, those of Python packages are
# taken (nvidia/*/lib beside the modules of python3).
#
#   EMULATED=1   against the driver of tests/driver (make driver): the same
#                stages, short, with figures that say nothing about a GPU; a folder:
#                the driver there
#   BUDGET       seconds of all stages (780; 3600 with EMULATED); one that would
#                begin later is not run
#   OUT          figures.jsonl, summary.txt, and what the stages wrote, in
#                details.tar.gz (gpu_run)
#   STAGES       only these
set -u
export LC_ALL=C
: "${BUILD:=build}" "${OUT:=gpu_run}" "${EMULATED:=}"
: "${BUDGET:=$([ -n "$EMULATED" ] && echo 3600 || echo 780)}"
# Seconds that each may take.
declare -A most=([env]=60 [step]=90 [kernels]=10 [runs]=240 [fast]=120
    [bench]=200 [peer]=120 [profile]=60 [train]=90 [trace]=30 [memory]=20
    [larger]=240 [ipc]=120 [nccl]=120 [sanitizer]=90)
all="env step kernels runs fast bench peer profile train larger trace memory ipc nccl sanitizer"
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

real=1
if [ -n "$EMULATED" ]; then
    [ -d "$EMULATED" ] || EMULATED=$BUILD/tests/driver
    EMULATED=$(cd "$EMULATED" && pwd)
    export LD_LIBRARY_PATH=$EMULATED LOCKSTEP_DRIVER=early
    for stage in $all; do most[$stage]=600; done
    real=
    steps=3 layers=1 width=32 heads=2 batch=4 sequence=32
    only='^sgd$'
    exact="--model llama-1m --batch 1 --length 16 --steps 1"
    fast=$exact
else
    steps=10 layers=4 width=256 heads=4 batch=16 sequence=256
    only=.
    exact="--model gpt2-124m --batch 8 --micro-batch 8 --length 1024 --steps 3"
    fast="--model gpt2-124m --batch 64 --micro-batch 32 --length 1024 --steps 8"
fi

# figure NAME VALUE UNIT: a line of figures.jsonl, and of the summary.
figure() {
    printf '{"date": "%s", "gpu": "%s", "emulated": %s, "figure": "%s", "value": %s, "unit": "%s"}\n' \
        "$date" "$gpu" "$([ -n "$EMULATED" ] && echo true || echo false)" \
        "$1" "${2:-null}" "$3" >>"$figures"
    summary+="$(printf '    %-32s %s %s' "$1" "${2:-none}" "$3")"$'\n'
}
summary=

fails() { # WHY [FILE]
    why=$1
    [ -z "${2:-}" ] || tail -n 12 "$2" | cut -c 1-300 | sed 's/^/    /'
    return 1
}

cannot() { # WHY
    why=$1
    return 2
}

# within COMMAND...: no longer than what is left of the stage's limit, for which
# 124 stands. Programs that a script has started then end with it, so that none
# has the GPU beside the next stage: they are known by their environment.
within() {
    local left=$((end - SECONDS)) code found i mark=GPU_RUN_LIMIT=$$.$RANDOM
    [ $left -gt 0 ] || return 124
    env "$mark" timeout --kill-after=5 $left "$@"
    code=$?
    [ $code -eq 124 ] || { [ $code -eq 137 ] && [ $SECONDS -ge $end ]; } ||
        return $code
    for ((i = 0; i < 50; i++)); do
        found=$(grep -lszxF "$mark" /proc/[0-9]*/environ)
        [ -n "$found" ] || break
        # shellcheck disable=SC2046
        kill -9 $(tr -cs 0-9 ' ' <<<"$found") 2>/dev/null
        sleep 0.1
    done
    return 124
}

# is_late CODE: the limit of the stage ended it.
is_late() {
    [ "$1" -eq 124 ]
}

# not_good CODE WHY FILE [LATE]: what did not go well, or had no time to.
not_good() {
    if is_late "$1"; then cannot "${4:-no time: $2}"; else fails "$2" "$3"; fi
}

train() { # RUN ARGUMENT...
    local run=$1
    shift
    rm -rf "$run"
    within "$lockstep" train config.yaml --run "$run" \
        --set "train.steps=$steps" "$@" >"$run.log" 2>&1
}

# find_libraries: those of Python packages, if one cannot be opened.
find_libraries() {
    local place found=
    timeout 60 "$lockstep" doctor 2>/dev/null |
        grep -qE '^(NCCL|cuBLASLt|cuDNN) .*can(not)? be opened' || return 0
    while read -r place; do found="$found:$place"; done < <(timeout 60 python3 -c '
import glob, sys
for place in sys.path:
    for found in sorted(glob.glob(place + "/nvidia/*/lib")): print(found)' 2>/dev/null)
    [ -n "$found" ] || return 0
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${found#:}
    echo "    libraries of Python packages: ${found#:}"
}

stage_env() {
    local found
    nvidia-smi -q >"$details/nvidia-smi.txt" 2>&1
    found=$(within "$lockstep" doctor 2>"$details/doctor.err" | tee "$details/doctor.log" |
        sed -n 's/^CUDA *\(yes\|no\) *\(.*[^ -]\)[ -]*$/\2/p')
    grep -E '^(CUDA|GPUs|GPU rates|NCCL|cuBLASLt|cuDNN) ' "$details/doctor.log" | sed 's/^/    /'
    grep -q 'compute capability' <<<"$found" ||
        { fails "doctor finds no GPU: $found" "$details/doctor.err"; return; }
    gpu=${found//\"/}
    figure env.found 1 GPU
}

# two_steps ARGUMENT...: of the layout and of one rank on the CPU.
two_steps() {
    within "$lockstep" verify config.yaml --layouts layout --steps 2 \
        --set device=cpu --set train.steps=2 --set train.batch=4 \
        --set train.threads=1 "$@"
}

# The driver waits for each kernel, so an error is that of the kernel named.
again() {
    CUDA_LAUNCH_BLOCKING=1 two_steps "$@"
}

# The shortest proof that the device works, so that it is said at once what does not.
# A row: a name, settings of both sides, those of the GPU alone behind a bar.
# Attention by cuDNN, forward and backward: where it is installed.
stage_step() {
    local row name word code wrong=0 late=0 count=0 dnn=
    ! within "$lockstep" doctor 2>/dev/null | grep -q '^cuDNN  *yes' || dnn=1
    while IFS='|' read -r row word; do
        [ -n "$dnn" ] || [[ $row != *=cudnn* ]] ||
            { echo "    not run: step.${row%% *}: no cuDNN"; continue; }
        name=${row%% *} count=$((count + 1))
        local -a sets=()
        local set
        for set in ${row#"$name"}; do sets+=(--set "$set"); done
        echo "device=cuda $word" >layout
        two_steps "${sets[@]}" >"$details/step.$name.log" 2>&1
        code=$?
        if [ $code -eq 0 ]; then echo "    ok step.$name"
        elif is_late $code; then
            late=$((late + 1))
            echo "    not run: step.$name: no time"
        else
            wrong=$((wrong + 1))
            echo "    FAILED step.$name"
            tail -n 6 "$details/step.$name.log" | cut -c 1-300 | sed 's/^/        /'
            again "${sets[@]}" >"$details/step.$name.again.log" 2>&1
            echo "        each kernel awaited:"
            grep -E '^error|EXACT|differ' "$details/step.$name.again.log" |
                tail -n 3 | cut -c 1-300 | sed 's/^/        /'
        fi
    done <<'END'
exact|ranks=1
graphs|ranks=1 device_graphs=true
two_ranks|ranks=2 mesh.data=2 zero=zero1
bfloat16 train.dtype=bfloat16|ranks=1
fast numerics.gpu=fast train.dtype=bfloat16|ranks=1
fast_graphs numerics.gpu=fast|ranks=1 device_graphs=true
cudnn numerics.gpu=fast numerics.attention=cudnn train.dtype=bfloat16|ranks=1
flash numerics.gpu=fast numerics.attention=flash train.dtype=bfloat16|ranks=1
cudnn_graphs numerics.gpu=fast numerics.attention=cudnn train.dtype=bfloat16|ranks=1 device_graphs=true
END
    figure step.equal $((count - wrong - late)) "of $count"
    [ $wrong -eq 0 ] || { fails "$wrong of $count differ"; return; }
    [ $late -eq 0 ] || cannot "no time for $late of $count rows"
}

stage_kernels() {
    local log count=0
    for log in "$BUILD"/src/kernels/cuda/*.fatbin.log; do
        [ -e "$log" ] || { cannot "nvcc left no logs in $BUILD"; return; }
        "$tree/tools/spills.sh" "$log" || { fails "$log"; return; }
        count=$((count + 1))
    done
    figure kernels.files "$count" files
}

# script NAME FILE [VALUE...]: a script of rows. Those that it had no time for do
# not count as wrong; the figure says how many were right.
script() {
    local name=$1 file=$2 code log=$details/$1.log
    shift 2
    (cd "$tree" && within env BUILD="$BUILD" REAL=$real "$@" "$file") \
        >"$log" 2>&1
    code=$?
    grep '^FAILED' "$log" | cut -c 1-200 | sed 's/^/    /'
    figure "$name.passed" "$(grep -c '^ok ' "$log")" rows
    figure "$name.failed" "$(grep -c '^FAILED' "$log")" rows
    ! grep -q '^FAILED' "$log" || { fails "$file" "$log"; return; }
    [ $code -eq 0 ] || not_good $code "$file" "$log" \
        "$file was not over in $((end - began)) s"
}

stage_runs() {
    script runs tests/equivalence/cuda_ranks.sh ONLY="$only"
}

stage_fast() {
    script fast tests/equivalence/fast_ranks.sh
}

stage_ipc() {
    script ipc tests/equivalence/ipc_ranks.sh
}

# One GPU has nobody to send to.
stage_nccl() {
    local gpus
    [ -e "$BUILD/comm_nccl.so" ] ||
        { cannot "make found no nccl.h, or no nvcc"; return; }
    if [ -z "$EMULATED" ]; then
        gpus=$(nvidia-smi -L 2>/dev/null | grep -c .)
        [ "$gpus" -ge 2 ] || { cannot "there are $gpus GPUs, 2 are needed"; return; }
    fi
    script nccl tests/equivalence/nccl_ranks.sh
}

stage_train() {
    train on_gpu --set device=cuda ||
        { not_good $? "on the GPU" on_gpu.log; return; }
    train in_graphs --set device=cuda --set device_graphs=true ||
        { not_good $? "in graphs" in_graphs.log; return; }
    within "$lockstep" compare on_gpu in_graphs >compare.log 2>&1 ||
        { not_good $? "other weights in graphs" compare.log; return; }
    train on_cpu --set device=cpu ||
        { not_good $? "on the CPU" on_cpu.log; return; }
    within "$lockstep" compare on_gpu on_cpu >compare.log 2>&1 ||
        { not_good $? "other weights" compare.log; return; }
    cmp -s <(grep -o '"loss": [^,]*' on_gpu/metrics.jsonl) \
        <(grep -o '"loss": [^,]*' on_cpu/metrics.jsonl) ||
        { fails "other losses"; return; }
    figure train.steps_equal "$steps" steps
}

# timed NAME ARGUMENT...: milliseconds of a step of `bench step`.
timed() {
    local name=$1 code
    shift
    within "$lockstep" bench step --device cuda "$@" --json \
        >"$details/bench.$name.json" 2>"$details/bench.$name.log"
    code=$?
    if is_late $code; then
        echo "    not run: bench.$name: no time"
        late="$late $name"
        return
    elif [ $code -ne 0 ]; then
        echo "    FAILED bench.$name"
        tail -n 4 "$details/bench.$name.log" | cut -c 1-300 | sed 's/^/        /'
        wrong="$wrong $name"
        return
    fi
    figure "bench.$name.ms" "$(of_json step_ms "$details/bench.$name.json")" ms
    figure "bench.$name.tokens_per_s" \
        "$(of_json tokens_per_s "$details/bench.$name.json")" tokens/s
    figure "bench.$name.first_step_s" \
        "$(of_json first_step_s "$details/bench.$name.json")" s
    figure "bench.$name.planned" \
        "$(of_json planned_bytes "$details/bench.$name.json")" bytes
    # Ceilings of this run: none with graphs, where kernels have no times.
    ! grep -q '"bound_fraction"' "$details/bench.$name.json" || {
        figure "bench.$name.products" \
            "$(of_json product_gflops "$details/bench.$name.json")" GFLOP/s
        figure "bench.$name.memory" \
            "$(of_json memory_gbytes_per_s "$details/bench.$name.json")" GB/s
        figure "bench.$name.of_bound" \
            "$(of_json bound_fraction "$details/bench.$name.json")" "of 1"
    }
}

# Whether all were timed.
timed_all() {
    [ -z "$wrong" ] || { fails "bench step:$wrong"; return; }
    [ -z "$late" ] || cannot "no time for$late"
}

of_json() { # KEY FILE
    sed -n 's/^  "'"$1"'": \([0-9.e+-]*\),*$/\1/p' "$2"
}

# shellcheck disable=SC2086
stage_bench() {
    local wrong= late=
    timed fast $fast --dtype bfloat16 --gpu fast
    timed fast_own_attention $fast --dtype bfloat16 --gpu fast --attention own
    timed fast_graphs $fast --dtype bfloat16 --gpu fast --graphs
    timed exact_float32 $exact
    timed exact_float32_graphs $exact --graphs
    timed exact_bfloat16 $exact --dtype bfloat16
    timed fast_tf32 $exact --gpu fast
    timed_all
}

# Names of kernels, calls and milliseconds; the whole table is in the details.
# shellcheck disable=SC2086
stage_profile() {
    within "$lockstep" bench step --device cuda $fast --dtype bfloat16 \
        --gpu fast >"$details/profile.txt" 2>profile.log ||
        { not_good $? "bench step" profile.log; return; }
    head -n 24 "$details/profile.txt" | cut -c 1-110 | sed 's/^/    /'
    figure profile.rows "$(grep -c . "$details/profile.txt")" rows
}

# has_peer: PyTorch with a GPU.
has_peer() {
    local code
    [ -z "$EMULATED" ] || { cannot "PyTorch needs a GPU (EMULATED=1)"; return; }
    within python3 -c '
import torch
if not torch.cuda.is_available(): raise SystemExit(
    "PyTorch " + torch.__version__ + " finds no GPU")' 2>peer.log
    code=$?
    ! is_late $code || { cannot "no time: python3"; return; }
    [ $code -eq 0 ] || cannot "python3: $(tail -n 1 peer.log)"
}

# peer NAME MODEL MODE BATCH LENGTH: milliseconds of a step of PyTorch.
peer() {
    local name=$1 ms
    printf '3\n10\n' | within python3 "$tree/benchmarks/peer_torch.py" \
        "$2" autocast "$3" 8 "$4" "$5" cuda \
        >"$details/peer.$name.json" 2>"$details/peer.$name.log" || return
    ms=$(sed -n 's/.*"step_ms": \[\(.*\)\].*/\1/p' "$details/peer.$name.json" |
        tail -n 1 | tr -d ' ' | tr ',' '\n' | sort -g |
        awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }')
    figure "peer.$name.ms" "$ms" ms
    figure "peer.$name.tokens_per_s" "$(awk -v ms="${ms:-0}" -v n=$(($4 * $5)) \
        'BEGIN { if (ms > 0) printf "%.0f", 1e3 * n / ms }')" tokens/s
    figure "peer.$name.peak" "$(sed -n 's/.*"peak_mb": \([0-9.]*\).*/\1/p' \
        "$details/peer.$name.json")" MiB
}

# The same model, batch and length, by PyTorch.
stage_peer() {
    local mode
    has_peer || return
    for mode in eager compile; do
        peer $mode gpt2-124m $mode 64 1024 ||
            { not_good $? "PyTorch, $mode" "$details/peer.$mode.log"; return; }
    done
}

# Few tokens at once, and larger models; what there is no time for is left out.
stage_larger() {
    local name model batch length steps with=yes wrong= late=
    [ -z "$EMULATED" ] || { cannot "it needs a GPU (EMULATED=1)"; return; }
    has_peer || with=
    while read -r name model batch length steps; do
        timed "$name" --model "$model" --batch "$batch" --micro-batch "$batch" \
            --length "$length" --steps "$steps" --dtype bfloat16 --gpu fast \
            --graphs </dev/null
        [ -z "$with" ] || peer "$name" "$model" compile "$batch" "$length" ||
            echo "    not run peer.$name"
    done <<'END'
few_tokens gpt2-124m 4 1024 20
llama_1b llama-1b 8 4096 3
gpt2_1.5b gpt2-1.5b 16 1024 3
END
    timed_all
}

# Each kernel's span names its instruction and lasts some time.
stage_trace() {
    local spans products
    train traced --set device=cuda --trace trace.json ||
        { not_good $? "train --trace" traced.log; return; }
    spans=$(grep '"ph":"X"' trace.json | grep '"tid":2,' |
        grep -c '"instruction":[0-9]')
    [ "$spans" -gt 0 ] || { fails "the trace has no kernels"; return; }
    products=$(grep '"ph":"X"' trace.json | grep -c '"name":"matmul')
    cp trace.json "$details"
    figure trace.kernels "$spans" spans
    figure trace.products "$products" spans
}

stage_memory() {
    within "$lockstep" plan config.yaml --set device=cuda --explain memory \
        >plan.log 2>&1 || { not_good $? "plan" plan.log; return; }
    grep -q 'what kernels are told' plan.log ||
        { fails "the plan does not list what kernels are told" plan.log; return; }
    cp plan.log "$details"
    figure memory.rows "$(grep -c . plan.log)" rows
}

stage_sanitizer() {
    local tool
    [ -z "$EMULATED" ] ||
        { cannot "compute-sanitizer needs a GPU (EMULATED=1)"; return; }
    tool=$(command -v compute-sanitizer) ||
        { cannot "there is no compute-sanitizer"; return; }
    rm -rf checked
    within "$tool" --error-exitcode 9 "$lockstep" train config.yaml \
        --run checked --set train.steps=1 --set train.batch=2 \
        --set model.layers=1 --set data.sequence=64 --set device=cuda \
        >"$details/sanitizer.log" 2>&1 ||
        { not_good $? "compute-sanitizer" "$details/sanitizer.log"; return; }
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
details=$room/details
mkdir "$details"
trap 'rm -rf "$room"' EXIT
cd "$room" || exit 1
for stage in $STAGES; do
    case " $all " in *" $stage "*) ;; *) echo "no stage $stage; there are: $all"; exit 1 ;; esac
done
prepare
[ -n "$EMULATED" ] && [ "$EMULATED" = "$BUILD/tests/driver" ] || find_libraries
left_stages=$STAGES
while [ -n "${left_stages// /}" ]; do
    read -r stage left_stages <<<"$left_stages"
    began=$SECONDS why=
    left=$((BUDGET - SECONDS))
    end=$((SECONDS + (most[$stage] < left ? most[$stage] : left)))
    if [ $left -gt 0 ]; then "stage_$stage"
    else cannot "$BUDGET s are over"
    fi
    case $? in
    0) passed=$((passed + 1)) said="passed $stage ($((SECONDS - began)) s)" ;;
    2) not_run=$((not_run + 1)) said="not run $stage: $why" ;;
    *)
        failed=$((failed + 1)) said="failed $stage: $why"
        [ "$stage" != step ] || [[ " $left_stages " != *" sanitizer "* ]] ||
            left_stages="sanitizer ${left_stages/sanitizer/}"
        ;;
    esac
    echo "$said"
    summary+="$said"$'\n'
    printf '== %s\n%s' "$gpu" "$summary" >"$OUT/summary.txt"
    tar -czf "$OUT/details.tar.gz" -C "$room" details
done
cat "$OUT/summary.txt"
echo "$passed passed, $failed failed, $not_run not run, $SECONDS s; $figures"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
