/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.h - the plug-in of NCCL, where there is one. */
#ifndef LOCKSTEP_COMM_NCCL_H
#define LOCKSTEP_COMM_NCCL_H

#include "base/status.h"
#include "comm/nccl/plugin.h"

/* Opens it once for the process, and NCCL. ERR_DEVICE: there is none, it
 * belongs to another version of the program, or there is no NCCL. */
status nccl_open(const struct nccl_plugin **out, int *version);

#endif
