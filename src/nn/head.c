/* SPDX-License-Identifier: Apache-2.0 */
/* head.c - logits and cross-entropy, logits chunk by logits chunk over tokens,
 * so that the logits are never whole in memory.
 *
 * In training F does nothing: B makes a logits chunk's logits, its losses and
 * its gradients, and in fused mode the weight's gradient too, from one product.
 * Where no B follows (validation, score), F makes logits and losses. In
 * PROGRAM_GENERATE F makes the logits of the last token, or of several last
 * ones (run->last). */
#include "nn/layer.h"

static const struct param *head_param(const struct program *p,
                                      const struct step *step)
{
    return &p->params.items[step->param[0]];
}

/* Elements from one token's logits to the next: an odd number of lines, so that
 * an element of many tokens does not fall on few sets of a cache. */
static int64_t logits_apart(const struct step *step, const struct program *p)
{
    enum { SHORT = 2048 }; /* bytes: a cache has room for many */
    const int64_t bytes = dtype_bytes(program_real(p));
    const int64_t line = ARENA_ALIGN / bytes;
    const int64_t rows = head_param(p, step)->rows;

    if (rows * bytes < SHORT) return rows;
    return ((rows + line - 1) / line | 1) * line;
}

/* logits [rows of x, rows of the weight] in the layer scratch, real. They are
 * dense for a soft cap and for code outside that reads them. */
static status make_logits(const struct step *step, struct run *run,
                          struct tensor x, struct tensor *logits)
{
    const struct sum_order order = run_order_whole(run, x.shape[1]);

    *logits = tensor_2d(run->scratch, program_real(run->program), x.shape[0],
                        head_param(run->program, step)->rows);
    if (run->logits.read == NULL && step->set.head.softcap == 0)
        logits->stride[0] = logits_apart(step, run->program);
    struct matmul call = {
        .c = *logits, .a = x,
        .b = tensor_transpose(run_weight(run, step, 0)), .order = &order,
        .strips = run_in_strips(run, step, 0)};
    struct tensor bias;

    if (step->param[1] >= 0) {
        bias = run_weight(run, step, 1); /* a matrix of one column */
        bias = tensor_1d(bias.data, bias.dtype, bias.shape[0]);
        call.bias = &bias;
    }
    TRY(run->kernels->matmul(run->stream, &call));
    if (step->set.head.softcap == 0) return OK;
    return run->kernels->softcap_forward(run->stream, *logits, *logits,
                                         step->set.head.softcap);
}

/* ---- losses ---- */

static int64_t logits_rows(const struct program *p)
{
    if (p->mode == PROGRAM_GENERATE) { /* a token and what modules guess, or
                                        * one of each text */
        const int64_t most = p->later.depth >= p->caches.texts
                                 ? 1 + p->later.depth : p->caches.texts;

        return most < p->size.tokens ? most : p->size.tokens;
    }
    return p->size.logits_chunk < p->size.tokens ? p->size.logits_chunk
                                                 : p->size.tokens;
}

static size_t logits_bytes(const struct step *step, const struct program *p)
{
    const size_t bytes = (size_t)(logits_rows(p) * logits_apart(step, p)) *
                         (size_t)dtype_bytes(program_real(p));

    return arena_aligned(bytes);
}

/* The message between tensor ranks for n tokens: [2 n] for the maxima and the
 * targets' logits, [n] for the sums. */
static struct comm_call share_call(struct tensor values,
                                   enum reduction reduction)
{
    return (struct comm_call){.kind = COMM_ALL_REDUCE,
                              .algorithm = ALGORITHM_ORDERED,
                              .reduction = reduction, .out = values,
                              .in = values};
}

static size_t head_messages(const struct step *step, const struct program *p,
                            const struct group *tensor)
{
    const struct comm_call most = share_call(
        tensor_1d(NULL, program_real(p), 2 * logits_rows(p)), REDUCE_MAX);
    const struct comm_call sum = share_call(
        tensor_1d(NULL, program_real(p), logits_rows(p)), REDUCE_SUM);
    const size_t a = comm_scratch_bytes(tensor, &most);
    const size_t b = comm_scratch_bytes(tensor, &sum);

    (void)step;
    return a > b ? a : b;
}

static status loss_phase(struct run *run, struct cross_entropy *call,
                         enum loss_phase phase)
{
    call->phase = phase;
    return run->kernels->cross_entropy(run->stream, call);
}

/* Each rank has the logits of its rows of the vocabulary. Three numbers a token
 * go round, the logits do not. Source: Shoeybi et al. 2019, arXiv:1909.08053,
 * section 3. */
static status share_losses(const struct step *step, struct run *run,
                           struct cross_entropy *call)
{
    const struct program *p = run->program;
    const struct param *weight = head_param(p, step);
    const int64_t n = call->logits.shape[0];
    const enum dtype real = program_real(p);
    char *at = (char *)run->scratch + logits_bytes(step, p);
    struct comm_call share;

    call->leaves = (int)program_leaves(p).count;
    call->first =
        layout_held(&weight->spec, &p->layout.mesh, &p->layout.place, 0).first;
    call->block = layout_leaf(&weight->spec, p->layout.grid.tensor, 0, 0).count;
    call->maximum = at;
    call->target = at + n * dtype_bytes(real);
    call->sum = at + 2 * n * dtype_bytes(real);
    TRY(loss_phase(run, call, LOSS_MAXIMUM));
    share = share_call(tensor_1d(at, real, 2 * n), REDUCE_MAX);
    TRY(comm_run(run->groups[AXIS_TENSOR], &share));
    TRY(loss_phase(run, call, LOSS_SUM));
    share = share_call(tensor_1d(call->sum, real, n), REDUCE_SUM);
    TRY(comm_run(run->groups[AXIS_TENSOR], &share));
    return loss_phase(run, call, LOSS_END);
}

static status make_losses(const struct step *step, struct run *run,
                          struct tensor logits, int64_t first, bool gradient)
{
    const int ahead = program_ahead(run->program, step);
    struct cross_entropy call = {
        .logits = logits, .targets = run_targets(run, step) + first,
        .losses = run_losses(run, step) + first,
        .leaves = run->program->layout.grid.tensor,
        .gradient = gradient, .scale = run->now.loss_scale};

    if (ahead > 0 && gradient)
        call.scale = run->later.weights[ahead - 1] *
                     (run->now.loss_scale > 0 ? run->now.loss_scale : 1);
    if (gradient && run->z_losses != NULL && ahead == 0) {
        call.z_loss = run->program->regular.z_loss;
        call.z_losses = run->z_losses + first;
    }
    if (program_tensor_ranks(run->program) > 1)
        return share_losses(step, run, &call);
    return run->kernels->cross_entropy(run->stream, &call);
}

/* ---- passes ---- */

/* Readers see logits on the host, dense. */
static status show_logits(struct run *run, int64_t first, struct tensor logits)
{
    const size_t bytes = (size_t)tensor_bytes(&logits);
    void *seen = run_list(run, logits.data);

    TRY(device_read(run->stream, seen, logits.data, bytes));
    logits.data = seen;
    return run->logits.read(run->logits.argument, first, &logits);
}

static status generate_last(const struct step *step, struct run *run)
{
    const struct tensor x = run_slot(run, step->input);
    const bool some =
        run->logits.last > 0 && program_ahead(run->program, step) == 0;
    const int64_t rows = some ? run->logits.last : 1;
    const int64_t first = x.shape[0] - rows;
    struct tensor logits;

    if (run->logits.read == NULL) return OK;
    CHECK(first >= 0 && rows <= logits_rows(run->program));
    TRY(make_logits(step, run, tensor_rows(x, first, rows), &logits));
    return show_logits(run, run->batch.first_position + first, logits);
}

static status head_forward(const struct step *step, struct run *run)
{
    const struct tensor x = run_slot(run, step->input);
    const int64_t tokens = run_tokens(run);

    if (run->program->mode == PROGRAM_GENERATE)
        return generate_last(step, run);
    TRY(overlap_wait_all(run, x));
    if (run->gradients != NULL && run->logits.read == NULL) return OK;
    if (program_ahead(run->program, step) > 0) return OK;
    for (int64_t first = 0; first < tokens;
         first += run->program->size.logits_chunk) {
        const int64_t left = tokens - first;
        const int64_t count = left < run->program->size.logits_chunk
                                  ? left
                                  : run->program->size.logits_chunk;
        struct tensor logits;

        TRY(make_logits(step, run, tensor_rows(x, first, count), &logits));
        if (run->logits.read != NULL)
            TRY(show_logits(run, first, logits));
        TRY(make_losses(step, run, logits, first, false));
    }
    return OK;
}

/* The gradient of the logits, which has taken their place: narrow, it is the
 * first half of each row. */
static struct tensor logits_gradient(const struct run *run,
                                     struct tensor logits)
{
    if (!dtype_is_narrow(run->program->dtype)) return logits;
    logits.dtype = run->program->dtype;
    logits.stride[0] *= 2;
    return logits;
}

static status input_gradient(const struct step *step, struct run *run,
                             struct tensor dlogits, const struct addend *addend)
{
    const struct tensor dx =
        addend_rows(run, run_gradient(run, step->input), addend);
    const struct sum_order order =
        run_order_cut(run, head_param(run->program, step));
    struct matmul call = {.c = dx, .a = dlogits,
                          .b = run_weight(run, step, 0), .order = &order};

    if (run->event->adds) call.left = &dx;
    return run->kernels->matmul(run->stream, &call);
}

static size_t ones_bytes(const struct step *step, const struct program *p)
{
    return step->param[1] < 0
               ? 0 : (size_t)(logits_rows(p) * dtype_bytes(p->dtype));
}

/* A copy of capped logits, for the slope of the cap. */
static size_t capped_bytes(const struct step *step, const struct program *p)
{
    return step->set.head.softcap == 0 ? 0 : logits_bytes(step, p);
}

static size_t head_scratch(const struct step *step, const struct program *p)
{
    const size_t numbers =
        program_tensor_ranks(p) == 1 ? 0 : (size_t)(3 * logits_rows(p));

    return logits_bytes(step, p) +
           arena_aligned(numbers * (size_t)dtype_bytes(program_real(p))) +
           capped_bytes(step, p) + ones_bytes(step, p);
}

/* A column of ones, behind the logits and their numbers. */
static status make_ones(const struct step *step, struct run *run,
                        int64_t tokens, struct tensor *out)
{
    const size_t at = head_scratch(step, run->program) -
                      ones_bytes(step, run->program);
    struct tensor column = tensor_2d((char *)run->scratch + at,
                                     run->program->dtype, tokens, 1);

    *out = column;
    column.data = run_list(run, column.data);
    for (int64_t i = 0; i < tokens; i++) tensor_set(&column, i, 1);
    return run_told(run, out->data, (size_t)tensor_bytes(&column));
}

static status weight_gradient(const struct step *step, struct run *run,
                              struct tensor dlogits,
                              const struct addend *addend)
{
    if (gradient_made(run->program, step->use[0]))
        TRY(weight_product(run, step, dlogits,
                           addend_rows(run, run_slot(run, step->input), addend),
                           addend));
    if (step->param[1] < 0 || !gradient_made(run->program, step->use[1]))
        return OK;
    struct tensor ones;

    TRY(make_ones(step, run, dlogits.shape[0], &ones));
    return use_product(run, step->use[1], dlogits, ones, addend);
}

/* Where capped logits are kept: before the ones, at the end of scratch. */
static struct tensor copy_capped(const struct step *step, struct run *run,
                                 struct tensor logits)
{
    const struct program *p = run->program;

    logits.data = (char *)run->scratch + head_scratch(step, p) -
                  ones_bytes(step, p) - capped_bytes(step, p);
    return logits;
}

static status keep_capped(const struct step *step, struct run *run,
                          struct tensor capped, struct tensor logits)
{
    const int64_t n = tensor_count(&logits);

    if (step->set.head.softcap == 0) return OK;
    return run->kernels->scale(run->stream,
                               tensor_1d(capped.data, capped.dtype, n),
                               tensor_1d(logits.data, logits.dtype, n), 1.0);
}

static status head_backward(const struct step *step, struct run *run,
                            bool input, bool weight)
{
    const struct cut *cut = &run->gradients->cut[1];
    struct addend_cursor cursor = {0};
    struct addend addend;

    TRY(overlap_wait_all(run, run_slot(run, step->input)));
    while (addend_next(cut, run->batch.index, &cursor, &addend)) {
        const int64_t first = addend_first_token(run->program, &addend);
        struct tensor logits;

        TRY(make_logits(
            step, run,
            addend_rows(run, run_slot(run, step->input), &addend), &logits));
        const struct tensor capped = copy_capped(step, run, logits);

        TRY(keep_capped(step, run, capped, logits));
        TRY(make_losses(step, run, logits, first, true));
        logits = logits_gradient(run, logits);
        if (step->set.head.softcap > 0)
            TRY(run->kernels->softcap_backward(run->stream, logits, capped,
                                               step->set.head.softcap));
        if (input) TRY(input_gradient(step, run, logits, &addend));
        if (weight) TRY(weight_gradient(step, run, logits, &addend));
    }
    return OK;
}

static status head_backward_input(const struct step *step, struct run *run)
{
    return head_backward(step, run, true,
                         run->plan->mode == BACKWARD_FUSED);
}

static status head_backward_weight(const struct step *step, struct run *run)
{
    if (run->plan->mode == BACKWARD_FUSED) return OK; /* B did it */
    return head_backward(step, run, false, true);
}

static struct step_cost head_cost(const struct step *step,
                                  const struct program *p)
{
    const struct param *weight = &p->params.items[step->param[0]];

    return (struct step_cost){
        .flops = 2 * (double)p->size.tokens * (double)weight->elements,
        .bytes_moved = (double)(p->size.tokens * 2 * weight->rows *
                                    dtype_bytes(program_real(p)) +
                                (p->size.tokens * weight->cols +
                                 weight->elements) * dtype_bytes(p->dtype))};
}

/* Two numbers a token, then one, of n tokens. */
static void add_shares(struct layer_exchange *exchange,
                       const struct program *p, int64_t n)
{
    const int ranks = p->layout.mesh.size[AXIS_TENSOR];
    const int rank = p->layout.place.at[AXIS_TENSOR];

    exchange->calls += 2;
    exchange->bytes += (exchange_all_reduce(n, ranks, rank) +
                        exchange_all_reduce(2 * n, ranks, rank)) *
                       dtype_bytes(program_real(p));
}

/* F alone makes losses logits chunk by logits chunk, but of later tokens
 * none. */
static void add_losses(struct layer_exchange *exchange, const struct program *p,
                       const struct step *step)
{
    const int64_t tokens = program_ahead(p, step) > 0 ? 0 : p->size.tokens;

    for (int64_t first = 0; first < tokens; first += p->size.logits_chunk)
        add_shares(exchange, p,
                   tokens - first < p->size.logits_chunk ? tokens - first
                                                    : p->size.logits_chunk);
}

/* W apart from B does both again. Addends depend on the micro-batch. */
static void head_exchanges(const struct step *step, const struct program *p,
                           const struct exchange_case *at,
                           struct layer_exchanges *out)
{
    const bool again = at->mode == BACKWARD_SPLIT &&
                       at->event->pass == PASS_BACKWARD_WEIGHT;
    const bool makes = at->alone ? exchange_forward(at)
                                 : exchange_backward(at) || again;
    const struct cut cut = program_cut(p, true);
    struct layer_exchange exchange = {
        .axis = AXIS_TENSOR, .kind = COMM_ALL_REDUCE,
        .what = SENT_TOKEN_LOSSES};
    struct addend_cursor cursor = {0};
    struct addend addend;

    if (p->layout.mesh.size[AXIS_TENSOR] == 1 || !makes) return;
    if (at->alone) add_losses(&exchange, p, step);
    while (!at->alone && addend_next(&cut, at->microbatch, &cursor, &addend))
        add_shares(&exchange, p, addend.sequences * addend.tokens);
    layer_exchanges_add(out, p, exchange);
    out->varies = true;
}

static const struct layer layer_head = {
    .name = "head", .kind = LAYER_HEAD, .forward = head_forward,
    .backward_input = head_backward_input,
    .backward_weight = head_backward_weight, .cost = head_cost,
    .scratch = head_scratch, .messages = head_messages,
    .exchanges = head_exchanges,
    .keeps_input_for_b = true,
    .keeps_input_for_w = true};

void nn_head(struct program *p, slot x, const struct param_spec *spec)
{
    /* F in training makes nothing of it, and B follows soon: kept */
    x = relayout_whole(p, x, false);
    const int step = program_add_step(p, &layer_head, x);

    if (p->error != OK) return;
    if (spec != NULL)
        program_add_param(p, step, 0, spec);
    else
        program_add_use(p, step, 0, p->steps[0].param[0]);
    if (p->error == OK) p->uses[p->use_count - 1].head = true;
}

void nn_mtp_head(struct program *p, slot x)
{
    int first = 0;

    x = relayout_whole(p, x, false);
    const int step = program_add_step(p, &layer_head, x);

    if (p->error != OK) return;
    while (p->steps[first].layer != &layer_head) first++;
    CHECK(first < step && p->steps[first].param[1] < 0);
    p->steps[step].set = p->steps[first].set;
    program_add_use(p, step, 0, p->steps[first].param[0]);
    if (p->error == OK) p->uses[p->use_count - 1].head = true;
}

void nn_head_bias(struct program *p, const struct param_spec *spec)
{
    const int step = p->step_count - 1;

    if (p->error != OK) return;
    CHECK(p->steps[step].layer == &layer_head && spec->cols == 1);
    program_add_param(p, step, 1, spec);
    if (p->error == OK) p->uses[p->use_count - 1].head = true;
}

void nn_head_softcap(struct program *p, double cap)
{
    if (p->error != OK) return;
    CHECK(p->steps[p->step_count - 1].layer == &layer_head && cap > 0);
    p->steps[p->step_count - 1].set.head.softcap = cap;
}
