/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - the plug-in of CUDA, device_cuda.so, works for the device cuda: it
 * opens the driver, libcuda.so.1, and has the kernels of kernels/cuda
 * as machine code and PTX. It needs no GPU to be built, and no driver to be
 * opened.
 *
 * A function that can fail returns NULL, or one sentence with the driver's name
 * of the error, which is good until the thread's next call. All but those that
 * open and close may be called from any thread; work of a stream happens in the
 * order in which it was given, later. */
#ifndef LOCKSTEP_DEVICE_PLUGIN_H
#define LOCKSTEP_DEVICE_PLUGIN_H

#include "device/attended.h"
#include "device/parts.h"
#include "device/product.h"
#include "device/roots.h"

enum { CUDA_PLUGIN_VERSION = 11, GPU_NAME_BYTES = 80 };

/* Memory or an event, as other processes open it. */
struct gpu_handle { unsigned char bytes[64]; };

struct gpu;       /* one that is open */
struct gpu_event;

enum gpu_stream { GPU_KERNELS, GPU_COPIES, GPU_MESSAGES, GPU_STREAMS };

struct gpu_about {
    int count;               /* of all GPUs */
    char name[GPU_NAME_BYTES];
    int major, minor;        /* compute capability */
    int driver;              /* 13000: of CUDA 13.0 */
    size_t bytes, unused;    /* of its memory; that nobody has */
};

/* One side of a copy is the host, or neither. */
enum gpu_way { GPU_TO_DEVICE, GPU_TO_HOST, GPU_INSIDE };
struct gpu_copy {
    enum gpu_way way;
    struct device_rows to, from;
    int64_t rows;
    size_t row;
};

/* CUDA graphs that were made so far, one after the other: how many, their nodes
 * (that of a library counts once), and by how much the GPU's unused memory fell
 * while each was made and started first. Other processes change that, too. */
struct gpu_graphs { int64_t count, nodes, bytes; };

struct gpu_launch {
    int kernel;
    int64_t blocks;          /* more than 0 */
    int threads;             /* of a block */
    const void *call;        /* what it reads, copied */
    size_t bytes;
};

/* A kernel is known by its number, the same on both sides of the plug-in. */
struct gpu_kernel {
    const char *name;
    size_t bytes;            /* of what it reads */
};
struct gpu_kernels {
    const struct gpu_kernel *rows; /* [count] */
    int count;
};

struct cuda_plugin {
    int version;
    size_t bytes;            /* of this struct */
    struct gpu_kernels kernels;
    /* Whether there is a driver. The process may still fork afterwards; after
     * all other calls its children cannot use a GPU. */
    const char *(*driver)(void);
    /* Whether the first GPU can load every kernel; `text` says what was found,
     * one sentence. *foreign: bytes of its memory that the context and the
     * kernels took; 0: unknown (NVML says it). */
    bool (*about)(char *text, size_t bytes, size_t *foreign);
    /* Memory, clocks, errors and links of all GPUs, in one line; false: why
     * they are not known. */
    bool (*health)(char *text, size_t bytes);
    /* Number `number`, from 0. */
    const char *(*find)(int number, struct gpu_about *out);
    const char *(*open)(int number, struct gpu **out);
    void (*close)(struct gpu *);
    /* Memory of the GPU, zeroed. */
    const char *(*take)(struct gpu *, size_t bytes, void **out);
    void (*give)(struct gpu *, void *);
    /* Copies need not wait for this memory of the host from now on; no more. */
    const char *(*pin)(struct gpu *, void *at, size_t bytes);
    void (*unpin)(struct gpu *, void *at);
    const char *(*copy)(struct gpu *, enum gpu_stream,
                        const struct gpu_copy *);
    const char *(*copy_parts)(struct gpu *, const struct device_parts *);
    const char *(*fill)(struct gpu *, void *to, int byte, size_t bytes);
    const char *(*launch)(struct gpu *, const struct gpu_launch *);
    /* Work of GPU_KERNELS is gathered from now on, and what comes again is
     * started as a CUDA graph: when GPU_KERNELS is recorded, finished, or is to
     * wait, and by flush. */
    const char *(*gather)(struct gpu *);
    /* Work that is gathered. */
    int (*gathered)(struct gpu *);
    const char *(*flush)(struct gpu *);
    void (*graphs)(struct gpu *, struct gpu_graphs *out);
    /* Pinned memory of the host goes `there`, which no work that is gathered
     * uses so far: before that work. In the order of the stream, if nothing is
     * gathered. */
    const char *(*tell)(struct gpu *, void *there, const void *host,
                        size_t bytes);
    /* timed: `elapsed` may be asked of it. */
    const char *(*make_event)(struct gpu *, bool timed, struct gpu_event **out);
    void (*free_event)(struct gpu *, struct gpu_event *);
    /* All work of the stream so far. */
    const char *(*record)(struct gpu *, enum gpu_stream, struct gpu_event *);
    /* Work of the stream that is given from now on begins after it. */
    const char *(*after)(struct gpu *, enum gpu_stream, struct gpu_event *);
    /* The thread waits. */
    const char *(*await)(struct gpu *, struct gpu_event *);
    const char *(*finish)(struct gpu *, enum gpu_stream);
    /* Milliseconds of the GPU's clock between two events that are over. */
    const char *(*elapsed)(struct gpu *, struct gpu_event *first,
                           struct gpu_event *then, float *ms);
    /* Another stream, for a library that gives it work: the driver's CUstream.
     * is_idle: that work is done. */
    const char *(*make_stream)(struct gpu *, void **out);
    void (*free_stream)(struct gpu *, void *stream);
    const char *(*is_idle)(struct gpu *, void *stream, bool *out);
    /* Memory that was taken, for other processes of this machine. */
    const char *(*show)(struct gpu *, void *memory, struct gpu_handle *out);
    /* Theirs, also of another GPU that this one can read: the driver's block
     * that has it. *bytes: of the block; 0: unknown. A block may be met
     * again, and is parted from as often. */
    const char *(*meet)(struct gpu *, const struct gpu_handle *, void **block,
                        size_t *bytes);
    void (*part)(struct gpu *, void *block);
    /* An event that others may wait for. */
    const char *(*show_event)(struct gpu *, struct gpu_event **out,
                              struct gpu_handle *handle);
    const char *(*meet_event)(struct gpu *, const struct gpu_handle *,
                              struct gpu_event **out);
    /* In the stream of messages. */
    const char *(*move_parts)(struct gpu *, const struct device_parts *);
    const char *(*sum_roots)(struct gpu *, const struct device_roots *);
    /* The calling thread works on this GPU from now on. */
    const char *(*enter)(struct gpu *);
    /* The library of products, cuBLASLt. *version: 130100 of 13.1.0. */
    const char *(*products)(int64_t *version);
    /* Algorithms that it offers for products of a form, the best first, of m
     * rows and n columns: those that need at most `bytes` of room and add up
     * each element without splitting its sum. */
    const char *(*offers)(struct gpu *, const struct gpu_product *like,
                          size_t bytes,
                          struct gpu_algorithm offers[GPU_OFFERS], int *count);
    /* In the stream of kernels. */
    const char *(*product)(struct gpu *, const struct gpu_product *,
                           const struct gpu_algorithm *,
                           const struct gpu_room *);
    /* The library of attention, cuDNN. *version: 91900 of 9.19.0. */
    const char *(*attention)(int64_t *version);
    /* Whether it has attention of the form, whose plan is made when that is
     * asked first. Form NULL: only whether it works with this GPU. */
    const char *(*attends)(struct gpu *, const struct attended_form *,
                           bool *out);
    /* In the stream of kernels: of a form that it has. */
    const char *(*attend)(struct gpu *, const struct gpu_attended *,
                          const struct gpu_room *);
};

/* Opens it once for the process; *out = NULL: this build has none. ERR_DEVICE:
 * it cannot be opened, or belongs to another version of the program, which has
 * other kernels than `wanted`. */
status cuda_plugin_open(const struct gpu_kernels *wanted,
                        const struct cuda_plugin **out);

/* Exported as "lockstep_cuda_plugin". */
extern const struct cuda_plugin lockstep_cuda_plugin;

#endif
