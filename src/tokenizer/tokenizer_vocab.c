/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_vocab.c - the tables of a vocabulary: names, bytes, kinds. */
#include <string.h>
#include "tokenizer/tokenizer_build.h"

/* Ids may have gaps, but tables must not be large for a small file. */
enum { SPARE_IDS = 1 << 14 };

/* Tables that are filled while the vocabulary is read. */
struct vocab {
    const char **names;    /* [vocab] */
    uint32_t *lengths;     /* [vocab] bytes of the names */
    unsigned char *kinds;  /* [vocab] */
    uint32_t *starts;      /* [vocab + 1] */
    struct text bytes;     /* owned; what the tokens decode to */
    int32_t letters[256];  /* id of the model's token that is a byte; -1 */
};

static status count_ids(struct tokenizer *tokenizer,
                        const struct vocab_entry *entries, int64_t count)
{
    int64_t largest = -1;

    for (int64_t i = 0; i < count; i++) {
        if (entries[i].length > UINT32_MAX)
            FAIL(ERR_FORMAT, "%s: a token has more than 4 GiB",
                 tokenizer->source);
        if (entries[i].id > largest) largest = entries[i].id;
    }
    for (int32_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id > largest) largest = tokenizer->added[i].id;
    if (largest < 0)
        FAIL(ERR_FORMAT, "%s: the vocabulary is empty", tokenizer->source);
    if (largest / 4 > count + tokenizer->added_count + SPARE_IDS)
        FAIL(ERR_FORMAT, "%s: the largest id is %lld, but there are only %lld "
             "tokens", tokenizer->source, (long long)largest,
             (long long)count);
    tokenizer->vocab = largest + 1;
    return OK;
}

static status vocab_take(struct tokenizer *tokenizer, struct vocab *vocab)
{
    const size_t count = (size_t)tokenizer->vocab;
    struct arena *arena = &tokenizer->arena;
    void *memory;

    TRY(arena_take_array(arena, count, sizeof *vocab->names, &memory));
    tokenizer->names = vocab->names = memory;
    TRY(arena_take_array(arena, count, sizeof *vocab->lengths, &memory));
    tokenizer->name_lengths = vocab->lengths = memory;
    TRY(arena_take_array(arena, count, 1, &memory));
    tokenizer->kinds = vocab->kinds = memory;
    TRY(arena_take_array(arena, count + 1, sizeof *vocab->starts, &memory));
    tokenizer->starts = vocab->starts = memory;
    return OK;
}

static status name_vocab(struct tokenizer *tokenizer, struct vocab *vocab,
                         const struct vocab_entry *entries, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const struct vocab_entry *entry = &entries[i];
        const int32_t id = entry->id;

        if (vocab->kinds[id] != TOKEN_MISSING)
            FAIL(ERR_FORMAT, "%s: model.vocab: \"%.40s\" and \"%.40s\" have "
                 "the same id %d", tokenizer->source, vocab->names[id],
                 entry->name, id);
        vocab->names[id] = entry->name; /* of the parse; copied later */
        vocab->lengths[id] = (uint32_t)entry->length;
        vocab->kinds[id] = entry->kind;
    }
    return OK;
}

static status name_added(struct tokenizer *tokenizer, struct vocab *vocab)
{
    for (int32_t i = 0; i < tokenizer->added_count; i++) {
        const struct added_token *token = &tokenizer->added[i];
        const int32_t id = token->id;

        if (vocab->kinds[id] != TOKEN_MISSING &&
            (vocab->lengths[id] != token->length ||
             memcmp(vocab->names[id], token->content, token->length) != 0))
            FAIL(ERR_FORMAT, "%s: added_tokens: \"%.40s\" has id %d, which "
                 "\"%.40s\" has", tokenizer->source, token->content, id,
                 vocab->names[id]);
        vocab->names[id] = token->content;
        vocab->lengths[id] = (uint32_t)token->length;
        vocab->kinds[id] = token->special ? TOKEN_SPECIAL : TOKEN_ADDED;
    }
    return OK;
}

/* Names move into the tokenizer's arena, where the zeros end them. */
static status copy_names(struct tokenizer *tokenizer, struct vocab *vocab)
{
    uint64_t total = 0;
    void *memory;
    char *names;

    for (int64_t i = 0; i < tokenizer->vocab; i++)
        total += (uint64_t)vocab->lengths[i] + 1;
    TRY(arena_take(&tokenizer->arena, (size_t)total, &memory));
    names = memory;
    for (int64_t i = 0; i < tokenizer->vocab; i++) {
        if (vocab->kinds[i] == TOKEN_MISSING) continue;
        memcpy(names, vocab->names[i], vocab->lengths[i]);
        vocab->names[i] = names;
        names += (size_t)vocab->lengths[i] + 1;
    }
    return OK;
}

/* The byte that the name of a model's token stands for; -1: another number of
 * them. */
static int letter_of(const struct byte_level *alphabet, const char *name,
                     size_t length)
{
    unsigned char bytes[4];
    size_t count;

    if (length == 0 || length > sizeof bytes ||
        !byte_level_read(alphabet, name, length, bytes, &count) || count != 1)
        return -1;
    return bytes[0];
}

/* A byte that somebody also added as a token ("\u00e9" to GPT-2's) is the
 * model's all the same: no text could be encoded without it. */
static void find_letters(const struct tokenizer *tokenizer,
                         const struct byte_level *alphabet,
                         const struct vocab_entry *entries, int64_t count,
                         int32_t letters[256])
{
    for (int i = 0; i < 256; i++) letters[i] = -1;
    for (int64_t i = 0; i < count && tokenizer->model == MODEL_BYTES; i++) {
        const int letter = letter_of(alphabet, entries[i].name,
                                     entries[i].length);

        if (letter >= 0) letters[letter] = entries[i].id;
    }
}

/* Appends the bytes of a learned token, or the name of any other token. */
static status append_bytes(const struct tokenizer *tokenizer,
                           const struct byte_level *alphabet,
                           struct vocab *vocab, int64_t id)
{
    const char *name = tokenizer->names[id];
    const size_t length = tokenizer->name_lengths[id];
    struct text *out = &vocab->bytes;
    unsigned char *at;
    size_t count;

    if (tokenizer->kinds[id] != TOKEN_LEARNED) {
        const int letter = letter_of(alphabet, name, length);

        if (letter < 0 || vocab->letters[letter] != id)
            return text_append(out, name, length);
    }
    if (tokenizer->model != MODEL_BYTES)
        return decoder_token(&tokenizer->decoder, name, length, out);
    TRY(text_append(out, name, length)); /* makes room; never more bytes */
    at = (unsigned char *)out->bytes + out->length - length;
    if (byte_level_read(alphabet, name, length, at, &count))
        out->length -= length - count;
    else
        memcpy(at, name, length);
    return OK;
}

static status copy_bytes(struct tokenizer *tokenizer, struct vocab *vocab,
                         const struct vocab_entry *entries, int64_t count)
{
    struct byte_level alphabet;
    void *memory;

    byte_level_init(&alphabet);
    find_letters(tokenizer, &alphabet, entries, count, vocab->letters);
    TRY(text_append(&vocab->bytes, "", 0));
    for (int64_t i = 0; i < tokenizer->vocab; i++) {
        vocab->starts[i] = (uint32_t)vocab->bytes.length;
        if (vocab->kinds[i] != TOKEN_MISSING)
            TRY(append_bytes(tokenizer, &alphabet, vocab, i));
        if (vocab->bytes.length > UINT32_MAX)
            FAIL(ERR_FORMAT, "%s: the vocabulary's tokens have more than 4 "
                 "GiB", tokenizer->source);
    }
    vocab->starts[tokenizer->vocab] = (uint32_t)vocab->bytes.length;
    TRY(arena_take(&tokenizer->arena, vocab->bytes.length + 1, &memory));
    memcpy(memory, vocab->bytes.bytes, vocab->bytes.length);
    tokenizer->bytes = memory;
    return OK;
}

static void table_insert(int32_t *table, uint64_t mask, uint64_t hash,
                         int32_t id)
{
    uint64_t place = hash & mask;

    while (table[place] >= 0) place = (place + 1) & mask;
    table[place] = id;
}

static status fill_tables(struct tokenizer *tokenizer,
                          const struct vocab_entry *entries, int64_t count)
{
    uint64_t places = 16;
    int32_t *names, *words;
    void *memory;

    while (places < 2 * (uint64_t)tokenizer->vocab) places *= 2;
    TRY(arena_take_array(&tokenizer->arena, places, sizeof *names, &memory));
    tokenizer->name_table = names = memory;
    TRY(arena_take_array(&tokenizer->arena, places, sizeof *words, &memory));
    tokenizer->word_table = words = memory;
    tokenizer->name_places = places;
    memset(names, 0xFF, places * sizeof *names); /* -1 */
    memset(words, 0xFF, places * sizeof *words);
    for (int64_t i = 0; i < tokenizer->vocab; i++)
        if (tokenizer->kinds[i] != TOKEN_MISSING)
            table_insert(names, places - 1,
                         tokenizer_hash(tokenizer->names[i],
                                        tokenizer->name_lengths[i]),
                         (int32_t)i);
    for (int64_t i = count - 1; i >= 0; i--) { /* the last one is found */
        size_t length;
        const unsigned char *key =
            tokenizer_key(tokenizer, entries[i].id, &length);

        if (entries[i].spelled)
            table_insert(words, places - 1, tokenizer_hash(key, length),
                         entries[i].id);
    }
    for (int i = 0; i < 256; i++) {
        const unsigned char byte = (unsigned char)i;

        tokenizer->byte_ids[i] = tokenizer_word(tokenizer, &byte, 1);
        tokenizer->fallback[i] = -1;
    }
    return OK;
}

void tokenizer_find_fallback(struct tokenizer *tokenizer)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        int32_t id;

        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        tokenizer->fallback[i] =
            tokenizer_find(tokenizer, name, &id) ? id : -1;
    }
}

status tokenizer_build_vocab(struct tokenizer *tokenizer,
                             const struct vocab_entry *entries, int64_t count)
{
    struct vocab vocab = {0};
    status result;

    TRY_GOTO(done, result, count_ids(tokenizer, entries, count));
    TRY_GOTO(done, result, vocab_take(tokenizer, &vocab));
    TRY_GOTO(done, result, name_vocab(tokenizer, &vocab, entries, count));
    TRY_GOTO(done, result, name_added(tokenizer, &vocab));
    TRY_GOTO(done, result, copy_names(tokenizer, &vocab));
    TRY_GOTO(done, result, copy_bytes(tokenizer, &vocab, entries, count));
    TRY_GOTO(done, result, fill_tables(tokenizer, entries, count));
done:
    text_free(&vocab.bytes);
    return result;
}
