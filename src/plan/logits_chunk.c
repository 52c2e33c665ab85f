/* SPDX-License-Identifier: Apache-2.0 */
/* logits_chunk.c - how many tokens have logits at once. */
#include "plan/logits_chunk.h"

enum {
    LOGITS_BYTES = 128 << 20, /* of an automatic choice, at most */
    LOGITS_TOKENS = 1024      /* beyond, more tokens make no product faster */
};

/* Logits of so many tokens at once, and the sums of the head's gradient that
 * wait for their siblings when a step has several chunks: a product adds the
 * last sibling itself, unless it has a part of a leaf only. */
static double logits_bytes(const struct stage_request *r, int64_t tokens,
                           int64_t length)
{
    const double real = (double)dtype_bytes(dtype_real(r->dtype));
    const double parts =
        (double)r->size.batch * (double)length / (double)tokens;
    const int at_once = tokens < length ? 1 : 2;
    const int leaves = r->layout.grid.data;
    int waiting = 0;

    for (int nodes = leaves < parts ? leaves : (int)parts; nodes > at_once;
         nodes = (nodes + 1) / 2)
        waiting++;
    return real * (double)r->model->vocab *
           ((double)tokens + waiting * (double)r->model->width);
}

/* Whole sequences that fit, as few as take the least memory. */
static int64_t thrifty_tokens(const struct stage_request *r, int64_t most,
                              int64_t length)
{
    const double small = LOGITS_BYTES / 4;
    int64_t best = most;

    for (int64_t tokens = most; tokens >= LOGITS_TOKENS && tokens >= length;
         tokens = tokens / 2 / length * length)
        if (logits_bytes(r, best, length) > small &&
            logits_bytes(r, tokens, length) < logits_bytes(r, best, length))
            best = tokens;
    return best;
}

/* Whole sequences while they fit, else granules of one sequence, or what a
 * library sums at once. */
int64_t logits_chunk(const struct stage_request *request)
{
    const int64_t row = request->model->vocab *
                        dtype_bytes(dtype_real(request->dtype));
    const int64_t fit = LOGITS_BYTES / row > 0 ? LOGITS_BYTES / row : 1;
    const int64_t length =
        request->size.length / request->layout.mesh.size[AXIS_CONTEXT];
    const int64_t tokens = request->size.micro_batch * length;
    const int64_t grain = request->machine.fast ? PRODUCT_UNIT : GRANULE;
    int64_t wanted = request->size.logits_chunk ? request->size.logits_chunk
                                                : fit;

    if (wanted > tokens) wanted = tokens;
    if (wanted >= length) {
        wanted = wanted / length * length;
        return request->size.logits_chunk
                   ? wanted : thrifty_tokens(request, wanted, length);
    }
    wanted = wanted / grain * grain;
    if (wanted < grain) wanted = grain;
    if (wanted >= length || (!request->size.logits_chunk &&
                             logits_bytes(request, length, length) <
                                 logits_bytes(request, wanted, length)))
        return length;
    return wanted;
}
