/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - data shared by the tests of products and attention: numbers, the
 * tables of this machine and a stream with scratch. */
#ifndef LOCKSTEP_TESTS_KERNELS_ROOM_H
#define LOCKSTEP_TESTS_KERNELS_ROOM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include "base/arena.h"
#include "kernels/features.h"
#include "kernels/kernels.h"
#include "tests/sanitized.h"

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

/* Scratch that holds rubbish, as long as the program runs: the same for all of
 * one size, of which one is used at a time. Fresh pages for every case would
 * take longer than the cases. */
static inline void *room_scratch(size_t bytes)
{
    static struct { size_t bytes; void *data; } kept[64];
    int i = 0;

    while (i < 64 && kept[i].data != NULL && kept[i].bytes != bytes) i++;
    assert_true(i < 64);
    if (kept[i].data == NULL) {
        kept[i].bytes = bytes;
        kept[i].data = aligned_alloc(64, (bytes + 63) / 64 * 64);
        assert_non_null(kept[i].data);
        memset(kept[i].data, 0xa5, bytes);
    }
    return kept[i].data;
}

static inline struct stream room_stream(struct threads *threads,
                                        const struct kernels *table)
{
    struct stream stream = {.threads = threads};

    stream.scratch_bytes =
        kernels_scratch_bytes(table, threads_count(threads), 4096, 4096);
    stream.scratch = room_scratch(stream.scratch_bytes);
    return stream;
}

/* false: this machine or build has no such table. */
static inline bool room_table(struct kernels *out, enum isa isa)
{
    if (kernels_get(out, DTYPE_F32, isa) == OK) return true;
    status_clear();
    return false;
}

/* Memory of a case, and streams of one and of two threads beside it. */
struct room {
    struct arena arena;
    struct threads *threads[3];
    struct stream streams[3]; /* [1] and [2] */
};

/* features: what this processor is said to have (kernels/features.h). */
static inline void room_begin(struct room *room, int features)
{
    struct kernels table;

    *room = (struct room){0};
    arena_init(&room->arena, "test", 0);
    features_limit(features);
    assert_true(room_table(&table, ISA_AUTO));
    for (int n = 1; n < 3; n++) {
        assert_int_equal(threads_build(&room->threads[n], n), OK);
        room->streams[n] = room_stream(room->threads[n], &table);
    }
}

/* For case i: the arena empty, streams in turn. */
static inline struct stream *room_next(struct room *room, size_t i)
{
    arena_reset(&room->arena);
    return &room->streams[1 + i % 2];
}

static inline void room_end(struct room *room)
{
    features_limit(FEATURES_ALL);
    for (int n = 1; n < 3; n++) threads_free(room->threads[n]);
    arena_free(&room->arena);
}

#endif
