/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c - Llama 2 and 3: RMSNorm, rotary positions, grouped attention,
 * SwiGLU, optional biases, tied or untied head.
 * Source: Touvron et al. 2023, arXiv:2307.09288, section 2.2. */
#include "models/config.h"

const struct decoder decoder_llama = {
    DECODER_LLAMA, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm")};

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 0),
    ROW_INTEGER("head_dim", head_width, 0),
    ROW_INTEGER("max_position_embeddings", context, 2048),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_FLAG("mlp_bias", biases.mlp, false),
    ROW_ALSO("activation", "swiglu"), /* Falcon 3 */
    ROW_ONLY("rope_interleaved", "false"),
};

const struct model_kind model_llama = {
    .name = "llama", .architecture = "LlamaForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .moe.made = &model_mixtral, .build = decoder_build};
