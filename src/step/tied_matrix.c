/* SPDX-License-Identifier: Apache-2.0 */
/* tied_matrix.c - a matrix that two stages use. */
#include "step/tied_matrix.h"

#include "comm/progress.h"

enum { AT_ONCE = TIED_AT_ONCE, TIED_TAG = INT32_MAX - 1 };

static struct tensor gradient_of(const struct stage *stage,
                                 const struct pipeline_share *share)
{
    const enum dtype dtype = program_real(&stage->program);

    return tensor_1d((char *)stage->memory[MEMORY_GRADIENTS].data +
                         share->first * dtype_bytes(dtype),
                     dtype, share->elements);
}

void tied_build(struct tied *tied, struct pipeline *pipeline,
                struct team *team)
{
    *tied = (struct tied){.pipeline = pipeline, .team = team,
                          .room = pipeline->stages[0].memory[MEMORY_TIED].data};
}

/* Part by part: mine goes, the other's comes and is added. */
static status exchange(struct tied *tied, struct stage *stage,
                       struct tensor gradient, int peer)
{
    struct group *pipe = team_group(tied->team, AXIS_PIPE);

    for (int64_t at = 0; at < gradient.shape[0]; at += AT_ONCE) {
        const int64_t left = gradient.shape[0] - at;
        const int64_t n = left < AT_ONCE ? left : AT_ONCE;
        const struct tensor mine = tensor_1d(
            (char *)gradient.data + at * dtype_bytes(gradient.dtype),
            gradient.dtype, n);
        const struct tensor other = tensor_1d(tied->room, gradient.dtype, n);
        const struct comm_call send = {.kind = COMM_SEND, .in = mine,
                                       .peer = peer, .tag = TIED_TAG};
        struct comm_handle handle;
        status result;

        TRY(comm_start(pipe, &send, &handle));
        result = comm_recv(pipe, other, peer, TIED_TAG);
        if (result != OK) group_abort(pipe, status_message());
        if (result == OK) result = comm_wait(&handle);
        else comm_wait(&handle);
        TRY(result);
        TRY(stage->kernels.add(&stage->stream, mine, mine, other));
    }
    return OK;
}

/* Both uses are on this rank. */
static status add_here(struct stage *first, struct tensor x, struct tensor y)
{
    TRY(first->kernels.add(&first->stream, x, x, y));
    return first->kernels.scale(&first->stream, y, x, 1.0);
}

/* Chunks of direction 0 come first on every rank, so that two ranks meet in
 * the same exchange. */
status tied_add(struct tied *tied, int chunk)
{
    const struct pipeline *p = tied->pipeline;
    const struct pipeline_share share = pipeline_share(p, chunk);
    struct stage *stage = &p->stages[chunk];
    const struct tensor mine = gradient_of(stage, &share);

    if (share.chunk < 0) return exchange(tied, stage, mine, share.peer);
    const struct pipeline_share other = pipeline_share(p, share.chunk);

    return add_here(stage, mine,
                    gradient_of(&p->stages[share.chunk], &other));
}
