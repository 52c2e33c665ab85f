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
    HOST_BYTES = 256, /* names of name servers have 253 at most */
    TAKEN_MS = 3000, /* an address may be another's for so long */
    BACKLOG = 4096, /* the system takes less where it allows less */
    /* How long without a word a peer is asked whether it is there. */
    KEEP_IDLE_S = 1, KEEP_EACH_S = 1, KEEP_COUNT = 3
};

/* HOST:PORT, [V6]:PORT. */
static status address_split(const char *address, char host[HOST_BYTES],
                            char port[8])
{
    const char *colon = strrchr(address, ':');
    size_t length = colon != NULL ? (size_t)(colon - address) : 0;

    if (length == 0 || length >= HOST_BYTES || strlen(colon + 1) >= 8 ||
        colon[1] == '\0' || colon[1 + strspn(colon + 1, "0123456789")] != '\0')
        FAIL(ERR_CONFIG, "\"%.80s\" is no address; expected HOST:PORT, for "
             "example 127.0.0.1:7000", address);
    snprintf(port, 8, "%s", colon + 1);
    if (address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    snprintf(host, HOST_BYTES, "%.*s", (int)length, address);
    return OK;
}

static status address_find(const char *address, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    char host[HOST_BYTES], port[8];
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

static status name_text(const struct sockaddr_storage *name, socklen_t length,
                        char out[DOOR_ADDRESS_BYTES])
{
    char host[64], port[8];

    if (getnameinfo((const struct sockaddr *)name, length, host, sizeof host,
                    port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        FAIL(ERR_IO, "an address has no text");
    snprintf(out, DOOR_ADDRESS_BYTES,
             name->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return OK;
}

static status address_text(int descriptor, char out[DOOR_ADDRESS_BYTES])
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;

    if (getsockname(descriptor, (struct sockaddr *)&name, &length) != 0)
        FAIL(ERR_IO, "a socket does not know its address: %s",
             strerror(errno));
    return name_text(&name, length, out);
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

/* Not bound: errno. */
static int listen_at(const struct addrinfo *to, const char *address)
{
    const int descriptor =
        socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;

    if (descriptor < 0) return -1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind_in_time(descriptor, to, address)) return descriptor;
    const int reason = errno;

    close(descriptor);
    errno = reason;
    return -1;
}

/* A name may have addresses that this machine has not, as of IPv6. */
status socket_listen(int *out, const char *address,
                     char where[DOOR_ADDRESS_BYTES])
{
    struct addrinfo *found = NULL;
    int descriptor = -1;
    status result;

    TRY(address_find(address, &found));
    for (const struct addrinfo *to = found; to != NULL; to = to->ai_next) {
        descriptor = listen_at(to, address);
        if (descriptor >= 0 ||
            (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT))
            break;
    }
    const int reason = errno;

    freeaddrinfo(found);
    if (descriptor < 0)
        FAIL(ERR_CONFIG, "cannot listen on %.80s: %s", address,
             why_not(reason));
    socket_tune(descriptor); /* connections inherit it */
    result = address_text(descriptor, where);
    if (result == OK) *out = descriptor;
    else close(descriptor);
    return result;
}

static enum door_end end_of(int error)
{
    return error == ECONNREFUSED ? DOOR_NOBODY : DOOR_UNKNOWN;
}

/* At once: of a socket, or as the system knows no route. Others say what a
 * network or a firewall does now. */
static enum door_end end_at_once(int error)
{
    return error == ENETUNREACH || error == EADDRNOTAVAIL ||
           error == EAFNOSUPPORT ? DOOR_NO_WAY : end_of(error);
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

static status connect_to(int *out, const struct addrinfo *to,
                         const char *address, int64_t end_ns,
                         enum door_end *end)
{
    status result = OK;
    int descriptor;

    *end = DOOR_UNKNOWN;
    descriptor = socket(to->ai_family,
                        SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
        *end = end_at_once(errno);
        FAIL(ERR_IO, "no socket: %s", strerror(errno));
    }
    socket_tune(descriptor);
    if (connect(descriptor, to->ai_addr, to->ai_addrlen) != 0) {
        *end = end_at_once(errno);
        if (errno != EINPROGRESS)
            FAIL_GOTO(done, result, ERR_PEER, "%s: %s", address,
                      strerror(errno));
        TRY_GOTO(done, result, connect_wait(descriptor, address, end_ns,
                                            end));
    }
    *end = DOOR_IN;
done:
    if (result == OK) *out = descriptor;
    else close(descriptor);
    return result;
}

/* Its part of the time that is left, of so many addresses. */
static int64_t part_end_ns(const struct addrinfo *to, int64_t end_ns)
{
    const int64_t now = clock_ns();
    int count = 0;

    for (; to != NULL; to = to->ai_next) count++;
    return end_ns > now ? now + (end_ns - now) / count : end_ns;
}

/* DOOR_IN: there was no other address so far. */
static enum door_end worse(enum door_end one, enum door_end other)
{
    if (one == DOOR_IN || one == other) return other;
    if (other == DOOR_IN) return one;
    return one == DOOR_LATE || other == DOOR_LATE ? DOOR_LATE : DOOR_UNKNOWN;
}

/* A machine without IPv6 never has a way to such addresses. Where one of the
 * same family refused and another has no way, a link of this machine is down,
 * and somebody may listen behind it. */
static enum door_end both(enum door_end v4, enum door_end v6)
{
    const enum door_end worst = worse(v4, v6);

    if ((v4 == DOOR_NOBODY && v6 == DOOR_NO_WAY) ||
        (v4 == DOOR_NO_WAY && v6 == DOOR_NOBODY))
        return DOOR_NO_WAY;
    return worst == DOOR_NO_WAY ? DOOR_UNKNOWN : worst;
}

/* A name may have several addresses, as of IPv6 and of IPv4, at one of which
 * somebody listens. Nobody does only where all say so. */
status socket_connect(int *out, const char *address, int64_t end_ns,
                      enum door_end *end)
{
    struct addrinfo *found = NULL;
    enum door_end v4 = DOOR_IN, v6 = DOOR_IN, one = DOOR_UNKNOWN;
    status result = OK;

    *end = DOOR_UNKNOWN;
    TRY(address_find(address, &found));
    for (const struct addrinfo *to = found; to != NULL; to = to->ai_next) {
        if (result != OK) status_clear();
        result = connect_to(out, to, address, part_end_ns(to, end_ns), &one);
        if (result == OK) break;
        if (to->ai_family == AF_INET6) v6 = worse(v6, one);
        else v4 = worse(v4, one);
    }
    freeaddrinfo(found);
    *end = result == OK ? DOOR_IN : both(v4, v6);
    return result;
}

bool door_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 ||
           strncmp(address, "[::1]:", 6) == 0;
}

static bool is_anywhere(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 ||
           strncmp(address, "[::]:", 5) == 0;
}

void door_far_side(int descriptor, char out[DOOR_ADDRESS_BYTES])
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;

    if (getpeername(descriptor, (struct sockaddr *)&name, &length) != 0 ||
        name_text(&name, length, out) != OK) {
        status_clear();
        out[0] = '\0';
    }
}

void door_through(char address[DOOR_ADDRESS_BYTES], int descriptor)
{
    char far[DOOR_ADDRESS_BYTES], port[8];
    char *colon;

    if (!is_anywhere(address)) return;
    door_far_side(descriptor, far);
    if ((colon = strrchr(far, ':')) == NULL) return;
    snprintf(port, sizeof port, "%s", strrchr(address, ':'));
    snprintf(colon, (size_t)(far + DOOR_ADDRESS_BYTES - colon), "%s", port);
    memcpy(address, far, sizeof far);
}

void door_reached(const char *address, char out[DOOR_ADDRESS_BYTES])
{
    char host[64] = "";

    snprintf(out, DOOR_ADDRESS_BYTES, "%s", address);
    if (!is_anywhere(address)) return;
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') return;
    snprintf(out, DOOR_ADDRESS_BYTES, "%.63s%.7s", host,
             strrchr(address, ':'));
}

/* A datagram socket knows its own address without sending anything. */
static bool near_side_of(const struct addrinfo *to,
                         char out[DOOR_ADDRESS_BYTES])
{
    const int descriptor = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = descriptor >= 0 &&
                 connect(descriptor, to->ai_addr, to->ai_addrlen) == 0;
    const int reason = errno;

    if (known && address_text(descriptor, out) != OK) {
        status_clear();
        known = false;
    }
    if (descriptor >= 0) close(descriptor);
    errno = reason;
    return known;
}

status door_near_side(const char *address, char out[DOOR_ADDRESS_BYTES])
{
    struct addrinfo *found = NULL;
    bool known = false;
    char *colon;

    TRY(address_find(address, &found));
    for (const struct addrinfo *to = found; to != NULL && !known;
         to = to->ai_next)
        known = near_side_of(to, out);
    const int reason = errno;

    freeaddrinfo(found);
    if (!known) FAIL(ERR_PEER, "%s: %s", address, strerror(reason));
    colon = strrchr(out, ':');
    snprintf(colon, (size_t)(out + DOOR_ADDRESS_BYTES - colon), ":0");
    return OK;
}
