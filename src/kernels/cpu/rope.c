/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - rotary positions: heads of tokens are turned by several threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"

struct rope {
    struct tensor x, table;
    const int32_t *positions;
    int64_t half; /* of the elements that turn */
    bool backward;
};

ELEMENTARY void head_turn(enum dtype dtype, void *x, const float *turn,
                          int64_t half, float sign)
{
    SIMD for (int64_t i = 0; i < half; i++) {
        float c = turn[2 * i], s = sign * turn[2 * i + 1];
        float x1 = element_get(x, dtype, i);
        float x2 = element_get(x, dtype, half + i);

        element_set(x, dtype, i, __builtin_fmaf(x1, c, -(x2 * s)));
        element_set(x, dtype, half + i, __builtin_fmaf(x2, c, x1 * s));
    }
}

static void rope_body(void *argument, int index, int count)
{
    const struct rope *p = argument;
    int64_t first, last;

    threads_split(p->x.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        const float *turn = (const float *)p->table.data +
                            p->positions[token] * p->table.stride[0];

        CHECK(p->positions[token] >= 0 &&
              p->positions[token] < p->table.shape[0]);
        for (int64_t head = 0; head < p->x.shape[1]; head++) {
            void *x = element_at(p->x.data, p->x.dtype,
                                 token * p->x.stride[0] +
                                     head * p->x.stride[1]);

            ELEMENT_CHOOSE(p->x.dtype, head_turn, x, turn, p->half,
                           p->backward ? -1.0f : 1.0f);
        }
    }
}

status CPU(rope)(struct stream *stream, struct tensor x,
                 const int32_t *positions, struct tensor table, int rotary,
                 bool backward)
{
    struct rope p = {x, table, positions, rotary / 2, backward};

    CHECK(dtype_real(x.dtype) == DTYPE_F32 && table.dtype == DTYPE_F32);
    CHECK(x.dimensions == 3 && x.stride[2] == 1 && rotary % 2 == 0);
    CHECK(rotary <= x.shape[2] && table.shape[1] == rotary / 2);
    cpu_run(stream, x.shape[0] * x.shape[1] * rotary, rope_body, &p);
    return OK;
}
