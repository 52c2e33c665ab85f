/* SPDX-License-Identifier: Apache-2.0 */
/* qk_norm.c - norms of queries and keys inside a fused slot, before they turn
 * or after: RMSNorm, or LayerNorm where each head has weights of its own.
 * Source: Dehghani et al. 2023, arXiv:2302.05442, section 2.2.
 *
 * A row of the norm is a head, or all heads where the weight is as wide as
 * they are. The gradient of the one weight that all heads share is, for each
 * tensor leaf, the sum over its own heads: sequences in order, in each its
 * heads in order, in each granules of tokens; then the trees over leaves,
 * context leaves and data leaves. A key-value head that several leaves share
 * counts in the first of them. Where each head has weights of its own, their
 * gradient is a sum of which all other leaves have +0.
 *
 * Without weights (Llama 4: after they turned) there is no such gradient.
 *
 * Rows over all heads that tensor ranks divide are gathered: every rank norms
 * whole rows, as one rank does, and keeps its own heads' part. So the gradient
 * of the weight is whole on each of them. */
#include <string.h>

#include "nn/layer.h"

/* Queries (which 0) or keys (1) of a slot. */
struct part {
    int which;
    bool gathered;         /* rows are of the gathered buffer */
    int64_t column, width; /* of the first row of a token; of each row */
    int rows;              /* of a token on this rank */
    int first, all;        /* number of the first one; of the whole model */
};

static bool is_gathered(const struct step *step, const struct program *p,
                        int which)
{
    return program_tensor_ranks(p) > 1 &&
           step->set.qk_norm.width[which] != step->set.qk_norm.head_width;
}

static struct part part_of(const struct step *step, const struct program *p,
                           int which)
{
    const int64_t width = step->set.qk_norm.width[which];

    if (is_gathered(step, p, which))
        return (struct part){.which = which, .gathered = true, .width = width,
                             .rows = 1, .all = 1};
    const int heads =
        which == 0 ? step->set.qk_norm.heads : step->set.qk_norm.kv_heads;
    const int all = step->set.qk_norm.all[which];
    const int64_t q =
        (int64_t)step->set.qk_norm.heads * step->set.qk_norm.head_width;

    return (struct part){
        .which = which, .column = which == 0 ? 0 : q, .width = width,
        .rows = (int)(heads * (int64_t)step->set.qk_norm.head_width / width),
        .first = program_tensor_ranks(p) == 1
                     ? 0
                     : (int)((int64_t)all * p->layout.place.at[AXIS_TENSOR] /
                             program_tensor_ranks(p)),
        .all = all};
}

/* Elements of the weight. */
static int64_t weight_width(const struct step *step, int which)
{
    return step->set.qk_norm.width[which] *
           (step->set.qk_norm.each ? step->set.qk_norm.all[which] : 1);
}

/* The part of a weight, or of the sums of its gradient, that belongs to this
 * row's columns. */
static struct tensor own_columns(const struct step *step,
                                 const struct part *part, struct tensor t,
                                 int row)
{
    const int64_t first = (part->first + row) * part->width;

    if (!step->set.qk_norm.each) return t;
    if (t.dimensions == 2) return tensor_cols(t, first, part->width);
    t.data = (char *)t.data + first * dtype_bytes(t.dtype);
    t.shape[0] = part->width;
    return t;
}

/* Row `row` of each token. */
static struct tensor row_view(struct tensor fused, const struct part *part,
                              int row)
{
    return tensor_cols(fused, part->column + row * part->width, part->width);
}

/* 1 / root mean square of tokens; of LayerNorm, mean and 1 / deviation. */
static struct tensor statistics(const struct step *step,
                                const struct run *run, void *memory,
                                int64_t tokens)
{
    const enum dtype real = dtype_real(run->program->dtype);

    return step->set.qk_norm.each ? tensor_2d(memory, real, tokens, 2)
                                  : tensor_1d(memory, real, tokens);
}

static size_t statistics_bytes(const struct step *step,
                               const struct program *p)
{
    return arena_aligned((size_t)p->size.tokens * sizeof(double) *
                   (step->set.qk_norm.each ? 2 : 1));
}

static size_t qk_norm_scratch(const struct step *step,
                              const struct program *p);

static bool is_plain(const struct step *step)
{
    return step->param[0] < 0;
}

/* Behind the statistics in scratch: weights of 1. */
static status no_weight(const struct step *step, struct run *run, int which,
                        struct tensor *out)
{
    struct tensor ones = tensor_1d(
        (char *)run->scratch + statistics_bytes(step, run->program),
        run->program->dtype, step->set.qk_norm.width[which]);

    *out = ones;
    ones.data = run_list(run, ones.data);
    for (int64_t i = 0; i < ones.shape[0]; i++) tensor_set(&ones, i, 1);
    return run_told(run, out->data, (size_t)tensor_bytes(&ones));
}

/* Behind the statistics in scratch, where 1 is to be added to it. */
static status weight_of(const struct step *step, struct run *run, int which,
                        struct tensor *out)
{
    if (is_plain(step)) return no_weight(step, run, which, out);
    return norm_weight(run, run_weight(run, step, which),
                       step->set.qk_norm.plus_one,
                       (char *)run->scratch +
                           statistics_bytes(step, run->program), out);
}

/* At the same place: a LayerNorm's bias, which none has. */
static status no_bias(const struct step *step, struct run *run,
                      struct tensor weight, struct tensor *out)
{
    *out = weight;
    out->data = (char *)run->scratch + statistics_bytes(step, run->program);
    return device_fill(run->stream, out->data, 0,
                       (size_t)(weight.shape[0] *
                                dtype_bytes(weight.dtype)));
}

/* y = the norm of the row, with its statistics in `memory`. */
static status row_forward(const struct step *step, struct run *run,
                          const struct part *part, int row,
                          struct tensor y, struct tensor x)
{
    const struct tensor numbers =
        statistics(step, run, run->scratch, x.shape[0]);
    const double epsilon = step->set.qk_norm.epsilon;
    struct tensor weight, bias;

    TRY(weight_of(step, run, part->which, &weight));
    weight = own_columns(step, part, weight, row);
    if (!step->set.qk_norm.each)
        return run->kernels->rmsnorm_forward(run->stream, y, numbers, x,
                                             weight, epsilon);
    TRY(no_bias(step, run, weight, &bias));
    return run->kernels->layernorm_forward(run->stream, y, numbers, x, weight,
                                           bias, epsilon);
}

/* Values as they are, in forward and backward. */
static status copy_values(const struct step *step, const struct run *run,
                          struct tensor to, struct tensor from)
{
    const int64_t width =
        (int64_t)step->set.qk_norm.kv_heads * step->set.qk_norm.head_width;
    const int64_t first = to.shape[1] - width, bytes = dtype_bytes(to.dtype);

    return device_copy_rows(
        run->stream,
        (struct device_rows){(char *)to.data + first * bytes,
                             to.stride[0] * bytes},
        (struct device_rows){(char *)from.data + first * bytes,
                             from.stride[0] * bytes},
        to.shape[0], (size_t)(width * bytes));
}

/* ---- rows that tensor ranks divide ---- */

/* Elements of a token, of queries (which 0) or keys (1). */
struct qk_share {
    int64_t own, heads;   /* columns of this rank, and where they begin */
    int replicas;         /* ranks that have the same columns */
};

static struct qk_share share_of(const struct step *step,
                                const struct program *p, int which)
{
    const int ranks = program_tensor_ranks(p);
    const int64_t head = step->set.qk_norm.head_width;
    const int64_t own = head * (which == 0 ? step->set.qk_norm.heads
                                           : step->set.qk_norm.kv_heads);

    return (struct qk_share){
        .own = own, .heads = which == 0 ? 0 : head * step->set.qk_norm.heads,
        .replicas = (int)(own * ranks / step->set.qk_norm.width[which])};
}

/* Columns that a rank sends: replicas, once. */
static int64_t share_sent(const struct qk_share *share, int rank)
{
    return rank % share->replicas == 0 ? share->own : 0;
}

/* Buffers of whole rows, in scratch behind everything else: own columns, x,
 * what comes in (forward: y; backward: dy), dx. */
enum { ROWS_OWN, ROWS_X, ROWS_Y, ROWS_DX, ROWS_BUFFERS };

static size_t rows_bytes(const struct step *step, const struct program *p)
{
    const int64_t q = step->set.qk_norm.width[0];
    const int64_t k = step->set.qk_norm.width[1];

    if (!is_gathered(step, p, 0) && !is_gathered(step, p, 1)) return 0;
    return arena_aligned((size_t)(p->size.tokens * (q > k ? q : k)) *
                   (size_t)dtype_bytes(program_real(p)));
}

static struct tensor rows_buffer(const struct step *step,
                                 const struct run *run, int buffer,
                                 enum dtype dtype, int64_t width)
{
    const struct program *p = run->program;
    const size_t bytes = rows_bytes(step, p);
    const size_t all = qk_norm_scratch(step, p);

    return tensor_2d((char *)run->scratch + all -
                         (size_t)(ROWS_BUFFERS - buffer) * bytes,
                     dtype, p->size.tokens, width);
}

/* *out = whole rows of the part, from the ranks' columns of `fused`. */
static status gather_rows(const struct step *step, struct run *run,
                          const struct part *part, struct tensor fused,
                          int buffer, struct tensor *out)
{
    const struct qk_share share =
        share_of(step, run->program, part->which);
    const int rank = run->program->layout.place.at[AXIS_TENSOR];
    const int64_t sent = share_sent(&share, rank);
    struct tensor own = rows_buffer(step, run, ROWS_OWN, fused.dtype, sent);

    *out = rows_buffer(step, run, buffer, fused.dtype, part->width);
    for (int i = 0; i < program_tensor_ranks(run->program); i++)
        run->peers.counts[i] = share_sent(&share, i);
    TRY(run_copy_rows(run, own, tensor_cols(fused, share.heads, sent)));
    return comm_run(run->groups[AXIS_TENSOR], &(struct comm_call){
        .kind = COMM_ALL_GATHER, .algorithm = ALGORITHM_ORDERED,
        .out = tensor_1d(out->data, out->dtype, tensor_count(out)),
        .in = tensor_1d(own.data, own.dtype, tensor_count(&own)),
        .out_counts = run->peers.counts, .rows = run->program->size.tokens});
}

/* This rank's columns of whole rows, into `fused`. */
static status keep_own(const struct step *step, const struct run *run,
                       const struct part *part, struct tensor fused,
                       struct tensor rows)
{
    const struct qk_share share =
        share_of(step, run->program, part->which);
    const int rank = run->program->layout.place.at[AXIS_TENSOR];

    return run_copy_rows(run, tensor_cols(fused, share.heads, share.own),
                         tensor_cols(rows, rank / share.replicas * share.own,
                                     share.own));
}

static int64_t widest_row(const struct step *step)
{
    const int64_t *width = step->set.qk_norm.width;

    return width[0] > width[1] ? width[0] : width[1];
}

/* ---- forward ---- */

static status qk_norm_forward(const struct step *step, struct run *run)
{
    const struct tensor fused = run_slot(run, step->input);
    const struct tensor out = run_slot(run, step->output);

    TRY(copy_values(step, run, out, fused));
    for (int which = 0; which < 2; which++) {
        const struct part part = part_of(step, run->program, which);
        struct tensor x = fused, y = out;

        if (part.gathered) {
            TRY(gather_rows(step, run, &part, fused, ROWS_X, &x));
            y = rows_buffer(step, run, ROWS_Y, x.dtype, part.width);
        }
        for (int i = 0; i < part.rows; i++)
            TRY(row_forward(step, run, &part, i, row_view(y, &part, i),
                            row_view(x, &part, i)));
        if (part.gathered) TRY(keep_own(step, run, &part, out, y));
    }
    return OK;
}

/* ---- backward ---- */

static int contexts_of(const struct program *p)
{
    return p->size.context_chunks > 1 ? p->size.context_chunks / 2 : 1;
}

/* Places for sums that nobody reads: of a LayerNorm's bias, too. */
static int idle_places(const struct step *step)
{
    return step->set.qk_norm.each ? 2 : 1;
}

/* One addend of the micro-batch. In scratch, one after the other: statistics,
 * the weight, sums that do not count, those of a bias, sums of a leaf that is
 * whole. */
struct qk_pass {
    struct addend addend;
    struct part part;
    int which;
    struct tensor view[3]; /* dx, dy, x: of all tokens */
    struct tensor sums; /* [leaves * contexts * parts, width] */
    int first_part, parts;
    void *idle, *bias;
};

/* Where the sums of a row of a sequence go; *counts: does it count here? */
static struct tensor row_sums(const struct step *step,
                              const struct qk_pass *pass,
                              const struct program *p, int64_t sequence,
                              int row, bool *counts)
{
    const int contexts = contexts_of(p);
    if (is_plain(step)) {
        *counts = false;
        return tensor_2d(pass->idle, program_real(p), contexts,
                         pass->part.width);
    }
    const int64_t leaf =
        sequence / (pass->addend.sequences / pass->addend.leaves);
    const int part = (pass->part.first + row) * p->layout.grid.tensor /
                         pass->part.all - pass->first_part;
    struct tensor sums = pass->sums;

    *counts = part >= 0 && part < pass->parts;
    if (!*counts)
        return tensor_2d(pass->idle, sums.dtype, contexts, pass->part.width);
    sums = own_columns(step, &pass->part, sums, row);
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
    const int64_t first = addend_first_token(p, &pass->addend) +
                          sequence * p->size.length;
    struct tensor view[3];
    const struct tensor numbers =
        statistics(step, run, run->scratch, p->size.length);
    struct tensor weight;
    bool counts;
    const struct tensor sums =
        row_sums(step, pass, p, sequence, row, &counts);
    const struct token_order order = {.length = p->size.length,
                                      .sequences_per_leaf = 1,
                                      .leaves = 1,
                                      .parts = 1,
                                      .context_chunks = p->size.context_chunks,
                                      .continues = counts};

    TRY(weight_of(step, run, pass->which, &weight));
    weight = own_columns(step, &pass->part, weight, row);
    for (int i = 0; i < 3; i++)
        view[i] = row_view(tensor_rows(pass->view[i], first, p->size.length),
                           &pass->part, row);
    TRY(row_forward(step, run, &pass->part, row, view[0], view[2]));
    if (!step->set.qk_norm.each)
        return run->kernels->rmsnorm_backward(run->stream, view[0], false,
                                              sums, view[1], view[2], numbers,
                                              weight, &order);
    return run->kernels->layernorm_backward(
        run->stream, view[0], false, sums,
        tensor_2d(pass->bias, sums.dtype, sums.shape[0], sums.shape[1]),
        view[1], view[2], numbers, weight, &order);
}

/* Sets up the views that a pass over queries or keys reads and writes. Called
 * before the first addend of a micro-batch. */
static status pass_views(const struct step *step, struct run *run,
                         struct qk_pass *pass)
{
    const struct part part = part_of(step, run->program, pass->which);
    struct tensor *view = pass->view;

    view[0] = run_gradient(run, step->input);
    view[1] = run_gradient(run, step->output);
    view[2] = run_slot(run, step->input);
    if (!part.gathered) return OK;
    TRY(gather_rows(step, run, &part, view[1], ROWS_Y, &view[1]));
    TRY(gather_rows(step, run, &part, view[2], ROWS_X, &view[2]));
    view[0] = rows_buffer(step, run, ROWS_DX, view[0].dtype, part.width);
    return OK;
}

static status rows_backward(const struct step *step, struct run *run,
                            const struct qk_pass *pass)
{
    for (int64_t s = 0; s < pass->addend.sequences; s++)
        for (int row = 0; row < pass->part.rows; row++)
            TRY(row_backward(step, run, pass, s, row));
    return OK;
}

static status part_backward(const struct step *step, struct run *run,
                            struct qk_pass *pass)
{
    const struct program *p = run->program;
    const int use = step->use[pass->which];
    char *scratch = run->scratch;
    const size_t idle = arena_aligned(
        (size_t)(contexts_of(p) * widest_row(step)) * sizeof(double));
    bool continues;

    pass->part = part_of(step, p, pass->which);
    scratch += statistics_bytes(step, p) +
               arena_aligned((size_t)widest_row(step) * sizeof(double));
    pass->idle = scratch;
    pass->bias = scratch + idle;
    TRY(device_fill(run->stream, scratch, 0,
                    (size_t)idle_places(step) * idle));
    scratch += (size_t)idle_places(step) * idle;
    if (is_plain(step)) return rows_backward(step, run, pass);
    gradient_vector_begin(run->gradients, use, &pass->addend, scratch,
                          &pass->sums, &continues);
    pass->first_part =
        p->uses[use].local ? (int)program_leaves(p).first : 0;
    pass->parts = (int)(pass->sums.shape[0] /
                        (pass->addend.leaves * contexts_of(p)));
    if (!continues) /* a chain from +0 is the same after + 0 */
        TRY(device_fill(run->stream, pass->sums.data, 0,
                        (size_t)tensor_bytes(&pass->sums)));
    TRY(rows_backward(step, run, pass));
    return gradient_vector_end(run->gradients, use, pass->sums);
}

static status qk_norm_backward(const struct step *step, struct run *run)
{
    struct addend_cursor cursor = {0};
    struct qk_pass pass = {0};

    CHECK(!run->event->adds); /* the fused slot has one reader */
    TRY(copy_values(step, run, run_gradient(run, step->input),
                    run_gradient(run, step->output)));
    for (pass.which = 0; pass.which < 2; pass.which++) {
        const struct part part = part_of(step, run->program, pass.which);

        TRY(pass_views(step, run, &pass));
        cursor = (struct addend_cursor){0};
        while (addend_next(&run->gradients->cut[0], run->batch.index, &cursor,
                           &pass.addend))
            TRY(part_backward(step, run, &pass));
        if (part.gathered)
            TRY(keep_own(step, run, &part, run_gradient(run, step->input),
                         pass.view[0]));
    }
    return OK;
}

static struct step_cost qk_norm_cost(const struct step *step,
                                     const struct program *p)
{
    const int64_t n = p->size.tokens * p->slots[step->output].width;

    struct step_cost cost = {
        .flops = (double)(5 * n),
        .bytes_moved = (double)(2 * n * dtype_bytes(p->dtype))};

    for (int which = 0; which < 2; which++) {
        const struct qk_share share = share_of(step, p, which);

        if (is_gathered(step, p, which))
            cost.bytes_sent +=
                (double)share_sent(&share, p->layout.place.at[AXIS_TENSOR]) *
                (double)(p->size.tokens * dtype_bytes(p->dtype)) *
                (program_tensor_ranks(p) - 1);
    }
    return cost;
}

static size_t qk_norm_scratch(const struct step *step, const struct program *p)
{
    const int64_t q = weight_width(step, 0), k = weight_width(step, 1);
    const int64_t row = widest_row(step);

    return statistics_bytes(step, p) +
           arena_aligned((size_t)row * sizeof(double)) +
           (size_t)idle_places(step) *
               arena_aligned((size_t)(contexts_of(p) * row) * sizeof(double)) +
           arena_aligned(vector_scratch(p, 1, q > k ? q : k)) +
           ROWS_BUFFERS * rows_bytes(step, p);
}

/* Queries and keys whose norm is over all heads; backward their gradients,
 * too. */
static void qk_norm_exchanges(const struct step *step, const struct program *p,
                              const struct exchange_case *at,
                              struct layer_exchanges *out)
{
    const int ranks = p->layout.mesh.size[AXIS_TENSOR];
    const int calls = exchange_backward(at) ? 2 : 1;

    if (!exchange_forward(at) && !exchange_backward(at)) return;
    for (int which = 0; which < 2 && ranks > 1; which++) {
        if (step->set.qk_norm.width[which] == step->set.qk_norm.head_width)
            continue;
        const struct qk_share share = share_of(step, p, which);

        layer_exchanges_add(out, p, (struct layer_exchange){
            .axis = AXIS_TENSOR, .kind = COMM_ALL_GATHER, .calls = calls,
            .what = SENT_ROWS_OF_QUERIES_AND_KEYS,
            .bytes = calls *
                     share_sent(&share, p->layout.place.at[AXIS_TENSOR]) *
                     p->size.tokens * (ranks - 1) * dtype_bytes(p->dtype)});
    }
}

static const struct layer layer_qk_norm = {
    .name = "qk_norm", .kind = LAYER_NORM, .forward = qk_norm_forward,
    .backward_input = qk_norm_backward, .cost = qk_norm_cost,
    .scratch = qk_norm_scratch,
    .exchanges = qk_norm_exchanges,
    .keeps_input_for_b = true};

static status fail_overlap(const char *name)
{
    FAIL(ERR_CONFIG, "%s: its norm is over all heads, which tensor-parallel "
                     "ranks gather; tensor.overlap must be 1", name);
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

    program_lay_as(p, output, qkv);
    p->steps[step].output = output;
    p->steps[step].set.qk_norm.heads = heads;
    p->steps[step].set.qk_norm.kv_heads = kv_heads;
    p->steps[step].set.qk_norm.head_width = width;
    p->steps[step].set.qk_norm.epsilon = norm->epsilon;
    p->steps[step].set.qk_norm.plus_one = norm->plus_one;
    p->steps[step].set.qk_norm.each = norm->each;
    CHECK(!norm->each || !norm->plus_one);
    CHECK(!norm->plain || !norm->each);
    for (int which = 0; which < 2 && p->error == OK; which++) {
        const int64_t row = norm->each ? width : norm->weights[which].cols;

        p->steps[step].set.qk_norm.width[which] = row;
        p->steps[step].set.qk_norm.all[which] =
            row == width ? all[which] : 1;
        if (row != width && ranks > 1 && p->layout.overlap.count > 1)
            p->error = fail_overlap(norm->weights[which].name);
        if (norm->plain) continue;
        program_add_param(p, step, which, &norm->weights[which]);
        if (p->error == OK)
            p->uses[p->use_count - 1].local = ranks > 1 && row == width;
    }
    return p->error == OK ? output : -1;
}
