/* SPDX-License-Identifier: Apache-2.0 */
/* recipes.c - products of recipes as a layer makes them: both operands rounded
 * from bfloat16, then the product. They take turns, so other work of the
 * machine slows all of them alike. */
#include "bench/recipes.h"

#include <string.h>

#include "bench/draw.h"
#include "bench/probe.h"
#include "nn/rounding_kernels.h"

enum {
    TOKENS = 4096, IN = 3072, OUT = 768, SEQUENCE = 1024, ROUNDS = 5,
    REAL = PRECISIONS, HALF, WAYS, /* float32, bfloat16 */
    USES = 3
};

struct way_time { double rounding, product; }; /* seconds, the best round's */

struct bench {
    struct bench_recipes_settings settings;
    struct kernels real, half;
    struct stream stream;
    struct arena arena;
    struct tensor x, dy, w, real_x, real_dy, real_w;
    struct tensor y, dx, dw, real_y, real_dx;
    void *rooms[2][2];     /* of a left and a right operand, rounded; what is
                            * rounded twice goes from one to the other */
    float *wide;           /* of one, rotated */
    float *scales[2];      /* of codes */
    float *peaks;
    struct dropout_row *places;
    struct quantize_span *sequences, whole;
    struct sum_segment *segments; /* of tokens */
    int64_t sequence_count;
    struct way_time times[USES][WAYS];
};

/* ---- operands ---- */

static status take(struct bench *b, int64_t count, size_t size, void *out)
{
    return arena_take_array(&b->arena, (size_t)count, size, (void **)out);
}

/* About normal, of deviation 1. */
static float number(uint32_t *state)
{
    float sum = 0;

    for (int i = 0; i < 4; i++) sum += draw_share(state);
    return (sum - 2) * 1.7320508f;
}

static status matrix_take(struct bench *b, enum dtype dtype, int64_t rows,
                          int64_t cols, struct tensor *out)
{
    void *data = NULL;

    TRY(take(b, rows * cols, (size_t)dtype_bytes(dtype), &data));
    *out = tensor_2d(data, dtype, rows, cols);
    memset(data, 0, (size_t)tensor_bytes(out));
    return OK;
}

/* The same numbers in both types. */
static status operand_take(struct bench *b, int64_t rows, int64_t cols,
                           struct tensor *half, struct tensor *real)
{
    uint32_t state = (uint32_t)(rows * 31 + cols);

    TRY(matrix_take(b, DTYPE_BF16, rows, cols, half));
    TRY(matrix_take(b, DTYPE_F32, rows, cols, real));
    for (int64_t i = 0; i < rows * cols; i++) {
        const uint16_t bits = bf16_from_f32(number(&state));

        ((uint16_t *)half->data)[i] = bits;
        ((float *)real->data)[i] = bf16_to_f32(bits);
    }
    return OK;
}

static status tokens_take(struct bench *b, int64_t tokens)
{
    b->sequence_count = (tokens + SEQUENCE - 1) / SEQUENCE;
    TRY(take(b, b->sequence_count, sizeof *b->sequences, &b->sequences));
    TRY(take(b, b->sequence_count, sizeof *b->segments, &b->segments));
    for (int64_t i = 0; i < b->sequence_count; i++) {
        const int64_t first = i * SEQUENCE, left = tokens - first;
        const int64_t count = left < SEQUENCE ? left : SEQUENCE;

        b->sequences[i] = (struct quantize_span){first, count, 0, false};
        b->segments[i] = (struct sum_segment){first, count, 0};
    }
    return OK;
}

/* All that operands_take takes but small lists: each piece might fit. */
static status check_memory(const struct bench_recipes_settings *s, int64_t tall,
                           int64_t wide)
{
    enum { BOTH = 2 + 4, ROOMS = 4 * 2 + 4 };
    const double tokens = (double)s->tokens, in = (double)s->in,
                 out = (double)s->out;
    const double needs = 2 * BOTH * tokens * (in + out) +
                         (BOTH + 4) * in * out +
                         ROOMS * (double)tall * (double)wide;

    return probe_memory("bench recipes", needs,
                        "fewer --tokens, --in or --out");
}

static status operands_take(struct bench *b)
{
    const struct bench_recipes_settings *s = &b->settings;
    const int64_t wide = s->in > s->out ? s->in : s->out;
    const int64_t tall = s->tokens > wide ? s->tokens : wide;

    TRY(check_memory(s, tall, wide));
    TRY(operand_take(b, s->tokens, s->in, &b->x, &b->real_x));
    TRY(operand_take(b, s->tokens, s->out, &b->dy, &b->real_dy));
    TRY(operand_take(b, s->out, s->in, &b->w, &b->real_w));
    TRY(matrix_take(b, DTYPE_BF16, s->tokens, s->out, &b->y));
    TRY(matrix_take(b, DTYPE_F32, s->tokens, s->out, &b->real_y));
    TRY(matrix_take(b, DTYPE_BF16, s->tokens, s->in, &b->dx));
    TRY(matrix_take(b, DTYPE_F32, s->tokens, s->in, &b->real_dx));
    TRY(matrix_take(b, DTYPE_F32, s->out, s->in, &b->dw));
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < 2; i++)
            TRY(take(b, tall * wide, 2, &b->rooms[side][i]));
        TRY(take(b, tall, sizeof(float), &b->scales[side]));
    }
    TRY(take(b, tall * wide, sizeof(float), &b->wide));
    TRY(take(b, tall, sizeof *b->places, &b->places));
    for (int64_t i = 0; i < tall; i++)
        b->places[i] = (struct dropout_row){0, (uint64_t)i << 40};
    TRY(tokens_take(b, s->tokens));
    return take(b, b->sequence_count, sizeof *b->peaks, &b->peaks);
}

static status bench_open(struct bench *b)
{
    struct bench_recipes_settings *s = &b->settings;
    const struct kernels *tables[] = {&b->real, &b->half};

    if (s->tokens == 0) s->tokens = TOKENS;
    if (s->in == 0) s->in = IN;
    if (s->out == 0) s->out = OUT;
    if (s->rounds == 0) s->rounds = ROUNDS;
    TRY(kernels_get(&b->real, DTYPE_F32, s->isa));
    TRY(kernels_get(&b->half, DTYPE_BF16, s->isa));
    TRY(threads_build(&b->stream.threads, s->threads));
    for (int i = 0; i < 2; i++) {
        const size_t bytes = kernels_scratch_bytes(
            tables[i], threads_count(b->stream.threads),
            s->in > s->out ? s->in : s->out, s->tokens);

        if (bytes > b->stream.scratch_bytes) b->stream.scratch_bytes = bytes;
    }
    TRY(arena_take(&b->arena, b->stream.scratch_bytes, &b->stream.scratch));
    return operands_take(b);
}

/* ---- one product ---- */

/* An operand of a product on its way through its roundings. */
struct operand {
    struct tensor now;
    bool tokens;         /* rows are of sequences */
    int side;            /* of rooms */
};

static status round_one(struct bench *b, const struct rounded *of, int number,
                        struct operand *x)
{
    const int64_t rows = x->now.shape[0], cols = x->now.shape[1];
    const struct quantize_span all = {0, rows, 0, false},
                               features = {0, cols, 0, false};
    const struct quantize_span *spans = x->tokens ? b->sequences : &all;
    const int64_t count = x->tokens ? b->sequence_count : 1;
    const struct rotate turn = {
        .out = tensor_2d(b->wide, DTYPE_F32, rows, cols), .in = x->now,
        .rows = spans, .cols = &features, .row_spans = count, .col_spans = 1,
        .columns = of->columns, .signs = QUANTIZE_SIGNS};
    const struct quantize call = {
        .out = tensor_2d(b->rooms[x->side][number / 2 % 2],
                         of->codes ? DTYPE_U8 : DTYPE_BF16, rows, cols),
        .in = x->now, .rows = spans, .cols = &features, .row_spans = count,
        .col_spans = 1, .format = of->format, .block_rows = of->block_rows,
        .block_cols = of->block_cols, .scale = of->scale,
        .rounding = of->rounding, .turn = of->turn,
        .key = random_key_make(1, "bench"), .places = b->places,
        .peaks = b->peaks, .known = 4,
        .scales = of->codes ? b->scales[x->side] : NULL};

    if (of->kernel == ROUNDED_ROTATE) {
        TRY(b->half.rotate(&b->stream, &turn));
        x->now = turn.out;
        return OK;
    }
    TRY(b->half.quantize(&b->stream, &call));
    x->now = call.out;
    return OK;
}

static status round_all(struct bench *b, const struct precision *recipe,
                        enum product_use use, enum rounded_place place,
                        struct operand *x)
{
    struct rounded calls[ROUNDED_MOST];
    const int count = rounded_calls(recipe, use, place, calls);

    for (int i = 0; i < count; i++) TRY(round_one(b, &calls[i], i, x));
    return OK;
}

/* Gradients of straight recipes go back through the rotation. */
static status round_back(struct bench *b, const struct precision *recipe,
                         enum product_use use, const struct tensor *out)
{
    const enum rounded_place place =
        use == USE_DGRAD ? ROUNDED_LAYER : ROUNDED_LEAF;
    const struct quantize_span features = {0, out->shape[1], 0, false};
    struct rounded calls[ROUNDED_MOST];
    const int count = use == USE_FORWARD
                          ? 0 : rounded_calls(recipe, use, place, calls);
    struct unrotate back = {.out = *out, .gradient = *out,
                            .x = use == USE_DGRAD ? b->x : b->w,
                            .cols = &features, .col_spans = 1, .factor = 1};

    for (int i = 0; i < count; i++) {
        back.turn = calls[i].turn;
        back.trust = calls[i].trust;
        back.format = calls[i].format;
        back.scale = calls[i].scale;
        TRY(b->half.unrotate(&b->stream, &back));
    }
    return OK;
}

/* The operands of a product as they are. */
static void operands_of(const struct bench *b, enum product_use use, bool real,
                        struct operand out[2], struct tensor *c)
{
    const struct tensor x = real ? b->real_x : b->x;
    const struct tensor dy = real ? b->real_dy : b->dy;
    const struct tensor w = real ? b->real_w : b->w;

    out[0] = (struct operand){use == USE_FORWARD ? x : dy, true, 0};
    out[1] = (struct operand){use == USE_WGRAD ? x : w, use == USE_WGRAD, 1};
    *c = use == USE_WGRAD      ? b->dw
         : use == USE_DGRAD    ? (real ? b->real_dx : b->dx)
         : real                ? b->real_y
                               : b->y;
}

static status multiply(struct bench *b, enum product_use use, bool real,
                       const struct operand x[2], struct tensor c)
{
    const struct tensor left = x[0].now, right = x[1].now;
    const struct sum_segment features = {0, left.shape[1], 0};
    const bool tokens = use == USE_WGRAD;
    const struct sum_order order = {tokens ? b->segments : &features,
                                    tokens ? b->sequence_count : 1, 1};
    const struct matmul p = {
        .c = c, .a = tokens ? tensor_transpose(left) : left,
        .b = use == USE_FORWARD ? tensor_transpose(right) : right,
        .order = &order};
    const struct integer_product whole = {
        .c = c, .a = left, .b = right, .a_scales = b->scales[0],
        .b_scales = b->scales[1], .order = &order};

    if (left.dtype == DTYPE_U8)
        return b->half.integer_product(&b->stream, &whole);
    return (real ? b->real : b->half).matmul(&b->stream, &p);
}

static status way_run(struct bench *b, enum product_use use, int way)
{
    const struct precision *recipe = way < PRECISIONS ? &precisions[way] : NULL;
    struct way_time *best = &b->times[use][way];
    struct operand x[2];
    struct tensor c;
    double start, rounded, made, back;

    operands_of(b, use, way == REAL, x, &c);
    start = rounded = probe_now_s();
    if (recipe != NULL) {
        if (use == USE_FORWARD)
            TRY(round_all(b, recipe, use, ROUNDED_LAYER, &x[0]));
        TRY(round_all(b, recipe, use, ROUNDED_FIRST, &x[0]));
        TRY(round_all(b, recipe, use, ROUNDED_SECOND, &x[1]));
        rounded = probe_now_s();
    }
    TRY(multiply(b, use, way == REAL, x, c));
    made = back = probe_now_s();
    if (recipe != NULL) {
        TRY(round_back(b, recipe, use, &c));
        back = probe_now_s();
    }
    if (best->product > 0 && back - start >= best->rounding + best->product)
        return OK;
    *best = (struct way_time){rounded - start + back - made, made - rounded};
    return OK;
}

/* ---- rows ---- */

static const char *way_name(int way)
{
    return way == REAL ? "float32" : way == HALF ? "bfloat16"
                                                 : precisions[way].name;
}

static bool way_counts(const struct bench *b, int way)
{
    return way >= PRECISIONS || b->settings.only == NULL ||
           strstr(precisions[way].name, b->settings.only) != NULL;
}

static void row_write(struct json_writer *json, const char *product,
                      const char *name, struct way_time t,
                      const double ratio[2])
{
    json_write_object(json);
    json_write_key(json, "product");
    json_write_string(json, product);
    json_write_key(json, "by");
    json_write_string(json, name);
    json_write_key_real(json, "rounding_ms", 1e3 * t.rounding);
    json_write_key_real(json, "product_ms", 1e3 * t.product);
    json_write_key_real(json, "speed_of_float32", ratio[0]);
    json_write_key_real(json, "speed_of_bfloat16", ratio[1]);
    json_write_object_end(json);
}

static void rows_print(const struct bench *b, FILE *out,
                       struct json_writer *json)
{
    static const char *const products[] = {"y", "dx", "dW"};

    for (int use = 0; use < USES; use++) {
        const struct way_time *times = b->times[use];

        for (int i = 0; i < WAYS; i++) {
            const int way = (i + PRECISIONS) % WAYS; /* types first */
            const struct way_time t = times[way];
            const double all = t.rounding + t.product;
            const double ratio[] = {times[REAL].product / all,
                                    times[HALF].product / all};

            if (!way_counts(b, way)) continue;
            if (json != NULL)
                row_write(json, products[use], way_name(way), t, ratio);
            else
                fprintf(out, "%-3s %-14s %9.2f %9.2f %9.2f %9.2f\n",
                        products[use], way_name(way), 1e3 * t.rounding,
                        1e3 * t.product, ratio[0], ratio[1]);
        }
    }
}

static void head_print(const struct bench *b, FILE *out)
{
    const struct bench_recipes_settings *s = &b->settings;
    const int threads = threads_count(b->stream.threads);

    fprintf(out, "%s, %d thread%s: %lld tokens, %lld in-features, %lld "
            "out-features; the best of %d\n%-3s %-14s %9s %9s %9s %9s\n",
            b->half.backend, threads, threads == 1 ? "" : "s",
            (long long)s->tokens, (long long)s->in, (long long)s->out,
            s->rounds, "", "", "rounding", "product", "speed, of", "speed, of");
    fprintf(out, "%-3s %-14s %9s %9s %9s %9s\n", "", "", "ms", "ms", "float32",
            "bfloat16");
}

static status bench_run(struct bench *b, FILE *out, struct json_writer *json)
{
    bool any = false;

    for (int way = 0; way < PRECISIONS; way++) any |= way_counts(b, way);
    if (!any)
        FAIL(ERR_CONFIG, "bench recipes: no recipe has %s in its name; they "
                         "are called hfp8, fp8-tensor, mxfp8, nvfp4, ...",
             b->settings.only);
    TRY(bench_open(b));
    for (int round = 0; round < b->settings.rounds; round++)
        for (int use = 0; use < USES; use++)
            for (int way = 0; way < WAYS; way++)
                if (way_counts(b, way))
                    TRY(way_run(b, (enum product_use)use, way));
    if (json != NULL) json_write_array(json);
    else head_print(b, out);
    rows_print(b, out, json);
    if (json != NULL) json_write_array_end(json);
    return OK;
}

status bench_recipes(const struct bench_recipes_settings *settings, FILE *out,
                     struct json_writer *json)
{
    struct bench bench = {.settings = *settings};
    status result;

    arena_init(&bench.arena, "bench", 0);
    result = bench_run(&bench, out, json);
    threads_free(bench.stream.threads);
    arena_free(&bench.arena);
    return result;
}
