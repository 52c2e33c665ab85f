/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - what the tests of products and attention share: numbers, the tables
 * of this machine and a stream with scratch. */
#ifndef LOCKSTEP_TESTS_KERNELS_ROOM_H
#define LOCKSTEP_TESTS_KERNELS_ROOM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include "base/arena.h"
#include "kernels/kernels.h"

/* Uniform in [-1, 1), the same in every run. */
static inline double room_number(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) +
             UINT64_C(1442695040888963407);
    return (double)(int32_t)(*state >> 32) * 0x1p-31;
}

static inline void *room_take(struct arena *arena, int64_t count, int bytes)
{
    void *out = NULL;

    assert_int_equal(arena_take_array(arena, (size_t)count, (size_t)bytes,
                                      &out), OK);
    return out;
}

/* `count` random numbers of a type. */
static inline void *room_numbers(struct arena *arena, int64_t count,
                                 enum dtype dtype, uint64_t seed)
{
    void *out = room_take(arena, count, dtype_bytes(dtype));

    for (int64_t i = 0; i < count; i++) {
        double x = room_number(&seed);

        if (dtype == DTYPE_F32)
            ((float *)out)[i] = (float)x;
        else if (dtype == DTYPE_BF16)
            ((uint16_t *)out)[i] = bf16_from_f32((float)x);
        else if (dtype == DTYPE_F16)
            ((uint16_t *)out)[i] = f16_from_f32((float)x);
        else
            ((double *)out)[i] = x;
    }
    return out;
}

/* A stream whose scratch holds rubbish. */
static inline struct stream room_stream(struct arena *arena,
                                        struct threads *threads,
                                        const struct kernels *table)
{
    struct stream stream = {.threads = threads};

    stream.scratch_bytes =
        kernels_scratch_bytes(table, threads_count(threads), 4096, 4096);
    stream.scratch = room_take(arena, (int64_t)stream.scratch_bytes, 1);
    memset(stream.scratch, 0xa5, stream.scratch_bytes);
    return stream;
}

/* false: this machine or build has no such table. */
static inline bool room_table(struct kernels *out, enum isa isa)
{
    if (kernels_get(out, DTYPE_F32, isa) == OK) return true;
    status_clear();
    return false;
}

#endif
