/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - growing byte strings, and the comparisons that error messages need.
 */
#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/arena.h"

enum { TEXT_BYTES_FIRST = 64, WORD_BYTES_MAX = 96 };

/* Room for `more` bytes and the NUL. */
static status text_reserve(struct text *text, size_t more)
{
    size_t need, capacity = text->capacity * 2;
    void *bytes = text->bytes;

    if (more >= SIZE_MAX / 4 - text->length)
        FAIL(ERR_MEMORY, "a text of %zu more bytes does not fit", more);
    need = text->length + more + 1;
    if (need <= text->capacity) return OK;
    if (capacity < TEXT_BYTES_FIRST) capacity = TEXT_BYTES_FIRST;
    if (capacity < need) capacity = need;
    TRY(memory_grow(&bytes, capacity, 1));
    text->bytes = bytes;
    text->capacity = capacity;
    return OK;
}

status text_append(struct text *text, const void *bytes, size_t length)
{
    TRY(text_reserve(text, length));
    if (length > 0) memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
    return OK;
}

status text_append_string(struct text *text, const char *string)
{
    TRY(text_append(text, string, strlen(string)));
    return OK;
}

status text_printf(struct text *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    CHECK(length >= 0); /* the format is ours */
    TRY(text_reserve(text, (size_t)length));
    va_start(arguments, format);
    vsnprintf(text->bytes + text->length, (size_t)length + 1, format,
              arguments);
    va_end(arguments);
    text->length += (size_t)length;
    return OK;
}

void text_free(struct text *text)
{
    memory_free(text->bytes);
    *text = (struct text){0};
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Insertions, deletions, substitutions and swaps of neighbours that turn a
 * into b, each one step (optimal string alignment), but for capitals. Longer
 * words are cut. */
static int edit_distance(const char *a, const char *b)
{
    int row[3][WORD_BYTES_MAX + 1];
    const int la = (int)strnlen(a, WORD_BYTES_MAX);
    const int lb = (int)strnlen(b, WORD_BYTES_MAX);

    for (int j = 0; j <= lb; j++) row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *now = row[i % 3];
        const int *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            const int other = lower(a[i - 1]) != lower(b[j - 1]);

            now[j] = least(least(last[j], now[j - 1]) + 1,
                           last[j - 1] + other);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return row[la % 3][lb];
}

const char *text_nearest(const char *word, const char *const *candidates,
                         int count)
{
    const int third = (int)strnlen(word, WORD_BYTES_MAX) / 3;
    const char *nearest = NULL;
    int best = (third < 1 ? 1 : third > 3 ? 3 : third) + 1;

    for (int i = 0; i < count; i++) {
        const int distance = edit_distance(word, candidates[i]);

        if (distance < best) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* As many last bytes as `ending` has; all, if there are fewer. */
static const char *tail_of(const char *string, const char *ending)
{
    const size_t length = strlen(string), tail = strlen(ending);

    return length > tail ? string + length - tail : string;
}

bool text_ends_with(const char *string, const char *ending)
{
    return strcmp(tail_of(string, ending), ending) == 0;
}

bool text_ends_like(const char *string, const char *ending)
{
    return strcasecmp(tail_of(string, ending), ending) == 0;
}

const char *text_bytes(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB",
                                        "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    int unit = 0;

    if (bytes < 1024) {
        snprintf(out, 32, bytes == 1 ? "%d byte" : "%d bytes", (int)bytes);
        return out;
    }
    /* 1023.95 would print as 1024.0. */
    while (value >= 1023.95 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 32, "%.1f %s", value, units[unit]);
    return out;
}

const char *text_duration(char out[32], double seconds)
{
    if (!(seconds >= 0 && seconds < 3.2e9)) { /* a century; also NaN */
        snprintf(out, 32, "unknown");
    } else if (seconds >= 59.95) {
        const int64_t all = (int64_t)(seconds + 0.5);
        const int minutes = (int)(all / 60 % 60), rest = (int)(all % 60);

        if (all >= 3600)
            snprintf(out, 32, "%" PRId64 "h %02dm %02ds", all / 3600, minutes,
                     rest);
        else
            snprintf(out, 32, "%dm %02ds", minutes, rest);
    } else if (seconds >= 0.99995) {
        snprintf(out, 32, "%.1f s", seconds);
    } else if (seconds >= 0.99995e-3) {
        snprintf(out, 32, "%.1f ms", seconds * 1e3);
    } else {
        snprintf(out, 32, "%.1f us", seconds * 1e6);
    }
    return out;
}

const char *text_count(char out[32], int64_t count)
{
    char digits[32];
    const bool negative = count < 0;
    const uint64_t size = negative ? 0 - (uint64_t)count : (uint64_t)count;
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, size);
    int at = 0;

    if (negative) out[at++] = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

/* Length of the well-formed code point at bytes[0, length), 0 if there is
 * none. Source: The Unicode Standard 15, table 3-7. */
static int utf8_length(const unsigned char *bytes, size_t length)
{
    const unsigned char first = bytes[0];
    unsigned char low = 0x80, high = 0xBF;
    int need;

    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return 0;
    need = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (length < (size_t)need) return 0;
    if (first == 0xE0) low = 0xA0;  /* overlong */
    if (first == 0xED) high = 0x9F; /* surrogates */
    if (first == 0xF0) low = 0x90;  /* overlong */
    if (first == 0xF4) high = 0x8F; /* above U+10FFFF */
    if (bytes[1] < low || bytes[1] > high) return 0;
    for (int i = 2; i < need; i++)
        if ((bytes[i] & 0xC0) != 0x80) return 0;
    return need;
}

bool text_utf8_invalid(const char *bytes, size_t length, size_t *bad)
{
    const unsigned char *at = (const unsigned char *)bytes;
    size_t i = 0;

    while (i < length) {
        uint64_t eight;
        int step;

        if (length - i >= 8) { /* most text is ASCII: eight bytes at once */
            memcpy(&eight, at + i, 8);
            if ((eight & 0x8080808080808080u) == 0) {
                i += 8;
                continue;
            }
        }
        step = utf8_length(at + i, length - i);
        if (step == 0) {
            *bad = i;
            return true;
        }
        i += (size_t)step;
    }
    return false;
}

int text_utf8_decode(const char *bytes, size_t length, uint32_t *code)
{
    const unsigned char *at = (const unsigned char *)bytes;
    const int step = length > 0 ? utf8_length(at, length) : 0;

    switch (step) {
    case 1: *code = at[0]; break;
    case 2: *code = (at[0] & 0x1Fu) << 6 | (at[1] & 0x3Fu); break;
    case 3:
        *code = (at[0] & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 |
                (at[2] & 0x3Fu);
        break;
    case 4:
        *code = (at[0] & 0x07u) << 18 | (at[1] & 0x3Fu) << 12 |
                (at[2] & 0x3Fu) << 6 | (at[3] & 0x3Fu);
        break;
    default: /* broken input is the caller's mistake, but never a hang */
        *code = 0xFFFD;
        return 1;
    }
    return step;
}

int text_utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

size_t text_utf8_ill(const char *bytes, size_t length)
{
    const unsigned char *b = (const unsigned char *)bytes;
    unsigned char least = 0x80, most = 0xBF;
    size_t needed, at = 1;

    if (b[0] >= 0xC2 && b[0] <= 0xDF) needed = 2;
    else if (b[0] >= 0xE0 && b[0] <= 0xEF) needed = 3;
    else if (b[0] >= 0xF0 && b[0] <= 0xF4) needed = 4;
    else return 1;
    if (b[0] == 0xE0) least = 0xA0; /* no overlong forms */
    if (b[0] == 0xED) most = 0x9F;  /* no surrogates */
    if (b[0] == 0xF0) least = 0x90;
    if (b[0] == 0xF4) most = 0x8F;  /* at most U+10FFFF */
    while (at < needed && at < length && b[at] >= least && b[at] <= most) {
        least = 0x80;
        most = 0xBF;
        at++;
    }
    return at;
}

status text_append_utf8(struct text *text, const char *bytes, size_t length)
{
    size_t bad;

    while (text_utf8_invalid(bytes, length, &bad)) {
        TRY(text_append(text, bytes, bad));
        TRY(text_append_string(text, "\xEF\xBF\xBD"));
        bad += text_utf8_ill(bytes + bad, length - bad);
        bytes += bad;
        length -= bad;
    }
    return text_append(text, bytes, length);
}
