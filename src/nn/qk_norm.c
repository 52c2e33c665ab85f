/* SPDX-License-Identifier: Apache-2.0 */
/* qk_norm.c - RMSNorm of queries and keys inside a fused slot, before they
 * turn. Source: Dehghani et al. 2023, arXiv:2302.05442, section 2.2.
 *
 * A row of the norm is a head, or all heads where the weight is as wide as
 * they are. The gradient of the one weight that all heads share is, for each
 * tensor leaf, the sum over its own heads: sequences in order, in each its
 * heads in order, in each granules of tokens; then the trees over leaves,
 * context leaves and data leaves. A key-value head that several leaves share
 * counts in the first of them. */
#include "nn/layer.h"

#include <string.h>

/* Queries (which 0) or keys (1) of a slot. */
struct part {
    int64_t column, width; /* of the first row of a token; of each row */
    int rows;              /* of a token on this rank */
    int first, all;        /* number of the first one; of the whole model */
};

static struct part part_of(const struct step *step, const struct program *p,
                           int which)
{
    const int64_t width = step->set.qk_norm.width[which];
    const int heads =
        which == 0 ? step->set.qk_norm.heads : step->set.qk_norm.kv_heads;
    const int all = step->set.qk_norm.all[which];
    const int64_t q =
        (int64_t)step->set.qk_norm.heads * step->set.qk_norm.head_width;

    return (struct part){
        .column = which == 0 ? 0 : q, .width = width,
        .rows = (int)(heads * (int64_t)step->set.qk_norm.head_width / width),
        .first = program_tensor_ranks(p) == 1
                     ? 0 : (int)((int64_t)all * p->place.at[AXIS_TENSOR] /
                                 program_tensor_ranks(p)),
        .all = all};
}

/* Row `row` of each token. */
static struct tensor row_view(struct tensor fused, const struct part *part,
                              int row)
{
    return tensor_cols(fused, part->column + row * part->width, part->width);
}

static struct tensor statistics(const struct run *run, void *memory,
                                int64_t tokens)
{
    return tensor_1d(memory, dtype_real(run->program->dtype), tokens);
}

static size_t aligned(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* Behind the statistics in scratch, where 1 is to be added to it. */
static struct tensor weight_of(const struct step *step, struct run *run,
                               int which)
{
    const size_t statistics =
        aligned((size_t)run->program->tokens * sizeof(double));

    return norm_weight(run_weight(run, step, which),
                       step->set.qk_norm.plus_one,
                       (char *)run->scratch + statistics);
}

/* Values as they are, in forward and backward. */
static void copy_values(const struct step *step, struct tensor to,
                        struct tensor from)
{
    const int64_t width =
        (int64_t)step->set.qk_norm.kv_heads * step->set.qk_norm.head_width;
    const int64_t first = to.shape[1] - width, bytes = dtype_bytes(to.dtype);

    for (int64_t t = 0; t < to.shape[0]; t++)
        memcpy((char *)to.data + (t * to.stride[0] + first) * bytes,
               (char *)from.data + (t * from.stride[0] + first) * bytes,
               (size_t)(width * bytes));
}

static status qk_norm_forward(const struct step *step, struct run *run)
{
    const struct tensor x = run_slot(run, step->input);
    const struct tensor y = run_slot(run, step->output);

    copy_values(step, y, x);
    for (int which = 0; which < 2; which++) {
        const struct part part = part_of(step, run->program, which);
        const struct tensor weight = weight_of(step, run, which);

        for (int i = 0; i < part.rows; i++)
            TRY(run->kernels->rmsnorm_forward(
                run->stream, row_view(y, &part, i),
                statistics(run, run->scratch, x.shape[0]),
                row_view(x, &part, i), weight,
                step->set.qk_norm.epsilon));
    }
    return OK;
}

/* ---- backward ---- */

static int contexts_of(const struct program *p)
{
    return p->chunks > 1 ? p->chunks / 2 : 1;
}

/* One piece of the micro-batch. In scratch, one after the other: statistics,
 * the weight, sums that do not count, sums of a leaf that is whole. */
struct qk_pass {
    struct piece piece;
    struct part part;
    int which;
    struct tensor weight;
    struct tensor sums; /* [leaves * contexts * parts, width] */
    int first_part, parts;
    void *statistics, *idle;
};

/* Where the sums of a row of a sequence go; *counts: does it count here? */
static struct tensor row_sums(const struct qk_pass *pass,
                              const struct program *p, int64_t sequence,
                              int row, bool *counts)
{
    const int contexts = contexts_of(p);
    const int64_t leaf =
        sequence / (pass->piece.sequences / pass->piece.leaves);
    const int part = (pass->part.first + row) * p->grid.tensor /
                         pass->part.all - pass->first_part;
    struct tensor sums = pass->sums;

    *counts = part >= 0 && part < pass->parts;
    if (!*counts)
        return tensor_2d(pass->idle, sums.dtype, contexts, sums.shape[1]);
    sums = tensor_rows(sums, leaf * contexts * pass->parts + part, 1);
    sums.shape[0] = contexts;
    sums.stride[0] *= pass->parts;
    return sums;
}

/* One row of the tokens of one sequence. */
static status row_backward(const struct step *step, struct run *run,
                           const struct qk_pass *pass, int64_t sequence,
                           int row)
{
    const struct program *p = run->program;
    const int64_t first = piece_first_token(p, &pass->piece) +
                          sequence * p->length;
    struct tensor view[3] = {run_gradient(run, step->input),
                             run_gradient(run, step->output),
                             run_slot(run, step->input)};
    const struct tensor rrms = statistics(run, pass->statistics, p->length);
    bool counts;
    const struct tensor sums = row_sums(pass, p, sequence, row, &counts);
    const struct token_order order = {
        .length = p->length, .sequences_per_leaf = 1, .leaves = 1, .parts = 1,
        .chunks = p->chunks, .continues = counts};

    for (int i = 0; i < 3; i++)
        view[i] = row_view(tensor_rows(view[i], first, p->length),
                           &pass->part, row);
    TRY(run->kernels->rmsnorm_forward(run->stream, view[0], rrms, view[2],
                                      pass->weight, step->set.qk_norm.epsilon));
    return run->kernels->rmsnorm_backward(run->stream, view[0], false, sums,
                                          view[1], view[2], rrms,
                                          pass->weight, &order);
}

static status part_backward(const struct step *step, struct run *run,
                            struct qk_pass *pass)
{
    const struct program *p = run->program;
    const int stream = step->stream[pass->which];
    char *scratch = run->scratch;
    bool continues;

    pass->part = part_of(step, p, pass->which);
    pass->weight = weight_of(step, run, pass->which);
    pass->statistics = scratch;
    scratch += aligned((size_t)p->tokens * sizeof(double)) +
               aligned((size_t)pass->part.width * sizeof(double));
    pass->idle = scratch;
    scratch += aligned((size_t)(contexts_of(p) * pass->part.width) *
                       sizeof(double));
    gradient_vector_begin(run->gradients, stream, &pass->piece, scratch,
                          &pass->sums, &continues);
    pass->first_part =
        p->streams[stream].local ? (int)program_leaves(p).first : 0;
    pass->parts = (int)(pass->sums.shape[0] /
                        (pass->piece.leaves * contexts_of(p)));
    if (!continues) /* a chain from +0 is the same after + 0 */
        memset(pass->sums.data, 0,
               (size_t)(tensor_count(&pass->sums) *
                        dtype_bytes(pass->sums.dtype)));
    for (int64_t s = 0; s < pass->piece.sequences; s++)
        for (int row = 0; row < pass->part.rows; row++)
            TRY(row_backward(step, run, pass, s, row));
    return gradient_vector_end(run->gradients, stream, pass->sums);
}

static status qk_norm_backward(const struct step *step, struct run *run)
{
    struct piece_cursor cursor = {0};
    struct qk_pass pass = {0};

    CHECK(!run->event->adds); /* the fused slot has one reader */
    copy_values(step, run_gradient(run, step->input),
                run_gradient(run, step->output));
    while (piece_next(&run->gradients->cut[0], run->batch.index, &cursor,
                      &pass.piece))
        for (pass.which = 0; pass.which < 2; pass.which++)
            TRY(part_backward(step, run, &pass));
    return OK;
}

static struct step_cost qk_norm_cost(const struct step *step,
                                     const struct program *p)
{
    const int64_t n = p->tokens * p->slots[step->output].width;

    return (struct step_cost){.flops = 5 * n,
                              .bytes_moved = 2 * n * dtype_bytes(p->dtype)};
}

static size_t qk_norm_scratch(const struct step *step, const struct program *p)
{
    const int64_t q = step->set.qk_norm.width[0];
    const int64_t k = step->set.qk_norm.width[1];
    const int64_t width = q > k ? q : k;

    return aligned((size_t)p->tokens * sizeof(double)) +
           aligned((size_t)width * sizeof(double)) +
           aligned((size_t)(contexts_of(p) * width) * sizeof(double)) +
           vector_scratch(p, 1, width);
}

static const struct layer layer_qk_norm = {
    .name = "qk_norm", .kind = "norm", .forward = qk_norm_forward,
    .backward_input = qk_norm_backward, .cost = qk_norm_cost,
    .scratch = qk_norm_scratch, .keeps_input_for_b = true};

static status fail_whole(const char *name)
{
    FAIL(ERR_CONFIG, "%s: its norm is over all heads, which tensor ranks "
                     "divide; it runs on one tensor rank only", name);
}

slot nn_qk_norm(struct program *p, slot qkv, int heads, int kv_heads,
                const struct qk_norm *norm)
{
    const int all[2] = {heads, kv_heads}, ranks = program_tensor_ranks(p);
    const int step = program_add_step(p, &layer_qk_norm, qkv);
    const slot output = program_add_slot(
        p, layer_qk_norm.name, qkv < 0 ? 0 : p->slots[qkv].width, false);

    if (p->error != OK) return -1;
    heads = heads > ranks ? heads / ranks : 1;
    kv_heads = kv_heads > ranks ? kv_heads / ranks : 1;
    const int width = (int)(p->slots[qkv].width / (heads + 2 * kv_heads));

    p->slots[output].layout = p->slots[qkv].layout;
    p->steps[step].output = output;
    p->steps[step].set.qk_norm.heads = heads;
    p->steps[step].set.qk_norm.kv_heads = kv_heads;
    p->steps[step].set.qk_norm.head_width = width;
    p->steps[step].set.qk_norm.epsilon = norm->epsilon;
    p->steps[step].set.qk_norm.plus_one = norm->plus_one;
    for (int which = 0; which < 2 && p->error == OK; which++) {
        const int64_t row = norm->weights[which].cols;

        p->steps[step].set.qk_norm.width[which] = row;
        p->steps[step].set.qk_norm.all[which] =
            row == width ? all[which] : 1;
        if (row != width && ranks > 1)
            p->error = fail_whole(norm->weights[which].name);
        program_add_param(p, step, which, &norm->weights[which]);
        if (p->error == OK)
            p->streams[p->stream_count - 1].local = ranks > 1;
    }
    return p->error == OK ? output : -1;
}
