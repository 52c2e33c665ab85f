/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h - text to ids and back: BPE and Unigram, from the files of
 * Hugging Face, SentencePiece, tiktoken and Mistral.
 *
 *   text -> added tokens cut out -> normalizer -> pre-tokenizer -> words
 *        -> the model, within each word -> ids -> template (first, last token)
 *
 * The ids are those of the library that the file is made for. A tokenizer is
 * read-only once read: any number of threads may encode and decode with it;
 * each call borrows a word cache from a pool. */
#ifndef LOCKSTEP_TOKENIZER_TOKENIZER_H
#define LOCKSTEP_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/cuts.h"
#include "tokenizer/detokenize.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/token_list.h"
#include "tokenizer/token_place.h"
#include "tokenizer/unigram.h"

enum { TOKENIZER_VOCAB_MAX = 1 << 22, TOKENIZER_TEMPLATE_MAX = 16,
       TOKENIZER_TRIMS_MAX = 4 };

/* One learned merge, found by its pair. */
struct merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: an empty place */
    int32_t rank;  /* smaller goes first */
    int32_t id;    /* of the two joined */
};

/* The two tokens that a token was merged from; `left` may also say that it
 * stays whole or becomes unknown. */
struct halves { int32_t left, right; };
enum { HALVES_WHOLE = -1, HALVES_UNKNOWN = -2 };

/* Post-processors that take white space off the places of tokens. */
struct tokenizer_trim {
    bool prefix;     /* one space at the beginning is not the text's */
    bool behind;     /* Bert's or Roberta's token is already before the text,
                      * so that no token of the text is the first */
};

/* How a word becomes ids. */
enum tokenizer_model {
    MODEL_BYTES,      /* BPE: merges that start from bytes */
    MODEL_CHARACTERS, /* BPE: merges that start from characters */
    MODEL_UNIGRAM     /* the likeliest of all ways to cut it */
};

/* Raised when a mended encoder finds other ids in some text: it is part of what
 * names a cached token file, so that no older one is taken for what would be
 * written today. */
enum { TOKENIZER_VERSION = 3 };

struct tokenizer {
    struct arena arena;       /* owns all that follows but the caches */
    const char *source;       /* path, for messages */
    const char *json;         /* the file as it was read, for export */
    size_t json_length;       /* bytes */
    const char *file_name;    /* under which a directory keeps that file */
    enum tokenizer_model model;
    char digest[65];          /* SHA-256 of that file, in hex */
    int64_t vocab;            /* largest id + 1 */
    const unsigned char *bytes; /* of all tokens, one after the other */
    const uint32_t *starts;   /* [vocab + 1] into bytes */
    const char *const *names; /* [vocab] as in the file; NULL: no such id */
    const uint32_t *name_lengths; /* [vocab] bytes */
    const int32_t *name_table;/* [name_places] id by name, -1 empty */
    const int32_t *word_table;/* [name_places] id by bytes (MODEL_BYTES) or
                               * name of those that text can be, -1 empty */
    uint64_t name_places;     /* power of two */
    struct merge *merges;     /* [merge_places] */
    uint64_t merge_places;    /* power of two */
    const struct halves *halves; /* [vocab] of tokens that come apart again
                               * after the merges; NULL: none */
    int32_t byte_ids[256];    /* of the byte (MODEL_BYTES) or the ASCII
                               * character; -1: the vocabulary lacks it */
    int32_t fallback[256];    /* of <0x00> to <0xFF>; -1: lacking or unused */
    int32_t unknown;          /* for what has no token; -1: it is dropped */
    bool fuse_unknown;        /* several in a row become one */
    struct cuts cuts;         /* MODEL_CHARACTERS */
    struct unigram unigram;   /* MODEL_UNIGRAM */
    struct decoder decoder;
    bool ignore_merges;       /* a word that is a token is taken whole */
    const struct added_token *added; /* [added_count] */
    int32_t added_count;
    const unsigned char *kinds;      /* [vocab] enum token_kind */
    struct added_matcher raw;        /* added tokens before the normalizer */
    struct added_matcher normal;     /* and after it */
    struct added_matcher kept;       /* what a normalizer does not touch */
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    int32_t first[TOKENIZER_TEMPLATE_MAX]; /* template: before the text */
    int32_t last[TOKENIZER_TEMPLATE_MAX];  /* and after it */
    int first_count, last_count;
    struct tokenizer_trim trims[TOKENIZER_TRIMS_MAX]; /* places only */
    int trim_count;
    bool paired;           /* first and last are those of Bert or Roberta */
    bool last_byte_whole;  /* places: of bytes that stand for a character the
                            * last has all of it (SentencePiece) */
    struct word_caches *caches; /* owned; a pool, see word_cache.h */
};

enum token_kind { TOKEN_MISSING, TOKEN_LEARNED, TOKEN_ADDED, TOKEN_SPECIAL };

/* From a file or a directory that has one. ERR_MISSING, ERR_IO; ERR_FORMAT
 * names what is wrong or not supported. */
status tokenizer_read(struct tokenizer *tokenizer, const char *path);
/* The same from memory; `source` names it in messages, and its kind is seen in
 * its bytes. */
status tokenizer_read_text(struct tokenizer *tokenizer, const char *json,
                           size_t length, const char *source);
void tokenizer_free(struct tokenizer *tokenizer);
/* The first file of a directory that has one of the usual names. */
bool tokenizer_file(const char *directory, char file[PATH_BYTES]);

/* Appends the ids of one text. `special`: with the tokens that the template
 * puts around it. ERR_FORMAT: the text is not UTF-8, with the position. */
status tokenizer_encode(const struct tokenizer *tokenizer, const char *text,
                        size_t length, bool special, struct token_list *out);
/* Appends the ids of text[from, to) as they follow those of text[0, from): an
 * added token at the end of that takes white space, and no space is put before
 * what goes on with a word or a line. Without the template's tokens. */
status tokenizer_encode_after(const struct tokenizer *tokenizer,
                              const char *text, size_t from, size_t to,
                              struct token_list *out);
/* The same ids, and of each its place in the text, as the library of the file
 * tells it: `tokenizers` its offsets (with the trim_offsets of the
 * post-processor; empty and at 0 for the template's tokens), SentencePiece
 * begin and end of its pieces, tiktoken where its decode_with_offsets begins.
 * Slower than tokenizer_encode by several times and not meant for a corpus;
 * memory of about 100 bytes for each of the text, of 2 GiB at most. */
status tokenizer_encode_places(const struct tokenizer *tokenizer,
                               const char *text, size_t length, bool special,
                               struct token_list *out,
                               struct token_places *places);
/* Appends the bytes of the ids; special tokens are written as their names.
 * ERR_CONFIG: an id that the vocabulary does not have. */
status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                        int64_t count, struct text *out);

/* Decoding token by token, as a generator prints: bytes of a character that
 * is not complete yet are held back. */
struct token_decoder {
    const struct tokenizer *tokenizer; /* borrowed */
    struct decode_state state;         /* zeroed to start with */
    unsigned char held[4];
    int held_count;                    /* bytes */
};
/* Appends what is now certain. Bytes that can never become UTF-8 come out as
 * they are. */
status token_decoder_next(struct token_decoder *decoder, int32_t id,
                          struct text *out);
/* Appends what is still held back. */
status token_decoder_end(struct token_decoder *decoder, struct text *out);

/* Number of rows that an embedding needs: the largest id + 1. */
int64_t tokenizer_vocab(const struct tokenizer *tokenizer);
enum token_kind tokenizer_kind(const struct tokenizer *tokenizer, int32_t id);
/* Bytes of text that an id stands for after others; *length 0 for an unknown
 * one. */
const unsigned char *tokenizer_bytes(const struct tokenizer *tokenizer,
                                     int32_t id, size_t *length);
/* Id of a token by its name in the file. */
bool tokenizer_find(const struct tokenizer *tokenizer, const char *name,
                    int32_t *id);
/* The token after each document: `name`, or with "" the first that exists of
 * the usual names. ERR_CONFIG lists what was looked for. */
status tokenizer_end_of_text(const struct tokenizer *tokenizer,
                             const char *name, int32_t *id);

/* Tables while reading (tokenizer_read.c, tokenizer_build.c). */
uint64_t tokenizer_hash(const void *bytes, size_t length);
/* Place of the pair in `merges`, or the empty place where it belongs. */
uint64_t tokenizer_merge_place(const struct tokenizer *tokenizer,
                               uint64_t pair);
/* The text that becomes the token: its bytes or its name. */
const unsigned char *tokenizer_key(const struct tokenizer *tokenizer,
                                   int32_t id, size_t *length);
/* Id of the learned token with exactly this key, or -1. */
int32_t tokenizer_word(const struct tokenizer *tokenizer,
                       const unsigned char *bytes, size_t length);

#endif
