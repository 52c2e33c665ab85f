/* SPDX-License-Identifier: Apache-2.0 */
/* replacement.c - a piece of text or a pattern, and the text that each match
 * becomes. */
#include "tokenizer/replacement.h"

#include <string.h>

status replacement_read(struct replacement *out, const struct component *in,
                        const struct json *json)
{
    struct component_literal literal;
    const char *pattern;

    TRY(component_fields(in, json, "pattern content"));
    TRY(component_string(in, json, "content", &out->content,
                         &out->content_length));
    TRY(component_pattern(in, json, &literal, &pattern));
    if (pattern != NULL) return regex_build(&out->regex, pattern, in->source);
    out->literal = literal.bytes;
    out->literal_length = literal.length;
    return OK;
}

status replacement_find(const struct replacement *r, const char *text,
                        struct span in, bool *found, struct span *match)
{
    const char *hit;

    if (r->regex != NULL)
        return regex_find(r->regex, text, in, found, match);
    *found = false;
    if (r->literal_length == 0) return OK;
    if (r->literal_length == 1)
        hit = memchr(text + in.start, r->literal[0], in.stop - in.start);
    else
        hit = memmem(text + in.start, in.stop - in.start, r->literal,
                     r->literal_length);
    if (hit == NULL) return OK;
    *found = true;
    match->start = (size_t)(hit - text);
    match->stop = match->start + r->literal_length;
    return OK;
}
