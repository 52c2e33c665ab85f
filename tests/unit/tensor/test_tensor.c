/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor.c - mirrors src/tensor/tensor.c. */
#include "tensor/tensor.h"

#include <math.h>
#include "tests/test.h"

TEST(types_have_names_and_sizes)
{
    static const int bytes[DTYPE_COUNT] = {4, 8, 2, 2, 4, 8, 1};
    enum dtype dtype;

    for (int i = 0; i < DTYPE_COUNT; i++) {
        EQUAL_INT(dtype_bytes((enum dtype)i), bytes[i]);
        CHECK(dtype_parse(dtype_name((enum dtype)i), &dtype));
        EQUAL_INT(dtype, i);
    }
    CHECK(!dtype_parse("float", &dtype));
    EQUAL_TEXT(dtype_name(DTYPE_COUNT), "unknown");
}

TEST(views_share_the_memory)
{
    float data[12];
    struct tensor matrix = tensor_2d(data, DTYPE_F32, 3, 4);
    struct tensor view = tensor_rows(tensor_cols(matrix, 1, 2), 2, 1);
    struct tensor cube = tensor_3d(NULL, DTYPE_F64, 2, 3, 4);

    EQUAL_INT(tensor_count(&matrix), 12);
    EQUAL_INT(tensor_count(&cube), 24);
    EQUAL_INT(cube.stride[0], 12);
    CHECK(view.data == data + 9);
    EQUAL_INT(view.shape[0], 1);
    EQUAL_INT(view.shape[1], 2);
    EQUAL_INT(view.stride[0], 4);
    view = tensor_transpose(matrix);
    EQUAL_INT(view.shape[0], 4);
    EQUAL_INT(view.stride[0], 1);
    EQUAL_INT(view.stride[1], 4);
    view = tensor_rows(tensor_2d(NULL, DTYPE_F32, 3, 4), 1, 2);
    CHECK(view.data == NULL);
    EQUAL_INT(tensor_rows(matrix, 3, 0).shape[0], 0);
}

TEST(elements_are_read_and_written_in_every_type)
{
    static const double values[] = {0, 1, 2, 100, 7};

    for (int t = 0; t < DTYPE_COUNT; t++) {
        uint64_t data[8] = {0};
        struct tensor tensor = tensor_1d(data, (enum dtype)t, 5);

        for (int i = 0; i < 5; i++) tensor_set(&tensor, i, values[i]);
        for (int i = 0; i < 5; i++)
            CHECK(tensor_get(&tensor, i) == values[i]);
    }
}

TEST(bfloat16_rounds_to_nearest_even)
{
    static const struct {
        float value;
        uint16_t bits;
    } rows[] = {
        {1.0f, 0x3F80}, {-2.0f, 0xC000}, {0x1.01p0f, 0x3F80}, /* tie: even */
        {0x1.03p0f, 0x3F82}, {0x1.010002p0f, 0x3F81}, {0.0f, 0},
        {-0.0f, 0x8000}, {0x1.fffffep127f, 0x7F80}, {INFINITY, 0x7F80},
        {0x1p-149f, 0}, {0x1p-133f, 1},
    };

    for (int i = 0; i < ROWS(rows); i++)
        EQUAL_INT(bf16_from_f32(rows[i].value), rows[i].bits);
    CHECK(isnan(bf16_to_f32(bf16_from_f32(NAN))));
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float value = bf16_to_f32((uint16_t)bits);

        if (!isnan(value)) EQUAL_INT(bf16_from_f32(value), bits);
    }
}

TEST(float16_reads_every_pattern_and_rounds_to_nearest_even)
{
    static const struct {
        double value;
        uint16_t bits;
    } rows[] = {
        {1, 0x3C00}, {0x1.002p0, 0x3C00}, {0x1.006p0, 0x3C02},
        {65504, 0x7BFF}, {65519, 0x7BFF}, {65520, 0x7C00}, {1e9, 0x7C00},
        {0x1p-24, 1}, {0x1p-25, 0}, {0x1.8p-25, 1}, {0x1p-14, 0x0400},
        {0x1.ffcp-15, 0x0400}, {-0x1p-24, 0x8001},
    };
    uint16_t data = 0;
    struct tensor one = tensor_1d(&data, DTYPE_F16, 1);

    for (int i = 0; i < ROWS(rows); i++) {
        tensor_set(&one, 0, rows[i].value);
        EQUAL_INT(data, rows[i].bits);
    }
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float value = f16_to_f32((uint16_t)bits);
        const int exponent = (int)(bits >> 10 & 31);
        double right = ldexp((bits & 1023) + (exponent > 0 ? 1024 : 0),
                             (exponent > 0 ? exponent : 1) - 25);

        if (isnan(value)) {
            CHECK(exponent == 31 && (bits & 1023) != 0);
            continue;
        }
        if (exponent == 31) right = INFINITY;
        CHECK((double)value == ((bits & 0x8000) != 0 ? -right : right));
        CHECK((signbit(value) != 0) == ((bits & 0x8000) != 0));
        tensor_set(&one, 0, (double)value);
        EQUAL_INT(data, bits);
    }
}

TEST(differences_are_counted_by_bits)
{
    float a[6] = {1, -0.0f, NAN, 4, INFINITY, 6};
    float b[6] = {1, 0.0f, -NAN, 5, INFINITY, -8};
    struct tensor x = tensor_2d(a, DTYPE_F32, 2, 3);
    struct tensor y = tensor_2d(b, DTYPE_F32, 2, 3);
    struct tensor_difference d;

    tensor_compare(&x, &x, &d);
    EQUAL_INT(d.count, 0);
    EQUAL_INT(d.first, -1);
    tensor_compare(&x, &y, &d);
    EQUAL_INT(d.count, 3);
    EQUAL_INT(d.first, 1);
    CHECK(d.max_abs == 14);
    CHECK(isinf(d.max_scale));
    b[0] = NAN;
    tensor_compare(&x, &y, &d);
    EQUAL_INT(d.first, 0);
    CHECK(isinf(d.max_abs));
}

TEST(differences_across_types_are_of_value)
{
    float a[3] = {1, 0.5f, 0.1f};
    double b[3] = {1, 0.5, 0.1};
    struct tensor x = tensor_1d(a, DTYPE_F32, 3);
    struct tensor y = tensor_1d(b, DTYPE_F64, 3);
    struct tensor_difference d;

    tensor_compare(&x, &y, &d);
    EQUAL_INT(d.count, 1);
    EQUAL_INT(d.first, 2);
    CHECK(d.max_abs > 0 && d.max_abs < 1e-8);
}

TEST_MAIN(types_have_names_and_sizes, views_share_the_memory,
          elements_are_read_and_written_in_every_type,
          bfloat16_rounds_to_nearest_even,
          float16_reads_every_pattern_and_rounds_to_nearest_even,
          differences_are_counted_by_bits,
          differences_across_types_are_of_value)
