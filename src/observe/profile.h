/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h - where the time of a step went, kernel by kernel, against what
 * this machine can do.
 *
 * The rows are the own times of a rank's spans (base/meter.h), so they add up
 * to the step; what no span has is a row of its own, "unaccounted". */
#ifndef LOCKSTEP_OBSERVE_PROFILE_H
#define LOCKSTEP_OBSERVE_PROFILE_H

#include "base/json.h"
#include "base/meter.h"
#include "kernels/kernels.h"

/* The limits of the machine, measured in the same run; 0: unknown. */
struct profile_limits {
    double product_flops; /* a second, all threads of the rank */
    /* Products of float32, as attention computes, but for products in tiles. */
    double attention_flops;
    double memory_bytes;  /* a second, read or written */
    int64_t memory_area;  /* bytes over which that was measured: where they fit
                           * caches, so do those of the run */
};

struct profile_row {
    enum meter_kind kind;
    const char *name;
    char label[METER_LABEL_BYTES];
    int64_t shape[3];     /* 0: several, or none */
    bool turned[2];       /* operands of a product (struct meter_what) */
    double calls, ms, flops, bytes; /* of one step */
    double lane_flops;    /* beside products in tiles */
    double limit_ms;      /* what it would take at the limits; 0: unknown */
    double longest_ms;    /* its longest call in an instruction of the step's
                           * list, of all steps; 0: none was in one */
    int longest_in;       /* that instruction */
};

struct profile {
    struct profile_row rows[METER_ROWS_MAX]; /* by kind, the longest first */
    int count;
    int64_t steps;        /* of which these are the means */
    double step_ms;
    double kind_ms[METER_KINDS];
    struct profile_row kinds[METER_KINDS]; /* sums */
    struct profile_limits limits;
};

/* From the rank's track. Rows of products keep their shapes. */
void profile_take(struct profile *profile, const struct meter *meter,
                  const struct profile_limits *limits);
/* Sums by kind; rows that differ in nothing but shape become one. To be called
 * again when limits of rows were changed. */
void profile_merge(struct profile *profile);
/* Milliseconds that a step's products, attention, memory-bound rows and update
 * would take at their limits; messages and unaccounted time count nothing. */
double profile_bound_ms(const struct profile *profile);

/* A number between 0.0004 and 2 in every type, if all its bytes are this one:
 * neither zero, which may cost less than others, nor denormal, which may cost
 * more. What limits are measured on. */
enum { PROFILE_ORDINARY = 0x3f };

/* Bytes a second, reads and writes counted, of adding two areas [count] of the
 * kernels' type into a third, best of several. */
status profile_memory_rate(const struct kernels *kernels,
                           struct stream *stream, void *const areas[3],
                           int64_t count, double *bytes_per_s);

/* A table, a line a row and a line a kind. */
status profile_print(const struct profile *profile, struct text *out);
/* Lines of comma-separated values under a line of names. */
status profile_csv(const struct profile *profile, struct text *out);
/* As the value of a key or an element. */
void profile_write(const struct profile *profile, struct json_writer *json);
void profile_write_row(const struct profile *profile,
                       const struct profile_row *row,
                       struct json_writer *json);
/* A bar for the step, stacked by kind, and one for each row with a mark where
 * its limit is. */
status profile_svg(const struct profile *profile, const char *title,
                   struct text *out);
/* A stacked bar for each rank: kinds [ranks][METER_KINDS] ms. */
status profile_ranks_svg(const double *kinds, int ranks, struct text *out);
/* The table as HTML. */
status profile_html(const struct profile *profile, struct text *out);

#endif
