#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# subsets.sh - of four nodes every one and every two are lost at once, one set
# after the other, in one run: it goes on from copies in memory exactly when no
# pair of nodes that keep copies for each other is lost with its ranks, else
# from the newest checkpoint, and ends in the bytes of a run that was left alone.
#
#     BUILD=build [SETS="a a+b"] tests/drills/subsets.sh
. "${0%/*}/common.sh"
LIMIT=300
prepare
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
base="--set train.steps=1000000 --set checkpoint.every=100
    --set validate.every=0 --set train.threads=1"
four="--ranks 4 --set mesh.data=4 --set zero=zero1 --set comm.limit=60
    --copies 1"
port=$(free_port)
declare -A agents names
joined=0
# A node that failed twice is not used again: each comes back as a new one.
join() { # PLACE
    joined=$((joined + 1))
    names[$1]=$1$joined
    "$program" agent --join "127.0.0.1:$port" --token token --slots 2 \
        --name "${names[$1]}" >>"log.$1" 2>&1 &
    agents[$1]=$!
    children="$children $!"
    disown
}
count() { grep -c "$1" log; }
# more PATTERN NUMBER: until the log has more such lines than NUMBER
more() {
    local tries=0
    until [ "$(count "$1")" -gt "$2" ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 900 ] && continue
        bad "more lines of $1" "they did not come in time" log
        last_words
        report
    done
}
# steps NUMBER: until so many more are made: then copies are carried
steps() {
    local until=$(($(step_now nodes) + $1)) tries=0
    while [ "$(step_now nodes)" -lt $until ] && [ $tries -lt 900 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
# pair_is_lost PAIRS: whether a pair "x and y" of those, of which one has ranks,
# is in $lost
pair_is_lost() {
    local one other
    while read -r one other; do
        [[ $lost == *" $one "* && $lost == *" $other "* ]] || continue
        [[ $homes == *" $one "* || $homes == *" $other "* ]] && return
    done < <(echo "$1" | sed 's/, /\n/g; s/ and / /g')
    return 1
}
nodes_with_ranks() {
    lockstep status nodes --json 2>/dev/null |
        sed -n 's/.*"node": "\([a-d][0-9]*\)".*/ \1 /p' | sort -u | tr '\n' ' '
}

# shellcheck disable=SC2086
"$program" supervise config.yaml --run nodes $base $four --token token \
    --listen 127.0.0.1:$port >log 2>&1 &
child=$!
children="$children $child"
await log 'listens'
for name in a b c d; do
    join $name
    await log "node *${names[$name]} joined"
done
await nodes/metrics.jsonl '"step": 110,' # there is a checkpoint
memory=0
disk=0
for set in ${SETS:-a b c d a+b a+c a+d b+c b+d c+d}; do
    await log 'of two at once 4 of 6 pairs'
    steps 15
    pairs=$(grep -o 'of two at once 4 of 6 pairs, not .*' log | tail -n 1 |
        sed 's/.*not //')
    homes=$(nodes_with_ranks)
    hit=
    lost=
    for name in ${set//+/ }; do
        lost="$lost ${names[$name]} "
        [[ $homes == *" ${names[$name]} "* ]] && hit=yes
    done
    wanted=memory
    pair_is_lost "$pairs" && wanted=checkpoint
    before=$(count '^recovered')
    four_of_six=$(count 'of two at once 4 of 6 pairs')
    doomed=()
    for name in ${set//+/ }; do doomed+=("${agents[$name]}"); done
    kill -9 "${doomed[@]}"
    if [ -n "$hit" ]; then
        more '^recovered' "$before"
        from=$(grep '^recovered' log | tail -n 1 |
            sed 's/.*goes on from step [0-9]* (\(peer \)*\([a-z]*\)).*/\2/')
        if [ "$from" = $wanted ]; then ok "$set is lost: $from"
        else bad "$set is lost: $from, not $wanted" \
            "pairs $pairs; ranks on $homes" log
        fi
        if [ $wanted = memory ]; then memory=$((memory + 1))
        else disk=$((disk + 1)); fi
    fi
    steps 5
    for name in ${set//+/ }; do join "$name"; done
    more 'of two at once 4 of 6 pairs' "$four_of_six"
done
if [ -n "${SETS:-}" ] || { [ $memory -ge 2 ] && [ $disk -ge 1 ]; }
then ok "both ways ($memory from memory, $disk from the disk)"
else bad "both ways" "$memory from memory, $disk from the disk"; fi
# shellcheck disable=SC2086
stops "the bytes of a run that was left alone" nodes $child config.yaml $base
report
