/* SPDX-License-Identifier: Apache-2.0 */
/* regex.h - regular expressions of tokenizers that no scanner knows: PCRE2
 * with its compiler to machine code and with match limits. */
#ifndef LOCKSTEP_TOKENIZER_REGEX_H
#define LOCKSTEP_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"
#include "base/text.h"

struct regex;
struct span { size_t start, stop; };

/* ERR_FORMAT says what is wrong with the pattern; `source` is borrowed. */
status regex_build(struct regex **out, const char *pattern,
                   const char *source);
void regex_free(struct regex *regex);
/* Appends the pattern, in the syntax of the `tokenizers` library, as PCRE2
 * reads it. ERR_FORMAT names what cannot be said there. */
status regex_translate(struct text *out, const char *pattern,
                       const char *source);
/* Appends, as members of a class, the code points with this property that
 * PCRE2's tables are too old for: a general category, Alphabetic, Han. */
status regex_newer(struct text *out, const char *name);
/* *match = the first match in text[in.start, in.stop), where *found; what lies
 * before in.start can be looked back at. ERR_FORMAT: the match limit. */
status regex_find(const struct regex *regex, const char *text, struct span in,
                  bool *found, struct span *match);

#endif
