/* SPDX-License-Identifier: Apache-2.0 */
/* punctuation.c - the characters at which the Punctuation pre-tokenizer cuts.
 *
 * The `tokenizers` library takes the categories P of Unicode 8.0 and the
 * symbols of ASCII. Later versions added the ranges below and moved two code
 * points out of P; found by asking the library about every code point. */
#include "tokenizer/unicode.h"

static const struct { uint32_t first, last; } newer[] = {
    {0x61D, 0x61D}, {0x9FD, 0x9FD}, {0xA76, 0xA76}, {0xC77, 0xC77},
    {0xC84, 0xC84}, {0x1B4E, 0x1B4F}, {0x1B7D, 0x1B7F}, {0x2E43, 0x2E4F},
    {0x2E52, 0x2E5D}, {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD},
    {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x113D4, 0x113D5},
    {0x113D7, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B},
    {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
    {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2},
    {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2},
    {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F},
    {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF},
    {0x1E95E, 0x1E95F}
};

bool unicode_punctuation(uint32_t code)
{
    const enum unicode_category category = unicode_category(code);

    if (code < 0x80)
        return code > ' ' && code < 0x7F &&
               (unicode_ascii[code] & (CLASS_LETTER | CLASS_NUMBER)) == 0;
    if (code == 0x166D || code == 0x111C9) return true;
    if (category < UNICODE_PC || category > UNICODE_PO) return false;
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (code >= newer[i].first && code <= newer[i].last) return false;
    return true;
}
