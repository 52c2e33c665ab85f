/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.h - documents to ids, many at once, in the order in which they came.
 *
 * Documents gather in a batch; the threads encode them in turn, each into a
 * list of its own, and the lists leave in the order of the documents: the
 * result does not depend on the number of threads. Memory is a batch. */
#ifndef LOCKSTEP_CORPUS_ENCODER_H
#define LOCKSTEP_CORPUS_ENCODER_H

#include "base/threads.h"
#include "corpus/corpus.h"
#include "tokenizer/tokenizer.h"

/* Fill in the middle: of a share `rate` of the documents the middle is moved
 * to the end, so that a model learns to write it when it knows both sides.
 *   prefix first   <prefix> A <suffix> C <middle> B
 *   suffix first   <prefix> <suffix> C <middle> A B     (a share of them)
 * Cuts lie between characters, by (seed, number of the document). Source:
 * Bavarian et al. 2022, arXiv:2207.14255, sections 3 and 4. */
struct fill_in {
    double rate;          /* 0: none */
    double suffix_first;  /* share of those */
    uint64_t seed;
    int32_t prefix, middle, suffix; /* ids of the three tokens */
};
/* Raised when other ids come of the same document: a part of what names a
 * cached token file. */
enum { FILL_IN_VERSION = 2 };

/* Ids of one document, without the end token. learned [count]; NULL: all. */
struct encoded {
    const int32_t *ids;
    const bool *learned;
    int64_t count, text_bytes;
};
typedef status encoder_sink(void *context, const struct encoded *document);

struct encoder_request {
    const struct tokenizer *tokenizer;
    struct threads *threads;  /* borrowed; NULL: one thread */
    int32_t end_token;        /* the sink's business; dropped where a template
                               * has put it already */
    struct fill_in fill_in;
    encoder_sink *sink;
    void *context;            /* of sink */
};

struct encoder;

status encoder_build(struct encoder **out,
                     const struct encoder_request *request);
/* Takes a copy. May encode and hand over what was added so far. */
status encoder_add(struct encoder *encoder,
                   const struct corpus_document *document);
/* Hands over everything that was added. ERR_FORMAT and the like name `source`,
 * the file that the batch came from. */
status encoder_flush(struct encoder *encoder, const char *source);
/* Whether encoder_flush is due: the batch is full. */
bool encoder_full(const struct encoder *encoder);
/* Counts a document that is not encoded: fill-in-the-middle draws by number. */
void encoder_pass(struct encoder *encoder);
void encoder_free(struct encoder *encoder); /* NULL allowed */

/* The ids of the three tokens by their names, or those of the families that
 * have them. ERR_CONFIG: the vocabulary lacks them. */
status fill_in_tokens(struct fill_in *fill_in,
                      const struct tokenizer *tokenizer,
                      const char *const *names, int count);

#endif
