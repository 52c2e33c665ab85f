/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - copies of parts of rows on a device: columns of heads, pairs that
 * turn together. */
#ifndef LOCKSTEP_DEVICE_PARTS_H
#define LOCKSTEP_DEVICE_PARTS_H

#include "device/device.h"

/* A copy of parts of rows. Each of `rows` has `parts` parts of `bytes` bytes;
 * from one part to the next there are to_part bytes in the destination and
 * from_part bytes in the source. */
enum device_turn {
    TURN_NONE,
    TURN_APART, /* elements 0, 2, 4, ... of a part go to its first half, 1, 3,
                 * 5, ... to its second */
    TURN_NEAR   /* the opposite */
};
struct device_parts {
    struct device_rows to, from; /* from.at NULL: zeros */
    int64_t rows, parts, to_part, from_part;
    size_t bytes;
    enum device_turn turn;
    int element;                 /* bytes of one: 2, 4 or 8 */
};
status device_copy_parts(struct stream *stream,
                         const struct device_parts *copy);

#endif
