/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - config.json of each family. Three lists of fields: used; known
 * and without effect here (some only with one value); everything else is named
 * and refused. */
#ifndef LOCKSTEP_MODELS_CONFIG_H
#define LOCKSTEP_MODELS_CONFIG_H

#include "models/model.h"

struct config_field {
    const char *name;
    const char *only; /* JSON value it must have ("null", "false", "1"); NULL:
                       * any */
};

/* ERR_CONFIG names the fields of `config` that are in neither list nor among
 * those that every family may carry without effect. */
status config_check(const struct json *config, const char *source,
                    const struct config_field *fields, int count);
/* Ids, epsilon-like and tied fields that all families share. */
status config_read_common(struct model *model, const struct json *config,
                          const char *source);
/* An integer field into an int, at least `least`. */
status config_read_int(const struct json *config, const char *source,
                       const char *key, int64_t other, int64_t *out);
/* The largest of the named dropout probabilities. */
status config_read_dropout(struct model *model, const struct json *config,
                           const char *source, const char *const *names,
                           int count);

/* rope_theta, rope_scaling and rope_parameters; the context must be set. */
status rope_read_config(struct model *model, const struct json *config,
                        const char *source);
void rope_write_config(const struct model *model, struct json_writer *out);
/* "KIND NAME=NUMBER ..." of model.rope_scaling; "": plain. The base and the
 * context must be set. */
status rope_from_text(struct model *model, const char *text);

/* What Llama and its relatives spell alike. An absent num_key_value_heads is
 * `kv_heads` (0: as many as heads), an absent max_position_embeddings
 * `context`. The model's kind is set. */
status llama_read_sizes(struct model *model, const struct json *config,
                        const char *source, int kv_heads, int64_t context);
void llama_write_sizes(const struct model *model, const char *architecture,
                       struct json_writer *out);
/* The blocks of Llama and its relatives. */
status llama_build(struct program *program, const struct model *model);

status llama_read_config(struct model *model, const struct json *config,
                         const char *source);
void llama_write_config(const struct model *model, struct json_writer *out);
status gpt2_read_config(struct model *model, const struct json *config,
                        const char *source);
void gpt2_write_config(const struct model *model, struct json_writer *out);

#endif
