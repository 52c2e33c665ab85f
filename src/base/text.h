/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - growing byte strings, and the comparisons that error messages need.
 */
#ifndef LOCKSTEP_BASE_TEXT_H
#define LOCKSTEP_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct text {
    char *bytes;     /* owned; always ends with a NUL beyond `length` */
    size_t length;   /* bytes, without the NUL */
    size_t capacity; /* bytes */
};

status text_append(struct text *text, const void *bytes, size_t length);
status text_append_string(struct text *text, const char *string);
status text_printf(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* The candidate with the smallest edit distance to `word`, capitals or not, or
 * NULL when all are further than a third of its length (at least 1, at most
 * 3). */
const char *text_nearest(const char *word, const char *const *candidates,
                         int count);
bool text_ends_with(const char *string, const char *ending);
/* Large and small letters are alike: names of files of text. */
bool text_ends_like(const char *string, const char *ending);
/* "1.5 GiB", "12.3 MiB", "87 bytes". Writes at most 32 bytes. */
const char *text_bytes(char out[32], uint64_t bytes);
/* "1h 02m 03s", "12.3 s", "4.1 ms". */
const char *text_duration(char out[32], double seconds);
/* "1,234,567". */
const char *text_count(char out[32], int64_t count);
/* True, and *bad = first wrong byte, when not UTF-8 (no surrogates, no
 * overlong forms, at most U+10FFFF). */
bool text_utf8_invalid(const char *bytes, size_t length, size_t *bad);
/* Bytes of the ill-formed sequence at bytes[0] that one U+FFFD stands for: what
 * could still have begun a code point (Unicode 16, section 3.9), at least 1. */
size_t text_utf8_ill(const char *bytes, size_t length);
/* Appends the bytes; U+FFFD stands for each ill-formed sequence, as the
 * `tokenizers` library decodes: what is written is always UTF-8. */
status text_append_utf8(struct text *text, const char *bytes, size_t length);
/* Decodes one code point at bytes[at] (valid UTF-8). Returns its length. */
int text_utf8_decode(const char *bytes, size_t length, uint32_t *code);
int text_utf8_encode(uint32_t code, char out[4]); /* returns 1 to 4 */

#endif
