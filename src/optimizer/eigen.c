/* SPDX-License-Identifier: Apache-2.0 */
/* eigen.c - orthogonal bases of symmetric matrices, in float64. */
#include "optimizer/eigen.h"

#include <math.h>
#include <stdbool.h>

enum {
    LANES_16 = 16,
    ROWS_TOGETHER = 8,    /* that a reflection meets while it is near */
    SWEEPS_TOGETHER = 16, /* that pass over the rows as one wave */
    BAND = 128,           /* columns of a row that are turned at a time */
    SWEEPS_MAX = 60       /* for each eigenvalue; two are usual */
};

double basis_dot(const double *x, const double *y, int64_t n)
{
    double lanes[LANES_16] = {0};
    int64_t i = 0;

    for (; i + LANES_16 <= n; i += LANES_16)
#pragma omp simd
        for (int j = 0; j < LANES_16; j++) lanes[j] += x[i + j] * y[i + j];
    for (int j = 0; i + j < n; j++) lanes[j] += x[i + j] * y[i + j];
    for (int width = LANES_16 / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
    return lanes[0];
}

/* x += factor y */
static void add_row(double *restrict x, const double *restrict y,
                    double factor, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] += factor * y[i];
}

/* Times a power of two, so that the largest magnitude is from 0.5 to 1: squares
 * neither overflow nor vanish. False: something is no finite number. */
static bool scale_to_one(double *a, int64_t count)
{
    double largest = 0;
    int exponent;

    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(a[i])) return false;
        if (fabs(a[i]) > largest) largest = fabs(a[i]);
    }
    (void)frexp(largest, &exponent);
    for (int64_t i = 0; largest > 0 && i < count; i++)
        a[i] = ldexp(a[i], -exponent);
    return true;
}

static void identity(const struct basis *basis, double one)
{
    const int64_t n = basis->n;

    for (int64_t i = 0; i < n * n; i++)
        basis->q[i] = i % (n + 1) == 0 ? one : one - one;
}

/* ---- reflections ---- */

/* Row from k on becomes the reflection 1 - tau v v^T that leaves its first
 * number alone: v is 1 (not stored), then the rest; tau takes the place of the
 * first number. Returns what that number becomes. */
static double reflection(double *row, int64_t k, int64_t n)
{
    static const double NOTHING = 0x1p-900; /* a square that counts as zero */
    const double first = row[k];
    const double square = basis_dot(row + k, row + k, n - k);

    if (square < NOTHING || k == n - 1) {
        row[k] = 0;
        return first;
    }
    const double norm = sqrt(square), beta = first > 0 ? -norm : norm;

    for (int64_t i = k + 1; i < n; i++) row[i] /= first - beta;
    row[k] = (beta - first) / beta;
    return beta;
}

/* row -= tau v (v . row), of elements from k on. */
static void reflect(double *row, const double *v, int64_t k, int64_t n)
{
    const double w =
        v[k] * (row[k] + basis_dot(v + k + 1, row + k + 1, n - k - 1));

    row[k] -= w;
    add_row(row + k + 1, v + k + 1, -w, n - k - 1);
}

/* ---- A = Q T Q^T, T of three diagonals ---- */

/* Step k reflects rows and columns behind k by v: A -= v w^T + w v^T. The pass
 * that subtracts this multiplies by the next v too, so that a step reads the
 * matrix once. */
struct reduction {
    const struct basis *basis;
    double *diagonal, *beside; /* T: [n], [n - 1] */
    double *v, *w;             /* of the step that is subtracted */
    double *next, *product;    /* of the one after it */
};

static struct reduction reduction_begin(const struct basis *basis)
{
    const int64_t n = basis->n;
    double *at = basis->vectors;
    struct reduction r = {.basis = basis, .diagonal = at, .beside = at + n,
                          .v = at + 2 * n, .w = at + 3 * n,
                          .next = at + 4 * n, .product = at + 5 * n};

    for (int64_t i = 0; i < 4 * n; i++) r.v[i] = 0;
    return r;
}

/* x -= a w + b v */
static void subtract(const struct reduction *r, int64_t row, int64_t from)
{
    const int64_t n = r->basis->n;
    const double a = r->v[row], b = r->w[row];
    double *restrict x = r->basis->a + row * n;
    const double *restrict v = r->v, *restrict w = r->w;

#pragma omp simd
    for (int64_t j = from; j < n; j++) x[j] -= a * w[j] + b * v[j];
}

/* Row k, which all steps before have seen: T, and the next reflection. */
static void reduce_row(struct reduction *r, int64_t k)
{
    const int64_t n = r->basis->n;
    double *row = r->basis->a + k * n;

    r->diagonal[k] = row[k];
    if (k == n - 1) return;
    r->beside[k] = reflection(row, k + 1, n);
    r->next[k + 1] = 1;
    for (int64_t j = k + 2; j < n; j++) r->next[j] = row[j];
}

/* w = p - (tau / 2) (p . v) v, p = tau A v. Row k + 1 sees this step before
 * the others, since it says what they are multiplied by. */
static void between_steps(struct reduction *r, int64_t k)
{
    const int64_t n = r->basis->n, from = k + 1, m = n - from;
    const double tau = r->basis->a[k * n + from];
    double *v = r->next, *w = r->product;

    for (int64_t j = from; j < n; j++) w[j] *= tau;
    add_row(w + from, v + from, -tau / 2 * basis_dot(w + from, v + from, m), m);
    r->next = r->v;
    r->product = r->w;
    r->v = v;
    r->w = w;
    subtract(r, from, from);
    reduce_row(r, from);
}

static void reduce_body(void *argument, int index, int count)
{
    struct reduction *r = argument;
    const int64_t n = r->basis->n;

    for (int64_t k = 0; k < n - 1; k++) {
        for (int64_t i = k + 1; i < n; i++) {
            double *row = r->basis->a + i * n;

            if (i % count != index) continue;
            subtract(r, i, k + 1);
            r->product[i] =
                basis_dot(row + k + 1, r->next + k + 1, n - k - 1);
        }
        threads_barrier(r->basis->threads);
        if (index == 0) between_steps(r, k);
        threads_barrier(r->basis->threads);
    }
}

/* Row j of q: column j of Q, all reflections of what is 1 at j. */
static void columns_body(void *argument, int index, int count)
{
    const struct basis *b = argument;
    const int64_t n = b->n;
    int64_t first, last;

    threads_split(n, ROWS_TOGETHER, index, count, &first, &last);
    for (int64_t from = first; from < last; from += ROWS_TOGETHER) {
        const int64_t to =
            from + ROWS_TOGETHER < last ? from + ROWS_TOGETHER : last;

        for (int64_t k = to - 2; k >= 0; k--)
            for (int64_t j = k < from ? from : k + 1; j < to; j++)
                reflect(b->q + j * n, b->a + k * n, k + 1, n);
    }
}

/* ---- T = S D S^T: shifted QR sweeps ---- */

struct turn {
    double c, s;
};

/* Rotations of rows i and i + 1, i from `first` to `last` - 1. */
struct sweep {
    int64_t first, last;
    const struct turn *turns;
};

struct rotating {
    const struct basis *basis;
    double *d, *e;
    struct sweep sweeps[SWEEPS_TOGETHER];
    int sweep_count;
    struct turn *turns; /* [used]; what follows is free up to `room` */
    int64_t used, room;
};

/* (c, s) that turn (x, z) to (r, 0). */
static struct turn turn_of(double x, double z, double *r)
{
    const double most = fabs(x) > fabs(z) ? fabs(x) : fabs(z);

    *r = 0;
    if (most == 0) return (struct turn){1, 0};
    const double a = x / most, b = z / most, length = sqrt(a * a + b * b);

    *r = most * length;
    return (struct turn){a / length, b / length};
}

/* One sweep over d[p..q], e[p..q-1], shifted by the eigenvalue of its last two
 * that is nearer to the last. Golub and Van Loan, algorithm 8.3.2. */
static void sweep_build(struct rotating *r, int64_t p, int64_t q)
{
    double *d = r->d, *e = r->e;
    const double half = (d[q - 1] - d[q]) / 2, f = e[q - 1];
    const double root = sqrt(half * half + f * f);
    double x = d[p] - (d[q] - f * f / (half < 0 ? half - root : half + root));
    double z = e[p];

    r->sweeps[r->sweep_count++] = (struct sweep){p, q, r->turns + r->used};
    for (int64_t k = p; k < q; k++) {
        double length;
        const struct turn t = turn_of(x, z, &length);
        const double a = d[k], b = e[k], g = d[k + 1];
        const double cc = t.c * t.c, ss = t.s * t.s, cs = t.c * t.s;

        if (k > p) e[k - 1] = length;
        d[k] = cc * a + 2 * cs * b + ss * g;
        d[k + 1] = ss * a - 2 * cs * b + cc * g;
        e[k] = cs * (g - a) + (cc - ss) * b;
        x = e[k];
        if (k + 1 < q) {
            z = t.s * e[k + 1];
            e[k + 1] *= t.c;
        }
        r->turns[r->used++] = t;
    }
}

static void turn_rows(double *restrict x, double *restrict y, int64_t n,
                      struct turn t)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i], b = y[i];

        x[i] = t.c * a + t.s * b;
        y[i] = t.c * b - t.s * a;
    }
}

/* Rotation i of sweep s comes after rotation i + 1 of the sweep before. */
static void wave(const struct rotating *r, int64_t column, int64_t width)
{
    const int64_t n = r->basis->n;

    for (int64_t at = 0; at < n + 2 * r->sweep_count; at++)
        for (int s = 0; s < r->sweep_count; s++) {
            const struct sweep *sweep = &r->sweeps[s];
            const int64_t i = at - 2 * s;
            double *row = r->basis->q + i * n + column;

            if (i >= sweep->first && i < sweep->last)
                turn_rows(row, row + n, width, sweep->turns[i - sweep->first]);
        }
}

static void turn_body(void *argument, int index, int count)
{
    const struct rotating *r = argument;
    int64_t first, last;

    threads_split(r->basis->n, LANES_16, index, count, &first, &last);
    for (int64_t column = first; column < last; column += BAND)
        wave(r, column, last - column < BAND ? last - column : BAND);
}

static void turn_all(struct rotating *r)
{
    threads_run(r->basis->threads, turn_body, r);
    r->sweep_count = 0;
    r->used = 0;
}

/* An element off the diagonal becomes zero if it is below the rounding error of
 * the whole matrix. */
static void diagonalize(struct rotating *r)
{
    static const double ROUNDING = 0x1p-53;
    const int64_t n = r->basis->n;
    int64_t q = n - 1, left = SWEEPS_MAX * n;
    double most = 0;

    for (int64_t i = 0; i < n; i++) {
        if (fabs(r->d[i]) > most) most = fabs(r->d[i]);
        if (i < n - 1 && fabs(r->e[i]) > most) most = fabs(r->e[i]);
    }
    while (q > 0 && left-- > 0) {
        int64_t p = q;

        while (p > 0 && fabs(r->e[p - 1]) > ROUNDING * most) p--;
        if (p == q) {
            q--;
            continue;
        }
        if (r->sweep_count == SWEEPS_TOGETHER || r->room - r->used < n)
            turn_all(r);
        sweep_build(r, p, q);
    }
    turn_all(r);
}

/* ---- which basis, where there are many ---- */

/* Rows by falling values, equal ones as they were: by insertion. */
static void sort_rows(const double *value, int *order, int n)
{
    for (int i = 0; i < n; i++) {
        int at = i;

        for (; at > 0 && value[order[at - 1]] < value[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The first magnitude that is at least half the largest: rounding moves it
 * only where two programs would differ by half. */
static int64_t first_large(const double *x, int64_t n)
{
    double most = 0;
    int64_t i = 0;

    for (int64_t j = 0; j < n; j++)
        if (fabs(x[j]) > most) most = fabs(x[j]);
    while (i < n - 1 && !(fabs(x[i]) >= most / 2)) i++;
    return i;
}

/* A sign, and the length 1 that thousands of rotations have worn. */
static void set_length(double *row, int64_t n)
{
    const double length = sqrt(basis_dot(row, row, n));
    const double factor = row[first_large(row, n)] < 0 ? -1 : 1;

    for (int64_t j = 0; j < n; j++) row[j] *= factor / length;
}

/* Rows order[from..] of q span the vectors of eigenvalue zero, and any basis of
 * those is one. This one depends on what they span alone: the first unit vector
 * that is not short there becomes row `from` by a reflection of the rows, and
 * so on with what is left. */
struct spanning {
    const struct basis *basis;
    const int *order;
    int64_t from;
    double *length; /* [n]: squares of what is left of unit vectors */
    double *sum;    /* [n] */
    double *v;      /* [n]: the reflection, from `from` on */
};

static void span_body(void *argument, int index, int count)
{
    const struct spanning *s = argument;
    const int64_t n = s->basis->n;
    const double tau = s->v[s->from];
    int64_t first, last;

    threads_split(n, LANES_16, index, count, &first, &last);
    const int64_t width = last - first;

    for (int64_t j = first; j < last; j++) s->sum[j] = 0;
    for (int64_t i = s->from; i < n; i++)
        add_row(s->sum + first, s->basis->q + s->order[i] * n + first,
                i == s->from ? 1 : s->v[i], width);
    for (int64_t i = s->from; i < n; i++)
        add_row(s->basis->q + s->order[i] * n + first, s->sum + first,
                i == s->from ? -tau : -tau * s->v[i], width);
}

static void span_zeros(const struct basis *basis, const int *order,
                       int64_t from)
{
    const int64_t n = basis->n;
    struct spanning s = {.basis = basis, .order = order,
                         .length = basis->vectors, .sum = basis->vectors + n,
                         .v = basis->vectors + 2 * n};

    for (int64_t j = 0; j < n; j++) s.length[j] = 0;
    for (int64_t i = from; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            s.length[j] += basis->q[order[i] * n + j] *
                           basis->q[order[i] * n + j];
    for (s.from = from; s.from < n - 1; s.from++) {
        const double *row = basis->q + order[s.from] * n;
        const int64_t at = first_large(s.length, n);

        for (int64_t i = s.from; i < n; i++)
            s.v[i] = basis->q[order[i] * n + at];
        (void)reflection(s.v, s.from, n);
        threads_run(basis->threads, span_body, &s);
        for (int64_t j = 0; j < n; j++) s.length[j] -= row[j] * row[j];
    }
}

void basis_eigen(const struct basis *basis, double cut, int *order)
{
    const int64_t n = basis->n;
    struct reduction t = reduction_begin(basis);
    struct rotating r = {.basis = basis, .d = t.diagonal, .e = t.beside,
                         .turns = (struct turn *)(void *)basis->a,
                         .room = n * n / 2};
    int64_t zeros = n;

    for (int64_t i = 0; i < n; i++) order[i] = (int)i;
    identity(basis, 1);
    if (!scale_to_one(basis->a, n * n)) {
        identity(basis, NAN);
        return;
    }
    reduce_row(&t, 0);
    threads_run(basis->threads, reduce_body, &t);
    threads_run(basis->threads, columns_body, (void *)(uintptr_t)basis);
    diagonalize(&r);
    sort_rows(r.d, order, (int)n);
    while (zeros > 0 && !(r.d[order[zeros - 1]] > cut * r.d[order[0]]))
        zeros--;
    span_zeros(basis, order, zeros);
    for (int64_t i = 0; i < n; i++) set_length(basis->q + i * n, n);
}

/* ---- QR ---- */

/* vectors[k]: what is left of row k beside those before it. */
static void orthogonal_body(void *argument, int index, int count)
{
    const struct basis *b = argument;
    const int64_t n = b->n;

    for (int64_t k = 0; k < n; k++) {
        if (k % count == index)
            b->vectors[k] = fabs(reflection(b->a + k * n, k, n));
        threads_barrier(b->threads);
        for (int64_t j = k + 1; j < n; j++)
            if (j % count == index)
                reflect(b->a + j * n, b->a + k * n, k, n);
        threads_barrier(b->threads);
    }
    for (int64_t j = index; j < n; j += count)
        for (int64_t k = n - 1; k >= 0; k--)
            if (k <= j) reflect(b->q + j * n, b->a + k * n, k, n);
}

void basis_orthogonal(const struct basis *basis, double cut, int *order)
{
    const int64_t n = basis->n;
    double most = 0;
    int64_t seen = 0, zeros = n;

    for (int64_t i = 0; i < n; i++) order[i] = (int)i;
    identity(basis, 1);
    if (!scale_to_one(basis->a, n * n)) {
        identity(basis, NAN);
        return;
    }
    threads_run(basis->threads, orthogonal_body, (void *)(uintptr_t)basis);
    for (int64_t k = 0; k < n; k++)
        if (basis->vectors[k] > most) most = basis->vectors[k];
    for (int64_t k = 0; k < n; k++)
        if (basis->vectors[k] > cut * most) order[seen++] = (int)k;
    for (int64_t k = n - 1; k >= 0; k--)
        if (!(basis->vectors[k] > cut * most)) order[--zeros] = (int)k;
    span_zeros(basis, order, zeros);
}
