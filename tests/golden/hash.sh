#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hash.sh - one hash of losses and weights, whoever computes them.
#
#     tests/golden/hash.sh [quick]      quick: only the program in BUILD
#     THIRD=2/3 tests/golden/hash.sh    every third pair of model and
#                                       combination; aarch64 is of 1/3
#
# Trains the tiny models of hash/ with every combination below and compares
# with hash/expected.txt. To accept new bits after a change of a definition:
# UPDATE=1 tests/golden/hash.sh, and bump the numerics version.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected=tests/golden/hash/expected.txt
touch $expected
passed=0
failed=0
tries=0 # begun and not yet counted
cores=$(nproc)
[ -z "${UPDATE:-}" ] || cores=1

mkdir "$work/text"
# Documents: the paragraphs of the licence, so that masks have work to do.
awk -v RS= -v out="$work/text" '{ printf "%s\n", $0 > sprintf("%s/%03d.txt", out, NR) }' LICENSE
"$BUILD/lockstep" tokenizer train "$work/text" --vocab 300 \
    --out "$work/tokenizer.json" >/dev/null || exit 1

# Losses and norms of every step, then the bytes of the weights; of kinds those
# of the states and the moving average too.
hash_of() { # RUN MODEL
    {
        grep -o '"\(step\|loss\|grad_norm\|lr\|val_loss\|tokens\)":[^,}]*' \
            "$1/metrics.jsonl"
        cat "$1"/ckpt/step-*/model*.safetensors
        [ "$2" != kinds ] || cat "$1"/ckpt/step-*/optim*.safetensors
    } | sha256sum | cut -c1-32
}

# try NAME MODEL RUN PROGRAM [ARGUMENT...]: says ok or FAILED
try() {
    local name=$1 model=$2 run=$3 want got
    shift 3
    if ! "$@" train "tests/golden/hash/$model.yaml" --run "$run" \
        --set tokenizer.from="$work/tokenizer.json" \
        --set "data.train=[$work/text]" $more >"$run.log" 2>&1; then
        echo "FAILED  $model, $name"
        tail -n 5 "$run.log" | sed 's/^/    /'
        return
    fi
    got=$(hash_of "$run" "$model")
    rm -rf "$run"
    [ -z "${UPDATE:-}" ] || { sed -i "/^$model /d" $expected
        echo "$model $got" >>$expected; }
    want=$(awk -v m="$model" '$1 == m { print $2 }' $expected)
    if [ "$got" = "$want" ]; then
        echo "ok      $model, $name"
    else
        echo "FAILED  $model, $name: $got, expected $want"
    fi
}

# Waits for what was begun and counts it.
gather() {
    local i
    wait
    for ((i = 0; i < tries; i++)); do
        if grep -q '^ok ' "$work/said-$i"; then passed=$((passed + 1))
        else failed=$((failed + 1)); fi
    done
    tries=0
}

# Whether THIRD has the pair of that number.
pairs=0
drawn() { # NUMBER
    [ -z "${THIRD:-}" ] || [ $(($1 % 3)) -eq $((${THIRD%/*} % 3)) ]
}

# All models; `more` holds options of the run. One for each core at a time.
all() {
    local name=$1
    shift
    for model in llama gpt2 bfloat16 tiles float16 kinds; do
        pairs=$((pairs + 1))
        drawn $pairs || continue
        while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n; done
        try "$name" "$model" "$work/run-$tries" "$@" \
            | tee "$work/said-$tries" &
        tries=$((tries + 1))
    done
    [ -z "${UPDATE:-}" ] || { wait; UPDATE=; }
}

isas="plain"
grep -qw avx2 /proc/cpuinfo && isas="$isas avx2"
grep -qw avx512f /proc/cpuinfo && isas="$isas avx512"
[ "$(uname -m)" = aarch64 ] && isas="plain neon"
case $isas in
*avx512 | *neon) ;;
*) echo "left out: instruction sets beyond $isas, which this processor lacks" ;;
esac

if [ "${1:-}" = quick ] || [ -n "${UPDATE:-}" ]; then
    more= all "$BUILD, default" "$BUILD/lockstep"
fi
if [ "${1:-}" = quick ]; then
    more="--set train.micro_batch=1 --threads 3" \
        all "$BUILD, micro-batch 1, 3 threads" "$BUILD/lockstep"
    gather
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
    exit
fi

make -s -j"$(nproc)" BUILD=build-clang CC=clang NVCC=/bin/false all
for build in "$BUILD" build-clang; do
    for isa in $isas; do
        more="--set numerics.isa=$isa" all "$build, $isa" "$build/lockstep"
    done
done
for threads in 1 2 3 4; do
    [ "$threads" -ne "$(nproc)" ] || continue # is what all others ran with
    more="--threads $threads" all "$threads threads" "$BUILD/lockstep"
done
for micro in 1 2; do
    more="--set train.micro_batch=$micro" \
        all "micro-batch $micro" "$BUILD/lockstep"
done
more="--set train.recompute=[block]" all "recomputation" "$BUILD/lockstep"

if [ -n "${THIRD:-}" ] && [ "${THIRD%/*}" -ne 1 ]; then
    echo "not drawn: aarch64; THIRD=1/3 tests/golden/hash.sh"
elif command -v qemu-aarch64 >/dev/null && [ "$(uname -m)" = x86_64 ]; then
    # Kernels as they are shipped; the rest is quick to compile.
    if OPT=-O1 DEBUG=-g0 tools/arm64.sh build-arm64 >"$work/log" 2>&1; then
        THIRD= # all of these
        library=$PWD/build-arm64/sysroot/usr/lib/aarch64-linux-gnu
        for isa in plain neon; do
            more="--set numerics.isa=$isa --threads 2" \
                all "aarch64, $isa" qemu-aarch64 -L /usr/aarch64-linux-gnu \
                -E "LD_LIBRARY_PATH=$library" build-arm64/lockstep
        done
    else
        gather
        echo "FAILED  aarch64 build"
        tail -n 20 "$work/log" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
else
    echo "left out: aarch64 under qemu-aarch64, which is not here"
fi
gather
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
