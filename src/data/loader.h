/* SPDX-License-Identifier: Apache-2.0 */
/* loader.h - samples of a token file in an order that is a pure function of
 * (seed, epoch, index).
 *
 *   documents   ....A....|end|..B..|end|......C......|end|
 *   stream      the documents of this share, one after the other
 *   sample i    inputs  stream[i L .. i L + L)
 *               targets stream[i L + 1 .. i L + L]
 *
 * The stream moves on by L (the sequence). By default attention stays in a
 * document: positions restart at its first token, and the target of an end
 * token, which would be another document's first token, is masked (-1). The
 * incomplete last sample is dropped and counted. Epoch e takes sample
 * permute(seed, e)(index): a Feistel network, no index in memory. */
#ifndef LOCKSTEP_DATA_LOADER_H
#define LOCKSTEP_DATA_LOADER_H

#include "base/random.h"
#include "data/token_file.h"

/* Which documents: all, or one side of a split by document. */
enum loader_share { SHARE_ALL, SHARE_TRAIN, SHARE_VALID };

struct loader_request {
    const char *path;         /* of a token file; must outlive the loader */
    int64_t sequence;         /* tokens of a sample */
    uint64_t seed;
    bool joined;              /* plain stream: nothing masked */
    bool shuffled;            /* else in the order of the file */
    enum loader_share share;
    double valid_share;       /* of the documents, for the split */
    const char *tokenizer;    /* digest that the file must carry; NULL: any */
    int64_t vocab;            /* rows of the model; ids must be below */
};

struct loader {
    struct token_file file;
    struct loader_request request;
    int64_t *starts;    /* owned, [documents + 1] in the stream; NULL when the
                         * stream is the whole file */
    int64_t *first;     /* owned, [documents] in the file, likewise */
    int64_t documents;  /* of the share */
    int64_t tokens;     /* of the stream */
    int64_t samples;    /* of an epoch */
    int64_t dropped;    /* tokens of the incomplete last sample, per epoch */
};

/* Verifies the file once (checksum, ids). ERR_CONFIG: another tokenizer, too
 * few tokens for one sample. */
status loader_open(struct loader *loader, const struct loader_request *request);
void loader_close(struct loader *loader);

/* Sample `index` counted from the start of the run: epoch index / samples.
 * Arrays of [sequence]. */
status loader_sample(const struct loader *loader, int64_t index,
                     int32_t *inputs, int32_t *targets, int32_t *positions,
                     int32_t *documents);

#endif
