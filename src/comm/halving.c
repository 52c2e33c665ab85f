/* SPDX-License-Identifier: Apache-2.0 */
/* halving.c - recursive halving and doubling, for any number of ranks.
 *
 * With extra = n - 2^k ranks beyond a power of two, the first 2 extra ranks
 * form pairs: the odd one gives its whole buffer to the even one, which then
 * works for both. The 2^k workers each own the blocks of the ranks they work
 * for, which lie side by side; halving the range of workers therefore halves a
 * contiguous range of blocks. Source: Rabenseifner 2004, "Optimization of
 * collective reduction operations". */
#include "comm/algorithms.h"

struct workers {
    int count, extra;
    int me; /* -1: somebody works for this rank */
};

static struct workers workers_of(const struct circle *circle)
{
    struct workers w = {.count = 1};

    while (w.count * 2 <= circle->count) w.count *= 2;
    w.extra = circle->count - w.count;
    if (circle->me >= 2 * w.extra) w.me = circle->me - w.extra;
    else w.me = circle->me % 2 == 0 ? circle->me / 2 : -1;
    return w;
}

/* The first rank that a worker works for; of worker `count`, the end. */
static int worker_rank(const struct workers *w, int worker)
{
    return worker < w->extra ? 2 * worker : worker + w->extra;
}

static struct block worker_blocks(const struct circle *circle,
                                  const struct cut *cut,
                                  const struct workers *w, int first, int last)
{
    return cut_blocks(cut, circle->count, worker_rank(w, first),
                      worker_rank(w, last));
}

/* Between the ranks of a pair: `gives` says whether this rank sends. */
static status pair_move(struct operation *op, const struct circle *circle,
                        struct block block, bool gives, bool combines)
{
    const int other = circle_rank(circle, circle->me ^ 1);
    const struct transfer t = {
        .to = gives ? other : -1, .out = block.data, .out_bytes = block.bytes,
        .from = gives ? -1 : other, .in = block.data, .in_bytes = block.bytes,
        .combine = combines};

    return transfer_run(op, &t);
}

static status swap(struct operation *op, int peer, struct block out,
                   struct block in, bool combines)
{
    const struct transfer t = {
        .to = peer, .out = out.data, .out_bytes = out.bytes, .from = peer,
        .in = in.data, .in_bytes = in.bytes, .combine = combines};

    return transfer_run(op, &t);
}

status halving_reduce(struct operation *op, const struct circle *circle,
                      const struct cut *cut)
{
    const struct workers w = workers_of(circle);
    const bool paired = circle->me < 2 * w.extra;
    const int odd = circle->me | 1;
    int first = 0, last = w.count;

    if (paired)
        TRY(pair_move(op, circle, cut_blocks(cut, circle->count, 0,
                                             circle->count), w.me < 0, true));
    for (int half = w.count / 2; w.me >= 0 && half >= 1; half /= 2) {
        const int middle = first + half;
        const bool low = w.me < middle;
        const int peer = circle_rank(circle, worker_rank(&w, w.me ^ half));
        const struct block left = worker_blocks(circle, cut, &w, first,
                                                middle);
        const struct block right = worker_blocks(circle, cut, &w, middle,
                                                 last);

        TRY(swap(op, peer, low ? right : left, low ? left : right, true));
        if (low) last = middle;
        else first = middle;
    }
    if (paired)
        TRY(pair_move(op, circle, cut_blocks(cut, circle->count, odd, odd + 1),
                      w.me >= 0, false));
    return OK;
}

status halving_gather(struct operation *op, const struct circle *circle,
                      const struct cut *cut)
{
    const struct workers w = workers_of(circle);
    const bool paired = circle->me < 2 * w.extra;
    const int odd = circle->me | 1;

    if (paired)
        TRY(pair_move(op, circle, cut_blocks(cut, circle->count, odd, odd + 1),
                      w.me < 0, false));
    for (int half = 1; w.me >= 0 && half < w.count; half *= 2) {
        const int mine = w.me / half * half, theirs = mine ^ half;
        const int peer = circle_rank(circle, worker_rank(&w, w.me ^ half));

        TRY(swap(op, peer, worker_blocks(circle, cut, &w, mine, mine + half),
                 worker_blocks(circle, cut, &w, theirs, theirs + half),
                 false));
    }
    if (paired)
        TRY(pair_move(op, circle, cut_blocks(cut, circle->count, 0,
                                             circle->count), w.me >= 0,
                      false));
    return OK;
}
