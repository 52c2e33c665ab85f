/* SPDX-License-Identifier: Apache-2.0 */
/* test_element.c - mirrors src/kernels/element.h: its conversions have the bits
 * of tensor.h's, and those round to the nearest, ties to even, everywhere. */
#include "kernels/element.h"

#include <math.h>
#include <string.h>

#include "tests/test.h"

static uint16_t narrow_of(enum dtype dtype, float value)
{
    return dtype == DTYPE_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
}

static float wide_of(enum dtype dtype, uint16_t bits)
{
    return dtype == DTYPE_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

static void same(enum dtype dtype, float value)
{
    uint16_t have[2] = {0};
    const uint16_t want = narrow_of(dtype, value);
    float back;

    if (dtype == DTYPE_BF16) element_set(have, DTYPE_BF16, 1, value);
    else element_set(have, DTYPE_F16, 1, value);
    EQUAL_INT(have[1], want);
    back = dtype == DTYPE_BF16 ? element_get(have, DTYPE_BF16, 1)
                               : element_get(have, DTYPE_F16, 1);
    CHECK(memcmp(&back, &(float){wide_of(dtype, want)}, sizeof back) == 0);
}

/* Between each two neighbours: at the middle, to the even one; one float32
 * below and above it, to the nearer. */
static void rounds_to_nearest(enum dtype dtype, uint16_t infinity)
{
    for (uint16_t bits = 0; bits < infinity; bits++)
        for (uint16_t sign = 0; sign < 2; sign++) {
            const uint16_t low = (uint16_t)(bits | sign << 15);
            const uint16_t high = (uint16_t)(low + 1);
            const uint16_t even = bits % 2 == 0 ? low : high;
            const float a = wide_of(dtype, low);
            const double step = high == (infinity | sign << 15)
                                    ? (double)a -
                                          (double)wide_of(
                                              dtype, (uint16_t)(low - 1))
                                    : (double)wide_of(dtype, high) - (double)a;
            const float middle = (float)((double)a + step / 2);

            EQUAL_INT(narrow_of(dtype, a), low);
            EQUAL_INT(narrow_of(dtype, middle), even);
            EQUAL_INT(narrow_of(dtype, nextafterf(middle, a)), low);
            EQUAL_INT(narrow_of(dtype, nextafterf(middle, 2 * middle)), high);
            same(dtype, a);
            same(dtype, middle);
            same(dtype, nextafterf(middle, a));
            same(dtype, nextafterf(middle, 2 * middle));
        }
}

TEST(bfloat16_is_the_nearest)
{
    rounds_to_nearest(DTYPE_BF16, 0x7F80);
}

TEST(float16_is_the_nearest)
{
    rounds_to_nearest(DTYPE_F16, 0x7C00);
}

TEST(conversions_are_those_of_tensors)
{
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 9973) {
        same(DTYPE_BF16, f32_of_bits((uint32_t)bits));
        same(DTYPE_F16, f32_of_bits((uint32_t)bits));
    }
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const uint16_t x = (uint16_t)bits;
        const float a = element_get(&x, DTYPE_F16, 0), b = f16_to_f32(x);

        CHECK(memcmp(&a, &b, sizeof a) == 0);
    }
}

TEST_MAIN(bfloat16_is_the_nearest, float16_is_the_nearest,
          conversions_are_those_of_tensors)
