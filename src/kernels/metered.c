/* SPDX-License-Identifier: Apache-2.0 */
/* metered.c - every row of struct kernels, measured: its time, and the
 * operations and bytes that follow from the shapes of the call.
 *
 * Bytes are those of each operand once, read or written: what no kernel can
 * avoid unless its operands stay in caches. FLOPs of products and attention
 * count an FMA as two and leave out the exponentials; those of the other rows
 * count additions, multiplications and what stands for them, by element. */
#include "base/meter.h"
#include "kernels/kernels.h"

static double bytes_of(const struct tensor *t)
{
    return t->data == NULL ? 0 : (double)tensor_bytes(t);
}

static double count_of(const struct tensor *t)
{
    return (double)tensor_count(t);
}

/* Ends a memory-bound span. */
static status done(struct meter_track *track, const char *name, status result,
                   double flops, double bytes)
{
    const struct meter_what what = {.kind = METER_MEMORY, .name = name,
                                    .flops = flops, .bytes = bytes};

    meter_end(track, &what);
    return result;
}

/* ---- products ---- */

/* Which product of a linear layer it is follows from how its operands lie. */
static const char *matmul_form(bool a_turned, bool b_turned)
{
    if (a_turned) return b_turned ? "C = A' B'" : "dW = dy' x";
    return b_turned ? "y = x W'" : "dx = dy W";
}

static void integers_end(struct meter_track *track,
                         const struct integer_product *call)
{
    const int64_t m = call->c.shape[0], n = call->c.shape[1];
    const int64_t k = call->a.shape[1];

    if (track == NULL) return;
    const struct meter_what what = {
        .kind = METER_MATMUL, .name = "integer_product", .label = "y = x W'",
        .flops = 2.0 * (double)m * (double)n * (double)k,
        .bytes = bytes_of(&call->a) + bytes_of(&call->b) +
                 bytes_of(&call->c) +
                 (call->bias != NULL ? bytes_of(call->bias) : 0) +
                 (call->left != NULL ? bytes_of(call->left) : 0),
        .shape = {m, n, k}, .turned = {false, true}};

    meter_end(track, &what);
}

static void matmul_end(struct meter_track *track, const struct matmul *call)
{
    const int64_t m = call->c.shape[0], n = call->c.shape[1];
    const int64_t k = call->a.shape[1];
    const bool a = call->a.stride[1] != 1, b = call->b.stride[1] != 1;

    if (track == NULL) return;
    const struct meter_what what = {
        .kind = METER_MATMUL, .name = "matmul", .label = matmul_form(a, b),
        .flops = 2.0 * (double)m * (double)n * (double)k,
        .bytes = bytes_of(&call->a) + bytes_of(&call->b) +
                 bytes_of(&call->c) * (call->continues ? 2 : 1) +
                 (call->bias != NULL ? bytes_of(call->bias) : 0) +
                 (call->left != NULL ? bytes_of(call->left) : 0) +
                 (call->norm != NULL ? bytes_of(&call->norm->y) : 0),
        .shape = {m, n, k}, .turned = {a, b}};

    meter_end(track, &what);
}

/* Products over all experts: as many rows as the groups have. */
static void experts_product_end(struct meter_track *track,
                                const struct experts_product *call)
{
    const int64_t rows = expert_groups_rows(call->groups);
    const int64_t n = call->c.shape[1], k = call->b.shape[1];
    const bool turned = call->b.stride[2] != 1;

    if (track == NULL) return;
    const struct meter_what what = {
        .kind = METER_MATMUL, .name = "experts_product",
        .label = turned ? "experts: y = x W'" : "experts: dx = dy W",
        .flops = 2.0 * (double)rows * (double)n * (double)k,
        .bytes = (double)(rows * k * dtype_bytes(call->b.dtype) +
                          rows * n * dtype_bytes(call->c.dtype)) +
                 bytes_of(&call->b),
        .shape = {rows, n, k}, .turned = {false, turned}};

    meter_end(track, &what);
}

static void experts_gradient_end(struct meter_track *track,
                                 const struct experts_gradient *call)
{
    const int64_t rows = expert_groups_rows(call->groups);
    const int64_t n = call->c.shape[1], k = call->c.shape[2];

    if (track == NULL) return;
    const struct meter_what what = {
        .kind = METER_MATMUL, .name = "experts_gradient",
        .label = "experts: dW = dy' x",
        .flops = 2.0 * (double)rows * (double)n * (double)k,
        .bytes = (double)(rows * (n + k) *
                          dtype_bytes(call->a.matrix.dtype)) +
                 bytes_of(&call->c),
        .shape = {n, k, rows}, .turned = {true, false}};

    meter_end(track, &what);
}

/* Query-key pairs of one sequence and head where query i sees the first
 * `first` + i keys. */
static double pairs_from(const struct attention *call, int64_t first)
{
    const int64_t n = call->queries, keys = call->keys;
    const int64_t none = first < 0 ? -first : 0;
    const int64_t all = keys - first > n ? n : keys - first;
    double pairs = 0;

    if (all > none)
        pairs = (double)(all - none) *
                ((double)first + 0.5 * (double)(none + all - 1));
    if (n > all) pairs += (double)(n - (all > none ? all : none)) *
                          (double)keys;
    return pairs;
}

static double attention_chunk_pairs(const struct attention *call)
{
    const int64_t keys_end = call->first_key + call->keys;
    double pairs = 0;

    for (int64_t i = 0; i < call->queries; i++) {
        const int64_t query = call->first_query + i;
        const int64_t lowest = attention_lowest(call, query);
        const int64_t from = lowest > call->first_key ? lowest
                                                      : call->first_key;
        const int64_t to = query + 1 < keys_end ? query + 1 : keys_end;

        if (to > from) pairs += (double)(to - from);
    }
    return pairs;
}

/* A query sees the keys of its window or attention chunk up to its position.
 * Documents are not looked at. */
static double visible_pairs(const struct attention *call)
{
    const int64_t first = call->first_query - call->first_key + 1;

    if (call->chunk > 0) return attention_chunk_pairs(call);
    return pairs_from(call, first) -
           (call->window > 0 ? pairs_from(call, first - call->window) : 0);
}

/* e^x as kernels/elementary.h makes it. */
enum { EXP_FLOPS = 20 };
/* A butterfly for each power of two of a run, and the norm. */
enum { ROTATE_FLOPS = 6 };

static void attention_end(struct meter_track *track, const char *name,
                          const struct attention *call, int products,
                          double bytes)
{
    const double pairs = track == NULL ? 0
                         : visible_pairs(call) *
                               (double)(call->sequences * call->heads);
    const struct meter_what what = {
        .kind = METER_ATTENTION, .name = name,
        .flops = 2.0 * products * pairs * call->head_width,
        .lane_flops = call->tiles ? EXP_FLOPS * pairs : 0, .bytes = bytes};

    meter_end(track, &what);
}

static void attention_pass(struct meter_track *track, const char *name,
                           double flops, double bytes)
{
    const struct meter_what what = {.kind = METER_ATTENTION, .name = name,
                                    .flops = flops, .bytes = bytes};

    meter_end(track, &what);
}

static double masters_bytes(const struct masters *call)
{
    return bytes_of(&call->values) + bytes_of(&call->weights) +
           bytes_of(&call->lower) + bytes_of(&call->ties);
}

static void adamw_end(struct meter_track *track, const struct adamw *call)
{
    const struct meter_what what = {
        .kind = METER_OPTIMIZER, .name = "adamw",
        .flops = 13 * count_of(&call->weight),
        .bytes = 2 * (bytes_of(&call->weight) + bytes_of(&call->m) +
                      bytes_of(&call->v)) + bytes_of(&call->gradient) +
                 bytes_of(&call->copy)};

    meter_end(track, &what);
}

static void update_end(struct meter_track *track,
                       const struct element_update *call)
{
    static const char *const names[] = {"adamw", "lion", "sgd", "momentum",
                                        "schedule_free", "towards",
                                        "moving average"};
    static const int flops[] = {13, 8, 7, 6, 16, 3, 3}; /* of an element */
    double bytes = 2 * bytes_of(&call->weight) + bytes_of(&call->gradient) +
                   bytes_of(&call->copy) + 2 * masters_bytes(&call->masters);

    for (int i = 0; i < UPDATE_STATES; i++)
        bytes += 2 * bytes_of(&call->states[i].values);
    const struct meter_what what = {
        .kind = METER_OPTIMIZER, .name = names[call->formula],
        .flops = flops[call->formula] * count_of(&call->weight),
        .bytes = bytes};

    meter_end(track, &what);
}

static void step_end(struct meter_track *track, const char *name,
                     double flops, double bytes)
{
    const struct meter_what what = {.kind = METER_OPTIMIZER, .name = name,
                                    .flops = flops, .bytes = bytes};

    meter_end(track, &what);
}

/* ---- the two tables ---- */

#define METERED(row) metered_##row##_first
#define INNER (&stream->inner[0])
#include "kernels/metered_rows.h"
#undef METERED
#undef INNER
#define METERED(row) metered_##row##_second
#define INNER (&stream->inner[1])
#include "kernels/metered_rows.h"

void kernels_meter(struct kernels *table, struct kernels *real,
                   struct kernels *inner, struct stream *stream)
{
    inner[0] = *table;
    inner[1] = *real;
    stream->inner = inner;
#define METER_FIRST(row) table->row = metered_##row##_first;
    KERNELS_ROWS(METER_FIRST)
#define METER_SECOND(row) real->row = metered_##row##_second;
    KERNELS_ROWS(METER_SECOND)
}
