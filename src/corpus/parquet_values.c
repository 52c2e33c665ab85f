/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_values.c - numbers and texts of a Parquet page, one after the other.
 */
#include "corpus/parquet_values.h"

#include <string.h>

#include "base/varint.h"

enum { WIDTH_MAX = 32, DELTA_WIDTH_MAX = 64, BLOCK_MAX = 1 << 20 };

static size_t left(const unsigned char *at, const unsigned char *end)
{
    return (size_t)(end - at);
}

static bool varint(const unsigned char **at, const unsigned char *end,
                   uint64_t *value)
{
    return varint_read(at, end, value) == VARINT_READ;
}

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

/* ---- hybrid ---- */

void hybrid_begin(struct hybrid *h, const unsigned char *at,
                  const unsigned char *end, int width)
{
    *h = (struct hybrid){.at = at, .end = end, .width = width};
}

static bool next_run(struct hybrid *h)
{
    const int bytes = (h->width + 7) / 8;
    uint64_t head;

    if (h->width > WIDTH_MAX || !varint(&h->at, h->end, &head) ||
        head >> 1 == 0 || head > (uint64_t)INT64_MAX / 16)
        return false;
    h->packed = head & 1;
    h->left = (int64_t)(head >> 1) * (h->packed ? 8 : 1);
    h->bits = 0;
    h->bit_count = 0;
    if (h->packed) return true;
    if (left(h->at, h->end) < (size_t)bytes) return false;
    h->value = (uint32_t)little(h->at, bytes);
    h->at += bytes;
    return true;
}

bool hybrid_next(struct hybrid *h, uint32_t *value)
{
    if (h->left == 0 && !next_run(h)) return false;
    h->left--;
    *value = h->value;
    if (!h->packed) return true;
    while (h->bit_count < h->width) {
        if (h->at == h->end) return false;
        h->bits |= (uint64_t)*h->at++ << h->bit_count;
        h->bit_count += 8;
    }
    *value = (uint32_t)(h->bits & ((UINT64_C(1) << h->width) - 1));
    h->bits >>= h->width;
    h->bit_count -= h->width;
    return true;
}

int64_t hybrid_rest(const struct hybrid *h)
{
    return h->packed ? 0 : h->left;
}

void hybrid_skip(struct hybrid *h, int64_t count)
{
    h->left -= count;
}

/* ---- delta ---- */

static bool delta_begin(struct delta *d, const unsigned char *at,
                        const unsigned char *end, int64_t most)
{
    uint64_t block, minis, count, first;

    *d = (struct delta){.at = at, .end = end};
    if (!varint(&d->at, end, &block) || !varint(&d->at, end, &minis) ||
        !varint(&d->at, end, &count) || !varint(&d->at, end, &first))
        return false;
    if (block == 0 || block > BLOCK_MAX || minis == 0 || minis > block ||
        block % minis != 0 || block / minis % 8 != 0 ||
        count > (uint64_t)most)
        return false;
    d->block = (int64_t)block;
    d->minis = (int64_t)minis;
    d->mini = (int64_t)(block / minis);
    d->left = (int64_t)count;
    d->value = varint_signed(first);
    return true;
}

static bool next_block(struct delta *d)
{
    uint64_t least;

    if (!varint(&d->at, d->end, &least) ||
        left(d->at, d->end) < (size_t)d->minis)
        return false;
    d->least = varint_signed(least);
    d->widths = d->at;
    d->at += d->minis;
    d->in_block = d->block;
    return true;
}

static bool next_mini(struct delta *d)
{
    if (d->in_block == 0 && !next_block(d)) return false;
    d->width = *d->widths++;
    d->in_block -= d->mini;
    d->in_mini = d->mini;
    return d->width <= DELTA_WIDTH_MAX &&
           left(d->at, d->end) >= (size_t)(d->mini / 8 * d->width);
}

/* The packed difference that comes next. */
static bool next_difference(struct delta *d, uint64_t *difference)
{
    if (d->in_mini == 0 && !next_mini(d)) return false;
    d->in_mini--;
    *difference = 0;
    for (int got = 0; got < d->width;) {
        const unsigned room = 8 - d->bit;
        const unsigned want = (unsigned)(d->width - got);
        const unsigned take = want < room ? want : room;
        const unsigned piece = (unsigned)*d->at >> d->bit &
                               ((1u << take) - 1);

        *difference |= (uint64_t)piece << got;
        got += (int)take;
        d->bit += take;
        if (d->bit < 8) continue;
        d->bit = 0;
        d->at++;
    }
    return true;
}

static bool delta_next(struct delta *d, int64_t *value)
{
    uint64_t difference;

    if (d->left == 0) return false;
    *value = d->value;
    if (--d->left == 0) { /* the rest of the last miniblock is filling */
        d->at += (d->in_mini * d->width + (int64_t)d->bit) / 8;
        return true;
    }
    if (!next_difference(d, &difference)) return false;
    d->value = (int64_t)((uint64_t)d->value + (uint64_t)d->least + difference);
    return true;
}

/* Where the numbers end: behind them lie the texts. The first number is in the
 * header; miniblocks are skipped whole, so this takes as long as the bytes. */
static bool delta_end(const struct delta *from, const unsigned char **end)
{
    struct delta d = *from;

    for (int64_t left = d.left - 1; left > 0; left -= d.mini) {
        if (!next_mini(&d)) return false;
        d.at += d.mini / 8 * d.width;
    }
    *end = d.at;
    return true;
}

/* ---- values ---- */

static bool begin_places(struct parquet_values *v)
{
    if (v->dictionary->count < 0) return false;
    if (v->at == v->end) return true; /* a page of nulls */
    if (*v->at > WIDTH_MAX) return false;
    hybrid_begin(&v->places, v->at + 1, v->end, *v->at);
    return true;
}

bool parquet_values_begin(struct parquet_values *v, const unsigned char *at,
                          const unsigned char *end, bool *known)
{
    const bool text = v->type == PARQUET_BYTES;

    *known = true;
    v->at = at;
    v->end = end;
    /* A page without values must not go on in the page before. */
    v->places = (struct hybrid){0};
    v->numbers = v->prefixes = (struct delta){0};
    switch (v->encoding) {
    case ENCODING_PLAIN: return true;
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_DICTIONARY: return begin_places(v);
    case ENCODING_DELTA:
        *known = !text;
        return *known && (at == end ||
                          delta_begin(&v->numbers, at, end, v->count));
    case ENCODING_DELTA_LENGTH:
        *known = text;
        return *known &&
               (at == end || (delta_begin(&v->numbers, at, end, v->count) &&
                              delta_end(&v->numbers, &v->at)));
    case ENCODING_DELTA_BYTES:
        *known = text;
        v->text.length = 0;
        return *known &&
               (at == end || (delta_begin(&v->prefixes, at, end, v->count) &&
                              delta_end(&v->prefixes, &v->at) &&
                              delta_begin(&v->numbers, v->at, end,
                                          v->count) &&
                              delta_end(&v->numbers, &v->at)));
    default: *known = false; return false;
    }
}

bool parquet_values_number(struct parquet_values *v, int64_t *value)
{
    const int bytes = v->type == PARQUET_INT32 ? 4 : 8;
    const unsigned char *at = v->at;
    uint32_t place;

    if (v->encoding == ENCODING_DELTA) return delta_next(&v->numbers, value);
    if (v->encoding == ENCODING_PLAIN) {
        if (left(at, v->end) < (size_t)bytes) return false;
        v->at += bytes;
    } else {
        if (!hybrid_next(&v->places, &place) ||
            place >= (uint64_t)v->dictionary->count)
            return false;
        at = v->dictionary->bytes + (size_t)place * (size_t)bytes;
    }
    *value = bytes == 4 ? (int32_t)(uint32_t)little(at, 4)
                        : (int64_t)little(at, 8);
    return true;
}

static bool take_bytes(struct parquet_values *v, uint64_t count,
                       const char **text, size_t *length)
{
    if (count > left(v->at, v->end)) return false;
    *text = (const char *)v->at;
    *length = (size_t)count;
    v->at += count;
    return true;
}

static bool delta_text(struct parquet_values *v, const char **text,
                       size_t *length)
{
    int64_t prefix, rest;

    if (!delta_next(&v->numbers, &rest) || rest < 0 ||
        !take_bytes(v, (uint64_t)rest, text, length))
        return false;
    if (v->encoding == ENCODING_DELTA_LENGTH) return true;
    if (!delta_next(&v->prefixes, &prefix) || prefix < 0 ||
        (uint64_t)prefix > v->text.length)
        return false;
    v->text.length = (size_t)prefix;
    if (text_append(&v->text, *text, *length) != OK) return false;
    *text = v->text.bytes;
    *length = v->text.length;
    return true;
}

bool parquet_values_text(struct parquet_values *v, const char **text,
                         size_t *length)
{
    const struct parquet_dictionary *d = v->dictionary;
    uint32_t place;
    uint64_t count;

    if (v->encoding == ENCODING_DELTA_LENGTH ||
        v->encoding == ENCODING_DELTA_BYTES)
        return delta_text(v, text, length);
    if (v->encoding == ENCODING_PLAIN) {
        if (left(v->at, v->end) < 4) return false;
        count = little(v->at, 4);
        v->at += 4;
        return take_bytes(v, count, text, length);
    }
    if (!hybrid_next(&v->places, &place) || place >= (uint64_t)d->count)
        return false;
    *text = (const char *)d->bytes + d->starts[place];
    *length = d->starts[place + 1] - d->starts[place];
    if (place + 1 < (uint64_t)d->count) *length -= 4; /* the next's length */
    return true;
}
