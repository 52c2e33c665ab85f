/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - the frames that travel on a connection of two ranks: of a fixed
 * size, some with bytes behind them.
 *
 *   small    a message and its bytes; the receiver keeps them until they are
 *            asked for. At most SMALL_WINDOW that were not yet read, and
 *            an answer for each message that its receiver has sent
 *   placed   a message whose bytes lie in the sender's part of shared memory
 *   offer    a message that waits in the sender's memory
 *   want     the receiver is ready for an offer
 *   bytes    the bytes of an offer
 *   read     a message was read (or has another size than expected)
 *   farewell the rank has given up, and why
 *   question for whom do you wait? (wait_chain.h); answer: the rank, or -1
 *   leaving  nothing more will come
 *
 * Everything that is kept for a peer is bounded: the bytes of a message that
 * was not asked for are taken only up to SMALL_BYTES. */
#ifndef LOCKSTEP_COMM_FRAME_H
#define LOCKSTEP_COMM_FRAME_H

#include <stdbool.h>
#include <stdint.h>

enum frame_kind {
    FRAME_SMALL = 1, FRAME_PLACED, FRAME_OFFER, FRAME_WANT, FRAME_BYTES,
    FRAME_READ, FRAME_FAREWELL, FRAME_QUESTION, FRAME_ANSWER, FRAME_LEAVING
};

enum {
    FRAME_MAGIC = 0x4b534c33,
    SMALL_BYTES = 16384,  /* of a message that travels unasked */
    SMALL_WINDOW = 64,    /* of those, on one connection, not yet read */
    OFFERS_MOST = 65536   /* messages that a peer may offer at once */
};

struct frame {
    uint32_t magic;
    uint16_t kind, refused; /* refused: of read */
    uint64_t generation, context, tag;
    uint64_t id;          /* of the message, by its sender */
    int64_t bytes;        /* of the message */
    uint64_t place;       /* in the sender's part of shared memory */
    int32_t rank;         /* of farewell and answer */
    uint32_t bytes_crc;   /* CRC-32C of the bytes that follow */
    uint32_t zero, crc;   /* of all before crc */
};

void frame_seal(struct frame *frame);
/* NULL: sound. Otherwise what is wrong with it. */
const char *frame_fault(const struct frame *frame, uint64_t generation);
/* Bytes that follow it. */
int64_t frame_follow(const struct frame *frame);

#endif
