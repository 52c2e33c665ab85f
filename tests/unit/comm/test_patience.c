/* SPDX-License-Identifier: Apache-2.0 */
/* test_patience.c - mirrors src/comm/patience.c: over a fast network
 * connections may be silent for as long as was set, and no longer; the system
 * knows. Slow ones: tests/drills/slow_links.sh. */
#include "comm/patience.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "comm/handshake_records.h"
#include "tests/test.h"

enum { WAIT_S = 10 };

static int64_t in_time(void)
{
    return clock_ns() + WAIT_S * INT64_C(1000000000);
}

/* Two ends of a connection on this machine. */
static void open_ends(int ends[2])
{
    char where[DOOR_ADDRESS_BYTES];
    int listener;

    IS_OK(socket_listen(&listener, "127.0.0.1:0", where));
    IS_OK(socket_connect(&ends[0], where, in_time(), &(enum door_end){0}));
    ends[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(ends[1] >= 0);
    close(listener);
}

static int64_t told(int descriptor)
{
    unsigned ms = 0;
    socklen_t length = sizeof ms;

    CHECK(getsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms,
                     &length) == 0);
    return ms;
}

TEST(a_fast_link_has_the_least)
{
    int ends[2];

    open_ends(ends);
    for (int i = 0; i < 2; i++) EQUAL_INT(told(ends[i]), PATIENCE_MS - 1000);
    CHECK(patience_is_acknowledged(ends[0]));
    CHECK(patience_round_us(ends[0]) > 0 &&
          patience_round_us(ends[0]) < 50000);
    EQUAL_INT(patience_more_ms(ends[0]), 0);
    EQUAL_INT(patience_ms(ends[0]), PATIENCE_MS);
    patience_set(20000);
    EQUAL_INT(patience_ms(ends[0]), 20000);
    patience_tell(ends[0], patience_ms(ends[0]));
    EQUAL_INT(told(ends[0]), 19000);
    patience_set(0);
    EQUAL_INT(patience_ms(ends[0]), PATIENCE_MS);
    for (int i = 0; i < 2; i++) close(ends[i]);
}

TEST(what_is_no_network_has_the_least)
{
    int ends[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    EQUAL_INT(patience_round_us(ends[0]), 0);
    EQUAL_INT(patience_ms(ends[0]), PATIENCE_MS);
    EQUAL_INT(patience_ms(-1), PATIENCE_MS);
    CHECK(!patience_is_acknowledged(ends[0]));
    CHECK(!patience_is_acknowledged(-1));
    for (int i = 0; i < 2; i++) close(ends[i]);
}

TEST_MAIN(a_fast_link_has_the_least,
          what_is_no_network_has_the_least)
