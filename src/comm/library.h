/* SPDX-License-Identifier: Apache-2.0 */
/* library.h - calls of a group that NCCL does, where they move memory of a GPU
 * and the bits are the same whoever does them: all-gathers, all-to-alls, and
 * sums of integers. All else is done as by comm.library=own.
 *
 * A group has a communicator for each of its channels, made by its first call
 * there, and a stream. The rank's thread, or the group's in the background,
 * waits for the end of a call, and sees meanwhile when another rank gives
 * up. */
#ifndef LOCKSTEP_COMM_LIBRARY_H
#define LOCKSTEP_COMM_LIBRARY_H

#include "comm/message.h"
#include "comm/nccl/plugin.h"

struct device;

/* From now on, for as long as the device is open: on all ranks of the group, or
 * on none. ERR_MEMORY. */
status group_use_library(struct group *group, const struct nccl_plugin *nccl,
                         struct device *device);
/* Ends what it has of it; also by group_free. Its ranks do so together, or have
 * given up. */
void group_leave_library(struct group *group);

/* Whether NCCL does the call; the same on all ranks. Tensors are those that
 * messages see. */
bool library_takes(const struct group *group, const struct comm_call *call);
status library_run(struct operation *operation);

#endif
