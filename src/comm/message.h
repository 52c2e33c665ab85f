/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - the interface of a back end: it carries one message from rank to
 * rank.
 *
 * The sender posts a message and later finishes it; in between the memory it
 * points at must not change. The receiver borrows the bytes (where the sender
 * is in the same memory, the sender's own) and gives them back. So a sum reads
 * the other rank's numbers in place, and nothing is copied twice.
 *
 * Messages match by (context, tag, source), oldest first. A context is one
 * incarnation of a group, a tag is the number of the call in it. */
#ifndef LOCKSTEP_COMM_MESSAGE_H
#define LOCKSTEP_COMM_MESSAGE_H

#include <stdatomic.h>
#include "comm/comm.h"

/* Waits go on in the caller and in the background thread of a rank. */
enum channel { CHANNEL_NOW, CHANNEL_BACKGROUND, CHANNEL_COUNT };

/* Messages of one operation that may be under way to each other rank: half of
 * them parts of what is summed, half of them parts of sums. */
enum { MESSAGES_EACH = 16 };

enum message_state { MESSAGE_POSTED, MESSAGE_TAKEN, MESSAGE_DONE,
                     MESSAGE_REFUSED };

struct message {
    struct comm_block block; /* borrowed until finished */
    int source, target;      /* ranks of the world */
    uint64_t context, tag;
    _Atomic int state;       /* enum message_state */
    struct message *next, *previous; /* in the target's mailbox */
    void *request;           /* of the back end */
};

/* The bytes that a receiver holds between borrow and give_back. They come in
 * the order in which they were sent, in any arrangement. */
struct parcel {
    struct comm_block block;
    struct message *message; /* of the sender; NULL: nothing to give back */
};

/* Set in the tag of messages that must not be taken for others of the same
 * operation: parts of sums, which overtake parts of what is summed. */
#define TAG_RESULT ((uint64_t)1 << 60)

struct operation {
    struct group *group;
    const struct comm_call *call;
    enum channel channel;
    enum algorithm algorithm; /* chosen */
    uint64_t tag;
    char *scratch;            /* what is left of it */
    size_t scratch_left;
    int64_t messages, bytes;  /* sent so far */
    int64_t between;          /* of the bytes, to other nodes */
};
/* Counts a message to a rank of the group: for back ends. */
void operation_sent(struct operation *operation, int peer, int64_t bytes);

/* `peer` is a rank of the group. */
struct comm_ops {
    const char *name;
    bool borrows; /* false: borrow fills the block that it is given */
    /* Something of the back end's own for a group, when it is built, by all of
     * its ranks; NULL: nothing. */
    status (*open)(struct group *group);
    void (*close)(struct group *group);
    status (*post)(struct operation *operation, int peer,
                   struct message *message);
    /* Until the receiver has read it; withdraw: at once, if it has not begun
     * to. The message is the caller's again whatever the status. */
    status (*finish)(struct operation *operation, struct message *message,
                     bool withdraw);
    /* parcel->block: where the bytes may be put (no data: nowhere, for a back
     * end that lends), then where they are. ERR_PEER: another size. */
    status (*borrow)(struct operation *operation, int peer,
                     struct parcel *parcel);
    void (*give_back)(struct operation *operation, struct parcel *parcel);
    void (*abort)(void *world, int rank, const char *reason);
    /* While something else moves the bytes of a call: ERR_PEER if a rank of
     * the group has given up, or is lost. */
    status (*look)(const struct operation *operation);
    /* The library's own sum over the world, for comparison; NULL: none. */
    status (*native_sum)(struct group *world, float *out, const float *in,
                         int64_t count);
};

/* One exchange: either half may be absent (rank -1, or no bytes). */
struct transfer {
    int to;
    const void *out;
    int64_t out_bytes;
    int from;
    void *in;
    int64_t in_bytes;
    bool combine; /* in = in (+) what came, by the call's reduction */
};
status transfer_run(struct operation *operation, const struct transfer *t);
/* Receives into a block. */
status block_take(struct operation *operation, int from,
                  const struct comm_block *in);

struct comm_block block_plain(const void *data, int64_t bytes);
int64_t block_bytes(const struct comm_block *block);
/* The same bytes in as few runs as can be; rows and planes at least 1. */
struct comm_block block_simplify(const struct comm_block *block);
/* As many bytes as `from` has. */
void block_copy(const struct comm_block *to, const struct comm_block *from);

/* The part of the scratch that borrow may fill: NULL if the back end needs
 * none. */
void *operation_room(struct operation *operation, int64_t bytes);
void *operation_scratch(struct operation *operation, int64_t bytes);

/* dst = a (+) b, elementwise, of the reduction; dst == a allowed. */
void combine(const struct comm_call *call, void *dst, const void *a,
             const void *b, int64_t bytes);

/* "all-reduce on group data". */
const char *operation_name(const struct operation *operation, char out[80]);
/* ERR_PEER: it ends because rank `aborter` gave up, for this reason. */
status operation_stopped(const struct operation *operation, int aborter,
                         const char *reason);
/* ERR_PEER: rank `missing` has not come in time. */
status operation_late(const struct operation *operation, int missing);

#endif
