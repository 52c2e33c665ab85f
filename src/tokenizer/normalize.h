/* SPDX-License-Identifier: Apache-2.0 */
/* normalize.h - the changes that a tokenizer makes to text before it cuts it.
 *
 * The "normalizer" of tokenizer.json as a list of steps: Unicode normal forms,
 * replacements, and the compiled character maps of SentencePiece. A `.model`
 * file has one step of its own kind, which also tends the white space. */
#ifndef LOCKSTEP_TOKENIZER_NORMALIZE_H
#define LOCKSTEP_TOKENIZER_NORMALIZE_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/origin.h"
#include "tokenizer/replacement.h"

enum normal_form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD };
enum { NORMALIZE_STEPS_MAX = 8 };

enum normalize_kind {
    NORMALIZE_FORM,
    NORMALIZE_PREPEND,  /* `content` before a text that is not empty */
    NORMALIZE_REPLACE,  /* each match becomes `content` */
    NORMALIZE_STRIP,    /* white space at the ends */
    NORMALIZE_CHARSMAP, /* `map`, cluster by cluster: tokenizer.json */
    NORMALIZE_PIECES    /* `map` and white space: SentencePiece itself */
};

struct normalize_step {
    enum normalize_kind kind;
    enum normal_form form;
    struct replacement replace; /* PREPEND has its `content` only */
    bool left, right;    /* ends to strip */
    struct charsmap map;
    bool trim;           /* PIECES: no spaces at the ends, none in a row */
    bool before, after;  /* PIECES: a space is put there */
    bool escape;         /* PIECES: a space becomes U+2581 */
    const struct added_matcher *kept; /* PIECES: what nothing happens to;
                                       * borrowed, or NULL */
};

struct normalizer {
    struct normalize_step steps[NORMALIZE_STEPS_MAX];
    int count; /* 0: text stays as it is */
};

/* The result; call normalized_free afterwards, also after an error. */
struct normalized {
    const char *text; /* the input itself when nothing changed, else in work */
    size_t length;    /* bytes */
    size_t original;  /* bytes before */
    struct text work; /* owned */
    bool first;       /* in and out: it begins where the original begins */
    bool inside;      /* in: text stands right before, so none is put there */
    bool traced;      /* in: origins are wanted */
    size_t base;      /* in: the origin of the first byte */
    struct origins origins; /* owned; of each byte of `text` when traced */
};

/* The output of a step. */
struct rewritten {
    struct text text;       /* owned */
    struct origins origins; /* owned; of its bytes when traced */
    bool traced;
};

/* From the "normalizer" of tokenizer.json; NULL and null: none. ERR_FORMAT
 * names a component or field that is not known. */
status normalizer_read(struct normalizer *normalizer, struct arena *arena,
                       const struct json *json, const char *source);
status normalizer_run(const struct normalizer *normalizer, const char *text,
                      size_t length, struct normalized *out);
void normalized_free(struct normalized *normalized);
void normalizer_free(struct normalizer *normalizer);

/* Appends `text` in that normal form. */
status normalize_form(enum normal_form form, const char *text, size_t length,
                      struct text *out);
/* Like normalize_form, with origins: step by step as the library goes. */
status normalize_form_traced(enum normal_form form,
                             const struct normalized *in,
                             struct rewritten *out);
/* A code point newer than the library's tables, which it leaves alone. */
bool normalize_inert(uint32_t code);

#endif
