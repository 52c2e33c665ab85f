/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - the mesh, and which elements of a parameter a rank holds.
 *
 * A parameter is described once, where the model uses it (struct param_spec).
 * Initialisation, tensor parallelism, ZeRO, checkpoints and the Hugging Face
 * import and export never look at mesh axes themselves: they walk the runs
 * computed here. A run is a block of equally long, equally spaced rows. */
#ifndef LOCKSTEP_MESH_LAYOUT_H
#define LOCKSTEP_MESH_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum axis { AXIS_NONE, AXIS_PIPE, AXIS_DATA, AXIS_SHARD, AXIS_CONTEXT,
            AXIS_TENSOR, AXIS_EXPERT, AXIS_COUNT };
extern const char *const axis_names[AXIS_COUNT];
const char *axis_name(enum axis axis); /* "tensor" */
enum { PARAM_PIECES_MAX = 4, PARAM_NAME_BYTES = 96,
       LAYOUT_RUNS_MAX = PARAM_PIECES_MAX + 2 };

/* Bits 1 << axis. */
typedef unsigned axis_set;

struct mesh {
    int size[AXIS_COUNT];     /* size[AXIS_NONE] is 1 */
    axis_set folded;          /* axes whose ranks divide the experts, beside
                               * those of the expert axis */
    int expert_cut;           /* of those ranks, so many neighbours cut each
                               * expert, as tensor ranks do; 0 or 1: none do */
    int node;                 /* ranks of a node, consecutive ones; 0: all */
    int inside[AXIS_COUNT];   /* neighbours on an axis that are on one node; 0:
                               * all, or nodes divide the ranks of some axis
                               * unevenly (mesh_nodes) */
    bool relays;              /* rows of experts go once to each node */
};
struct place { int at[AXIS_COUNT]; };   /* this rank's coordinate */

/* Axes whose ranks each work on their own data leaves of the batch, slowest
 * first, as the leaves are numbered. */
enum { BATCH_AXES = 3,
       AXES_BATCH = 1 << AXIS_DATA | 1 << AXIS_SHARD | 1 << AXIS_EXPERT };
extern const enum axis batch_axes[BATCH_AXES]; /* data, shard, expert */

/* One rank: every size 1. */
static inline struct mesh mesh_alone(void)
{
    struct mesh mesh = {.node = 0};

    for (int i = 0; i < AXIS_COUNT; i++) mesh.size[i] = 1;
    return mesh;
}

/* Rows of a fused matrix that are divided separately, such as q, k and v. */
struct param_piece {
    const char *outside_name; /* suffix in Hugging Face files; NULL: none */
    int64_t rows;             /* of the whole, undivided matrix */
    int64_t head;             /* rows of a key-value head, which stay together;
                               * 0: any row may be the last of a rank */
};

enum param_init { INIT_NORMAL, INIT_RESIDUAL, INIT_ZERO, INIT_ONE,
                  INIT_ADAPTER };
/* INIT_NORMAL: std; INIT_RESIDUAL: std / sqrt(2 layers); INIT_ADAPTER:
 * 1 / sqrt(3 cols), whatever std is */

/* Facts of a parameter that rules outside its layer ask for. */
enum param_role {
    ROLE_NONE,
    ROLE_QKV,        /* makes scores, or is an adapter of what does */
    ROLE_HEADS_GAIN, /* of the norm of query or key heads */
    ROLE_LAST_GAIN, ROLE_LAST_BIAS, /* of the norm that the head reads */
    ROLE_LOGIT_BIAS,
    ROLE_SELECTION_BIAS, /* of a router: counts in the choice alone */
    ROLE_ROUTER,         /* from tokens to logits of experts, or to a share */
    ROLE_EXPERT_BIASES   /* matrices that are biases */
};

struct param_spec {
    const char *name;         /* "attention.wqkv"; the model adds the layer */
    const char *outside_name; /* name in Hugging Face files without layer
                               * prefix when there are no pieces; or NULL */
    int64_t rows, cols;       /* whole shape; a vector has rows 1 */
    bool vector;              /* 1-D outside: norm, bias */
    bool outside_transposed;  /* stored [cols, rows] outside (GPT-2) */
    bool outside_by_head;     /* one tensor outside, in which each head of the
                               * last piece follows its share of the others */
    int64_t outside_pairs;    /* so many first rows of each head of q and k (all
                               * pieces but the last) are pairs of neighbours
                               * outside; here the first of each pair, then the
                               * second */
    bool outside_vector;      /* a matrix of one column, 1-D outside */
    int64_t outside_each;     /* a vector of which so many elements each are a
                               * tensor outside, the %d of its name their
                               * number; 0: it is one */
    enum axis split_rows;     /* each piece's rows are divided by this axis */
    enum axis split_cols;
    int leaves;               /* equal blocks of ceil(n / leaves) in which the
                               * axis cuts. tensor: those of the grid; expert:
                               * the experts, each of which has a sum of its
                               * own in the norm. 0: as many as ranks, which
                               * must divide */
    int piece_count;          /* 0: the matrix is one piece */
    struct param_piece pieces[PARAM_PIECES_MAX];
    enum param_init init;
    enum param_role role;
    bool decay;               /* weight decay applies */
    bool fixed;               /* a matrix that no gradient moves */
    int expert;               /* the number of the expert that it belongs to,
                               * from 1 on: the %d of its names is one less.
                               * 0: of none */
    int spread;               /* one of several, one for each expert, that the
                               * ranks of the expert axis divide: each rank has
                               * so many of them whole (but for other axes),
                               * the next rank the next ones. 0: it is not */
    axis_set folded;          /* axes whose ranks divide those, too */
    int within;               /* ranks that cut it where split_rows or
                               * split_cols says tensor: neighbours among those
                               * that divide the experts; 0: the tensor axis */
    bool adapter;             /* low-rank, beside a matrix (nn/adapter.c) */
    bool expands;             /* ... B of it, from the rank to W's rows */
    double adapter_scale;     /* of the second one: what the product counts */
    bool after_attention;     /* its input is what attention writes */
};

struct layout_run {
    int64_t whole_first;      /* element offset in the whole parameter */
    int64_t local_first;      /* element offset in this rank's part */
    int64_t length;           /* elements per row of the run */
    int64_t repeats;          /* rows */
    int64_t whole_stride;     /* elements from row to row; local rows touch */
    int piece;                /* row of spec->pieces, 0 if none */
};

/* The axes that cut the parameter: their ranks hold different parts of it, or,
 * where it is spread, other parameters instead. The ranks of all other axes
 * hold copies, and those of AXES_BATCH among them add up its gradient and are
 * what ZeRO divides it over (mesh/shard.h). */
axis_set param_cut(const struct param_spec *spec);
axis_set param_copied(const struct param_spec *spec);

/* The ranks that cut the parameter where it says `axis`, and which of them the
 * one at `place` is. */
int layout_ranks_of(const struct param_spec *spec, const struct mesh *mesh,
                    enum axis axis);
int layout_rank_of(const struct param_spec *spec, const struct mesh *mesh,
                   const struct place *place, enum axis axis);

/* Neighbours that cut an expert have copies of what no axis cuts of it: false
 * on all but the first. */
bool layout_first_neighbour(const struct param_spec *spec,
                            const struct mesh *mesh,
                            const struct place *place);

/* ERR_CONFIG: an axis does not divide (names parameter, axis, sizes and the
 * nearest that does). All that follows is for layouts that passed. */
status layout_check(const struct param_spec *spec, const struct mesh *mesh);

/* The part held at `place`, as a matrix. A vector has one row. With `leaves`
 * the last rank's part may be smaller (vocabularies), and a piece with heads
 * is held in whole heads: by several ranks where there are more ranks than
 * heads. */
void layout_local_shape(const struct param_spec *spec, const struct mesh *mesh,
                        const struct place *place, int64_t *rows,
                        int64_t *cols);

/* Elements along the cut dimension of a piece. */
struct layout_span { int64_t first, count; };
/* Leaf `leaf` of `leaves` blocks of ceil(n / leaves), from the piece's first
 * row (column) on; the last ones may be short or empty. */
struct layout_span layout_leaf(const struct param_spec *spec, int leaves,
                               int leaf, int piece);
/* The part of the piece that the rank holds, as a span of the whole. */
struct layout_span layout_held(const struct param_spec *spec,
                               const struct mesh *mesh,
                               const struct place *place, int piece);

/* Lower ranks of the tensor axis hold rows of the piece below this one, too,
 * because the piece's heads stay whole; 0: none. It may be the end of the
 * rank's part. */
int64_t layout_own_first(const struct param_spec *spec,
                         const struct mesh *mesh, const struct place *place,
                         int piece);

/* The runs of local elements [first, last), in local order. ZeRO passes its
 * share of the flat part; everyone else passes 0 and the local size.
 * Returns how many it wrote. */
int layout_runs(const struct param_spec *spec, const struct mesh *mesh,
                const struct place *place, int64_t first, int64_t last,
                struct layout_run runs[LAYOUT_RUNS_MAX]);

/* The numerics grid: the finest cuts of every sum (docs/numerics.md). */
struct grid { int data, tensor, context, expert; };

#endif
