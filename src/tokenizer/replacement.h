/* SPDX-License-Identifier: Apache-2.0 */
/* replacement.h - a piece of text or a pattern, and the text that each match
 * becomes: steps of normalizers and of decoders. */
#ifndef LOCKSTEP_TOKENIZER_REPLACEMENT_H
#define LOCKSTEP_TOKENIZER_REPLACEMENT_H

#include "tokenizer/component.h"
#include "tokenizer/regex.h"

struct replacement {
    const char *literal; /* what is replaced; in the arena */
    size_t literal_length;
    struct regex *regex; /* owned; instead of the literal, or NULL */
    const char *content; /* by what; in the arena */
    size_t content_length;
};

/* {"type": "Replace", "pattern": ..., "content": ...}. ERR_FORMAT. */
status replacement_read(struct replacement *out, const struct component *in,
                        const struct json *json);
/* *match = the first match in text[in.start, in.stop), where *found. An empty
 * literal has none. ERR_FORMAT: the match limit. */
status replacement_find(const struct replacement *replacement,
                        const char *text, struct span in, bool *found,
                        struct span *match);

#endif
