/* SPDX-License-Identifier: Apache-2.0 */
/* known_stages.c - a stage is found by its whole request, but for the place in
 * the pipe, micro-batches in flight, and which of equal blocks it has. One for
 * another batch takes a known one's program, and plans its gradients alone. */
#include "plan/known_stages.h"

#include <string.h>

enum { KNOWN_MOST = 256, POLICY = 120 };

struct known_stage {
    struct stage_request key; /* without pointers, and what may differ */
    struct model model;
    struct slice slice;
    char policy[POLICY];
    struct stage stage;       /* owned; planned, never opened */
};

/* Whether two blocks of a model have the same steps. */
static bool blocks_alike(const struct stage_request *r, int a, int b)
{
    const struct model *m = r->model;
    const struct precision_use *p = &r->precision;
    const bool coded[] = {a >= p->first && a < p->end,
                          b >= p->first && b < p->end};

    return a == b ||
           (blocks_has(&m->moe.dense, a) == blocks_has(&m->moe.dense, b) &&
            blocks_has(&m->window.whole, a) ==
                blocks_has(&m->window.whole, b) &&
            blocks_has(&m->rope.still, a) == blocks_has(&m->rope.still, b) &&
            !m->scaled.layers && (m->lora.rank == 0 || !m->lora.varied) &&
            coded[0] == coded[1]);
}

static bool slices_alike(const struct stage_request *r, const struct slice *a,
                         const struct slice *b)
{
    if (a->begins != b->begins || a->ends != b->ends ||
        a->last - a->first != b->last - b->first)
        return false;
    for (int i = 0; i < a->last - a->first; i++)
        if (!blocks_alike(r, a->first + i, b->first + i)) return false;
    return true;
}

/* "norm,activation"; false: it is chosen by what fits, or too long. */
static bool policy_text(const struct stage_request *r, char out[POLICY])
{
    size_t used = 0;

    if (r->recomputation.count == 0) return false;
    for (int i = 0; i < r->recomputation.count && used < POLICY; i++) {
        if (strcmp(r->recomputation.policy[i], "auto") == 0) return false;
        used += (size_t)snprintf(out + used, POLICY - used, "%s,",
                                 r->recomputation.policy[i]);
    }
    return used < POLICY;
}

/* Fields that must be equal. Groups of an optimizer name parameters, and so
 * blocks: false. */
static bool key_of(const struct stage_request *r, struct stage_request *key,
                   char policy[POLICY])
{
    if (!policy_text(r, policy) || r->training.choice.groups.count > 0 ||
        r->training.choice.groups.rates != NULL)
        return false;
    memcpy(key, r, sizeof *key);
    key->model = NULL;
    memset(&key->slice, 0, sizeof key->slice);
    key->size.frames = 0;
    key->size.shares_room = false;
    key->recomputation.policy = NULL;
    key->recomputation.share = 0; /* "auto" alone reads it */
    key->recomputation.fits = 0;
    key->training.choice.groups.rows = NULL;
    key->layout.place.at[AXIS_PIPE] = 0;
    return true;
}

static bool is_same(const struct known_stage *k,
                    const struct stage_request *request,
                    const struct stage_request *key, const char *policy)
{
    return memcmp(&k->key, key, sizeof *key) == 0 &&
           strcmp(k->policy, policy) == 0 &&
           memcmp(&k->model, request->model, sizeof k->model) == 0 &&
           slices_alike(request, &k->slice, &request->slice);
}

/* One that differs in the batch alone, and was planned itself; NULL: there is
 * none. */
static const struct stage *of_another_batch(const struct known_stages *known,
                                            const struct stage_request *r,
                                            const struct stage_request *key,
                                            const char *policy)
{
    struct stage_request other;

    memcpy(&other, key, sizeof other);
    for (int i = 0; i < known->count; i++) {
        const struct known_stage *k = known->items[i];

        other.size.batch = k->key.size.batch;
        if (!k->stage.borrowed && is_same(k, r, &other, policy))
            return stage_outlives_batch(&k->stage, r) ? &k->stage : NULL;
    }
    return NULL;
}

/* Several frames: then the sizes of frames of one and of several are known. */
static status add(struct known_stages *known, const struct stage_request *r,
                  const struct stage_request *key, const char *policy)
{
    const struct stage *other = of_another_batch(known, r, key, policy);
    enum { SEVERAL = 2 };
    void *items = known->items, *memory = NULL;
    struct known_stage *k;
    struct stage_request request = *r;
    status result;

    TRY(memory_next(&items, &known->capacity, known->count, 16,
                    sizeof *known->items));
    known->items = items;
    TRY(memory_take(1, sizeof *k, &memory));
    k = memory;
    memcpy(&k->key, key, sizeof *key);
    memcpy(&k->model, r->model, sizeof k->model);
    k->slice = r->slice;
    snprintf(k->policy, sizeof k->policy, "%s", policy);
    request.model = &k->model;
    request.size.frames = SEVERAL;
    result = other != NULL
                 ? stage_plan_batch(&k->stage, other, r->size.batch)
                 : stage_plan(&k->stage, &request);
    if (result == OK) {
        known->programs += other == NULL;
        known->items[known->count++] = k;
        return OK;
    }
    stage_free(&k->stage);
    memory_free(k);
    return result;
}

status known_stages_plan(struct known_stages *known, struct stage *stage,
                         const struct stage_request *request)
{
    struct stage_request key;
    char policy[POLICY];
    int at = 0;

    if (known == NULL || !key_of(request, &key, policy))
        return stage_plan(stage, request);
    while (at < known->count &&
           !is_same(known->items[at], request, &key, policy))
        at++;
    if (at == known->count) {
        if (at == KNOWN_MOST) return stage_plan(stage, request);
        TRY(add(known, request, &key, policy));
    }
    return stage_plan_alike(stage, &known->items[at]->stage, request);
}

void known_stages_free(struct known_stages *known)
{
    for (int i = known->count - 1; i >= 0; i--) { /* later ones borrow */
        stage_free(&known->items[i]->stage);
        memory_free(known->items[i]);
    }
    memory_free(known->items);
    *known = (struct known_stages){0};
}
