/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - messages between the control plane and its agents.
 *
 *   head     kind, bytes, number of the message, proof
 *   bytes    a record, or words
 *
 * A connection begins with a handshake (comm/handshake.h); then its server
 * sends a number drawn at random. Each proof is an HMAC-SHA256, keyed with the
 * token, of that number, the side that sends, the head and the SHA-256 of the
 * bytes. Messages are numbered: one that is forged, repeated, left out or sent
 * back ends the connection. Nothing is waited for, and no message may have more
 * than WIRE_BYTES. */
#ifndef LOCKSTEP_CONTROL_WIRE_H
#define LOCKSTEP_CONTROL_WIRE_H

#include "comm/handshake.h"

enum { WIRE_BYTES = 1 << 20, WIRE_SEND_MS = 1000,
       WIRE_SEND_MORE_MS = 2500, /* where round trips are slow */
       WIRE_WHY_BYTES = 80 };

struct wire_head {
    uint32_t kind, bytes;
    uint64_t number;
    unsigned char proof[SHA256_BYTES];
};

struct wire {
    int descriptor;          /* -1: closed */
    bool serves;             /* this side opened the door */
    bool resets;             /* closed by a reset, so that the other side can
                              * tell it from the end of this process */
    struct token token;
    unsigned char session[SHA256_BYTES];
    uint64_t sent, taken;
    int64_t heard_ns;        /* when a message last came */
    char *bytes;             /* owned: what has come; zero: nothing yet */
    size_t room, got, held;  /* held: of the message that was given out */
    char why[WIRE_WHY_BYTES];/* closed by a failure: which; "": by none */
};

/* Behind a door, on both sides. The descriptor is the wire's, also after an
 * error. ERR_PEER. */
status wire_open(struct wire *wire, int descriptor, const struct token *token,
                 bool serves);
void wire_close(struct wire *wire); /* zeroed: only if descriptor is -1 */
/* ERR_PEER: it is gone, or does not read; the wire is closed. */
status wire_put(struct wire *wire, uint32_t kind, const void *bytes,
                size_t length);
/* Bytes of any length behind a message, which says their checksum. They take
 * as long as they must; a peer that reads or sends none for as long as a
 * connection may be silent (comm/patience.h) is gone. ERR_PEER. */
status wire_put_bulk(struct wire *wire, const void *bytes, size_t length);
status wire_get_bulk(struct wire *wire, void *bytes, size_t length);
/* The next message that is whole; *head NULL: there is none now. It stays until
 * the next call. ERR_PEER: gone, or forged; the wire is closed. */
status wire_get(struct wire *wire, const struct wire_head **head,
                const void **bytes);

#endif
