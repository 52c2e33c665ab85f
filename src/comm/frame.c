/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - sealing and checking frames. */
#include "comm/frame.h"

#include <stddef.h>
#include "base/file.h"
#include "comm/comm.h"

_Static_assert(sizeof(struct frame) == 72, "a frame has no holes");

void frame_seal(struct frame *frame)
{
    frame->magic = FRAME_MAGIC;
    frame->crc = crc32c(0, frame, offsetof(struct frame, crc));
}

const char *frame_fault(const struct frame *f, uint64_t generation)
{
    if (f->magic != FRAME_MAGIC) return "no frame";
    if (f->crc != crc32c(0, f, offsetof(struct frame, crc)))
        return "a damaged frame";
    if (f->generation != generation) return "a frame of another generation";
    if (f->kind < FRAME_SMALL || f->kind > FRAME_LEAVING)
        return "a frame of unknown kind";
    if (f->bytes < (f->kind <= FRAME_BYTES && f->kind != FRAME_WANT))
        return "a message of no bytes";
    if (f->kind == FRAME_SMALL && f->bytes > SMALL_BYTES)
        return "a small message that is too large";
    if (f->kind == FRAME_FAREWELL && f->bytes != COMM_REASON_BYTES)
        return "a farewell of another size";
    return NULL;
}

int64_t frame_follow(const struct frame *f)
{
    const bool follows = f->kind == FRAME_SMALL || f->kind == FRAME_BYTES ||
                         f->kind == FRAME_FAREWELL;

    return follows ? f->bytes : 0;
}
