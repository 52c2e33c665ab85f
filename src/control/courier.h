/* SPDX-License-Identifier: Apache-2.0 */
/* courier.h - carries copies of the ranks' state from node to node. Private to
 * agent*.c.
 *
 *   rank      has a copy of its state in its node's memory after a step
 *   sender    a process of the agent: sends the copy to a partner node
 *   receiver  a process of that agent: writes it at the same place, compares
 *             checksums, answers
 *   rank      waits for the answer before the next update may write over the
 *             older copy (memory_copy_ready, memory_copy_fence)
 *
 * Processes of their own, one for each partner and one that receives, so that
 * neither long messages nor a partner that does not read keep the agent or
 * another partner from its work, and none of its forks copies a thread. */
#ifndef LOCKSTEP_CONTROL_COURIER_H
#define LOCKSTEP_CONTROL_COURIER_H

#include "base/local_stores.h"
#include "control/agent_place.h"

enum { MOVES_MOST = 64 };

/* Shared by the agent and its couriers. */
struct courier {
    struct courier_link {
        _Atomic uint64_t turn;  /* raised when the partner changes */
        _Atomic uint64_t seen;  /* by the sender */
        struct node_partner partner;
    } links[PARTNERS_MOST];
    _Atomic uint64_t move_asked, move_done;
    struct courier_move {
        struct node_move what;
        uint64_t slot_bytes;
        int32_t ranks;
    } moves[MOVES_MOST];
    struct stores stores;       /* what others may read */
    _Atomic bool stores_named;  /* the supervisor has said where they are */
    _Atomic bool receives;      /* the receiver may be writing a slot; */
    _Atomic bool fills;         /* the first sender may be */
    /* The slots that are in the memory of this node. */
    _Atomic uint64_t slot_bytes;
    _Atomic int ranks;
};

/* Starts those that are needed; in one of them, returns with *child when it
 * shall end. */
status courier_start(struct agent *agent, bool *child);
void courier_stop(struct agent *agent);
/* Before a rank is seated, and after its place says whose it comes to be: none
 * of them writes slots until the next one asks courier_may_write. */
void courier_halt(struct agent *agent);
/* One that has ended is started again, until then ranks do not wait for it. In
 * it, returns true when it shall end. */
bool courier_look(struct agent *agent);
/* The supervisor names the partners. */
void courier_partners(struct agent *agent, const struct node_beat *beat);
/* In the process that receives, for ever: courier_keep.c. */
void courier_keep(struct agent *agent);
/* node_report.held */
uint32_t courier_held(const struct agent *agent);
void courier_move(struct agent *agent, const struct node_move *what);
/* Where the node keeps files that others may read. */
void courier_stores(struct agent *agent, const struct node_stores *stores);
/* Moves that are done: *what; false: there is none. */
bool courier_moved(struct agent *agent, struct node_move *what);

#endif
