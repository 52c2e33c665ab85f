/* SPDX-License-Identifier: Apache-2.0 */
/* first_touch.h - pages of fresh memory, supplied by all threads of a pool.
 *
 * A page belongs to the memory next to the core that first writes it, and the
 * kernel clears it then. Runs of pages are dealt to the threads in turn: they
 * are cleared by all cores at once, and on a machine with several nodes they
 * lie on all of them in equal shares, so that no node's bandwidth limits what
 * every thread reads. */
#ifndef LOCKSTEP_BASE_FIRST_TOUCH_H
#define LOCKSTEP_BASE_FIRST_TOUCH_H

#include <stddef.h>
#include "base/threads.h"

/* All pages that lie whole in the area, which nobody else uses yet. Contents
 * stay. What cannot be supplied is left to the first write. */
void first_touch(struct threads *threads, void *memory, size_t bytes);

#endif
