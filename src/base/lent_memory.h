/* SPDX-License-Identifier: Apache-2.0 */
/* lent_memory.h - memory that somebody outside the program may still read or
 * write.
 *
 * A message under way belongs to MPI until its request is done; a rank that
 * gives up cannot take it back. While anything is lent, memory that is freed is
 * put on a list instead. The list goes back to the system when memory is freed
 * and nothing is lent any more; if a message never ends, that is when the
 * process ends. */
#ifndef LOCKSTEP_BASE_LENT_MEMORY_H
#define LOCKSTEP_BASE_LENT_MEMORY_H

/* Opens a piece of memory that is freed. */
struct lent {
    struct lent *next;
    void (*give_back)(struct lent *lent);
};

/* One message more is under way, or (-1) one less. */
void lent_add(int messages);
/* Gives the piece back, and all that waited: now, or when nothing is lent. */
void lent_free(struct lent *lent);

#endif
