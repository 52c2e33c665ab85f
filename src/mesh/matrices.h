/* SPDX-License-Identifier: Apache-2.0 */
/* matrices.h - the tensors of a stage as they are outside (q, k and v each by
 * itself), which rank computes with each as a whole, and where its parts lie.
 *
 * The ranks of a stage (all axes but pipe) are numbered by their places. Each
 * tensor has one owner among them; the ranks that bring it the parts, its
 * senders, are those that differ from the owner only in axes that cut the
 * tensor. A tensor of an expert that the ranks of the expert axis divide is
 * owned by one of the ranks that hold the expert. Owners take turns together:
 * in a turn each has one tensor at most, so a rank needs room for one whole
 * tensor. Larger ones come first, so that the tensors of a turn are alike.
 *
 *              owner 0   owner 1   owner 2   owner 3
 *   turn 0     down 0    down 1    gate 0    gate 1
 *   turn 1     up 0      up 1      q 0       q 1
 *
 * Everything follows from the table, the mesh and the division: the same on all
 * ranks, without a message. */
#ifndef LOCKSTEP_MESH_MATRICES_H
#define LOCKSTEP_MESH_MATRICES_H

#include "mesh/shard.h"

struct matrix {
    int param;            /* of the table */
    int expert;           /* place of the ranks that hold it among those that
                           * divide the experts; -1: all of them do */
    int tensor;           /* outside piece of it: param_outside */
    int first_piece, pieces; /* rows of spec->pieces that it is made of; 0, 1
                              * where there are none */
    int64_t first;        /* element of the whole parameter */
    int64_t rows, cols;   /* as it lies here; of a vector: 1 row */
    bool transposed;      /* outside it is [cols, rows] */
    int gathers;          /* times that its parts go to the owner in a step */
    int owner, turn;
};

/* The table as the ranks with one place on the tensor and expert axes have it.
 */
struct matrix_side {
    struct param_table table;  /* owned */
    struct holding holding;
    struct shards shards;      /* owned; of any rank */
};

struct matrices {
    struct matrix *items;      /* owned, [count], in model order */
    int count;
    int ranks, rank;           /* of the stage; this one */
    int turns;
    int *by_turn;              /* owned, [turns][ranks]: the owner's; -1 */
    struct mesh mesh;
    axis_set divided;          /* axes that the division cuts over */
    struct matrix_side *sides; /* owned, [expert ranks][tensor ranks] */
};

/* A table, and which of its parameters are seen as matrices. */
struct matrices_of {
    const struct param_table *table;
    const struct holding *holding;
    struct division division;
    const int *gathers;        /* [expert ranks][params]: of the table of each
                                * place among the ranks that divide the
                                * experts (they differ in these alone). 0: it
                                * has none; NULL: all are 0 */
};
status matrices_build(struct matrices *matrices,
                      const struct matrices_of *of);
/* The first tensor of the parameter in items, or of the next that has one. */
int matrices_first(const struct matrices *matrices, int param);
void matrices_free(struct matrices *matrices);
/* Does this rank's table have the tensor? */
bool matrix_is_here(const struct matrices *matrices,
                    const struct matrix *matrix);

/* Ranks of a stage. */
int stage_ranks(const struct mesh *mesh);
/* Place of rank `rank`, which has this coordinate of the pipe. */
void stage_rank_place(const struct mesh *mesh, int pipe, int rank,
                      struct place *out);

/* The part of piece `piece` (from 0) of a matrix that `rank` holds: one run, in
 * which whole_first counts from the matrix and local_first from the rank's part
 * of the parameter, as it lies undivided. False: it holds nothing. */
bool matrix_part(const struct matrices *matrices, const struct matrix *matrix,
                 int rank, int piece, struct layout_run *out);
/* Does `rank` bring its part to the owner? Every other rank with a part has a
 * copy of what one of these has. */
bool matrix_sends(const struct matrices *matrices, const struct matrix *matrix,
                  int rank);
/* The one that rank `owner` computes with in that turn, or NULL. */
const struct matrix *matrix_of(const struct matrices *matrices, int turn,
                               int owner);
/* Most pieces of a matrix of that turn. */
int matrices_pieces(const struct matrices *matrices, int turn);

/* Most times that a matrix of that turn is gathered. */
int matrices_gathers(const struct matrices *matrices, int turn);

/* Messages of a step, in which parts are gathered and given back once: calls,
 * and bytes that this rank sends to others. */
void matrices_traffic(const struct matrices *matrices, int64_t element_bytes,
                      int64_t *calls, int64_t *bytes);

#endif
