/* SPDX-License-Identifier: Apache-2.0 */
/* qwen2.c - Qwen2 and Qwen2.5: a Llama with biases in the projections to q, k
 * and v. Source: Yang et al. 2024, arXiv:2407.10671, section 2.2. */
#include "models/config.h"

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 32),
    ROW_INTEGER("head_dim", head_width, 0),
    ROW_INTEGER("max_position_embeddings", context, 32768),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_ONLY("use_mrope", "false"), ROW_IDLE("use_sliding_window"),
    ROW_IDLE("sliding_window"), ROW_IDLE("max_window_layers"),
    ROW_IDLE("layer_types"),
};

const struct model_kind model_qwen2 = {
    .name = "qwen2", .architecture = "Qwen2ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .biases.attention = true, .biases.no_mlp = true,
    .biases.no_output = true, .window.may = true, .window.layers = true,
    .build = decoder_build,
    .read_more = config_read_last, .write_more = config_write_last};
