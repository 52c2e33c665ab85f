/* SPDX-License-Identifier: Apache-2.0 */
/* config_rows.c - reads and writes config.json by the rows of a family. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "models/config.h"

static const struct { const char *name; enum activation value; }
    activations[] = {{"gelu_new", ACTIVATION_GELU_TANH},
                     {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                     {"gelu_fast", ACTIVATION_GELU_TANH},
                     {"gelu", ACTIVATION_GELU_ERF},
                     {"relu", ACTIVATION_RELU},
                     {"silu", ACTIVATION_SILU},
                     {"gelu_python", ACTIVATION_GELU_ERF},
                     {"gelu_python_tanh", ACTIVATION_GELU_TANH},
                     {"swish", ACTIVATION_SILU}};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static void *place(struct model *model, const struct config_row *row)
{
    return (char *)model + row->at;
}

static const void *place_of(const struct model *model,
                            const struct config_row *row)
{
    return (const char *)model + row->at;
}

/* True for a soft cap: there null means none, even where a missing field means
 * another. */
static bool is_cap(const struct config_row *row)
{
    return row->at == offsetof(struct model, softcap.attention) ||
           row->at == offsetof(struct model, softcap.head);
}

/* ---- reading ---- */

static bool is_null(const struct json *config, const char *key)
{
    const struct json *value = json_get(config, key);

    return value != NULL && value->kind == JSON_NULL;
}

static status read_integer(struct model *model, const struct config_row *row,
                           const struct json *config, const char *source)
{
    const struct json *value = json_get(config, row->name);
    int64_t number = (int64_t)row->other;

    if (value != NULL && value->kind == JSON_NULL &&
        row->at == offsetof(struct model, kv_heads))
        number = 0; /* as many as heads, where its absence says another */
    else if (row->other != 0 || (value != NULL && value->kind != JSON_NULL))
        TRY(config_read_int(config, source, row->name, number, &number));
    if (row->bytes == sizeof(int64_t))
        *(int64_t *)place(model, row) = number;
    else
        *(int *)place(model, row) = (int)number;
    return OK;
}

static status read_activation(struct model *model,
                              const struct config_row *row,
                              const struct json *config, const char *source)
{
    const char *name;

    model->activation = (enum activation)row->other;
    TRY(json_get_string_or(config, source, row->name, "", &name));
    if (name[0] == 0) return OK;
    for (int i = 0; i < ACTIVATIONS; i++) {
        if (strcmp(activations[i].name, name) != 0) continue;
        model->activation = activations[i].value;
        return OK;
    }
    FAIL(ERR_CONFIG, "%s: %s: %s is not gelu_new, gelu_pytorch_tanh, "
                     "gelu_fast, gelu, relu or silu", source, row->name, name);
}

static status read_row(struct model *model, const struct config_row *row,
                       const struct json *config, const char *source)
{
    double value;

    switch (row->type) {
    case CONFIG_INTEGER:
    case CONFIG_WIDTH: return read_integer(model, row, config, source);
    case CONFIG_REAL:
        if (is_cap(row) && is_null(config, row->name)) return OK;
        return json_get_real_or(config, source, row->name, row->other,
                                place(model, row));
    case CONFIG_FLAG:
        return json_get_bool_or(config, source, row->name, row->other != 0,
                                place(model, row));
    case CONFIG_ACTIVATION:
        return read_activation(model, row, config, source);
    case CONFIG_DROPOUT:
        TRY(json_get_real_or(config, source, row->name, 0, &value));
        if (value > model->dropout) model->dropout = value;
        return OK;
    case CONFIG_ROPE:
    case CONFIG_ONLY:
    case CONFIG_IDLE: break;
    }
    return OK;
}

/* An id beyond the vocabulary is kept, and never met. */
status config_token_id(const struct json *config, const char *key,
                       const char *source, int64_t *out)
{
    const struct json *value = json_get(config, key);

    *out = -1;
    if (value != NULL && value->kind == JSON_ARRAY && value->count > 0)
        value = &value->items[0];
    if (value == NULL || value->kind == JSON_NULL) return OK;
    if (value->kind != JSON_INTEGER)
        FAIL(ERR_CONFIG, "%s: %s is neither a token's number, a list of them "
                         "nor null", source, key);
    *out = value->integer;
    return OK;
}

static status add_end(struct model *model, int64_t id, const char *source)
{
    bool known = id == model->ends.eos;

    for (int i = 0; i < model->ends.more_count; i++)
        known = known || id == model->ends.more[i];
    if (known) return OK;
    if (model->ends.eos < 0) model->ends.eos = id;
    else if (model->ends.more_count < MODEL_MORE_ENDS)
        model->ends.more[model->ends.more_count++] = id;
    else
        FAIL(ERR_CONFIG, "%s: eos_token_id has more than %d ids", source,
             MODEL_MORE_ENDS + 1);
    return OK;
}

status config_end_ids(struct model *model, const struct json *config,
                      const char *source)
{
    const struct json *value = json_get(config, "eos_token_id");
    int64_t first;

    TRY(config_token_id(config, "eos_token_id", source, &first));
    if (value == NULL || value->kind == JSON_NULL) return OK;
    if (value->kind != JSON_ARRAY) return add_end(model, first, source);
    for (size_t i = 0; i < (size_t)value->count; i++) {
        if (value->items[i].kind != JSON_INTEGER)
            FAIL(ERR_CONFIG, "%s: eos_token_id: item %zu is not a token's "
                             "number", source, i + 1);
        TRY(add_end(model, value->items[i].integer, source));
    }
    return OK;
}

status config_read_generation(struct model *model, struct arena *arena,
                              const char *file)
{
    const char *slash = strrchr(file, '/');
    const int length = slash == NULL ? 0 : (int)(slash - file) + 1;
    const struct json *root;
    char path[PATH_BYTES];
    const int needed = snprintf(path, sizeof path, "%.*sgeneration_config.json",
                                length, file);

    if (needed >= (int)sizeof path || !file_exists(path)) return OK;
    TRY(json_read_file(&root, arena, path, (size_t)1 << 20));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: a JSON object was expected", path);
    return config_end_ids(model, root, path);
}

void config_write_ends(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "eos_token_id");
    if (model->ends.eos < 0) {
        json_write_null(out);
        return;
    }
    if (model->ends.more_count > 0) json_write_array(out);
    json_write_integer(out, model->ends.eos);
    for (int i = 0; i < model->ends.more_count; i++)
        json_write_integer(out, model->ends.more[i]);
    if (model->ends.more_count > 0) json_write_array_end(out);
}

/* Computes sizes that the file leaves out from the other sizes. */
static void fill_sizes(struct model *m)
{
    if (m->kv_heads == 0) m->kv_heads = m->heads;
    if (m->head_width == 0)
        m->head_width = m->width >= m->heads ? (int)(m->width / m->heads) : 1;
    if (m->feed_forward == 0) m->feed_forward = 4 * m->width;
}

static bool has_rope(const struct model_kind *kind)
{
    for (int i = 0; i < kind->row_count; i++)
        if (kind->rows[i].type == CONFIG_ROPE) return true;
    return false;
}

status config_json_read(struct model *model, const struct model_kind *kind,
                   const struct json *config, const char *source)
{
    TRY(config_check(kind, config, source));
    *model = (struct model){
        .kind = kind, .biases.attention = kind->biases.attention,
        .biases.mlp = kind->biases.mlp, .beside.on = kind->beside.always,
        .activation = model_activation(kind),
        .rope.base = kind->rope.base > 0 ? kind->rope.base : 10000,
        .rope.local_base = kind->rope.local_base,
        .init_std = 0.02};
    TRY(config_token_id(config, "bos_token_id", source, &model->ends.bos));
    model->ends.eos = -1;
    TRY(config_end_ids(model, config, source));
    for (int i = 0; i < kind->row_count; i++)
        TRY(read_row(model, &kind->rows[i], config, source));
    fill_sizes(model);
    if (model->layers > BLOCKS_MOST)
        FAIL(ERR_CONFIG, "%s: %d layers; this build has at most %d", source,
             model->layers, BLOCKS_MOST);
    blocks_every(&model->window.whole, model->layers, kind->window.skip);
    blocks_every(&model->rope.still, model->layers, kind->rope.skip);
    if (has_rope(kind)) TRY(rope_read_config(model, config, source));
    model->moe.bias = kind->moe.bias;
    if (kind->moe.experts > 0 && !kind->moe.bias)
        TRY(json_get_bool_or(config, source, "selection_bias", false,
                             &model->moe.bias));
    if (kind->read_more != NULL)
        TRY(kind->read_more(model, config, source));
    TRY(config_check_types(model, config, source));
    return model_settle(model);
}

/* ---- writing ---- */

static void write_activation(enum activation activation,
                             struct json_writer *out)
{
    int i = 0;

    while (activations[i].value != activation) i++;
    json_write_string(out, activations[i].name);
}

static void write_row(const struct model *model, const struct config_row *row,
                      struct json_writer *out)
{
    const void *at = place_of(model, row);

    json_write_key(out, row->name);
    switch (row->type) {
    case CONFIG_INTEGER:
        json_write_integer(out, row->bytes == sizeof(int64_t)
                                    ? *(const int64_t *)at
                                    : *(const int *)at);
        return;
    case CONFIG_REAL:
        if (is_cap(row) && *(const double *)at == 0) json_write_null(out);
        else if (row->at == offsetof(struct model, scaled.queries))
            json_write_real(out, *(const double *)at); /* an integer there */
        else json_write_float(out, *(const double *)at);
        return;
    case CONFIG_FLAG: json_write_bool(out, *(const bool *)at); return;
    case CONFIG_ACTIVATION:
        write_activation(model->activation, out);
        return;
    case CONFIG_DROPOUT: json_write_float(out, 0); return;
    case CONFIG_ONLY:
        json_write_string_n(out, row->only, strcspn(row->only, "|"));
        return;
    case CONFIG_ROPE:
    case CONFIG_WIDTH:
    case CONFIG_IDLE: return;
    }
}

/* true, false, null and numbers of ROW_ONLY are what a library takes for an
 * absent field; words are said. */
static bool is_written(const struct config_row *row)
{
    static const char *const absent[] = {"true", "false", "null", "0", "1"};

    for (int i = 0; row->only != NULL && i < 5; i++)
        if (strcmp(row->only, absent[i]) == 0) return false;
    return row->type != CONFIG_ROPE && row->type != CONFIG_IDLE &&
           row->type != CONFIG_WIDTH;
}

void config_json_write(const struct model *model, struct json_writer *out)
{
    const struct model_kind *kind = model->kind;

    json_write_key(out, "architectures");
    json_write_array(out);
    json_write_string(out, kind->architecture);
    json_write_array_end(out);
    json_write_key(out, "model_type");
    json_write_string(out, kind->type != NULL ? kind->type : kind->name);
    for (int i = 0; i < kind->row_count; i++)
        if (is_written(&kind->rows[i]))
            write_row(model, &kind->rows[i], out);
    if (has_rope(kind)) rope_write_config(model, out);
    if (model->moe.bias && !kind->moe.bias) {
        json_write_key(out, "selection_bias");
        json_write_bool(out, true);
    }
    if (kind->write_more != NULL) kind->write_more(model, out);
}
