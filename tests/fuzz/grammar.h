/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h - the grammars of mutate.h: JSON, lines of JSON, words, protobuf,
 * and packed files of any of them. */
#ifndef LOCKSTEP_TESTS_FUZZ_GRAMMAR_H
#define LOCKSTEP_TESTS_FUZZ_GRAMMAR_H

#include <zlib.h>
#include <zstd.h>
#include "tests/fuzz/mutate.h"

enum { GRAMMAR_DEPTH = 48 };

/* ---- JSON ---- */

struct json_in { const uint8_t *at, *end; };

static inline int json_peek(struct json_in *in)
{
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' ||
                                *in->at == '\r' || *in->at == '\t'))
        in->at++;
    return in->at < in->end ? *in->at : -1;
}

static inline bool json_eat(struct json_in *in, int byte)
{
    if (json_peek(in) != byte) return false;
    in->at++;
    return true;
}

static inline struct item *json_take_string(struct json_in *in)
{
    const uint8_t *start;

    if (!json_eat(in, '"')) return NULL;
    start = in->at;
    while (in->at < in->end && *in->at != '"')
        in->at += *in->at == '\\' && in->end - in->at > 1 ? 2 : 1;
    if (in->at >= in->end) return NULL;
    return item_new(ITEM_STRING, start, (size_t)(in->at++ - start));
}

static inline struct item *json_take(struct json_in *in, int depth);

static inline struct item *json_take_pair(struct json_in *in, int depth)
{
    struct item *pair = item_new(ITEM_PAIR, NULL, 0);

    if (pair == NULL || (pair->first = json_take_string(in)) == NULL ||
        !json_eat(in, ':') ||
        (pair->first->next = json_take(in, depth)) == NULL)
        return NULL;
    return pair;
}

static inline struct item *json_take_many(struct json_in *in, int depth)
{
    const bool object = *in->at++ == '{';
    const int close = object ? '}' : ']';
    struct item *many = item_new(object ? ITEM_OBJECT : ITEM_LIST, NULL, 0);
    struct item **end;

    if (many == NULL || depth > GRAMMAR_DEPTH) return NULL;
    end = &many->first;
    if (json_eat(in, close)) return many;
    do {
        *end = object ? json_take_pair(in, depth + 1)
                      : json_take(in, depth + 1);
        if (*end == NULL) return NULL;
        end = &(*end)->next;
    } while (json_eat(in, ','));
    return json_eat(in, close) ? many : NULL;
}

static inline struct item *json_take(struct json_in *in, int depth)
{
    const int next = json_peek(in);
    const uint8_t *start = in->at;

    if (next == '"') return json_take_string(in);
    if (next == '{' || next == '[') return json_take_many(in, depth);
    while (in->at < in->end && strchr(",]}: \r\n\t\"", *in->at) == NULL)
        in->at++;
    if (in->at == start) return NULL;
    return item_new(ITEM_ATOM, start, (size_t)(in->at - start));
}

/* A list around the value, so that the value itself can be changed, too. */
static inline struct item *json_grammar_read(const uint8_t *data, size_t size)
{
    struct json_in in = {data, data + size};
    struct item *top = item_new(ITEM_LIST, NULL, 0);

    if (top == NULL || size == 0) return NULL;
    top->first = json_take(&in, 0);
    return top->first == NULL || json_peek(&in) != -1 ? NULL : top;
}

static inline void json_put(struct out *out, const struct item *item)
{
    const bool list = item->kind == ITEM_LIST;

    if (item->kind == ITEM_ATOM || item->kind == ITEM_STRING) {
        if (item->kind == ITEM_STRING) put_byte(out, '"');
        put(out, item->bytes, item->length);
        if (item->kind == ITEM_STRING) put_byte(out, '"');
        return;
    }
    if (item->kind != ITEM_PAIR) put_byte(out, list ? '[' : '{');
    for (const struct item *i = item->first; i != NULL && !out->full;
         i = i->next) {
        json_put(out, i);
        if (i->next != NULL)
            put_byte(out, item->kind == ITEM_PAIR ? ':' : ',');
    }
    if (item->kind != ITEM_PAIR) put_byte(out, list ? ']' : '}');
}

static inline void json_grammar_write(struct out *out, const struct item *top)
{
    for (const struct item *i = top->first; i != NULL; i = i->next)
        json_put(out, i);
}

/* The value that belongs to a key of an object, or NULL. */
static inline struct item *json_value(const struct item *object,
                                      const char *key)
{
    if (object == NULL || object->kind != ITEM_OBJECT) return NULL;
    for (struct item *pair = object->first; pair != NULL; pair = pair->next)
        if (pair->kind == ITEM_PAIR && pair->first != NULL &&
            pair->first->length == strlen(key) &&
            memcmp(pair->first->bytes, key, strlen(key)) == 0)
            return pair->first->next;
    return NULL;
}

/* ---- lines of JSON ---- */

static inline const uint8_t *line_end(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *stop = at == end ? NULL
                                    : memchr(at, '\n', (size_t)(end - at));

    return stop == NULL ? end : stop;
}

/* A line that is no JSON is an atom. */
static inline struct item *jsonl_grammar_read(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    struct item *top = item_new(ITEM_LIST, NULL, 0), **last;

    if (top == NULL || size == 0) return NULL;
    for (last = &top->first; at < end; last = &(*last)->next) {
        const uint8_t *stop = line_end(at, end);
        struct json_in in = {at, stop};

        *last = json_take(&in, 0);
        if (*last == NULL || json_peek(&in) != -1)
            *last = item_new(ITEM_ATOM, at, (size_t)(stop - at));
        if (*last == NULL) return NULL;
        at = stop == end ? end : stop + 1;
    }
    return top;
}

static inline void jsonl_grammar_write(struct out *out, const struct item *top)
{
    for (const struct item *i = top->first; i != NULL && !out->full;
         i = i->next) {
        json_put(out, i);
        put_byte(out, '\n');
    }
}

/* ---- words ---- */

static inline bool is_word(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c >= 0x80;
}

/* Lines; in each line words, and single bytes between them. */
static inline struct item *words_grammar_read(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    struct item *top = item_new(ITEM_LIST, NULL, 0), **line;

    if (top == NULL || size == 0) return NULL;
    for (line = &top->first; at < end; line = &(*line)->next) {
        const uint8_t *stop = line_end(at, end);
        struct item **last;

        if ((*line = item_new(ITEM_LIST, NULL, 0)) == NULL) return NULL;
        if (stop < end) stop++; /* the end of the line is in it */
        for (last = &(*line)->first; at < stop; last = &(*last)->next) {
            const uint8_t *start = at++;

            while (is_word(*start) && at < stop && is_word(*at)) at++;
            *last = item_new(ITEM_ATOM, start, (size_t)(at - start));
            if (*last == NULL) return NULL;
        }
    }
    return top;
}

static inline void words_grammar_write(struct out *out, const struct item *top)
{
    for (const struct item *i = top->first; i != NULL && !out->full;
         i = i->next) {
        if (i->kind == ITEM_LIST) words_grammar_write(out, i);
        else put(out, i->bytes, i->length);
    }
}

/* ---- protobuf ---- */

static inline struct item *proto_take(const uint8_t *at, const uint8_t *end,
                                      int depth);

static inline struct item *proto_take_field(const uint8_t **at,
                                            const uint8_t *end, int depth)
{
    uint64_t tag, length = 0;
    struct item *field = item_new(ITEM_VARINT, NULL, 0), *inner;

    if (field == NULL || !take_varint(at, end, &tag) || tag >> 3 == 0 ||
        tag >> 3 > 1000)
        return NULL;
    field->field = tag >> 3;
    switch (tag & 7) {
    case 0: return take_varint(at, end, &field->value) ? field : NULL;
    case 1: length = 8; break;
    case 5: length = 4; break;
    case 2:
        if (!take_varint(at, end, &length)) return NULL;
        break;
    default: return NULL;
    }
    if (length > (uint64_t)(end - *at)) return NULL;
    field->kind = (tag & 7) == 2 ? ITEM_BYTES : ITEM_FIXED;
    field->bytes = *at;
    field->length = (size_t)length;
    *at += length;
    inner = field->kind == ITEM_FIXED || length < 2 || depth > 6
                ? NULL
                : proto_take(field->bytes, *at, depth + 1);
    if (inner == NULL) return field;
    inner->field = field->field;
    return inner;
}

/* NULL: it is no message. */
static inline struct item *proto_take(const uint8_t *at, const uint8_t *end,
                                      int depth)
{
    struct item *message = item_new(ITEM_MESSAGE, NULL, 0), **last;

    if (message == NULL) return NULL;
    for (last = &message->first; at < end; last = &(*last)->next) {
        *last = proto_take_field(&at, end, depth);
        if (*last == NULL) return NULL;
    }
    return message;
}

static inline struct item *proto_grammar_read(const uint8_t *data, size_t size)
{
    return size == 0 ? NULL : proto_take(data, data + size, 0);
}

static inline void proto_grammar_write(struct out *out, const struct item *top)
{
    static const unsigned wires[] = {[ITEM_VARINT] = 0, [ITEM_BYTES] = 2,
                                     [ITEM_MESSAGE] = 2};

    for (const struct item *i = top->first; i != NULL && !out->full;
         i = i->next) {
        unsigned wire = i->length == 8 ? 1 : 5;
        size_t start;

        if (i->kind < ITEM_VARINT) continue;
        if (i->kind != ITEM_FIXED) wire = wires[i->kind];
        put_varint(out, i->field << 3 | wire);
        if (i->kind == ITEM_VARINT) put_varint(out, i->value);
        if (i->kind == ITEM_BYTES) put_varint(out, i->length);
        if (i->kind != ITEM_MESSAGE) put(out, i->bytes, i->length);
        if (i->kind != ITEM_MESSAGE) continue;
        /* Its length has five bytes, which a varint may have. */
        start = out->at;
        put(out, "\x80\x80\x80\x80\0", 5);
        proto_grammar_write(out, i);
        if (out->full) return;
        for (int b = 0; b < 5; b++)
            out->bytes[start + (size_t)b] =
                (uint8_t)((((out->at - start - 5) >> 7 * b) & 0x7F) |
                          (b < 4 ? 0x80u : 0));
    }
}

/* ---- packed ---- */

static inline size_t gzip_unpack(const uint8_t *from, size_t length,
                                 uint8_t *to, size_t room)
{
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)from,
                  .avail_in = (unsigned)length, .next_out = to,
                  .avail_out = (unsigned)room};
    size_t got;

    if (inflateInit2(&z, 15 + 32) != Z_OK) return 0;
    (void)inflate(&z, Z_FINISH);
    got = z.total_out;
    inflateEnd(&z);
    return got;
}

static inline size_t gzip_pack(const uint8_t *from, size_t length, uint8_t *to,
                               size_t room)
{
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)from,
                  .avail_in = (unsigned)length, .next_out = to,
                  .avail_out = (unsigned)room};
    bool whole;

    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, 0) != Z_OK) return 0;
    whole = deflate(&z, Z_FINISH) == Z_STREAM_END;
    deflateEnd(&z);
    return whole ? z.total_out : 0;
}

/* If the input from `start` on is packed, its content is changed and packed
 * again; now and then a second packed file follows the first one. */
static inline size_t mutate_packed(const struct grammar *g, uint8_t *data,
                                   size_t size, size_t room, size_t start)
{
    static uint8_t plain[MUTATE_MOST], packed[MUTATE_MOST];
    const uint8_t *from = data + start;
    const size_t length = size - start;
    const bool gzip = length > 2 && from[0] == 0x1F && from[1] == 0x8B;
    const bool zstd = length > 4 && get_integer(from, 4) == 0xFD2FB528u;
    size_t got, keep;

    if (size < start || draw(16) == 0 || (!gzip && !zstd))
        return mutate_from(g, data, size, room, start);
    got = gzip ? gzip_unpack(from, length, plain, sizeof plain)
               : ZSTD_decompress(plain, sizeof plain, from, length);
    if (got == 0 || got > sizeof plain)
        return LLVMFuzzerMutate(data, size, room);
    got = mutate_range(g, plain, got, sizeof plain, (size_t[]){0, got});
    if (got == 0) return LLVMFuzzerMutate(data, size, room);
    got = gzip ? gzip_pack(plain, got, packed, sizeof packed)
               : ZSTD_compress(packed, sizeof packed, plain, got, 1);
    keep = draw(8) == 0 ? length : 0;
    if (got == 0 || got > sizeof packed || start + keep + got > room)
        return LLVMFuzzerMutate(data, size, room);
    memcpy(data + start + keep, packed, got);
    return start + keep + got;
}

/* ---- manifests without their last line ---- */

/* The input ends before the line of the checksum; JSON needs a bracket. */
static inline struct item *open_manifest_read(const uint8_t *data, size_t size)
{
    static uint8_t closed[MUTATE_MOST];

    if (size + 2 > sizeof closed) return NULL;
    memcpy(closed, data, size);
    while (size > 0 && (closed[size - 1] == '\n' || closed[size - 1] == ','))
        size--;
    closed[size++] = '}';
    return json_grammar_read(closed, size);
}

static inline void open_manifest_write(struct out *out, const struct item *tree)
{
    const size_t at = out->at;

    json_grammar_write(out, tree);
    if (!out->full && out->at > at && out->bytes[out->at - 1] == '}')
        out->at--;
    put_byte(out, ',');
}

#endif
