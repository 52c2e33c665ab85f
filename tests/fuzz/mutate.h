/* SPDX-License-Identifier: Apache-2.0 */
/* mutate.h - changes to a fuzzer's input that keep its form.
 *
 *   input --grammar.read--> tree of items --a few changes--> tree
 *         --grammar.write--> input that is well-formed but for the changes
 *
 * A grammar (grammar.h: JSON, lines of it, words, protobuf) says how to read
 * and write the tree. The changes are the same for all grammars: an item is
 * repeated, removed, moved, replaced by another one of this input or of an
 * earlier input, or gets an extreme value.
 *
 * All items lie in one pool that each mutation empties. */
#ifndef LOCKSTEP_TESTS_FUZZ_MUTATE_H
#define LOCKSTEP_TESTS_FUZZ_MUTATE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed);

/* ---- random choices ---- */

static uint64_t mutate_state;

static inline void mutate_seed(unsigned seed)
{
    mutate_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

static inline uint64_t draw(uint64_t below)
{
    mutate_state ^= mutate_state << 13;
    mutate_state ^= mutate_state >> 7;
    mutate_state ^= mutate_state << 17;
    return below == 0 ? 0 : (mutate_state >> 11) % below;
}

static inline int64_t draw_number(int64_t before)
{
    static const int64_t numbers[] = {
        0, 1, 2, 3, 7, 8, 127, 128, 255, 1 << 16, INT32_MAX,
        (int64_t)INT32_MAX + 1, UINT32_MAX, (int64_t)1 << 40, (int64_t)1 << 57,
        INT64_MAX / 16, INT64_MAX, -1, INT64_MIN};

    switch (draw(4)) {
    case 0: return (int64_t)((uint64_t)before + 1 + draw(4));
    case 1: return (int64_t)((uint64_t)before - 1 - draw(4));
    default: return numbers[draw(sizeof numbers / sizeof *numbers)];
    }
}

/* ---- writing ---- */

struct out { uint8_t *bytes; size_t at, room; bool full; };

static inline void put(struct out *out, const void *bytes, size_t length)
{
    if (length > out->room - out->at) out->full = true;
    if (out->full || length == 0) return;
    memcpy(out->bytes + out->at, bytes, length);
    out->at += length;
}

static inline void put_byte(struct out *out, unsigned byte)
{
    const uint8_t one = (uint8_t)byte;

    put(out, &one, 1);
}

static inline void put_text(struct out *out, const char *text)
{
    put(out, text, strlen(text));
}

static inline void put_varint(struct out *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(out, (unsigned)(value & 0x7F) | 0x80);
    put_byte(out, (unsigned)value);
}

/* Little-endian. */
static inline void put_integer(struct out *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_byte(out, (unsigned)(value >> 8 * i) & 255);
}

static inline uint64_t get_integer(const uint8_t *from, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | from[i];
    return value;
}

static inline bool take_varint(const uint8_t **at, const uint8_t *end,
                               uint64_t *value)
{
    *value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        *value |= (uint64_t)(**at & 0x7F) << shift;
        if (*(*at)++ < 0x80) return true;
    }
    return false;
}

/* ---- trees ---- */

enum item_kind {
    ITEM_ATOM,    /* a number, a literal, a word */
    ITEM_STRING,  /* a string of JSON, without its quotes */
    ITEM_LIST,    /* items */
    ITEM_OBJECT,  /* pairs */
    ITEM_PAIR,    /* a key and a value */
    ITEM_VARINT,  /* protobuf: value */
    ITEM_FIXED,   /* protobuf: 4 or 8 bytes */
    ITEM_BYTES,   /* protobuf: bytes */
    ITEM_MESSAGE  /* protobuf: fields */
};

struct item {
    enum item_kind kind;
    uint64_t field;           /* protobuf: the number of the field */
    uint64_t value;           /* ITEM_VARINT */
    const uint8_t *bytes;     /* [length] */
    size_t length;
    struct item *first, *next;/* the items in it; the item after it */
};

struct grammar {
    struct item *(*read)(const uint8_t *data, size_t size);
    void (*write)(struct out *out, const struct item *tree);
    const char *const *words; /* strings to try, NULL at the end; or NULL */
};

enum { MUTATE_POOL = 1 << 23, MUTATE_MOST = 1 << 17, MUTATE_DONOR = 1 << 15 };
static uint8_t *mutate_pool;
static size_t mutate_used;

/* NULL when the pool is full: then the change is given up. */
static inline void *mutate_take(size_t bytes)
{
    void *piece;

    if (mutate_pool == NULL) mutate_pool = malloc(MUTATE_POOL);
    bytes = (bytes + 15) / 16 * 16;
    if (mutate_pool == NULL || bytes > MUTATE_POOL - mutate_used) return NULL;
    piece = mutate_pool + mutate_used;
    mutate_used += bytes;
    return memset(piece, 0, bytes);
}

static inline struct item *item_new(enum item_kind kind, const uint8_t *bytes,
                                    size_t length)
{
    struct item *item = mutate_take(sizeof *item);

    if (item == NULL) return NULL;
    item->kind = kind;
    item->bytes = bytes;
    item->length = length;
    return item;
}

static inline struct item *item_copy(const struct item *from)
{
    struct item *copy = mutate_take(sizeof *copy), **end;

    if (copy == NULL) return NULL;
    *copy = *from;
    copy->next = copy->first = NULL;
    end = &copy->first;
    for (const struct item *i = from->first; i != NULL; i = i->next) {
        *end = item_copy(i);
        if (*end == NULL) return NULL;
        end = &(*end)->next;
    }
    return copy;
}

static inline int64_t item_count(const struct item *item)
{
    int64_t count = 0;

    for (; item != NULL; item = item->next)
        count += 1 + item_count(item->first);
    return count;
}

/* The item with number *left in the order of the text, by counting down. */
static inline struct item **item_pick(struct item **at, int64_t *left)
{
    for (; *at != NULL; at = &(*at)->next) {
        struct item **found;

        if ((*left)-- == 0) return at;
        found = item_pick(&(*at)->first, left);
        if (found != NULL) return found;
    }
    return NULL;
}

static inline struct item **item_draw(struct item *tree)
{
    int64_t left = (int64_t)draw((uint64_t)item_count(tree->first));

    return item_pick(&tree->first, &left);
}

/* ---- changes ---- */

static inline void item_set(struct item *item, const char *text)
{
    item->bytes = (const uint8_t *)text;
    item->length = strlen(text);
}

static inline bool item_is_number(const struct item *item)
{
    const size_t sign = item->length > 1 && item->bytes[0] == '-';

    return item->kind == ITEM_ATOM && item->length > sign &&
           item->bytes[sign] >= '0' && item->bytes[sign] <= '9';
}

static inline int64_t item_number(const struct item *item)
{
    char text[32] = {0};

    memcpy(text, item->bytes,
           item->length < sizeof text - 1 ? item->length : sizeof text - 1);
    return strtoll(text, NULL, 10);
}

static inline void item_set_number(struct item *item, int64_t value)
{
    char *text = mutate_take(24);

    if (text == NULL) return;
    snprintf(text, 24, "%" PRId64, value);
    item_set(item, text);
}

static inline void change_number(struct item *item)
{
    static const char *const numbers[] = {
        "-0", "0.5", "1e308", "1e-400", "1e999", "-1e9", "0.1", "1.0",
        "18446744073709551616", "9223372036854775808", "1e18", "NaN",
        "00", "0x10", "null", "true", "[]", "{}", "\"1\""};

    if (draw(3) == 0)
        item_set(item, numbers[draw(sizeof numbers / sizeof *numbers)]);
    else item_set_number(item, draw_number(item_number(item)));
}

/* Shorter, doubled, often repeated, or with another word in its middle. */
static inline void change_text(struct item *item, const char *word)
{
    const size_t cut = draw(item->length + 1);
    const size_t often = draw(3) == 0 ? 2000 : 2;
    struct out out = {.room = 1 << 14};

    switch (draw(4)) {
    case 0: item->length = cut; return;
    case 1:
        if (word != NULL) item_set(item, word);
        return;
    case 2:
        out.bytes = mutate_take(out.room);
        if (out.bytes == NULL) return;
        for (size_t i = 0; i < often && !out.full; i++)
            put(&out, item->bytes, item->length);
        break;
    default:
        out.room = item->length + 64;
        out.bytes = mutate_take(out.room);
        if (out.bytes == NULL) return;
        put(&out, item->bytes, cut);
        if (word != NULL && draw(2) == 0) put_text(&out, word);
        else put_byte(&out, (unsigned)draw(256));
        put(&out, item->bytes + cut, item->length - cut);
    }
    item->bytes = out.bytes;
    item->length = out.at;
}

static inline const char *draw_word(const struct grammar *g)
{
    static const char *const common[] = {
        "", "a", "null", "true", "false", "-1", "0", "\\u0000", "\\ud800",
        "\\u20ac", "\xE2\x82\xAC", "\xFF", "../x", "/", "%s", "0.0", "[]"};
    uint64_t count = 0;

    while (g->words != NULL && g->words[count] != NULL) count++;
    if (count == 0 || draw(3) == 0)
        return common[draw(sizeof common / sizeof *common)];
    return g->words[draw(count)];
}

static inline void change_value(const struct grammar *g, struct item *item)
{
    switch (item->kind) {
    case ITEM_VARINT:
        item->value = (uint64_t)draw_number((int64_t)item->value);
        return;
    case ITEM_FIXED: {
        static const uint32_t parts[] = {0, 0x7F800000, 0xFFC00000,
                                         0x3F800000, 0xFFFFFFFF, 1};
        struct out out = {.bytes = mutate_take(8), .room = 8};

        if (out.bytes == NULL) return;
        put_integer(&out, parts[draw(6)], 4);
        put_integer(&out, parts[draw(6)], 4);
        item->bytes = out.bytes;
        return;
    }
    case ITEM_ATOM:
    case ITEM_STRING:
    case ITEM_BYTES:
        if (item_is_number(item) && draw(4) != 0) change_number(item);
        else change_text(item, draw_word(g));
        return;
    case ITEM_LIST:
    case ITEM_OBJECT:
    case ITEM_MESSAGE: item->first = NULL; return; /* emptied */
    case ITEM_PAIR: /* its value, or its key alone */
        if (item->first == NULL) return;
        if (draw(4) == 0) change_value(g, item->first);
        else if (item->first->next != NULL) change_value(g, item->first->next);
    }
}

static inline void item_repeat(struct item *item)
{
    static const int often[] = {1, 1, 1, 2, 5, 1000};

    for (uint64_t i = (uint64_t)often[draw(6)]; i > 0; i--) {
        struct item *copy = item_copy(item);

        if (copy == NULL) return;
        copy->next = item->next;
        item->next = copy;
    }
}

/* Lists of lists, deeper than any reader should follow. */
static inline void item_nest(struct item **at)
{
    struct item *inner = *at, *next = inner->next;

    inner->next = NULL;
    for (uint64_t i = draw(8) == 0 ? 300 : 1 + draw(3); i > 0; i--) {
        struct item *outer = item_new(ITEM_LIST, NULL, 0);

        if (outer == NULL) break;
        outer->first = inner;
        inner = outer;
    }
    inner->next = next;
    *at = inner;
}

/* An item drawn from `from` takes the place of *at, or comes after it. A key
 * is replaced by the key of another pair only. */
static inline void item_replace(struct item **at, struct item *from, bool after)
{
    struct item **source = from == NULL ? NULL : item_draw(from), *copy;

    if (source == NULL) return;
    if ((*at)->kind == ITEM_PAIR && (*source)->kind != ITEM_PAIR &&
        (*at)->first != NULL && (*at)->first->next != NULL)
        at = &(*at)->first->next;
    else if ((*at)->kind != ITEM_PAIR && (*source)->kind == ITEM_PAIR &&
             (*source)->first != NULL)
        source = &(*source)->first->next;
    if (*source == NULL || (copy = item_copy(*source)) == NULL) return;
    if (after) {
        copy->next = (*at)->next;
        (*at)->next = copy;
    } else {
        copy->next = (*at)->next;
        *at = copy;
    }
}

static inline void tree_change(const struct grammar *g, struct item *tree,
                               struct item *donor)
{
    struct item **at = item_draw(tree), *item, *next;

    if (at == NULL) return;
    item = *at;
    next = item->next;
    switch (draw(10)) {
    case 0: item_repeat(item); return;
    case 1: *at = next; return;
    case 2:
        if (next == NULL) return;
        item->next = next->next;
        next->next = item;
        *at = next;
        return;
    case 3: item_replace(at, tree, draw(2) == 0); return;
    case 4: item_replace(at, donor, draw(2) == 0); return;
    case 5:
        if (item->kind <= ITEM_OBJECT && draw(4) == 0) item_nest(at);
        return;
    default: change_value(g, item);
    }
}

/* ---- mutations of whole inputs ---- */

/* A tree of some earlier input of the same grammar, or NULL. */
static inline struct item *donor_read(const struct grammar *g,
                                      const uint8_t *data, size_t size)
{
    static uint8_t kept[MUTATE_DONOR];
    static size_t kept_size;
    static const struct grammar *kept_of;

    if (size <= sizeof kept && draw(8) == 0) {
        memcpy(kept, data, size);
        kept_size = size;
        kept_of = g;
    }
    return kept_of == g ? g->read(kept, kept_size) : NULL;
}

/* One to four changes to data[start, stop); the new size of everything, or 0:
 * it is not of the grammar or does not fit in `room`. */
static inline size_t mutate_range(const struct grammar *g, uint8_t *data,
                                  size_t size, size_t room,
                                  const size_t range[2])
{
    static uint8_t written[MUTATE_MOST];
    const size_t start = range[0], tail = size - range[1];
    struct out out = {.bytes = written, .room = sizeof written};
    struct item *tree, *donor;

    mutate_used = 0;
    if (start + tail > room) return 0;
    if (out.room > room - start - tail) out.room = room - start - tail;
    tree = g->read(data + start, range[1] - start);
    if (tree == NULL) return 0;
    donor = donor_read(g, data + start, range[1] - start);
    for (uint64_t i = 1 + draw(4); i > 0; i--) tree_change(g, tree, donor);
    g->write(&out, tree);
    if (out.full) return 0;
    memmove(data + start + out.at, data + range[1], tail);
    memcpy(data + start, written, out.at);
    return start + out.at + tail;
}

/* The input from `start` on is of the grammar. One change in 16 is of bytes,
 * so that broken forms are met, too. */
static inline size_t mutate_from(const struct grammar *g, uint8_t *data,
                                 size_t size, size_t room, size_t start)
{
    size_t length = 0;

    if (draw(16) != 0 && size >= start)
        length = mutate_range(g, data, size, room, (size_t[]){start, size});
    return length != 0 ? length : LLVMFuzzerMutate(data, size, room);
}

/* The input is one text, a zero byte and another; each has its grammar, or
 * NULL: bytes. The last zero byte counts if `last`, else the first. */
static inline size_t mutate_two(const struct grammar *const g[2],
                                uint8_t *data, size_t size, size_t room,
                                bool last)
{
    const uint8_t *zero = size == 0 ? NULL
                          : last    ? memrchr(data, 0, size)
                                    : memchr(data, 0, size);
    const size_t cut = zero == NULL ? size : (size_t)(zero - data);
    const int second = zero != NULL && draw(3) == 0;
    size_t length = 0;

    if (draw(16) != 0 && g[second] != NULL)
        length = mutate_range(g[second], data, size, room,
                              second ? (size_t[]){cut + 1, size}
                                     : (size_t[]){0, cut});
    return length != 0 ? length : LLVMFuzzerMutate(data, size, room);
}

/* A little-endian integer at `at` becomes an extreme one, one that has to do
 * with the size, or another integer of the input. */
static inline void mutate_integer(uint8_t *data, size_t size, size_t at,
                                  int bytes)
{
    const size_t other = draw(size / (size_t)bytes) * (size_t)bytes;
    struct out out = {.bytes = data + at, .room = (size_t)bytes};
    uint64_t value = get_integer(data + at, bytes);

    switch (draw(4)) {
    case 0: value = (uint64_t)size / (1u << draw(5)) + draw(3) - 1; break;
    case 1: value = get_integer(data + other, bytes); break;
    default: value = (uint64_t)draw_number((int64_t)value);
    }
    put_integer(&out, value, bytes);
}

/* The input is a head of fixed size and a list of records. */
struct record_form {
    size_t head, bytes, most;    /* most: so many records are read */
    void (*draw)(uint8_t *out);  /* a record, mostly sound */
};

/* One to four records come, go, are drawn anew, are repeated, or get another
 * byte; one change in 16 is of bytes. */
static inline size_t mutate_record_list(const struct record_form *form,
                                    uint8_t *data, size_t size, size_t room)
{
    const size_t bytes = form->bytes;
    uint8_t *records = data + form->head;
    size_t count, most;

    if (size < form->head || draw(16) == 0)
        return LLVMFuzzerMutate(data, size, room);
    most = (room - form->head) / bytes;
    if (most > form->most) most = form->most;
    count = (size - form->head) / bytes;
    if (count > most) count = most;
    for (uint64_t i = 1 + draw(4); i > 0; i--) {
        const uint64_t what = draw(5);
        uint8_t *at = records + bytes * draw(count);

        if (count < most && (count == 0 || what == 0))
            form->draw(records + bytes * count++);
        else if (count == 0) continue;
        else if (what == 1) form->draw(at);
        else if (what == 2 && count > 1)
            memmove(at, records + bytes * --count, bytes);
        else if (what == 3)
            memmove(at, records + bytes * draw(count), bytes);
        else at[draw(bytes)] = (uint8_t)draw(256);
    }
    return form->head + bytes * count;
}

#endif
