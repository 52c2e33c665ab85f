/* SPDX-License-Identifier: Apache-2.0 */
/* slow_storage.h - work of rank 0 that takes as long as a storage takes.
 *
 * Meanwhile all ranks meet several times a second. So none of them is silent
 * for longer than comm.limit, and a supervisor sees that all of them live. When
 * a rank is asked to end, an upload may go on for 15 s (mirror_stop_soon). */
#ifndef LOCKSTEP_TRAIN_SLOW_STORAGE_H
#define LOCKSTEP_TRAIN_SLOW_STORAGE_H

#include <stdbool.h>
#include "comm/comm.h"

/* Until `works` of rank 0 says no; world NULL: alone. Collective. */
status attend(struct group *world, bool (*works)(const void *argument),
              const void *argument);
/* Until a thread of rank 0 has done `work`; its result, on all ranks.
 * Collective. */
status attend_work(struct group *world, status (*work)(void *argument),
                   void *argument);

#endif
