/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - where kernels run: memory, streams and events.
 *
 *   cpu   memory of the host; kernels and copies run at once, in the caller
 *   far   a second device made of the CPU, for tests: nobody but its kernels
 *         and copies can touch its memory, and they run later
 *   cuda  a GPU of this machine, behind the plug-in device_cuda.so
 *
 * A step does the same on every device. Its memory is taken from the device.
 * Kernels are rows of a table that run on a stream. Whatever else touches
 * memory of the device does so through the copies below, and whatever the host
 * reads of what a kernel wrote it waits for.
 *
 *   struct stream   kernels run in the order in which they are launched; what
 *                   they are told (shapes, orders of sums, lists of tokens) is
 *                   copied at launch and the caller's again
 *   struct event    a point in the work of a queue, which another waits for
 *
 * Host memory that a kernel writes (losses, sums of blocks) is there after
 * device_finish. All functions belong to the thread that opened the device, but
 * for device_seen. NULL stands for the device cpu. */
#ifndef LOCKSTEP_DEVICE_DEVICE_H
#define LOCKSTEP_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/threads.h"
#include "device/product.h"

struct gpu_kernels;
struct kernels;
struct device;

enum device_kind {
    DEVICE_CPU, DEVICE_FAR, DEVICE_CUDA, DEVICE_KINDS,
    DEVICE_AUTO = DEVICE_KINDS /* cuda or cpu: stage_plan decides */
};

/* When the device far does what it was given. Both have the same results unless
 * an event is missing. */
enum device_haste {
    DEVICE_LATE,  /* when it is waited for */
    DEVICE_EARLY, /* at once */
    DEVICE_STRAIGHT /* by its caller: cuda, whose driver works later */
};

/* A kind: its name, and how its memory lies. */
struct device_about {
    const char *name;     /* "far" */
    const char *what;     /* for help */
    bool apart;           /* its memory is not the host's */
};

struct stream {
    struct threads *threads; /* borrowed; NULL: the calling thread alone */
    void *scratch;           /* borrowed; ARENA_ALIGN-aligned */
    size_t scratch_bytes;    /* kernels_scratch_bytes or more */
    const struct kernels *inner; /* borrowed, [2]: what metered tables call
                                  * (kernels_meter) */
    struct device *device;   /* borrowed; NULL: kernels run at once */
    const struct kernels *behind; /* borrowed, [2]: what the tables of a device
                                   * apart run (kernels_launch) */
    struct device *gpu;      /* borrowed: what kernels of CUDA are started on
                              * (device/gpu.h); NULL: this is no GPU */
};

const struct device_about *device_about(enum device_kind kind);
/* ERR_CONFIG names what there is. */
status device_parse(enum device_kind *kind, const char *name);
/* LOCKSTEP_FAR: late or early. ERR_CONFIG: it cannot be understood. */
status device_environment(enum device_haste *haste);

struct device_choice {
    enum device_kind kind;
    enum device_haste haste;
    int threads;         /* of its kernels */
    size_t launch_bytes; /* of what the largest launch is told */
    size_t lent_bytes;   /* of host memory that its kernels write */
    int local_rank;      /* of the ranks of this machine: on GPU
                          * local_rank % count */
    const struct gpu_kernels *kernels; /* that cuda must have */
    struct {
        int sums;        /* of a row that wait at once; 0: no library of cuda's
                          * makes products */
        int64_t widest;  /* matrix: columns */
        enum gpu_number number; /* of their operands */
        bool aligned;    /* ... begin at multiples of 16 bytes in every layout
                          * if they do in one */
    } products;
    struct {
        bool is_on;      /* a library of cuda's computes it */
        bool flash;      /* or our own kernels do, on tensor cores */
        size_t bytes;    /* of its room */
        int64_t length;  /* of sequences */
        bool needed;     /* numerics.attention: cudnn */
    } attention;
};
/* *out = NULL: the device is cpu. ERR_DEVICE: there is no GPU. */
status device_open(struct device **out, const struct device_choice *choice);
/* Waits for all work, and gives back what was taken. NULL allowed. */
void device_close(struct device *device);

/* Memory of the device, zeroed: aligned to pages, or, of cpu, as memory_take
 * has it. ERR_MEMORY. */
status device_take(struct device *device, size_t bytes, void **out);
/* Gives it back when all work is done; NULL allowed. */
void device_give(struct device *device, void *memory);
/* Bytes of a ring through which kernels are told what a launch says, of the
 * host and as many of the device; 0: there is none. */
size_t device_ring_bytes(const struct device_choice *choice);
/* It lies there, borrowed: before the first kernel. */
void device_ring(struct device *device, void *host, void *there, size_t bytes);
/* Room that a library of products needs: memory of the device, whole for as
 * long as it works; 0: no library makes any. */
size_t device_room_bytes(const struct device_choice *choice);
void device_room(struct device *device, void *at, size_t bytes);
/* Room that attention needs on tensor cores, likewise. */
size_t device_attention_bytes(const struct device_choice *choice);
void device_attention_room(struct device *device, void *at, size_t bytes);
/* Host memory that kernels of the device write: its copies need not wait for
 * the host then. From pinned to not pinned before it is given back. */
void device_pin(struct device *device, void *at, size_t bytes, bool pinned);
/* The stream that kernels see is made like this one, with the device's own
 * threads. Once, when the stream is complete. */
void device_join(struct device *device, const struct stream *stream);

/* ---- copies, in the order of the stream ---- */

/* Both of the device. They do not overlap. */
status device_copy(struct stream *stream, void *to, const void *from,
                   size_t bytes);
/* Rows of `row` bytes each, so many bytes apart. */
struct device_rows {
    void *at;
    int64_t apart;
};
status device_copy_rows(struct stream *stream, struct device_rows to,
                        struct device_rows from, int64_t rows, size_t row);
status device_fill(struct stream *stream, void *to, int byte, size_t bytes);
/* From the host, whose memory is the caller's again at once. */
status device_write(struct stream *stream, void *to, const void *from,
                    size_t bytes);
/* To the host; returns when it is there. */
status device_read(struct stream *stream, void *to, const void *from,
                   size_t bytes);
/* Several copies at once, none of them empty, for which the host waits once. */
struct device_bytes {
    void *to;
    const void *from;
    size_t bytes;
};
status device_read_all(struct stream *stream, const struct device_bytes *all,
                       int count);
/* All work is done. Returns the first error of a kernel. */
status device_finish(struct stream *stream);

/* ---- memory of a device, seen by messages ---- */

/* Waits for the device that has the memory, before a message may touch it: in
 * the thread that opened it. Nothing for other memory. */
status device_settle(const void *at);
/* Where messages find memory of a device of this process; other addresses stay.
 * From any thread. */
void *device_seen(void *at);
/* For LOCKSTEP_CHECK: fills memory of a device of this process with NaN, in the
 * order of its stream. *out: whether it is such memory; other memory stays. */
status device_spoil(void *at, size_t bytes, bool *out);

#endif
