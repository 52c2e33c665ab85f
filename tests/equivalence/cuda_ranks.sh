#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cuda_ranks.sh - the device cuda trains the bits of the device cpu: losses,
# gradients, weights and moments of models of several kinds on every axis,
# whole runs that go on on the other device, and other commands; and what cuda
# does not have is refused in one sentence.
#
#     BUILD=build [REAL=1] [ONLY=PATTERN] tests/equivalence/cuda_ranks.sh
#
# Kernels run under the emulator of the driver in tests/driver, late and early,
# or, with THIRD=2/3, one model late and the next one early, in turns;
# with REAL=1 on this machine's GPUs. ONLY: only models whose names contain a
# match (grep -E), and the rest of it if "runs" has one.
. "${0%/*}/../drills/common.sh"
prepare
echo "device: cpu" >>config.yaml

if [ -n "${REAL:-}" ]; then ways=gpu
else
    ways="late early"
    export LD_LIBRARY_PATH=$BUILD/tests/driver GPUS=2
fi

# all_exact NAME ARGUMENT...: every layout of layouts.txt, on cuda. Layouts are
# held against one rank on the CPU.
all_exact() {
    local name=$1 rows found
    shift
    grep -qE "${ONLY:-.}" <<<"$name" || return 0
    models=$((models + 1))
    [ -z "${THIRD:-}" ] || [ "$way" = gpu ] ||
        [ $(((models + ${THIRD%/*}) % 2)) -eq "$([ "$way" = late ]; echo $?)" ] ||
        return 0
    sed -i 's/$/ device=cuda/' layouts.txt
    rows=$(grep -c . layouts.txt)
    LIMIT=600 lockstep verify config.yaml --layouts layouts.txt \
        --steps $steps --set train.steps=$steps --set comm.limit=100 \
        --set train.threads=1 \
        --set data.sequence=24 --set numerics.grid_tensor=2 \
        "$@" >out 2>&1 || { bad "$name, $way" "exit $?" out; return; }
    found=$(grep -c 'device=cuda .*EXACT *$' out)
    if [ "$found" -eq "$rows" ]
    then ok "$name, $way: $rows layouts"
    else bad "$name, $way" "$found of $rows rows are exact" out
    fi
}

few() {
    printf '%s\n' "ranks=1" "ranks=2 mesh.data=2 zero=zero1" \
        "ranks=2 mesh.tensor=2" "ranks=2 mesh.pipe=2" >layouts.txt
}

one() {
    echo "ranks=1" >layouts.txt
}

steps=2
latent="--set model.kv_heads=0 --set model.head_width=0 --set mla.rank=16
    --set mla.nope=8 --set mla.rope=4 --set mla.value=6 --set moe.experts=4
    --set moe.top_k=2 --set moe.groups=1 --set moe.groups_chosen=1"
experts="--set moe.experts=4 --set moe.top_k=2"
# shellcheck disable=SC2086
for way in $ways; do
    export LOCKSTEP_DRIVER=$way
    models=0
    # Once with the check of lives, and once as a run is.
    export LOCKSTEP_CHECK=
    [ $way = late ] || LOCKSTEP_CHECK=lives:late
    printf '%s\n' "ranks=1" "ranks=1 train.micro_batch=1 train.threads=3" \
        "ranks=1 train.recompute=block train.logits_chunk=100" \
        "ranks=2 mesh.data=2" "ranks=4 mesh.data=4 zero=zero1" \
        "ranks=2 mesh.data=2 zero=zero2" \
        "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
        "ranks=2 mesh.shard=2 zero=fsdp fsdp.reshard=false" \
        "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp" \
        "ranks=2 mesh.tensor=2" "ranks=2 mesh.tensor=2 tensor.overlap=2" \
        "ranks=2 mesh.pipe=2" \
        "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
        "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
        "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 zero=zero1 schedule.name=zb-h1" \
        >layouts.txt
    all_exact "llama" --set model.layers=4 --set model.tied=true \
        --set model.vocab=303
    printf '%s\n' "ranks=1" "ranks=2 mesh.data=2 zero=zero2" \
        "ranks=4 mesh.shard=4 zero=fsdp" \
        "ranks=2 mesh.tensor=2 tensor.overlap=2" \
        "ranks=2 mesh.pipe=2 schedule.name=zb-h1" >layouts.txt
    sed -i 's/$/ device_graphs=true/' layouts.txt
    all_exact "graphs" --set train.micro_batch=1 --set model.dropout=0.1
    # After 8 steps graphs have been told what differs.
    echo "ranks=1 device_graphs=true" >layouts.txt
    steps=8 all_exact "graphs that are told" --set model.layers=1
    few
    all_exact "llama, bfloat16 in pairs" --set train.dtype=bfloat16
    few
    all_exact "llama, bfloat16 in tiles" --set train.dtype=bfloat16 \
        --set numerics.bfloat16=tiles --set model.tied=true
    one
    all_exact "gemma2, float16" --set model.family=gemma2 \
        --set train.dtype=float16
    one
    all_exact "recipe mxfp8" --set train.dtype=bfloat16 \
        --set numerics.high_last=0 --set numerics.recipe=mxfp8
    printf '%s\n' "ranks=1" "ranks=2 mesh.data=2 zero=fsdp" >layouts.txt
    all_exact "an accumulator of 14 bits" --set train.dtype=bfloat16 \
        --set numerics.high_last=0 --set numerics.recipe=fp8-tiles \
        --set numerics.accumulator=14:32:128
    one
    all_exact "an accumulator, experts" --set model.family=mixtral \
        --set moe.experts=4 --set train.dtype=bfloat16 \
        --set numerics.high_last=0 --set numerics.recipe=fp8-tiles \
        --set numerics.accumulator=14:32:128
    printf '%s\n' "ranks=1" "ranks=2 mesh.expert=2" >layouts.txt
    all_exact "mixtral, bfloat16" --set model.family=mixtral \
        --set moe.experts=4 --set train.dtype=bfloat16
    few
    all_exact "gpt2" --set model.family=gpt2 --set model.kv_heads=0 \
        --set model.dropout=0.1
    few
    all_exact "qwen3, qk norm" --set model.family=qwen3
    few
    all_exact "gemma2, caps and norms plus one" --set model.family=gemma2
    printf '%s\n' "ranks=1" "ranks=2 mesh.context=2" \
        "ranks=2 mesh.context=2 context.kind=ulysses" \
        "ranks=4 mesh.context=2 mesh.data=2 zero=fsdp" \
        "ranks=4 mesh.context=2 mesh.tensor=2" >layouts.txt
    all_exact "context ranks" --set numerics.grid_context=2
    printf '%s\n' "ranks=2 mesh.context=2 context.kind=ring" >layouts.txt
    all_exact "context ranks in a ring" --set numerics.grid_context=2 \
        --set data.sequence=512 --set model.layers=1 --set train.batch=2 \
        --set train.micro_batch=1
    few
    all_exact "modules for later tokens" --set mtp.depth=2
    one
    all_exact "adapters" --set lora.rank=2
    printf '%s\n' "ranks=1 train.micro_batch=1" \
        "ranks=2 mesh.data=2 zero=zero2 train.micro_batch=1" \
        "ranks=2 mesh.pipe=2" >layouts.txt
    all_exact "integer sums" --set numerics.sums=integer --set model.tied=true
    few
    all_exact "muon, an average" --set optimizer.name=muon \
        --set optimizer.ema=0.9
    for name in sgd lion adamw; do
        one
        all_exact "$name" --set optimizer.name=$name
    done
    one
    all_exact "schedule_free" \
        --set optimizer.name=schedule_free --set optimizer.schedule=constant
    few
    all_exact "adamw, states of 8 bits" --set optimizer.state_dtype=int8
    few
    all_exact "split masters" --set train.dtype=bfloat16 \
        --set optimizer.masters=split --set optimizer.ema=0.9
    one
    all_exact "split masters, lion, states of 16 bits" \
        --set train.dtype=bfloat16 --set optimizer.masters=split \
        --set optimizer.name=lion --set optimizer.state_dtype=bfloat16
    few
    all_exact "soap" --set optimizer.name=soap --set optimizer.frequency=2
    one
    all_exact "adafactor, clipped scores" --set optimizer.name=adafactor \
        --set optimizer.schedule=constant --set optimizer.qk_clip=0.05
    few
    all_exact "gpt_oss, sinks" --set model.family=gpt_oss $experts
    few
    all_exact "mixtral, dropped tokens" --set model.family=mixtral \
        --set moe.experts=4 --set moe.capacity_factor=0.8
    few
    all_exact "glm4_moe, biases of the choice" --set model.family=glm4_moe \
        $experts --set moe.bias_rate=0.01
    printf '%s\n' "ranks=2 mesh.expert=2" \
        "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp train.micro_batch=1 moe.rows_bound=0.5" \
        "ranks=2 mesh.expert=2 moe.rows_bound=0.01 train.recompute=block" \
        "ranks=4 mesh.expert=2 mesh.tensor=2 tensor.overlap=2" \
        "ranks=2 mesh.expert=2 mesh.expert_tensor=2" \
        "ranks=4 mesh.expert=2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe" \
        "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=two_level" \
        "ranks=2 mesh.context=2 mesh.expert_context=true" >layouts.txt
    all_exact "expert ranks" --set model.family=mixtral --set moe.experts=4 \
        --set model.layers=4 --set numerics.grid_context=2
    few
    all_exact "latent attention" $latent --set model.family=deepseek_v2
done
unset LOCKSTEP_CHECK
grep -qE "${ONLY:-.}" <<<runs || report

# ---- whole runs ----

# alike NAME RUN: the run equals `whole`, which the CPU made.
alike() {
    if ! lockstep compare whole "$2" >out 2>&1; then
        bad "$1" "compare: other weights or states" out
    elif same_run whole "$2"; then ok "$1"
    else bad "$1" "$why" log
    fi
}

run="--set train.steps=6 --set checkpoint.every=2 --set optimizer.schedule=constant
    --set validate.every=2 --set data.sequence=24 --set optimizer.warmup=1"
# shellcheck disable=SC2086
{
must train config.yaml --run whole $run
for way in $ways; do
    export LOCKSTEP_DRIVER=$way
    must train config.yaml --run cuda $run --set device=cuda
    alike "a run, $way" cuda
    rm -rf cuda
    must train config.yaml --run cuda $run --set train.steps=2
    must resume cuda --set train.steps=4 --set device=cuda
    must resume cuda --set train.steps=6 --set device=cpu
    alike "a run from the CPU to the GPU and back, $way" cuda
    rm -rf cuda
    must train config.yaml --run cuda $run --set device=cuda --ranks 2 \
        --set zero=zero1 --set checkpoint.async=true
    alike "a run of two ranks, $way" cuda
    rm -rf cuda
    must train config.yaml --run cuda $run --set device=cuda --ranks 2 \
        --supervised --set zero=fsdp --set mesh.shard=2
    alike "a run of two processes, $way" cuda
    rm -rf cuda
done
}

# ---- device: auto ----

# takes NAME SENTENCE ARGUMENT...: a run of device=auto says what it took, also
# in its log, and equals `whole`.
takes() {
    local name=$1 sentence=$2
    shift 2
    rm -rf cuda
    must train config.yaml --run cuda --set device=auto "$@"
    if ! grep -qF "device    $sentence" log; then
        bad "$name" "does not say: $sentence" log
    elif ! grep -qF "device ${sentence%% *}, chosen: " cuda/log.txt; then
        bad "$name" "the run does not record it" cuda/log.txt
    else
        alike "$name" cuda
    fi
}

# shellcheck disable=SC2086
if [ -z "${REAL:-}" ]; then
    takes "auto takes a GPU" "cuda (auto: a test, compute capability 9.0" $run
    takes "auto, two processes" "cuda (auto: a test" $run --ranks 2 \
        --supervised --set zero=zero1
    GPUS=0 takes "auto without a GPU" \
        "cpu (auto: there is a driver, but no GPU)" $run
    BROKEN=1 takes "auto, a GPU that loads no kernels" \
        "cpu (auto: a test does not load the kernels: the driver" $run
    LD_LIBRARY_PATH='' takes "auto without a driver" \
        "cpu (auto: there is no driver: libcuda.so.1 cannot be opened)" $run
    rm -rf cuda
    must train config.yaml --run cuda $run --set train.steps=2 \
        --set device=auto
    GPUS=0 must resume cuda --set train.steps=6
    alike "auto from the GPU to a machine without" cuda
    rm -rf cuda
    must train config.yaml --run cuda $run --set train.steps=1 \
        --set device=auto --set train.dtype=float64
    if grep -qF "device    cpu (auto: cuda has no kernel yet for" log
    then ok "auto, types without kernels"
    else bad "auto, types without kernels" "does not say so" log
    fi
fi

# ---- memory, and times of kernels ----

# used NAME ARGUMENT...: the driver gave, or pinned, as many bytes as the plan
# says, and got back all that it gave.
used() {
    local name=$1 planned found
    shift
    planned=$(lockstep plan config.yaml --set device=cuda "$@" --json 2>log |
        grep -A1 '"what": "memory"' | sed -n 's/.*"value": \([0-9]*\).*/\1/p')
    rm -rf cuda counts
    DRIVER_COUNTS=$PWD/counts must train config.yaml --run cuda \
        --set device=cuda "$@"
    found=$(sed -n 's/.* left 0 bytes //p' counts)
    if [ -n "$planned" ] && [ "$planned" = "$found" ]
    then ok "$name: $found bytes, as planned"
    else bad "$name" "planned: $planned bytes, used: $found"
    fi
}

if [ -z "${REAL:-}" ]; then
    export LOCKSTEP_DRIVER=late
    used "memory" --set train.steps=1
    used "memory, long sequences" --set train.steps=1 \
        --set data.sequence=2048 --set train.batch=1 --set train.micro_batch=1 \
        --set validate.every=0 --set model.layers=1
    # A step, once all graphs are made, takes no memory, and waits for each
    # micro-batch's losses and for the norm.
    asked() { # STEPS
        rm -rf cuda counts
        DRIVER_COUNTS=$PWD/counts must train config.yaml --run cuda \
            --set device=cuda --set device_graphs=true --set train.steps="$1" \
            --set validate.every=0 --set checkpoint.every=0
        grep -oE '(calls|stops|taken|launches) [0-9]+' counts
    }
    asked 10 >before
    asked 14 >after
    found=$(paste before after | awk '{ print $1, ($4 - $2) / 4 }' | xargs)
    if grep -qE '^launches [0-9.]+ calls ([1-9]|1[0-9])(\.[0-9]+)? stops 3 taken 0$' \
        <<<"$found"
    then ok "a step with graphs: $found"
    else bad "a step with graphs" "$found"
    fi
    # The driver of tests takes 64 KiB for a graph and 256 bytes for a node.
    said=$(sed -n 's/.* \([0-9]*\) CUDA graphs of \([0-9]*\) nodes; .* lost \(.*\) of unused memory, which is not planned.*/\1 \2 \3/p' cuda/log.txt)
    planned=$(awk '{ kib = 64 * $1 + $2 / 4
        printf kib < 1023.95 ? "%.1f KiB" : "%.1f MiB", kib < 1023.95 ? kib : kib / 1024 }' <<<"$said")
    lockstep plan config.yaml --set device=cuda --set device_graphs=true \
        >out 2>log
    if [ "${said#* * }" = "$planned" ] && [ "${said%% *}" -ge 3 ] &&
        grep -q 'foreign memory of graphs *unknown *not planned' out
    then ok "a run says what graphs take: $said"
    else bad "memory of graphs" "the log: $said, the driver: $planned" out
    fi
    # waits NUMBER SETTING...: so often the host waits in a step, without
    # graphs, on all ranks together, and nothing is made. One GPU, so that ipc
    # has threads that read each other.
    waits() {
        local most=$1 steps found words=() setting
        shift
        for setting; do
            case $setting in
            ranks=*) words+=(--ranks "${setting#*=}") ;;
            *) words+=(--set "$setting") ;;
            esac
        done
        found=$(for steps in 2 4; do
            rm -rf cuda counts
            GPUS=1 DRIVER_COUNTS=$PWD/counts must train config.yaml \
                --run cuda --set device=cuda --set train.steps=$steps \
                --set validate.every=0 --set checkpoint.every=0 \
                --set data.sequence=24 "${words[@]}"
            grep -oE '(stops|taken) [0-9]+' counts | xargs
        done | awk '{ stops = $2 - stops; taken = $4 - taken }
            END { print stops / 2, taken }')
        if awk -v n="$most" '{ exit !($1 >= n && $1 < n + 1 && $2 == 0) }' \
            <<<"$found"
        then ok "a step of $*: $most waits, nothing made"
        else bad "a step of $*" "$found waits and things made, planned: $most 0"
        fi
    }
    sed -n '/^| what is set /,/^$/s/^| `\(.*\)` | \([0-9]*\) |$/\2 \1/p' \
        "$tree/docs/devices.md" >planned
    [ "$(wc -l <planned)" -ge 25 ] ||
        bad "docs/devices.md" "its table of waits was not found" planned
    # shellcheck disable=SC2086
    while read -r number settings; do waits "$number" $settings; done <planned
    lockstep plan config.yaml --set device=cuda >out 2>log
    if grep -q 'foreign memory *300.0 MiB *not planned' out
    then ok "the plan has foreign memory on a line of its own"
    else bad "foreign memory" "the plan does not have it" out
    fi
    # 51 products that last 5 ms each at least, by the GPU's clock. So do those
    # that are their limit, and an addition in the GPU's memory.
    LAUNCH_US=5000 lockstep bench step --device cuda --model llama-1m \
        --batch 1 --length 16 --steps 1 --json >out 2>log
    took=$(grep -A4 '"kind": "matmul"' out | sed -n 's/.*"ms": \([0-9.]*\).*/\1/p' |
        head -n 1)
    limit=$(grep -A8 '"kind": "matmul"' out |
        sed -n 's/.*"limit_ms": \([0-9.]*\).*/\1/p' | head -n 1)
    memory=$(sed -n 's/.*"memory_gbytes_per_s": \([0-9.e-]*\).*/\1/p' out)
    if grep -q '"device": "cuda"' out && grep -q '"bound_fraction": 0' out &&
        awk -v ms="${took:-0}" -v limit="${limit:-0}" -v memory="${memory:-9}" '
            BEGIN { exit !(ms >= 255 && limit >= 255 && limit <= 1.2 * ms &&
                           memory > 0 && memory < 1.1) }'
    then ok "bench step: products took $took ms of the GPU, at best $limit"
    else bad "bench step" "products took ${took:-no} ms of the GPU, at best ${limit:-no}; memory ${memory:-no} GB/s" out
    fi
    lockstep bench step --device cuda --model llama-1m --batch 1 --length 16 \
        --steps 1 --graphs --json >out 2>log
    if grep -q '"graphs": true' out && ! grep -q bound_fraction out
    then ok "bench step: no bound with graphs"
    else bad "bench step" "kernels in graphs have limits" out
    fi
    # A GPU with room for the step and too little for operands beside it: there
    # is one between none for the step and enough for both.
    low=0 high=$((64 << 20)) found=
    while [ $((high - low)) -gt $((64 << 10)) ] && [ -z "$found" ]; do
        bytes=$(((low + high) / 2))
        if ! GPU_BYTES=$bytes lockstep bench step --device cuda \
            --model llama-1m --batch 1 --length 16 --steps 1 --json >out 2>log
        then low=$bytes
        elif grep -q '"bound_missing"' out; then found=$bytes
        else high=$bytes
        fi
    done
    if [ -n "$found" ] && grep -q '"bound_missing": "GPU 0 has no' out &&
        grep -q '"step_ms": [0-9]' out && ! grep -q bound_fraction out &&
        GPU_BYTES=$found lockstep bench step --device cuda --model llama-1m \
            --batch 1 --length 16 --steps 1 >out 2>log &&
        grep -q '^bound *not measured: GPU 0 has no' out
    then ok "bench step: no bound where $found bytes hold no operands"
    else bad "bench step" "no sentence where operands do not fit" out
    fi
    # Each kernel lasts 2 ms at least; to start one takes less.
    rm -rf cuda
    LAUNCH_US=2000 must train config.yaml --run cuda --set train.steps=3 \
        --set validate.every=0 --set device=cuda --trace trace.json
    spans=$(grep '"ph":"X"' trace.json | grep '"tid":2,')
    short=$(sed -n 's/.*"dur":\([0-9]*\)\..*/\1/p' <<<"$spans" |
        awk '$1 < 2000' | grep -c .)
    joined=$(grep -c '"instruction":[0-9]' <<<"$spans")
    if [ "$joined" -gt 100 ] && [ "$joined" -eq "$(grep -c . <<<"$spans")" ] &&
        [ "$short" -eq 0 ]
    then ok "a trace has $joined kernels by the GPU's clock"
    else bad "a trace" "$joined kernels with an instruction, $short too short"
    fi
    # An addition of that run moves few bytes in those 2 ms.
    rates=$(sed -n 's/.*"\(memory_bytes\|product_flops\)_per_s": \([0-9.e+]*\).*/\2/p' \
        cuda/profile.json | xargs)
    if awk -v rates="$rates" 'BEGIN { n = split(rates, r, " ")
            exit !(n == 2 && r[1] > 0 && r[1] < 1e9 && r[2] > 0 && r[2] < 1e9) }'
    then ok "a profile has rates of the GPU: $rates"
    else bad "a profile" "rates of the host: $rates"
    fi
fi

# ---- plug-ins of other versions ----

# other NAME SENTENCE: the plug-in in the folder `other` is refused.
other() {
    LOCKSTEP_PLUGINS=$PWD/other expect "$1" 69 "$2" train config.yaml \
        --run no --set device=cuda
}

if command -v cc >/dev/null; then
mkdir other
sed 's/\x00token_sums\x00/\x00token_sumz\x00/g' "$BUILD/device_cuda.so" \
    >other/device_cuda.so
other "a plug-in with another kernel" \
    "is token_sumz, which reads"
echo 'const int lockstep_cuda_plugin[64] = {2, 46};' |
    cc -shared -fPIC -x c -o other/device_cuda.so -
other "an older plug-in" "it has another table of functions"
rm -f other/device_cuda.so
other "no plug-in" "this build has no kernels for GPUs"
else echo "left out: other plug-ins; no cc"
fi

# ---- other commands ----

# prints NAME WORD...: the same bytes on both devices.
prints() {
    local name=$1
    shift
    lockstep "$@" --device cpu >near.out 2>log || bad "$name" "exit $?" log
    for way in $ways; do
        if LOCKSTEP_DRIVER=$way lockstep "$@" --device cuda >far.out 2>log &&
            cmp -s near.out far.out
        then ok "$name, $way"
        else bad "$name, $way" "other bytes, or none" log
        fi
    done
}

prints "text" generate whole --prompt ba --tokens 20
# shellcheck disable=SC2086
must train config.yaml --run latent $latent --set model.family=deepseek_v2 \
    --set train.steps=3 --set validate.every=0 --set checkpoint.every=0
long="ba la ba ka ba la ba ka ba la ba ka ba la ba ka ba la ba ka ba la"
for type in float32 bfloat16; do
    prints "text over latents, $type" generate latent --prompt "$long" \
        --cache latent --dtype $type --tokens 4
done
if [ -z "${REAL:-}" ]; then
    for kind in keys latent; do
        DRIVER_COUNTS=$PWD/counts.$kind must generate latent --prompt ba \
            --cache $kind --tokens 4 --device cuda
    done
    found=$(sed -n 's/.*stops \([0-9]*\).*/\1/p' counts.keys counts.latent | xargs)
    if [ -n "$found" ] && [ "${found% *}" = "${found#* }" ]
    then ok "generation over latents waits as often as over keys: ${found% *}"
    else bad "generation over latents" "waits over keys and latents: $found"
    fi
fi
prints "likelihoods" eval whole --task text.jsonl --kind lambada --limit 4 \
    --ranks 2 --out /dev/stdout
echo '[[7, 1, 2], [8, 3, 5]]' >ids.json
prints "losses" score whole --tokens ids.json

# ---- what is not there ----

expect "types that have no kernels are refused" 78 \
    "cuda has no kernel yet for" plan config.yaml --set device=cuda \
    --set train.dtype=float64
if [ -z "${REAL:-}" ]; then
    GPUS=0 expect "no GPU" 69 "there is a driver, but no GPU; take auto or cpu" \
        train config.yaml --run no --set device=cuda
    GPU_BYTES=1000000 expect "too little memory" 71 "GPU 0 has no" \
        train config.yaml --run no --set device=cuda
fi
report
