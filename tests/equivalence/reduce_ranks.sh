#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# reduce_ranks.sh - what is reduced when, over which axes, and with what:
# zero_reduce, axes of each thing, and buckets. Gradients that ranks divide are reduced after
# every micro-batch (each) or once, also beside ranks of the pipe and of the
# context axis. Both give the bits of one rank; memory and messages follow the
# formulas of docs/zero.md; what cannot be is refused with its reason.
. "${0%/*}/../drills/common.sh"
. "$tree/tests/equivalence/rows.sh"
LIMIT=600
prepare

small="data.sequence=24 train.batch=8 train.micro_batch=1 numerics.grid_data=8
    numerics.grid_tensor=2 model.layers=4 train.threads=1"

# shellcheck disable=SC2086
{
table "beside a pipe" $small model.tied=true model.vocab=303 <<'END'
ranks=4 mesh.data=2 mesh.pipe=2 zero=zero2 zero_reduce=each
ranks=4 mesh.data=2 mesh.pipe=2 zero=fsdp zero_reduce=each schedule.name=gpipe
ranks=4 mesh.shard=2 mesh.pipe=2 zero=fsdp zero_reduce=each schedule.name=interleaved
ranks=4 mesh.shard=2 mesh.pipe=2 zero=fsdp zero_reduce=each schedule.name=breadth-first train.micro_batch=2
ranks=4 mesh.shard=2 mesh.pipe=2 zero=fsdp zero_reduce=once schedule.name=zb-h1
ranks=8 mesh.shard=2 mesh.tensor=2 mesh.pipe=2 zero=fsdp zero_reduce=each
ranks=8 mesh.data=2 mesh.shard=2 mesh.pipe=2 zero=hsdp zero_reduce=each
ranks=4 mesh.shard=4 zero=fsdp zero_reduce=once
END
# Several blocks a stage, and W behind what is sent: a norm between them is
# complete long before its block, and its room was taken too early; sums over
# tensor ranks were missing.
table "gradients sent before W" $small model.layers=6 <<'END'
ranks=4 mesh.shard=2 mesh.pipe=2 zero=fsdp zero_reduce=each schedule.name=1f1b-early-send
ranks=4 mesh.data=2 mesh.pipe=2 zero=zero2 zero_reduce=each schedule.name=gpipe-early-send
ranks=8 mesh.shard=2 mesh.tensor=2 mesh.pipe=2 zero=fsdp zero_reduce=each schedule.name=1f1b-early-send
ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 zero=zero2 zero_reduce=each schedule.name=gpipe-early-send
END
# By the formulas auto takes each beside a pipe: one round.
table "auto beside a pipe" $small model.layers=8 <<'END'
ranks=4 mesh.data=2 mesh.pipe=2 zero=fsdp train.micro_batch=4
ranks=4 mesh.shard=2 mesh.pipe=2 zero=zero2 train.micro_batch=4 schedule.name=gpipe
END
table "axes of each" $small <<'END'
ranks=4 mesh.data=2 mesh.shard=2 zero={states:[shard]}
ranks=4 mesh.data=2 mesh.shard=2 zero={states:[shard],gradients:[shard]}
ranks=4 mesh.data=2 mesh.shard=2 zero={states:[data,shard],gradients:[data,shard],weights:[data,shard]}
ranks=8 mesh.data=2 mesh.shard=2 mesh.pipe=2 zero={states:[shard],gradients:[shard]} zero_reduce=each
ranks=8 mesh.data=2 mesh.shard=2 mesh.tensor=2 zero={states:[shard]} train.dtype=float32
END
# More axes divide the states than gradients or weights.
LOCKSTEP_CHECK=lives:late table "axes that differ" $small model.tied=true \
    model.vocab=303 <<'END'
ranks=4 mesh.data=2 mesh.shard=2 zero={gradients:[shard],states:[data,shard]}
ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],gradients:[shard],states:[data,shard]}
ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],gradients:[data,shard],states:[data,shard]} fsdp.prefetch=2
ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],states:[data,shard]} fsdp.gather=once
ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],states:[shard]}
ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[data,shard],states:[data,shard]}
ranks=8 mesh.data=2 mesh.shard=2 mesh.tensor=2 zero={weights:[shard],gradients:[data,shard],states:[data,shard]} fsdp.reshard=false
ranks=8 mesh.data=2 mesh.shard=2 mesh.pipe=2 zero={weights:[shard],gradients:[data,shard],states:[data,shard]} zero_reduce=each fsdp.bucket=0.1
ranks=8 mesh.data=2 mesh.shard=2 mesh.pipe=2 zero={gradients:[shard],states:[data,shard]} schedule.name=zb-h1
END
table "axes that differ, 16 bits and whole matrices" $small \
    train.dtype=bfloat16 optimizer.name=muon optimizer.ema=0.9 <<'END'
ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],gradients:[data,shard],states:[data,shard]}
ranks=8 mesh.data=4 mesh.shard=2 zero={gradients:[shard],states:[data,shard]}
END
table "axes that differ, experts" $small model.family=mixtral moe.experts=4 \
    moe.top_k=2 <<'END'
ranks=8 mesh.data=2 mesh.shard=2 mesh.expert=2 zero={weights:[shard],gradients:[data,shard],states:[data,shard]}
ranks=8 mesh.data=2 mesh.shard=2 mesh.expert=2 zero={gradients:[shard],states:[data,shard]}
ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],gradients:[shard],states:[data,shard]}
END
table "buckets, and a limit of gathers" $small <<'END'
ranks=4 mesh.data=4 fsdp.bucket=1
ranks=4 mesh.data=4 zero=zero1 fsdp.bucket=0.1
ranks=4 mesh.data=4 zero=fsdp fsdp.bucket=0.1 fsdp.prefetch=3 fsdp.in_flight=0.15
ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp fsdp.bucket=1 fsdp.prefetch=3 fsdp.in_flight=0.1
ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 zero=fsdp fsdp.bucket=1 zero_reduce=each
ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 zero=fsdp fsdp.bucket=1 fsdp.gather=once schedule.name=zb-v
END
LOCKSTEP_CHECK=lives:late table "beside context ranks" $small \
    numerics.grid_context=2 data.sequence=48 <<'END'
ranks=4 mesh.data=2 mesh.context=2 zero=zero2 zero_reduce=each
ranks=4 mesh.data=2 mesh.context=2 zero=fsdp zero_reduce=each train.micro_batch=2
ranks=2 mesh.data=2 zero=fsdp zero_reduce=each
ranks=8 mesh.shard=2 mesh.context=2 mesh.pipe=2 zero=fsdp zero_reduce=each
ranks=8 mesh.shard=2 mesh.context=2 mesh.tensor=2 zero=fsdp zero_reduce=each train.micro_batch=2
ranks=8 mesh.data=2 mesh.shard=2 mesh.context=2 zero=hsdp zero_reduce=each fsdp.prefetch=2
END

# ---- the price ----

number() { # KEY CHOICE FILE
    awk -v key="\"$1\":" -v choice="\"$2\"" '
        /"zero_reduce":/ { here = index($0, choice) }
        here && $1 == key { gsub(",", "", $2); print $2; exit }' "$3"
}

# Rows of memory are multiples of 64 bytes, on each rank.
near() { # A B MOST
    [ $(($1 - $2)) -le "$3" ] && [ $(($2 - $1)) -le "$3" ]
}

# Over all ranks that share a stage: with N of them and R rounds, S the
# gradients of the stage, a sum that divides them sends (N - 1) S in all, each
# of them R times as often, and keeps 1 + log2 R shards.
price() { # NAME RANKS-OF-A-STAGE ALL-RANKS ROUNDS SETTING...
    local name=$1 n=$2 ranks=$3 rounds=$4 sets=() word rank levels=1 at=$4
    local whole=0 each=0 once=0 shards=0 stages
    shift 4
    while [ "$at" -gt 1 ]; do levels=$((levels + 1)); at=$((at / 2)); done
    for word; do sets+=(--set "$word"); done
    for ((rank = 0; rank < ranks; rank++)); do
        lockstep plan config.yaml --ranks "$ranks" --rank $rank --json \
            --explain zero "${sets[@]}" >price.json 2>log ||
            { bad "$name" "rank $rank: exit $?" log; return; }
        [ "$(number reductions each price.json)" = "$rounds" ] ||
            { bad "$name" "not $rounds rounds" price.json; return; }
        shards=$((shards + $(number gradients_bytes each price.json) / levels))
        whole=$((whole + $(number gradients_bytes once price.json)))
        each=$((each + $(number sent_bytes each price.json)))
        once=$((once + $(number sent_bytes once price.json)))
    done
    stages=$((ranks / n))
    if [ $each -ne $((rounds * once)) ]; then
        bad "$name" "each sends $each, once $once, $rounds rounds"
    elif ! near $whole $((n * shards)) $((64 * ranks * n)); then
        bad "$name" "whole: $whole, shards: $n x $shards"
    elif ! near $once $(((n - 1) * shards)) $((64 * ranks * n)); then
        bad "$name" "once sends $once, not $n - 1 times $shards"
    else
        ok "$name: $stages stages, $rounds rounds"
    fi
}
price "price beside a pipe" 2 4 4 $small zero=fsdp mesh.pipe=2 mesh.data=2
price "price beside a pipe and tensor ranks" 2 8 4 $small zero=zero2 \
    mesh.pipe=2 mesh.data=2 mesh.tensor=2
price "price of data ranks alone" 4 4 2 $small zero=fsdp mesh.data=4
price "price beside context ranks" 2 4 4 $small numerics.grid_context=2 \
    data.sequence=48 zero=fsdp mesh.context=2 mesh.data=2

# auto takes what keeps less and takes no longer, by the formulas of docs/zero.md.
chosen() { # CHOICE SETTING...
    local choice=$1 sets=() word
    shift
    for word; do sets+=(--set "$word"); done
    lockstep plan config.yaml --ranks 4 --explain zero \
        --set model.layers=16 --set train.batch=16 \
        --set numerics.grid_data=16 --set zero=fsdp --set mesh.data=2 \
        "${sets[@]}" >out 2>log
    if grep -q "^$choice  *yes" out; then ok "auto is $choice: $*"
    else bad "auto is $choice: $*" "it is not" out; fi
}
chosen each mesh.pipe=2 train.micro_batch=1 data.sequence=2736
chosen once mesh.pipe=2 train.micro_batch=1 data.sequence=2728
chosen each mesh.pipe=2 train.micro_batch=2 data.sequence=1368
chosen each mesh.pipe=2 train.micro_batch=8 data.sequence=64
chosen once mesh.pipe=2 train.micro_batch=8 data.sequence=64 model.layers=4
chosen once mesh.pipe=2 train.micro_batch=1 data.sequence=4096 \
    schedule.name=zb-h1
chosen once mesh.pipe=2 train.micro_batch=1 data.sequence=4096 \
    model.family=mixtral moe.experts=4
chosen each mesh.context=2 numerics.grid_context=2 train.micro_batch=1 \
    data.sequence=5472
chosen once mesh.context=2 numerics.grid_context=2 train.micro_batch=1 \
    data.sequence=5456
chosen each mesh.shard=2 train.micro_batch=1 data.sequence=64
# Gradients that mesh.shard divides are added over mesh.data in each round, too,
# and the plan says how much that is: the bytes of one round, so many times.
copied() { # ZERO
    lockstep plan config.yaml --ranks 4 --json --explain zero \
        --set mesh.data=2 --set mesh.shard=2 --set "zero=$1" --set data.sequence=24 \
        --set train.batch=16 --set train.micro_batch=2 \
        --set numerics.grid_data=8 >price.json 2>log
    if [ "$(number copies_bytes once price.json)" -gt 0 ] &&
        [ "$(number reductions each price.json)" = 2 ] &&
        [ "$(number copies_bytes each price.json)" = \
          $((2 * $(number copies_bytes once price.json))) ]
    then ok "price between copies: $1"
    else bad "price between copies: $1" "other bytes" price.json; fi
}
copied hsdp
copied '{gradients: [shard], states: [data, shard]}'
}

# ---- what cannot be ----

small="--set data.sequence=24 --set train.batch=8 --set numerics.grid_data=4"
# shellcheck disable=SC2086
{
expect "less than a leaf" 78 "is no whole subtree of the 4 data leaves" train \
    config.yaml --run none --dry-run --ranks 2 $small --set zero=fsdp \
    --set zero_reduce=each --set train.micro_batch=1
expect "what it names" 0 "" train config.yaml --run none --dry-run --ranks 2 \
    $small --set zero=fsdp --set zero_reduce=each --set train.micro_batch=2
expect "W that is late" 78 "schedule.name=zb-h1" train config.yaml --run none \
    --dry-run --ranks 4 $small --set zero=fsdp --set zero_reduce=each \
    --set train.micro_batch=2 --set mesh.pipe=2 --set schedule.name=zb-h1
expect "nothing divided" 78 "divides no gradients" train config.yaml \
    --run none --dry-run --ranks 2 $small --set zero_reduce=each
expect "another word" 78 "not auto, each or once; nearest: each" plan \
    config.yaml --set zero_reduce=eech
expect "the price, for people" 0 "sent in a step" plan config.yaml --ranks 4 \
    --set mesh.pipe=2 --set zero=fsdp --explain zero

# The axes of each thing.
sets="plan config.yaml --ranks 4 --set mesh.shard=2"
expect "states less than gradients" 78 "of which another has the gradient" \
    $sets --set 'zero={gradients: [shard, data], states: [shard]}'
expect "weights alone" 78 "update weights that it does not keep" $sets \
    --set 'zero={weights: [shard]}'
expect "gradients less than weights" 78 "that it never reads" $sets --set \
    'zero={weights: [shard, data], gradients: [shard], states: [shard, data]}'
expect "shards of one rank" 78 "divides over mesh.shard, which has one rank" \
    plan config.yaml --ranks 4 --set \
    'zero={gradients: [shard], states: [shard, data]}'
expect "an unknown axis" 78 '"tensor" is not data, shard or expert' $sets \
    --set 'zero={states: [tensor]}'
expect "no list" 78 "the form is" $sets --set 'zero={states: shard}'
expect "data alone" 78 "axes without shard" $sets --set 'zero={states: [data]}'
{ printf 'zero:\n  states: [shard]\n  gradients: [shard]\n'; cat config.yaml; } \
    >sets.yaml
expect "as YAML" 0 "each         yes" plan sets.yaml --ranks 2 \
    --set mesh.shard=2 --explain zero $small
printf 'zero: {states: {shard: 1}}\n' >sets.yaml
expect "a mapping in a mapping" 78 "found a mapping" plan sets.yaml

# ---- a run that changes it ----

must train config.yaml --run whole --ranks 4 $small --set mesh.pipe=2 \
    --set zero=fsdp --set zero_reduce=each --set train.micro_batch=2 \
    --set train.steps=6 --set optimizer.schedule=constant
must train config.yaml --run parts --ranks 4 $small --set mesh.pipe=2 \
    --set zero=fsdp --set zero_reduce=once --set train.micro_batch=2 \
    --set train.steps=3 --set optimizer.schedule=constant
must resume parts --set zero_reduce=each --set train.steps=6 \
    --set fsdp.bucket=1
}
# They differ in zero_reduce itself, and in a validation.
lockstep compare whole parts >out 2>&1
grep -q "^tensors of step 6: equal" out && ok "resumed with the other value" ||
    bad "resumed with the other value" "other tensors" out
report
