/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.h - the supervisor's view of its agents: nodes with places. It writes
 * what they report into the supervisor's own board and crew, so that watching
 * far ranks is the same as watching children. Private to control. */
#ifndef LOCKSTEP_CONTROL_FLEET_H
#define LOCKSTEP_CONTROL_FLEET_H

#include "comm/crew.h"
#include "control/place.h"

enum { NEWCOMERS = 16, NODE_FAILURES_MOST = 2,
       /* A place that fails again within a minute is left out for a while. */
       SEAT_MEMORY_MS = 60000, SEAT_PAUSE_MS = 2000, SEAT_PAUSE_MOST_MS = 600000
};

struct seat {
    int failures;          /* within SEAT_MEMORY_MS of each other */
    int64_t failed_ns;
    uint64_t failed_order; /* the last with which a rank failed here */
    struct slot_report report; /* the newest; process 0: none yet */
};

struct node {
    struct wire wire;      /* descriptor -1: it is gone */
    char name[NODE_NAME_BYTES], address[DOOR_ADDRESS_BYTES];
    int slots, places;
    int failures;          /* times that it was lost with ranks, each within a
                            * day of the one before; when last */
    int64_t failed_ns;
    int group;             /* of nodes that keep copies for each other; -1 */
    int partners[PARTNERS_MOST]; /* keep copies of its ranks; -1: none does */
    int holders[PARTNERS_MOST];  /* have such copies, as it said last; -1 */
    uint64_t turn;         /* raised when the partners change */
    bool here;             /* its loss has not been told */
    bool reported;
    bool wrong;            /* it computes wrong numbers: never used again */
    bool unfenced;         /* its ranks did not end: it is not used until they
                            * have */
    uint64_t joined_order; /* the last order before this connection: what its
                            * first report does not have is lost */
    int64_t lost_ns;       /* when; 0: never */
    int64_t heard_ns, echo_ns; /* when its newest report came; its own clock */
    int64_t silent_ns;     /* its ranks may live until then */
    int64_t leased_ns;     /* their leases end by then */
    int64_t told_ms;       /* how much longer they are, as was told last */
    int64_t asked_ns;      /* when the oldest beat was sent that it has not
                            * heard; 0: it has heard all */
    struct seat *seats;    /* owned, [places] */
};

/* order 0: none now; last: the one before. */
struct rank_seat { int node, place; uint64_t order, last; };

/* Where copies of a rank are; -1: unknown. others: where they are, too, once
 * its own node is lost. */
struct rank_home { int node, others[PARTNERS_MOST]; bool lost; };

/* Calls of a rank's recorder that are still to be asked for. */
struct rank_records {
    uint64_t newest;       /* the newest call of the next piece; 0: of all */
    int32_t left;          /* calls that are still wanted */
    bool asked;            /* an answer may come */
};

struct fleet {
    struct crew *crew;     /* borrowed, with board */
    struct board *board;
    struct crew_far far;
    struct door door;
    struct token token;
    struct wire newcomers[NEWCOMERS];
    struct node nodes[NODES_MOST];
    int count;
    struct rank_seat *at;  /* owned, [most]: of the generation's ranks */
    struct rank_home *home; /* owned, [most] */
    struct rank_records *records; /* owned, within fleet_records; else NULL */
    int most;
    int replicas;          /* nodes with copies of a rank, its own included */
    uint64_t last_order;
    int moved;             /* answers to fleet_move */
    int losses;            /* of nodes, so far */
    char survives[256];    /* as it was told last */
    bool paired;           /* partners have changed since */
    int64_t beat_ns;
    int64_t lease_most_ms; /* no lease is longer: the journal has it; */
    int64_t lease_wish_ms; /* what a node needs */
    int64_t refused_ns;    /* until when a refusal needs no line */
    bool adopts;           /* ranks of another supervisor are left alone */
    struct node_stores stores; /* where nodes keep shards; "": they do not */
};

status fleet_open(struct fleet *fleet, const char *listen,
                  const struct token *token, int most, int replicas);
void fleet_close(struct fleet *fleet); /* zeroed: allowed */
/* Tells all agents that the run is over, and waits until they have heard it,
 * 2 s at most. */
void fleet_end(struct fleet *fleet);

/* Listens for at most wait_ms. */
void fleet_look(struct fleet *fleet, int wait_ms);
/* Places that could be ranks now. */
int fleet_usable(const struct fleet *fleet);
int fleet_nodes(const struct fleet *fleet); /* that are here */
/* The newcomer, or one that is here, is at the loopback address, where *other
 * cannot reach it if that is another machine; NULL: neither. */
const struct node *fleet_hidden(const struct fleet *fleet,
                                const struct node *newcomer,
                                const struct node **other);
void fleet_tell_hidden(const struct fleet *fleet, const struct node *newcomer);
/* Chooses a place for each of the crew's ranks, near its copies, the best
 * first; crowded: more than one for a slot, if it must be. ERR_PEER: too few.
 */
status fleet_seat(struct fleet *fleet, bool crowded);
/* Sends the order of a rank to its place. */
status fleet_order(struct fleet *fleet, int rank, struct order *order);
/* Believes that the rank is there, for a supervisor that takes over. */
void fleet_believe(struct fleet *fleet, int rank, const char *node, int place,
                   uint64_t order);
/* The node was lost with ranks. In a run of weeks, once is no reason to leave
 * it out when it is lost again. */
void fleet_count_failure(struct node *node);
/* Nodes that failed twice are used again; false: there are none. */
bool fleet_forgive(struct fleet *fleet);
/* Every node that was ever here computes wrong numbers. */
bool fleet_is_wrong(const struct fleet *fleet);
/* A rank of the generation failed: its place is trusted less. */
void fleet_blame(struct fleet *fleet, int rank);
/* It computed wrong numbers, again and again: its node is not used again. */
void fleet_quarantine(struct fleet *fleet, int rank);

/* fleet_records.c */
/* Asks the agents for their ranks' calls, the newest first, and writes them to
 * the board, in bounded time. Those of a rank on a lost node stay as its last
 * report had them. */
void fleet_records(struct fleet *fleet);
void fleet_take_records(struct fleet *fleet, int index, const char *bytes,
                        size_t length);
/* Notes a call of another machine, with the times of this one's clock. */
void fleet_note_call(struct flight *flight, const struct flight_entry *said,
                     int64_t ahead_ns);
/* A time of another machine by this one's clock; 0: none, or none that makes
 * sense. */
int64_t fleet_time(int64_t then_ns, int64_t ahead_ns);

/* fleet_copies.c */
/* A node whose group and partners are still to be found. */
void fleet_unpaired(struct node *node);
/* The agent says which of its partners have copies of its ranks. */
void fleet_held(struct fleet *fleet, int index, uint64_t turn, uint32_t held);
/* The rank's copies are on that node, and where those of its ranks are. */
void fleet_settle(struct fleet *fleet, int rank, int node);
/* The node is lost: its ranks' copies are elsewhere, or nowhere. */
void fleet_homeless(struct fleet *fleet, int index);
/* Decides who keeps copies for whom, whenever a node came or went. */
void fleet_pair(struct fleet *fleet);
/* Copies of ranks that were seated elsewhere are brought there. */
void fleet_move(struct fleet *fleet);
/* "copies on 4 nodes: any one may be lost; of two at once 4 of 6 pairs, not a
 * and b, c and d"; "" for one node. */
void fleet_survives(const struct fleet *fleet, char out[256]);

#endif
