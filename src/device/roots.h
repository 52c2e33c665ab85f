/* SPDX-License-Identifier: Apache-2.0 */
/* roots.h - a sum of what several ranks have, in the order of the grid's tree,
 * by one kernel that reads it where it lies. */
#ifndef LOCKSTEP_DEVICE_ROOTS_H
#define LOCKSTEP_DEVICE_ROOTS_H

#include <stdbool.h>
#include <stdint.h>

enum { ROOTS_MOST = 128, ROOTS_DEEP = 16 };

/* out [rows, count] = the tree over `count` roots, from left to right. After
 * root i comes, the last two partial sums become one `merges` times. Elements
 * are float32, or integers of 64 bits. out may be where a root lies. */
struct device_roots {
    void *out;
    int64_t elements, rows;
    int64_t out_stride, stride; /* elements from row to row */
    bool integers;
    int count;
    struct device_root { const void *data; int64_t merges; } at[ROOTS_MOST];
};

#endif
