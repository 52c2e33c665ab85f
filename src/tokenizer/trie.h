/* SPDX-License-Identifier: Apache-2.0 */
/* trie.h - all tokens that a text begins with, one step for each byte.
 *
 * A double array (Aoe 1989): the child of node n for byte b is the unit
 * base[n] + b, if that unit names n as its parent. */
#ifndef LOCKSTEP_TOKENIZER_TRIE_H
#define LOCKSTEP_TOKENIZER_TRIE_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct trie_unit {
    int32_t base;   /* of the children */
    int32_t parent; /* unit; -1: free */
    int32_t id;     /* that ends here, or -1 */
};

struct trie {
    struct trie_unit *units; /* owned; 0 is the root; NULL: no key */
    int32_t count;           /* units, with room for every byte beyond a base */
};

struct trie_key {
    const unsigned char *bytes;
    size_t length; /* bytes, > 0 */
    int32_t id;
};

/* Sorts the keys; of two with the same bytes the later one counts. */
status trie_build(struct trie *trie, struct trie_key *keys, int64_t count);
void trie_free(struct trie *trie);

/* The child of `node` for `byte`, or -1. */
static inline int32_t trie_step(const struct trie *trie, int32_t node,
                                unsigned char byte)
{
    const int32_t child = trie->units[node].base + byte;

    return trie->units[child].parent == node ? child : -1;
}

#endif
