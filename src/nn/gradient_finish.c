/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_finish.c - the roots of all uses of a parameter become one. */
#include "nn/gradient.h"

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

status gradients_finish(struct gradients *g)
{
    gradients_close(g);
    /* As backward makes them: the last use first. */
    for (int i = g->program->use_count - 1; i >= 0; i--) {
        const int taker = gradient_taker(g->program, i);

        if (taker < 0 || g->program->uses[i].rows > 0 ||
            !gradient_made(g->program, i))
            continue;
        const struct tensor root = gradient_root(g, taker);

        TRY(g->kernels->add(g->stream, root, root, gradient_root(g, i)));
    }
    return gradients_add_named(g);
}

/* Some rows of a table take theirs; the others + 0. */
static status add_block(struct gradients *g, struct tensor table, int64_t first,
                        struct tensor root)
{
    const int64_t left = table.shape[0] - first;
    const int64_t rows = left < TIED_BLOCK ? left : TIED_BLOCK;
    const int64_t width = table.shape[1];
    const size_t bytes = (size_t)(width * dtype_bytes(table.dtype));
    char *block = (char *)g->partials +
                  g->named_block * dtype_bytes(table.dtype);
    struct tensor to = flat(tensor_rows(table, first, rows));

    TRY(device_fill(g->stream, block, 0, (size_t)rows * bytes));
    for (int64_t i = 0; i < rows; i++) {
        const int32_t place = g->named.places[first + i];

        if (place >= 0)
            TRY(device_copy(g->stream, block + (size_t)i * bytes,
                            (char *)root.data + (size_t)place * bytes,
                            bytes));
    }
    return g->kernels->add(g->stream, to, to,
                           tensor_1d(block, to.dtype, rows * width));
}

status gradients_add_named(struct gradients *g)
{
    for (int i = 0; i < g->program->use_count; i++) {
        if (g->program->uses[i].rows == 0 || !gradient_made(g->program, i))
            continue;
        const struct tensor table = gradient_first_root(g, i);

        for (int64_t row = 0; row < table.shape[0]; row += TIED_BLOCK)
            TRY(add_block(g, table, row, gradient_root(g, i)));
    }
    return OK;
}
