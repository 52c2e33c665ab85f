/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - seconds of one piece of work on a machine, by cause. */
#ifndef LOCKSTEP_PLANNER_COST_H
#define LOCKSTEP_PLANNER_COST_H

#include "nn/rounding_kernels.h"
#include "planner/layout.h"
#include "planner/measured_rates.h"

enum cause {
    CAUSE_PRODUCT, CAUSE_ROUNDING, /* operands of products in few bits */
    CAUSE_ATTENTION, CAUSE_MEMORY, CAUSE_LAUNCH, CAUSE_UPDATE,
    CAUSE_HOST,    /* what a step needs beside its instructions */
    CAUSE_TENSOR, CAUSE_CONTEXT, CAUSE_EXPERT, CAUSE_PIPE, CAUSE_DATA,
    CAUSE_SHARD, CAUSE_OFFLOAD, CAUSE_IDLE, CAUSES
};
extern const char *const cause_names[CAUSES];

/* Seconds by cause, those of them that no measurement or fit is behind, and
 * those of messages between nodes. */
struct spent {
    double seconds[CAUSES];
    double guessed;
    double network;
};
double spent_seconds(const struct spent *span);
void spent_add(struct spent *to, const struct spent *from, double times);

struct cost {
    const struct machine *machine;
    const struct shape *shape;
    const struct layout *layout;
};

/* FLOP/s of a rank's attention over so many keys with heads of that width: what
 * was measured, or a share of the peak of products, or of float32 products
 * where a CPU was measured. */
double cost_attention_rate(const struct cost *cost, double keys, double width,
                           bool back);
/* FLOPs of attention, over so many keys with heads of that width. */
struct attended { double flops, keys, width; bool back; };
void cost_attended(const struct cost *cost, const struct attended *attended,
                   struct spent *out);
/* `times` products, one after the other. */
void cost_product(const struct cost *cost, struct product_size size,
                  double times, enum cause cause, struct spent *out);
/* Gaps of a device after kernels of Lockstep, beside the launch that each of
 * them takes at least; not where products were measured. */
void cost_started(const struct cost *cost, double kernels, struct spent *out);
/* The constant of the machine by which what does not stay in the device's
 * memory travels: M_HOST_RATE or M_DISK_RATE. */
enum constant cost_offload_path(const struct layout *layout);
/* An instruction that moves bytes through memory. */
void cost_moved(const struct cost *cost, double bytes, struct spent *out);
/* Like cost_moved, for a work of the machine's table: rows of `width`
 * elements. */
struct worked { enum work work; double bytes, rows, width; };
void cost_worked(const struct cost *cost, const struct worked *worked,
                 struct spent *out);

/* `times` times all that a recipe does to a matrix before a product, or to a
 * gradient after it (nn/rounding_kernels.h). */
struct rounded_matrix {
    enum product_use use;
    enum rounded_place place;
    double rows, width;
};
void cost_rounded(const struct cost *cost, const struct precision *recipe,
                  const struct rounded_matrix *matrix, double times,
                  struct spent *out);
/* A product of codes (kernels/integers.h), `times` times. */
void cost_integers(const struct cost *cost, struct product_size size,
                   double times, struct spent *out);

/* A group of ranks: `stride` rank numbers from one member to the next. */
struct group_shape { int ranks, stride; };
struct group_shape group_of(const struct layout *layout, enum cause axis);
enum collective { COLLECTIVE_ALL_REDUCE, COLLECTIVE_ALL_GATHER,
                  COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_TO_ALL,
                  COLLECTIVE_SEND };
/* Seconds; `bytes`: of the whole tensor, as a rank has it before or after. */
double cost_collective(const struct cost *cost, enum collective op,
                       struct group_shape group, double bytes,
                       double *guessed);

/* An all-to-all of which `outside` of the bytes for other nodes leave the node
 * (1: all of them), and `inside` of all bytes go over its links; 0: those for
 * other ranks of the node. */
struct rows_once { double outside, inside; };
double cost_exchange(const struct cost *cost, struct group_shape group,
                     double bytes, struct rows_once once, double *guessed);

/* F, B (gradient of the input) and W of one block, embedding or head, for one
 * micro-batch. B includes what is recomputed for it. */
enum { COST_F, COST_B, COST_W, COST_PASSES };
struct passes { struct spent pass[COST_PASSES]; };
void cost_block(const struct cost *cost, struct passes *out);
void cost_embedding(const struct cost *cost, struct passes *out);
void cost_head(const struct cost *cost, struct passes *out);
/* Adds to W of each of them the sums of Lockstep's leaves that have waited for
 * each other, in the mean of a step's micro-batches: no layout before its grid,
 * its batch and its ZeRO are known has them. */
void cost_leaves(const struct cost *cost, struct passes *block,
                 struct passes *embedding, struct passes *head);
/* Bytes that a pipe rank sends for a micro-batch. */
double cost_border_bytes(const struct cost *cost);

#endif
