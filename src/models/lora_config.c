/* SPDX-License-Identifier: Apache-2.0 */
/* lora_config.c - adapter_config.json, as PEFT writes and reads it.
 *
 *   target_modules   names: of a module, or its end after a dot; "all-linear";
 *                    or one regular expression for whole names
 *   rank_pattern,    regular expressions for the ends of names, in the file's
 *   alpha_pattern    order: the first that matches says it, else r, lora_alpha
 *
 * The files that Lockstep writes contain plain names only. */
#include <ctype.h>
#include <string.h>

#include "models/decoder.h"
#include "models/lora.h"

enum {
    RANK_MAX = 4096, NAMES_MAX = 4096, MODULE_BYTES = 256,
    MATCHES_MAX = 65536 /* of expressions with names: a second's work */
};

struct reading {
    struct model *model;
    const struct json *root;
    const char *path;
    const struct lora_matcher *matcher;
    char module[MODULE_BYTES]; /* "model.layers.0.self_attn.q_proj" */
    int layer;
    bool router;               /* the module is one */
    int matches;               /* so far */
};

/* `expert`: of a part that every expert has. */
static void module_name(const struct model *model, int layer,
                        const struct outside *part, int expert,
                        char out[MODULE_BYTES])
{
    const char *prefix = model->kind->layer_prefix;
    const char *mark = strstr(prefix, "%d");
    char stem[LORA_NAME_BYTES];

    lora_stem(part, expert, stem);
    snprintf(out, MODULE_BYTES, "%.*s%d%s%s", (int)(mark - prefix), prefix,
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

/* Is the parameter, as PEFT's target_parameters name it, the weight of the
 * model's routers? "gate.weight", "mlp.gate.weight" */
static bool is_router_weight(const struct model *model, const char *name)
{
    const struct outside *router = lora_part(model, LORA_ROUTER);
    char stem[LORA_NAME_BYTES], weight[LORA_NAME_BYTES + 8];

    if (router == NULL) return false;
    lora_stem(router, -1, stem);
    snprintf(weight, sizeof weight, "%s.weight", lora_last(stem));
    return ends_at_dot(name, weight);
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
        if (!is_router_weight(r->model, list->items[i].string))
            FAIL(ERR_CONFIG, "%s: target_parameters names %.60s; only the "
                             "weight of routers is read from there", r->path,
                 list->items[i].string);
    }
    return OK;
}

/* Have target_parameters the router? They were checked. */
static bool is_parameter(const struct reading *r)
{
    const struct json *list = json_get(r->root, "target_parameters");
    const struct json *item;

    if (!r->router || list == NULL || list->kind != JSON_ARRAY) return false;
    for (int i = 0; i < list->count; i++) {
        item = &list->items[i];
        const size_t length = strlen(item->string) - strlen(".weight");

        if (strncmp(item->string, r->module, length) == 0 ||
            strstr(item->string, "layers.") == NULL)
            return true;
    }
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
    bool excluded;

    if (targets == NULL || targets->kind == JSON_NULL)
        FAIL(ERR_FORMAT, "%s: has no target_modules", r->path);
    TRY(names(r, "exclude_modules", &excluded));
    *yes = false;
    if (excluded) return OK;
    *yes = is_parameter(r);
    if (*yes) return layer_chosen(r, yes);
    if (targets->kind == JSON_STRING &&
        strcmp(targets->string, "all-linear") == 0)
        *yes = !r->router;
    else
        TRY(names(r, "target_modules", yes));
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

static status class_of(struct reading *r, int *class)
{
    struct lora *lora = &r->model->lora;
    const struct json *rank, *alpha;

    TRY(pattern_value(r, "rank_pattern", &rank));
    TRY(pattern_value(r, "alpha_pattern", &alpha));
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

/* The class of a part; experts have all the same. */
static status read_part(struct reading *r, int index, int *class)
{
    *class = 0;
    r->router = index == LORA_ROUTER;
    for (int i = 0; i < lora_copies(r->model, index); i++) {
        int own = 0;
        bool yes;

        module_name(r->model, r->layer, lora_part(r->model, index), i,
                    r->module);
        TRY(is_target(r, &yes));
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

/* ---- writing ---- */

/* How much of a name tells a target: its last word, unless a neighbour has
 * the same and another class; its name in the block; or all of it. */
enum naming { LAST_WORD, IN_BLOCK, WHOLE };

static enum naming naming_of(const struct model *model)
{
    const struct lora *lora = &model->lora;
    char stems[LORA_PARTS][LORA_NAME_BYTES];

    if (lora->varied) return WHOLE;
    if (lora->class_count > 1) return IN_BLOCK;
    for (int i = 0; i < LORA_PARTS; i++) {
        stems[i][0] = 0;
        if (lora_part(model, i) == NULL) continue;
        lora_stem(lora_part(model, i), 0, stems[i]);
        for (int j = 0; j < i; j++)
            if (strcmp(lora_last(stems[i]), lora_last(stems[j])) == 0 &&
                lora_site(lora, 0, i) != lora_site(lora, 0, j))
                return IN_BLOCK;
    }
    return LAST_WORD;
}

/* Which sites: all, those that PEFT finds as modules, or as parameters. */
enum sites { ALL_SITES, MODULE_SITES, PARAMETER_SITES };

typedef void site_writer(const struct lora *lora, struct json_writer *w,
                         const char *name, int class);

/* Has a part before `index` the same last word, and an adapter? */
static bool is_said(const struct model *model, int index)
{
    char own[LORA_NAME_BYTES], other[LORA_NAME_BYTES];

    lora_stem(lora_part(model, index), 0, own);
    for (int i = 0; i < index; i++) {
        if (lora_site(&model->lora, 0, i) == 0) continue;
        lora_stem(lora_part(model, i), 0, other);
        if (strcmp(lora_last(own), lora_last(other)) == 0) return true;
    }
    return false;
}

static void write_site(const struct model *model, int layer, int index,
                       struct json_writer *w, site_writer *write)
{
    const struct outside *part = lora_part(model, index);
    const int class = lora_site(&model->lora, layer, index);
    const enum naming naming = naming_of(model);
    const int copies = naming == LAST_WORD ? 1 : lora_copies(model, index);
    char stem[LORA_NAME_BYTES], name[MODULE_BYTES];

    if (naming == LAST_WORD && is_said(model, index)) return;
    for (int i = 0; i < copies; i++) {
        lora_stem(part, i, stem);
        module_name(model, layer, part, i, name);
        write(&model->lora, w, naming == WHOLE ? name :
              naming == IN_BLOCK ? stem : lora_last(stem), class);
    }
}

static void each_site(const struct model *model, struct json_writer *w,
                      enum sites sites, site_writer *write)
{
    const struct lora *lora = &model->lora;
    const int layers = lora->varied ? model->layers : 1;

    for (int layer = 0; layer < layers; layer++)
        for (int i = 0; i < LORA_PARTS; i++) {
            if (lora_site(lora, layer, i) == 0) continue;
            if (lora->varied && !lora_has(model, layer, i)) continue;
            if (sites != ALL_SITES &&
                (sites == PARAMETER_SITES) != (i == LORA_ROUTER))
                continue;
            write_site(model, layer, i, w, write);
        }
}

static void write_target(const struct lora *lora, struct json_writer *w,
                         const char *name, int class)
{
    (void)lora;
    (void)class;
    json_write_string(w, name);
}

/* The parameter of a module. Routers are no modules with a product of their own
 * in transformers. */
static void write_parameter(const struct lora *lora, struct json_writer *w,
                            const char *name, int class)
{
    char weight[MODULE_BYTES + 8];

    (void)class;
    snprintf(weight, sizeof weight, "%s.weight",
             lora->varied ? name : lora_last(name));
    json_write_string(w, weight);
}

static bool has_parameters(const struct model *model)
{
    if (lora_part(model, LORA_ROUTER) == NULL) return false;
    for (int layer = 0; layer < model->layers; layer++)
        if (lora_site(&model->lora, layer, LORA_ROUTER) > 0) return true;
    return false;
}

static void write_rank(const struct lora *lora, struct json_writer *w,
                       const char *name, int class)
{
    const int rank = lora->classes[class - 1].rank;

    if (rank != lora->rank) json_write_key_integer(w, name, rank);
}

static void write_alpha(const struct lora *lora, struct json_writer *w,
                        const char *name, int class)
{
    const double alpha = lora->classes[class - 1].alpha;

    if (alpha != lora->alpha) json_write_key_real(w, name, alpha);
}

static bool all_as_said(const struct lora *lora)
{
    return lora->class_count == 1 && lora->classes[0].rank == lora->rank &&
           lora->classes[0].alpha == lora->alpha;
}

static void write_sites(const struct model *model, struct json_writer *w)
{
    json_write_key(w, "target_modules");
    json_write_array(w);
    each_site(model, w, MODULE_SITES, write_target);
    json_write_array_end(w);
    if (has_parameters(model)) {
        json_write_key(w, "target_parameters");
        json_write_array(w);
        each_site(model, w, PARAMETER_SITES, write_parameter);
        json_write_array_end(w);
    }
    if (all_as_said(&model->lora)) return;
    json_write_key(w, "rank_pattern");
    json_write_object(w);
    each_site(model, w, ALL_SITES, write_rank);
    json_write_object_end(w);
    json_write_key(w, "alpha_pattern");
    json_write_object(w);
    each_site(model, w, ALL_SITES, write_alpha);
    json_write_object_end(w);
}

static void write_root(const struct model *model, struct json_writer *w)
{
    const struct decoder *decoder = model->decoder != NULL
                                        ? model->decoder
                                        : model->kind->decoder;

    json_write_object(w);
    json_write_key_text(w, "peft_type", "LORA");
    json_write_key_text(w, "task_type", "CAUSAL_LM");
    json_write_key(w, "base_model_name_or_path");
    json_write_null(w);
    json_write_key_integer(w, "r", model->lora.rank);
    json_write_key(w, "lora_alpha");
    json_write_real(w, model->lora.alpha);
    if (model->lora.root) {
        json_write_key(w, "use_rslora");
        json_write_bool(w, true);
    }
    json_write_key(w, "lora_dropout");
    json_write_real(w, 0);
    json_write_key_text(w, "bias", "none");
    json_write_key(w, "fan_in_fan_out");
    json_write_bool(w, decoder->transposed);
    write_sites(model, w);
    json_write_key(w, "inference_mode");
    json_write_bool(w, true);
    json_write_object_end(w);
}

status lora_write_config(const struct model *model, struct text *out)
{
    struct json_writer w;
    status result;

    json_write_begin(&w, 2);
    write_root(model, &w);
    TRY_GOTO(done, result, json_write_end(&w));
    TRY_GOTO(done, result, text_append(out, w.out.bytes, w.out.length));
    TRY_GOTO(done, result, text_append_string(out, "\n"));
done:
    json_writer_free(&w);
    return result;
}
