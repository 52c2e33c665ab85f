/* SPDX-License-Identifier: Apache-2.0 */
/* one_stage.c - one stage a rank: two numbers per rank make an order.
 * Source: Huang et al. 2019, arXiv:1811.06965 (gpipe); Narayanan et al. 2021,
 * arXiv:2104.04473 (1f1b); Qi et al. 2023, arXiv:2401.10241 (zb-h1, zb-h2). */
#include "schedule/generate.h"

/* Some F to warm up; then B, a late W and the next F in turn; then the W that
 * are left. A rank holds at most warmup + lag micro-batches. */
struct policy {
    int (*warmup)(int rank, int ranks, int microbatches);
    int lag;       /* by how many micro-batches W is behind B, times rank */
    bool together; /* B and W are one piece: the gradient is sent after W */
};

static int all(int rank, int ranks, int microbatches)
{
    (void)rank;
    (void)ranks;
    return microbatches;
}

static int depth(int rank, int ranks, int microbatches)
{
    (void)microbatches;
    return ranks - rank;
}

static int twice(int rank, int ranks, int microbatches)
{
    (void)microbatches;
    return 2 * (ranks - rank) - 1;
}

static status order_rank(struct schedule *s, int rank,
                         const struct policy *policy)
{
    const int count = s->microbatches;
    const int warmup = policy->warmup(rank, s->ranks, count);
    const int lag = policy->lag * rank;
    int f = 0, w = 0;

    while (f < warmup && f < count)
        TRY(schedule_add(s, rank, action_of(ACTION_FORWARD, rank, f++,
                                            false)));
    for (int b = 0; b < count; b++) {
        TRY(schedule_add(s, rank, action_of(ACTION_BACKWARD_INPUT, rank, b,
                                            false)));
        if (b >= lag)
            TRY(schedule_add(s, rank, action_of(ACTION_BACKWARD_WEIGHT, rank,
                                                w++, policy->together)));
        if (f < count)
            TRY(schedule_add(s, rank, action_of(ACTION_FORWARD, rank, f++,
                                                false)));
    }
    while (w < count)
        TRY(schedule_add(s, rank, action_of(ACTION_BACKWARD_WEIGHT, rank, w++,
                                            false)));
    return OK;
}

static status fill(struct schedule *out, const struct schedule_request *r,
                   struct policy policy)
{
    TRY(schedule_begin(out, r->ranks, r->ranks, r->microbatches));
    for (int rank = 0; rank < r->ranks; rank++) {
        out->places[0][rank] = rank;
        TRY(order_rank(out, rank, &policy));
    }
    return OK;
}

status fill_gpipe(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, (struct policy){all, 0, true});
}

status fill_gpipe_early(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, (struct policy){all, 0, false});
}

status fill_1f1b(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, (struct policy){depth, 0, true});
}

status fill_1f1b_early(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, (struct policy){depth, 0, false});
}

status fill_zb_h1(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, (struct policy){depth, 1, false});
}

status fill_zb_h2(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, (struct policy){twice, 2, false});
}
