#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# random_kills.sh - one supervised run of 4 ranks whose ranks are killed with
# kill -9 at random moments, again and again: it ends in the same bytes, redoes
# at most one step for each kill, and goes on in about a second.
#
#     BUILD=build [KILLS=8] [STEPS=80] [BATCH=256] [SEED=1] [EACH=200] \
#         [WHOLE=] [LIMITS=0] tests/drills/random_kills.sh
#
# KILLS=100 STEPS=250 BATCH=512 EACH=100 is the full drill: a kill follows the
# recovery from the one before after less than EACH ms; with EACH=0 only each
# fourth waits for it. BATCH is for steps that are long enough for the kills.
# Where the system lets it, the drill is first in line for processors (chrt), so
# that other work does not show, writes its files to memory, so that saves do
# not wait for a busy disk, and asserts the times of a machine of its own:
# noticed in 50 ms (median), the next step after 1 s (median) and 3 s (worst).
# LIMITS=1 asserts them anyway, LIMITS=0 does not. With MTBF=6 kills come at any
# time, 6 s apart on the average, also while the run recovers, and the share of time
# that it trained is compared with what `lockstep ettr` predicts for such failures:
# within 2 points. WHOLE names a directory that keeps the run without kills for
# the next time.
if [ -z "${FIRST_IN_LINE:-}" ] && [ "$(nproc)" -gt 1 ] &&
    chrt -r 1 true 2>/dev/null; then
    [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
    FIRST_IN_LINE=1 LIMITS=${LIMITS:-1} exec chrt -r 1 "$0" "$@"
fi
. "${0%/*}/common.sh"
kills=${KILLS:-8}
steps=${STEPS:-80}
each=${EACH:-200}
RANDOM=${SEED:-$$}
echo "seed ${SEED:-$$}"
prepare
# Steps of some 50 ms, so that the kills fall into all parts of them.
base="--set checkpoint.every=25
    --set validate.every=50 --set train.batch=${BATCH:-256}
    --set numerics.grid_data=8 --set model.width=48 --set data.packing=best_fit"
if [ -n "${MTBF:-}" ]; then # goes on until it is stopped
    steps=1000000
    base="--set checkpoint.every=1000000 --set validate.every=0
        --set train.batch=${BATCH:-256} --set numerics.grid_data=8
        --set model.width=48 --set data.packing=best_fit"
fi
# shellcheck disable=SC2086
if [ -n "${MTBF:-}" ]; then :
elif [ -d "${WHOLE:-}" ]; then cp -r "$WHOLE" whole
else must train config.yaml --run whole $base --set train.steps="$steps"; fi
[ -z "${WHOLE:-}" ] || [ -d "$WHOLE" ] || cp -r whole "$WHOLE"
# shellcheck disable=SC2086
"$program" train config.yaml --run killed $base --set train.steps="$steps" \
    --ranks 4 --set mesh.data=4 --set zero=zero1 --set train.threads=1 \
    --supervised --copies 1 >log 2>&1 &
child=$!
children="$children $child"
journal=killed/control/journal.jsonl

# The newest generation's processes, from the journal itself: quicker than
# asking for the status.
processes() {
    grep '"event": "start"' $journal 2>/dev/null | tail -n 1 |
        grep -o '"process": [0-9]*' | grep -o '[0-9]*$'
}

recoveries() {
    cat $journal 2>/dev/null | grep -c '"event": "recovered"'
}

# settle: waits until the run has recovered from the newest kill, before which it
# had recovered `before` times. More than a few kills in a row between two steps
# end a run by design.
settle() {
    local tries=0
    until [ "$(recoveries)" -gt "$before" ]; do
        sleep 0.02
        tries=$((tries + 1))
        [ $tries -lt 3000 ] && kill -0 "$child" 2>/dev/null || return
    done
}

done_kills=0
while [ $done_kills -lt "$kills" ] && kill -0 "$child" 2>/dev/null; do
    if [ -n "${MTBF:-}" ]; then
        sleep "$(awk -v r=$RANDOM -v m="$MTBF" \
            'BEGIN { printf "%.3f", -m * log((r + 1) / 32769) }')"
    elif [ "$each" -gt 0 ]
    then sleep "0.$(printf %03d $((RANDOM % each)))"
    else sleep "0.$((RANDOM % 7 + 3))$((RANDOM % 10))"; fi
    victim=$(processes | sed -n "$((1 + RANDOM % 4))p")
    earlier=$(recoveries)
    if [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; then
        done_kills=$((done_kills + 1))
        before=$earlier
    fi
    [ $done_kills -eq 0 ] || [ -n "${MTBF:-}" ] ||
        { [ "$each" -eq 0 ] && [ $((done_kills % 4)) -ne 0 ]; } || settle
done
if [ -n "${MTBF:-}" ]; then
    kill -TERM "$child"
    ends "$done_kills kills, stopped" killed "$child" 75
else
    ends "$done_kills kills: the same bytes" killed "$child"
fi

if lockstep data audit killed >out 2>&1; then ok "each sample once an epoch"
else bad "samples" "not each once an epoch" out; fi

# Failures a second, the mean time from one to the next step and that of a step
# are the run's own: what is compared is the share of time that steps took. A
# recovery contains the next step and, on the average, half of one that was lost.
ettr() {
    lockstep incidents killed --json | tr -d '\n' >said
    value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" said; }
    read -r rate restart step measured < <(grep -o '"lost_ms": [0-9.]*' $journal |
        awk -v steps="$(value steps_s)" -v lost="$(value recoveries_s)" \
            -v count="$(step_now killed)" '{ sum += $2 / 1000 } END {
                step = steps / (count - NR)
                print NR / (steps + lost), sum / NR - 1.5 * step, step,
                    step * count / (steps + lost) }')
    lockstep ettr --restart "$restart" --interval "$step" --stall 0 \
        --per-node-day "$(awk -v r="$rate" 'BEGIN { print r * 86400 / 128 }')" \
        --json | tr -d '\n' | grep -o '"ranks": 1024,[^}]*' |
        sed -n 's/.*"ettr": \([0-9.]*\).*/\1/p' | head -n 1 >predicted
    echo "a failure in $(awk -v r="$rate" 'BEGIN { print 1 / r }') s, $restart s" \
        "to the next step of $step s: $measured, predicted $(cat predicted)"
    awk -v m="$measured" -v p="$(cat predicted)" \
        'BEGIN { exit !(p > 0 && m - p < 0.02 && p - m < 0.02) }'
}
if [ -n "${MTBF:-}" ]; then
    if ettr; then ok "the share of time, as predicted"
    else bad "the share of time" "not as predicted" said; fi
fi

# Each recovery may follow several kills in a row; each kill costs one step.
awk -F'[:,]' '
    /"event": "recovered"/ {
        for (i = 1; i <= NF; i++) {
            if ($i ~ /"redone"/ && $(i + 1) > 1) many++
            if ($i ~ /"lost_ms"/) print $(i + 1) + 0
        }
    }
    END { exit many > 0 }' $journal | sort -n >times
if [ "${PIPESTATUS[0]}" -eq 0 ] && [ -s times ]; then
    ok "no recovery did more than one step again"
else
    bad "redone steps" "more than one" $journal
fi
lines=$(wc -l <times)
median=$(sed -n "$((lines / 2 + 1))p" times)
worst=$(tail -n 1 times)
echo "$lines recoveries: from the last step before to the next one" \
    "${median%.*} ms (median), ${worst%.*} ms (worst)"
noticed=$(sed -n 's/.*"event": "incident".*"noticed_ms": \([0-9.]*\).*/\1/p' \
    $journal | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
echo "noticed at most ${noticed:-no incident} ms later (median)"
if [ "${LIMITS:-0}" -gt 0 ] && [ -z "${MTBF:-}" ]; then
    if [ "$lines" -gt 0 ] && [ "${median%.*}" -le 1000 ] &&
        [ "${worst%.*}" -le 3000 ] && [ "${noticed%.*}" -le 50 ]
    then ok "the times"
    else bad "the times" "beyond 1000, 3000 and 50 ms"; fi
else
    echo "left out: limits of the times; nothing here is first in line (chrt)"
fi
report
