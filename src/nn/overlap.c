/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.c - messages between tensor ranks while products are made. */
#include "nn/run.h"

int overlap_pieces(const struct program *p)
{
    const int64_t rows = program_rows(p);

    if (p->overlap <= 1 || program_tensor_ranks(p) == 1) return 1;
    return rows < p->overlap ? (int)rows : p->overlap;
}

/* Chunks of sequences [first, first + count) of a piece. */
static struct layout_span piece_span(const struct program *p, int piece)
{
    const int64_t rows = program_rows(p), pieces = overlap_pieces(p);
    const int64_t first = rows * piece / pieces;

    return (struct layout_span){first, rows * (piece + 1) / pieces - first};
}

struct tensor overlap_rows(const struct program *p, struct tensor matrix,
                           int piece)
{
    const struct layout_span span = piece_span(p, piece);
    const int64_t each = matrix.shape[0] / program_rows(p);

    return tensor_rows(matrix, span.first * each, span.count * each);
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

/* Waits for pieces until `pieces` are there; the first error of all. */
static status wait_until(struct overlap *o, int pieces)
{
    status result = OK;

    while (o->waited < pieces) {
        const status waited = comm_wait(&o->handles[o->waited++]);

        if (result == OK) result = waited;
    }
    return result;
}

/* What is still under way ends first. */
static status begin(struct run *run, struct overlap *o, const void *data,
                    int64_t width)
{
    const struct program *p = run->program;

    CHECK(run->tensor != NULL);
    if (o->data != NULL) TRY(wait_until(o, o->started));
    o->data = data;
    o->started = o->waited = 0;
    for (int i = 0; i < program_tensor_ranks(p); i++)
        o->counts[i] = program_part(p, i).count * width;
    return OK;
}

static status start(struct run *run, struct overlap *o,
                    const struct comm_call *call)
{
    CHECK(o->started < OVERLAP_PIECES_MAX);
    o->handles[o->started] = (struct comm_handle){0};
    TRY(comm_start(run->tensor, call, &o->handles[o->started]));
    o->started++;
    return OK;
}

status overlap_gather(struct run *run, struct tensor whole,
                      struct tensor part)
{
    const struct program *p = run->program;
    struct overlap *o = &run->overlaps[OVERLAP_GATHER];

    TRY(begin(run, o, whole.data, whole.shape[1]));
    for (int i = 0; i < overlap_pieces(p); i++) {
        const struct comm_call call = {
            .kind = COMM_ALL_GATHER, .algorithm = ALGORITHM_ORDERED,
            .out = flat(overlap_rows(p, whole, i)),
            .in = flat(overlap_rows(p, part, i)), .out_counts = o->counts,
            .pieces = piece_span(p, i).count, .scratch = run->background,
            .scratch_bytes = run->background_bytes};

        TRY(start(run, o, &call));
    }
    return OK;
}

status overlap_sum(struct run *run, struct tensor part, struct tensor whole,
                   int piece)
{
    const struct program *p = run->program;
    struct overlap *o = &run->overlaps[OVERLAP_SUM];

    if (piece == 0) TRY(begin(run, o, part.data, whole.shape[1]));
    const struct comm_call call = {
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .out = flat(overlap_rows(p, part, piece)),
        .in = flat(overlap_rows(p, whole, piece)), .in_counts = o->counts,
        .pieces = piece_span(p, piece).count, .scratch = run->background,
        .scratch_bytes = run->background_bytes};

    return start(run, o, &call);
}

status overlap_wait(struct run *run, const void *data, int piece)
{
    for (int i = 0; i < OVERLAP_KINDS; i++) {
        struct overlap *o = &run->overlaps[i];

        if (o->data != data || data == NULL) continue;
        TRY(wait_until(o, piece + 1 < o->started ? piece + 1 : o->started));
        if (o->waited == overlap_pieces(run->program)) o->data = NULL;
    }
    return OK;
}

status overlap_wait_all(struct run *run, const void *data, bool *was)
{
    *was = false;
    for (int i = 0; i < OVERLAP_KINDS; i++)
        if (run->overlaps[i].data == data) *was = true;
    return overlap_wait(run, data, OVERLAP_PIECES_MAX);
}

status overlap_finish(struct run *run)
{
    status result = OK;

    for (int i = 0; i < OVERLAP_KINDS; i++) {
        struct overlap *o = &run->overlaps[i];
        const status waited = wait_until(o, o->data ? o->started : 0);

        if (result == OK) result = waited;
        o->data = NULL;
    }
    return result;
}
