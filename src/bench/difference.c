/* SPDX-License-Identifier: Apache-2.0 */
/* difference.c - the operands of a kernel beside those of the reference. */
#include "bench/difference.h"

#include <string.h>

static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

/* Where ours is narrow, theirs may be float32 that was not rounded yet. */
static struct difference operand_compare(const struct operands *ours,
                                         const struct operands *theirs, int i)
{
    const struct tensor *a = &ours->all[i], *b = &theirs->all[i];
    uint16_t bits = 0;
    const struct tensor one = tensor_1d(&bits, a->dtype, 1);

    for (int64_t j = 0; j < a->shape[0]; j++) {
        const double found = tensor_get(a, j);
        double wanted = tensor_get(b, j);

        if (theirs->every != 0 && i == 0 &&
            !product_row_is_made(theirs, j / theirs->t[0].shape[1]))
            continue;
        if (a->dtype != b->dtype) {
            tensor_set(&one, 0, wanted);
            wanted = tensor_get(&one, 0);
        }
        if (!same(found, wanted))
            return (struct difference){true, i, j, found, wanted};
    }
    return (struct difference){0};
}

struct difference difference_find(const struct operands *ours,
                                  const struct operands *theirs)
{
    struct difference first = {0};

    for (int i = 0; i < ours->count && !first.is; i++)
        first = operand_compare(ours, theirs, i);
    for (int64_t i = 0; i < CASE_INTEGERS && !first.is; i++)
        if (!same(ours->doubles[i], theirs->doubles[i]))
            first = (struct difference){true, -1, i, ours->doubles[i],
                                        theirs->doubles[i]};
    return first;
}
