/* SPDX-License-Identifier: Apache-2.0 */
/* pending.h - instructions in the background that nobody has waited for yet,
 * while a list is walked. */
#ifndef LOCKSTEP_LIST_PENDING_H
#define LOCKSTEP_LIST_PENDING_H

#include "list/access.h"

struct pending_item {
    int number;       /* of the instruction */
    int handle;
    uint32_t spaces;  /* bits of those that it reads and writes */
    bool touched;     /* by the instruction that is looked at */
};

/* An access of an item, among those of one space. */
struct pending_mark { struct access access; int number; };
struct pending_marks {
    struct pending_mark *items; /* owned */
    int count, capacity;
};

struct pending_set {
    const struct pipeline *pipeline;
    bool forward;
    struct pending_item *items; /* owned, in the order of their numbers */
    int count, capacity;
    int touched;             /* of them, none before items[first_touched] */
    int first_touched;
    struct pending_marks marks[SPACE_COUNT];
    uint32_t spaces;         /* bits of those with marks */
    bool *taken;             /* owned, [handles]: it is in use */
    int handles, lowest;     /* the lowest free one */
};

/* A new one, with all that it reads and writes. */
status pending_add(struct pending_set *open, int number,
                   const struct instruction *instruction, int handle);
/* Sets `touched` of those whose accesses conflict with this one. */
void pending_touch(struct pending_set *open, const struct access *access);
/* Takes out items[index]. */
void pending_close(struct pending_set *open, int index);
/* Takes out all. */
void pending_clear(struct pending_set *open);
/* The lowest handle that nobody has. */
int pending_handle(const struct pending_set *open);
void pending_free(struct pending_set *open);

#endif
