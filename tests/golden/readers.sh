#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# readers.sh - a run as other programs see it: its event files through the
# tensorboard package and its server, its metrics through what wandb keeps
# offline. Every number is held against metrics.jsonl. The scripts in Python that
# this tree has are compiled, and those that need nothing else are asked for help.
#
#     BUILD=build tests/golden/readers.sh
#
# Packages go into a virtual environment in a scratch directory that is removed
# at the end (274 MB). Ends with "N passed, N failed". Exit 77 after a line
# "not run: WHY" where there is no Python or the package index does not answer.
# READERS_PYTHON: a Python that has tensorboard and wandb, instead of all that.
packages="tensorboard==2.21.0 wandb==0.31.0"
. "${0%/*}/../drills/common.sh"

not_run() { # WHY
    echo "not run: $1; nothing was opened with tensorboard or wandb"
    exit 77
}

make_environment() {
    local pip=(venv/bin/python -m pip -q --disable-pip-version-check
        --no-cache-dir install)
    command -v python3 >/dev/null || not_run "there is no python3"
    python3 -m venv venv >log 2>&1 ||
        not_run "python3 -m venv fails: $(tail -n 1 log)"
    # The smallest package first: who cannot get it has no index.
    "${pip[@]}" --retries 1 --timeout 20 absl-py >log 2>&1 ||
        not_run "no package index: $(grep . log | tail -n 1)"
    # shellcheck disable=SC2086
    "${pip[@]}" $packages >log 2>&1 || {
        bad "packages" "the index answers, but pip fails" log
        report
    }
    python=$room/venv/bin/python
}
python=${READERS_PYTHON:-}
[ -n "$python" ] || make_environment
export PYTHONPYCACHEPREFIX=$room/pycache

# --- scripts ---
if (cd "$tree" && git ls-files '*.py' | sed "s|^|$tree/|") >scripts &&
    "$python" -m compileall -q -i scripts >log 2>&1; then
    ok "$(wc -l <scripts) scripts compile"
else
    bad "scripts" "do not compile" log
fi
for script in tools/export_run.py benchmarks/peers.py \
    benchmarks/generation.py; do
    if "$python" "$tree/$script" --help >log 2>&1 && grep -q '^usage:' log; then
        ok "$script --help"
    else
        bad "$script --help" "fails" log
    fi
done

# --- a run that is killed behind a checkpoint, and resumed ---
prepare
LOCKSTEP_FAULT=train.step:18:kill lockstep train config.yaml --run told \
    --set observe.tensorboard=true --set observe.layers=5 \
    --set observe.histograms=10 --set 'validate.sets=[code text.jsonl]' \
    --set validate.every=4 --set 'validate.prompts=[ba, be]' \
    --set validate.prompt_tokens=5 >log 2>&1
must resume told

opened() { # NAME COMMAND...: it ends well, and says what it saw
    local name=$1
    shift
    if "$@" >out 2>&1; then
        ok "$name: $(grep 'as in metrics' out | tail -n 1)"
    else
        bad "$name" "sees something else" out
    fi
}
noticed() { # NAME COMMAND...: it does not
    local name=$1
    shift
    if ! "$@" >out 2>&1 && grep -q '^AssertionError' out; then
        ok "$name is noticed: $(tail -n 1 out)"
    else
        bad "$name" "is not noticed" out
    fi
}
events="$tree/tests/golden/make_events.py"
opened tensorboard "$python" "$events" --check told
opened "its server" "$python" "$events" --serve told
opened export "$python" "$tree/tests/golden/check_run_export.py" told
grep -q '^wandb: ' out || bad wandb "was left out" out

# --- and they would notice ---
cp -r told wrong
sed -i '1s/"loss": /"loss": 1/' wrong/metrics.jsonl
noticed "another loss" "$python" "$events" --check wrong
cp -r told lost
rm "lost/tensorboard/$(ls lost/tensorboard | tail -n 1)"
noticed "a lost file" "$python" "$events" --check lost
report
