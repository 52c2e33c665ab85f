/* SPDX-License-Identifier: Apache-2.0 */
/* call_bytes.h - bytes that a rank sends in a call, from the call alone. */
#ifndef LOCKSTEP_STEP_CALL_BYTES_H
#define LOCKSTEP_STEP_CALL_BYTES_H

#include "comm/comm.h"

/* Bytes to other ranks of the group, of those kinds that steps use. */
int64_t call_bytes(const struct group *group, const struct comm_call *call);

#endif
