#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# random.sh - random models of every family and of odd sizes, every other one with random training features, under
# random layouts: each that is legal must train the bits of one rank, or a loss within the bound that verify names:
# with numerics.mode=fast (every eighth model, if it is one in float32, or in bfloat16 with numerics.gpu=fast) where
# gradients travel as integers, tokens are striped, or a ring merges what tensor cores made of its blocks, and where
# rows of experts are in codes that are rounded twice (every fourth, if it is a mixture in bfloat16). Two of three
# models run under LOCKSTEP_CHECK (docs/faults.md), messages late or early in turns, if it is not set. What fails is
# printed with its seed:
#
#     BUILD=build SEED=7 ROUNDS=1 tests/equivalence/random.sh
#
# NEEDS="WORD...": each is in what the seed draws, of a layout in one that is legal; else it fails. FAMILIES="mixtral
# gpt_oss" draws models of these alone (a seed then names other models). FAR=1 puts every layout on the device far
# (docs/devices.md), else one of four. Where the driver for tests is built (make driver), layouts of models that are
# not in float64 are on cuda instead, with CUDA graphs, comm.library=ipc, or neither; and of each fifth model all are,
# with products by cuBLASLt and, in bfloat16, attention by cuDNN where it has it (numerics.gpu=fast), held against one
# rank with the same.
. "${0%/*}/../drills/common.sh"
. "$tree/tests/equivalence/rows.sh"
LIMIT=600
prepare 2

# The generator is Park and Miller's. It is linear: neighbouring seeds would draw
# alike, so a seed goes through a Feistel network of squares first.
# shellcheck disable=SC2016
generator='
        function random(n) { x = (x * 16807) % 2147483647; return x % n }
        function begin(seed,   left, right, round, square) {
            left = int(seed / 65536) % 65536
            right = seed % 65536
            for (round = 1; round <= 6; round++) {
                square = (right + 40503 * round) % 65536
                square = (square * square) % 65521
                square = (left + square * 25173 + 13849 * round) % 65536
                left = right
                right = square
            }
            x = 1 + (left * 65536 + right) % 2147483646
            y = 1 + (x * 48271) % 2147483646
            z = 1 + (y * 48271) % 2147483646
            for (round = 0; round < 10; round++) { random(2); later(2); newer(2) }
        }
        # Streams for what was added later: old seeds keep the rest.
        function later(n) { y = (y * 48271) % 2147483647; return y % n }
        function newer(n) { z = (z * 69621) % 2147483647; return z % n }'

# Pairs of draws of neighbouring seeds are as frequent as chance has them: the
# sum of squares over 49 kinds of pairs is 48 on average, 10 more or less.
neighbours() {
    awk "$generator"'
        BEGIN {
            for (seed = 1; seed <= 4901; seed++) {
                begin(seed)
                for (i = 1; i <= 3; i++) {
                    drawn = random(7)
                    if (seed > 1) pairs[i, before[i], drawn]++
                    before[i] = drawn
                }
            }
            for (i = 1; i <= 3; i++) {
                squares = 0
                for (a = 0; a < 7; a++)
                    for (b = 0; b < 7; b++)
                        squares += (pairs[i, a, b] - 100) ^ 2 / 100
                if (squares > most) most = squares
            }
            printf "%d\n", most
        }'
}

# One model, as settings on one line, then layouts. The same seed draws the
# same ones everywhere.
draw() { # SEED
    awk -v seed="$1" "$generator"'
        function of(list,   n, parts) { # one of the words
            n = split(list, parts, " ")
            return parts[1 + random(n)]
        }
        function any(list,   n, parts) { # the same by the second stream
            n = split(list, parts, " ")
            return parts[1 + later(n)]
        }
        function new(list,   n, parts) { # and by the third
            n = split(list, parts, " ")
            return parts[1 + newer(n)]
        }
        function maybe(name, list,   value) { # -: not set
            value = any(list)
            return value == "-" ? "" : " " name "=" value
        }
        function some(list,   n, parts, i, text) { # one word or two, in a list
            n = split(list, parts, " ")
            text = parts[1 + random(n)]
            i = parts[1 + random(n)]
            return "[" text (random(2) && i != text ? "," i : "") "]"
        }
        # More axes divide the states than gradients or weights.
        function sets(   gradients, weights) {
            gradients = of("[] [shard] [data,shard]")
            weights = of(gradients == "[shard]" ? "[] [shard]" \
                         : "[] [shard] [data,shard]")
            return "{weights:" weights ",gradients:" gradients \
                ",states:[data,shard]}"
        }
        # Blocks of the stages of a third of the pipes, in any proportion: the
        # first and the last may have none.
        function uneven(text,   stages, count, left, list, i) {
            if (!match(text, /mesh.pipe=[0-9]/) || later(3)) return ""
            stages = substr(text, RSTART + 10, 1) * \
                (text ~ /chunks=3/ ? 3 : \
                 text ~ /interleaved|breadth|zb-v|v-half|v-min|pev/ ? 2 : 1)
            if (layers < stages - 2) return ""
            for (i = 1; i <= stages; i++) count[i] = i > 1 && i < stages
            for (left = layers - stages + 2; left > 0; left--)
                count[1 + later(stages)]++
            for (i = 1; i <= stages; i++)
                list = list (i > 1 ? "," : "") count[i]
            return " mesh.layers=[" list "]"
        }
        # The other schedules, and what is chosen beside them.
        function further(text) {
            if (later(3) == 0) {
                sub(/gpipe/, "gpipe-early-send", text)
                sub(/zb-h1/, "zb-1p", text)
                sub(/zb-h2/, "zb-2p", text)
            }
            if (text ~ /interleaved|breadth/)
                text = text maybe("schedule.chunks", "- - 2 3")
            if (text ~ /interleaved/)
                text = text maybe("schedule.group", "- - 3 5")
            if (text ~ /mesh.pipe/)
                text = text maybe("schedule.memory_limit", "- - - - 3 6")
            if (text ~ /hybrid/)
                text = text maybe("context.ulysses", "- 1 2")
            if (fast) sub(/context.kind=ring/, "context.kind=striped", text)
            if (later(3) == 0)
                sub(/recompute=block/, "recompute=" any("[attention] [linear,norm] [attention,activation]" \
                    (family ~ latent ? " latent [latent,norm,activation]" : "")), text)
            return text maybe("train.logits_chunk", "- - - 1 7 40") \
                maybe("numerics.isa", "- - - - - plain") uneven(text)
        }
        function layout(   text, ranks, left, i, axis, size) {
            split("data shard tensor pipe context expert", axis, " ")
            ranks = 1
            text = ""
            for (i = 1; i <= 6; i++) {
                size = i < 6 ? of("1 1 1 2 2 3 4 5 6 7") : of("1 1 2 2 3 4")
                if (i == 5 && context == 1) size = 1
                if (i == 6 && family !~ mixtures) size = 1
                if (ranks * size > 12) size = 1
                ranks *= size
                if (size > 1) text = text " mesh." axis[i] "=" size
            }
            text = "?ranks=" ranks text
            if (text ~ /tensor=[2-7]/) {
                pieces = of("1 2 2 3 4")
                text = text " tensor.overlap=" pieces
                if (pieces > 1) text = text " tensor.domino=" of("true false")
            }
            zero = of("ddp ddp zero1 zero2 zero3 fsdp hsdp mics " \
                "{states:[shard]} {states:[shard],gradients:[shard]} " \
                sets())
            if (text ~ /context=/ && family ~ mixtures)
                text = text " mesh.expert_context=" of("false true")
            if (text ~ /tensor=|expert=|context=true/ &&
                family ~ mixtures)
                text = text " mesh.expert_tensor=" of("0 1 2")
            if (text ~ /expert/) text = text " moe.rows_bound=" of("0.1 1 2")
            if (text ~ /expert/ && ranks > 1)
                text = text " mesh.node=" \
                    of(ranks % 2 ? "0 1" : ranks % 3 ? "0 1 2" : "0 1 2 3") \
                    " moe.exchange=" of("auto auto flat")
            if (text ~ /expert/ && (random(2) == 0 || twice))
                text = text " moe.dispatch_format=auto"
            text = text " zero=" zero
            if (zero ~ /zero3|fsdp|hsdp|mics|weights/)
                text = text " fsdp.prefetch=" of("1 1 0 2 3") \
                    " fsdp.reshard=" of("true true false") \
                    " fsdp.gather=" of("auto each once")
            if (zero ~ /zero3|fsdp|hsdp|mics|weights/ && random(2) == 0)
                text = text " fsdp.gather_format=auto"
            if (fast && zero !~ /ddp/)
                text = text " zero_format=" of("real int8 int8 int4")
            if (random(5) == 0) text = text " fsdp.in_flight=0.02"
            if (random(4) == 0) text = text " fsdp.bucket=" of("0.05 0.3")
            if (zero ~ /zero[23]|fsdp|hsdp|mics|gradients/)
                text = text " zero_reduce=" of("auto auto once each")
            if (text ~ /pipe/ || random(4) == 0)
                text = text " schedule.name=" of("gpipe 1f1b " \
                    "1f1b-early-send interleaved breadth-first zb-h1 zb-h2 " \
                    "zb-v v-half v-min dualpipe dualpipev")
            text = text " train.micro_batch=" of("1 1 2 3")
            again = of("none block [norm,activation]")
            if (again != "none") text = text " train.recompute=" again
            if (random(3) == 0)
                text = text " train.saved_activations=auto"
            if (random(3) == 0)
                text = text " train.kept_weights=auto"
            if (random(3) == 0 && length(text) < 190)
                text = text " mesh.order=" of("tensor,data shard,pipe " \
                    "pipe,tensor,data,shard data,context,pipe")
            if (context > 1)
                text = text " context.kind=" of("allgather ring ulysses hybrid")
            if ((random(4) == 0 || ENVIRON["FAR"] != "") && !library)
                text = text " device=" (ENVIRON["CUDA"] != "" && \
                    dtype !~ /64/ ? \
                    of("cuda cuda,device_graphs=true " \
                       "cuda,comm.library=ipc") : "far")
            if (dtype ~ /^b/ && extra !~ /adafactor|int8/ && x % 3 == 0)
                text = text " optimizer.masters=split"
            if (library) text = text of(", ,device_graphs=true")
            sub(/,$/, "", text)
            sub(/,device_graphs/, " device_graphs", text)
            sub(/,comm.library/, " comm.library", text)
            return further(text)
        }
        # Numbers of a model that its defaults would hide.
        function numbers(   text) {
            if (family !~ /gptj/) # its base is a constant
                text = maybe("model.rope_base", "- - 50")
            if (family ~ /^(llama|qwen[23]|mistral|olmo2|olmoe)$/ && \
                head >= 4)
                text = text maybe("model.rope_scaling", "- - linear~factor=2 " \
                    "dynamic~factor=3 llama3~factor=8~low_freq_factor=1" \
                    "~high_freq_factor=4~original_max_position_embeddings=9 " \
                    "yarn~factor=4~original_max_position_embeddings=9")
            if (text ~ /dynamic/) text = text " model.context=8"
            if (family == "gemma2")
                text = text maybe("model.attention_softcap", "- 0 2") \
                    maybe("model.head_softcap", "- 0 3")
            if (family ~ /^gemma[23]$/)
                text = text maybe("model.query_scale", "- 3")
            if (family == "gemma3")
                text = text maybe("model.rope_local_base", "- 100")
            if (family == "gpt2")
                text = text maybe("model.layer_scale", "- true")
            if (family == "falcon" && special !~ /parallel=0/ && kv < heads)
                text = text maybe("model.parallel_norms", "- 1 2")
            if (family == "gpt_oss")
                text = text maybe("moe.swiglu_alpha", "- 0.7")
            if (family == "llama4") text = text maybe("model.temper", "- 0 0.5")
            if (family ~ mixtures)
                text = text maybe("moe.balance_loss", "- - 0 0.3")
            if (special ~ /mtp.depth=[12]/)
                text = text maybe("mtp.weight", "- 0.9") \
                    maybe("mtp.weight_steps", "- 1 2")
            return text maybe("model.norm_epsilon", "- - 1e-3") \
                maybe("model.init_std", "- - 0.1")
        }
        # Blocks that are named one by one instead of every n-th.
        function listed(   text) {
            if (special ~ /window=[0-9]*[1-9]/ && later(3) == 0 && \
                family ~ /^(qwen[23]|smollm3|ministral|gemma[23]|llama4)$/) {
                sub(/ model.window_skip=[0-9]/, "", special)
                text = " model.window_except=" any("0 " (layers - 1))
            }
            if (family ~ /smollm3|llama4/ && later(2) == 0) {
                sub(/ model.rope_skip=[0-9]/, "", special)
                text = text " model.rope_except=" any("0 " (layers - 1))
            }
            if (family ~ /qwen._moe|llama4/ && layers > 1 && later(3) == 0) {
                sub(/ moe.every=[0-9]/, "", special)
                text = text " moe.dense=" any("0 " (layers - 1))
            }
            return text
        }
        # Curves of the learning rate with what they take.
        function falling(text) {
            if (text ~ /=inverse_sqrt/ && text !~ /warmup=2/) {
                sub(/ optimizer.warmup=0/, "", text)
                text = text " optimizer.warmup=1"
            }
            if (text ~ /=wsd/) text = text maybe("optimizer.decay_type", \
                text ~ /min_lr/ ? "- sqrt cosine exponential inverse" : \
                "- sqrt cosine")
            return text
        }
        # Numbers of training that its defaults would hide; all: what is drawn
        # so far.
        function training(all,   text) {
            text = maybe("optimizer.lr", "- 1e-2") \
                maybe("optimizer.beta1", "- - 0.5") \
                maybe("optimizer.beta2", "- - 0.8") \
                maybe("optimizer.epsilon", "- - 1e-3") \
                maybe("optimizer.weight_decay", "- - 0 1")
            if (all !~ /optimizer.schedule=/)
                text = text falling(maybe("optimizer.schedule", \
                    "- constant linear wsd wsd inverse_sqrt") \
                    maybe("optimizer.warmup", "- 0 2") \
                    maybe("optimizer.min_lr", "- 1e-4") \
                    maybe("optimizer.decay_share", "- 0.7"))
            if (all ~ /name=soap/)
                text = text maybe("optimizer.frequency", "- 1 2")
            if (all ~ /name=muon/)
                text = text maybe("optimizer.momentum", "- 0.5") \
                    maybe("optimizer.nesterov", "- false") \
                    maybe("optimizer.ns_steps", "- 1 3") \
                    maybe("optimizer.adjust", "- match_rms_adamw")
            if (all ~ /lora.rank=[1-9]/)
                text = text maybe("lora.alpha", "- 4") \
                    maybe("lora.rslora", "- true")
            if (all ~ /noise_scale=2/)
                text = text maybe("train.noise_leaves", "- 1 3")
            if (all ~ /sums=integer/)
                text = text maybe("numerics.sums_bits", "- 24 46")
            if (recipe != "none" && all !~ /glu~e/)
                text = text maybe("numerics.recipe_steps", "- - - 1 2")
            if (recipe != "none" && layers > 1)
                text = text maybe("numerics.high_first", "- - 1")
            if (recipe ~ /delayed/)
                text = text maybe("numerics.recipe_history", "- 1 2")
            if (dtype == "float16")
                text = text maybe("train.loss_scale", "- 64")
            if (context == 1 && kv < 4)
                text = text maybe("numerics.grid_tensor", "- - - " kv)
            return text
        }
        # A row of a recipe, which changes one of its operands.
        function operand(text,   row) {
            row = new(recipe ~ /quartet/ ? "rotate~off trust~off hadamard~off " \
                "activations~e2m1~1x32~up gradients~e4m3~1x32~down weights~e3m0~1x32~up" : \
                recipe ~ /bitnet/ ? "activations~e4m3~token~up gradients~e4m3~1x16~up kept~e4m3~1x7~down" : \
                "weights~e5m2~1x32~up weights~int8~1x16~exact weights~e4m3~8x8~two " \
                "weights~bf16 activations~e5m6~token~up activations~e3m0~1x16~down " \
                "activations~e5m2~1x5~up~stochastic activations~bf16 " \
                "gradients~e4m3b11~1x5~exact gradients~e5m2~region~up " \
                "gradients~e2m1~1x16~two~stochastic gradients~bf16 " \
                "kept~e5m6~1x128~up kept~e4m3~1x7~down")
            if (text !~ /accumulator=off/) sub(/int8/, "e4m3", row)
            return row (recipe ~ /nvfp4/ && row ~ /^[ag]/ ? "\",\"hadamard~off" : "")
        }
        # Everything that was added last: of types, gates, recipes, positions.
        function anew(text,   value, i, near, far) {
            if (text ~ /name=(muon|soap)/ && dtype !~ /64/) {
                value = new("float32 bfloat16 int8")
                sub(/state_dtype=[a-z0-9]*/, "state_dtype=" value, text)
                extra = extra " " value # masters are not split beside int8
            }
            value = family ~ plain ? new("- - gelu gelu_tanh silu relu") : family ~ mixtures && \
                family !~ /oss/ && text !~ /activation=/ ? new("- - - gelu_tanh") : "-"
            if (value != "-") text = text " model.activation=" value
            if (recipe != "none" && newer(2)) {
                value = "\"" operand(text) "\""
                if (!sub(/recipe_rows=\[/, "&" value ",", text))
                    text = text " numerics.recipe_rows=[" value "]"
            }
            if (family ~ /^(llama|qwen[23]|mistral)$/ && head % 2 == 0 && \
                text !~ /rope_scaling/ && newer(3) == 0) {
                for (i = 0; i < head / 2; i++) near = near "," 1 + i / 4
                for (i = 0; i < head / 2; i++) far = far "," 2 + i
                text = text " model.rope_scaling=longrope~original_max_position_embeddings=" \
                    new("9 90") "~factor=2~short_factor=" substr(near, 2) "~long_factor=" substr(far, 2)
            }
            return text (text !~ /name=(muon|adafactor|soap)/ && newer(5) == 0 ? \
                " model.mup_base_width=8" : "")
        }
        # Sizes and rules of a family that others do not have.
        function rules(   text) {
            if (family ~ /^(gpt2|gpt_neox|gptj)$/) kv = heads
            if (family == "palm") kv = 1
            if (family ~ mixtures && family !~ /oss/)
                text = " moe.experts=" of("2 4 6 9") " moe.top_k=" of("1 2 2") \
                    " moe.bias_rate=" of("0 0.01") \
                    " moe.jitter=" of("0 0 0.2") \
                    " moe.capacity_factor=" of("0 0 0.8") \
                    " moe.balance_scope=" of("sequence sequence batch")
            if (family ~ mixtures)
                text = text " moe.z_loss=" of("0 0 1e-3") \
                    (text ~ /experts=9/ ? "" : \
                     " numerics.grid_expert=" of("0 0 1 2"))
            if (family ~ /qwen2_moe|shared/)
                text = text " moe.shared_intermediate_size=" heads * of("1 3 4")
            if (text ~ /jitter=0.2/) text = text " model.activation=gelu_tanh"
            if (family ~ mixtures && family !~ /oss/ && text !~ /experts=9/)
                text = text " moe.devices=2 moe.device_loss=" of("0 0 0.1")
            if (family == "llama4")
                text = text " moe.top_k=1 moe.every=" of("1 1 2") \
                    " moe.intermediate_size=" heads * of("1 2 3") \
                    " model.window=" of("0 5 9 16") " model.window_skip=" \
                    of("0 2 3") " model.rope_skip=" of("0 2 2 3") \
                    " model.qk_norm=" of("true false") \
                    " model.temper_floor=" of("1 3")
            if (family == "phimoe")
                text = text " moe.top_k=2 model.attention_bias=" \
                    of("true false") " model.head_bias=" of("0 1") \
                    " moe.router_noise=" of("0 0.3 1")
            if (family ~ /granite/)
                text = text " model.embedding_multiplier=" of("0 12") \
                    " model.residual_multiplier=" of("0 0.22") \
                    " model.attention_multiplier=" of("0 0.1") \
                    " model.logits_scaling=" of("0 6")
            if (family ~ /oss/)
                text = text " moe.experts=" \
                    of(text ~ /grid_expert=2/ ? "2 4 6" : "2 4 6 9") \
                    " moe.top_k=" of("1 2 2") " moe.swiglu_limit=" of("0 0.2") " model.window=" of("0 5 9") \
                    " model.attention_bias=" of("true false")
            if (family == "glm4_moe")
                text = text " model.qk_norm=" of("true false") \
                    " model.attention_bias=" of("true false") \
                    " moe.scale=" of("0 2.5") " moe.first_dense=" random(2) \
                    " moe.intermediate_size=" heads * of("1 2 3")
            if (family == "dots1")
                text = text " model.attention_bias=" of("true false") \
                    " moe.intermediate_size=" heads * of("1 2 3") \
                    " moe.first_dense=" random(2) " moe.scale=" of("0 1") \
                    " model.window=" of("0 5 9") " model.window_skip=" \
                    of("0 2 3")
            if (family == "ernie4_5_moe")
                text = text " moe.first_dense=" random(2) " moe.every=" \
                    of("1 1 2") " moe.intermediate_size=" heads * of("1 2 3")
            if (family == "solar_open")
                text = text " model.attention_bias=" of("true false") \
                    " moe.intermediate_size=" heads * of("1 2 3") \
                    " moe.normalize=" of("0 1") " moe.scale=" of("0 2.5")
            if (family == "minimax_m2")
                text = text " model.rotary=" of("0 2")
            if (family ~ /glm4_moe$|dots|solar/ && text !~ /experts=9|experts=2/)
                text = text " moe.groups=2 moe.groups_chosen=2"
            if (family ~ latent) {
                kv = heads
                head = 0
                text = text " moe.experts=" of("8 16") " moe.top_k=" of("1 2") \
                    " moe.first_dense=" random(2) \
                    " moe.bias_rate=" of("0 0.01") " moe.groups=" of("1 2 4") \
                    " moe.groups_chosen=2 mla.query_rank=" of("0 5 14") \
                    " mla.rank=" of("4 17") " mla.nope=" of("3 8") \
                    " mla.rope=" of("2 6") " mla.value=" of("2 5") \
                    " moe.intermediate_size=" heads * of("1 2 3")
                if (family ~ /v3|lite/) text = text " mtp.depth=" of("0 0 1 2")
            }
            if (family == "deepseek")
                text = text " moe.intermediate_size=" heads * of("1 2 3") \
                    " moe.first_dense=" random(2) " moe.normalize=" of("0 1")
            if (family ~ /qwen._moe/)
                text = text " moe.every=" of("1 1 2") \
                    " moe.intermediate_size=" heads * of("1 2 3") \
                    " moe.normalize=" of("0 1")
            if (family ~ /^(gpt2|gpt_neox|gptj|phi3|stablelm|starcoder2|falcon|smollm3|olmo2|olmoe|flex_olmo|qwen2_moe|granitemoe|granitemoeshared|phimoe|deepseek|ernie4_5_moe)$/)
                width = heads * head
            if (family ~ /^(mistral|ministral|qwen[23]$|qwen3|smollm3|phi3|starcoder2|gemma[23]|mixtral|phimoe)/)
                text = text " model.window=" of("0 5 9")
            if (family ~ /^gemma[23]$/)
                text = text " model.window_skip=" of("0 2 3")
            if (family ~ /^(llama|gpt2|qwen|smollm3|olmo|flex|stablelm|starcoder2|gpt_neox|gemma|granite)/)
                text = text " model.attention_bias=" of("true false")
            if (family ~ /^(llama|gpt2|smollm3|starcoder2|gpt_neox|gptj)$/)
                text = text " model.mlp_bias=" of("true false")
            if (family == "stablelm")
                text = text " model.parallel=" of("1 1 0") \
                    " model.qk_norm=" of("true false")
            if (family == "gpt_neox") text = text " model.parallel=" of("1 1 0")
            if (family == "falcon" && kv == heads) kv = of("1 " heads)
            if (family == "falcon" && (kv == 1 || kv == heads) && random(3) == 0)
                text = text " model.parallel=0 model.alibi=" of("true false") \
                    " model.attention_bias=true model.mlp_bias=true"
            return text
        }
        # Keys of latent heads that are multiples of 8, as tensor cores have them.
        function octets(text,   rope) {
            rope = text ~ /mla.rope=2/ ? 2 : 6
            sub(/mla.nope=[0-9]/, "mla.nope=" \
                (text ~ /mla.nope=3/ ? 8 : 16) - rope, text)
            return text
        }
        function targets() {
            if (family == "gpt2") return "c_attn c_proj c_fc"
            if (family == "starcoder2") return "q_proj v_proj o_proj c_fc c_proj"
            if (family == "phi3") return "qkv_proj o_proj gate_up_proj down_proj"
            if (family == "llama4")
                return "q_proj,k_proj,v_proj o_proj router " \
                    (recipe ~ /bitnet|quartet/ ? "gate_proj" : \
                     "gate up down up_proj down_proj")
            if (family ~ /ernie/) # its queries and keys need the values
                return "q_proj,k_proj,v_proj o_proj router " \
                    (recipe ~ /bitnet|quartet/ ? "" : \
                     "gate_proj up_proj down_proj gate_proj,up_proj")
            if (family ~ mixtures)
                return (family ~ latent ? "o_proj kv_a_proj_with_mqa kv_b_proj " : \
                     "q_proj k_proj v_proj o_proj ") "router " \
                    (recipe ~ /bitnet|quartet/ ? "" : \
                     family ~ /mixtral|phimoe|minimax/ ? "w1 w2 w3 w1,w3" : \
                     family ~ /granite|oss/ ? "gate up down gate,up" : \
                     "gate_proj up_proj down_proj experts.up_proj gate_proj,up_proj")
            if (family == "gptj") # its queries and keys need the values
                return "q_proj,k_proj,v_proj out_proj fc_in fc_out"
            if (family ~ /falcon|gpt_neox/)
                return "query_key_value dense dense_h_to_4h dense_4h_to_h"
            return "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"
        }
        # Frozen parameters, and adapters; ~: a space in a word.
        function stays(   rank, group, named) {
            rank = seed % 2 && clip > 0 ? 0 : of("0 0 2 3")
            if (special ~ /bias_rate=0[.]/) rank = 0
            named = rank > 0 && random(2) ? some(targets()) : "[all]"
            group = of("- - *norm*~frozen layers.0.*~frozen *.wo~frozen " \
                (family ~ latent ? "" : "*wqkv~frozen ") \
                "*.w2~frozen *.w1*~frozen embedding~frozen " \
                "*" (family ~ latent ? "wkv_a" : "wqkv") \
                "*~lr_factor=0.5~weight_decay=0" \
                (rank > 0 ? " *lora_a~frozen *lora_b~frozen" : "") \
                (rank > 0 && named == "[all]" ? (family ~ latent ? " " : \
                    " *wqkv.lora_b~frozen ") \
                    (family ~ mixtures ? "*.wo.lora_*~frozen" \
                                            : "*.w2.lora_*~frozen") : ""))
            if (rank > 0 && group !~ (layers > 1 ? "layers.0|lora" : "lora"))
                group = "-"
            if (seed % 2 && clip > 0 && group ~ /wqkv~f|layers/) group = "-"
            return " lora.rank=" rank \
                (named == "[all]" ? "" : " lora.targets=" named) \
                (group == "-" ? "" : " optimizer.groups=[\"" group "\"]")
        }
        function features(   name, type, mean) {
            name = of("adamw adamw lion sgd muon adafactor soap schedule_free")
            if (library && dtype == "float32" && int(seed / 10) % 2)
                name = "soap"
            type = of("float32 bfloat16 int8")
            if (name !~ /adamw|lion|sgd/ || dtype ~ /64/) type = "float32"
            mean = name ~ /free/ ? 0 : of("0 0 0.9")
            clip = name ~ /free/ || special ~ /alibi=true/ || \
                family ~ /qwen3|gemma[23]|olmo|stablelm|deepseek_v|lite|dots|minimax/ \
                ? 0 : of("0 0 0.05")
            if (family == "glm4_moe" && special ~ /qk_norm=true/) clip = 0
            return " optimizer.schedule=constant optimizer.name=" name \
                " optimizer.state_dtype=" type " optimizer.ema=" mean \
                " optimizer.qk_clip=" clip \
                " model.dropout=" of("0 0 0.1") \
                " model.attention_dropout=" of("0 0 0.2") \
                " train.z_loss=" of("0 0 1e-3") \
                " train.noise_scale=" of("0 0 2") \
                (random(3) == 0 ? " train.batch_ramp=[0=" batch / 2 ",1=" \
                    batch "]" : "")
        }
        # Attention on tensor cores where it has the model: else no layout is
        # legal.
        function attends() {
            if (int(seed / 5) % 4 == 0) return " numerics.attention=own"
            return int(seed / 5) % 2 && dtype ~ /^b/ && \
                extra !~ /attention_dropout=0.2/ ? \
                " numerics.attention=flash" : ""
        }
        # The leaves of a ramp divide its first batch, and those of the noise
        # are two or more.
        function leaves(text,   first, given) {
            if (text !~ /batch_ramp/) return text
            first = batch / 2
            given = text ~ /grid_data=[1-9]/
            if (given || (text ~ /noise_scale=2/ && first % 2))
                sub(/grid_data=[0-9]+/, "grid_data=" first, text)
            return text
        }
        BEGIN {
            begin(seed)
            mixtures = "mixtral|moe|deepseek|llama4|oss|dots|minimax|flex|solar"
            latent = "deepseek_v|lite"
            plain = "^(gpt2|gpt_neox|gptj|starcoder2|falcon)$" # no gates
            heads = of("2 3 4 4 5 6 7")
            kv = heads % 2 == 0 ? of("1 2 2 " heads) : of("1 " heads)
            if (heads % kv != 0) kv = heads
            family = of(ENVIRON["FAMILIES"] != "" ? ENVIRON["FAMILIES"] : \
                "llama gpt2 qwen2 qwen3 mistral ministral smollm3 " \
                "olmo2 phi3 stablelm starcoder2 gpt_neox gptj falcon palm " \
                "gemma gemma2 gemma3 mixtral llama4 olmoe qwen2_moe qwen3_moe granitemoe glm4_moe gpt_oss " \
                "phimoe deepseek deepseek_v2 deepseek_v3 dots1 " \
                "glm4_moe_lite minimax_m2 flex_olmo ernie4_5_moe " \
                "granitemoeshared solar_open")
            context = of("1 1 2")
            leaf = of("3 6 5 9")
            span = leaf < 4 ? 4 : leaf # a token of each tensor leaf
            head = of("2 4 6 10 12")
            width = 8 + random(17)
            special = rules()
            if (family ~ /^(llama|mistral|ministral|qwen|smollm3|olmo|phi3|gemma|mixtral|granite|gpt_oss|deepseek$|deepseek_v2|dots|minimax|flex|ernie|solar)/)
                special = special " mtp.depth=" of("0 0 0 1 2")
            dtype = of("float32 float32 bfloat16 bfloat16 float64 float16")
            library = ENVIRON["CUDA"] != "" && ENVIRON["FAR"] == "" && \
                seed % 5 == 3 && dtype !~ /64/
            if (library && dtype ~ /^b/) {
                chosen = width == heads * head
                head = family ~ latent ? 0 : head < 6 ? 8 : 16
                if (chosen) width = heads * head
                special = octets(special)
            }
            fast = seed % 8 == 6 && \
                (dtype ~ /32/ || library && dtype ~ /^b/)
            twice = seed % 4 == 2 && dtype ~ /^b/ && family ~ mixtures
            batch = of("4 6 8 10 12 16")
            layers = 1 + random(6)
            # Later seeds have tokens enough for several tiles of each block of
            # a ring on tensor cores, and little else: GPUs are emulated.
            tiles = seed >= 224000 && fast && dtype ~ /^b/ && context > 1
            if (tiles) { layers = 1; batch = 4 }
            if (special ~ /every=2|first_dense=1/ && layers < 2) layers = 2
            extra = seed % 2 ? features() : ""
            chosen = listed()
            special = special chosen
            special = special numbers()
            model = "model.family=" family " model.heads=" heads \
                " model.kv_heads=" kv \
                " model.head_width=" head " model.width=" width \
                " model.feed_forward=" heads * (2 + random(9)) \
                " model.vocab=" (301 + random(30)) \
                " model.layers=" layers \
                " model.tied=" of("true false") \
                " data.sequence=" (context > 1 ? \
                    (tiles ? 32 : 4) * span : 7 + random(30)) \
                " data.documents=" of("separate joined") \
                " train.dtype=" dtype \
                " train.batch=" batch " train.micro_batch=0" \
                " numerics.grid_context=" context \
                " numerics.grid_data=" of("0 0 0 " batch) " seed=" seed \
                " numerics.bfloat16=" (dtype ~ /^b/ ? of("pairs tiles") : "pairs") \
                " numerics.recipe=" (recipe = dtype ~ /^b/ ? of("none hfp8 fp8-tensor fp8-delayed fp8-tiles mxfp8 mxfp8-floor mxfp4 " \
                         "nvfp4 nvfp4-delayed bitnet mxfp4-quartet") : "none") \
                " numerics.high_last=0" \
                " numerics.mode=" (fast || twice ? "fast" : "exact") \
                " numerics.sums=" (seed % 4 > 1 && !fast && !twice && dtype !~ /64/ \
                                      ? "integer" : "ordered") \
                " numerics.accumulator=" (recipe ~ /none|bitnet/ ? "off" : \
                    of("off off 14:32:128 8:4:0 12:8:8")) \
                " optimizer.clip=" of("0 0.5") special extra stays() \
                (library ? " device=cuda numerics.gpu=fast" attends() : "") \
                (recipe !~ /none|quartet/ && family !~ plain ? \
                 " numerics.recipe_rows=[\"glu~" of("e4m3~1x16~up " \
                 "e5m2~token~down e2m1~1x5~exact bf16") "\"]" : "")
            print leaves(anew(model training(model)))
            for (i = 0; i < (library ? 24 : 64); i++) {
                text = layout()
                if (length(text) < 512) print text # else verify refuses it
            }
        }'
}

# Options that neither this script nor interplay.sh draws: names of files, places
# and machines; how text becomes tokens, when there is no layout yet; the length
# of a run; limits of time and memory; when it saves or stops; axes of the mesh,
# which are drawn by the names of axes.
undrawn='version|machine|[a-z]+\.from|run\..*|tokenizer\..*|train\.(tokens|epochs)
data\.(valid|field|document_bytes|chat|fim_.*|cache)|train\.(memory|event_limit)
comm\.(limit|silence)|checkpoint\.(every|minutes|mirror|at_end)|validate\.shots
observe\.prometheus|mesh\.(data|shard|context|tensor|expert|pipe|layout)'

# Every other option is drawn, also one that is new.
drawn() {
    local left
    lockstep docs options | sed -n 's/^| `\([a-z_0-9.]*\)` .*/\1/p' >options
    left=$(grep -vxE "$undrawn" options | grep -vxF "$(grep -ohE '[" ][a-z_.0-9]+(=|")' \
            "$tree"/tests/{equivalence/random,drills/interplay}.sh |
            tr -d '" =')")
    if [ -s options ] && [ -z "$left" ]; then ok "every option is drawn"
    else bad "every option is drawn" "not $(tr '\n' ' ' <<<"$left")"; fi
}

# Layouts that are legal are rows; too few of them would prove nothing.
round() { # SEED
    local sets=() word before=$rows
    check=${LOCKSTEP_CHECK-${checks[$1 % 3]}}
    emulate "$1"
    # Ranks of one process read each other's memory where they share a GPU: all
    # of them, or, with two GPUs, those on two islands.
    [ $(($1 / 2 % 2)) -eq 0 ] || export GPUS=1
    # Or, with three GPUs, two of four ranks, and the others nobody.
    [ $(($1 % 12)) -ne 4 ] || export GPUS=3
    LOCKSTEP_CHECK=$check draw "$1" >drawn
    tail -n +2 drawn >layouts.txt
    for word in $(head -n 1 drawn); do
        sets+=(--set "${word//\~/ }")
    done
    LOCKSTEP_CHECK=$check lockstep verify config.yaml --layouts layouts.txt \
        --json --steps 3 --set train.steps=3 --set train.threads=1 \
        "${sets[@]}" >table.json 2>log
    count_legal "seed $1${check:+ $check}"
    for word in ${NEEDS:-}; do
        { head -n 1 drawn; grep '"layout"' table.json; } | grep -qwF "$word" ||
            bad "seed $1" "draws no $word: take another seed"
    done
    [ -z "$check" ] || [ "$rows" -eq "$before" ] || checked=$((checked + 1))
    if [ "$rows" -eq "$before" ]; then
        echo "seed $1: no layout of $(grep -c . layouts.txt) is legal"
        grep -q 'no layout of the list fits' log || [ $(($1 % 2)) -eq 1 ] ||
            bad "seed $1" "$(head -n 1 drawn)" log
        grep '^error' log
    fi
    [ "$failed" -eq 0 ] || [ -n "${GO_ON:-}" ] || { head -n 1 drawn; report; }
}

pairs=$(neighbours)
if [ "$pairs" -le 90 ]; then ok "neighbouring seeds draw apart"
else bad "neighbouring seeds draw apart" "sum of squares $pairs, not 48"; fi
drawn
checks=("" lives:late lives:early)
checked=0 # models under a check that had legal layouts
seed=${SEED:-17} # its 16 models have layouts enough
for ((i = 0; i < ${ROUNDS:-16}; i++)); do
    round $((seed + i))
done
[ "$rows" -ge "$((3 * ${ROUNDS:-16}))" ] || [ -n "${SEED:-}" ] ||
    bad "random layouts" "only $rows were legal"
echo "$rows rows in $SECONDS s; $checked models under LOCKSTEP_CHECK"
report
