/* SPDX-License-Identifier: Apache-2.0 */
/* test_soap.c - mirrors src/optimizer/soap.c: a few steps of one matrix against
 * NumPy (tests/golden/make_whole.py). */
#include <math.h>

#include "base/json.h"
#include "optimizer/whole_tensors.h"
#include "tests/test.h"

enum { MOST = 256 };

static double number(int64_t index)
{
    uint32_t m = (uint32_t)(index * 7919 + 5) * 2654435761u;

    m = (m ^ m >> 15) * 2246822519u;
    m ^= m >> 13;
    return ((double)m - 2147483648.0) / 2147483648.0;
}

static double real_of(const struct json *of, const char *key)
{
    double value = 0;

    IS_OK(json_get_real(of, "soap_steps.json", key, &value));
    return value;
}

struct room {
    struct kernels kernels;
    struct stream stream;
    double w[MOST], g[MOST], states[4][2 * MOST]; /* two sides */
    void *scratch;
};

static void step(struct room *room, const struct json *c, int64_t t)
{
    const int64_t rows = (int64_t)real_of(c, "rows");
    const int64_t cols = (int64_t)real_of(c, "cols");
    const struct update update = {
        .kernels = &room->kernels, .real = &room->kernels,
        .stream = &room->stream,
        .frequency = (int)real_of(c, "frequency")};
    const struct update_item item = {
        .lr = real_of(c, "lr"), .beta1 = real_of(c, "beta1"),
        .beta2 = real_of(c, "beta2"), .epsilon = real_of(c, "epsilon"),
        .decay = real_of(c, "weight_decay"), .t = t};
    struct whole_tensor tensor = {
        .item = &item, .scratch = room->scratch,
        .x = tensor_2d(room->g, DTYPE_F64, rows, cols)};
    struct descent descent = {.rate = item.lr,
                              .keep = 1 - item.lr * item.decay};

    for (int i = 0; i < 4; i++) tensor.states[i] = room->states[i];
    for (int64_t i = 0; i < rows * cols; i++)
        room->g[i] = number(t * rows * cols + i);
    IS_OK(optimizer_soap.whole->compute(&update, &tensor));
    optimizer_soap.whole->finish(&update, &item, NULL, &descent);
    for (int64_t i = 0; i < rows * cols; i++)
        room->w[i] = room->w[i] * descent.keep - descent.rate * room->g[i];
}

static void run(struct room *room, const struct json *c)
{
    const int64_t rows = (int64_t)real_of(c, "rows");
    const int64_t cols = (int64_t)real_of(c, "cols");
    const struct json *w = json_get(c, "w");

    *room = (struct room){0};
    IS_OK(kernels_get(&room->kernels, DTYPE_F64, ISA_AUTO));
    IS_OK(memory_take((size_t)optimizer_soap.whole->scratch(rows, cols),
                      sizeof(double), &room->scratch));
    for (int64_t i = 0; i < rows * cols; i++) room->w[i] = number(i);
    for (int64_t t = 1; t <= (int64_t)real_of(c, "steps"); t++)
        step(room, c, t);
    memory_free(room->scratch);
    EQUAL_INT(w->count, rows * cols);
    for (int i = 0; i < w->count; i++)
        if (!(fabs(room->w[i] - w->items[i].real) < 1e-11)) {
            print_error("%lld x %lld: element %d is %.15g, expected %.15g\n",
                        (long long)rows, (long long)cols, i, room->w[i],
                        w->items[i].real);
            CHECK(false);
        }
}

TEST(steps_are_those_of_numpy)
{
    static struct room room;
    const struct json *root, *cases;
    struct arena arena;

    arena_init(&arena, "golden", 0);
    IS_OK(json_read_file(&root, &arena,
                         "tests/golden/training/soap_steps.json", 1 << 20));
    cases = json_get(root, "cases");
    CHECK(cases != NULL && cases->count == 5);
    for (int i = 0; i < cases->count; i++) run(&room, &cases->items[i]);
    arena_free(&arena);
}

TEST_MAIN(steps_are_those_of_numpy)
