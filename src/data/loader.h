/* SPDX-License-Identifier: Apache-2.0 */
/* loader.h - samples of token files in an order that is a pure function of
 * (seed, epoch, index).
 *
 *   documents   ....A....|end|..B..|end|......C......|end|
 *   tokens      the documents of this share, one after the other
 *   sample i    inputs  tokens[i L .. i L + L)
 *               targets tokens[i L + 1 .. i L + L]
 *
 * A sample begins L tokens after the one before (the sequence). With best-fit
 * packing samples are made of whole documents instead (pack.h), filled up with
 * tokens of a document of their own that nothing learns from. By default
 * attention stays in a document: positions restart at its first token, and the
 * target of an end token, which would be another document's first token, is
 * masked (-1). The incomplete last sample is dropped and counted. Epoch e takes
 * sample permute(seed, e)(index): a Feistel network, no index in memory. */
#ifndef LOCKSTEP_DATA_LOADER_H
#define LOCKSTEP_DATA_LOADER_H

#include "base/random.h"
#include "data/pack.h"
#include "data/split.h"
#include "data/token_set.h"

/* Which documents: all, or one side of a split by document. */
enum loader_share { SHARE_ALL, SHARE_TRAIN, SHARE_VALID };

struct loader_request {
    const char *const *paths; /* of token files; must outlive the loader */
    int path_count;
    const char *name;         /* of the source, for messages */
    int64_t sequence;         /* tokens of a sample */
    uint64_t seed;
    uint64_t source;          /* number of the source: each has its own order */
    bool joined;              /* plain tokens: nothing masked */
    bool best_fit;            /* packing; not with joined */
    bool shuffled;            /* else in the order of the file */
    enum loader_share share;
    double valid_share;       /* of the documents, for the split */
    const char *tokenizer;    /* digest that the file must carry; NULL: any */
    int64_t vocab;            /* rows of the model; ids must be below */
    int32_t end_token;        /* of files that do not say; -1: unknown */
    /* For seals, splits and packing; NULL: seals beside, no others. */
    const char *cache;
    /* Reports the progress of packing documents; may be NULL. */
    void (*progress)(void *argument, double done, double total);
    void *argument;
    /* Reports the bytes read of a file that must be read to be opened; may be
     * NULL. */
    void (*reading)(void *argument, double done, double total);
    void *reading_argument;
};

struct loader {
    struct token_set set;
    struct loader_request request;
    struct pack pack;   /* best fit; made again if its file is damaged */
    struct split split; /* empty when it has all documents */
    int64_t documents;  /* of the share */
    int64_t tokens;     /* of all its documents */
    int64_t samples;    /* of an epoch */
    int64_t dropped;    /* tokens of the incomplete last sample, per epoch */
    int64_t checked;    /* epoch of which a sample of pages was compared */
};

/* Files are verified once (token_file_trust; large ones while samples are
 * already read: token_set_settle). ERR_CONFIG: another tokenizer,
 * too few tokens for one sample. */
status loader_open(struct loader *loader, const struct loader_request *request);
void loader_close(struct loader *loader);
/* Gives back the memory of pages that were read. */
void loader_drop(const struct loader *loader);

/* Sample `index` counted from the start of the run: epoch index / samples.
 * Arrays of [sequence]; documents: where in the sample that of each token
 * begins. */
status loader_sample(struct loader *loader, int64_t index,
                     int32_t *inputs, int32_t *targets, int32_t *positions,
                     int32_t *documents);

/* A run of tokens of one document in a sample. */
struct loader_fragment {
    int64_t document;    /* of the files, over all of them */
    int64_t offset;      /* in the document, tokens */
    int64_t count;
    int64_t length;      /* of the document */
    int64_t at;          /* first token, over all files */
};
/* The fragments of sample `index` in order: at most `most` are stored, *count
 * is how many there are. */
status loader_fragments(struct loader *loader, int64_t index, int64_t most,
                        struct loader_fragment *fragments, int64_t *count);

#endif
