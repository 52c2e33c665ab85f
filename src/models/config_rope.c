/* SPDX-License-Identifier: Apache-2.0 */
/* config_rope.c - scaling of rotary positions: rope_scaling (transformers v4)
 * and rope_parameters (v5) of config.json, and the option that says the same
 * in one line. */
#include "models/config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static const char *const kinds[ROPE_KINDS] = {"default", "linear", "llama3",
                                              "yarn", "dynamic", "longrope"};

static const char *const share_key = "partial_rotary_factor";
static const char *const base_key = "rope_theta";
static const char *const local_key = "rope_local_base_freq";
static const char *const original_key = "original_max_position_embeddings";
static const char *const full_key = "full_attention";
static const char *const sliding_key = "sliding_attention";

enum {
    LINEAR = 1 << ROPE_LINEAR, LLAMA3 = 1 << ROPE_LLAMA3,
    YARN = 1 << ROPE_YARN, DYNAMIC = 1 << ROPE_DYNAMIC, LONG = 1 << ROPE_LONG,
    NAME_BYTES = 64
};

#define AT(field) offsetof(struct rope_scaling, field)

static const struct rope_field {
    const char *name;
    size_t at;      /* of a double */
    unsigned kinds; /* that take it */
    bool needed;
    double other;   /* when it is absent; 0 of original: the model's context */
} fields[] = {
    {"factor", AT(factor), LINEAR | LLAMA3 | YARN | DYNAMIC, true, 0},
    {"factor", AT(factor), LONG, false, 0}, /* the context over the old one */
    {"low_freq_factor", AT(low), LLAMA3, true, 0},
    {"high_freq_factor", AT(high), LLAMA3, true, 0},
    {"original_max_position_embeddings", AT(original),
     LLAMA3 | YARN | LONG, false, 0},
    {"attention_factor", AT(attention), YARN | LONG, false, 0},
    {"beta_fast", AT(beta_fast), YARN, false, 32},
    {"beta_slow", AT(beta_slow), YARN, false, 1},
    {"mscale", AT(mscale), YARN, false, 0},
    {"mscale_all_dim", AT(mscale_all), YARN, false, 0},
    {"short_mscale", AT(near_scale), LONG, false, 0},
    {"long_mscale", AT(far_scale), LONG, false, 0},
    {"truncate", AT(truncate), YARN, false, 1},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static double *place(struct rope_scaling *scaling,
                     const struct rope_field *field)
{
    return (double *)(void *)((char *)scaling + field->at);
}

static double value_of(const struct rope_scaling *scaling,
                       const struct rope_field *field)
{
    return *(const double *)(const void *)((const char *)scaling + field->at);
}

static bool takes(const struct rope_scaling *scaling, int field)
{
    return (fields[field].kinds >> scaling->kind & 1) != 0;
}

/* It knows the length before it was stretched. */
static bool has_original(const struct rope_scaling *scaling)
{
    return scaling->kind == ROPE_YARN || scaling->kind == ROPE_LLAMA3 ||
           scaling->kind == ROPE_LONG;
}

static status begin(struct rope_scaling *scaling, const char *where,
                    const char *kind)
{
    *scaling = (struct rope_scaling){0};
    if (strcmp(kind, "su") == 0) kind = kinds[ROPE_LONG]; /* its old name */
    while (scaling->kind < ROPE_KINDS &&
           strcmp(kinds[scaling->kind], kind) != 0)
        scaling->kind++;
    if (scaling->kind == ROPE_KINDS)
        FAIL(ERR_CONFIG, "%s: rotary scaling %s is not in this build; it has "
                         "default, linear, llama3, yarn, dynamic and longrope",
             where, kind);
    for (int i = 0; i < FIELDS; i++)
        if (takes(scaling, i)) *place(scaling, &fields[i]) = fields[i].other;
    return OK;
}

/* `name`: `length` bytes. */
static status find(struct rope_scaling *scaling, const char *where,
                   const char *name, size_t length, double **out)
{
    for (int i = 0; i < FIELDS; i++)
        if (takes(scaling, i) && strlen(fields[i].name) == length &&
            memcmp(fields[i].name, name, length) == 0) {
            *out = place(scaling, &fields[i]);
            return OK;
        }
    FAIL(ERR_CONFIG, "%s: %.*s is not known to the rotary kind %s", where,
         (int)length, name, kinds[scaling->kind]);
}

static status require(const char *where, bool holds, const char *what)
{
    if (holds) return OK;
    FAIL(ERR_CONFIG, "%s: %s", where, what);
}

static status finish(struct rope_scaling *s, const char *where, double base,
                     int64_t context)
{
    const bool stretched = s->kind != ROPE_PLAIN;
    const bool yarn = s->kind == ROPE_YARN;
    const bool is_long = s->kind == ROPE_LONG;

    if (has_original(s) && s->original == 0) s->original = (double)context;
    if (s->kind == ROPE_DYNAMIC) s->original = (double)context;
    if (is_long && s->factor == 0) s->factor = (double)context / s->original;
    for (int i = 0; i < FIELDS; i++)
        if (takes(s, i) && fields[i].needed &&
            value_of(s, &fields[i]) == fields[i].other)
            FAIL(ERR_CONFIG, "%s: rotary kind %s needs %s", where,
                 kinds[s->kind], fields[i].name);
    TRY(require(where, !stretched || (s->factor >= 1 && s->factor <= 1e6),
                "factor is outside 1 to 1e6"));
    TRY(require(where, !has_original(s) ||
                           (s->original >= 1 && s->original <= 1 << 24 &&
                            s->original == (double)(int64_t)s->original),
                "original_max_position_embeddings is not a number of tokens"));
    TRY(require(where, s->kind != ROPE_LLAMA3 ||
                           (s->low > 0 && s->high >= s->low && s->high < 1e9),
                "low_freq_factor must be above 0 and at most "
                "high_freq_factor"));
    TRY(require(where, !yarn || (s->beta_slow > 0 && s->beta_fast < 1e9 &&
                                 s->beta_fast >= s->beta_slow),
                "beta_slow must be above 0 and at most beta_fast"));
    TRY(require(where, s->attention >= 0 && s->attention < 1e6 &&
                           s->mscale >= 0 && s->mscale < 1e6 &&
                           s->mscale_all >= 0 && s->mscale_all < 1e6,
                "attention_factor, mscale or mscale_all_dim is outside 0 to "
                "1e6"));
    TRY(require(where, s->near_scale >= 0 && s->near_scale < 1e6 &&
                           s->far_scale >= 0 && s->far_scale < 1e6 &&
                           (s->near_scale > 0) == (s->far_scale > 0),
                "short_mscale and long_mscale are not both above 0 and below "
                "1e6"));
    TRY(require(where, !is_long || s->factor == 1 || s->original > 1,
                "longrope: the original length is 1 token"));
    return require(where, !yarn || base > 1,
                   "yarn needs a rotary base above 1");
}

/* The factors of longrope: one for each pair. */
static const struct { const char *name; size_t at; } lists[] = {
    {"short_factor", AT(near)}, {"long_factor", AT(far)}};

static double *list_find(struct rope_scaling *scaling, const char *name,
                         size_t length)
{
    for (int i = 0; i < 2 && scaling->kind == ROPE_LONG; i++)
        if (strlen(lists[i].name) == length &&
            memcmp(lists[i].name, name, length) == 0)
            return (double *)(void *)((char *)scaling + lists[i].at);
    return NULL;
}

static const double *list_of(const struct rope_scaling *scaling, int list)
{
    return list == 0 ? scaling->near : scaling->far;
}

static status check_lists(struct rope_scaling *scaling, const char *where,
                          const struct model *model)
{
    const int pairs = (model->mla.rope > 0 ? (int)model->mla.rope
                       : model->rope.rotary > 0 ? model->rope.rotary
                                           : model->head_width) / 2;

    if (scaling->kind == ROPE_DYNAMIC && pairs < 2)
        FAIL(ERR_CONFIG, "%s: rotary kind dynamic needs at least 4 rotary "
                         "elements per head", where);
    if (scaling->kind != ROPE_LONG) return OK;
    scaling->pairs = pairs;
    for (int i = 0; i < 2; i++) {
        const double *list = list_of(scaling, i);
        int count = 0;

        while (count < ROPE_PAIRS_MAX && list[count] != 0) count++;
        if (count != pairs)
            FAIL(ERR_CONFIG, "%s: %s has %d factors above 0; a head has %d "
                             "rotary pairs",
                             where, lists[i].name, count, pairs);
    }
    return OK;
}

/* ---- config.json ---- */

static status read_value(const struct json *value, const char *where,
                         const char *name, double *out)
{
    const bool yes = value->kind == JSON_TRUE;

    if (value->kind == JSON_NULL) return OK; /* as if it were absent */
    if (strcmp(name, "truncate") == 0) {
        *out = yes;
        return require(where, yes || value->kind == JSON_FALSE,
                       "truncate is neither true nor false");
    }
    if (value->kind != JSON_INTEGER && value->kind != JSON_REAL)
        FAIL(ERR_CONFIG, "%s: %s is not a number", where, name);
    *out = value->real;
    return OK;
}

/* Inside, 0 of these means that they were not said. */
static status check_said(const struct rope_scaling *scaling, const char *where,
                         const double *at)
{
    const double *const not_zero[] = {
        &scaling->original, &scaling->attention, &scaling->near_scale,
        &scaling->far_scale, &scaling->factor};

    for (int i = 0; i < 5; i++)
        TRY(require(where, at != not_zero[i] || *at != 0,
                    "factor, attention_factor, short_mscale, long_mscale or "
                    "original_max_position_embeddings is 0; leave it out"));
    return OK;
}

static bool has_share(const struct model *model)
{
    return model->kind != NULL && model->kind->rope.share > 0;
}

/* Blocks with a window turn by a base of their own. */
static bool has_local(const struct model *model)
{
    return model->kind != NULL && model->kind->rope.local_base > 0;
}

static status read_list(const struct json *value, const char *where,
                        const char *name, double out[ROPE_PAIRS_MAX])
{
    if (value->kind != JSON_ARRAY || value->count > ROPE_PAIRS_MAX)
        FAIL(ERR_CONFIG, "%s: %s is not an array of at most %d numbers", where,
             name, ROPE_PAIRS_MAX);
    for (int i = 0; i < value->count; i++) {
        TRY(read_value(&value->items[i], where, name, &out[i]));
        if (!(out[i] > 0 && out[i] < 1e12))
            FAIL(ERR_CONFIG, "%s: %s: factor %d is outside 0 to 1e12", where,
                 name, i);
    }
    return OK;
}

/* The part of a head that turns. */
static status read_share(struct model *model, const struct json *object,
                         const char *where, const char *key)
{
    const struct json *value = json_get(object, key);
    double share;

    if (value != NULL && value->kind == JSON_NULL &&
        model->kind->rope.share != 1)
        FAIL(ERR_CONFIG, "%s: %s: null, which other programs take for 1; say "
                         "which part of a head turns", where, key);
    TRY(json_get_real_or(object, where, key, model->kind->rope.share,
                         &share));
    TRY(require(where, share > 0 && share <= 1,
                "the rotary part of a head is outside 0 to 1"));
    model->rope.rotary = (int)(model->head_width * share);
    if (model->rope.rotary == model->head_width) model->rope.rotary = 0;
    return OK;
}

/* A field that no kind has as a number: what it must say. False: unknown. */
static bool is_said(const struct rope_scaling *scaling, const char *name,
                    const struct json *value)
{
    const bool null = value->kind == JSON_NULL;

    if (strcmp(name, share_key) == 0) /* a family all of whose heads turns */
        return null || value->real == 1;
    if (strcmp(name, "finetuned") == 0) /* YaRN's own first files */
        return scaling->kind == ROPE_YARN && (null ||
                                              value->kind == JSON_TRUE);
    return false;
}

static status read_object(struct rope_scaling *scaling,
                          const struct json *object, const char *where,
                          struct model *model)
{
    const double original = scaling->original; /* said beside the object */
    const char *type, *legacy;

    TRY(json_get_string_or(object, where, "type", "default", &legacy));
    TRY(json_get_string_or(object, where, "rope_type", legacy, &type));
    TRY(json_get_real_or(object, where, "rope_theta", model->rope.base,
                         &model->rope.base));
    TRY(begin(scaling, where, type));
    if (has_original(scaling)) scaling->original = original;
    for (int i = 0; i < object->count; i++) {
        const char *name = object->items[2 * i].string;
        const struct json *value = &object->items[2 * i + 1];
        double *at = list_find(scaling, name, strlen(name));

        if (strcmp(name, "type") == 0 || strcmp(name, "rope_type") == 0 ||
            strcmp(name, "rope_theta") == 0)
            continue;
        if (has_share(model) && strcmp(name, share_key) == 0) {
            TRY(read_share(model, object, where, share_key));
            continue;
        }
        if (at != NULL) {
            TRY(read_list(value, where, name, at));
            continue;
        }
        if (is_said(scaling, name, value)) continue;
        TRY(find(scaling, where, name, strlen(name), &at));
        TRY(read_value(value, where, name, at));
        if (value->kind != JSON_NULL) TRY(check_said(scaling, where, at));
    }
    if (has_original(scaling) && original > 0 && scaling->original != original)
        FAIL(ERR_CONFIG, "%s: original_max_position_embeddings is %.17g here "
                         "and %.17g outside; leave one out",
             where, scaling->original, original);
    TRY(check_lists(scaling, where, model));
    return finish(scaling, where, model->rope.base, model->context);
}

/* rope_parameters of v5 where blocks with a window turn by a base of their
 * own: an object for each kind of block. */
static status read_both(struct rope_scaling *scaling,
                        const struct json *object, const char *where,
                        struct model *model)
{
    const struct json *full = json_get(object, full_key);
    const struct json *local = json_get(object, sliding_key);
    const double base = model->rope.base;
    char place[PATH_BYTES + 2 * NAME_BYTES];

    TRY(require(where, object->count <= (local != NULL) + 1,
                "expected only full_attention and sliding_attention"));
    TRY(require(where, full->kind == JSON_OBJECT &&
                           (local == NULL || local->kind == JSON_OBJECT),
                "full_attention or sliding_attention is not an object"));
    if (local != NULL) {
        model->rope.base = model->rope.local_base;
        snprintf(place, sizeof place, "%s: %s", where, sliding_key);
        TRY(read_object(scaling, local, place, model));
        TRY(require(place, scaling->kind == ROPE_PLAIN,
                    "takes only rope_type default"));
        model->rope.local_base = model->rope.base;
        model->rope.base = base;
    }
    snprintf(place, sizeof place, "%s: %s", where, full_key);
    return read_object(scaling, full, place, model);
}

static status check_base(const char *source, const char *key, double base)
{
    if (base >= 1 && base <= 1e12) return OK;
    FAIL(ERR_CONFIG, "%s: %s: %g is outside 1 to 1e12", source, key, base);
}

/* As int(width share) gives the rotary part again. */
static double share_of(const struct model *model)
{
    const int width = model->head_width;
    double share = model->rope.rotary > 0
                       ? (double)model->rope.rotary / width : 1;

    if ((int)(width * share) < model->rope.rotary) share += 1e-12;
    return share;
}

/* GPT-NeoX calls them otherwise outside of rope_parameters. */
static const char *base_name(const struct model *model)
{
    return model->kind == &model_gpt_neox ? "rotary_emb_base" : base_key;
}

static const char *share_name(const struct model *model)
{
    return model->kind == &model_gpt_neox ? "rotary_pct" : share_key;
}

/* transformers passes over the usual names there: they may not differ. */
static status check_unused(const struct model *model,
                           const struct json *config, const char *source)
{
    double base, share;

    TRY(json_get_real_or(config, source, base_key, model->rope.base, &base));
    if (base != model->rope.base)
        FAIL(ERR_CONFIG, "%s: rope_theta: %.9g, but the base of a gpt_neox is "
                         "its rotary_emb_base, %.9g", source, base,
             model->rope.base);
    TRY(json_get_real_or(config, source, share_key, share_of(model), &share));
    if ((int)(share * model->head_width) !=
        (model->rope.rotary > 0 ? model->rope.rotary : model->head_width))
        FAIL(ERR_CONFIG, "%s: partial_rotary_factor: %g, but the rotary part "
                         "of a head of gpt_neox is its rotary_pct, %g",
                         source, share, share_of(model));
    return OK;
}

status rope_read_config(struct model *model, const struct json *config,
                        const char *source)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    struct turned { double base, local; int rotary; } beside, first = {0};
    bool found = false;

    TRY(json_get_real_or(config, source, base_name(model), model->rope.base,
                         &model->rope.base));
    if (has_share(model))
        TRY(read_share(model, config, source, share_name(model)));
    if (has_local(model))
        TRY(json_get_real_or(config, source, local_key,
                             model->rope.local_base,
                             &model->rope.local_base)); /* until v5 */
    beside = (struct turned){model->rope.base, model->rope.local_base,
                             model->rope.rotary};
    for (int i = 0; i < 2; i++) {
        const struct json *object = json_get(config, keys[i]);
        struct rope_scaling scaling = {0};
        char where[PATH_BYTES + NAME_BYTES];

        TRY(json_get_real_or(config, source, original_key, 0,
                             &scaling.original));
        if (object == NULL || object->kind == JSON_NULL) continue;
        if (object->kind != JSON_OBJECT)
            FAIL(ERR_CONFIG, "%s: %s is not an object", source, keys[i]);
        snprintf(where, sizeof where, "%s: %s", source, keys[i]);
        model->rope.base = beside.base;
        model->rope.local_base = beside.local;
        model->rope.rotary = beside.rotary;
        if (has_local(model) && json_get(object, full_key) != NULL)
            TRY(read_both(&scaling, object, where, model));
        else
            TRY(read_object(&scaling, object, where, model));
        if (found && (!rope_scaling_same(&scaling, &model->rope.scaling) ||
                      model->rope.base != first.base ||
                      model->rope.local_base != first.local ||
                      model->rope.rotary != first.rotary))
            FAIL(ERR_CONFIG, "%s: rope_parameters and rope_scaling "
                             "contradict each other; leave one out", source);
        model->rope.scaling = scaling;
        first = (struct turned){model->rope.base, model->rope.local_base,
                                model->rope.rotary};
        found = true;
    }
    TRY(check_base(source, base_name(model), model->rope.base));
    if (model->kind == &model_gpt_neox)
        TRY(check_unused(model, config, source));
    return has_local(model)
               ? check_base(source, local_key, model->rope.local_base) : OK;
}

/* A value that says what its absence says is left out. */
static bool is_written(const struct rope_scaling *scaling, int field)
{
    return takes(scaling, field) &&
           (fields[field].needed ||
            value_of(scaling, &fields[field]) != fields[field].other);
}

static void write_float(struct json_writer *out, const char *key,
                        double value)
{
    json_write_key(out, key);
    json_write_float(out, value);
}

/* In longrope, version 4 writes the factors alone, and the old length beside
 * them; the scaling factor follows from the lengths. */
static bool is_left_out(const struct model *model,
                        const struct rope_scaling *scaling, int field, bool v4)
{
    const double factor = (double)model->context / scaling->original;

    return !is_written(scaling, field) ||
           (scaling->kind == ROPE_LONG &&
            ((v4 && fields[field].at == AT(original) &&
              scaling->near_scale == 0) || /* phimoe has it inside */
             (fields[field].at == AT(factor) && scaling->factor == factor)));
}

static void write_fields(const struct model *model,
                         const struct rope_scaling *scaling, bool v4,
                         struct json_writer *out)
{
    json_write_key(out, v4 && scaling->kind == ROPE_LONG ? "type"
                                                         : "rope_type");
    json_write_string(out, kinds[scaling->kind]);
    for (int i = 0; i < 2 && scaling->kind == ROPE_LONG; i++)
        json_write_key_list(out, lists[i].name, list_of(scaling, i),
                            scaling->pairs, json_write_float);
    for (int i = 0; i < FIELDS; i++) {
        const double value = value_of(scaling, &fields[i]);

        if (is_left_out(model, scaling, i, v4)) continue;
        if (strcmp(fields[i].name, "truncate") == 0) {
            json_write_key(out, fields[i].name);
            json_write_bool(out, value != 0);
        } else if (fields[i].at == AT(original)) {
            json_write_key_integer(out, fields[i].name, (int64_t)value);
        } else {
            write_float(out, fields[i].name, value);
        }
    }
}

static void write_share(const struct model *model, const char *name,
                        struct json_writer *out)
{
    if (has_share(model)) write_float(out, name, share_of(model));
}

static void write_inside(const struct model *model,
                         const struct rope_scaling *scaling, double base,
                         struct json_writer *out)
{
    write_fields(model, scaling, false, out);
    write_float(out, "rope_theta", base);
    write_share(model, share_key, out);
}

static void write_parameters(const struct model *model,
                             const struct rope_scaling *scaling, double base,
                             struct json_writer *out)
{
    json_write_object(out);
    write_inside(model, scaling, base, out);
    json_write_object_end(out);
}

void rope_write_config(const struct model *model, struct json_writer *out)
{
    write_float(out, base_name(model), model->rope.base); /* v4 */
    write_share(model, share_name(model), out);
    if (model->rope.scaling.kind != ROPE_PLAIN) {
        json_write_key(out, "rope_scaling");
        json_write_object(out);
        write_fields(model, &model->rope.scaling, true, out);
        json_write_object_end(out);
    }
    if (model->rope.scaling.kind == ROPE_LONG)
        json_write_key_integer(out, original_key,
                               (int64_t)model->rope.scaling.original);
    if (has_local(model))
        write_float(out, local_key, model->rope.local_base);
    json_write_key(out, "rope_parameters"); /* v5 */
    json_write_object(out);
    if (has_local(model)) {
        json_write_key(out, sliding_key);
        write_parameters(model, &(struct rope_scaling){0},
                         model->rope.local_base, out);
        json_write_key(out, full_key);
        write_parameters(model, &model->rope.scaling, model->rope.base, out);
        json_write_object_end(out);
        return;
    }
    write_inside(model, &model->rope.scaling, model->rope.base, out);
    json_write_object_end(out);
}

/* ---- the option ---- */

/* "1.5,2,..." up to a space; *text moves behind it. */
static status list_from_text(double out[ROPE_PAIRS_MAX], const char *where,
                             const char **text)
{
    for (int i = 0; i < ROPE_PAIRS_MAX; i++) {
        char *end;

        out[i] = strtod(*text, &end);
        if (end == *text || !(out[i] > 0 && out[i] < 1e12)) break;
        *text = end;
        if (*end == ' ' || *end == 0) return OK;
        if (*end != ',') break;
        *text = end + 1;
    }
    FAIL(ERR_CONFIG, "%s: %.20s is not a list of at most %d numbers above 0, "
                     "with commas", where, *text, ROPE_PAIRS_MAX);
}

/* NAME=VALUE at *text, which moves behind it. */
static status field_from_text(struct rope_scaling *scaling, const char *where,
                              const char **text)
{
    const size_t length = strcspn(*text, " "), name = strcspn(*text, "= ");
    const char *const begin = *text;
    double *at = list_find(scaling, begin, name);
    char *end;

    *text += name + (begin[name] == '=');
    if (at != NULL) return list_from_text(at, where, text);
    TRY(find(scaling, where, begin, name, &at));
    *at = strtod(*text, &end);
    if (begin[name] != '=' || end != begin + length || end == *text)
        FAIL(ERR_CONFIG, "%s: %.*s is not NAME=NUMBER", where, (int)length,
             begin);
    *text = end;
    return OK;
}

status rope_from_text(struct model *model, const char *text)
{
    static const char *const where = "model.rope_scaling";
    struct rope_scaling scaling;
    char kind[NAME_BYTES];
    const size_t length = strcspn(text, " ");

    model->rope.scaling = (struct rope_scaling){0};
    if (length == 0 && text[0] == 0) return OK;
    snprintf(kind, sizeof kind, "%.*s", (int)length, text);
    TRY(begin(&scaling, where, kind));
    for (text += length; *text != 0;) {
        text += strspn(text, " ");
        if (*text != 0) TRY(field_from_text(&scaling, where, &text));
    }
    TRY(check_lists(&scaling, where, model));
    TRY(finish(&scaling, where, model->rope.base, model->context));
    model->rope.scaling = scaling;
    return OK;
}

status rope_to_text(const struct rope_scaling *scaling, struct text *out)
{
    if (scaling->kind == ROPE_PLAIN) return OK;
    TRY(text_append_string(out, kinds[scaling->kind]));
    for (int i = 0; i < FIELDS; i++)
        if (is_written(scaling, i)) /* 17 digits read back exactly */
            TRY(text_printf(out, " %s=%.17g", fields[i].name,
                            value_of(scaling, &fields[i])));
    for (int i = 0; i < 2 && scaling->kind == ROPE_LONG; i++) {
        TRY(text_printf(out, " %s=", lists[i].name));
        for (int j = 0; j < scaling->pairs; j++)
            TRY(text_printf(out, "%s%.17g", j > 0 ? "," : "",
                            list_of(scaling, i)[j]));
    }
    return OK;
}
