/* SPDX-License-Identifier: Apache-2.0 */
/* eigen.c - orthogonal bases of symmetric matrices, in float64. */
#include "optimizer/eigen.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { LANES_16 = 16, SWEEPS_MAX = 60 };

double basis_dot(const double *x, const double *y, int64_t n)
{
    double lanes[LANES_16] = {0};
    int64_t i = 0;

    for (; i + LANES_16 <= n; i += LANES_16)
        for (int j = 0; j < LANES_16; j++) lanes[j] += x[i + j] * y[i + j];
    for (int j = 0; i + j < n; j++) lanes[j] += x[i + j] * y[i + j];
    for (int width = LANES_16 / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
    return lanes[0];
}

/* ---- eigenvectors ---- */

static const double ORTHOGONAL = 1e-15; /* cosine of two rows, over sqrt n */
static const double ZERO = 1e-13;       /* row, of the whole */

struct rotating {
    const struct basis *basis;
    double floor;       /* square of a row that counts as zero */
    double cosine;      /* of two rows that are orthogonal */
    _Atomic int turned; /* pairs of this sweep: any */
};

static void turn(double *x, double *y, int64_t n, double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i], b = y[i];

        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
}

/* Makes rows p and q of a orthogonal. */
static bool turn_pair(const struct rotating *r, int64_t p, int64_t q)
{
    const int64_t n = r->basis->n;
    double *x = r->basis->a + p * n, *y = r->basis->a + q * n;
    const double xx = basis_dot(x, x, n), yy = basis_dot(y, y, n);
    const double xy = basis_dot(x, y, n);

    if (xx <= r->floor || yy <= r->floor ||
        fabs(xy) <= r->cosine * sqrt(xx) * sqrt(yy))
        return false;
    const double zeta = (yy - xx) / (2 * xy);
    const double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    const double c = 1 / sqrt(1 + t * t);

    turn(x, y, n, c, c * t);
    turn(r->basis->q + p * n, r->basis->q + q * n, n, c, c * t);
    return true;
}

/* Pair `i` of round `round` among an even number of players. */
static void players(int64_t even, int64_t round, int64_t i, int64_t *p,
                    int64_t *q)
{
    const int64_t ring = even - 1;
    const int64_t a = i == 0 ? ring : (round + i) % ring;
    const int64_t b = i == 0 ? round : (round + ring - i) % ring;

    *p = a < b ? a : b;
    *q = a < b ? b : a;
}

/* Every pair once; pairs of a round share no row. */
static void sweep_body(void *argument, int index, int count)
{
    struct rotating *r = argument;
    const int64_t n = r->basis->n, even = n + n % 2;

    for (int64_t round = 0; round < even - 1; round++) {
        for (int64_t i = index; i < even / 2; i += count) {
            int64_t p, q;

            players(even, round, i, &p, &q);
            if (q < n && turn_pair(r, p, q)) atomic_store(&r->turned, 1);
        }
        threads_barrier(r->basis->threads);
    }
}

/* Rows by falling lengths, equal ones as they were: by insertion. */
static void sort_rows(const double *length, int *order, int n)
{
    for (int i = 0; i < n; i++) {
        int at = i;

        for (; at > 0 && length[order[at - 1]] < length[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

void basis_eigen(const struct basis *basis, int *order)
{
    const int64_t n = basis->n;
    struct rotating r = {.basis = basis};
    const double whole = basis_dot(basis->a, basis->a, n * n);

    r.floor = ZERO * ZERO * whole;
    r.cosine = ORTHOGONAL * sqrt((double)n);
    for (int64_t i = 0; i < n * n; i++) basis->q[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < SWEEPS_MAX; sweep++) {
        atomic_store(&r.turned, 0);
        threads_run(basis->threads, sweep_body, &r);
        if (!atomic_load(&r.turned)) break;
    }
    for (int64_t i = 0; i < n; i++) /* over row 0, which comes first */
        basis->a[i] = basis_dot(basis->a + i * n, basis->a + i * n, n);
    sort_rows(basis->a, order, (int)n);
}

/* ---- QR ---- */

/* Row k of a from k on becomes a reflection: 1 (not stored), then the rest; tau
 * takes the place of its first number. */
static void reflection(double *row, int64_t k, int64_t n)
{
    const double first = row[k];
    const double norm = sqrt(basis_dot(row + k, row + k, n - k));
    const double beta = first > 0 ? -norm : norm;

    if (norm == 0 || k == n - 1) {
        row[k] = 0;
        return;
    }
    for (int64_t i = k + 1; i < n; i++) row[i] /= first - beta;
    row[k] = (beta - first) / beta;
}

/* row -= tau v (v . row), of elements from k on. */
static void reflect(double *row, const double *v, int64_t k, int64_t n)
{
    const double w =
        v[k] * (row[k] + basis_dot(v + k + 1, row + k + 1, n - k - 1));

    row[k] -= w;
    for (int64_t i = k + 1; i < n; i++) row[i] -= w * v[i];
}

static void reduce_body(void *argument, int index, int count)
{
    const struct basis *b = argument;
    const int64_t n = b->n;

    for (int64_t k = 0; k < n; k++) {
        if (k % count == index) reflection(b->a + k * n, k, n);
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

void basis_orthogonal(const struct basis *basis)
{
    const int64_t n = basis->n;

    for (int64_t i = 0; i < n * n; i++) basis->q[i] = i % (n + 1) == 0;
    threads_run(basis->threads, reduce_body, (void *)(uintptr_t)basis);
}
