#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plan_copies.sh - `plan --time --copies`: copies of the state travel in the time
# in which a step leaves the network idle; a slower network, more states and more
# nodes with copies leave more to wait for; replicas send nothing.
. "${0%/*}/common.sh"
prepare
cat >small.yaml <<'END'
model: {family: llama, vocab: 256, layers: 4, width: 256, heads: 4}
data: {sequence: 64}
train: {batch: 16, steps: 10}
mesh: {data: 2}
zero: zero1
END
asked="plan small.yaml --ranks 2 --nodes 2 --time"

# value KEY ARGUMENT...: of the object "copies".
value() {
    local key=$1
    shift
    lockstep "$@" --json 2>err | sed -n '/"copies": {/,/}/s/.*"'"$key"'": \(.*[^,]\),*$/\1/p'
}
# more NAME SMALL LARGE: two numbers.
more() {
    if [ -n "$2" ] && [ -n "$3" ] && awk "BEGIN { exit !($2 < $3) }"; then ok "$1"
    else bad "$1" "${2:-none} and ${3:-none}" err; fi
}
# near NAME A B: two numbers above 0, no more than 1% apart.
near() {
    if awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0 && b > 0 && a / b > 0.99 && a / b < 1.01) }'
    then ok "$1"
    else bad "$1" "${2:-none} and ${3:-none}" err; fi
}
same() {
    if [ "$2" = "$3" ] && [ -n "$2" ]; then ok "$1"
    else bad "$1" "${2:-none}, not ${3:-none}" err; fi
}

quick="$asked --machine cpu,nic_rate=1e12 --copies 1"
slow="$asked --machine cpu,nic_rate=1e6 --copies 1"
# shellcheck disable=SC2086 # words
{
    same "a fast network: nobody waits" "$(value fits $quick)" true
    same "a slow one: they do not fit" "$(value fits $slow)" false
    same "all travel in idle time" "$(value idle_share $quick)" 1
    more "or not all" "$(value idle_share $slow)" 1
    more "ranks wait for the rest" 0 "$(value exposed_s $slow)"
    same "K is 1 where it costs nothing" "$(value cheap_every $quick)" 1
    more "K is larger where it costs" 1 "$(value cheap_every $slow)"
    auto="$asked --machine cpu,nic_rate=1e6 --copies auto"
    same "auto takes that K" "$(value every $auto)" "$(value cheap_every $slow)"
    share=$(value cost_share $auto)
    more "it costs no more than 1%" "$share" 0.0100001
    less="${auto% *} $(($(value cheap_every $slow) - 1))"
    more "one step fewer costs more" 0.01 "$(value cost_share $less)"
    # With three copies each node sends to two others.
    four="plan small.yaml --ranks 4 --nodes 4 --time --machine cpu --copies 1 --set mesh.data=4"
    same "one partner" "$(value partners $four)" 1
    same "two of them" "$(value partners $four --replicas 3)" 2
    one=$(value node_bytes $four) two=$(value node_bytes $four --replicas 3)
    same "twice the bytes leave" "$(awk "BEGIN { print $two / $one }")" 2
    same "replicas send nothing" "$(value node_bytes $quick --set zero=ddp)" 0
    same "one node has no partner" \
        "$(value partners plan small.yaml --ranks 2 --nodes 1 --time --machine cpu --copies 1)" 0
    # Three ranks of which a node has two.
    same "the last node has fewer ranks" "$(value partners plan small.yaml --ranks 3 --time \
        --machine cpu --copies 1 --set train.batch=12 --set mesh.data=3 \
        --set numerics.grid_data=3)" 1
    # A step of 262,144 micro-batches is too long for lists: its copies are counted in closed form.
    for axis in tensor pipe; do
        lists="plan small.yaml --ranks 4 --nodes 2 --time --machine cpu --copies 1 --set mesh.$axis=2"
        stages="$lists --set train.batch=262144 --set train.micro_batch=1"
        lockstep $stages --json >json 2>err
        if grep -q '"step_by": "stages"' json; then ok "mesh.$axis=2: whole stages"
        else bad "mesh.$axis=2: whole stages" "not" err; fi
        for key in bytes node_bytes; do
            near "mesh.$axis=2: $key of lists and of stages" "$(value $key $lists)" \
                "$(value $key $stages)"
        done
    done
    more "states of a device take a pass" 0 \
        "$(value pass_s plan small.yaml --ranks 2 --nodes 2 --time --machine h100 --copies 1)"
}

lockstep plan config.yaml --ranks 2 --nodes 2 --time --machine cpu --copies 1 \
    --set mesh.data=2 --set zero=zero1 >text 2>err
if grep -q 'Copies of the state, .* a rank, after every 1 step:' text &&
    grep -q 'they cost .*K [0-9]* is the smallest' text &&
    grep -q 'copies on 2 nodes: any one may be lost' text; then
    ok "the text"
else bad "the text" "lacks a line" text; fi

# shellcheck disable=SC2086
lockstep $slow --draw slow.svg >text 2>err
if grep -q 'rank 0 copies' slow.svg && grep -q 'state, in idle time' slow.svg &&
    grep -q 'state, waited for' slow.svg; then
    ok "the picture has a row of copies"
else bad "the picture has a row of copies" "not" err; fi
# shellcheck disable=SC2086
lockstep ${slow% --copies 1} --draw without.svg >text 2>err
if [ -s without.svg ] && ! grep -q copies without.svg; then ok "or none"
else bad "or none" "it has" without.svg; fi

# shellcheck disable=SC2086
{
    expect "copies without a time" 2 "copies goes with --time" plan small.yaml --copies 1
    expect "no copies" 2 "copies" ${slow% *} 0
    expect "copies of another program" 2 "leave --as out" $slow --as megatron
    expect "replicas without copies" 2 "add --copies K" ${slow% --copies 1} --replicas 3
    expect "too many replicas" 2 "replicas" $slow --replicas 4
}
report
