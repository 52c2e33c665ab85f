/* SPDX-License-Identifier: Apache-2.0 */
/* masters.c - split masters. Threads take blocks of BITS bits, so that no two
 * write one byte. */
#include "kernels/cpu/masters_block.h"

enum { BITS = 256 };

struct masters_job {
    struct masters_block all;
    float *values;
    int64_t count;
    bool splits;           /* values are split; else masters are joined */
};

static void masters_body(void *argument, int index, int count)
{
    const struct masters_job *job = argument;
    const struct masters_block *all = &job->all;
    int64_t first, last;

    threads_split((all->first + job->count + BITS - 1) / BITS, 1, index, count,
                  &first, &last);
    for (; first < last; first++) { /* the masters with bits in the block */
        int64_t from = first * BITS - all->first, to = from + BITS;

        if (from < 0) from = 0;
        if (to > job->count) to = job->count;
        if (job->splits) masters_block_split(all, from, to, job->values + from);
        else masters_block_join(all, from, to, job->values + from);
    }
}

static status masters_run(struct stream *stream, const struct masters *m,
                          bool splits)
{
    struct masters_job job = {masters_block_of(m), m->values.data,
                              masters_check(m), splits};

    CHECK(m->values.dtype == DTYPE_F32 &&
          tensor_count(&m->values) == job.count);
    if (job.count > 0) cpu_run(stream, job.count, masters_body, &job);
    return OK;
}

status CPU(masters_join)(struct stream *stream, const struct masters *m)
{
    return masters_run(stream, m, false);
}

status CPU(masters_split)(struct stream *stream, const struct masters *m)
{
    return masters_run(stream, m, true);
}
