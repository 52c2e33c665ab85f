/* SPDX-License-Identifier: Apache-2.0 */
/* states.h - the rules of a table's parameters, and where the optimizer's
 * states of this rank lie: slot by slot, in each the parameters that have such
 * a state, one after the other.
 *
 *   slot 0  [m of parameter 0 |m of 2 |buffer of 3 |...]   a memory row each
 *   slot 1  [v of parameter 0 |v of 2 |...]
 *
 * A rank has those elements of a weight-shaped state that it updates (its own
 * shard_range); it neither has nor reads the others. So frozen parameters, and
 * those whose kind has no such state, take no memory. Whole states, of tensors
 * that this rank owns, come last. */
#ifndef LOCKSTEP_OPTIMIZER_STATES_H
#define LOCKSTEP_OPTIMIZER_STATES_H

#include "kernels/masters.h"
#include "mesh/matrices.h"
#include "optimizer/kind.h"

/* This rank's part of one state of one parameter. In 8 bits: codes, leaf by
 * leaf (struct held_leaf), then the scales of their blocks. */
struct state_place {
    int64_t elements;     /* 0: nothing */
    size_t at;            /* bytes, in the memory of the slot */
    size_t scales;        /* of 8 bits: where they begin */
    int64_t blocks;       /* that have one */
    enum state_type type;
};

struct states {
    struct optimizer_rule *rules;  /* owned, [parameters] */
    struct state_place *places;    /* owned, [parameters][OPTIMIZER_STATES] */
    size_t bytes[OPTIMIZER_STATES];
    const char *titles[OPTIMIZER_STATES]; /* NULL: a common one */
    enum dtype real;
    struct matrices matrices; /* owned: tensors that kinds see as wholes */
};

/* The facts that determine where states lie. */
struct states_request {
    const struct param_table *params;
    const struct holding *holding;
    const struct shards *shards;
    const struct optimizer_choice *choice;
    struct division division; /* by which the shards were made */
    enum dtype real;
};
status states_plan(struct states *states, const struct states_request *of);
void states_free(struct states *states);

/* Where a whole state of a tensor of this rank lies in its parameter's. */
int64_t states_whole_at(const struct states *states,
                        const struct matrix *matrix, int slot);
/* The title of a slot's memory. */
const char *states_title(const struct states *states, int slot);
const struct state_place *states_place(const struct states *states, int param,
                                       int slot);

/* ---- leaves, for states that are stored in blocks ---- */

/* The part of one leaf of the grid that lies in a range of a parameter: whole
 * blocks of the norm (docs/numerics.md), so that blocks of 8-bit states are the
 * same under every layout. */
struct held_leaf {
    struct leaf_block block;
    int64_t rows, count;  /* of the range: count elements of each */
    int64_t first;        /* element of the range, counted from its start */
    int64_t at, blocks;   /* elements and blocks of the leaves before it */
};
/* One parameter's leaves, one after the other. Starts with param, holding and
 * range alone. */
struct held_cursor {
    const struct param *param;
    const struct holding *holding;
    const struct shard_range *range;
    int leaf, piece;
    struct held_leaf now;
    bool begun;
};
bool held_next(struct held_cursor *cursor);
/* The matrix that it is of a tensor over the range. */
struct tensor held_view(const struct held_cursor *cursor,
                        struct tensor range);

/* ---- 8 bits, and split masters, as numbers ---- */

struct state_codes {
    const struct param *param;     /* borrowed */
    const struct holding *holding; /* borrowed */
    struct shard_range range;
    unsigned char *codes;
    float *scales;
    bool positive;
    struct masters masters; /* of the range: what it is instead, if codes is
                             * NULL */
};
/* out [count] = elements first, first + step, ... of the range, counted from
 * its start. */
void state_decode(const struct state_codes *codes, int64_t first, int64_t step,
                  int64_t count, float *out);
/* All codes, from the elements of the range as they lie. Decoded numbers encode
 * to the same bits. */
void state_encode(const struct state_codes *codes, const float *elements);

#endif
