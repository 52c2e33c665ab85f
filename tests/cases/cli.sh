#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cli.sh - what the program answers: help, exit codes, sentences.
#
#     BUILD=build tests/cases/cli.sh
#
# Each line of `expect` runs the program and checks its exit code and a piece
# of what it printed (standard output and error together).
set -u
program=${BUILD:-build}/lockstep
tree=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect CODE WORDS ARGUMENT...
expect() {
    code=$1
    words=$2
    shift 2
    "$program" "$@" >"$work/out" 2>&1
    found=$?
    if [ $found -ne "$code" ]; then
        echo "lockstep $*: exit $found, expected $code"
        sed 's/^/    /' "$work/out"
        failed=$((failed + 1))
    elif ! grep -qF -- "$words" "$work/out"; then
        echo "lockstep $*: no \"$words\" in"
        sed 's/^/    /' "$work/out"
        failed=$((failed + 1))
    fi
}

# The last line names the exit code.
last_line() {
    tail -n 1 "$work/out" | grep -qF -- "$1" || {
        echo "last line: $(tail -n 1 "$work/out"), expected $1"
        failed=$((failed + 1))
    }
}

# --- help ---
expect 0 "usage: lockstep COMMAND"
expect 0 "usage: lockstep COMMAND" --help
expect 0 "usage: lockstep COMMAND" help
expect 0 "lockstep 0.1.0" --version
expect 0 "train.steps" help options
"$program" --help | sed -n 's/^  \([a-z][a-z ]*[a-z]\)  .*/\1/p' >"$work/names"
[ "$(wc -l <"$work/names")" -ge 4 ] || {
    echo "the overview lists $(wc -l <"$work/names") commands"
    failed=$((failed + 1))
}
while read -r name; do
    # shellcheck disable=SC2086  # a name may be two words
    expect 0 "example:" $name --help
    # shellcheck disable=SC2086
    expect 0 "example:" help $name
done <"$work/names"

# --- mistakes on the command line ---
expect 2 "the nearest is version" vresion
last_line "exit 2 (usage)"
expect 2 "no command" frobnicate
expect 2 "lockstep --help lists" frobnicate
expect 2 "the nearest is --json" version --jsno
expect 2 "takes no operand" version extra
expect 2 "takes no value" version --json=1
expect 2 "flags have two dashes" version -j
expect 2 "expected options, metrics or commands" docs nonsense

# --- output for programs ---
expect 0 '"numerics_version": 1' version --json
expect 0 '"capability": "rounding"' doctor --json

# --- a pipe that is full ---
if [ -w /dev/full ]; then
    "$program" version >/dev/full 2>"$work/out"
    [ $? -eq 74 ] || {
        echo "a full disk behind standard output is not exit 74"
        failed=$((failed + 1))
    }
fi

# --- models ---
models=$tree/tests/golden/models
if [ -d "$models/gpt2" ]; then
    echo '[[1,2,3,4],[4,3,2,1]]' >"$work/ids.json"
    expect 0 '"targets": 6' score "$models/gpt2" --tokens "$work/ids.json" \
        --json
    expect 2 "score needs --tokens" score "$models/gpt2"
    expect 66 "no such file" score "$models/gpt2" --tokens "$work/none.json"
    last_line "exit 66 (missing)"
    echo '[[1,2,3],[4]]' >"$work/bad.json"
    expect 65 "bad.json" score "$models/gpt2" --tokens "$work/bad.json"
    echo '[[1,2,999999999]]' >"$work/bad.json"
    expect 78 "999999999" score "$models/gpt2" --tokens "$work/bad.json"
    expect 66 "" score "$work/none" --tokens "$work/ids.json"
    expect 0 "equal" compare "$models/gpt2" "$models/gpt2"
    expect 1 '"equal": false' compare "$models/gpt2" "$models/llama_untied" \
        --json
    mkdir "$work/empty"
    expect 65 "neither a run" compare "$work/empty" "$models/gpt2"
fi

if [ $failed -ne 0 ]; then
    echo "$failed failed"
    exit 1
fi
