/* SPDX-License-Identifier: Apache-2.0 */
/* patience.c - how long a connection may be silent before it counts as
 * broken. */
#include "comm/patience.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { FAST_US = 50000, ROUND_TRIPS = 8, EARLIER_MS = 1000,
       ACKNOWLEDGED_MS = 3000 /* between two acknowledgements */ };

static _Atomic int64_t least = PATIENCE_MS;

void patience_set(int64_t least_ms)
{
    atomic_store(&least, least_ms > 0 ? least_ms : PATIENCE_MS);
}

int64_t patience_round_us(int descriptor)
{
    struct tcp_info about = {.tcpi_rtt = 0};
    socklen_t length = sizeof about;

    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &about, &length) != 0)
        return 0;
    return about.tcpi_rtt;
}

int64_t patience_more_ms(int descriptor)
{
    const int64_t beyond_us = patience_round_us(descriptor) - FAST_US;
    const int64_t more_ms = ROUND_TRIPS * beyond_us / 1000;

    if (more_ms <= 0) return 0;
    return more_ms < PATIENCE_MORE_MS ? more_ms : PATIENCE_MORE_MS;
}

int64_t patience_ms(int descriptor)
{
    return atomic_load(&least) + patience_more_ms(descriptor);
}

bool patience_is_acknowledged(int descriptor)
{
    const int64_t most_ms = ACKNOWLEDGED_MS + patience_more_ms(descriptor);
    struct tcp_info about = {.tcpi_last_ack_recv = UINT32_MAX};
    socklen_t length = sizeof about;

    return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &about, &length) ==
               0 && about.tcpi_last_ack_recv < most_ms;
}

void patience_tell(int descriptor, int64_t ms)
{
    const unsigned user = (unsigned)(ms - EARLIER_MS);

    setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &user, sizeof user);
}
