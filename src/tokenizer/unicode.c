/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - the category of a code point. */
#include "tokenizer/unicode.h"

enum {
    CASED = CLASS_LETTER | CLASS_WORD,
    BOTH = CASED | CLASS_UPPER | CLASS_LOWER,
    MARK = CLASS_MARK | CLASS_WORD | CLASS_UPPER | CLASS_LOWER
};

const unsigned char unicode_classes[UNICODE_CATEGORIES] = {
    [UNICODE_LU] = CASED | CLASS_UPPER,
    [UNICODE_LT] = CASED | CLASS_UPPER,
    [UNICODE_LL] = CASED | CLASS_LOWER,
    [UNICODE_LM] = BOTH,
    [UNICODE_LO] = BOTH,
    [UNICODE_MN] = MARK,
    [UNICODE_MC] = MARK,
    [UNICODE_ME] = MARK,
    [UNICODE_ND] = CLASS_NUMBER | CLASS_WORD,
    [UNICODE_NL] = CLASS_NUMBER | CLASS_WORD,
    [UNICODE_NO] = CLASS_NUMBER,
    [UNICODE_PC] = CLASS_WORD,
    [UNICODE_ZS] = CLASS_SPACE,
    [UNICODE_ZL] = CLASS_SPACE,
    [UNICODE_ZP] = CLASS_SPACE,
    [UNICODE_CONTROL_SPACE] = CLASS_SPACE
};

enum {
    UP = CASED | CLASS_UPPER,
    LOW = CASED | CLASS_LOWER,
    DIGIT = CLASS_NUMBER | CLASS_WORD,
    LINE = CLASS_SPACE | CLASS_NEWLINE,
    TAB = CLASS_SPACE
};

/* Categories by hand for ASCII, where most text is; the unit test compares. */
const unsigned char unicode_ascii[128] = {
    ['\t'] = TAB,   ['\n'] = LINE,  ['\v'] = TAB,   ['\f'] = TAB,
    ['\r'] = LINE,  [' '] = TAB,    ['0'] = DIGIT,  ['1'] = DIGIT,
    ['2'] = DIGIT,  ['3'] = DIGIT,  ['4'] = DIGIT,  ['5'] = DIGIT,
    ['6'] = DIGIT,  ['7'] = DIGIT,  ['8'] = DIGIT,  ['9'] = DIGIT,
    ['A'] = UP,     ['B'] = UP,     ['C'] = UP,     ['D'] = UP,
    ['E'] = UP,     ['F'] = UP,     ['G'] = UP,     ['H'] = UP,
    ['I'] = UP,     ['J'] = UP,     ['K'] = UP,     ['L'] = UP,
    ['M'] = UP,     ['N'] = UP,     ['O'] = UP,     ['P'] = UP,
    ['Q'] = UP,     ['R'] = UP,     ['S'] = UP,     ['T'] = UP,
    ['U'] = UP,     ['V'] = UP,     ['W'] = UP,     ['X'] = UP,
    ['Y'] = UP,     ['Z'] = UP,     ['_'] = CLASS_WORD,
    ['a'] = LOW,    ['b'] = LOW,    ['c'] = LOW,    ['d'] = LOW,
    ['e'] = LOW,    ['f'] = LOW,    ['g'] = LOW,    ['h'] = LOW,
    ['i'] = LOW,    ['j'] = LOW,    ['k'] = LOW,    ['l'] = LOW,
    ['m'] = LOW,    ['n'] = LOW,    ['o'] = LOW,    ['p'] = LOW,
    ['q'] = LOW,    ['r'] = LOW,    ['s'] = LOW,    ['t'] = LOW,
    ['u'] = LOW,    ['v'] = LOW,    ['w'] = LOW,    ['x'] = LOW,
    ['y'] = LOW,    ['z'] = LOW
};

enum unicode_category unicode_category(uint32_t code)
{
    if (code < UNICODE_LIMIT)
        return (enum unicode_category)(
            unicode_blocks[unicode_index[code / UNICODE_BLOCK]]
                          [code % UNICODE_BLOCK] - 'a');
    /* Planes 14 to 16: tags, variation selectors, private use. */
    if (code == 0xE0001 || (code >= 0xE0020 && code <= 0xE007F))
        return UNICODE_CF;
    if (code >= 0xE0100 && code <= 0xE01EF) return UNICODE_MN;
    if (code >= 0xF0000 && (code & 0xFFFF) <= 0xFFFD) return UNICODE_CO;
    return UNICODE_CN;
}
