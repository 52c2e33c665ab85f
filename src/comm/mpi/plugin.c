/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - the calls of MPI behind one table. */
#include "comm/mpi/plugin.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits");
_Static_assert(sizeof(MPI_Message) <= sizeof(void *), "a message fits");
_Static_assert(sizeof(MPI_Comm) <= sizeof(void *), "a communicator fits");

static MPI_Comm comm_of(void *kept)
{
    MPI_Comm comm = MPI_COMM_WORLD;

    if (kept != NULL) memcpy(&comm, &kept, sizeof comm);
    return comm;
}

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

static int open_comm(const int *members, int size, int tag, void **comm)
{
    MPI_Group all, some;
    MPI_Comm made;
    int error = MPI_Comm_group(MPI_COMM_WORLD, &all);

    if (error != MPI_SUCCESS) return error;
    error = MPI_Group_incl(all, size, members, &some);
    MPI_Group_free(&all);
    if (error != MPI_SUCCESS) return error;
    error = MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &made);
    MPI_Group_free(&some);
    if (error != MPI_SUCCESS) return error;
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    *comm = NULL;
    memcpy(comm, &made, sizeof made);
    return MPI_SUCCESS;
}

static int close_comm(void *comm)
{
    MPI_Comm made = comm_of(comm);

    return MPI_Comm_free(&made);
}

/* `bytes` as one type: MPI counts with an int. */
static int run_type(int64_t bytes, MPI_Datatype *out)
{
    enum { AT_ONCE = 1 << 20 };
    const int lengths[] = {(int)(bytes / AT_ONCE), (int)(bytes % AT_ONCE)};
    const MPI_Aint at[] = {0, bytes - bytes % AT_ONCE};
    MPI_Datatype types[] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int error;

    if (bytes <= INT_MAX)
        return MPI_Type_contiguous((int)bytes, MPI_BYTE, out);
    error = MPI_Type_contiguous(AT_ONCE, MPI_BYTE, &types[0]);
    if (error != MPI_SUCCESS) return error;
    error = MPI_Type_create_struct(2, lengths, at, types, out);
    MPI_Type_free(&types[0]);
    return error;
}

/* *type = `count` of *type, `stride` bytes apart. */
static int repeat_type(int64_t count, int64_t stride, MPI_Datatype *type)
{
    MPI_Datatype inner = *type;
    int error;

    if (count == 1) return MPI_SUCCESS;
    if (count > INT_MAX) return MPI_ERR_COUNT;
    error = MPI_Type_create_hvector((int)count, 1, (MPI_Aint)stride, inner,
                                    type);
    MPI_Type_free(&inner);
    return error;
}

/* *count of *type; block_type_free when the call is made. */
static int block_type(const struct comm_block *block, MPI_Datatype *type,
                      int *count)
{
    int error;

    *type = MPI_BYTE;
    *count = (int)block->bytes;
    if (block->rows == 1 && block->planes == 1 && block->bytes <= INT_MAX)
        return MPI_SUCCESS;
    *count = 1;
    error = run_type(block->bytes, type);
    if (error == MPI_SUCCESS)
        error = repeat_type(block->rows, block->stride, type);
    if (error == MPI_SUCCESS)
        error = repeat_type(block->planes, block->plane_stride, type);
    return error == MPI_SUCCESS ? MPI_Type_commit(type) : error;
}

static void block_type_free(MPI_Datatype *type)
{
    if (*type != MPI_BYTE) MPI_Type_free(type);
}

static int send(void *comm, const struct comm_block *block, int peer, int tag,
                void **request)
{
    MPI_Request r;
    MPI_Datatype type;
    int count, error = block_type(block, &type, &count);

    if (error != MPI_SUCCESS) return error;
    error = MPI_Isend(block->data, count, type, peer, tag, comm_of(comm), &r);
    memcpy(request, &r, sizeof r);
    block_type_free(&type);
    return error;
}

static int find(void *comm, int peer, int tag, void **message, int64_t *bytes,
                int *found)
{
    MPI_Message m;
    MPI_Status status;
    MPI_Count elements;
    const int source = peer == MPI_PLUGIN_ANY ? MPI_ANY_SOURCE : peer;
    int error = MPI_Improbe(source, tag, comm_of(comm), found, &m, &status);

    if (error != MPI_SUCCESS || !*found) return error;
    memcpy(message, &m, sizeof m);
    error = MPI_Get_elements_x(&status, MPI_BYTE, &elements);
    *bytes = elements;
    return error;
}

static int receive(const struct comm_block *block, void **message,
                   void **request)
{
    MPI_Message m;
    MPI_Request r;
    MPI_Datatype type;
    int count, error = block_type(block, &type, &count);

    if (error != MPI_SUCCESS) return error;
    memcpy(&m, message, sizeof m);
    error = MPI_Imrecv(block->data, count, type, &m, &r);
    memcpy(request, &r, sizeof r);
    block_type_free(&type);
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
    MPI_PLUGIN_VERSION, begin, end, open_comm, close_comm, send, find, receive,
    test, all_reduce, explain,
};
