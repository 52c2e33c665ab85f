/* SPDX-License-Identifier: Apache-2.0 */
/* test_thread_clock.c - time in which the system keeps threads from running. */
#include "comm/thread_clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "base/threads.h"
#include "tests/test.h"

enum { SECOND = 1000000000, TENTH = SECOND / 10 };

TEST(a_thread_in_the_queue_is_kept)
{
    const struct thread_times before = {.own_ns = 7, .ran_ns = 9, .turns = 3};
    struct thread_times now = before;

    now.state = 'R';
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), SECOND);
    now.state = 'D';
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), SECOND);
    now.state = 'T';
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), 0);
    now.state = 'S';
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), 0);
}

TEST(one_that_computes_is_not)
{
    const struct thread_times before = {.turns = 3};
    struct thread_times now = {.own_ns = 9 * TENTH, .ran_ns = 9 * TENTH,
                               .turns = 3, .state = 'R'};

    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), TENTH);
    now.own_ns = SECOND + 1;
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), 0);
}

/* It is seen in the queue by chance. */
TEST(one_that_looks_around_now_and_then_is_not)
{
    const struct thread_times before = {.turns = 3};
    const struct thread_times now = {.ran_ns = TENTH / 100, .turns = 23,
                                     .delay_ns = TENTH / 50, .state = 'R'};

    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), TENTH / 100 + TENTH / 50);
}

/* It excused a deadlock until comm.limit. */
TEST(a_page_now_and_then_is_no_excuse)
{
    const struct thread_times before = {.turns = 3};
    struct thread_times now = {.turns = 4, .faults = 1, .state = 'S'};

    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), SECOND / 50);
    now.faults = 200; /* memory is short */
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), SECOND);
}

TEST(a_system_that_counts_no_turns_shows_states)
{
    const struct thread_times before = {.ran_ns = -1, .delay_ns = -1,
                                        .turns = -1};
    struct thread_times now = before;

    now.state = 'R';
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), SECOND);
    now.state = 'S';
    EQUAL_INT(thread_kept_ns(&now, &before, SECOND), 0);
}

static atomic_bool over;

/* Both on one core: the idle one hardly ever runs. */
static void *spin(void *idle)
{
    const struct sched_param least = {.sched_priority = 0};
    cpu_set_t cores, one;
    size_t core = 0;

    sched_getaffinity(0, sizeof cores, &cores);
    while (!CPU_ISSET(core, &cores)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    if (idle != NULL) sched_setscheduler(0, SCHED_IDLE, &least);
    if (idle != NULL && *(const bool *)idle) threads_aside();
    while (!atomic_load(&over)) continue;
    return NULL;
}

static void wait_ms(int ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&time, NULL);
}

/* One thread of its own core that is hardly ever let run, and another one that
 * takes it; the first thread of this process sleeps meanwhile. A turn of the
 * idle one hides what it waited since: up to `more` looks follow. */
static void look_often(bool aside, int more, struct thread_clock *clock)
{
    pthread_t idle, hog;
    int64_t from;

    atomic_store(&over, false);
    EQUAL_INT(pthread_create(&idle, NULL, spin, &aside), 0);
    EQUAL_INT(pthread_create(&hog, NULL, spin, NULL), 0);
    wait_ms(100);
    from = clock_ns();
    thread_clock_look(clock, getpid(), from);
    wait_ms(50);
    thread_clock_look(clock, getpid(), clock_ns()); /* too soon */
    EQUAL_INT(clock->looked_ns, from);
    EQUAL_INT(clock->kept.kept_ns, 0);
    wait_ms(950);
    thread_clock_look(clock, getpid(), clock_ns());
    while (more-- > 0 && clock->kept.kept_ns <= SECOND / 2) {
        wait_ms(300);
        thread_clock_look(clock, getpid(), clock_ns());
    }
    atomic_store(&over, true);
    pthread_join(idle, NULL);
    pthread_join(hog, NULL);
}

/* The first thread alone was looked at: it only waits here. */
TEST(any_thread_counts)
{
    struct thread_clock clock = {0};

    look_often(false, 20, &clock);
    CHECK(clock.count >= 3); /* a sanitizer may have threads, too */
    CHECK(clock.kept.kept_ns > SECOND / 2);
}

TEST(a_thread_that_no_step_waits_for_does_not)
{
    struct thread_clock stays = {0}, aside = {0};

    look_often(false, 0, &stays);
    look_often(true, 0, &aside);
    EQUAL_INT(aside.count, stays.count - 1);
}

TEST(another_process_begins_anew)
{
    struct thread_clock clock = {.process = 1, .looked_ns = clock_ns(),
                                 .kept = {5, 6}, .count = 1};

    thread_clock_look(&clock, getpid(), clock.looked_ns + SECOND);
    EQUAL_INT(clock.kept.kept_ns, 0);
    EQUAL_INT(clock.kept.faults, 0);
    EQUAL_INT(clock.process, getpid());
}

TEST_MAIN(a_thread_in_the_queue_is_kept, one_that_computes_is_not,
          one_that_looks_around_now_and_then_is_not,
          a_page_now_and_then_is_no_excuse,
          a_system_that_counts_no_turns_shows_states, any_thread_counts,
          a_thread_that_no_step_waits_for_does_not,
          another_process_begins_anew)
