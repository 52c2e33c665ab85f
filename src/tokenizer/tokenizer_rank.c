/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_rank.c - files that list tokens by rank: tiktoken's, and Mistral's
 * tekken.json.
 *
 * A rank is both the id and the order of merges: two neighbours become the
 * token that has the bytes of both, the one of smallest rank first; a word
 * that is a token is taken whole. A .tiktoken file holds nothing else, so its
 * pattern and special tokens are looked up: by the name of the encoding in the
 * file's name, else by how many ranks there are. */
#include <stdlib.h>
#include <string.h>
#include "tokenizer/base64.h"
#include "tokenizer/component.h"
#include "tokenizer/tokenizer_build.h"

enum { TEKKEN_SPECIAL_MAX = 1 << 16 };

struct special { const char *name; int32_t id; };

/* Special tokens with a number in their name. */
struct numbered { const char *before; int32_t first, id, count; };

struct encoding {
    const char *name, *file_name;
    const char *scanner;
    int64_t ranks; /* of the published file */
    struct special specials[16];
    struct numbered numbered;
};

static const struct encoding encodings[] = {
    {"r50k_base", "r50k_base.tiktoken", "r50k_base", 50256,
     {{"<|endoftext|>", 50256}}, {0}},
    {"p50k_base", "p50k_base.tiktoken", "r50k_base", 50280,
     {{"<|endoftext|>", 50256}}, {0}},
    {"cl100k_base", "cl100k_base.tiktoken", "cl100k_base", 100256,
     {{"<|endoftext|>", 100257}, {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259}, {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}, {0}},
    {"o200k_base", "o200k_base.tiktoken", "o200k_base", 199998,
     {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}, {0}},
    {"llama3", "llama3.tiktoken", "cl100k_base", 128000,
     {{"<|begin_of_text|>", 128000}, {"<|end_of_text|>", 128001},
      {"<|reserved_special_token_0|>", 128002},
      {"<|reserved_special_token_1|>", 128003},
      {"<|finetune_right_pad_id|>", 128004},
      {"<|reserved_special_token_2|>", 128005},
      {"<|start_header_id|>", 128006}, {"<|end_header_id|>", 128007},
      {"<|eom_id|>", 128008}, {"<|eot_id|>", 128009},
      {"<|python_tag|>", 128010}},
     {"<|reserved_special_token_", 3, 128011, 245}},
    {"qwen", "qwen.tiktoken", "qwen", 151643,
     {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644},
      {"<|im_end|>", 151645}}, {"<|extra_", 0, 151646, 205}},
};

/* Tokens while they are read: names in the byte alphabet, behind each other
 * in `names`. */
struct ranks {
    const char *source;
    struct byte_level alphabet;
    struct text names, bytes;  /* owned */
    size_t *starts;            /* owned [count + 1] */
    int32_t *ids;              /* owned [count] */
    int64_t count, capacity;
};

static void ranks_free(struct ranks *ranks)
{
    text_free(&ranks->names);
    text_free(&ranks->bytes);
    memory_free(ranks->starts);
    memory_free(ranks->ids);
}

static status ranks_grow(struct ranks *ranks)
{
    const int64_t capacity = ranks->capacity * 2 + 1024;
    void *starts = ranks->starts, *ids = ranks->ids;

    TRY(memory_grow(&starts, (size_t)capacity + 1, sizeof *ranks->starts));
    ranks->starts = starts;
    TRY(memory_grow(&ids, (size_t)capacity, sizeof *ranks->ids));
    ranks->ids = ids;
    ranks->capacity = capacity;
    return OK;
}

/* A token in base64. */
static status ranks_add(struct ranks *ranks, const char *token, size_t length,
                        int64_t rank)
{
    char written[2];

    if (rank < 0 || rank >= TOKENIZER_VOCAB_MAX)
        FAIL(ERR_FORMAT, "%s: rank %lld is outside 0 to %d", ranks->source,
             (long long)rank, TOKENIZER_VOCAB_MAX - 1);
    if (ranks->count == ranks->capacity) TRY(ranks_grow(ranks));
    ranks->bytes.length = 0;
    TRY(base64_read(&ranks->bytes, token, length, ranks->source));
    if (ranks->bytes.length == 0)
        FAIL(ERR_FORMAT, "%s: the token of rank %lld is empty", ranks->source,
             (long long)rank);
    ranks->starts[ranks->count] = ranks->names.length;
    for (size_t i = 0; i < ranks->bytes.length; i++)
        TRY(text_append(&ranks->names, written,
                        byte_level_write(
                            &ranks->alphabet,
                            (const unsigned char *)ranks->bytes.bytes + i, 1,
                            written)));
    ranks->ids[ranks->count++] = (int32_t)rank;
    ranks->starts[ranks->count] = ranks->names.length;
    return OK;
}

/* Vocabulary and merges; the rank of a token is `shift` less than its id. */
static status ranks_build(struct tokenizer *tokenizer,
                          const struct ranks *ranks, int32_t shift)
{
    struct vocab_entry *entries;
    void *memory = NULL, *second = NULL;
    int32_t *order;
    status result;

    tokenizer->model = MODEL_BYTES;
    tokenizer->ignore_merges = true;
    tokenizer->unknown = -1;
    TRY_GOTO(done, result, memory_take((size_t)ranks->count + 1,
                                       sizeof *entries, &memory));
    entries = memory;
    for (int64_t i = 0; i < ranks->count; i++)
        entries[i] = (struct vocab_entry){
            .name = ranks->names.bytes + ranks->starts[i],
            .length = ranks->starts[i + 1] - ranks->starts[i],
            .id = ranks->ids[i] + shift,
            .kind = TOKEN_LEARNED,
            .spelled = true};
    TRY_GOTO(done, result,
             tokenizer_build_vocab(tokenizer, entries, ranks->count));
    for (int i = 0; i < 256; i++)
        if (tokenizer->byte_ids[i] < 0)
            FAIL_GOTO(done, result, ERR_FORMAT, "%s: no token is the byte "
                      "0x%02x", ranks->source, (unsigned)i);
    TRY_GOTO(done, result, memory_take((size_t)tokenizer->vocab,
                                       sizeof *order, &second));
    order = second;
    for (int64_t i = 0; i < tokenizer->vocab; i++) order[i] = -1;
    for (int64_t i = 0; i < ranks->count; i++)
        order[ranks->ids[i] + shift] = ranks->ids[i];
    TRY_GOTO(done, result, tokenizer_derive_merges(tokenizer, order));
done:
    memory_free(memory);
    memory_free(second);
    return result;
}

/* One scanner, and bytes behind it. */
static void set_scanner(struct tokenizer *tokenizer, scan_piece *scan)
{
    tokenizer->pretokenizer =
        (struct pretokenizer){.steps = {{.scan = scan}}, .count = 1,
                              .plain = true, .byte_level = true};
}

static status add_special(struct tokenizer *tokenizer,
                          struct added_token *token, const char *name,
                          int32_t id)
{
    char *copy;

    TRY(arena_copy_text(&tokenizer->arena, name, &copy));
    *token = (struct added_token){.content = copy, .length = strlen(copy),
                                  .id = id, .special = true};
    tokenizer->added_count++;
    return OK;
}

static status add_specials(struct tokenizer *tokenizer,
                           const struct encoding *encoding)
{
    const struct numbered *numbered = &encoding->numbered;
    struct added_token *tokens;
    void *memory;

    TRY(arena_take_array(&tokenizer->arena, 16 + (size_t)numbered->count,
                         sizeof *tokens, &memory));
    tokenizer->added = tokens = memory;
    for (int i = 0; i < 16 && encoding->specials[i].name != NULL; i++)
        TRY(add_special(tokenizer, &tokens[tokenizer->added_count],
                        encoding->specials[i].name, encoding->specials[i].id));
    for (int32_t i = 0; i < numbered->count; i++) {
        char name[64];

        snprintf(name, sizeof name, "%s%d|>", numbered->before,
                 numbered->first + i);
        TRY(add_special(tokenizer, &tokens[tokenizer->added_count], name,
                        numbered->id + i));
    }
    return OK;
}

/* By name, else by the number of ranks. */
static const struct encoding *find_encoding(const char *path, int64_t ranks)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    const size_t count = sizeof encodings / sizeof *encodings;

    for (size_t i = 0; i < count; i++)
        if (strstr(file, encodings[i].name) != NULL) return &encodings[i];
    for (size_t i = 0; i < count; i++)
        if (encodings[i].ranks == ranks) return &encodings[i];
    return NULL;
}

/* "IQ== 0\n": a token and its rank. */
static status read_line(struct ranks *ranks, const char *line, size_t length)
{
    const char *space = memchr(line, ' ', length);
    int64_t rank = 0;

    if (space == NULL || space + 1 == line + length ||
        (ranks->count == 0 && space[1] > '9'))
        FAIL(ERR_FORMAT, "%s: line %lld is not a token in base64, a space and "
             "its rank%s", ranks->source, (long long)ranks->count + 1,
             ranks->count > 0 ? "" : "; a tokenizer is a tokenizer.json, a "
             ".model of SentencePiece, a .tiktoken or a tekken.json");
    for (const char *at = space + 1; at < line + length; at++) {
        if (*at < '0' || *at > '9' || rank >= TOKENIZER_VOCAB_MAX)
            FAIL(ERR_FORMAT, "%s: line %lld: the rank is not a whole number "
                 "below %d", ranks->source, (long long)ranks->count + 1,
                 TOKENIZER_VOCAB_MAX);
        rank = rank * 10 + (*at - '0');
    }
    return ranks_add(ranks, line, (size_t)(space - line), rank);
}

static status read_lines(struct ranks *ranks, const char *text, size_t length)
{
    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        const size_t line = end == NULL ? length : (size_t)(end - text);
        const size_t step = end == NULL ? length : line + 1;

        if (line > 0) TRY(read_line(ranks, text, line));
        text += step;
        length -= step;
    }
    return OK;
}

status tokenizer_read_ranks(struct tokenizer *tokenizer)
{
    struct ranks ranks = {.source = tokenizer->source};
    const struct encoding *encoding;
    status result;

    byte_level_init(&ranks.alphabet);
    TRY_GOTO(done, result,
             read_lines(&ranks, tokenizer->json, tokenizer->json_length));
    encoding = find_encoding(tokenizer->source, ranks.count);
    if (encoding == NULL)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: a tiktoken file of %lld ranks "
                  "with an unknown pattern; known are r50k_base, p50k_base, "
                  "cl100k_base, o200k_base, llama3 and qwen: put that name "
                  "into the file's name",
                  tokenizer->source, (long long)ranks.count);
    tokenizer->file_name = encoding->file_name;
    set_scanner(tokenizer, scan_named(encoding->scanner));
    if (ranks.count == encoding->ranks) /* else their ids are not known */
        TRY_GOTO(done, result, add_specials(tokenizer, encoding));
    TRY_GOTO(done, result, ranks_build(tokenizer, &ranks, 0));
    TRY_GOTO(done, result, tokenizer_build_matchers(tokenizer));
done:
    ranks_free(&ranks);
    return result;
}

/* tekken.json: ids below `specials` are special tokens, named in a list or,
 * in the first versions, by this one. They are never looked for in text. */
static status read_tekken_specials(struct tokenizer *tokenizer,
                                   const struct json *list, int64_t specials)
{
    static const char *const first[] = {
        "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
        "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]",
        "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"};
    struct added_token *tokens;
    void *memory;
    int64_t named = sizeof first / sizeof *first;

    if (list != NULL && list->kind == JSON_ARRAY) named = list->count;
    if (named > specials)
        FAIL(ERR_FORMAT, "%s: %lld special tokens, but config has room for "
             "%lld", tokenizer->source, (long long)named,
             (long long)specials);
    TRY(arena_take_array(&tokenizer->arena, (size_t)specials + 1,
                         sizeof *tokens, &memory));
    tokenizer->added = tokens = memory;
    for (int32_t i = 0; i < specials; i++) {
        char name[32];
        const char *content = name;
        int64_t rank = i;

        snprintf(name, sizeof name, "<SPECIAL_%d>", i);
        if (i < named && list != NULL && list->kind == JSON_ARRAY) {
            TRY(json_get_string(&list->items[i], tokenizer->source,
                                "token_str", &content));
            TRY(json_get_integer(&list->items[i], tokenizer->source, "rank",
                                 &rank));
        } else if (i < named) {
            content = first[i];
        }
        if (rank != i)
            FAIL(ERR_FORMAT, "%s: special token %d has rank %lld",
                 tokenizer->source, i, (long long)rank);
        TRY(add_special(tokenizer, &tokens[i], content, i));
    }
    return OK;
}

static status read_tekken_vocab(struct ranks *ranks, const struct json *list,
                                int64_t wanted)
{
    if (list == NULL || list->kind != JSON_ARRAY || list->count < wanted)
        FAIL(ERR_FORMAT, "%s: `vocab` is not a list of at least %lld tokens",
             ranks->source, (long long)wanted);
    for (int64_t i = 0; i < wanted; i++) {
        const char *token;
        int64_t rank;

        TRY(json_get_integer(&list->items[i], ranks->source, "rank", &rank));
        TRY(json_get_string(&list->items[i], ranks->source, "token_bytes",
                            &token));
        if (rank != i)
            FAIL(ERR_FORMAT, "%s: token %lld of `vocab` has rank %lld",
                 ranks->source, (long long)i, (long long)rank);
        TRY(ranks_add(ranks, token, strlen(token), rank));
    }
    return OK;
}

static status check_tekken(const struct component *in,
                           const struct json *root, const struct json *config)
{
    struct component part = *in;

    TRY(component_fields(in, root, "config vocab special_tokens version type "
                         "image audio multimodal model_settings_builder"));
    part.part = "config";
    return component_fields(&part, config, "pattern num_vocab_tokens "
                            "default_vocab_size default_num_special_tokens "
                            "version");
}

status tokenizer_read_tekken(struct tokenizer *tokenizer,
                             const struct json *root)
{
    const struct component in = {tokenizer->source, "tekken.json",
                                 &tokenizer->arena};
    const struct json *config = json_get(root, "config");
    struct ranks ranks = {.source = tokenizer->source};
    const char *pattern, *source = tokenizer->source;
    int64_t vocab, specials;
    status result;

    TRY(check_tekken(&in, root, config));
    TRY(json_get_string(config, source, "pattern", &pattern));
    TRY(json_get_integer(config, source, "default_vocab_size", &vocab));
    TRY(json_get_integer(config, source, "default_num_special_tokens",
                         &specials));
    if (specials < 0 || specials > TEKKEN_SPECIAL_MAX || vocab < specials ||
        vocab > TOKENIZER_VOCAB_MAX)
        FAIL(ERR_FORMAT, "%s: a vocabulary of %lld with %lld special tokens",
             source, (long long)vocab, (long long)specials);
    if (scan_find(pattern) == NULL)
        FAIL(ERR_FORMAT, "%s: the pattern %s is not one of the known ones",
             source, pattern);
    set_scanner(tokenizer, scan_find(pattern));
    tokenizer->file_name = "tekken.json";
    byte_level_init(&ranks.alphabet);
    TRY_GOTO(done, result,
             read_tekken_specials(tokenizer, json_get(root, "special_tokens"),
                                  specials));
    TRY_GOTO(done, result, read_tekken_vocab(&ranks, json_get(root, "vocab"),
                                             vocab - specials));
    TRY_GOTO(done, result, ranks_build(tokenizer, &ranks, (int32_t)specials));
done:
    ranks_free(&ranks);
    return result;
}
