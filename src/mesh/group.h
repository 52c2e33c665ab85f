/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - where a rank stands in the mesh, and with whom: from arithmetic
 * alone, without a message.
 *
 * An order names the axes from the slowest to the fastest: with pipe, data,
 * tensor the ranks of one tensor group are neighbours. Axes that an order does
 * not name have size 1. */
#ifndef LOCKSTEP_MESH_GROUP_H
#define LOCKSTEP_MESH_GROUP_H

#include "comm/comm.h"
#include "mesh/layout.h"

enum { MESH_AXES = AXIS_COUNT - 1, MESH_RANKS_MAX = 1 << 20, MESH_AUTO = -1 };

struct mesh_order {
    enum axis axis[MESH_AXES]; /* slowest first */
    int count;
};

extern const struct mesh_order mesh_order_default; /* pipe, data, shard,
                                                    * context, expert, tensor */

/* "data,tensor" or "data x tensor", slowest first; axes not named follow from
 * the default, before the named ones. ERR_CONFIG: an unknown or repeated axis,
 * with the nearest. */
status mesh_order_parse(struct mesh_order *order, const char *text);

/* Fills the one axis that is MESH_AUTO and sets unset ones (0) to 1.
 * ERR_CONFIG: the product is not the number of ranks; names the nearest sizes
 * that are. */
status mesh_resolve(struct mesh *mesh, int ranks);
int mesh_ranks(const struct mesh *mesh); /* product of the sizes */
/* "pipe 2 x tensor 4": the axes longer than 1, or "data 1". */
enum { MESH_TEXT_BYTES = 160 };
void mesh_text(const struct mesh *mesh, char *out, size_t bytes);

void mesh_place(const struct mesh *mesh, const struct mesh_order *order,
                int rank, struct place *out);
int mesh_rank(const struct mesh *mesh, const struct mesh_order *order,
              const struct place *place);

/* The ranks that share the batch, and which of them one is: in the order of
 * batch_axes, whatever the order of the mesh. */
int mesh_batch_ranks(const struct mesh *mesh);
int mesh_batch_rank(const struct mesh *mesh, const struct place *place);
/* Like mesh_batch_rank, of the ranks that differ in `axes`, some of batch_axes,
 * at most. */
int mesh_batch_index(const struct mesh *mesh, const struct place *place,
                     axis_set axes);
/* The numbers of those ranks. */
void mesh_batch_members(const struct mesh *mesh,
                        const struct mesh_order *order,
                        const struct place *place, axis_set axes,
                        int *members);
/* So many of those ranks follow each other on one node, as many on each; 0: all
 * are on one, or they do not. */
int mesh_batch_run(const struct mesh *mesh, axis_set axes);
/* Whether `axes` are all axes of the batch that are longer than 1: then the
 * group of all that share the batch is meant. Shard and expert alone never are,
 * for they have groups of their own. */
bool mesh_is_batch(const struct mesh *mesh, axis_set axes);
/* "batch", or those of `axes` that are longer than 1: "data+shard". */
void mesh_batch_label(const struct mesh *mesh, axis_set axes,
                      char label[COMM_LABEL_BYTES]);
/* The group of ranks that differ in `axes`, some of batch_axes, at most, and
 * the place of one of them in it. */
struct batch_place {
    struct group_id id;
    char label[COMM_LABEL_BYTES];
    int size, rank;
};
struct batch_place mesh_batch_place(const struct mesh *mesh,
                                    const struct place *place, axis_set axes);

/* Chooses the axes that divide the experts beside the expert axis: context if
 * asked, tensor where others than its ranks cut each expert, expert_tensor in
 * all (0: those of the tensor axis do). ERR_CONFIG: the ranks that divide the
 * experts are not so many times some. */
status mesh_fold(struct mesh *mesh, int64_t expert_tensor,
                 bool expert_context);
/* The ranks that divide the experts of a block: those of the expert axis, of
 * each of these the ones of the context axis and of each of those the ones of
 * the tensor axis, as far as these are folded (struct mesh). */
int mesh_expert_ranks(const struct mesh *mesh);
int mesh_expert_rank(const struct mesh *mesh, const struct place *place);
/* The ranks that hold different experts: each place is one rank, or so many
 * neighbours that cut its experts. */
int mesh_expert_places(const struct mesh *mesh);
int mesh_expert_place(const struct mesh *mesh, const struct place *place);
int mesh_expert_cut(const struct mesh *mesh);
void mesh_expert_members(const struct mesh *mesh,
                         const struct mesh_order *order,
                         const struct place *place, int *members);
/* Where the ranks are: `node` consecutive ones on each node (0: all). exchange,
 * how rows of experts go: "auto", "flat", or "two_level". ERR_CONFIG: another
 * word, nodes that do not divide the ranks, or two levels where there is one
 * node, or nodes with unequal shares of an axis. */
status mesh_nodes(struct mesh *mesh, const struct mesh_order *order, int node,
                  const char *exchange);
/* Nodes on which the ranks lie that divide the experts, equally many on each
 * (struct mesh, relays; else 1), and the seat of one of those ranks: in any
 * case, if inside is known; else they are on one. */
struct expert_seat { int node, place; };
int mesh_expert_nodes(const struct mesh *mesh);
struct expert_seat mesh_expert_seat(const struct mesh *mesh, int rank);
/* The ranks that divide the experts on one node, if they follow each other; 0:
 * rows go straight, or they do not. */
int mesh_expert_run(const struct mesh *mesh);

/* The ranks that talk along an axis inside the program, and the name and the
 * identity of their group: along the expert axis all that divide the
 * experts. */
int mesh_axis_group_size(const struct mesh *mesh, enum axis axis);
int mesh_axis_group_rank(const struct mesh *mesh, const struct place *place,
                         enum axis axis);
const char *mesh_axis_group_name(const struct mesh *mesh, enum axis axis);
struct group_id mesh_axis_group_id(const struct mesh *mesh, enum axis axis);
/* The group along several axes; of one axis that is longer than 1, its own,
 * unless it is the group of all that share the batch: what is sent there is
 * planned and counted apart from what layers send along the axis. */
struct group_id mesh_group_id(const struct mesh *mesh, axis_set axes);

int mesh_group_size(const struct mesh *mesh, axis_set axes);
/* The ranks that differ from `rank` in the coordinates of `axes` at most, in
 * the order of the mesh. Returns this rank's index. */
int mesh_members(const struct mesh *mesh, const struct mesh_order *order,
                 int rank, axis_set axes, int *members);
/* The group of this rank along `axes`, labelled "data+shard". */
status mesh_group_build(struct group *group, const struct group *world,
                        const struct mesh *mesh,
                        const struct mesh_order *order, axis_set axes);

#endif
