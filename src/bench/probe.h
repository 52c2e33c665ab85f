/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - the peaks of the machine, measured in the run that is judged by
 * them. */
#ifndef LOCKSTEP_BENCH_PROBE_H
#define LOCKSTEP_BENCH_PROBE_H

#include "kernels/kernels.h"

/* Seconds of a monotonic clock. */
double probe_now_s(void);
/* Seconds that this thread has had a core: what it does alone takes as long on
 * a machine that others use, too. */
double probe_thread_s(void);
/* ERR_MEMORY, and `hint`, where this machine has not so many bytes. A system
 * may grant more than it has, and end the process when they are written. */
status probe_memory(const char *who, double bytes, const char *hint);
enum { PROBE_AREA_BYTES = 128 << 20 };
/* Bytes a second, reads and writes counted, of adding two areas into a third,
 * each of `area_bytes`, larger than caches, and of the table's type, by all
 * threads of the stream; best of several.
 * Source: McCalpin, "Memory bandwidth and machine balance in current high
 * performance computers", 1995 (STREAM's "add"). */
status probe_memory_rate(const struct kernels *kernels, struct stream *stream,
                         size_t area_bytes, double *bytes_per_s);

/* c [m, n] = a [m, k] b [k, n], row-major, dense, by oneDNN. */
struct probe_peer {
    void *library; /* owned; NULL: not installed */
    int (*sgemm)(char, char, int64_t, int64_t, int64_t, float, const float *,
                 int64_t, const float *, int64_t, float, float *, int64_t);
};

/* Loads libdnnl.so.2 or 3 if there is one. ERR_DEVICE: it changed rounding. */
status probe_peer_open(struct probe_peer *peer);
void probe_peer_close(struct probe_peer *peer);

#endif
