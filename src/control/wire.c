/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - messages between the control plane and its agents. */
#include "control/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "comm/patience.h"

/* For all of a message: a supervisor that waits for one peer serves no
 * other. */
static int64_t send_end(const struct wire *wire)
{
    const int64_t more = patience_more_ms(wire->descriptor);

    return clock_ns() + (WIRE_SEND_MS + (more < WIRE_SEND_MORE_MS
                                             ? more : WIRE_SEND_MORE_MS)) *
                            1000000;
}

void wire_close(struct wire *wire)
{
    const struct linger at_once = {.l_onoff = 1};

    if (wire->descriptor >= 0 && wire->resets)
        setsockopt(wire->descriptor, SOL_SOCKET, SO_LINGER, &at_once,
                   sizeof at_once);
    if (wire->descriptor >= 0) close(wire->descriptor);
    memory_free(wire->bytes);
    *wire = (struct wire){.descriptor = -1};
}

/* Says why to whoever finds it closed. */
static status fail_broken(struct wire *wire, status result)
{
    wire_close(wire);
    snprintf(wire->why, sizeof wire->why, "%s", status_message());
    return status_pass(result, __FILE__, __LINE__);
}

static status open_session(struct wire *wire)
{
    if (!wire->serves)
        return door_read(wire->descriptor, wire->session,
                         sizeof wire->session, send_end(wire));
    if (getrandom(wire->session, sizeof wire->session, 0) !=
        (ssize_t)sizeof wire->session)
        FAIL(ERR_IO, "no random numbers from the system: %s", strerror(errno));
    return door_write(wire->descriptor, wire->session, sizeof wire->session,
                      send_end(wire));
}

status wire_open(struct wire *wire, int descriptor, const struct token *token,
                 bool serves)
{
    status result;

    *wire = (struct wire){.descriptor = descriptor, .serves = serves,
                          .token = *token, .heard_ns = clock_ns()};
    result = open_session(wire);
    return result == OK ? OK : fail_broken(wire, result);
}

static status prove(const struct wire *wire, bool server,
                    const struct wire_head *head, const void *bytes,
                    unsigned char proof[SHA256_BYTES])
{
    struct {
        unsigned char session[SHA256_BYTES];
        uint32_t kind, bytes;
        uint64_t number, server;
        char hash[72];
    } text = {.kind = head->kind, .bytes = head->bytes,
              .number = head->number, .server = server};

    memcpy(text.session, wire->session, sizeof text.session);
    sha256_hex(bytes, head->bytes, text.hash);
    return hmac_sha256(wire->token.key, &text, sizeof text, proof);
}

status wire_put(struct wire *wire, uint32_t kind, const void *bytes,
                size_t length)
{
    struct wire_head head = {.kind = kind, .bytes = (uint32_t)length,
                             .number = wire->sent + 1};
    const int64_t end = send_end(wire);
    status result;

    CHECK(length <= WIRE_BYTES);
    if (wire->descriptor < 0) FAIL(ERR_PEER, "the connection is closed");
    result = prove(wire, wire->serves, &head, bytes, head.proof);
    if (result == OK)
        result = door_write(wire->descriptor, &head, sizeof head, end);
    if (result == OK && length > 0)
        result = door_write(wire->descriptor, bytes, length, end);
    wire->sent++;
    return result == OK ? OK : fail_broken(wire, result);
}

/* Forgets the message that was given out before. */
static void drop_taken(struct wire *wire)
{
    if (wire->held == 0) return;
    wire->got -= wire->held;
    memmove(wire->bytes, wire->bytes + wire->held, wire->got);
    wire->held = 0;
}

/* Whether a whole message is there; its head has been looked at. */
static status look(struct wire *wire, bool *whole)
{
    const struct wire_head *head = (const void *)wire->bytes;
    unsigned char proof[SHA256_BYTES];

    *whole = false;
    if (wire->got < sizeof *head) return OK;
    if (head->bytes > WIRE_BYTES || head->number != wire->taken + 1)
        FAIL(ERR_PEER, "a message of the control plane makes no sense");
    if (wire->got < sizeof *head + head->bytes) return OK;
    TRY(prove(wire, !wire->serves, head, head + 1, proof));
    if (!hmac_equal(proof, head->proof))
        FAIL(ERR_PEER, "a message of the control plane is forged");
    *whole = true;
    return OK;
}

static status fill(struct wire *wire, bool *more)
{
    const struct wire_head *head = (const void *)wire->bytes;
    size_t want = 4096;
    ssize_t got;

    if (wire->got >= sizeof *head) want = sizeof *head + head->bytes;
    if (want > wire->room) {
        TRY(memory_grow((void **)&wire->bytes, want, 1));
        wire->room = want;
    }
    got = recv(wire->descriptor, wire->bytes + wire->got,
               wire->room - wire->got, MSG_DONTWAIT);
    *more = got > 0;
    if (got == 0) FAIL(ERR_PEER, "the connection was closed");
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        return door_broke(errno);
    if (got > 0) wire->got += (size_t)got;
    return OK;
}

static status next_message(struct wire *wire, bool *whole)
{
    bool more = true;

    if (wire->descriptor < 0) FAIL(ERR_PEER, "the connection is closed");
    TRY(look(wire, whole));
    while (!*whole && more) {
        TRY(fill(wire, &more));
        TRY(look(wire, whole));
    }
    return OK;
}

status wire_get(struct wire *wire, const struct wire_head **head,
                const void **bytes)
{
    status result;
    bool whole = false;

    *head = NULL;
    drop_taken(wire);
    result = next_message(wire, &whole);
    if (result != OK) return fail_broken(wire, result);
    if (!whole) return OK;
    *head = (const void *)wire->bytes;
    *bytes = *head + 1;
    wire->held = sizeof **head + (*head)->bytes;
    wire->taken++;
    wire->heard_ns = clock_ns();
    return OK;
}

status wire_put_bulk(struct wire *wire, const void *bytes, size_t length)
{
    status result;

    if (wire->descriptor < 0) FAIL(ERR_PEER, "the connection is closed");
    result = door_write_bulk(wire->descriptor, bytes, length,
                             patience_ms(wire->descriptor));
    return result == OK ? OK : fail_broken(wire, result);
}

/* Some may have come together with the message. */
status wire_get_bulk(struct wire *wire, void *bytes, size_t length)
{
    size_t here;
    status result;

    if (wire->descriptor < 0) FAIL(ERR_PEER, "the connection is closed");
    drop_taken(wire);
    here = wire->got < length ? wire->got : length;
    if (here > 0) {
        memcpy(bytes, wire->bytes, here);
        wire->got -= here;
        memmove(wire->bytes, wire->bytes + here, wire->got);
    }
    result = door_read_bulk(wire->descriptor, (char *)bytes + here,
                            length - here, patience_ms(wire->descriptor));
    return result == OK ? OK : fail_broken(wire, result);
}
