/* SPDX-License-Identifier: Apache-2.0 */
/* eigen.h - orthogonal bases of symmetric matrices, in float64: who computes
 * which column, and how many threads there are, changes no bit. */
#ifndef LOCKSTEP_OPTIMIZER_EIGEN_H
#define LOCKSTEP_OPTIMIZER_EIGEN_H

#include <stdint.h>
#include "base/threads.h"

/* Both matrices are [n, n], one after the other in memory. What is not finite
 * gives a basis of NaN. */
struct basis {
    struct threads *threads;
    int64_t n;
    double *a;       /* in: a matrix; destroyed */
    double *q;       /* out: rows are basis vectors */
    double *vectors; /* [6 n]: scratch */
};

/* Eigenvectors of a symmetric matrix without negative eigenvalues; row order[k]
 * of q belongs to the k-th largest one. Three diagonals by reflections, then
 * shifted QR sweeps (Golub and Van Loan, Matrix Computations, 8.3). Which of
 * many bases it is: eigenvalues up to `cut` times the largest count as zeros,
 * whose vectors follow from what they span alone, not from rounding; of
 * every vector the first element of at least half the largest magnitude is
 * positive. */
void basis_eigen(const struct basis *basis, double cut, int *order);

/* Rows of a, from the first on, made orthogonal: row k of q is, but for its
 * sign, column k of Q in the QR decomposition of the transpose. Rows of which
 * up to `cut` of the longest is left beside those before them count as zeros;
 * the last ones of order, [n]. Householder reflections: orthogonal
 * whatever the rank. */
void basis_orthogonal(const struct basis *basis, double cut, int *order);

/* Sixteen lanes from +0, folded by 8, 4, 2, 1. */
double basis_dot(const double *x, const double *y, int64_t n);

#endif
