/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_price.c - the price of reducing divided gradients after every
 * micro-batch, and of doing it once a step. */
#include "plan/reduce_price.h"

static double nodes_of(const struct cut *cut)
{
    return node_limit(cut, !cut->shared);
}

struct reduce_price reduce_price(const struct reduce_facts *f, bool each)
{
    const double part = (f->ranks - 1.0) / f->ranks;
    const int rounds = (int)f->cut.micro_batches;
    struct cut round = f->cut;
    double levels = 1;

    if (!each) return (struct reduce_price){nodes_of(&f->cut), part};
    for (int left = rounds; left > 1; left /= 2) levels++;
    round.data_leaves /= rounds;
    round.micro_batches = 1;
    return (struct reduce_price){
        levels / f->ranks + 2 / f->units + nodes_of(&round) - 1,
        rounds * part};
}

/* Whether gradients of a round have travelled before those of the next come. */
static bool is_hidden(const struct reduce_facts *f)
{
    const double flop = 6.0 * (double)f->tokens;
    const double bytes = 4 * (f->ranks - 1.0) / f->ranks;

    return !f->idle && flop >= bytes * REDUCE_FLOP_A_BYTE;
}

bool reduce_each_pays(const struct reduce_facts *f)
{
    return reduce_price(f, true).kept < reduce_price(f, false).kept &&
           (f->cut.micro_batches == 1 || is_hidden(f));
}
