/* SPDX-License-Identifier: Apache-2.0 */
/* setup.h - from a configuration to everything that is decided before the
 * first byte of memory: model, grid, length of the run, stage. */
#ifndef LOCKSTEP_SETUP_SETUP_H
#define LOCKSTEP_SETUP_SETUP_H

#include "base/options.h"
#include "base/vocabulary.h"
#include "mesh/group.h"
#include "optimizer/ramp.h"
#include "optimizer/rate.h"
#include "optimizer/update.h"
#include "plan/pipeline.h"
#include "step/loss_scale.h"

struct setup {
    const struct options_set *set; /* borrowed */
    struct vocabulary vocabulary;  /* of the run's tokenizer */
    struct model model;
    int64_t parameters;            /* of the whole model */
    int64_t trained;               /* of those, not frozen */
    struct loss_scale scaling;     /* at step 0 */
    enum muon_adjust adjust;
    struct rate rate;              /* steps: setup_length */
    bool rate_by_tokens;           /* its curve follows the tokens read */
    struct grid grid;              /* of the run; the request has the share of
                                    * one rank */
    struct mesh mesh;
    struct mesh_order order;
    struct place place;            /* of the rank that is planned for */
    struct ramp ramp;              /* owned: the batch of each step */
    int64_t batch;                 /* that is planned for: train.batch, until
                                    * setup_use_batch */
    int ranks;                     /* that share the batch */
    bool exact;                    /* the layout never shows; false where
                                    * numerics.mode=fast made the grid give
                                    * way to it */
    struct schedule schedule;      /* owned: of the pipeline, verified */
    struct groups groups;          /* of the optimizer; rates: */
    struct rate_factors *rates;    /* owned, [parameters], or NULL */
    int *blocks;                   /* owned, [schedule.stages] */
    struct stage_request request;  /* ready for stage_plan */
    struct known_stages *known;    /* borrowed: of plans that are never opened;
                                    * NULL: none */
    struct known_schedules *schedules; /* borrowed; NULL: none */
};

/* Reads the config.json that the options name; plans for `rank` of `ranks`.
 * ERR_CONFIG says which option cannot be. */
status setup_resolve(struct setup *setup, const struct options_set *set,
                     const struct vocabulary *vocabulary, int ranks, int rank);
/* Counts them, and reads their groups; the model must be known. ERR_CONFIG: a
 * row of optimizer.groups that cannot be followed. */
/* Like setup_resolve, for rank 0 where the options of the model and of its
 * optimizer are those of a setup that was resolved: parameters are not counted
 * again. */
struct setup_model {
    const struct vocabulary *vocabulary;
    int64_t parameters, trained; /* of that setup; 0: count them */
    struct known_schedules *schedules; /* borrowed; NULL: none */
};
status setup_resolve_layout(struct setup *setup,
                            const struct options_set *set, int ranks,
                            const struct setup_model *known);
status setup_parameters(struct setup *setup);
/* Parameters that a token uses: all without those of experts that it did not
 * choose. */
static inline int64_t setup_active(const struct setup *setup)
{
    return setup->parameters - model_idle(&setup->model);
}
/* So many consecutive ranks were found on each node (0: all are on one), which
 * counts where mesh.node says nothing. ERR_CONFIG: as mesh_nodes. */
status setup_use_node(struct setup *setup, int node);
/* Plans for another rank of the same. */
void setup_place(struct setup *setup, int rank);
/* Another grid, of a run that goes on. ERR_CONFIG: the layout does not fit it;
 * says which axis, and the nearest that does. */
status setup_use_grid(struct setup *setup, const struct grid *grid);
/* Uses a checkpoint's, which is foreign. ERR_CONFIG: it does not cut the run's
 * batch or model, too; says by which option it would. */
status setup_take_grid(struct setup *setup, const struct grid *grid);
/* Plans for another batch of the ramp. ERR_CONFIG: it does not divide. */
status setup_use_batch(struct setup *setup, int64_t batch);
/* The learning rate as the options have it, but for the run's length.
 * ERR_CONFIG: unknown or contradictory options. */
status setup_read_rate(struct setup *setup, const struct options *options);
/* The learning rate of a step, counted from 0; after setup_length. */
double setup_rate(const struct setup *setup, int64_t step);
/* Minutes between checkpoints; 0: none are made by time. A run that may rewind
 * goes back to its newest checkpoint: where that is must not depend on a
 * clock. */
double setup_save_minutes(const struct setup *setup);
/* Whether schedule.name is the path of a text file, not a row of the table. */
bool setup_schedule_is_file(const char *name);
/* The request for pipeline_plan. */
struct pipeline_request setup_pipeline(const struct setup *setup);
void setup_free(struct setup *setup);

/* Betas, decay and clip of the options. */
void setup_update(const struct setup *setup, struct update *update);

/* ERR_CONFIG: no type of train.dtype. */
status setup_dtype(const char *name, enum dtype *out);
/* ERR_CONFIG: a word of train.dtype, train.recompute, zero_reduce,
 * optimizer.name, mesh.order, moe.exchange or schedule.name that is none of
 * theirs. */
status setup_check_words(const struct options *options);
/* The recipe of products and its blocks, as they are before anything is known
 * of a layout. ERR_CONFIG: recipe_choose. */
status setup_precision(struct precision_use *out, const struct options *o,
                       int layers);
/* Terms and rooms that the options ask for; scopes are chosen later. */
struct regularization setup_regular(const struct model *model,
                                    const struct options *options);
/* ERR_CONFIG: not one of train.steps, tokens and epochs is set. */
status setup_check_length(const struct options *options);
/* Steps of the run, from train.steps, tokens or epochs; samples of an epoch
 * are needed for the last. ERR_CONFIG: none or several are set. */
status setup_length(struct setup *setup, int64_t samples);

#endif
