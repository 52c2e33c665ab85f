/* SPDX-License-Identifier: Apache-2.0 */
/* place.h - the records of the control plane: what a supervisor orders, and
 * what an agent says of the places of its node. A place is a process that
 * waits for orders; with an order it is a rank, without one a warm spare. */
#ifndef LOCKSTEP_CONTROL_PLACE_H
#define LOCKSTEP_CONTROL_PLACE_H

#include <stdatomic.h>
#include "comm/flight.h"
#include "comm/thread_clock.h"
#include "control/board.h"
#include "control/lease.h"
#include "control/wire.h"

enum {
    NODES_MOST = 256, NODE_NAME_BYTES = 48, ORDER_BYTES = 16384,
    NODES_TEXT_BYTES = NODES_MOST * (NODE_NAME_BYTES + DOOR_ADDRESS_BYTES + 2),
    PLACES_MOST = 512,    /* of a node */
    PLACES_EXTRA = 64,    /* beyond its slots, while a layout is changed */
    NODE_BEAT_MS = 500,
    FENCE_GRACE_MS = 700, /* for a rank to give up by itself */
    REPORT_ENTRIES = 4,
    RECORDS_PIECE = 256   /* calls in an answer */
};

/* kind of a message (wire.h), and its bytes */
enum wire_kind {
    WIRE_HELLO = 1,   /* struct node_hello: the agent's first */
    WIRE_REPORT,      /* struct node_report, then a struct slot_report each */
    WIRE_BEAT,        /* struct node_beat: the supervisor lives */
    WIRE_ORDER,       /* struct order */
    WIRE_SIGNAL,      /* struct node_signal */
    WIRE_FENCE,       /* none: every rank of the node is to end */
    WIRE_MOVE,        /* struct node_move: copies of a rank go to a node */
    WIRE_MOVED,       /* struct node_move: they are there, or cannot be */
    WIRE_COPY,        /* struct copy_head, between agents; bytes follow */
    WIRE_OFFER,       /* struct copy_head: are those rows there? */
    WIRE_COPIED,      /* struct copy_head: an answer to either */
    WIRE_END,         /* none: the run is over */
    WIRE_STORES,      /* struct node_stores: where the node keeps shards */
    WIRE_FILE,        /* struct file_ask, to an agent (far_files.h) */
    WIRE_FILE_ANSWER, /* struct file_answer; bytes follow */
    WIRE_REFUSED,     /* struct node_refused: an agent is not taken */
    WIRE_RECORDS,     /* struct record_ask, to an agent */
    WIRE_RECORDS_ANSWER /* struct record_answer, then its flight_entry each */
};

struct node_hello {
    char name[NODE_NAME_BYTES];
    char address[DOOR_ADDRESS_BYTES]; /* where other agents knock */
    int32_t slots, places;
};

struct node_refused {
    int64_t silence_ms; /* its name may become free so late */
    char why[DOOR_SENTENCE_BYTES];
};

struct order {
    uint64_t number;      /* of all orders of a run, from 1; 0: none */
    uint64_t generation, job;
    int32_t place, rank, size, words;
    int32_t shares, here; /* all ranks are on this node; so many are */
    char meet[DOOR_ADDRESS_BYTES];
    char folder[1024];    /* where the supervisor was started */
    /* With checkpoint.local: a line "NAME ADDRESS" for each node; else "". */
    char nodes[NODES_TEXT_BYTES];
    char text[ORDER_BYTES]; /* words, each with its zero byte */
};

/* A node that keeps copies of this one's ranks; "": none does. */
struct node_partner {
    char name[NODE_NAME_BYTES], address[DOOR_ADDRESS_BYTES];
};

struct node_beat {
    int64_t echo_ns;      /* now_ns of the newest report: lease.h */
    int64_t sent_ns;      /* the supervisor's clock */
    int64_t lease_ms;     /* from echo_ns on */
    uint64_t turn;        /* raised when the partners change */
    struct node_partner partners[PARTNERS_MOST];
};

/* Both absolute, or below the folder where the supervisor was started. */
struct node_stores { char directory[PATH_BYTES], run[PATH_BYTES]; };

struct node_signal { uint64_t order; int32_t place, number; };

struct node_move {
    int32_t rank, whole;
    char name[NODE_NAME_BYTES];
    char address[DOOR_ADDRESS_BYTES];
};

struct node_report {
    int64_t now_ns;       /* the node's clock */
    int32_t places;       /* reports that follow */
    uint32_t held;        /* a bit for each partner that has a copy of every */
    uint64_t turn;        /* rank of the node; of the beat that named them */
    int64_t beat_ns;      /* sent_ns of the newest beat; 0: none yet */
};

struct slot_report {
    int32_t place, rank, size, lives; /* lives: its process does */
    int64_t process;
    uint64_t began, generation;
    uint64_t ordered, taken, done;  /* numbers of orders */
    uint64_t died_with;   /* the order with which its last process ended, */
    int32_t ended, state; /* as waitpid tells it; as ps prints it */
    int32_t phase, source, result, verdict;
    int64_t step, step_ns, step_most_ns, from_step, planned_ns,
        met_ppm, copied, carried; /* carried: to every partner; 0: none */
    struct copies_cost copies;
    struct kept_time kept;
    uint64_t beats, calls;
    struct flight_doing doing;
    char sentence[BOARD_SENTENCE_BYTES];
    struct flight_entry last[REPORT_ENTRIES];
};

_Static_assert(sizeof(struct slot_report) ==
                   17 * sizeof(int64_t) + 10 * sizeof(int32_t) +
                       sizeof(struct copies_cost) +
                       sizeof(struct kept_time) +
                       sizeof(struct flight_doing) + BOARD_SENTENCE_BYTES +
                       REPORT_ENTRIES * sizeof(struct flight_entry),
               "a record has no holes");

/* For calls of the rank of a place, which has that order: RECORDS_PIECE at
 * most, back from `newest`; 0: from its newest. */
struct record_ask {
    uint64_t order, newest;
    int32_t place, rank;
};

/* newest: of the piece; 0: there is none, as where another order came. */
struct record_answer {
    uint64_t order, asked, newest; /* asked: `newest` of the question */
    int64_t now_ns;       /* the node's clock */
    int32_t rank, count;
};

/* The name of a process that is no rank now, as the system has it. */
#define PLACE_SPARE "lockstep:spare"

/* The memory that an agent and one of its processes share. */
struct place_memory {
    struct order order;
    _Atomic uint64_t coming; /* as `ordered`, but before it */
    _Atomic uint64_t ordered, taken, done;
};

#endif
