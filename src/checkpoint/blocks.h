/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h - the same work on many blocks, over the threads of a pool. */
#ifndef LOCKSTEP_CHECKPOINT_BLOCKS_H
#define LOCKSTEP_CHECKPOINT_BLOCKS_H

#include <stdint.h>
#include "base/status.h"
#include "base/threads.h"

/* Works on one block; buffer has CHECKPOINT_BLOCK_BYTES and is the thread's
 * own. */
typedef status blocks_body(void *argument, int64_t block,
                           unsigned char *buffer);

/* body(argument, b, ...) for 0 <= b < count. buffer holds a block for each
 * thread. The error of the lowest block comes back; a thread stops at its
 * first. */
status blocks_run(struct threads *threads, unsigned char *buffer,
                  int64_t count, blocks_body *body, void *argument);

#endif
