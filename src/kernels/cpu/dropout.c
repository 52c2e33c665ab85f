/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - dropout: threads share out rows; a row is taken in spans whose
 * random words are made together, one block of the generator in each lane.
 * Source of the generator: Salmon et al. 2011, Philox4x32-10 (base/random.h).
 */
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"
#include "kernels/view.h"

enum { BLOCKS = DROPOUT_BLOCKS, SPAN = 4 * BLOCKS, ROUNDS = 10 };

/* Multipliers and key increments of the paper's table 2. */
#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u
#define W1 0xBB67AE85u

/* out[w * BLOCKS + i] = word w of the block at counter (low, high + i). */
ELEMENTARY void words_make(uint32_t *out, struct random_key key,
                           struct dropout_row at)
{
    uint32_t *x0 = out, *x1 = out + BLOCKS;
    uint32_t *x2 = x1 + BLOCKS, *x3 = x2 + BLOCKS;
    uint32_t k0 = key.word[0], k1 = key.word[1];

    SIMD for (uint32_t i = 0; i < BLOCKS; i++) {
        x0[i] = (uint32_t)at.low;
        x1[i] = (uint32_t)(at.low >> 32);
        x2[i] = (uint32_t)at.high + i; /* a row's counters never carry */
        x3[i] = (uint32_t)(at.high >> 32);
    }
    for (int round = 0; round < ROUNDS; round++) {
        SIMD for (int i = 0; i < BLOCKS; i++) {
            const uint64_t p0 = (uint64_t)M0 * x0[i];
            const uint64_t p1 = (uint64_t)M1 * x2[i];

            x0[i] = (uint32_t)(p1 >> 32) ^ x1[i] ^ k0;
            x1[i] = (uint32_t)p1;
            x2[i] = (uint32_t)(p0 >> 32) ^ x3[i] ^ k1;
            x3[i] = (uint32_t)p0;
        }
        k0 += W0;
        k1 += W1;
    }
}

struct dropout_job {
    const struct dropout *p;
    struct view y, x, left; /* left.data NULL: none */
    uint32_t least;
    float factor;
};

/* Elements [first, first + count) of a row; words[i] is that of first + i. */
ELEMENTARY void span_write(enum dtype dtype, const struct dropout_job *job,
                           int64_t row, const uint32_t *words,
                           const int64_t range[2])
{
    void *y = element_at(job->y.data, dtype, row * job->y.stride + range[0]);
    const void *x =
        element_at(job->x.data, dtype, row * job->x.stride + range[0]);
    const uint32_t least = job->least;
    const float factor = job->factor;
    const int64_t count = range[1];

    if (job->left.data == NULL) {
        SIMD for (int64_t i = 0; i < count; i++) {
            const float value = element_get(x, dtype, i) * factor;

            element_set(y, dtype, i, words[i] >= least ? value : 0);
        }
        return;
    }
    const void *left =
        element_at(job->left.data, dtype, row * job->left.stride + range[0]);

    SIMD for (int64_t i = 0; i < count; i++) {
        const float value = element_get(x, dtype, i) * factor;

        element_set(y, dtype, i, element_get(left, dtype, i) +
                                     (words[i] >= least ? value : 0));
    }
}

ELEMENTARY void rows_write(enum dtype dtype, const struct dropout_job *job,
                           int64_t first, int64_t last)
{
    const int64_t width = job->y.width;
    uint32_t words[SPAN];

    for (int64_t row = first; row < last; row++) {
        struct dropout_row at = job->p->rows[row];

        for (int64_t i = 0; i < width; i += SPAN, at.high += BLOCKS) {
            const int64_t left = width - i;
            const int64_t range[2] = {i, left < SPAN ? left : SPAN};

            words_make(words, job->p->key, at);
            span_write(dtype, job, row, words, range);
        }
    }
}

static void dropout_body(void *argument, int index, int count)
{
    const struct dropout_job *job = argument;
    int64_t first, last;

    threads_split(job->y.rows, 1, index, count, &first, &last);
    ELEMENT_CHOOSE(job->y.dtype, rows_write, job, first, last);
}

status CPU(dropout)(struct stream *stream, const struct dropout *p)
{
    struct dropout_job job = {.p = p, .y = view_any(p->y),
                              .x = view_any(p->x),
                              .least = dropout_least(p->rate),
                              .factor = (float)(1 / (1 - p->rate))};

    CHECK(p->rate >= 0 && p->rate < 1);
    CHECK(dtype_real(p->y.dtype) == DTYPE_F32 && p->x.dtype == p->y.dtype);
    CHECK(view_same_shape(job.y, job.x));
    if (p->left.data != NULL) {
        job.left = view_any(p->left);
        CHECK(p->left.dtype == p->y.dtype);
        CHECK(view_same_shape(job.y, job.left));
    }
    cpu_run(stream, job.y.rows * job.y.width, dropout_body, &job);
    return OK;
}
