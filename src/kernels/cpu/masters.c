/* SPDX-License-Identifier: Apache-2.0 */
/* masters.c - split masters. Threads take blocks of BITS bits, so that no two
 * write one byte. */
#include "kernels/cpu/masters_block.h"

enum { BITS = 256 };

struct masters_job {
    struct masters_block all;
    float *values;
    int64_t count;
};

/* Masters [*from, *to) have their bits in the block. */
static void block_of(const struct masters_job *job, int64_t block,
                     int64_t *from, int64_t *to)
{
    *from = block * BITS - job->all.first;
    *to = *from + BITS;
    if (*from < 0) *from = 0;
    if (*to > job->count) *to = job->count;
}

static void masters_share(const struct masters_job *job, int index, int count,
                          int64_t *first, int64_t *last)
{
    threads_split((job->all.first + job->count + BITS - 1) / BITS, 1, index,
                  count, first, last);
}

static void join_body(void *argument, int index, int count)
{
    const struct masters_job *job = argument;
    int64_t first, last, from, to;

    masters_share(job, index, count, &first, &last);
    for (; first < last; first++) {
        block_of(job, first, &from, &to);
        masters_block_join(&job->all, from, to, job->values + from);
    }
}

static void split_body(void *argument, int index, int count)
{
    const struct masters_job *job = argument;
    int64_t first, last, from, to;

    masters_share(job, index, count, &first, &last);
    for (; first < last; first++) {
        block_of(job, first, &from, &to);
        masters_block_split(&job->all, from, to, job->values + from);
    }
}

static struct masters_job job_of(const struct masters *m)
{
    const int64_t count = masters_check(m);

    CHECK(m->values.dtype == DTYPE_F32 && tensor_count(&m->values) == count);
    return (struct masters_job){masters_block_of(m), m->values.data, count};
}

status CPU(masters_join)(struct stream *stream, const struct masters *m)
{
    struct masters_job job = job_of(m);

    if (job.count > 0) cpu_run(stream, job.count, join_body, &job);
    return OK;
}

status CPU(masters_split)(struct stream *stream, const struct masters *m)
{
    struct masters_job job = job_of(m);

    if (job.count > 0) cpu_run(stream, job.count, split_body, &job);
    return OK;
}
