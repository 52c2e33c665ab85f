/* SPDX-License-Identifier: Apache-2.0 */
/* token_file.h - tokenised documents on disk, mapped for reading.
 *
 *    offset  bytes
 *         0      8   "LSTOKEN1"
 *         8      4   bytes per token, 2 or 4             all little-endian
 *        12      4   end token, after each document
 *        16      8   vocabulary (every id is smaller)
 *        24      8   number of tokens, n
 *        32      8   number of documents, d
 *        40      8   bytes of text that the tokens stand for
 *        48     64   tokenizer digest, hex, zeros if unknown
 *       112     64   source digest, hex, zeros if unknown
 *       176      4   CRC-32C of tokens and table
 *       180      4   CRC-32C of bytes 0 to 179
 *       184      8   1: a mask follows the table; else zero
 *       192    n*b   tokens; each document ends with the end token
 *    +0 to 7      to a multiple of 8
 *       ...  8*(d+1)  first token of each document; then n
 *       ...  (n+7)/8  mask: bit i % 8 of byte i / 8 is 1: token i is learned
 *
 * Files are never changed after they are written (beside, then renamed). */
#ifndef LOCKSTEP_DATA_TOKEN_FILE_H
#define LOCKSTEP_DATA_TOKEN_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "base/status.h"

enum { TOKEN_DIGEST_BYTES = 65 };

/* The program that wrote the file; token_foreign.h reads all but the first. */
enum token_layout {
    TOKENS_OWN,
    TOKENS_MEGATRON, /* .bin and .idx */
    TOKENS_LLMC,     /* .bin of llm.c */
    TOKENS_NANOSET,  /* .ds and .ds.index */
    TOKENS_NUMPY,    /* .npy, one dimension */
    TOKENS_RAW       /* .u16, .u32: nothing but tokens */
};

/* Checksums of a file's pages (token_pages.h). */
struct token_pages {
    uint32_t *crcs;             /* owned [room] */
    int64_t count, room;
    uint32_t total, crc;        /* of full pages; of the page that grows, */
    size_t bytes;               /* which has so many */
};

struct token_file {
    struct file_map map;        /* owned */
    struct file_map table;      /* owned: the second file, if there is one */
    const char *path;           /* borrowed from the opener */
    enum token_layout layout;
    const unsigned char *image; /* of the whole file, in the map */
    size_t length;              /* bytes */
    const unsigned char *tokens;/* in the map */
    const unsigned char *starts;/* in a map; NULL: one document, or found */
    const unsigned char *mask;  /* in the map; NULL: every token is learned */
    const unsigned char *offsets; /* megatron: of sequences, in the table */
    int64_t sequences;          /* megatron */
    const int64_t *found;       /* [documents + 1]: by token_file_split, in */
    unsigned char *found_image; /* owned memory, or */
    struct file_map starts_map; /* owned: the file that was kept */
    struct token_pages pages;   /* owned; empty: not known */
    int bytes_per_token;        /* 1, 2, 4 or 8 */
    int32_t end_token;          /* -1: not known */
    int64_t vocab;              /* 0: not known */
    int64_t largest;            /* id in the file, at most this; -1: unknown */
    int64_t count;              /* tokens */
    int64_t documents;
    int64_t text_bytes;
    uint32_t crc;               /* of tokens and table: what the data is */
    bool unread;                /* the tokens were not checked: crc of a
                                 * foreign file is unknown (token_check.h) */
    int64_t model_vocab;        /* reading it whole refuses ids from here on;
                                 * 0: the file's own word is enough */
    const atomic_bool *stop;    /* borrowed: ends a pass early; NULL: never */
    /* Called in passes over the file with bytes that were read; or NULL. */
    void (*progress)(void *argument, int64_t bytes);
    void *argument;
    char tokenizer[TOKEN_DIGEST_BYTES], source[TOKEN_DIGEST_BYTES];
};

/* Whether name and first bytes are those of a token file. Some formats are a
 * pair of files; in a directory only one of the two counts. named: the user
 * gave this path, so either does. */
bool token_file_is(const char *path, bool named);
/* Checks the header, every size, and the ends of the table: microseconds.
 * `path` must outlive the file. ERR_MISSING; ERR_FORMAT. */
status token_file_open(struct token_file *file, const char *path);
/* The same checks on the image of a file in memory, which must outlive it. */
status token_file_parse(struct token_file *file, const unsigned char *bytes,
                        size_t length);
void token_file_close(struct token_file *file); /* also if never opened */
/* The checksum of the whole file, that documents ascend and that every id is
 * below the vocabulary: one pass. Sets `largest`, and `crc` of a file that
 * does not carry it. ERR_FORMAT names the first wrong place; ERR_CONFIG: it is
 * wrong only for `model_vocab`. */
status token_file_verify(struct token_file *file);
/* Whether a model can learn from it, as far as is known: by the tokenizer's
 * digest (NULL: any), the file's vocabulary, and `largest` where the file was
 * read or has a seal. vocab 0: any. ERR_CONFIG names the first id. */
status token_file_fits(const struct token_file *file, const char *tokenizer,
                       int64_t vocab);
/* Runs the checks that need the table alone. */
status token_file_verify_table(const struct token_file *file);
/* The whole check without the pass when a seal says that it was made before,
 * on a file of this size and time of change. A seal lies beside the file or in
 * the directory `cache`, where a new one is left; NULL: beside. */
enum token_trust {
    TRUST_READ,  /* without a seal: the pass */
    TRUST_LATER  /* a large file that never had one: the table, and `unread` */
};
status token_file_trust(struct token_file *file, const char *cache,
                        enum token_trust trust);
/* Whether a seal holds; then crc and largest are its. */
bool token_file_sealed(struct token_file *file, const char *cache);
/* Where a seal lies; ending: what follows its path, or "". */
status token_file_seal_path(const struct token_file *file, const char *cache,
                            const char *ending, char out[PATH_BYTES]);
/* A number of the file for caches, known without reading it: its checksum, or
 * of a foreign file size and time of change. */
uint64_t token_file_key(const struct token_file *file);
uint64_t token_key(const void *facts, size_t bytes); /* of any facts */
/* Compares a file that was just verified with its seal, if there is one.
 * ERR_FORMAT: the file changed after the seal was written. */
status token_file_compare(const struct token_file *file, const char *cache);
/* Leaves a seal for a file whose crc and largest id are known. */
status token_file_seal(const struct token_file *file, const char *cache);
/* Id at `index` in [0, count); -1: more than 31 bits. */
int32_t token_file_at(const struct token_file *file, int64_t index);
/* First token of document `index` in [0, documents]; the last is count. Always
 * in [0, count], also in a file that was not verified. */
int64_t token_file_start(const struct token_file *file, int64_t index);
/* Whether the token at `index` is to be predicted, by the mask. */
bool token_file_learned(const struct token_file *file, int64_t index);
/* Documents of a file that does not say where they are: each ends with `end`.
 * Where the format puts a token of its own before each document, that one
 * counts. One pass; what it found of a large file is kept in the directory
 * `cache` (NULL: nowhere). */
status token_file_split(struct token_file *file, int32_t end,
                        const char *cache);

/* ---- writing ---- */

struct token_writer {
    char path[PATH_BYTES], temporary[PATH_BYTES];
    FILE *file;                 /* owned */
    int bytes_per_token;
    int32_t end_token;
    int64_t vocab, count, documents, text_bytes;
    struct token_pages pages;   /* owned */
    int64_t *starts;            /* owned */
    int64_t start_capacity;
    struct text mask;           /* owned; empty: every token is learned */
    int64_t mask_bits;          /* there are: as many as tokens, if any */
    char tokenizer[TOKEN_DIGEST_BYTES], source[TOKEN_DIGEST_BYTES];
};

/* Two bytes a token where the vocabulary allows it. Digests may be NULL. */
status token_writer_open(struct token_writer *writer, const char *path,
                         int64_t vocab, int32_t end_token,
                         const char *tokenizer, const char *source);
/* One document; the end token is added. text_bytes: of its text. ERR_FORMAT: an
 * id outside the vocabulary. */
status token_writer_add(struct token_writer *writer, const int32_t *ids,
                        int64_t count, int64_t text_bytes);
/* Like token_writer_add, with a mask: learned [count], or NULL: all. One such
 * document makes a file with a mask. The end token is learned if the last token
 * is. */
status token_writer_add_masked(struct token_writer *writer, const int32_t *ids,
                               const bool *learned, int64_t count,
                               int64_t text_bytes);
/* Completes, fsyncs and renames, and leaves a seal beside. ERR_IO says "disk
 * full" by name. */
status token_writer_close(struct token_writer *writer);
/* Removes what was not closed. */
void token_writer_free(struct token_writer *writer);

#endif
