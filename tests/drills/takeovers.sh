#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# takeovers.sh - two supervisors after each other take living ranks over, and then
# one of the ranks dies: the run goes on from memory, with the bits of a run that
# nobody disturbed. Ranks know files of the first supervisor by its numbers.
. "${0%/*}/common.sh"
LIMIT=400
prepare 1
settings=(--ranks 2 --set mesh.data=2 --set train.steps=12
    --set validate.every=0 --set checkpoint.every=1000 --set comm.limit=60)
must train config.yaml "${settings[@]}" --run whole

# Rank 1 stops itself at its seventh step, and at the eighth.
LOCKSTEP_FAULT=train.step@1:7:stop,train.step@1:8:stop timeout 400 \
    "$BUILD/lockstep" train config.yaml "${settings[@]}" --run taken \
    --supervised --copies 1 >log 2>&1 &
first=$!
for ((i = 0; i < 2400; i++)); do
    stopped=$(rank_process taken 1)
    grep -q '^State:.T' "/proc/${stopped:-0}/status" 2>/dev/null && break
    sleep 0.05
done
supervisor=$(pgrep -P $first | head -n 1)
kill -STOP "$supervisor"
kill -KILL "$supervisor"
wait $first 2>/dev/null
kill -STOP "$stopped" # the supervisor may just have let it go on
for turn in 1 2; do
    "$BUILD/lockstep" resume taken --ranks 2 --supervised --copies 1 \
        >>log 2>&1 &
    supervisor=$!
    for ((i = 0; i < 2400; i++)); do
        lockstep status taken 2>/dev/null |
            grep -q "^supervisor process $supervisor" && break
        sleep 0.05
    done
    if [ "$i" -lt 2400 ]; then ok "takeover $turn"
    else bad "takeover $turn" "none" log; fi
    [ "$turn" = 2 ] && break
    kill -STOP "$supervisor"
    kill -KILL "$supervisor"
    wait "$supervisor" 2>/dev/null
done
kill -KILL "$stopped"
wait "$supervisor"
code=$?
if [ $code -eq 0 ]; then ok "the run ends"
else bad "the run ends" "exit $code" log; fi
lockstep incidents taken >incidents 2>&1
if grep -q memory incidents; then ok "it went on from memory"
else bad "it went on from memory" "$(cat incidents)" log; fi
if same_run whole taken; then ok "the bits are those of an undisturbed run"
else bad "the bits are those of an undisturbed run" "$why" log; fi

report
