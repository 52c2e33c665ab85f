/* SPDX-License-Identifier: Apache-2.0 */
/* agent_place.h - the processes of a node. Private to agent*.c. */
#ifndef LOCKSTEP_CONTROL_AGENT_PLACE_H
#define LOCKSTEP_CONTROL_AGENT_PLACE_H

#include "control/agent.h"
#include "control/place.h"

struct courier;

struct worker {
    pid_t process;        /* 0: none */
    int descriptor;       /* of the process; -1: none */
    uint64_t began, died_with;
    int ended;            /* of the last one that died with an order */
    int64_t fence_ns;     /* then it is killed; 0: it may go on */
    int64_t again_ns;     /* when the next one may be started */
    int idle_deaths;      /* in a row */
    uint64_t beats;       /* of its rank, */
    int64_t beats_ns;     /* and since when */
    struct thread_clock threads; /* at the last look at a rank that does not
                                  * get on */
    struct {              /* of a rank without a supervisor (agent_alone.c) */
        uint64_t order, beats;   /* what it did, and how far it was, at */
        int64_t looked_ns;       /* the last look; */
        int64_t kept_ns;         /* how long the system had kept it by then, */
        int64_t ns;              /* and it had stood still */
    } still;
};

struct agent {
    const struct agent_how *how;
    char name[NODE_NAME_BYTES];
    struct token token;
    struct wire up;       /* to the supervisor, */
    char reached[DOOR_ADDRESS_BYTES]; /* who was there last; "": nobody yet */
    bool left;            /* nobody listens there any more */
    struct door door;     /* for other agents */
    int64_t began_ns, next_try_ns, told_ns, parted_ns;
    int64_t late_ns;      /* when the lease was found to be over; 0: it is
                           * not */
    int64_t refused_ns;   /* since when it is not taken; 0: it is */
    struct node_refused refused; /* why */
    bool changed, over, late_told;
    int signals, token_file, shared_file, state_file, board_file;
    struct board *board;  /* a page for each place */
    struct place_memory *places; /* shared with the processes, [count] */
    struct worker *workers; /* owned, [count] */
    int count;
    struct courier *courier; /* shared with the couriers */
    /* A sender for each partner, then the one that receives. */
    pid_t couriers[PARTNERS_MOST + 1];
    int link;                /* in a sender: of its partner */
    uint64_t turn;           /* of the newest beat */
    int64_t beat_ns;         /* its sent_ns; 0: none of this connection */
    int64_t lease_ms;        /* how long a lease is, as it said */
    /* When each may be started again. */
    int64_t courier_next_ns[PARTNERS_MOST + 1];
    /* Since when each sender is stopped; 0: it is not. */
    int64_t courier_stopped_ns[PARTNERS_MOST];
    uint64_t moves_told;
};

/* The agent woke up: agent.c. *child: this is a process of the node that shall
 * end. */
status agent_turn(struct agent *agent, bool *child);

/* Answers. ERR_PEER: the supervisor is gone. */
status agent_records(struct agent *agent, const struct record_ask *ask);

/* Without a supervisor: whether ranks of the node cannot step, as one stands
 * still or has not met the others. Asked at each turn. */
bool ranks_stand_still(struct agent *agent);

/* Whether the process has an order that it has not done. */
bool place_is_busy(const struct place_memory *place);
/* Starts the process; in it, returns with *child when it shall end. */
status worker_start(struct agent *agent, int index, bool *child);
/* Reaps processes that have ended; true: there were some. */
bool workers_reap(struct agent *agent);
void workers_signal(struct agent *agent, const struct node_signal *what);
/* Every rank has `grace_ms` to give up, then it is killed. */
void workers_fence(struct agent *agent, int64_t grace_ms);
/* Kills those whose time is over. */
void workers_look(struct agent *agent);
void workers_order(struct agent *agent, const struct order *order);
void worker_report(const struct agent *agent, int index,
                   struct slot_report *out);
/* The state of a rank's process, as ps prints it; *kept: how long the system
 * kept it from running so far. */
char worker_state(const struct agent *agent, int index,
                  struct kept_time *kept);

#endif
