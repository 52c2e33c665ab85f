/* SPDX-License-Identifier: Apache-2.0 */
/* data_verify.c - reads files of data to the end: data verify. */
#include <string.h>

#include "base/json.h"
#include "cli/config.h"
#include "cli/run.h"
#include "cli/table.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/recipe.h"
#include "data/token_file.h"

struct checking {
    struct options_set set;   /* of a configuration */
    struct recipe recipe;
    struct table table;
    struct corpus_format format;
    bool accept;
    int64_t documents, tokens; /* of the file being read */
    int files, damaged;
};

static status count_document(void *context,
                             const struct corpus_document *document)
{
    struct checking *check = context;

    check->documents++;
    check->tokens += document->id_count;
    return OK;
}

static status check_tokens(struct checking *check, struct token_file *file,
                           const char *path, uint32_t *crc)
{
    TRY(token_file_open(file, path));
    TRY(token_file_verify(file));
    *crc = file->crc;
    check->documents = file->documents;
    check->tokens = file->count;
    if (!check->accept) TRY(token_file_compare(file, NULL));
    return token_file_seal(file, NULL);
}

static status check_text(struct checking *check,
                         const struct corpus_file *file, uint32_t *crc)
{
    struct file_map map;

    TRY(corpus_read(file, &check->format, count_document, check, NULL));
    TRY(file_map_open(&map, file->path));
    *crc = crc32c(0, map.bytes, map.length);
    file_map_close(&map);
    return OK;
}

static void check_file(struct checking *check, const struct corpus_file *file)
{
    static const char *const kinds[] = {"text", "json lines", "parquet",
                                        "tokens"};
    struct token_file tokens = {0};
    char digest[16] = "-";
    uint32_t crc = 0;
    status result;

    check->documents = check->tokens = 0;
    result = file->kind == CORPUS_TOKENS
                 ? check_tokens(check, &tokens, file->path, &crc)
                 : check_text(check, file, &crc);
    token_file_close(&tokens);
    check->files++;
    check->damaged += result != OK;
    if (result == OK) snprintf(digest, sizeof digest, "%08x", crc);
    table_text(&check->table, file->path);
    table_text(&check->table, kinds[file->kind]);
    table_bytes(&check->table, file->bytes);
    table_integer(&check->table, check->documents);
    table_integer(&check->table, check->tokens);
    table_text(&check->table, digest);
    table_text(&check->table, result == OK ? "whole" : status_message());
    status_clear();
}

static status check_sources(struct checking *check, const char *const *sources,
                            int count)
{
    struct corpus corpus;
    status result;

    if (count == 0) return OK;
    TRY_GOTO(done, result, corpus_open(&corpus, sources, count));
    for (int i = 0; i < corpus.count; i++)
        check_file(check, &corpus.files[i]);
done:
    corpus_close(&corpus);
    return result;
}

/* What a configuration names. */
static status check_config(struct checking *check,
                           struct arguments *arguments)
{
    const struct options *o = &check->set.values;

    TRY(config_read(&check->set, arguments->operands[0], arguments));
    check->format.field = o->data.field;
    if (o->data.chat[0] != '\0')
        TRY(chat_find(o->data.chat, &check->format.chat));
    if (o->data.mixture.count > 0)
        TRY(recipe_read(&check->recipe, o->data.mixture.items,
                        o->data.mixture.count, o->data.phases.items,
                        o->data.phases.count));
    for (int i = 0; i < check->recipe.count; i++)
        TRY(check_sources(check, check->recipe.sources[i].paths,
                          check->recipe.sources[i].path_count));
    TRY(check_sources(check, o->data.train.items, o->data.train.count));
    return check_sources(check, o->data.valid.items, o->data.valid.count);
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
    if (arguments_has(arguments, "chat"))
        TRY_GOTO(done, result, chat_find(arguments_text(arguments, "chat", ""),
                                         &check.format.chat));
    if (arguments->operand_count == 1 && is_config(arguments->operands[0]))
        TRY_GOTO(done, result, check_config(&check, arguments));
    else
        TRY_GOTO(done, result, check_sources(&check, arguments->operands,
                                             arguments->operand_count));
    TRY_GOTO(done, result,
             print_table(&check, arguments_has(arguments, "json")));
    if (check.damaged > 0)
        FAIL_GOTO(done, result, ERR_FORMAT, "%d of %d files are not what they "
                  "should be; the table says why", check.damaged,
                  check.files);
done:
    table_free(&check.table);
    recipe_free(&check.recipe);
    options_free(&check.set);
    return result;
}
