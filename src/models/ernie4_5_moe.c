/* SPDX-License-Identifier: Apache-2.0 */
/* ernie4_5_moe.c - ERNIE 4.5 with experts: a softmax whose gates are over their
 * sum, biases of the choice, experts of all tokens, dense blocks before and
 * behind the others; neighbours turn together. Source: the models as released
 * (Baidu 2025), and the same in transformers 5. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, DECODER_QWEN_MIXTURE, .attention.pairs = true,
    .moe.joined = "mlp.experts", .moe.joined_router = "mlp.gate",
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .moe.bias = "mlp.moe_statics.e_score_correction_bias",
    .moe.bias_row = true,
    .shared.gate = OUTSIDE_WEIGHT("mlp.shared_experts.gate_proj"),
    .shared.up = OUTSIDE_WEIGHT("mlp.shared_experts.up_proj"),
    .shared.down = OUTSIDE_WEIGHT("mlp.shared_experts.down_proj")};

/* The last ones are settings of the program that trained the released
 * models. */
static const struct config_row rows[] = {
    ROWS_MIXTURE(1e-5), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 4), ROW_HEAD_WIDTH,
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_FLAG("tie_word_embeddings", tied, true),
    ROW_ONLY("use_bias", "false"),
    ROW_INTEGER("moe_num_experts", moe.experts, 64),
    ROW_INTEGER("moe_k", moe.top_k, 6),
    ROW_INTEGER("moe_intermediate_size", moe.width, 1536),
    ROW_IDLE("moe_num_shared_experts"), ROW_IDLE("moe_layer_start_index"),
    ROW_IDLE("moe_layer_end_index"), ROW_IDLE("moe_layer_interval"),
    ROW_IDLE("moe_norm_min"), ROWS_ROUTER, ROW_ALSO("use_rmsnorm", "true"),
    ROW_ALSO("moe_gate", "topk"), ROW_ALSO("moe_gate_act", "softmax"),
    ROW_IDLE("num_nextn_predict_layers"), ROW_IDLE("moe_capacity"),
    ROW_IDLE("moe_use_aux_free"), ROW_IDLE("moe_aux_loss_lambda"),
    ROW_IDLE("moe_z_loss_lambda"), ROW_IDLE("moe_orthogonal_loss_lambda"),
};

/* Blocks with experts: every `interval`-th one, from `first` to `last`. */
struct run { int64_t first, last, interval; };

static bool is_mixed(const struct run *run, int block)
{
    return (block + 1) % run->interval == 0 && block >= run->first &&
           block <= run->last;
}

static struct run run_of(const struct model *m)
{
    struct run run = {0, 0, 1};
    int found = 0;

    for (int i = 0; i < m->layers; i++) {
        if (blocks_has(&m->moe.dense, i)) continue;
        if (found == 0) run.first = i;
        if (found == 1) run.interval = i - run.first;
        run.last = i;
        found++;
    }
    return run;
}

static status settle(struct model *m)
{
    const struct run run = run_of(m);

    for (int i = 0; i < m->layers; i++)
        if (is_mixed(&run, i) == blocks_has(&m->moe.dense, i))
            FAIL(ERR_CONFIG, "moe.dense: %s has experts in every n-th block, "
                             "n, 2n and so on, between two; block %d is not so "
                             "(moe.every, moe.first_dense)", m->kind->name, i);
    if (m->moe.width < 1 || m->moe.shared_width % m->moe.width != 0)
        FAIL(ERR_CONFIG, "moe.shared_intermediate_size: %lld is not a multiple "
                         "of the width of one expert, %lld",
             (long long)m->moe.shared_width, (long long)m->moe.width);
    return OK;
}

static status read_more(struct model *m, const struct json *config,
                        const char *source)
{
    struct run run;
    int64_t shared;
    double least;

    TRY(json_get_integer_or(config, source, "moe_num_shared_experts", 2,
                            &shared));
    TRY(json_get_integer_or(config, source, "moe_layer_start_index", 1,
                            &run.first));
    TRY(json_get_integer_or(config, source, "moe_layer_end_index", -1,
                            &run.last));
    TRY(config_read_int(config, source, "moe_layer_interval", 1,
                        &run.interval));
    TRY(json_get_real_or(config, source, "moe_norm_min", 1e-12, &least));
    if (shared < 0 || shared > 1024)
        FAIL(ERR_CONFIG, "%s: moe_num_shared_experts: %lld; expected 0 to "
                         "1024", source, (long long)shared);
    if (!(least >= 0 && least <= 1e-12))
        FAIL(ERR_CONFIG, "%s: moe_norm_min: %g; gates are divided by their "
                         "sum, whatever it is; expected 0 to 1e-12", source,
             least);
    if (run.last == -1) run.last = m->layers - 1;
    m->moe.normalize = true;
    m->moe.shared_width = shared * m->moe.width;
    for (int i = 0; i < m->layers; i++)
        if (!is_mixed(&run, i)) blocks_put(&m->moe.dense, i);
    return OK;
}

static void write_more(const struct model *m, struct json_writer *out)
{
    const struct run run = run_of(m);

    json_write_key_integer(out, "moe_num_shared_experts",
                           m->moe.shared_width / m->moe.width);
    json_write_key_integer(out, "moe_layer_start_index", run.first);
    json_write_key_integer(out, "moe_layer_end_index", run.last);
    json_write_key_integer(out, "moe_layer_interval", run.interval);
}

const struct model_kind model_ernie4_5_moe = {
    .name = "ernie4_5_moe", .architecture = "Ernie4_5_MoeForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.no_mlp = true,
    .heads = HEADS_FILL_WIDTH, .tied = true, .rope.base = 500000,
    .moe.score = ROUTER_SOFTMAX, .moe.experts = 64, .moe.top_k = 6,
    .moe.normalize = true,
    .moe.bias = true, .moe.bias_rate = 1e-3, .moe.sizes = true,
    .moe.shared = true, .moe.shared_count = 2, .files.left_out = "model.mtp_",
    .build = decoder_build, .read_more = read_more, .write_more = write_more,
    .settle = settle};
