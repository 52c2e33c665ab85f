/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - times layouts that fit, in the order of a bound from below. */
#include "planner/search.h"

#include <stdlib.h>
#include <string.h>

#include "planner/search_families.h"
#include "planner/search_layouts.h"
#include "planner/search_time.h"

const char *const objective_names[OBJECTIVES] = {"time", "cost", "memory"};

enum { TIMED_MOST = 160 };

struct hunt {
    struct search *out;
    const struct search_request *request;
    int timed[TIMED_MOST]; /* of out->found: those that were timed */
};

/* ---- the clock ---- */

static int by_bound(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return x->bound_s < y->bound_s ? -1 : x->bound_s > y->bound_s;
}

static int by_memory(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return x->memory_bytes < y->memory_bytes ? -1
                                             : x->memory_bytes >
                                                   y->memory_bytes;
}

static int by_time(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->timed != y->timed) return x->timed ? -1 : 1;
    if (!x->timed) return by_bound(a, b);
    return x->score < y->score ? -1 : x->score > y->score;
}

/* A layout that was timed and has the same lists; NULL: there is none. */
static const struct candidate *timed_twin(const struct hunt *h,
                                          const struct candidate *c)
{
    for (int64_t i = 0; i < h->out->timed; i++) {
        const struct candidate *twin = &h->out->found[h->timed[i]];

        if (search_twins(&twin->layout, &c->layout, h->request->shape))
            return twin;
    }
    return NULL;
}

/* Candidates that are timed together: none asks how long another one takes. */
struct batch { int which[TIMED_MOST], count; };

static void batch_add(const struct hunt *h, struct batch *batch, int i)
{
    struct candidate *c = &h->out->found[i];

    if (c->timed || h->out->timed + batch->count >= TIMED_MOST) return;
    c->timed = true;
    batch->which[batch->count++] = i;
}

static void batch_time(struct hunt *h, struct batch *batch)
{
    struct candidate *const found = h->out->found;
    const struct candidate *twins[TIMED_MOST];
    int alone[TIMED_MOST], count = 0;

    for (int i = 0; i < batch->count; i++) {
        twins[i] = timed_twin(h, &found[batch->which[i]]);
        if (twins[i] == NULL) alone[count++] = batch->which[i];
        h->timed[h->out->timed++] = batch->which[i];
    }
    search_time_all(h->request, found, alone, count);
    for (int i = 0; i < batch->count; i++) {
        struct candidate *c = &found[batch->which[i]];

        if (twins[i] != NULL) {
            c->prediction = twins[i]->prediction;
            c->prediction.memory_bytes = c->memory_bytes;
        }
        c->score = c->whole_s = c->prediction.step_s;
        if (h->request->objective == OBJECTIVE_COST)
            c->score *= layout_ranks(&c->layout);
    }
    batch->count = 0;
}

/* Times the candidate of each family that has the least lower bound, so that
 * the table can say why the family lost. */
static void time_families(struct hunt *h)
{
    struct search *s = h->out;
    struct batch batch = {.count = 0};

    for (int i = 0; i < s->count; i++) {
        int values[CHOICES];

        families_values(&s->found[i].layout,
                  search_schedule_of(&s->found[i].layout), values);
        for (int c = 0; c < CHOICES; c++) {
            struct family *f = families_find(s, c, values[c]);

            if (f == NULL || f->best >= 0) continue;
            f->best = i;
            batch_add(h, &batch, i);
        }
    }
    batch_time(h, &batch);
}

/* The top-th best time so far. */
static double worst_of_best(const struct search *s, int top)
{
    double best[TOP_MOST];
    int count = 0;

    for (int j = 0; j < s->count; j++) {
        const double t = s->found[j].score;
        int at = count;

        if (!s->found[j].timed) continue;
        while (at > 0 && best[at - 1] > t) at--;
        if (at >= top) continue;
        if (count < top) count++;
        for (int k = count - 1; k > at; k--) best[k] = best[k - 1];
        best[at] = t;
    }
    return count == top ? best[count - 1] : 1e300;
}

/* Times in the order of the bound until no bound is below the worst of the
 * best. */
static void time_best(struct hunt *h)
{
    enum { TOGETHER = 16 };
    struct search *s = h->out;
    struct batch batch = {.count = 0};
    double worst = 1e300;
    int better = 0;

    for (int i = 0; i < s->count && s->timed + batch.count < TIMED_MOST; i++) {
        if (s->found[i].bound_s > worst) break;
        batch_add(h, &batch, i);
        if (++better % TOGETHER != 0 || i + 1 < h->request->top) continue;
        batch_time(h, &batch);
        worst = worst_of_best(s, h->request->top);
    }
    batch_time(h, &batch);
}

status search_run(struct search *search, const struct search_request *request)
{
    struct hunt h = {.out = search, .request = request};
    struct batch batch = {.count = 0};

    *search = (struct search){0};
    const status result = search_enumerate(search, request);
    if (result != OK) search_free(search);
    TRY(result);
    if (search->count == 0) return OK; /* no layout fits: nothing to sort */
    if (request->objective == OBJECTIVE_MEMORY) {
        qsort(search->found, (size_t)search->count, sizeof *search->found,
              by_memory);
        for (int i = 0; i < search->count && i < request->top; i++)
            batch_add(&h, &batch, i);
        batch_time(&h, &batch);
        return OK;
    }
    qsort(search->found, (size_t)search->count, sizeof *search->found,
          by_bound);
    time_families(&h);
    time_best(&h);
    qsort(search->found, (size_t)search->count, sizeof *search->found,
          by_time);
    search_settle(search, 0);
    return OK;
}

void search_free(struct search *search)
{
    memory_free(search->found);
    *search = (struct search){0};
}
