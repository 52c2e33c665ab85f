/* SPDX-License-Identifier: Apache-2.0 */
/* profiler.h - the profile of a run: every step of it after the first, which
 * is slower, and the spans of a few steps for a trace if one is asked for. */
#ifndef LOCKSTEP_OBSERVE_PROFILER_H
#define LOCKSTEP_OBSERVE_PROFILER_H

#include "observe/profile.h"
#include "step/team.h"

enum { PROFILER_TRACED = 3 }; /* steps of a trace */

struct profiler {
    struct meter meter;   /* owned */
    const char *trace;    /* borrowed; NULL: none */
    const char *title;    /* borrowed; of the trace */
    int64_t steps;        /* that the process will do */
    int64_t done;
    int rank, ranks;
    bool written;         /* the trace is */
    bool device;          /* a device apart runs the kernels */
    double *kinds;        /* owned, [ranks][METER_KINDS] ms, once ended */
    struct profile *profile; /* owned, once ended; NULL: no step was done */
};

/* `steps` to come; set trace and title before, and zero the rest. */
status profiler_build(struct profiler *profiler, struct team *team,
                      int64_t steps);
void profiler_free(struct profiler *profiler);

/* Around a step that succeeds; writes the trace behind the last of its
 * steps. */
void profiler_begin(struct profiler *profiler);
status profiler_end(struct profiler *profiler);
/* Whether profiler_end reads what all threads have counted: none may count
 * meanwhile. */
bool profiler_reads(const struct profiler *profiler);

/* After the last step, and the last use of the stage's gradients and moments,
 * in which memory's bandwidth is measured. product_flops: a second, of float32
 * FMAs. Collective over the team's world. */
status profiler_finish(struct profiler *profiler, struct team *team,
                       struct stage *stage, double product_flops);
/* Numbers that profiler_finish joins over the ranks. */
int64_t profiler_values(const struct mesh *mesh);

#endif
