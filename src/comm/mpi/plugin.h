/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - the functions that the program uses of an MPI library.
 *
 * mpi/plugin.c is compiled with each MPI that is found, into a shared object of
 * its own (comm_openmpi.so, comm_mpich.so), and opened only when a process was
 * started by that MPI's launcher. So the program itself neither needs nor
 * mentions MPI. Only calls of MPI-3.1, and none that waits for long. */
#ifndef LOCKSTEP_COMM_MPI_PLUGIN_H
#define LOCKSTEP_COMM_MPI_PLUGIN_H

#include "comm/comm.h"

enum { MPI_PLUGIN_VERSION = 3, MPI_PLUGIN_ANY = -1 };

/* Functions return 0, or an error code for `explain`. A request or a message
 * of MPI is kept in a void *. */
struct mpi_plugin {
    int version;
    /* tag_most: the largest tag. serial_ok: threads may call in turn. */
    int (*begin)(int *rank, int *size, int *tag_most, int *serial_ok);
    int (*end)(void);
    /* A communicator of some ranks of the world, in that order, which all make
     * this call, and together; tag: the same on all, another one for calls at
     * the same time. close is local. */
    int (*open)(const int *members, int size, int tag, void **comm);
    int (*close)(void *comm);
    /* comm: NULL: the world's. Peers are its ranks. Blocks are simplified
     * (block_simplify). */
    int (*send)(void *comm, const struct comm_block *block, int peer, int tag,
                void **request);
    /* Whether a message from the peer (MPI_PLUGIN_ANY: from any) is there; if
     * so nobody else will get it. */
    int (*find)(void *comm, int peer, int tag, void **message, int64_t *bytes,
                int *found);
    int (*receive)(const struct comm_block *block, void **message,
                   void **request);
    int (*test)(void **request, int *done);
    /* MPI's own sum of floats, for comparison. */
    int (*all_reduce)(const float *in, float *out, int count);
    void (*explain)(int error, char *text, int bytes);
};

/* Exported as "lockstep_mpi_plugin". */
extern const struct mpi_plugin lockstep_mpi_plugin;

#endif
