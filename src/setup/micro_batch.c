/* SPDX-License-Identifier: Apache-2.0 */
/* micro_batch.c - how many sequences of a step are worked on at once. */
#include "setup/micro_batch.h"

enum {
    TOKENS_LEAST = 1024, /* fewer make products slower */
    SAVED_PART = 10      /* of the bytes: less is not worth another part */
};
static const double small = 256e6; /* bytes of activations: any machine has so
                                    * many free */

/* About the activations of a token that live until its backward pass. */
static double token_bytes(const struct stage_request *r)
{
    const struct model *m = r->model;
    const double floats = 5.0 * (double)m->width +
                          2.0 * (double)(m->kv_heads * m->head_width) +
                          3.0 * model_inner_used(m);

    return floats * m->layers * (double)dtype_bytes(r->dtype);
}

/* Parameters of the blocks, and of the table and the head. */
static double parameters(const struct model *m)
{
    const double width = (double)m->width;
    const double heads = 2.0 * (double)((m->heads + m->kv_heads) *
                                        m->head_width);

    return width * (m->layers * (heads + 3.0 * model_inner_held(m)) +
                    (m->tied ? 1 : 2) * (double)m->vocab);
}

/* Activations, and gradients that wait for their siblings: of two parts, the
 * second adds itself to the first. */
static double bytes_with(const struct stage_request *r, int64_t batch,
                         int parts)
{
    const double real = (double)dtype_bytes(dtype_real(r->dtype));
    int waiting = 0;

    for (int nodes = parts; nodes > 2; nodes /= 2) waiting++;
    return token_bytes(r) * (double)(batch * r->size.length) / parts +
           real * waiting * parameters(r->model);
}

int64_t micro_batch_choose(const struct stage_request *request, int64_t batch,
                           int leaves)
{
    double least = bytes_with(request, batch, 1);
    int best = 1;

    if (least < small) return batch;
    for (int parts = 2; leaves % parts == 0 && batch % parts == 0 &&
                        batch / parts * request->size.length >= TOKENS_LEAST;
         parts *= 2) {
        const double bytes = bytes_with(request, batch, parts);

        if (bytes > least - least / SAVED_PART) continue;
        least = bytes;
        best = parts;
    }
    return batch / best;
}
