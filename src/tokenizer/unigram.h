/* SPDX-License-Identifier: Apache-2.0 */
/* unigram.h - the likeliest way to cut a word into tokens.
 *
 * Each token has a score, the logarithm of its probability; of all ways to
 * spell the word the one with the largest sum wins (Viterbi). A character that
 * no token spells alone may also be unknown, at a penalty. Ties and rounding
 * are part of the answer, so sums run from left to right, in double
 * (`tokenizers`) or rounded to float after each token (SentencePiece, which
 * counts anew from where a sum has left +-UNIGRAM_SUM_MAX).
 * Source: Kudo 2018, Subword Regularization, section 3.2. */
#ifndef LOCKSTEP_TOKENIZER_UNIGRAM_H
#define LOCKSTEP_TOKENIZER_UNIGRAM_H

#include <stdbool.h>
#include "tokenizer/token_list.h"
#include "tokenizer/trie.h"

enum { UNIGRAM_PENALTY = 10, /* of an unknown one, below the least score */
       UNIGRAM_SUM_MAX = 100000 }; /* of `single` sums; from SentencePiece */

struct unigram {
    struct trie trie;     /* owned */
    const double *scores; /* [vocab]; borrowed */
    double unknown_score; /* of an unknown character */
    bool single;          /* sums are rounded to float and counted anew */
};

/* The working memory of one encoding call; kept between calls. */
struct unigram_node { double score; int32_t id; uint32_t length; };
struct unigram_nodes {
    struct unigram_node *items; /* owned */
    int64_t capacity;
};

/* Receives a token and where it starts and stops in the word; id -1: unknown,
 * neighbours are not joined. */
typedef status unigram_take(void *context, int32_t id, size_t start,
                            size_t stop);

/* The tokens of the word (valid UTF-8) in order. */
status unigram_run(const struct unigram *unigram, struct unigram_nodes *nodes,
                   const unsigned char *word, size_t length,
                   unigram_take *take, void *context);
void unigram_free(struct unigram *unigram);
void unigram_nodes_free(struct unigram_nodes *nodes);

#endif
