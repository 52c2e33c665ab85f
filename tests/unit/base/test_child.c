/* SPDX-License-Identifier: Apache-2.0 */
/* test_child.c - mirrors src/base/child.c. */
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "base/child.h"
#include "tests/test.h"

enum { MINUTE_MS = 60000, BYTES = 2000 };

struct answer { double real; char bytes[BYTES]; };

static void fill(void *to, const void *of)
{
    struct answer *answer = to;

    CHECK(answer->bytes[BYTES - 1] == 0);
    answer->real = 0.5;
    memset(answer->bytes, *(const char *)of, BYTES);
}

TEST(a_child_answers)
{
    struct answer answer;

    for (char with = 'a'; with < 'd'; with++) {
        EQUAL_INT(child_ask(fill, &with, &answer, sizeof answer, MINUTE_MS),
                  CHILD_ANSWERED);
        CHECK(answer.real == 0.5 && answer.bytes[0] == with &&
              answer.bytes[BYTES - 1] == with);
    }
    EQUAL_INT(waitpid(-1, NULL, WNOHANG), -1); /* none is left */
}

static void fill_all(void *to, const void *of)
{
    memset(to, *(const char *)of, PIPE_BUF);
}

TEST(an_answer_may_be_as_large_as_one_write)
{
    char answer[PIPE_BUF] = {0};

    EQUAL_INT(child_ask(fill_all, "z", answer, sizeof answer, MINUTE_MS),
              CHILD_ANSWERED);
    CHECK(answer[0] == 'z' && answer[PIPE_BUF - 1] == 'z');
}

static void leave(void *to, const void *of)
{
    (void)to;
    (void)of;
    _exit(0);
}

static void crash(void *to, const void *of)
{
    (void)to;
    (void)of;
    raise(SIGKILL);
}

TEST(a_child_that_ends_is_not_waited_for)
{
    int answer;

    EQUAL_INT(child_ask(leave, NULL, &answer, sizeof answer, MINUTE_MS),
              CHILD_ENDED);
    EQUAL_INT(child_ask(crash, NULL, &answer, sizeof answer, MINUTE_MS),
              CHILD_ENDED);
    EQUAL_INT(waitpid(-1, NULL, WNOHANG), -1);
}

static void hang(void *to, const void *of)
{
    volatile pid_t *child = *(volatile pid_t *const *)of;

    (void)to;
    *child = getpid();
    signal(SIGTERM, SIG_IGN);
    for (;;) pause();
}

TEST(a_child_that_hangs_is_ended)
{
    pid_t *child = mmap(NULL, sizeof *child, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int answer;

    CHECK(child != MAP_FAILED);
    *child = 0;
    EQUAL_INT(child_ask(hang, &child, &answer, sizeof answer, 300),
              CHILD_LATE);
    EQUAL_INT(waitpid(-1, NULL, WNOHANG), -1);
    if (*child != 0) EQUAL_INT(kill(*child, 0), -1);
    munmap(child, sizeof *child);
}

TEST_MAIN(a_child_answers, an_answer_may_be_as_large_as_one_write,
          a_child_that_ends_is_not_waited_for, a_child_that_hangs_is_ended)
