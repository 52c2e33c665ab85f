/* SPDX-License-Identifier: Apache-2.0 */
/* test_wire.c - mirrors src/control/wire.c: messages arrive whole and in order;
 * whatever is forged, repeated, sent back, cut or too long ends the
 * connection. */
#include "control/wire.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "comm/handshake_records.h"
#include "comm/patience.h"
#include "tests/test.h"

static struct token token;

/* Two wires; what travels between them passes through the test. */
struct pair { struct wire server, client; int tap_server, tap_client; };

static int half(int *other)
{
    int ends[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    *other = ends[1];
    return ends[0];
}

static ssize_t pass(int from, int to, char *kept, size_t room)
{
    const ssize_t got = recv(from, kept, room, 0);

    if (got > 0) CHECK(send(to, kept, (size_t)got, 0) == got);
    return got;
}

static void open_pair(struct pair *p)
{
    char bytes[64];

    IS_OK(token_draw(&token));
    IS_OK(wire_open(&p->server, half(&p->tap_server), &token, true));
    const int client = half(&p->tap_client);

    CHECK(pass(p->tap_server, p->tap_client, bytes, sizeof bytes) == 32);
    IS_OK(wire_open(&p->client, client, &token, false));
}

static void close_pair(struct pair *p)
{
    wire_close(&p->server);
    wire_close(&p->client);
    close(p->tap_server);
    close(p->tap_client);
}

static void get_one(struct wire *wire, uint32_t kind, const char *text)
{
    const struct wire_head *head;
    const void *bytes;

    IS_OK(wire_get(wire, &head, &bytes));
    CHECK(head != NULL);
    EQUAL_INT(head->kind, kind);
    EQUAL_INT(head->bytes, strlen(text));
    CHECK(memcmp(bytes, text, strlen(text)) == 0);
}

TEST(messages_arrive_in_order)
{
    const struct wire_head *head;
    const void *bytes;
    char kept[4096];
    struct pair p;

    open_pair(&p);
    IS_OK(wire_put(&p.server, 7, "seven", 5));
    IS_OK(wire_put(&p.server, 8, "", 0));
    IS_OK(wire_put(&p.server, 9, "nine", 4));
    for (ssize_t i = 0; i < 3; i++) /* in pieces */
        pass(p.tap_server, p.tap_client, kept, 50);
    get_one(&p.client, 7, "seven");
    get_one(&p.client, 8, "");
    IS_OK(wire_get(&p.client, &head, &bytes));
    CHECK(head == NULL);
    while (pass(p.tap_server, p.tap_client, kept, sizeof kept) > 0) continue;
    get_one(&p.client, 9, "nine");
    close_pair(&p);
}

/* Sends one message, changes it, and expects the client to hang up. */
static void changed(void (*change)(struct pair *p, char *bytes, size_t *used))
{
    const struct wire_head *head;
    const void *bytes;
    char kept[4096];
    struct pair p;
    size_t used;

    open_pair(&p);
    IS_OK(wire_put(&p.server, 7, "seven", 5));
    used = (size_t)recv(p.tap_server, kept, sizeof kept, 0);
    change(&p, kept, &used);
    CHECK(send(p.tap_client, kept, used, 0) == (ssize_t)used);
    EQUAL_INT(wire_get(&p.client, &head, &bytes), ERR_PEER);
    status_clear();
    EQUAL_INT(p.client.descriptor, -1);
    EQUAL_INT(wire_get(&p.client, &head, &bytes), ERR_PEER);
    status_clear();
    close_pair(&p);
}

static void flip_byte(struct pair *p, char *bytes, size_t *used)
{
    (void)p;
    bytes[*used - 1] ^= 1;
}

static void flip_kind(struct pair *p, char *bytes, size_t *used)
{
    (void)p;
    (void)used;
    bytes[0] ^= 1;
}

static void too_long(struct pair *p, char *bytes, size_t *used)
{
    const uint32_t length = WIRE_BYTES + 1;

    (void)p;
    *used = sizeof(struct wire_head);
    memcpy(bytes + 4, &length, sizeof length);
}

static void twice(struct pair *p, char *bytes, size_t *used)
{
    CHECK(send(p->tap_client, bytes, *used, 0) == (ssize_t)*used);
    get_one(&p->client, 7, "seven");
}

static void left_out(struct pair *p, char *bytes, size_t *used)
{
    IS_OK(wire_put(&p->server, 7, "seven", 5));
    *used = (size_t)recv(p->tap_server, bytes, 4096, 0);
}

/* The client's own message comes back to it. */
static void sent_back(struct pair *p, char *bytes, size_t *used)
{
    IS_OK(wire_put(&p->client, 7, "seven", 5));
    *used = (size_t)recv(p->tap_client, bytes, 4096, 0);
}

/* The server's message of another connection with the same token. */
static void of_another(struct pair *p, char *bytes, size_t *used)
{
    const struct token same = token;
    struct wire other;
    int tap;

    (void)p;
    IS_OK(wire_open(&other, half(&tap), &same, true));
    CHECK(recv(tap, bytes, 32, 0) == 32);
    IS_OK(wire_put(&other, 7, "seven", 5));
    *used = (size_t)recv(tap, bytes, 4096, 0);
    wire_close(&other);
    close(tap);
}

TEST(what_is_changed_ends_the_connection)
{
    changed(flip_byte);
    changed(flip_kind);
    changed(too_long);
    changed(twice);
    changed(left_out);
    changed(sent_back);
    changed(of_another);
}

TEST(the_end_is_noticed)
{
    const struct wire_head *head;
    const void *bytes;
    struct pair p;

    open_pair(&p);
    close(p.tap_client);
    EQUAL_INT(wire_get(&p.client, &head, &bytes), ERR_PEER);
    status_clear();
    p.tap_client = dup(p.tap_server);
    EQUAL_INT(wire_put(&p.client, 1, "", 0), ERR_PEER);
    status_clear();
    close_pair(&p);
}

/* Two wires over the loopback address. */
static void open_tcp(struct wire *server, struct wire *client)
{
    int listener, near, far;
    char address[DOOR_ADDRESS_BYTES];

    IS_OK(token_draw(&token));
    IS_OK(socket_listen(&listener, "127.0.0.1:0", address));
    IS_OK(socket_connect(&near, address, clock_ns() + 10000000000,
                         &(enum door_end){0}));
    struct pollfd one = {.fd = listener, .events = POLLIN};

    CHECK(poll(&one, 1, 10000) == 1);
    far = accept(listener, NULL, NULL);
    close(listener);
    IS_OK(wire_open(server, far, &token, true));
    IS_OK(wire_open(client, near, &token, false));
}

static const char *end_of(struct wire *wire)
{
    struct pollfd one = {.fd = wire->descriptor, .events = POLLIN};
    const struct wire_head *head;
    const void *bytes;

    CHECK(poll(&one, 1, 10000) == 1);
    EQUAL_INT(wire_get(wire, &head, &bytes), ERR_PEER);
    return status_message();
}

/* The supervisor tells an agent that died from one that only gave up its
 * connection: ranks of the second may live. */
TEST(a_connection_that_is_given_up_is_reset)
{
    struct wire server, client;

    open_tcp(&server, &client);
    client.resets = true;
    wire_close(&client);
    CHECK(strstr(end_of(&server), "broke") != NULL);
    status_clear();
    open_tcp(&server, &client);
    close(client.descriptor); /* as the end of a process does */
    CHECK(strstr(end_of(&server), "was closed") != NULL);
    status_clear();
}

/* A reader that takes a little now and then, longer than it may be silent. */
enum { SILENCE_MS = 2000, SIPS = 10, SIP_MS = 250, SIP_BYTES = 1 << 16 };

static void *sip(void *argument)
{
    const int descriptor = *(int *)argument;
    static char bytes[SIP_BYTES];
    ssize_t got;
    int sips = 0;

    do {
        got = recv(descriptor, bytes, sizeof bytes, MSG_WAITALL);
        if (sips++ < SIPS) usleep(SIP_MS * 1000);
    } while (got > 0);
    return NULL;
}

TEST(bytes_that_move_slowly_have_time)
{
    const size_t length = SIPS * SIP_BYTES + (1 << 21);
    char *bytes = calloc(length, 1);
    const int64_t began = clock_ns();
    struct pair p;
    pthread_t reader;

    open_pair(&p);
    patience_set(SILENCE_MS);
    CHECK(bytes != NULL);
    CHECK(fcntl(p.tap_server, F_SETFL, 0) == 0);
    CHECK(pthread_create(&reader, NULL, sip, &p.tap_server) == 0);
    IS_OK(wire_put_bulk(&p.server, bytes, length));
    CHECK(clock_ns() - began > (int64_t)SILENCE_MS * 1000000);
    wire_close(&p.server);
    pthread_join(reader, NULL);
    /* Nobody reads at all. */
    FAILS(wire_put_bulk(&p.client, bytes, length), ERR_PEER, "no answer");
    patience_set(0);
    free(bytes);
    close_pair(&p);
}

/* A reader that makes room for the beginning of a message late, and for the
 * rest as late again. */
static void *wake_twice(void *argument)
{
    struct pair *p = argument;
    static char bytes[1 << 16];

    usleep(700000);
    CHECK(recv(p->tap_server, bytes, sizeof bytes, MSG_WAITALL) > 0);
    usleep(800000);
    while (recv(p->tap_server, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        continue;
    return NULL;
}

/* The deadline was one of the head and one of the bytes. */
TEST(a_message_has_one_deadline)
{
    static char bytes[300000]; /* more than waits in a socket */
    struct pair p;
    pthread_t reader;

    open_pair(&p);
    while (send(p.server.descriptor, bytes, 1 << 14, MSG_DONTWAIT) > 0)
        continue;
    const int64_t began = clock_ns();

    CHECK(pthread_create(&reader, NULL, wake_twice, &p) == 0);
    FAILS(wire_put(&p.server, 7, bytes, sizeof bytes), ERR_PEER, "no answer");
    CHECK(clock_ns() - began >= (int64_t)WIRE_SEND_MS * 1000000);
    pthread_join(reader, NULL);
    close_pair(&p);
}

TEST_MAIN(a_message_has_one_deadline,
          a_connection_that_is_given_up_is_reset,
          messages_arrive_in_order,
          what_is_changed_ends_the_connection,
          the_end_is_noticed,
          bytes_that_move_slowly_have_time)
