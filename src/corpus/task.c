/* SPDX-License-Identifier: Apache-2.0 */
/* task.c - questions whose answers a model's likelihoods give. */
#include "corpus/task.h"

#include <string.h>

#include "base/file.h"
#include "corpus/byte_source.h"
#include "corpus/corpus.h"
#include "corpus/task_clean.h"

const char *const task_kind_names[TASK_KINDS] = {
    "hellaswag", "arc", "lambada", "multiple_choice", "perplexity"};

enum { CHOICES_MAX = 1024 };

status task_kind_find(const char *where, const char *name,
                      enum task_kind *kind)
{
    const char *near = text_nearest(name, task_kind_names, TASK_KINDS);

    for (int i = 0; i < TASK_KINDS; i++) {
        if (strcmp(name, task_kind_names[i]) != 0) continue;
        *kind = (enum task_kind)i;
        return OK;
    }
    FAIL(ERR_CONFIG, "%s: '%s' is not a kind of task; there are hellaswag, "
                     "arc, lambada, multiple_choice and perplexity%s%s", where,
         name, near != NULL ? "; nearest: " : "", near != NULL ? near : "");
}

/* ---- items ---- */

static status keep(struct task *task, const char *bytes, size_t length,
                   struct task_text *out)
{
    void *copy;

    TRY(arena_take(&task->arena, length + 1, &copy));
    if (length > 0) memcpy(copy, bytes, length);
    *out = (struct task_text){copy, length};
    return OK;
}

static status new_item(struct task *task, int choices, struct task_item **out)
{
    void *memory;

    if (task->count == task->capacity) {
        const int64_t room = 2 * task->capacity + 64;
        void *grown = task->items;

        TRY(memory_grow(&grown, (size_t)room, sizeof *task->items));
        task->items = grown;
        task->capacity = room;
    }
    TRY(arena_take_array(&task->arena, (size_t)choices,
                         sizeof(struct task_text), &memory));
    *out = &task->items[task->count];
    **out = (struct task_item){.choices = memory, .choice_count = choices};
    TRY(keep(task, "", 0, &(*out)->context));
    return OK;
}

/* A string that must be there. */
static status get_text(const struct json *record, const char *source,
                       const char *key, const struct json **out)
{
    const char *unused;

    TRY(json_get_string(record, source, key, &unused));
    *out = json_get(record, key);
    return OK;
}

static status get_list(const struct json *record, const char *source,
                       const char *key, const struct json **out)
{
    *out = json_get(record, key);
    if (*out == NULL || (*out)->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: \"%s\" is not an array", source, key);
    if ((*out)->count < 1 || (*out)->count > CHOICES_MAX)
        FAIL(ERR_FORMAT, "%s: \"%s\" has %d items; expected 1 to %d", source,
             key, (*out)->count, CHOICES_MAX);
    return OK;
}

static status check_answer(const char *source, const char *key,
                           int64_t answer, int count)
{
    if (answer < 0 || answer >= count)
        FAIL(ERR_FORMAT, "%s: \"%s\" is %lld, but there are %d choices, from "
             "0 on", source, key, (long long)answer, count);
    return OK;
}

/* ---- records ---- */

/* 2, 2.0 or "2". */
static status read_label(const struct json *record, const char *source,
                         const char *key, int64_t *out)
{
    const struct json *label = json_get(record, key);

    if (label != NULL && label->kind == JSON_INTEGER) {
        *out = label->integer;
        return OK;
    }
    if (label != NULL && label->kind == JSON_STRING &&
        label->string_length > 0 && label->string_length < 6 &&
        strspn(label->string, "0123456789") == (size_t)label->string_length) {
        *out = 0;
        for (const char *c = label->string; *c != '\0'; c++)
            *out = 10 * *out + (*c - '0');
        return OK;
    }
    FAIL(ERR_FORMAT, "%s: \"%s\" is not a number of a choice", source, key);
}

/* activity_label + ": " + ctx_a + " " + ctx_b with a large first letter. */
static status hellaswag_context(struct text *out, const struct json *record,
                                const char *source)
{
    const struct json *label = json_get(record, "activity_label");
    const struct json *a, *b;

    if (label != NULL && label->kind == JSON_STRING) {
        TRY(text_append(out, label->string, (size_t)label->string_length));
        TRY(text_append(out, ": ", 2));
    }
    if (json_get(record, "ctx_a") == NULL) {
        TRY(get_text(record, source, "ctx", &a));
        return text_append(out, a->string, (size_t)a->string_length);
    }
    TRY(get_text(record, source, "ctx_a", &a));
    TRY(get_text(record, source, "ctx_b", &b));
    TRY(text_append(out, a->string, (size_t)a->string_length));
    TRY(text_append(out, " ", 1));
    return task_capitalize(out, b->string, (size_t)b->string_length);
}

static status keep_clean(struct task *task, const char *bytes, size_t length,
                         struct task_text *out)
{
    struct text clean = {0};
    status result;

    TRY_GOTO(done, result, task_clean(&clean, bytes, length));
    TRY_GOTO(done, result, keep(task, clean.bytes, clean.length, out));
done:
    text_free(&clean);
    return result;
}

static status add_hellaswag(struct task *task, const struct json *record,
                            const char *source)
{
    const struct json *endings;
    struct task_item *item;
    struct text context = {0};
    int64_t answer;
    status result;

    TRY(get_list(record, source, "endings", &endings));
    TRY(read_label(record, source, "label", &answer));
    TRY(check_answer(source, "label", answer, endings->count));
    TRY(new_item(task, endings->count, &item));
    item->answer = (int)answer;
    TRY_GOTO(done, result, hellaswag_context(&context, record, source));
    TRY_GOTO(done, result,
             keep_clean(task, context.bytes, context.length, &item->context));
    for (int i = 0; i < endings->count; i++) {
        const struct json *ending = &endings->items[i];

        if (ending->kind != JSON_STRING)
            FAIL_GOTO(done, result, ERR_FORMAT,
                      "%s: item %d of \"endings\" is not a text", source, i);
        TRY_GOTO(done, result,
                 keep_clean(task, ending->string,
                            (size_t)ending->string_length,
                            &item->choices[i]));
    }
done:
    text_free(&context);
    return result;
}

/* Choice `index` of either form of ARC. */
static status arc_choice(const struct json *list, const struct json *labels,
                         int index, const char *source,
                         const struct json *out[2])
{
    out[0] = &list->items[index];
    out[1] = labels != NULL ? &labels->items[index]
                            : json_get(&list->items[index], "label");
    if (labels == NULL) out[0] = json_get(&list->items[index], "text");
    if (out[0] == NULL || out[0]->kind != JSON_STRING || out[1] == NULL ||
        out[1]->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: choice %d has no text and label", source, index);
    return OK;
}

static status add_arc(struct task *task, const struct json *record,
                      const char *source)
{
    const struct json *question = json_get(record, "question");
    const struct json *choices = json_get(record, "choices");
    const struct json *list, *labels = NULL, *stem, *choice[2];
    struct text context = {0};
    struct task_item *item;
    const char *key;
    status result;

    TRY(json_get_string(record, source, "answerKey", &key));
    if (question != NULL && question->kind == JSON_OBJECT) {
        TRY(get_text(question, source, "stem", &stem));
        TRY(get_list(question, source, "choices", &list));
    } else {
        TRY(get_text(record, source, "question", &stem));
        TRY(get_list(choices, source, "text", &list));
        TRY(get_list(choices, source, "label", &labels));
        if (labels->count != list->count)
            FAIL(ERR_FORMAT, "%s: %d choices have %d labels", source,
                 list->count, labels->count);
    }
    TRY(new_item(task, list->count, &item));
    item->answer = -1;
    TRY_GOTO(done, result, text_append_string(&context, "Question: "));
    TRY_GOTO(done, result, text_append(&context, stem->string,
                                       (size_t)stem->string_length));
    TRY_GOTO(done, result, text_append_string(&context, "\nAnswer:"));
    TRY_GOTO(done, result,
             keep(task, context.bytes, context.length, &item->context));
    for (int i = 0; i < list->count; i++) {
        TRY_GOTO(done, result, arc_choice(list, labels, i, source, choice));
        TRY_GOTO(done, result, keep(task, choice[0]->string,
                                    (size_t)choice[0]->string_length,
                                    &item->choices[i]));
        if (item->answer < 0 && strcmp(choice[1]->string, key) == 0)
            item->answer = i;
    }
    if (item->answer < 0)
        FAIL_GOTO(done, result, ERR_FORMAT,
                  "%s: no choice has the label \"%s\" of \"answerKey\"",
                  source, key);
done:
    text_free(&context);
    return result;
}

/* The text after the last space is the answer; Python's text.split(' '). */
static status add_lambada(struct task *task, const struct json *record,
                          const char *source)
{
    const struct json *text;
    struct task_item *item;
    size_t at;

    TRY(get_text(record, source, "text", &text));
    at = (size_t)text->string_length;
    while (at > 0 && text->string[at - 1] != ' ') at--;
    if (at == 0)
        FAIL(ERR_FORMAT, "%s: \"text\" has no space, so there is no last word "
             "to ask for", source);
    TRY(new_item(task, 1, &item));
    TRY(keep(task, text->string, at - 1, &item->context));
    return keep(task, text->string + at, (size_t)text->string_length - at,
                &item->choices[0]);
}

/* A number, a choice, or the letter of one. */
static status read_answer(const struct json *record, const char *source,
                          const struct json *choices, int64_t *out)
{
    const struct json *answer = json_get(record, "answer");

    if (answer == NULL)
        FAIL(ERR_FORMAT, "%s: \"answer\" is missing", source);
    if (answer->kind != JSON_STRING)
        return read_label(record, source, "answer", out);
    for (int i = 0; i < choices->count; i++) {
        const struct json *choice = &choices->items[i];

        *out = i;
        if (choice->kind == JSON_STRING &&
            choice->string_length == answer->string_length &&
            memcmp(choice->string, answer->string,
                   (size_t)answer->string_length) == 0)
            return OK;
    }
    *out = answer->string[0] - 'A';
    if (answer->string_length == 1 && *out >= 0 && *out < choices->count)
        return OK;
    return read_label(record, source, "answer", out);
}

static status add_choice(struct task *task, const struct json *record,
                         const char *source)
{
    const struct json *context, *choices;
    struct task_item *item;
    int64_t answer;

    TRY(get_text(record, source, "context", &context));
    TRY(get_list(record, source, "choices", &choices));
    TRY(read_answer(record, source, choices, &answer));
    TRY(check_answer(source, "answer", answer, choices->count));
    TRY(new_item(task, choices->count, &item));
    item->answer = (int)answer;
    TRY(keep(task, context->string, (size_t)context->string_length,
             &item->context));
    for (int i = 0; i < choices->count; i++) {
        const struct json *choice = &choices->items[i];

        if (choice->kind != JSON_STRING)
            FAIL(ERR_FORMAT, "%s: item %d of \"choices\" is not a text", source,
                 i);
        TRY(keep(task, choice->string, (size_t)choice->string_length,
                 &item->choices[i]));
    }
    return OK;
}

static status add_record(struct task *task, const struct json *record,
                         const char *source)
{
    static status (*const adders[])(struct task *, const struct json *,
                                    const char *) = {
        [TASK_HELLASWAG] = add_hellaswag, [TASK_ARC] = add_arc,
        [TASK_LAMBADA] = add_lambada, [TASK_CHOICE] = add_choice};

    CHECK(task->kind != TASK_TEXT);
    if (record->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: expected an object", source);
    TRY(adders[task->kind](task, record, source));
    task->count++;
    return OK;
}

static bool guess(const struct json *record, enum task_kind *kind)
{
    if (json_get(record, "endings") != NULL)
        *kind = TASK_HELLASWAG;
    else if (json_get(record, "answerKey") != NULL)
        *kind = TASK_ARC;
    else if (json_get(record, "choices") != NULL &&
             json_get(record, "context") != NULL)
        *kind = TASK_CHOICE;
    else
        return false;
    return true;
}

/* ---- files ---- */

static bool is_blank(const struct text *line)
{
    return line->length == 0 ||
           strspn(line->bytes, " \t\r") == line->length;
}

/* The fields of all kinds: what else a line has costs no memory. */
static status read_record(struct arena *scratch, const struct text *line,
                          const char *source, const struct json **record)
{
    static const char *const keys[] = {
        "activity_label", "ctx", "ctx_a", "ctx_b", "endings", "label",
        "question", "choices", "answerKey", "text", "context", "answer"};
    const struct json_wanted wanted = {
        .keys = keys, .count = (int)(sizeof keys / sizeof *keys)};

    arena_reset(scratch);
    return json_read_record(record, scratch, line->bytes, line->length, source,
                            &wanted);
}

static status check_file(const char *path)
{
    if (!file_is_directory(path)) return OK;
    FAIL(ERR_CONFIG, "%s: is a directory; a task is a file of items, one JSON "
         "object a line (.jsonl); --kind perplexity reads all texts in a "
         "directory", path);
}

static status read_records(struct task *task, int64_t limit)
{
    struct line_reader reader = {0};
    struct arena scratch = {0};
    struct text line = {0};
    bool there = true;
    status result;

    TRY(check_file(task->path));
    arena_init(&scratch, "a record", 0);
    TRY_GOTO(done, result, line_reader_open(&reader, task->path));
    while (limit == 0 || task->count < limit) {
        char source[PATH_BYTES + 32];
        const struct json *record;

        TRY_GOTO(done, result, line_reader_next(&reader, &line, &there));
        if (!there) break;
        if (is_blank(&line)) continue;
        snprintf(source, sizeof source, "%s: line %lld", task->path,
                 (long long)reader.number);
        TRY_GOTO(done, result, read_record(&scratch, &line, source, &record));
        TRY_GOTO(done, result, add_record(task, record, source));
        task->items[task->count - 1].line = reader.number;
    }
done:
    text_free(&line);
    arena_free(&scratch);
    line_reader_close(&reader);
    return result;
}

struct taking { struct task *task; int64_t limit; };

static status take_document(void *context,
                            const struct corpus_document *document)
{
    struct taking *taking = context;
    struct task *task = taking->task;
    struct task_item *item;

    if (taking->limit > 0 && task->count == taking->limit) return OK;
    if (document->text == NULL)
        FAIL(ERR_CONFIG, "%s: holds token ids; bytes and words can be counted "
             "in text only", task->path);
    TRY(new_item(task, 1, &item));
    TRY(keep(task, document->text, document->length, &item->choices[0]));
    item->line = ++task->count;
    return OK;
}

static status read_documents(struct task *task, int64_t limit,
                             const char *field)
{
    const struct corpus_format format = {.field =
                                             field != NULL ? field : "text"};
    const char *const source = task->path;
    struct taking taking = {task, limit};
    struct corpus corpus = {0};
    status result;

    TRY_GOTO(done, result, corpus_open(&corpus, &source, 1));
    for (int i = 0; i < corpus.count; i++) {
        if (corpus.files[i].kind == CORPUS_TOKENS)
            FAIL_GOTO(done, result, ERR_CONFIG,
                      "%s: holds token ids; bytes and words can be counted "
                      "in text only", corpus.files[i].path);
        TRY_GOTO(done, result, corpus_read(&corpus.files[i], &format,
                                           take_document, &taking, NULL));
    }
done:
    corpus_close(&corpus);
    return result;
}

static status check_there(const char *path)
{
    if (!file_is_gone(path)) return OK;
    FAIL(ERR_MISSING, "%s: there is no such file; a task is a file of items, "
         "one JSON object a line (.jsonl), and nothing is downloaded; "
         "docs/evaluation.md says how to get or make one", path);
}

status task_guess_file(const char *path, enum task_kind *kind)
{
    struct line_reader reader = {0};
    struct arena scratch = {0};
    struct text line = {0};
    char source[PATH_BYTES + 32];
    const struct json *record;
    bool there = false;
    status result;

    *kind = TASK_TEXT;
    TRY(check_there(path));
    TRY(check_file(path));
    if (text_ends_with(path, ".txt") || text_ends_with(path, ".md") ||
        text_ends_with(path, ".parquet"))
        return OK;
    arena_init(&scratch, "a record", 0);
    TRY_GOTO(done, result, line_reader_open(&reader, path));
    do {
        TRY_GOTO(done, result, line_reader_next(&reader, &line, &there));
    } while (there && is_blank(&line));
    if (!there)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: has no record", path);
    snprintf(source, sizeof source, "%s: line %lld", path,
             (long long)reader.number);
    TRY_GOTO(done, result, read_record(&scratch, &line, source, &record));
    if (!guess(record, kind))
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "%s: the fields of its first record do not show the kind of "
                  "task; name it: --kind hellaswag, arc, lambada, "
                  "multiple_choice or perplexity", path);
done:
    text_free(&line);
    arena_free(&scratch);
    line_reader_close(&reader);
    return result;
}

status task_read(struct task *task, const struct task_source *source)
{
    *task = (struct task){.kind = source->kind};
    TRY(check_there(source->path));
    arena_init(&task->arena, "a task", 0);
    TRY(arena_copy_text(&task->arena, source->path, &task->path));
    TRY(source->kind == TASK_TEXT
            ? read_documents(task, source->limit, source->field)
            : read_records(task, source->limit));
    if (task->count == 0)
        FAIL(ERR_FORMAT, "%s: has no record", source->path);
    return OK;
}

void task_free(struct task *task)
{
    memory_free(task->items);
    arena_free(&task->arena);
    *task = (struct task){0};
}
