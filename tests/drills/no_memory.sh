#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# no_memory.sh - the system refuses memory once, at one place after the other
# (fault point memory.take): each command ends with exit code 71 and its
# sentence, or did without; nothing crashes or waits.
#
#     BUILD=build tests/drills/no_memory.sh
#     LOCKSTEP_SLOW=1 BUILD=build tests/drills/no_memory.sh    all places
#
# Which places are tried depends on the day; FIRST=3 says it.
. "${0%/*}/common.sh"
LIMIT=200
first=${FIRST:-$(($(date +%s) / 86400 % 1000))}
prepare 2
must train config.yaml --run whole --set train.steps=2

# sweep NAME APART ARGUMENT...: every APART-th place, until the command passes
# fewer places than that
sweep() {
    local name=$1 apart=$2 refused=0 wrong="" at code
    shift 2
    [ -z "${LOCKSTEP_SLOW:-}" ] || apart=1
    # Beyond the last place all goes well; neighbours may be done without.
    local well=0 enough=3
    [ $apart -gt 1 ] || enough=30
    for ((at = 1 + first % apart; well < enough; at += apart)); do
        rm -rf made
        LOCKSTEP_FAULT=memory.take:$at lockstep "$@" 2>out >/dev/null
        code=$?
        if [ $code -eq 0 ]; then
            well=$((well + 1))
            continue
        fi
        well=0
        refused=$((refused + 1))
        if [ $code -ne 71 ] || ! tail -n 1 out | grep -q '^exit 71 (memory)' ||
            ! grep -q '^error (memory): ' out; then
            wrong="place $at: exit $code"
            cp out wrong.out
        fi
    done
    if [ -n "$wrong" ]; then bad "$name" "$wrong" wrong.out
    elif [ $refused -lt 3 ]; then bad "$name" "only $refused were refused"
    else ok "$name ($refused places)"; fi
}

sweep train 31 train config.yaml --run made --set train.steps=2
sweep "train on ranks" 23 train config.yaml --run made --set train.steps=2 \
    --ranks 2 --threads 1 --set checkpoint.async=true
sweep "train under a supervisor" 97 train config.yaml --run made \
    --set train.steps=2 --ranks 2 --threads 1 --supervised
sweep plan 17 plan config.yaml
sweep generate 29 generate whole --prompt "ba be" --tokens 4
sweep export 29 export whole made
sweep "data audit" 1 data audit whole
report
