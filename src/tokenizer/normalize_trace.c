/* SPDX-License-Identifier: Apache-2.0 */
/* normalize_trace.c - the Unicode normal forms with the origin of each byte.
 *
 * utf8proc normalizes a whole text, but does not say which new characters come
 * from which old ones. So here it only decomposes single characters and
 * composes pairs, and this file performs the algorithm of the standard (Unicode
 * 16, section 3.11). When a character is decomposed, the first part replaces it
 * and the others are inserted. When marks are sorted, they keep that. When a
 * character is composed with the one before it, that one swallows it. */
#include <stdlib.h>
#include <utf8proc.h>
#include "base/arena.h"
#include "tokenizer/normalize.h"

enum {
    APART_MAX = 32,     /* code points of one; the longest has 18 */
    FIRST_MARK = 0x300, /* no pair joins below it */
    NOT_YET = -1
};

struct unit {
    uint32_t code;
    int32_t change; /* see realign_put */
    size_t order;   /* among all, before sorting */
    uint8_t class;  /* canonical combining class */
};

struct units {
    struct unit *items; /* owned */
    size_t count, capacity;
};

static status units_add(struct units *units, uint32_t code, int32_t change)
{
    const bool inert = normalize_inert(code);

    if (units->count == units->capacity) {
        const size_t capacity = 2 * units->capacity + 64;
        void *grown = units->items;

        TRY(memory_grow(&grown, capacity, sizeof *units->items));
        units->items = grown;
        units->capacity = capacity;
    }
    units->items[units->count] = (struct unit){
        .code = code,
        .change = change,
        .order = units->count,
        .class = inert ? 0 : (uint8_t)utf8proc_get_property(
                                 (utf8proc_int32_t)code)->combining_class};
    units->count++;
    return OK;
}

static status take_apart(struct units *units, enum normal_form form,
                         const char *text, size_t length)
{
    const utf8proc_option_t options =
        form == FORM_NFC || form == FORM_NFD
            ? UTF8PROC_STABLE | UTF8PROC_DECOMPOSE
            : UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    size_t at = 0;

    while (at < length) {
        utf8proc_int32_t parts[APART_MAX];
        utf8proc_ssize_t count = 1;
        int bound = 0;
        uint32_t code;

        at += (size_t)text_utf8_decode(text + at, length - at, &code);
        parts[0] = (utf8proc_int32_t)code;
        if (code >= 0x80 && !normalize_inert(code))
            count = utf8proc_decompose_char((utf8proc_int32_t)code, parts,
                                            APART_MAX, options, &bound);
        CHECK(count > 0 && count <= APART_MAX);
        for (utf8proc_ssize_t i = 0; i < count; i++)
            TRY(units_add(units, (uint32_t)parts[i], i > 0));
    }
    return OK;
}

static int compare(const void *a, const void *b)
{
    const struct unit *left = a, *right = b;

    if (left->class != right->class)
        return left->class < right->class ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

/* Marks in a row, by their class. */
static void sort_marks(struct units *units)
{
    for (size_t i = 0; i < units->count;) {
        size_t stop = i + 1;

        if (units->items[i].class == 0) {
            i++;
            continue;
        }
        while (stop < units->count && units->items[stop].class != 0) stop++;
        if (stop - i > 1)
            qsort(units->items + i, stop - i, sizeof *units->items, compare);
        i = stop;
    }
}

/* The one code point that two become, or 0. */
static uint32_t joined(uint32_t left, uint32_t right)
{
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)left,
                                (utf8proc_int32_t)right};

    if (right < FIRST_MARK || normalize_inert(left) || normalize_inert(right))
        return 0;
    if (utf8proc_normalize_utf32(pair, 2,
                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE) != 1)
        return 0;
    return (uint32_t)pair[0];
}

/* In place: marks and what follows join the last starter before them unless a
 * mark of the same or a higher class stands between. */
static void join(struct units *units)
{
    struct unit *items = units->items;
    size_t count = 0, starter = 0;
    int last = NOT_YET; /* class of the mark before, after the starter */
    bool started = false;

    for (size_t i = 0; i < units->count; i++) {
        const struct unit unit = items[i];
        const bool free = last == NOT_YET || last < unit.class;
        const uint32_t both =
            started && free ? joined(items[starter].code, unit.code) : 0;

        if (both != 0) {
            items[starter].code = both;
            items[starter].change += unit.change - 1;
            continue;
        }
        if (unit.class == 0) {
            starter = count;
            started = true;
        }
        last = unit.class == 0 ? NOT_YET : unit.class;
        items[count++] = unit;
    }
    units->count = count;
}

status normalize_form_traced(enum normal_form form,
                             const struct normalized *in,
                             struct rewritten *out)
{
    struct realign realign = {.text = in->text,
                              .from = in->origins.items,
                              .length = in->length,
                              .base = (uint32_t)in->base,
                              .out = &out->origins};
    struct units units = {0};
    status result;

    TRY_GOTO(done, result, take_apart(&units, form, in->text, in->length));
    sort_marks(&units);
    if (form == FORM_NFC || form == FORM_NFKC) join(&units);
    for (size_t i = 0; i < units.count; i++) {
        char bytes[4];
        const int size = text_utf8_encode(units.items[i].code, bytes);

        TRY_GOTO(done, result,
                 text_append(&out->text, bytes, (size_t)size));
        TRY_GOTO(done, result,
                 realign_put(&realign, size, units.items[i].change));
    }
    TRY_GOTO(done, result, realign_end(&realign));
done:
    memory_free(units.items);
    return result;
}
