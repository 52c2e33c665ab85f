/* SPDX-License-Identifier: Apache-2.0 */
/* granitemoe.c - Granite with experts: a Mixtral with multipliers, whose router
 * takes the softmax of the chosen logits; files have all experts of a block in
 * two tensors; granitemoeshared: the same with an expert of all tokens.
 * Source: Granite 3.0 (IBM 2024), as released. */
#include "models/config.h"

#define PARTS \
    DECODER_LLAMA, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"), \
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"), \
    .moe.router = OUTSIDE_WEIGHT("block_sparse_moe.router.layer"), \
    .moe.gate = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.gate"), \
    .moe.up = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.up"), \
    .moe.down = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.down"), \
    .moe.joined = "block_sparse_moe.experts", \
    .moe.joined_router = "block_sparse_moe.router", \
    .moe.stacks = {{"block_sparse_moe.input_linear.weight", \
                {"block_sparse_moe.experts.%d.gate.weight", \
                 "block_sparse_moe.experts.%d.up.weight"}, false, false}, \
               {"block_sparse_moe.output_linear.weight", \
                {"block_sparse_moe.experts.%d.down.weight", NULL}, false, \
                false}}

static const struct decoder decoder = {PARTS};
static const struct decoder decoder_shared = {
    PARTS, .shared.gate_up = OUTSIDE_WEIGHT("shared_mlp.input_linear"),
    .shared.down = OUTSIDE_WEIGHT("shared_mlp.output_linear")};

#define ROWS \
    ROWS_MIXTURE(1e-6), ROWS_ROPE, \
    ROW_INTEGER("num_key_value_heads", kv_heads, 0), ROW_HEAD_WIDTH, \
    ROW_INTEGER("max_position_embeddings", context, 2048), \
    ROW_FLAG("tie_word_embeddings", tied, false), \
    ROW_FLAG("attention_bias", biases.attention, false), \
    ROW_REAL("embedding_multiplier", scaled.embedding, 1), \
    ROW_REAL("residual_multiplier", scaled.residual, 1), \
    ROW_REAL("attention_multiplier", scaled.scores, 1), \
    ROW_REAL("logits_scaling", scaled.logits, 1), \
    ROW_INTEGER("num_local_experts", moe.experts, 8), \
    ROW_INTEGER("num_experts_per_tok", moe.top_k, 2), ROWS_ROUTER

static const struct config_row rows[] = {ROWS};
static const struct config_row rows_shared[] = {
    ROWS, ROW_IDLE("shared_intermediate_size"),
};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    const struct { const char *name; double value; } all[] = {
        {"embedding_multiplier", model->scaled.embedding},
        {"residual_multiplier", model->scaled.residual},
        {"attention_multiplier", model->scaled.scores},
        {"logits_scaling", model->scaled.logits}};

    (void)config;
    model->moe.width = model->feed_forward;
    for (int i = 0; i < 4; i++)
        if (!(all[i].value > 0))
            FAIL(ERR_CONFIG, "%s: %s: %g; expected more than 0", source,
                 all[i].name, all[i].value);
    return OK;
}

/* 0: there is none. */
static const char *const shared_size = "shared_intermediate_size";

static status read_shared(struct model *model, const struct json *config,
                          const char *source)
{
    TRY(read_more(model, config, source));
    TRY(json_get_integer_or(config, source, shared_size, 0,
                            &model->moe.shared_width));
    if (model->moe.shared_width >= 0 && model->moe.shared_width <= 1 << 22)
        return OK;
    FAIL(ERR_CONFIG, "%s: %s: %lld; expected 0 to %d", source, shared_size,
         (long long)model->moe.shared_width, 1 << 22);
}

static void write_shared(const struct model *model, struct json_writer *out)
{
    json_write_key_integer(out, shared_size, model->moe.shared_width);
}

#define KIND \
    .layer_prefix = "model.layers.%d.", .biases.no_mlp = true, \
    .heads = HEADS_FILL_WIDTH, .scaled.multipliers = true, \
    .moe.score = ROUTER_CHOSEN, \
    .moe.experts = 8, .moe.top_k = 2, .build = decoder_build

const struct model_kind model_granitemoe = {
    .name = "granitemoe", .architecture = "GraniteMoeForCausalLM",
    .decoder = &decoder, CONFIG_ROWS(rows), .read_more = read_more, KIND};

const struct model_kind model_granitemoeshared = {
    .name = "granitemoeshared", .architecture = "GraniteMoeSharedForCausalLM",
    .decoder = &decoder_shared, CONFIG_ROWS(rows_shared),
    .moe.shared = true, .moe.shared_count = 1, .read_more = read_shared,
    .write_more = write_shared, KIND};
