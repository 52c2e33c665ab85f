/* SPDX-License-Identifier: Apache-2.0 */
/* fixed_point.c - sums of integers. They are of float32 in both tables. */
#include "kernels/reference/real.h"

status NAME(fixed_add)(struct stream *stream, struct tensor sums,
                       struct tensor x, struct fixed fixed)
{
    const struct fixed_limits limits =
        fixed_limits_of(fixed.scale, fixed.spare);
    const int64_t count = tensor_count(&sums);
    const float *numbers = x.data;
    const int64_t *integers = x.data;
    int64_t *out = sums.data;

    (void)stream;
    CHECK(sums.dtype == DTYPE_I64 && tensor_count(&x) == count);
    CHECK(x.dtype == DTYPE_I64 || x.dtype == DTYPE_F32);
    for (int64_t i = 0; i < count; i++) {
        const int64_t q = x.dtype == DTYPE_I64
                              ? integers[i] : fixed_of(numbers[i], &limits);

        out[i] = fixed.first ? q : fixed_sum(out[i], q);
    }
    return OK;
}

/* Element i of y covers sum i / 2, which has been read by then. */
status NAME(fixed_read)(struct stream *stream, struct tensor y,
                        struct tensor sums, struct fixed fixed)
{
    const struct fixed_limits limits =
        fixed_limits_of(fixed.scale, fixed.spare);
    const int64_t count = tensor_count(&y), *from = sums.data;
    const float back = (float)(1 / fixed.scale);
    float *out = y.data;

    (void)stream;
    CHECK(sums.dtype == DTYPE_I64 && y.dtype == DTYPE_F32);
    CHECK(tensor_count(&sums) == count);
    for (int64_t i = 0; i < count; i++)
        out[i] = fixed_back(from[i], back, &limits);
    return OK;
}
