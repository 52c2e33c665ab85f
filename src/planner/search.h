/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - every legal layout: exact divisibility, memory, a bound from
 * below, and the clock for those that may win. */
#ifndef LOCKSTEP_PLANNER_SEARCH_H
#define LOCKSTEP_PLANNER_SEARCH_H

#include "optimizer/ramp.h"
#include "planner/predict.h"

enum objective { OBJECTIVE_TIME, OBJECTIVE_COST, OBJECTIVE_MEMORY,
                 OBJECTIVES };
extern const char *const objective_names[OBJECTIVES];

/* Choices that are made already; -1 (schedule: "") leaves one open. */
struct search_fixed {
    int tensor, context, pipe, data, expert, zero, recompute;
    int expert_tensor, expert_context;
    int64_t micro_batch;
    char schedule[LAYOUT_NAME];
    struct grid grid;      /* leaves that the axes must divide; 0: any */
};

enum { TOP_MOST = 64 };
struct search_request {
    const struct machine *machine;
    const struct shape *shape;
    enum program_as as;
    int ranks, per_node;
    int64_t batch;         /* sequences of a step */
    const struct ramp *ramp; /* borrowed: a layout must divide its batches,
                            * too; NULL: the batch stays the same */
    int bits;
    const struct options *options; /* borrowed: of layout_take; NULL: usual */
    struct stored stored;
    double max_memory;     /* bytes */
    enum objective objective;
    int top;               /* 1 to TOP_MOST */
    int threads;           /* of a rank; 0: 1 */
    struct threads *pool;  /* that searches, borrowed; NULL: the caller alone.
                            * Results do not depend on it */
    const struct search_fixed *fixed; /* borrowed; NULL: nothing */
    struct grid grid;      /* leaves that options name; 0: not */
    const struct mesh_order *order; /* borrowed: of ranks on several nodes;
                            * NULL: the default, or there is one node */
};

struct candidate {
    struct layout layout;
    double bound_s;        /* times ranks where cost is asked for */
    double memory_bytes;
    double score;          /* smaller is better; where timed */
    double whole_s;        /* the step by whole stages; where timed */
    bool walked;           /* its prediction is that of `plan --time` */
    double shorter_s;      /* the step by lists of two shorter ones; 0: nobody
                            * asked */
    int position;          /* of the pipe, with the most memory */
    bool timed;
    bool refused;          /* by the exact plan: search_settle */
    struct prediction prediction; /* where timed */
};

/* All candidates with one value of one choice: "tensor 2". */
enum { FAMILY_BYTES = 32, FAMILIES_MOST = 96 };
struct family {
    char name[FAMILY_BYTES];
    int choice, value;
    int64_t candidates, feasible;
    double least_over;     /* bytes; of the candidate nearest to fitting */
    int position;          /* of the pipe, where that is */
    int best;              /* of `found`, the fastest timed; -1: none */
};

struct search {
    int64_t candidates, feasible, timed;
    struct candidate *found; /* owned, [count]: feasible, the least bound
                              * first; after search_run the best `top` first */
    int count, capacity;
    int first;             /* of `found`: the best */
    struct family families[FAMILIES_MOST];
    int family_count;
};

status search_run(struct search *search, const struct search_request *request);
/* After exact plans have changed scores and refused candidates: found[first] is
 * the best, and families choose theirs again. */
void search_settle(struct search *search, int first);
void search_free(struct search *search);
/* How a layout loses against the best one: "loses 11% to the bubble". */
void search_reason(const struct search *search, const struct family *family,
                   const struct search_request *request, char *out,
                   size_t size);
/* The most ranks up to the request's that some tensor, context, pipe and data
 * ranks are, of those that the search tries. */
int search_nearest(const struct search_request *request);
/* Whether the family is one step from the best layout: half or twice its value
 * of an axis, or another kind. */
bool search_beside(const struct search *search, const struct family *family);
/* Whether it is one of tensor, context, pipe and expert ranks. */
bool search_is_axis(const struct family *family);

#endif
