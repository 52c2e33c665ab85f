/* SPDX-License-Identifier: Apache-2.0 */
/* observe.h - the outputs of a run beside metrics.jsonl, where `observe` of the
 * configuration asks for them: event files, an endpoint for Prometheus,
 * observations of layers. None of it changes a bit of the run. */
#ifndef LOCKSTEP_OBSERVE_OBSERVE_H
#define LOCKSTEP_OBSERVE_OBSERVE_H

#include "base/file.h"
#include "observe/events.h"
#include "observe/layers.h"
#include "observe/prometheus.h"
#include "setup/setup.h"

struct observer {
    const struct options_set *set;   /* borrowed */
    const struct options *options;   /* of it */
    struct events_writer events;     /* of rank 0 */
    struct prometheus *prometheus;   /* of rank 0; NULL: none */
    struct layers layers;
    bool sees_layers;                /* layers are built */
    struct lines layers_file;        /* of rank 0; closed: none */
    bool looked;                     /* the last step was observed */
    int64_t step_kept;               /* the run goes on behind it */
    char run[PATH_BYTES];
};

/* Values that ranks join at once; 0: none. */
int64_t observe_values(const struct options *options, int ranks);
/* After everything else is open, on every rank. step_kept: steps that are done;
 * -1: a new run. */
status observe_open(struct observer *observer, const struct options_set *set,
                    struct train_step *step,
                    const struct inventory *inventory, int64_t step_kept);
void observe_close(struct observer *observer);
/* Writes the records that wait for the disk. ERR_IO: it still fails. Rank 0. */
status observe_finish(struct observer *observer);
/* The run goes back to behind a step that was done before: what was told beyond
 * is forgotten. Rank 0. */
status observe_rewind(struct observer *observer, int64_t step_kept);

/* Before and after step `step`. Collective. */
void observe_begin(struct observer *observer, int64_t step);
status observe_end(struct observer *observer);
/* The largest shares of roundings (roundings.h) in the step that ended; NaN: it
 * was not observed, or there is no recipe. */
void observe_roundings(const struct observer *observer, double *cut,
                       double *zeroed);
/* A row of metrics; logged: it stands in metrics.jsonl too. Rank 0. */
status observe_row(struct observer *observer, const struct metrics_row *row,
                   bool logged);
/* Writes a text of the model, at a step, under a tag. Rank 0. */
status observe_sample(struct observer *observer, int64_t step,
                      const char *tag, const char *text);

#endif
