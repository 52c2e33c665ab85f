/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenize.h - cuts text into the words that merges stay within.
 *
 * The "pre_tokenizer" of tokenizer.json is a list of steps, each of which
 * cuts the pieces of the step before. Steps with a scanner (scan.h) are run
 * together in one pass and need no memory; any other step makes the general
 * path list the pieces. Byte-level tokenizers only: the last step must be
 * ByteLevel. */
#ifndef LOCKSTEP_DATA_PRETOKENIZE_H
#define LOCKSTEP_DATA_PRETOKENIZE_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "data/scan.h"

enum split_behavior {
    SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS
};

struct pretokenize_step {
    scan_piece *scan;             /* NULL: by regex or literal */
    struct regex *regex;          /* owned; NULL: none */
    const char *literal;          /* in the arena; NULL: none */
    size_t literal_length;        /* bytes */
    enum split_behavior behavior; /* of regex and literal */
    bool invert;                  /* cut at what does not match */
    bool prefix_space;            /* a space before each piece without one */
};

enum { PRETOKENIZE_STEPS_MAX = 8 };

struct pretokenizer {
    struct pretokenize_step steps[PRETOKENIZE_STEPS_MAX];
    int count;
    bool plain;      /* scanners only */
    bool byte_level; /* the last step was ByteLevel */
};

/* Receives one piece. */
typedef status pretokenize_take(void *context, const unsigned char *piece,
                                size_t length);

/* From tokenizer.json. ERR_FORMAT names a component that is not supported. */
status pretokenizer_read(struct pretokenizer *pretokenizer,
                         struct arena *arena, const struct json *json,
                         const char *source);
/* The pieces of `text` (valid UTF-8) in order, each once. Thread-safe. */
status pretokenizer_run(const struct pretokenizer *pretokenizer,
                        const char *text, size_t length,
                        pretokenize_take *take, void *context);
void pretokenizer_free(struct pretokenizer *pretokenizer);

/* A compiled regular expression for patterns that no scanner knows: PCRE2
 * with its compiler to machine code and with match limits. */
status regex_build(struct regex **out, const char *pattern,
                   const char *source);
void regex_free(struct regex *regex);
/* Appends the pattern, in the syntax of the `tokenizers` library, as PCRE2
 * reads it. ERR_FORMAT names what cannot be said there. */
status regex_translate(struct text *out, const char *pattern,
                       const char *source);
struct span { size_t start, stop; };

/* *match = the first match in text[in.start, in.stop), where *found; what lies
 * before in.start can be looked back at. ERR_FORMAT: the match limit. */
status regex_find(const struct regex *regex, const char *text, struct span in,
                  bool *found, struct span *match);

#endif
