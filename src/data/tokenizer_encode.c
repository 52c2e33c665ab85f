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

/* A word that the vocabulary has whole, or merges. */
static status encode_new(const struct encoding *encoding,
                         const unsigned char *word, size_t length)
{
    if (encoding->tokenizer->ignore_merges) {
        const int32_t id = tokenizer_word(encoding->tokenizer, word, length);

        if (id >= 0) {
            TRY(token_list_append(encoding->out, &id, 1));
            return OK;
        }
    }
    TRY(word_merge(encoding->tokenizer, encoding->cache, word, length,
                   encoding->out));
    return OK;
}

static status encode_word(void *context, const unsigned char *word,
                          size_t length)
{
    const struct encoding *encoding = context;
    struct token_list *out = encoding->out;
    const int64_t first = out->count;
    struct word_entry *entry;
    uint64_t hash;
    uint32_t check;
    int64_t count;

    if (length > CACHE_WORD_BYTES) {
        TRY(encode_new(encoding, word, length));
        return OK;
    }
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

/* Text without added tokens of the first kind: normalize, cut out those of
 * the second kind, words. */
static status encode_part(struct encoding *encoding, const char *text,
                          size_t length)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    struct added_search search = {0};
    struct added_match match;
    struct text work = {0};
    size_t from = 0;
    status result;

    if (length == 0) return OK;
    TRY_GOTO(done, result,
             normalizer_run(&tokenizer->normalizer, text, length, &work,
                            &search.text, &search.length));
    while (added_next(&tokenizer->normal, &search, &match)) {
        TRY_GOTO(done, result,
                 pretokenizer_run(&tokenizer->pretokenizer,
                                  search.text + from, match.start - from,
                                  encode_word, encoding));
        TRY_GOTO(done, result,
                 token_list_append(encoding->out, &match.token->id, 1));
        from = search.done;
    }
    TRY_GOTO(done, result,
             pretokenizer_run(&tokenizer->pretokenizer, search.text + from,
                              search.length - from, encode_word, encoding));
done:
    text_free(&work);
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
        TRY(encode_part(encoding, text + from, match.start - from));
        TRY(token_list_append(encoding->out, &match.token->id, 1));
        from = search.done;
    }
    TRY(encode_part(encoding, text + from, length - from));
    return OK;
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
