/* SPDX-License-Identifier: Apache-2.0 */
/* test_jobs.c - mirrors src/base/jobs.c. */
#include "base/jobs.h"

#include <stdatomic.h>

#include "tests/test.h"

enum { JOBS = 300, THREADS = 4 };

struct done {
    _Atomic int of[JOBS];
    _Atomic int by[THREADS];
};

static void note(void *argument, int job, int index)
{
    struct done *done = argument;

    atomic_fetch_add(&done->of[job], 1);
    atomic_fetch_add(&done->by[index], 1);
}

TEST(every_job_is_done_once)
{
    static const int counts[] = {0, 1, THREADS - 1, JOBS};

    for (int threads = 0; threads <= THREADS; threads++) {
        struct threads *pool = NULL;

        if (threads > 0) IS_OK(threads_build(&pool, threads));
        for (int i = 0; i < ROWS(counts); i++) {
            struct done done = {.of = {0}};
            int sum = 0;

            jobs_run(pool, counts[i], note, &done);
            for (int job = 0; job < JOBS; job++)
                EQUAL_INT(done.of[job], job < counts[i]);
            for (int t = 0; t < threads_count(pool); t++) sum += done.by[t];
            EQUAL_INT(sum, counts[i]);
        }
        threads_free(pool);
    }
}

TEST_MAIN(every_job_is_done_once)
