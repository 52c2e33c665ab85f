/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease.c - mirrors src/control/lease.c: a rank whose machine has no lease
 * any more, or whose generation was replaced, may not write. */
#include "control/lease.h"

#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "control/board.h"
#include "tests/test.h"

static char run[64];
static struct board *board;

static void sit(void)
{
    int file;

    snprintf(run, sizeof run, "/tmp/lockstep-lease-XXXXXX");
    CHECK(mkdtemp(run) != NULL);
    IS_OK(board_make(&board, 1, &file));
    close(file);
    board_sit(board, 0);
    atomic_store(&board->generation, 3);
}

static void rise(void)
{
    board_end(OK, "");
    board_close(board);
    IS_OK(directory_remove(run));
}

static void make_control(void)
{
    char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, run, "control"));
    IS_OK(directory_make_own(path));
}

TEST(a_lease_is_renewed_but_never_cut)
{
    const int64_t now = clock_ns();

    sit();
    CHECK(!lease_is_over(board, now)); /* there never was one */
    lease_renew(board, now + 100);
    CHECK(!lease_is_over(board, now + 100));
    CHECK(lease_is_over(board, now + 101));
    lease_renew(board, now + 50);
    CHECK(!lease_is_over(board, now + 100));
    rise();
}

TEST(ranks_without_a_lease_do_not_write)
{
    sit();
    lease_renew(board, 1);
    IS_OK(lease_holds(run, true)); /* no agent, no lease */
    atomic_store(&board->here, 1);
    EQUAL_INT(lease_holds(run, true), ERR_PEER);
    CHECK(strstr(status_message(), "lease") != NULL);
    status_clear();
    lease_renew(board, clock_ns() + 60000000000);
    IS_OK(lease_holds(run, true));
    rise();
}

TEST(a_generation_that_was_replaced_does_not_write)
{
    sit();
    make_control();
    atomic_store(&board->here, 1);
    lease_renew(board, clock_ns() + 60000000000);
    IS_OK(lease_announce(run, 3));
    IS_OK(lease_holds(run, true));
    IS_OK(lease_announce(run, 4));
    EQUAL_INT(lease_holds(run, true), ERR_PEER);
    CHECK(strstr(status_message(), "generation 4") != NULL);
    status_clear();
    IS_OK(lease_announce(run, 2)); /* of an older supervisor: too late */
    IS_OK(lease_holds(run, true));
    rise();
}

TEST_MAIN(a_lease_is_renewed_but_never_cut,
          ranks_without_a_lease_do_not_write,
          a_generation_that_was_replaced_does_not_write)
