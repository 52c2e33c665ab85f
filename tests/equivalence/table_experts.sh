# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# table_experts.sh - rows of table.sh, which reads it: mixtures of experts, and
# modules that predict later tokens.

# Whole on every rank, or divided over ranks. Some experts have no tokens of a
# leaf, some leaves of experts none of a token.
printf '%s\n' "ranks=1 train.micro_batch=1 train.threads=3" \
    "ranks=1 train.micro_batch=8 train.recompute=block numerics.isa=plain" \
    "ranks=2 mesh.data=2 zero=zero1" \
    "ranks=4 mesh.data=4 zero=zero2 train.micro_batch=1" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
    "ranks=4 mesh.shard=4 zero=fsdp train.recompute=[activation,linear]" \
    "ranks=2 mesh.shard=2 zero=fsdp fsdp.reshard=false" \
    "ranks=2 mesh.context=2 train.micro_batch=1" \
    "ranks=4 mesh.context=2 mesh.data=2 zero=zero1" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-h1" \
    "ranks=2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe" \
    "ranks=4 mesh.pipe=2 mesh.shard=2 zero=zero2 train.micro_batch=1" \
    "ranks=2 mesh.tensor=2" \
    "ranks=4 mesh.tensor=2 mesh.context=2 tensor.overlap=2" \
    "ranks=4 mesh.tensor=2 mesh.shard=2 zero=fsdp train.recompute=block" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-v" \
    "ranks=2 mesh.expert=2" \
    "ranks=4 mesh.expert=2 mesh.data=2 zero=zero1" \
    "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp train.micro_batch=1 moe.rows_bound=0.5" \
    "ranks=8 mesh.expert=2 mesh.data=2 mesh.shard=2 zero=hsdp train.micro_batch=1" \
    "ranks=2 mesh.expert=2 zero=zero2 train.recompute=block" \
    "ranks=4 mesh.expert=2 mesh.context=2 train.micro_batch=1" \
    "ranks=2 mesh.expert=2 moe.rows_bound=0.01 train.recompute=block" \
    "ranks=4 mesh.expert=2 mesh.tensor=2 tensor.overlap=2 moe.rows_bound=1" \
    "ranks=4 mesh.expert=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-h1 moe.rows_bound=0.5" \
    "ranks=8 mesh.expert=2 mesh.tensor=2 mesh.pipe=2 train.micro_batch=1 schedule.name=zb-v" \
    "ranks=4 mesh.expert=2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe moe.rows_bound=0.5" \
    "ranks=8 mesh.expert=2 mesh.pipe=2 mesh.tensor=2 zero=zero2 train.micro_batch=1 schedule.name=dualpipe" \
    "ranks=4 mesh.expert=2 mesh.data=2 mesh.node=1 zero=zero1 moe.rows_bound=0.5 train.recompute=block" \
    "ranks=4 mesh.expert=2 mesh.pipe=2 mesh.node=1 train.micro_batch=1 schedule.name=dualpipe" \
    "ranks=4 mesh.expert=4 mesh.expert_tensor=2 mesh.node=2 train.micro_batch=1" \
    "ranks=2 mesh.tensor=2 mesh.expert_tensor=1 moe.rows_bound=0.5" \
    "ranks=4 mesh.tensor=2 mesh.expert_tensor=1 mesh.shard=2 zero=fsdp train.recompute=block" \
    "ranks=4 mesh.tensor=2 mesh.expert_tensor=1 mesh.context=2 train.micro_batch=1 zero=zero1" \
    "ranks=4 mesh.tensor=2 mesh.expert_tensor=1 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe moe.rows_bound=0.5" \
    "ranks=2 mesh.expert=2 mesh.expert_tensor=2" \
    "ranks=4 mesh.expert=2 mesh.expert_tensor=2 mesh.shard=2 zero=fsdp train.micro_batch=1 moe.rows_bound=0.5" \
    "ranks=2 mesh.context=2 mesh.expert_context=true" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.shard=2 zero=fsdp train.micro_batch=1 train.recompute=block" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.tensor=2 zero=zero1" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.pipe=2 train.micro_batch=1 schedule.name=zb-v" \
    >layouts.txt
# shellcheck disable=SC2086
{
experts="$small numerics.grid_context=2 model.layers=4 model.feed_forward=40"
steps=3 model mixtral $experts model.family=mixtral moe.experts=4 model.window=9
steps=3 model mixtral_bf16 $experts model.family=mixtral moe.experts=6 \
    moe.top_k=3 train.dtype=bfloat16 numerics.grid_expert=3 moe.bias_rate=0.01
steps=2 model integers_experts $experts model.family=mixtral moe.experts=4 \
    numerics.sums=integer
steps=3 model qwen3_moe $experts model.family=qwen3_moe moe.experts=12 \
    moe.top_k=4 moe.intermediate_size=12 moe.every=2 train.z_loss=0.01 \
    model.dropout=0.1 train.logits_chunk=20
# Rows go once to each node: two ranks on each of two, one on each of two or
# four; nodes that cut the ranks that divide the experts along any axis.
mv layouts.txt kept.txt
printf '%s\n' "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=two_level" \
    "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=flat" \
    "ranks=4 mesh.expert=4 mesh.node=1 moe.rows_bound=0.1 train.recompute=block" \
    "ranks=8 mesh.expert=4 mesh.data=2 mesh.node=2 zero=zero2 train.micro_batch=1" \
    "ranks=8 mesh.expert=4 mesh.tensor=2 mesh.node=4 tensor.overlap=2" \
    "ranks=4 mesh.tensor=2 mesh.expert_tensor=1 mesh.expert=2 mesh.node=2 moe.rows_bound=0.5" \
    "ranks=4 mesh.tensor=2 mesh.expert_tensor=1 mesh.expert=2 mesh.node=2 mesh.order=tensor,expert" \
    "ranks=8 mesh.expert=4 mesh.tensor=2 mesh.expert_tensor=2 mesh.node=2" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.expert=2 mesh.node=2" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.expert=2 mesh.node=2 mesh.order=expert,context" \
    "ranks=4 mesh.expert=2 mesh.pipe=2 mesh.node=1 train.micro_batch=1 schedule.name=dualpipe moe.rows_bound=0.5" \
    >layouts.txt
steps=3 model experts_nodes $experts model.family=mixtral moe.experts=8 moe.top_k=3
steps=3 model experts_nodes_bf16 $experts model.family=deepseek moe.experts=8 \
    moe.top_k=3 moe.intermediate_size=12 moe.capacity_factor=1.2 train.dtype=bfloat16
mv kept.txt layouts.txt
# Experts in few bits: spans of rows are an expert's tokens of a context chunk.
cp layouts.txt all.txt
sed -i '/reshard/d;/dualpipe/d;/zero1/d;/hsdp/d' layouts.txt
few="$experts train.dtype=bfloat16 numerics.high_last=0 moe.experts=4"
steps=3 model experts_nvfp4 $few model.family=mixtral numerics.recipe=nvfp4
grep 'ranks=4 mesh.expert=2 mesh.pipe=2 .*dualpipe' all.txt >layouts.txt
steps=3 model experts_nvfp4_dualpipe $few model.family=mixtral \
    numerics.recipe=nvfp4
sed '/reshard/d;/dualpipe/d;/zero1/d;/hsdp/d' all.txt >layouts.txt
# Inputs wait as codes on every other layout, against one rank whose do not.
sed 'n;s/$/ train.saved_activations=recipe/' layouts.txt >codes.txt
mv layouts.txt plain.txt
mv codes.txt layouts.txt
steps=3 model experts_fp8_delayed $few model.family=mixtral moe.jitter=0.1 \
    numerics.recipe=fp8-delayed numerics.recipe_history=2
mv plain.txt layouts.txt
steps=3 model experts_fp8_tensor $few model.family=qwen3_moe moe.every=2 \
    moe.intermediate_size=24 moe.top_k=2 numerics.recipe=fp8-tensor \
    moe.bias_rate=0.01 numerics.bfloat16=tiles numerics.recipe_steps=2
steps=3 model experts_quartet $few $wide model.family=mixtral data.sequence=72 numerics.recipe=mxfp4-quartet
cp layouts.txt plain.txt
sed -i 's/$/ train.saved_activations=recipe/' layouts.txt
steps=3 model experts_bitnet $few model.family=mixtral numerics.recipe=bitnet
mv plain.txt layouts.txt
# Rows as codes, against one rank that sends none: x and gate dy, or x alone.
cp layouts.txt kept.txt
grep -E 'mesh.expert=|expert_context' kept.txt >layouts.txt
printf '%s\n' "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=two_level" \
    "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=flat moe.rows_bound=0.1" \
    "ranks=4 mesh.tensor=2 mesh.expert_tensor=1 mesh.expert=2 mesh.node=2 moe.rows_bound=0.3" \
    "ranks=8 mesh.expert=4 mesh.tensor=2 mesh.expert_tensor=2 mesh.node=2 train.recompute=block" \
    "ranks=4 mesh.expert=2 mesh.pipe=2 mesh.node=1 train.micro_batch=1 schedule.name=dualpipe" \
    >>layouts.txt
sed -i 's/$/ moe.dispatch_format=recipe/' layouts.txt
steps=3 model coded_rows $few model.family=mixtral moe.top_k=2 numerics.recipe=hfp8
steps=3 model coded_rows_bitnet $few model.family=qwen2_moe moe.top_k=3 \
    moe.intermediate_size=24 numerics.recipe=bitnet numerics.high_first=1
steps=3 model coded_rows_token $few model.family=gpt_oss numerics.recipe=fp8-tiles \
    moe.intermediate_size=24 \
    'numerics.recipe_rows=["activations e5m6 token up", "gradients e4m3 token exact"]'
# Rounded twice: near one rank, and as many bytes as planned.
printf '%s\n' "ranks=2 mesh.expert=2" "ranks=4 mesh.expert=2 mesh.data=2 zero=zero1" \
    "ranks=4 mesh.expert=4 mesh.node=2 moe.exchange=two_level" >layouts.txt
sed -i 's/$/ moe.dispatch_format=recipe/' layouts.txt
steps=3 model coded_rows_twice $few model.family=mixtral moe.top_k=2 \
    numerics.recipe=fp8-tiles numerics.mode=fast numerics.grid_tensor=1
mv kept.txt layouts.txt
steps=3 model experts_accumulator $few model.family=mixtral \
    numerics.recipe=fp8-tensor numerics.accumulator=10:4:12 \
    'numerics.recipe_rows=["glu e4m3 1x8 up"]'
sed -i '/plain/d;s/ tensor.overlap=2//' layouts.txt
sed 'n;s/$/ train.saved_activations=recipe/' layouts.txt >codes.txt
mv layouts.txt plain.txt
mv codes.txt layouts.txt
steps=3 model experts_mxfp8 $few model.family=gpt_oss moe.top_k=3 \
    moe.intermediate_size=24 numerics.recipe=mxfp8 numerics.high_first=1 \
    'numerics.recipe_rows=["glu e5m2 1x5 down"]'
mv plain.txt layouts.txt
steps=3 model gpt_oss_quartet $few model.family=gpt_oss \
    moe.intermediate_size=24 numerics.recipe=mxfp4-quartet
sed -n '/zero=\(fsdp\|zero3\)/p' all.txt | head -n 3 >layouts.txt
steps=3 model gpt_oss_codes $few model.family=gpt_oss fsdp.gather_format=auto \
    moe.intermediate_size=24 numerics.recipe=fp8-tiles
sed '/plain/d;/reshard/d;/hsdp/d;/dualpipe/d;s/ tensor.overlap=2//' all.txt \
    >layouts.txt
steps=3 model olmoe $experts model.family=olmoe moe.experts=16 moe.top_k=8 \
    model.feed_forward=8 optimizer.name=muon model.tied=true moe.bias_rate=0.02
steps=3 model granitemoe $experts model.family=granitemoe moe.experts=6 \
    moe.top_k=3 moe.intermediate_size=24 model.embedding_multiplier=12 \
    model.residual_multiplier=0.22 model.attention_multiplier=0.1 \
    model.logits_scaling=6 train.dtype=bfloat16 model.tied=true
steps=3 model gpt_oss $experts model.family=gpt_oss moe.experts=6 \
    moe.top_k=3 moe.intermediate_size=24 moe.swiglu_limit=0.3 model.window=9 \
    model.attention_bias=true model.attention_dropout=0.1
steps=3 model gpt_oss_bf16 $experts model.family=gpt_oss moe.experts=4 \
    moe.top_k=2 train.dtype=bfloat16 optimizer.name=muon numerics.grid_expert=2
steps=3 model phimoe $experts model.family=phimoe moe.experts=6 \
    model.attention_bias=true model.dropout=0.1 moe.jitter=0.1 \
    moe.router_noise=0.3
steps=3 model llama4 $experts model.family=llama4 moe.experts=4 moe.every=2 \
    moe.intermediate_size=24 model.window=5 model.rope_skip=2 \
    model.window_skip=2 model.qk_norm=true model.temper=0.3 \
    model.temper_floor=3 moe.jitter=0.1 model.dropout=0.1
steps=3 model llama4_bf16 $experts model.family=llama4 moe.experts=6 \
    train.dtype=bfloat16 model.window=7 model.rope_skip=2 model.window_skip=4 \
    model.temper_floor=3 moe.capacity_factor=0.8 model.attention_bias=true
steps=3 model glm4_moe $experts model.family=glm4_moe moe.experts=8 \
    moe.top_k=3 moe.intermediate_size=12 moe.groups=4 moe.groups_chosen=2 \
    moe.scale=2.5 moe.first_dense=1 model.qk_norm=true \
    model.attention_bias=true moe.bias_rate=0.05
steps=3 model qwen2_moe $experts model.family=qwen2_moe moe.experts=8 \
    moe.top_k=2 moe.intermediate_size=16 moe.first_dense=1 \
    optimizer.name=soap 'optimizer.groups=["layers.1.experts.3.* frozen",
"*.router frozen", "layers.2.* frozen", "*.experts.*.w2 lr_factor=0.1"]'
steps=3 model deepseek $experts model.family=deepseek moe.experts=8 \
    moe.top_k=3 moe.intermediate_size=12 moe.first_dense=1 model.dropout=0.1
# Latent attention: down projections that no axis cuts.
latent="model.kv_heads=0 model.head_width=0 mla.query_rank=20 mla.rank=16 mla.nope=8 mla.rope=4
    mla.value=6 moe.experts=8 moe.top_k=3 moe.intermediate_size=12
    moe.first_dense=1 moe.groups=4 moe.groups_chosen=2"
steps=3 model deepseek_v2 $experts model.family=deepseek_v2 $latent mla.query_rank=0 train.dtype=bfloat16 moe.scale=2
steps=3 model deepseek_v2_mxfp4 $experts model.family=deepseek_v2 $latent train.dtype=bfloat16 numerics.recipe=mxfp4 moe.scale=2
cp layouts.txt all.txt
sed -i 's/recompute=block/recompute=latent/
    s/recompute=.activation,linear./recompute=[latent,norm]/' layouts.txt
steps=3 model deepseek_v3 $experts model.family=deepseek_v3 $latent \
    moe.bias_rate=0.01 model.dropout=0.1
steps=3 model lora_latent $experts model.family=deepseek_v3 $latent lora.rank=2
steps=3 model deepseek_v3_quartet $experts model.family=deepseek_v3 $latent $wide mla.query_rank=40 mla.rank=36 moe.intermediate_size=40 numerics.recipe=mxfp4-quartet numerics.recipe_steps=2
mv all.txt layouts.txt
# Adapters of experts of all tokens, which tensor ranks cut; muP of routers.
steps=3 model lora_shared $experts model.family=qwen2_moe moe.experts=8 \
    moe.top_k=2 moe.intermediate_size=16 moe.first_dense=1 lora.rank=3
steps=3 model lora_direct $experts model.family=deepseek_v2 $latent lora.rank=3 \
    mla.query_rank=0 train.dtype=bfloat16
steps=3 model mup_experts $experts model.family=deepseek_v3 $latent \
    moe.bias_rate=0.01 model.mup_base_width=8
}

# Adapters of experts that tokens choose: ranks that cut these cut what the
# inner width does of those.
# shellcheck disable=SC2086
{
steps=3 model lora_experts $experts model.family=mixtral moe.experts=4 \
    lora.rank=3 'lora.targets=[q_proj,router,w1,w2,w3]' moe.jitter=0.1
steps=3 model lora_every $experts model.family=deepseek_v3 $latent lora.rank=2 \
    'lora.targets=[all-linear]' model.dropout=0.1
steps=3 model lora_experts_bf16 $experts model.family=qwen3_moe moe.experts=12 \
    moe.top_k=4 moe.intermediate_size=12 moe.every=2 train.dtype=bfloat16 \
    lora.rank=2 'lora.targets=[up_proj,down_proj,mlp.gate]' moe.capacity_factor=0.8
steps=3 model lora_experts_nvfp4 $experts model.family=mixtral moe.experts=4 \
    train.dtype=bfloat16 numerics.high_last=0 numerics.recipe=nvfp4 \
    lora.rank=2 'lora.targets=[w2,w3]' optimizer.name=muon
steps=3 model lora_experts_frozen $experts model.family=gpt_oss moe.experts=6 \
    moe.top_k=2 lora.rank=2 'lora.targets=[gate,up,router]' optimizer.groups='[
"layers.1.experts.3.* frozen", "layers.0.*lora_a frozen", "layers.2.* frozen"]'
}

# Experts divided over several axes at once.
cp layouts.txt all.txt
printf '%s\n' "ranks=4 mesh.expert=2 mesh.tensor=2 mesh.expert_tensor=1" \
    "ranks=4 mesh.expert=2 mesh.tensor=2 mesh.expert_tensor=1 mesh.order=tensor,expert moe.rows_bound=0.5 tensor.overlap=2" \
    "ranks=8 mesh.expert=2 mesh.tensor=2 mesh.expert_tensor=1 mesh.shard=2 zero=fsdp train.micro_batch=1" \
    "ranks=8 mesh.expert=2 mesh.tensor=2 mesh.expert_tensor=1 mesh.pipe=2 zero=zero2 train.micro_batch=1 schedule.name=zb-v" \
    "ranks=8 mesh.expert=2 mesh.tensor=2 mesh.expert_tensor=1 mesh.context=2 train.micro_batch=1 train.recompute=block" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.tensor=2 mesh.expert_tensor=1 tensor.overlap=2" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.expert=2 mesh.order=context,expert train.micro_batch=1" \
    >layouts.txt
# shellcheck disable=SC2086
{
steps=3 model folded $experts model.family=qwen3_moe moe.experts=8 \
    moe.top_k=3 moe.intermediate_size=12 model.dropout=0.1 moe.jitter=0.1 \
    moe.capacity_factor=0.7 moe.balance_loss=0.01
steps=3 model folded_muon $experts model.family=glm4_moe moe.experts=12 \
    moe.top_k=2 moe.intermediate_size=12 moe.bias_rate=0.01 \
    optimizer.name=muon train.dtype=bfloat16 numerics.high_last=0 \
    numerics.recipe=mxfp8
}
printf '%s\n' "ranks=3 mesh.tensor=3 mesh.expert_tensor=1 moe.rows_bound=0.1" \
    "ranks=6 mesh.tensor=3 mesh.expert_tensor=1 mesh.expert=2 train.recompute=block" \
    "ranks=6 mesh.tensor=3 mesh.expert_tensor=1 mesh.data=2 zero=zero3 train.micro_batch=1" \
    >layouts.txt
steps=3 model folded_uneven data.sequence=23 train.batch=8 \
    train.micro_batch=4 numerics.grid_tensor=3 model.feed_forward=42 \
    model.heads=6 model.kv_heads=3 model.width=48 model.family=mixtral \
    moe.experts=6
# Experts cut over more or fewer ranks than the rest.
printf '%s\n' "ranks=4 mesh.tensor=4 mesh.expert_tensor=2" \
    "ranks=4 mesh.tensor=2 mesh.expert=2 mesh.expert_tensor=4 train.recompute=block" \
    "ranks=4 mesh.expert=4 mesh.expert_tensor=2 moe.rows_bound=0.5" \
    "ranks=8 mesh.tensor=4 mesh.expert=2 mesh.expert_tensor=2 train.micro_batch=1" \
    "ranks=8 mesh.tensor=4 mesh.context=2 mesh.expert_context=true mesh.expert_tensor=2" \
    "ranks=8 mesh.tensor=4 mesh.shard=2 mesh.expert_tensor=2 zero=fsdp" \
    "ranks=8 mesh.tensor=2 mesh.expert=2 mesh.pipe=2 mesh.expert_tensor=4 train.micro_batch=1 schedule.name=dualpipe" \
    >layouts.txt
wide="data.sequence=24 train.batch=8 numerics.grid_tensor=4
    numerics.grid_context=2 model.layers=4 model.heads=4 model.kv_heads=4
    model.width=32 moe.experts=8 moe.top_k=3"
# shellcheck disable=SC2086
{
steps=3 model cut_experts $wide model.feed_forward=44 model.family=mixtral
steps=3 model cut_experts_few $wide model.family=qwen3_moe \
    moe.intermediate_size=44 train.dtype=bfloat16 numerics.high_last=0 \
    numerics.recipe=fp8-tiles optimizer.name=muon moe.capacity_factor=0.8
# The ranks that cut one are places of the context axis, too.
printf '%s\n' "ranks=2 mesh.context=2 mesh.expert_context=true mesh.expert_tensor=2 moe.rows_bound=0.1 train.recompute=block" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.tensor=2 mesh.expert_tensor=4 tensor.overlap=2" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.expert=2 mesh.expert_tensor=2 mesh.node=2 mesh.order=context,expert" \
    "ranks=8 mesh.context=2 mesh.expert_context=true mesh.expert=2 mesh.shard=2 mesh.expert_tensor=4 zero=fsdp" \
    >layouts.txt
steps=3 model cut_context $wide model.feed_forward=44 model.family=gpt_oss \
    moe.intermediate_size=24 train.dtype=bfloat16 optimizer.name=muon
steps=3 model cut_context_lora $wide model.feed_forward=44 model.family=mixtral \
    lora.rank=2 'lora.targets=[w1,w2,w3,router]'
}
# Several context leaves of a rank, and data leaves of several micro-batches.
printf '%s\n' "ranks=2 mesh.context=2 mesh.expert_context=true train.micro_batch=1" \
    "ranks=2 mesh.context=2 mesh.expert_context=true train.micro_batch=2 train.logits_chunk=16" \
    "ranks=4 mesh.context=4 mesh.expert_context=true" \
    "ranks=8 mesh.context=2 mesh.expert_context=true mesh.tensor=2 mesh.expert_tensor=1 mesh.expert=2 train.micro_batch=1" \
    "ranks=8 mesh.context=4 mesh.expert_context=true mesh.data=2 zero=zero2 train.micro_batch=2" \
    >layouts.txt
for few in "" "train.dtype=bfloat16 numerics.high_last=0 numerics.recipe=nvfp4 optimizer.name=soap"; do
    # shellcheck disable=SC2086
    steps=3 model "folded_context${few:+_few}" data.sequence=32 \
        train.batch=8 numerics.grid_tensor=2 numerics.grid_context=4 \
        numerics.grid_data=2 model.feed_forward=40 model.family=mixtral \
        moe.experts=8 moe.top_k=3 $few
done
mv all.txt layouts.txt

# Jitter under every layout.
# shellcheck disable=SC2086
steps=3 model jitter $experts model.family=mixtral moe.experts=4 \
    moe.jitter=0.3 model.dropout=0.1 train.dtype=bfloat16
# All tokens to one expert and none to the other, which bias steps of 1 make of
# scores below 1; all experts tied.
# shellcheck disable=SC2086
{
steps=3 model skewed $experts model.family=glm4_moe moe.experts=2 moe.top_k=1 \
    moe.intermediate_size=12 moe.bias_rate=1
steps=3 model geglu $experts model.family=qwen2_moe moe.experts=4 moe.top_k=2 \
    moe.every=2 model.activation=gelu_tanh moe.z_loss=0.01
steps=3 model tied $experts model.family=mixtral moe.experts=4 \
    model.init_std=0 moe.z_loss=0.01
}
# Modules that predict later tokens: the table and the head are used two and
# three times, or four times and more where they are one matrix.
cp layouts.txt all.txt
# shellcheck disable=SC2086
{
later >layouts.txt
steps=3 model later $experts model.family=deepseek_v3 $latent mtp.depth=2 \
    mtp.weight_steps=1 moe.bias_rate=0.01 model.dropout=0.1 train.z_loss=1e-3
steps=3 model later_tied $experts model.family=glm4_moe moe.experts=4 \
    moe.top_k=2 moe.intermediate_size=12 mtp.depth=1 model.tied=true \
    train.dtype=bfloat16 moe.first_dense=1
steps=3 model later_mup $experts model.family=deepseek_v3 $latent mtp.depth=2 \
    model.mup_base_width=8 train.dtype=bfloat16
sed -i '/tensor=/{/expert_tensor=1/!d}; /expert_tensor=2/d' layouts.txt
steps=3 model later_lora $experts model.family=deepseek_v3 $latent mtp.depth=2 \
    lora.rank=2 'lora.targets=[up_proj,down_proj]'
later_pipe >layouts.txt
steps=3 model later_pipe $experts model.family=deepseek_v3 $latent mtp.depth=2 \
    mtp.weight_steps=1 moe.bias_rate=0.01 model.dropout=0.1 train.z_loss=1e-3 \
    model.layers=4 model.tied=false
steps=3 model later_pipe_tied $experts model.family=glm4_moe moe.experts=4 \
    moe.top_k=2 moe.intermediate_size=12 mtp.depth=2 model.tied=true \
    train.dtype=bfloat16 moe.first_dense=1 model.layers=4
later_few >layouts.txt
steps=3 model later_dense $experts model.tied=true mtp.depth=2 model.layers=2
steps=3 model later_gemma $experts model.family=gemma2 mtp.depth=1 \
    model.layers=2 model.window=9 train.dtype=bfloat16
steps=3 model later_scaled $experts model.family=granitemoe moe.experts=6 \
    moe.top_k=2 mtp.depth=1 model.layers=2 model.tied=false
}
mv all.txt layouts.txt
# Places of experts: ranks tell each other how many of their tokens came before.
# shellcheck disable=SC2086
steps=3 model capacity $experts model.family=qwen2_moe moe.experts=6 \
    moe.top_k=3 moe.capacity_factor=0.7 moe.jitter=0.1 moe.z_loss=0.01 \
    moe.device_loss=0.05 moe.devices=3
# Balance losses of the step before, and of micro-batches of two sequences.
# shellcheck disable=SC2086
{
steps=3 model balance_batch $experts model.family=qwen3_moe moe.experts=6 \
    moe.top_k=2 moe.intermediate_size=12 moe.balance_scope=batch \
    moe.balance_loss=0.5 moe.device_loss=0.3 moe.devices=3 \
    moe.capacity_factor=0.9
printf '%s\n' "ranks=1 train.threads=3 train.recompute=block" \
    "ranks=4 mesh.data=4 zero=zero2" \
    "ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp" \
    "ranks=4 mesh.tensor=2 mesh.context=2 tensor.overlap=2" \
    "ranks=4 mesh.tensor=2 mesh.pipe=2 schedule.name=zb-v" \
    "ranks=2 mesh.pipe=2 schedule.name=dualpipe" \
    "ranks=4 mesh.expert=2 mesh.shard=2 zero=fsdp train.recompute=block" \
    "ranks=4 mesh.context=2 mesh.expert_context=true mesh.tensor=2 mesh.expert_tensor=1" \
    >layouts.txt
steps=3 model balance_micro_batch $experts model.family=glm4_moe moe.experts=8 \
    moe.top_k=2 moe.intermediate_size=12 moe.balance_scope=micro_batch \
    moe.balance_loss=0.5 train.micro_batch=2 data.documents=joined
}
