/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.cu - a matrix in blocks with scales. A thread has a column of its
 * cell, in runs of QUANTIZE_TURN rows. Largest magnitudes and counts are
 * exact, and so are the sums of means, so their order is free; deviations have
 * that of kernels/quantize.h. */
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/cells.h"
#include "kernels/cuda/random.h"
#include "kernels/element.h"

struct quantize_shared {
    uint32_t most[BLOCK_THREADS];
    double sums[BLOCK_THREADS], squares[BLOCK_THREADS];
    struct quantize_tally tallies[BLOCK_THREADS];
};

/* Rows `row` to `end`, as many as there is room for, of a column, as they are
 * rounded. Returns how many. */
DEVICE int run_read(const struct quantize *q, int64_t row, int64_t end,
                    int64_t col, float x[QUANTIZE_TURN])
{
    const int count =
        end - row < QUANTIZE_TURN ? (int)(end - row) : QUANTIZE_TURN;

    UNROLLED for (int i = 0; i < QUANTIZE_TURN; i++)
        x[i] = i < count ? element_get(q->in.data, q->in.dtype,
                                       (row + i) * q->in.stride[0] + col)
                         : 0.0f;
    if (!q->turn || count < QUANTIZE_TURN) return count;
    UNROLLED for (int i = 0; i < QUANTIZE_TURN; i++)
        if (QUANTIZE_SIGNS >> i & 1) x[i] = -x[i];
    UNROLLED for (int bit = 0; bit < 4; bit++)
        UNROLLED for (int i = 0; i < QUANTIZE_TURN; i++)
            if (!(i >> bit & 1)) {
                const float a = x[i], b = x[i | 1 << bit];

                x[i] = a + b;
                x[i | 1 << bit] = a - b;
            }
    UNROLLED for (int i = 0; i < QUANTIZE_TURN; i++) x[i] = x[i] * 0.25f;
    return count;
}

DEVICE uint32_t run_most(const float x[QUANTIZE_TURN], uint32_t most)
{
    UNROLLED for (int i = 0; i < QUANTIZE_TURN; i++) {
        const uint32_t own = finite_bits(x[i]);

        most = own > most ? own : most;
    }
    return most;
}

/* The largest of the threads of a team. */
DEVICE uint32_t team_most(struct quantize_shared *s, int team, uint32_t own)
{
    s->most[THREAD] = own;
    for (int half = team / 2; half > 0; half /= 2) {
        BARRIER;
        if (THREAD % team < half && s->most[THREAD + half] > s->most[THREAD])
            s->most[THREAD] = s->most[THREAD + half];
    }
    BARRIER;
    return s->most[THREAD - THREAD % team];
}

/* QUANTIZE_SHARES blocks look at a region. */
CUDA_KERNEL(quantize_peaks)
{
    const struct quantize *q = &p->call.of;
    const struct cell b = cell_of(&p->call.cells, BLOCK / QUANTIZE_SHARES);
    const int64_t end = b.rows.first + b.rows.count;
    int64_t row =
        b.rows.first + BLOCK % QUANTIZE_SHARES * QUANTIZE_TURN;
    float x[QUANTIZE_TURN];
    uint32_t most = 0;
    SHARED(struct quantize_shared, s);

    for (; row < end; row += QUANTIZE_SHARES * QUANTIZE_TURN)
        for (int64_t j = THREAD; j < b.cols.count; j += BLOCK_THREADS) {
            run_read(q, row, end, b.cols.first + j, x);
            most = run_most(x, most);
        }
    most = team_most(s, BLOCK_THREADS, most);
    if (THREAD != 0 || b.rows.count == 0) return;
    if (q->seen) number_raise(q->seen, f32_of_bits(most));
    if (q->scale == SCALE_TWO || p->call.whole)
        number_raise(&q->peaks[b.rows.span * q->col_spans + b.cols.span],
                     f32_of_bits(most));
}

struct means_shared { int64_t groups[MEAN_GROUPS]; };

/* A block has a region. */
CUDA_KERNEL(quantize_means)
{
    const struct quantize *q = &p->call.of;
    const struct cell b = cell_of(&p->call.cells, BLOCK);
    SHARED(struct means_shared, s);

    if (THREAD < MEAN_GROUPS) s->groups[THREAD] = 0;
    BARRIER;
    for (int64_t i = 0; i < b.rows.count; i++)
        for (int64_t j = THREAD; j < b.cols.count; j += BLOCK_THREADS) {
            const uint32_t bits = finite_bits(element_get(
                q->in.data, q->in.dtype,
                (b.rows.first + i) * q->in.stride[0] + b.cols.first + j));

            count_add(&s->groups[mean_group(bits)], mean_units(bits));
        }
    BARRIER;
    if (b.rows.count > 0 && THREAD == 0)
        q->peaks[b.rows.span * q->col_spans + b.cols.span] =
            mean_scale(s->groups, b.rows.count * b.cols.count);
}

/* ---- cells ---- */

/* SCALE_GAUSS, of one row: a thread has a lane. */
DEVICE uint32_t cell_gauss(const struct quantize_call *p,
                            const struct cell *b, struct quantize_shared *s)
{
    const struct quantize *q = &p->of;
    const int lane = THREAD % LANES;
    double sum = 0, squares = 0;

    for (int64_t j = lane; j < b->cols.count; j += LANES) {
        const double v = (double)f32_of_bits(signed_finite(element_get(
            q->in.data, q->in.dtype,
            b->rows.first * q->in.stride[0] + b->cols.first + j)));

        sum = sum + v;
        squares = squares + v * v;
    }
    s->sums[THREAD] = sum;
    s->squares[THREAD] = squares;
    BARRIER;
    if (lane == 0)
        s->most[THREAD] = gauss_bits(&s->sums[THREAD], &s->squares[THREAD],
                                     b->cols.count, p->format.largest);
    BARRIER;
    return s->most[THREAD - lane];
}

/* The number by which block_scale knows a cell. */
DEVICE uint32_t cell_most(const struct quantize_call *p, const struct cell *b,
                           struct quantize_shared *s)
{
    const struct quantize *q = &p->of;
    const int64_t end = b->rows.first + b->rows.count;
    float x[QUANTIZE_TURN];
    uint32_t most = 0;

    if (p->whole)
        return bits_of_f32(
            q->peaks[b->rows.span * q->col_spans + b->cols.span]);
    if (!p->looks) return 0;
    if (q->scale == SCALE_GAUSS) return cell_gauss(p, b, s);
    for (int64_t i = b->rows.first; i < end; i += QUANTIZE_TURN)
        for (int64_t j = THREAD % p->team; j < b->cols.count; j += p->team) {
            run_read(q, i, end, b->cols.first + j, x);
            most = run_most(x, most);
        }
    return team_most(s, p->team, most);
}

DEVICE float cell_outer(const struct quantize_call *p, const struct cell *b)
{
    const struct quantize *q = &p->of;
    const int64_t region = b->rows.span * q->col_spans + b->cols.span;

    switch (q->scale) {
    case SCALE_TWO:
        return scale_outer(bits_of_f32(q->peaks[region]), p->format.largest);
    case SCALE_TWO_LATE:
        return scale_outer(bits_of_f32(q->known), p->format.largest);
    case SCALE_MEAN: return q->peaks[region];
    case SCALE_LATE: return q->known;
    default: return 0;
    }
}

/* Where a number is. */
struct place { int64_t row, col, span, element; };

/* Writes v, and gives back what tally_count counts. */
DEVICE float number_write(const struct quantize *q, const struct grid_format *f,
                          const struct place *at, float v, const float by[2])
{
    const float rounded =
        q->rounding == ROUND_STOCHASTIC
            ? grid_stochastic(f, by[1], element_word(q->key, q->places[at->row],
                                                     at->element))
            : grid_nearest(f, by[1]);
    const int64_t to = at->row * q->out.stride[0] + at->col;

    if (!q->scales) {
        const float value = grid_result(f, v, rounded, by[0]);

        element_set(q->out.data, DTYPE_BF16, to, value);
        return value;
    }
    const float code = grid_code(v, rounded);

    if (!(v - v == 0))
        q->scales[at->row * q->col_spans + at->span] = f32_of_bits(0x7FC00000u);
    ((int8_t *)q->out.data)[to] = (int8_t)code;
    return code;
}

/* own: NULL: nobody counts. */
DEVICE void cell_write(const struct quantize_call *p, const struct cell *b,
                        float scale, struct quantize_tally *own)
{
    const struct quantize *q = &p->of;
    const int64_t end = b->rows.first + b->rows.count;
    const struct quantize_span *span = &p->cells.cols[b->cols.span];
    const float fit = q->scale == SCALE_FIT ? fit_factor(p->format.largest) : 1;
    float x[QUANTIZE_TURN];

    for (int64_t i = b->rows.first; i < end; i += QUANTIZE_TURN)
        for (int64_t j = THREAD % p->team; j < b->cols.count; j += p->team) {
            const int64_t col = b->cols.first + j;
            const int count = run_read(q, i, end, col, x);

            UNROLLED for (int k = 0; k < QUANTIZE_TURN; k++) {
                const struct place at = {
                    i + k, col, b->cols.span,
                    (int64_t)span->whole + col - span->first};
                const float a =
                    f32_of_bits(bits_of_f32(x[k]) & 0x7FFFFFFFu);
                const float by[2] = {scale, a * fit / block_divisor(scale)};

                if (k >= count) continue;
                const float value =
                    number_write(q, &p->format, &at, x[k], by);

                if (own)
                    tally_count(own, x[k], by[1], value, &p->format, scale);
            }
        }
}

DEVICE void tally_merge(struct quantize_tally *to,
                        const struct quantize_tally *from)
{
    to->elements += from->elements;
    to->cut += from->cut;
    to->zeroed += from->zeroed;
    if (from->largest > to->largest) to->largest = from->largest;
    if (from->scale_most > to->scale_most) to->scale_most = from->scale_most;
    number_lower(&to->scale_least, from->scale_least);
}

DEVICE void tally_of_block(struct quantize_tally *all,
                           const struct quantize_tally *own,
                           struct quantize_shared *s)
{
    struct quantize_tally *first = &s->tallies[0];

    s->tallies[THREAD] = *own;
    for (int half = BLOCK_THREADS / 2; half > 0; half /= 2) {
        BARRIER;
        if (THREAD < half)
            tally_merge(&s->tallies[THREAD], &s->tallies[THREAD + half]);
    }
    if (THREAD != 0 || first->elements == 0) return;
    count_add(&all->elements, first->elements);
    count_add(&all->cut, first->cut);
    count_add(&all->zeroed, first->zeroed);
    number_raise(&all->largest, first->largest);
    number_raise(&all->scale_most, first->scale_most);
    number_lower(&all->scale_least, first->scale_least);
}

CUDA_KERNEL(quantize_blocks)
{
    const struct quantize_call *call = &p->call;
    const struct quantize *q = &call->of;
    const struct cell b =
        cell_of(&call->cells, BLOCK * (BLOCK_THREADS / call->team) +
                                    THREAD / call->team);
    const bool counts = q->tally && b.rows.count > 0 &&
                        !call->cells.rows[b.rows.span].copy &&
                        !call->cells.cols[b.cols.span].copy;
    struct quantize_tally own = {0, 0, 0, 0, 0, 0};
    SHARED(struct quantize_shared, s);
    const float scale =
        block_scale(q->scale, cell_most(call, &b, s), call->format.largest,
                    &call->e4m3, cell_outer(call, &b));

    if (q->scales) {
        for (int64_t i = THREAD % call->team; i < b.rows.count;
             i += call->team)
            q->scales[(b.rows.first + i) * q->col_spans + b.cols.span] = scale;
        BARRIER; /* what is not finite is told later */
    }
    cell_write(call, &b, scale, counts ? &own : NULL);
    if (q->tally) tally_of_block(q->tally, &own, s);
}
