/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - the work of one pipeline rank: its stages of the model, and the
 * schedule that all ranks follow.
 *
 * Without a pipeline (mesh.pipe 1) it is one stage with the whole model and the
 * list of one rank. Everything is decided here, on every rank alike and without
 * a message; pipeline_open then takes exactly the planned memory.
 *
 *   chunk  one stage of the model on this rank, for one direction */
#ifndef LOCKSTEP_PLAN_PIPELINE_H
#define LOCKSTEP_PLAN_PIPELINE_H

#include "mesh/group.h"
#include "plan/known_stages.h"
#include "schedule/schedule.h"

struct pipeline_request {
    struct stage_request stage; /* of the whole model, for this rank's share of
                                 * the batch; mesh and place say where it is */
    const struct schedule *schedule; /* of all ranks; NULL: 1f1b of one */
    const int *blocks;          /* of each stage; NULL: of the one stage */
    struct mesh_order order;    /* of the mesh; empty: the default */
    struct known_stages *known; /* borrowed; NULL: each stage is planned alone.
                                 * The pipeline is never opened */
};

enum { TIED_AT_ONCE = 1 << 16 }; /* elements of a shared matrix in a message */

struct chunk {
    int number;        /* stage of the schedule */
    int direction;     /* of the schedule; 0 where it has both */
    int copies, copy;  /* ranks of the pipe that hold this stage: each works on
                        * its own data leaves; which of them this is */
    int first, count;  /* micro-batches of the schedule that come by */
    int returns;       /* buffers for gradients on their way back */
    char label[24];    /* "stage 3": of the group of its copies */
};

struct pipeline {
    struct schedule schedule; /* owned, lowered */
    bool borrows;             /* ... but of one that is never opened: the
                               * request's */
    int rank;                 /* of the pipe */
    int world_rank, world_size;
    struct stage *stages;     /* owned, [count] */
    struct chunk *chunks;     /* owned, [count] */
    int *chunk_of;            /* owned, [stages][2 directions]; -1: none */
    int count;
    bool takes_turns;         /* no pass of a stage runs beside another's */
    struct memory_row memory[MEMORY_OWNERS]; /* of all stages; no data */
    size_t bytes;             /* their sum */
};

status pipeline_plan(struct pipeline *pipeline,
                     const struct pipeline_request *request);
/* Room for the messages of collectives, before pipeline_open. */
void pipeline_reserve_messages(struct pipeline *pipeline, size_t bytes);
/* At least as much of everything as `other`, planned for another batch. Before
 * pipeline_open. ERR_CONFIG: it has other stages. */
status pipeline_reserve_as(struct pipeline *pipeline,
                           const struct pipeline *other);
/* Room for the batch of the next step, which is read while this one computes:
 * whole sequences of all micro-batches of this rank. Before pipeline_open. */
void pipeline_reserve_ahead(struct pipeline *pipeline);
status pipeline_open(struct pipeline *pipeline);
/* Waits for what kernels write for the host. */
status pipeline_finish(const struct pipeline *pipeline);
/* `next`, planned for another batch, goes on in the memory of `pipeline`, which
 * becomes it: what it was is freed. */
status pipeline_take_over(struct pipeline *pipeline, struct pipeline *next);
void pipeline_free(struct pipeline *pipeline);

/* The chunk that runs `stage` of `microbatch`; -1: another rank does. */
int pipeline_chunk(const struct pipeline *pipeline, int stage,
                   int microbatch);
/* The number of a micro-batch of the step among those of its round in a chunk:
 * the gradients of a round are reduced together. */
int pipeline_of_round(const struct pipeline *pipeline, int chunk,
                      int microbatch);
/* Micro-batches of a step on this rank. */
int pipeline_microbatches(const struct pipeline *pipeline);
/* Whether there is room for the next step's, and that of one of them, or,
 * behind the last, of one of an evaluation: inputs, targets, positions and
 * documents, [sequences, program_sequence] each. */
bool pipeline_reads_ahead(const struct pipeline *pipeline);
struct stage_batch pipeline_ahead(const struct pipeline *pipeline,
                                  int microbatch);
/* The first sequence, in the global batch, of a micro-batch of the step; rank:
 * of those that share the batch. In round i, rank r of R has share i R + r. */
int64_t pipeline_first_sequence(const struct pipeline *pipeline, int rank,
                                int microbatch);
/* Buffer `number` of a chunk's gradients on their way back, as large as the
 * gradient of its entry. */
void *pipeline_return(const struct pipeline *pipeline, int chunk, int number);
/* Bytes of what a send of this rank carries. */
int64_t pipeline_border_bytes(const struct pipeline *pipeline,
                              struct action action);
/* A matrix that the first and the last stage share (a tied head, a table that
 * modules for later tokens look up): where the other use of a chunk's is, and
 * what of it this rank updates. */
struct pipeline_share {
    const struct param *param; /* NULL: nothing is shared, or it is frozen */
    int peer;                  /* rank of the pipe */
    int chunk;                 /* of this rank; -1: it is on another */
    int64_t first, elements;   /* in the gradient arena of the chunk */
};
struct pipeline_share pipeline_share(const struct pipeline *pipeline,
                                     int chunk);
/* Data leaves of the global batch. */
int pipeline_data_leaves(const struct pipeline *pipeline);
/* Doubles that all ranks join in a step: for the norm, for the loss, for the
 * largest scores. */
int64_t pipeline_norm_values(const struct pipeline *pipeline);
int64_t pipeline_loss_values(const struct pipeline *pipeline);
/* ... for the losses of later tokens, of all modules. */
int64_t pipeline_later_values(const struct pipeline *pipeline);
int64_t pipeline_peak_values(const struct pipeline *pipeline);
/* Largest magnitudes of operands, for late scales. */
int64_t pipeline_late_values(const struct pipeline *pipeline);
/* Numbers of what roundings did, joined at once in an observed step. */
int64_t pipeline_tally_values(const struct pipeline *pipeline);
int64_t pipeline_route_values(const struct pipeline *pipeline);

#endif
