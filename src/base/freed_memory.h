/* SPDX-License-Identifier: Apache-2.0 */
/* freed_memory.h - where memory goes that is freed. */
#ifndef LOCKSTEP_BASE_FREED_MEMORY_H
#define LOCKSTEP_BASE_FREED_MEMORY_H

/* From now on each thread keeps up to 64 MiB of it for what is taken next. A
 * page that the system gives anew costs as much as filling it. */
void freed_memory_keep(void);

#endif
