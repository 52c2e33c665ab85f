#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fast_ranks.sh - numerics.gpu=fast, products by cuBLASLt, attention by cuDNN or by
# own kernels on tensor cores:
# every layout has the bits of one GPU, which is near the CPU; products and
# attention are the libraries'; runs that go on have the bits of whole ones; and
# what is not there ends in one sentence.
#
#     BUILD=build [REAL=1] tests/equivalence/fast_ranks.sh
#
# GPUs, cuBLASLt and cuDNN are those of tests/driver, whose algorithms add in other
# orders, some of which depend on the matrix; with REAL=1 those of this machine.
. "${0%/*}/../drills/common.sh"
prepare
[ -n "${REAL:-}" ] ||
    export LD_LIBRARY_PATH=$BUILD/tests/driver GPUS=4 LOCKSTEP_DRIVER=late
sed -i '/^device:/d' config.yaml
echo "device: cuda" >>config.yaml

# alike NAME LEAST ARGUMENT...: every layout of layouts.txt has the bits of one
# rank, the CPU is near and has others, and the library made LEAST products.
alike() {
    local name=$1 least=$2 rows exact made
    shift 2
    rows=$(grep -c . layouts.txt)
    rm -f counts
    { cat layouts.txt; echo "ranks=1 device=cpu"; } >used.txt
    LT_COUNTS=$PWD/counts LIMIT=200 lockstep verify config.yaml \
        --layouts used.txt --steps 2 --set comm.limit=60 \
        --set train.threads=1 --set data.sequence=24 --set numerics.gpu=fast \
        --set train.steps=2 "$@" >out 2>&1 || { bad "$name" "exit $?" out; return; }
    exact=$(grep 'EXACT *$' out | grep -vc '^ranks=1 *-')
    made=$(sed -n 's/products \([0-9]*\).*/\1/p' counts 2>/dev/null)
    if [ "$exact" -ne "$rows" ]; then
        bad "$name" "$exact of $rows rows are exact" out
    elif ! grep -q 'device=cpu .* 0\.001 .*holds' out; then
        bad "$name" "the CPU has the same bits, or is far" out
    elif [ -z "${REAL:-}" ] && [ "${made:-0}" -lt "$least" ]; then
        bad "$name" "the library made ${made:-no} products, at least $least"
    else
        ok "$name: $rows layouts, ${made:-?} products"
    fi
}

printf '%s\n' "ranks=1 train.micro_batch=1" \
    "ranks=1 train.recompute=block train.logits_chunk=100" \
    "ranks=4 mesh.data=4 zero=zero1" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
    "ranks=1 train.micro_batch=1 device_graphs=true" \
    "ranks=2 mesh.tensor=2" "ranks=2 mesh.tensor=2 tensor.overlap=2" \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
    "ranks=4 mesh.context=2 mesh.tensor=2" >layouts.txt
alike "llama, bfloat16" 2000 --set train.dtype=bfloat16 --set model.layers=4 \
    --set numerics.grid_tensor=2 --set numerics.grid_context=2
# Tensor ranks have rows that begin anywhere.
LOCKSTEP_DRIVER=early alike "llama, float32, an odd vocabulary" 2000 \
    --set model.vocab=303 --set model.layers=4 \
    --set numerics.grid_tensor=2 --set numerics.grid_context=2
printf '%s\n' "ranks=2 mesh.data=2 zero=zero2" "ranks=2 mesh.tensor=2" \
    "ranks=2 mesh.pipe=2" >layouts.txt
alike "gpt2, float16" 500 --set model.family=gpt2 --set model.kv_heads=0 \
    --set train.dtype=float16 --set numerics.grid_tensor=2
alike "adapters, muon" 500 --set lora.rank=2 --set optimizer.name=muon
# A leaf has a form that the library does not make: our own kernels do.
LT_NONE=24 alike "no algorithm for sums over tokens" 300 \
    --set train.dtype=bfloat16 --set numerics.grid_tensor=2
printf '%s\n' "ranks=2 mesh.expert=2" "ranks=2 mesh.data=2" >layouts.txt
alike "mixtral, experts by our own kernels" 300 --set model.family=mixtral \
    --set moe.experts=4 --set train.dtype=bfloat16
# Attention by cuDNN, whose graphs of one sequence no layout cuts: heads that
# share keys, documents, windows. One rank has no layer of attention.
printf '%s\n' "ranks=1 train.micro_batch=1" \
    "ranks=1 train.recompute=block device_graphs=true" \
    "ranks=2 mesh.shard=2 zero=fsdp train.micro_batch=1" \
    "ranks=2 mesh.tensor=2" \
    "ranks=2 mesh.pipe=2 mesh.layers=[4,0]" \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" >layouts.txt
heads="--set model.head_width=8 --set train.dtype=bfloat16
    --set numerics.grid_tensor=2 --set model.layers=4"
# attended NAME LEAST ARGUMENT...: alike, by at least LEAST calls of cuDNN.
attended() {
    local name=$1 least=$2 made
    shift 2
    rm -f attended
    # shellcheck disable=SC2086
    DNN_COUNTS=$PWD/attended alike "$name" 300 $heads "$@"
    made=$(sed -n 's/calls \([0-9]*\).*/\1/p' attended 2>/dev/null)
    [ -n "${REAL:-}" ] || [ "${made:-0}" -ge "$least" ] ||
        bad "$name" "cuDNN has ${made:-no} calls, at least $least"
}
attended "attention by cuDNN" 1000
# By own kernels on tensor cores, which have more.
# shellcheck disable=SC2086
{
alike "attention on tensor cores" 300 $heads --set numerics.attention=flash
printf '%s\n' "ranks=1 train.micro_batch=1" "ranks=2 mesh.tensor=2" >layouts.txt
alike "attention on tensor cores, soft caps and windows" 300 $heads \
    --set numerics.attention=flash --set model.family=gemma2 \
    --set model.window=7
alike "attention on tensor cores, a group of heads in two leaves" 300 $heads \
    --set numerics.attention=flash --set model.kv_heads=1
printf '%s\n' "ranks=2 mesh.context=2" \
    "ranks=2 mesh.context=2 context.kind=ulysses train.micro_batch=1" \
    "ranks=2 mesh.tensor=2" >layouts.txt
alike "attention on tensor cores, of sequences that ranks cut" 300 $heads \
    --set numerics.attention=flash --set numerics.grid_context=2
printf '%s\n' "ranks=2 mesh.context=2" "ranks=4 mesh.context=2 mesh.tensor=2" \
    >layouts.txt
alike "attention on tensor cores, a group in two leaves that ranks cut" 300 \
    $heads --set numerics.attention=flash --set numerics.grid_context=2 \
    --set model.kv_heads=1
printf '%s\n' "ranks=1 train.micro_batch=1" "ranks=2 mesh.tensor=2" >layouts.txt
alike "attention on tensor cores, wide heads" 300 $heads \
    --set numerics.attention=flash --set model.head_width=136
echo "ranks=2 mesh.context=2 context.kind=allgather" >>layouts.txt
alike "attention on tensor cores, latent heads of 192 and 128" 300 $heads \
    --set numerics.attention=flash --set model.family=deepseek_v3 \
    --set numerics.grid_context=2 \
    --set model.head_width=0 --set model.kv_heads=0 --set model.layers=2 \
    --set mla.query_rank=24 --set mla.rank=32 --set mla.nope=128 \
    --set mla.rope=64 --set mla.value=128 --set moe.experts=4 \
    --set moe.top_k=2 --set moe.groups=1 --set moe.groups_chosen=1
}
# Blocks of a ring are merged, so ranks show: numerics.mode=fast allows that.
# By own kernels without tensor cores they would not.
printf '%s\n' "ranks=2 mesh.context=2 context.kind=ring" \
    "ranks=2 mesh.context=2 context.kind=ring train.recompute=block" \
    "ranks=2 mesh.context=2 context.kind=striped" >layouts.txt
# shellcheck disable=SC2086
LIMIT=200 lockstep verify config.yaml --layouts layouts.txt --steps 2 $heads \
    --set comm.limit=60 --set train.threads=1 --set train.steps=2 \
    --set numerics.gpu=fast --set numerics.attention=flash \
    --set numerics.mode=fast --set data.sequence=512 --set model.layers=1 \
    --set train.batch=2 --set train.micro_batch=1 --set model.kv_heads=2 \
    >out 2>&1
if [ "$(grep -c 'context.kind=.* 0\.001 .*holds' out)" -eq 3 ]
then ok "attention on tensor cores, in a ring: near, with other bits"
else bad "attention on tensor cores, in a ring" "not as near as claimed" out
fi
printf '%s\n' "ranks=1 train.micro_batch=1" "ranks=2 mesh.tensor=2" >layouts.txt
# A leaf has a part of the heads that share keys: only forward.
attended "attention by cuDNN, a group of heads in two leaves" 200 \
    --set model.kv_heads=1
attended "attention by cuDNN, windows" 500 --set model.family=mistral \
    --set model.window=7
# Sequences that several products sum.
printf '%s\n' "ranks=1 train.logits_chunk=256" "ranks=2 mesh.tensor=2" \
    >layouts.txt
alike "sequences of 4,352 tokens" 100 --set model.layers=1 \
    --set train.batch=1 --set train.micro_batch=1 \
    --set data.sequence=4352 --set model.width=16 --set model.heads=2 \
    --set model.head_width=8 --set model.window=16 --set model.family=mistral \
    --set model.feed_forward=32 --set numerics.grid_tensor=2

# ---- whole runs ----

run="--set train.steps=4 --set checkpoint.every=2 --set optimizer.schedule=constant
    --set data.sequence=24 --set numerics.gpu=fast --set train.dtype=bfloat16
    --set optimizer.warmup=1 --set train.threads=1"
# shellcheck disable=SC2086
{
must train config.yaml --run whole $run
must train config.yaml --run parts $run --set train.steps=2
must resume parts --set train.steps=4 --ranks 2 --set mesh.tensor=2
}
lockstep compare whole parts >out 2>&1
if grep -q 'tensors of step 4: equal: [1-9]' out; then ok "a run that goes on"
else bad "a run that goes on" "other weights" out
fi
if [ -z "${REAL:-}" ]; then
    if grep -q 'made the products of this run so far' log
    then bad "the same GPU" "it is taken for another one" log
    fi
    LT_VERSION=120805 lockstep resume parts --set train.steps=5 >out 2>&1
    if grep -q 'cuBLASLt 13[.0-9]* with cuDNN 9[.0-9]* on .* made the products of this run so far, and now cuBLASLt 12\.8\.5 with' out
    then ok "another version of the library is told"
    else bad "another version of the library" "no warning" out
    fi
    GPU_NAME="another kind" LT_VERSION=120805 lockstep resume parts \
        --set train.steps=6 >out 2>&1
    if grep -q 'cuBLASLt 12\.8\.5 with .* on a test made the products of this run so far, and now cuBLASLt 12\.8\.5 with .* on another kind does' out
    then ok "another kind of GPU is told"
    else bad "another kind of GPU" "no warning" out
    fi
fi
# The host makes some steps of soap, the first after a start among them: its
# products are of one kind wherever a run was interrupted.
soap="$run --set train.dtype=float32 --set optimizer.name=soap"
# shellcheck disable=SC2086
{
must train config.yaml --run soap $soap
must train config.yaml --run soap_parts $soap --set train.steps=2
must resume soap_parts --set train.steps=4
}
lockstep compare soap soap_parts >out 2>&1
if grep -q 'tensors of step 4: equal: [1-9]' out; then ok "soap that goes on"
else bad "soap that goes on" "other weights" out
fi
# A step in graphs, once all are made: products are in them. It takes no memory,
# and waits for each micro-batch's losses and for the norm.
if [ -z "${REAL:-}" ]; then
    for steps in 8 10; do
        rm -rf graphs counts
        # shellcheck disable=SC2086
        DRIVER_COUNTS=$PWD/counts must train config.yaml --run graphs $run \
            --set device_graphs=true --set train.steps=$steps \
            --set checkpoint.every=0
        grep -oE '(calls|stops|taken) [0-9]+' counts >asked.$steps
    done
    found=$(paste asked.8 asked.10 | awk '{ print $1, ($4 - $2) / 2 }' | xargs)
    if grep -qE '^calls ([1-9]|1[0-9]) stops 3 taken 0$' <<<"$found"
    then ok "a step with products in graphs: $found"
    else bad "a step with products in graphs" "$found"
    fi
fi
# says NAME WORDS ARGUMENT...: who computes attention, in the log of a run.
says() {
    local name=$1 words=$2
    shift 2
    rm -rf said
    # shellcheck disable=SC2086
    lockstep train config.yaml --run said $run --set train.steps=1 "$@" >out 2>&1
    if grep -q "^info train: attention $words" out && [ -s said/metrics.jsonl ]
    then ok "attention $name"
    else bad "attention $name" "the log does not say: $words" out
    fi
}
if [ -z "${REAL:-}" ]; then
    says "by cuDNN" "by cuDNN 9.19.0" $heads
    DNN_VERSION=91500 says "by an old cuDNN" \
        "by own kernels on tensor cores: cuDNN 9.15.0 is too old: 9.15.1 is needed" \
        $heads
    DNN_CREATES=0 says "by a cuDNN that does not work" \
        "by own kernels on tensor cores: cuDNN answers CUDNN_STATUS_NOT_INITIALIZED to its first call" \
        $heads
    # attends WHO: bench step asks the library for attention, or does not.
    attends() {
        rm -f benched
        DNN_COUNTS=$PWD/benched lockstep bench step --device cuda --gpu fast \
            --dtype bfloat16 --attention "$1" --model llama-1m --batch 1 \
            --length 16 --steps 1 --json >out 2>&1 && [ -e benched ]
    }
    if attends cudnn && grep -q 'calls [1-9]' benched
    then ok "bench step with cuDNN"
    else bad "bench step with cuDNN" "it is not called" out
    fi
    if ! attends own && grep -q '"device": "cuda"' out
    then ok "bench step with own attention"
    else bad "bench step with own attention" "cuDNN is called" out
    fi
    expect "bench step with attention of another mode" 2 \
        "--attention cudnn goes with --gpu fast" bench step --device cuda \
        --attention cudnn
fi
says "of narrow heads" "by own kernels: heads whose width is no multiple of 8"
says "by own kernels" "by own kernels: numerics.attention is own" $heads \
    --set numerics.attention=own
mv said own
says "on tensor cores" "by own kernels on tensor cores" $heads \
    --set numerics.attention=flash
mv said flash
says "on tensor cores that is watched" "by own kernels on tensor cores" $heads \
    --set numerics.attention=flash --set observe.layers=1
# losses A B: runs that have the same ones
losses() {
    [ "$(grep -o '"loss":[^,]*' "$1/metrics.jsonl")" = \
        "$(grep -o '"loss":[^,]*' "$2/metrics.jsonl")" ]
}
if losses flash said && ! losses flash own
then ok "attention on tensor cores has bits of its own, watched or not"
else bad "attention on tensor cores" "the bits of others, or others where it is watched"
fi
# Largest scores are those of own kernels; all else stays cuDNN's.
if [ -z "${REAL:-}" ]; then
    says "that is not watched" "by cuDNN 9.19.0" $heads && mv said plain
    says "that is watched" "by cuDNN 9.19.0" $heads --set observe.layers=1
    if [ "$(grep -o '"loss":[^,]*' plain/metrics.jsonl)" = \
        "$(grep -o '"loss":[^,]*' said/metrics.jsonl)" ] &&
        [ "$(grep -o '"loss":[^,]*' own/metrics.jsonl)" != \
            "$(grep -o '"loss":[^,]*' said/metrics.jsonl)" ]
    then ok "watching does not show in the bits"
    else bad "watched attention" "other bits"
    fi
fi
# It has no engine: then our own kernels on tensor cores do it.
if [ -z "${REAL:-}" ]; then
    DNN_NONE=24 says "without an engine" "by cuDNN 9.19.0" $heads
    if losses flash said
    then ok "no engine: the bits of own kernels on tensor cores"
    else bad "no engine" "other bits than own kernels on tensor cores"
    fi
fi
# shellcheck disable=SC2086
lockstep plan config.yaml --set numerics.gpu=fast $heads --set data.sequence=1024 \
    --set model.kv_heads=4 --explain memory >out 2>log
# Scores of 2 heads in bfloat16, a number for each row, 1 MiB, and 256.
if grep -q "room of attention .* $((2 * 1024 * 1024 * 2 + 2 * 1024 * 4 + 1048576 + 256)) bytes" out
then ok "the plan has the room of cuDNN"
else bad "the plan" "no room of cuDNN" out
fi
# shellcheck disable=SC2086
lockstep plan config.yaml --set numerics.gpu=fast $heads --set data.sequence=1024 \
    --set train.micro_batch=1 --set numerics.attention=flash --explain memory \
    >out 2>log
# A number for each row of 4 heads, and 256.
if grep -q "room of attention .* $((1024 * 4 * 4 + 256)) bytes" out
then ok "the plan has the room of attention on tensor cores"
else bad "the plan" "no room of attention on tensor cores" out
fi
lockstep plan config.yaml --set numerics.gpu=fast --explain memory >out 2>log
if grep -q 'room of the library of products *call *[0-9.]* MiB' out
then ok "the plan has the library's room"
else bad "the plan" "no room of the library" out
fi

# ---- what is not there ----

if [ -z "${REAL:-}" ]; then
    mkdir none && cp "$BUILD/tests/driver/libcuda.so.1" none
    : >none/libcublasLt.so.13 # where the system has a real one
    : >none/libcublasLt.so.12
    LD_LIBRARY_PATH=$PWD/none expect "no cuBLASLt" 69 \
        "there is no cuBLASLt: neither libcublasLt.so.13" train config.yaml \
        --run no --set numerics.gpu=fast
    LT_VERSION=110900 expect "an old one" 69 \
        "cuBLASLt 11.9 is too old: 12.0 is needed" train config.yaml \
        --run no --set numerics.gpu=fast
    cat >rank.sh <<'END'
#!/bin/sh
export LT_VERSION=$((130100 - 100 * LOCKSTEP_RANK))
exec "$@"
END
    chmod +x rank.sh
    expect "ranks with two versions" 78 \
        "another library of products or GPU (numerics.gpu=fast) than rank 0: \"cuBLASLt 13.0.0 on" \
        launch --ranks 2 -- ./rank.sh "$program" train \
        config.yaml --run no --set numerics.gpu=fast --set mesh.data=2
    sed -i 's/^export .*/export GPU_NAME="kind $LOCKSTEP_RANK"/' rank.sh
    expect "ranks with two kinds of GPUs" 78 \
        "another library of products or GPU (numerics.gpu=fast) than rank 0: \"cuBLASLt 13.1.0 on kind 1" \
        launch --ranks 2 -- ./rank.sh "$program" train \
        config.yaml --run no --set numerics.gpu=fast --set mesh.data=2
    mkdir without && cp "$BUILD"/tests/driver/lib{cuda,cublasLt}.so.1* without
    : >without/libcudnn.so.9
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$PWD/without expect "no cuDNN" 69 \
        "numerics.attention is cudnn: there is no cuDNN: libcudnn.so.9 cannot be opened" \
        train config.yaml --run no --set numerics.gpu=fast $heads \
        --set numerics.attention=cudnn
    # shellcheck disable=SC2086
    DNN_CREATES=0 expect "a cuDNN that does not work" 69 \
        "numerics.attention is cudnn: cuDNN answers CUDNN_STATUS_NOT_INITIALIZED to its first call" \
        train config.yaml --run no --set numerics.gpu=fast $heads \
        --set numerics.attention=cudnn
    # shellcheck disable=SC2086
    DNN_DENSE=1 expect "an engine that does not take rows of the layout" 69 \
        "engine 6 of cuDNN has attention of 4 heads of 8, and not in rows" \
        train config.yaml --run dense --set numerics.gpu=fast $heads \
        --set numerics.grid_tensor=1
    # shellcheck disable=SC2086
    DNN_FAILS=20 expect "attention that fails" 69 \
        "cuDNN answers CUDNN_STATUS_EXECUTION_FAILED to attention" \
        train config.yaml --run fails --set numerics.gpu=fast $heads
    LT_FAILS=400 expect "a product that fails" 69 \
        "cuBLASLt answers CUBLAS_STATUS_EXECUTION_FAILED to a product" \
        train config.yaml --run no --set numerics.gpu=fast \
        --set train.steps=2
fi
expect "another name" 78 "numerics.gpu: quick is not exact or fast" plan \
    config.yaml --set numerics.gpu=quick
expect "another name of attention" 78 "numerics.attention: fast is not auto, own, cudnn or flash" \
    plan config.yaml --set numerics.attention=fast
expect "attention of another type" 78 "cudnn has attention of bfloat16, and train.dtype is float32" \
    plan config.yaml --set numerics.gpu=fast --set numerics.attention=cudnn
expect "attention in exact mode" 78 "numerics.gpu is exact" plan config.yaml \
    --set numerics.attention=cudnn --set train.dtype=bfloat16
expect "attention that cuDNN has not" 78 \
    "cudnn has no attention for this run: heads whose width is no multiple of 8" \
    plan config.yaml --set numerics.gpu=fast --set numerics.attention=cudnn \
    --set train.dtype=bfloat16
expect "attention that own kernels on tensor cores have not" 78 \
    "flash has no attention for this run: heads whose width is no multiple of 8" \
    plan config.yaml --set numerics.gpu=fast --set numerics.attention=flash \
    --set train.dtype=bfloat16 --set model.head_width=12
expect "a ring on tensor cores" 78 \
    "flash has no attention for this run: keys go round in a ring, whose ranks show in the bits (context.kind=allgather has none, numerics.mode=fast allows it)" \
    plan config.yaml --ranks 2 --set numerics.gpu=fast \
    --set numerics.attention=flash --set train.dtype=bfloat16 \
    --set model.head_width=8 --set data.sequence=512 --set mesh.context=2 \
    --set numerics.grid_context=2 --set context.kind=ring
expect "float64" 78 "set numerics.gpu=exact" plan config.yaml \
    --set numerics.gpu=fast --set train.dtype=float64 --set device=cpu
report
