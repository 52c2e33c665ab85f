/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.h - everything that a prediction reads: the configuration, the
 * model's sizes, the machine and the layout. */
#ifndef LOCKSTEP_TRAIN_FORECAST_H
#define LOCKSTEP_TRAIN_FORECAST_H

#include "base/options.h"
#include "base/vocabulary.h"
#include "planner/list_clock.h"
#include "planner/predict.h"

enum { WALKED_PIPE = 64 /* ranks of a pipe whose lists are walked */ };

/* Facts of forecasts whose options differ in their layout alone. */
struct hunting {
    int64_t parameters, trained; /* 0: nobody counted them yet */
    struct known_stages stages; /* owned */
    struct known_schedules *schedules; /* borrowed: of all threads; NULL:
                             * none */
};

struct forecast {
    struct options_set set;
    struct vocabulary vocabulary; /* once it is asked for */
    bool knows_vocabulary;
    struct model model;
    struct shape shape;
    struct machine machine;
    struct layout layout;
    int blocks[LAYOUT_STAGES];
    enum program_as as;
    int ranks, nodes;
    double max_memory;      /* bytes; 0: the machine's */
    unsigned offload;       /* enum offload: planned only */
    double exact_bytes;     /* planned to the byte; 0: closed form */
    int exact_position;     /* of the pipe, where that is */
    enum recompute recompute; /* of that rank */
    bool walked;            /* its steps are the executor's own lists */
    double state_bytes[WALKED_PIPE]; /* bytes of a copy of the state, for each
                             * pipe rank; only where `walked` */
    bool uneven;            /* the configuration has mesh.layers, which a
                             * search leaves out */
    struct hunting *hunting; /* borrowed; NULL: this forecast stands alone */
    bool quick;             /* plans the pipe ranks only that the estimate of
                             * the layout says are the largest */
    bool unfolded;          /* plans each stage of each pipe rank alone */
    int clocks;             /* runs of the step's clock, 1 or more; 0: one */
};

/* A borrowed copy of options for one rank: sizes alone are asked of it. */
void forecast_alone(const struct options_set *set, struct options_set *out);
/* Reads the tokenizer, once; Lockstep's own plans ask for it. */
status forecast_vocabulary(struct forecast *forecast);
/* Model and shape of the options; the vocabulary may be the tokenizer's. */
status forecast_model(struct forecast *forecast);
/* The layout of the options, and the memory that Lockstep would take. */
status forecast_layout(struct forecast *forecast);
/* The lists of the step: those of the executor where they are small enough,
 * else one item for each stage and micro-batch. The caller frees them. */
status forecast_steps(struct forecast *forecast, struct steps *out);
/* Whether they are the executor's, with the layout. */
bool forecast_walks(const struct forecast *forecast,
                    const struct layout *layout);
/* How long forecast_steps takes with the layout, in instructions: about 1.5
 * microseconds each. */
double forecast_work(const struct forecast *forecast,
                     const struct layout *layout);
/* The memory alone; a refusal has no hint. */
status forecast_exactly(struct forecast *forecast);
/* The same, and in one go the lists of all its pipe ranks with a clock, as
 * forecast_steps makes them; no ranks in `out`: it needs more than `most`. */
status forecast_exactly_timed(struct forecast *forecast, double most,
                              struct steps *out);
struct cost forecast_cost(const struct forecast *forecast);
void forecast_free(struct forecast *forecast);
void hunting_free(struct hunting *hunting);

#endif
