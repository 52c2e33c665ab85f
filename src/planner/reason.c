/* SPDX-License-Identifier: Apache-2.0 */
/* reason.c - why a layout loses against the best one, in words. */
#include "planner/search.h"

#include <string.h>

#include "planner/network.h"
#include "planner/search_sets.h"

struct loss { const char *words; double seconds; };

static double arithmetic(const struct prediction *p)
{
    return p->path_s[CAUSE_PRODUCT] + p->path_s[CAUSE_ATTENTION] +
           p->path_s[CAUSE_MEMORY] + p->path_s[CAUSE_LAUNCH] -
           p->bubble_rate * p->body_s;
}

/* The largest difference between a layout and the best one. */
static struct loss largest(const struct candidate *worse,
                           const struct candidate *best)
{
    const struct prediction *a = &worse->prediction, *b = &best->prediction;
    const struct loss losses[] = {
        {"the bubble", a->bubble_rate * a->body_s -
                           b->bubble_rate * b->body_s},
        {"messages between tensor ranks",
         a->exposed_s[AXIS_TENSOR] - b->exposed_s[AXIS_TENSOR]},
        {"messages between context ranks",
         a->exposed_s[AXIS_CONTEXT] - b->exposed_s[AXIS_CONTEXT]},
        {"sums of gradients", a->exposed_s[AXIS_DATA] -
                                  b->exposed_s[AXIS_DATA]},
        {"gathering of weights", a->exposed_s[AXIS_SHARD] -
                                     b->exposed_s[AXIS_SHARD]},
        {"transfers in the pipeline",
         a->exposed_s[AXIS_PIPE] - b->exposed_s[AXIS_PIPE]},
        {"the update", a->path_s[CAUSE_UPDATE] - b->path_s[CAUSE_UPDATE]},
        {worse->layout.recompute > best->layout.recompute
             ? "recomputation"
             : worse->layout.tensor > best->layout.tensor
                   ? "narrower products" : "arithmetic",
         arithmetic(a) - arithmetic(b)}};
    struct loss most = losses[0];

    for (int i = 1; i < (int)(sizeof losses / sizeof *losses); i++)
        if (losses[i].seconds > most.seconds) most = losses[i];
    return most;
}

static bool leaves_node(const struct layout *l)
{
    const struct group_shape tensor = group_of(l, CAUSE_TENSOR);

    return tensor.ranks > 1 && group_on_node(l, tensor) < tensor.ranks;
}

void search_reason(const struct search *search, const struct family *family,
                   const struct search_request *request, char *out,
                   size_t size)
{
    const struct candidate *best = &search->found[search->first];
    const struct candidate *worse =
        family->best >= 0 ? &search->found[family->best] : NULL;
    char bytes[32];

    (void)request;
    if (worse == NULL && family->feasible > 0) {
        snprintf(out, size, "refused or too large when planned exactly");
        return;
    }
    if (worse == NULL) {
        snprintf(out, size, "%s over at pipe rank %d",
                 text_bytes(bytes, (uint64_t)family->least_over),
                 family->position);
        return;
    }
    if (!worse->timed || !best->timed || worse->prediction.step_s > 1e299) {
        snprintf(out, size, "its bound of %.4g s is above the best",
                 worse->bound_s);
        return;
    }
    const double slower = worse->score / best->score - 1;

    if (slower < 0.001) {
        snprintf(out, size, worse == best ? "the best has it"
                                          : "as fast as the best");
        return;
    }
    const struct loss loss = largest(worse, best);

    snprintf(out, size, "%.1f%% slower, %.1f%% to %s%s", 100 * slower,
             100 * loss.seconds / best->prediction.step_s, loss.words,
             leaves_node(&worse->layout) ? "; its tensor ranks leave the node"
                                         : "");
}

/* Whether so many tensor and context ranks divide the model: planned. */
static bool divide(const struct search_request *r, int t, int c)
{
    const struct shape *s = r->shape;
    const struct layout l = {
        .as = r->as, .shard = 1, .expert = 1, .tensor = t, .context = c,
        .pipe = 1, .data = 1, .batch = r->batch, .micro_batch = 1,
        .microbatches = 1, .chunks = 1, .schedule = "1f1b", .bits = r->bits,
        .threads = r->threads, .sequence_parallel = t > 1};
    struct frames frames;

    if (s->heads % t != 0 || s->width % t != 0 || s->feed_forward % t != 0 ||
        s->sequence % (2 * c) != 0 || (c > 1 && s->sequence / c < 1024))
        return false;
    if (r->as != AS_LOCKSTEP || frames_of(&frames, &l, s) == OK) return true;
    status_clear();
    return false;
}

/* The largest divisor of the batch that is no more than `most`. */
static int data_ranks(int64_t batch, int most)
{
    int d = batch < most ? (int)batch : most;

    while (batch % d != 0) d--;
    return d;
}

int search_nearest(const struct search_request *r)
{
    int nearest = 1;

    for (int t = 1; t <= TENSOR_MOST && t <= r->ranks; t++)
        for (int c = 1; c <= CONTEXT_MOST && c <= r->ranks / t; c++) {
            if (!divide(r, t, c)) continue;
            for (int p = 1; p <= PIPE_MOST && p <= r->shape->layers &&
                            p <= r->ranks / t / c; p++) {
                const int each = t * c * p;
                const int ranks = each * data_ranks(r->batch, r->ranks / each);

                if (ranks > nearest) nearest = ranks;
            }
        }
    return nearest;
}
