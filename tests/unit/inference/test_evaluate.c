/* SPDX-License-Identifier: Apache-2.0 */
/* test_evaluate.c - log-likelihoods and metrics of tests/golden/evaluation
 * against the oracle in float64, and batches that show in no bit. */
#include "inference/evaluate.h"

#include <math.h>

#include "tests/test.h"

#define GOLDEN "tests/golden/evaluation"

static status ask(const char *file, enum task_kind kind,
                  const struct evaluate_request *how,
                  struct evaluation_of *out)
{
    struct evaluate_request request = *how;
    char path[PATH_BYTES];
    const char *paths[] = {path};

    snprintf(path, sizeof path, GOLDEN "/%s.jsonl", file);
    if (request.threads == 0) request.threads = 1;
    if (request.model == NULL) request.model = GOLDEN "/model";
    request.paths = paths;
    request.kinds = &kind;
    request.count = 1;
    return evaluate(&request, out);
}

static void check_likelihoods(const struct evaluate_task *task,
                              const struct json *expected, double tolerance)
{
    const struct json *list = json_get(expected, "loglikelihoods");

    EQUAL_INT(list->count, task->task.count);
    for (int i = 0; i < list->count; i++) {
        const int64_t first = task->answers.first[i];

        EQUAL_INT(list->items[i].count, task->answers.first[i + 1] - first);
        for (int j = 0; j < list->items[i].count; j++) {
            const double want = list->items[i].items[j].real;

            CHECK(fabs(task->answers.sums[first + j] - want) <=
                  tolerance * (1 + fabs(want)));
        }
    }
}

static double metric(const struct task_scores *scores, const char *name)
{
    char error[64];

    for (int i = 0; i < scores->count; i++) {
        snprintf(error, sizeof error, "%s_stderr", scores->items[i].name);
        if (strcmp(scores->items[i].name, name) == 0)
            return scores->items[i].value;
        if (strcmp(error, name) == 0) return scores->items[i].error;
    }
    CHECK(false);
    return 0;
}

static void check_metrics(const struct evaluate_task *task,
                          const struct json *expected, double tolerance)
{
    const struct json *metrics = json_get(expected, "metrics");

    CHECK(metrics->count > 0);
    for (int i = 0; i < metrics->count; i++) {
        const double want = metrics->items[2 * i + 1].real;
        const double got = metric(&task->scores,
                                  metrics->items[2 * i].string);

        CHECK(fabs(got - want) <= tolerance * (1 + fabs(want)));
    }
}

static void copy(const char *from, const char *directory, const char *name)
{
    char path[PATH_BYTES];
    struct text text = {0};

    IS_OK(path_join(path, sizeof path, directory, name));
    IS_OK(file_read(from, 1 << 22, &text));
    IS_OK(file_write_atomic(path, text.bytes, text.length));
    text_free(&text);
}

/* "arc-2", or "arc-0-bos": what is asked for, and how. */
static enum task_kind read_key(const char *key, struct evaluate_request *how,
                               const char *begun)
{
    enum task_kind kind;
    char name[64];

    snprintf(name, sizeof name, "%s", key);
    how->special = strstr(name, "-bos") != NULL;
    if (how->special) *strstr(name, "-bos") = '\0';
    how->model = how->special ? begun : NULL;
    how->shots = name[strlen(name) - 1] - '0';
    name[strlen(name) - 2] = '\0';
    IS_OK(task_kind_find("test", name, &kind));
    return kind;
}

TEST(all_tasks_agree_with_the_oracle)
{
    char begun[PATH_BYTES]; /* the model with a tokenizer that begins texts */
    static const struct { enum dtype dtype; double sums, metrics; } types[] = {
        {DTYPE_F64, 1e-10, 1e-9}, {DTYPE_F32, 1e-5, 1e-3}};
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, GOLDEN "/expected.json", 1 << 20));
    EQUAL_INT(root->count, 14);
    test_directory(begun);
    copy(GOLDEN "/model/config.json", begun, "config.json");
    copy(GOLDEN "/model/model.safetensors", begun, "model.safetensors");
    copy(GOLDEN "/tokenizer_bos.json", begun, "tokenizer.json");
    for (int i = 0; i < root->count * ROWS(types); i++) {
        const struct json *pair = &root->items[2 * (i / ROWS(types))];
        const int type = i % ROWS(types);
        struct evaluate_request how = {.dtype = types[type].dtype};
        struct evaluation_of made;
        const enum task_kind kind = read_key(pair[0].string, &how, begun);

        IS_OK(ask(task_kind_names[kind], kind, &how, &made));
        check_likelihoods(&made.tasks[0], &pair[1], types[type].sums);
        check_metrics(&made.tasks[0], &pair[1], types[type].metrics);
        evaluation_free(&made);
    }
    arena_free(&arena);
    IS_OK(directory_remove(begun));
}

static void same_bits(const struct evaluate_task *a,
                      const struct evaluate_task *b)
{
    EQUAL_INT(a->task.count, b->task.count);
    EQUAL_BYTES(a->answers.sums, b->answers.sums,
                (size_t)a->answers.first[a->task.count] *
                    sizeof *a->answers.sums);
}

TEST(neither_batch_nor_company_nor_threads_show)
{
    static const char *const paths[] = {
        GOLDEN "/hellaswag.jsonl", GOLDEN "/perplexity.jsonl",
        GOLDEN "/lambada.jsonl"};
    static const enum task_kind kinds[] = {TASK_HELLASWAG, TASK_TEXT,
                                           TASK_LAMBADA};
    static const struct { int64_t batch; int threads; } rows[] = {
        {1, 1}, {3, 2}, {50, 3}};
    struct evaluate_request all = {.model = GOLDEN "/model", .paths = paths,
                                   .kinds = kinds, .count = 3,
                                   .dtype = DTYPE_F32};
    struct evaluation_of together;

    IS_OK(evaluate(&all, &together));
    CHECK(together.computed < together.tokens);
    for (int i = 0; i < ROWS(rows); i++) {
        struct evaluation_of alone;
        struct evaluate_request how = {.dtype = DTYPE_F32,
                                       .batch = rows[i].batch,
                                       .threads = rows[i].threads};

        IS_OK(ask(i == 0 ? "hellaswag" : i == 1 ? "perplexity" : "lambada",
                  kinds[i], &how, &alone));
        same_bits(&alone.tasks[0], &together.tasks[i]);
        evaluation_free(&alone);
        how.limit = 3;
        IS_OK(ask(i == 0 ? "hellaswag" : i == 1 ? "perplexity" : "lambada",
                  kinds[i], &how, &alone));
        EQUAL_INT(alone.tasks[0].task.count, 3);
        EQUAL_BYTES(alone.tasks[0].answers.sums,
                    together.tasks[i].answers.sums,
                    (size_t)alone.tasks[0].answers.first[3] * 8);
        evaluation_free(&alone);
    }
    evaluation_free(&together);
}

TEST(what_cannot_be_asked_is_refused)
{
    struct evaluation_of made;

    FAILS(ask("hellaswag", TASK_HELLASWAG,
              &(struct evaluate_request){.context = 4}, &made),
          ERR_CONFIG, "the model's context only 4");
    evaluation_free(&made);
    status_clear();
    FAILS(ask("hellaswag", TASK_HELLASWAG,
              &(struct evaluate_request){.context = 500}, &made),
          ERR_CONFIG, "the model's context is 160");
    evaluation_free(&made);
    status_clear();
    FAILS(ask("hellaswag", TASK_HELLASWAG,
              &(struct evaluate_request){.shots = 24}, &made),
          ERR_CONFIG, "too few for 24 shots");
    evaluation_free(&made);
    status_clear();
    FAILS(ask("perplexity", TASK_TEXT, &(struct evaluate_request){.shots = 1},
              &made),
          ERR_CONFIG, "takes no shots");
    evaluation_free(&made);
    status_clear();
    FAILS(ask("arc", TASK_LAMBADA, &(struct evaluate_request){.limit = 2},
              &made),
          ERR_FORMAT, "arc.jsonl: line 1");
    evaluation_free(&made);
    status_clear();
}

TEST_MAIN(all_tasks_agree_with_the_oracle,
          neither_batch_nor_company_nor_threads_show,
          what_cannot_be_asked_is_refused)
