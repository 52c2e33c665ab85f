/* SPDX-License-Identifier: Apache-2.0 */
/* test_add_norm.c - a sum, or a product, and the norm of its rows in one call
 * have the bits of the calls apart: every type, every instruction set. */
#include "base/threads.h"
#include "tests/test.h"
#include "tests/unit/kernels/tape.h"

static const struct { int64_t tokens, width; } sizes[] = {
    {1, 1}, {3, 2}, {7, 15}, {16, 16}, {33, 17}, {70, 129}, {5, 640}};
static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16,
                                    DTYPE_F16};
static struct tape wanted, found;
static struct stream stream;

/* One case on a tape. */
struct pair {
    struct tape *tape;
    const struct kernels *kernels;
    int64_t tokens, width;
    bool layer;
    bool real, same;  /* y is real where the tape is narrow; y is x */
    bool left, bias;  /* of a product */
};

static struct norm_after norm_of(const struct pair *p)
{
    struct tape *t = p->tape;

    return (struct norm_after){
        .layer = p->layer, .y = tape_matrix(t, p->tokens, p->width),
        .stats = tape_real_vector(t, (p->layer ? 2 : 1) * p->tokens),
        .weight = tape_vector(t, p->width), .bias = tape_vector(t, p->width),
        .epsilon = 1e-5};
}

static void norm_run(const struct pair *p, struct tensor x,
                     const struct norm_after *n)
{
    const struct kernels *k = p->kernels;

    if (n->layer)
        IS_OK(k->layernorm_forward(&stream, n->y, n->stats, x, n->weight,
                                   n->bias, n->epsilon));
    else
        IS_OK(k->rmsnorm_forward(&stream, n->y, n->stats, x, n->weight,
                                 n->epsilon));
}

static void run_sum(const struct pair *p, bool apart)
{
    struct tape *t = p->tape;
    struct add_norm call = {
        .x = tape_matrix(t, p->tokens, p->width),
        .left = tape_matrix(t, p->tokens, p->width),
        .y = p->real ? tape_real(t, p->tokens, p->width)
                     : tape_matrix(t, p->tokens, p->width),
        .norm = norm_of(p)};

    if (p->same) call.y = call.x;
    if (!apart) {
        IS_OK(p->kernels->add_norm(&stream, &call));
        return;
    }
    IS_OK(p->kernels->add(&stream, call.x, call.left, call.y));
    norm_run(p, call.x, &call.norm);
}

static void run_product(const struct pair *p, bool apart)
{
    struct sum_segment segment = {.length = 21};
    const struct sum_order order = {&segment, 1, 1};
    struct tape *t = p->tape;
    struct tensor bias = tape_vector(t, p->width);
    struct tensor left = tape_matrix(t, p->tokens, p->width);
    struct matmul call = {.c = tape_matrix(t, p->tokens, p->width),
                          .a = tape_matrix(t, p->tokens, 21),
                          .b = tape_matrix(t, 21, p->width), .order = &order};
    const struct norm_after norm = norm_of(p);

    if (p->bias) call.bias = &bias;
    if (p->left) call.left = &left;
    if (!apart) call.norm = &norm;
    IS_OK(p->kernels->matmul(&stream, &call));
    if (apart) norm_run(p, call.c, &norm);
}

static void compare(struct pair *p, enum dtype dtype,
                    void (*run)(const struct pair *p, bool apart))
{
    for (int gap = 0; gap < 6; gap += 5)
        for (int edge = 0; edge < 2; edge++) {
            const enum values values = edge ? VALUES_EDGE : VALUES_NORMAL;

            for (int apart = 0; apart < 2; apart++) {
                p->tape = apart ? &wanted : &found;
                tape_start(p->tape, dtype_real(dtype), dtype, values, gap);
                run(p, apart);
            }
            const int64_t at = tape_differs(&wanted, &found);

            if (at >= 0)
                fail_msg("%s, %s, %ld x %ld, layer %d, gap %d, edge %d: "
                         "element %d", p->kernels->backend, dtype_name(dtype),
                         (long)p->tokens, (long)p->width, p->layer, gap, edge,
                         (int)at);
        }
}

static void sums(const struct kernels *kernels)
{
    for (int i = 0; i < 6 * ROWS(sizes); i++) {
        struct pair p = {.kernels = kernels, .tokens = sizes[i / 6].tokens,
                         .width = sizes[i / 6].width, .layer = i % 2,
                         .real = i / 2 % 3 == 1, .same = i / 2 % 3 == 2};

        compare(&p, kernels->dtype, run_sum);
    }
}

/* The emulated kernels of CUDA alone make both. */
static void products(const struct kernels *kernels)
{
    for (int i = 0; i < 8 * ROWS(sizes); i++) {
        struct pair p = {.kernels = kernels, .tokens = sizes[i / 8].tokens,
                         .width = sizes[i / 8].width, .layer = i % 2,
                         .left = i / 2 % 2, .bias = i / 4 % 2};

        compare(&p, kernels->dtype, run_product);
    }
}

static void room_open(void)
{
    IS_OK(memory_take(1, TAPE_SCRATCH, &stream.scratch));
    stream.scratch_bytes = TAPE_SCRATCH;
    IS_OK(memory_take(TAPE_ELEMENTS, sizeof(double), &wanted.data));
    IS_OK(memory_take(TAPE_ELEMENTS, sizeof(double), &found.data));
    IS_OK(threads_build(&stream.threads, 2));
}

static void room_close(void)
{
    threads_free(stream.threads);
    memory_free(stream.scratch);
    memory_free(wanted.data);
    memory_free(found.data);
}

TEST(one_call_has_the_bits_of_two)
{
    room_open();
    for (int d = 0; d < ROWS(dtypes); d++)
        for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
            struct kernels kernels;

            if (kernels_get(&kernels, dtypes[d], isa) != OK) {
                status_clear();
                continue;
            }
            sums(&kernels);
            if (isa == ISA_EMULATED && dtypes[d] != DTYPE_F64)
                products(&kernels);
        }
    room_close();
}

TEST_MAIN(one_call_has_the_bits_of_two)
