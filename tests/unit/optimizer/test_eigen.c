/* SPDX-License-Identifier: Apache-2.0 */
/* test_eigen.c - mirrors src/optimizer/eigen.c: bases are orthogonal, they are
 * those of their matrix, and threads do not show. */
#include "optimizer/eigen.h"

#include <math.h>

#include "tests/test.h"

enum { MOST = 67 };

static double number(int64_t index)
{
    uint32_t m = (uint32_t)(index * 7919 + 5) * 2654435761u;

    m = (m ^ m >> 15) * 2246822519u;
    m ^= m >> 13;
    return ((double)m - 2147483648.0) / 2147483648.0;
}

struct room {
    double matrix[MOST * MOST], a[MOST * MOST], q[MOST * MOST];
    double again[MOST * MOST];
    int order[MOST];
};

/* B B^T of B [n, rank], times a factor. */
static void fill(struct room *r, int n, int rank, double factor)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;

            for (int k = 0; k < rank; k++)
                sum += number(i * rank + k) * number(j * rank + k);
            r->matrix[i * n + j] = sum * factor;
        }
}

static void check_orthogonal(const struct room *r, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            CHECK(fabs(basis_dot(r->q + i * n, r->q + j * n, n) - (i == j)) <
                  1e-13);
}

static void eigen(const struct basis *basis, int *order)
{
    basis_eigen(basis, 1e-12, order);
}

static void orthogonal(const struct basis *basis, int *order)
{
    basis_orthogonal(basis, 1e-12, order);
}

static void run(struct room *r, int n, int threads,
                void (*what)(const struct basis *, int *))
{
    static double vectors[6 * MOST];
    struct basis basis = {.n = n, .a = r->a, .q = r->q, .vectors = vectors};

    if (threads > 1) IS_OK(threads_build(&basis.threads, threads));
    memcpy(r->a, r->matrix, sizeof r->a);
    memset(r->q, 0xff, sizeof r->q);
    what(&basis, r->order);
    threads_free(basis.threads);
}

/* A q = (q A q) q, falling; the first element of at least half the largest
 * magnitude is positive. Returns how many values are above the cut. */
static int check_vectors(const struct room *r, int n)
{
    const double whole = sqrt(basis_dot(r->matrix, r->matrix, n * n));
    double before = INFINITY, largest = 0;
    int above = 0;

    for (int k = 0; k < n; k++) {
        const double *q = r->q + r->order[k] * n;
        double image[MOST], value, most = 0, first = 0;

        for (int i = 0; i < n; i++)
            image[i] = basis_dot(r->matrix + i * n, q, n);
        value = basis_dot(image, q, n);
        if (k == 0) largest = value;
        if (value > 1e-12 * largest) above++;
        CHECK(value <= before + 1e-13 * whole);
        before = value;
        for (int i = 0; i < n; i++) {
            CHECK(fabs(image[i] - value * q[i]) <= 1e-13 * whole);
            if (fabs(q[i]) > most) most = fabs(q[i]);
        }
        for (int i = n - 1; i >= 0; i--)
            if (fabs(q[i]) >= most / 2) first = q[i];
        CHECK(first > 0);
    }
    return above;
}

static const int shapes[][2] = {{1, 1}, {2, 2}, {2, 1}, {7, 7}, {16, 3},
                                {33, 40}, {MOST, 20}, {MOST, MOST}};
static const double factors[] = {1, 1e-290, 1e290, 0x1p-1070};

TEST(eigenvectors)
{
    static struct room r;

    for (int s = 0; s < ROWS(shapes); s++)
        for (int f = 0; f < ROWS(factors); f++) {
            const int n = shapes[s][0], rank = shapes[s][1];

            fill(&r, n, rank, factors[f]);
            run(&r, n, 1, eigen);
            check_orthogonal(&r, n);
            if (f == 0) EQUAL_INT(check_vectors(&r, n), rank < n ? rank : n);
            memcpy(r.again, r.q, sizeof r.q);
            run(&r, n, 3, eigen);
            EQUAL_BYTES(r.again, r.q, (size_t)(n * n) * sizeof(double));
        }
}

/* Zeros, one value many times, blocks: as many bases as one likes. */
TEST(eigenvectors_of_equal_values)
{
    static struct room r;

    for (int kind = 0; kind < 4; kind++) {
        const int n = 24;

        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                r.matrix[i * n + j] =
                    kind == 0 ? 0
                    : kind == 1 ? 3 * (i == j)
                    : kind == 2 ? (i == j && i % 3 == 0)
                                : (i / 6 == j / 6 ? 1 + (i == j) : 0);
        run(&r, n, 2, eigen);
        check_orthogonal(&r, n);
        check_vectors(&r, n);
        for (int i = 0; kind < 3 && i < n * n; i++) /* unit vectors */
            CHECK(r.q[i] == 0 || r.q[i] == 1);
    }
}

/* Rounding errors in the matrix may not turn vectors of zeros. */
TEST(zeros_have_one_basis)
{
    static struct room r;
    const int n = 40;

    fill(&r, n, 9, 1);
    run(&r, n, 1, eigen);
    memcpy(r.again, r.q, sizeof r.q);
    for (int k = 0; k < n * n; k++) { /* symmetric, 1e-15 */
        const int i = k / n, j = k % n;

        r.matrix[k] *= 1 + 1e-15 * number(i * j + i + j);
    }
    int order[MOST];

    memcpy(order, r.order, sizeof order);
    run(&r, n, 1, eigen);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            CHECK(fabs(r.again[order[k] * n + i] - r.q[r.order[k] * n + i]) <
                  1e-12);
}

TEST(what_is_not_finite_gives_nan)
{
    static struct room r;
    static const double values[] = {NAN, INFINITY};
    static void (*const all[])(const struct basis *,
                               int *) = {eigen, orthogonal};

    for (int v = 0; v < ROWS(values); v++)
        for (int k = 0; k < ROWS(all); k++) {
            fill(&r, 16, 16, 1);
            r.matrix[37] = values[v];
            run(&r, 16, 1, all[k]);
            for (int i = 0; i < 256; i++) CHECK(isnan(r.q[i]));
            for (int i = 0; k == 0 && i < 16; i++) EQUAL_INT(r.order[i], i);
        }
}

TEST(rows_are_made_orthogonal)
{
    static struct room r;

    for (int s = 0; s < ROWS(shapes); s++) {
        const int n = shapes[s][0];

        fill(&r, n, shapes[s][1], 1);
        run(&r, n, 1, orthogonal);
        check_orthogonal(&r, n);
        for (int k = 0; k < n; k++) /* row k lies in the first k + 1 */
            for (int j = k + 1; j < n; j++)
                CHECK(fabs(basis_dot(r.matrix + k * n, r.q + j * n, n)) <
                      1e-11);
        memcpy(r.again, r.q, sizeof r.q);
        run(&r, n, 3, orthogonal);
        EQUAL_BYTES(r.again, r.q, (size_t)(n * n) * sizeof(double));
    }
}

TEST_MAIN(eigenvectors, eigenvectors_of_equal_values, zeros_have_one_basis,
          what_is_not_finite_gives_nan, rows_are_made_orthogonal)
