/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - commands between text and ids: tokenize. */
#include <string.h>
#include "base/file.h"
#include "base/json.h"
#include "cli/run.h"
#include "cli/table.h"
#include "corpus/chat.h"
#include "corpus/shards.h"
#include "observe/progress.h"

enum { SHOWN_TOKENS = 24, SHOWN_BYTES = 40,
       SHARD_TOKENS = 100000000 /* 200 MB with a vocabulary up to 65,536 */ };

static const size_t text_bytes_max = (size_t)4 << 30;

/* The data of a tokenize command. */
struct tokenized {
    struct tokenizer tokenizer;
    struct text text;
    struct token_list list;
    struct token_places places; /* with --offsets */
    bool offsets;
    struct threads *threads;
};

static void tokenized_free(struct tokenized *work)
{
    token_list_free(&work->list);
    token_places_free(&work->places);
    threads_free(work->threads);
    text_free(&work->text);
    tokenizer_free(&work->tokenizer);
}

/* One array on one line. */
static status print_ids(const struct token_list *list)
{
    struct json_writer writer = {0};

    json_write_begin(&writer, 0);
    json_write_array(&writer);
    for (int64_t i = 0; i < list->count; i++)
        json_write_integer(&writer, list->ids[i]);
    json_write_array_end(&writer);
    return json_print(&writer, stdout);
}

static void write_range(struct json_writer *writer, const char *key,
                        struct token_range range)
{
    json_write_key(writer, key);
    json_write_array(writer);
    json_write_integer(writer, range.start);
    json_write_integer(writer, range.stop);
    json_write_array_end(writer);
}

/* Each token on a line, with its place. */
static status print_places(const struct tokenized *work)
{
    for (int64_t i = 0; i < work->list.count; i++) {
        const int32_t id = work->list.ids[i];
        struct json_writer writer = {0};

        json_write_begin(&writer, 0);
        json_write_object(&writer);
        json_write_key_integer(&writer, "id", id);
        json_write_key(&writer, "token");
        json_write_string_n(&writer, work->tokenizer.names[id],
                            (size_t)work->tokenizer.name_lengths[id]);
        write_range(&writer, "bytes", work->places.items[i].bytes);
        write_range(&writer, "characters", work->places.items[i].characters);
        json_write_object_end(&writer);
        TRY(json_print(&writer, stdout));
    }
    return OK;
}

/* The bytes of a token as a person can read them: line ends and bytes that
 * are no text by their code. */
static void readable(char out[4 * SHOWN_BYTES + 8], const unsigned char *bytes,
                     size_t length)
{
    const size_t shown = length < SHOWN_BYTES ? length : SHOWN_BYTES;
    size_t bad, at = 0;
    const bool text = !text_utf8_invalid((const char *)bytes, shown, &bad);

    for (size_t i = 0; i < shown; i++) {
        const unsigned char byte = bytes[i];

        if (byte == '\n')
            at += (size_t)snprintf(out + at, 5, "\\n");
        else if (byte < ' ' || byte == 0x7F || (byte >= 0x80 && !text))
            at += (size_t)snprintf(out + at, 5, "\\x%02x", byte);
        else
            out[at++] = (char)byte;
    }
    if (shown < length) at += (size_t)snprintf(out + at, 4, "...");
    out[at] = '\0';
}

static void table_range(struct table *table, struct token_range range)
{
    table_integer(table, range.start);
    table_integer(table, range.stop);
}

static void table_tokens(struct table *table, const struct tokenized *work)
{
    static const char *const kinds[] = {"missing", "learned", "added",
                                        "special"};
    const int64_t count =
        work->list.count < SHOWN_TOKENS ? work->list.count : SHOWN_TOKENS;

    for (int64_t i = 0; i < count; i++) {
        const int32_t id = work->list.ids[i];
        char shown[4 * SHOWN_BYTES + 8];
        size_t length;
        const unsigned char *bytes =
            tokenizer_bytes(&work->tokenizer, id, &length);

        readable(shown, bytes, length);
        table_integer(table, i);
        table_integer(table, id);
        table_text(table, kinds[tokenizer_kind(&work->tokenizer, id)]);
        if (work->offsets) {
            table_range(table, work->places.items[i].bytes);
            table_range(table, work->places.items[i].characters);
        }
        table_text(table, shown);
    }
}

static double bytes_per_token(const struct tokenized *work)
{
    return work->list.count > 0
               ? (double)work->text.length / (double)work->list.count
               : 0;
}

static status print_summary_json(const struct tokenized *work,
                                 const struct table *table)
{
    struct json_writer writer = {0};
    status result;

    json_write_begin(&writer, 2);
    json_write_object(&writer);
    json_write_key(&writer, "tokens");
    json_write_integer(&writer, work->list.count);
    json_write_key(&writer, "bytes");
    json_write_integer(&writer, (int64_t)work->text.length);
    json_write_key(&writer, "bytes_per_token");
    json_write_real(&writer, bytes_per_token(work));
    json_write_key(&writer, "vocab");
    json_write_integer(&writer, tokenizer_vocab(&work->tokenizer));
    json_write_key(&writer, "first");
    TRY_GOTO(done, result, table_json(table, &writer));
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

static status print_summary(const struct tokenized *work, bool json)
{
    static const struct table_column columns[] = {
        {"place", "place", true}, {"id", "id", true}, {"kind", "kind", false},
        {"text", "text", false}};
    static const struct table_column with_offsets[] = {
        {"place", "place", true}, {"id", "id", true}, {"kind", "kind", false},
        {"byte", "byte_start", true}, {"to", "byte_stop", true},
        {"character", "character_start", true}, {"to", "character_stop", true},
        {"text", "text", false}};
    char tokens[32], bytes[32];
    struct table table;
    status result;

    table_begin(&table, work->offsets ? with_offsets : columns,
                work->offsets ? 8 : 4);
    table_tokens(&table, work);
    if (json) {
        TRY_GOTO(done, result, print_summary_json(work, &table));
        goto done;
    }
    TRY_GOTO(done, result, table_print(&table, stdout));
    if (work->list.count > SHOWN_TOKENS) printf("...\n");
    printf("%s tokens for %s, %.2f bytes each; --ids prints all\n",
           text_count(tokens, work->list.count),
           text_bytes(bytes, work->text.length), bytes_per_token(work));
done:
    table_free(&table);
    return result;
}

/* ---- to files ---- */

static status shards_ask(struct shards_request *request,
                         struct tokenized *work, struct arguments *arguments,
                         const char *out)
{
    struct data_request *data = &request->data;
    const bool one = text_ends_with(out, ".tokens");
    int64_t count = 0;

    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &count));
    TRY(arguments_integer(arguments, "shard-tokens", 1, INT64_MAX,
                          &request->tokens));
    if (one && request->tokens > 0)
        FAIL(ERR_USAGE, "--out %s is one file; --shard-tokens needs a "
             "directory", out);
    if (one) TRY(file_may_replace(out));
    if (one) request->file = out;
    else if (request->tokens == 0) request->tokens = SHARD_TOKENS;
    TRY(arguments_real(arguments, "fim-rate", 0, 1, &data->fill_in.rate));
    if (data->fill_in.rate > 0)
        TRY(fill_in_tokens(&data->fill_in, &work->tokenizer, NULL, 0));
    data->sources = arguments->operands + 1;
    data->source_count = arguments->operand_count - 1;
    data->format.field = arguments_text(arguments, "field", "text");
    TRY(arguments_integer(arguments, "document-bytes", DOCUMENT_BYTES_LEAST,
                          DOCUMENT_BYTES_MOST, &data->format.document_bytes));
    if (arguments_has(arguments, "chat")) {
        TRY(chat_find(arguments_text(arguments, "chat", ""),
                      &data->format.chat));
        TRY(chat_check(data->format.chat, &work->tokenizer));
    }
    data->tokenizer = &work->tokenizer;
    data->end_of_text = "";
    data->cache = out;
    TRY(threads_build(&work->threads, (int)count));
    data->threads = work->threads;
    return OK;
}

static void print_shards(const struct shards_result *result, const char *out)
{
    char tokens[32], documents[32], bytes[32];

    fprintf(stderr, "%s tokens in %s: %s document%s, %s of text",
            text_count(tokens, result->tokens), out,
            text_count(documents, result->documents),
            result->documents == 1 ? "" : "s",
            text_bytes(bytes, (uint64_t)result->text_bytes));
    if (result->shards > 1)
        fprintf(stderr, ", %lld shards", (long long)result->shards);
    if (result->found > 0)
        fprintf(stderr, ", %lld of them found", (long long)result->found);
    fprintf(stderr, "\n");
}

static status print_shards_json(const struct shards_result *result,
                                const char *out)
{
    struct json_writer w = {0};

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_text(&w, "out", out);
    json_write_key_integer(&w, "tokens", result->tokens);
    json_write_key_integer(&w, "documents", result->documents);
    json_write_key_integer(&w, "text_bytes", result->text_bytes);
    json_write_key_integer(&w, "shards", result->shards);
    json_write_key_integer(&w, "shards_found", result->found);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

/* Documents of the files as token files. */
static status write_shards(struct tokenized *work,
                           struct arguments *arguments, const char *out)
{
    struct progress progress;
    struct shards_request request = {
        .data = {.progress = progress_show, .argument = &progress,
                 .fill_in = {.suffix_first = 0.5, .seed = 1}}};
    struct shards_result result;

    TRY(shards_ask(&request, work, arguments, out));
    progress_begin_bytes(&progress, "tokenize");
    const status code = shards_write(&request, &result);

    progress_end(&progress);
    TRY(code);
    if (arguments_has(arguments, "json"))
        return print_shards_json(&result, out);
    print_shards(&result, out);
    return OK;
}

static status encode(struct tokenized *work, const char *path, bool special)
{
    status result;

    TRY(file_read(path, text_bytes_max, &work->text));
    result = work->offsets
                 ? tokenizer_encode_places(&work->tokenizer, work->text.bytes,
                                           work->text.length, special,
                                           &work->list, &work->places)
                 : tokenizer_encode(&work->tokenizer, work->text.bytes,
                                    work->text.length, special, &work->list);
    if (result != OK) FAIL(result, "%s: %s", path, status_message());
    return OK;
}

/* --ids and --offsets may be combined; --out excludes both, and only there are
 * documents, to which the others belong. */
static status check_flags(const struct arguments *arguments, const char *out)
{
    static const char *const of_documents[] = {
        "shard-tokens", "field", "document-bytes", "chat", "fim-rate"};

    for (size_t i = 0; i < sizeof of_documents / sizeof *of_documents; i++)
        if (out == NULL && arguments_has(arguments, of_documents[i]))
            FAIL(ERR_USAGE, "--%s is about the documents that --out writes; "
                            "without --out the file is one text",
                 of_documents[i]);
    if (arguments_has(arguments, "ids") && out != NULL)
        FAIL(ERR_USAGE, "--ids prints and --out writes; give one of them");
    if (arguments_has(arguments, "offsets") && out != NULL)
        FAIL(ERR_USAGE, "--offsets prints and --out writes; give one of them");
    if (out == NULL && arguments->operand_count > 2)
        FAIL(ERR_USAGE, "%d files; without --out only one is read",
             arguments->operand_count - 1);
    return OK;
}

status command_tokenize(struct arguments *arguments)
{
    const char *out = arguments_text(arguments, "out", NULL);
    const bool ids = arguments_has(arguments, "ids");
    struct tokenized work = {.offsets = arguments_has(arguments, "offsets")};
    status result;

    TRY(check_flags(arguments, out));
    TRY_GOTO(done, result,
             tokenizer_read(&work.tokenizer, arguments->operands[0]));
    if (out != NULL) {
        TRY_GOTO(done, result, write_shards(&work, arguments, out));
        goto done;
    }
    TRY_GOTO(done, result, encode(&work, arguments->operands[1],
                                  !arguments_has(arguments, "no-special")));
    if (ids && work.offsets)
        TRY_GOTO(done, result, print_places(&work));
    else if (ids)
        TRY_GOTO(done, result, print_ids(&work.list));
    else
        TRY_GOTO(done, result,
                 print_summary(&work, arguments_has(arguments, "json")));
done:
    tokenized_free(&work);
    return result;
}
