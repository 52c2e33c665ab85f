#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# interplay.sh - features of training drawn together: optimizer, narrow states,
# averages, adapters, frozen groups, a ramp, dropout, clipping of scores, z-loss,
# noise, experts with selection biases, modules for later tokens, saves in the
# background, steps that go wrong or are made twice with a wrong sum, the device
# far, or where its driver for tests is built cuda, with attention on tensor cores
# in some runs in bfloat16. A run that is killed twice and goes on under other
# layouts ends in the bytes, metrics, samples and ledger of one that was left alone
# on one rank, also under a supervisor, with late data, saves that fail, spares. Two
# of three run under LOCKSTEP_CHECK (docs/faults.md), messages late or early in
# turns. What fails is printed with its seed:
#
#     BUILD=build SEED=7 ROUNDS=1 tests/drills/interplay.sh
. "${0%/*}/common.sh"
LIMIT=600
prepare 2
sed -i 's/layers: 2/layers: 4/; s/steps: 30/steps: 14/; s/every: 5/every: 4/
        s/sequence: 48/sequence: 32/; s/batch: 8, micro_batch: 4/batch: 8/' \
    config.yaml

# Settings on one line (~: a space in a word), a fault, a step to be killed at,
# then layouts. The generator is Park and Miller's.
draw() { # SEED
    awk -v seed="$1" '
        function random(n) { x = (x * 16807) % 2147483647; return x % n }
        function of(list,   n, parts) { # one of the words; -: nothing
            n = split(list, parts, " ")
            return parts[1 + random(n)]
        }
        function maybe(setting, share) {
            if (random(100) < share) settings = settings " " setting
        }
        # A second stream, for what was added later: old seeds keep the rest.
        function later(n) { y = (y * 48271) % 2147483647; return y % n }
        function any(list,   n, parts) {
            n = split(list, parts, " ")
            return parts[1 + later(n)]
        }
        function some(setting, list,   value) { # -: not set
            value = any(list)
            if (value != "-") settings = settings " " setting "=" value
        }
        # Blocks of the stages of half the pipes; the first and the last may
        # have none.
        function uneven(text,   stages) {
            if (text !~ /pipe=2/ || later(2)) return "[]"
            stages = text ~ /interleaved|dualpipev/ ? 4 : 2
            return stages == 2 ? any("[1,3] [3,1] [4,0] [0,4]") : \
                any("[1,1,2,0] [0,2,2,0] [0,1,2,1] [0,1,1,2]")
        }
        # Numbers that a default would hide, and what data and policies have.
        function further(name) {
            some("optimizer.beta1", "- - 0.5")
            some("optimizer.beta2", "- - 0.8")
            some("optimizer.epsilon", "- - 1e-3")
            some("optimizer.weight_decay", "- - 0 1")
            if (name == "soap") some("optimizer.frequency", "- 1 3")
            if (name == "muon") {
                some("optimizer.momentum", "- 0.5")
                some("optimizer.nesterov", "- false")
                some("optimizer.ns_steps", "- 2")
                some("optimizer.adjust", "- match_rms_adamw")
            }
            if (settings !~ /schedule=/) {
                some("optimizer.schedule", "- linear wsd wsd inverse_sqrt")
                some("optimizer.decay_share", "- 0.5")
                if (settings ~ /=inverse_sqrt/)
                    settings = settings " optimizer.warmup=3"
                if (settings ~ /=wsd/) {
                    some("optimizer.decay_type",
                        "- sqrt cosine exponential inverse")
                    if (settings ~ /decay_type=[ei]/)
                        settings = settings " optimizer.min_lr=1e-5"
                }
                if (settings ~ /batch_ramp/)
                    some("optimizer.schedule_by", "- tokens")
            }
            if (settings ~ /mtp.depth/) {
                some("mtp.weight", "- 0.9")
                some("mtp.weight_later", "- 0.02")
            }
            if (settings ~ /lora.rank/) {
                some("lora.alpha", "- 4")
                some("lora.rslora", "- true")
            }
            if (settings ~ /noise_scale/) some("train.noise_leaves", "- 1 4")
            if (settings ~ /integer/) some("numerics.sums_bits", "- 24 46")
            if (settings ~ /recipe=/ && settings !~ /auto|glu/)
                some("numerics.recipe_steps", "- - 6 11")
            if (settings ~ /recipe=/) some("numerics.high_first", "- - 1")
            if (settings ~ /=float16/) some("train.loss_scale", "- 64")
            if (settings ~ /experts/) some("moe.balance_loss", "- - 0 0.3")
            some("model.norm_epsilon", "- - 1e-3")
            some("model.init_std", "- - 0.1")
            if (settings ~ /prompts/) some("validate.temperature", "- 0.8")
            some("validate.every", "- 3")
            some("validate.sequences", "- 1 9")
            some("validate.sets", "- - [\"more~text.jsonl\"]")
            some("validate.tasks", "- - [\"few~perplexity~text.jsonl\"]")
            some("validate.items", "- 3")
            if (later(4) == 0) {
                settings = settings " data.train=[] data.mixture=[" \
                    "\"a~2~text.jsonl\",\"b~1~text.jsonl\"]"
                some("data.phases", "- [\"5~a=1~b=3\",\"11~a=0~b=1\"]")
            }
            some("data.skip", "- - [\"17~20\"] [\"0~3\",\"40~9\"]")
            some("data.valid_share", "- - 0.3")
            if (settings ~ /train.on_/) {
                some("train.replay", "- true")
                some("train.event_lr", "- 0.5")
                some("train.spike_sigma", "- 4")
                some("train.spike_norm", "- 5")
            }
            some("checkpoint.keep_last", "- 1 3")
            some("checkpoint.keep_every", "- 4")
            if (settings ~ /validate.every=3/)
                some("checkpoint.keep_best", "- true")
            if (name == "soap")
                some("optimizer.state_dtype", "- bfloat16 int8")
            if (settings ~ /family=gpt2/)
                some("model.activation", "- - silu relu gelu")
            if (settings ~ /recipe=/ && settings !~ /rows=|quartet|bitnet/)
                some("numerics.recipe_rows", "- - [\"weights~e5m2~1x32~up\"] " \
                    "[\"kept~e4m3~1x7~down\"]")
        }
        function layout(   text, ranks, i, axis, size) {
            split("data shard tensor pipe context expert", axis, " ")
            ranks = 1
            text = ""
            for (i = 1; i <= 6; i++) {
                size = of("1 1 2 2 4")
                if (i == 2 || i == 4) size = of("1 1 2")
                if (i == 5) size = context == 2 ? of("1 2") : 1
                if (i == 6) size = experts ? of("1 2 4") : 1
                if (ranks * size > 8) size = 1
                ranks *= size
                text = text " mesh." axis[i] "=" size
            }
            if (experts) # a resumed run keeps what is not said
                text = text " mesh.expert_tensor=" \
                    (text ~ /tensor=1.*expert=1/ ? 0 : of("0 1 2")) \
                    " mesh.expert_context=" of("false true") \
                    " mesh.node=" of(ranks % 2 ? "0 1" : "0 1 2")
            text = ranks text " zero=" of("ddp zero1 zero2 zero3 fsdp hsdp " \
                "{states:[data,shard]} {states:[data,shard],gradients:[shard]} " \
                "{states:[data,shard],gradients:[shard],weights:[shard]}") \
                " schedule.name=" of("1f1b zb-h1 interleaved dualpipev") \
                " context.kind=" of("allgather ring ulysses") \
                " train.recompute=" of("none block" \
                    (latent ? " latent" : "")) \
                " train.micro_batch=" of("1 1 2") \
                " checkpoint.async=" of("false true") \
                " zero_reduce=" of("auto auto each") \
                " optimizer.masters=" (dtype == "bfloat16" && x % 2 && settings \
                    !~ /int8|adafactor/ ? "split" : "float32") \
                " device=" of("cpu cpu " (ENVIRON["CUDA"] != "" && \
                    dtype == "float32" ? "cuda" : "far"))
            if (flash) sub(/device=[a-z]+/, "device=cuda", text)
            return text " mesh.layers=" uneven(text) \
                " train.logits_chunk=" any("0 0 7") \
                " numerics.isa=" any("auto auto plain")
        }
        BEGIN {
            x = seed % 67108859 # as in chaos.sh
            x = (x * x + 24683 * x + 29) % 67108859
            x = (x * x + seed + 1) % 2147483646 + 1
            y = 1 + (x * 48271) % 2147483646
            for (i = 0; i < 10; i++) { random(2); later(2) }
            name = of("adamw adamw adamw lion sgd muon muon adafactor soap " \
                "schedule_free")
            dtype = of("float32 float32 bfloat16 float16")
            context = of("1 1 2")
            settings = "seed=" seed " optimizer.name=" name " train.dtype=" \
                dtype " numerics.grid_context=" context \
                " numerics.grid_data=4 numerics.grid_tensor=4"
            if (name == "schedule_free" || name == "adafactor")
                settings = settings " optimizer.schedule=constant"
            if (dtype == "bfloat16")
                maybe("numerics.recipe_history=3 numerics.recipe=" \
                    of("fp8-delayed nvfp4-delayed mxfp4 mxfp4-quartet " \
                    "bitnet fp8-tiles nvfp4 hfp8 fp8-tensor mxfp8 " \
                    "mxfp8-floor"), 70)
            if (settings ~ /recipe=/)
                maybe("train.saved_activations=auto", 50)
            if (settings ~ /recipe=/)
                maybe("fsdp.gather_format=auto", 50)
            if (settings ~ /recipe=/)
                maybe("train.kept_weights=auto", 50)
            if (settings ~ /recipe=/ && settings !~ /bitnet/)
                maybe("numerics.accumulator=" of("14:32:128 8:4:8"), 40)
            if (name ~ /adamw|lion|sgd|muon/)
                maybe("optimizer.state_dtype=" of("bfloat16 int8 int8"), 60)
            if (name != "schedule_free") {
                maybe("optimizer.ema=0.8 validate.weights=" \
                    of("ema trained"), 50)
                adapters = random(3) == 0
                if (adapters) settings = settings " lora.rank=" of("1 2 3")
                else maybe("optimizer.qk_clip=0.05", 30)
            }
            if (seed % 4 > 1) settings = settings " numerics.sums=integer"
            gpt2 = random(4) == 0
            experts = !gpt2 && random(2) == 0
            if (settings ~ /recipe=/ && settings !~ /quartet/ && !gpt2)
                maybe("numerics.recipe_rows=[\"glu~" of("e4m3~1x16~up " \
                    "e5m2~token~down e2m1~1x5~exact") "\"]", 30)
            if (gpt2)
                settings = settings " model.family=gpt2 model.kv_heads=0"
            if (experts) {
                settings = settings " model.family=" \
                    of("mixtral qwen3_moe granitemoe glm4_moe glm4_moe " \
                       "deepseek phimoe dots1 minimax_m2 flex_olmo " \
                       "ernie4_5_moe granitemoeshared solar_open " \
                       "glm4_moe_lite glm4_moe_lite") \
                    " moe.experts=4 moe.top_k=2"
                latent = settings ~ /lite/
                if (latent)
                    settings = settings " model.kv_heads=0" \
                        " model.head_width=0 mla.rank=" \
                        of("4 17") " mla.query_rank=" of("0 5") \
                        " mla.nope=4 mla.rope=2 mla.value=5"
                if (!adapters) maybe("moe.bias_rate=0.01", 50)
                if (settings ~ /recipe=/) maybe("moe.dispatch_format=auto", 50)
                maybe("moe.jitter=0.1", 40)
                if (settings ~ /jitter/)
                    settings = settings " model.activation=gelu_tanh"
                maybe("moe.z_loss=1e-3", 30)
                maybe("moe.rows_bound=0.5", 40)
                maybe("moe.balance_scope=batch", 30)
                maybe("moe.device_loss=0.05 moe.devices=" of("2 4"), 30)
                if (settings ~ /glm4|dots|ernie|solar/)
                    maybe("mtp.weight_steps=" of("0 6") \
                        " mtp.depth=" of("1 2"), 60)
                if (settings !~ /moe.bias/) maybe("moe.capacity_factor=1", 30)
            }
            if (adapters) maybe("lora.targets=" (gpt2 ? "[c_attn]" : \
                settings ~ /quartet|bitnet/ ? \
                (latent || settings ~ /ernie/ ? "[o_proj]" : "[q_proj]") : \
                latent ? of("[o_proj,down_proj] [kv_b_proj,router]") : \
                settings ~ /mixtral|phimoe|minimax/ ? \
                of("[q_proj,w1,w2,w3] [router,w1,w2,w3] [q_proj,router]") : \
                settings ~ /granitemoe/ ? "[v_proj,gate,up,down]" : \
                settings ~ /ernie/ ? "[v_proj,down_proj]" : \
                "[q_proj,down_proj]"), experts ? 80 : 30)
            else maybe("optimizer.groups=" of("[\"*norm*~frozen\"] " \
                "[\"embedding~frozen\",\"layers.0.*~frozen\"] " \
                "[\"*" (latent ? "wkv_a" : "wqkv") "*~lr_factor=0.5~weight_decay=0\"] " \
                "[\"*w2*~optimizer=adamw\",\"layers.3.*~frozen\"]"), 40)
            # Frozen or normed, queries and keys are not scaled.
            if (settings ~ /layers[.0-9*]+~frozen|qwen3|glm4|dots|minimax|flex/)
                sub(/ optimizer.qk_clip=0.05/, "", settings)
            maybe("model.tied=true", 30)
            maybe("model.dropout=0.1", 30)
            maybe("model.attention_dropout=0.2", 30)
            if (!gpt2 && !experts)
                maybe("mtp.depth=" of("1 2"), 25)
            if (name !~ /muon|adafactor|soap/) # no rule of muP
                maybe("model.mup_base_width=12", 20)
            maybe("train.z_loss=1e-3", 30)
            maybe("train.noise_scale=3", 30)
            maybe("train.batch_ramp=[0=4,5=8]", 50)
            maybe(of("data.packing=best_fit data.documents=joined"), 30)
            maybe("validate.prompts=[ba,do~ga] validate.prompt_tokens=4", 30)
            maybe("observe.layers=5", 30)
            maybe("observe.tensorboard=true observe.histograms=6", 30)
            policy = of("none none skip rewind rewind")
            fault = "none"
            if (policy != "none") {
                fault = of("train.nan train.spike") ":" (5 + random(5))
                if (fault ~ /nan/)
                    settings = settings " train.on_nan=" policy
                else settings = settings " train.on_spike=" policy \
                    " train.spike_window=4"
            }
            settings = settings " train.check_every=" of("0 1 1 3 100")
            if (policy == "none") maybe("train.repeat_every=" of("1 3"), 40)
            further(name)
            # Minutes where the GPU is emulated: none of the first eight. Latent
            # heads of later seeds have keys of 8 elements and values of 5.
            flash = ENVIRON["CUDA"] != "" && dtype == "bfloat16" && \
                (!latent || seed >= 224000) \
                && settings !~ /attention_dropout/ && \
                int(seed / 3) % 4 == 3
            if (flash && latent) sub(/mla.nope=4/, "mla.nope=6", settings)
            if (flash)
                settings = settings " model.width=32" \
                    (latent ? "" : " model.head_width=8") \
                    " device=cuda numerics.gpu=fast numerics.attention=flash"
            print settings
            print fault, 10 + random(3), 13 + random(2)
            for (i = 0; i < 60; i++) print layout()
        }'
}

sets=()
words() { # LINE: as --set
    local word
    set -f
    for word in $1; do sets+=(--set "${word//\~/ }"); done
    set +f
}

# The next layout of the list that a dry run takes, in $ranks and $sets.
next_layout() { # RUN
    local line
    while read -r line; do
        sed -i 1d layouts.txt
        ranks=${line%% *}
        sets=()
        words "${line#* }"
        if lockstep train config.yaml --run "$1" --ranks "$ranks" --dry-run \
            "${features[@]}" "${sets[@]}" >plan.log 2>&1; then
            layout=$line
            return
        fi
        refused=$((refused + 1))
    done <layouts.txt
    return 1
}

others() { # RUN: what else it says
    cat "$1"/samples.jsonl "$1"/layers.jsonl 2>/dev/null
    sed '/"cause": "repeat"/d; s/"time": "[^"]*"//' "$1/ledger.jsonl" 2>/dev/null
}

# flip SEED: where steps are made twice, one rank gives a wrong bit to a sum in
# one of the passes; nothing but its line in the ledger may show it.
flip() {
    ! grep -q train.repeat_every= drawn || echo ",sum.flip-$(($1 % ranks)):2"
}

# A run with checkpoint.local gets RUN/ckpt.
gathered() { # RUN
    why="not gathered"
    [ ${#apart[@]} -eq 0 ] || lockstep gather "$1" >log 2>&1
}

# The same features under a supervisor: all ranks are killed at once in a step,
# and go on from their copies in memory, of each step or of every third, or from
# a checkpoint: at most as many steps are done again. With checkpoint.local later
# seeds have a copy of every fifth or seventh step, and checkpoints of every fourth
# that are newer. Some have spares, some late data or a save that fails. A fault
# comes again in every process, so only without one.
kept() { # SEED
    local every=$((1 + $1 % 2 * 2)) spares=() words at=9
    [ "$1" -lt 210000 ] || [ ${#apart[@]} -eq 0 ] || every=$((5 + $1 % 2 * 2))
    # The fault counts passes, and a step that is made twice has two: a run that is
    # killed every three steps may never have a copy that is whole.
    case $(head -n 1 drawn) in
    *train.repeat_every=1*) at=20 ;;
    *train.repeat_every=3*) at=13 ;;
    esac
    words=("" "--spares 0" "" "--spares 1")
    # shellcheck disable=SC2206
    spares=(${words[$1 / 2 % 4]})
    words=("" data.ahead:9:slow checkpoint.sync:1:slow checkpoint.rename:1
        checkpoint.read:1)
    words=${words[$1 % 5]}
    next_layout none || { bad "seed $1" "a layout is legal" plan.log; return; }
    rm -rf kept shards
    LOCKSTEP_FAULT=train.step:$at:kill$(flip "$1"),$words lockstep train \
        config.yaml --run kept --threads 1 --ranks "$ranks" "${features[@]}" "${sets[@]}" \
        "${apart[@]}" --supervised --copies $every "${spares[@]}" >log 2>&1
    if [ $? -ne 0 ] || ! gathered kept || ! same_run whole kept; then
        bad "seed $1, supervised" "$why: $(head -n 1 drawn) $layout" log
    elif [ "$(others whole)" != "$(others kept)" ]; then
        bad "seed $1, supervised" "other samples or layers: $(head -n 1 drawn) $layout"
    elif ! lockstep incidents kept | grep -q ", [0-$every] redone"; then
        bad "seed $1, supervised" "redone: $(lockstep incidents kept)"
    else
        ok "seed $1, supervised, a copy every $every${spares[*]:+, ${spares[*]}}${words:+, $words}: $layout"
    fi
}

round() { # SEED
    local faults first second where code
    refused=0
    export LOCKSTEP_FAR=late LOCKSTEP_CHECK=${checks[$1 % 3]}
    [ $(($1 % 2)) -eq 0 ] || LOCKSTEP_FAR=early
    emulate "$1"
    rm -rf whole moved shards
    apart=()
    draw "$1" >drawn
    [ $(($1 % 3)) -ne 0 ] || apart=(--set checkpoint.local=shards)
    tail -n +3 drawn >layouts.txt
    read -r faults first second <<<"$(sed -n 2p drawn)"
    sets=()
    words "$(head -n 1 drawn)"
    features=("${sets[@]}")
    [ "$faults" != none ] || faults=none.such:1
    LOCKSTEP_FAULT=$faults lockstep train config.yaml --run whole \
        --threads 1 "${features[@]}" >log 2>&1
    code=$?
    if [ $code -eq 78 ]; then # features that exclude each other say so
        echo "seed $1: $(grep '^error' log)"
        return
    elif [ $code -ne 0 ]; then
        bad "seed $1" "one rank: $(head -n 1 drawn)" log
        return
    fi
    next_layout none || { bad "seed $1" "no layout is legal" plan.log; return; }
    where=$layout
    LOCKSTEP_FAULT=$faults,train.step:$((first * ranks)):kill$(flip "$1") lockstep train \
        config.yaml --run moved --threads 1 --ranks "$ranks" \
        "${features[@]}" "${sets[@]}" "${apart[@]}" >log 2>&1
    if [ $? -ne 137 ]; then
        bad "seed $1" "not killed: $(head -n 1 drawn) $where" log
        return
    fi
    next_layout none || { bad "seed $1" "one layout is legal" plan.log; return; }
    where="$where; $layout"
    LOCKSTEP_FAULT=train.step:$(((second - 8) * ranks)):kill lockstep resume \
        moved --threads 1 --ranks "$ranks" "${sets[@]}" >log 2>&1
    next_layout none || { bad "seed $1" "two layouts are legal" plan.log; return; }
    where="$where; $layout"
    if ! lockstep resume moved --threads 1 --ranks "$ranks" "${sets[@]}" \
        >log 2>&1; then
        bad "seed $1" "$(head -n 1 drawn) $faults $where" log
    elif ! gathered moved || ! same_run whole moved; then
        bad "seed $1" "$why: $(head -n 1 drawn) $faults $where"
    elif [ "$(others whole)" != "$(others moved)" ]; then
        bad "seed $1" "other samples, layers or ledger: $(head -n 1 drawn) $faults $where"
    elif ! lockstep compare whole moved >log 2>&1; then
        bad "seed $1" "compare: $(head -n 1 drawn) $where" log
    else
        ok "seed $1: ${where//train./} ($refused refused)"
    fi
    [ "$faults" != none.such:1 ] || kept "$1"
    [ -z "$(flip "$1")" ] || echo "  passes that were wrong: $(cat moved/ledger.jsonl \
        kept/ledger.jsonl 2>/dev/null | grep -c '"cause": "repeat"')"
}

checks=("" lives:late lives:early)
seed=${SEED:-1}
for ((i = 0; i < ${ROUNDS:-8}; i++)); do
    round $((seed + i))
done
report
