/* SPDX-License-Identifier: Apache-2.0 */
/* peer_link.h - the ranks of a world, and of a group, that read each other's
 * memory. Private to peers.c, peer_calls.c and peer_messages.c. */
#ifndef LOCKSTEP_COMM_PEER_LINK_H
#define LOCKSTEP_COMM_PEER_LINK_H

#include "comm/peers.h"

/* Events of messages that a rank may have open; the others are of calls of
 * groups, one for each channel. */
enum { OPEN_SENDS = 24, CALL_EVENTS = PEER_EVENTS - OPEN_SENDS };

struct peers {
    struct group *world;      /* borrowed */
    struct device *device;    /* borrowed */
    struct peer_shown *shown; /* owned, [size]: of all ranks */
    struct peer_met *met;     /* owned, [size] */
    unsigned char *reach;     /* owned, [size size]: whether rank i reads j */
    bool sends[OPEN_SENDS];   /* whose event a message has */
    bool failed;              /* then nobody waits for the others at the end */
    char why[PEER_WHY_BYTES];
};

/* A rank tells another one in a call. */
struct talk {
    int64_t event;            /* number of its event */
    struct peer_place from;   /* what the other one reads: a block of its roots,
                               * or of what it sends */
    struct comm_block block;  /* its form; no address */
    struct peer_place result; /* the rank's block of a sum */
};
struct peer_link {
    struct peers *peers;      /* borrowed */
    int number;
    bool all;                 /* are near */
    bool *near;               /* owned, [size]: PEERS_SOME has them */
    struct talk *mine[CHANNEL_COUNT], *theirs[CHANNEL_COUNT]; /* owned */
};

/* Where this rank's GPU finds what rank `peer` of the group shows. */
status peers_place(const struct operation *operation, int peer,
                   struct peer_place place, int64_t extent, char **out);

/* A whole message. */
status peers_send(struct operation *operation);
status peers_receive(struct operation *operation);

#endif
