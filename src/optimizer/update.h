/* SPDX-License-Identifier: Apache-2.0 */
/* update.h - from summed gradients to new weights: scaling, the global norm,
 * clipping, and what the optimizer of each parameter does (kind.h). Each rank
 * updates its own shard of every parameter, and the bits are those of one rank
 * that updates everything.
 *
 * The norm of a step, over all stages of all ranks:
 *   update_blocks    the mean gradient; sums of squares of the blocks of this
 *                    rank's shards
 *   (exchange)       the others' blocks, from the ranks that share the arena
 *   update_squares   blocks to one sum for each parameter and tensor leaf
 *   (exchange)       the others' parameters and leaves
 *   update_norm      the norm, the same on every rank */
#ifndef LOCKSTEP_OPTIMIZER_UPDATE_H
#define LOCKSTEP_OPTIMIZER_UPDATE_H

#include "kernels/kernels.h"
#include "mesh/shard.h"
#include "optimizer/states.h"

/* One arena laid out as the table, or what this rank has of it. */
struct update_arena {
    void *data;
    enum shard_level level;
};

struct whole_work;
enum muon_adjust { MUON_ORIGINAL, MUON_MATCH_RMS };
/* ERR_CONFIG names the nearest. */
status muon_adjust_parse(enum muon_adjust *adjust, const char *name);

struct update {
    const struct kernels *kernels;
    const struct kernels *real;  /* of sums, where kernels are narrow */
    struct stream *stream;
    const struct param_table *params;
    const struct holding *holding;
    const struct shards *shards; /* what this rank updates */
    struct update_arena weights, gradients; /* real; weights: lower halves of
                              * split masters, where split.ties is set */
    struct {
        unsigned char *ties; /* of masters; NULL: they are not split */
        struct tensor room;  /* [n] float32: masters at once */
    } split;
    const struct states *layout; /* rules, and where the states lie */
    void *states[OPTIMIZER_STATES]; /* memory of each slot */
    struct update_arena copy; /* of the weights as kernels read them, of
                               * kernels->dtype; data NULL: none */
    const int64_t *gone;      /* [parameters]: elements before it that the copy
                               * lacks; -1: it has none of it; NULL: it is whole
                               */
    int first, end;          /* parameters that are updated; end 0: all */
    double *blocks;          /* [shard_blocks] */
    double beta1, beta2, epsilon, weight_decay; /* where a rule says nothing;
                              * decay: of parameters whose spec has it */
    double momentum;         /* of sgd and muon */
    bool nesterov;
    int ns_steps;            /* muon: of Newton and Schulz */
    enum muon_adjust adjust; /* muon: of the rate to the shape */
    int frequency;           /* soap: steps from one turn of the bases on */
    struct whole_work *whole; /* of kinds that see whole tensors; NULL: there
                               * are none */
    double clip;             /* largest norm; 0: none */
    double share;            /* schedule-free: of this step's point in the
                              * average (struct rate_sum) */
    double loss_scale;       /* that the gradients have; 0: 1 */
    bool skips;              /* a norm that is not finite is no error */
    int64_t from;            /* bytes: weights and states of before lie so far
                              * behind their new ones (optimizer/carry.h); 0:
                              * they are updated in place */
    struct range_sum *sum;   /* of the new ones; NULL: not asked for */
};

/* The parameter after the last that is updated. */
static inline int update_end(const struct update *update)
{
    return update->end > 0 ? update->end : update->params->count;
}

/* One step, of everything. */
struct update_call {
    double factor;           /* of the gradients: clipping */
    double lr;               /* of the step, before a rule's factor */
    int64_t t;               /* of the step, counted from 1 */
};

/* The view that a kind has of one parameter: this rank's own elements, in the
 * order in which they lie. Empty tensors if it has none; data NULL: no copy. */
struct update_item {
    int index;               /* of the table */
    const struct param *param;
    const struct optimizer_rule *rule;
    struct shard_range range;
    struct tensor weight, gradient; /* [n] real; of a frozen matrix no
                              * gradient; split masters have no weight, but
                              * in parts */
    struct masters masters;  /* split ones, [n] */
    struct tensor copy;      /* [n] narrow: becomes the new weights, rounded */
    struct tensor states[OPTIMIZER_STATES]; /* [n] or, WHOLE, all of it; u8:
                              * codes */
    float *scales[OPTIMIZER_STATES]; /* of codes */
    double factor, lr, beta1, beta2, epsilon, decay; /* with the rule's */
    int64_t t;
    int64_t from;            /* of the update, where the kind obeys it; */
    struct range_sum *sum;   /* so is this */
};

struct update_result {
    double norm;             /* of all gradients, before clipping */
    double factor;           /* min(1, clip / (norm + 1e-6)); 1 without clip */
    bool finite;             /* else the step is to be skipped */
    bool fails;              /* a gradient is not finite, and no step may be
                              * skipped */
};

/* gradients *= (real)(1 / (targets loss_scale)): the mean over the unmasked
 * targets of the global batch. Fills update->blocks with what the norm is made
 * of: own blocks, 0 elsewhere. */
status update_blocks(const struct update *update, int64_t targets);
/* sums [parameters of the model][shard_leaves]: adds those of this rank, each
 * parameter's on one of the ranks that hold the same part of it.
 * update->blocks is destroyed. */
void update_squares(const struct update *update, double *sums);
/* The global norm (docs/numerics.md) of `orders` parameters and the clip
 * factor; `sums` is destroyed. ERR_NUMERIC when the norm is not finite: names
 * the first parameter whose gradient is not; ERR_PEER where another rank holds
 * that one. */
status update_norm(const struct update *update, double *sums, int orders,
                   struct update_result *out);

/* Weights and states of step t (counted from 1) with learning rate lr, and the
 * copy. */
status update_apply(const struct update *update, double factor, double lr,
                    int64_t t);
/* Parameter `index` of the table as a kind sees it. */
struct update_item update_item(const struct update *update, int index,
                               const struct update_call *call);
/* Elements [first, first + count) of an item. States that are codes or of whole
 * tensors stay. */
struct update_item update_part(const struct update_item *item, int64_t first,
                               int64_t count);
/* Does something with an item: at once, or, where its masters are split, part
 * by part, as many as there is room for: they become numbers first if it reads
 * the weight, and are split again if it writes it. */
enum weight_use { WEIGHT_READ = 1, WEIGHT_WRITTEN = 2, WEIGHT_CHANGES = 3 };
typedef status update_work(const struct update *, const struct update_item *,
                           const void *argument);
status update_in_parts(const struct update *update,
                       const struct update_item *item, enum weight_use use,
                       update_work *work, const void *argument);
/* One step of states that see each weight alone: fills what the formula needs
 * of the item into *call, which says the formula, and runs its kernel. */
status update_elements(const struct update *update,
                       const struct update_item *item,
                       struct element_update *call);
/* States of step 0, from its weights; those that no kind sets are zero. */
status update_start(const struct update *update);
/* Where a kind has an average: the own weights are set to it, and what they
 * were is kept in the place of the gradients, until update_return. */
status update_average(const struct update *update);
status update_return(const struct update *update);
/* Schedule-free: the squares of the largest learning rates so far, added up.
 * Step t's point has the share lr^2 / sum in the average. */
struct rate_sum { double most, sum; };
double rate_share(struct rate_sum *sum, double lr);
/* The copy of new weights that come from elsewhere. */
status update_copy(const struct update *update);

#endif
