/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.c - SentencePiece's compiled character maps. */
#include "tokenizer/charsmap.h"

#include <string.h>
#include <utf8proc.h>
#include "tokenizer/unicode.h"

enum {
    CLUSTER_BYTES = 5, /* longer clusters are taken apart */
    STRING_BYTES = 255 /* of a replacement; the longest in use has 33 */
};

/* Fields of a unit. */
static uint32_t unit_label(uint32_t unit) { return unit & 0x800000FFu; }
static bool unit_has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
static uint32_t unit_value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 0x200u) >> 6);
}

status charsmap_read(struct charsmap *map, struct arena *arena,
                     const void *bytes, size_t length, const char *source)
{
    const unsigned char *from = bytes;
    uint32_t size = 0;
    void *memory;
    size_t bad;

    *map = (struct charsmap){0};
    if (length == 0) return OK;
    for (int i = 3; length >= 4 && i >= 0; i--) size = size << 8 | from[i];
    if (length < 4 || size % 4 != 0 || size == 0 || size > length - 4)
        FAIL(ERR_FORMAT, "%s: the character map of %zu bytes claims a trie of "
             "%u", source, length, size);
    length -= 4 + (size_t)size;
    if (text_utf8_invalid((const char *)from + 4 + size, length, &bad))
        FAIL(ERR_FORMAT, "%s: the character map's strings are not UTF-8",
             source);
    for (size_t i = 0, run = 0; i < length; i++) {
        run = from[4 + size + i] == 0 ? 0 : run + 1;
        if (run > STRING_BYTES)
            FAIL(ERR_FORMAT, "%s: the character map has a string of more than "
                 "%d bytes", source, STRING_BYTES);
    }
    TRY(arena_take(arena, size, &memory));
    memcpy(memory, from + 4, size);
    map->units = memory;
    map->count = size / 4;
    TRY(arena_take(arena, length + 1, &memory)); /* a zero ends the last */
    memcpy(memory, from + 4 + size, length);
    map->strings = memory;
    map->length = length;
    return OK;
}

static bool string_at(const struct charsmap *map, uint32_t value,
                      struct charsmap_match *match)
{
    if (value >= map->length || (map->strings[value] & 0xC0) == 0x80)
        return false;
    match->text = map->strings + value;
    match->length = strlen(match->text);
    return true;
}

struct charsmap_match charsmap_find(const struct charsmap *map,
                                    const char *text, size_t length,
                                    bool longest)
{
    struct charsmap_match match = {0};
    uint32_t at;

    if (map->count == 0) return match;
    at = unit_offset(map->units[0]);
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)text[i];
        uint32_t unit;

        at ^= byte;
        if (at >= map->count) break;
        unit = map->units[at];
        if (unit_label(unit) != byte) break;
        at ^= unit_offset(unit);
        if (at >= map->count) break;
        if (!unit_has_value(unit)) continue;
        /* A match within a character would leave half of it. */
        if (i + 1 < length && (text[i + 1] & 0xC0) == 0x80) continue;
        if (string_at(map, unit_value(map->units[at]), &match))
            match.taken = i + 1;
        if (match.taken > 0 && !longest) break;
    }
    return match;
}

/* A mark that is newer than utf8proc, as an older one of its kind. */
static utf8proc_int32_t familiar(uint32_t code)
{
    const enum unicode_category category = unicode_category(code);
    const bool mark = category == UNICODE_MN || category == UNICODE_ME;

    if ((mark || category == UNICODE_MC) &&
        utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_CN)
        return mark ? 0x300 : 0x903;
    return (utf8proc_int32_t)code;
}

/* Bytes of the cluster (UAX 29) that text begins with. */
static size_t cluster(const char *text, size_t length)
{
    uint32_t code, next;
    size_t at = (size_t)text_utf8_decode(text, length, &code);
    utf8proc_int32_t state = 0;

    while (at < length) {
        const size_t step =
            (size_t)text_utf8_decode(text + at, length - at, &next);

        if (utf8proc_grapheme_break_stateful(familiar(code), familiar(next),
                                             &state))
            break;
        at += step;
        code = next;
    }
    return at;
}

static int characters(const char *text, size_t length)
{
    int count = 0;

    for (size_t i = 0; i < length; i++) count += (text[i] & 0xC0) != 0x80;
    return count;
}

/* A part of so many bytes becomes the text of the match: character for
 * character, and what is too many or too few is at the end. */
static status replaced(struct realign *realign, const char *part, size_t size,
                       const struct charsmap_match *match)
{
    const int before = characters(part, size);
    const int after = characters(match->text, match->length);
    int seen = 0;

    for (size_t at = 0; at < match->length;) {
        uint32_t code;
        const int step =
            text_utf8_decode(match->text + at, match->length - at, &code);

        TRY(realign_put(realign, step, seen++ < before ? 0 : 1));
        at += (size_t)step;
    }
    if (before > after) realign_swallow(realign, before - after);
    return OK;
}

/* Text on its way through a map. What stays as it is is copied in runs. */
struct mapping {
    const struct charsmap *map;
    const char *text;
    size_t done;             /* bytes that are in `out` */
    struct text *out;
    struct realign *realign; /* or NULL */
};

static status flush(struct mapping *mapping, size_t at)
{
    if (at == mapping->done) return OK;
    TRY(text_append(mapping->out, mapping->text + mapping->done,
                    at - mapping->done));
    mapping->done = at;
    return OK;
}

/* text[at, at + size) becomes what the match says, or stays one character. */
static status put_part(struct mapping *mapping, size_t at, size_t size,
                       const struct charsmap_match *match)
{
    struct realign *realign = mapping->realign;

    if (match->taken == 0)
        return realign == NULL ? OK : realign_put(realign, (int)size, 0);
    TRY(flush(mapping, at));
    mapping->done = at + size;
    if (realign != NULL)
        TRY(replaced(realign, mapping->text + at, size, match));
    return text_append(mapping->out, match->text, match->length);
}

static status map_characters(struct mapping *mapping, size_t at, size_t length)
{
    const size_t stop = at + length;

    while (at < stop) {
        uint32_t code;
        const size_t step = (size_t)text_utf8_decode(mapping->text + at,
                                                     stop - at, &code);
        const struct charsmap_match match =
            charsmap_find(mapping->map, mapping->text + at, step, false);

        TRY(put_part(mapping, at, step, &match));
        at += step;
    }
    return OK;
}

static bool alone(const char *text, size_t left)
{
    return (unsigned char)text[0] < 0x80 && text[0] != '\r' &&
           (left == 1 || (unsigned char)text[1] < 0x80);
}

status charsmap_clusters(const struct charsmap *map, const char *text,
                         size_t length, struct text *out,
                         struct realign *realign)
{
    struct mapping mapping = {map, text, 0, out, realign};

    for (size_t at = 0; at < length;) {
        const size_t size = alone(text + at, length - at)
                                ? 1
                                : cluster(text + at, length - at);
        struct charsmap_match match = {0};

        if (size <= CLUSTER_BYTES)
            match = charsmap_find(map, text + at, size, false);
        if (match.taken > 0 || size == 1)
            TRY(put_part(&mapping, at, size, &match));
        else
            TRY(map_characters(&mapping, at, size));
        at += size;
    }
    return flush(&mapping, length);
}
