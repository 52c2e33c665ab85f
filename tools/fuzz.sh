#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh BUILD - runs each fuzzer of BUILD for FUZZ_SECONDS, two at a time.
#
# FUZZ_ONLY="fuzz_json fuzz_link": only these.
# Each run draws other inputs. FUZZ_SEED=N (above 0) draws those of number N
# again: CI does, so that it judges a change and not a draw.
# Inputs that a fuzzer finds are left in BUILD/found/; each runs again with
# BUILD/tests/fuzz/fuzz_<what> FILE. Ends with "N passed, N failed".
set -u
build=$1
seconds=${FUZZ_SECONDS:-20}
seed=${FUZZ_SEED:-0}
mkdir -p "$build/found"

one() {
    local name=$1 what=${1#fuzz_} corpus=$build/corpus/$1 code
    mkdir -p "$corpus"
    [ -d "tests/fuzz/seeds/$what" ] && cp -n "tests/fuzz/seeds/$what/"* "$corpus"
    "$build/tests/fuzz/$name" -max_total_time="$seconds" -seed="$seed" \
        -reload=0 -timeout=10 \
        -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=65536 \
        -artifact_prefix="$build/found/$name-" "$corpus" \
        >"$build/$name.log" 2>&1
    code=$?
    if [ $code -eq 0 ]; then
        echo "ok      $name: $(grep -o 'Done [0-9]* runs' "$build/$name.log")"
    else
        echo "FAILED  $name"
        tail -n 40 "$build/$name.log" | sed 's/^/    /'
    fi
}

export -f one
export build seconds seed
names=${FUZZ_ONLY:-$(cd tests/fuzz && ls fuzz_*.c | sed 's/\.c$//')}
[ -n "$names" ] || { echo "no fuzzers"; echo "0 passed, 1 failed"; exit 1; }
out=$(echo $names | tr ' ' '\n' | xargs -P 2 -I{} bash -c 'one {}')
echo "$out"
failed=$(echo "$out" | grep -c '^FAILED')
echo "$(echo "$out" | grep -c '^ok') passed, $failed failed"
[ "$failed" -eq 0 ]
