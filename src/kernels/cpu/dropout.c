/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - dropout: threads share out rows; a row is taken in spans whose
 * random words are made together. */
#include "kernels/cpu/random_words.h"
#include "kernels/element.h"
#include "kernels/view.h"

enum { SPAN = 4 * DROPOUT_BLOCKS };
_Static_assert((int)DROPOUT_BLOCKS == (int)RANDOM_LANES, "a block a lane");

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

        for (int64_t i = 0; i < width; i += SPAN, at.high += DROPOUT_BLOCKS) {
            const int64_t left = width - i;
            const int64_t range[2] = {i, left < SPAN ? left : SPAN};

            random_words(words, job->p->key, at, 1);
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

/* ---- jitter ---- */

struct jitter_job {
    const struct jitter *p;
    struct view y, x;
};

ELEMENTARY void rows_jitter(enum dtype dtype, const struct jitter_job *job,
                            int64_t first, int64_t last)
{
    const float epsilon = (float)job->p->epsilon;
    const int64_t width = job->y.width;
    uint32_t words[SPAN];

    for (int64_t row = first; row < last; row++) {
        struct dropout_row at = job->p->rows[row];

        for (int64_t i = 0; i < width; i += SPAN, at.high += DROPOUT_BLOCKS) {
            const int64_t count = width - i < SPAN ? width - i : SPAN;
            void *y = element_at(job->y.data, dtype, row * job->y.stride + i);
            const void *x =
                element_at(job->x.data, dtype, row * job->x.stride + i);

            random_words(words, job->p->key, at, 1);
            SIMD for (int64_t j = 0; j < count; j++) {
                const float u = (float)(words[j] >> 8) * 0x1p-23f - 1.0f;

                element_set(y, dtype, j,
                            element_get(x, dtype, j) *
                                __builtin_fmaf(epsilon, u, 1.0f));
            }
        }
    }
}

static void jitter_body(void *argument, int index, int count)
{
    const struct jitter_job *job = argument;
    int64_t first, last;

    threads_split(job->y.rows, 1, index, count, &first, &last);
    ELEMENT_CHOOSE(job->y.dtype, rows_jitter, job, first, last);
}

status CPU(jitter)(struct stream *stream, const struct jitter *p)
{
    struct jitter_job job = {p, view_any(p->y), view_any(p->x)};

    CHECK(p->epsilon >= 0 && p->epsilon < 1);
    CHECK(dtype_real(p->y.dtype) == DTYPE_F32 && p->x.dtype == p->y.dtype);
    CHECK(view_same_shape(job.y, job.x));
    cpu_run(stream, job.y.rows * job.y.width, jitter_body, &job);
    return OK;
}
