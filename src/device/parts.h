/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - copies of parts of rows on a device: columns of heads, pairs that
 * turn together. */
#ifndef LOCKSTEP_DEVICE_PARTS_H
#define LOCKSTEP_DEVICE_PARTS_H

#include "device/device.h"

/* `parts` of each row, `bytes` each, that lie so many bytes apart in
 * either. */
enum device_turn {
    TURN_NONE,
    TURN_APART, /* neighbours of a part come to lie in two halves */
    TURN_NEAR   /* back */
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
