/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c - the definition of a matrix in blocks with scales, element by
 * element. Its operands are bfloat16 or float32 in the tables of both types. */
#include "kernels/element.h"
#include "kernels/reference/real.h"

/* A region: a span of rows and one of columns. */
struct region {
    const struct quantize *p;
    struct quantize_span rows, cols;
    int64_t span;           /* of columns */
    struct grid_format format, e4m3;
    float outer; /* struct quantize: t of SCALE_TWO, the mean of SCALE_MEAN */
};

static float value_at(const struct quantize *p, int64_t row, int64_t col)
{
    return element_get(p->in.data, p->in.dtype, row * p->in.stride[0] + col);
}

/* Element of the transform: signs, butterflies over rows at distances 1, 2, 4
 * and 8, then a quarter. */
static float turned_at(const struct quantize *p, int64_t first, int64_t row,
                       int64_t col)
{
    float x[QUANTIZE_TURN];

    for (int i = 0; i < QUANTIZE_TURN; i++) {
        const float v = value_at(p, first + i, col);

        x[i] = QUANTIZE_SIGNS >> i & 1 ? -v : v;
    }
    for (int apart = 1; apart < QUANTIZE_TURN; apart *= 2)
        for (int i = 0; i < QUANTIZE_TURN; i++) {
            const float a = x[i], b = x[i + apart < QUANTIZE_TURN ? i + apart
                                                                  : i];

            if (i & apart) continue;
            x[i] = a + b;
            x[i + apart] = a - b;
        }
    return x[row - first] * 0.25f;
}

/* Element (row, col) of the matrix as it is rounded. */
static float input_at(const struct region *r, int64_t row, int64_t col)
{
    const int64_t at = row - r->rows.first;
    const int64_t first = row - at % QUANTIZE_TURN;

    if (!r->p->turn ||
        first + QUANTIZE_TURN > r->rows.first + r->rows.count)
        return value_at(r->p, row, col);
    return turned_at(r->p, first, row, col);
}

/* Rows and columns [first, first + count). */
struct block { struct quantize_span rows, cols; };

static uint32_t block_peak(const struct region *r, const struct block *b)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < b->rows.count; i++)
        for (int64_t j = 0; j < b->cols.count; j++) {
            const uint32_t bits = finite_bits(
                input_at(r, b->rows.first + i, b->cols.first + j));

            if (bits > most) most = bits;
        }
    return most;
}

static uint32_t block_gauss(const struct region *r, const struct block *b)
{
    double sums[LANES] = {0}, squares[LANES] = {0};

    for (int64_t j = 0; j < b->cols.count; j++) {
        const double v = (double)f32_of_bits(
            signed_finite(input_at(r, b->rows.first, b->cols.first + j)));

        sums[j % LANES] += v;
        squares[j % LANES] += v * v;
    }
    return gauss_bits(sums, squares, b->cols.count, r->format.largest);
}

static float region_mean(const struct region *r)
{
    int64_t groups[MEAN_GROUPS] = {0};

    for (int64_t i = 0; i < r->rows.count; i++)
        for (int64_t j = 0; j < r->cols.count; j++) {
            const uint32_t bits = finite_bits(
                input_at(r, r->rows.first + i, r->cols.first + j));

            groups[mean_group(bits)] += mean_units(bits);
        }
    return mean_scale(groups, r->rows.count * r->cols.count);
}

/* The word of an element (struct dropout). */
static uint32_t word_at(const struct region *r, int64_t row, int64_t col)
{
    const struct dropout_row at = r->p->places[row];
    const uint64_t element = r->cols.whole + (uint64_t)(col - r->cols.first);
    const uint64_t block = element / (4 * DROPOUT_BLOCKS) * DROPOUT_BLOCKS +
                           element % DROPOUT_BLOCKS;
    uint32_t words[4];

    random_block(r->p->key, at.low, at.high + block, words);
    return words[element / DROPOUT_BLOCKS % 4];
}

/* Writes (i, j), and gives it back as float32. */
static float element_write(const struct region *r, int64_t i, int64_t j,
                           float rounded, float scale)
{
    const struct quantize *p = r->p;
    const float v = input_at(r, i, j);
    const int64_t at = i * p->out.stride[0] + j;

    if (p->scales == NULL) {
        const float value = grid_result(&r->format, v, rounded, scale);

        element_set(p->out.data, DTYPE_BF16, at, value);
        return value;
    }
    float *own = &p->scales[i * p->col_spans + r->span];
    const float code = grid_code(v, rounded);

    if (j == r->cols.first) *own = scale;
    if (!(v - v == 0)) *own = f32_of_bits(0x7FC00000u);
    ((int8_t *)p->out.data)[at] = (int8_t)code;
    return code;
}

static void block_write(const struct region *r, const struct block *b)
{
    const struct quantize *p = r->p;
    const bool counts = p->tally != NULL && !r->rows.copy && !r->cols.copy;
    const uint32_t most =
        p->scale == SCALE_GAUSS ? block_gauss(r, b) : block_peak(r, b);
    const float scale = block_scale(p->scale, most, r->format.largest,
                                    &r->e4m3, r->outer);
    const float fit =
        p->scale == SCALE_FIT ? fit_factor(r->format.largest) : 1;

    for (int64_t i = b->rows.first; i < b->rows.first + b->rows.count; i++)
        for (int64_t j = b->cols.first; j < b->cols.first + b->cols.count;
             j++) {
            const float v = input_at(r, i, j);
            const float a = f32_of_bits(bits_of_f32(v) & 0x7FFFFFFFu);
            const float y = a * fit / block_divisor(scale);
            const float rounded =
                p->rounding == ROUND_STOCHASTIC
                    ? grid_stochastic(&r->format, y, word_at(r, i, j))
                    : grid_nearest(&r->format, y);

            const float value = element_write(r, i, j, rounded, scale);

            if (counts)
                tally_count(p->tally, v, y, value, &r->format, scale);
        }
}

/* Elements from `at` on of a span that is cut in blocks of `size`, 0: one. */
static struct quantize_span cut(struct quantize_span span, int64_t at,
                                int64_t size)
{
    const int64_t left = span.count - at;

    return (struct quantize_span){span.first + at,
                                  size > 0 && size < left ? size : left, 0,
                                  span.copy};
}

static void region_write(struct region *r)
{
    const struct quantize *p = r->p;
    const struct block all = {r->rows, r->cols};
    struct block b;

    if (p->scale == SCALE_TWO)
        r->outer = scale_outer(block_peak(r, &all), r->format.largest);
    if (p->scale == SCALE_MEAN) r->outer = region_mean(r);
    if (p->scale == SCALE_LATE) r->outer = p->known;
    if (p->scale == SCALE_TWO_LATE)
        r->outer = scale_outer(bits_of_f32(p->known), r->format.largest);
    if (p->seen != NULL) {
        const uint32_t most = block_peak(r, &all);

        if (most > bits_of_f32(*p->seen)) *p->seen = f32_of_bits(most);
    }
    for (int64_t i = 0; i < r->rows.count; i += b.rows.count) {
        b.rows = cut(r->rows, i, p->block_rows);
        for (int64_t j = 0; j < r->cols.count; j += b.cols.count) {
            b.cols = cut(r->cols, j, p->block_cols);
            block_write(r, &b);
        }
    }
}

status NAME(quantize)(struct stream *stream, const struct quantize *p)
{
    (void)stream;
    quantize_check(p);
    CHECK(!p->turn || p->block_rows == QUANTIZE_TURN);
    CHECK(p->scale != SCALE_GAUSS || (p->block_rows == 1 && p->block_cols > 0));
    for (int64_t i = 0; i < p->row_spans; i++)
        for (int64_t j = 0; j < p->col_spans; j++) {
            struct region r = {.p = p, .rows = p->rows[i], .cols = p->cols[j],
                               .span = j, .format = grid_format(p->format),
                               .e4m3 = grid_format(FORMAT_E4M3)};

            if (r.rows.count > 0 && r.cols.count > 0) region_write(&r);
        }
    return OK;
}
