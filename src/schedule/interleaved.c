/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved.c - several chunks a rank: stage c * ranks + r is chunk c of
 * rank r. Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2
 * (interleaved); Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2 (any
 * group, any number of micro-batches); Lamy-Poirier 2022, arXiv:2211.05953
 * (breadth-first). */
#include "schedule/generate.h"

/* Forwards go in groups: all micro-batches of a group through chunk 0, then
 * all through chunk 1, ...; backwards likewise from the last chunk. Groups are
 * as equal as can be: the first `larger` have one micro-batch more. */
struct order { int ranks, chunks, group, larger, microbatches; };

/* The n-th forward of a rank; the n-th backward with chunks reversed. */
static void nth(const struct order *o, int n, int *chunk, int *microbatch)
{
    const int large = o->larger * (o->group + 1); /* micro-batches in them */
    const bool late = n >= large * o->chunks;
    const int size = late ? o->group : o->group + 1;
    const int left = late ? n - large * o->chunks : n;
    const int first = left / (size * o->chunks) * size;
    const int inside = left - first * o->chunks;

    *chunk = inside / size;
    *microbatch = (late ? large : 0) + first + inside % size;
}

static status add_forward(struct schedule *s, int rank, const struct order *o,
                          int n)
{
    int chunk, microbatch;

    nth(o, n, &chunk, &microbatch);
    return schedule_add(s, rank,
                        action_of(ACTION_FORWARD, chunk * o->ranks + rank,
                                  microbatch, false));
}

static status add_nth_backward(struct schedule *s, int rank,
                               const struct order *o, int n)
{
    int chunk, microbatch;

    nth(o, n, &chunk, &microbatch);
    return add_backward(s, rank, (o->chunks - 1 - chunk) * o->ranks + rank,
                        microbatch, true);
}

/* `warmup` forwards, then a forward and a backward in turn. */
static status order_rank(struct schedule *s, int rank, const struct order *o,
                         int64_t warmup)
{
    const int total = o->microbatches * o->chunks;
    int f = 0;

    while (f < total && f < warmup) TRY(add_forward(s, rank, o, f++));
    for (int b = 0; b < total; b++) {
        if (f < total) TRY(add_forward(s, rank, o, f++));
        TRY(add_nth_backward(s, rank, o, b));
    }
    return OK;
}

static status begin(struct schedule *out, const struct schedule_request *r)
{
    if ((int64_t)r->microbatches * r->chunks > 1 << 28)
        FAIL(ERR_CONFIG, "schedule %s: %d micro-batches of %d chunks are too "
                         "many", r->name, r->microbatches, r->chunks);
    TRY(schedule_begin(out, r->ranks, r->ranks * r->chunks, r->microbatches));
    for (int stage = 0; stage < out->stages; stage++)
        out->places[0][stage] = stage % r->ranks;
    return OK;
}

/* At most the wanted number in a group, but no group smaller than the ranks:
 * its forwards would wait for backwards that wait for them. */
static struct order equal_groups(const struct schedule_request *r, int wanted)
{
    const int m = r->microbatches;
    int groups = (int)(((int64_t)m + wanted - 1) / wanted);

    if (groups > 1 && m / groups < r->ranks) groups--;
    return (struct order){r->ranks, r->chunks, m / groups, m % groups, m};
}

status fill_interleaved(struct schedule *out, const struct schedule_request *r)
{
    const int wanted = r->group != 0 ? r->group : r->ranks;
    struct order order;
    int largest;

    if (wanted < r->ranks)
        FAIL(ERR_CONFIG, "schedule interleaved: a group of %d micro-batches "
                         "on %d ranks would wait for itself; at least %d",
             wanted, r->ranks, r->ranks);
    TRY(begin(out, r));
    order = equal_groups(r, wanted);
    largest = order.group + (order.larger > 0);
    for (int rank = 0; rank < r->ranks; rank++)
        TRY(order_rank(out, rank, &order,
                       (int64_t)(r->chunks - 1) * largest +
                           2 * (r->ranks - 1 - rank)));
    return OK;
}

/* One group of all micro-batches, and no backward before the last forward. */
status fill_breadth_first(struct schedule *out,
                          const struct schedule_request *r)
{
    const struct order order = {r->ranks, r->chunks, r->microbatches, 0,
                                r->microbatches};

    TRY(begin(out, r));
    for (int rank = 0; rank < r->ranks; rank++)
        TRY(order_rank(out, rank, &order, INT64_MAX));
    return OK;
}
