/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_strips.c - a weight rearranged in place, so that products read it
 * where it lies, each strip from one end to the other. */
#include "kernels/cpu/matmul/matmul.h"

extern const int CPU(strip_rows);
const int CPU(strip_rows) = TILE_COLUMNS;

struct turning {
    struct tensor weight;
    float *scratch;
    int64_t words; /* of a strip */
    int64_t rooms; /* strips that fit into scratch */
};

static void strip_turn(const struct turning *t, int64_t strip, uint32_t *room)
{
    const int64_t cols = t->weight.shape[1];
    const struct tensor rows =
        tensor_rows(t->weight, strip * TILE_COLUMNS, TILE_COLUMNS);
    const struct matmul_source source = {
        .from = rows.data, .stride = cols, .step = 1, .count = TILE_COLUMNS};
    struct matmul_slab slab = {.count = 1, .words = (int)cols};

    slab.steps[0] = (struct matmul_step){.words = (int)cols,
                                         .length = (int)cols};
    if (t->weight.dtype == DTYPE_F32)
        CPU(format_f32).pack_columns(room, &source, &slab);
    else
        CPU(matmul_pack_pairs)(room, TILE_COLUMNS, &source, (int)cols);
    memcpy(rows.data, room, (size_t)t->words * sizeof *room);
}

static void turn_body(void *argument, int index, int count)
{
    const struct turning *t = argument;
    const int workers = t->rooms < count ? (int)t->rooms : count;
    int64_t first, last;

    if (index >= workers) return;
    threads_split(t->weight.shape[0] / TILE_COLUMNS, 1, index, workers, &first,
                  &last);
    for (int64_t strip = first; strip < last; strip++)
        strip_turn(t, strip, (uint32_t *)t->scratch + index * t->words);
}

bool CPU(strips_turn)(struct stream *stream, struct tensor weight)
{
    const int64_t per_word = 4 / dtype_bytes(weight.dtype);
    struct turning t = {.weight = weight, .scratch = stream->scratch};

    CHECK(weight.dtype == DTYPE_F32 || weight.dtype == DTYPE_BF16);
    CHECK(weight.stride[1] == 1 && weight.stride[0] == weight.shape[1]);
    CHECK(weight.shape[1] % per_word == 0 && weight.shape[1] < INT32_MAX);
    t.words = weight.shape[1] / per_word * TILE_COLUMNS;
    t.rooms = (int64_t)(stream->scratch_bytes / sizeof(float)) / t.words;
    if (t.rooms == 0) return false;
    threads_run(stream->threads, turn_body, &t);
    return true;
}
