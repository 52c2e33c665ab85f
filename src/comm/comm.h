/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - messages between ranks, and every collective made of them.
 *
 * A rank is a thread of this process (ranks_run) or a process under MPI; a
 * group is an ordered set of ranks. A back end only carries messages from one
 * rank to another (struct comm_ops, comm/message.h); the collectives are ours
 * and therefore the same, and give the same bits, over every back end.
 *
 *   comm_run     does a call and returns when this rank's part is done
 *   comm_start   the same in the background; comm_wait returns its status
 *
 * All calls but send and recv are collective over the group: its ranks make the
 * same calls in the same order, started ones among themselves likewise. Nothing
 * is allocated by a call. A rank that waits for longer than the group's limit
 * aborts the world: it, and everybody else, returns ERR_PEER with a sentence
 * that names the operation, the group and the rank that is missing. */
#ifndef LOCKSTEP_COMM_COMM_H
#define LOCKSTEP_COMM_COMM_H

#include "tensor/tensor.h"

enum { COMM_LABEL_BYTES = 24, COMM_ROOTS_MAX = 16, COMM_REASON_BYTES = 480 };

enum reduction { REDUCE_SUM, REDUCE_MAX };

/* How. Bytes that a rank sends in an all-reduce of S bytes over n ranks:
 *   ring, halving    2 S (n - 1) / n    (halving: for a power of two)
 *   tree             at most S log2(n)  (the root), S (the last leaf)
 *   hierarchy        2 S (g - 1) / g + 2 S (N - 1) / (N g), n = g N
 *   ordered          2 S (n - 1) / n, first part times the roots of a rank
 * Sources: Thakur et al. 2005, "Optimization of collective communication
 * operations in MPICH"; Patarasuk and Yuan 2009 (ring); docs/numerics.md
 * (ordered). */
enum algorithm {
    ALGORITHM_AUTO,      /* tree for a broadcast, else ordered */
    ALGORITHM_RING,
    ALGORITHM_HALVING,   /* recursive halving and doubling */
    ALGORITHM_TREE,      /* binomial tree rooted at rank 0 */
    ALGORITHM_HIERARCHY, /* inside nodes, then between them */
    ALGORITHM_ORDERED,   /* straight to whoever needs it; sums by the grid's
                          * tree, so that the bits do not show the ranks */
    ALGORITHM_COUNT
};

enum comm_kind {
    COMM_SEND, COMM_RECV, COMM_ALL_REDUCE, COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER, COMM_ALL_TO_ALL, COMM_EXCHANGE, COMM_BROADCAST,
    COMM_AGREE, COMM_KIND_COUNT
};

/* A regular part of a buffer: `planes` times `rows` of `bytes`, in this
 * order. 0 rows or planes count as 1; 0 bytes: nothing. */
struct comm_block {
    void *data;                   /* borrowed */
    int64_t bytes;                /* of a row */
    int64_t rows, stride;       /* bytes from row to row */
    int64_t planes, plane_stride; /* bytes from plane to plane */
};

/* Rows of an all-to-all by hierarchy: a row that several ranks of a node want
 * goes there once, to the rank with this one's place, which hands it on.
 *
 *   in       rows for node 0, node 1, ...; those of this node stay here
 *   passed   rows of the other nodes' ranks of this place, node after node,
 *            then those that stayed
 *   picks    rows of `passed` for each rank of this node, one after the other
 *   out      what the ranks of this node picked, one after the other
 * Source: DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.2. */
struct comm_relay {
    int nodes, each;            /* ranks of a node */
    int node, place;            /* of this rank */
    const int *ranks;           /* borrowed, [nodes * each] of the group */
    const int64_t *out, *in;    /* [nodes] rows for, of, each node */
    const int64_t *to, *from;   /* [each] rows for, of, each rank here */
    const int32_t *picks;       /* [sum of to] */
    int64_t row_bytes;
};
/* Scratch for at most so many rows to pass on and to send at once. */
size_t comm_relay_bytes(int64_t passed, int64_t most, int64_t row_bytes);

/* Which group it is, wherever it is named: in a call, in the plan, in a list. A
 * label is for people. Groups with one identity have the same ranks, and count
 * their messages together. */
enum group_kind {
    GROUP_OTHER,    /* of no plan */
    GROUP_AXIS,     /* number: enum axis (mesh/grid.h) */
    GROUP_AXES,     /* number: axis_set; two axes or more */
    GROUP_BATCH,    /* all that share the batch, along one axis, too; number:
                     * axis_set */
    GROUP_EXPERTS,  /* the ranks that divide the experts, of folded axes too;
                     * number: AXIS_EXPERT */
    GROUP_STAGE,    /* the ranks with a stage; number: of the stage */
    GROUP_MATRICES, /* the ranks that share whole matrices */
    GROUP_WORLD
};
struct group_id {
    enum group_kind kind;
    int number;
};
static inline bool group_id_equal(struct group_id a, struct group_id b)
{
    return a.kind == b.kind && a.number == b.number;
}

struct comm_ops;
struct comm_rank;
struct library;
struct message;
struct parcel;
struct peer_link;
struct progress;

struct group {
    const struct comm_ops *ops;
    void *backend;             /* borrowed: the world of the back end */
    struct comm_rank *self;    /* borrowed: counters and progress of the rank */
    char label[COMM_LABEL_BYTES]; /* "world", "data" */
    struct group_id id;        /* set by its builder; GROUP_OTHER: of no plan */
    int rank, size;
    int *members;              /* owned, [size]: ranks of the world */
    uint64_t context;          /* tells this group's messages from others', and
                                * from those of groups before it */
    int incarnation;           /* groups with its label and members that this
                                * rank built before it */
    void *link;                /* of the back end */
    int64_t limit_ns;          /* longest wait for one message */
    int node;                  /* consecutive ranks of the group on one node,
                                * of those that build it (hierarchy); 0:
                                * the divisor of size nearest its root */
    void *scratch;             /* borrowed: of calls that bring none */
    size_t scratch_bytes;
    uint64_t calls[2];         /* made so far: at once, in the background */
    struct message *messages[2]; /* owned, [size MESSAGES_EACH] */
    struct parcel *parcels[2];   /* owned, [size] */
    struct progress *progress;   /* owned: calls in the background */
    struct comm_rank *aside;     /* owned: of group_build_aside; else NULL */
    struct library *library;     /* owned: that does some of its calls
                                  * (library.h); NULL: none */
    struct peer_link *peers;     /* owned: whose memory its ranks read
                                  * (peers.h); NULL: each has its own */
};

/* A reduce-scatter of float32 with in_counts, whose numbers travel as integers
 * of 8 or 4 bits with a scale for each 128 of them: rounded once among `node`
 * consecutive ranks of the group (0: all), and once between such. Not exact.
 * bits 0: as they are.
 *
 * starts: elements of `in`, ascending, at which blocks begin anew. With them a
 * rank's own numbers are rounded, too, and the sums go by rank: between two
 * starts nothing else shows in a sum, nor does which rank it is for. */
struct comm_narrow {
    int bits, node;
    const int64_t *starts; /* borrowed; NULL: blocks count from each rank's */
    int64_t start_count;
};

/* One operation. Tensors are dense; n counts elements.
 *   SEND         in [n] to peer          RECV     out [n] from peer
 *   ALL_REDUCE   out [n], in [n]; out.data == in.data allowed
 *   REDUCE_SCATTER  out [n], in [size n]: rank r gets the sum of block r.
 *                in_counts [size]: elements of each rank's block instead of n
 *   ALL_GATHER   out [size n], in [n]: rank r's block lands at r n; in may be
 *                that block. out_counts [size]: elements of each rank's block
 *   ALL_TO_ALL   rank i's block j becomes rank j's block i. in_counts,
 *                out_counts [size] elements; NULL: equal blocks. With a relay,
 *                ALGORITHM_HIERARCHY: rows, as it says
 *   EXCHANGE     block send[r] goes to rank r, which has as many bytes, in any
 *                arrangement, in its receive[me]; the own one is copied. What
 *                is sent and what is received must not overlap. Tensors unused
 *   BROADCAST    out [n], from rank `peer`
 * With rows = p > 1, ordered only, REDUCE_SCATTER and ALL_GATHER do so with
 * each of p rows: reduce-scatter in [p, size n], out [p, n], all-gather in
 * [p, n], out [p, size n], all dense, in outside of out.
 * With ALGORITHM_ORDERED and leaves > 0, `in` holds the roots of the subtrees
 * that this rank owns, one after the other, each as long as above
 * (comm_roots). Counts are the same on all ranks (but for ALL_TO_ALL) and may
 * be 0; then nothing is sent. Reductions take float32 and float64, sums also
 * int64, the rest any type. */
struct comm_call {
    enum comm_kind kind;
    enum algorithm algorithm;
    enum reduction reduction;
    struct tensor out, in;
    const int64_t *out_counts, *in_counts; /* borrowed until it is done */
    int64_t rows;         /* rows that are cut alike; 0: 1 */
    const struct comm_block *send, *receive; /* [size]; as the counts */
    const struct comm_relay *relay; /* likewise; NULL: none */
    struct comm_narrow narrow;
    int peer;             /* rank of the group */
    int tag;              /* of send and recv, 0 or more */
    int leaves;           /* of the grid; 0: each rank has one root */
    int64_t root_stride;  /* bytes from root to root, of which `in` is the
                           * first then; 0: they touch, and it has them all */
    void *scratch;        /* comm_scratch_bytes; NULL: the group's */
    size_t scratch_bytes;
};

/* A call in the background, in the caller's memory until comm_wait. */
struct comm_handle;

/* Runs `count` ranks as threads of this process, each body(argument, world),
 * and returns when all have ended: OK, or the first cause in the order of
 * ranks, with its sentence. A rank whose body fails aborts the world. Waiting
 * ranks sleep. */
status ranks_run(int count, status (*body)(void *argument,
                                           struct group *world),
                 void *argument);

/* The world of rank `rank` of `count` ranks of ranks_run, without the ranks: to
 * build groups and ask for scratch, not to send. Ends with group_free. */
status ranks_imagine(struct group *world, int count, int rank);

/* The group of world ranks members [size], in that order, of which this rank is
 * one. All of them build it, groups with common members in the same order: a
 * back end may exchange messages. A group with the label and the members of
 * another is its next incarnation, and takes no message of it. */
status group_build(struct group *group, const struct group *world,
                   const char *label, const int *members, int size);
/* All ranks of the world again, for a thread of each rank beside the one that
 * makes the rank's other calls: with counters of its own, so that neither
 * shows in the other's. */
status group_build_aside(struct group *group, const struct group *world,
                         const char *label);
void group_free(struct group *group);
/* How long a rank waits for one message of the group. Groups that are built
 * from it afterwards begin with the same limit; 600 s if nothing is said. */
void group_limit_ms(struct group *group, int64_t limit_ms);
/* Scratch of comm_run's calls that bring none of their own. Between threads the
 * ordered sums need none. */
void group_scratch(struct group *group, void *scratch, size_t bytes);
/* So many consecutive ranks of the world are on one node, for the counters of
 * this rank; 0: all are. */
void group_nodes(struct group *world, int ranks);
/* Ends all waiting, now and later, on every rank of the world. */
void group_abort(struct group *group, const char *reason);

status comm_run(struct group *group, const struct comm_call *call);
/* Like comm_run, with scratch that is taken for this call: outside of steps. */
status comm_run_alone(struct group *group, struct comm_call call);
/* Scratch that a call needs, bytes; the same on all ranks. */
size_t comm_scratch_bytes(const struct group *group,
                          const struct comm_call *call);

/* Bytes that a rank sends in a narrow reduce-scatter. */
int64_t comm_narrow_sent(const struct comm_narrow *how, const int64_t *counts,
                         int size, int rank);

status comm_all_reduce(struct group *group, struct tensor out,
                       struct tensor in, enum reduction reduction);
status comm_all_gather(struct group *group, struct tensor out,
                       struct tensor in);
status comm_broadcast(struct group *group, struct tensor out, int root);
status comm_send(struct group *group, struct tensor in, int peer, int tag);
status comm_recv(struct group *group, struct tensor out, int peer, int tag);
/* The status of the first rank that failed by itself, on every rank, with its
 * sentence; ends a phase in which one rank can fail alone. */
status comm_agree(struct group *group, status mine);
/* Whether a failure is of a rank: of its memory, disk or device, or of one that
 * fails where rank 0 does not. What all were given wrong, rank 0 says for all,
 * without a number. */
bool comm_names_rank(status code, int rank);

/* ERR_CONFIG on every rank, naming the first whose `number` (a hash of a plan,
 * a version) is not rank 0's. */
status comm_same(struct group *group, const char *what, uint64_t number);

/* Subtrees of the grid's tree over `leaves` (numerics.md, section 1) that the
 * rank's leaves form, left to right; a rank owns leaves [rank leaves / size,
 * (rank + 1) leaves / size). Returns how many, at most COMM_ROOTS_MAX. */
struct comm_root {
    int first, leaves; /* of the grid */
    int span;          /* leaves in a full tree: a power of two */
};
int comm_roots(int leaves, int size, int rank,
               struct comm_root roots[COMM_ROOTS_MAX]);
/* How many this rank has of a call with `leaves`; 1 where it says none. */
int comm_own_roots(const struct group *group, int leaves);

/* Rows of a call that says none: one. */
static inline int64_t comm_rows(const struct comm_call *call)
{
    return call->rows > 0 ? call->rows : 1;
}

/* Leaves of a call that says none: one of each rank. */
static inline int comm_leaves(const struct group *group, int leaves)
{
    return leaves > 0 ? leaves : group->size;
}

static inline bool comm_reduces(const struct comm_call *call)
{
    return call->kind == COMM_ALL_REDUCE || call->kind == COMM_REDUCE_SCATTER;
}

const char *comm_kind_name(enum comm_kind kind);      /* "all-reduce" */
const char *algorithm_name(enum algorithm algorithm); /* "ring" */

#endif
