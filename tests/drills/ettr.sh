#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ettr.sh - the share of time that a run with failures trains: `ettr`, and
# `simulate` with failures.
. "${0%/*}/common.sh"

expect "ettr of a way as given" 0 "131,072" ettr --restart 60 --interval 600
expect "ettr: how long a restart takes" 2 "--restart S is missing" ettr --stall 1
expect "ettr: an interval that nothing keeps" 2 "0: the best one" ettr --restart 0 \
    --stall 0 --interval 1e-323
expect "ettr: a number" 2 "is not a number" ettr --restart soon
if lockstep ettr --json --draw ettr.svg >ettr.json &&
    [ "$(grep -c '"points_off": -\?[01][.,]' ettr.json)" -eq 4 ] &&
    [ "$(grep -c '"points_off"' ettr.json)" -eq 4 ] &&
    grep -q 'FT-HSDP on 100K GPUs' ettr.svg
then ok "ettr: within two points of what is published, and drawn"
else bad "ettr" "not within two points" ettr.json; fi

# A failure every 527 s: the form of first order says 2.0%.
cat >small.yaml <<'END'
model: {family: llama, vocab: 256, layers: 4, width: 64, heads: 4}
data: {sequence: 64}
train: {batch: 16, steps: 10}
END
echo '{"failures": {"per_node_day": 163.947, "restart_s": 500, "stall_s": 5,
    "interval_s": 30}}' >often.json
expect "frequent failures, exactly" 0 "32.1  %, exact" simulate small.yaml \
    --machine h100 --perturb often.json
report
