# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# common.sh - functions shared by the cases: a directory of their own, which is
# then the working directory, and their output. Source it; finish with `report`.
set -u
program=$(cd "${BUILD:-build}" && pwd)/lockstep
tree=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0
failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "${0##*/}: $*"; }
tell() { tail -n 5 "$work/out" | sed 's/^/    /'; }

# check WHAT COMMAND...: the command succeeds
check() {
    local what=$1
    shift
    if "$@" >"$work/out" 2>&1; then ok; else bad "$what"; tell; fi
}

# ends CODE WORDS COMMAND...: that exit code, and these words in the output. A
# program (not a function) is ended after 200 s.
ends() {
    local code=$1 words=$2 found limit=
    shift 2
    [ "$(type -t "$1")" = function ] || limit="timeout 200"
    $limit "$@" >"$work/out" 2>&1
    found=$?
    if [ $found -eq "$code" ] && grep -q -- "$words" "$work/out"; then ok
    else
        bad "exit $found, expected $code and \"$words\": ${*:2}"
        tell
    fi
}

report() {
    echo "${0##*/}: $passed passed, $failed failed"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
}
