/* SPDX-License-Identifier: Apache-2.0 */
/* detokenize.h - from names of tokens back to text.
 *
 * The "decoder" of tokenizer.json. What it does to one token is done once,
 * while the file is read; what depends on the tokens before is left: leading
 * characters that are stripped, the first token's marks, spaces between. */
#ifndef LOCKSTEP_TOKENIZER_DETOKENIZE_H
#define LOCKSTEP_TOKENIZER_DETOKENIZE_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/replacement.h"

enum { DECODE_STEPS_MAX = 8 };

enum decode_kind { DECODE_REPLACE, DECODE_MARK, DECODE_FALLBACK };

struct decode_step {
    enum decode_kind kind;
    struct replacement replace;
};

struct decoder {
    struct decode_step steps[DECODE_STEPS_MAX]; /* on each token */
    int count;
    bool byte_level;    /* names are in the byte alphabet */
    bool fused;         /* a Fuse was read: what follows is for all text */
    int64_t strip;      /* at most so many leading... */
    unsigned char strip_byte; /* ...characters, ASCII */
    bool strip_once;    /* of one token only one of them */
    bool drop_first;    /* the first token loses its marks */
    const char *mark;   /* of Metaspace, or NULL */
    size_t mark_length;
    bool spaced;        /* a space between tokens: there is no decoder */
};

/* The state of decoding; zeroed at the start. */
struct decode_state {
    bool begun;       /* a token came */
    bool text;        /* and it had text */
    int64_t stripped; /* leading characters so far */
};

/* NULL and null: none. ERR_FORMAT names what is not supported. */
status decoder_read(struct decoder *decoder, struct arena *arena,
                    const struct json *json, const char *source);
/* Appends the bytes that a token of this name stands for. */
status decoder_token(const struct decoder *decoder, const char *name,
                     size_t length, struct text *out);
void decoder_free(struct decoder *decoder);
/* "<0x41>": *byte = 0x41. Capitals only, as the libraries write them. */
bool decoder_byte(const char *name, size_t length, unsigned char *byte);

#endif
