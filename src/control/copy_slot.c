/* SPDX-License-Identifier: Apache-2.0 */
/* copy_slot.c - whether a copy of a rank's state is whole. */
#include "control/copy_slot.h"

#include "base/file.h"

bool copy_slot_is_whole(const struct copy_slot *slot, size_t slot_bytes)
{
    return slot->magic == copy_magic && slot_bytes >= COPY_ROWS &&
           slot->bytes <= slot_bytes - COPY_ROWS &&
           slot->state_length < COPY_STATE_BYTES &&
           slot->state_crc == crc32c(0, slot->state,
                                     (size_t)slot->state_length) &&
           slot->crc == crc32c(0, (const char *)slot + COPY_ROWS,
                               (size_t)slot->bytes);
}
