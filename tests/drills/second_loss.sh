#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# second_loss.sh - copies are made after every 3000th step alone. The node that
# keeps them is lost; another one is sent the newest copy at once, long before the
# next is due; then the node of all ranks is lost: the run goes on from that copy,
# and ends in the same bytes.
#
#     BUILD=build tests/drills/second_loss.sh
. "${0%/*}/common.sh"
prepare
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
base="--set checkpoint.every=1000000 --set validate.every=0"
journal=kept/control/journal.jsonl
address=127.0.0.1:$(free_port)
# shellcheck disable=SC2086
"$program" supervise config.yaml --run kept $base --set train.steps=1000000 \
    --ranks 2 --copies 3000 --set mesh.data=2 --set zero=zero1 \
    --set train.threads=1 --set comm.limit=60 --token token \
    --listen "$address" >log 2>&1 &
child=$!
children="$children $child"
await log listens
join() { # NAME
    "$program" agent --join "$address" --token token \
        --slots 2 --name "$1" >"log.$1" 2>&1 &
    agent=$!
    children="$children $agent"
    await log "node *$1 joined"
}
join a
a=$agent
join b
b=$agent
carried() {
    lockstep status kept --json 2>/dev/null |
        sed -n 's/.*"step_on_other_nodes": \([0-9]*\).*/\1/p'
}
# until_carried STEP: the other node has the copy of that step; 0: none has.
until_carried() {
    local tries
    for ((tries = 0; tries < 900; tries++)); do
        [ "$(carried)" != "$1" ] || return 0
        sleep 0.2
    done
    bad "a copy of step $1 elsewhere" "$(carried)" log
    last_words
    report
}
until_carried 3000
ok "the first partner has the copy"
kill -9 "$b"
await log 'node *b is gone'
until_carried 0
join c
until_carried 3000
if ! grep -q '"event": "incident"' $journal # a rank that begins sends it, too
then ok "the next partner has it at once"
else bad "the next partner has it at once" "behind an incident" $journal; fi
kill -9 "$a"
await $journal '"event": "recovered"'
if grep -q '"from": "peer memory", "step": 3000,' $journal
then ok "the second loss costs no more than the steps since the copy"
else bad "the second loss" "from elsewhere" $journal; fi
# The supervisor has the calls of both ranks as their last reports had them.
lockstep incidents kept --calls 1 >said 2>&1
if [ "$(awk 'NR > 1 { print $3 }' said | sort -u | tr '\n' ' ')" = "0 1 " ]
then ok "the calls of the lost ranks are kept"
else bad "the calls of the lost ranks are kept" "not" said; fi
# shellcheck disable=SC2086
stops "the bytes of a run that was left alone" kept "$child" config.yaml $base
report
