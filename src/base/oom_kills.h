/* SPDX-License-Identifier: Apache-2.0 */
/* oom_kills.h - processes that the system killed for want of memory.
 *
 * A process that waits for another one cannot tell such a kill from any other
 * kill -9. A control group (cgroup v1 or v2) counts them. This process has one
 * counter. */
#ifndef LOCKSTEP_BASE_OOM_KILLS_H
#define LOCKSTEP_BASE_OOM_KILLS_H

#include <stdbool.h>
#include <stdint.h>

/* Kills from now on count; again: does nothing. */
void oom_kills_watch(void);
/* Takes one of the kills of this control group that nobody took yet. False:
 * there is none, or the system does not say. */
bool oom_kills_take(void);
/* Bytes that the group may take; 0: no limit, or unknown. */
int64_t oom_kills_limit(void);
/* Kills of the group that `list` names (/proc/self/cgroup), or its limit, below
 * `root` (/sys/fs/cgroup); -1: unknown. */
int64_t oom_kills_number(const char *list, const char *root, bool limit);

#endif
