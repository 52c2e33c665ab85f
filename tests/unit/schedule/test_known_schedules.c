/* SPDX-License-Identifier: Apache-2.0 */
/* test_known_schedules.c - mirrors src/schedule/known_schedules.c. */
#include "schedule/known_schedules.h"

#include <string.h>

#include "base/threads.h"
#include "schedule/lower.h"
#include "schedule/room.h"
#include "tests/test.h"

enum { ROWS_OF = 6, TIMES = 40, THREADS = 4 };
static const struct { const char *name; int ranks, microbatches, chunks; }
    asked[ROWS_OF] = {{"1f1b", 4, 8, 0}, {"interleaved", 4, 8, 2},
                      {"interleaved", 4, 8, 3}, {"zb-v", 4, 12, 0},
                      {"dualpipe", 4, 16, 0}, {"1f1b", 1, 5, 0}};

static struct schedule_request request_of(int row)
{
    struct schedule_request r = schedule_request_default(
        asked[row].name, asked[row].ranks, asked[row].microbatches);

    r.chunks = asked[row].chunks;
    return r;
}

static bool same(const struct schedule *a, const struct schedule *b)
{
    struct text x = {0}, y = {0};
    bool equal = schedule_write(a, &x) == OK && schedule_write(b, &y) == OK &&
                 strcmp(x.bytes, y.bytes) == 0 && a->returns == b->returns &&
                 a->lowered == b->lowered && a->verified == b->verified;

    text_free(&x);
    text_free(&y);
    return equal;
}

/* Asks for a schedule as a search does, and compares it with one that is made
 * alone. */
static bool is_as_alone(struct known_schedules *known, int row)
{
    const struct schedule_request request = request_of(row);
    struct schedule alone = {0}, s = {0};
    bool equal = schedule_make(&alone, &request) == OK &&
                 known_schedules_make(known, &s, &request) == OK &&
                 same(&alone, &s);

    equal = equal && known_schedules_lower(known, &s) == OK &&
            schedule_lower(&alone) == OK &&
            schedule_returns(&alone, &alone.returns) == OK &&
            same(&alone, &s);
    schedule_free(&alone);
    schedule_free(&s);
    return equal;
}

TEST(each_is_made_once)
{
    struct known_schedules *known = NULL;
    struct schedule a = {0}, b = {0}, c = {0};
    const struct schedule_request request = request_of(1);
    const struct schedule_request other = request_of(2);

    IS_OK(known_schedules_open(&known));
    IS_OK(known_schedules_make(known, &a, &request));
    IS_OK(known_schedules_make(known, &b, &request));
    IS_OK(known_schedules_make(known, &c, &other));
    CHECK(a.lists == b.lists && a.borrowed);
    CHECK(a.lists != c.lists);
    IS_OK(known_schedules_lower(known, &a));
    CHECK(a.lists != b.lists && a.lowered && !b.lowered);
    IS_OK(known_schedules_lower(known, &b));
    CHECK(a.lists == b.lists);
    schedule_free(&a);
    CHECK(a.lists == NULL);
    schedule_free(&b);
    schedule_free(&c);
    known_schedules_free(known);
    for (int row = 0; row < ROWS_OF; row++)
        CHECK(is_as_alone(NULL, row));
}

TEST(refuses_as_schedule_make_does)
{
    struct known_schedules *known = NULL;
    struct schedule s = {0};
    struct schedule_request request = request_of(0);

    IS_OK(known_schedules_open(&known));
    request.name = "1f1c";
    FAILS(known_schedules_make(known, &s, &request), ERR_CONFIG, "1f1b");
    request = request_of(3);
    request.chunks = 3;
    for (int i = 0; i < 2; i++)
        FAILS(known_schedules_make(known, &s, &request), ERR_CONFIG,
              "chunks");
    known_schedules_free(known);
    known_schedules_free(NULL);
}

struct asking { struct known_schedules *known; int wrong[THREADS]; };

static void ask_all(void *argument, int index, int count)
{
    struct asking *a = argument;

    for (int i = 0; i < TIMES * ROWS_OF; i++)
        a->wrong[index] += !is_as_alone(a->known, (i + index / 2) % ROWS_OF);
    (void)count;
}

/* All threads ask at once: some make what others wait for. */
TEST(threads_share_them)
{
    struct asking a = {.known = NULL};
    struct threads *threads = NULL;

    IS_OK(known_schedules_open(&a.known));
    IS_OK(threads_build(&threads, THREADS));
    threads_run(threads, ask_all, &a);
    for (int i = 0; i < THREADS; i++) EQUAL_INT(a.wrong[i], 0);
    threads_free(threads);
    known_schedules_free(a.known);
}

TEST_MAIN(each_is_made_once, refuses_as_schedule_make_does,
          threads_share_them)
