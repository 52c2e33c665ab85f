/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - how the ZeRO family cuts the flat arenas over ranks.
 *
 * Parameters are grouped in units, as they are used: each matrix outside the
 * blocks, each block, the vectors of the last norm. A unit is one run of every
 * flat arena; it is cut into as many shards as there are ranks, at the legal
 * places nearest to equal ones. A place is legal when it cuts none of the
 * blocks of 1,024 elements that the gradient's norm is summed by
 * (docs/numerics.md), so shards may be of different sizes, or empty.
 *
 *   flat arena    [ unit 0         | unit 1              | unit 2 ]
 *   rank 0        [s0   ]           [s0      ]            [s0 ]
 *   rank 1               [s1       ]          [s1        ]     [s1]
 *   shard arena of rank 1           [s1       |s1        |s1]
 *
 * With one rank the shard arena is the flat arena. */
#ifndef LOCKSTEP_MESH_SHARD_H
#define LOCKSTEP_MESH_SHARD_H

#include "mesh/group.h"
#include "mesh/param.h"

enum { SHARD_BLOCK = 1024 }; /* elements that the norm sums as one */

struct shard_unit {
    int first_param, params;  /* of the table */
    int64_t first, elements;  /* of the flat arena, gaps included */
    int64_t at;               /* of this rank's shard, in its shard arena */
    int64_t gradient, gradients, gradient_at; /* first, elements, at: of those
                               * arenas where only gradients lie */
};

struct shards {
    int ranks, rank;
    struct shard_unit *units; /* owned */
    int count;
    int64_t *cuts;            /* owned, [count][ranks + 1]: elements of a unit
                               * before each rank's shard */
    int64_t *sizes;           /* owned, [count][ranks]: of the shards */
    int64_t *gradient_cuts, *gradient_sizes; /* owned: the same places, of
                               * gradients */
    int64_t *at, *gradient_at; /* owned, [count][ranks]: where a unit's shard
                               * begins in each rank's arenas */
    int64_t elements, gradients; /* of this rank's shard arenas */
    int64_t largest_unit, largest_shard; /* elements; of any rank */
};

/* Over which axes the copies of one thing are divided, each a mask of axes that
 * share the batch. Source: Chen et al. 2023 (AMSP), arXiv:2311.00257, section
 * 3; the stages are those of Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054.
 *
 *   ddp            nothing
 *   zero1          states (the optimizer's moments)
 *   zero2          states, gradients
 *   zero3, fsdp    states, gradients, weights         over data and shard
 *   hsdp, mics     the same, over shard; the ranks of data hold copies */
struct division { axis_set weights, gradients, states; };
/* ERR_CONFIG: not one of these (names the nearest). */
status division_parse(struct division *division, const char *name);
/* Into how many parts, and which of them this rank holds. */
void division_place(const struct division *division, const struct mesh *mesh,
                    const struct place *place, int *ranks, int *rank);

/* Which part of the whole parameters the table holds. */
struct holding {
    struct mesh mesh;
    struct place place;
    int leaves;               /* of the grid's tensor axis, all ranks' */
};

status shards_build(struct shards *shards, const struct param_table *table,
                    const struct holding *holding, int ranks, int rank);
void shards_free(struct shards *shards);

const int64_t *shard_cuts(const struct shards *shards, int unit);
const int64_t *shard_sizes(const struct shards *shards, int unit);
/* The same of gradients, where frozen matrices take nothing. */
const int64_t *shard_gradient_cuts(const struct shards *shards, int unit);
const int64_t *shard_gradient_sizes(const struct shards *shards, int unit);
int shard_unit_of(const struct shards *shards, int param);

/* Elements [first, last) of parameter `param`, row-major as it lies in this
 * rank's flat arena, that `rank` of the shards owns; empty: first == last.
 * at, gradient_at: where element `first` lies in that rank's shard arenas. In a
 * flat arena it lies at param->offset (param->gradient) + first. */
struct shard_range { int64_t first, last, at, gradient_at; };
void shard_range(const struct shards *shards, const struct param_table *table,
                 int param, int rank, struct shard_range *out);

/* ---- leaves of a parameter, for the norm and for legal cuts ---- */

/* Leaves of the grid that this rank holds of the parameter: [first, last). One
 * that the tensor axis does not cut is one leaf, and rank 0's of that axis. */
void param_leaves(const struct param *param, const struct holding *holding,
                  int *first, int *last);
int param_pieces(const struct param *param);
/* The block of a leaf in piece `piece`: rows, or columns, [first, first +
 * count) of the matrix that this rank holds; a vector has columns. False when
 * it is empty. */
struct leaf_block {
    bool columns;
    int64_t first, count;
};
bool param_leaf(const struct param *param, const struct holding *holding,
                int leaf, int piece, struct leaf_block *out);
/* The same of any leaf of the grid: false too where this rank does not hold all
 * of it. Every element that it holds is in one of these, also where it has rows
 * (of a key-value head) that count in the leaf of another rank. */
bool param_held_leaf(const struct param *param, const struct holding *holding,
                     int leaf, int piece, struct leaf_block *out);
int param_leaf_count(const struct param *param, const struct holding *holding);
/* Blocks of the norm in it. */
int64_t leaf_blocks(const struct param *param, const struct leaf_block *leaf);

/* The leaves of a table in the order of the norm's blocks: of each parameter,
 * of each leaf, of each piece. Starts with params and holding alone. */
struct leaf_cursor {
    const struct param_table *params;
    const struct holding *holding;
    int param, leaf, piece;   /* of the leaf that was returned last */
    int64_t at;               /* its first block, of all */
    struct leaf_block block;
    bool begun;
};
bool leaf_next(struct leaf_cursor *cursor);
/* Blocks of the table. */
int64_t shard_blocks(const struct param_table *params,
                     const struct holding *holding);

#endif
