/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h - observations of a model's layers in the steps that the
 * configuration selects (observe.layers, observe.histograms):
 *
 *   activations  of the residual stream as each block reads it, and as the
 *                last norm does: root mean square, largest size, kurtosis
 *   logits       the largest attention score of each block, of all its heads
 *   experts      tokens of each one, and its selection bias
 *   roundings    of a recipe (roundings.h)
 *   parameters   norms of weight, gradient and update, before and after the
 *                step's update
 *
 * Kurtosis is the mean of fourth powers over the square of the mean square: 3
 * for a normal distribution, the width for one that has a single element.
 * Source: He et al. 2024, arXiv:2405.19279, section 2 (outlier features). Every
 * value is an exact sum (exact_sum.h): no layout shows in it, and looking
 * changes no bit of the run. */
#ifndef LOCKSTEP_OBSERVE_LAYERS_H
#define LOCKSTEP_OBSERVE_LAYERS_H

#include "observe/events.h"
#include "observe/roundings.h"
#include "step/inventory.h"
#include "step/step.h"
#include "step/tally.h"

/* Norms of one parameter in one step. */
struct layer_norms {
    double weight, gradient, update;
    double cut, zeroed; /* read back: the largest shares of its operands that a
                         * recipe rounds (roundings.h); NaN: none */
};

struct layer_activation {
    struct exact_sum squares, fourths; /* of elements, row by row */
    double most;                       /* largest size */
    int64_t count;                     /* elements */
};

struct layers {
    struct pipeline *pipeline;         /* borrowed, open */
    struct team *team;                 /* borrowed */
    const struct inventory *inventory; /* borrowed */
    struct events_writer *events;      /* borrowed; may be closed */
    int blocks;                        /* of the whole model */
    bool looks, histograms;            /* in this step */
    int64_t step;
    double time_s;
    struct layer_activation *activations; /* owned, [blocks + 1] */
    struct layer_activation *parts;    /* owned, [threads] */
    double *logits;                    /* owned, [blocks][heads] */
    void **peaks;                      /* owned, [stages]: where a run keeps
                                        * its largest scores */
    struct layer_norms *norms;         /* owned, [parameters] */
    struct roundings roundings;        /* of a recipe */
    const struct routing *routing;     /* borrowed: counts of the last step */
    double *biases;                    /* owned, [blocks][experts]; NULL: no
                                        * expert has one */
    struct tally *room;                /* owned, [1 + threads] */
    double *values;                    /* owned: of a message */
    void *seen;                        /* owned: rows of a device apart; NULL:
                                        * rows are looked at where they lie */
    size_t seen_bytes;
    struct run_probe probe;
    struct step_watch watch;
};

/* Values that ranks join at once, for train_step_reserve. */
int64_t layers_values(int ranks);
/* The stages are open, the inventory is of them. */
status layers_build(struct layers *layers, struct train_step *step,
                    const struct inventory *inventory,
                    struct events_writer *events);
void layers_free(struct layers *layers);

/* Before a step: looks at activations and norms, makes histograms. */
void layers_begin(struct layers *layers, int64_t step, bool looks,
                  bool histograms);
/* After it: joins what the ranks saw. Collective. */
status layers_end(struct layers *layers);

/* ---- RUN/layers.jsonl: a line for each observed step ---- */

/* One line, with its newline. */
status layers_format(struct text *out, const struct layers *layers);
/* The same as scalars of layers->events. */
status layers_tell(const struct layers *layers);

struct layers_row {
    int64_t step;
    const double *rms, *most, *kurtosis; /* [activations] */
    const double *logit;                 /* [activations - 1] */
    const struct layer_norms *norms;     /* [parameters] */
    const double *tokens;                /* [activations - 1][experts]; of a
                                          * dense block 0 */
};
struct layers_table {
    struct layers_row *rows;  /* owned by the arena, as all of it */
    int64_t count;
    int activations, parameters;
    int experts;              /* of a block; 0: there are none */
    const char **names;       /* [parameters] */
};
/* All whole lines; a torn last one is left out. A missing file is an empty
 * table. ERR_FORMAT: another bad line, or one of another model. */
status layers_read(struct layers_table *table, struct arena *arena,
                   const char *path);

/* Heat maps of the file for a report: rows are layers, columns are steps. No
 * file: nothing. */
status layers_html(struct text *out, const char *path);

#endif
