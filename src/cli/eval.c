/* SPDX-License-Identifier: Apache-2.0 */
/* eval.c - tasks put to a model, as a table, as JSON, item by item. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/run.h"
#include "cli/table.h"
#include "comm/launch.h"
#include "inference/evaluate.h"

/* ---- what is asked ---- */

/* Words of every --NAME, parted by commas, in the arena of the arguments. */
struct word_list { const char **items; int count; };

static status read_words(struct arguments *arguments, const char *flag,
                         struct word_list *out)
{
    size_t length = 0;
    void *memory;

    *out = (struct word_list){0};
    for (int i = 0; i < arguments->given_count; i++)
        if (strcmp(arguments->given[i].flag->name, flag) == 0)
            length += strlen(arguments->given[i].value) + 1;
    TRY(arena_take_array(&arguments->arena, length + 1, sizeof *out->items,
                         &memory));
    out->items = memory;
    for (int i = 0; i < arguments->given_count; i++) {
        char *copy, *word, *rest;

        if (strcmp(arguments->given[i].flag->name, flag) != 0) continue;
        TRY(arena_copy_text(&arguments->arena, arguments->given[i].value,
                            &copy));
        for (word = strtok_r(copy, ",", &rest); word != NULL;
             word = strtok_r(NULL, ",", &rest))
            out->items[out->count++] = word;
    }
    return OK;
}

static status read_kinds(struct arguments *arguments,
                         struct evaluate_request *request)
{
    struct word_list words;
    enum task_kind *kinds;
    void *memory;

    TRY(read_words(arguments, "kind", &words));
    if (words.count > 1 && words.count != request->count)
        FAIL(ERR_USAGE, "--kind names %d kinds, --task %d files; give one for "
                        "all or one for each", words.count, request->count);
    TRY(arena_take_array(&arguments->arena, (size_t)request->count,
                         sizeof *kinds, &memory));
    kinds = memory;
    request->kinds = kinds;
    for (int i = 0; i < request->count; i++) {
        kinds[i] = TASK_KINDS;
        if (words.count > 0)
            TRY(task_kind_find("--kind", words.items[words.count > 1 ? i : 0],
                               &kinds[i]));
    }
    return OK;
}

static status read_request(struct arguments *arguments,
                           struct evaluate_request *request)
{
    static const char *const dtypes[] = {"float32", "float64", "bfloat16",
                                         "float16"};
    struct word_list paths;
    int64_t threads = 0, shots = 0, ranks = 0;
    int dtype = 0;

    *request = (struct evaluate_request){
        .model = arguments->operands[0],
        .examples = arguments_text(arguments, "examples", NULL),
        .field = arguments_text(arguments, "field", NULL),
        .special = !arguments_has(arguments, "no-special"),
        .progress = stderr};
    TRY(read_words(arguments, "task", &paths));
    if (paths.count == 0)
        FAIL(ERR_USAGE, "eval needs --task FILE.jsonl, the file with the "
             "items (and --kind, where its fields do not show the kind)");
    request->paths = paths.items;
    request->count = paths.count;
    TRY(read_kinds(arguments, request));
    TRY(arguments_integer(arguments, "shots", 0, 1000, &shots));
    TRY(arguments_average(arguments, &request->average));
    TRY(arguments_device(arguments, &request->device));
    TRY(arguments_integer(arguments, "limit", 0, INT64_MAX, &request->limit));
    TRY(arguments_integer(arguments, "context", 1, INT64_MAX,
                          &request->context));
    TRY(arguments_integer(arguments, "batch", 1, 1 << 20, &request->batch));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(run_ranks(arguments, RANKS_BEYOND, &ranks));
    request->ranks = (int)ranks;
    TRY(arguments_choice(arguments, "dtype", dtypes, 4, &dtype));
    (void)dtype_parse(dtypes[dtype], &request->dtype);
    request->shots = (int)shots;
    request->threads = (int)threads;
    return OK;
}

/* ---- what is said ---- */

/* "facts" of "tasks/facts.jsonl.gz". */
static void task_name(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    const size_t dot = strcspn(base, ".");

    snprintf(out, size, "%.*s", (int)(dot > 0 ? dot : strlen(base)), base);
}

static void print_text(const struct evaluate_request *request,
                       const struct evaluation_of *e)
{
    static const struct table_column columns[] = {
        {"task", "task", false}, {"kind", "kind", false},
        {"items", "items", true}, {"shots", "shots", true},
        {"metric", "metric", false}, {"value", "value", true},
        {"stderr", "stderr", true}};
    struct table table;
    char name[128];

    table_begin(&table, columns, 7);
    for (int i = 0; i < e->count; i++) {
        const struct evaluate_task *t = &e->tasks[i];

        task_name(t->task.path, name, sizeof name);
        for (int j = 0; j < t->scores.count; j++) {
            table_text(&table, j == 0 ? name : "");
            table_text(&table, j == 0 ? task_kind_names[t->task.kind] : "");
            table_integer(&table, t->task.count);
            table_integer(&table, request->shots);
            table_text(&table, t->scores.items[j].name);
            table_real(&table, t->scores.items[j].value, 5);
            if (isnan(t->scores.items[j].error))
                table_text(&table, "-"); /* of one item */
            else table_real(&table, t->scores.items[j].error, 3);
        }
    }
    (void)table_print(&table, stdout);
    table_free(&table);
    fprintf(stderr, "%lld requests of %lld tokens, %lld computed, %lld at "
                    "once, %.1f s\n", (long long)e->requests.count,
            (long long)e->tokens, (long long)e->computed, (long long)e->batch,
            e->seconds);
    if (e->requests.truncated > 0)
        fprintf(stderr, "%lld requests were longer than the context of %lld "
                        "tokens and were cut at the beginning\n",
                (long long)e->requests.truncated, (long long)e->context);
}

static void write_scores(struct json_writer *w, const struct evaluate_task *t)
{
    char key[64];

    for (int i = 0; i < t->scores.count; i++) {
        const struct task_metric *m = &t->scores.items[i];

        json_write_key_real(w, m->name, m->value);
        snprintf(key, sizeof key, "%s_stderr", m->name);
        json_write_key_real(w, key, m->error);
    }
}

static status print_json(const struct evaluate_request *request,
                         const struct evaluation_of *e)
{
    struct json_writer w;
    char name[128];

    json_write_begin(&w, 0);
    json_write_object(&w);
    json_write_key(&w, "model");
    json_write_string(&w, request->model);
    json_write_key_integer(&w, "shots", request->shots);
    json_write_key_integer(&w, "context", e->context);
    json_write_key_integer(&w, "requests", e->requests.count);
    json_write_key_integer(&w, "truncated", e->requests.truncated);
    json_write_key(&w, "results");
    json_write_array(&w);
    for (int i = 0; i < e->count; i++) {
        const struct evaluate_task *t = &e->tasks[i];

        task_name(t->task.path, name, sizeof name);
        json_write_object(&w);
        json_write_key(&w, "task");
        json_write_string(&w, name);
        json_write_key(&w, "file");
        json_write_string(&w, t->task.path);
        json_write_key(&w, "kind");
        json_write_string(&w, task_kind_names[t->task.kind]);
        json_write_key_integer(&w, "items", t->task.count);
        write_scores(&w, t);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_key_real(&w, "seconds", e->seconds);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

/* ---- items ---- */

static void write_likelihoods(struct json_writer *w,
                              const struct evaluate_task *t, int64_t item)
{
    const struct task_answers *a = &t->answers;

    json_write_key_list(w, "loglikelihoods", a->sums + a->first[item],
                        a->first[item + 1] - a->first[item], json_write_real);
    if (task_wants_greedy(t->task.kind)) {
        json_write_key(w, "greedy");
        json_write_bool(w, a->greedy[a->first[item]]);
    }
    if (t->task.kind == TASK_TEXT || t->task.kind == TASK_LAMBADA) return;
    json_write_key_integer(w, "answer", t->task.items[item].answer);
    json_write_key_integer(w, "prediction",
                           task_prediction(&t->task, a, item, NORM_NONE));
    json_write_key_integer(w, "prediction_norm",
                           task_prediction(&t->task, a, item,
                                           NORM_CHARACTERS));
}

static status write_item(struct text *out, const struct evaluate_task *t,
                         int64_t index)
{
    const struct task_item *item = &t->task.items[index];
    struct json_writer w;
    char name[128];
    status result;

    task_name(t->task.path, name, sizeof name);
    json_write_begin(&w, 0);
    json_write_object(&w);
    json_write_key(&w, "task");
    json_write_string(&w, name);
    json_write_key_integer(&w, "item", index);
    json_write_key_integer(&w, "line", item->line);
    if (t->task.kind == TASK_TEXT) {
        json_write_key_integer(&w, "words", task_words(item->choices[0]));
        json_write_key_integer(&w, "bytes", (int64_t)item->choices[0].length);
    } else {
        json_write_key(&w, "context");
        json_write_string_n(&w, item->context.bytes, item->context.length);
        json_write_key(&w, "choices");
        json_write_array(&w);
        for (int i = 0; i < item->choice_count; i++)
            json_write_string_n(&w, item->choices[i].bytes,
                                item->choices[i].length);
        json_write_array_end(&w);
    }
    write_likelihoods(&w, t, index);
    json_write_object_end(&w);
    result = json_write_line(&w, out);
    json_writer_free(&w);
    return result;
}

static status write_items(const struct evaluation_of *e, const char *path)
{
    struct text out = {0};
    status result = OK;

    for (int i = 0; i < e->count; i++)
        for (int64_t j = 0; j < e->tasks[i].task.count; j++)
            TRY_GOTO(done, result, write_item(&out, &e->tasks[i], j));
    TRY_GOTO(done, result, file_write_named(path, out.bytes, out.length));
done:
    text_free(&out);
    return result;
}

status command_eval(struct arguments *arguments)
{
    const char *path = arguments_text(arguments, "out", NULL);
    struct evaluate_request request;
    struct evaluation_of made = {0};
    status result;

    TRY(file_may_write(path));
    TRY(read_request(arguments, &request));
    TRY_GOTO(done, result, evaluate(&request, &made));
    if (launch_rank() > 0) goto done; /* rank 0 speaks */
    if (made.notice[0] != '\0') fprintf(stderr, "%s\n", made.notice);
    if (path != NULL) TRY_GOTO(done, result, write_items(&made, path));
    if (arguments_has(arguments, "json"))
        TRY_GOTO(done, result, print_json(&request, &made));
    else
        print_text(&request, &made);
done:
    evaluation_free(&made);
    return result;
}
