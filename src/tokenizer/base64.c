/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c - bytes written as text. */
#include "tokenizer/base64.h"

/* 0 to 63, or -1. */
static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Up to four digits are up to three bytes. */
static status read_group(struct text *out, const char *text, int digits,
                         const char *source)
{
    unsigned char bytes[3];
    uint32_t bits = 0;

    for (int i = 0; i < 4; i++) {
        const int digit = i < digits ? digit_of(text[i]) : 0;

        if (digit < 0)
            FAIL(ERR_FORMAT, "%s: byte 0x%02x is not base64", source,
                 (unsigned char)text[i]);
        bits = bits << 6 | (uint32_t)digit;
    }
    for (int i = 0; i < 3; i++)
        bytes[i] = (unsigned char)(bits >> (16 - 8 * i));
    return text_append(out, bytes, (size_t)digits - 1);
}

status base64_read(struct text *out, const char *text, size_t length,
                   const char *source)
{
    size_t at = 0;

    if (length % 4 == 0 && length > 0) /* two padding characters at most */
        for (int i = 0; i < 2 && text[length - 1] == '='; i++) length--;
    if (length % 4 == 1)
        FAIL(ERR_FORMAT, "%s: base64 of %zu digits cannot be", source, length);
    TRY(text_append(out, "", 0));
    for (; length - at >= 4; at += 4)
        TRY(read_group(out, text + at, 4, source));
    if (at < length)
        TRY(read_group(out, text + at, (int)(length - at), source));
    return OK;
}
