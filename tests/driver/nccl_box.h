/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_box.h - bytes from rank to rank for the library of messages between GPUs
 * of the driver for tests: a file each, which the receiver removes. */
#ifndef LOCKSTEP_TESTS_NCCL_BOX_H
#define LOCKSTEP_TESTS_NCCL_BOX_H

#include <stdbool.h>
#include <stdint.h>

/* Number `number` of the messages of one kind from rank to rank of a
 * communicator. */
struct box_name {
    const char *comm;
    char kind;
    uint64_t number;
    int from, to;
};
bool box_put(const struct box_name *name, const void *data, int64_t bytes);
/* 1: it came; 0: not yet; -1: it has another size. */
int box_take(const struct box_name *name, void *data, int64_t bytes);
/* Whatever is left of a communicator. */
void box_clear(const char *comm);

#endif
