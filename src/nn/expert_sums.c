/* SPDX-License-Identifier: Apache-2.0 */
/* expert_sums.c - the matrices of experts. Their gradients are sums over the
 * tokens that chose each, of this rank, or of all sources one after the
 * other. */
#include "nn/expert_sums.h"

#include "nn/expert_ranks.h"
#include "nn/straight_through.h"

struct step with_param(const struct step *step, int which)
{
    struct step one = *step;

    one.param[0] = step->param[which];
    one.use[0] = step->use[which];
    return one;
}

struct tensor weights_of(const struct step *step, struct run *run)
{
    struct tensor all = run_weight(run, step, 0);
    const char *first = all.data;
    struct step other = *step;
    int64_t bytes = 0;

    for (int i = 1; i < step->each; i++) {
        other.param[0] = step->param[0] + i;
        const struct tensor one = run_weight(run, &other, 0);

        if (i == 1) bytes = (const char *)one.data - first;
        CHECK((const char *)one.data - first == i * bytes);
    }
    const struct tensor matrix = all;

    all = tensor_3d(matrix.data, matrix.dtype, step->each, matrix.shape[0],
                    matrix.shape[1]);
    if (step->each > 1) all.stride[0] = bytes / dtype_bytes(matrix.dtype);
    return all;
}

struct tensor transposed(struct tensor all)
{
    const struct tensor from = all;

    all.shape[1] = from.shape[2];
    all.shape[2] = from.shape[1];
    all.stride[1] = from.stride[2];
    all.stride[2] = from.stride[1];
    return all;
}

static struct clamped_glu clamped_of(const struct step *step)
{
    return (struct clamped_glu){.alpha = step->set.experts.alpha,
                                .limit = step->set.experts.limit};
}

status experts_gate(const struct step *step, struct run *run,
                    struct tensor out, struct tensor gate_up)
{
    struct clamped_glu clamped = clamped_of(step);

    if (step->set.experts.gelu)
        return run->kernels->geglu_forward(run->stream, out, gate_up);
    if (clamped.limit == 0)
        return run->kernels->swiglu_forward(run->stream, out, gate_up);
    clamped.out = out;
    clamped.gate_up = gate_up;
    return run->kernels->clamped_forward(run->stream, &clamped);
}

status experts_gate_backward(const struct step *step, struct run *run,
                             struct tensor dgate_up, struct tensor dout,
                             struct tensor gate_up)
{
    struct clamped_glu clamped = clamped_of(step);

    if (step->set.experts.gelu)
        return run->kernels->geglu_backward(run->stream, dgate_up, dout,
                                            gate_up);
    if (clamped.limit == 0)
        return run->kernels->swiglu_backward(run->stream, dgate_up, dout,
                                             gate_up);
    clamped.dgate_up = dgate_up;
    clamped.dout = dout;
    clamped.gate_up = gate_up;
    return run->kernels->clamped_backward(run->stream, &clamped);
}

/* Experts [first, first + count) whose sums lie at equal distances. */
struct expert_run {
    struct gradient_target target; /* of the first */
    int64_t stride;                /* elements */
    int first, count;
    int end;                       /* of the experts that are asked for */
};

static bool begin_one(struct run *run, const struct step *step, int expert,
                      const struct addend *addend, int sum,
                      struct gradient_target *target)
{
    const int use = step->use[0] + expert;

    if (!gradient_made(run->program, use)) return false;
    gradient_begin(run->gradients, use, addend, sum, target);
    return true;
}

/* The next run from r->first + r->count on; false: none. */
static bool next_run(struct run *run, const struct step *step,
                     const struct addend *addend, int sum,
                     struct expert_run *r)
{
    int at = r->first + r->count;
    struct gradient_target target;

    while (at < r->end &&
           !begin_one(run, step, at, addend, sum, &r->target))
        at++;
    if (at >= r->end) return false;
    r->first = at;
    r->count = 1;
    r->stride = 0;
    for (at++; at < r->end; at++, r->count++) {
        if (!begin_one(run, step, at, addend, sum, &target)) break;
        const int64_t away =
            ((const char *)target.c.data - (const char *)r->target.c.data) /
            dtype_bytes(target.c.dtype);

        if (r->count == 1) r->stride = away;
        if (away != r->count * r->stride) break;
    }
    return true;
}

/* The tokens of an addend, counted in the micro-batches of all sources. */
static struct sum_order order_of(struct run *run, const struct addend *addend,
                                 int only)
{
    const struct sum_order order = run_order_tokens(run, addend, only);
    const int64_t first = addend_first_token(run->program, addend) +
                          (run->gradients->source * run->gradients->contexts +
                           run->gradients->of) * run->program->size.tokens;

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

/* Piece i of the sums of a matrix, or all of it where there are none. */
static status sum_matrix(struct run *run, const struct expert_operands *of,
                         const struct experts_gradient *all, int i)
{
    const struct expert_beside *form = of->pieces;
    struct experts_gradient one = *all;

    if (form == NULL)
        return run->kernels->experts_gradient(run->stream, all);
    one.c.data = (char *)all->c.data + i * form->rows * all->c.stride[1] *
                                           dtype_bytes(all->c.dtype);
    one.c.shape[1] = form->rows;
    one.a.matrix = tensor_cols(all->a.matrix, form->column[i], form->rows);
    one.b.matrix = tensor_cols(all->b.matrix, i * form->rank, form->rank);
    return run->kernels->experts_gradient(run->stream, &one);
}

/* The sums of a run of experts. */
static status sum_run(struct run *run, const struct expert_operands *of,
                      const struct expert_run *r,
                      const struct sum_order *order)
{
    const struct tensor one = r->target.c;
    int64_t row = 0;
    const struct expert_groups groups =
        choice_some(of->lists, r->first, r->count, &row);
    struct experts_gradient matrix = {
        .groups = &groups, .a = rows_from(of->a, row), .order = order,
        .continues = r->target.continues, .adds = r->target.left,
        .accumulator = of->accumulator};
    struct experts_sums vector = {
        .groups = &groups, .a = matrix.a, .order = order,
        .continues = matrix.continues, .adds = matrix.adds};

    if (of->b.matrix.data == NULL) {
        vector.c = tensor_2d(one.data, one.dtype, r->count,
                             tensor_count(&one));
        if (r->count > 1) vector.c.stride[0] = r->stride;
        return run->kernels->experts_sums(run->stream, &vector);
    }
    matrix.b = rows_from(of->b, row);
    matrix.c = tensor_3d(one.data, one.dtype, r->count, one.shape[0],
                         one.shape[1]);
    if (r->count > 1) matrix.c.stride[0] = r->stride;
    for (int i = 0; i < (of->pieces != NULL ? of->pieces->pieces : 1); i++)
        TRY(sum_matrix(run, of, &matrix, i));
    return OK;
}

/* Experts of one source. */
struct expert_range { int first, end; };

static status sum_gradient(struct run *run, const struct step *step,
                           const struct expert_operands *of,
                           const struct addend *addend, int sum,
                           struct expert_range range)
{
    struct expert_run r = {.first = range.first, .end = range.end};

    while (next_run(run, step, addend, sum, &r)) {
        const struct sum_order order = order_of(run, addend, r.target.only);

        TRY(sum_run(run, of, &r, &order));
    }
    return OK;
}

/* The first expert of the source in the pairs from `pair` on. */
static int first_expert(int pair, int source, int sources)
{
    return pair <= source ? 0 : (pair - source + sources - 1) / sources;
}

/* The experts of the source of now, of those that are asked for. */
static struct expert_range range_of(const struct step *step,
                                    const struct gradients *g,
                                    const struct expert_operands *of)
{
    const struct use_info *use = &g->program->uses[step->use[0]];
    const int sources = use->sources * use->contexts;
    const int source = g->source * use->contexts + g->of;
    const int last = of->last > 0 ? of->last : step->each * sources;

    return (struct expert_range){first_expert(of->first, source, sources),
                                 first_expert(last, source, sources)};
}

static status addend_weight(const struct step *step, struct run *run,
                            const struct expert_operands *of,
                            const struct addend *addend)
{
    struct gradients *g = run->gradients;
    const struct expert_range range = range_of(step, g, of);
    const int sums = gradient_sums(g, step->use[0], addend);

    for (int i = 0; i < sums; i++) {
        if (range.first == range.end) break;
        TRY(sum_gradient(run, step, of, addend, i, range));
        for (int e = range.first; e < range.end; e++)
            if (gradient_made(run->program, step->use[0] + e))
                TRY(gradient_end(g, step->use[0] + e, i));
    }
    return OK;
}

/* Context ranks of a source have parts of the same data leaves: addend by
 * addend. */
static status source_weight(const struct step *step, struct run *run,
                            const struct expert_operands *of, int source)
{
    struct gradients *g = run->gradients;
    const int contexts = run->program->uses[step->use[0]].contexts;
    struct addend_cursor cursor = {0};
    struct addend addend;

    while (addend_next(&g->cut[0], run->batch.index, &cursor, &addend))
        for (int i = 0; i < contexts; i++) {
            gradients_from(g, source, i);
            TRY(addend_weight(step, run, of, &addend));
        }
    return OK;
}

status experts_weight(const struct step *step, struct run *run,
                      const struct expert_operands *of)
{
    const int sources = run->program->uses[step->use[0]].sources;
    struct straight_weights straight;
    status result = OK;

    /* A bias is no matrix: nothing of it is rotated or cut off. */
    if (of->b.matrix.data != NULL) straight_begin(&straight, run, step);
    for (int i = 0; i < sources && result == OK; i++)
        result = source_weight(step, run, of, i);
    straight_end(run);
    gradients_from(run->gradients, 0, 0);
    return result;
}

/* ---- parts of rows ---- */

static struct tensor part_at(struct tensor all, int64_t rows, int part)
{
    const struct tensor some = tensor_rows(all, part * rows, rows);

    return tensor_1d(some.data, some.dtype, tensor_count(&some));
}

status expert_parts_add(struct run *run, struct tensor all, int parts,
                        struct tensor out)
{
    const int64_t rows = all.shape[0] / parts;

    if (rows == 0) return OK;
    for (int apart = 1; apart < parts; apart *= 2)
        for (int i = 0; i + apart < parts; i += 2 * apart) {
            const struct tensor a = part_at(all, rows, i);

            TRY(run->real->add(run->stream, a, a,
                               part_at(all, rows, i + apart)));
        }
    if (out.data == all.data) return OK;
    return run->kernels->scale(run->stream, part_at(out, rows, 0),
                               part_at(all, rows, 0), 1.0);
}

/* ---- building ---- */

void experts_params(struct program *p, int step, int which,
                    const struct param_spec *spec, int experts)
{
    const struct expert_span held = experts_held(p, experts);
    int first[2] = {-1, -1};

    for (int i = 0; i < experts && p->error == OK; i++) {
        struct param_spec one = *spec;

        one.expert = i + 1;
        one.spread = experts_are_spread(p) ? held.count : 0;
        one.folded = p->layout.mesh.folded;
        if (experts_are_folded(p) || experts_cut(p) > 1)
            one.within = experts_cut(p);
        if (i < held.first || i >= held.first + held.count) {
            p->error = param_skip(&p->params, &one);
            continue;
        }
        program_add_param(p, step, which, &one);
        if (p->error != OK) return;
        if (i == held.first) {
            first[0] = p->steps[step].param[which];
            first[1] = p->steps[step].use[which];
        }
    }
    p->steps[step].param[which] = first[0];
    p->steps[step].use[which] = first[1];
    p->steps[step].each = held.count;
}
