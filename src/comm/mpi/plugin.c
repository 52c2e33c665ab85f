/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - the calls of MPI behind one table. */
#include "comm/mpi/plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits");
_Static_assert(sizeof(MPI_Message) <= sizeof(void *), "a message fits");

static int begin(int *rank, int *size, int *tag_most, int *serial_ok)
{
    int provided, flag, *most;
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);

    if (error != MPI_SUCCESS) return error;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    *serial_ok = provided >= MPI_THREAD_SERIALIZED;
    *tag_most = 32767; /* what every MPI allows */
    error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &flag);
    if (error == MPI_SUCCESS && flag) *tag_most = *most;
    error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    if (error != MPI_SUCCESS) return error;
    return MPI_Comm_size(MPI_COMM_WORLD, size);
}

static int end(void)
{
    return MPI_Finalize();
}

static int send(const void *data, int bytes, int peer, int tag, void **request)
{
    MPI_Request r;
    const int error = MPI_Isend(data, bytes, MPI_BYTE, peer, tag,
                                MPI_COMM_WORLD, &r);

    memcpy(request, &r, sizeof r);
    return error;
}

static int find(int peer, int tag, void **message, int *bytes, int *found)
{
    MPI_Message m;
    MPI_Status status;
    const int source = peer == MPI_PLUGIN_ANY ? MPI_ANY_SOURCE : peer;
    const int error = MPI_Improbe(source, tag, MPI_COMM_WORLD, found, &m,
                                  &status);

    if (error != MPI_SUCCESS || !*found) return error;
    memcpy(message, &m, sizeof m);
    return MPI_Get_count(&status, MPI_BYTE, bytes);
}

static int receive(void *data, int bytes, void **message, void **request)
{
    MPI_Message m;
    MPI_Request r;
    int error;

    memcpy(&m, message, sizeof m);
    error = MPI_Imrecv(data, bytes, MPI_BYTE, &m, &r);
    memcpy(request, &r, sizeof r);
    return error;
}

static int test(void **request, int *done)
{
    MPI_Request r;
    int error;

    memcpy(&r, request, sizeof r);
    error = MPI_Test(&r, done, MPI_STATUS_IGNORE);
    memcpy(request, &r, sizeof r);
    return error;
}

static int all_reduce(const float *in, float *out, int count)
{
    return MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void explain(int error, char *text, int bytes)
{
    char whole[MPI_MAX_ERROR_STRING];
    int length;

    if (MPI_Error_string(error, whole, &length) != MPI_SUCCESS)
        snprintf(whole, sizeof whole, "error %d", error);
    snprintf(text, (size_t)bytes, "%s", whole);
}

const struct mpi_plugin lockstep_mpi_plugin = {
    MPI_PLUGIN_VERSION, begin, end, send, find, receive, test, all_reduce,
    explain,
};
