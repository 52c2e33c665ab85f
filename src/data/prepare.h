/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.h - text sources as one token file, made once and then reused.
 *
 * The name of the file in the cache is a digest of everything that decides
 * its content: path, size and time of change of each source (and a checksum
 * of the small ones), the tokenizer, the key of the text and the end token.
 * So a changed source is tokenized anew and an unchanged one is found again in
 * milliseconds. One source that is a .tokens file is used as it is. */
#ifndef LOCKSTEP_DATA_PREPARE_H
#define LOCKSTEP_DATA_PREPARE_H

#include "base/threads.h"
#include "data/tokenizer.h"

struct data_request {
    const char *const *sources; /* [source_count] files and directories */
    int source_count;
    const char *field;          /* key of the text in .jsonl */
    const struct tokenizer *tokenizer; /* NULL: token files only */
    const char *end_of_text;    /* name of the end token; "": a usual one */
    const char *cache;          /* directory; made when it is missing */
    struct threads *threads;    /* borrowed; NULL: a pool of its own */
    /* Bytes of the sources; may be NULL. */
    void (*progress)(void *argument, double done, double total);
    void *argument;
};

/* path [PATH_BYTES] = the token file. Texts must not be empty or broken; ids
 * and tokenizer of .tokens sources are checked. */
status data_prepare(const struct data_request *request, char *path);

#endif
