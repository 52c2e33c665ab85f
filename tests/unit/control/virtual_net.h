/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_net.h - connections between a supervisor and its agents that exist
 * only in one test: what handshake.h and wire.h promise, without sockets. Host
 * 0 is the supervisor's. A direction of a link can be cut: then messages wait,
 * as those of TCP do, and a sender whose messages wait for too long gives
 * up. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_NET_H
#define LOCKSTEP_TESTS_VIRTUAL_NET_H

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/arena.h"
#include "base/clock.h"
#include "comm/handshake_records.h"
#include "control/wire.h"

enum { NET_HOSTS = 5, NET_ENDS = 64, NET_FIRST = 1000, NET_PATIENCE_MS = 3900,
       NET_FIN = -1, NET_RESET = -2 };

struct net_message {
    struct net_message *next;
    int64_t ready_ns;
    bool arrived;
    int kind;                 /* below 0: the end of the connection */
    struct wire_head head;    /* bytes follow */
};

struct net_end {
    bool used;
    int host, peer;           /* index of the other end; -1: it has gone */
    struct net_message *first, *given;
};

struct net {
    int64_t now_ns;           /* true time; each host's clock differs */
    int64_t skew_ns[NET_HOSTS];
    int host;                 /* whose code runs */
    bool cut[NET_HOSTS][NET_HOSTS]; /* from, to */
    struct net_end ends[NET_ENDS];
    const struct door *door;  /* of the supervisor; NULL: nobody listens */
    bool no_ipv6; /* its machine's name has an address of it, too */
    int visitors[NET_ENDS], visitor_count;
    int64_t news_ns[NET_HOSTS]; /* when the next message arrives */
    int64_t busy_ns[NET_HOSTS]; /* a host waits in a call until then */
};

static struct net net;
static int64_t net_delay(void);

/* ---- messages ---- */

static void net_post(int end, int kind, const struct wire_head *head,
                     const void *bytes, size_t length)
{
    struct net_message **at = &net.ends[end].first;
    struct net_message *m = calloc(1, sizeof *m + length);
    const int host = net.ends[end].host;

    CHECK(m != NULL);
    m->kind = kind;
    m->ready_ns = net.now_ns + net_delay();
    while (*at != NULL) {
        if ((*at)->ready_ns > m->ready_ns) m->ready_ns = (*at)->ready_ns;
        at = &(*at)->next;
    }
    *at = m;
    if (head != NULL) m->head = *head;
    if (length > 0) memcpy(m + 1, bytes, length);
    if (m->ready_ns < net.news_ns[host]) net.news_ns[host] = m->ready_ns;
}

static void net_drop_all(struct net_end *end)
{
    free(end->given);
    for (struct net_message *m = end->first, *next; m != NULL; m = next) {
        next = m->next;
        free(m);
    }
    end->first = end->given = NULL;
}

/* How the side of a connection ends that is closed, or whose process is. */
static void net_end_close(int index, int kind)
{
    struct net_end *end = &net.ends[index];

    if (!end->used) return; /* the system closed it already */
    if (end->peer >= 0) {
        net_post(end->peer, kind, NULL, NULL, 0);
        net.ends[end->peer].peer = -1;
    }
    net_drop_all(end);
    *end = (struct net_end){.used = false};
}

/* Before a link is cut: what has arrived by now has. */
static void net_settle(void)
{
    for (int i = 0; i < NET_ENDS; i++)
        for (struct net_message *m = net.ends[i].first; m != NULL; m = m->next)
            m->arrived = m->arrived || m->ready_ns <= net.now_ns;
}

/* ends keep who sent what: the peer's host, also after it has gone. */
static int net_sender[NET_ENDS];

static bool net_is_there(int index, const struct net_message *m)
{
    return m->arrived || (m->ready_ns <= net.now_ns &&
                          !net.cut[net_sender[index]][net.ends[index].host]);
}

/* Whether what was sent from here waits for longer than TCP does. */
static bool net_gives_up(const struct net_end *end)
{
    const struct net_message *m =
        end->peer >= 0 ? net.ends[end->peer].first : NULL;

    while (m != NULL && m->arrived) m = m->next;
    return m != NULL && net.cut[end->host][net_sender[end - net.ends]] &&
           net.now_ns - m->ready_ns > (int64_t)NET_PATIENCE_MS * 1000000;
}

static int net_connect(int from, int to)
{
    int ends[2], found = 0;

    for (int i = 0; i < NET_ENDS && found < 2; i++)
        if (!net.ends[i].used) ends[found++] = i;
    CHECK(found == 2);
    net.ends[ends[0]] = (struct net_end){.used = true, .host = from,
                                         .peer = ends[1]};
    net.ends[ends[1]] = (struct net_end){.used = true, .host = to,
                                         .peer = ends[0]};
    net_sender[ends[0]] = to;
    net_sender[ends[1]] = from;
    return ends[0];
}

/* The process of that host ends: the system closes what it had. */
static void net_kill(int host)
{
    if (host == 0) {
        net.door = NULL;
        net.visitor_count = 0;
    }
    for (int i = 0; i < NET_ENDS; i++)
        if (net.ends[i].used && net.ends[i].host == host)
            net_end_close(i, NET_FIN);
}

static void net_clear(void)
{
    for (int i = 0; i < NET_ENDS; i++) net_drop_all(&net.ends[i]);
    memset(&net, 0, sizeof net);
    for (int i = 0; i < NET_HOSTS; i++) net.news_ns[i] = INT64_MAX;
}

/* ---- doors ---- */

status token_draw(struct token *token)
{
    memset(token, 7, sizeof *token);
    return OK;
}

status token_read(struct token *token, const char *path)
{
    (void)path;
    return token_draw(token);
}

/* The rest of handshake_client.c, which nobody here asks for. */
status draw_bytes(void *out, size_t length)
{
    memset(out, 7, length);
    return OK;
}

status token_write(const struct token *token, const char *path)
{
    (void)token;
    FAIL(ERR_IO, "%s: no file here", path);
}

bool hello_is_sound(const struct hello *hello, uint64_t job)
{
    (void)hello, (void)job;
    return false;
}

status proof_make(const struct token *token, const char *role,
                  const struct hello *hello,
                  const unsigned char nonce[SHA256_BYTES],
                  unsigned char proof[SHA256_BYTES])
{
    (void)token, (void)role, (void)hello, (void)nonce, (void)proof;
    FAIL(ERR_PEER, "no proofs here");
}

status door_read(int descriptor, void *bytes, size_t length, int64_t end_ns)
{
    (void)descriptor, (void)bytes, (void)length, (void)end_ns;
    FAIL(ERR_PEER, "no sockets here");
}

status door_write(int descriptor, const void *bytes, size_t length,
                  int64_t end_ns)
{
    (void)descriptor, (void)bytes, (void)length, (void)end_ns;
    FAIL(ERR_PEER, "no sockets here");
}

status door_open(struct door *door, const char *address,
                 const struct token *token, uint64_t job)
{
    (void)address;
    *door = (struct door){.listener = -1, .token = *token, .job = job};
    snprintf(door->address, sizeof door->address, "10.0.0.%d:1", net.host);
    if (net.host == 0 && net.door == NULL) net.door = door;
    return OK;
}

void door_close(struct door *door)
{
    if (net.door == door) net.door = NULL;
}

int door_polls(const struct door *door, struct pollfd *polls)
{
    (void)door, (void)polls;
    return 0;
}

bool door_step(struct door *door, struct visitor *visitor, int *descriptor)
{
    if (door != net.door || net.visitor_count == 0) return false;
    *visitor = (struct visitor){.purpose = DOOR_AGENT};
    *descriptor = NET_FIRST + net.visitors[--net.visitor_count];
    return true;
}

status door_answer(int *descriptor, const char *why)
{
    if (why == NULL || why[0] == '\0') return OK;
    net_end_close(*descriptor - NET_FIRST, NET_FIN);
    *descriptor = -1;
    return OK;
}

#define NET_DOOR "10.0.0.1:7077" /* the supervisor's address */

int getpeername(int descriptor, __SOCKADDR_ARG to, socklen_t *restrict length)
{
    const struct sockaddr_in door = {.sin_family = AF_INET,
                                     .sin_port = htons(7077),
                                     .sin_addr.s_addr = htonl(0x0a000001)};

    if (descriptor < NET_FIRST || *length < sizeof door) return -1;
    memcpy(to.__sockaddr__, &door, sizeof door);
    *length = sizeof door;
    return 0;
}

status door_knock(int *descriptor, const char *address,
                  const struct visitor *self, const struct token *token,
                  int64_t limit_ms, enum door_end *how)
{
    int end;

    (void)self, (void)token;
    *descriptor = -1;
    if (net.cut[net.host][0] || net.cut[0][net.host]) {
        net.busy_ns[net.host] = net.now_ns + limit_ms * 1000000;
        *how = DOOR_LATE;
        FAIL(ERR_PEER, "%s: nobody answers", address);
    }
    *how = net.door == NULL ? DOOR_NOBODY : DOOR_IN;
    if (net.door == NULL && net.no_ipv6 && strcmp(address, NET_DOOR) != 0)
        *how = DOOR_NO_WAY;
    if (net.door == NULL)
        FAIL(ERR_PEER, "%s: %s", address, strerror(ECONNREFUSED));
    end = net_connect(net.host, 0);
    net.visitors[net.visitor_count++] = net.ends[end].peer;
    net.news_ns[0] = net.now_ns;
    *descriptor = NET_FIRST + end;
    return OK;
}

/* ---- wires ---- */

status wire_open(struct wire *wire, int descriptor, const struct token *token,
                 bool serves)
{
    *wire = (struct wire){.descriptor = descriptor, .serves = serves,
                          .token = *token, .heard_ns = clock_ns()};
    return OK;
}

void wire_close(struct wire *wire)
{
    if (wire->descriptor >= NET_FIRST)
        net_end_close(wire->descriptor - NET_FIRST,
                      wire->resets ? NET_RESET : NET_FIN);
    *wire = (struct wire){.descriptor = -1};
}

status wire_put(struct wire *wire, uint32_t kind, const void *bytes,
                size_t length)
{
    const struct wire_head head = {.kind = kind, .bytes = (uint32_t)length};
    const struct net_end *end;

    if (wire->descriptor < 0) FAIL(ERR_PEER, "the connection is closed");
    end = &net.ends[wire->descriptor - NET_FIRST];
    if (net_gives_up(end)) {
        wire_close(wire);
        FAIL(ERR_PEER, "the connection broke: nobody answers");
    }
    if (end->peer >= 0) net_post(end->peer, 0, &head, bytes, length);
    return OK;
}

static status net_end_of(struct wire *wire, const char *how)
{
    wire_close(wire);
    FAIL(ERR_PEER, "the connection %s", how);
}

status wire_get(struct wire *wire, const struct wire_head **head,
                const void **bytes)
{
    struct net_message *m;
    struct net_end *end;

    *head = NULL;
    if (wire->descriptor < 0) FAIL(ERR_PEER, "the connection is closed");
    end = &net.ends[wire->descriptor - NET_FIRST];
    free(end->given);
    end->given = NULL;
    m = end->first;
    if (m == NULL || !net_is_there((int)(end - net.ends), m))
        return net_gives_up(end) ? net_end_of(wire, "broke: nobody answers")
                                 : OK;
    if (m->kind < 0)
        return net_end_of(wire, m->kind == NET_FIN ? "was closed" : "broke");
    end->first = m->next;
    end->given = m;
    *head = &m->head;
    *bytes = m + 1;
    wire->heard_ns = clock_ns();
    return OK;
}

/* The next arrival at a host, for its poll. */
static void net_find_news(int host)
{
    net.news_ns[host] = INT64_MAX;
    for (int i = 0; i < NET_ENDS; i++) {
        const struct net_end *e = &net.ends[i];

        if (!e->used || e->host != host || e->first == NULL ||
            (!e->first->arrived && net.cut[net_sender[i]][host]))
            continue;
        if (e->first->ready_ns < net.news_ns[host])
            net.news_ns[host] = e->first->ready_ns;
    }
}

#endif
