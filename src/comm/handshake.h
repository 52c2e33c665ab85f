/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.h - the handshake of two processes of a job: a listener (a door)
 * lets in only clients that know the token of the job.
 *
 *   client   hello       who I am, what I want, a number drawn at random
 *   server   challenge   a number drawn at random, proof that I know the token
 *   client   proof       proof that I know it, too
 *   server   answer      come in, or one sentence why not
 *
 * A proof is an HMAC-SHA256, keyed with the token, of the role, both numbers
 * and the hello. Both numbers are new with each connection, so what was
 * recorded once proves nothing later. The roles differ, so a proof cannot be
 * sent back to the side that made it. All four records have fixed sizes. Until
 * the proof nothing is taken from a client but the first two of its records. A
 * client that has not proved itself within DOOR_MS (where round trips are slow,
 * later: comm/patience.h) is dropped; where too many
 * come, the oldest gives way after DOOR_CROWDED_MS, and until then they wait in
 * the listener's queue. A client without the token gets no answer.
 * After the answer, packets are checked against damage, not against an attacker
 * who changes them under way (docs/communication.md). */
#ifndef LOCKSTEP_COMM_HANDSHAKE_H
#define LOCKSTEP_COMM_HANDSHAKE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/file.h"

enum {
    DOOR_MS = 2000,
    DOOR_CROWDED_MS = 500,  /* that every client has, however many come */
    DOOR_CLIENTS = 64,      /* that have not proved themselves yet */
    DOOR_POLLS = DOOR_CLIENTS + 1,
    DOOR_ADDRESS_BYTES = 80,
    DOOR_SENTENCE_BYTES = 124,
    DOOR_RECORD_BYTES = 192 /* a hello and a proof */
};

struct token { unsigned char key[SHA256_BYTES]; };

/* The client, as it introduces itself. The proof covers all of it. */
struct visitor {
    uint32_t purpose;     /* enum door_purpose */
    int32_t rank, size;
    uint64_t generation;
    uint64_t job;         /* two jobs on one machine do not mix */
    char address[DOOR_ADDRESS_BYTES]; /* where it listens itself; "" */
};
enum door_purpose { DOOR_MEET = 1, DOOR_LINK, DOOR_AGENT,
                    DOOR_FILES /* of a machine's stores (control/far_files.h) */
};

struct door_client {
    int descriptor;       /* -1: free */
    int64_t came_ns, end_ns; /* then it is dropped */
    size_t got;
    bool challenged;
    _Alignas(8) unsigned char record[DOOR_RECORD_BYTES]; /* a struct hello */
    unsigned char nonce[SHA256_BYTES];
};

/* How a knock ended. */
enum door_end { DOOR_IN,
                DOOR_NOBODY,  /* the machine is there, and nobody listens */
                DOOR_NO_WAY,  /* so it is, as far as this machine can send: of
                               * IPv4 and IPv6 one refused at all addresses of
                               * the name, and it has no way to any of the
                               * other; of one address: it has none */
                DOOR_LATE,    /* no answer in time */
                DOOR_REFUSED, /* somebody is there, who does not let in */
                DOOR_UNKNOWN  /* no way there, or no such address */ };

struct door {
    int listener;         /* -1: closed */
    struct token token;
    uint64_t job;
    char address[DOOR_ADDRESS_BYTES]; /* HOST:PORT where it listens */
    struct door_client clients[DOOR_CLIENTS];
    int64_t refused;      /* clients that did not prove themselves */
};

/* A new token. */
status token_draw(struct token *token);
/* The token in a file of 64 hexadecimal digits and nothing else but the end of
 * the line. ERR_CONFIG: others can read the file. */
status token_read(struct token *token, const char *path);
/* Writes it: mode 0600, ERR_IO if there is such a file. */
status token_write(const struct token *token, const char *path);

/* address: HOST:PORT, port 0: any that is free. ERR_CONFIG: none, or taken for
 * 3 s. */
status door_open(struct door *door, const char *address,
                 const struct token *token, uint64_t job);
void door_close(struct door *door); /* also right for a zeroed one */
/* Fills polls [DOOR_POLLS] and returns how many. */
int door_polls(const struct door *door, struct pollfd *polls);
/* Goes on with what poll said. True: a client proved itself. It is in *visitor
 * and *descriptor, which is the caller's, and waits for door_answer. Call it
 * until it says false. */
bool door_step(struct door *door, struct visitor *visitor, int *descriptor);
/* why NULL or "": come in. Otherwise the descriptor is closed. */
status door_answer(int *descriptor, const char *why);

/* The client's side. Waits until it is in, or limit_ms; up to three times as
 * long where somebody is there whose round trips are slow. The descriptor does
 * not block (O_NONBLOCK). ERR_PEER: nobody there, or refused, and why; *end
 * (NULL allowed) says which. */
status door_knock(int *descriptor, const char *address,
                  const struct visitor *self, const struct token *token,
                  int64_t limit_ms, enum door_end *end);
/* Whole reads and writes of a descriptor that does not block. ERR_PEER. */
status door_read(int descriptor, void *bytes, size_t length, int64_t end_ns);
status door_write(int descriptor, const void *bytes, size_t length,
                  int64_t end_ns);
/* ERR_PEER, with a sentence for that error of a connection: a machine that
 * acknowledges nothing any more (patience_tell) is told from other ends. */
status door_broke(int error);
/* They take as long as they must, while bytes move within each idle_ms. */
status door_read_bulk(int descriptor, void *bytes, size_t length,
                      int64_t idle_ms);
status door_write_bulk(int descriptor, const void *bytes, size_t length,
                       int64_t idle_ms);
/* The address of a listener as others may give it: one that listens at all
 * addresses of this machine is reached by the machine's name. */
void door_reached(const char *address, char out[DOOR_ADDRESS_BYTES]);
/* The address is this machine's own; no other one can reach it. */
bool door_is_loopback(const char *address);
/* HOST:PORT of the other end of a connection; "": nobody knows. */
void door_far_side(int descriptor, char out[DOOR_ADDRESS_BYTES]);
/* The address of a listener as it is reached from here: one that listens at all
 * addresses of the machine to which the connection goes is reached there. */
void door_through(char address[DOOR_ADDRESS_BYTES], int descriptor);
/* HOST:0 of this machine, as it is seen from an address that it can reach. */
status door_near_side(const char *address, char out[DOOR_ADDRESS_BYTES]);

#endif
