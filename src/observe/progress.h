/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - one live line about long work: how far, how fast, how long.
 *
 *     step 120/300  loss 3.214  1.23e5 tok/s  41% of peak  0:37 left
 *     tokenize 12.3/40.0 MB  8.1 MB/s  0:03 left
 *
 * On a terminal the line is redrawn in place, cut to its width, in colour
 * unless NO_COLOR is set or TERM is dumb. Elsewhere a plain line is written
 * every few seconds. Nothing is allocated. */
#ifndef LOCKSTEP_OBSERVE_PROGRESS_H
#define LOCKSTEP_OBSERVE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;         /* borrowed; NULL: silent */
    const char *what;  /* borrowed: "step", "tokenize" */
    const char *unit;  /* borrowed: "MB" */
    double unit_scale; /* counted things in one unit, 1e6 for bytes and MB */
    bool terminal, colour;
    int width;         /* columns of the terminal */
    int shown;         /* columns of the line that is on the screen */
    double began_s, drawn_s;      /* monotonic */
    double rate_done, rate_s;     /* smoothed: what was done in what time */
    double last_done, last_s;     /* at the previous update */
};

/* The numbers of one step from the training loop. A value that is not finite is
 * left out. */
struct progress_step {
    int64_t step, steps;
    double loss;
    double tokens_per_s;
    double busiest; /* expert, tokens over the mean; 0, NaN: none */
};

void progress_begin(struct progress *progress, FILE *out, const char *what,
                    const char *unit, double unit_scale);
/* Like progress_begin, for bytes, on stderr: "read tokens 12.3/40.0 MB ...". */
void progress_begin_bytes(struct progress *progress, const char *what);
void progress_step(struct progress *progress,
                   const struct progress_step *step);
/* done of total things; total 0: unknown. Shown once the work has lasted for
 * half a second (five where the output is no terminal). */
void progress_count(struct progress *progress, double done, double total);
/* Like progress_count, for those who call back; argument: a struct progress. */
void progress_show(void *argument, double done, double total);
/* Prints a line of its own above the live one. */
void progress_note(struct progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Leaves the last line on the screen and ends it. */
void progress_end(struct progress *progress);

/* "0:37", "12:05", "3:02:01". */
const char *progress_clock(char out[32], double seconds);

#endif
