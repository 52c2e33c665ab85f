/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - rotary positions: heads of tokens are turned by several threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"
#include "kernels/element.h"

struct rope {
    struct tensor x, table;
    const int32_t *positions;
    int64_t half; /* of the elements that turn */
    bool backward;
};

enum { TURNS = 128 }; /* pairs of a head that are turned at a time */

/* The rotation of some pairs of all heads of a token. */
struct turn {
    int64_t first, count, half; /* half: between the two of a pair */
    float cosines[TURNS], sines[TURNS];
};

/* `lanes` pairs from pair i on; a constant makes vectors. */
ELEMENTARY void lanes_turn(enum dtype dtype, void *x, const struct turn *turn,
                           int64_t i, int64_t lanes)
{
    const float *cosines = turn->cosines + i, *sines = turn->sines + i;
    void *left = element_at(x, dtype, turn->first + i);
    void *right = element_at(x, dtype, turn->first + i + turn->half);

    SIMD for (int64_t j = 0; j < lanes; j++) {
        float c = cosines[j], s = sines[j];
        float x1 = element_get(left, dtype, j);
        float x2 = element_get(right, dtype, j);

        element_set(left, dtype, j, __builtin_fmaf(x1, c, -(x2 * s)));
        element_set(right, dtype, j, __builtin_fmaf(x2, c, x1 * s));
    }
}

/* Halves of heads are short, 24 or so: narrow ones need registers of several
 * sizes. */
ELEMENTARY void head_turn(enum dtype dtype, void *x, const struct turn *turn)
{
    int64_t i = 0;

    if (dtype == DTYPE_F32) {
        for (; i + WIDTH <= turn->count; i += WIDTH)
            lanes_turn(dtype, x, turn, i, WIDTH);
    } else {
        for (; i + 32 <= turn->count; i += 32)
            lanes_turn(dtype, x, turn, i, 32);
        for (; i + 16 <= turn->count; i += 16)
            lanes_turn(dtype, x, turn, i, 16);
    }
    for (; i + 8 <= turn->count; i += 8) lanes_turn(dtype, x, turn, i, 8);
    for (; i < turn->count; i++) lanes_turn(dtype, x, turn, i, 1);
}

ELEMENTARY void heads_turn(enum dtype dtype, const struct rope *p,
                           int64_t token, const struct turn *turn)
{
    for (int64_t head = 0; head < p->x.shape[1]; head++)
        head_turn(dtype,
                  element_at(p->x.data, dtype,
                             token * p->x.stride[0] + head * p->x.stride[1]),
                  turn);
}

static void token_turn(const struct rope *p, int64_t token)
{
    const float *pairs = (const float *)p->table.data +
                         p->positions[token] * p->table.stride[0];
    struct turn turn = {.half = p->half};

    CHECK(p->positions[token] >= 0 && p->positions[token] < p->table.shape[0]);
    for (; turn.first < p->half; turn.first += TURNS) {
        const int64_t left = p->half - turn.first;

        turn.count = left < TURNS ? left : TURNS;
        for (int64_t i = 0; i < turn.count; i++) {
            const float *pair = pairs + 2 * (turn.first + i);

            turn.cosines[i] = pair[0];
            turn.sines[i] = p->backward ? -pair[1] : pair[1];
        }
        ELEMENT_CHOOSE(p->x.dtype, heads_turn, p, token, &turn);
    }
}

static void rope_body(void *argument, int index, int count)
{
    const struct rope *p = argument;
    int64_t first, last;

    threads_split(p->x.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) token_turn(p, token);
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
