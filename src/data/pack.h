/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - which fragments of documents share a sample, by best fit.
 *
 *   documents   AAAAAAAAAA  BBB  CCCCC  DD        sequence 6
 *   samples     |AAAAAA|  |AAAADD|  |CCCCC.|  |BBB...|     . padding
 *
 * A document that is longer than a sample is cut; what is left of it and all
 * shorter ones stay whole: each goes, longest first, where the least room
 * stays free. So a document is cut only where it must be, and every token is
 * an input exactly once. Documents are taken in windows of WINDOW, which
 * bounds the time and memory of sorting.
 * Source: Ding et al. 2024, "Fewer truncations improve language modeling",
 * arXiv:2404.10830, algorithm 1. */
#ifndef LOCKSTEP_DATA_PACK_H
#define LOCKSTEP_DATA_PACK_H

#include <stdint.h>
#include "base/file.h"

struct pack_fragment {
    int64_t at;     /* first token, counted over all documents */
    int64_t count;
};

struct pack {
    struct pack_fragment *fragments; /* [fragment_count], by sample */
    int64_t *first;            /* [samples + 1]: fragment of a sample */
    int64_t fragment_count, samples;
    int64_t padding;           /* places of all samples without a token */
    int64_t fragment_room, sample_room; /* owned, unless mapped: */
    struct file_map map;       /* owned: of an index in a file */
    const unsigned char *image;/* of the file (pack_file.h); NULL: none */
    int64_t sequence, tokens;  /* of a sample; of all */
};

struct pack_source {
    int64_t documents, sequence;
    /* First token of document i in [0, documents]. */
    int64_t (*start)(const void *context, int64_t index);
    const void *context;
    /* Takes what a window gave, after which it is forgotten; NULL: all stays.
     * Places in `first` count from the first fragment of all. */
    status (*take)(void *sink, const struct pack *window, int64_t before);
    void *sink;
    /* Reports the progress over documents; may be NULL. */
    void (*progress)(void *argument, double done, double total);
    void *argument;
};

status pack_build(struct pack *pack, const struct pack_source *source);
void pack_free(struct pack *pack);

#endif
