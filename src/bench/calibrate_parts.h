/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_parts.h - workers, one for each rank, that run one job at once; the
 * parts of calibrate.c share them. */
#ifndef LOCKSTEP_BENCH_CALIBRATE_PARTS_H
#define LOCKSTEP_BENCH_CALIBRATE_PARTS_H

#include "base/threads.h"
#include "bench/calibrate.h"
#include "bench/cases.h"

/* Tables are swept in rounds. The clock of a machine that others use, too,
 * wanders within seconds: between every two rows a short product is timed on
 * all cores (the pace), rows are brought to one pace, and each is the median of
 * its rounds.
 *
 * Few operands of a step were used a moment ago: the calls of a job take theirs
 * in turn from places. Those of operands that another kernel of the step has
 * just used fill NEAR floats of all ranks together. Those of cold ones, which
 * the step has not touched since its forward pass or the step before, fill
 * what a pass through memory does (calibrate_stream_bytes); FLOATS for
 * roundings, and where there is little time. */
enum { CALIBRATE_ROUNDS = 3, CALIBRATE_WORKERS = 64,
       CALIBRATE_FLOATS = 12 << 20, CALIBRATE_NEAR = 4 << 20,
       CALIBRATE_FAR_S = 5 /* seconds that are enough for far places */ };

/* Floats that operands take turns in; cold: those of bench_case, as bits, that
 * take theirs in `far`. Zeroed: all stay in one place. */
struct turning {
    int64_t near, far;
    unsigned cold;
};
static const struct turning all_far = {.far = CALIBRATE_FLOATS, .cold = ~0u};

/* The places of a job's operands: near ones, and those of cold operands. */
struct turns {
    struct tensor first[CASE_TENSORS];
    int64_t places[2], each, at;
    unsigned cold;
};

struct worker {
    struct stream stream;
    struct operands *operands;
    double seconds, sigma;   /* of a call */
    status result;
};

/* Logarithms of seconds: of a row, of the pace at that moment. And how long an
 * exchange took then (base/threads_exchange.h), in seconds; it may have been
 * too long to count, where several threads did the work together. */
struct paced {
    double seconds, pace, exchange_s;
    bool threaded, far;
};

struct pacing {
    double usual;            /* that all rows are brought to; 0: not yet */
    double last;             /* the latest */
    double exchange_s;       /* the latest */
    double near_s;           /* the least of all; 0: none yet */
    double *nearest;         /* the exchange in the nearest round of each row */
    double middle_s;         /* that of the middle row; the longest of all
                              * tables */
    double found;            /* seconds of the row at hand, */
    bool threaded;           /* which one rank with several threads made */
    struct paced *samples;   /* of the table at hand: round by round, all its
                              * rows */
    int count, most, rows;
    double follows;          /* a row takes as much longer as the pace does, to
                              * this power */
    double rest;             /* deviation of rounds that this leaves */
};

struct calibration {
    const struct calibrate_request *request;
    struct machine *machine;
    struct kernels kernels[2]; /* of float32, of the narrow type */
    int narrow;              /* which of them jobs run */
    struct arena arena;
    struct threads *all;     /* one for each rank */
    struct worker workers[CALIBRATE_WORKERS];
    const struct bench_case *job; /* of all workers at once */
    int active;              /* workers that run it */
    double limit;            /* seconds of a job */
    int rounds;              /* done of the table at hand */
    struct pacing pace;
    struct turning turning;
};

/* Runs `job` on `active` workers at once; mean seconds of a call. */
status calibrate_run(struct calibration *c, const struct bench_case *job,
                     int active, double *seconds, double *sigma);
/* Operands of a job, new. */
void calibrate_prepare(struct operands *o, const struct bench_case *job);
/* Times that products take longer while each rank also moves bytes in the
 * background, and the other way round. */
status calibrate_beside(struct calibration *c, double times[2]);
/* The product, the passes and the exchange, on all workers at once. */
status calibrate_sentinel(struct calibration *c, struct sentinel *out);
/* Bytes of that pass, for each rank: all together twice what the last cache
 * holds, where the machine has that much memory. */
size_t calibrate_stream_bytes(int ranks);
/* Bytes of the pass through the cache that cores share, for each rank: more
 * than a core's own caches hold; 0: no such cache is known. */
size_t calibrate_cache_bytes(int ranks);
/* Runs `job` as a rank with that many threads does: on all workers at once (1),
 * or on one that has all threads. `seconds` of a call and `sigma` keep what an
 * earlier round found if that was less. */
status calibrate_job(struct calibration *c, const struct bench_case *job,
                     int threads, double *seconds, double *sigma);
/* The type of the jobs that follow; bits: 16 or 32. */
void calibrate_type(struct calibration *c, int bits);
/* Operands of the jobs that follow, of a rank with so many threads, take turns
 * in near places, but cold ones in far places. */
void calibrate_turns(struct calibration *c, int threads, unsigned cold);
int64_t calibrate_far(const struct calibration *c); /* floats */
/* Copies the operands of a prepared job to all their places; takes the next. */
void turns_begin(const struct calibration *c, struct turns *turns,
                 const struct operands *o);
void turns_next(struct turns *turns, struct operands *o);
/* How their products sum; NULL: in float32. */
void calibrate_sums(struct calibration *c, const struct accumulator *of);
/* Seconds of the pace's product now. */
status pace_burst(struct calibration *c, double *seconds);
/* A table of so many rows begins; one of its rows was timed just now (found);
 * all of them are known: how they follow the pace, and the seconds of each. */
status pace_begin(struct calibration *c, int rows);
status pace_note(struct calibration *c);
/* A row of several threads had far cores in all its rounds; the cores are near
 * each other now; the row was timed once more, which takes the place of its
 * first round. */
bool pace_is_far(const struct calibration *c, int row, int rows);
status pace_look(struct calibration *c, bool *near);
status pace_replace(struct calibration *c, int row);
void pace_settle(struct calibration *c, int rows);
double pace_row(const struct calibration *c, int row);
/* Sweeps a table in rounds of about `seconds` together, which may take `most`:
 * then the last `left` rows are taken out of it, or no other round begins. The
 * first `least` rows are measured whatever that takes, those before `asked` in
 * twice that time. */
struct sweep {
    int *rows, least, asked, left;
    double seconds, most;
    status (*measure)(struct calibration *c, int row);
};
status calibrate_sweep(struct calibration *c, struct sweep *sweep);
const struct bench_case *calibrate_case(const char *kernel);
/* Roundings of recipes: the machine's table of roundings. */
status calibrate_roundings(struct calibration *c, struct sweep *sweep);
/* Attention, norms, activations, sums, losses and updates: the machine's table
 * of works. */
status calibrate_works(struct calibration *c, struct sweep *sweep);

#endif
