/* SPDX-License-Identifier: Apache-2.0 */
/* meter.h - where the time of a thread goes: spans that nest, added up by name.
 *
 * A thread that is metered has a track. meter_begin and meter_end bracket a
 * span; its own time is what the spans inside it leave. So the own times of a
 * step add up to the step, whatever nests in whatever. A thread without a
 * track, which is every thread until meter_attach, pays one test; a track
 * counts only inside meter_step_begin and meter_step_end.
 *
 * A track may also keep the spans themselves, in room of a fixed size, for a
 * trace. Nothing is allocated after meter_build. */
#ifndef LOCKSTEP_BASE_METER_H
#define LOCKSTEP_BASE_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

enum {
    METER_ROWS_MAX = 192,
    METER_SHAPES_MAX = 96, /* rows that tell shapes apart; beyond, none do */
    METER_DEPTH_MAX = 24, METER_LABEL_BYTES = 24
};

enum meter_kind {
    METER_MATMUL, METER_ATTENTION, METER_MEMORY, METER_MESSAGES,
    METER_OPTIMIZER, METER_DATA, METER_IDLE,
    METER_OTHER, /* brackets others: its own time is accounted to nobody */
    METER_KINDS
};

/* The description of a span. Names are literals; a label is copied. */
struct meter_what {
    enum meter_kind kind;
    const char *name;   /* "matmul" */
    const char *label;  /* "tensor", a group; NULL: "" */
    double flops, bytes;
    int64_t shape[3];   /* of a product: m, n, k; else 0 */
    int number;         /* of the block or micro-batch: of the span only */
    double lane_flops;  /* beside flops, where those are products in tiles */
    bool turned[2];     /* of a product: whether the first, the second operand
                         * is transposed */
};

/* All spans of one kind, name, label and shape. */
struct meter_row {
    enum meter_kind kind;
    const char *name;
    char label[METER_LABEL_BYTES];
    int64_t shape[3];
    bool turned[2];
    int64_t calls, own_ns;
    double flops, lane_flops, bytes;
    int64_t longest_ns; /* own time of its longest span in an instruction */
    int longest_in;     /* the number of that one; 0 ns: there is none */
};

struct meter_span {
    int64_t begin_ns, end_ns; /* of the monotonic clock */
    double flops, bytes;
    int row, number;
    int instruction;    /* of the step's list; -1: none */
};

struct meter_track {
    /* Told of spans that end, which do not count: those of a thread that starts
     * what a GPU does later (meter_add). NULL: they count */
    void (*later)(void *owner, struct meter_track *track,
                  const struct meter_what *what);
    void *later_owner;
    char name[METER_LABEL_BYTES]; /* "rank", or the label of a group */
    const void *owner;  /* of a background thread */
    struct meter_row rows[METER_ROWS_MAX]; /* the last takes the rest */
    int row_count;
    uint8_t index[2 * METER_ROWS_MAX]; /* hash to row + 1 */
    int64_t began_ns[METER_DEPTH_MAX], inside_ns[METER_DEPTH_MAX];
    int depth;
    bool counts;        /* inside a step */
    enum meter_kind scope; /* what memory-bound spans count as now */
    int64_t steps, total_ns; /* of steps */
    struct meter_span *spans; /* borrowed from the meter; NULL: not kept */
    int64_t span_count, span_most, dropped;
    bool records;       /* spans are kept now */
    int instruction;    /* that is being performed; -1: none */
};

struct meter {
    struct meter_track *tracks; /* owned, [track_count]; 0: the rank's */
    int track_count, used;
    void *spans;                /* owned */
};

/* Tracks: one for the rank and one for each of `background` threads that carry
 * messages. spans: room for as many in the rank's track, an eighth of it in
 * each other; 0: none are kept. */
status meter_build(struct meter *meter, int background, int64_t spans);
void meter_free(struct meter *meter);

/* This thread counts into the track from now on; NULL: no more. */
void meter_attach(struct meter_track *track);
/* The track of the background thread that `owner` tells from others, of the
 * meter whose rank this thread is; NULL: none, or no more. */
struct meter_track *meter_background(const void *owner, const char *name);

void meter_step_begin(struct meter *meter);
void meter_step_end(struct meter *meter);
/* Forgets all rows, not the spans. */
void meter_clear(struct meter *meter);
/* Keeps spans from now on, or no more. */
void meter_record(struct meter *meter, bool records);

/* Nanoseconds of the monotonic clock. */
int64_t meter_now_ns(void);

/* ---- spans of this thread ---- */

struct meter_thread { struct meter_track *track; struct meter *meter; };
extern _Thread_local struct meter_thread meter_thread;
void meter_push(struct meter_track *track);
void meter_pop(struct meter_track *track, const struct meter_what *what);

/* A span that happened elsewhere; of `span` the times and the instruction. */
void meter_add(struct meter_track *track, const struct meter_what *what,
               const struct meter_span *span);

/* Begins a span; what it returns goes to meter_end. */
static inline struct meter_track *meter_begin(void)
{
    struct meter_track *track = meter_thread.track;

    if (track == NULL || !track->counts) return NULL;
    meter_push(track);
    return track;
}
/* Like meter_begin, for what is of interest in a trace only. */
static inline struct meter_track *meter_outline(void)
{
    const struct meter_track *track = meter_thread.track;

    return track != NULL && track->records ? meter_begin() : NULL;
}
static inline void meter_end(struct meter_track *track,
                             const struct meter_what *what)
{
    if (track != NULL) meter_pop(track, what);
}
/* Spans of this thread, and of calls that it starts in the background, belong
 * to this instruction of the step's list from now on; -1: to none. */
void meter_instruction(int number);
/* The one that was said last. */
int meter_instruction_now(void);
/* Memory-bound spans count as `kind` until the scope is set back; returns what
 * it was. */
enum meter_kind meter_scope(enum meter_kind kind);

const char *meter_kind_name(enum meter_kind kind); /* "memory-bound" */

#endif
