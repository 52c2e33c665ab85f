/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - the category of a code point.
 *
 * Unicode 16.0.0: the version that the regular expressions of the `tokenizers`
 * library know, so that both cut text at the same places. Two levels: blocks of
 * 64 code points, most of which many ranges share. */
#ifndef LOCKSTEP_TOKENIZER_UNICODE_H
#define LOCKSTEP_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories; the last one is ours: controls that are white space. */
enum unicode_category {
    UNICODE_CN, UNICODE_CC, UNICODE_CF, UNICODE_CO, UNICODE_LU, UNICODE_LL,
    UNICODE_LT, UNICODE_LM, UNICODE_LO, UNICODE_MN, UNICODE_MC, UNICODE_ME,
    UNICODE_ND, UNICODE_NL, UNICODE_NO, UNICODE_PC, UNICODE_PD, UNICODE_PS,
    UNICODE_PE, UNICODE_PI, UNICODE_PF, UNICODE_PO, UNICODE_SM, UNICODE_SC,
    UNICODE_SK, UNICODE_SO, UNICODE_ZS, UNICODE_ZL, UNICODE_ZP,
    UNICODE_CONTROL_SPACE, UNICODE_CATEGORIES
};

/* Sets of categories, as patterns ask for them; bits of a class. */
enum unicode_class {
    CLASS_LETTER = 1,  /* \p{L} */
    CLASS_NUMBER = 2,  /* \p{N} */
    CLASS_SPACE = 4,   /* \s: White_Space */
    CLASS_MARK = 8,    /* \p{M} */
    CLASS_UPPER = 16,  /* Lu Lt Lm Lo M: o200k's first half of a word */
    CLASS_LOWER = 32,  /* Ll Lm Lo M: and its second */
    CLASS_NEWLINE = 64,/* \r \n */
    CLASS_WORD = 128   /* \w of a whole-word match: L M Nd Nl Pc, and see
                        * added.c */
};

enum { UNICODE_LIMIT = 0x32400, UNICODE_BLOCK = 64 };
extern const char unicode_blocks[][UNICODE_BLOCK + 1];
extern const unsigned short unicode_index[];
extern const unsigned char unicode_ascii[128]; /* classes */
extern const unsigned char unicode_classes[UNICODE_CATEGORIES];

enum unicode_category unicode_category(uint32_t code);
/* As the `tokenizers` library sees it: see punctuation.c. */
bool unicode_punctuation(uint32_t code);

/* Class of the code point at bytes[at] of valid UTF-8 and its length in
 * bytes. at < the length of the text. */
static inline unsigned unicode_at(const unsigned char *bytes, size_t at,
                                  size_t *length)
{
    const unsigned first = bytes[at];
    uint32_t code;

    if (first < 0x80) {
        *length = 1;
        return unicode_ascii[first];
    }
    if (first < 0xE0) {
        *length = 2;
        code = (first & 0x1Fu) << 6 | (bytes[at + 1] & 0x3Fu);
    } else if (first < 0xF0) {
        *length = 3;
        code = (first & 0x0Fu) << 12 | (bytes[at + 1] & 0x3Fu) << 6 |
               (bytes[at + 2] & 0x3Fu);
    } else {
        *length = 4;
        code = (first & 0x07u) << 18 | (bytes[at + 1] & 0x3Fu) << 12 |
               (bytes[at + 2] & 0x3Fu) << 6 | (bytes[at + 3] & 0x3Fu);
    }
    return unicode_classes[unicode_category(code)];
}

/* Length in bytes of the character that ends before bytes[at], at > 0. */
static inline size_t unicode_before(const unsigned char *bytes, size_t at)
{
    size_t length = 1;

    while (length < at && length < 4 && (bytes[at - length] & 0xC0) == 0x80)
        length++;
    return length;
}

#endif
