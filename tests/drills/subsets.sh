#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# subsets.sh - of four nodes every one and every two are lost at once, one set
# after the other, in one run: it goes on from copies in memory exactly when no
# group of nodes that keep copies for each other is lost with its ranks, else
# from the newest checkpoint, and ends in the bytes of a run that was left alone.
# Then the same with three copies on six nodes, some sets of one to three; of all
# 41, with REPLICAS=3 NODES=6 and SETS that names them, those without a rank say
# nothing.
#
#     BUILD=build [REPLICAS=2 NODES=4 SETS="a a+b"] tests/drills/subsets.sh
if [ -z "${REPLICAS:-}" ]; then
    REPLICAS=2 NODES=4 "$0" && REPLICAS=3 NODES=6 \
        SETS="a b+c a+b+c a+d d+e+f a+d+e b+c+f b+d" exec "$0"
    exit
fi
. "${0%/*}/common.sh"
LIMIT=300
case $REPLICAS in
2) at_once='of two at once 4 of 6 pairs' zero=zero1 ;;
*) at_once='any two may be lost; of three at once 18 of 20 sets' zero=ddp ;;
esac # without ZeRO ranks have the same rows, which travel once
prepare
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
save_every=100
base="--set train.steps=1000000 --set checkpoint.every=$save_every
    --set validate.every=0 --set train.threads=1"
four="--ranks 4 --set mesh.data=4 --set zero=$zero --set comm.limit=60
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
        [ $tries -lt 1800 ] && continue
        bad "more lines of $1" "they did not come in time" log
        last_words
        report
    done
}
# steps NUMBER: until so many more are made: then copies are carried
steps() {
    local until=$(($(step_now nodes) + $1)) tries=0
    while [ "$(step_now nodes)" -lt $until ] && [ $tries -lt 3600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
# between_saves: until the newest checkpoint is older than every copy, by far:
# a run goes on from whichever of the two is newer.
between_saves() {
    local step past tries=0
    until step=$(step_now nodes) && past=$((${step:-0} % save_every)) &&
        [ $past -ge 10 ] && [ $past -lt $((save_every * 3 / 4)) ] ||
        [ $tries -ge 3600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
# group_is_lost GROUPS: whether a group "x and y" of those, of which one has
# ranks, is in $lost
group_is_lost() {
    local group name all any
    while read -r group; do
        all=yes any=
        for name in $group; do
            [[ $lost == *" $name "* ]] || all=
            [[ $homes == *" $name "* ]] && any=yes
        done
        [ -n "$all" ] && [ -n "$any" ] && return
    done < <(echo "$1" | sed 's/, /\n/g; s/ and / /g')
    return 1
}
nodes_with_ranks() {
    lockstep status nodes --json 2>/dev/null |
        sed -n 's/.*"node": "\([a-f][0-9]*\)".*/ \1 /p' | sort -u | tr '\n' ' '
}

# shellcheck disable=SC2086
"$program" supervise config.yaml --run nodes $base $four --replicas $REPLICAS --token token \
    --listen 127.0.0.1:$port >log 2>&1 &
child=$!
children="$children $child"
await log 'listens'
letters=(a b c d e f)
for name in "${letters[@]:0:NODES}"; do
    join $name
    await log "node *${names[$name]} joined"
done
await nodes/metrics.jsonl '"step": 110,' # there is a checkpoint
memory=0
disk=0
for set in ${SETS:-a b c d a+b a+c a+d b+c b+d c+d}; do
    await log "$at_once"
    steps 15
    groups=$(grep -o "$at_once, not .*" log | tail -n 1 | sed 's/.*not //')
    homes=$(nodes_with_ranks)
    hit=
    lost=
    for name in ${set//+/ }; do
        lost="$lost ${names[$name]} "
        [[ $homes == *" ${names[$name]} "* ]] && hit=yes
    done
    wanted=memory
    group_is_lost "$groups" && wanted=checkpoint
    before=$(count '^recovered')
    complete=$(count "$at_once")
    doomed=()
    for name in ${set//+/ }; do doomed+=("${agents[$name]}"); done
    between_saves
    kill -9 "${doomed[@]}"
    if [ -n "$hit" ]; then
        more '^recovered' "$before"
        said=$(grep '^recovered' log | tail -n 1)
        from=$(sed 's/.*goes on from step [0-9]* (\(peer \)*\([a-z]*\)).*/\2/' <<<"$said")
        if [ "$from" = $wanted ]; then ok "$set is lost: $from"
        else bad "$set is lost: $from, not $wanted" \
            "$said; groups $groups; ranks on $homes" log
        fi
        if [ $wanted = memory ]; then memory=$((memory + 1))
        else disk=$((disk + 1)); fi
    fi
    steps 5
    for name in ${set//+/ }; do join "$name"; done
    more "$at_once" "$complete"
done
if { [ -n "${SETS:-}" ] && [ "$NODES" = 4 ]; } || { [ $memory -ge 2 ] && [ $disk -ge 1 ]; }
then ok "both ways ($memory from memory, $disk from the disk)"
else bad "both ways" "$memory from memory, $disk from the disk"; fi
# shellcheck disable=SC2086
stops "the bytes of a run that was left alone" nodes $child config.yaml $base
report
