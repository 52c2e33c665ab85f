/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - a run's metrics, histograms and texts as TensorBoard reads them:
 * RUN/tensorboard/events.out.tfevents.*.
 *
 * A file is a list of records, a record is one Event message:
 *
 *     8 bytes   length of the message, least byte first
 *     4 bytes   masked CRC-32C of these 8 bytes
 *     length    the message
 *     4 bytes   masked CRC-32C of the message
 *
 * A checksum is masked as ((crc >> 15 | crc << 17) + 0xA282EAD8) mod 2^32.
 * Source: tensorflow/core/lib/io/record_writer.h and lib/hash/crc32c.h (the
 * format), event.proto, summary.proto and tensor.proto (numbers of fields).
 *
 * A run that resumes at step n cuts what lies beyond n and begins a file of
 * its own, whose session says so to a TensorBoard that has read further. Each
 * record is one write, so a killed run leaves at most one torn record. */
#ifndef LOCKSTEP_OBSERVE_EVENTS_H
#define LOCKSTEP_OBSERVE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"
#include "observe/metrics.h"

struct events_writer { struct lines lines; };

/* Opens a new file in RUN/tensorboard at time_s, seconds since 1970. Records
 * of steps beyond step_kept are cut from older files; -1: they are removed. */
status events_open(struct events_writer *writer, const char *run,
                   int64_t step_kept, double time_s);
void events_close(struct events_writer *writer);
static inline bool events_on(const struct events_writer *writer)
{
    return writer->lines.descriptor > 0;
}

/* One Event with all metrics of the row as scalars; a NaN is left out.
 * "train/" and "eval/" stand before the names of metrics.def, "perf/" before
 * those that the machine decides; a few have the names that other trainers
 * use (docs/observability.md). */
status events_metrics(struct events_writer *writer,
                      const struct metrics_row *row);

struct events_moment { int64_t step; double time_s; };

struct events_scalar { const char *tag; double value; };
/* One Event with those of them that are finite, as float32. */
status events_scalars(struct events_writer *writer,
                      struct events_moment moment,
                      const struct events_scalar *items, int count);

/* Markdown, shown under TEXT. */
status events_text(struct events_writer *writer, struct events_moment moment,
                   const char *tag, const char *bytes, size_t length);

struct events_histogram {
    const char *tag;
    double least, greatest, count, sum, sum_squares;
    const double *limits; /* [buckets] upper edges, ascending */
    const double *counts; /* [buckets] */
    int buckets;
};
/* One Event with all of them. */
status events_histograms(struct events_writer *writer,
                         struct events_moment moment,
                         const struct events_histogram *items, int count);

/* ((crc >> 15 | crc << 17) + 0xA282EAD8) mod 2^32. */
uint32_t events_mask(uint32_t crc);

#endif
