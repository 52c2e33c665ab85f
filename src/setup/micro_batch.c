/* SPDX-License-Identifier: Apache-2.0 */
/* micro_batch.c - how many sequences of a step are worked on at once. */
#include "setup/micro_batch.h"

#include "kernels/cuda_about.h"

enum {
    TOKENS_LEAST = 1024, /* fewer make products slower */
    GPU_TOKENS_LEAST = 8192,
    GPU_PART = 4,        /* of its memory is room for activations */
    SAVED_PART = 10      /* of the bytes: less is not worth another part */
};
static const double small = 256e6; /* bytes of activations: any machine has so
                                    * many free */
static const double gpu_bytes = 0x1p34; /* few GPUs have less memory */

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

static bool is_gpu(const struct stage_request *r)
{
    char found[320];

    return r->machine.device == DEVICE_CUDA ||
           (r->machine.device == DEVICE_AUTO &&
            cuda_about(found, sizeof found) == CUDA_LOADS);
}

/* For activations, on a GPU: the same on all ranks, and where it is planned. */
static double gpu_room(const struct stage_request *r)
{
    const double limit = r->recomputation.fits; /* train.memory */

    return (limit > 0 ? limit : gpu_bytes) / GPU_PART;
}

static bool may_halve(const struct stage_request *r, int64_t batch, int leaves,
                      int parts, int64_t tokens)
{
    return leaves % parts == 0 && batch % parts == 0 &&
           batch / parts * r->size.length >= tokens;
}

/* The fewest parts that there is room for: a GPU is idle while it is told of
 * little work. */
static int64_t choose_for_gpu(const struct stage_request *r, int64_t batch,
                              int leaves)
{
    const double room = gpu_room(r);
    int parts = 1;

    while (bytes_with(r, batch, parts) > room &&
           may_halve(r, batch, leaves, 2 * parts, GPU_TOKENS_LEAST))
        parts *= 2;
    return batch / parts;
}

int64_t micro_batch_choose(const struct stage_request *request, int64_t batch,
                           int leaves)
{
    double least = bytes_with(request, batch, 1);
    int best = 1;

    if (least < small) return batch;
    if (is_gpu(request)) return choose_for_gpu(request, batch, leaves);
    for (int parts = 2; may_halve(request, batch, leaves, parts, TOKENS_LEAST);
         parts *= 2) {
        const double bytes = bytes_with(request, batch, parts);

        if (bytes > least - least / SAVED_PART) continue;
        least = bytes;
        best = parts;
    }
    return batch / best;
}
