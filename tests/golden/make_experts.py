#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes models/<name>/ of mixtures of experts, as make_models.py does, with what
transformers computes in float64 throughout (its inner float32 steps too).

    python3 tests/golden/make_experts.py [NAME...]
"""
import json
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

import check_drawn
from check_drawn import F32, F64, pieces, tensors
from make_models import HERE, LENGTH, SEQUENCES, gated

MIXTRAL = gated("mixtral", "MixtralForCausalLM", num_local_experts=5,
                num_experts_per_tok=2, router_aux_loss_coef=0.02,
                router_jitter_noise=0.0, output_router_logits=False,
                rope_theta=1e6, sliding_window=None, rms_norm_eps=1e-5)
# A window, and experts that all tokens use.
MIXTRAL_ALL = gated("mixtral", "MixtralForCausalLM", num_local_experts=3,
                    num_experts_per_tok=3, sliding_window=7, head_dim=10,
                    tie_word_embeddings=True)
# GeGLU in experts.
MIXTRAL_GEGLU = gated("mixtral", "MixtralForCausalLM", num_local_experts=4,
                      num_experts_per_tok=2, hidden_act="gelu_pytorch_tanh",
                      sliding_window=None)
OLMOE = gated("olmoe", "OlmoeForCausalLM", num_experts=12, num_experts_per_tok=4,
              attention_bias=False, clip_qkv=None, norm_topk_prob=False,
              intermediate_size=10, rope_scaling=None, router_aux_loss_coef=0.01,
              num_key_value_heads=6)
QWEN2_MOE = gated("qwen2_moe", "Qwen2MoeForCausalLM", num_experts=6,
                  num_experts_per_tok=3, moe_intermediate_size=12,
                  shared_expert_intermediate_size=20, decoder_sparse_step=1,
                  norm_topk_prob=False, use_sliding_window=False,
                  sliding_window=32768, max_window_layers=21,
                  mlp_only_layers=[])
# Dense blocks among the others; gates that are normalised.
QWEN3_MOE = gated("qwen3_moe", "Qwen3MoeForCausalLM", num_experts=7,
                  num_experts_per_tok=3, moe_intermediate_size=14, head_dim=10,
                  attention_bias=False, decoder_sparse_step=2,
                  mlp_only_layers=[3], norm_topk_prob=True,
                  num_hidden_layers=4, use_sliding_window=False,
                  vocab_size=31)
# Multipliers; all experts of a block in two tensors.
GRANITEMOE = gated("granitemoe", "GraniteMoeForCausalLM", num_local_experts=6,
                   num_experts_per_tok=3, attention_bias=False,
                   embedding_multiplier=12, residual_multiplier=0.22,
                   attention_multiplier=0.0625, logits_scaling=6.0,
                   output_router_logits=False, router_aux_loss_coef=0.01,
                   tie_word_embeddings=True, rope_scaling=None)
# Biases of the choice, groups, two experts of all tokens, a dense first block.
GLM4_MOE = gated("glm4_moe", "Glm4MoeForCausalLM", n_routed_experts=8,
                 num_experts_per_tok=3, moe_intermediate_size=14,
                 n_shared_experts=2, n_group=4, topk_group=2,
                 routed_scaling_factor=2.5, norm_topk_prob=True, head_dim=12,
                 first_k_dense_replace=1, use_qk_norm=True, attention_bias=True,
                 partial_rotary_factor=0.5, rope_scaling=None,
                 num_hidden_layers=3, num_nextn_predict_layers=0)
# The same experts, a norm of each head, a window in some blocks.
DOTS1 = gated("dots1", "Dots1ForCausalLM", n_routed_experts=8,
              num_experts_per_tok=3, moe_intermediate_size=14,
              n_shared_experts=2, n_group=1, topk_group=1,
              routed_scaling_factor=2.5, norm_topk_prob=True, head_dim=10,
              first_k_dense_replace=1, attention_bias=False,
              num_hidden_layers=3, sliding_window=7, max_window_layers=1,
              scoring_func="noaux_tc", rms_norm_eps=1e-5)
# Sigmoid scores in Mixtral's names, norms of all queries and keys, a part of
# each head turns.
MINIMAX_M2 = gated("minimax_m2", "MiniMaxM2ForCausalLM", num_local_experts=7,
                   num_experts_per_tok=3, head_dim=10, rotary_dim=4,
                   rope_theta=5e6, intermediate_size=14,
                   attn_type_list=[1, 1], use_qk_norm=True,
                   qk_norm_type="per_layer", scoring_func="sigmoid",
                   use_routing_bias=True)
# Norms behind each part.
FLEX_OLMO = gated("flex_olmo", "FlexOlmoForCausalLM", num_experts=7,
                  num_experts_per_tok=5, attention_bias=False,
                  norm_topk_prob=False, intermediate_size=10)
# Neighbours turn together, biases of the choice, experts between dense blocks.
ERNIE4_5_MOE = gated("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", moe_num_experts=7,
                     moe_k=3, moe_intermediate_size=14, moe_num_shared_experts=2,
                     moe_layer_start_index=1, moe_layer_end_index=2,
                     moe_layer_interval=1, num_hidden_layers=4, use_bias=False,
                     tie_word_embeddings=True, rope_theta=500000.0,
                     moe_use_aux_free=True, moe_gate="topk")
# GraniteMoE with an expert of all tokens, gate and up in one tensor.
GRANITEMOESHARED = {**GRANITEMOE, "model_type": "granitemoeshared",
                    "architectures": ["GraniteMoeSharedForCausalLM"],
                    "shared_intermediate_size": 18}
# GLM-4.5's experts in every block.
SOLAR_OPEN = gated("solar_open", "SolarOpenForCausalLM", n_routed_experts=8,
                   num_experts_per_tok=3, moe_intermediate_size=14,
                   n_shared_experts=1, n_group=4, topk_group=2, head_dim=12,
                   routed_scaling_factor=1.5, norm_topk_prob=True,
                   attention_bias=True)
# Sinks, biases everywhere, gates that are often clamped, windows in some blocks.
GPT_OSS = gated("gpt_oss", "GptOssForCausalLM", num_local_experts=6,
                num_experts_per_tok=3, head_dim=10, sliding_window=7,
                num_hidden_layers=3, intermediate_size=14, swiglu_limit=0.3,
                attention_bias=True, rms_norm_eps=1e-5,
                layer_types=["sliding_attention", "full_attention",
                             "sliding_attention"],
                rope_parameters={"rope_type": "yarn", "factor": 4.0,
                                 "beta_fast": 32.0, "beta_slow": 1.0,
                                 "truncate": False, "rope_theta": 150000,
                                 "original_max_position_embeddings": 16})
# LayerNorms, all biases, gates of near logits, longrope beyond the old length.
PHIMOE = gated("phimoe", "PhiMoEForCausalLM", num_local_experts=6,
               num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
               router_jitter_noise=0.3, input_jitter_noise=0.01,
               sliding_window=131072, rms_norm_eps=1e-5,
               rope_scaling={"type": "longrope", "short_mscale": 1.243,
                             "long_mscale": 1.3, "short_factor": [1.0, 1.5, 1.5],
                             "long_factor": [1.2, 2.5, 4.0],
                             "original_max_position_embeddings": 16})
# Gates on the way in, chunks, blocks that do not turn, whose queries grow, dense
# blocks between those with experts.
LLAMA4 = gated("llama4_text", "Llama4ForCausalLM", num_local_experts=6,
               num_experts_per_tok=1, head_dim=10, num_hidden_layers=4,
               intermediate_size=14, intermediate_size_mlp=20,
               interleave_moe_layer_step=2, attention_chunk_size=7,
               no_rope_layers=[1, 0, 1, 0], floor_scale=4, attn_scale=0.3,
               rms_norm_eps=1e-5, use_qk_norm=True,
               rope_scaling={"rope_type": "llama3", "factor": 16.0,
                             "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                             "original_max_position_embeddings": 16})
# As it was published: experts in MXFP4, without gradients of codes.
GPT_OSS_MXFP4 = {**GPT_OSS, "hidden_size": 32, "intermediate_size": 32,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                 "num_hidden_layers": 2, "swiglu_limit": 7.0,
                 "layer_types": ["sliding_attention", "full_attention"],
                 "quantization_config": {"quant_method": "mxfp4",
                                         "modules_to_not_convert": ["lm_head"]}}
MODELS = {"mixtral": (MIXTRAL, 81), "mixtral_all": (MIXTRAL_ALL, 82),
          "olmoe": (OLMOE, 83), "qwen2_moe": (QWEN2_MOE, 84),
          "qwen3_moe": (QWEN3_MOE, 85), "granitemoe": (GRANITEMOE, 86),
          "glm4_moe": (GLM4_MOE, 87), "gpt_oss": (GPT_OSS, 88),
          "gpt_oss_mxfp4": (GPT_OSS_MXFP4, 89), "phimoe": (PHIMOE, 91),
          "dots1": (DOTS1, 98), "minimax_m2": (MINIMAX_M2, 99),
          "flex_olmo": (FLEX_OLMO, 100), "ernie4_5_moe": (ERNIE4_5_MOE, 101),
          "granitemoeshared": (GRANITEMOESHARED, 102),
          "solar_open": (SOLAR_OPEN, 103),
          "llama4": (LLAMA4, 92), "mixtral_geglu": (MIXTRAL_GEGLU, 95)}


def pack(value):
    """[experts, in, out] as codes of blocks of 32 inputs, and their scales; the
    value becomes what they say."""
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=F64)
    rows = value.transpose(1, 2).unflatten(2, (-1, 32))
    exponent = torch.floor(torch.log2(rows.abs().amax(-1))) - 2
    scaled = rows / 2 ** exponent[..., None]
    codes = (scaled.abs()[..., None] - numbers).abs().argmin(-1)
    said = numbers[codes] * torch.sign(scaled) * 2 ** exponent[..., None]
    value.copy_(said.flatten(2).transpose(1, 2))
    codes = (codes + 8 * (scaled < 0)).to(torch.uint8)
    return (codes[..., 0::2] + 16 * codes[..., 1::2],
            (exponent + 127).to(torch.uint8))


# Latent attention: with a bottleneck of queries, stretched positions and groups
# of experts; without.
LATENT = dict(num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=14,
              qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5,
              n_routed_experts=8, moe_intermediate_size=12,
              attention_bias=False, hidden_size=36)
YARN = {"rope_type": "yarn", "factor": 40.0, "beta_fast": 32, "beta_slow": 1,
        "mscale": 0.707, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 16}
DEEPSEEK_V2 = gated("deepseek_v2", "DeepseekV2ForCausalLM", **LATENT,
                    q_lora_rank=10, num_experts_per_tok=3, n_shared_experts=2,
                    first_k_dense_replace=1, n_group=4, topk_group=2,
                    num_hidden_layers=3, topk_method="group_limited_greedy",
                    routed_scaling_factor=4.0, rope_scaling=YARN,
                    rms_norm_eps=1e-3)
DEEPSEEK_V2_LITE = gated("deepseek_v2", "DeepseekV2ForCausalLM", **LATENT,
                         q_lora_rank=None, num_experts_per_tok=2,
                         n_shared_experts=1, first_k_dense_replace=0,
                         topk_method="greedy", tie_word_embeddings=True)
# The same by another name, with a list of its dense blocks.
GLM4_MOE_LITE = gated("glm4_moe_lite", "Glm4MoeLiteForCausalLM", **LATENT,
                      q_lora_rank=10, num_experts_per_tok=3, n_shared_experts=1,
                      n_group=1, topk_group=1, num_hidden_layers=3,
                      mlp_layer_types=["dense", "dense", "sparse"],
                      routed_scaling_factor=1.8, norm_topk_prob=True,
                      num_nextn_predict_layers=0, rms_norm_eps=1e-5)
DEEPSEEK_V3 = gated("deepseek_v3", "DeepseekV3ForCausalLM", **LATENT,
                    q_lora_rank=10, num_experts_per_tok=3, n_shared_experts=1,
                    first_k_dense_replace=1, n_group=4, topk_group=2,
                    num_hidden_layers=3, routed_scaling_factor=2.5,
                    norm_topk_prob=True, num_nextn_predict_layers=0,
                    rope_scaling={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0})
# DeepSeekMoE: a Llama whose blocks, but for the first, have the experts of
# DeepSeek-V2. No library has it, so it is put together of both.
DEEPSEEK = gated("deepseek", "DeepseekForCausalLM", n_routed_experts=8,
                 num_experts_per_tok=3, n_shared_experts=2,
                 moe_intermediate_size=12, first_k_dense_replace=1,
                 num_hidden_layers=3, norm_topk_prob=False,
                 scoring_func="softmax", moe_layer_freq=1)
MODELS |= {"deepseek": (DEEPSEEK, 90), "deepseek_v2": (DEEPSEEK_V2, 87),
           "deepseek_v2_lite": (DEEPSEEK_V2_LITE, 88),
           "deepseek_v3": (DEEPSEEK_V3, 89),
           "glm4_moe_lite": (GLM4_MOE_LITE, 97)}


def together(config):
    """Modules of two models of the library as one."""
    of = {**config, "topk_method": "greedy", "num_key_value_heads":
          config["num_attention_heads"]}
    mixture = transformers.DeepseekV2Config(**of)
    mixture._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(**{**config, "model_type": "llama"}),
        attn_implementation="eager", dtype=F64).to(F64).eval()
    for layer in model.model.layers[config["first_k_dense_replace"]:]:
        layer.mlp = DeepseekV2Moe(mixture).to(F64)
    return model


def make(name):
    config, seed = MODELS[name]
    family = config["model_type"]
    generator = torch.Generator().manual_seed(seed)
    directory = HERE / "models" / name
    directory.mkdir(parents=True, exist_ok=True)
    plain = {k: v for k, v in config.items() if k != "quantization_config"}
    (directory / "config.json").write_text(json.dumps(plain, indent=2) + "\n")
    model = together(config) if family == "deepseek" else \
        check_drawn.build(directory)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    check_drawn.fill(model, generator)
    packed = {}
    for inside, value in model.named_parameters():
        if plain != config and inside.endswith(("up_proj", "down_proj")):
            with torch.no_grad():
                packed[inside] = pack(value)
    tokens = torch.randint(0, config["vocab_size"], (SEQUENCES, LENGTH),
                           generator=generator)
    logits = model(tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()

    def save(file, dtype, of):
        found = {outside: piece.to(dtype).contiguous().clone()
                 for inside, value in tensors(model) if of(value) is not None
                 for outside, piece in pieces(inside, family, of(value))}
        for inside, (blocks, scales) in packed.items():
            if dtype == F32:
                del found[inside]
                found[inside + "_blocks"] = blocks.contiguous()
                found[inside + "_scales"] = scales.contiguous()
        save_file(found, directory / file, metadata={"format": "pt"})

    save("model.safetensors", F32, lambda value: value.detach())
    save("gradients.safetensors", F64, lambda value: value.grad)
    (directory / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    save_file({"logits": logits.detach().contiguous()},
              directory / "logits.safetensors")
    (directory / "expected.json").write_text(json.dumps(
        {"loss": loss.item(), "targets": SEQUENCES * (LENGTH - 1)}) + "\n")
    print(f"{name}: {loss.item():.12f}")


def main():
    transformers.logging.set_verbosity_error()
    check_drawn.float64_throughout()
    for name in sys.argv[1:] or MODELS:
        make(name)


if __name__ == "__main__":
    main()
