/* SPDX-License-Identifier: Apache-2.0 */
/* addends.c - a walk over the addends of a step. */
#include "mesh/addends.h"

bool cut_leaves_lie_apart(const struct cut *cut)
{
    for (int64_t i = 0; i < cut->micro_batches; i++) {
        struct addend_cursor cursor = {0};
        struct addend addend;

        while (addend_next(cut, i, &cursor, &addend))
            if (!addend.begins || !addend.completes) return true;
    }
    return false;
}

double cut_adds_each(const struct cut *cut, bool takes)
{
    return (double)node_adds(cut, takes && !cut->shared) /
           (double)cut->micro_batches;
}
