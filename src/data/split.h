/* SPDX-License-Identifier: Apache-2.0 */
/* split.h - which documents are held out. A random number of each document,
 * made from the seed and the document's number, decides; the first document is
 * always used for training.
 *
 * Only documents that are held out are listed, usually one in a hundred. The
 * list of a large set is kept in a file, so that it is made once. */
#ifndef LOCKSTEP_DATA_SPLIT_H
#define LOCKSTEP_DATA_SPLIT_H

#include "data/token_set.h"

struct split {
    int64_t *held;   /* owned [count]: numbers of documents, ascending */
    int64_t *before; /* owned [count + 1]: tokens of those ahead in the list */
    int64_t count;
};

struct split_request {
    uint64_t seed;
    double share;      /* that is held out */
    const char *cache; /* directory for lists; NULL: none is kept */
};

status split_build(struct split *split, const struct token_set *set,
                   const struct split_request *request);
void split_free(struct split *split);
/* A list that was kept; *documents of the set, and its *tokens. ERR_FORMAT: it
 * is not whole. */
status split_verify(const char *path, int64_t *documents, int64_t *tokens);

/* The number of the document that is the k-th of those that train. k may be
 * their count: the number after the last. */
int64_t split_trained(const struct split *split, int64_t k);
/* How many held-out documents have a smaller number, for a document that
 * trains and is the k-th of those. */
int64_t split_held_before(const struct split *split, int64_t k);

#endif
