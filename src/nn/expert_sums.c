/* SPDX-License-Identifier: Apache-2.0 */
/* expert_sums.c - gradients of the matrices of experts: sums over the tokens
 * that chose each, of this rank, or of all sources one after the other. */
#include "nn/expert_sums.h"

/* Experts [first, first + count) whose sums lie at equal distances. */
struct expert_run {
    struct gradient_target target; /* of the first */
    int64_t stride;                /* elements */
    int first, count;
};

static bool begin_one(struct run *run, const struct step *step, int expert,
                      const struct piece *piece, int sum,
                      struct gradient_target *target)
{
    const int stream = step->stream[0] + expert;

    if (!gradient_made(run->program, stream)) return false;
    gradient_begin(run->gradients, stream, piece, sum, target);
    return true;
}

/* The next run from r->first + r->count on; false: none. */
static bool next_run(struct run *run, const struct step *step,
                     const struct piece *piece, int sum,
                     struct expert_run *r)
{
    int at = r->first + r->count;
    struct gradient_target target;

    while (at < step->each &&
           !begin_one(run, step, at, piece, sum, &r->target))
        at++;
    if (at >= step->each) return false;
    r->first = at;
    r->count = 1;
    r->stride = 0;
    for (at++; at < step->each; at++, r->count++) {
        if (!begin_one(run, step, at, piece, sum, &target)) break;
        const int64_t away =
            ((const char *)target.c.data - (const char *)r->target.c.data) /
            dtype_bytes(target.c.dtype);

        if (r->count == 1) r->stride = away;
        if (away != r->count * r->stride) break;
    }
    return true;
}

/* The tokens of a piece, counted in the micro-batches of all sources. */
static struct sum_order order_of(struct run *run, const struct piece *piece,
                                 int only)
{
    const struct sum_order order = run_order_tokens(run, piece, only);
    const int64_t first = piece_first_token(run->program, piece) +
                          run->gradients->source * run->program->tokens;

    for (int64_t i = 0; i < order.segment_count; i++)
        run->segments[i].first += first;
    return order;
}

/* The rows from `row` on, where they are not those of tokens. */
static struct expert_rows rows_from(struct expert_rows rows, int64_t row)
{
    const struct tensor all = rows.matrix;

    if (!rows.gathered)
        rows.matrix = tensor_rows(all, row, all.shape[0] - row);
    return rows;
}

static status sum_gradient(struct run *run, const struct step *step,
                           const struct expert_operands *of,
                           const struct piece *piece, int sum)
{
    struct expert_run r = {0};

    while (next_run(run, step, piece, sum, &r)) {
        const struct sum_order order = order_of(run, piece, r.target.only);
        const struct tensor one = r.target.c;
        int64_t row = 0;
        const struct expert_groups groups =
            choice_some(of->lists, r.first, r.count, &row);
        struct experts_gradient call = {
            .groups = &groups, .a = rows_from(of->a, row),
            .b = rows_from(of->b, row), .order = &order,
            .continues = r.target.continues, .adds = r.target.left};

        call.c = tensor_3d(one.data, one.dtype, r.count, one.shape[0],
                           one.shape[1]);
        if (r.count > 1) call.c.stride[0] = r.stride;
        TRY(run->kernels->experts_gradient(run->stream, &call));
    }
    return OK;
}

static status source_weight(const struct step *step, struct run *run,
                            const struct expert_operands *of)
{
    struct gradients *g = run->gradients;
    struct piece_cursor cursor = {0};
    struct piece piece;

    while (piece_next(&g->cut[0], run->batch.index, &cursor, &piece)) {
        const int sums = gradient_sums(g, step->stream[0], &piece);

        for (int i = 0; i < sums; i++) {
            TRY(sum_gradient(run, step, of, &piece, i));
            for (int e = 0; e < step->each; e++)
                if (gradient_made(run->program, step->stream[0] + e))
                    TRY(gradient_end(g, step->stream[0] + e, i));
        }
    }
    return OK;
}

status experts_weight(const struct step *step, struct run *run,
                             const struct expert_operands *of)
{
    const int sources = run->program->streams[step->stream[0]].sources;

    for (int i = 0; i < sources; i++) {
        gradients_from(run->gradients, i);
        TRY(source_weight(step, run, of));
    }
    gradients_from(run->gradients, 0);
    return OK;
}
