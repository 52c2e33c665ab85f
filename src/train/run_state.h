/* SPDX-License-Identifier: Apache-2.0 */
/* run_state.h - the way of a trainer's state to a checkpoint and back. */
#ifndef LOCKSTEP_TRAIN_RUN_STATE_H
#define LOCKSTEP_TRAIN_RUN_STATE_H

#include "checkpoint/history.h"
#include "checkpoint/run_dir.h"
#include "checkpoint/save.h"
#include "data/ranges.h"
#include "inference/session_parts.h"
#include "setup/setup.h"
#include "step/delayed_scales.h"
#include "step/noise.h"
#include "step/policy.h"
#include "step/routing.h"
#include "tokenizer/tokenizer.h"

struct keeper {
    const struct setup *setup;  /* borrowed */
    const struct stage *stages; /* borrowed, open: those of this rank */
    int stage_count;
    struct team *team;          /* borrowed; NULL: one rank */
    const char *run;            /* borrowed */
    const struct tokenizer *tokenizer; /* borrowed, set after keeper_build;
                                 * NULL: none */
    struct inventory inventory; /* owned: what this rank holds */
    struct session_parts parts; /* owned: weights, states */
    struct text config;         /* owned: config.json */
    struct text adapter;        /* owned: adapter_config.json; "" if none */
    /* Borrowed, after keeper_build; NULL: none. What they keep. */
    struct policy *policy;
    struct noise *noise;
    struct delayed *delayed;
    struct routing *routing;
    struct ranges *left_out;    /* samples of the order */
    const struct local_run *local; /* shards on each machine; NULL: RUN/ckpt */
    struct mirror_writer *writer;  /* borrowed; NULL: others are not noticed */
};

/* Counters of a run: everything that is not a tensor. */
struct counters {
    int64_t step;     /* optimizer steps done */
    int64_t tokens;   /* read by them */
    int64_t samples;  /* sequences taken from the order: the data cursor */
    int64_t epoch;    /* the cursor's */
    int64_t data_tokens, data_crc; /* of the token file; 0: unknown */
    double loss_scale;             /* 0: none */
    int64_t good, skipped;         /* struct loss_scale */
    struct rate_sum rates;         /* schedule-free */
    struct valid_loss {            /* of data.valid; step 0: none */
        int64_t step;
        double loss;
    } valid, best; /* with checkpoint.keep_best: the last; the lowest so far */
};

/* All calls but free are collective over the team's world. */
status keeper_build(struct keeper *keeper, const struct setup *setup,
                    const struct inventory_of *of, const char *run);
void keeper_free(struct keeper *keeper);

/* One checkpoint, with everything that it needs but the keeper. */
struct keeper_job {
    struct group *group; /* borrowed: of all ranks; NULL: alone */
    const struct saved_part *parts; /* borrowed, [keeper->parts.count] */
    struct threads *threads;        /* borrowed; NULL: one thread */
    struct counters counters;
    struct json_writer state;       /* owned: the counters as JSON */
    bool mirrors;     /* it is sent to checkpoint.mirror, too */
    char unsent[256]; /* why it is not there; "": it is, or is not asked to */
    char pruned[256]; /* why an old checkpoint is still there; "": it is not */
};
/* The state of now, made by the rank itself. Not collective. */
status keeper_job_init(struct keeper_job *job, struct keeper *keeper,
                       const struct counters *counters);
void keeper_job_free(struct keeper_job *job);
/* Saves RUN/ckpt/step-N and removes old ones as the options say. Every rank
 * writes the elements that it answers for into the files that rank 0 made;
 * nothing is sent but checksums. May run in another thread of the rank, with
 * a group (comm.h, group_build_aside) and parts of its own. */
status keeper_job_run(const struct keeper *keeper, struct keeper_job *job);
/* Sends the step of the counters, which was saved, to checkpoint.mirror. Not
 * collective. */
status keeper_mirror(const struct keeper *keeper,
                     const struct counters *counters);
/* All of that, at once. */
status keeper_save(struct keeper *keeper, const struct counters *counters);
/* Fills the stages from the newest whole checkpoint. `notice` gains a sentence
 * for each damaged one that was passed over. ERR_CONFIG: it is of another
 * model, tokenizer or grid. */
status keeper_restore(struct keeper *keeper, struct counters *counters,
                      struct text *notice);

/* The counters as the JSON of a checkpoint, and back: for copies in memory,
 * which say nothing of the data. What follows a NUL is not theirs. Not
 * collective. */
status keeper_state(struct keeper *keeper, const struct counters *counters,
                    struct text *out);
status keeper_read_state(struct keeper *keeper, const char *state,
                         size_t length, int64_t step,
                         struct counters *counters);
/* The number of RUN/records when a copy in memory was made (local_run.h); 0:
 * none. */
status keeper_state_records(const char *state, size_t length,
                            int64_t *records);

#endif
