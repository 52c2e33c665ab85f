/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h - documents from files: text, JSON lines, Parquet and directories
 * of them.
 *
 * A text file (also any other file that the user names itself) is one document,
 * unless it has lines that consist of <|endoftext|> alone: those separate
 * documents. Each line of a .jsonl file is an object; one of its keys holds one
 * document: a text, or an array of ids. Both may be packed (.gz, .zst) and are
 * unpacked as they are read. In a .parquet file each row of one column is a
 * document: a text, or a list of ids. Empty documents are left out. A byte
 * order mark at the start of a file is skipped. */
#ifndef LOCKSTEP_CORPUS_CORPUS_H
#define LOCKSTEP_CORPUS_CORPUS_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/file.h"

enum corpus_kind { CORPUS_TEXT, CORPUS_JSONL, CORPUS_PARQUET, CORPUS_TOKENS };

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

/* One document: valid UTF-8, or ids where the source holds tokens. Valid during
 * the call only. */
struct corpus_segment {
    size_t length;      /* bytes */
    bool learned;       /* false: context only */
};
struct corpus_document {
    const char *text;   /* [length]; NULL: ids */
    size_t length;      /* bytes */
    const struct corpus_segment *segments; /* one after the other the text; */
    int segment_count;  /* no token has parts of two; 0: one that is learned */
    bool headed;        /* segments: the tokenizer's first tokens come before,
                         * as before a text */
    const int32_t *ids; /* [id_count] */
    int64_t id_count;
    const struct file_map *map; /* the text lies in it; NULL: in no file */
};
typedef status corpus_take(void *context,
                           const struct corpus_document *document);

/* Where in a record the document is. */
struct chat_template;
struct corpus_format {
    const char *field; /* key of .jsonl, column of .parquet */
    /* For .jsonl: conversations under `field`, "messages" or "conversations",
     * or pairs of "prompt" and "completion" (chat.h); NULL: neither. */
    const struct chat_template *chat;
    /* The most bytes of a document, 4 for an id, and of a line of .jsonl; a
     * text file that is not packed may be longer. 0: DOCUMENT_BYTES. */
    int64_t document_bytes;
    int64_t vocab;     /* ids are below it; 0: whatever they are */
};
enum { DOCUMENT_BYTES = 64 << 20, DOCUMENT_BYTES_LEAST = 1 << 10,
       DOCUMENT_BYTES_MOST = 1 << 30 };
/* The name of this limit in messages. */
#define DOCUMENT_BYTES_NAME "data.document_bytes (--document-bytes)"

/* A list of sources may begin with field=KEY, which is format->field of those
 * that follow; it is taken off. ERR_CONFIG: an empty KEY, or no source. */
status corpus_field(const char *const **sources, int *count,
                    struct corpus_format *format);

/* All documents of one file that is not CORPUS_TOKENS. *at, which may be NULL:
 * bytes of the file read before the document that is taken. ERR_FORMAT names
 * the file and the line, row or byte. */
status corpus_read(const struct corpus_file *file,
                   const struct corpus_format *format, corpus_take *take,
                   void *context, int64_t *at);

#endif
