/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.h - SentencePiece's compiled character maps.
 *
 *   u32      bytes of the trie
 *   trie     a double array of u32 units (Yata et al.; Darts-clone)
 *   strings  replacements, each ends with a zero byte
 *
 * A string of the trie is replaced by the string that its value points to.
 * The file is a stranger's: every index is checked when it is followed. */
#ifndef LOCKSTEP_TOKENIZER_CHARSMAP_H
#define LOCKSTEP_TOKENIZER_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/text.h"
#include "tokenizer/origin.h"

struct charsmap {
    const uint32_t *units; /* NULL: an empty map */
    uint32_t count;        /* units */
    const char *strings;   /* valid UTF-8, ends with a zero byte */
    size_t length;         /* bytes of strings */
};

struct charsmap_match {
    size_t taken;     /* bytes of text; 0: nothing matches */
    const char *text; /* replacement */
    size_t length;    /* bytes of it */
};

/* From its bytes, which are copied into `arena`. None: an empty map. */
status charsmap_read(struct charsmap *map, struct arena *arena,
                     const void *bytes, size_t length, const char *source);
/* The longest string of the map that `text` begins with; or the shortest. */
struct charsmap_match charsmap_find(const struct charsmap *map,
                                    const char *text, size_t length,
                                    bool longest);
/* Appends the text as the `tokenizers` library maps it: a cluster of at most
 * five bytes that begins with a string of the map becomes its replacement
 * whole, any other is mapped character by character. `realign` is told what
 * becomes of each character; NULL: nobody asks. */
status charsmap_clusters(const struct charsmap *map, const char *text,
                         size_t length, struct text *out,
                         struct realign *realign);

#endif
