#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - the core tests, each part whatever happened to the one before.
#
#     BUILD=build tests/run.sh [PART...]
#
# Ends with a line "N passed, N failed"; exit 1 when something failed.
set -u
BUILD=${BUILD:-build}
log=$BUILD/tests.log
passed=0
failed=()

# part NAME COMMAND...: one line each; the output only when it failed
part() {
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        printf 'ok     %4d s  %s\n' $((SECONDS - start)) "$name"
    else
        failed+=("$name")
        printf 'FAILED %4d s  %s\n' $((SECONDS - start)) "$name"
        tail -n 60 "$log" | sed 's/^/    /'
    fi
}

# A unit test program, beside others: what it has to say goes into a file first,
# so that lines of two do not mix, and is counted later.
program() { # NAME
    local name=$1 start=$SECONDS verdict=ok out=$BUILD/$1.log
    "$BUILD/$name" >"$out" 2>&1 || verdict=FAILED
    {
        printf '%-6s %4d s  %s\n' "$verdict" $((SECONDS - start)) "$name"
        [ $verdict = ok ] || tail -n 60 "$out" | sed 's/^/    /'
    } >"$out.said"
    cat "$out.said"
}

# Every unit test program is a part of its own; one for each core at a time.
unit() {
    local source name
    part "unit tests build" make -j"$(nproc)" BUILD="$BUILD" unit-build
    rm -f "$BUILD"/tests/unit/*/*.said
    for source in tests/unit/*/test_*.c; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
        program "${source%.c}" &
    done
    wait
    for source in tests/unit/*/test_*.c; do
        name=${source%.c}
        if grep -q '^ok ' "$BUILD/$name.log.said"; then
            passed=$((passed + 1))
        else
            failed+=("$name")
        fi
    done
}

scripts() {
    for script in tests/cases/*.sh; do
        [ "${script##*/}" != common.sh ] || continue
        part "$script" env BUILD="$BUILD" "$script"
    done
}

# What happens when things go wrong.
drills() {
    for script in tests/drills/*.sh tests/equivalence/one_rank.sh; do
        [ "${script##*/}" != common.sh ] || continue
        part "$script" env BUILD="$BUILD" timeout 200 "$script"
    done
    part "tests/golden/hash.sh quick" env BUILD="$BUILD" timeout 100 \
        tests/golden/hash.sh quick
}

# Each axis of the mesh, alone and beside others.
ranks() {
    for script in tests/equivalence/*_ranks.sh; do
        part "$script" env BUILD="$BUILD" timeout 240 "$script"
    done
}

# The same bits under every layout, and whether that would be noticed.
table() {
    for name in table launched moves random mutations; do
        part "tests/equivalence/$name.sh" env BUILD="$BUILD" timeout 280 \
            "tests/equivalence/$name.sh"
    done
}

tidy() {
    part "tidy" make BUILD="$BUILD" tidy
}

docs() {
    part "docs" make BUILD="$BUILD" docs-check
}

mkdir -p "$BUILD"
[ $# -gt 0 ] || set -- unit scripts drills ranks table tidy docs
for name; do
    case $name in
    unit|scripts|drills|ranks|table|tidy|docs) "$name" ;;
    *) echo "run.sh: no part $name"; exit 2 ;;
    esac
done
rm -f "$log"
for name in "${failed[@]}"; do echo "failed: $name"; done
echo "$passed passed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]
