/* SPDX-License-Identifier: Apache-2.0 */
/* buffer_offsets.h - offsets for buffers whose lives are known.
 *
 * The largest buffer is placed first (equal ones in their order), at the lowest
 * offset that no placed buffer alive at the same time covers. A buffer costs
 * about the logarithm of the number of events, so that models of ten thousand
 * layers are planned in a moment. */
#ifndef LOCKSTEP_NN_BUFFER_OFFSETS_H
#define LOCKSTEP_NN_BUFFER_OFFSETS_H

#include <stdint.h>

#include "base/arena.h"

struct placed_buffer {
    int64_t bytes;    /* or elements; 0: takes no room */
    int first, last;  /* events between which it is alive, both included */
    int64_t offset;   /* set by buffers_place */
};

/* Sets the offset of buffers [count], whose events are in [0, events). *most is
 * the end of the highest. ERR_MEMORY, or ERR_CONFIG where the end is past what
 * 63 bits hold. */
status buffers_place(struct placed_buffer *buffers, int count, int events,
                     int64_t *most);

#endif
