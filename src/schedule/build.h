/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - the table of schedules: a name, a generator, what it asks for. */
#ifndef LOCKSTEP_SCHEDULE_BUILD_H
#define LOCKSTEP_SCHEDULE_BUILD_H

#include "schedule/schedule.h"

/* The input of a generator. Times are of one micro-batch on one rank, all its
 * chunks; only list schedulers read times and memory. */
struct schedule_request {
    const char *name;
    int ranks, microbatches;
    int chunks;           /* stages a rank; 0: as the row says */
    int group;            /* interleaved: micro-batches that a chunk takes in
                           * a row; 0: as many as ranks */
    int64_t forward_ns, backward_input_ns, backward_weight_ns;
    int64_t transfer_ns;  /* from the end of an action to its data being on
                           * another rank */
    double memory_limit;  /* in micro-batches held after F; 0: of the row */
    double weight_memory; /* held between B and W over held after F, 0 to 1 */
};

/* One stage a rank or the row's chunks, F = B = W = 1 ns, transfers at once,
 * weight_memory 0.5. */
struct schedule_request schedule_request_default(const char *name, int ranks,
                                                 int microbatches);
/* Also verifies. ERR_CONFIG as schedule_build. */
status schedule_make(struct schedule *out,
                     const struct schedule_request *request);

/* Micro-batches that wait on a rank for their backward pass, of p ranks. */
enum schedule_holds {
    HOLDS_RANKS,         /* p */
    HOLDS_LEFT,          /* as many as ranks from this one on */
    HOLDS_ALL,           /* all of the step */
    HOLDS_CHUNKS,        /* p of each chunk, and those on the way */
    HOLDS_TWICE,         /* 2 p - 1 */
    HOLDS_MORE,          /* p + 1 */
    HOLDS_HALF,          /* p / 2 + 1 */
    HOLDS_THIRD,         /* p / 3 + 2 */
    HOLDS_V              /* of the chunk that goes down 2 p - r / 2 on rank r,
                          * of the one that comes up p / 2 + r */
};

/* More facts about the order of a schedule. */
enum schedule_flags {
    SCHEDULE_AT_ONCE = 1, /* each W stands right after its B */
    SCHEDULE_V = 2,       /* the second chunk goes back: stage 2 p - 1 is the
                           * first rank's */
    SCHEDULE_IN_ORDER = 8, /* B of a stage takes micro-batches in order, and W
                           * follows before the next one's */
    SCHEDULE_WHOLE = 4,   /* every F of a chunk stands before the next chunk,
                           * so that its weights are gathered once */
    SCHEDULE_JOINED = 16, /* an F and a B are one bundle */
    SCHEDULE_POSTED = 32  /* of a paper whose program never waits for a message
                           * on both sides (zero bubble) */
};

struct schedule_row {
    const char *name, *meaning;
    int chunks;          /* stages a rank; 0: any number (2 if not given) */
    enum schedule_holds holds;
    unsigned flags;      /* enum schedule_flags */
    status (*fill)(struct schedule *, const struct schedule_request *);
};
extern const struct schedule_row schedule_rows[];
extern const int schedule_row_count;
/* The columns of the row with the name; of any other name: HOLDS_RANKS, and no
 * flag. */
enum schedule_holds schedule_holds(const char *name);
bool schedule_is(const char *name, enum schedule_flags flag);
/* Whether it takes any number of stages a rank. */
bool schedule_takes_chunks(const char *name);
/* ERR_CONFIG names the nearest. */
status schedule_row_find(const char *name, const struct schedule_row **out);

#endif
