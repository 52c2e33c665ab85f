/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c - mirrors src/base/threads.c. */
#include "base/threads.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include "tests/test.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { COUNT_MAX = 7, ROUNDS = 200 };

struct visits {
    int by_index[COUNT_MAX]; /* written by one thread each */
    _Atomic int total;
    int count;
};

static void visit(void *argument, int index, int count)
{
    struct visits *v = argument;

    v->by_index[index]++;
    if (index == 0) v->count = count;
    atomic_fetch_add(&v->total, 1);
}

TEST(every_thread_runs_once)
{
    for (int count = 1; count <= COUNT_MAX; count++) {
        struct threads *threads;
        struct visits v = {.total = 0};

        IS_OK(threads_build(&threads, count));
        EQUAL_INT(threads_count(threads), count);
        for (int i = 0; i < ROUNDS; i++) {
            threads_run(threads, visit, &v);
            EQUAL_INT(v.total, (i + 1) * count); /* done means done */
        }
        for (int i = 0; i < count; i++) EQUAL_INT(v.by_index[i], ROUNDS);
        EQUAL_INT(v.count, count);
        threads_free(threads);
    }
}

static void sleep_ms(int ms)
{
    struct timespec time = {0, ms * 1000000L};

    nanosleep(&time, NULL);
}

TEST(sleepers_wake)
{
    struct threads *threads;
    struct visits v = {.total = 0};

    IS_OK(threads_build(&threads, 3));
    for (int i = 0; i < 5; i++) {
        sleep_ms(2); /* far longer than a worker spins */
        threads_run(threads, visit, &v);
    }
    EQUAL_INT(v.total, 15);
    threads_free(threads);
}

struct wave {
    struct threads *threads;
    int values[COUNT_MAX];
    _Atomic int wrong;
};

/* Each round every thread reads what its neighbour wrote before the barrier. */
static void wave_body(void *argument, int index, int count)
{
    struct wave *w = argument;

    for (int round = 0; round < ROUNDS; round++) {
        w->values[index] = round * COUNT_MAX + index;
        if (index == 1 && round == 3) sleep_ms(1);
        threads_barrier(w->threads);
        if (w->values[(index + 1) % count] !=
            round * COUNT_MAX + (index + 1) % count)
            atomic_fetch_add(&w->wrong, 1);
        threads_barrier(w->threads);
    }
}

TEST(barriers_separate_rounds)
{
    for (int count = 1; count <= COUNT_MAX; count += 2) {
        struct wave w = {.wrong = 0};

        IS_OK(threads_build(&w.threads, count));
        threads_run(w.threads, wave_body, &w);
        EQUAL_INT(w.wrong, 0);
        threads_free(w.threads);
    }
}

TEST(without_a_pool_the_caller_runs)
{
    struct visits v = {.total = 0};

    threads_run(NULL, visit, &v);
    EQUAL_INT(v.by_index[0], 1);
    EQUAL_INT(v.count, 1);
    EQUAL_INT(threads_count(NULL), 1);
    threads_barrier(NULL);
    threads_free(NULL);
}

TEST(splits_cover_everything_once)
{
    static const struct {
        int64_t total, grain;
        int count;
    } rows[] = {{0, 1, 1}, {0, 8, 3}, {1, 1, 4}, {7, 1, 7}, {8, 1, 3},
                {100, 16, 4}, {1000, 64, 5}, {1, 64, 2}, {1024, 256, 2},
                {INT64_MAX / 2, 4096, 1000}};

    for (int i = 0; i < ROWS(rows); i++) {
        int64_t next = 0, first, last, longest = 0, shortest = INT64_MAX;

        for (int index = 0; index < rows[i].count; index++) {
            threads_split(rows[i].total, rows[i].grain, index, rows[i].count,
                          &first, &last);
            EQUAL_INT(first, next);
            CHECK(last >= first && last <= rows[i].total);
            CHECK(first == rows[i].total || first % rows[i].grain == 0);
            if (last - first > longest) longest = last - first;
            if (last - first < shortest) shortest = last - first;
            next = last;
        }
        EQUAL_INT(next, rows[i].total);
        CHECK(longest - shortest < 2 * rows[i].grain);
    }
}

TEST(impossible_counts_are_refused)
{
    struct threads *threads;

    FAILS(threads_build(&threads, -1), ERR_CONFIG, "-1 threads");
    CHECK(threads == NULL);
    FAILS(threads_build(&threads, 100000), ERR_CONFIG, "100000");
    CHECK(threads == NULL);
    IS_OK(threads_build(&threads, 0));
    EQUAL_INT(threads_count(threads), threads_cores());
    threads_free(threads);
}

/* argument: [count] masks of the threads. */
static void ask_mask(void *argument, int index, int count)
{
    cpu_set_t *masks = argument;

    (void)count;
    CHECK(sched_getaffinity(0, sizeof *masks, &masks[index]) == 0);
}

/* The only core of a mask; -1: there are several. */
static int only_core(const cpu_set_t *mask)
{
    if (CPU_COUNT(mask) > 1) return -1;
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, mask)) return (int)core;
    return -1;
}

/* Cores of the workers of a pool, but for its first, where `left` cores are
 * those of others. */
static void find_cores(int count, int left, int cores[])
{
    cpu_set_t masks[COUNT_MAX];
    struct threads *threads;

    threads_leave_cores(left);
    IS_OK(threads_build(&threads, count));
    threads_run(threads, ask_mask, masks);
    for (int i = 1; i < count; i++) cores[i] = only_core(&masks[i]);
    threads_free(threads);
    threads_leave_cores(0);
}

TEST(cores_that_are_left_to_others_stay_free)
{
    const int all = threads_cores();
    const int count = all < COUNT_MAX ? all : COUNT_MAX;
    int cores[COUNT_MAX], behind[COUNT_MAX];

    if (count < 2) skip();
    find_cores(count, 0, cores);
    for (int i = 1; i < count; i++) CHECK(cores[i] >= 0);
    find_cores(count - 1, 1, behind);
    for (int i = 1; i < count - 1; i++) EQUAL_INT(behind[i], cores[i + 1]);
    find_cores(count, all - count + 1, behind); /* one too few: not pinned */
    for (int i = 1; i < count; i++) EQUAL_INT(behind[i], -1);
}

TEST(wrong_rounding_is_noticed)
{
    IS_OK(threads_check_rounding());
#if defined(__x86_64__)
    static const struct {
        unsigned bits;
        const char *words;
    } rows[] = {{1u << 15, "results are flushed"}, {1u << 6, "operands"},
                {1u << 13, "down"}, {1u << 14, "up"}, {3u << 13, "down"}};
    unsigned before = _mm_getcsr();

    for (int i = 0; i < ROWS(rows); i++) {
        status found;

        _mm_setcsr(before | rows[i].bits);
        found = threads_check_rounding();
        _mm_setcsr(before);
        FAILS(found, ERR_DEVICE, rows[i].words);
    }
#endif
}

static void note_cores(void *argument, int index, int count)
{
    int *cores = argument;

    (void)count;
    cores[index] = threads_cores();
}

/* Guards plans that a thread of a pool makes: threads of pools are pinned. */
TEST(every_thread_tells_the_cores_of_the_process)
{
    enum { COUNT = 4 };
    int cores[COUNT];
    const int all = threads_cores(), count = all < COUNT ? all : COUNT;
    struct threads *threads;

    IS_OK(threads_build(&threads, count));
    threads_run(threads, note_cores, cores);
    for (int i = 0; i < count; i++) EQUAL_INT(cores[i], all);
    threads_free(threads);
}

TEST_MAIN(every_thread_runs_once, sleepers_wake, barriers_separate_rounds,
          without_a_pool_the_caller_runs, splits_cover_everything_once,
          impossible_counts_are_refused,
          cores_that_are_left_to_others_stay_free,
          every_thread_tells_the_cores_of_the_process,
          wrong_rounding_is_noticed)
