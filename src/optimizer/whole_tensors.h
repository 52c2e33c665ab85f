/* SPDX-License-Identifier: Apache-2.0 */
/* whole_tensors.h - optimizers that see a tensor as a whole, on ranks that have
 * parts of it: the bits are those of one rank.
 *
 *   prepare   each rank, its own elements: the gradient becomes what the step
 *             is computed from
 *   (gather)  every tensor to the one rank that owns it (mesh/matrices.h)
 *   compute   the owner: the step of the whole tensor
 *   (return)  each rank gets the step of its own elements, over the gradient
 *   finish    each rank: weights, and their copy
 *
 * Nothing of a tensor is added up on the way, so how many ranks there are does
 * not show. A kind that works so has a row of these hooks. */
#ifndef LOCKSTEP_OPTIMIZER_WHOLE_TENSORS_H
#define LOCKSTEP_OPTIMIZER_WHOLE_TENSORS_H

#include "mesh/matrices.h"
#include "optimizer/states.h"
#include "optimizer/update.h"

/* A tensor on the rank that computes with it. */
struct whole_tensor {
    const struct matrix *matrix;
    const struct update_item *item; /* of its parameter */
    struct tensor x;  /* [rows, cols] real: gradients; becomes the step */
    struct tensor weights; /* [rows, cols] real; data NULL: not asked for */
    void *states[OPTIMIZER_STATES]; /* of the tensor: those that are whole */
    void *scratch;    /* as many elements as the kind said */
    bool apart;       /* they lie on a device apart: no element can be read */
};

struct whole_kind {
    bool weights;     /* asked for */
    /* Whether compute reads elements itself in this step, and threads of the
     * stream do; last: the newest step that the host computed of the tensor
     * since the run began, 0: none. NULL: it never does. */
    bool (*needs_host)(const struct update *, const struct update_item *,
                       int64_t last);
    /* Elements of scratch, real. */
    int64_t (*scratch)(int64_t rows, int64_t cols);
    /* NULL: the gradient times the item's factor. */
    status (*prepare)(const struct update *, const struct update_item *);
    status (*compute)(const struct update *, const struct whole_tensor *);
    /* weight = weight keep - rate step. */
    void (*finish)(const struct update *, const struct update_item *,
                   const struct matrix *, struct descent *out);
};

/* Where the host computes whole tensors of a device apart: copies of them,
 * their scratch and states, and tables that run at once. */
struct whole_host {
    void *room;                      /* borrowed: whole_host_bytes; NULL: no
                                      * tensor */
    struct stream stream;
    const struct kernels *kernels;   /* borrowed, [2]: and those of sums */
};

/* The group and the memory that the ranks of a stage need for whole tensors. */
struct whole_work {
    const struct matrices *matrices; /* borrowed */
    struct group *group;             /* borrowed; NULL: alone */
    struct comm_block *send, *receive; /* owned, [ranks] */
    int64_t *on_host;                /* owned, [matrices]: the newest step that
                                      * the host computed; 0: none */
    void *room;                      /* borrowed: whole_room_bytes */
    struct whole_host host;
};

status whole_work_build(struct whole_work *work,
                        const struct matrices *matrices,
                        struct group *group, void *room);
void whole_work_free(struct whole_work *work);

/* Gathers of each parameter's tensors, for matrices_build: gathers [count]. */
void whole_gathers(const struct optimizer_rule *rules, int count,
                   int *gathers);
/* Memory of the rank for one tensor at a time. */
size_t whole_room_bytes(const struct states *states);
/* The elements that one tensor needs of it, on the rank that owns it. */
int64_t whole_room(const struct states *states, const struct matrix *matrix);
/* Like whole_room_bytes, of the host, with states: for kinds whose `compute` it
 * does; 0: it does none. */
size_t whole_host_bytes(const struct states *states);
/* One step of every parameter whose kind works so. Collective over the ranks of
 * the stage. */
status whole_apply(const struct update *update,
                   const struct update_call *call);

#endif
