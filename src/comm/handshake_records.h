/* SPDX-License-Identifier: Apache-2.0 */
/* handshake_records.h - records of a handshake, and sockets. All machines of a
 * job are of one kind, little endian: numbers travel as they are in memory. */
#ifndef LOCKSTEP_COMM_HANDSHAKE_RECORDS_H
#define LOCKSTEP_COMM_HANDSHAKE_RECORDS_H

#include "comm/handshake.h"

/* Raised when a message of any kind changes its form: beats carry the time of
 * the newest report since 2, reports say which rank is wrong since 3 and what
 * instruction a rank performs since 4, beats how long a lease is since 6,
 * copies end with the checksum of their rows as they left, and reports say how
 * long a rank was kept, since 7; checksums have 64 bits, and reports say for
 * which nodes a rank waits, since 8; calls have a peer, and agents are asked
 * for more of them, since 9; reports say how long a step waits for its copy,
 * and which share travelled in idle time, since 10. */
enum { DOOR_VERSION = 10 };

struct hello {
    char magic[8];              /* "LOCKSTEP" */
    uint32_t version, zero;
    struct visitor visitor;
    unsigned char nonce[SHA256_BYTES];
};
_Static_assert(sizeof(struct hello) == 160, "a record has no holes");
_Static_assert(sizeof(struct hello) + SHA256_BYTES == DOOR_RECORD_BYTES,
               "a hello and a proof");

struct challenge { unsigned char nonce[SHA256_BYTES], proof[SHA256_BYTES]; };

struct answer_record {
    uint32_t refused;
    char sentence[DOOR_SENTENCE_BYTES];
};

bool hello_is_sound(const struct hello *hello, uint64_t job);
status proof_make(const struct token *token, const char *role,
                  const struct hello *hello,
                  const unsigned char nonce[SHA256_BYTES],
                  unsigned char proof[SHA256_BYTES]);
status draw_bytes(void *out, size_t length);

/* A listener that does not block; where: HOST:PORT as it came to be. */
status socket_listen(int *out, const char *address,
                     char where[DOOR_ADDRESS_BYTES]);
/* *end: any but DOOR_REFUSED. */
status socket_connect(int *out, const char *address, int64_t end_ns,
                      enum door_end *end);

#endif
