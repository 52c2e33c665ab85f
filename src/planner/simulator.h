/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.h - a clock for lists of instructions.
 *
 * Each rank has one list. An instruction runs on a resource of its rank; a
 * resource takes its instructions in the order of the list, or of their turns
 * where they have some. An instruction
 * begins when its resource is free and all that it needs, here or on other
 * ranks, is done. While computation and messages of a rank run at the same
 * time, both are slower; two messages of a rank over the same ports share them.
 * Lists whose ranks are on one node share its network ports, by max-min
 * fairness at every moment. The simulator knows no model and no schedule. */
#ifndef LOCKSTEP_PLANNER_SIMULATOR_H
#define LOCKSTEP_PLANNER_SIMULATOR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum clock_resource {
    CLOCK_COMPUTE,
    CLOCK_PIPE_DOWN,
    CLOCK_PIPE_UP,
    CLOCK_DATA,
    CLOCK_HOST,
    CLOCK_OFFLOAD,           /* to the memory of the host or disk, and back */
    CLOCK_RESOURCES
};
extern const char *const clock_resource_names[CLOCK_RESOURCES];

struct timed_need { int32_t rank, index; };

struct timed {
    uint8_t resource;        /* enum clock_resource */
    uint8_t ports;           /* path whose ports it shares: 0 none, 1 the
                              * node's, 2 the network's */
    int16_t cause;           /* of waiting for it; for the reader */
    int32_t stage, microbatch; /* -1: of the step */
    int32_t kind;            /* index into names of the maker of the list */
    int32_t number;          /* instruction of the executor's list; -1 none */
    int32_t meeting;         /* number among those of its list where all ranks
                              * wait for each other, from 1; 0: it is none */
    int32_t sender;          /* list whose node it leaves, from 1; 0: its own */
    int32_t turn;            /* on its resource, from 1 to the list's `turns`;
                              * 0: in the order of the list */
    int32_t before;          /* set by the simulator: the one before it on its
                              * resource; -1: it is the first */
    int32_t first_need, needs; /* in the list's array */
    double seconds;          /* alone */
    double begin, end;       /* set by the simulator; end < 0: not yet */
};

struct timed_list {
    struct timed *items;     /* owned */
    struct timed_need *needs;/* owned */
    int32_t count, capacity, need_count, need_capacity;
    int32_t turns;           /* of its items, each given once */
};

struct timed_lists { struct timed_list *lists; int32_t ranks; };

/* Nodes with ranks of more than one list. */
struct clock_nodes {
    const int32_t *of;       /* node of each list, from 0 */
    int32_t nodes;
    int flows;               /* ranks that each list stands for: all send and
                              * receive at the same time */
    double ports, own;       /* of a node; at most of a rank */
};

struct clock_rules {
    double compute_beside, comm_beside; /* at least 1 */
    const double *slow;      /* of each rank, times; NULL: 1 */
    const double *slow_link; /* of each rank's messages; NULL: 1 */
    const double *messages;  /* share of them in what the compute resource does,
                              * of each kind; NULL: none */
    const struct clock_nodes *nodes;    /* NULL: no node has two lists */
    double wire;             /* share of that effect which messages between
                              * nodes have; 0: all of it */
};

struct clock_result {
    double end;              /* of the last instruction */
    int32_t last_rank, last_index;
    double busy[CLOCK_RESOURCES];      /* sum over ranks */
    int64_t divided;         /* times that ports of nodes were divided */
};

status timed_lists_begin(struct timed_lists *lists, int ranks);
void timed_lists_free(struct timed_lists *lists);
/* Room for so many items and needs, in an empty list. */
status timed_reserve(struct timed_list *list, int32_t items, int32_t needs);
/* Appends a copy without needs; *index is its place. */
status timed_add(struct timed_list *list, const struct timed *item,
                 int32_t *index);
/* The item that was added last also needs (rank, index). */
status timed_need(struct timed_list *list, int32_t rank, int32_t index);
/* Appends one to the array of needs alone. */
status timed_put_need(struct timed_list *list, struct timed_need need);
/* The item of that meeting; -1: there is none, or it is 0. */
int32_t timed_meeting(const struct timed_list *list, int32_t meeting);

/* Sets begin and end of every instruction. ERR_VERIFY: instructions wait for
 * each other, or one needs what is not there: names the first. */
status clock_run(struct timed_lists *lists, const struct clock_rules *rules,
                 struct clock_result *out);

/* The chain of instructions that decided the end, last first: calls `visit`
 * with each, and with how long it waited for its needs beyond their ends. */
typedef void critical_visit(void *context, int32_t rank,
                            const struct timed *item);
void clock_critical(const struct timed_lists *lists,
                    const struct clock_result *result, critical_visit *visit,
                    void *context);

#endif
