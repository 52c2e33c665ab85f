#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes models/<name>/: a tiny Hugging Face model with what it must compute.

    python3 tests/golden/make_models.py [NAME...]

    config.json          the architecture, in the spelling of one library version
    model.safetensors    random weights
    tokens.json          three sequences of 37 ids
    logits.safetensors   `logits` F64 [sequences, length, vocabulary]
    gradients.safetensors  F64 under Hugging Face names, a tied tensor once
    expected.json        mean next-token loss and the number of targets

All values come from oracle.py in float64 and are checked against transformers
to within the float32 steps that library takes on the way.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

import oracle

HERE = pathlib.Path(__file__).parent
SEQUENCES, LENGTH = 3, 37

LLAMA_V5 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 1, "dtype": "float32",
    "eos_token_id": 2, "head_dim": 10, "hidden_act": "silu",
    "hidden_size": 42, "initializer_range": 0.02, "intermediate_size": 44,
    "max_position_embeddings": 64, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 6, "num_hidden_layers": 3, "num_key_value_heads": 2,
    "pad_token_id": None, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False, "transformers_version": "5.23.0",
    "use_cache": True, "vocab_size": 131,
}
LLAMA_V4 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": True,
    "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "head_dim": 14, "hidden_act": "silu", "hidden_size": 36,
    "initializer_range": 0.02, "intermediate_size": 44,
    "max_position_embeddings": 128, "mlp_bias": True, "model_type": "llama",
    "num_attention_heads": 3, "num_hidden_layers": 2, "num_key_value_heads": 3,
    "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 500000.0, "tie_word_embeddings": True,
    "torch_dtype": "float32", "transformers_version": "4.44.0",
    "use_cache": True, "vocab_size": 97,
}
# The shape of SmolLM: nine heads in three groups, no head_dim in the file.
LLAMA_NINE = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0,
    "hidden_act": "silu", "hidden_size": 36, "initializer_range": 0.02,
    "intermediate_size": 56, "max_position_embeddings": 64,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 2,
    "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "rope_theta": 10000, "tie_word_embeddings": True,
    "torch_dtype": "float64", "transformers_version": "4.40.1",
    "use_cache": True, "vocab_size": 89,
}
GPT2_V4 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 126, "embd_pdrop": 0.1,
    "eos_token_id": 126, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 40,
    "n_head": 5, "n_inner": None, "n_layer": 2, "n_positions": 64,
    "reorder_and_upcast_attn": False, "resid_pdrop": 0.1,
    "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
    "summary_activation": None, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True, "summary_type": "cls_index",
    "summary_use_proj": True, "torch_dtype": "float32",
    "transformers_version": "4.44.0", "use_cache": True, "vocab_size": 127,
}
# As the first GPT-2 files: names without a prefix, the causal mask among the
# tensors, n_ctx in the configuration. Exact GELU and an inner width of its own.
GPT2_PLAIN = {
    "activation_function": "gelu", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 100, "embd_pdrop": 0.1,
    "eos_token_id": 100, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 48,
    "n_embd": 24, "n_head": 3, "n_inner": 56, "n_layer": 3, "n_positions": 48,
    "resid_pdrop": 0.1, "summary_activation": None,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True,
                                                 "max_length": 50}},
    "vocab_size": 101,
}



def rope(config, **changes):
    """A Llama with another rotary kind, two blocks, few tokens of vocabulary."""
    return {**config, "num_hidden_layers": 2, "vocab_size": 61, **changes}


# Odd head widths and old lengths put pairs on every side of each bound.
LLAMA_LINEAR = rope(LLAMA_V4, rope_scaling={"factor": 2.5, "type": "linear"})
LLAMA_LLAMA3 = rope(LLAMA_V5, head_dim=16, rope_parameters={
    "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 40, "rope_theta": 500.0,
    "rope_type": "llama3"})
LLAMA_YARN = rope(LLAMA_V5, head_dim=22, rope_parameters={
    "beta_fast": 8.0, "beta_slow": 1.0, "factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 10000.0,
    "rope_type": "yarn"}, max_position_embeddings=256)
LLAMA_YARN_SCALES = rope(
    LLAMA_V4, max_position_embeddings=160, rope_theta=1000.0, rope_scaling={
        "beta_fast": 6, "beta_slow": 0.5, "factor": 40.0, "mscale": 0.7,
        "mscale_all_dim": 1.3, "original_max_position_embeddings": 160,
        "rope_type": "yarn", "truncate": False})
LLAMA_DYNAMIC = rope(LLAMA_V4, max_position_embeddings=37, rope_theta=10000.0,
                     rope_scaling={"factor": 3.0, "type": "dynamic"})

# Sequences longer than that.
LLAMA_DYNAMIC_LONG = rope(LLAMA_V5, max_position_embeddings=20, rope_parameters={
    "factor": 2.5, "rope_theta": 10000.0, "rope_type": "dynamic"})

# As the library's version 4 writes Qwen2.5: a window that is not used.
QWEN2_V4 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 3, "eos_token_id": 4, "hidden_act": "silu",
    "hidden_size": 42, "initializer_range": 0.02, "intermediate_size": 44,
    "max_position_embeddings": 64, "max_window_layers": 1,
    "model_type": "qwen2", "num_attention_heads": 3, "num_hidden_layers": 2,
    "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 8, "tie_word_embeddings": True,
    "torch_dtype": "float32", "transformers_version": "4.43.1",
    "use_cache": True, "use_mrope": False, "use_sliding_window": False,
    "vocab_size": 61,
}
# And as version 5 does: kinds of layers, rotary parameters, here yarn.
QWEN2_V5 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": None, "dtype": "float32", "eos_token_id": 4,
    "hidden_act": "silu", "hidden_size": 40, "initializer_range": 0.02,
    "intermediate_size": 36, "layer_types": ["full_attention"] * 2,
    "max_position_embeddings": 128, "max_window_layers": 2,
    "model_type": "qwen2", "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "pad_token_id": None, "rms_norm_eps": 1e-06,
    "rope_parameters": {"factor": 4.0, "original_max_position_embeddings": 32,
                        "rope_theta": 10000.0, "rope_type": "yarn"},
    "sliding_window": None, "tie_word_embeddings": False,
    "transformers_version": "5.23.0", "use_cache": True,
    "use_sliding_window": False, "vocab_size": 59,
}
# The window is the length of the sequences, less than the positions.
MISTRAL_V4 = {
    "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 40, "initializer_range": 0.02, "intermediate_size": 52,
    "max_position_embeddings": 64, "model_type": "mistral",
    "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "sliding_window": LENGTH, "tie_word_embeddings": False,
    "torch_dtype": "float32", "transformers_version": "4.34.0",
    "use_cache": True, "vocab_size": 67,
}
MISTRAL_V5 = {
    "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 1, "dtype": "float32", "eos_token_id": 2, "head_dim": 14,
    "hidden_act": "silu", "hidden_size": 36, "initializer_range": 0.02,
    "intermediate_size": 44, "max_position_embeddings": 64,
    "model_type": "mistral", "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "pad_token_id": None, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
    "sliding_window": None, "tie_word_embeddings": False,
    "transformers_version": "5.23.0", "use_cache": True, "vocab_size": 53,
}
# SmolLM2 says what a converter left in it.
SMOLLM2 = {**LLAMA_NINE, "is_llama_config": True, "rope_interleaved": False,
           "rope_theta": 100000, "transformers.js_config":
           {"kv_cache_dtype": {"q4f16": "float16"}}, "pad_token_id": 2,
           "torch_dtype": "float32", "vocab_size": 61}

def tiny(model_type, architecture, **fields):
    """As the library's version 5 writes a small one."""
    return {"architectures": [architecture], "bos_token_id": 1,
            "eos_token_id": 2, "hidden_size": 36, "initializer_range": 0.02,
            "max_position_embeddings": 64, "model_type": model_type,
            "num_attention_heads": 6, "num_hidden_layers": 2, "pad_token_id": None,
            "tie_word_embeddings": False, "torch_dtype": "float32",
            "use_cache": True, "vocab_size": 53, **fields}


def gated(model_type, architecture, **fields):
    return tiny(model_type, architecture, **{
        "attention_dropout": 0.0, "hidden_act": "silu", "intermediate_size": 44,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
        **fields})


QWEN3 = gated("qwen3", "Qwen3ForCausalLM", attention_bias=False, head_dim=10,
              max_window_layers=2, rope_theta=1000000.0, sliding_window=None,
              rope_scaling=None, use_sliding_window=False)
QWEN3_BIAS = gated("qwen3", "Qwen3ForCausalLM", attention_bias=True, head_dim=8,
                   num_attention_heads=4, num_key_value_heads=4,
                   tie_word_embeddings=True, layer_types=["full_attention"] * 2,
                   rope_parameters={"rope_theta": 5000.0,
                                    "rope_type": "default"})
OLMO2 = gated("olmo2", "Olmo2ForCausalLM", attention_bias=False,
              rms_norm_eps=1e-05, rope_theta=500000, rope_scaling=None)
PHI3 = gated("phi3", "Phi3ForCausalLM", embd_pdrop=0.0, resid_pdrop=0.0,
             hidden_size=40, num_attention_heads=4,
             original_max_position_embeddings=64, rms_norm_eps=1e-05,
             rope_scaling=None, sliding_window=LENGTH)
PHI3_PART = gated("phi3", "Phi3ForCausalLM", hidden_size=48, sliding_window=None,
                  tie_word_embeddings=True, rope_parameters={
                      "partial_rotary_factor": 0.75, "rope_theta": 10000.0,
                      "rope_type": "default"})
STABLELM = tiny("stablelm", "StableLmForCausalLM", attention_dropout=0.0,
                hidden_act="silu", hidden_dropout=0.0, hidden_size=48,
                intermediate_size=44, layer_norm_eps=1e-05,
                num_key_value_heads=2, partial_rotary_factor=0.25,
                qk_layernorm=False, rope_theta=10000, use_parallel_residual=False,
                use_qkv_bias=True)
STABLELM_PARALLEL = {**STABLELM, "use_parallel_residual": True,
                     "use_qkv_bias": False, "tie_word_embeddings": True}
# As StableLM 2 12B.
STABLELM_HEADS = {**STABLELM, "use_parallel_residual": True,
                  "use_qkv_bias": False, "qk_layernorm": True}
STABLELM_HEADS_SERIAL = {**STABLELM, "qk_layernorm": True,
                         "num_attention_heads": 3, "num_key_value_heads": 1}
STARCODER2 = tiny("starcoder2", "Starcoder2ForCausalLM", attention_dropout=0.1,
                  embedding_dropout=0.1, hidden_act="gelu_pytorch_tanh",
                  intermediate_size=52, mlp_type="default", norm_epsilon=1e-05,
                  norm_type="layer_norm", num_key_value_heads=2,
                  residual_dropout=0.1, rope_theta=999999.4420358813,
                  sliding_window=LENGTH, tie_word_embeddings=True,
                  use_bias=True)
SMOLLM3 = gated("smollm3", "SmolLM3ForCausalLM", attention_bias=False,
                max_window_layers=28, mlp_bias=False, num_hidden_layers=5,
                no_rope_layer_interval=2, no_rope_layers=[1, 0, 1, 0, 1],
                layer_types=["full_attention"] * 5, pretraining_tp=1,
                rope_theta=5000000.0, rope_scaling=None, sliding_window=None,
                tie_word_embeddings=True, use_sliding_window=False)
# As Pythia's files.
GPT_NEOX = tiny("gpt_neox", "GPTNeoXForCausalLM", hidden_act="gelu",
                hidden_size=48, intermediate_size=52, layer_norm_eps=1e-05,
                rotary_emb_base=10000, rotary_pct=0.25,
                use_parallel_residual=True)
GPT_NEOX_SERIAL = tiny(
    "gpt_neox", "GPTNeoXForCausalLM", attention_bias=True,
    attention_dropout=0.0, classifier_dropout=0.1, hidden_act="gelu_new",
    hidden_dropout=0.0, intermediate_size=52, layer_norm_eps=1e-05,
    rope_parameters={"partial_rotary_factor": 1.0, "rope_theta": 5000.0,
                     "rope_type": "default"}, use_parallel_residual=False)
GPTJ = {key: value for key, value in tiny(
    "gptj", "GPTJForCausalLM", activation_function="gelu_new", attn_pdrop=0.0,
    embd_pdrop=0.0, gradient_checkpointing=False, layer_norm_epsilon=1e-05,
    n_embd=48, n_head=4, n_inner=None, n_layer=2, n_positions=64,
    resid_pdrop=0.0, rotary=True, rotary_dim=8, scale_attn_weights=True,
    summary_type="cls_index").items()
    if key not in ("hidden_size", "num_attention_heads", "num_hidden_layers",
                   "max_position_embeddings")}
FALCON = tiny("falcon", "FalconForCausalLM", alibi=False,
              apply_residual_connection_post_layernorm=False,
              attention_dropout=0.0, bias=False, hidden_dropout=0.0,
              layer_norm_epsilon=1e-05, multi_query=True,
              new_decoder_architecture=False, parallel_attn=True,
              rope_theta=10000.0, tie_word_embeddings=True)
FALCON_GROUPS = {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2,
                 "activation": "gelu", "ffn_hidden_size": 52,
                 "tie_word_embeddings": False}
FALCON_HEADS = {**FALCON, "multi_query": False, "num_attention_heads": 3}
# As Falcon 2 11B, and as Falcon-RW 1B with heads that are no power of two.
FALCON_2 = {**FALCON_GROUPS, "num_ln_in_parallel_attn": 1}
FALCON_RW = {key: value for key, value in FALCON_HEADS.items()
             if key not in ("rope_theta", "max_position_embeddings")} | {
                 "alibi": True, "bias": True, "parallel_attn": False,
                 "num_attention_heads": 6}
GEMMA = gated("gemma", "GemmaForCausalLM", attention_bias=False, head_dim=10,
              hidden_act="gelu_pytorch_tanh", num_key_value_heads=1,
              tie_word_embeddings=True)
GEMMA2 = {**gated(
    "gemma2", "Gemma2ForCausalLM", attention_bias=False, head_dim=10,
    attn_logit_softcapping=2.0, cache_implementation="hybrid",
    final_logit_softcapping=1.5, hidden_activation="gelu_pytorch_tanh",
    hidden_act="gelu_pytorch_tanh", layer_types=["sliding_attention",
                                                 "full_attention"] * 2,
    num_hidden_layers=4, query_pre_attn_scalar=7, sliding_window=9,
    tie_word_embeddings=True)}
# As the files of its first release, and as v5 writes them.
GEMMA3_V4 = {**gated(
    "gemma3_text", "Gemma3ForCausalLM", attention_bias=False, head_dim=10,
    attn_logit_softcapping=None, cache_implementation="hybrid",
    final_logit_softcapping=None, hidden_activation="gelu_pytorch_tanh",
    num_hidden_layers=4, query_pre_attn_scalar=40, sliding_window=9,
    sliding_window_pattern=3, rope_theta=1000000.0, rope_local_base_freq=5000.0,
    rope_scaling={"factor": 8.0, "rope_type": "linear"},
    layer_types=["sliding_attention"] * 2 + ["full_attention",
                                             "sliding_attention"],
    tie_word_embeddings=True)}
del GEMMA3_V4["hidden_act"]
GEMMA3_V5 = {key: value for key, value in GEMMA3_V4.items() if key not in (
    "rope_theta", "rope_local_base_freq", "rope_scaling",
    "sliding_window_pattern")} | {
        "_sliding_window_pattern": 3, "tie_word_embeddings": False,
        "use_bidirectional_attention": False, "rope_parameters": {
            "sliding_attention": {"rope_theta": 10000.0,
                                  "rope_type": "default"},
            "full_attention": {"rope_theta": 500000.0,
                               "rope_type": "default"}}}
PALM = tiny("palm", "PaLMForCausalLM", head_dim=10, hidden_act="silu",
            intermediate_size=44, layer_norm_eps=1e-05, num_key_value_heads=1,
            rope_theta=10000.0, tie_word_embeddings=True)


def slides(kinds):
    """"fs": a layer that sees everything, then one with a window."""
    return [{"f": "full_attention", "s": "sliding_attention"}[kind]
            for kind in kinds]


# Windows shorter than the sequences, in some of the blocks.
SMALL = {"hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 28,
         "num_key_value_heads": 2, "num_hidden_layers": 4, "vocab_size": 31,
         "sliding_window": 6}
USED = {**SMALL, "use_sliding_window": True}
QWEN2_LAST = {**QWEN2_V4, **USED}  # from the second layer on
QWEN3_MIXED = {**QWEN3, **USED, "layer_types": slides("sfss"),
               "max_window_layers": 28}
SMOLLM3_NOPE = {**SMOLLM3, **USED, "no_rope_layers": [1, 0, 0, 1],
                "layer_types": None, "tie_word_embeddings": False}
SMOLLM3_MIXED = {**SMOLLM3, **USED, "no_rope_layers": [0, 1, 1, 0],
                 "layer_types": slides("ssff")}
MINISTRAL = {**MISTRAL_V5, **SMALL, "model_type": "ministral",
             "architectures": ["MinistralForCausalLM"],
             "layer_types": slides("sffs")}
GEMMA2_MIXED = {**GEMMA2, **SMALL, "layer_types": slides("ffsf")}
GEMMA3_MIXED = {**GEMMA3_V5, "vocab_size": 31, "sliding_window": 6,
                "layer_types": slides("fssf")}
PHI3_SHORT = {**PHI3, **SMALL, "num_hidden_layers": 2}
# As Phi-3 mini 128k: sequences longer than the old length, 20 tokens; and as
# Phi-4 mini in version 5's spelling: shorter than it, a part of heads turns.
PHI3_LONG = {**PHI3, **SMALL, "num_hidden_layers": 2, "sliding_window": 262144,
             "original_max_position_embeddings": 20, "rope_scaling": {
                 "long_factor": [1.25, 3.5, 12.0], "short_factor": [1.0, 1.5, 2.0],
                 "type": "longrope"}}
PHI3_LONG_PART = {**PHI3_PART, "num_hidden_layers": 2, "vocab_size": 31,
                  "original_max_position_embeddings": 40, "rope_parameters": {
                      "long_factor": [1.0, 2.0, 4.0],
                      "original_max_position_embeddings": 40,
                      "partial_rotary_factor": 0.75, "rope_theta": 10000.0,
                      "rope_type": "longrope", "short_factor": [1.0, 1.125, 3.0]}}
STARCODER2_SHORT = {**STARCODER2, **SMALL, "num_hidden_layers": 2}

# Those that no library can be asked about.
OURS = ["palm"]

# name: configuration, seed, stored type, names without "transformer."
MODELS = {
    "llama_untied": (LLAMA_V5, 11, torch.float32, False),
    "llama_tied_bias": (LLAMA_V4, 12, torch.float32, False),
    "llama_nine_heads": (LLAMA_NINE, 13, torch.float64, False),
    "llama_linear": (LLAMA_LINEAR, 21, torch.float32, False),
    "llama_llama3": (LLAMA_LLAMA3, 22, torch.float32, False),
    "llama_yarn": (LLAMA_YARN, 23, torch.float32, False),
    "llama_yarn_scales": (LLAMA_YARN_SCALES, 24, torch.float32, False),
    "llama_dynamic": (LLAMA_DYNAMIC, 25, torch.float32, False),
    "llama_dynamic_long": (LLAMA_DYNAMIC_LONG, 65, torch.float32, False),
    "smollm2": (SMOLLM2, 26, torch.float32, False),
    "qwen2": (QWEN2_V4, 27, torch.float32, False),
    "qwen2_yarn": (QWEN2_V5, 28, torch.float32, False),
    "mistral_window": (MISTRAL_V4, 29, torch.float32, False),
    "mistral": (MISTRAL_V5, 30, torch.float32, False),
    "qwen3": (QWEN3, 31, torch.float32, False),
    "qwen3_bias": (QWEN3_BIAS, 32, torch.float32, False),
    "olmo2": (OLMO2, 33, torch.float32, False),
    "phi3": (PHI3, 34, torch.float32, False),
    "phi3_part": (PHI3_PART, 35, torch.float32, False),
    "stablelm": (STABLELM, 36, torch.float32, False),
    "stablelm_parallel": (STABLELM_PARALLEL, 37, torch.float32, False),
    "stablelm_heads": (STABLELM_HEADS, 66, torch.float32, False),
    "stablelm_heads_serial": (STABLELM_HEADS_SERIAL, 67, torch.float32, False),
    "starcoder2": (STARCODER2, 38, torch.float32, False),
    "smollm3": (SMOLLM3, 39, torch.float32, False),
    "gpt_neox": (GPT_NEOX, 40, torch.float32, False),
    "gpt_neox_serial": (GPT_NEOX_SERIAL, 41, torch.float32, False),
    "gptj": (GPTJ, 46, torch.float32, False),
    "falcon": (FALCON, 42, torch.float32, False),
    "falcon_groups": (FALCON_GROUPS, 43, torch.float32, False),
    "falcon_heads": (FALCON_HEADS, 44, torch.float32, False),
    "falcon_2": (FALCON_2, 68, torch.float32, False),
    "falcon_rw": (FALCON_RW, 69, torch.float32, False),
    "gemma": (GEMMA, 47, torch.float32, False),
    "gemma2": (GEMMA2, 48, torch.float32, False),
    "gemma3": (GEMMA3_V4, 50, torch.float32, False),
    "gemma3_v5": (GEMMA3_V5, 51, torch.float32, False),
    "mistral_short": ({**MISTRAL_V4, "sliding_window": 8}, 49, torch.float32,
                      False),
    "qwen2_last": (QWEN2_LAST, 52, torch.float32, False),
    "qwen3_mixed": (QWEN3_MIXED, 53, torch.float32, False),
    "smollm3_nope": (SMOLLM3_NOPE, 54, torch.float32, False),
    "smollm3_mixed": (SMOLLM3_MIXED, 55, torch.float32, False),
    "ministral": (MINISTRAL, 56, torch.float32, False),
    "gemma2_mixed": (GEMMA2_MIXED, 57, torch.float32, False),
    "gemma3_mixed": (GEMMA3_MIXED, 62, torch.float32, False),
    "phi3_short": (PHI3_SHORT, 59, torch.float32, False),
    "phi3_long": (PHI3_LONG, 63, torch.float32, False),
    "phi3_long_part": (PHI3_LONG_PART, 64, torch.float32, False),
    "starcoder2_short": (STARCODER2_SHORT, 60, torch.float32, False),
    "palm": (PALM, 45, torch.float32, False),
    "gpt2": (GPT2_V4, 14, torch.float32, False),
    "gpt2_layer_scale": ({**GPT2_V4, "scale_attn_by_inverse_layer_idx": True,
                          "n_embd": 24, "n_head": 3, "n_layer": 3,
                          "vocab_size": 31}, 70, torch.float32, False),
    "gpt2_plain_names": (GPT2_PLAIN, 15, torch.float32, True),
}


def stored(config, weights, dtype, plain):
    """The tensors as the model file holds them."""
    tensors = {name: value.to(dtype).contiguous()
               for name, value in weights.items()}
    if not plain:
        return tensors
    tensors = {name.removeprefix("transformer."): value
               for name, value in tensors.items()}
    length = config["n_positions"]
    for layer in range(config["n_layer"]):
        mask = torch.ones(length, length).tril().view(1, 1, length, length)
        tensors[f"h.{layer}.attn.bias"] = mask
    return tensors


def library_loss(directory, tokens):
    """The same loss by transformers, whose inner float32 steps cost 1e-6. Its
    eager attention adds linear biases twice (5.23), what it uses unasked once."""
    biased = json.loads((directory / "config.json").read_text()).get("alibi")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float64,
        attn_implementation="sdpa" if biased else "eager")
    model.eval()
    with torch.no_grad():
        logits = model(tokens).logits
    return oracle.loss_of(logits[:, :-1], tokens[:, 1:]), logits


def make(name):
    config, seed, dtype, plain = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    weights = oracle.weights_random(config, generator, 0.125)
    tokens = torch.randint(0, config["vocab_size"], (SEQUENCES, LENGTH),
                           generator=generator)
    for value in weights.values():
        value.requires_grad_(True)
    loss, logits = oracle.next_token_loss(config, weights, tokens)
    loss.backward()

    directory = HERE / "models" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(stored(config, {k: v.detach() for k, v in weights.items()},
                     dtype, plain),
              directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    save_file({"logits": logits.detach().contiguous()},
              directory / "logits.safetensors")
    save_file({k: v.grad.contiguous() for k, v in weights.items()},
              directory / "gradients.safetensors")
    (directory / "expected.json").write_text(json.dumps(
        {"loss": loss.item(), "targets": SEQUENCES * (LENGTH - 1)}) + "\n")

    if config["model_type"] in OURS:
        print(f"{name}: loss {loss.item():.12f}, no library to ask")
        return
    library, library_logits = library_loss(directory, tokens)
    worst = (library_logits - logits).abs().max() / logits.abs().max()
    print(f"{name}: loss {loss.item():.12f}, transformers differs by "
          f"{abs(library - loss).item():.1e}, logits by {worst.item():.1e}")
    if worst > 1e-5:
        sys.exit(f"{name}: the oracle and transformers disagree")


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        make(each)
