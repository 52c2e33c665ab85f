/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - one connection to another rank: what waits to be sent on it, what
 * has come. Everything is done under the lock of the world. */
#ifndef LOCKSTEP_COMM_LINK_H
#define LOCKSTEP_COMM_LINK_H

#include "comm/frame.h"
#include "comm/message.h"

/* A frame on its way out, with the bytes behind it. */
struct outgoing {
    struct outgoing *next;
    struct frame frame;
    struct comm_block block;  /* bytes behind the frame */
    int64_t sent;             /* of frame and bytes */
    struct sending *sending;  /* whose bytes these are; NULL: own[] */
    char own[SMALL_BYTES];
};

/* A message that waits in the caller's memory until it is read. */
struct sending {
    struct sending *next;
    struct comm_block block;
    uint64_t id;
    int peer;
    enum message_state state;
    bool writes;              /* its bytes are in the queue */
};

/* A message that has come, or is offered, and was not asked for yet. */
struct arrival {
    struct arrival *next;
    struct frame frame;
    char own[SMALL_BYTES];
};

/* Bytes that were asked for: where they go. */
struct taking {
    struct taking *next;
    struct comm_block block;
    uint64_t id;
    bool done, damaged;
};

struct link {
    int peer, descriptor;     /* -1: closed */
    bool left, died;          /* it said so; it did not */
    char fault[64];           /* why it was cut off; "": nothing was wrong */
    struct outgoing *out_first, *out_last;
    struct arrival *first, *last; /* in the order in which they came */
    int arrivals, unread;     /* kept here; small ones that it has not read */
    struct taking *takings;
    /* The frame that is just coming. */
    struct frame frame;
    int64_t got;              /* of frame and bytes */
    uint32_t crc;
    struct arrival *into;     /* of a small message */
    struct taking *taking;    /* of an offer */
    char reason[COMM_REASON_BYTES];
};

/* Free records, and the pages that all of them lie in: they belong to the
 * messages under way, as an MPI library's do, and are in no plan. */
struct link_stock {
    struct outgoing *outgoings;
    struct arrival *arrivals;
    struct sending *sendings;
    struct stock_slab *slabs; /* owned */
};
/* ERR_MEMORY. What is not needed any more goes back to the list. */
status stock_outgoing(struct link_stock *stock, struct outgoing **out);
status stock_arrival(struct link_stock *stock, struct arrival **out);
status stock_sending(struct link_stock *stock, struct sending **out);
void stock_free(struct link_stock *stock);

/* Byte `offset` of a simplified block, and how many follow there. */
char *block_at(const struct comm_block *block, int64_t offset, int64_t *bytes);

/* Puts it at the end of the queue; the frame is sealed with its checksums. */
void link_enqueue(struct link *link, struct outgoing *outgoing);
/* Sends what can be sent without waiting. False: the connection broke. */
bool link_flush(struct link *link, struct link_stock *stock);

/* Something that came and waits until it is asked for. */
void link_keep(struct link *link, struct arrival *arrival);

/* A whole frame has come, with its bytes where they belong. */
struct link_events {
    void *world;
    uint64_t generation;
    struct link_stock *stock;
    void (*came)(void *world, struct link *link);
};
/* Takes what has come, until there is no more. False: the connection ended or
 * broke, or sent what makes no sense; link->fault says what. */
bool link_receive(struct link *link, const struct link_events *events);
/* Closes it. What has come can still be taken. */
void link_close(struct link *link, struct link_stock *stock);
/* Forgets that, too. */
void link_forget(struct link *link, struct link_stock *stock);

#endif
