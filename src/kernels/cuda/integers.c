/* SPDX-License-Identifier: Apache-2.0 */
/* integers.c - starts the kernel of integers.cu. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

status cuda_integer_product(struct stream *stream,
                            const struct integer_product *p)
{
    struct integer_tiles_call call = {
        .of = *p, .leaves = p->order->leaves,
        .column_tiles = parts_of(p->c.shape[1], PRODUCT_TILE)};

    integer_product_check(p);
    if (p->bias) call.bias = *p->bias;
    if (p->left) call.left = *p->left;
    TRY(cuda_copy(stream, p->order->segments,
                  (size_t)p->order->segment_count * sizeof *call.segments,
                  (const void **)&call.segments));
    LAUNCH(stream, integer_tiles,
           parts_of(p->c.shape[0], PRODUCT_TILE) * call.column_tiles, &call);
    return OK;
}
