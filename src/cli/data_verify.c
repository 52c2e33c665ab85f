/* SPDX-License-Identifier: Apache-2.0 */
/* data_verify.c - reads files of data to the end: data verify. */
#include <string.h>

#include "base/json.h"
#include "cli/config.h"
#include "cli/run.h"
#include "cli/table.h"
#include "corpus/chat.h"
#include "corpus/corpus.h"
#include "data/cache_files.h"
#include "data/mixture_rows.h"
#include "data/named_rows.h"
#include "data/token_file.h"
#include "data/token_pages.h"
#include "observe/progress.h"
#include "setup/setup.h"
#include "tokenizer/run_tokenizer.h"

enum { VOCAB_MAX = INT32_MAX };

struct checking {
    struct options_set set;   /* of a configuration */
    struct mixture_rows mixture;
    struct named_rows named;  /* validation sets */
    struct setup setup;       /* of a configuration */
    struct run_tokenizer own; /* its tokenizer */
    struct tokenizer tokenizer; /* --tokenizer */
    const char *digest;       /* of the tokenizer; NULL: not known */
    int64_t vocab;            /* of the model; 0: not known */
    struct table table;
    struct corpus_format format;
    bool accept;
    struct progress progress;
    int64_t read;             /* bytes of the file being read */
    struct kept found;        /* of that file */
    int files, damaged;
};

static status count_document(void *context,
                             const struct corpus_document *document)
{
    struct checking *check = context;

    for (int64_t i = 0; check->vocab > 0 && i < document->id_count; i++)
        if (document->ids[i] >= check->vocab)
            FAIL(ERR_CONFIG, "document %lld: id %lld is %d, outside the "
                 "model's vocabulary of %lld",
                 (long long)check->found.documents + 1, (long long)i,
                 document->ids[i], (long long)check->vocab);
    check->found.documents++;
    check->found.tokens += document->id_count;
    return OK;
}

static void count_bytes(void *argument, int64_t bytes)
{
    struct checking *check = argument;

    check->read += bytes;
    progress_count(&check->progress, (double)check->read,
                   (double)check->found.bytes);
}

/* A file may be whole, and none that the model can learn from. */
static status check_tokens(struct checking *check, struct token_file *file,
                           const char *path)
{
    status result;

    TRY(token_file_open(file, path));
    progress_begin_bytes(&check->progress, "read");
    check->read = 0;
    file->progress = count_bytes;
    file->argument = check;
    result = token_file_verify(file);
    progress_end(&check->progress);
    TRY(result);
    check->found.crc = file->crc;
    check->found.documents = file->documents;
    check->found.tokens = file->count;
    if (!check->accept) TRY(token_file_compare(file, NULL));
    TRY(token_file_fits(file, check->digest, check->vocab));
    TRY(token_file_seal(file, NULL));
    return token_pages_keep(file, NULL);
}

static status check_text(struct checking *check,
                         const struct corpus_file *file)
{
    struct file_map map;

    TRY(corpus_read(file, &check->format, count_document, check, NULL));
    TRY(file_map_open(&map, file->path));
    check->found.crc = crc32c(0, map.bytes, map.length);
    file_map_close(&map);
    return OK;
}

static void add_row(struct checking *check, const char *path,
                    const struct kept *file, status result)
{
    char digest[16] = "-";

    check->files++;
    check->damaged += result != OK;
    if (result == OK) snprintf(digest, sizeof digest, "%08x", file->crc);
    table_text(&check->table, path);
    table_text(&check->table, file->kind);
    table_bytes(&check->table, file->bytes);
    table_integer(&check->table, file->documents);
    table_integer(&check->table, file->tokens);
    table_text(&check->table, digest);
    table_text(&check->table, result == OK ? "whole" : status_message());
    status_clear();
}

static void check_file(struct checking *check, const struct corpus_file *file)
{
    static const char *const kinds[] = {"text", "json lines", "parquet",
                                        "tokens"};
    struct token_file tokens = {0};
    status result;

    check->found = (struct kept){.kind = kinds[file->kind],
                                 .bytes = file->bytes};
    result = file->kind == CORPUS_TOKENS
                 ? check_tokens(check, &tokens, file->path)
                 : check_text(check, file);
    token_file_close(&tokens);
    add_row(check, file->path, &check->found, result);
}

/* ---- what data.cache keeps ---- */

static void check_kept(struct checking *check, const char *path)
{
    struct kept kept;
    const status result = kept_verify(path, &kept);

    add_row(check, path, &kept, result);
}

/* A file of these, or a directory with nothing else. */
static bool is_kept(const char *path)
{
    struct corpus corpus;
    char **names = NULL;
    int count = 0;
    bool kept = false, data;

    if (!file_is_directory(path))
        return kept_kind(path) != NULL && file_exists(path);
    if (directory_list(path, &names, &count) == OK)
        for (int i = 0; i < count; i++)
            kept = kept || kept_kind(names[i]) != NULL;
    directory_list_free(names, count);
    data = corpus_open(&corpus, &path, 1) == OK;
    corpus_close(&corpus);
    status_clear();
    return kept && !data;
}

/* Reads the token files of a directory, which need not be there. */
static status check_directory(struct checking *check, const char *directory)
{
    char **names = NULL, path[PATH_BYTES];
    int count = 0;
    status result = OK;

    if (!file_is_directory(directory)) return OK;
    TRY(directory_list(directory, &names, &count));
    for (int i = 0; i < count && result == OK; i++) {
        if (kept_kind(names[i]) == NULL) continue;
        result = path_join(path, sizeof path, directory, names[i]);
        if (result == OK) check_kept(check, path);
    }
    directory_list_free(names, count);
    return result;
}

/* ---- what is asked for ---- */

static status check_sources(struct checking *check, const char *const *sources,
                            int count)
{
    const char *const field = check->format.field;
    struct corpus corpus = {0};
    status result;

    if (count == 0) return OK;
    TRY(corpus_field(&sources, &count, &check->format));
    TRY_GOTO(done, result, corpus_open(&corpus, sources, count));
    for (int i = 0; i < corpus.count; i++)
        check_file(check, &corpus.files[i]);
done:
    check->format.field = field;
    corpus_close(&corpus);
    return result;
}

/* The operands are data files first, then files derived from them; all must
 * exist before the first is read. */
static status check_paths(struct checking *check,
                          const struct arguments *arguments)
{
    const char **sources;
    int count = 0;
    void *memory;
    status result;

    TRY(memory_take((size_t)arguments->operand_count, sizeof *sources,
                    &memory));
    sources = memory;
    for (int i = 0; i < arguments->operand_count; i++)
        if (!is_kept(arguments->operands[i]))
            sources[count++] = arguments->operands[i];
    TRY_GOTO(done, result, check_sources(check, sources, count));
    for (int i = 0; i < arguments->operand_count; i++) {
        const char *path = arguments->operands[i];

        if (!file_is_directory(path) && is_kept(path)) check_kept(check, path);
        else TRY_GOTO(done, result, check_directory(check, path));
    }
done:
    memory_free(memory);
    return result;
}

/* The vocabulary is that of the model; where it cannot be told, data may be
 * whole all the same. */
static void find_vocab(struct checking *check)
{
    struct setup *setup = &check->setup;

    if (run_tokenizer_read(&check->own, &check->set.values) == OK &&
        setup_resolve(setup, &check->set, &check->own.vocabulary, 1, 0) ==
            OK) {
        check->vocab = setup->model.vocab;
        if (check->own.vocabulary.size > 0)
            check->digest = check->own.tokenizer.digest;
        return;
    }
    fprintf(stderr, "ids are not compared with a vocabulary: %s\n",
            status_message());
    status_clear();
}

static status check_named(struct checking *check)
{
    static const struct named_form form = {"validate.sets", "NAME PATH...", 1,
                                           INT32_MAX};
    const struct option_list *list = &check->set.values.validate.sets;

    TRY(named_read(&check->named, &form, list->items, list->count));
    for (int i = 0; i < check->named.count; i++)
        TRY(check_sources(check, check->named.items[i].words,
                          check->named.items[i].count));
    return OK;
}

/* Checks the files that a configuration names, and the files that its runs
 * derived from them. */
static status check_config(struct checking *check,
                           struct arguments *arguments)
{
    const struct options *o = &check->set.values;
    char cache[PATH_BYTES];

    TRY(config_read(&check->set, arguments->operands[0], arguments));
    if (check->vocab == 0 && check->digest == NULL) find_vocab(check);
    check->format.field = o->data.field;
    check->format.document_bytes = o->data.document_bytes;
    if (o->data.chat[0] != '\0')
        TRY(chat_find(o->data.chat, &check->format.chat));
    if (o->data.mixture.count > 0)
        TRY(mixture_rows_read(&check->mixture, o->data.mixture.items,
                              o->data.mixture.count, o->data.phases.items,
                              o->data.phases.count));
    for (int i = 0; i < check->mixture.count; i++)
        TRY(check_sources(check, check->mixture.sources[i].paths,
                          check->mixture.sources[i].path_count));
    TRY(check_sources(check, o->data.train.items, o->data.train.count));
    TRY(check_sources(check, o->data.valid.items, o->data.valid.count));
    TRY(check_named(check));
    if (o->data.cache[0] != '\0')
        return check_directory(check, o->data.cache);
    if (o->run.dir[0] == '\0') return OK;
    TRY(path_join(cache, sizeof cache, o->run.dir, "tokens"));
    return check_directory(check, cache);
}

static bool is_config(const char *path)
{
    char inside[PATH_BYTES];

    if (text_ends_with(path, ".yaml") || text_ends_with(path, ".yml"))
        return true;
    return path_join(inside, sizeof inside, path, "config.yaml") == OK &&
           file_exists(inside);
}

static status print_table(const struct checking *check, bool json)
{
    struct json_writer writer = {0};
    status result;

    if (!json) return table_print(&check->table, stdout);
    json_write_begin(&writer, 2);
    json_write_object(&writer);
    json_write_key(&writer, "files");
    TRY_GOTO(done, result, table_json(&check->table, &writer));
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

/* --vocab and --tokenizer. A tokenizer's own vocabulary is the least that a
 * model has. */
static status read_vocab(struct checking *check,
                         const struct arguments *arguments)
{
    TRY(arguments_integer(arguments, "vocab", 1, VOCAB_MAX, &check->vocab));
    if (!arguments_has(arguments, "tokenizer")) return OK;
    TRY(tokenizer_read(&check->tokenizer,
                       arguments_text(arguments, "tokenizer", "")));
    check->digest = check->tokenizer.digest;
    if (check->vocab == 0) check->vocab = tokenizer_vocab(&check->tokenizer);
    return OK;
}

status command_data_verify(struct arguments *arguments)
{
    static const struct table_column columns[] = {
        {"file", "file", false}, {"kind", "kind", false},
        {"size", "bytes", true}, {"documents", "documents", true},
        {"tokens", "tokens", true}, {"crc32c", "crc32c", false},
        {"state", "state", false}};
    struct checking check = {
        .format = {.field = arguments_text(arguments, "field", "text")},
        .accept = arguments_has(arguments, "accept")};
    status result;

    table_begin(&check.table, columns, 7);
    TRY_GOTO(done, result, read_vocab(&check, arguments));
    TRY_GOTO(done, result,
             arguments_integer(arguments, "document-bytes",
                               DOCUMENT_BYTES_LEAST, DOCUMENT_BYTES_MOST,
                               &check.format.document_bytes));
    if (arguments_has(arguments, "chat"))
        TRY_GOTO(done, result, chat_find(arguments_text(arguments, "chat", ""),
                                         &check.format.chat));
    if (arguments->operand_count == 1 && is_config(arguments->operands[0]))
        TRY_GOTO(done, result, check_config(&check, arguments));
    else
        TRY_GOTO(done, result, check_paths(&check, arguments));
    TRY_GOTO(done, result,
             print_table(&check, arguments_has(arguments, "json")));
    if (check.damaged > 0)
        FAIL_GOTO(done, result, ERR_FORMAT, "%d of %d files have faults; the "
                  "table lists them", check.damaged,
                  check.files);
done:
    table_free(&check.table);
    mixture_rows_free(&check.mixture);
    named_free(&check.named);
    setup_free(&check.setup);
    run_tokenizer_free(&check.own);
    tokenizer_free(&check.tokenizer);
    options_free(&check.set);
    return result;
}
