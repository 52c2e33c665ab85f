/* SPDX-License-Identifier: Apache-2.0 */
/* lora_config.c - adapter_config.json, as PEFT writes it.
 *
 *   target_modules   names: of a module, or its end after a dot; "all-linear";
 *                    or one regular expression for whole names
 *   rank_pattern,    regular expressions for the ends of names, in the file's
 *   alpha_pattern    order: the first that matches says it, else r, lora_alpha
 *   target_parameters  of all experts, which transformers 5 keeps in one, and
 *                    of routers; patterns are for their names */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "models/decoder.h"
#include "models/lora.h"

enum {
    RANK_MAX = 4096, NAMES_MAX = 4096,
    MATCHES_MAX = 65536 /* of expressions with names: a second's work */
};

struct reading {
    struct model *model;
    const struct json *root;
    const char *path;
    const struct lora_matcher *matcher;
    char module[LORA_MODULE_BYTES]; /* "model.layers.0.self_attn.q_proj" */
    int layer;
    int part;                  /* which one of the block it is */
    int matches;               /* so far */
};

void lora_module(const struct model *model, int layer,
                 const struct outside *part, int expert,
                 char out[LORA_MODULE_BYTES])
{
    const char *prefix = model->kind->layer_prefix;
    const char *mark = strstr(prefix, "%d");
    char stem[LORA_NAME_BYTES];

    lora_stem(part, expert, stem);
    snprintf(out, LORA_MODULE_BYTES, "%.*s%d%s%s", (int)(mark - prefix), prefix,
             layer, mark + 2, stem);
}

/* ---- what is not computed ---- */

static bool is_set(const struct json *value)
{
    switch (value->kind) {
    case JSON_NULL: case JSON_FALSE: return false;
    case JSON_INTEGER: case JSON_REAL: return value->real != 0;
    case JSON_STRING: return value->string_length > 0;
    case JSON_ARRAY: case JSON_OBJECT: return value->count > 0;
    case JSON_TRUE: return true;
    }
    return true;
}

/* These keys do not change the products, or they are read below. */
static bool is_known(const char *key)
{
    static const char *const known[] = {
        "peft_type", "task_type", "base_model_name_or_path", "auto_mapping",
        "revision", "inference_mode", "peft_version", "r", "lora_alpha",
        "lora_dropout", "fan_in_fan_out", "use_rslora", "target_modules",
        "exclude_modules", "layers_to_transform", "layers_pattern",
        "rank_pattern", "alpha_pattern", "init_lora_weights", "bias",
        "megatron_core", "qalora_group_size", "ensure_weight_tying",
        "target_parameters"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i]) == 0) return true;
    return false;
}

/* Values that begin with what these make out of a model belong to another
 * base: PEFT changes it when it puts them there. */
static status check_beginning(const struct reading *r)
{
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq",
                                           "lora_ga"};
    const struct json *value = json_get(r->root, "init_lora_weights");

    if (value == NULL || value->kind != JSON_STRING) return OK;
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        if (strncmp(value->string, changing[i], strlen(changing[i])) == 0)
            FAIL(ERR_CONFIG, "%s: init_lora_weights is %.40s, which changes "
                             "the base weights; convert it to an ordinary LoRA "
                             "adapter first", r->path,
                 value->string);
    return OK;
}

static bool ends_at_dot(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);

    if (tail == 0 || tail > length || strcmp(name + length - tail, end) != 0)
        return false;
    return tail == length || name[length - tail - 1] == '.';
}

/* ---- parameters of experts and routers ---- */

/* The parameter that has the part of every expert, or the router, as
 * transformers 5 calls it: PEFT takes the ends of such names. NULL: no more. */
static const char *parameter_name(const struct model *model, int index, int i,
                                  char out[LORA_NAME_BYTES + 8])
{
    static const char *const router[] = {
        "mlp.gate.weight", "mlp.router.weight",
        "block_sparse_moe.router.weight"};
    static const char *const experts[2][3] = {
        {"mlp.experts.gate_up_proj", "block_sparse_moe.experts.gate_up_proj",
         "feed_forward.experts.gate_up_proj"},
        {"mlp.experts.down_proj", "block_sparse_moe.experts.down_proj",
         "feed_forward.experts.down_proj"}};
    char stem[LORA_NAME_BYTES];

    if (lora_part(model, index) == NULL) return NULL;
    lora_stem(lora_part(model, index), -1, stem);
    if (index >= LORA_EXPERTS)
        return i < 3 ? experts[index == LORA_EXPERTS_DOWN][i] : NULL;
    if (index != LORA_ROUTER || i > 3) return NULL;
    if (i < 3) return router[i];
    snprintf(out, LORA_NAME_BYTES + 8, "%s.weight", stem);
    return out;
}

/* Does `name` say the block `layer` (-1: any) before its last `own` bytes:
 * "model.layers.7.", or an end of it after a dot, such as "7."? */
static bool says_block(const struct model *model, const char *name,
                       size_t own, int layer)
{
    const char *prefix = model->kind->layer_prefix;
    const size_t before = strlen(name) - own;
    char all[LORA_MODULE_BYTES], rest[LORA_MODULE_BYTES], *end;

    snprintf(rest, sizeof rest, "%.*s", (int)before - 1, name);
    const char *number = lora_last(rest);
    const long found = strtol(number, &end, 10);

    if (before > sizeof rest || end == number || *end != 0 || found < 0 ||
        found >= model->layers || (layer >= 0 && found != layer))
        return false;
    snprintf(all, sizeof all, "%.*s%s",
             (int)(strstr(prefix, "%d") - prefix), prefix, number);
    return ends_at_dot(all, rest);
}

bool lora_is_parameter(const struct model *model, const char *name, int index)
{
    char memory[LORA_NAME_BYTES + 8];
    const char *own;

    if (strcmp(name, "weight") == 0) return false;
    for (int i = 0; (own = parameter_name(model, index, i, memory)) != NULL;
         i++)
        if (ends_at_dot(own, name)) return true;
    return false;
}

/* Does target_parameters' `name` have the part of block `layer`? Layer -1: of
 * any block. */
static bool names_parameter(const struct model *model, const char *name,
                            int layer, int index)
{
    char memory[LORA_NAME_BYTES + 8];
    const char *own;

    if (lora_is_parameter(model, name, index)) return true;
    for (int i = 0; (own = parameter_name(model, index, i, memory)) != NULL;
         i++)
        if (ends_at_dot(name, own) && strlen(name) > strlen(own) &&
            says_block(model, name, strlen(own), layer))
            return true;
    return false;
}

static bool is_any_parameter(const struct model *model, const char *name)
{
    for (int i = 0; i < LORA_PARTS; i++)
        if (names_parameter(model, name, -1, i)) return true;
    return false;
}

static status check_parameters(const struct reading *r)
{
    const struct json *list = json_get(r->root, "target_parameters");

    if (list == NULL || !is_set(list)) return OK;
    if (list->kind != JSON_ARRAY || list->count > NAMES_MAX)
        FAIL(ERR_FORMAT, "%s: target_parameters is no list of at most %d names",
             r->path, NAMES_MAX);
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind != JSON_STRING)
            FAIL(ERR_FORMAT, "%s: target_parameters[%d] is not a string",
                 r->path, i);
        if (!is_any_parameter(r->model, list->items[i].string))
            FAIL(ERR_CONFIG, "%s: target_parameters names %.60s; only weights "
                             "of routers (gate.weight) and of all experts "
                             "(experts.gate_up_proj, experts.down_proj) are "
                             "read from there", r->path, list->items[i].string);
    }
    return OK;
}

/* Have target_parameters the part? They were checked. */
static bool is_parameter(const struct reading *r)
{
    const struct json *list = json_get(r->root, "target_parameters");

    if (list == NULL || list->kind != JSON_ARRAY) return false;
    for (int i = 0; i < list->count; i++)
        if (names_parameter(r->model, list->items[i].string, r->layer,
                            r->part))
            return true;
    return false;
}

static status check_computed(const struct reading *r)
{
    const char *kind, *bias;

    TRY(json_get_string(r->root, r->path, "peft_type", &kind));
    if (strcmp(kind, "LORA") != 0)
        FAIL(ERR_CONFIG, "%s: an adapter of kind %.40s; only LORA is supported",
             r->path, kind);
    TRY(json_get_string_or(r->root, r->path, "bias", "none", &bias));
    if (strcmp(bias, "none") != 0)
        FAIL(ERR_CONFIG, "%s: bias is %.40s; only \"none\" is supported",
             r->path, bias);
    for (int i = 0; i < r->root->count; i++) {
        const char *key = r->root->items[2 * i].string;

        if (!is_known(key) && is_set(&r->root->items[2 * i + 1]))
            FAIL(ERR_CONFIG, "%s: %.60s is set, which is not supported",
                 r->path, key);
    }
    TRY(check_parameters(r));
    return check_beginning(r);
}

/* ---- names ---- */

/* Only letters, digits, "_" and "." (which then is a dot). */
static bool is_plain(const char *pattern)
{
    for (const char *at = pattern; *at != 0; at++)
        if (!isalnum((unsigned char)*at) && *at != '_' && *at != '.')
            return false;
    return *pattern != 0;
}

static status match(struct reading *r, const char *pattern, bool *yes)
{
    if (r->matcher == NULL)
        FAIL(ERR_CONFIG, "%s: %.60s is a regular expression; `lockstep import "
                         "BASE RUN --adapter DIR` reads it", r->path, pattern);
    if (++r->matches > MATCHES_MAX)
        FAIL(ERR_CONFIG, "%s: more than %d matches of regular expressions",
             r->path, MATCHES_MAX);
    return r->matcher->matches(r->matcher->argument, pattern, r->module, yes);
}

/* A key of rank_pattern or alpha_pattern. */
static status key_matches(struct reading *r, const char *key, bool *yes)
{
    struct text whole = {0};
    status result;

    if (is_plain(key) || (key[0] == '^' && is_plain(key + 1))) {
        *yes = key[0] == '^' ? strcmp(r->module, key + 1) == 0
                             : ends_at_dot(r->module, key);
        return OK;
    }
    TRY_GOTO(done, result, text_printf(&whole, "(.*\\.)?(%s)", key));
    result = match(r, whole.bytes, yes);
done:
    text_free(&whole);
    return result;
}

static status names_list(const struct reading *r, const struct json *list,
                         const char *key, bool *yes)
{
    *yes = false;
    if (list->count > NAMES_MAX)
        FAIL(ERR_FORMAT, "%s: %d names in %s, at most %d are possible",
             r->path, list->count, key, NAMES_MAX);
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind != JSON_STRING)
            FAIL(ERR_FORMAT, "%s: %s[%d] is not a string", r->path, key, i);
        *yes = *yes || ends_at_dot(r->module, list->items[i].string);
    }
    return OK;
}

/* A list of names, or one expression; nothing: no. */
static status names(struct reading *r, const char *key, bool *yes)
{
    const struct json *value = json_get(r->root, key);

    *yes = false;
    if (value == NULL || value->kind == JSON_NULL) return OK;
    if (value->kind == JSON_ARRAY) return names_list(r, value, key, yes);
    if (value->kind == JSON_STRING) return match(r, value->string, yes);
    FAIL(ERR_FORMAT, "%s: %s is neither a list of names nor an expression",
         r->path, key);
}

/* The word before the number of a layer: "layers". */
static bool is_layers_word(const struct model *model, const char *word)
{
    const char *prefix = model->kind->layer_prefix;
    const char *end = strstr(prefix, ".%d"), *first = end;

    while (first > prefix && first[-1] != '.') first--;
    return (size_t)(end - first) == strlen(word) &&
           strncmp(first, word, strlen(word)) == 0;
}

static status layer_word(const struct reading *r, bool *yes)
{
    const struct json *value = json_get(r->root, "layers_pattern");

    *yes = value == NULL || !is_set(value);
    if (*yes) return OK;
    const struct json *items = value->kind == JSON_ARRAY ? value->items
                                                         : value;
    const int count = value->kind == JSON_ARRAY ? value->count : 1;

    for (int i = 0; i < count; i++) {
        if (items[i].kind != JSON_STRING || !is_plain(items[i].string))
            FAIL(ERR_CONFIG, "%s: layers_pattern is not a plain word",
                 r->path);
        *yes = *yes || is_layers_word(r->model, items[i].string);
    }
    return OK;
}

/* Beside a list of names, layers may be chosen. */
static status layer_chosen(const struct reading *r, bool *yes)
{
    const struct json *value = json_get(r->root, "layers_to_transform");

    *yes = true;
    if (value == NULL || value->kind == JSON_NULL ||
        (value->kind == JSON_ARRAY && value->count == 0))
        return OK;
    TRY(layer_word(r, yes));
    if (!*yes) return OK;
    const struct json *items = value->kind == JSON_ARRAY ? value->items
                                                         : value;
    const int count = value->kind == JSON_ARRAY ? value->count : 1;

    *yes = false;
    for (int i = 0; i < count; i++) {
        if (items[i].kind != JSON_INTEGER)
            FAIL(ERR_FORMAT, "%s: layers_to_transform has no number", r->path);
        *yes = *yes || items[i].integer == r->layer;
    }
    return OK;
}

static status is_target(struct reading *r, bool *yes)
{
    const struct json *targets = json_get(r->root, "target_modules");
    const bool none = targets == NULL || targets->kind == JSON_NULL;
    bool excluded;

    if (none && json_get(r->root, "target_parameters") == NULL)
        FAIL(ERR_FORMAT, "%s: has no target_modules", r->path);
    TRY(names(r, "exclude_modules", &excluded));
    *yes = false;
    if (excluded) return OK;
    *yes = is_parameter(r);
    if (*yes) return layer_chosen(r, yes);
    if (none) return OK;
    if (targets->kind == JSON_STRING &&
        strcmp(targets->string, "all-linear") == 0)
        *yes = r->part != LORA_ROUTER;
    else
        TRY(names(r, "target_modules", yes));
    /* Experts are modules for some versions of transformers only. */
    if (r->part >= LORA_EXPERTS && r->matcher != NULL)
        *yes = *yes && r->matcher->has(r->matcher->argument, r->module);
    if (!*yes || targets->kind != JSON_ARRAY) return OK;
    return layer_chosen(r, yes);
}

/* The value of the first key that matches; *found NULL: no key matches. */
static status pattern_value(struct reading *r, const char *name,
                            const struct json **found)
{
    const struct json *map = json_get(r->root, name);

    *found = NULL;
    if (map == NULL || map->kind == JSON_NULL) return OK;
    if (map->kind != JSON_OBJECT || map->count > NAMES_MAX)
        FAIL(ERR_FORMAT, "%s: %s is not an object of at most %d patterns",
             r->path, name, NAMES_MAX);
    for (int i = 0; i < map->count; i++) {
        bool yes;

        TRY(key_matches(r, map->items[2 * i].string, &yes));
        if (!yes) continue;
        *found = &map->items[2 * i + 1];
        return OK;
    }
    return OK;
}

/* ---- ranks ---- */

static status class_from(const struct reading *r, const struct json *rank,
                         const struct json *alpha, int *class)
{
    struct lora *lora = &r->model->lora;

    if (rank != NULL && (rank->kind != JSON_INTEGER || rank->integer < 1 ||
                         rank->integer > RANK_MAX))
        FAIL(ERR_FORMAT, "%s: rank_pattern: not a rank from 1 to %d for %s",
             r->path, RANK_MAX, r->module);
    if (alpha != NULL && alpha->kind != JSON_INTEGER &&
        alpha->kind != JSON_REAL)
        FAIL(ERR_FORMAT, "%s: alpha_pattern: not a number for %s", r->path,
             r->module);
    return lora_class(lora, rank != NULL ? (int)rank->integer : lora->rank,
                      alpha != NULL ? alpha->real : lora->alpha, class);
}

static status class_of(struct reading *r, int *class)
{
    const struct json *rank, *alpha;

    TRY(pattern_value(r, "rank_pattern", &rank));
    TRY(pattern_value(r, "alpha_pattern", &alpha));
    return class_from(r, rank, alpha, class);
}

/* The class of parameters of all experts, by their names: a pattern that
 * matches one of them counts. */
static status class_of_parameter(struct reading *r, int *class)
{
    const char *prefix = r->model->kind->layer_prefix, *own;
    const int before = (int)(strstr(prefix, "%d") - prefix);
    const struct json *rank = NULL, *alpha = NULL;
    char memory[LORA_NAME_BYTES + 8];

    for (int i = 0; rank == NULL && alpha == NULL &&
                    (own = parameter_name(r->model, r->part, i, memory)) !=
                        NULL; i++) {
        snprintf(r->module, LORA_MODULE_BYTES, "%.*s%d.%s", before, prefix,
                 r->layer, own);
        TRY(pattern_value(r, "rank_pattern", &rank));
        TRY(pattern_value(r, "alpha_pattern", &alpha));
    }
    return class_from(r, rank, alpha, class);
}

/* The class of a part; experts have all the same. */
static status read_part(struct reading *r, int index, int *class)
{
    *class = 0;
    r->part = index;
    for (int i = 0; i < lora_copies(r->model, index); i++) {
        int own = 0;
        bool yes;

        lora_module(r->model, r->layer, lora_part(r->model, index), i,
                    r->module);
        TRY(is_target(r, &yes));
        if (yes && index >= LORA_EXPERTS && is_parameter(r))
            return class_of_parameter(r, class);
        if (yes) TRY(class_of(r, &own));
        if (i > 0 && own != *class)
            FAIL(ERR_CONFIG, "%s: %s has another adapter than expert 0 beside "
                             "it, or none; all experts of a block need the "
                             "same rank and alpha", r->path, r->module);
        *class = own;
    }
    return OK;
}

static status read_layer(struct reading *r, struct lora_site *site)
{
    *site = (struct lora_site){{0}};
    for (int i = 0; i < LORA_PARTS; i++) {
        int class;

        if (lora_part(r->model, i) == NULL) continue;
        TRY(read_part(r, i, &class));
        site->class[i] = (unsigned char)class;
    }
    return OK;
}

static status read_root(struct reading *r)
{
    struct lora *lora = &r->model->lora;
    int64_t rank;

    *lora = (struct lora){0};
    TRY(check_computed(r));
    TRY(json_get_integer(r->root, r->path, "r", &rank));
    if (rank < 1 || rank > RANK_MAX)
        FAIL(ERR_FORMAT, "%s: r is %lld, not a rank from 1 to %d", r->path,
             (long long)rank, RANK_MAX);
    lora->rank = (int)rank;
    TRY(json_get_real_or(r->root, r->path, "lora_alpha", 8, &lora->alpha));
    TRY(json_get_real_or(r->root, r->path, "lora_dropout", 0,
                         &lora->dropout));
    TRY(json_get_bool_or(r->root, r->path, "use_rslora", false, &lora->root));
    for (r->layer = 0; r->layer < r->model->layers; r->layer++) {
        struct lora_site site;

        TRY(read_layer(r, &site));
        TRY(lora_add_layer(lora, r->layer, &site));
    }
    if (lora->class_count == 0)
        FAIL(ERR_CONFIG, "%s: target_modules names no matrix of this model's "
                         "blocks (%s)", r->path, r->module);
    return lora_check(r->model);
}

status lora_read_config(struct model *model, const char *path,
                        const struct lora_matcher *matcher)
{
    struct reading r = {.model = model, .path = path, .matcher = matcher};
    struct arena arena;
    status result;

    arena_init(&arena, "adapter_config.json", (size_t)1 << 26);
    TRY_GOTO(done, result, json_read_file(&r.root, &arena, path,
                                          (size_t)1 << 20));
    if (r.root->kind != JSON_OBJECT)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: a JSON object was expected",
                  path);
    result = read_root(&r);
done:
    arena_free(&arena);
    return result;
}
