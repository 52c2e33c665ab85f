/* SPDX-License-Identifier: Apache-2.0 */
/* handshake_socket.c - sockets of handshakes: addresses, listeners,
 * connections. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "comm/handshake_records.h"
#include "comm/patience.h"

enum {
    TAKEN_MS = 3000, /* an address may be another's for so long */
    BACKLOG = 4096, /* the system takes less where it allows less */
    /* How long without a word a peer is asked whether it is there. */
    KEEP_IDLE_S = 1, KEEP_EACH_S = 1, KEEP_COUNT = 3
};

/* HOST:PORT, [V6]:PORT. */
static status address_split(const char *address, char host[64], char port[8])
{
    const char *colon = strrchr(address, ':');
    size_t length = colon != NULL ? (size_t)(colon - address) : 0;

    if (length == 0 || length >= 64 || strlen(colon + 1) >= 8 ||
        colon[1] == '\0' || colon[1 + strspn(colon + 1, "0123456789")] != '\0')
        FAIL(ERR_CONFIG, "\"%.80s\" is no address; expected HOST:PORT, for "
             "example 127.0.0.1:7000", address);
    snprintf(port, 8, "%s", colon + 1);
    if (address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    snprintf(host, 64, "%.*s", (int)length, address);
    return OK;
}

static status address_find(const char *address, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    char host[64], port[8];
    int error;

    TRY(address_split(address, host, port));
    error = getaddrinfo(host, port, &hints, out);
    if (error != 0)
        FAIL(ERR_CONFIG, "%.80s: %s", address, gai_strerror(error));
    return OK;
}

/* Small messages leave at once; a peer that is gone is noticed. */
static void socket_tune(int descriptor)
{
    const int on = 1, idle = KEEP_IDLE_S, each = KEEP_EACH_S;
    const int count = KEEP_COUNT;

    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &each, sizeof each);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    patience_tell(descriptor, patience_ms(descriptor));
}

static status address_text(int descriptor, char out[DOOR_ADDRESS_BYTES])
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    char host[64], port[8];

    if (getsockname(descriptor, (struct sockaddr *)&name, &length) != 0 ||
        getnameinfo((struct sockaddr *)&name, length, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        FAIL(ERR_IO, "a socket does not know its address: %s",
             strerror(errno));
    snprintf(out, DOOR_ADDRESS_BYTES,
             name.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return OK;
}

/* One that just died may listen there for a moment longer; its successor has
 * the same address. */
static bool bind_in_time(int descriptor, const struct addrinfo *to,
                         const char *address)
{
    const struct timespec pause = {0, 100000000};
    const int64_t end = clock_ns() + (int64_t)TAKEN_MS * 1000000;
    bool told = false, bound = false;

    for (;;) {
        bound = bound || bind(descriptor, to->ai_addr, to->ai_addrlen) == 0;
        if (bound && listen(descriptor, BACKLOG) == 0) return true;
        if (errno != EADDRINUSE || clock_ns() > end) return false;
        if (!told)
            fprintf(stderr, "waiting   for %s: another process listens "
                    "there\n", address);
        told = true;
        nanosleep(&pause, NULL);
    }
}

/* A sentence of its own for the usual mistake. */
static const char *why_not(int error)
{
    return error == EADDRINUSE ? "another process listens there; end it, or "
                                 "name another port"
                               : strerror(error);
}

status socket_listen(int *out, const char *address,
                     char where[DOOR_ADDRESS_BYTES])
{
    struct addrinfo *found = NULL;
    const int on = 1;
    status result;
    int descriptor;

    TRY(address_find(address, &found));
    descriptor = socket(found->ai_family,
                        SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor >= 0)
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (descriptor < 0 || !bind_in_time(descriptor, found, address))
        FAIL_GOTO(done, result, ERR_CONFIG, "cannot listen on %.80s: %s",
                  address, why_not(errno));
    socket_tune(descriptor); /* connections inherit it */
    result = address_text(descriptor, where);
done:
    freeaddrinfo(found);
    if (result == OK) *out = descriptor;
    else if (descriptor >= 0) close(descriptor);
    return result;
}

static enum door_end end_of(int error)
{
    return error == ECONNREFUSED ? DOOR_NOBODY : DOOR_UNKNOWN;
}

static status connect_wait(int descriptor, const char *address, int64_t end_ns,
                           enum door_end *end)
{
    struct pollfd poll_one = {.fd = descriptor, .events = POLLOUT};
    socklen_t length = sizeof(int);
    int error = 0;

    while (clock_ns() < end_ns) {
        const int64_t left = (end_ns - clock_ns()) / 1000000 + 1;

        if (poll(&poll_one, 1, (int)left) <= 0) continue;
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error == 0) return OK;
        *end = end_of(error);
        FAIL(ERR_PEER, "%s: %s", address, strerror(error));
    }
    *end = DOOR_LATE;
    FAIL(ERR_PEER, "%s: nobody answers", address);
}

status socket_connect(int *out, const char *address, int64_t end_ns,
                      enum door_end *end)
{
    struct addrinfo *found = NULL;
    status result = OK;
    int descriptor;

    *end = DOOR_UNKNOWN;
    TRY(address_find(address, &found));
    descriptor = socket(found->ai_family,
                        SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        FAIL_GOTO(done, result, ERR_IO, "no socket: %s", strerror(errno));
    socket_tune(descriptor);
    if (connect(descriptor, found->ai_addr, found->ai_addrlen) != 0) {
        *end = end_of(errno);
        if (errno != EINPROGRESS)
            FAIL_GOTO(done, result, ERR_PEER, "%s: %s", address,
                      strerror(errno));
        TRY_GOTO(done, result, connect_wait(descriptor, address, end_ns,
                                            end));
    }
    *end = DOOR_IN;
done:
    freeaddrinfo(found);
    if (result == OK) *out = descriptor;
    else if (descriptor >= 0) close(descriptor);
    return result;
}

void door_reached(const char *address, char out[DOOR_ADDRESS_BYTES])
{
    char host[64] = "";

    snprintf(out, DOOR_ADDRESS_BYTES, "%s", address);
    if (strncmp(address, "0.0.0.0:", 8) != 0 &&
        strncmp(address, "[::]:", 5) != 0)
        return;
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') return;
    snprintf(out, DOOR_ADDRESS_BYTES, "%.63s%.7s", host,
             strrchr(address, ':'));
}

status door_near_side(const char *address, char out[DOOR_ADDRESS_BYTES])
{
    struct addrinfo *found = NULL;
    status result = OK;
    int descriptor;
    char *colon;

    TRY(address_find(address, &found));
    /* A datagram socket knows its own address without sending anything. */
    descriptor = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 ||
        connect(descriptor, found->ai_addr, found->ai_addrlen) != 0)
        FAIL_GOTO(done, result, ERR_PEER, "%s: %s", address, strerror(errno));
    TRY_GOTO(done, result, address_text(descriptor, out));
    colon = strrchr(out, ':');
    snprintf(colon, (size_t)(out + DOOR_ADDRESS_BYTES - colon), ":0");
done:
    freeaddrinfo(found);
    if (descriptor >= 0) close(descriptor);
    return result;
}
