/* SPDX-License-Identifier: Apache-2.0 */
/* trace_file.h - the spans of a rank as a file for Perfetto
 * (https://ui.perfetto.dev) or chrome://tracing.
 *
 * One track for the rank's own thread, on which spans nest (step, action,
 * layer, kernel or message, wait), and one for each thread that carries its
 * messages in the background. Format: "Trace Event Format", Google, complete
 * events ("X"); times are those of the machine's monotonic clock, so the files
 * of ranks on one machine fit together. */
#ifndef LOCKSTEP_OBSERVE_TRACE_FILE_H
#define LOCKSTEP_OBSERVE_TRACE_FILE_H

#include "base/meter.h"

/* Writes the file whole or not at all. title: of the process, "gpt2-124m". */
status trace_file_write(const struct meter *meter, int rank,
                        const char *title, const char *path);
/* "trace.json" for rank 3 of several: "trace.rank-3.json"; out [size]. */
status trace_file_name(const char *path, int rank, int ranks, char *out,
                       size_t size);

#endif
