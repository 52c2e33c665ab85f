/* SPDX-License-Identifier: Apache-2.0 */
/* eigen.h - orthogonal bases of symmetric matrices, in float64: who computes
 * which column, and how many threads there are, changes no bit. */
#ifndef LOCKSTEP_OPTIMIZER_EIGEN_H
#define LOCKSTEP_OPTIMIZER_EIGEN_H

#include <stdint.h>
#include "base/threads.h"

/* Both matrices are [n, n], one after the other in memory. */
struct basis {
    struct threads *threads;
    int64_t n;
    double *a;     /* in: a matrix; destroyed */
    double *q;     /* out: rows are basis vectors */
};

/* Eigenvectors of a symmetric matrix without negative eigenvalues; row order[k]
 * of q belongs to the k-th largest one. One-sided Jacobi rotations of rows, in
 * the order of a round robin, until no two rows are further from orthogonal
 * than rounding makes them; rows below 1e-13 of the whole count as zero.
 * Sources: Hestenes 1958; Brent and Luk 1985 (the order). */
void basis_eigen(const struct basis *basis, int *order);

/* Rows of a, from the first on, made orthogonal: row k of q is, but for its
 * sign, column k of Q in the QR decomposition of the transpose. Householder
 * reflections: orthogonal whatever the rank. */
void basis_orthogonal(const struct basis *basis);

/* Sixteen lanes from +0, folded by 8, 4, 2, 1. */
double basis_dot(const double *x, const double *y, int64_t n);

#endif
