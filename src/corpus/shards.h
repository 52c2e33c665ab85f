/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - sources as token files of a limited size in one directory.
 *
 *   DIR/00000.tokens, 00001.tokens, ...   shards, ready to be trained on
 *   DIR/progress.json                     how far they go
 *
 * A shard ends with the document that fills it. It is written beside, renamed,
 * and only then counted in progress.json: after a kill at any time the same
 * call goes on behind the last counted shard, and the files are those that a
 * run without a kill writes, byte for byte. Memory is a batch of documents and
 * the table of a shard's. */
#ifndef LOCKSTEP_CORPUS_SHARDS_H
#define LOCKSTEP_CORPUS_SHARDS_H

#include "corpus/prepare.h"

struct shards_request {
    struct data_request data; /* cache: the directory of the shards */
    int64_t tokens;           /* of a shard, at least; 0: one file */
    const char *file;         /* path of the one file; NULL: a directory */
};

struct shards_result {
    int64_t shards, documents, tokens, text_bytes; /* there are now */
    int64_t found;            /* of these shards, left by a call before */
};

/* ERR_CONFIG: the directory holds shards of other sources or settings. */
status shards_write(const struct shards_request *request,
                    struct shards_result *result);

#endif
