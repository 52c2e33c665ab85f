#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - from an empty machine to a trained model, its text and its report.
#
#     make demo                   the whole thing
#     TEXT=FILE_OR_DIR make demo  on your own .txt files
#     STEPS=20 make demo          shorter
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
lockstep=$BUILD/lockstep

# The text is a luxury: without it corpus.sh finds another one.
tools/setup.sh build demo || {
    tools/setup.sh build 2>/dev/null || exit 1
    echo "demo: going on with other text"
}

echo "demo: building"
make --no-print-directory -j"$(nproc)" BUILD="$BUILD" all

tools/corpus.sh demo/corpus ${TEXT:+"$TEXT"}
"$lockstep" tokenizer train demo/corpus/train.jsonl --vocab 2048 \
    --out demo/tokenizer.json

rm -rf demo/run
"$lockstep" train examples/01_first_run/config.yaml \
    ${STEPS:+--set train.steps="$STEPS" --set optimizer.warmup=5}

echo
echo "demo: what the model has learned to write"
echo
"$lockstep" generate demo/run --prompt "And the LORD said" --tokens 120 \
    --temperature 0.7 --seed 1
cat <<END

demo: the report is $(pwd)/demo/run/report.html

Try next:
    $lockstep generate demo/run --prompt "In the beginning" --temperature 0
    $lockstep plan examples/01_first_run/config.yaml --explain memory
    $lockstep train examples/01_first_run/config.yaml --run demo/longer \\
        --set optimizer.schedule=wsd --set train.steps=$((2 * ${STEPS:-400}))
END
