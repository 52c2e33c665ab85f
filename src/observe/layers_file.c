/* SPDX-License-Identifier: Apache-2.0 */
/* layers_file.c - RUN/layers.jsonl: one JSON object for each observed step.
 *
 *     {"step": 4, "rms": [...], "max": [...], "kurtosis": [...],
 *      "logit": [...],
 *      "experts": [{"block": 1, "tokens": [...], "busiest": 1.2,
 *                   "entropy": 0.98, "bias": [...]}, ...],
 *      "parameters": [{"name": "embedding.weight", "weight": 17.2,
 *                      "gradient": 0.3, "update": 0.01,
 *                      "rounded": {"y.x": [0, 0.02, 3.1, 0.0078, 0.0078]}},
 *                     ...]}
 *
 * Rounded are operands of a recipe: the shares that were cut off and that
 * became zero, the largest magnitude, the smallest and the largest scale.
 * Busiest is over the mean; a dense block is not among the experts.
 * Activation i is what block i reads, the last one what the last norm reads.
 */
#include "observe/layers.h"

#include <math.h>

#include "base/file.h"
#include "base/json.h"

/* ---- writing ---- */

enum what { WHAT_RMS, WHAT_MAX, WHAT_KURTOSIS, WHATS };
static const char *const what_names[] = {"rms", "max", "kurtosis"};

static double value_of(const struct layer_activation *a, enum what what)
{
    const double count = (double)a->count;
    const double mean = exact_value(&a->squares) / count;

    switch (what) {
    case WHAT_RMS: return sqrt(mean);
    case WHAT_MAX: return a->most;
    default: return exact_value(&a->fourths) / count / (mean * mean);
    }
}

/* The largest of a block's heads. */
static double logit_of(const struct layers *layers, int block)
{
    const int heads = layers->pipeline->stages[0].request.model->heads;
    const double *row = layers->logits + (int64_t)block * heads;
    double most = row[0];

    for (int i = 1; i < heads; i++)
        if (row[i] > most) most = row[i];
    return most;
}

static void write_roundings(struct json_writer *w,
                            const struct layers *layers, int param)
{
    struct rounded_operand one;
    bool any = false;

    for (int k = 0; k < ROUNDING_OPERANDS; k++) {
        if (!roundings_get(&layers->roundings, param, k, &one)) continue;
        if (!any) json_write_key(w, "rounded");
        if (!any) json_write_object(w);
        any = true;
        json_write_key(w, rounding_names[k]);
        json_write_array(w);
        json_write_real(w, one.cut);
        json_write_real(w, one.zeroed);
        json_write_real(w, one.largest);
        json_write_real(w, one.scale_least);
        json_write_real(w, one.scale_most);
        json_write_array_end(w);
    }
    if (any) json_write_object_end(w);
}

static void write_parameter(struct json_writer *w, const char *name,
                            const struct layers *layers, int param)
{
    const struct layer_norms *norms = &layers->norms[param];

    json_write_object(w);
    json_write_key(w, "name");
    json_write_string(w, name);
    json_write_key_real(w, "weight", norms->weight);
    json_write_key_real(w, "gradient", norms->gradient);
    json_write_key_real(w, "update", norms->update);
    write_roundings(w, layers, param);
    json_write_object_end(w);
}

static void write_numbers(struct json_writer *w, const char *key,
                          const double *numbers, int count)
{
    json_write_key(w, key);
    json_write_array(w);
    for (int i = 0; i < count; i++) json_write_real(w, numbers[i]);
    json_write_array_end(w);
}

/* Nothing where the model has no experts. */
static void write_experts(struct json_writer *w, const struct layers *layers)
{
    const int count = layers->routing->experts;

    if (count == 0) return;
    json_write_key(w, "experts");
    json_write_array(w);
    for (int i = 0; i < layers->blocks; i++) {
        const int64_t first = (int64_t)i * count;
        const struct block_routing b =
            routing_judge_block(layers->routing->table + first, count);

        if (b.total == 0) continue; /* a dense block */
        json_write_object(w);
        json_write_key_integer(w, "block", i);
        json_write_key(w, "tokens");
        json_write_array(w);
        for (int e = 0; e < count; e++)
            json_write_integer(w, (int64_t)layers->routing->table[first + e]);
        json_write_array_end(w);
        json_write_key_real(w, "busiest", b.most * count / b.total);
        json_write_key_real(w, "entropy", b.entropy);
        if (layers->biases != NULL)
            write_numbers(w, "bias", layers->biases + first, count);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

status layers_format(struct text *out, const struct layers *layers)
{
    const struct param_table *params = &layers->inventory->whole.params;
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 0);
    json_write_object(&w);
    json_write_key_integer(&w, "step", layers->step);
    for (int k = 0; k < WHATS; k++) {
        json_write_key(&w, what_names[k]);
        json_write_array(&w);
        for (int i = 0; i <= layers->blocks; i++)
            json_write_real(&w, value_of(&layers->activations[i],
                                         (enum what)k));
        json_write_array_end(&w);
    }
    json_write_key(&w, "logit");
    json_write_array(&w);
    for (int i = 0; i < layers->blocks; i++)
        json_write_real(&w, logit_of(layers, i));
    json_write_array_end(&w);
    write_experts(&w, layers);
    json_write_key(&w, "parameters");
    json_write_array(&w);
    for (int i = 0; i < params->count; i++)
        write_parameter(&w, params->items[i].name, layers, i);
    json_write_array_end(&w);
    json_write_object_end(&w);
    result = json_write_line(&w, out);
    json_writer_free(&w);
    return result;
}

/* ---- event files ---- */

enum { TAG_BYTES = PARAM_NAME_BYTES + 32, BATCH = 32 };

/* Scalars on their way: one event a batch of them. */
struct telling {
    const struct layers *layers;
    struct events_scalar items[BATCH];
    char tags[BATCH][TAG_BYTES];
    int count;
};

static status flush(struct telling *t)
{
    const struct events_moment moment = {t->layers->step, t->layers->time_s};
    const int count = t->count;

    t->count = 0;
    if (count == 0) return OK;
    return events_scalars(t->layers->events, moment, t->items, count);
}

static status tell(struct telling *t, const char *prefix, const char *name,
                   double value)
{
    if (t->count == BATCH) TRY(flush(t));
    snprintf(t->tags[t->count], TAG_BYTES, "%s/%s", prefix, name);
    t->items[t->count] = (struct events_scalar){t->tags[t->count], value};
    t->count++;
    return OK;
}

static status tell_roundings(struct telling *t, int param, const char *name)
{
    static const char *const kinds[] = {"cut", "zeroed", "largest",
                                        "scale_least", "scale_most"};

    for (int k = 0; k < ROUNDING_OPERANDS; k++) {
        struct rounded_operand one;
        char prefix[32];

        if (!roundings_get(&t->layers->roundings, param, k, &one)) continue;
        const double values[] = {one.cut, one.zeroed, one.largest,
                                 one.scale_least, one.scale_most};

        for (int i = 0; i < 5; i++) {
            snprintf(prefix, sizeof prefix, "recipe_%s_%s", kinds[i],
                     rounding_names[k]);
            TRY(tell(t, prefix, name, values[i]));
        }
    }
    return OK;
}

static status tell_experts(struct telling *t)
{
    const struct routing *routing = t->layers->routing;
    const int count = routing->experts;

    for (int i = 0; i < t->layers->blocks && count > 0; i++) {
        const int64_t first = (int64_t)i * count;
        const double *tokens = routing->table + first;
        const struct block_routing b = routing_judge_block(tokens, count);
        char name[48];

        if (b.total == 0) continue;
        snprintf(name, sizeof name, "block_%d", i);
        TRY(tell(t, "expert_busiest", name, b.most * count / b.total));
        TRY(tell(t, "expert_entropy", name, b.entropy));
        for (int e = 0; e < count; e++) {
            snprintf(name, sizeof name, "block_%d_expert_%d", i, e);
            TRY(tell(t, "expert_tokens", name, tokens[e]));
            if (t->layers->biases != NULL)
                TRY(tell(t, "expert_bias", name,
                         t->layers->biases[first + e]));
        }
    }
    return OK;
}

status layers_tell(const struct layers *layers)
{
    static const char *const prefixes[] = {
        "activation_rms", "activation_max", "activation_kurtosis"};
    const struct param_table *params = &layers->inventory->whole.params;
    struct telling t = {.layers = layers};

    for (int i = 0; i <= layers->blocks; i++) {
        char name[32] = "last_norm";

        if (i < layers->blocks) snprintf(name, sizeof name, "block_%d", i);
        for (int k = 0; k < WHATS; k++)
            TRY(tell(&t, prefixes[k], name,
                     value_of(&layers->activations[i], (enum what)k)));
        if (i < layers->blocks)
            TRY(tell(&t, "attention_logit_max", name, logit_of(layers, i)));
    }
    for (int i = 0; i < params->count; i++) {
        const struct layer_norms *norms = &layers->norms[i];
        const char *name = params->items[i].name;

        TRY(tell(&t, "weight_norm", name, norms->weight));
        TRY(tell(&t, "gradient_norm", name, norms->gradient));
        TRY(tell(&t, "update_ratio", name, norms->update / norms->weight));
        TRY(tell_roundings(&t, i, name));
    }
    TRY(tell_experts(&t));
    return flush(&t);
}

/* ---- reading ---- */

enum { LAYERS_MOST = 1 << 20 }; /* activations, parameters */
static const size_t file_bytes_max = (size_t)4 << 30;

/* A walk over the lines. */
struct walk {
    const char *path;
    struct arena *arena;        /* of what is kept */
    struct layers_table *table;
    int64_t kept;               /* out: bytes of the lines taken */
};

static status read_array(const struct json *object, const char *source,
                         const char *key, int count, double *out)
{
    const struct json *array = json_get(object, key);

    if (array == NULL || array->kind != JSON_ARRAY || array->count != count)
        FAIL(ERR_FORMAT, "%s: \"%s\" is not an array of %d numbers", source,
             key, count);
    for (int i = 0; i < count; i++) {
        const struct json *item = &array->items[i];

        if (item->kind == JSON_NULL) out[i] = (double)NAN;
        else if (item->kind == JSON_REAL || item->kind == JSON_INTEGER)
            out[i] = item->real;
        else
            FAIL(ERR_FORMAT, "%s: \"%s\" has something else than numbers",
                 source, key);
    }
    return OK;
}

static int length_of(const struct json *object, const char *key)
{
    const struct json *array = json_get(object, key);

    return array != NULL && array->kind == JSON_ARRAY &&
                   array->count <= LAYERS_MOST
               ? array->count : 0;
}

/* Experts of a block; 0: the line has none. */
static int experts_of(const struct json *object)
{
    const struct json *blocks = json_get(object, "experts");

    return blocks != NULL && blocks->kind == JSON_ARRAY && blocks->count > 0
               ? length_of(&blocks->items[0], "tokens") : 0;
}

/* The first line says how many there are, and their names. */
static status begin_table(struct walk *walk, const struct json *object,
                          const char *source)
{
    struct layers_table *table = walk->table;
    const struct json *params = json_get(object, "parameters");
    void *names;

    table->activations = length_of(object, what_names[0]);
    table->parameters = length_of(object, "parameters");
    table->experts = experts_of(object);
    TRY(arena_take_array(walk->arena, (size_t)table->parameters,
                         sizeof *table->names, &names));
    table->names = names;
    for (int i = 0; i < table->parameters; i++) {
        const char *name;
        char *copy;

        TRY(json_get_string(&params->items[i], source, "name", &name));
        TRY(arena_copy_text(walk->arena, name, &copy));
        table->names[i] = copy;
    }
    return OK;
}

/* The largest shares of the operands of a parameter. */
static status read_roundings(const struct json *item, const char *source,
                             struct layer_norms *out)
{
    const struct json *object = json_get(item, "rounded");

    out->cut = out->zeroed = (double)NAN;
    for (int k = 0; k < ROUNDING_OPERANDS && object != NULL; k++) {
        double values[5];

        if (json_get(object, rounding_names[k]) == NULL) continue;
        TRY(read_array(object, source, rounding_names[k], 5, values));
        if (!(out->cut >= values[0])) out->cut = values[0];
        if (!(out->zeroed >= values[1])) out->zeroed = values[1];
    }
    return OK;
}

static status read_parameters(struct walk *walk, const struct json *object,
                              const char *source, struct layer_norms *out)
{
    const struct json *params = json_get(object, "parameters");
    const double nan = (double)NAN;

    if (length_of(object, "parameters") != walk->table->parameters)
        FAIL(ERR_FORMAT, "%s: is of another model than the lines before",
             source);
    for (int i = 0; i < walk->table->parameters; i++) {
        const struct json *item = &params->items[i];
        const char *name;

        TRY(json_get_string(item, source, "name", &name));
        if (strcmp(name, walk->table->names[i]) != 0)
            FAIL(ERR_FORMAT, "%s: parameter %d is %s, but %s in the lines "
                             "before", source, i, name,
                 walk->table->names[i]);
        TRY(json_get_real_or(item, source, "weight", nan, &out[i].weight));
        TRY(json_get_real_or(item, source, "gradient", nan,
                             &out[i].gradient));
        TRY(json_get_real_or(item, source, "update", nan, &out[i].update));
        TRY(read_roundings(item, source, &out[i]));
    }
    return OK;
}

/* Tokens of each expert of each block. */
static status read_experts(struct walk *walk, const struct json *object,
                           const char *source, const double **out)
{
    const struct layers_table *table = walk->table;
    const int blocks = table->activations - 1, count = table->experts;
    const struct json *list = json_get(object, "experts");
    void *memory;

    *out = NULL;
    if (experts_of(object) != count || blocks < 0)
        FAIL(ERR_FORMAT, "%s: is of another model than the lines before",
             source);
    if (count == 0) return OK;
    TRY(arena_take_array(walk->arena, (size_t)blocks * (size_t)count,
                         sizeof **out, &memory));
    memset(memory, 0, (size_t)blocks * (size_t)count * sizeof **out);
    for (int i = 0; i < list->count; i++) {
        int64_t block;

        TRY(json_get_integer(&list->items[i], source, "block", &block));
        if (block < 0 || block >= blocks)
            FAIL(ERR_FORMAT, "%s: experts of block %lld, but there are %d "
                             "blocks", source, (long long)block, blocks);
        TRY(read_array(&list->items[i], source, "tokens", count,
                       (double *)memory + block * count));
    }
    *out = memory;
    return OK;
}

static status keep_row(struct walk *walk, const struct json *object,
                       const char *source, int64_t step)
{
    struct layers_table *table = walk->table;
    struct layers_row *row = &table->rows[table->count];
    void *norms, *memory;
    const double *tokens;
    double *values;
    int count;

    if (table->count == 0) TRY(begin_table(walk, object, source));
    count = table->activations;
    TRY(arena_take_array(walk->arena, (size_t)count * (WHATS + 1) + 1,
                         sizeof *values, &memory));
    values = memory;
    for (int k = 0; k < WHATS; k++)
        TRY(read_array(object, source, what_names[k], count,
                       values + k * count));
    TRY(read_array(object, source, "logit", count > 0 ? count - 1 : 0,
                   values + WHATS * count));
    TRY(arena_take_array(walk->arena, (size_t)table->parameters + 1,
                         sizeof *row->norms, &norms));
    TRY(read_parameters(walk, object, source, norms));
    TRY(read_experts(walk, object, source, &tokens));
    *row = (struct layers_row){step, values, values + count,
                               values + 2 * count, values + 3 * count,
                               norms, tokens};
    table->count++;
    return OK;
}

static status read_line(struct walk *walk, struct arena *scratch,
                        const char *line, size_t length, const char *source)
{
    const struct json *object;
    int64_t step;

    TRY(json_read(&object, scratch, line, length, source));
    TRY(json_get_integer(object, source, "step", &step));
    return keep_row(walk, object, source, step);
}

static status walk_lines(struct walk *walk, const char *bytes, size_t length)
{
    struct arena scratch = {0};
    status result = OK;
    int64_t number = 0;

    arena_init(&scratch, "layers line", 0);
    while ((size_t)walk->kept < length) {
        const char *at = bytes + walk->kept;
        const char *end = memchr(at, '\n', length - (size_t)walk->kept);
        char source[PATH_BYTES + 32];

        if (end == NULL) break; /* torn by a kill */
        snprintf(source, sizeof source, "%s: line %lld", walk->path,
                 (long long)++number);
        result = read_line(walk, &scratch, at, (size_t)(end - at), source);
        arena_reset(&scratch);
        if (result != OK) break;
        walk->kept += end - at + 1;
    }
    arena_free(&scratch);
    return result;
}

status layers_read(struct layers_table *table, struct arena *arena,
                   const char *path)
{
    struct walk walk = {.path = path, .arena = arena, .table = table};
    struct file_map map = {0};
    size_t lines = 0;
    void *rows;
    status result;

    *table = (struct layers_table){0};
    if (!file_exists(path)) return OK;
    TRY_GOTO(done, result, file_map_open(&map, path));
    if (map.length > file_bytes_max)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: %zu bytes, at most %zu fit",
                  path, map.length, file_bytes_max);
    for (size_t i = 0; i < map.length; i++) lines += map.bytes[i] == '\n';
    TRY_GOTO(done, result, arena_take_array(arena, lines + 1,
                                            sizeof *table->rows, &rows));
    table->rows = rows;
    TRY_GOTO(done, result,
             walk_lines(&walk, (const char *)map.bytes, map.length));
done:
    file_map_close(&map);
    return result;
}
