/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert.c - mirrors src/checkpoint/convert.c. */
#include "tests/test.h"
#include "checkpoint/convert.h"

TEST(which_types_convert)
{
    static const enum dtype floats[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16,
                                        DTYPE_F16};

    for (int to = 0; to < DTYPE_COUNT; to++)
        for (int from = 0; from < DTYPE_COUNT; from++) {
            bool floating = false, source = false;

            for (int i = 0; i < ROWS(floats); i++) {
                floating |= to == (int)floats[i];
                source |= from == (int)floats[i];
            }
            CHECK(convert_possible((enum dtype)to, (enum dtype)from) ==
                  (to == from || (floating && source)));
        }
    CHECK(!convert_possible(DTYPE_F32, DTYPE_COUNT));
}

/* More elements than a chunk, with gaps on both sides. */
TEST(spaced_elements)
{
    enum { COUNT = 1000 };
    static double in[3 * COUNT];
    static float out[2 * COUNT];

    for (int i = 0; i < 3 * COUNT; i++) in[i] = i + 0.5;
    for (int i = 0; i < 2 * COUNT; i++) out[i] = -1;
    convert_elements((struct spacing){DTYPE_F32, 2}, out,
                     (struct spacing){DTYPE_F64, 3}, in, COUNT);
    for (int i = 0; i < COUNT; i++) {
        CHECK(out[2 * i] == (float)(3 * i) + 0.5f);
        CHECK(out[2 * i + 1] == -1);
    }
}

/* Bits pass through unchanged where the types agree: also a signalling NaN. */
TEST(equal_types_keep_every_bit)
{
    static const uint32_t in[3] = {0x7fa00001, 0x80000000, 0xffffffff};
    uint32_t out[6] = {0};

    convert_elements((struct spacing){DTYPE_F32, 2}, out,
                     (struct spacing){DTYPE_F32, 1}, in, 3);
    for (int i = 0; i < 3; i++) EQUAL_INT(out[2 * i], in[i]);
}

TEST(half_types_widen)
{
    static const uint16_t f16[] = {0x3c00, 0xc000, 0x0001, 0x7bff};
    static const uint16_t bf16[] = {0x3f80, 0xc000, 0x0001, 0x7f7f};
    double a[4];
    float b[4];

    convert_elements((struct spacing){DTYPE_F64, 1}, a,
                     (struct spacing){DTYPE_F16, 1}, f16, 4);
    CHECK(a[0] == 1 && a[1] == -2 && a[2] == 0x1p-24 && a[3] == 65504);
    convert_elements((struct spacing){DTYPE_F32, 1}, b,
                     (struct spacing){DTYPE_BF16, 1}, bf16, 4);
    CHECK(b[0] == 1 && b[1] == -2 && b[2] == 0x1p-133f);
    CHECK(b[3] == 0x1.fep127f);
}

/* Rounding to bfloat16 happens once: from float64 a value just above the
 * middle of two must not become the middle on its way through float32. */
TEST(bfloat16_is_rounded_once)
{
    static const struct {
        double value;
        uint16_t bits;
    } rows[] = {
        {1.0, 0x3f80},
        {1.00390625, 0x3f80},           /* the middle: to even */
        {1.00390625 + 0x1p-40, 0x3f81}, /* above it */
        {1.00390625 - 0x1p-40, 0x3f80},
        {-1.00390625 - 0x1p-40, 0xbf81},
        {1.01171875, 0x3f82},           /* the next middle */
        {1.01171875 - 0x1p-40, 0x3f81}, /* below it */
        {-1.01171875 + 0x1p-40, 0xbf81},
        {0x1p-200, 0x0000},
        {-0x1p-200, 0x8000},
        {1e300, 0x7f80},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        uint16_t out = 0;

        convert_elements((struct spacing){DTYPE_BF16, 1}, &out,
                         (struct spacing){DTYPE_F64, 1}, &rows[i].value, 1);
        EQUAL_INT(out, rows[i].bits);
    }
}

TEST(float16_is_rounded_once)
{
    static const struct {
        double value;
        uint16_t bits;
    } rows[] = {
        {1.0, 0x3c00},
        {1 + 0x1p-11, 0x3c00},            /* the middle: to even */
        {1 + 0x1p-11 + 0x1p-40, 0x3c01},  /* above it */
        {-1 - 0x1p-11 - 0x1p-40, 0xbc01},
        {1 + 3 * 0x1p-11 - 0x1p-40, 0x3c01},
        {65504, 0x7bff},
        {65519.999999, 0x7bff},
        {65520, 0x7c00},
        {0x1p-24, 0x0001},
        {0x1p-25, 0x0000},
        {0x1p-25 + 0x1p-60, 0x0001},
        {-0x1p-200, 0x8000},
        {1e300, 0x7c00},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        uint16_t out = 0;

        convert_elements((struct spacing){DTYPE_F16, 1}, &out,
                         (struct spacing){DTYPE_F64, 1}, &rows[i].value, 1);
        EQUAL_INT(out, rows[i].bits);
    }
}

TEST_MAIN(which_types_convert, spaced_elements, equal_types_keep_every_bit,
          half_types_widen, bfloat16_is_rounded_once,
          float16_is_rounded_once)
