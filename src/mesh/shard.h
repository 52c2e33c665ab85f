/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - how the ZeRO family cuts the flat arenas over ranks.
 *
 * Parameters are grouped in units, as they are used: each matrix outside the
 * blocks, each block (or, in a bucket, several), the vectors of the last norm.
 * A unit is one run of every
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
 * With one rank the shard arena is the flat arena.
 *
 * Which ranks those are follows from the parameter: only ranks that hold copies
 * of it can divide it. A parameter that no axis of the batch cuts has copies on
 * all ranks that share the batch; one that `expert` cuts (param_spec.split_rows
 * = AXIS_EXPERT) has them on ranks with one place on that axis. Parameters with
 * copies on the same ranks are a class; all of a unit are of one class, so a
 * block with both kinds has several units:
 *
 *   data 2 x expert 2, fsdp    rank 0    1    2    3
 *   dense, 4 shards               [s0  |s1  |s2  |s3  ]
 *   experts 0 to 3, 2 shards      [s0       |s1       ]
 *   experts 4 to 7, 2 shards           [s0       |s1       ]
 *
 * Gradients, states, norm, checkpoints, and the plan's memory and traffic
 * follow from the class of the unit; no layer has to do anything for it.
 *
 * Some things may be divided over more axes than others (struct division).
 * Then the shards of mesh.shard are cut once more, over mesh.data, and a rank
 * updates one part of its shard:
 *
 *   data 2 x shard 2, weights over shard, states over data and shard
 *   rank (data, shard)     0,0  0,1  1,0  1,1
 *   unit                  [part 0 |part 1 |part 2 |part 3 ]
 *   weights               [0,0 and 1,0    |0,1 and 1,1    ]
 *   states                [0,0    |1,0    |0,1    |1,1    ] */
#ifndef LOCKSTEP_MESH_SHARD_H
#define LOCKSTEP_MESH_SHARD_H

#include "mesh/group.h"
#include "mesh/param.h"

enum { SHARD_BLOCK = 1024 }; /* elements that the norm sums as one */

struct shard_unit {
    int first_param, params;  /* of the table */
    int64_t first, elements;  /* of the flat arena, gaps included */
    int64_t at;               /* of the part that this rank updates, in arenas
                               * of such parts */
    int64_t shard_at;         /* of its shard, in arenas of shards */
    int64_t gradient, gradients, gradient_at; /* first, elements, at: of those
                               * arenas where only gradients lie */
    int64_t room, room_at;    /* elements of its room where it is gathered,
                               * and of the rooms before it: its own, unless
                               * it travels in fewer bits
                               * (plan/coded_weights.h) */
    int class;                /* of the shards */
};

/* Parameters with copies on the same ranks. */
struct shard_class {
    axis_set copied;          /* of the axes that share the batch */
    axis_set divided;         /* of those, the axes that divide: the ranks of
                               * the others sum the same shard */
    int parts;                /* in which those cut it once more; 1: they do
                               * not, and each updates all of it */
    int ranks, rank;          /* parts of all shards; this rank's */
};
enum { SHARD_CLASSES_MAX = 4 };

struct shards {
    struct shard_class classes[SHARD_CLASSES_MAX];
    int class_count;
    int most;                 /* ranks of a class */
    bool parted;              /* divided gradients are kept in parts, not in
                               * shards, where these differ */
    struct shard_unit *units; /* owned */
    int count;
    int64_t *cuts;            /* owned, [count][most + 1]: elements of a unit
                               * before each rank's part */
    int64_t *sizes;           /* owned, [count][most]: of the parts */
    int64_t *gradient_cuts, *gradient_sizes; /* owned: the same places, of
                               * gradients */
    int64_t *shard_sizes, *shard_gradient_sizes; /* owned: of the shards */
    int64_t elements;         /* of this rank's arenas of parts */
    int64_t shard_elements;   /* ... of shards */
    int64_t gradients;        /* ... of divided gradients */
    int64_t largest_unit, largest_shard; /* elements; of any rank */
};

/* Over which axes the copies of one thing are divided, each a mask of axes that
 * share the batch. Source: Chen et al. 2023 (AMSP), arXiv:2311.00257, section
 * 3; the stages are those of Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054.
 *
 *   ddp            nothing
 *   zero1          states (the optimizer's moments)
 *   zero2          states, gradients
 *   zero3, fsdp    states, gradients, weights   over data, shard and expert
 *   hsdp, mics     the same, over shard and expert; the ranks of data hold
 *                  copies
 *
 * Each parameter is divided over those of them that hold copies of it. */
struct division {
    axis_set weights, gradients, states;
    int64_t bucket;           /* elements: units of blocks are merged up to so
                               * many, so that fewer messages are sent; 0: none
                               * is */
};
/* One of those, or the axes of each: "{weights: [], gradients: [shard], states:
 * [data, shard]}"; one that is left out is empty. ERR_CONFIG: neither (it names
 * the nearest), or what cannot be, and why. */
status division_parse(struct division *division, const char *name);
/* All axes that it divides anything over. */
axis_set division_axes(const struct division *division);
/* The axes that cut first, into shards: the fewest that divide anything. */
axis_set division_first(const struct division *division);
/* Whether shards are cut once more for what more axes divide. */
bool division_parts(const struct division *division);
/* How much of a thing this rank has. */
enum shard_level { SHARD_WHOLE, SHARD_SHARD, SHARD_PART };
/* axes: of the weights, the gradients or the states of the division. */
enum shard_level division_level(const struct division *division,
                                axis_set axes);
/* Whether ranks that share the batch keep copies of divided things. */
bool division_copies(const struct division *division);
/* The number of ranks that a parameter without cuts is divided over. */
int division_ranks(const struct division *division, const struct mesh *mesh);

/* Which part of the whole parameters the table holds. */
struct holding {
    struct mesh mesh;
    struct place place;
    int leaves;               /* of the grid's tensor axis, all ranks' */
};

status shards_build(struct shards *shards, const struct param_table *table,
                    const struct holding *holding,
                    const struct division *division);
void shards_free(struct shards *shards);

const struct shard_class *shard_class(const struct shards *shards, int unit);
/* This rank's part among those of the unit. */
int shard_rank(const struct shards *shards, int unit);
/* The number of the shard of a rank at another place. */
int shard_rank_at(const struct shard_class *class, const struct mesh *mesh,
                  const struct place *place);
/* Whether any unit has more than one shard. */
static inline bool shards_divide(const struct shards *shards)
{
    return shards->most > 1;
}

const int64_t *shard_cuts(const struct shards *shards, int unit);
const int64_t *shard_sizes(const struct shards *shards, int unit);
/* Like shard_sizes, of gradients, where frozen matrices take nothing. */
const int64_t *shard_gradient_cuts(const struct shards *shards, int unit);
const int64_t *shard_gradient_sizes(const struct shards *shards, int unit);
int shard_unit_of(const struct shards *shards, int param);
/* Elements of this rank's part of a unit's gradients; of its weights. */
int64_t shard_gradients(const struct shards *shards, int unit);
int64_t shard_weights(const struct shards *shards, int unit);
/* The shard of which this is a part; its elements of gradients, of weights; and
 * how many of them lie before the part. */
int shard_index(const struct shards *shards, int unit);
int64_t shard_all_gradients(const struct shards *shards, int unit);
int64_t shard_all_weights(const struct shards *shards, int unit);
int64_t shard_gradients_before(const struct shards *shards, int unit);
int64_t shard_weights_before(const struct shards *shards, int unit);
/* Elements in the arena of divided gradients. */
int64_t shard_kept_gradients(const struct shards *shards, int unit);
/* Whether a unit has one shard where others have several: it lies in the shard
 * arenas as a whole, and gathers need no room for it; the same of gradients and
 * their reductions. */
bool shard_stays(const struct shards *shards, int unit);
bool shard_gradient_stays(const struct shards *shards, int unit);
/* Elements of the rooms of all units. */
static inline int64_t shards_rooms(const struct shards *shards)
{
    const struct shard_unit *last = shards->units + shards->count - 1;

    return shards->count > 0 ? last->room_at + last->room : 0;
}
/* Whether shards of the unit are cut once more, and the gradients of it are
 * kept so: then its shard is summed where the unit was. */
bool shard_sums_room(const struct shards *shards, int unit);

/* Elements [first, last) of parameter `param`, row-major as it lies in this
 * rank's flat arena, that `rank` of its class updates; empty: first == last.
 * at, shard_at, gradient_at: where element `first` lies in the arenas of parts,
 * of shards, of divided gradients, of this rank only. In a flat arena it lies
 * at param->offset (param->gradient) + first. */
struct shard_range { int64_t first, last, at, shard_at, gradient_at; };
void shard_range(const struct shards *shards, const struct param_table *table,
                 int param, int rank, struct shard_range *out);
/* Like shard_range, of this rank. */
void shard_own(const struct shards *shards, const struct param_table *table,
               int param, struct shard_range *out);
/* Like shard_own, of this rank's whole shard; only shard_at is set. */
void shard_whole(const struct shards *shards, const struct param_table *table,
                 int param, struct shard_range *out);
/* The place of a range's first element in an arena of weights. */
int64_t shard_place(const struct shard_range *range, enum shard_level level,
                    const struct param *param);

/* ---- leaves of a parameter, for the norm and for legal cuts ---- */

/* Leaves that this rank holds of the parameter: [first, last) of those of the
 * grid where the tensor axis cuts it, of its experts where the expert axis
 * does. One that neither cuts is one leaf, and that of rank 0 of both axes. */
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
/* Like param_leaf, of any leaf of the grid: false too where this rank does not
 * hold all of it. Every element that it holds is in one of these, also where it
 * has rows (of a key-value head) that count in the leaf of another rank. */
bool param_held_leaf(const struct param *param, const struct holding *holding,
                     int leaf, int piece, struct leaf_block *out);
int param_leaf_count(const struct param *param, const struct holding *holding);
/* The most that a parameter of the whole model has. */
int shard_leaves(const struct param_table *params,
                 const struct holding *holding);
/* Whether this rank counts the parameter in the norm: of the ranks that hold
 * the same part of it, the first of the stage. */
bool param_counts(const struct param *param, const struct holding *holding);
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
/* Blocks of the parameters of one class. */
int64_t shard_class_blocks(const struct param_table *params,
                           const struct holding *holding,
                           const struct shards *shards, int class);

#endif
