#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# random.sh - random models of odd sizes, every other one with random training
# features, under random layouts: each that is legal must train the bits of one
# rank. What fails is printed with its seed:
#
#     BUILD=build SEED=7 ROUNDS=1 tests/equivalence/random.sh
. "${0%/*}/../drills/common.sh"
. "$tree/tests/equivalence/rows.sh"
LIMIT=600
prepare

# One model, as settings on one line, then layouts. The same seed draws the
# same ones everywhere: the generator is Park and Miller's.
draw() { # SEED
    awk -v seed="$1" '
        function random(n) { x = (x * 16807) % 2147483647; return x % n }
        function of(list,   n, parts) { # one of the words
            n = split(list, parts, " ")
            return parts[1 + random(n)]
        }
        function layout(   text, ranks, left, i, axis, size) {
            split("data shard tensor pipe context", axis, " ")
            ranks = 1
            text = ""
            for (i = 1; i <= 5; i++) {
                size = of("1 1 1 2 2 3 4")
                if (i == 5 && context == 1) size = 1
                if (ranks * size > 12) size = 1
                ranks *= size
                text = text " mesh." axis[i] "=" size
            }
            text = "?ranks=" ranks text
            text = text " zero=" of("ddp ddp zero1 zero2 zero3 fsdp hsdp mics")
            text = text " schedule.name=" of("gpipe 1f1b 1f1b-early-send " \
                "interleaved breadth-first zb-h1 zb-h2 zb-v v-half v-min " \
                "dualpipe dualpipev")
            text = text " train.micro_batch=" of("1 1 2 3")
            text = text " train.recompute=" of("none block [norm,activation]")
            if (random(3) == 0)
                text = text " mesh.order=" of("tensor,data shard,pipe " \
                    "pipe,tensor,data,shard data,context,pipe")
            if (context > 1)
                text = text " context.kind=" of("allgather ring ulysses hybrid")
            return text
        }
        function features(   name, type, mean, clip, rank) { # ~: a space in a word
            name = of("adamw adamw lion sgd muon adafactor soap schedule_free")
            type = of("float32 bfloat16 int8")
            if (name !~ /adamw|lion|sgd/ || dtype ~ /64/) type = "float32"
            mean = name ~ /free/ ? 0 : of("0 0 0.9")
            clip = name ~ /free/ ? 0 : of("0 0 0.05")
            rank = clip > 0 ? 0 : of("0 0 2")
            return " optimizer.schedule=constant optimizer.name=" name \
                " optimizer.state_dtype=" type " optimizer.ema=" mean \
                " optimizer.qk_clip=" clip \
                " optimizer.groups=" of("[] [] [\"*norm*~frozen\"] " \
                    "[\"*wqkv*~lr_factor=0.5~weight_decay=0\"]") \
                " model.dropout=" of("0 0 0.1") \
                " model.attention_dropout=" of("0 0 0.2") \
                " train.z_loss=" of("0 0 1e-3") \
                " train.noise_scale=" of("0 0 2") \
                " lora.rank=" rank \
                (random(3) == 0 ? " train.batch_ramp=[0=" batch / 2 ",1=" \
                    batch "]" : "")
        }
        BEGIN {
            x = 100003 * seed + 17
            for (i = 0; i < 10; i++) random(2)
            heads = of("2 3 4 4 6")
            kv = heads % 2 == 0 ? of("1 2 2 " heads) : of("1 " heads)
            if (heads % kv != 0) kv = heads
            family = of("llama llama gpt2")
            context = of("1 1 2")
            leaf = of("3 6 5 9")
            span = leaf < 4 ? 4 : leaf # a token of each tensor leaf
            head = of("2 4 6 10")
            width = family == "gpt2" ? heads * head : 8 + random(17)
            dtype = of("float32 bfloat16 float64")
            batch = of("4 6 8 12 16")
            extra = seed % 2 ? features() : ""
            print "model.family=" family, "model.heads=" heads,
                "model.kv_heads=" (family == "gpt2" ? 0 : kv),
                "model.head_width=" head, "model.width=" width,
                "model.feed_forward=" heads * (2 + random(9)),
                "model.vocab=" (301 + random(30)),
                "model.layers=" (1 + random(6)),
                "model.tied=" of("true false"),
                "data.sequence=" (context > 1 ? 4 * span : 7 + random(30)),
                "data.documents=" of("separate joined"),
                "train.dtype=" dtype,
                "train.batch=" batch, "train.micro_batch=0",
                "numerics.grid_context=" context, "seed=" seed,
                "optimizer.clip=" of("0 0.5") extra
            for (i = 0; i < 40; i++) print layout()
        }'
}

# Layouts that are legal are rows; too few of them would prove nothing.
round() { # SEED
    local sets=() word before=$rows
    draw "$1" >drawn
    tail -n +2 drawn >layouts.txt
    for word in $(head -n 1 drawn); do
        sets+=(--set "${word//\~/ }")
    done
    lockstep verify config.yaml --layouts layouts.txt --json --steps 3 \
        --set train.steps=3 --set train.threads=1 "${sets[@]}" \
        >table.json 2>log
    count_legal "seed $1"
    if [ "$rows" -eq "$before" ]; then
        echo "seed $1: no layout of $(grep -c . layouts.txt) is legal"
        grep -q 'left out' log || [ $(($1 % 2)) -eq 1 ] ||
            bad "seed $1" "$(head -n 1 drawn)" log
        grep '^error' log
    fi
    [ "$failed" -eq 0 ] || { head -n 1 drawn; report; }
}

seed=${SEED:-1}
for ((i = 0; i < ${ROUNDS:-16}; i++)); do
    round $((seed + i))
done
[ "$rows" -ge "$((3 * ${ROUNDS:-16}))" ] || [ -n "${SEED:-}" ] ||
    bad "random layouts" "only $rows were legal"
echo "$rows rows in $SECONDS s"
report
