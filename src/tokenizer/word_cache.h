/* SPDX-License-Identifier: Apache-2.0 */
/* word_cache.h - ids of words met before.
 *
 * Text repeats its words, so most words cost one look-up instead of merges. A
 * cache is direct-mapped: a word replaces whatever had its place, nothing is
 * ever searched or aged. Each encoding call borrows one cache from the
 * tokenizer's pool, so threads never share one. */
#ifndef LOCKSTEP_TOKENIZER_WORD_CACHE_H
#define LOCKSTEP_TOKENIZER_WORD_CACHE_H

#include <stdint.h>
#include "base/status.h"
#include "tokenizer/unigram.h"

enum {
    CACHE_PLACES = 1 << 15,
    CACHE_WORD_BYTES = 30, /* longest word kept; */
    CACHE_WORD_TOKENS = 7, /* and the most tokens: one entry is 64 bytes */
};

struct word_entry {
    uint32_t check; /* upper half of the hash */
    unsigned char length, count; /* bytes, tokens; length 0: empty */
    unsigned char word[CACHE_WORD_BYTES];
    int32_t ids[CACHE_WORD_TOKENS];
};

/* The working memory of one encoding call. */
struct word_cache {
    struct word_cache *next;    /* in the pool */
    struct word_entry *entries; /* owned [CACHE_PLACES] */
    void *symbols;              /* owned; see word_merge.c */
    int64_t symbol_capacity;
    void *heap;                 /* owned */
    int64_t heap_capacity;
    struct unigram_nodes nodes;
};

struct word_caches;

status word_caches_build(struct word_caches **out);
/* All must have been given back. NULL allowed. */
void word_caches_free(struct word_caches *caches);
/* One that nobody else has until it is given back. */
status word_cache_borrow(struct word_caches *caches, struct word_cache **out);
void word_cache_return(struct word_caches *caches, struct word_cache *cache);

#endif
