/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.h - sources as token files, made once and then reused.
 *
 * Token files, ours and those of other projects, are used as they are. What
 * stands between them becomes one token file in the cache. Its name is a
 * digest of everything that decides its content: path, size and time of change
 * of each source (and a checksum of the small ones), the tokenizer, the key of
 * the text and the end token. So a changed source is tokenized anew and an
 * unchanged one is found again in milliseconds. */
#ifndef LOCKSTEP_CORPUS_PREPARE_H
#define LOCKSTEP_CORPUS_PREPARE_H

#include "base/threads.h"
#include "corpus/corpus.h"
#include "corpus/encoder.h"
#include "tokenizer/tokenizer.h"

struct data_request {
    const char *const *sources; /* [source_count] files and directories */
    int source_count;
    struct corpus_format format;
    const struct tokenizer *tokenizer; /* NULL: token files only */
    const char *end_of_text;    /* name of the end token; "": a usual one */
    struct fill_in fill_in;
    const char *cache;          /* directory; made when it is missing */
    struct threads *threads;    /* borrowed; NULL: a pool of its own */
    /* Bytes of the sources; may be NULL. */
    void (*progress)(void *argument, double done, double total);
    void *argument;
};

/* Token files that hold the documents of the sources in their order. */
struct data_parts {
    struct arena arena;
    const char **paths; /* in the arena [count] */
    int count;
};

/* Texts must not be empty or broken; a file of the cache that is damaged is
 * made again. */
status data_prepare(const struct data_request *request,
                    struct data_parts *parts);
void data_parts_free(struct data_parts *parts);

#endif
