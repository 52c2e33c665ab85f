/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer.c - can a tokenizer or a text from a stranger hurt us?
 *
 * The input is a tokenizer.json, a .model, a tiktoken file or a tekken.json,
 * a zero byte and a text without any. Both are tried: the text with the
 * foreign tokenizer, where ids must be in its vocabulary, and with one of our
 * own, where decoding must give the text back. The last byte of the input
 * says of which encoding a tiktoken file is. */
#include <string.h>
#include "base/arena.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/tokenizer.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"o200k_base", "r50k_base", "p50k_base",
                                    "cl100k_base", "llama3", "qwen"};
enum { NAMES = sizeof names / sizeof *names };
static struct tokenizer ours;
static size_t ours_bytes;

static void make_ours(void)
{
    static const char text[] = "the ships that pass by night don't answer; "
                               "aaaa aaaa 1234 1234 the ships the night";
    struct bpe_trainer *trainer = NULL;
    struct text json = {0};
    int64_t vocab;

    CHECK(bpe_trainer_build(&trainer, &(struct bpe_options){.vocab = 300}) ==
          OK);
    CHECK(bpe_trainer_feed(trainer, text, sizeof text - 1) == OK);
    CHECK(bpe_trainer_finish(trainer, &json, &vocab) == OK);
    CHECK(tokenizer_read_text(&ours, json.bytes, json.length, "ours") == OK);
    bpe_trainer_free(trainer);
    text_free(&json);
}

/* With places the ids are the same, and no place is outside the text. */
static void try_places(const struct tokenizer *tokenizer, const char *text,
                       size_t length, const struct token_list *ids)
{
    struct token_list again = {0};
    struct token_places places = {0};

    CHECK(tokenizer_encode_places(tokenizer, text, length, true, &again,
                                  &places) == OK);
    CHECK(again.count == ids->count && places.count == ids->count);
    for (int64_t i = 0; i < ids->count; i++) {
        const struct token_place *place = &places.items[i];

        CHECK(again.ids[i] == ids->ids[i]);
        CHECK(place->bytes.start >= 0 &&
              place->bytes.start <= place->bytes.stop &&
              place->bytes.stop <= (int64_t)length);
        CHECK(place->characters.start <= place->bytes.start &&
              place->characters.stop <= place->bytes.stop);
    }
    token_list_free(&again);
    token_places_free(&places);
}

/* Encodes and decodes; *same when the text came back. */
static void try_text(const struct tokenizer *tokenizer, const char *text,
                     size_t length, bool *same)
{
    struct token_list ids = {0};
    struct text back = {0};
    size_t bad;

    *same = text_utf8_invalid(text, length, &bad);
    if (tokenizer_encode(tokenizer, text, length, true, &ids) == OK) {
        CHECK(!*same); /* what is not UTF-8 must be refused */
        for (int64_t i = 0; i < ids.count; i++)
            CHECK(tokenizer_kind(tokenizer, ids.ids[i]) != TOKEN_MISSING);
        try_places(tokenizer, text, length, &ids);
        CHECK(tokenizer_decode(tokenizer, ids.ids, ids.count, &back) == OK);
        *same = back.length == length && memcmp(back.bytes, text, length) == 0;
    }
    status_clear();
    token_list_free(&ids);
    text_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size > 0 ? memrchr(data, 0, size) : NULL;
    const size_t length = zero == NULL ? size : (size_t)(zero - data);
    /* The name stands for the pattern of a tiktoken file. */
    const char *name = names[size > 0 ? data[size - 1] % NAMES : 0];
    const char *text = zero == NULL ? "" : (const char *)zero + 1;
    const size_t text_length = zero == NULL ? 0 : size - length - 1;
    struct tokenizer theirs;
    bool same;

    if (ours.json == NULL) make_ours();
    try_text(&ours, text, text_length, &same);
    CHECK(same);
    ours_bytes = arena_bytes_out(); /* its caches grow once */
    if (tokenizer_read_text(&theirs, (const char *)data, length, name) == OK)
        try_text(&theirs, text, text_length, &same);
    status_clear();
    tokenizer_free(&theirs);
    CHECK(arena_bytes_out() == ours_bytes);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "model", "type", "BPE", "Unigram", "WordPiece", "vocab", "merges", "unk_id",
    "unk_token", "byte_fallback", "ignore_merges", "normalizer", "Sequence",
    "normalizers", "pre_tokenizer", "pretokenizers", "Split", "Regex", "String",
    "pattern", "behavior", "Isolated", "Removed", "MergedWithPrevious",
    "invert", "ByteLevel", "add_prefix_space", "use_regex", "trim_offsets",
    "Metaspace", "replacement", "prepend_scheme", "always", "first", "never",
    "Digits", "individual_digits", "Punctuation", "NFC", "NFKC", "Replace",
    "Prepend", "Precompiled", "precompiled_charsmap", "decoder", "Fuse",
    "ByteFallback", "Strip", "start", "stop", "added_tokens", "id", "content",
    "special", "lstrip", "rstrip", "normalized", "single_word",
    "post_processor", "TemplateProcessing", "\\p{L}+", "(?!a)a*", "(a*)*b",
    "[^\\s]", "<0x00>", "\xE2\x96\x81", NULL};
static const struct grammar json = {json_grammar_read, json_grammar_write,
                                    words};
static const struct grammar sentencepiece = {proto_grammar_read,
                                             proto_grammar_write, NULL};
static const struct grammar ranks = {words_grammar_read, words_grammar_write,
                                     NULL};

/* A .model begins with field 1, its first piece. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    const struct grammar *first = size > 0 && data[0] == '{'    ? &json
                                  : size > 0 && data[0] == '\n' ? &sentencepiece
                                                                : &ranks;

    mutate_seed(seed);
    return mutate_two((const struct grammar *const[]){first, &ranks}, data,
                      size, room, true);
}
