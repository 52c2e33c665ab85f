/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenize.h - cuts text into the words that the model stays within.
 *
 * The "pre_tokenizer" of tokenizer.json is a list of steps, each of which
 * cuts the pieces of the step before. Steps with a scanner (scan.h) are run
 * together in one pass and need no memory; any other step makes the general
 * path list the pieces. Metaspace and ByteLevel with a prefix space also
 * rewrite the text. Steps after ByteLevel (Falcon's) see the characters that
 * it writes for bytes (byte_level.h), so that they may cut between the bytes
 * of one character of the text; their pieces are bytes again. */
#ifndef LOCKSTEP_TOKENIZER_PRETOKENIZE_H
#define LOCKSTEP_TOKENIZER_PRETOKENIZE_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/origin.h"
#include "tokenizer/regex.h"
#include "tokenizer/scan.h"

enum split_behavior {
    SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS
};

/* When Metaspace puts its mark before a piece that has none. */
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_NEVER, PREPEND_FIRST };

/* Does the code point match? */
typedef bool character_test(uint32_t code);

struct pretokenize_step {
    scan_piece *scan;             /* NULL: by one of the next three */
    struct regex *regex;          /* owned; NULL: none */
    const char *literal;          /* in the arena; NULL: none */
    size_t literal_length;        /* bytes */
    character_test *test;         /* NULL: none */
    enum split_behavior behavior; /* of regex, literal and test */
    bool invert;                  /* cut at what does not match */
    bool prefix_space;            /* a space before each piece without one */
    bool whole;                   /* Metaspace: rewrites, cuts nothing */
    const char *mark;             /* Metaspace: stands for spaces, or NULL */
    size_t mark_length;           /* bytes */
    enum prepend_scheme prepend;  /* of the mark */
};

enum { PRETOKENIZE_STEPS_MAX = 8 };

struct pretokenizer {
    struct pretokenize_step steps[PRETOKENIZE_STEPS_MAX];
    int count;
    bool plain;      /* scanners only */
    bool byte_level; /* a step was ByteLevel */
    int spelled;     /* the step from which on bytes are spelled in the
                      * alphabet; 0: none, ByteLevel was the last */
    struct byte_level alphabet; /* when spelled > 0 */
    bool asks_first; /* Metaspace puts its mark before what is first */
};

/* Receives one piece, which is valid UTF-8 unless steps stand after ByteLevel;
 * from [length]: its origins, or NULL. */
typedef status pretokenize_take(void *context, const unsigned char *piece,
                                size_t length, const struct origin *from);

/* From tokenizer.json; NULL and null: each text is one word. ERR_FORMAT names
 * a component or field that is not supported. */
status pretokenizer_read(struct pretokenizer *pretokenizer,
                         struct arena *arena, const struct json *json,
                         const char *source);
/* Text and where it stands. */
struct pretokenize_text {
    const char *bytes; /* valid UTF-8 */
    size_t length;
    bool first;        /* begins where the original text begins */
    bool inside;       /* text stands right before it */
    const struct origin *from; /* [length], borrowed; NULL: not asked for.
                                * Where it is, it tells what is first: all
                                * pieces that came from the beginning */
};

/* The pieces of `text` in order, each once. Thread-safe. */
status pretokenizer_run(const struct pretokenizer *pretokenizer,
                        const struct pretokenize_text *text,
                        pretokenize_take *take, void *context);
void pretokenizer_free(struct pretokenizer *pretokenizer);

#endif
