/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c - a walk over the pieces of a step. */
#include "mesh/pieces.h"

bool cut_leaves_lie_apart(const struct cut *cut)
{
    for (int64_t i = 0; i < cut->micro_batches; i++) {
        struct piece_cursor cursor = {0};
        struct piece piece;

        while (piece_next(cut, i, &cursor, &piece))
            if (!piece.begins || !piece.completes) return true;
    }
    return false;
}
