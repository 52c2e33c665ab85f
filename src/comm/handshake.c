/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.c - the server's side of a handshake: a listener, and clients that
 * have not proved themselves yet. */
#include "base/clock.h"
#include "comm/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/handshake_records.h"
#include "comm/patience.h"

status door_open(struct door *door, const char *address,
                 const struct token *token, uint64_t job)
{
    *door = (struct door){.listener = -1, .token = *token, .job = job};
    for (int i = 0; i < DOOR_CLIENTS; i++) door->clients[i].descriptor = -1;
    TRY(socket_listen(&door->listener, address, door->address));
    return OK;
}

static void client_drop(struct door_client *client)
{
    if (client->descriptor >= 0) close(client->descriptor);
    *client = (struct door_client){.descriptor = -1};
}

void door_close(struct door *door)
{
    if (door->address[0] == '\0') return; /* zeroed, or closed before */
    for (int i = 0; i < DOOR_CLIENTS; i++) client_drop(&door->clients[i]);
    close(door->listener);
    *door = (struct door){.listener = -1};
}

/* A free place, or that of the client that has been here for longest, if it had
 * its time; NULL: there is none now, and who comes waits outside. Many ranks
 * that come at once would otherwise drive each other out. */
static const struct door_client *place_for_one(const struct door *door)
{
    const struct door_client *oldest = &door->clients[0];

    for (int i = 0; i < DOOR_CLIENTS; i++) {
        const struct door_client *c = &door->clients[i];

        if (c->descriptor < 0) return c;
        if (c->came_ns < oldest->came_ns) oldest = c;
    }
    return clock_ns() - oldest->came_ns > (int64_t)DOOR_CROWDED_MS * 1000000
               ? oldest : NULL;
}

int door_polls(const struct door *door, struct pollfd *polls)
{
    int count = 0;

    if (place_for_one(door) != NULL)
        polls[count++] = (struct pollfd){.fd = door->listener,
                                         .events = POLLIN};
    for (int i = 0; i < DOOR_CLIENTS; i++)
        if (door->clients[i].descriptor >= 0)
            polls[count++] = (struct pollfd){
                .fd = door->clients[i].descriptor, .events = POLLIN};
    return count;
}

static void welcome(struct door *door)
{
    for (int i = 0; i < DOOR_CLIENTS; i++) {
        const struct door_client *place = place_for_one(door);
        struct door_client *client;
        int descriptor;

        if (place == NULL) return;
        descriptor = accept4(door->listener, NULL, NULL,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (descriptor < 0) return;
        client = &door->clients[place - door->clients];
        if (client->descriptor >= 0) door->refused++;
        client_drop(client);
        *client = (struct door_client){.descriptor = descriptor,
                                       .came_ns = clock_ns()};
        client->end_ns = client->came_ns +
                         (DOOR_MS + patience_more_ms(descriptor)) * 1000000;
    }
}

/* The challenge fits into the empty buffer of a new connection. */
static bool challenge(const struct door *door, struct door_client *client)
{
    const struct hello *hello = (const void *)client->record;
    struct challenge record;

    if (!hello_is_sound(hello, door->job)) return false;
    if (draw_bytes(client->nonce, sizeof client->nonce) != OK) return false;
    memcpy(record.nonce, client->nonce, sizeof record.nonce);
    if (proof_make(&door->token, "server", hello, client->nonce,
                   record.proof) != OK)
        return false;
    client->challenged = true;
    return send(client->descriptor, &record, sizeof record, MSG_NOSIGNAL) ==
           (ssize_t)sizeof record;
}

enum client_news { CLIENT_WAITS, CLIENT_BAD, CLIENT_PROVED };

static enum client_news client_step(const struct door *door,
                                    struct door_client *client)
{
    const struct hello *hello = (const void *)client->record;
    unsigned char expected[SHA256_BYTES];

    for (;;) {
        const size_t want = client->challenged
                                ? sizeof(struct hello) + SHA256_BYTES
                                : sizeof(struct hello);
        const ssize_t got = recv(client->descriptor,
                                 client->record + client->got,
                                 want - client->got, 0);

        if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (got <= 0) return CLIENT_BAD;
        client->got += (size_t)got;
        if (client->got < want) continue;
        if (!client->challenged) {
            if (!challenge(door, client)) return CLIENT_BAD;
            continue;
        }
        if (proof_make(&door->token, "client", hello, client->nonce,
                       expected) != OK)
            return CLIENT_BAD;
        return hmac_equal(expected, client->record + sizeof *hello)
                   ? CLIENT_PROVED : CLIENT_BAD;
    }
    return clock_ns() > client->end_ns ? CLIENT_BAD : CLIENT_WAITS;
}

bool door_step(struct door *door, struct visitor *visitor, int *descriptor)
{
    welcome(door);
    for (int i = 0; i < DOOR_CLIENTS; i++) {
        struct door_client *c = &door->clients[i];
        enum client_news news;

        if (c->descriptor < 0) continue;
        news = client_step(door, c);
        if (news == CLIENT_WAITS) continue;
        if (news == CLIENT_BAD) {
            door->refused++;
            client_drop(c);
            continue;
        }
        *visitor = ((const struct hello *)(const void *)c->record)->visitor;
        *descriptor = c->descriptor;
        c->descriptor = -1;
        client_drop(c);
        return true;
    }
    return false;
}

status door_answer(int *descriptor, const char *why)
{
    const int64_t end = clock_ns() + (int64_t)DOOR_MS * 1000000;
    struct answer_record answer = {.refused = why != NULL && why[0] != '\0'};
    status result;

    if (answer.refused)
        snprintf(answer.sentence, sizeof answer.sentence, "%s", why);
    result = door_write(*descriptor, &answer, sizeof answer, end);
    if (result == OK && !answer.refused) {
        patience_tell(*descriptor, patience_ms(*descriptor));
        return OK;
    }
    close(*descriptor);
    *descriptor = -1;
    return result;
}
