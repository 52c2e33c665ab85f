#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - the core tests, each part whatever happened to the one before.
#
#     BUILD=build [UNITS="base comm"] [WITHOUT="base/test_json"] \
#         [ONLY="cli mpi"] tests/run.sh [PART...]
#
# THIRD=2/3: every third of the table's models, the unit tests, the scripts.
# ONLY: of the scripts these, by their names. What needs a program that is not
# here ends with 77 and says so: it is "not run", neither passed nor failed. What
# a test that passes leaves out is printed below it.
# Names the ten that used processors longest. Ends with a line "N passed, N
# failed"; exit 1 when something failed.
set -u
BUILD=${BUILD:-build}
log=$BUILD/tests.log
passed=0
failed=()

# used FILE: seconds of processors, of what `times` wrote there: its second line
# has those of children that were waited for.
used() {
    awk 'NR == 2 { split($1 "m" $2, t, /[ms]+/)
        printf "%.0f", 60 * (t[1] + t[3]) + t[2] + t[4] }' "$1"
}

# Prints what a test says that it left out; cmocka says it twice.
left_out() { # FILE
    grep -aE '^(left out: |\[  SKIPPED \] [a-z0-9_]+$)' "$1" |
        sed 's/^\[  SKIPPED \]/left out:/' | sort -u
}

# part NAME COMMAND...: one line each; the output only when it failed
part() {
    local name=$1 start=$SECONDS verdict=ok
    shift
    "$@" >"$log" 2>&1
    case $? in
    0) passed=$((passed + 1)) ;;
    77) verdict="not run" ;;
    *) verdict=FAILED
        failed+=("$name") ;;
    esac
    printf '%-6s %4d s  %s\n' "$verdict" $((SECONDS - start)) "$name"
    if [ "$verdict" = ok ]; then left_out "$log"; else tail -n 60 "$log"; fi |
        sed 's/^/    /'
}

# A part beside others, `at_once` of them: what it has to say goes into a file
# first, so that lines of two do not mix, and is counted by `together`. Many wait
# for ranks, disks or clocks, and leave a core idle: twice as many as cores.
at_once=$((2 * $(nproc)))
beside() { # NAME COMMAND...
    local name=$1 said=$BUILD/said/${1//\//_} start verdict=ok child
    shift
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
    names+=("$name")
    {
        trap 'kill $child; wait $child; exit 143' TERM
        start=$SECONDS
        "$@" >"$said.log" 2>&1 &
        child=$!
        wait $child
        case $? in
        0) ;;
        77) verdict="not run" ;;
        *) verdict=FAILED ;;
        esac
        {
            times >"$said.used"
            printf '%-6s %4d s %4d s of processors  %s\n' "$verdict" \
                $((SECONDS - start)) "$(used "$said.used")" "$name"
            if [ "$verdict" = ok ]; then left_out "$said.log"; else
                head -n -60 "$said.log" | grep -a '^FAILED'
                tail -n 60 "$said.log"
            fi | sed 's/^/    /'
        } >"$said"
        cat "$said"
    } &
}

# Whether a script is asked for.
wanted() { # FILE
    local name=${1##*/}
    case $name in common.sh | apart.sh | machines.sh) return 1 ;; esac # sourced
    [ -z "${ONLY:-}" ] || [[ " $(echo $ONLY) " == *" ${name%.sh} "* ]]
}

# Waits for those, and counts them but for what was not run (exit 77, and says
# why); one that said nothing has failed.
together() {
    local name
    wait
    for name in "${names[@]}"; do
        if grep -q '^ok ' "$BUILD/said/${name//\//_}" 2>/dev/null; then
            passed=$((passed + 1))
        elif ! grep -q '^not run ' "$BUILD/said/${name//\//_}"; then
            failed+=("$name")
        fi
    done
    [ ${#names[@]} -lt 4 ] || {
        echo "the longest:"
        grep -ahE '^[A-Za-z ]+ [0-9]+ s +[0-9]+ s of processors ' \
            "$BUILD"/said/* | sort -k 4 -rn | head -n 10 | sed 's/^/    /'
    }
    alone
}

alone() {
    names=()
    rm -rf "$BUILD/said"
    mkdir -p "$BUILD/said"
}

# Every unit test program is a part of its own; UNITS: only of these folders,
# and these programs; WITHOUT: not these, folders or programs. Those that take
# long come first, so that none of them is left alone at the end.
# Thirds of these last about as long as each other, with kernels and without.
long="kernels/test_attention kernels/test_kernels kernels/test_matmul
    kernels/test_strips kernels/test_matmul_narrow
    kernels/test_attention_narrow inference/test_likelihood nn/test_program
    step/test_golden_parts"

# Instructions for which there are kernels, and which no test can run here.
say_instructions() {
    local name lacking=
    [ "$(uname -m)" = x86_64 ] || return 0
    for name in avx2 avx512bw avx512_bf16 avx512_vnni avx_vnni amx_bf16; do
        grep -qw "$name" /proc/cpuinfo || lacking+=" $name"
    done
    [ -z "$lacking" ] ||
        echo "    left out: kernels for$lacking, which this processor lacks"
}

unit() {
    local unit all without number=0 programs=()
    without=$(echo ${WITHOUT:-}) # one space between names
    all=$(cd tests/unit && printf '%s\n' */test_*.c)
    for unit in $without ${UNITS:-}; do
        [ -d "tests/unit/$unit" ] || [ -e "tests/unit/$unit.c" ] && continue
        part "no tests/unit/$unit" false
    done
    for unit in $({ printf '%s.c\n' $long; echo "$all"; } |
        awk '!seen[$0]++'); do
        unit=${unit%.c}
        case " $without " in
        *" $unit "*|*" ${unit%%/*} "*) continue ;;
        esac
        case " $(echo ${UNITS:-$unit}) " in
        *" $unit "*|*" ${unit%%/*} "*) ;;
        *) continue ;;
        esac
        number=$((number + 1))
        [ -z "${THIRD:-}" ] ||
            [ $((number % 3)) -eq $((${THIRD%/*} % 3)) ] || continue
        programs+=("$BUILD/tests/unit/$unit")
    done
    [ ${#programs[@]} -gt 0 ] || return 0
    part "unit tests build" make -j"$at_once" BUILD="$BUILD" \
        "${programs[@]}"
    case ${programs[*]} in *kernels/*) say_instructions ;; esac
    for program in "${programs[@]}"; do
        beside "${program#"$BUILD/"}" "$program"
    done
    together
}

# The longest first, as above.
scripts() {
    local number=0
    for script in $(printf '%s\n' tests/cases/{profile,mpi}.sh tests/cases/*.sh |
        awk '!seen[$0]++'); do
        number=$((number + 1))
        [ -z "${THIRD:-}" ] ||
            [ $((number % 3)) -eq $((${THIRD%/*} % 3)) ] || continue
        wanted "$script" || continue
        beside "$script" env BUILD="$BUILD" "$script"
    done
    together
}

# Drills show what happens when things go wrong; long ones first here, too. The
# one that is first in line for processors (chrt) would make others late.
long_drills="drills/ramp drills/policies equivalence/one_rank
    drills/optimizers drills/observe"

drills() {
    for script in $({ printf 'tests/%s.sh\n' $long_drills
        printf '%s\n' tests/drills/*.sh; } | awk '!seen[$0]++'); do
        wanted "$script" && [ "${script##*/}" != random_kills.sh ] || continue
        beside "$script" env BUILD="$BUILD" timeout 1400 "$script"
    done
    ! wanted hash || beside "tests/golden/hash.sh quick" env BUILD="$BUILD" \
        timeout 1400 tests/golden/hash.sh quick
    wait
    script=tests/drills/random_kills.sh
    ! wanted "$script" ||
        beside "$script" env BUILD="$BUILD" timeout 1400 "$script"
    together
}

# Each axis of the mesh, alone and beside others. The device cuda needs nvcc, so
# it has a part of its own in .ci/run.
ranks() {
    for script in tests/equivalence/*_ranks.sh; do
        [[ $script != */cuda_ranks.sh && $script != */nccl_ranks.sh &&
            $script != */fast_ranks.sh && $script != */ipc_ranks.sh ]] || continue
        wanted "$script" || continue
        beside "$script" env BUILD="$BUILD" timeout 1400 "$script"
    done
    together
}

# The same bits under every layout, and whether that would be noticed.
table() {
    local share
    for share in ${THIRD:-1/3 2/3 3/3}; do
        wanted table || continue
        beside "tests/equivalence/table.sh $share" env BUILD="$BUILD" \
            SHARE=$share timeout 1400 tests/equivalence/table.sh
    done
    for name in launched moves random mutations; do
        wanted "$name" || continue
        beside "tests/equivalence/$name.sh" env BUILD="$BUILD" \
            SHARE="${THIRD:-}" timeout 1400 "tests/equivalence/$name.sh"
    done
    together
}

tidy() {
    part "tidy" make BUILD="$BUILD" tidy
}

docs() {
    part "docs" make BUILD="$BUILD" docs-check
}

# A signal that stops us stops what we began, too: it may be in a group of its own.
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 143' INT TERM

mkdir -p "$BUILD"
alone
[ $# -gt 0 ] || set -- unit scripts drills ranks table tidy docs
for name; do
    case $name in
    unit|scripts|drills|ranks|table|tidy|docs) "$name" ;;
    *) echo "run.sh: no part $name"; exit 2 ;;
    esac
done
rm -rf "$log" "$BUILD/said"
for name in "${failed[@]}"; do echo "failed: $name"; done
echo "$passed passed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]
