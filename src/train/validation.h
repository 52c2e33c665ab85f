/* SPDX-License-Identifier: Apache-2.0 */
/* validation.h - measurements of a run beside data.valid in each validation:
 * named sets and tasks, whose numbers become extra metrics of the validation's
 * line, and prompts, which it continues. */
#ifndef LOCKSTEP_TRAIN_VALIDATION_H
#define LOCKSTEP_TRAIN_VALIDATION_H

#include "inference/prompts.h"
#include "observe/metrics.h"
#include "observe/progress.h"
#include "train/validation_sets.h"
#include "train/validation_tasks.h"

struct validation {
    struct validation_sets sets;        /* owned */
    struct validation_tasks exam;             /* owned */
    struct prompts prompts;       /* owned */
    double *sums;                 /* owned: room for a validation's losses */
    struct arena names;           /* owned: of the extra metrics */
    struct metrics_extra *extras; /* owned [extra_room] */
    int extra_count, extra_room;
};

/* Most numbers that the ranks join at once for it. */
int64_t validation_values(const struct options *options);
/* Reads what the options name; feed is open and stays. */
status validation_open(struct validation *v, const struct feed *feed);
void validation_close(struct validation *v);

/* The mean loss of `count` sequences of a source. bytes: of text that this rank
 * has read for them, once it has; 0: unknown. Collective. */
struct measure {
    double loss;          /* nats */
    double bits_per_byte; /* NaN: bytes are unknown */
    int64_t targets;
};
status validation_measure(struct validation *v, struct train_step *step,
                          const struct sample_source *source, int64_t count,
                          const int64_t *bytes, struct measure *out);

/* ", 1.2345 bits per byte", or "" where bytes are unknown. */
enum { BITS_BYTES = 48 };
const char *validation_bits(char out[BITS_BYTES], double bits_per_byte);

/* Every set; a sentence for each. v->extras are the metrics. Collective. */
status validation_sets(struct validation *v, struct train_step *step,
                       struct progress *progress, int64_t at);
/* Every task, likewise. Collective. */
status validation_tasks(struct validation *v, struct train_step *step,
                        struct progress *progress, int64_t at);

#endif
