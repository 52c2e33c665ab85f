#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# random_kills.sh - one supervised run of 4 ranks whose ranks are killed with
# kill -9 at random moments, again and again: it ends in the same bytes, redoes
# at most one step for each kill, and goes on in about a second.
#
#     BUILD=build [KILLS=8] [STEPS=80] [BATCH=64] [SEED=1] [EACH=] [WHOLE=] \
#         tests/drills/random_kills.sh
#
# KILLS=100 STEPS=200 BATCH=992 EACH=100 is the full drill: with EACH a kill
# follows the recovery from the one before after less than so many ms; BATCH is
# for steps that are long enough for 100 kills. LIMITS=1 also
# asserts the times that a machine with a core for each rank keeps (median 1 s,
# worst 3 s). WHOLE names a directory that keeps the run without kills for the
# next time.
. "${0%/*}/common.sh"
kills=${KILLS:-8}
steps=${STEPS:-80}
RANDOM=${SEED:-$$}
echo "seed ${SEED:-$$}"
prepare
# Steps of some 50 ms, so that the kills fall into all parts of them.
base="--set train.steps=$steps --set checkpoint.every=25
    --set validate.every=50 --set train.batch=${BATCH:-64} --set numerics.grid_data=8
    --set model.width=48"
# shellcheck disable=SC2086
if [ -d "${WHOLE:-}" ]; then cp -r "$WHOLE" whole
else must train config.yaml --run whole $base; fi
[ -z "${WHOLE:-}" ] || [ -d "$WHOLE" ] || cp -r whole "$WHOLE"
# shellcheck disable=SC2086
"$program" train config.yaml --run killed $base --ranks 4 --set mesh.data=4 \
    --set zero=zero1 --set train.threads=1 --supervised --copies 1 >log 2>&1 &
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
    if [ -n "${EACH:-}" ]
    then sleep "0.$(printf %03d $((RANDOM % EACH)))"
    else sleep "0.$((RANDOM % 7 + 3))$((RANDOM % 10))"; fi
    victim=$(processes | sed -n "$((1 + RANDOM % 4))p")
    earlier=$(recoveries)
    if [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; then
        done_kills=$((done_kills + 1))
        before=$earlier
    fi
    [ $done_kills -eq 0 ] ||
        { [ -z "${EACH:-}" ] && [ $((done_kills % 4)) -ne 0 ]; } || settle
done
ends "$done_kills kills: the same bytes" killed "$child"

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
if [ -n "${LIMITS:-}" ]; then
    if [ "${median%.*}" -le 1000 ] && [ "${worst%.*}" -le 3000 ]; then
        ok "the times"
    else
        bad "the times" "beyond 1000 and 3000 ms"
    fi
fi
report
