/* SPDX-License-Identifier: Apache-2.0 */
/* test_updates.c - mirrors src/kernels/cpu/updates.c and code8.h: fast updates
 * equal the reference in every bit, for all formulas, types of states,
 * instruction sets of this machine and numbers of threads; what was decoded
 * from 8 bits encodes to the same bits. */
#include "kernels/code8.h"

#include <math.h>

#include "base/range_sum.h"
#include "kernels/kernels.h"
#include "tests/test.h"

enum { MOST = 9000, THREADS_MAX = 4, ROOM = 2 * MOST };

extern const struct kernels kernels_reference_f32;

/* Everything of one call, twice: for the reference, and for what is tried. */
struct operands {
    float weight[ROOM], gradient[ROOM];
    unsigned char states[UPDATE_STATES][4 * ROOM]; /* at lines of the cache */
    float scales[UPDATE_STATES][ROOM / UPDATE_BLOCK + 1];
    uint16_t copy[ROOM];
};

static struct operands wanted, found;

static float value(uint32_t i, uint32_t salt)
{
    const uint32_t a = (i * 2654435761u) ^ (salt * 40503u), b = a ^ a >> 15;
    const uint32_t mixed = b * 2246822519u;
    const double x = ((double)mixed - 2147483648.0) / 2147483648.0;

    switch (mixed >> 3 & 15) { /* sizes of all kinds, and zero */
    case 0: return 0;
    case 1: return (float)(x * 1e-12);
    case 2: return (float)(x * 1e3);
    default: return (float)(x / (1 + (double)(mixed % 997)));
    }
}

static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_U8};

/* Rows of `width` elements lie `stride` apart. */
struct shape { int64_t rows, width, stride; };

static void fill(struct operands *o, enum dtype dtype, int64_t count)
{
    for (uint32_t i = 0; i < ROOM; i++) {
        o->weight[i] = value(i, 1);
        o->gradient[i] = value(i, 2);
    }
    memset(o->copy, 0, sizeof o->copy);
    memset(o->scales, 0, sizeof o->scales);
    memset(o->states, 0, sizeof o->states);
    for (int k = 0; k < UPDATE_STATES; k++) {
        const struct tensor t = tensor_1d(o->states[k], dtype, count);

        for (int64_t i = 0; i < count && dtype != DTYPE_U8; i++) {
            const double x = value((uint32_t)i, 3u + (uint32_t)k);

            tensor_set(&t, i, k == 1 ? x * x : x);
        }
        for (int64_t i = 0; i < count && dtype == DTYPE_U8; i++)
            o->states[k][i] =
                (unsigned char)(int)(value((uint32_t)i, 9) * 1e5f);
        for (int64_t i = 0; i <= count / UPDATE_BLOCK; i++)
            o->scales[k][i] = i % 5 == 3 ? 0 : 1e-3f * (float)(i + 1);
    }
}

static struct tensor matrix(void *data, enum dtype dtype,
                            const struct shape *shape)
{
    struct tensor t = tensor_2d(data, dtype, shape->rows, shape->width);

    t.stride[0] = shape->stride;
    return t;
}

static struct element_update call_of(struct operands *o,
                                     enum update_formula formula,
                                     enum dtype dtype,
                                     const struct shape *shape)
{
    const int64_t count = shape->rows * shape->width;
    const bool two = formula == UPDATE_ADAMW || formula == UPDATE_FREE;
    struct element_update p = {
        .formula = formula, .weight = matrix(o->weight, DTYPE_F32, shape),
        .gradient = matrix(o->gradient, DTYPE_F32, shape), .scale = 0.7,
        .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8,
        .decay = 0.1, .correction1 = 0.271, .correction2 = 0.0297,
        .share = 0.3};

    for (int k = 0; k < (two ? 2 : 1); k++)
        p.states[k] = (struct element_state){
            tensor_1d(o->states[k], dtype, count), o->scales[k], k == 1};
    if (formula >= UPDATE_FREE)
        p.states[0].values = tensor_1d(o->states[0], DTYPE_F32, count);
    return p;
}

/* Three steps, so that what was stored is read. */
static void steps(const struct kernels *kernels, struct stream *stream,
                  struct element_update *p, struct operands *o,
                  const struct shape *shape)
{
    const bool reference = kernels == &kernels_reference_f32;

    if (!reference) p->copy = matrix(o->copy, DTYPE_BF16, shape);
    for (int i = 0; i < 3; i++)
        IS_OK(kernels->update_elements(stream, p));
    for (int64_t r = 0; reference && r < shape->rows; r++)
        for (int64_t i = 0; i < shape->width; i++)
            o->copy[r * shape->stride + i] =
                bf16_from_f32(o->weight[r * shape->stride + i]);
}

static void compare(const struct kernels *kernels, struct stream *stream,
                    enum update_formula formula, const struct shape *shape)
{
    for (int t = 0; t < ROWS(types); t++) {
        const int64_t count = shape->rows * shape->width;
        struct element_update p;

        fill(&wanted, types[t], count);
        if (formula >= UPDATE_FREE) /* its first state is a weight */
            memcpy(wanted.states[0], wanted.gradient,
                   (size_t)count * sizeof(float));
        memcpy(&found, &wanted, sizeof found);
        p = call_of(&wanted, formula, types[t], shape);
        steps(&kernels_reference_f32, stream, &p, &wanted, shape);
        p = call_of(&found, formula, types[t], shape);
        steps(kernels, stream, &p, &found, shape);
        if (memcmp(&wanted, &found, sizeof found) != 0)
            fail_msg("%s, formula %d, states %s, %lld x %lld differ",
                     kernels->backend, (int)formula, dtype_name(types[t]),
                     (long long)shape->rows, (long long)shape->width);
    }
}

TEST(fast_updates_equal_the_reference)
{
    static const struct shape shapes[] = {
        {1, 1, 1}, {1, 17, 17}, {1, 1024, 1024}, {1, 8999, 8999},
        {3, 5, 7}, {64, 48, 96}, {300, 29, 30}, {2, 4000, 4096}};

    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct stream stream = {0};
        struct kernels kernels;

        if (kernels_get(&kernels, DTYPE_F32, isa) != OK) {
            status_clear();
            continue;
        }
        for (int i = 0; i < ROWS(shapes); i++) {
            IS_OK(threads_build(&stream.threads, 1 + i % THREADS_MAX));
            for (int f = UPDATE_ADAMW; f <= UPDATE_AVERAGE; f++)
                compare(&kernels, &stream, (enum update_formula)f,
                        &shapes[i]);
            threads_free(stream.threads);
        }
    }
}

/* ---- old numbers stay where they are ---- */

enum { PLACES = 2 };
static _Alignas(64) struct operands apart[PLACES]; /* new, old */

/* Adds up what the rows and states of a call have, one after the other. */
static uint64_t all_of(const struct element_update *p, const struct shape *s)
{
    const bool reads = p->formula >= UPDATE_TOWARDS;
    const struct range_sum *sum = p->sum;
    uint64_t total = 0;

    for (int64_t r = 0; r < s->rows; r++) {
        const float *row = (const float *)p->weight.data + r * s->stride;

        total += range_sum_of(sum, row, row,
                              (size_t)s->width * sizeof *row);
    }
    for (int k = 0; k < UPDATE_STATES && !reads; k++) {
        const struct tensor *v = &p->states[k].values;
        const size_t blocks =
            (size_t)(s->rows * s->width + UPDATE_BLOCK - 1) / UPDATE_BLOCK;

        if (v->data == NULL) continue;
        total += range_sum_of(sum, v->data, v->data,
                              (size_t)(tensor_count(v) *
                                       dtype_bytes(v->dtype)));
        if (v->dtype == DTYPE_U8)
            total += range_sum_of(sum, p->states[k].scales,
                                  p->states[k].scales,
                                  blocks * sizeof(float));
    }
    return total;
}

/* Three steps, each from what the last one wrote. The state of two formulas
 * is read where it is: both places have it. */
static void step_apart(const struct kernels *kernels, struct stream *stream,
                       struct element_update *p, const struct shape *shape)
{
    /* Lines of the cache are such of the sum, or cross its pages. */
    struct range_sum sum = {(const char *)apart + p->formula % 2 * 4, 0};

    p->from = sizeof apart[0];
    p->sum = &sum;
    p->copy = matrix(apart[0].copy, DTYPE_BF16, shape);
    for (int i = 0; i < 3; i++) {
        memcpy(&apart[1], &apart[0], sizeof apart[0]);
        memset(apart[0].scales, 0xcd, sizeof apart[0].scales);
        for (int64_t r = 0; r < shape->rows; r++)
            memset(apart[0].weight + r * shape->stride, 0xcd,
                   (size_t)shape->width * sizeof(float));
        for (int k = 0; k < UPDATE_STATES && p->formula < UPDATE_TOWARDS; k++)
            if (p->states[k].values.data != NULL)
                memset(apart[0].states[k], 0xcd,
                       (size_t)(tensor_count(&p->states[k].values) *
                                dtype_bytes(p->states[k].values.dtype)));
        static struct operands before;

        memcpy(&before, &apart[1], sizeof before);
        sum.total = 0;
        IS_OK(kernels->update_elements(stream, p));
        CHECK(memcmp(&before, &apart[1], sizeof before) == 0);
        EQUAL_INT(sum.total, all_of(p, shape));
    }
}

static void compare_apart(const struct kernels *kernels,
                          struct stream *stream, enum update_formula formula,
                          const struct shape *shape)
{
    for (int t = 0; t < ROWS(types); t++) {
        const int64_t count = shape->rows * shape->width;
        struct element_update p;

        fill(&wanted, types[t], count);
        if (formula >= UPDATE_FREE)
            memcpy(wanted.states[0], wanted.gradient,
                   (size_t)count * sizeof(float));
        memcpy(&apart[0], &wanted, sizeof wanted);
        p = call_of(&wanted, formula, types[t], shape);
        p.copy = matrix(wanted.copy, DTYPE_BF16, shape);
        for (int i = 0; i < 3; i++)
            IS_OK(kernels->update_elements(stream, &p));
        p = call_of(&apart[0], formula, types[t], shape);
        step_apart(kernels, stream, &p, shape);
        /* Scales of no block, and what is written by nobody. */
        memcpy(apart[0].scales, wanted.scales,
               types[t] == DTYPE_U8 ? 0 : sizeof wanted.scales);
        for (int k = 0; k < UPDATE_STATES && types[t] == DTYPE_U8; k++) {
            const int64_t blocks = p.states[k].values.dtype == DTYPE_U8 &&
                                           formula < UPDATE_TOWARDS
                ? (count + UPDATE_BLOCK - 1) / UPDATE_BLOCK : 0;

            memcpy(apart[0].scales[k] + blocks, wanted.scales[k] + blocks,
                   sizeof wanted.scales[k] - (size_t)blocks * sizeof(float));
        }
        if (memcmp(&wanted, &apart[0], sizeof wanted) != 0)
            fail_msg("%s, formula %d, states %s, %lld x %lld differ apart",
                     kernels->backend, (int)formula, dtype_name(types[t]),
                     (long long)shape->rows, (long long)shape->width);
    }
}

/* Three steps in place, which add up what they write. */
static void compare_counted(const struct kernels *kernels,
                            struct stream *stream, enum update_formula formula,
                            const struct shape *shape)
{
    for (int t = 0; t < ROWS(types); t++) {
        struct range_sum sum = {(const char *)apart + formula % 2 * 4, 0};
        struct element_update p;

        fill(&wanted, types[t], shape->rows * shape->width);
        if (formula >= UPDATE_FREE)
            memcpy(wanted.states[0], wanted.gradient,
                   (size_t)(shape->rows * shape->width) * sizeof(float));
        memcpy(&apart[0], &wanted, sizeof wanted);
        p = call_of(&wanted, formula, types[t], shape);
        p.copy = matrix(wanted.copy, DTYPE_BF16, shape);
        for (int i = 0; i < 3; i++)
            IS_OK(kernels->update_elements(stream, &p));
        p = call_of(&apart[0], formula, types[t], shape);
        p.copy = matrix(apart[0].copy, DTYPE_BF16, shape);
        p.sum = &sum;
        for (int i = 0; i < 3; i++) {
            sum.total = 0;
            IS_OK(kernels->update_elements(stream, &p));
            EQUAL_INT(sum.total, all_of(&p, shape));
        }
        if (memcmp(&wanted, &apart[0], sizeof wanted) != 0)
            fail_msg("%s, formula %d, states %s, %lld x %lld differ counted",
                     kernels->backend, (int)formula, dtype_name(types[t]),
                     (long long)shape->rows, (long long)shape->width);
    }
}

/* Kernels of a device know no such update. */
static bool kernels_of(struct kernels *kernels, enum isa isa)
{
    if (kernels_get(kernels, DTYPE_F32, isa) == OK)
        return strstr(kernels->backend, "cuda") == NULL;
    status_clear();
    return false;
}

TEST(updates_apart_equal_those_in_place)
{
    static const struct shape shapes[] = {
        {1, 17, 17}, {1, 8999, 8999}, {3, 5, 7}, {300, 29, 30}};

    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct stream stream = {0};
        struct kernels kernels;

        if (!kernels_of(&kernels, isa)) continue;
        for (int i = 0; i < ROWS(shapes); i++) {
            IS_OK(threads_build(&stream.threads, 1 + i % THREADS_MAX));
            for (int f = UPDATE_ADAMW; f <= UPDATE_AVERAGE; f++)
                compare_apart(isa == ISA_PLAIN && i % 2 == 0
                                  ? &kernels_reference_f32 : &kernels,
                              &stream, (enum update_formula)f, &shapes[i]);
            threads_free(stream.threads);
        }
    }
}

TEST(updates_in_place_add_up_what_they_write)
{
    static const struct shape shapes[] = {
        {1, 1, 1}, {1, 15, 15}, {1, 16, 16}, {1, 1023, 1023},
        {1, 1024, 1024}, {1, 1041, 1041}, {1, 8999, 8999}, {3, 5, 7},
        {64, 48, 96}, {300, 29, 30}, {2, 4000, 4096}};

    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct stream stream = {0};
        struct kernels kernels;

        if (!kernels_of(&kernels, isa)) continue;
        for (int i = 0; i < ROWS(shapes); i++) {
            IS_OK(threads_build(&stream.threads, 1 + i % THREADS_MAX));
            for (int f = UPDATE_ADAMW; f <= UPDATE_AVERAGE; f++)
                compare_counted(isa == ISA_PLAIN && i % 2 == 0
                                    ? &kernels_reference_f32 : &kernels,
                                &stream, (enum update_formula)f, &shapes[i]);
            threads_free(stream.threads);
        }
    }
}

/* The row that only knows float32 moments is the same formula. */
TEST(adamw_is_adamw)
{
    const struct shape shape = {1, 5000, 5000};
    struct stream stream = {0};
    struct element_update p;
    struct adamw q;

    fill(&wanted, DTYPE_F32, shape.width);
    memcpy(&found, &wanted, sizeof found);
    p = call_of(&wanted, UPDATE_ADAMW, DTYPE_F32, &shape);
    IS_OK(kernels_reference_f32.update_elements(&stream, &p));
    p = call_of(&found, UPDATE_ADAMW, DTYPE_F32, &shape);
    q = (struct adamw){
        .weight = p.weight, .gradient = p.gradient,
        .m = p.states[0].values, .v = p.states[1].values, .scale = p.scale,
        .lr = p.lr, .beta1 = p.beta1, .beta2 = p.beta2,
        .epsilon = p.epsilon, .decay = p.decay,
        .correction1 = p.correction1, .correction2 = p.correction2};
    IS_OK(kernels_reference_f32.adamw(&stream, &q));
    CHECK(memcmp(&wanted, &found, sizeof found) == 0);
}

/* ---- 8 bits ---- */

TEST(codes_ascend_and_come_back)
{
    static const float scales[] = {1, 0x1p-99f, 3.7e-9f, 0.1f, 12345.67f,
                                   0x1.fffffep+90f, 1.1754944e-30f};

    for (int bits = CODE8_SIGNED_BITS; bits <= CODE8_BITS_MAX; bits++) {
        float table[CODE8_COUNT];
        struct code8_bins bins;

        code8_table(bits, table);
        code8_bins(bits, &bins);
        CHECK(table[0] == 0 && table[(1 << bits) - 1] == 1);
        for (int i = 1; i < 1 << bits; i++) CHECK(table[i] > table[i - 1]);
        for (int s = 0; s < ROWS(scales); s++)
            for (uint32_t i = 0; i < CODE8_COUNT; i++) {
                const float x = table[i] * scales[s];
                const float inverse = code8_inverse(scales[s]);

                if (i == 128 && bits == CODE8_SIGNED_BITS) continue;
                EQUAL_INT(code8_of(&bins, bits, x, inverse), i);
            }
    }
}

/* No number is further from what it becomes than half a bin, and half the
 * smallest is zero only where signs are. */
TEST(codes_are_near)
{
    for (int bits = CODE8_SIGNED_BITS; bits <= CODE8_BITS_MAX; bits++) {
        float table[CODE8_COUNT];
        struct code8_bins bins;

        code8_table(bits, table);
        code8_bins(bits, &bins);
        for (double x = 1; x > 1e-9; x *= 0.9987) {
            const uint32_t code = code8_of(&bins, bits, (float)x, 1);
            int decade = bits - 1;
            double begin = 0.1;

            for (; decade > 0 && x < begin; begin /= 10) decade--;
            if (x < 2.7e-7 && bits == CODE8_SIGNED_BITS) {
                EQUAL_INT(code, 0);
            } else if (x < begin) {
                CHECK(code <= 1 && code >= (bits > CODE8_SIGNED_BITS));
            } else {
                const double wide = 9 * begin / (double)(1 << decade);
                const bool last = code == (1u << bits) - 1;

                CHECK(fabs(table[code] - x) <= (last ? 1 : 0.5001) * wide);
            }
        }
    }
    EQUAL_INT(code8_inverse(0), 0);
    EQUAL_INT(code8_inverse(0x1p-101f), 0);
}

/* ---- split masters ---- */

/* The same steps of split masters: what they are worth, and their weights. */
static void compare_split(const struct kernels *kernels,
                          struct stream *stream, enum update_formula formula,
                          const struct shape *shape, double lr)
{
    static uint16_t lower[ROOM];
    static unsigned char ties[ROOM / 8];
    const struct master_arenas all = {found.copy, lower, ties};
    const struct masters masters = masters_at(&all, 0, 0, shape->width);
    struct element_update p;

    fill(&wanted, DTYPE_F32, shape->width);
    for (uint32_t i = 0; i < ROOM; i++) { /* some ties, up and down */
        const uint32_t bits = (i * 2654435761u & 0x007F0000u) | 0x3F008000u;

        if (i % 3 == 0) memcpy(&wanted.weight[i], &bits, sizeof bits);
    }
    memcpy(&found, &wanted, sizeof found);
    memset(ties, 0x5A, sizeof ties);
    masters_write(&masters, found.weight);
    p = call_of(&wanted, formula, DTYPE_F32, shape);
    p.lr = lr;
    steps(&kernels_reference_f32, stream, &p, &wanted, shape);
    p = call_of(&found, formula, DTYPE_F32, shape);
    p.lr = lr;
    p.weight = tensor_1d(NULL, DTYPE_F32, shape->width);
    p.gradient = tensor_1d(found.gradient, DTYPE_F32, shape->width);
    p.masters = masters;
    for (int i = 0; i < 3; i++) IS_OK(kernels->update_elements(stream, &p));
    masters_read(&masters, 0, 1, shape->width, found.weight);
    EQUAL_BYTES(&wanted, &found, sizeof found);
    for (int64_t i = shape->width; i < ROOM; i++) /* others' bits */
        CHECK((ties[i / 8] >> i % 8 & 1) == (0x5A >> i % 8 & 1));
}

TEST(split_masters_are_updated_as_numbers_are)
{
    static const struct shape shapes[] = {
        {1, 1, 1}, {1, 1030, 1030}, {1, 8999, 8999}};

    for (enum isa isa = ISA_AUTO; isa < ISA_COUNT; isa++) {
        struct kernels kernels = kernels_reference_f32;
        struct stream stream = {0};

        if (isa != ISA_AUTO && kernels_get(&kernels, DTYPE_BF16, isa) != OK) {
            status_clear();
            continue;
        }
        IS_OK(threads_build(&stream.threads, 3));
        for (int i = 0; i < ROWS(shapes); i++)
            for (int f = UPDATE_ADAMW; f <= UPDATE_FREE; f++) {
                if (f == UPDATE_MOMENTUM) continue; /* of gradients */
                compare_split(&kernels, &stream, (enum update_formula)f,
                              &shapes[i], 3e-3);
                compare_split(&kernels, &stream, (enum update_formula)f,
                              &shapes[i], 0);
            }
        threads_free(stream.threads);
    }
}

TEST_MAIN(fast_updates_equal_the_reference,
          updates_apart_equal_those_in_place,
          updates_in_place_add_up_what_they_write,
          split_masters_are_updated_as_numbers_are, adamw_is_adamw,
          codes_ascend_and_come_back, codes_are_near)
