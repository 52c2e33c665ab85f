#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# table.sh - the equivalence table: tiny models of every kind, each under many
# layouts, against one rank: losses, norms, every gradient, every weight and
# both moments after 5 steps, bit by bit inside the grid and to 1e-12 in
# float64 outside it. Every row also asserts that its ranks took the planned
# memory to the byte, sent the planned bytes, and that replicas agree.
#
#     BUILD=build [SHARE=1/3] tests/equivalence/table.sh [MODEL...]
#
# SHARE: only every third model, from the first on. Every third of those runs
# under LOCKSTEP_CHECK (docs/faults.md) if it is not set, each day others; TURN,
# a number, chooses the day, and the rows say what was chosen.
. "${0%/*}/../drills/common.sh"
. "$tree/tests/equivalence/layouts.sh"
. "$tree/tests/equivalence/rows.sh"
LIMIT=600
models=" $* "
share=${SHARE:-1/1}
turn=${TURN:-$(date +%-j)}
asked=0 # models so far
prepare

# lives:late and lives:early in turns, or nothing.
choose_check() {
    local at=$((asked / ${share#*/} + turn))
    check=${LOCKSTEP_CHECK-}
    [ -z "${LOCKSTEP_CHECK+set}" ] && [ $((at % 3)) -eq 0 ] || return 0
    if [ $((at % 2)) -eq 0 ]; then check=lives:late; else check=lives:early; fi
}

# model NAME SETTING...: trains layouts.txt. A layout is a row.
model() {
    local name=$1 sets=() set
    shift
    [ "$models" = "  " ] || [[ $models == *" $name "* ]] || return
    asked=$((asked + 1))
    [ $((asked % ${share#*/})) -eq $((${share%/*} % ${share#*/})) ] || return 0
    for set; do sets+=(--set "$set"); done
    choose_check
    name="$name${check:+ ($check)}"
    LOCKSTEP_CHECK=$check lockstep verify config.yaml --layouts layouts.txt --json \
        --steps "${steps:-5}" --set train.steps="${steps:-5}" \
        --set comm.limit=100 --set train.threads=1 \
        "${sets[@]}" >table.json 2>log || bad "$name" "exit $?" log
    if grep -q 'WARNING: ThreadSanitizer' log; then
        bad "$name" "$(grep -m 1 -A 12 'WARNING: ThreadSanitizer' log)"
    fi
    count "$name"
}

small="data.sequence=24 train.batch=8 train.micro_batch=4 numerics.grid_tensor=2"

# shellcheck disable=SC2086
{
# Grouped queries, a tied table, an odd vocabulary, documents apart.
{ alone; data 2 4 8; zero 2 4 8; tensor 2; pipe 2 4; mixed; } >layouts.txt
model llama $small model.tied=true model.vocab=303 model.layers=8

# Leaves of the batch that are added as integers: sums of two uses, cut leaves,
# several leaves for a rank that are no subtree, rounds, halves of a stage.
printf '%s\n' "ranks=1 train.micro_batch=1 train.threads=3" \
    "ranks=1 train.micro_batch=4 train.logits_chunk=100 numerics.isa=plain" \
    "ranks=4 mesh.data=4" \
    "ranks=2 mesh.data=2 zero=zero1 train.recompute=block" \
    "ranks=4 mesh.data=4 zero=zero2" \
    "ranks=2 mesh.data=2 zero=zero3 train.micro_batch=2 zero_reduce=each" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=mics" \
    "ranks=2 mesh.tensor=2 tensor.overlap=3" "ranks=2 mesh.context=2" \
    "ranks=4 mesh.context=2 mesh.data=2 zero=fsdp train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-v" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe" \
    "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 zero=zero2 train.micro_batch=1" \
    >layouts.txt
integers="$small numerics.sums=integer numerics.grid_context=2"
steps=3 model integers $integers model.tied=true model.vocab=303 model.layers=4
steps=3 model integers_f16 $integers train.dtype=float16 model.family=gpt2 \
    model.kv_heads=0 model.layers=4 numerics.grid_data=4
printf '%s\n' "ranks=4 mesh.data=4" "ranks=6 mesh.data=6 zero=zero1" \
    "ranks=3 mesh.data=3 zero=zero2 train.micro_batch=2" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=3" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
    "ranks=6 mesh.data=2 mesh.shard=3 zero=mics train.micro_batch=2" \
    "ranks=2 mesh.data=2 zero=zero3 train.micro_batch=2 zero_reduce=each" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe" \
    >layouts.txt
steps=3 model integers_12 $integers train.batch=12 numerics.grid_data=12

# 16 bits: every axis, every form of zero, schedules of every shape, and what
# one rank may choose. Products in pairs, then in tiles.
{ printf '%s\n' "ranks=1 train.micro_batch=1 train.threads=3" \
    "ranks=1 train.recompute=block train.logits_chunk=100" \
    "ranks=1 train.micro_batch=8 numerics.isa=plain" \
    "ranks=4 mesh.data=4 zero=zero1" "ranks=2 mesh.data=2 zero=zero2" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
    "ranks=2 mesh.shard=2 zero=fsdp fsdp.reshard=false" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp train.recompute=block" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=mics" \
    "ranks=2 mesh.tensor=2" \
    "ranks=2 mesh.tensor=2 tensor.overlap=3 tensor.domino=true" \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero2 tensor.overlap=2" \
    "ranks=2 mesh.pipe=2 schedule.name=interleaved train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
    "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 zero=zero1 schedule.name=zb-h1"
} >layouts.txt
model bfloat16 $small train.dtype=bfloat16 model.tied=true model.vocab=303 \
    model.layers=4
printf '%s\n' "ranks=1 train.micro_batch=2" "ranks=4 mesh.data=4 zero=zero3" \
    "ranks=4 mesh.tensor=4" "ranks=4 mesh.tensor=4 tensor.overlap=2" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1" >layouts.txt
steps=3 model tiles $small train.dtype=bfloat16 numerics.bfloat16=tiles \
    model.family=gpt2 model.kv_heads=0 data.documents=joined model.layers=2 \
    numerics.grid_tensor=4
# A batch that grows at steps 2 and 4.
printf '%s\n' "ranks=1 train.micro_batch=1" "ranks=2 mesh.data=2 zero=zero1" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" "ranks=2 mesh.tensor=2" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-h1" \
    "ranks=4 mesh.data=2 mesh.pipe=2 train.micro_batch=1" >layouts.txt
model ramp $small "train.batch_ramp=[0=4,1=8,3=16]" train.batch=16 \
    train.micro_batch=2 model.layers=4
# Four tensor ranks on two key-value heads; sequences cut by ranks.
printf '%s\n' "ranks=4 mesh.tensor=4" "ranks=2 mesh.context=2" \
    "ranks=2 mesh.context=2 context.kind=ulysses train.micro_batch=1" \
    "ranks=8 mesh.tensor=4 mesh.context=2 train.recompute=block" \
    "ranks=4 mesh.data=2 mesh.context=2 zero=zero2" >layouts.txt
steps=3 model narrow_context $small train.dtype=bfloat16 data.sequence=48 \
    numerics.grid_tensor=4 numerics.grid_context=2 model.layers=2
echo "ranks=2 mesh.context=2 numerics.isa=plain train.micro_batch=1" >>layouts.txt
steps=3 model tiles_context $small train.dtype=bfloat16 data.sequence=88 \
    numerics.grid_tensor=4 numerics.grid_context=2 model.layers=2 \
    model.head_width=32 numerics.bfloat16=tiles
printf '%s\n' "ranks=2 mesh.context=2 context.kind=ring" \
    "ranks=4 mesh.context=4 context.kind=hybrid context.ulysses=2" >layouts.txt
steps=3 model narrow_ring $small train.dtype=bfloat16 \
    numerics.grid_context=4 data.sequence=512 train.batch=4 \
    train.micro_batch=2 model.layers=1
steps=3 model tiles_ring $small train.dtype=bfloat16 numerics.bfloat16=tiles \
    numerics.grid_context=4 data.sequence=1024 train.batch=4 \
    train.micro_batch=2 model.layers=1 model.head_width=32
printf '%s\n' "ranks=2 mesh.data=2 zero=zero1" "ranks=2 mesh.tensor=2" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1" >layouts.txt
steps=3 model float16 $small train.dtype=float16 model.layers=2

printf '%s\n' "ranks=2 mesh.tensor=2" \
    "ranks=2 mesh.context=2 context.kind=striped" >layouts.txt
steps=3 model narrow_fast $small train.dtype=bfloat16 numerics.mode=fast \
    numerics.grid_tensor=1 model.layers=2

# Micro-batches that end inside leaves read kept codes from a later chunk on.
printf '%s\n' "ranks=1 train.micro_batch=4" "ranks=1 train.micro_batch=2" \
    "ranks=2 mesh.pipe=2 train.micro_batch=4" >layouts.txt
steps=3 model saved_apart $small train.dtype=bfloat16 numerics.recipe=mxfp8 \
    train.saved_activations=recipe train.recompute=none train.batch=12 \
    train.micro_batch=6 numerics.grid_data=4 model.layers=2

# Experts and their adapters, gathered as codes.
printf '%s\n' "ranks=2 mesh.data=2 zero=fsdp train.recompute=block" \
    "ranks=4 mesh.data=2 mesh.expert=2 zero=fsdp" \
    "ranks=8 mesh.data=2 mesh.expert=2 mesh.tensor=2 zero=fsdp mesh.expert_tensor=1 train.micro_batch=2" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],gradients:[shard],states:[data,shard]} fsdp.prefetch=3" \
    "ranks=4 mesh.data=2 mesh.pipe=2 zero=fsdp schedule.name=breadth-first train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.pipe=2 zero=fsdp schedule.name=zb-v train.micro_batch=1" \
    "ranks=1 train.kept_weights=recipe train.recompute=block" \
    "ranks=4 mesh.data=2 mesh.tensor=2 mesh.expert_tensor=1 train.kept_weights=recipe" \
    "ranks=4 mesh.data=2 mesh.expert=2 zero=zero1 train.kept_weights=recipe" \
    "ranks=4 mesh.data=4 zero=zero2 train.kept_weights=recipe fsdp.bucket=0.3" \
    "ranks=4 mesh.data=4 zero=fsdp train.kept_weights=recipe train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[shard],gradients:[shard],states:[data,shard]} train.kept_weights=recipe" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[],gradients:[shard],states:[data,shard]} train.kept_weights=recipe" \
    "ranks=4 mesh.data=2 mesh.pipe=2 zero=zero1 schedule.name=dualpipe train.micro_batch=1 train.kept_weights=recipe" \
    >layouts.txt
coded="train.dtype=bfloat16 fsdp.gather_format=recipe model.layers=4
    model.family=mixtral moe.experts=4 moe.top_k=2 numerics.high_last=0"
steps=3 model coded $small $coded numerics.recipe=fp8-tiles
steps=3 model coded_means $small $coded numerics.recipe=bitnet
sed -i 's/train.recompute=block/moe.rows_bound=0.1/; s/breadth-first/gpipe/' layouts.txt
echo "ranks=4 mesh.data=2 mesh.expert=2 zero=fsdp moe.rows_bound=0.1 train.recompute=norm" >>layouts.txt
steps=3 model coded_lora $small $coded numerics.recipe=nvfp4 lora.rank=2 "lora.targets=[q_proj, w2]"
sed -i '/kept_weights/{/zero=fsdp/!d}' layouts.txt
steps=3 model coded_twice $small $coded numerics.recipe=mxfp8
steps=3 model coded_blocks $small $coded numerics.recipe=mxfp8 numerics.recipe_rows="[weights int8 \
    1x128 exact, activations bf16, gradients bf16]"

# Gradients as integers: near the exact ones, and as many bytes as planned.
printf '%s\n' "ranks=2 mesh.data=2 zero=zero2 zero_format=int8" \
    "ranks=4 mesh.data=4 zero=fsdp zero_format=int8 mesh.node=2" \
    "ranks=4 mesh.data=4 zero=zero1 zero_format=int8 train.micro_batch=1" \
    "ranks=4 mesh.data=4 zero=zero2 zero_format=int4 mesh.node=2" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp zero_format=int8 zero_reduce=once" \
    "ranks=4 mesh.data=2 mesh.pipe=2 zero=zero2 zero_format=int8 schedule.name=dualpipe train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero2 zero_format=int8" \
    "ranks=8 mesh.data=4 mesh.tensor=2 zero=fsdp zero_format=int8 mesh.node=4" \
    "ranks=8 mesh.data=2 mesh.shard=2 mesh.tensor=2 zero=hsdp zero_format=int8" \
    >layouts.txt
steps=3 model few_bits $small numerics.mode=fast model.layers=2 model.tied=true

# Products in 8 and 4 bits: every kind of scale, block and rounding. Blocks are
# counted from leaves and context chunks that no layout cuts.
{ printf '%s\n' "ranks=1 train.micro_batch=1 train.threads=3" \
    "ranks=1 train.micro_batch=8 numerics.isa=plain train.recompute=block" \
    "ranks=1 numerics.isa=avx2 train.recompute=linear" \
    "ranks=4 mesh.data=4 zero=zero2" "ranks=2 mesh.tensor=2" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
    "ranks=2 mesh.tensor=2 tensor.overlap=2" \
    "ranks=2 mesh.tensor=2 tensor.overlap=4 tensor.domino=true" \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
    "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 zero=zero1 schedule.name=zb-h1"
} >layouts.txt
steps=3 model mxfp8 $small train.dtype=bfloat16 numerics.recipe=mxfp8 model.layers=4 model.width=72 numerics.high_first=1
steps=3 model nvfp4 $small train.dtype=bfloat16 numerics.recipe=nvfp4 model.layers=4 data.sequence=40 numerics.bfloat16=tiles
# Rotations need runs of 32: of in-features, of out-features and of tokens.
wide="train.dtype=bfloat16 data.sequence=40 model.width=96 model.feed_forward=72"
steps=3 model quartet $small $wide numerics.recipe=mxfp4-quartet model.layers=4 numerics.high_first=1
steps=3 model quartet_own $small $wide numerics.recipe=mxfp4-quartet \
    model.layers=4 numerics.recipe_steps=2 numerics.bfloat16=tiles \
    'numerics.recipe_rows=["rotate off", "weights e4m3 1x32 down",
"gradients e2m1 1x32 up nearest", "hadamard off"]'
sed -i '/avx2\|zb-v\|fsdp/d' layouts.txt
steps=3 model fp8_tensor $small train.dtype=bfloat16 model.layers=2 \
    numerics.recipe=fp8-tensor model.family=gpt2 model.kv_heads=0
steps=4 model fp8_delayed $small train.dtype=bfloat16 model.layers=2 \
    numerics.recipe=fp8-delayed numerics.recipe_history=2 \
    numerics.bfloat16=tiles
steps=3 model own_recipe $small train.dtype=bfloat16 model.layers=2 \
    numerics.recipe=nvfp4 numerics.recipe_steps=2 numerics.high_last=0 \
    'numerics.recipe_rows=["activations e5m6 token exact", "weights int8 8x8 up",
"gradients e3m0 2x24 down stochastic", "kept e2m1 1x16 two", "hadamard off"]'
steps=3 model bitnet $small train.dtype=bfloat16 numerics.recipe=bitnet model.layers=2 numerics.bfloat16=tiles
steps=3 model accumulator $small train.dtype=bfloat16 model.layers=2 \
    numerics.recipe=fp8-tiles numerics.accumulator=12:8:16 \
    'numerics.recipe_rows=["glu e4m3 1x8 up"]'
steps=3 model accumulator_quartet $small $wide model.layers=2 \
    numerics.recipe=mxfp4-quartet numerics.accumulator=8:32:0
# Sub-batches of tensor.overlap=3 end between the two context chunks of a sequence.
printf '%s\n' "ranks=4 mesh.tensor=4" "ranks=2 mesh.context=2" \
    "ranks=2 mesh.context=2 context.kind=ulysses train.micro_batch=1" \
    "ranks=2 mesh.tensor=2 tensor.overlap=3 train.micro_batch=1" \
    "ranks=8 mesh.tensor=4 mesh.context=2 train.recompute=block" \
    "ranks=4 mesh.data=2 mesh.context=2 zero=zero2" \
    "ranks=1 train.saved_activations=auto train.recompute=none" \
    "ranks=2 mesh.context=2 context.kind=allgather train.saved_activations=auto train.micro_batch=1" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 schedule.name=zb-h1 train.saved_activations=auto train.micro_batch=1" \
    "ranks=2 mesh.data=2 zero=fsdp train.saved_activations=auto" \
    "ranks=4 mesh.data=4 zero=fsdp fsdp.gather_format=auto fsdp.prefetch=2" \
    "ranks=4 mesh.data=2 mesh.pipe=2 zero=zero1 train.kept_weights=auto schedule.name=zb-h1 train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=fsdp fsdp.gather_format=auto fsdp.reshard=false" >layouts.txt
for recipe in fp8-tensor fp8-delayed fp8-tiles hfp8 mxfp8-floor mxfp4 nvfp4 \
    nvfp4-delayed bitnet; do
    steps=3 model "${recipe//-/_}_context" $small train.dtype=bfloat16 \
        data.sequence=72 numerics.grid_tensor=4 numerics.grid_context=2 \
        model.layers=2 numerics.recipe=$recipe numerics.high_last=0
done
# Weights that grow fast: a late scale of another step cuts them off.
steps=3 model late_codes $small train.dtype=bfloat16 data.sequence=72 \
    numerics.grid_tensor=4 numerics.grid_context=2 model.layers=2 \
    numerics.recipe=nvfp4-delayed numerics.high_last=0 \
    numerics.recipe_history=2 optimizer.lr=0.3 optimizer.warmup=0 \
    optimizer.clip=0
steps=3 model accumulator_context $small train.dtype=bfloat16 \
    data.sequence=72 numerics.grid_tensor=4 numerics.grid_context=2 \
    model.layers=2 numerics.recipe=mxfp8 numerics.accumulator=14:16:16 \
    numerics.bfloat16=tiles 'numerics.recipe_rows=["glu e2m1 token exact"]'
steps=3 model quartet_context $small $wide data.sequence=136 numerics.grid_tensor=4 numerics.grid_context=2 model.layers=2 numerics.recipe=mxfp4-quartet

# Learned positions, biases, documents joined.
{ alone; data 2 4; zero 4; tensor 2; pipe 2; mixed; } >layouts.txt
model gpt2 $small model.family=gpt2 model.kv_heads=0 \
    data.documents=joined model.layers=4

# Biases on q, k and v alone, stretched angles; a window.
printf '%s\n' "ranks=2 mesh.data=2 zero=zero3" "ranks=2 mesh.tensor=2" \
    "ranks=2 mesh.pipe=2" "ranks=4 mesh.tensor=2 mesh.pipe=2" >layouts.txt
model qwen2 $small model.family=qwen2 model.context=96 \
    "model.rope_scaling=yarn factor=4 original_max_position_embeddings=24"
printf '%s\n' "ranks=2 mesh.shard=2 zero=fsdp" "ranks=2 mesh.context=2" \
    "ranks=4 mesh.shard=2 mesh.context=2 context.kind=ulysses zero=fsdp train.micro_batch=1" \
    >>layouts.txt
model mistral $small numerics.grid_context=2 model.family=mistral \
    model.window=10 model.context=48 "model.rope_scaling=linear factor=2"

# The other families, along each axis and two together.
printf '%s\n' "ranks=2 mesh.tensor=2" "ranks=2 mesh.pipe=2 train.micro_batch=1" \
    "ranks=2 mesh.shard=2 zero=zero3" "ranks=2 mesh.context=2" \
    "ranks=4 mesh.tensor=2 mesh.context=2 tensor.overlap=2" >layouts.txt
each="$small numerics.grid_context=2"
model qwen3 $each model.family=qwen3
model ministral $each model.family=ministral model.window=7 \
    model.window_except=1
model smollm3 $each model.family=smollm3 model.rope_skip=2
model phi3 $each model.family=phi3 model.rotary=4
model stablelm $each model.family=stablelm model.head_width=12 \
    model.width=48 model.attention_bias=true
model stablelm_parallel $each model.family=stablelm model.head_width=12 \
    model.width=48 model.parallel=1
model stablelm_heads $each model.family=stablelm model.head_width=12 \
    model.width=48 model.parallel=1 model.qk_norm=true
model starcoder2 $each model.family=starcoder2
model gpt_neox $each model.family=gpt_neox model.kv_heads=0 \
    model.head_width=12 model.width=48
model gptj $each model.family=gptj model.kv_heads=0 model.head_width=12 \
    model.width=48 train.logits_chunk=10
model falcon $each model.family=falcon model.kv_heads=1
model falcon_groups $each model.family=falcon
model falcon_2 $each model.family=falcon model.parallel_norms=1
model falcon_rw $each model.family=falcon model.alibi=true model.heads=6 \
    model.head_width=8 \
    model.kv_heads=6 model.width=48 model.parallel=0 \
    model.attention_bias=true model.mlp_bias=true
model dynamic $each model.context=16 "model.rope_scaling=dynamic factor=3"
model layer_scale $each model.family=gpt2 model.kv_heads=0 \
    model.layer_scale=true
model gemma $each model.family=gemma model.kv_heads=1
model gemma2 $each model.family=gemma2 model.window=7
model gemma3 $each model.family=gemma3 model.window=7 model.window_skip=3
# Windows in some blocks, by other rules than a period.
model windows $each model.family=qwen2 model.window=9 model.layers=4 \
    model.window_except=0-1
model windows_nope $each model.family=smollm3 model.window=5 model.layers=4 \
    model.window_except=1-2 model.rope_except=0,3
model palm $each model.family=palm model.kv_heads=1
sed -i 's/ tensor.overlap=2//' layouts.txt # its norms gather all heads
model olmo2 $each model.family=olmo2
# Normed heads that several tensor ranks hold.
printf '%s\n' "ranks=4 mesh.tensor=4" "ranks=2 mesh.tensor=2 train.micro_batch=1" \
    "ranks=4 mesh.tensor=2 mesh.data=2 tensor.overlap=2 tensor.domino=true" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 zero=zero1 train.recompute=norm" \
    >layouts.txt
model replicas $small model.family=qwen3 numerics.grid_tensor=4
model replicas_each $small model.family=stablelm model.qk_norm=true \
    model.head_width=12 model.width=48 numerics.grid_tensor=4 \
    train.dtype=bfloat16
# Norms over all heads, which tensor ranks gather.
sed -i 's/ tensor.overlap=2 tensor.domino=true//' layouts.txt
echo "ranks=4 mesh.tensor=2 mesh.shard=2 zero=fsdp" >>layouts.txt
model gathered $small model.family=olmo2 numerics.grid_tensor=4
model gathered_bf16 $small model.family=olmo2 numerics.grid_tensor=4 \
    train.dtype=bfloat16

# Other optimizers, and states in 16 and 8 bits: blocks of states that fall into
# other shards, column splits, key-value heads that two ranks hold.
printf '%s\n' "ranks=1 train.threads=3 numerics.isa=plain" \
    "ranks=4 mesh.tensor=4" "ranks=2 mesh.pipe=2 train.micro_batch=1" \
    "ranks=4 mesh.shard=4 zero=fsdp" "ranks=2 mesh.context=2" \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero1" \
    "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
    >layouts.txt
other="$small numerics.grid_context=2 numerics.grid_tensor=4 model.layers=2"
model lion $other optimizer.name=lion
model sgd $other optimizer.name=sgd optimizer.lr=0.1 model.tied=true
model schedule_free $other optimizer.name=schedule_free \
    optimizer.schedule=constant model.tied=true
model states16 $other optimizer.state_dtype=bfloat16
model states8 $other optimizer.state_dtype=int8 model.tied=true \
    model.vocab=303 model.feed_forward=136
model states8_narrow $other optimizer.state_dtype=int8 train.dtype=bfloat16
model muon8 $other optimizer.name=muon optimizer.state_dtype=int8
sed -i '/context/d' layouts.txt
model lion8 $small optimizer.name=lion optimizer.state_dtype=int8 \
    model.family=gpt2 model.kv_heads=0 numerics.grid_tensor=4
model sgd16 $small numerics.grid_tensor=4 optimizer.name=sgd \
    optimizer.state_dtype=bfloat16 optimizer.lr=0.1

# Regularization: masks that know their sequence, position and element, the
# z-loss, and queries and keys scaled back.
printf '%s\n' "ranks=1 train.micro_batch=1" "ranks=1 train.recompute=block" \
    "ranks=1 train.threads=3 train.logits_chunk=100" "ranks=2 mesh.tensor=2" \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero2 tensor.overlap=2 tensor.domino=true" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 train.recompute=block" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe" \
    "ranks=2 mesh.shard=2 zero=fsdp" "ranks=2 mesh.data=2 zero=zero1" \
    "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1" \
    >layouts.txt
regular="$small model.dropout=0.2 model.attention_dropout=0.1 train.z_loss=0.01 model.layers=4"
model regular $regular model.tied=true model.vocab=303
model regular_heads $regular model.family=gpt2 model.kv_heads=0 \
    optimizer.qk_clip=0.03 numerics.grid_tensor=4 data.documents=joined
model regular_groups $regular optimizer.qk_clip=0.03 train.dtype=bfloat16
printf '%s\n' "ranks=2 mesh.tensor=2" "ranks=2 mesh.shard=2 zero=fsdp" \
    "ranks=4 mesh.data=2 mesh.pipe=2 train.micro_batch=1 zero=zero1" >layouts.txt
steps=3 model regular_muon $regular optimizer.name=muon optimizer.qk_clip=0.03
printf '%s\n' "ranks=2 mesh.context=2" "ranks=2 mesh.context=2 mesh.tensor=1 context.kind=ulysses" \
    "ranks=4 mesh.tensor=2 mesh.context=2 train.micro_batch=1" >layouts.txt
steps=3 model regular_context $regular numerics.grid_context=2 \
    optimizer.qk_clip=0.03
printf '%s\n' "ranks=2 mesh.context=2 context.kind=ring" >layouts.txt
steps=3 model regular_ring $regular numerics.grid_context=2 \
    data.sequence=512 train.batch=4 train.micro_batch=2 model.layers=1 \
    optimizer.qk_clip=0.03
printf '%s\n' "ranks=4 mesh.tensor=4" >layouts.txt
steps=3 model regular_replicas $regular numerics.grid_tensor=4 \
    optimizer.qk_clip=0.03

# A head of its own; four tensor ranks on two key-value heads; float64.
{ data 2; zero 2; tensor 2 4; pipe 4; } >layouts.txt
model untied $small train.dtype=float64 model.layers=8 numerics.grid_tensor=4

# Three leaves of each kind.
printf '%s\n' "ranks=3 mesh.data=3" "ranks=3 mesh.data=3 zero=zero1" \
    "ranks=3 mesh.data=3 zero=zero3 train.micro_batch=1" \
    "ranks=3 mesh.tensor=3" "ranks=9 mesh.data=3 mesh.tensor=3" \
    "ranks=3 mesh.pipe=3 train.micro_batch=1" \
    "ranks=3 mesh.pipe=3 mesh.layers=[1,3,2] train.micro_batch=1" >layouts.txt
model three data.sequence=25 train.batch=12 train.micro_batch=4 \
    numerics.grid_data=3 numerics.grid_tensor=3 model.heads=6 \
    model.kv_heads=3 model.layers=6 model.feed_forward=42

# Sequences cut by ranks, in two and in four context leaves.
context 2 4 >layouts.txt
model context $small numerics.grid_context=4 data.sequence=48 \
    model.layers=2 model.kv_heads=4

# Keys and values that travel need spans of 128 tokens.
printf '%s\n' "ranks=2 mesh.context=2 context.kind=ring" \
    "ranks=2 mesh.context=2 context.kind=ring train.micro_batch=1 train.recompute=block" \
    "ranks=4 mesh.context=2 mesh.tensor=2 context.kind=ring" \
    "ranks=4 mesh.context=2 mesh.data=2 context.kind=ring zero=zero3" \
    "ranks=4 mesh.context=4 context.kind=hybrid context.ulysses=2" >layouts.txt
model ring $small numerics.grid_context=4 data.sequence=512 train.batch=4 \
    train.micro_batch=2 model.layers=2

# Linear biases of keys that travel, under heads that are exchanged, in 16 bits.
sed -i 's/$/ train.micro_batch=1/;2d' layouts.txt
steps=3 model ring_falcon $small numerics.grid_context=4 data.sequence=512 \
    train.batch=4 train.micro_batch=2 model.layers=1 model.family=falcon \
    model.kv_heads=4 model.alibi=true train.dtype=bfloat16

# The canonical test: 8 data leaves of 3 sequences, 2 tensor leaves, sequences
# of 2.5 granules.
printf '%s\n' "ranks=2 mesh.tensor=2" "ranks=8 mesh.data=8" \
    "ranks=8 mesh.data=4 mesh.tensor=2 zero=zero2 train.micro_batch=1" \
    "ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=3" \
    >layouts.txt
model canonical data.sequence=640 train.batch=24 train.micro_batch=3 \
    numerics.grid_data=8 numerics.grid_tensor=2 model.layers=2

# Replicas are still equal after 200 steps.
printf '%s\n' "ranks=4 mesh.data=2 mesh.tensor=2" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1" >layouts.txt
steps=200 model long $small train.batch=4 train.micro_batch=2 \
    model.layers=2 model.tied=true

# Outside the grid: other sums, equal to 1e-12.
printf '%s\n' "ranks=2 mesh.data=2" "ranks=3 mesh.data=3" \
    "ranks=6 mesh.data=6" "ranks=2 mesh.tensor=2" "ranks=4 mesh.tensor=4" \
    "ranks=6 mesh.data=3 mesh.tensor=2 zero=zero1" \
    "ranks=2 mesh.context=2" >layouts.txt
model fast train.dtype=float64 numerics.mode=fast numerics.grid_data=1 \
    numerics.grid_tensor=1 data.sequence=32 train.batch=12 train.micro_batch=2

# More context ranks than the grid's tensor leaves leave room for in one sum.
printf '%s\n' "ranks=32 mesh.context=32" "ranks=32 mesh.context=16 mesh.tensor=2" \
    >layouts.txt
steps=3 model fast_context train.dtype=float64 numerics.mode=fast \
    data.sequence=256 model.layers=1 train.batch=2 train.micro_batch=1
}

# Parameters with rates of their own, and frozen ones, under every axis.
# shellcheck disable=SC2086
{
printf '%s\n' "ranks=1 train.micro_batch=1" "ranks=4 mesh.tensor=4" \
    "ranks=4 mesh.context=2 mesh.tensor=2 tensor.overlap=2" \
    "ranks=4 mesh.shard=4 zero=fsdp train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero2" \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1 zero=zero1" \
    >layouts.txt
few="data.sequence=48 train.batch=8 train.micro_batch=4 model.layers=4
    numerics.grid_tensor=4 numerics.grid_context=2"
steps=3 model groups $few model.tied=true optimizer.groups='["embedding frozen",
"layers.0.* frozen", "*norm* frozen", "layers.1.attention_norm frozen=false",
"*.wo lr_factor=0.1 weight_decay=0 beta1=0.8", "*.w2 beta2=0.5"]'
steps=3 model mup $few model.mup_base_width=8 optimizer.ema=0.9
# Low-rank adapters: beside fused and cut matrices, some and all of them.
steps=3 model lora $few lora.rank=3 train.dtype=bfloat16
steps=3 model lora_mxfp8 $few lora.rank=3 train.dtype=bfloat16 \
    numerics.recipe=mxfp8
steps=3 model lora_some $few lora.rank=5 'lora.targets=[q_proj,v_proj,down_proj]' \
    model.tied=true train.recompute=block
# Several ranks and scales beside one matrix, other layers other ones.
mkdir -p ranks
cat >ranks/adapter_config.json <<'END'
{"peft_type": "LORA", "r": 3, "lora_alpha": 8, "use_rslora": true,
 "target_modules": ["q_proj", "k_proj", "v_proj", "gate_proj", "down_proj"],
 "exclude_modules": ["layers.2.mlp.gate_proj"],
 "rank_pattern": {"k_proj": 5, "layers.1.mlp.down_proj": 2},
 "alpha_pattern": {"v_proj": 2}}
END
steps=3 model lora_ranks $few lora.from=ranks
# States kept among the gradients lie as they do; optimizers that take whole
# matrices take no frozen ones.
for name in schedule_free muon soap adafactor; do
    steps=3 model frozen_$name $few optimizer.name=$name model.tied=true \
        optimizer.schedule=constant optimizer.groups='["embedding frozen",
"layers.0.* frozen", "*norm* frozen"]'
done
steps=3 model lora_free $few lora.rank=3 optimizer.name=schedule_free \
    optimizer.schedule=constant
steps=3 model lora_gpt2 $few lora.rank=2 model.family=gpt2 model.kv_heads=0
# Ranks without a share of the gradients do not wait for the sums of the others;
# under a check that holds messages back, theirs must begin all the same.
printf '%s\n' "ranks=8 mesh.data=2 mesh.shard=4 zero=hsdp train.micro_batch=1" \
    >apart.txt
cp layouts.txt kept.txt && cp apart.txt layouts.txt
steps=3 LOCKSTEP_CHECK=lives:late model lora_apart $small lora.rank=3 model.layers=1 \
    model.feed_forward=400
# Units of experts and others have groups of their own: ranks wait in different
# orders for the same sums.
echo "ranks=8 mesh.data=2 mesh.shard=2 mesh.expert=2 mesh.expert_tensor=1" \
    "moe.rows_bound=2 zero={states:[shard]} train.micro_batch=1" >layouts.txt
steps=3 LOCKSTEP_CHECK=lives:late model experts_apart data.sequence=24 \
    model.family=granitemoe model.heads=3 model.kv_heads=1 model.head_width=10 \
    model.width=30 model.feed_forward=30 moe.experts=6 moe.top_k=2 \
    model.tied=false optimizer.groups='["*.wo frozen"]'
# A head without W reads what is gathered again; what the messages take is
# needed until then.
echo "ranks=2 mesh.tensor=2 tensor.overlap=2 train.micro_batch=2" \
    "train.recompute=block" >layouts.txt
steps=3 LOCKSTEP_CHECK=lives:early model lora_later data.sequence=24 lora.rank=2 \
    mtp.depth=1
cp kept.txt layouts.txt
# Frozen adapters have no gradients, whichever matrix tensor ranks have whole.
steps=3 model lora_frozen $few lora.rank=2 optimizer.groups='["layers.0.* frozen",
"layers.1.*lora_a frozen", "layers.2.*lora_b frozen"]'
# Messages beside products, where matrices are frozen and one norm has two
# readers; a frozen matrix has no W that would wait for what comes again.
printf '%s\n' "ranks=2 mesh.tensor=2 tensor.overlap=2" \
    "ranks=2 mesh.tensor=2 tensor.overlap=3 train.micro_batch=8" \
    "ranks=4 mesh.tensor=2 mesh.shard=2 zero=fsdp tensor.overlap=2 tensor.domino=true" \
    "ranks=4 mesh.tensor=2 mesh.data=2 zero=zero2 tensor.overlap=2 train.recompute=block" \
    >layouts.txt
steps=3 model falcon_lora $small model.family=falcon model.kv_heads=1 lora.rank=2
steps=3 model gptj_frozen $small model.family=gptj model.kv_heads=0 \
    model.head_width=12 model.width=48 optimizer.groups='["*.wqkv frozen"]'
# Units of weights that sub-batches of a micro-batch use one behind the other.
printf '%s\n' \
    "ranks=4 mesh.tensor=2 mesh.shard=2 zero=fsdp tensor.overlap=2 tensor.domino=true" \
    "ranks=4 mesh.tensor=2 mesh.shard=2 zero=fsdp tensor.overlap=4 tensor.domino=true fsdp.prefetch=2" \
    >layouts.txt
steps=3 model domino_fsdp $small model.family=gpt2 model.kv_heads=0 \
    model.width=32 model.head_width=8 model.layers=3
steps=3 model domino_gemma $small model.family=gemma3 model.layers=4 \
    model.window=7 model.window_skip=3
# Steps whose gradients overflow float16 end in NaNs and send no matrices.
printf '%s\n' "ranks=2 mesh.data=2 zero=zero1" "ranks=2 mesh.pipe=2" \
    "ranks=4 mesh.context=2 mesh.tensor=2" "ranks=2 mesh.shard=2 zero=fsdp" \
    >layouts.txt
for name in adamw muon soap adafactor; do
    steps=3 model overflow_$name $few optimizer.name=$name model.init_std=2 \
        train.dtype=float16 model.tied=true
done
}

. "$tree/tests/equivalence/table_experts.sh"

# Only when it is named: what the thread sanitizer looks at.
printf '%s\n' "ranks=2 mesh.data=2 zero=zero2 train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=zero3" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.micro_batch=1" \
    "ranks=2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=1" \
    "ranks=2 mesh.context=2" \
    "ranks=2 mesh.context=2 context.kind=ulysses" >layouts.txt
# shellcheck disable=SC2086
[[ $models != *" threads "* ]] || steps=3 model threads $small \
    numerics.grid_context=2 model.layers=4 model.tied=true model.kv_heads=4

echo "$rows rows in $SECONDS s"
report
