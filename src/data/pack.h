/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - which pieces of documents share a sample, by best fit.
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
#include "base/status.h"

struct pack_piece {
    int64_t at;     /* first token, in the stream of documents */
    int64_t count;
};

struct pack {
    struct pack_piece *pieces; /* owned [piece_count], by sample */
    int64_t *first;            /* owned [samples + 1]: piece of a sample */
    int64_t piece_count, samples;
    int64_t padding;           /* places of all samples without a token */
    int64_t piece_room, sample_room;
};

/* start(context, i): first token of document i in [0, documents]. */
status pack_build(struct pack *pack, int64_t documents, int64_t sequence,
                  int64_t (*start)(const void *context, int64_t index),
                  const void *context);
void pack_free(struct pack *pack);

#endif
