/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_encode.c - text to ids. */
#include <string.h>
#include "tokenizer/tokenizer.h"
#include "tokenizer/token_trace.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_merge.h"

struct encoding {
    const struct tokenizer *tokenizer;
    struct word_cache *cache;
    struct token_list *out;
    struct token_trace *trace; /* NULL: places are not asked for */
    const char *text;    /* all of it */
    bool later;          /* other text stands before it, */
    bool inside;         /* right before: no added token ends there */
};

/* Unigram: unknown characters in a row are one stretch of the word. */
struct unknowns {
    const struct encoding *encoding;
    const unsigned char *word;
    size_t start, stop; /* of the stretch; equal: none */
};

static status append(const struct unknowns *unknowns, int32_t id,
                     struct span part)
{
    const struct encoding *encoding = unknowns->encoding;

    TRY(token_list_append(encoding->out, &id, 1));
    if (encoding->trace == NULL) return OK;
    return token_trace_token(encoding->trace, part, unknowns->word + part.start,
                       part.stop - part.start);
}

/* The stretch has become `count` tokens of bytes. */
static status trace_bytes(const struct unknowns *unknowns, int64_t count)
{
    struct token_trace *trace = unknowns->encoding->trace;
    const unsigned char *word = unknowns->word;
    struct span part = {unknowns->start, unknowns->stop};

    if (trace == NULL) return OK;
    for (int64_t i = 0; i < count; i++) {
        const size_t at = unknowns->start + (size_t)i;

        if (trace->tokenizer->last_byte_whole) {
            const bool last = at + 1 == unknowns->stop ||
                              (word[at + 1] & 0xC0) != 0x80;

            if ((word[at] & 0xC0) != 0x80) part.start = at;
            part.stop = last ? at + 1 : part.start;
        }
        TRY(token_trace_token(trace, part, NULL, 0));
    }
    return OK;
}

/* The stretch as the token that is spelled so, as bytes where the vocabulary
 * has them all, or as one unknown token. */
static status unknowns_end(struct unknowns *unknowns)
{
    const struct tokenizer *tokenizer = unknowns->encoding->tokenizer;
    struct token_list *out = unknowns->encoding->out;
    const struct span all = {unknowns->start, unknowns->stop};
    const int64_t first = out->count;
    int32_t id = tokenizer_word(tokenizer, unknowns->word + all.start,
                                all.stop - all.start);

    if (id >= 0) {
        TRY(append(unknowns, id, all));
        unknowns->start = all.stop;
        return OK;
    }
    for (size_t i = all.start; i < all.stop; i++) {
        id = tokenizer->fallback[unknowns->word[i]];

        if (id < 0) break;
        TRY(token_list_append(out, &id, 1));
    }
    if (id < 0) {
        out->count = first;
        TRY(append(unknowns, tokenizer->unknown, all));
    } else {
        TRY(trace_bytes(unknowns, out->count - first));
    }
    unknowns->start = all.stop;
    return OK;
}

static status take_unigram(void *context, int32_t id, size_t start,
                           size_t stop)
{
    struct unknowns *unknowns = context;
    const struct tokenizer *tokenizer = unknowns->encoding->tokenizer;

    if (id < 0 || id == tokenizer->unknown) {
        if (tokenizer->unknown < 0)
            FAIL(ERR_FORMAT, "%s: the text has \"%.*s\", which no token "
                 "represents, and model.unk_id is null", tokenizer->source,
                 (int)(stop - start), (const char *)unknowns->word + start);
        if (unknowns->start == unknowns->stop) unknowns->start = start;
        unknowns->stop = stop;
        return OK;
    }
    if (unknowns->start < unknowns->stop) TRY(unknowns_end(unknowns));
    if (unknowns->encoding->trace == NULL)
        return token_list_append(unknowns->encoding->out, &id, 1);
    return append(unknowns, id, (struct span){start, stop});
}

static status encode_unigram(const struct encoding *encoding,
                             const unsigned char *word, size_t length)
{
    struct unknowns unknowns = {.encoding = encoding, .word = word};

    TRY(unigram_run(&encoding->tokenizer->unigram, &encoding->cache->nodes,
                    word, length, take_unigram, &unknowns));
    if (unknowns.start < unknowns.stop) TRY(unknowns_end(&unknowns));
    return OK;
}

/* A word that the vocabulary has whole, or the model's tokens. */
static status encode_new(const struct encoding *encoding,
                         const unsigned char *word, size_t length)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    struct token_trace *trace = encoding->trace;
    struct token_list *out = encoding->out;
    const int64_t first = out->count;

    if (tokenizer->model == MODEL_UNIGRAM)
        return encode_unigram(encoding, word, length);
    if (tokenizer->ignore_merges) {
        const int32_t id = tokenizer_word(tokenizer, word, length);

        if (id >= 0) TRY(token_list_append(out, &id, 1));
        if (id >= 0 && trace != NULL)
            return token_trace_token(trace, (struct span){0, length},
                               (const unsigned char *)tokenizer->names[id],
                               tokenizer->name_lengths[id]);
        if (id >= 0) return OK;
    }
    TRY(word_merge(tokenizer, encoding->cache, word, length, out,
                   trace == NULL ? NULL : &trace->sizes));
    if (trace == NULL || out->count == first) return OK;
    return token_trace_merged(trace, out->ids + first, out->count - first);
}

/* A word, or a piece of one that nothing joins to its neighbours. */
static status encode_piece(const struct encoding *encoding,
                           const unsigned char *word, size_t length)
{
    struct token_list *out = encoding->out;
    const int64_t first = out->count;
    struct word_entry *entry;
    uint64_t hash;
    uint32_t check;
    int64_t count;

    if (length > CACHE_WORD_BYTES) return encode_new(encoding, word, length);
    hash = tokenizer_hash(word, length);
    check = (uint32_t)(hash >> 32);
    entry = &encoding->cache->entries[hash % CACHE_PLACES];
    if (entry->length == length && entry->check == check &&
        memcmp(entry->word, word, length) == 0) {
        TRY(token_list_reserve(out, CACHE_WORD_TOKENS));
        memcpy(out->ids + first, entry->ids, sizeof entry->ids);
        out->count += entry->count;
        return OK;
    }
    TRY(encode_new(encoding, word, length));
    count = out->count - first;
    if (count > CACHE_WORD_TOKENS) return OK;
    entry->check = check;
    entry->length = (unsigned char)length;
    entry->count = (unsigned char)count;
    memcpy(entry->word, word, length);
    memcpy(entry->ids, out->ids + first, (size_t)count * sizeof *entry->ids);
    return OK;
}

/* Unknown characters on both sides of a cut are one token. */
static void fuse(const struct encoding *encoding, int64_t at)
{
    struct token_list *out = encoding->out;
    const int32_t unknown = encoding->tokenizer->unknown;

    if (at >= out->count || out->ids[at] != unknown ||
        out->ids[at - 1] != unknown) return;
    if (encoding->trace != NULL)
        token_trace_fuse(encoding->trace, out->count - at);
    out->count--;
    memmove(out->ids + at, out->ids + at + 1,
            (size_t)(out->count - at) * sizeof *out->ids);
}

typedef status encode_bytes(const struct encoding *encoding,
                            const unsigned char *word, size_t length);

/* A word as its pieces. */
static status encode_cut(const struct encoding *encoding,
                         const unsigned char *word, size_t length,
                         encode_bytes *encode)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    const int64_t first = encoding->out->count;
    size_t at = 0;

    while (at < length) {
        const size_t stop = cuts_next(&tokenizer->cuts, word, at, length);
        const int64_t before = encoding->out->count;

        TRY(encode(encoding, word + at, stop - at));
        if (tokenizer->fuse_unknown && before > first)
            fuse(encoding, before);
        at = stop;
    }
    return OK;
}

static status encode_word(void *context, const unsigned char *word,
                          size_t length, const struct origin *from)
{
    const struct encoding *encoding = context;

    (void)from;
    if (encoding->tokenizer->cuts.bits == NULL)
        return encode_piece(encoding, word, length);
    return encode_cut(encoding, word, length, encode_piece);
}

/* With places: the cache has none. */
static status encode_traced(void *context, const unsigned char *word,
                            size_t length, const struct origin *from)
{
    const struct encoding *encoding = context;

    token_trace_word(encoding->trace, word, length, from);
    if (encoding->tokenizer->cuts.bits == NULL)
        return encode_new(encoding, word, length);
    return encode_cut(encoding, word, length, encode_new);
}

static status encode_words(struct encoding *encoding,
                           const struct normalized *in, size_t from,
                           size_t stop)
{
    const struct pretokenize_text text = {
        in->text + from, stop - from, in->first && from == 0,
        in->inside && from == 0,
        in->origins.items == NULL ? NULL : in->origins.items + from};

    return pretokenizer_run(&encoding->tokenizer->pretokenizer, &text,
                            encoding->trace == NULL ? encode_word
                                                    : encode_traced,
                            encoding);
}

/* An added token that was found at text[start, stop). */
static status add_match(const struct encoding *encoding,
                        const struct added_match *match, const char *text,
                        const struct origin *from)
{
    struct origin origin = {(uint32_t)match->start, (uint32_t)match->stop};

    TRY(token_list_append(encoding->out, &match->token->id, 1));
    if (encoding->trace == NULL) return OK;
    if (from != NULL) {
        origin.start = from[match->start].start;
        origin.stop = from[match->stop - 1].stop;
    }
    return token_trace_origin(encoding->trace, origin,
                        (const unsigned char *)text + match->start,
                        match->stop - match->start);
}

/* Text without added tokens of the first kind: normalize, cut out those of
 * the second kind, words. */
static status encode_part(struct encoding *encoding, const char *text,
                          size_t length)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    const bool begins = text == encoding->text;
    const bool first = begins && !encoding->later;
    /* If a normalizer or an earlier step added text or removed text here, the
     * origin decides whether this piece is the first. */
    const bool asks = first && tokenizer->pretokenizer.asks_first &&
                      (tokenizer->normalizer.count > 0 ||
                       tokenizer->pretokenizer.count > 1);
    struct normalized in = {.first = first,
                            .inside = begins && encoding->inside,
                            .traced = asks || encoding->trace != NULL,
                            .base = (size_t)(text - encoding->text)};
    struct added_search search = {0};
    struct added_match match;
    size_t from = 0;
    status result;

    if (length == 0) return OK;
    TRY_GOTO(done, result,
             normalizer_run(&tokenizer->normalizer, text, length, &in));
    search.text = in.text;
    search.length = in.length;
    while (added_next(&tokenizer->normal, &search, &match)) {
        if (match.start > from) /* else white space that is taken twice */
            TRY_GOTO(done, result,
                     encode_words(encoding, &in, from, match.start));
        TRY_GOTO(done, result,
                 add_match(encoding, &match, in.text, in.origins.items));
        from = search.done;
    }
    TRY_GOTO(done, result, encode_words(encoding, &in, from, in.length));
done:
    normalized_free(&in);
    return result;
}

static status encode_text(struct encoding *encoding, const char *text,
                          size_t length)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    struct added_search search = {.text = text, .length = length};
    struct added_match match;
    size_t from = 0;

    while (added_next(&tokenizer->raw, &search, &match)) {
        if (match.start > from) /* else white space that is taken twice */
            TRY(encode_part(encoding, text + from, match.start - from));
        TRY(add_match(encoding, &match, text, NULL));
        from = search.done;
    }
    return encode_part(encoding, text + from, length - from);
}

static status run(struct encoding *encoding, size_t length, bool special)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    const char *text = encoding->text;
    struct token_list *out = encoding->out;
    status result;
    size_t bad;

    if (text_utf8_invalid(text, length, &bad))
        FAIL(ERR_FORMAT, "the text is not UTF-8: byte %zu is 0x%02x", bad,
             (unsigned char)text[bad]);
    TRY(word_cache_borrow(tokenizer->caches, &encoding->cache));
    if (special)
        TRY_GOTO(done, result, token_list_append(out, tokenizer->first,
                                                 tokenizer->first_count));
    TRY_GOTO(done, result, encode_text(encoding, text, length));
    if (special)
        TRY_GOTO(done, result, token_list_append(out, tokenizer->last,
                                                 tokenizer->last_count));
done:
    word_cache_return(tokenizer->caches, encoding->cache);
    return result;
}

status tokenizer_encode(const struct tokenizer *tokenizer, const char *text,
                        size_t length, bool special, struct token_list *out)
{
    struct encoding encoding = {.tokenizer = tokenizer, .out = out,
                                .text = text};

    return run(&encoding, length, special);
}

status tokenizer_encode_after(const struct tokenizer *tokenizer,
                              const char *text, size_t from, size_t to,
                              struct token_list *out)
{
    struct added_search search = {.text = text, .length = from};
    struct encoding encoding = {.tokenizer = tokenizer, .out = out,
                                .later = from > 0};
    struct added_match match = {0};
    bool takes = false; /* the last added token does, white space behind it */
    size_t width;

    while (added_next(&tokenizer->raw, &search, &match))
        takes = match.token->rstrip;
    encoding.inside = search.done < from;
    while (from < to && from > 0 && !encoding.inside && takes &&
           (unicode_at((const unsigned char *)text, from, &width) &
            CLASS_SPACE) != 0)
        from += width;
    encoding.text = text + from;
    return run(&encoding, to - from, false);
}

/* Tokens of the template have no place: they are at 0 and empty. */
static status add_outside(struct token_places *places, int count)
{
    const struct token_place nowhere = {0};

    for (int i = 0; i < count; i++) TRY(token_places_add(places, &nowhere));
    return OK;
}

status tokenizer_encode_places(const struct tokenizer *tokenizer,
                               const char *text, size_t length, bool special,
                               struct token_list *out,
                               struct token_places *places)
{
    struct token_trace trace = {.tokenizer = tokenizer};
    struct encoding encoding = {.tokenizer = tokenizer, .out = out,
                                .text = text, .trace = &trace};
    const int first = special ? tokenizer->first_count : 0;
    status result;

    if (length > INT32_MAX)
        FAIL(ERR_FORMAT, "a text of %zu bytes; places of tokens are told in "
             "one of at most %d: cut it at its documents", length, INT32_MAX);
    TRY_GOTO(done, result, run(&encoding, length, special));
    TRY_GOTO(done, result, add_outside(places, first));
    TRY_GOTO(done, result,
             token_trace_places(&trace, text, length, special, places));
    TRY_GOTO(done, result,
             add_outside(places, special ? tokenizer->last_count : 0));
done:
    token_trace_free(&trace);
    return result;
}
