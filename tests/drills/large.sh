#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# large.sh - a model of 135M parameters is imported, generates and goes on
# training (4 x 512 tokens at once) within 3 GB. Minutes and 4 GB of disk:
#
#     LOCKSTEP_SLOW=1 BUILD=build tests/drills/large.sh
if [ -z "${LOCKSTEP_SLOW:-}" ]; then
    echo "not run: large.sh needs LOCKSTEP_SLOW=1"
    exit 77
fi
. "${0%/*}/common.sh"
LIMIT=600
make_text text.jsonl 3000
lockstep tokenizer train text.jsonl --vocab 1000 --out tokenizer.json \
    >log 2>&1 || { bad prepare "no tokenizer" log; report; }
cat >config.yaml <<'END'
version: 1
seed: 5
model: {family: llama, vocab: 49152, layers: 30, width: 576, heads: 9, kv_heads: 3, feed_forward: 1536, context: 2048, tied: true}
tokenizer: {from: tokenizer.json}
data: {train: [text.jsonl], sequence: 16, cache: cache}
train: {steps: 1, batch: 1}
run: {dir: first}
END

# within NAME ARGUMENT...: runs it and looks at its largest resident size
within() {
    local name=$1 most=0 now
    shift
    "$program" "$@" >log 2>&1 &
    child=$!
    children="$children $child"
    while now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$child/status \
        2>/dev/null) && [ -n "$now" ]; do
        most=$now
        sleep 0.05
    done
    wait "$child"
    code=$?
    if [ $code -ne 0 ]; then bad "$name" "exit $code" log
    elif [ "$most" -gt 2929687 ]; then # 3e9 bytes
        bad "$name" "$((most / 1024)) MiB of memory, more than 3 GB" log
    else ok "$name: $((most / 1024)) MiB at most"; fi
}

# Random weights under the names and shapes of others: one step, exported.
must train config.yaml
must export first published
rm -r first
within "import" import published imported
within "generate" generate imported --prompt "ba be" --tokens 20
within "train 2 steps of 4 x 512" train config.yaml --run second \
    --set init.from=imported --set data.sequence=512 --set train.batch=4 \
    --set train.micro_batch=4 --set train.steps=2 --set train.memory=2.7
grep -h '"resident_bytes"' second/metrics.jsonl |
    sed 's/.*"step_ms": \([0-9]*\).*"resident_bytes": \([0-9]*\).*/    step \1 ms, resident \2 bytes/'
within "resume for a step" resume second --set train.steps=3
within "export" export second exported
report
