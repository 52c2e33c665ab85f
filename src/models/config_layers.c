/* SPDX-License-Identifier: Apache-2.0 */
/* config_layers.c - which blocks have a window, in the ways that families say
 * it in config.json. */
#include <string.h>

#include "models/config.h"

static const char *const full = "full_attention";
static const char *const sliding = "sliding_attention";
static const char *const chunked = "chunked_attention";

/* The type of a block with a window. */
static const char *cut_of(const struct model *model)
{
    return model->kind->window.chunked ? chunked : sliding;
}

status config_read_window(struct model *model, const struct json *config,
                          const char *source, int64_t absent)
{
    const struct json *value = json_get(config, "sliding_window");

    if (value == NULL) model->window.tokens = absent;
    if (value == NULL || value->kind == JSON_NULL) return OK;
    return config_read_int(config, source, "sliding_window", -1,
                           &model->window.tokens);
}

static status read_type(struct model *model, int layer,
                        const struct json *type, const char *source)
{
    if (type->kind == JSON_STRING && strcmp(type->string, full) == 0) {
        blocks_put(&model->window.whole, layer);
        return OK;
    }
    if (type->kind != JSON_STRING || strcmp(type->string, cut_of(model)) != 0)
        FAIL(ERR_CONFIG, "%s: layer_types: layer %d is %s; %s has "
                         "full_attention and %s", source, layer,
             type->kind == JSON_STRING ? type->string : "no word",
             model->kind->name, cut_of(model));
    if (model->window.tokens == 0)
        FAIL(ERR_CONFIG, "%s: layer_types: layer %d is %s, but the size of "
                         "the window is not set (%s)", source, layer,
             cut_of(model), model->kind->window.chunked
                                ? "attention_chunk_size"
                                : "sliding_window, use_sliding_window");
    return OK;
}

status config_read_types(struct model *model, const struct json *config,
                         const char *source)
{
    const struct json *types = json_get(config, "layer_types");

    if (types == NULL || types->kind == JSON_NULL) return OK;
    if (types->kind != JSON_ARRAY || types->count != model->layers)
        FAIL(ERR_CONFIG, "%s: layer_types is not an array of %d words", source,
             model->layers);
    model->window.whole = (struct blocks){{0}};
    for (int i = 0; i < types->count; i++)
        TRY(read_type(model, i, &types->items[i], source));
    return OK;
}

status config_check_types(const struct model *model, const struct json *config,
                          const char *source)
{
    const struct json *types = json_get(config, "layer_types");
    const char *only = model->window.tokens > 0 ? sliding : full;

    for (int i = 0; i < model->kind->row_count; i++)
        if (strcmp(model->kind->rows[i].name, "layer_types") == 0) return OK;
    if (types == NULL || types->kind == JSON_NULL) return OK;
    if (types->kind != JSON_ARRAY || types->count != model->layers)
        FAIL(ERR_CONFIG, "%s: layer_types is not an array of %d words", source,
             model->layers);
    for (int i = 0; i < types->count; i++) {
        const struct json *type = &types->items[i];
        const bool word = type->kind == JSON_STRING;

        if (!word || strcmp(type->string, only) != 0)
            FAIL(ERR_CONFIG, "%s: layer_types: layer %d is %.40s; every layer "
                             "of this %s is %s", source, i,
                 word ? type->string : "no word", model->kind->name, only);
    }
    return OK;
}

status config_read_used(struct model *model, const struct json *config,
                        const char *source, int64_t absent)
{
    bool used;

    TRY(json_get_bool_or(config, source, "use_sliding_window", false, &used));
    if (used) TRY(config_read_window(model, config, source, absent));
    return config_read_types(model, config, source);
}

status config_read_last(struct model *model, const struct json *config,
                        const char *source)
{
    int64_t first;

    TRY(json_get_integer_or(config, source, "max_window_layers", 28, &first));
    if (first < 0)
        FAIL(ERR_CONFIG, "%s: max_window_layers: %lld is below 0", source,
             (long long)first);
    for (int i = 0; i < first && i < model->layers; i++)
        blocks_put(&model->window.whole, i);
    return config_read_used(model, config, source, 4096);
}

/* ---- blocks that do not turn ---- */

/* no_rope_layers has 1 where a layer turns; more of them than layers are not
 * looked at. */
static status read_still(struct model *model, const struct json *list,
                        const char *source)
{
    if (list->kind != JSON_ARRAY || list->count < model->layers)
        FAIL(ERR_CONFIG, "%s: no_rope_layers is not an array of %d numbers",
             source, model->layers);
    model->rope.still = (struct blocks){{0}};
    for (int i = 0; i < model->layers; i++) {
        const struct json *turns = &list->items[i];

        if (turns->kind != JSON_INTEGER || turns->integer < 0 ||
            turns->integer > 1)
            FAIL(ERR_CONFIG, "%s: no_rope_layers: layer %d must be 0 or 1",
                 source, i);
        if (turns->integer == 0) blocks_put(&model->rope.still, i);
    }
    return OK;
}

status config_read_still(struct model *model, const struct json *config,
                         const char *source)
{
    const struct json *list = json_get(config, "no_rope_layers");
    int64_t interval;

    TRY(config_read_int(config, source, "no_rope_layer_interval", 4,
                        &interval));
    blocks_every(&model->rope.still, model->layers,
                 interval > BLOCKS_MOST ? 0 : (int)interval);
    if (list == NULL || list->kind == JSON_NULL) return OK;
    if (model->kind->window.chunked && list->kind == JSON_ARRAY &&
        list->count == 0)
        return OK; /* a library takes an empty list for none */
    return read_still(model, list, source);
}

void config_write_still(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "no_rope_layers");
    json_write_array(out);
    for (int i = 0; i < model->layers; i++)
        json_write_integer(out, !blocks_has(&model->rope.still, i));
    json_write_array_end(out);
}

/* ---- mixtures of experts ---- */

/* Block i, from 1, has experts where the step divides i, unless the list says
 * otherwise. */
status config_read_dense(struct model *model, const struct json *config,
                         const char *source)
{
    const struct json *list = json_get(config, "mlp_only_layers");
    struct blocks chosen;
    int64_t step;

    TRY(config_read_int(config, source, "decoder_sparse_step", 1, &step));
    blocks_every(&chosen, model->layers, step > BLOCKS_MOST ? 0 : (int)step);
    for (int i = 0; i < model->layers; i++)
        if (!blocks_has(&chosen, i)) blocks_put(&model->moe.dense, i);
    if (list == NULL || list->kind == JSON_NULL) return OK;
    if (list->kind != JSON_ARRAY)
        FAIL(ERR_CONFIG, "%s: mlp_only_layers is not an array of numbers",
             source);
    for (int i = 0; i < list->count; i++) {
        const struct json *at = &list->items[i];

        if (at->kind != JSON_INTEGER || at->integer < 0 ||
            at->integer >= model->layers)
            FAIL(ERR_CONFIG, "%s: mlp_only_layers: entry %d is not the number "
                             "of a layer, 0 to %d", source, i,
                 model->layers - 1);
        blocks_put(&model->moe.dense, (int)at->integer);
    }
    return OK;
}

void config_write_dense(const struct model *model, struct json_writer *out)
{
    json_write_key_integer(out, "decoder_sparse_step", 1);
    json_write_key(out, "mlp_only_layers");
    json_write_array(out);
    for (int i = 0; i < model->layers; i++)
        if (blocks_has(&model->moe.dense, i)) json_write_integer(out, i);
    json_write_array_end(out);
}

/* ---- writing ---- */

void config_write_window(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "sliding_window");
    if (model->window.tokens > 0) json_write_integer(out, model->window.tokens);
    else json_write_null(out);
}

void config_write_layers(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "layer_types");
    json_write_array(out);
    for (int i = 0; i < model->layers; i++)
        json_write_string(out, model->window.tokens == 0 ||
                                       blocks_has(&model->window.whole, i)
                                   ? full : cut_of(model));
    json_write_array_end(out);
}

/* transformers makes masks of both kinds, so it needs a window even where no
 * block has one. */
void config_write_types(const struct model *model, struct json_writer *out)
{
    json_write_key_integer(out, "sliding_window",
                           model->window.tokens > 0 ? model->window.tokens
                                             : model->context);
    config_write_layers(model, out);
}

void config_write_used(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "use_sliding_window");
    json_write_bool(out, model->window.tokens > 0);
    if (model->window.tokens == 0) return;
    json_write_key_integer(out, "sliding_window", model->window.tokens);
    config_write_layers(model, out);
}

/* max_window_layers is for versions of transformers that do not know
 * layer_types; it cannot say all that they can. */
void config_write_last(const struct model *model, struct json_writer *out)
{
    int first = 0;

    while (first < model->layers && blocks_has(&model->window.whole, first))
        first++;
    config_write_used(model, out);
    if (model->window.tokens > 0 && first == blocks_count(&model->window.whole))
        json_write_key_integer(out, "max_window_layers", first);
}
