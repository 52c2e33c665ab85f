/* SPDX-License-Identifier: Apache-2.0 */
/* quantized_operands.c - operands of products in few bits.
 *
 *   scratch   sums of the bias | places | spans | peaks | left | right | wide |
 *             scales of codes
 *
 * left is x or dy, right the other operand. The host makes places and spans in
 * run->lists. */
#include "nn/operand_peaks.h"
#include "nn/saved_codes.h"
#include "nn/straight_through.h"

/* The counter's bits, as dropout has them. */
enum { SITE_SHIFT = 20, POSITION_SHIFT = 40, SITE_USES = 8 };

static const struct param *weight_of(const struct program *p,
                                     const struct step *step)
{
    return &p->params.items[step->param[0]];
}

bool quantized_is(const struct run *run, const struct step *step)
{
    return step->few && !run->now.high;
}

const struct accumulator *quantized_accumulator(const struct run *run,
                                                const struct step *step)
{
    const struct accumulator *of = &run->program->precision.accumulator;

    return quantized_is(run, step) && of->bits > 0 ? of : NULL;
}

bool quantized_is_integer(const struct run *run, const struct step *step)
{
    return quantized_is(run, step) &&
           precision_is_integer(&run->program->precision.recipe);
}

/* Adapters and what is outside the chosen blocks have none; nor has a model
 * that is not trained. */
bool quantized_applies(const struct program *p, const struct param_spec *weight)
{
    const struct precision_use *use = &p->precision;
    const bool inside = p->block >= use->first && p->block < use->end;

    return use->on && inside && !weight->adapter && p->mode == PROGRAM_TRAIN;
}

/* Whether the input of the product is kept in few bits for dW. */
static bool keeps(const struct program *p, const struct param *param)
{
    return param->spec.after_attention &&
           p->precision.recipe.kept.format != FORMAT_BF16;
}

/* ---- scratch ---- */

struct room {
    struct dropout_row *places;
    struct quantize_span *rows, *cols;
    float *peaks, *wide;
    float *left_scales, *right_scales;
    char *left, *right, *kept;
    size_t bytes;
};

static void *take(char *base, size_t *at, size_t bytes)
{
    void *out = base == NULL ? NULL : base + *at;

    *at += arena_aligned(bytes);
    return out;
}

int64_t quantized_spans(const struct program *p)
{
    return (int64_t)p->layout.grid.tensor * PARAM_PIECES_MAX;
}

/* Spans of tokens, at most. */
static int64_t token_spans(const struct program *p)
{
    return p->size.sequences * p->size.context_chunks;
}

/* Bytes of the bias's sums. */
static size_t front_bytes(const struct step *step, const struct program *p)
{
    return step->param[1] < 0
               ? 0
               : vector_scratch(p, 1, p->params.items[step->param[1]].elements);
}

/* base NULL: only counts. lists: where the host makes them. */
static struct room room_at(const struct step *step, const struct program *p,
                           char *base, char *lists)
{
    const struct param *param = weight_of(p, step);
    const int64_t most = token_spans(p) > quantized_spans(p) ? token_spans(p)
                                                          : quantized_spans(p);
    const int64_t wide =
        param->rows > param->cols ? param->rows : param->cols;
    const int64_t tokens = p->size.tokens * param->cols;
    const int64_t places =
        p->size.tokens > param->rows ? p->size.tokens : param->rows;
    const int64_t right =
        tokens > param->elements ? tokens : param->elements;
    const size_t number = (size_t)dtype_bytes(DTYPE_BF16);
    struct room room = {0};
    size_t at = front_bytes(step, p);

    room.places = take(lists, &at, (size_t)places * sizeof *room.places);
    room.rows = take(lists, &at, (size_t)most * sizeof *room.rows);
    room.cols =
        take(lists, &at, (size_t)quantized_spans(p) * sizeof *room.cols);
    room.peaks = take(base, &at, (size_t)(most * quantized_spans(p)) *
                                     sizeof *room.peaks);
    room.left = take(base, &at, (size_t)(p->size.tokens * wide) * number);
    room.right = take(base, &at, (size_t)right * number);
    if (keeps(p, param))
        room.kept = take(base, &at, (size_t)tokens * number);
    if (p->precision.recipe.straight) {
        const int64_t most_wide =
            p->size.tokens * wide > right ? p->size.tokens * wide : right;

        room.wide = take(base, &at, (size_t)most_wide * sizeof *room.wide);
    }
    if (precision_is_integer(&p->precision.recipe)) {
        const size_t of = sizeof *room.left_scales;

        room.left_scales =
            take(base, &at, (size_t)quantized_scales(p, p->size.tokens) * of);
        room.right_scales =
            take(base, &at, (size_t)quantized_scales(p, param->rows) * of);
    }
    room.bytes = at;
    return room;
}

static struct room room_of(const struct step *step, const struct run *run)
{
    return room_at(step, run->program, run->scratch, run->lists);
}

int64_t quantized_scales(const struct program *p, int64_t rows)
{
    return rows * quantized_spans(p);
}

size_t quantized_scratch(const struct step *step, const struct program *p)
{
    return step->few ? room_at(step, p, NULL, NULL).bytes
                     : front_bytes(step, p);
}

/* ---- spans ---- */

int64_t quantized_features(const struct program *p, const struct param *param,
                           bool rows, struct quantize_span *out)
{
    const struct param_spec *spec = &param->spec;
    const int pieces = spec->piece_count > 0 ? spec->piece_count : 1;
    const bool cut =
        (rows ? spec->split_rows : spec->split_cols) == AXIS_TENSOR;
    const int64_t all = rows ? param->rows : param->cols;
    int64_t count = 0, base = 0, whole = 0, covered = 0;

    if (!cut) {
        out[0] = (struct quantize_span){0, all, 0, false};
        return 1;
    }
    for (int i = 0; i < pieces; i++) {
        const struct layout_span held =
            layout_held(spec, &p->layout.mesh, &p->layout.place, i);
        const int64_t own =
            layout_own_first(spec, &p->layout.mesh, &p->layout.place, i);

        for (int leaf = 0; leaf < p->layout.grid.tensor; leaf++) {
            const struct layout_span block =
                layout_leaf(spec, p->layout.grid.tensor, leaf, i);

            if (block.count == 0 || block.first < held.first ||
                block.first + block.count > held.first + held.count)
                continue;
            out[count++] = (struct quantize_span){
                base + block.first - held.first, block.count,
                (uint64_t)(whole + block.first), block.first < own};
            covered += block.count;
        }
        base += held.count;
        if (spec->piece_count > 0) whole += spec->pieces[i].rows;
    }
    CHECK(covered == all);
    return count;
}

/* Context chunks of sequences. */
static int64_t fill_tokens(const struct program *p, int64_t rows,
                           struct quantize_span *out)
{
    const int64_t context_chunk = p->size.length / p->size.context_chunks;
    const int64_t count = rows / context_chunk;

    CHECK(rows % context_chunk == 0 && count <= token_spans(p));
    for (int64_t i = 0; i < count; i++)
        out[i] =
            (struct quantize_span){i * context_chunk, context_chunk, 0, false};
    return count;
}

uint64_t quantized_site(const struct param *param, enum product_use use,
                        bool gradient)
{
    return (uint64_t)param->order * SITE_USES + (uint64_t)use * 2 + gradient;
}

struct dropout_row quantized_place(int64_t sequence, int64_t position,
                                   uint64_t site)
{
    return (struct dropout_row){
        (uint64_t)sequence,
        (uint64_t)position << POSITION_SHIFT | site << SITE_SHIFT};
}

/* Where each row stands. */
static void fill_places(const struct run *run, uint64_t site, int64_t first,
                        int64_t rows, struct dropout_row *out)
{
    const struct program *p = run->program;
    const int64_t begin = first * (p->size.length / p->size.context_chunks);

    for (int64_t i = begin; i < begin + rows; i++)
        out[i - begin] = quantized_place(
            run->batch.sequence + i / p->size.length,
            program_position(p, i % p->size.length), site);
}

/* ---- operands ---- */

void quantized_set(struct quantize *call, const struct run *run,
                   const struct quantized_operand *of)
{
    const struct precision_role *role = of->role;
    int64_t side[2];

    precision_block(role, of->turned, side);
    call->format = role->format;
    call->scale = role->scale;
    call->rounding = role->rounding;
    call->block_rows = side[0];
    call->block_cols = side[1];
    if (run->counted.tallies != NULL)
        call->tally = &run->counted.tallies[of->value];
    if (!scale_is_late(call->scale)) return;
    call->seen = &run->late.seen[of->value];
    call->scale =
        operand_peaks_scale(run, of->value, call->scale, &call->known);
}

/* Codes have scales. */
static enum dtype dtype_of(const struct quantize *call)
{
    return call->scales != NULL ? DTYPE_U8 : DTYPE_BF16;
}

/* *x as it is kept for dW. */
static status round_kept(struct run *run, const struct step *step,
                         struct tensor *x)
{
    const struct program *p = run->program;
    const struct precision_role *role = &p->precision.recipe.kept;
    const struct param *param = weight_of(p, step);
    const struct room room = room_of(step, run);
    struct quantize call = {
        .in = *x, .rows = room.rows, .cols = room.cols, .peaks = room.peaks,
        .format = role->format, .scale = role->scale,
        .rounding = role->rounding, .block_rows = role->across,
        .block_cols = role->along};

    call.out = tensor_2d(room.kept, DTYPE_BF16, x->shape[0], x->shape[1]);
    call.row_spans = fill_tokens(p, x->shape[0], room.rows);
    call.col_spans = quantized_features(p, param, false, room.cols);
    *x = call.out;
    return run->kernels->quantize(run->stream, &call);
}

status quantized_again(struct run *run, const struct param *param,
                       enum product_use use, int64_t value, float *wide,
                       struct quantize *call)
{
    const struct precision *recipe = &run->program->precision.recipe;
    const bool turned = use == USE_WGRAD || (value & 1) != 0;
    const struct quantized_operand of = {&recipe->gradients, value, turned};
    const struct rotate turn = {
        .out = tensor_2d(wide, DTYPE_F32, call->in.shape[0],
                         call->in.shape[1]),
        .in = call->in, .rows = call->rows, .cols = call->cols,
        .row_spans = call->row_spans, .col_spans = call->col_spans,
        .columns = turned, .signs = straight_signs(run, param, use)};

    call->key = run->keys.recipe;
    call->turn = false;
    quantized_set(call, run, &of);
    if (recipe->turn) {
        TRY(run->kernels->rotate(run->stream, &turn));
        call->in = turn.out;
    }
    return run->kernels->quantize(run->stream, call);
}

/* Like quantized_again, of x or dy; x of y is rounded before
 * (straight_through.h). */
static status tokens_again(struct run *run, const struct step *step,
                           enum product_use use, bool gradient, int64_t first,
                           struct tensor *x)
{
    const struct program *p = run->program;
    const struct param *param = weight_of(p, step);
    const struct room room = room_of(step, run);
    const bool right = use == USE_WGRAD && !gradient;
    struct quantize call = {
        .in = *x, .rows = room.rows, .cols = room.cols, .peaks = room.peaks,
        .places = room.places};

    if (use == USE_FORWARD) return OK;
    call.out = tensor_2d(right ? room.right : room.left, DTYPE_BF16,
                         x->shape[0], x->shape[1]);
    call.row_spans = fill_tokens(p, x->shape[0], room.rows);
    call.col_spans = quantized_features(p, param, gradient, room.cols);
    fill_places(run, quantized_site(param, use, gradient), first, x->shape[0],
                room.places);
    *x = call.out;
    return quantized_again(run, param, use,
                           operand_peaks_value(param, (int)use, right),
                           room.wide, &call);
}

status quantized_tokens(struct run *run, const struct step *step,
                        enum product_use use, bool gradient, int64_t first,
                        struct tensor *x)
{
    if (run->program->precision.recipe.straight)
        return tokens_again(run, step, use, gradient, first, x);
    const struct program *p = run->program;
    const struct precision *recipe = &p->precision.recipe;
    const struct param *param = weight_of(p, step);
    const struct precision_role *role =
        gradient ? &recipe->gradients : &recipe->activations;
    const struct room room = room_of(step, run);
    const bool right = use == USE_WGRAD && !gradient;
    const struct quantized_operand of = {
        role, operand_peaks_value(param, (int)use, right), use == USE_WGRAD};
    const uint64_t site = quantized_site(param, use, gradient);
    struct quantize call = {
        .in = *x, .rows = room.rows, .cols = room.cols, .peaks = room.peaks,
        .key = run->keys.recipe, .places = room.places,
        .turn = use == USE_WGRAD && recipe->turn};

    if (right && keeps(p, param)) TRY(round_kept(run, step, &call.in));
    *x = call.in;
    if (role->format == FORMAT_BF16) return OK;
    quantized_set(&call, run, &of);
    if (use == USE_FORWARD && precision_is_integer(recipe))
        call.scales = room.left_scales;
    call.out = tensor_2d(right ? room.right : room.left,
                         dtype_of(&call), x->shape[0], x->shape[1]);
    call.row_spans = fill_tokens(p, x->shape[0], room.rows);
    call.col_spans = quantized_features(p, param, gradient, room.cols);
    if (role->rounding == ROUND_STOCHASTIC)
        fill_places(run, site, first, x->shape[0], room.places);
    *x = call.out;
    return run->kernels->quantize(run->stream, &call);
}

/* ---- x of W, as codes from F on ---- */

bool quantized_is_saved(const struct run *run, const struct step *step)
{
    return run->plan->codes[step->index] >= 0;
}

struct block_coding quantized_coding(const struct quantize *call)
{
    return (struct block_coding){
        .rows = call->rows, .cols = call->cols, .row_spans = call->row_spans,
        .col_spans = call->col_spans, .format = call->format,
        .block_rows = call->block_rows, .block_cols = call->block_cols,
        .scale = call->scale, .known = call->known};
}

/* How x of dW is rounded. */
static struct quantize saved_call(const struct run *run,
                                  const struct step *step,
                                  const struct room *room, struct tensor x)
{
    const struct program *p = run->program;
    const struct param *param = weight_of(p, step);
    const struct quantized_operand of = {
        &p->precision.recipe.activations,
        operand_peaks_value(param, USE_WGRAD, true), true};
    struct quantize call = {.in = x, .rows = room->rows, .cols = room->cols,
                            .peaks = room->peaks};

    quantized_set(&call, run, &of);
    call.out = tensor_2d(room->right, DTYPE_BF16, x.shape[0], x.shape[1]);
    call.row_spans = fill_tokens(p, x.shape[0], room->rows);
    call.col_spans = quantized_features(p, param, false, room->cols);
    return call;
}

status quantized_save(struct run *run, const struct step *step, int64_t first,
                      struct tensor x)
{
    const struct program *p = run->program;
    const struct room room = room_of(step, run);
    const struct saved_place to =
        saved_place(p, step, run_codes(run, step), first);

    if (keeps(p, weight_of(p, step))) TRY(round_kept(run, step, &x));
    const struct quantize call = saved_call(run, step, &room, x);
    const struct block_encode encode = {
        .what = ENCODE_ALL, .in = x, .coding = quantized_coding(&call),
        .peaks = (float *)room.left, .scales = to.scales, .codes = to.codes,
        .row_bytes = to.row_bytes};

    if (call.tally != NULL || call.seen != NULL)
        TRY(run->kernels->quantize(run->stream, &call));
    return run->kernels->block_encode(run->stream, &encode);
}

status quantized_saved(struct run *run, const struct step *step, int64_t first,
                       int64_t tokens, struct tensor *x)
{
    const struct program *p = run->program;
    const struct room room = room_of(step, run);
    const struct saved_place from =
        saved_place(p, step, run_codes(run, step), first);
    const struct tensor shape = tensor_2d(room.right, DTYPE_BF16, tokens,
                                          weight_of(p, step)->cols);
    const struct quantize call = saved_call(run, step, &room, shape);
    const struct block_decode decode = {
        .out = shape, .coding = quantized_coding(&call), .scales = from.scales,
        .codes = from.codes, .row_bytes = from.row_bytes};

    *x = shape;
    return run->kernels->block_decode(run->stream, &decode);
}

/* ---- weights ---- */

struct block_coding quantized_weight_coding(const struct program *p,
                                            const struct param *param,
                                            enum product_use use,
                                            struct quantize_span *rows,
                                            struct quantize_span *cols)
{
    const struct precision_role *role = &p->precision.recipe.weights;
    int64_t side[2];

    precision_block(role, use == USE_DGRAD, side);
    return (struct block_coding){
        .rows = rows, .cols = cols,
        .row_spans = quantized_features(p, param, true, rows),
        .col_spans = quantized_features(p, param, false, cols),
        .format = role->format, .block_rows = side[0], .block_cols = side[1],
        .scale = role->scale};
}

struct block_coding quantized_weight_now(const struct run *run,
                                         const struct param *param,
                                         enum product_use use,
                                         struct quantize_span *rows,
                                         struct quantize_span *cols)
{
    struct block_coding coding =
        quantized_weight_coding(run->program, param, use, rows, cols);

    if (scale_is_late(coding.scale))
        coding.scale =
            operand_peaks_scale(run, operand_peaks_value(param, (int)use, true),
                                coding.scale, &coding.known);
    return coding;
}

/* The scales of a weight that was gathered as codes; NULL: it was not. */
static const void *scales_of(const struct run *run, const struct param *param)
{
    return run->params.scales == NULL
               ? NULL : run->params.scales[param - run->program->params.items];
}

static status matrix_decoded(struct run *run, const struct param *param,
                             enum product_use use,
                             const struct quantized_matrix_room *room,
                             struct tensor *w)
{
    struct block_decode decode = {
        .out = tensor_2d(room->out, DTYPE_BF16, w->shape[0], w->shape[1]),
        .coding = quantized_weight_coding(run->program, param, use,
                                          room->rows, room->cols),
        .scales = scales_of(run, param), .codes = w->data,
        .row_bytes = code_row_bytes(
            run->program->precision.recipe.weights.format, param->cols)};

    if (use == USE_FORWARD && room->scales != NULL) {
        decode.out.dtype = DTYPE_U8;
        decode.out_scales = room->scales;
    }
    if (scale_is_late(decode.coding.scale)) {
        decode.most = &run->params.mosts[param - run->program->params.items];
        const int64_t value = operand_peaks_value(param, (int)use, true);

        decode.seen = &run->late.seen[value];
    }
    *w = decode.out;
    return run->kernels->block_decode(run->stream, &decode);
}

/* Rows of a weight by their numbers in the whole: the same for all tokens of a
 * step. */
static void matrix_places(const struct run *run, const struct param *param,
                          const struct quantize *call,
                          struct dropout_row *places)
{
    const uint64_t site = quantized_site(param, USE_DGRAD, false);

    for (int64_t i = 0; i < call->row_spans; i++)
        for (int64_t j = 0; j < call->rows[i].count; j++)
            places[call->rows[i].first + j] = (struct dropout_row){
                (uint64_t)run->now.number,
                (call->rows[i].whole + (uint64_t)j) << POSITION_SHIFT |
                    site << SITE_SHIFT};
}

/* As y reads it; then, for dx, rotated and rounded again. */
static status matrix_straight(struct run *run, const struct param *param,
                              enum product_use use,
                              const struct quantized_matrix_room *room,
                              struct tensor *w)
{
    const struct program *p = run->program;
    const struct precision *recipe = &p->precision.recipe;
    const struct quantized_operand of = {
        &recipe->weights, operand_peaks_value(param, USE_FORWARD, true), false};
    struct quantize call = {.in = *w, .rows = room->rows, .cols = room->cols,
                            .peaks = room->peaks, .places = room->places};

    call.out = tensor_2d(room->out, DTYPE_BF16, w->shape[0], w->shape[1]);
    call.row_spans = quantized_features(p, param, true, room->rows);
    call.col_spans = quantized_features(p, param, false, room->cols);
    const struct rotate turn = {
        .out = tensor_2d(room->wide, DTYPE_F32, w->shape[0], w->shape[1]),
        .in = *w, .rows = call.rows, .cols = call.cols,
        .row_spans = call.row_spans, .col_spans = call.col_spans};

    *w = call.out;
    quantized_set(&call, run, &of);
    if (use != USE_FORWARD || room->again)
        call.tally = NULL; /* it was counted */
    if (recipe->rotate) {
        TRY(run->kernels->rotate(run->stream, &turn));
        call.in = turn.out;
    }
    TRY(run->kernels->quantize(run->stream, &call));
    if (use == USE_FORWARD) return OK;
    matrix_places(run, param, &call, room->places);
    call.in = call.out;
    return quantized_again(run, param, use,
                           operand_peaks_value(param, USE_DGRAD, true),
                           room->wide, &call);
}

status quantized_matrix(struct run *run, const struct param *param,
                        enum product_use use,
                        const struct quantized_matrix_room *room,
                        struct tensor *w)
{
    if (run->program->precision.recipe.straight)
        return matrix_straight(run, param, use, room, w);
    const struct program *p = run->program;
    const struct precision_role *role = &p->precision.recipe.weights;
    const struct quantized_operand of = {
        role, operand_peaks_value(param, (int)use, true), use == USE_DGRAD};
    struct quantize call = {.in = *w, .rows = room->rows, .cols = room->cols,
                            .peaks = room->peaks};

    if (role->format == FORMAT_BF16) return OK;
    if (scales_of(run, param) != NULL)
        return matrix_decoded(run, param, use, room, w);
    CHECK(role->rounding == ROUND_NEAREST); /* the step is in no key here */
    quantized_set(&call, run, &of);
    if (room->again) call.tally = NULL;
    if (use == USE_FORWARD) call.scales = room->scales;
    call.out = tensor_2d(room->out, dtype_of(&call), w->shape[0],
                         w->shape[1]);
    call.row_spans = quantized_features(p, param, true, room->rows);
    call.col_spans = quantized_features(p, param, false, room->cols);
    *w = call.out;
    return run->kernels->quantize(run->stream, &call);
}

status quantized_weight(struct run *run, const struct step *step,
                        enum product_use use, struct tensor *w)
{
    const struct room room = room_of(step, run);

    return quantized_matrix(
        run, weight_of(run->program, step), use,
        &(struct quantized_matrix_room){room.rows, room.cols, room.places,
                                        room.wide, room.peaks, room.right,
                                        room.right_scales, false},
        w);
}

status quantized_product(struct run *run, const struct step *step,
                         const struct matmul *call)
{
    const struct room room = room_of(step, run);
    const struct integer_product product = {
        .c = call->c, .a = call->a, .b = tensor_transpose(call->b),
        .a_scales = room.left_scales, .b_scales = room.right_scales,
        .order = call->order, .bias = call->bias, .left = call->left};

    return run->kernels->integer_product(run->stream, &product);
}
