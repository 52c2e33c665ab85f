# SPDX-License-Identifier: Apache-2.0
"""Writes src/data/unicode_table.c: the general category of every code point.

Source: the Unicode Character Database 16.0.0 as packaged by the Python module
`unicodedata2` 16.0.0, because that is the version that the regular expression
engine of the `tokenizers` library (0.23.3) knows; checked there code point by
code point for L, N, M and white space by tests/golden/tokenizer_golden.py.

    pip install unicodedata2==16.0.0
    python3 tests/golden/make_unicode.py > src/data/unicode_table.c
"""
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


if __name__ == "__main__":
    main()
