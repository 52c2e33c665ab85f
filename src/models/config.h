/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - config.json of each family, as a table of its fields. A field is
 * read into the model and written back; or takes one value; or is known to be
 * without effect; any other is named and refused. */
#ifndef LOCKSTEP_MODELS_CONFIG_H
#define LOCKSTEP_MODELS_CONFIG_H

#include <stddef.h>

#include "models/decoder.h"

enum config_type {
    CONFIG_INTEGER, CONFIG_REAL, CONFIG_FLAG, CONFIG_ACTIVATION,
    CONFIG_DROPOUT, CONFIG_ROPE, CONFIG_ONLY, CONFIG_IDLE,
    CONFIG_WIDTH
};

struct config_row {
    const char *name;
    enum config_type type;
    size_t at, bytes;  /* in struct model */
    double other;      /* where it is absent or null */
    const char *only;  /* JSON value that it must have */
};

#define CONFIG_AT(field) \
    offsetof(struct model, field), sizeof ((struct model *)0)->field
/* The activation of a feed-forward part: that of the gate, or of the part
 * without a gate. */
enum activation model_activation(const struct model_kind *kind);

/* At least 1; other -1: it must be there, 0: left 0. */
#define ROW_INTEGER(name, field, other) \
    {name, CONFIG_INTEGER, CONFIG_AT(field), other, NULL}
#define ROW_REAL(name, field, other) \
    {name, CONFIG_REAL, CONFIG_AT(field), other, NULL}
#define ROW_FLAG(name, field, other) \
    {name, CONFIG_FLAG, CONFIG_AT(field), other, NULL}
#define ROW_ACTIVATION(name, other) \
    {name, CONFIG_ACTIVATION, CONFIG_AT(activation), other, NULL}
/* Read into the largest probability; written 0. */
#define ROW_DROPOUT(name) {name, CONFIG_DROPOUT, CONFIG_AT(dropout), 0, NULL}
/* rope_theta and the like, read and written together (config_rope.c). */
#define ROW_ROPE(name) {name, CONFIG_ROPE, 0, 0, 0, NULL}
/* Takes this JSON value (or null) only; of words several, "a|b", of which the
 * first is written. */
#define ROW_ONLY(name, value) {name, CONFIG_ONLY, 0, 0, 0, value}
/* Like ROW_ONLY, but a library that does not find it takes the same. */
#define ROW_ALSO(name, value) {name, CONFIG_IDLE, 0, 0, 0, value}
/* Without effect here, or read by read_more. */
#define ROW_IDLE(name) {name, CONFIG_IDLE, 0, 0, 0, NULL}
/* In families whose heads fill the width, the field may only state that. */
#define ROW_HEAD_WIDTH \
    {"head_dim", CONFIG_WIDTH, CONFIG_AT(head_width), 0, NULL}
/* The fields that all families with rotary positions have. */
#define ROWS_ROPE \
    ROW_ROPE("rope_theta"), ROW_ROPE("rope_scaling"), \
    ROW_ROPE("rope_parameters"), ROW_ROPE("original_max_position_embeddings")
/* The fields that Llama and its relatives spell alike; `epsilon` is the value
 * of an absent field. */
#define ROWS_LLAMA(epsilon) \
    ROWS_SIZES(epsilon), ROW_ONLY("hidden_act", "silu|swish")
/* The rows of a mixture of experts, whose gates are SwiGLU or GeGLU. */
#define ROWS_MIXTURE(epsilon) \
    ROWS_SIZES(epsilon), ROW_ACTIVATION("hidden_act", ACTIVATION_SILU)
#define ROWS_SIZES(epsilon) \
    ROW_INTEGER("intermediate_size", feed_forward, -1), \
    ROWS_SIZES_AROUND(epsilon)
/* Without the inner width of a dense block. */
#define ROWS_SIZES_AROUND(epsilon) \
    ROW_INTEGER("vocab_size", vocab, -1), \
    ROW_INTEGER("hidden_size", width, -1), \
    ROW_INTEGER("num_hidden_layers", layers, -1), \
    ROW_INTEGER("num_attention_heads", heads, -1), \
    ROW_REAL("rms_norm_eps", norm_epsilon, epsilon), \
    ROW_REAL("initializer_range", init_std, 0.02), \
    ROW_DROPOUT("attention_dropout")
#define CONFIG_ROWS(array) \
    .rows = array, .row_count = (int)(sizeof array / sizeof *array)

/* The fields of the mixtures of Qwen, and what their experts are called. */
#define ROWS_QWEN_MIXTURE(experts_, top_k_, width_) \
    ROW_INTEGER("num_experts", moe.experts, experts_), \
    ROW_INTEGER("num_experts_per_tok", moe.top_k, top_k_), \
    ROW_INTEGER("moe_intermediate_size", moe.width, width_), \
    ROW_FLAG("norm_topk_prob", moe.normalize, false), \
    ROW_IDLE("decoder_sparse_step"), ROW_IDLE("mlp_only_layers"), \
    ROWS_ROUTER
#define DECODER_QWEN_MIXTURE \
    .moe.router = OUTSIDE_WEIGHT("mlp.gate"), \
    .moe.gate = OUTSIDE_WEIGHT("mlp.experts.%d.gate_proj"), \
    .moe.up = OUTSIDE_WEIGHT("mlp.experts.%d.up_proj"), \
    .moe.down = OUTSIDE_WEIGHT("mlp.experts.%d.down_proj")
/* Settings of training programs: a run has its options. selection_bias: our
 * own, of families whose published files have none. */
#define ROWS_ROUTER \
    ROW_IDLE("router_aux_loss_coef"), ROW_IDLE("output_router_logits"), \
    ROW_IDLE("selection_bias")
/* decoder_sparse_step and mlp_only_layers: which blocks are dense. */
status config_read_dense(struct model *model, const struct json *config,
                         const char *source);
void config_write_dense(const struct model *model, struct json_writer *out);

/* Fills the model from config.json by the rows of its family. ERR_CONFIG names
 * fields that are not among them or have a value that cannot be followed. */
status config_json_read(struct model *model, const struct model_kind *kind,
                   const struct json *config, const char *source);
void config_json_write(const struct model *model, struct json_writer *out);
/* An integer field, at least 1; other -1: it must be there. */
status config_read_int(const struct json *config, const char *source,
                       const char *key, int64_t other, int64_t *out);
/* Reads a token id. A list gives its first id; null or an absent field gives
 * -1. */
status config_token_id(const struct json *config, const char *key,
                       const char *source, int64_t *out);
/* Adds the ids of eos_token_id, one or a list, to those of the model: the first
 * is its `eos`. ERR_CONFIG: more than it has room for, or no integers. */
status config_end_ids(struct model *model, const struct json *config,
                      const char *source);
/* Reads the ends of text of generation_config.json, if it stands beside `file`.
 * ERR_FORMAT: it is not JSON. */
status config_read_generation(struct model *model, struct arena *arena,
                              const char *file);
/* eos_token_id: null, one id, or a list of them. */
void config_write_ends(const struct model *model, struct json_writer *out);
/* Every field is a row of the family, or without effect everywhere. */
status config_check(const struct model_kind *kind, const struct json *config,
                    const char *source);
/* sliding_window: null is none, `absent` where there is no such field. */
status config_read_window(struct model *model, const struct json *config,
                          const char *source, int64_t absent);
void config_write_window(const struct model *model, struct json_writer *out);
/* layer_types: which blocks have the window; absent: those that the model has
 * already. ERR_CONFIG: a window where there is none, another kind. */
status config_read_types(struct model *model, const struct json *config,
                         const char *source);
/* layer_types of a family that has no such choice: it may only say what all
 * blocks do. */
status config_check_types(const struct model *model, const struct json *config,
                          const char *source);
/* no_rope_layers and no_rope_layer_interval: blocks that do not turn. */
status config_read_still(struct model *model, const struct json *config,
                         const char *source);
void config_write_still(const struct model *model, struct json_writer *out);
/* layer_types alone. */
void config_write_layers(const struct model *model, struct json_writer *out);
/* As Gemma's: sliding_window and layer_types, always. */
void config_write_types(const struct model *model, struct json_writer *out);
/* use_sliding_window, sliding_window, layer_types. `absent`: the window where
 * sliding_window is not said, 0: none. The model has the blocks already that
 * have it where layer_types is absent. */
status config_read_used(struct model *model, const struct json *config,
                        const char *source, int64_t absent);
void config_write_used(const struct model *model, struct json_writer *out);
/* As Qwen's: the same, from block max_window_layers on. */
status config_read_last(struct model *model, const struct json *config,
                        const char *source);
void config_write_last(const struct model *model, struct json_writer *out);

/* rope_theta, rope_scaling, rope_parameters and the part of a head that turns;
 * context, heads and head width must be set. */
status rope_read_config(struct model *model, const struct json *config,
                        const char *source);
void rope_write_config(const struct model *model, struct json_writer *out);
/* "KIND NAME=NUMBER ..." of model.rope_scaling; "": plain. The base and the
 * context must be set. */
status rope_from_text(struct model *model, const char *text);

/* The object with text_config, where the family sees images too: its rows. */
extern const struct model_kind model_gemma3_around, model_llama4_around;
/* A Llama's, for its relatives. */
extern const struct decoder decoder_llama;

#endif
