/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.c - rotations of runs: threads share out runs of rows. A run of a row
 * lies in registers; runs of columns are taken in strips, as vectors across. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"
#include "kernels/element.h"
#include "kernels/rotate.h"

enum { STRIP = 64 }; /* columns */

/* ---- one run ---- */

enum { RUN_VECTORS = ROTATE_RUN / WIDTH };

/* The neighbour of each lane that is `apart` lanes away. */
#if defined(__AVX512F__)
#define SWAPPED(x, apart) __builtin_shufflevector(x, x, 0 ^ apart, 1 ^ apart, \
    2 ^ apart, 3 ^ apart, 4 ^ apart, 5 ^ apart, 6 ^ apart, 7 ^ apart,         \
    8 ^ apart, 9 ^ apart, 10 ^ apart, 11 ^ apart, 12 ^ apart, 13 ^ apart,     \
    14 ^ apart, 15 ^ apart)
#elif defined(__AVX2__)
#define SWAPPED(x, apart) __builtin_shufflevector(x, x, 0 ^ apart, 1 ^ apart, \
    2 ^ apart, 3 ^ apart, 4 ^ apart, 5 ^ apart, 6 ^ apart, 7 ^ apart)
#else
#define SWAPPED(x, apart) __builtin_shufflevector(x, x, 0 ^ apart, 1 ^ apart, \
    2 ^ apart, 3 ^ apart)
#endif

/* x where the bit of its lane, counted from `first`, is clear, else -x. */
INLINE vector signed_by(vector x, uint32_t bits, int first)
{
    vector_bits sign;

    UNROLL for (int j = 0; j < WIDTH; j++)
        sign[j] = (bits >> (first + j) & 1) << 31;
    return (vector)((vector_bits)x ^ sign);
}

/* Sums in lower lanes and differences in the upper ones, `apart` lanes apart:
 * a - b is a + (-b). */
#define LANES_TURN(apart)                                                     \
    UNROLL for (int v = 0; apart < WIDTH && v < RUN_VECTORS; v++)             \
        x[v] = SWAPPED(x[v], (apart % WIDTH)) +                               \
               signed_by(x[v], upper_lanes(apart), 0)

/* Bit j: lane j is the upper one of its pair. */
INLINE uint32_t upper_lanes(const int apart)
{
    uint32_t bits = 0;

    UNROLL for (int j = 0; j < WIDTH; j++)
        bits |= (j & apart ? 1u : 0u) << j;
    return bits;
}

/* rotate_run. */
INLINE void run_rotate(float *run, uint32_t signs)
{
    vector x[RUN_VECTORS];

    UNROLL for (int v = 0; v < RUN_VECTORS; v++) {
        x[v] = vector_load(run + v * WIDTH);
        if (signs) x[v] = signed_by(x[v], signs, v * WIDTH);
    }
    LANES_TURN(1);
    LANES_TURN(2);
    LANES_TURN(4);
    LANES_TURN(8);
    UNROLL for (int apart = 1; apart < RUN_VECTORS; apart *= 2)
        UNROLL for (int v = 0; v < RUN_VECTORS; v++)
            if (!(v & apart)) {
                const vector a = x[v], b = x[v + apart];

                x[v] = a + b;
                x[v + apart] = a - b;
            }
    UNROLL for (int v = 0; v < RUN_VECTORS; v++)
        vector_store(run + v * WIDTH, x[v] * ROTATE_NORM);
}

ELEMENTARY void load(enum dtype dtype, const struct tensor *t, int64_t row,
                     int64_t col, int64_t count, float *out)
{
    const void *from = element_at(t->data, dtype, row * t->stride[0] + col);

    SIMD for (int64_t j = 0; j < count; j++)
        out[j] = element_get(from, dtype, j);
}

/* `count` elements of a row. */
static void row_load(const struct tensor *t, int64_t row, int64_t col,
                     int64_t count, float *out)
{
    if (t->dtype == DTYPE_BF16) load(DTYPE_BF16, t, row, col, count, out);
    else load(DTYPE_F32, t, row, col, count, out);
}

static void row_rotate(const struct rotate *p, int64_t row,
                       struct quantize_span cols)
{
    float *out = (float *)p->out.data + row * p->out.stride[0] + cols.first;

    row_load(&p->in, row, cols.first, cols.count, out);
    for (int64_t j = 0; j + ROTATE_RUN <= cols.count; j += ROTATE_RUN)
        run_rotate(out + j, p->signs);
}

/* Butterflies of ROTATE_RUN rows of `width` columns. */
static void strip_turn(float tile[ROTATE_RUN][STRIP], int64_t width,
                       uint32_t signs)
{
    for (int i = 0; i < ROTATE_RUN; i++)
        if (signs >> i & 1)
            SIMD for (int64_t c = 0; c < width; c++) tile[i][c] = -tile[i][c];
    for (int apart = 1; apart < ROTATE_RUN; apart *= 2)
        for (int i = 0; i < ROTATE_RUN; i++) {
            if (i & apart) continue;
            float *a = tile[i], *b = tile[i + apart];

            SIMD for (int64_t c = 0; c < width; c++) {
                const float sum = a[c] + b[c], difference = a[c] - b[c];

                a[c] = sum;
                b[c] = difference;
            }
        }
}

/* Rows [row, row + rows) of a strip: a run, or what is left of a span. */
static void strip_rotate(const struct rotate *p, int64_t row, int64_t rows,
                         int64_t col, int64_t width)
{
    float tile[ROTATE_RUN][STRIP];

    for (int64_t i = 0; i < rows; i++)
        row_load(&p->in, row + i, col, width, tile[i]);
    if (rows == ROTATE_RUN) strip_turn(tile, width, p->signs);
    for (int64_t i = 0; i < rows; i++) {
        float *out = (float *)p->out.data + (row + i) * p->out.stride[0] + col;
        const float *from = tile[i];

        if (rows == ROTATE_RUN)
            SIMD for (int64_t c = 0; c < width; c++)
                out[c] = from[c] * ROTATE_NORM;
        else
            SIMD for (int64_t c = 0; c < width; c++) out[c] = from[c];
    }
}

static void rows_rotate(const struct rotate *p, int64_t row, int64_t rows)
{
    for (int64_t s = 0; s < p->col_spans; s++) {
        const struct quantize_span cols = p->cols[s];

        for (int64_t i = 0; i < rows && !p->columns; i++)
            row_rotate(p, row + i, cols);
        for (int64_t c = 0; c < cols.count && p->columns; c += STRIP)
            strip_rotate(p, row, rows, cols.first + c,
                         cols.count - c < STRIP ? cols.count - c : STRIP);
    }
}

/* The number of runs of rows in all spans. */
static int64_t runs_of(const struct rotate *p)
{
    int64_t runs = 0;

    for (int64_t i = 0; i < p->row_spans; i++)
        runs += (p->rows[i].count + ROTATE_RUN - 1) / ROTATE_RUN;
    return runs;
}

static void rotate_body(void *argument, int index, int count)
{
    const struct rotate *p = argument;
    int64_t first, last, run = 0;

    threads_split(runs_of(p), 1, index, count, &first, &last);
    for (int64_t i = 0; i < p->row_spans; i++)
        for (int64_t r = 0; r < p->rows[i].count; r += ROTATE_RUN, run++) {
            const int64_t left = p->rows[i].count - r;

            if (run >= first && run < last)
                rows_rotate(p, p->rows[i].first + r,
                            left < ROTATE_RUN ? left : ROTATE_RUN);
        }
}

status CPU(rotate)(struct stream *stream, const struct rotate *p)
{
    struct rotate job = *p;

    CHECK(p->out.dtype == DTYPE_F32 && dtype_real(p->in.dtype) == DTYPE_F32);
    CHECK(p->in.dtype != DTYPE_F16 && p->in.stride[1] == 1);
    CHECK(p->out.stride[1] == 1);
    cpu_run(stream, p->out.shape[0] * p->out.shape[1], rotate_body, &job);
    return OK;
}

/* ---- the way back ---- */

static float scale_of(const struct unrotate *p, const struct grid_format *f,
                      const struct grid_format *e4m3, const float *h,
                      int64_t count)
{
    double sums[LANES] = {0}, squares[LANES] = {0};
    uint32_t most = 0;

    if (p->scale != SCALE_GAUSS) {
        for (int64_t j = 0; j < count; j++) {
            const uint32_t bits = finite_bits(h[j]);

            most = bits > most ? bits : most;
        }
        return block_scale(p->scale, most, f->largest, e4m3, 0);
    }
    for (int64_t i = 0; i < count; i += LANES) {
        const int lanes = count - i < LANES ? (int)(count - i) : LANES;

        SIMD for (int j = 0; j < lanes; j++) {
            const double v = (double)f32_of_bits(signed_finite(h[i + j]));

            sums[j] += v;
            squares[j] += v * v;
        }
    }
    most = gauss_bits(sums, squares, count, f->largest);
    return f32_of_bits(most);
}

/* out = the gradient of a block, before what is added to it. */
static void block_back(const struct unrotate *p, const float *x, float *g,
                       int64_t count)
{
    const struct grid_format f = grid_format(p->format);
    const struct grid_format e4m3 = grid_format(FORMAT_E4M3);
    const bool turns = p->turn && count == ROTATE_RUN;
    float h[ROTATE_RUN];

    memcpy(h, x, (size_t)count * sizeof *h);
    if (turns && p->trust) run_rotate(h, 0);
    if (p->trust) {
        const float limit = f.largest * scale_of(p, &f, &e4m3, h, count);

        SIMD for (int64_t j = 0; j < count; j++)
            g[j] = __builtin_fabsf(h[j]) < limit ? g[j] : 0;
    }
    if (turns) run_rotate(g, 0);
    SIMD for (int64_t j = 0; j < count; j++) g[j] = g[j] * p->factor;
}

ELEMENTARY void store(enum dtype dtype, const struct tensor *t, int64_t row,
                      int64_t col, int64_t count, const float *x)
{
    void *to = element_at(t->data, dtype, row * t->stride[0] + col);

    SIMD for (int64_t j = 0; j < count; j++) element_set(to, dtype, j, x[j]);
}

static void block_unrotate(const struct unrotate *p, int64_t row, int64_t col,
                           int64_t count)
{
    float x[ROTATE_RUN] = {0}, g[ROTATE_RUN] = {0}, left[ROTATE_RUN];

    row_load(&p->x, row, col, count, x);
    row_load(&p->gradient, row, col, count, g);
    block_back(p, x, g, count);
    if (p->left != NULL) {
        row_load(p->left, row, col, count, left);
        SIMD for (int64_t j = 0; j < count; j++) g[j] = left[j] + g[j];
    }
    if (p->out.dtype == DTYPE_BF16)
        store(DTYPE_BF16, &p->out, row, col, count, g);
    else store(DTYPE_F32, &p->out, row, col, count, g);
}

static void unrotate_body(void *argument, int index, int count)
{
    const struct unrotate *p = argument;
    int64_t first, last;

    threads_split(p->out.shape[0], 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        for (int64_t s = 0; s < p->col_spans; s++)
            for (int64_t j = 0; j < p->cols[s].count; j += ROTATE_RUN) {
                const int64_t left = p->cols[s].count - j;

                block_unrotate(p, i, p->cols[s].first + j,
                               left < ROTATE_RUN ? left : ROTATE_RUN);
            }
}

status CPU(unrotate)(struct stream *stream, const struct unrotate *p)
{
    struct unrotate job = *p;

    CHECK(dtype_real(p->out.dtype) == DTYPE_F32 && p->x.dtype == DTYPE_BF16);
    CHECK(p->out.dtype != DTYPE_F16 && p->gradient.dtype != DTYPE_F16);
    CHECK(p->out.stride[1] == 1 && p->x.stride[1] == 1 &&
          p->gradient.stride[1] == 1);
    cpu_run(stream, p->out.shape[0] * p->out.shape[1], unrotate_body, &job);
    return OK;
}
