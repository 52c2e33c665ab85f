/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - host memory with one lifetime: taken piece by piece, given back
 * whole.
 *
 * Two kinds share one type. A *growing* arena adds blocks as needed (parse
 * trees, tables, names). A *planned* arena maps exactly the bytes that the
 * plan computed, once, and refuses more: its high-water mark is compared with
 * the plan to the byte. Every arena is counted; the test harness fails a test
 * that ends with memory out. */
#ifndef LOCKSTEP_BASE_ARENA_H
#define LOCKSTEP_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

enum { ARENA_ALIGN = 64 }; /* bytes; every piece starts at a multiple */

/* The next multiple. */
static inline size_t arena_aligned(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

struct arena {
    const char *name;       /* borrowed; for messages */
    struct arena_block *blocks; /* owned */
    size_t planned;         /* bytes; 0: a growing arena */
    size_t limit;           /* bytes a growing arena may take; 0: none */
    size_t used;            /* bytes taken, rounded up to ARENA_ALIGN */
    size_t peak;            /* most bytes ever taken */
};

/* A growing arena; takes nothing yet. */
void arena_init(struct arena *arena, const char *name, size_t limit);
/* A planned arena: maps `bytes` at once (huge pages where the kernel offers
 * them, touched by nobody yet). ERR_MEMORY: more than the machine has. */
status arena_init_planned(struct arena *arena, const char *name, size_t bytes);
/* *out = `bytes` zeroed bytes aligned to ARENA_ALIGN. ERR_MEMORY says the
 * arena's name, what was asked and what is left. */
status arena_take(struct arena *arena, size_t bytes, void **out);
/* Like arena_take, for `count` items; checks the product for overflow. */
status arena_take_array(struct arena *arena, size_t count, size_t item_bytes,
                        void **out);
status arena_copy_text(struct arena *arena, const char *text, char **out);
/* Forgets the pieces, keeps the memory (planned) or gives it back. */
void arena_reset(struct arena *arena);
void arena_free(struct arena *arena);

/* Bytes that all living arenas hold, and calls of malloc-like functions made
 * by our code since the process began (tests expect no change in a step). */
size_t arena_bytes_out(void);
int64_t arena_allocations(void);

/* Counted malloc family for the few places where an arena does not fit. */
status memory_take(size_t count, size_t item_bytes, void **out);
status memory_grow(void **pointer, size_t count, size_t item_bytes);
/* Room for one more item behind `count`: a full *items becomes twice as long,
 * an empty one `first` items. */
status memory_next(void **items, int *capacity, int count, int first,
                   size_t item_bytes);
void memory_free(void *pointer); /* NULL allowed */

#endif
