/* SPDX-License-Identifier: Apache-2.0 */
/* newton_schulz.c - a matrix with its singular values brought near 1, by
 * products alone. */
#include "optimizer/newton_schulz.h"

#include "mesh/param.h"

static const double A = 3.4445, B = -4.7750, C = 2.0315;
static const double LEAST_NORM = 1e-7; /* a matrix of zeros stays one */

/* ---- the iteration ---- */

/* Parts of the scratch: the other of two matrices that take turns, A, and
 * b A + c A A. */
struct iteration {
    const struct newton_schulz *of;
    struct tensor x, next, gram, square;
    bool tall;
};

static int64_t least(int64_t rows, int64_t cols)
{
    return rows < cols ? rows : cols;
}

int64_t newton_schulz_elements(int64_t rows, int64_t cols)
{
    const int64_t n = least(rows, cols);

    return param_room(rows * cols) + 2 * param_room(n * n);
}

static struct tensor flat(struct tensor x)
{
    return tensor_1d(x.data, x.dtype, tensor_count(&x));
}

/* c = a b, plus `left` unless its data is NULL: one leaf. */
static status product(const struct iteration *it, struct tensor c,
                      struct tensor a, struct tensor b,
                      const struct tensor *left)
{
    const struct sum_segment all = {0, a.shape[1], 0};
    const struct sum_order order = {&all, 1, 1};
    const struct matmul call = {.c = c, .a = a, .b = b, .order = &order,
                                .left = left};

    return it->of->kernels->matmul(it->of->stream, &call);
}

static status scaled(const struct iteration *it, struct tensor out,
                     struct tensor in, double factor)
{
    return it->of->kernels->scale(it->of->stream, flat(out), flat(in),
                                  factor);
}

static status iterate(struct iteration *it)
{
    const struct tensor turned = tensor_transpose(it->x);
    const struct tensor c_gram = tensor_2d(it->next.data, it->x.dtype,
                                           it->gram.shape[0],
                                           it->gram.shape[1]);

    if (it->tall) TRY(product(it, it->gram, turned, it->x, NULL));
    else TRY(product(it, it->gram, it->x, turned, NULL));
    TRY(scaled(it, c_gram, it->gram, C));
    TRY(scaled(it, it->square, it->gram, B));
    TRY(product(it, it->square, c_gram, it->gram, &it->square));
    TRY(scaled(it, it->next, it->x, A));
    if (it->tall) TRY(product(it, it->next, it->x, it->square, &it->next));
    else TRY(product(it, it->next, it->square, it->x, &it->next));
    const struct tensor old = it->x;

    it->x = it->next;
    it->next = old;
    return OK;
}

static void place(struct iteration *it)
{
    const struct newton_schulz *of = it->of;
    const int64_t rows = of->x.shape[0], cols = of->x.shape[1];
    const int64_t n = least(rows, cols), size = dtype_bytes(of->x.dtype);
    char *at = of->scratch;

    it->x = of->x;
    it->tall = rows > cols;
    it->next = tensor_2d(at, of->x.dtype, rows, cols);
    at += param_room(rows * cols) * size;
    it->gram = tensor_2d(at, of->x.dtype, n, n);
    at += param_room(n * n) * size;
    it->square = tensor_2d(at, of->x.dtype, n, n);
}

status newton_schulz(const struct newton_schulz *of)
{
    struct iteration it = {.of = of};
    double *squares;

    place(&it);
    squares = it.next.data;
    TRY(of->kernels->sum_squares(of->stream, squares, of->x, 1));
    TRY(of->kernels->normalize(of->stream, of->x, squares, LEAST_NORM));
    for (int i = 0; i < of->steps; i++) TRY(iterate(&it));
    if (it.x.data == of->x.data) return OK;
    return scaled(&it, of->x, it.x, 1);
}
