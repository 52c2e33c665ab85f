/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_state.h - one rank's run while it goes on: what the opening
 * (trainer_open.c), the loop (trainer_loop.c) and the end (trainer.c) share.
 * Private to them. */
#ifndef LOCKSTEP_TRAIN_TRAINER_STATE_H
#define LOCKSTEP_TRAIN_TRAINER_STATE_H

#include "train/background.h"
#include "train/carried_lines.h"
#include "train/feed.h"
#include "train/local_run.h"
#include "train/step_prediction.h"
#include "train/run_state.h"
#include "train/memory_copy.h"
#include "observe/ledger.h"
#include "observe/metrics.h"
#include "checkpoint/mirror.h"
#include "comm/call_sums.h"
#include "step/noise.h"
#include "step/replicas.h"
#include "observe/observe.h"
#include "observe/profiler.h"
#include "observe/progress.h"
#include "inference/session.h"
#include "step/trace.h"
#include "train/trainer.h"
#include "train/validation.h"
#include "tokenizer/run_tokenizer.h"

/* The state of trainer_check.c. */
struct trainer_check {
    struct replicas replicas;
    struct replica_vote *before, *now; /* owned, [ranks] */
    int64_t verified;     /* newest step whose replicas were equal; -1: none */
    int64_t again;        /* step that is made again after going back; 0:
                           * none */
    int entry;            /* of the replicas: what differed there */
    int passes;           /* over the step under way, with train.repeat_every */
    bool repeats;         /* the step was refused only to be made again */
    struct call_sums sums; /* of their messages; empty: nobody else is there */
    double losses[3], norms[3]; /* of those passes */
    int order;            /* parameter whose gradients differed; -1: the loss */
    status failed;        /* a message of the guard */
};

struct trainer {
    const struct trainer_request *request;
    struct run_tokenizer tokenizer; /* owned */
    struct setup setup;
    struct pipeline pipeline;
    struct feed feed;
    struct team team;
    struct validation validation;
    struct train_step step;
    struct trace trace;   /* of a pipeline's second step here */
    struct step_prediction predicted; /* of rank 0 */
    struct { double looked_s; int rank; double told_s; } slow; /* of rank 0 */
    int traces;           /* a step is drawn: all ranks know it */
    struct profiler profiler;
    struct keeper keeper;
    struct mirror_writer writer; /* of checkpoint.mirror */
    struct {
        struct run_dir run;
        struct local_run local; /* with checkpoint.local */
        struct metrics_writer metrics;
        struct lines samples; /* RUN/samples.jsonl; open where prompts are */
        struct lines consumed; /* RUN/consumed.jsonl */
    } files;
    struct carried carried; /* of rank 0 with checkpoint.local */
    struct observer observer;
    struct progress progress;
    struct counters counters;
    struct policy policy;
    struct ledger ledger;
    struct trainer_check check;
    struct {              /* the last step */
        struct policy_verdict verdict;
        double loss, norm;
    } judged;
    struct noise noise;
    struct memory_copy copy; /* of a supervised rank */
    int64_t copies_since; /* the generation since which copies count; 0: none
                           * has begun without them */
    struct background background; /* saves, with checkpoint.async */
    int asked;            /* signal that some rank has been sent; 0: none */
    bool made;            /* the last step was, and not undone */
    double step_s;        /* of the last step; 0: none was made here */
    struct {
        double peak;      /* of the rank's threads; 0: unknown */
        double step;      /* of the rank's part of the model, without
                           * recomputation */
    } flops;
    struct {
        int64_t step;     /* of the newest checkpoint; -1: none */
        int none_whole;   /* the newest checkpoint is not whole any more */
        bool due;         /* rank 0 said so in the last step */
        bool best;        /* the step has the lowest validation loss so far */
        bool works;       /* likewise: the last save is not done yet */
        status failed;    /* of the last background save, if that ends a run */
        double next_s;    /* rank 0: when to save, monotonic; 0: never */
        double wait_s;    /* rank 0: after the next failure; 0: none failed */
    } saves;
};

/* Files and lines are the business of rank 0. */
static inline bool trainer_leads(const struct trainer *t)
{
    return team_rank(&t->team) == 0;
}

/* For the loss and the norm of a step that is made again. */
static inline bool same_number(double a, double b)
{
    return a == b || (a != a && b != b);
}

/* Scratch, stream and threads are its. */
static inline struct stage *trainer_first_stage(const struct trainer *t)
{
    return &t->pipeline.stages[0];
}

/* Everything that is decided, in order, before memory is taken. world NULL:
 * alone. */
status trainer_plan(struct trainer *t, struct group *world);
/* Memory, data, weights, files: ready for the next step. Collective. */
status trainer_open(struct trainer *t);

/* Measures the peak of the run's products on this rank's threads, for
 * peak_fraction. */
void trainer_measure_peak(struct trainer *t);
/* Everything that `validate` names, and its line of metrics. Collective. */
status trainer_validate(struct trainer *t);
/* Steps, validations and checkpoints until the end. Collective. ERR_STOPPED:
 * a signal asked some rank for it; saved. */
status trainer_loop(struct trainer *t);

/* trainer_save.c. Sets the clock; before the first step. */
void trainer_save_begin(struct trainer *t);
/* The request of this rank, a struct trainer, in a step; the ranks take the
 * largest and act on it. 0: nothing; 1: it is time to save (from rank 0); 2:
 * rank 0's last save is not done yet; larger: a signal. */
int trainer_says(void *argument);
void trainer_hear(struct trainer *t, int word);
/* A checkpoint of this step. Tries for a few seconds. Collective. */
status trainer_save(struct trainer *t);
/* A run that begins where it ends has a newest checkpoint with a name, too
 * (checkpoint/history.h). Collective. */
status trainer_name_newest(struct trainer *t);
/* Like trainer_save, once, or in the background; a failure of the disk is told,
 * and rank 0 asks again later (trainer_says). Collective. */
status trainer_try_save(struct trainer *t);
/* The save in the background has ended, and is taken up. Collective. */
status trainer_settle(struct trainer *t);
/* The same if it is done; on rank 0, which tells. */
void trainer_poll_save(struct trainer *t);
/* How long saves in the background held up training. */
void trainer_tell_saves(struct trainer *t);

/* Rank 0's files that are appended to, cut behind the steps that are done (-1:
 * none), and what still waits for the disk in them. */
status trainer_open_files(struct trainer *t, int64_t step_kept);
status trainer_finish_files(struct trainer *t);
void trainer_close_files(struct trainer *t);

/* trainer_copy.c. The state of the newest copy in memory, if it is newer than
 * every checkpoint; *step: its step, -1: none. A copy of this step, if it is
 * due. Collective. */
status trainer_copy_open(struct trainer *t);
/* The run has begun from elsewhere: copies of before, which machines that are
 * away may have, count no more. Before lines are cut. Collective. */
status trainer_copy_begin(struct trainer *t);
/* Before the stages are opened: where weights and states will lie. */
void trainer_copy_plan(struct trainer *t);
/* Copies of another layout, which may have as many bytes, and those of steps
 * that a rewind has undone since are not gone back to. */
void trainer_copy_layout(struct trainer *t);
status trainer_copy_restore(struct trainer *t, int64_t *step);
status trainer_copy(struct trainer *t);
/* Copies take lines of the open files along until a checkpoint has them. */
void trainer_carry(struct trainer *t);

/* Like trainer_copy_restore, in a process whose state it replaces, which then
 * needs train_step_refresh. Collective. */
status trainer_copy_return(struct trainer *t, int64_t step);

/* trainer_check.c. What train.check_every and train.repeat_every need of the
 * plan; again after trainer_use_batch. */
status trainer_check_build(struct trainer *t);
void trainer_check_leave(struct trainer *t); /* the plan ends */
void trainer_check_free(struct trainer *t);
/* After a step that was made; saves: it is to be saved. *back: the run went
 * back to an earlier one instead. Collective. ERR_DEVICE: a machine is wrong
 * again and again. */
status trainer_check(struct trainer *t, bool saves, bool *back);
/* Around the messages of a step: those of one that is made twice are summed
 * up. */
void trainer_check_begin(struct trainer *t);
void trainer_check_end(struct trainer *t);
/* Asked by the guard, before the update: the step is to be made again.
 * Collective. */
bool trainer_repeats(struct trainer *t, const struct step_result *result);
/* After such a step. Collective. */
status trainer_repeat(struct trainer *t);

/* The loss scale of the counters. */
void trainer_restore_scale(struct trainer *t);

/* Sequences of a step, counted from 0. */
int64_t trainer_batch(const struct trainer *t, int64_t step);
/* Plans for a batch of that size from here on. Collective. */
status trainer_use_batch(struct trainer *t, int64_t batch);

/* trainer_policy.c. What the options say about steps that go wrong; the guard
 * of the step; the events so far. */
status trainer_policy_plan(struct trainer *t);
void trainer_policy_open(struct trainer *t);
/* The ledger; then, once the state is there, what it leaves out. */
status trainer_policy_read(struct trainer *t);
status trainer_policy_load(struct trainer *t);
/* A step was made and is to be noted; a step was not made. Collective.
 * ERR_NUMERIC: that was once too often. */
/* Factor of the learning rate of a step, counted from 0. */
double trainer_event_rate(const struct trainer *t, int64_t step);
status trainer_warn(struct trainer *t);
status trainer_refuse(struct trainer *t);
/* Writes the event down. Goes back to the newest checkpoint, as if the process
 * had been killed now; files: what goes with a step that is gone back to. All
 * collective. */
status trainer_record(struct trainer *t, const struct ledger_event *event);
status trainer_rewind(struct trainer *t);
status trainer_rewind_files(struct trainer *t);

#endif
