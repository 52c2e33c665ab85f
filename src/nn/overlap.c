/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.c - messages between tensor ranks while products are made. */
#include "nn/run.h"

#include "base/status_kept.h"

int overlap_batches(const struct program *p)
{
    const int64_t rows = program_rows(p);

    if (p->layout.overlap.count <= 1 || program_tensor_ranks(p) == 1) return 1;
    return rows < p->layout.overlap.count ? (int)rows : p->layout.overlap.count;
}

/* Context chunks of sequences [first, first + count) of a sub-batch. */
static struct layout_span batch_span(const struct program *p, int number)
{
    const int64_t rows = program_rows(p), count = overlap_batches(p);
    const int64_t first = rows * number / count;

    return (struct layout_span){first, rows * (number + 1) / count - first};
}

int64_t overlap_first(const struct run *run)
{
    return run->window > 0
               ? batch_span(run->program, run->window - 1).first : 0;
}

struct tensor overlap_rows(const struct program *p, struct tensor matrix,
                           int number)
{
    const struct layout_span span = batch_span(p, number);
    const int64_t each = matrix.shape[0] / program_rows(p);

    return tensor_rows(matrix, span.first * each, span.count * each);
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

/* Kernels that read a sub-batch follow it. */
static status follow_batch(struct overlap *o, int number)
{
    if (o->data[number] == NULL) return OK;
    o->data[number] = NULL;
    return comm_leave(&o->handles[number]);
}

static status wait_batches(struct overlap *o)
{
    status result = OK;

    for (int i = 0; i < OVERLAP_BATCHES_MAX; i++) {
        const status waited = comm_wait(&o->handles[i]);

        o->data[i] = NULL;
        if (result == OK) result = waited;
    }
    return result;
}

/* Transfers under way must end before the first sub-batch of another kind
 * starts. */
static status start(struct run *run, struct overlap *o,
                    struct comm_call *call, int number)
{
    const struct program *p = run->program;
    const int64_t rows = batch_span(p, number).count;
    const int64_t all =
        p->size.length / p->size.context_chunks; /* tokens of a row */
    const bool gathers = call->kind == COMM_ALL_GATHER;
    const struct tensor whole = gathers ? call->out : call->in;

    CHECK(run->groups[AXIS_TENSOR] != NULL);
    if (number == 0) TRY(wait_batches(o));
    CHECK(o->data[number] == NULL && o->handles[number].group == NULL);
    for (int i = 0; i < program_tensor_ranks(p) && number == 0; i++)
        o->counts[i] =
            program_part(p, i).count * (whole.shape[0] / (rows * all));
    call->algorithm = ALGORITHM_ORDERED;
    call->out_counts = gathers ? o->counts : NULL;
    call->in_counts = gathers ? NULL : o->counts;
    call->rows = rows;
    call->scratch = run->background.room;
    call->scratch_bytes = run->background.bytes;
    o->handles[number] = (struct comm_handle){0};
    TRY(comm_start(run->groups[AXIS_TENSOR], call, &o->handles[number]));
    o->data[number] = call->out.data;
    return OK;
}

static status gather_batch(struct run *run, struct tensor whole,
                           struct tensor part, int number)
{
    struct comm_call call = {.kind = COMM_ALL_GATHER, .out = flat(whole),
                             .in = flat(part)};

    return start(run, &run->overlaps[OVERLAP_GATHER], &call, number);
}

status overlap_gather(struct run *run, struct tensor whole,
                      struct tensor part)
{
    const struct program *p = run->program;

    if (run->window > 0)
        return gather_batch(run, whole, part, run->window - 1);
    for (int i = 0; i < overlap_batches(p); i++)
        TRY(gather_batch(run, overlap_rows(p, whole, i),
                         overlap_rows(p, part, i), i));
    return OK;
}

status overlap_sum(struct run *run, struct tensor part, struct tensor whole,
                   int number)
{
    struct comm_call call = {.kind = COMM_REDUCE_SCATTER,
                             .reduction = REDUCE_SUM, .out = flat(part),
                             .in = flat(whole)};

    return start(run, &run->overlaps[OVERLAP_SUM], &call, number);
}

/* The sub-batch that goes to `data`, if one does. */
static struct overlap *find(struct run *run, const void *data, int *number)
{
    for (int i = 0; i < OVERLAP_KINDS; i++)
        for (*number = 0; *number < OVERLAP_BATCHES_MAX; ++*number)
            if (data != NULL && run->overlaps[i].data[*number] == data)
                return &run->overlaps[i];
    return NULL;
}

status overlap_wait(struct run *run, const void *data)
{
    int number;
    struct overlap *o = find(run, data, &number);

    return o == NULL ? OK : follow_batch(o, number);
}

status overlap_wait_all(struct run *run, struct tensor view)
{
    const struct program *p = run->program;
    const int count = run->window > 0 ? 1 : overlap_batches(p);
    status result = OK;

    if (p->layout.overlap.count <= 1) return OK;
    for (int i = 0; i < count; i++) {
        const status waited = overlap_wait(
            run, count == 1 ? view.data : overlap_rows(p, view, i).data);

        if (result == OK) result = waited;
    }
    return result;
}

status overlap_finish(struct run *run)
{
    status result = OK;

    for (int i = 0; i < OVERLAP_KINDS; i++) {
        const status waited = wait_batches(&run->overlaps[i]);

        if (result == OK) result = waited;
    }
    for (int i = 0; i < EXPERT_HALVES; i++) {
        const status waited = comm_wait(&run->rows_of_experts[i]);

        if (result == OK) result = waited;
    }
    return result;
}

status overlap_fail(struct run *run, status result)
{
    struct status_trace kept;

    status_keep(&kept);
    (void)overlap_finish(run);
    return status_again(result, &kept);
}
