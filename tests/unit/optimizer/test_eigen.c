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

/* B B^T of B [n, rank]. */
static void fill(struct room *r, int n, int rank)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;

            for (int k = 0; k < rank; k++)
                sum += number(i * rank + k) * number(j * rank + k);
            r->matrix[i * n + j] = sum;
        }
}

static void check_orthogonal(const struct room *r, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            CHECK(fabs(basis_dot(r->q + i * n, r->q + j * n, n) - (i == j)) <
                  1e-13);
}

static void run(struct room *r, int n, int threads,
                void (*what)(const struct basis *, int *))
{
    struct basis basis = {.n = n, .a = r->a, .q = r->q};

    if (threads > 1) IS_OK(threads_build(&basis.threads, threads));
    memcpy(r->a, r->matrix, sizeof r->a);
    what(&basis, r->order);
    threads_free(basis.threads);
}

static const int shapes[][2] = {{1, 1}, {2, 2}, {7, 7}, {16, 3}, {33, 40},
                                {MOST, 20}};

TEST(eigenvectors)
{
    static struct room r;

    for (int s = 0; s < ROWS(shapes); s++) {
        const int n = shapes[s][0];
        double before = INFINITY;

        fill(&r, n, shapes[s][1]);
        run(&r, n, 1, basis_eigen);
        check_orthogonal(&r, n);
        for (int k = 0; k < n; k++) { /* A q = (q A q) q */
            const double *q = r.q + r.order[k] * n;
            double image[MOST], value;

            for (int i = 0; i < n; i++)
                image[i] = basis_dot(r.matrix + i * n, q, n);
            value = basis_dot(image, q, n);
            CHECK(value <= before + 1e-11);
            before = value;
            for (int i = 0; i < n; i++)
                CHECK(fabs(image[i] - value * q[i]) < 1e-11);
        }
        memcpy(r.again, r.q, sizeof r.q);
        run(&r, n, 3, basis_eigen);
        EQUAL_BYTES(r.again, r.q, (size_t)(n * n) * sizeof(double));
    }
}

static void orthogonal(const struct basis *basis, int *order)
{
    (void)order;
    basis_orthogonal(basis);
}

TEST(rows_are_made_orthogonal)
{
    static struct room r;

    for (int s = 0; s < ROWS(shapes); s++) {
        const int n = shapes[s][0];

        fill(&r, n, shapes[s][1]);
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

TEST_MAIN(eigenvectors, rows_are_made_orthogonal)
