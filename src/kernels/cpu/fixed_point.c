/* SPDX-License-Identifier: Apache-2.0 */
/* fixed_point.c - sums of integers. */
#include "kernels/cpu/cpu.h"

struct fixed_job {
    struct fixed_limits limits;
    float back;
    bool first;
    int64_t *sums, start, count; /* of elements */
    const int64_t *integers;
    const float *numbers;
    float *out;
};

static void add_range(const struct fixed_job *job, int64_t first,
                      int64_t last)
{
    const struct fixed_limits limits = job->limits;
    const float *x = job->numbers;
    const int64_t *q = job->integers;
    int64_t *sums = job->sums;

    if (q != NULL && job->first) {
        SIMD for (int64_t i = first; i < last; i++) sums[i] = q[i];
    } else if (q != NULL) {
        SIMD for (int64_t i = first; i < last; i++)
            sums[i] = fixed_sum(sums[i], q[i]);
    } else if (job->first) {
        SIMD for (int64_t i = first; i < last; i++)
            sums[i] = fixed_of(x[i], &limits);
    } else {
        SIMD for (int64_t i = first; i < last; i++)
            sums[i] = fixed_sum(sums[i], fixed_of(x[i], &limits));
    }
}

static void add_body(void *argument, int index, int count)
{
    const struct fixed_job *job = argument;
    int64_t first, last;

    threads_split(job->count, LANES, index, count, &first, &last);
    add_range(job, first, last);
}

status CPU(fixed_add)(struct stream *stream, struct tensor sums,
                      struct tensor x, struct fixed fixed)
{
    const bool integers = x.dtype == DTYPE_I64;
    struct fixed_job job = {
        .limits = fixed_limits_of(fixed.scale, fixed.spare),
        .first = fixed.first, .sums = sums.data,
        .count = tensor_count(&sums), .integers = integers ? x.data : NULL,
        .numbers = integers ? NULL : x.data};

    CHECK(sums.dtype == DTYPE_I64 && tensor_count(&x) == job.count);
    CHECK(integers || x.dtype == DTYPE_F32);
    cpu_run(stream, job.count, add_body, &job);
    return OK;
}

static void read_body(void *argument, int index, int count)
{
    const struct fixed_job *job = argument;
    const struct fixed_limits limits = job->limits;
    const float back = job->back;
    const int64_t *sums = job->sums + job->start;
    float *out = job->out + job->start;
    int64_t first, last;

    threads_split(job->count, LANES, index, count, &first, &last);
    SIMD for (int64_t i = first; i < last; i++)
        out[i] = fixed_back(sums[i], back, &limits);
}

/* Where both begin at one place, elements [n, 2 n) cover sums [n / 2, n): each
 * run of them waits for the one before it. */
status CPU(fixed_read)(struct stream *stream, struct tensor y,
                       struct tensor sums, struct fixed fixed)
{
    const int64_t count = tensor_count(&y);
    struct fixed_job job = {
        .limits = fixed_limits_of(fixed.scale, fixed.spare),
        .back = (float)(1 / fixed.scale), .sums = sums.data, .out = y.data};

    CHECK(sums.dtype == DTYPE_I64 && y.dtype == DTYPE_F32);
    CHECK(tensor_count(&sums) == count);
    if (y.data != sums.data) {
        job.count = count;
        cpu_run(stream, count, read_body, &job);
        return OK;
    }
    for (int64_t end = 1; job.start < count; end *= 2) {
        job.count = (end < count ? end : count) - job.start;
        cpu_run(stream, job.count, read_body, &job);
        job.start += job.count;
    }
    return OK;
}
