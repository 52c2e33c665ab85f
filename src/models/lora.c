/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - which matrices of a model have low-rank adapters. */
#include "models/lora.h"

#include <math.h>
#include <string.h>

#include "models/decoder.h"

/* The matrices of a block, as the family's table has them. */
static const struct outside *table_part(const struct decoder *d, int index)
{
    const struct outside *parts[LORA_PARTS] = {
        &d->attention.q, &d->attention.k, &d->attention.v, &d->attention.qkv,
        &d->attention.out, &d->latent.q_down, &d->latent.q_up,
        &d->latent.kv_down, &d->latent.kv_up, &d->ffn.gate, &d->ffn.up,
        &d->ffn.gate_up,
        &d->ffn.down, &d->moe.router, &d->shared.gate, &d->shared.up,
        &d->shared.gate_up, &d->shared.down,
        &d->moe.gate, &d->moe.up, &d->moe.down};

    return parts[index];
}

bool lora_has(const struct model *model, int layer, int index)
{
    const struct decoder *d = model_decoder(model);
    const struct outside *part = table_part(d, index);
    const struct moe *moe = &model->moe;
    const bool mixed = moe->experts > 0 && !blocks_has(&moe->dense, layer);

    if (part == &d->attention.q) return model->mla.query_rank == 0;
    if (part == &d->latent.q_down || part == &d->latent.q_up)
        return model->mla.query_rank > 0;
    if (index < LORA_FEED_FORWARD) return true;
    if (index < LORA_ROUTER) return !mixed;
    if (index == LORA_ROUTER) return mixed;
    return mixed && (index >= LORA_EXPERTS || moe->shared_width > 0);
}

int lora_copies(const struct model *model, int index)
{
    return index < LORA_EXPERTS ? 1 : model->moe.experts;
}

/* A family has either the fused halves or the separate ones. */
const struct outside *lora_part(const struct model *model, int index)
{
    const struct outside *part = table_part(model_decoder(model), index);
    bool has = false;

    if (part->weight == NULL || part->lora_a == NULL) return NULL;
    for (int i = 0; i < model->layers && !has; i++)
        has = lora_has(model, i, index);
    return has ? part : NULL;
}

void lora_stem(const struct outside *part, int expert,
               char out[LORA_NAME_BYTES])
{
    const char *from = part->weight, *end = strstr(from, ".weight");
    const char *mark = strstr(from, "%d.");

    if (mark == NULL)
        snprintf(out, LORA_NAME_BYTES, "%.*s", (int)(end - from), from);
    else if (expert < 0)
        snprintf(out, LORA_NAME_BYTES, "%.*s%.*s", (int)(mark - from), from,
                 (int)(end - mark - 3), mark + 3);
    else
        snprintf(out, LORA_NAME_BYTES, "%.*s%d%.*s", (int)(mark - from), from,
                 expert, (int)(end - mark - 2), mark + 2);
}

const char *lora_last(const char *stem)
{
    const char *dot = strrchr(stem, '.');

    return dot != NULL ? dot + 1 : stem;
}

/* ---- classes and sites ---- */

status lora_class(struct lora *lora, int rank, double alpha, int *class)
{
    for (int i = 0; i < lora->class_count; i++) {
        *class = i + 1;
        if (lora->classes[i].rank == rank && lora->classes[i].alpha == alpha)
            return OK;
    }
    if (lora->class_count == LORA_CLASSES_MAX)
        FAIL(ERR_CONFIG, "adapters with more than %d different ranks or "
                         "alphas", LORA_CLASSES_MAX);
    lora->classes[lora->class_count++] = (struct lora_class){rank, alpha};
    *class = lora->class_count;
    return OK;
}

int lora_site(const struct lora *lora, int layer, int part)
{
    if (lora->rank == 0) return 0;
    return lora->sites[lora->varied ? layer : 0].class[part];
}

int lora_at(const struct model *model, int layer, const struct outside *part)
{
    const struct decoder *decoder = model_decoder(model);

    if (layer >= model->layers) return 0; /* predicts later tokens */
    for (int i = 0; i < LORA_PARTS && model->lora.rank > 0; i++)
        if (table_part(decoder, i) == part)
            return lora_site(&model->lora, layer, i);
    return 0;
}

double lora_scale(const struct lora *lora, int class)
{
    const struct lora_class *c = &lora->classes[class - 1];

    return c->alpha / (lora->root ? sqrt((double)c->rank) : c->rank);
}

status lora_add_layer(struct lora *lora, int layer,
                      const struct lora_site *site)
{
    if (layer > 0 && memcmp(site, &lora->sites[0], sizeof *site) != 0 &&
        !lora->varied) {
        lora->varied = true;
        for (int i = 1; i < layer && i < LORA_LAYERS_MAX; i++)
            lora->sites[i] = lora->sites[0];
    }
    if (lora->varied && layer >= LORA_LAYERS_MAX)
        FAIL(ERR_CONFIG, "adapters that differ between layers of a model of "
                         "more than %d", LORA_LAYERS_MAX);
    if (layer == 0 || lora->varied) lora->sites[layer] = *site;
    return OK;
}

bool lora_is_joined(const struct model *model)
{
    const struct decoder *d = model_decoder(model);
    const struct lora *lora = &model->lora;

    if (d->moe.joined == NULL) return false;
    for (int layer = 0; layer < model->layers; layer++)
        for (int i = LORA_ROUTER; i < LORA_PARTS; i++)
            if ((i == LORA_ROUTER || i >= LORA_EXPERTS) &&
                lora_has(model, layer, i) && lora_site(lora, layer, i) > 0)
                return true;
    return false;
}

bool lora_loses_dense(const struct model *model)
{
    const struct decoder *d = model_decoder(model);
    char own[LORA_NAME_BYTES], chosen[LORA_NAME_BYTES];

    if (d->moe.gate.weight == NULL || model->kind->files.adapters_apart)
        return false;
    for (int layer = 0; layer < model->layers; layer++)
        for (int i = LORA_FEED_FORWARD; i < LORA_EXPERTS; i++) {
            if (i == LORA_ROUTER || lora_part(model, i) == NULL ||
                !lora_has(model, layer, i) ||
                lora_site(&model->lora, layer, i) == 0)
                continue;
            lora_stem(lora_part(model, i), 0, own);
            for (int j = LORA_EXPERTS; j < LORA_PARTS; j++) {
                if (lora_part(model, j) == NULL) continue;
                lora_stem(lora_part(model, j), 0, chosen);
                if (strcmp(lora_last(own), lora_last(chosen)) == 0)
                    return true;
            }
        }
    return false;
}

int lora_joint(const struct model *model, int layer, bool down, double *alpha)
{
    const struct lora *lora = &model->lora;
    const int first = down ? LORA_EXPERTS_DOWN : LORA_EXPERTS;
    const int end = down ? LORA_PARTS : LORA_EXPERTS_DOWN;
    double scale = 0;
    int rank = 0;

    for (int i = first; i < end; i++) {
        const int class = lora_site(lora, layer, i);

        if (class == 0 || !lora_has(model, layer, i)) continue;
        rank += lora->classes[class - 1].rank;
        scale = lora_scale(lora, class); /* the same of both */
    }
    *alpha = scale * (lora->root ? sqrt((double)rank) : rank);
    return rank;
}

static bool same_site(const struct model *a, const struct model *b, int layer,
                      int part)
{
    const int one = lora_site(&a->lora, layer, part);
    const int other = lora_site(&b->lora, layer, part);

    if (one == 0 || other == 0) return one == other;
    return a->lora.classes[one - 1].rank == b->lora.classes[other - 1].rank &&
           lora_scale(&a->lora, one) == lora_scale(&b->lora, other);
}

bool lora_same(const struct model *a, const struct model *b)
{
    for (int layer = 0; layer < a->layers; layer++)
        for (int i = 0; i < LORA_PARTS; i++)
            if (lora_has(a, layer, i) && !same_site(a, b, layer, i))
                return false;
    return true;
}

/* Rows of q and k that are pairs outside are told from those of v by v being
 * the last piece. */
status lora_check(const struct model *model)
{
    const struct decoder *d = model_decoder(model);
    const struct lora *lora = &model->lora;
    const int layers = lora->varied ? model->layers : 1;

    if (!d->attention.pairs || d->attention.q.weight == NULL) return OK;
    for (int i = 0; i < layers; i++) {
        const int q = lora_site(lora, i, 0), k = lora_site(lora, i, 1);
        const int v = lora_site(lora, i, 2);

        if ((q != 0 && q != v) || (k != 0 && k != v))
            FAIL(ERR_CONFIG, "lora.targets: this family's queries or keys need "
                             "the values beside them, of the same rank; add "
                             "the third of q, k and v");
    }
    return OK;
}

/* ---- of options ---- */

/* Is the text behind the first `count` among them? */
static bool is_listed(const char *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i], list[count]) == 0) return true;
    return false;
}

static status fail_target(const struct model *model, const char *target)
{
    char names[LORA_PARTS][LORA_NAME_BYTES];
    const char *list[LORA_PARTS], *near;
    struct text all = {0};
    int count = 0;
    status result;

    for (int i = 0; i < LORA_PARTS; i++) {
        if (lora_part(model, i) == NULL) continue;
        lora_stem(lora_part(model, i), -1, names[count]);
        list[count] = lora_last(names[count]);
        if (is_listed(list, count)) continue; /* c_proj of gpt2 is two */
        TRY_GOTO(done, result, text_printf(&all, "%s, ", list[count]));
        count++;
    }
    if (count == 0)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "lora.rank: %s has no matrices that take adapters here; "
                  "leave it out", model->kind->name);
    near = text_nearest(target, list, count);
    FAIL_GOTO(done, result, ERR_CONFIG,
              "lora.targets: %.60s is not %sor all%s%s", target, all.bytes,
              near != NULL ? "; nearest: " : "", near != NULL ? near : "");
done:
    text_free(&all);
    return result;
}

/* Is the name the stem, or its end after a dot? */
static bool names_stem(const char *target, const char *stem)
{
    const size_t length = strlen(stem), end = strlen(target);

    if (end == 0 || end > length || strcmp(stem + length - end, target) != 0)
        return false;
    return end == length || stem[length - end - 1] == '.';
}

/* The parts that a target names: several where a family uses a name twice.
 * `all` leaves out the experts that tokens choose, which are most of a model's
 * matrices; all-linear, PEFT's word, has them. PEFT's names of parameters
 * count, too. Routers are asked for by name, theirs or "router": who trains
 * them changes which expert learns what. */
static unsigned parts_of(const struct model *model, const char *target)
{
    const bool every = strcmp(target, "all-linear") == 0;
    const bool all = every || strcmp(target, "all") == 0;
    char stem[LORA_NAME_BYTES];
    unsigned parts = 0;

    for (int i = 0; i < LORA_PARTS; i++) {
        if (lora_part(model, i) == NULL) continue;
        lora_stem(lora_part(model, i), -1, stem);
        if (((every || (all && i < LORA_EXPERTS)) && i != LORA_ROUTER) ||
            (i == LORA_ROUTER && strcmp(target, "router") == 0) ||
            lora_is_parameter(model, target, i) ||
            names_stem(target, stem))
            parts |= 1u << i;
    }
    return parts;
}

status lora_choose(struct model *model, const struct lora_wish *wish)
{
    struct lora *lora = &model->lora;
    struct lora_site site = {{0}};
    int class;

    *lora = (struct lora){0};
    if (wish->rank == 0) return OK;
    lora->rank = wish->rank;
    lora->alpha = wish->alpha;
    lora->root = wish->root;
    TRY(lora_class(lora, wish->rank, wish->alpha, &class));
    for (int i = 0; i < wish->count; i++) {
        const unsigned parts = parts_of(model, wish->targets[i]);

        if (parts == 0) return fail_target(model, wish->targets[i]);
        for (int j = 0; j < LORA_PARTS; j++)
            if (parts >> j & 1) site.class[j] = (unsigned char)class;
    }
    if (wish->count == 0)
        FAIL(ERR_CONFIG, "lora.targets: empty; all takes every matrix of the "
                         "blocks that every token meets");
    TRY(lora_add_layer(lora, 0, &site));
    return lora_check(model);
}
