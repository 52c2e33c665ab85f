/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.h - the ways of doing a collective, each over a part of a group.
 *
 * A circle is every stride-th rank of a group; a cut says which block of a
 * buffer belongs to which rank of the circle. Without counts and length the
 * blocks are as equal as they can be, the longer ones first; otherwise block i
 * of the circle is number first + i step of blocks that touch, of counts
 * [number], or length, elements each. */
#ifndef LOCKSTEP_COMM_ALGORITHMS_H
#define LOCKSTEP_COMM_ALGORITHMS_H

#include "comm/message.h"

struct circle {
    int first, stride, count; /* ranks of the group */
    int me;                   /* index of this rank in the circle */
};

struct cut {
    char *data;
    int64_t elements;         /* of the buffer, if nothing else is given */
    const int64_t *counts;    /* borrowed; elements of each rank's block */
    int64_t length;           /* of every block, if there are no counts */
    int first, step;
    int64_t element_bytes;
};

struct block { char *data; int64_t bytes; };

int circle_rank(const struct circle *circle, int index);
/* Blocks [first, last) of `count`; those of more than one must touch. */
struct block cut_blocks(const struct cut *cut, int count, int first,
                        int last);
/* A block of each of so many rows that are cut alike, one after the other. */
struct comm_block cut_rows(const struct cut *cut, int count, int block,
                           int64_t rows);

/* Block `me` ends as the sum over all ranks; the others are undefined. */
status ring_reduce(struct operation *op, const struct circle *circle,
                   const struct cut *cut);
/* All blocks end as what their owners have. */
status ring_gather(struct operation *op, const struct circle *circle,
                   const struct cut *cut);
/* Down a chain from index `root`, in segments that overlap. */
status ring_broadcast(struct operation *op, const struct circle *circle,
                      int root, struct block whole);

/* As ring_reduce and ring_gather; equal cuts, any count. */
status halving_reduce(struct operation *op, const struct circle *circle,
                      const struct cut *cut);
status halving_gather(struct operation *op, const struct circle *circle,
                      const struct cut *cut);

/* The sum of all ranks' `whole` in that of index 0. */
status tree_reduce(struct operation *op, const struct circle *circle,
                   struct block whole);
status tree_broadcast(struct operation *op, const struct circle *circle,
                      int root, struct block whole);
/* Each rank's block from index `root`, or to index 0, straight. */
status tree_scatter(struct operation *op, const struct circle *circle,
                    int root, const struct cut *cut);
status tree_collect(struct operation *op, const struct circle *circle,
                    const struct cut *cut);

/* An all-reduce over the group, with op->group->node ranks in a node. */
status hierarchy_all_reduce(struct operation *op, const struct cut *cut);
status hierarchy_reduce(struct operation *op, const struct cut *cut);
status hierarchy_gather(struct operation *op, const struct cut *cut);
status hierarchy_broadcast(struct operation *op, int root,
                           struct block whole);

/* Block `me` of all ranks' roots, summed by the tree, into out. */
struct ordered {
    struct cut cut;     /* of the first row of the first root */
    int64_t rows;     /* rows of a root */
    int64_t root_bytes; /* from root to root */
    char *out;          /* may be block `me` of the first root */
    int leaves;
};
/* gathered, if not NULL: the cut of what is to hold all ranks' sums. */
status ordered_reduce(struct operation *op, const struct ordered *ordered,
                      const struct cut *gathered);
size_t ordered_scratch(const struct group *group,
                       const struct comm_call *call, int64_t rows,
                       int64_t row_bytes);
/* parcels [size]: block `me` of every rank's roots, of which the bytes from
 * `first` on of a row are summed into `out`. */
void tree_sum(const struct operation *op, int leaves, int64_t row,
              int64_t first, struct block out);
/* How often the last two partial sums become one when a root of all ranks,
 * from left to right, has come. Returns how many roots there are; 0: more than
 * `most`. */
int tree_merges(int leaves, int size, int64_t *merges, int most);
/* Numbers as integers of few bits: op->call->narrow. */
status narrow_reduce(struct operation *op);
size_t narrow_scratch(const struct group *group, const struct comm_call *call);
/* The own block straight to all, and theirs into the cut's rows. */
status direct_gather(struct operation *op, const struct comm_block *own,
                     const struct cut *cut, int64_t rows);
status direct_broadcast(struct operation *op, int root, struct block whole);

/* All-to-all and exchange. */
status exchange(struct operation *op);
/* Posts message number *posted of the operation, unless it is empty, and counts
 * it; posts_end finishes them all. */
status block_post(struct operation *op, int to, const struct comm_block *block,
                  int *posted);
status posts_end(struct operation *op, int posted, bool withdraw);
/* An all-to-all with a relay. */
status relay_rows(struct operation *op);
size_t relay_scratch(const struct comm_relay *relay);

#endif
