/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - the limit of the address space of this process (ulimit -v). */
#ifndef LOCKSTEP_BASE_ROOM_H
#define LOCKSTEP_BASE_ROOM_H

#include <stddef.h>
#include "base/status.h"

/* ERR_MEMORY if so many more bytes do not fit, with the limit and what is in
 * use. OK where there is no limit, or nobody knows what is in use. */
status room_check(size_t bytes);

#endif
