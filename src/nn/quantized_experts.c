/* SPDX-License-Identifier: Apache-2.0 */
/* quantized_experts.c - operands of the products of experts in few bits: one
 * expert after the other.
 *
 *   memory   token | gate | place of each row | spans | peaks | rows of an
 *            expert | left | right | matrix of an expert | wide | scales of
 *            codes                                                          */
#include "nn/quantized_experts.h"

#include "mesh/group.h"
#include "nn/expert_ranks.h"
#include "nn/operand_peaks.h"
#include "nn/straight_through.h"

struct room {
    int32_t *tokens;
    char *gates;
    struct dropout_row *places;
    struct quantize_span *rows, *cols;
    float *peaks, *wide;
    float *left_scales, *weight_scales;
    char *plain, *left, *right, *weight;
    size_t bytes;
};

static void *take(char *base, size_t *at, int64_t count, size_t size)
{
    void *out = base == NULL ? NULL : base + *at;

    *at += arena_aligned((size_t)count * size);
    return out;
}

static int64_t context_chunk_of(const struct program *p)
{
    return p->size.length / p->size.context_chunks;
}

/* base NULL: only counts. lists: where the host makes them. rows: at most as
 * many are an expert's. */
struct bases { char *base, *lists; };
static struct room room_of(const struct step *step, const struct program *p,
                           int64_t rows, struct bases of)
{
    char *const base = of.base, *const lists = of.lists;
    const struct param *param = &p->params.items[step->param[0]];
    const int64_t wide =
        param->rows > param->cols ? param->rows : param->cols;
    const int64_t count =
        p->size.tokens * experts_sources(p) / context_chunk_of(p);
    const int64_t spans =
        count > quantized_spans(p) ? count : quantized_spans(p);
    const size_t number = (size_t)dtype_bytes(DTYPE_BF16);
    const size_t span = sizeof(struct quantize_span);
    struct room room = {0};
    size_t at = 0;

    room.tokens = take(lists, &at, rows, sizeof *room.tokens);
    room.gates = take(base, &at, rows, (size_t)dtype_bytes(program_real(p)));
    room.places = take(lists, &at, rows > param->rows ? rows : param->rows,
                       sizeof *room.places);
    room.rows = take(lists, &at, spans, span);
    room.cols = take(lists, &at, quantized_spans(p), span);
    room.peaks =
        take(base, &at, spans * quantized_spans(p), sizeof *room.peaks);
    room.plain = take(base, &at, rows * wide, number);
    room.left = take(base, &at, rows * wide, number);
    room.right = take(base, &at, rows * wide, number);
    room.weight = take(base, &at, param->elements, number);
    if (p->precision.recipe.straight)
        room.wide = take(base, &at,
                         rows * wide > param->elements ? rows * wide
                                                       : param->elements,
                         sizeof *room.wide);
    if (precision_is_integer(&p->precision.recipe)) {
        room.left_scales = take(base, &at, quantized_scales(p, rows),
                                sizeof *room.left_scales);
        room.weight_scales = take(base, &at, quantized_scales(p, param->rows),
                                  sizeof *room.weight_scales);
    }
    room.bytes = at;
    return room;
}

size_t quantized_experts_bytes(const struct step *step,
                               const struct program *p, int64_t rows)
{
    return step->few ? room_of(step, p, rows, (struct bases){0}).bytes : 0;
}

static struct room room_in(const struct quantized_experts *few,
                           const struct run *run)
{
    return room_of(few->step, run->program, few->rows,
                   (struct bases){few->memory, run_list(run, few->memory)});
}

/* ---- rows of an expert ---- */

/* The rows [first, first + count) of the groups, in a product. */
struct expert_part {
    const struct quantized_experts *few;
    struct room room;
    const struct param *param; /* of the expert */
    enum product_use use;
    int64_t first, count;
};

static int64_t token_of(const struct expert_part *part, int64_t row)
{
    const struct expert_groups *groups = &part->few->lists->groups;

    return groups->entries[part->first + row] / groups->choices;
}

/* The rows as the product would read them, gates included, rounded once. */
static status plain_rows(struct run *run, const struct expert_part *part,
                         const struct expert_rows *from, struct tensor *out)
{
    const int32_t *entries = part->few->lists->groups.entries + part->first;
    const enum dtype real = program_real(run->program);
    const struct tensor all = from->matrix;
    const struct room *room = &part->room;

    *out = tensor_2d(room->plain, all.dtype, part->count, all.shape[1]);
    if (!from->gathered) {
        CHECK(from->scales == NULL);
        *out = tensor_rows(all, part->first, part->count);
        return OK;
    }
    for (int64_t i = 0; i < part->count; i++)
        room->tokens[i] = (int32_t)token_of(part, i);
    if (from->scales == NULL)
        return run->kernels->gather_rows(run->stream, *out, false, all,
                                         room->tokens);
    TRY(run->real->gather_rows(
        run->stream, tensor_2d(room->gates, real, part->count, 1), false,
        tensor_2d((void *)(uintptr_t)from->scales, real,
                  all.shape[0] * part->few->lists->groups.choices, 1),
        entries));
    return run->kernels->experts_combine(
        run->stream, &(struct experts_combine){
            .y = *out, .rows = all, .places = room->tokens,
            .numbers = room->tokens, .gates = room->gates, .choices = 1,
            .leaf_experts = 1});
}

/* Runs of rows whose tokens have one context chunk. */
static int64_t fill_context_chunks(const struct program *p,
                                   const struct expert_part *part)
{
    struct quantize_span *spans = part->room.rows;
    int64_t count = 0, last = -1;

    for (int64_t i = 0; i < part->count; i++) {
        const int64_t context_chunk = token_of(part, i) / context_chunk_of(p);

        if (context_chunk != last)
            spans[count++] = (struct quantize_span){.first = i};
        spans[count - 1].count++;
        last = context_chunk;
    }
    return count;
}

/* Sequences of a rank of the expert axis, less those of this one. A stage on
 * two ranks has half of a rank's batch. */
static int64_t sequences_away(const struct run *run, int rank)
{
    const struct program *p = run->program;
    const int halves = run->gradients != NULL && run->gradients->halved ? 2 : 1;
    struct place place = p->layout.place;

    if (p->layout.mesh.size[AXIS_EXPERT] == 1) return 0;
    place.at[AXIS_EXPERT] = rank;
    return (mesh_batch_rank(&p->layout.mesh, &place) -
            mesh_batch_rank(&p->layout.mesh, &p->layout.place)) *
           p->size.batch * halves;
}

static void fill_places(const struct run *run, const struct expert_part *part,
                        bool gradient)
{
    const struct program *p = run->program;
    const uint64_t site = quantized_site(part->param, part->use, gradient);

    for (int64_t i = 0; i < part->count; i++) {
        const int64_t all = token_of(part, i), tokens = part->few->tokens;
        const int64_t token = all % tokens;
        const int source = (int)(all / tokens), contexts = experts_contexts(p);
        const int64_t first = run->batch.sequence +
                              sequences_away(run, source / contexts);
        const int context =
            contexts > 1 ? source % contexts : p->layout.place.at[AXIS_CONTEXT];

        part->room.places[i] = quantized_place(
            first + token / p->size.length,
            program_position_at(p, context, token % p->size.length), site);
    }
}

/* Products of a further turn are made again in B and W (expert_parallel.c):
 * only some rows are rounded again, so shares of all would not be theirs. */
static bool is_repeated(const struct run *run, enum product_use use)
{
    const enum pass pass = run->event->pass;

    return (use == USE_FORWARD && pass != PASS_FORWARD) ||
           (use == USE_DGRAD && pass == PASS_BACKWARD_WEIGHT);
}

/* to [rows of the part, width] = the part of `from` rounded. */
static status round_part(struct run *run, const struct expert_part *part,
                         bool gradient, const struct expert_rows *from,
                         struct tensor to)
{
    const struct program *p = run->program;
    const struct precision *recipe = &p->precision.recipe;
    const bool right = part->use == USE_WGRAD && !gradient;
    const struct quantized_operand of = {
        gradient ? &recipe->gradients : &recipe->activations,
        operand_peaks_value(part->param, (int)part->use, right),
        part->use == USE_WGRAD};
    struct quantize call = {
        .out = to, .scales = to.dtype == DTYPE_U8 ? part->room.left_scales
                                                  : NULL,
        .rows = part->room.rows, .cols = part->room.cols,
        .peaks = part->room.peaks, .key = run->keys.recipe,
        .places = part->room.places,
        .turn = part->use == USE_WGRAD && recipe->turn};

    TRY(plain_rows(run, part, from, &call.in));
    call.row_spans = fill_context_chunks(p, part);
    call.col_spans =
        quantized_features(p, part->param, gradient, part->room.cols);
    if (recipe->straight) {
        fill_places(run, part, gradient);
        return quantized_again(run, part->param, part->use, of.value,
                               part->room.wide, &call);
    }
    quantized_set(&call, run, &of);
    if (part->few->again || is_repeated(run, part->use)) call.tally = NULL;
    if (call.rounding == ROUND_STOCHASTIC) fill_places(run, part, gradient);
    return run->kernels->quantize(run->stream, &call);
}

static struct expert_part part_of(const struct quantized_experts *few,
                                  const struct run *run, enum product_use use,
                                  int expert)
{
    const struct program *p = run->program;
    const int32_t *offsets = few->lists->groups.offsets;

    return (struct expert_part){
        few, room_in(few, run),
        &p->params.items[few->step->param[0] + expert], use, offsets[expert],
        offsets[expert + 1] - offsets[expert]};
}

/* ---- products ---- */

/* The matrix of an expert as the product reads it. */
static status matrix_of(struct run *run, const struct expert_part *part,
                        int expert, struct tensor *out)
{
    const struct room *room = &part->room;
    const struct tensor all = weights_of(part->few->step, run);
    struct tensor one = tensor_2d(
        (char *)all.data + expert * all.stride[0] * dtype_bytes(all.dtype),
        all.dtype, all.shape[1], all.shape[2]);

    TRY(quantized_matrix(
        run, part->param, part->use,
        &(struct quantized_matrix_room){room->rows, room->cols, room->places,
                                        room->wide, room->peaks, room->weight,
                                        room->weight_scales,
                                        part->few->again},
        &one));
    *out = tensor_3d(one.data, one.dtype, 1, one.shape[0], one.shape[1]);
    if (part->use == USE_FORWARD) *out = transposed(*out);
    return OK;
}

/* y of codes. */
static status integers_of(struct run *run, const struct expert_part *part,
                          const struct experts_product *call)
{
    struct tensor bias = call->bias;
    const struct integer_product product = {
        .c = call->c, .a = call->a.matrix,
        .b = tensor_2d(call->b.data, DTYPE_U8, call->b.shape[2],
                       call->b.shape[1]),
        .a_scales = part->room.left_scales,
        .b_scales = part->room.weight_scales, .order = call->order,
        .bias = bias.data != NULL ? &bias : NULL};

    if (bias.data != NULL)
        bias = tensor_1d(bias.data, bias.dtype, bias.shape[1]);
    return run->kernels->integer_product(run->stream, &product);
}

static status product_of(struct run *run, const struct expert_part *part,
                         int expert, const struct experts_product *all)
{
    const struct precision *recipe = &run->program->precision.recipe;
    const bool gradient = part->use == USE_DGRAD;
    const struct precision_role *role =
        gradient ? &recipe->gradients : &recipe->activations;
    const bool integer = part->use == USE_FORWARD &&
                         quantized_is_integer(run, part->few->step);
    int64_t row;
    const struct expert_groups groups =
        choice_some(part->few->lists, expert, 1, &row);
    struct experts_product call = *all;

    call.groups = &groups;
    call.accumulator = quantized_accumulator(run, part->few->step);
    call.c = tensor_rows(all->c, row, part->count);
    /* A straight recipe rounds the rows where they are made. */
    if (role->format != FORMAT_BF16 && (gradient || !recipe->straight)) {
        call.a = (struct expert_rows){.matrix = tensor_2d(
            part->room.left, integer ? DTYPE_U8 : DTYPE_BF16, part->count,
            all->a.matrix.shape[1])};
        TRY(round_part(run, part, gradient, &all->a, call.a.matrix));
    } else if (!call.a.gathered)
        call.a.matrix = tensor_rows(all->a.matrix, row, part->count);
    TRY(matrix_of(run, part, expert, &call.b));
    if (all->bias.data != NULL) {
        call.bias = tensor_rows(all->bias, expert, 1);
        call.bias.stride[0] = all->bias.stride[0];
    }
    return integer ? integers_of(run, part, &call)
                   : run->kernels->experts_product(run->stream, &call);
}

status quantized_experts_product(struct run *run,
                                 const struct quantized_experts *few,
                                 enum product_use use,
                                 const struct experts_product *call)
{
    if (!quantized_is(run, few->step))
        return run->kernels->experts_product(run->stream, call);
    for (int i = 0; i < call->groups->experts; i++) {
        const struct expert_part part = part_of(few, run, use, i);

        if (part.count > 0) TRY(product_of(run, &part, i, call));
    }
    return OK;
}

/* ---- sums over tokens ---- */

/* How x of a part is rounded for W; its spans are in the room. */
static struct quantize saved_call(const struct run *run,
                                  const struct expert_part *part,
                                  struct tensor x)
{
    const struct program *p = run->program;
    const struct quantized_operand of = {
        &p->precision.recipe.activations,
        operand_peaks_value(part->param, USE_WGRAD, true), true};
    struct quantize call = {
        .in = x, .rows = part->room.rows, .cols = part->room.cols,
        .peaks = part->room.peaks};

    quantized_set(&call, run, &of);
    call.out = tensor_2d(part->room.right, DTYPE_BF16, x.shape[0], x.shape[1]);
    call.row_spans = fill_context_chunks(p, part);
    call.col_spans = quantized_features(p, part->param, false, part->room.cols);
    return call;
}

/* Blocks along the rows of a part. */
static int64_t blocks_of(const struct quantize *call)
{
    return code_blocks(call->rows, call->row_spans, call->block_rows);
}

static status save_part(struct run *run, const struct expert_part *part,
                        struct tensor x, const struct saved_rows *at,
                        int64_t *blocks)
{
    const struct saved_place to = saved_experts_place(
        run->program, part->few->step, part->few->codes, at);
    const struct quantize call = saved_call(run, part, x);
    const struct block_encode encode = {
        .what = ENCODE_ALL, .in = x, .coding = quantized_coding(&call),
        .peaks = (float *)(void *)part->room.left, .scales = to.scales,
        .codes = to.codes, .row_bytes = to.row_bytes};

    *blocks += blocks_of(&call);
    /* Nobody reads the codes of a frozen expert; ranks that divide experts
     * come here, one that has them all and is frozen does not. */
    if (run->event->pass == PASS_FORWARD && param_has_gradient(part->param) &&
        (call.tally != NULL || call.seen != NULL))
        TRY(run->kernels->quantize(run->stream, &call));
    return run->kernels->block_encode(run->stream, &encode);
}

status quantized_experts_save(struct run *run,
                              const struct quantized_experts *few,
                              struct tensor x, struct saved_rows *at)
{
    const struct expert_groups *groups = &few->lists->groups;
    const struct saved_rows from = *at;

    for (int i = 0; i < groups->experts; i++) {
        const struct expert_part part = part_of(few, run, USE_WGRAD, i);

        at->first = from.first + part.first;
        if (part.count > 0)
            TRY(save_part(run, &part, tensor_rows(x, part.first, part.count),
                          at, &at->blocks));
    }
    at->first = from.first + groups->offsets[groups->experts];
    return OK;
}

/* to = the part of x, of codes, of which *blocks are before. */
static status decode_part(struct run *run, const struct expert_part *part,
                          int64_t *blocks, struct tensor to)
{
    const struct saved_place from = saved_experts_place(
        run->program, part->few->step, part->few->codes,
        &(struct saved_rows){part->few->rows, part->first, *blocks});
    const struct quantize call = saved_call(run, part, to);
    const struct block_decode decode = {
        .out = to, .coding = quantized_coding(&call), .scales = from.scales,
        .codes = from.codes, .row_bytes = from.row_bytes};

    *blocks += blocks_of(&call);
    return run->kernels->block_decode(run->stream, &decode);
}

static status round_operand(struct run *run,
                            const struct quantized_experts *few, bool gradient,
                            struct expert_rows *rows)
{
    const struct precision *recipe = &run->program->precision.recipe;
    const struct precision_role *role =
        gradient ? &recipe->gradients : &recipe->activations;
    const struct expert_groups *groups = &few->lists->groups;
    const struct room room = room_in(few, run);
    const struct tensor all = tensor_2d(
        gradient ? room.left : room.right, DTYPE_BF16,
        groups->offsets[groups->experts], rows->matrix.shape[1]);
    int64_t blocks = 0;

    if (role->format == FORMAT_BF16 && !recipe->straight) return OK;
    for (int i = 0; i < groups->experts; i++) {
        const struct expert_part part = part_of(few, run, USE_WGRAD, i);
        const struct tensor to = tensor_rows(all, part.first, part.count);

        if (part.count == 0) continue;
        /* Nobody reads the sums of frozen experts; ranks that divide experts
         * come here, one that has them all does not. */
        if (!gradient && few->codes != NULL)
            TRY(decode_part(run, &part, &blocks, to));
        else if (param_has_gradient(part.param))
            TRY(round_part(run, &part, gradient, rows, to));
    }
    *rows = (struct expert_rows){.matrix = all};
    return OK;
}

status quantized_experts_operands(struct run *run,
                                  const struct quantized_experts *few,
                                  struct expert_operands *of)
{
    if (!quantized_is(run, few->step)) return OK;
    of->accumulator = quantized_accumulator(run, few->step);
    TRY(round_operand(run, few, true, &of->a));
    return round_operand(run, few, false, &of->b);
}

status quantized_experts_check(const struct program *p)
{
    const struct precision_use *use = &p->precision;

    if (!use->on || use->recipe.activations.rounding != ROUND_STOCHASTIC ||
        p->layout.mesh.size[AXIS_EXPERT] == 1)
        return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: activations that are rounded "
                     "stochastically draw by the number of their sequence, "
                     "which a rank of mesh.expert knows of its own tokens "
                     "alone in an evaluation; round them to nearest, or use "
                     "mesh.expert=1");
}
