# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokenizer/unicode_table.c: the general category of every code point.

Source: the Unicode Character Database 16.0.0 as packaged by the Python module
`unicodedata2` 16.0.0, because that is the version that the regular expression
engine of the `tokenizers` library (0.23.3) knows; checked there code point by
code point for L, N, M and white space by tests/golden/tokenizer_golden.py.

    pip install unicodedata2==16.0.0
    python3 tests/golden/make_unicode.py > src/tokenizer/unicode_table.c
    python3.11 tests/golden/make_unicode.py --newer > src/tokenizer/regex_newer.c

--newer: what came after Unicode 14.0, which the `unicodedata` of Python 3.11
and PCRE2 10.42 know.
"""
import sys
import unicodedata

import unicodedata2 as data

assert data.unidata_version == "16.0.0", data.unidata_version

# Order of enum unicode_category; '@' is a control that is white space.
NAMES = ("Cn Cc Cf Co Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po "
         "Sm Sc Sk So Zs Zl Zp @").split()
BLOCK = 64
LIMIT = 0x32400  # beyond: planes 14 to 16, which follow a short rule


def letter(code):
    if code in (9, 10, 11, 12, 13, 0x85):
        return chr(ord("a") + NAMES.index("@"))
    name = data.category(chr(code))
    return chr(ord("a") + NAMES.index("Cn" if name == "Cs" else name))


def beyond(code):
    if code in (0xE0001,) or 0xE0020 <= code <= 0xE007F:
        return "Cf"
    if 0xE0100 <= code <= 0xE01EF:
        return "Mn"
    if 0xF0000 <= code <= 0xFFFFD or 0x100000 <= code <= 0x10FFFD:
        return "Co"
    return "Cn"


HEAD = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* unicode_table.c - the general category of every code point below U+%X.
 *
 * Made by tests/golden/make_unicode.py from the Unicode Character Database
 * %s; do not edit. A block is %d letters, one per code point: 'a' plus
 * the number in enum unicode_category. */
#include "data/unicode.h"

const char unicode_blocks[%d][UNICODE_BLOCK + 1] = {"""


def main():
    for code in range(LIMIT, 0x110000):
        assert data.category(chr(code)) == beyond(code), hex(code)

    blocks, index = [], []
    for first in range(0, LIMIT, BLOCK):
        block = "".join(letter(c) for c in range(first, first + BLOCK))
        if block not in blocks:
            blocks.append(block)
        index.append(blocks.index(block))
    assert len(blocks) <= 65536

    print(HEAD % (LIMIT, data.unidata_version, BLOCK, len(blocks)))
    for block in blocks:
        print('    "%s",' % block)
    print("};\n\nconst unsigned short "
          "unicode_index[UNICODE_LIMIT / UNICODE_BLOCK] = {")
    line = "   "
    for value in index:
        item = " %d," % value
        if len(line) + len(item) > 79:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")


NEWER = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* regex_newer.c - characters that PCRE2 may not know yet.
 *
 * Made by tests/golden/make_unicode.py --newer; do not edit. Code points of
 * Unicode %s that %s has not, with their categories. To a PCRE2 of that
 * version they are no letters, so that patterns would cut words otherwise than
 * the `tokenizers` library. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "data/regex.h"
#include "data/unicode.h"

enum { NEAR = 64 }; /* code points */

static const struct { uint32_t first, last; char category[3]; } newer[] = {"""
NEWER_END = """\
};

/* Ideographs among them, which are a script too. */
static bool is_han(uint32_t first)
{
    return first == 0x2EBF0 || first == 0x31350;
}

static bool belongs(uint32_t first, const char *category, const char *name)
{
    if (strcmp(name, "Han") == 0) return is_han(first);
    if (strcmp(name, "Alphabetic") == 0) return category[0] == 'L';
    if (strlen(name) > 2) return false;
    return category[0] == name[0] && (name[1] == 0 || category[1] == name[1]);
}

/* Nothing is between the two but what no character is yet: PCRE2 compares range
 * by range, so fewer are faster. */
static bool are_near(uint32_t last, uint32_t first)
{
    if (first - last > NEAR) return false;
    while (++last < first)
        if (unicode_category(last) != UNICODE_CN) return false;
    return true;
}

static status put(struct text *out, const uint32_t range[2])
{
    if (range[0] == 0) return OK;
    return text_printf(out, "\\\\x{%X}-\\\\x{%X}", range[0], range[1]);
}

status regex_newer(struct text *out, const char *name)
{
    char version[64] = "";
    uint32_t range[2] = {0, 0};

    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    if (strtol(version, NULL, 10) >= 16) return OK;
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        if (!belongs(newer[i].first, newer[i].category, name)) continue;
        if (range[0] == 0 || !are_near(range[1], newer[i].first)) {
            TRY(put(out, range));
            range[0] = newer[i].first;
        }
        range[1] = newer[i].last;
    }
    return put(out, range);
}"""


def print_newer():
    rows = []
    for code in range(0x110000):
        name = data.category(chr(code))
        if name[0] not in "LMNPS" or unicodedata.category(chr(code)) != "Cn":
            continue
        if rows and rows[-1][1] == code - 1 and rows[-1][2] == name:
            rows[-1][1] = code
        else:
            rows.append([code, code, name])
    print(NEWER % (data.unidata_version, unicodedata.unidata_version))
    for i in range(0, len(rows), 2):
        print("    " + " ".join('{0x%X, 0x%X, "%s"},' % tuple(row)
                                for row in rows[i:i + 2]))
    print(NEWER_END)


if __name__ == "__main__":
    print_newer() if "--newer" in sys.argv else main()
