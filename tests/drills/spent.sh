#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# spent.sh - delays of known length in a supervised run: data that comes late, a
# rank that is stopped until it is replaced. `lockstep incidents` says where the
# time went, each within 5%. Data that comes later than a hang is noticed is none.
#
#     BUILD=build tests/drills/spent.sh
. "${0%/*}/common.sh"
prepare
# One rank has no batch for five seconds, and the other waits for it: steps take
# some milliseconds, and a rank may be silent for little more than 2 s.
LOCKSTEP_FAULT=data.ahead@1:12:late must train config.yaml --run awaited \
    --ranks 2 --supervised --set train.threads=1 --set train.steps=20 \
    --set validate.every=0
if grep -q "kept *rank 1 waits for its data" log &&
    ! grep -q '"event": "incident"' awaited/control/journal.jsonl
then ok "data that comes 5 s late is no hang"
else bad "data that comes 5 s late is no hang" "an incident, or not said" log; fi
# 2 s each, of the second generation alone: a rank of the first one stops before.
# A rank may be silent for 2 s and five steps: steps of a sixth of a second, so
# that late data are no hang on a machine that does other work.
export LOCKSTEP_FAULT=data.ahead:15:slow,data.ahead:25:slow,train.step@1:9:stop
start_until spent 8 train config.yaml --run spent --ranks 2 --supervised \
    --set train.threads=1 --set train.steps=45 --set validate.every=0 \
    --set train.batch=64 --set train.micro_batch=32 \
    --set checkpoint.every=1000 ||
    { bad "a run" "makes no steps" log; report; }
unset LOCKSTEP_FAULT
# Guards whole seconds, of which steps were 157%.
now=$(date +%s.%N)
lockstep incidents spent --json >out 2>&1
begin=$(sed -n '1s/.*"time": \([0-9.]*\).*/\1/p' spent/control/journal.jsonl)
if sed -n 's/.*"all_s": \([0-9.]*\).*/\1/p' out | awk -v a="$now" -v b="$begin" '
    { found = 1; right = $1 >= a - b - 0.01 } END { exit !(found && right) }'
then ok "up to now"
else bad "up to now" "not the $now - $begin s" out; fi
ended $child
code=$?
if [ $code -eq 0 ]; then ok "the run ends"
else bad "the run ends" "exit $code" log; fi
lockstep incidents spent >out 2>&1
line=$(tail -n 1 out)
part() { # WORDS: the seconds behind them
    echo "$line" | sed -n "s/.*$1 \([0-9.]*\) s.*/\1/p"
}
# near NAME FOUND RIGHT: within 5% and the clock's tenth
near() {
    if awk -v a="$2" -v b="$3" 'BEGIN {
        d = a > b ? a - b : b - a; exit !(a != "" && d <= 0.05 * b + 0.1) }'
    then ok "$1 ($2 s of $3 s)"
    else bad "$1" "$2 s, not $3 s" out; fi
}
column() { # NAME: of metrics.jsonl, in its order
    sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" spent/metrics.jsonl
}
# The longest pause between two lines is the recovery: the others are of 2 s.
gap=$(column time_s | awk 'NR > 1 && $1 - last > most { most = $1 - last }
    { last = $1 } END { print most }')
# A step waits for 2 s less the time that it computes beside the reader.
near "data that comes late" "$(part 'waiting for data')" \
    "$(column data_ms | awk '{ s += $1 } END { print s / 1000 }')"
late=$(paste <(column step_ms) <(column data_ms) |
    awk '$1 >= 1900 && $2 > 0' | wc -l)
if [ "$late" -ge 2 ]; then ok "two steps waited for their data"
else bad "two steps waited for their data" "$late" spent/metrics.jsonl; fi
near "a rank that is replaced" "$(part recoveries)" "$gap"
near "steps" "$(part 'steps')" "$(paste <(column step_ms) <(column data_ms) |
    awk '{ s += $1 - $2 } END { print s / 1000 }')"
near "all parts together" "$(echo "$line" | grep -o '[0-9.]* s' |
    awk 'NR > 1 { s += $1 } END { print s }')" "${line%% s:*}"
report
