/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - limits of this process: its address space (ulimit -v), open files
 * (ulimit -n). */
#ifndef LOCKSTEP_BASE_ROOM_H
#define LOCKSTEP_BASE_ROOM_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* ERR_MEMORY if so many more bytes do not fit, with the limit and what is in
 * use. OK where there is no limit, or nobody knows what is in use. */
status room_check(size_t bytes);
/* As many files may be open as the system allows; ERR_IO if these are fewer
 * than `who` needs at least, who would wait without end for connections. */
status room_for_files(int64_t least, const char *who);

#endif
