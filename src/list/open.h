/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - instructions in the background that nobody has waited for yet, while
 * a list is walked. */
#ifndef LOCKSTEP_LIST_OPEN_H
#define LOCKSTEP_LIST_OPEN_H

#include "list/access.h"

struct open_item {
    int number;       /* of the instruction */
    int handle;
    uint32_t spaces;  /* bits of those that it reads and writes */
    bool touched;     /* by the instruction that is looked at */
};

/* An access of an item, among those of one space. */
struct open_mark { struct access access; int number; };
struct open_marks {
    struct open_mark *items; /* owned */
    int count, capacity;
};

struct open_set {
    const struct pipeline *pipeline;
    bool forward;
    struct open_item *items; /* owned, in the order of their numbers */
    int count, capacity;
    int touched;             /* of them, none before items[first_touched] */
    int first_touched;
    struct open_marks marks[SPACE_COUNT];
    bool *taken;             /* owned, [handles]: somebody has it */
    int handles, lowest;     /* the lowest that nobody has */
};

/* A new one, with all that it reads and writes. */
status open_add(struct open_set *open, int number,
                const struct instruction *instruction, int handle);
/* Sets `touched` of those whose accesses conflict with this one. */
void open_touch(struct open_set *open, const struct access *access);
/* Takes out items[index]. */
void open_close(struct open_set *open, int index);
/* Takes out all. */
void open_clear(struct open_set *open);
/* The lowest handle that nobody has. */
int open_handle(const struct open_set *open);
void open_free(struct open_set *open);

#endif
