/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_encode.c - text to ids. */
#include <string.h>
#include "data/tokenizer.h"
#include "data/word_merge.h"

struct encoding {
    const struct tokenizer *tokenizer;
    struct word_cache *cache;
    struct token_list *out;
};

/* Unigram: unknown characters in a row are one stretch of the word. */
struct unknowns {
    const struct encoding *encoding;
    const unsigned char *word;
    size_t start, stop; /* of the stretch; equal: none */
};

/* The stretch as the token that is spelled so, as bytes where the vocabulary
 * has them all, or as one unknown token. */
static status unknowns_end(struct unknowns *unknowns)
{
    const struct tokenizer *tokenizer = unknowns->encoding->tokenizer;
    struct token_list *out = unknowns->encoding->out;
    const int64_t first = out->count;
    int32_t id = tokenizer_word(tokenizer, unknowns->word + unknowns->start,
                                unknowns->stop - unknowns->start);

    if (id >= 0) {
        unknowns->start = unknowns->stop;
        return token_list_append(out, &id, 1);
    }
    for (size_t i = unknowns->start; i < unknowns->stop; i++) {
        id = tokenizer->fallback[unknowns->word[i]];

        if (id < 0) {
            out->count = first;
            TRY(token_list_append(out, &tokenizer->unknown, 1));
            break;
        }
        TRY(token_list_append(out, &id, 1));
    }
    unknowns->start = unknowns->stop;
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
                 "spells, and model.unk_id is null", tokenizer->source,
                 (int)(stop - start), (const char *)unknowns->word + start);
        if (unknowns->start == unknowns->stop) unknowns->start = start;
        unknowns->stop = stop;
        return OK;
    }
    if (unknowns->start < unknowns->stop) TRY(unknowns_end(unknowns));
    return token_list_append(unknowns->encoding->out, &id, 1);
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

    if (tokenizer->model == MODEL_UNIGRAM)
        return encode_unigram(encoding, word, length);
    if (tokenizer->ignore_merges) {
        const int32_t id = tokenizer_word(tokenizer, word, length);

        if (id >= 0) return token_list_append(encoding->out, &id, 1);
    }
    return word_merge(tokenizer, encoding->cache, word, length, encoding->out);
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
    out->count--;
    memmove(out->ids + at, out->ids + at + 1,
            (size_t)(out->count - at) * sizeof *out->ids);
}

static status encode_word(void *context, const unsigned char *word,
                          size_t length)
{
    const struct encoding *encoding = context;
    const struct tokenizer *tokenizer = encoding->tokenizer;
    const int64_t first = encoding->out->count;
    size_t at = 0;

    if (tokenizer->cuts.bits == NULL)
        return encode_piece(encoding, word, length);
    while (at < length) {
        const size_t stop = cuts_next(&tokenizer->cuts, word, at, length);
        const int64_t before = encoding->out->count;

        TRY(encode_piece(encoding, word + at, stop - at));
        if (tokenizer->fuse_unknown && before > first)
            fuse(encoding, before);
        at = stop;
    }
    return OK;
}

static status encode_words(struct encoding *encoding,
                           const struct normalized *in, size_t from,
                           size_t stop)
{
    const struct pretokenize_text text = {in->text + from, stop - from,
                                          in->first && from == 0};

    return pretokenizer_run(&encoding->tokenizer->pretokenizer, &text,
                            encode_word, encoding);
}

/* Text without added tokens of the first kind: normalize, cut out those of
 * the second kind, words. */
static status encode_part(struct encoding *encoding, const char *text,
                          size_t length, bool first)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    struct normalized in = {.first = first};
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
        TRY_GOTO(done, result,
                 encode_words(encoding, &in, from, match.start));
        TRY_GOTO(done, result,
                 token_list_append(encoding->out, &match.token->id, 1));
        from = search.done;
    }
    TRY_GOTO(done, result, encode_words(encoding, &in, from, in.length));
done:
    text_free(&in.work);
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
        TRY(encode_part(encoding, text + from, match.start - from, from == 0));
        TRY(token_list_append(encoding->out, &match.token->id, 1));
        from = search.done;
    }
    return encode_part(encoding, text + from, length - from, from == 0);
}

status tokenizer_encode(const struct tokenizer *tokenizer, const char *text,
                        size_t length, bool special, struct token_list *out)
{
    struct encoding encoding = {.tokenizer = tokenizer, .out = out};
    status result;
    size_t bad;

    if (text_utf8_invalid(text, length, &bad))
        FAIL(ERR_FORMAT, "the text is not UTF-8: byte %zu is 0x%02x", bad,
             (unsigned char)text[bad]);
    TRY(word_cache_borrow(tokenizer->caches, &encoding.cache));
    if (special)
        TRY_GOTO(done, result, token_list_append(out, tokenizer->first,
                                                 tokenizer->first_count));
    TRY_GOTO(done, result, encode_text(&encoding, text, length));
    if (special)
        TRY_GOTO(done, result, token_list_append(out, tokenizer->last,
                                                 tokenizer->last_count));
done:
    word_cache_return(tokenizer->caches, encoding.cache);
    return result;
}
