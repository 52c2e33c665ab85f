/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - the functions that the program uses of NCCL.
 *
 * nccl/plugin.c is compiled with the nccl.h that is found, into comm_nccl.so,
 * and opened when a run asks for it (comm.library). It opens libnccl.so.2
 * itself, so neither needs the other to be built or started.
 *
 * Functions return NULL, or one sentence, which is good until the thread's next
 * call. None waits: a communicator does not block, `look` says when it is done
 * with what it was asked. The calling thread has the GPU of the communicator
 * (device_enter); streams are the driver's. */
#ifndef LOCKSTEP_COMM_NCCL_PLUGIN_H
#define LOCKSTEP_COMM_NCCL_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NCCL_PLUGIN_VERSION = 1, NCCL_ID_BYTES = 128 };

struct nccl_place {
    void *comm, *stream;
};

struct nccl_plugin {
    int version;
    size_t bytes;      /* of this struct */
    const char *(*open)(int *version); /* 22809: of NCCL 2.28.9 */
    /* By one rank, which tells it the others. */
    const char *(*make_id)(char id[NCCL_ID_BYTES]);
    const char *(*begin)(const char id[NCCL_ID_BYTES], int rank, int size,
                         void **comm);
    const char *(*look)(void *comm, bool *done);
    /* Calls between them are one. */
    const char *(*start)(void);
    const char *(*end)(void);
    /* Every rank's `bytes`, one after the other; in may be this one's place. */
    const char *(*gather)(const struct nccl_place *, void *out, const void *in,
                          int64_t bytes);
    const char *(*broadcast)(const struct nccl_place *, void *out,
                             const void *in, int64_t bytes, int root);
    const char *(*send)(const struct nccl_place *, const void *in,
                        int64_t bytes, int peer);
    const char *(*receive)(const struct nccl_place *, void *out, int64_t bytes,
                           int peer);
    /* Sums of integers of 64 bits: exact in any order. out may be in, or this
     * rank's block of it. */
    const char *(*sum)(const struct nccl_place *, int64_t *out,
                       const int64_t *in, int64_t count);
    const char *(*sum_blocks)(const struct nccl_place *, int64_t *out,
                              const int64_t *in, int64_t count);
    const char *(*sum_to)(const struct nccl_place *, int64_t *out,
                          const int64_t *in, int64_t count, int root);
    /* Begins to end it, when all is done; `look`, then `close`. */
    const char *(*finish)(void *comm);
    void (*close)(void *comm);
    /* At once, whatever is under way. */
    void (*abort)(void *comm);
};

/* Exported as "lockstep_nccl_plugin". */
extern const struct nccl_plugin lockstep_nccl_plugin;

#endif
