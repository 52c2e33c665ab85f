/* SPDX-License-Identifier: Apache-2.0 */
/* soap.c - AdamW in the slowly turning eigenbasis of Shampoo. Vyas et al. 2024,
 * arXiv:2409.11321, algorithm 3, with the authors' choices: the first step only
 * makes the bases, from an eigendecomposition; later every k-th step turns them
 * by one power iteration and a QR decomposition; second moments follow their
 * columns when these are sorted by what they see.
 *
 * In directions without gradients a covariance holds only rounding errors, and
 * Adam takes full steps along them. So an eigenvalue below a fixed share of the
 * largest one counts as zero, and eigen.h defines the basis there. */
#include "kernels/math.h"
#include "optimizer/eigen.h"
#include "optimizer/whole_tensors.h"

enum {
    SIDE_LARGEST = 4096, /* a longer side is not turned */
    M = 0, V = 1, COVARIANCE = 2, BASIS = 3
};

static bool turns(int64_t n)
{
    return n > 1 && n <= SIDE_LARGEST;
}

static int64_t matrix_elements(int64_t rows, int64_t cols)
{
    return rows * cols;
}

/* [rows, rows], then [cols, cols]. */
static int64_t side_elements(int64_t rows, int64_t cols)
{
    return (turns(rows) ? rows * rows : 0) + (turns(cols) ? cols * cols : 0);
}

static int64_t larger_side(int64_t rows, int64_t cols)
{
    const int64_t a = turns(rows) ? rows : 0, b = turns(cols) ? cols : 0;

    return a > b ? a : b;
}

/* Two matrices; a power of one side; in float64 two square matrices and six
 * vectors of a side; an order. */
static int64_t scratch(int64_t rows, int64_t cols)
{
    const int64_t n = larger_side(rows, cols);

    return 2 * param_room(rows * cols) + 5 * param_room(n * n) +
           13 * param_room(n);
}

struct soap {
    const struct update *u;
    const struct whole_tensor *t;
    int64_t rows, cols;
    struct tensor one, other;    /* [rows, cols]: scratch */
    void *square;                /* [n, n]: scratch */
    double *a, *q, *estimate;    /* [n, n], [n, n], [6 n] */
    int *order;                  /* [n] */
};

/* Eigenvalues up to this part of the largest count as zero. */
static double cut(const struct soap *s)
{
    return s->t->x.dtype == DTYPE_F64 ? 1e-9 : 0x1p-20;
}

static void soap_begin(struct soap *s, const struct update *u,
                       const struct whole_tensor *t)
{
    const int64_t size = dtype_bytes(t->x.dtype);
    char *at = t->scratch;

    *s = (struct soap){.u = u, .t = t, .rows = t->x.shape[0],
                       .cols = t->x.shape[1]};
    const int64_t n = larger_side(s->rows, s->cols);
    const int64_t room = param_room(s->rows * s->cols) * size;

    s->one = tensor_2d(at, t->x.dtype, s->rows, s->cols);
    s->other = tensor_2d(at + room, t->x.dtype, s->rows, s->cols);
    at += 2 * room;
    s->square = at;
    at += param_room(n * n) * size;
    s->a = (double *)(void *)at;
    s->q = s->a + param_room(n * n);
    s->estimate = s->q + param_room(n * n);
    s->order = (int *)(void *)(s->estimate + 6 * param_room(n));
}

/* The square of one side in a state: side 0 is rows. data NULL: not turned. */
static struct tensor side(const struct soap *s, int state, int which)
{
    const int64_t n = which == 0 ? s->rows : s->cols;
    char *at = s->t->states[state];

    if (!turns(n)) return (struct tensor){0};
    if (which == 1 && turns(s->rows))
        at += s->rows * s->rows * dtype_bytes(s->t->x.dtype);
    return tensor_2d(at, s->t->x.dtype, n, n);
}

static struct tensor whole_state(const struct soap *s, int state)
{
    return tensor_2d(s->t->states[state], s->t->x.dtype, s->rows, s->cols);
}

/* ---- products ---- */

static status product(const struct soap *s, struct tensor c, struct tensor a,
                      struct tensor b, const struct tensor *left)
{
    const struct sum_segment all = {0, a.shape[1], 0};
    const struct sum_order order = {&all, 1, 1};
    const struct matmul call = {.c = c, .a = a, .b = b, .order = &order,
                                .left = left, .own = true};

    return s->u->real->matmul(s->u->stream, &call);
}

static status scaled(const struct soap *s, struct tensor out,
                     struct tensor in, double factor)
{
    return s->u->real->scale(
        s->u->stream, tensor_1d(out.data, out.dtype, tensor_count(&out)),
        tensor_1d(in.data, in.dtype, tensor_count(&in)), factor);
}

/* out = QL^T in QR, or, back, QL in QR^T; s->one is written. out may be in. */
static status rotate(const struct soap *s, struct tensor out, struct tensor in,
                     bool back)
{
    struct tensor l = side(s, BASIS, 0), r = side(s, BASIS, 1);

    if (l.data != NULL)
        TRY(product(s, s->one, back ? l : tensor_transpose(l), in, NULL));
    else
        TRY(scaled(s, s->one, in, 1));
    if (r.data == NULL) return scaled(s, out, s->one, 1);
    return product(s, out, s->one, back ? tensor_transpose(r) : r, NULL);
}

/* C = decay C + (1 - decay) times G G^T or G^T G. */
static status add_covariance(const struct soap *s, int which, double decay)
{
    const struct tensor c = side(s, COVARIANCE, which), g = s->t->x;

    if (c.data == NULL) return OK;
    TRY(scaled(s, s->one, g, 1 - decay));
    TRY(scaled(s, c, c, decay));
    if (which == 0) return product(s, c, s->one, tensor_transpose(g), &c);
    return product(s, c, tensor_transpose(s->one), g, &c);
}

/* ---- the bases ---- */

/* Columns of the basis = rows of q in an order; NULL: as they are. */
static void set_basis(const struct tensor *basis, const double *q,
                      const int *order)
{
    const int64_t n = basis->shape[0];

    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            tensor_set(basis, i * n + k,
                       q[(order == NULL ? k : order[k]) * n + i]);
}

static void start_basis(const struct soap *s, int which)
{
    const struct tensor c = side(s, COVARIANCE, which);
    const struct tensor basis = side(s, BASIS, which);
    const struct basis b = {s->u->stream->threads, c.shape[0], s->a, s->q,
                            s->estimate};

    if (c.data == NULL) return;
    for (int64_t i = 0; i < b.n * b.n; i++) s->a[i] = tensor_get(&c, i);
    basis_eigen(&b, cut(s), s->order);
    set_basis(&basis, s->q, s->order);
}

/* Columns by falling estimates of what they see, equal ones, and those below
 * the cut, as they were. */
static void sort_columns(const struct soap *s, const struct tensor *basis,
                         const struct tensor *power)
{
    const int64_t n = basis->shape[0];

    for (int64_t k = 0; k < n; k++) s->estimate[k] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            s->estimate[k] += tensor_get(basis, i * n + k) *
                              tensor_get(power, i * n + k);
    double least = 0;

    for (int64_t k = 0; k < n; k++)
        if (cut(s) * s->estimate[k] > least) least = cut(s) * s->estimate[k];
    for (int i = 0; i < n; i++) {
        int at = i;

        if (!(s->estimate[i] > least)) s->estimate[i] = 0;
        for (; at > 0 && s->estimate[s->order[at - 1]] < s->estimate[i]; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

/* Second moments go where the columns of their side went. */
static status sort_moments(const struct soap *s, int which)
{
    const struct tensor v = whole_state(s, V);

    TRY(scaled(s, s->one, v, 1));
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->cols; j++)
            tensor_set(&v, i * s->cols + j,
                       tensor_get(&s->one,
                                  which == 0 ? s->order[i] * s->cols + j
                                             : i * s->cols + s->order[j]));
    return OK;
}

/* One power iteration, then orthogonal again. */
static status turn_basis(const struct soap *s, int which)
{
    const struct tensor c = side(s, COVARIANCE, which);
    const struct tensor basis = side(s, BASIS, which);
    const int64_t n = c.shape[0];
    const struct basis b = {s->u->stream->threads, n, s->a, s->q, s->estimate};

    if (c.data == NULL) return OK;
    const struct tensor power = tensor_2d(s->square, c.dtype, n, n);

    TRY(product(s, power, c, basis, NULL));
    sort_columns(s, &basis, &power);
    TRY(sort_moments(s, which));
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            s->a[k * n + i] = tensor_get(&power, i * n + s->order[k]);
    basis_orthogonal(&b, cut(s), s->order);
    set_basis(&basis, s->q, NULL);
    return OK;
}

/* ---- the step ---- */

/* s->other becomes the step; x is the gradient still. */
static status step(const struct soap *s)
{
    const struct update_item *item = s->t->item;
    const struct tensor m = whole_state(s, M);
    struct turned call = {
        .x = s->other, .v = whole_state(s, V), .m = m, .gradient = s->t->x,
        .beta1 = item->beta1, .beta2 = item->beta2,
        .correction1 = 1 - math_pow_int(item->beta1, item->t - 1),
        .correction2 = 1 - math_pow_int(item->beta2, item->t - 1),
        .epsilon = item->epsilon};

    TRY(rotate(s, s->other, s->t->x, false));
    TRY(s->u->real->turned(s->u->stream, &call));
    TRY(rotate(s, s->other, m, false));
    call.m = call.gradient = (struct tensor){.data = NULL};
    TRY(s->u->real->turned(s->u->stream, &call));
    return rotate(s, s->other, s->other, true);
}

/* Bases are zero until they are made. */
static bool begun(const struct soap *s)
{
    const struct tensor l = side(s, BASIS, 0), r = side(s, BASIS, 1);
    const struct tensor *any = l.data != NULL ? &l : &r;

    if (any->data == NULL) return s->t->item->t > 1;
    for (int64_t i = 0; i < any->shape[0]; i++)
        if (tensor_get(any, i) != 0) return true;
    return false;
}

static bool turns_now(const struct update *u, const struct update_item *item)
{
    return (item->t - 1) % u->frequency == 0;
}

/* The host makes and turns bases. They are there since a step that it made. */
static bool needs_host(const struct update *u, const struct update_item *item,
                       int64_t last)
{
    return last == 0 || item->t <= last || turns_now(u, item);
}

static status compute(const struct update *u, const struct whole_tensor *t)
{
    const double decay = t->item->beta2;
    struct soap s;

    soap_begin(&s, u, t);
    const bool first = !t->apart && !begun(&s);

    if (first) TRY(scaled(&s, s.other, t->x, 0));
    else TRY(step(&s));
    for (int i = 0; i < 2; i++) TRY(add_covariance(&s, i, decay));
    for (int i = 0; first && i < 2; i++) start_basis(&s, i);
    if (!first && turns_now(u, t->item))
        for (int i = 0; i < 2; i++) TRY(turn_basis(&s, i));
    return scaled(&s, t->x, s.other, 1);
}

/* The first step changes no weight. */
static void finish(const struct update *u, const struct update_item *item,
                   const struct matrix *matrix, struct descent *out)
{
    (void)u;
    (void)matrix;
    if (item->t == 1) out->keep = 1;
}

static const struct whole_kind whole = {
    .needs_host = needs_host, .scratch = scratch, .compute = compute,
    .finish = finish};

const struct optimizer_kind optimizer_soap = {
    .name = "soap",
    .doc = "adamw in the eigenbasis of Shampoo, for matrices of blocks",
    .states = {{.name = "m", .title = "first moments",
                .shape = STATE_WHOLE, .elements = matrix_elements},
               {.name = "v", .title = "second moments",
                .shape = STATE_WHOLE, .elements = matrix_elements},
               {.name = "covariance", .title = "covariances of sides",
                .shape = STATE_WHOLE, .elements = side_elements},
               {.name = "basis", .title = "bases of sides",
                .shape = STATE_WHOLE, .elements = side_elements}},
    .matrices = true, .rates = RATES_NONE, .whole = &whole};
