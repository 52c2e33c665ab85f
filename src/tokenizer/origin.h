/* SPDX-License-Identifier: Apache-2.0 */
/* origin.h - which bytes of the original text each byte of a rewritten one
 * stands for.
 *
 *    original   e  U+0301  x          3 characters, 4 bytes
 *    NFC        U+00E9     x          2 bytes and 1
 *    origins    0-1  0-1   3-4
 *
 * A character that joins another one has no origin of its own, as in the
 * `tokenizers` library, whose rules these are. All bytes of a character have
 * the same origin. Each new character replaces one, is inserted, or replaces
 * one and swallows some that follow; an inserted character has the origin of
 * the character before it. */
#ifndef LOCKSTEP_TOKENIZER_ORIGIN_H
#define LOCKSTEP_TOKENIZER_ORIGIN_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* Bytes [start, stop) of the original. */
struct origin { uint32_t start, stop; };

struct origins {
    struct origin *items;   /* owned */
    size_t count, capacity; /* bytes of the rewritten text */
};

/* Appends `count` times the same. */
status origins_fill(struct origins *origins, size_t count,
                    struct origin origin);
status origins_copy(struct origins *origins, const struct origin *from,
                    size_t count);
/* Appends those of a text that nothing happened to: its characters, counted
 * from `base`. */
status origins_begin(struct origins *origins, const char *text, size_t length,
                     size_t base);
/* Drops the first and the last ones. */
void origins_cut(struct origins *origins, size_t start, size_t stop);
void origins_free(struct origins *origins);

/* A rewriting from the first character to the last. */
struct realign {
    const char *text;          /* before, valid UTF-8; borrowed */
    const struct origin *from; /* [length] of it */
    size_t length, at;         /* bytes; those that are replaced already */
    uint32_t base;             /* origin of what is inserted before all */
    struct origins *out;       /* appended to; borrowed */
    int size, change;          /* the last character, which may still swallow
                                * some; size 0: none yet */
};

/* A character of `size` bytes comes: change 1 inserts it, 0 replaces the next
 * one, -n also swallows n more. */
status realign_put(struct realign *realign, int size, int change);
/* `count` characters vanish. Before the first one the library forgets it. */
void realign_swallow(struct realign *realign, int count);
status realign_end(struct realign *realign);

#endif
