/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - which matrices of a model have low-rank adapters. */
#include "models/lora.h"

#include <string.h>

#include "models/decoder.h"

enum { LORA_PARTS = 9, /* of a block */ LORA_NAME_BYTES = 64 };

/* The matrices of a block, as the family's table has them. */
static const struct outside *lora_part(const struct decoder *d, int index)
{
    const struct outside *parts[LORA_PARTS] = {
        &d->q, &d->k, &d->v, &d->qkv, &d->out, &d->gate, &d->up, &d->gate_up,
        &d->down};

    return parts[index];
}

/* "q_proj" of "self_attn.q_proj.weight". */
static void lora_name(const struct outside *part, char out[LORA_NAME_BYTES])
{
    const char *end = strstr(part->weight, ".weight");
    const char *first = part->weight;

    for (const char *at = first; at < end; at++)
        if (*at == '.') first = at + 1;
    snprintf(out, LORA_NAME_BYTES, "%.*s", (int)(end - first), first);
}

/* Of fused halves the family has one or the other. */
static bool exists(const struct outside *part)
{
    return part->weight != NULL && part->lora_a != NULL;
}

static status fail_target(const struct decoder *decoder, const char *target)
{
    char names[LORA_PARTS][LORA_NAME_BYTES];
    const char *list[LORA_PARTS], *near;
    struct text all = {0};
    int count = 0;
    status result;

    for (int i = 0; i < LORA_PARTS; i++) {
        if (!exists(lora_part(decoder, i))) continue;
        lora_name(lora_part(decoder, i), names[count]);
        list[count] = names[count];
        TRY_GOTO(done, result, text_printf(&all, "%s, ", names[count]));
        count++;
    }
    near = text_nearest(target, list, count);
    FAIL_GOTO(done, result, ERR_CONFIG,
              "lora.targets: %.60s is not %sor all%s%s", target, all.bytes,
              near != NULL ? "; nearest: " : "", near != NULL ? near : "");
done:
    text_free(&all);
    return result;
}

/* The parts that a target names: several where a family uses a name twice. */
static unsigned parts_of(const struct decoder *decoder, const char *target)
{
    const bool all = strcmp(target, "all") == 0 ||
                     strcmp(target, "all-linear") == 0;
    char name[LORA_NAME_BYTES];
    unsigned parts = 0;

    for (int i = 0; i < LORA_PARTS; i++) {
        if (!exists(lora_part(decoder, i))) continue;
        lora_name(lora_part(decoder, i), name);
        if (all || strcmp(name, target) == 0) parts |= 1u << i;
    }
    return parts;
}

/* Rows of q and k that are pairs outside are told from those of v by v being
 * the last piece. */
static status check_pairs(const struct decoder *d, unsigned parts)
{
    if (!d->pairs || d->q.weight == NULL || (parts & 3u) == 0 ||
        (parts & 4u) != 0)
        return OK;
    FAIL(ERR_CONFIG, "lora.targets: this family's queries or keys need the "
                     "values beside them; add the third of q, k and v");
}

static const struct decoder *decoder_of(const struct model *model)
{
    return model->decoder != NULL ? model->decoder : model->kind->decoder;
}

status lora_choose(struct model *model, int rank, double alpha,
                   const char *const *targets, int count)
{
    const struct decoder *decoder = decoder_of(model);

    model->lora = (struct lora){0};
    if (rank == 0) return OK;
    model->lora.rank = rank;
    model->lora.alpha = alpha;
    for (int i = 0; i < count; i++) {
        const unsigned parts = parts_of(decoder, targets[i]);

        if (parts == 0) return fail_target(decoder, targets[i]);
        model->lora.parts |= parts;
    }
    if (count == 0)
        FAIL(ERR_CONFIG, "lora.targets: empty; all takes every matrix of the "
                         "blocks");
    return check_pairs(decoder, model->lora.parts);
}

bool lora_has(const struct model *model, const struct decoder *decoder,
              const struct outside *part)
{
    for (int i = 0; i < LORA_PARTS && model->lora.rank > 0; i++)
        if (lora_part(decoder, i) == part)
            return model->lora.parts >> i & 1;
    return false;
}

/* ---- adapter_config.json ---- */

static void write_targets(const struct model *model, struct json_writer *w)
{
    const struct decoder *d = decoder_of(model);
    char names[LORA_PARTS][LORA_NAME_BYTES];
    int count = 0;

    json_write_array(w);
    for (int i = 0; i < LORA_PARTS; i++) {
        bool twice = false;

        if (!(model->lora.parts >> i & 1)) continue;
        lora_name(lora_part(d, i), names[count]);
        for (int j = 0; j < count; j++)
            twice = twice || strcmp(names[j], names[count]) == 0;
        if (!twice) json_write_string(w, names[count++]);
    }
    json_write_array_end(w);
}

status lora_write_config(const struct model *model, struct text *out)
{
    struct json_writer w;
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key(&w, "peft_type");
    json_write_string(&w, "LORA");
    json_write_key(&w, "task_type");
    json_write_string(&w, "CAUSAL_LM");
    json_write_key(&w, "base_model_name_or_path");
    json_write_null(&w);
    json_write_key_integer(&w, "r", model->lora.rank);
    json_write_key(&w, "lora_alpha");
    json_write_real(&w, model->lora.alpha);
    json_write_key(&w, "lora_dropout");
    json_write_real(&w, 0);
    json_write_key(&w, "bias");
    json_write_string(&w, "none");
    json_write_key(&w, "fan_in_fan_out");
    json_write_bool(&w, decoder_of(model)->transposed);
    json_write_key(&w, "target_modules");
    write_targets(model, &w);
    json_write_key(&w, "inference_mode");
    json_write_bool(&w, true);
    json_write_object_end(&w);
    TRY_GOTO(done, result, json_write_end(&w));
    TRY_GOTO(done, result, text_append(out, w.out.bytes, w.out.length));
    TRY_GOTO(done, result, text_append_string(out, "\n"));
done:
    json_writer_free(&w);
    return result;
}

static status read_root(struct model *model, const struct json *root,
                        const char *path)
{
    const struct json *targets = json_get(root, "target_modules");
    const char *kind, *names[LORA_PARTS];
    int64_t rank;
    double alpha;

    TRY(json_get_string(root, path, "peft_type", &kind));
    if (strcmp(kind, "LORA") != 0)
        FAIL(ERR_CONFIG, "%s: an adapter of kind %.40s; only LORA can be "
                         "followed", path, kind);
    TRY(json_get_integer(root, path, "r", &rank));
    TRY(json_get_real_or(root, path, "lora_alpha", 16, &alpha));
    if (rank < 1 || rank > 4096 || targets == NULL ||
        targets->kind != JSON_ARRAY || targets->count < 1 ||
        targets->count > LORA_PARTS)
        FAIL(ERR_FORMAT, "%s: r or target_modules are not those of an "
                         "adapter", path);
    for (int i = 0; i < targets->count; i++) {
        if (targets->items[i].kind != JSON_STRING)
            FAIL(ERR_FORMAT, "%s: target_modules[%d] is no string", path, i);
        names[i] = targets->items[i].string;
    }
    return lora_choose(model, (int)rank, alpha, names, targets->count);
}

status lora_read_config(struct model *model, const char *path)
{
    const struct json *root;
    struct arena arena;
    status result;

    arena_init(&arena, "adapter_config.json", (size_t)1 << 26);
    TRY_GOTO(done, result, json_read_file(&root, &arena, path,
                                          (size_t)1 << 20));
    if (root->kind != JSON_OBJECT)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: a JSON object was expected",
                  path);
    result = read_root(model, root, path);
done:
    arena_free(&arena);
    return result;
}
