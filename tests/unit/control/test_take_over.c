/* SPDX-License-Identifier: Apache-2.0 */
/* test_take_over.c - mirrors src/control/supervisor_fleet.c: a supervisor that
 * finds ranks of one before it. No agent comes; the clock is virtual. */
#include "control/watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/file.h"
#include "control/supervisor.h"
#include "tests/test.h"
#include "tests/unit/control/virtual_poll.h"

static struct fleet fleet;
static struct crew_member members[2];

void others_act(void) {}

static void leave_ranks(const char *run)
{
    static const char line[] =
        "{\"event\": \"start\", \"generation\": 3, \"layout\": "
        "\"mesh.data=2\", \"last_order\": 2, \"ranks\": ["
        "{\"node\": \"a\", \"place\": 0, \"order\": 1}, "
        "{\"node\": \"b\", \"place\": 0, \"order\": 2}]}\n";
    char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, run, "control"));
    IS_OK(directory_make_private(path));
    IS_OK(path_join(path, sizeof path, run, "control/journal.jsonl"));
    IS_OK(file_write_atomic(path, line, sizeof line - 1));
}

/* Milliseconds of its wait for ranks of that supervisor. */
static int64_t wait_of(int ranks, int asked, status *result)
{
    struct token token;
    char run[PATH_BYTES];
    struct supervision how = {.ranks = ranks, .run = run};
    struct supervisor s = {.how = &how, .signals = -1, .fleet = &fleet,
                           .crew.members = members, .asked = asked};
    int64_t began;
    bool watches = false;
    int file;

    test_directory(run);
    leave_ranks(run);
    journal_begin(&s.journal, run);
    IS_OK(token_draw(&token));
    IS_OK(fleet_open(&fleet, "127.0.0.1:0", &token, ranks, 2));
    IS_OK(board_make(&s.board, ranks, &file));
    fleet.board = s.board;
    fleet.crew = &s.crew;
    virtual_ns = began = 1000000000;
    *result = supervisor_adopt_agents(&s, &watches);
    CHECK(!watches);
    began = virtual_ns - began;
    status_clear();
    journal_close(&s.journal);
    fleet_close(&fleet);
    board_close(s.board);
    close(file);
    IS_OK(directory_remove(run));
    return began / 1000000;
}

/* A signal is for ranks that can save. Where there are more than this
 * supervisor takes it gets none: it waited for the end of their leases. */
TEST(a_signal_waits_for_ranks_that_may_be_taken_over)
{
    const int64_t lease_ms = NODE_LEASE_MS + NODE_MARGIN_MS;
    status result;

    CHECK(wait_of(2, 0, &result) >= lease_ms);
    EQUAL_INT(result, OK);
    CHECK(wait_of(2, SIGUSR1, &result) >= lease_ms);
    EQUAL_INT(result, OK);
    CHECK(wait_of(1, 0, &result) >= lease_ms);
    EQUAL_INT(result, OK);
    CHECK(wait_of(1, SIGUSR1, &result) < lease_ms / 10);
    EQUAL_INT(result, ERR_STOPPED);
}

TEST_MAIN(a_signal_waits_for_ranks_that_may_be_taken_over)
