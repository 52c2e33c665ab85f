/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h - documents from files: .txt, .md, .jsonl and directories of them.
 *
 * A text file (also any other file that the user names itself) is one document,
 * unless it has lines that consist of <|endoftext|> alone: those separate
 * documents. Each line of a .jsonl file is an object; one of its keys holds the
 * text of one document. Empty documents are left out. A byte order mark at the
 * start of a file is skipped. */
#ifndef LOCKSTEP_DATA_CORPUS_H
#define LOCKSTEP_DATA_CORPUS_H

#include "base/arena.h"
#include "base/file.h"

enum corpus_kind { CORPUS_TEXT, CORPUS_JSONL, CORPUS_TOKENS };

struct corpus_file {
    const char *path; /* in the corpus's arena */
    enum corpus_kind kind;
    int64_t bytes;
    int64_t changed_ns; /* modification time since 1970 */
};

/* The files that a list of sources stands for, in the order of the list;
 * those of a directory in order of their paths. */
struct corpus {
    struct arena arena;
    struct corpus_file *files; /* owned [capacity] */
    int count, capacity;
    int64_t bytes;             /* of all files */
};

/* ERR_MISSING, ERR_CONFIG: a source that is not there, of a kind that we do
 * not read, or a directory without any file that we do. */
status corpus_open(struct corpus *corpus, const char *const *sources,
                   int count);
void corpus_close(struct corpus *corpus);

/* One document of valid UTF-8. The text is valid during the call only. */
typedef status corpus_take(void *context, const char *text, size_t length);

/* All documents of one text file. `field`: the key of .jsonl. *at, which may
 * be NULL: bytes of the file read before the document that is taken.
 * ERR_FORMAT names the file and the line or byte. */
status corpus_read(const struct corpus_file *file, const char *field,
                   corpus_take *take, void *context, int64_t *at);

#endif
