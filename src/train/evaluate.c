/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - tasks put to a model. */
#include "train/evaluate.h"

#include <string.h>
#include <time.h>

enum { TOKENS_AT_ONCE = 4096 /* aim of a pass */ };

struct evaluating {
    const struct evaluate_request *request;
    struct evaluation_of *out;
    struct session session;
    struct tokenizer tokenizer;
    struct task examples;
    struct stage stage;
    struct likelihoods likelihoods;
    struct progress progress;
};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void show(void *argument, double done, double total)
{
    progress_count(argument, done, total);
}

/* ---- questions ---- */

static status open_model(struct evaluating *e)
{
    struct session *session = &e->session;

    TRY(session_open(session, e->request->model));
    session->average = e->request->average;
    if (session->tokenizer[0] == 0)
        FAIL(ERR_MISSING, "%s: has no tokenizer, so text cannot become "
                          "tokens; put the one it was trained with into %s",
             e->request->model, session->directory);
    TRY(tokenizer_read(&e->tokenizer, session->tokenizer));
    if (tokenizer_vocab(&e->tokenizer) > session->model.vocab)
        FAIL(ERR_CONFIG, "%s: has %lld tokens, the model only %lld: it is the "
                         "tokenizer of another model", session->tokenizer,
             (long long)tokenizer_vocab(&e->tokenizer),
             (long long)session->model.vocab);
    e->out->context = session->model.context;
    if (e->request->context > session->model.context)
        FAIL(ERR_CONFIG, "--context %lld: the model's context is %lld",
             (long long)e->request->context,
             (long long)session->model.context);
    if (e->request->context > 0) e->out->context = e->request->context;
    return OK;
}

static status read_kind(const struct evaluate_request *r, int index,
                        enum task_kind *kind)
{
    *kind = r->kinds[index];
    return *kind == TASK_KINDS ? task_guess_file(r->paths[index], kind) : OK;
}

static status read_task(struct evaluating *e, int index)
{
    const struct evaluate_request *r = e->request;
    struct evaluate_task *task = &e->out->tasks[index];
    const struct model *m = &e->session.model;
    struct task_encoding encoding = {
        .tokenizer = &e->tokenizer, .context = e->out->context,
        .special = r->special, .shots = r->shots};
    struct task_source source = {.path = r->paths[index], .limit = r->limit,
                                 .field = r->field};

    TRY(read_kind(r, index, &source.kind));
    TRY(task_read(&task->task, &source));
    TRY(task_prefix(&e->tokenizer, m->bos, m->eos, &encoding.prefix));
    if (r->examples != NULL) {
        task_free(&e->examples);
        source.path = r->examples;
        source.limit = 0;
        TRY(task_read(&e->examples, &source));
        encoding.examples = &e->examples;
    }
    task->from = e->out->requests.count;
    return task_requests_add(&e->out->requests, &task->task, &encoding);
}

static status read_tasks(struct evaluating *e)
{
    const int count = e->request->count;
    void *memory;

    TRY(memory_take((size_t)count, sizeof *e->out->tasks, &memory));
    memset(memory, 0, (size_t)count * sizeof *e->out->tasks);
    e->out->tasks = memory;
    for (int i = 0; i < count; i++) {
        e->out->count = i + 1; /* so that it is freed in any case */
        TRY(read_task(e, i));
    }
    return OK;
}

/* ---- answers ---- */

static status open_stage(struct evaluating *e)
{
    struct evaluation_of *out = e->out;
    struct stage_request plan;
    int64_t batch = e->request->batch;

    out->length = request_rows_length(&out->requests, out->context);
    for (int64_t i = 0; i < out->requests.count; i++)
        out->tokens += out->requests.items[i].length;
    if (batch == 0) batch = TOKENS_AT_ONCE / out->length;
    if (batch > out->tokens / out->length + 1)
        batch = out->tokens / out->length + 1;
    if (batch < 1) batch = 1;
    out->batch = batch * out->length;
    TRY(session_request(&e->session, batch, out->length, &plan));
    plan.dtype = e->request->dtype;
    if (e->request->threads > 0) plan.threads = e->request->threads;
    /* A leaf needs a token. */
    if (out->length < plan.grid.tensor) plan.grid.tensor = 1;
    return session_stage(&e->session, &plan, &e->stage);
}

static bool wants_greedy(const struct evaluation_of *out)
{
    for (int i = 0; i < out->count; i++)
        if (task_wants_greedy(out->tasks[i].task.kind)) return true;
    return false;
}

static status answer(struct evaluating *e)
{
    const struct likelihood_call call = {
        .greedy = wants_greedy(e->out), .progress = show,
        .argument = &e->progress};
    status result;

    if (e->out->requests.count > 0) {
        TRY(open_stage(e));
        progress_begin(&e->progress, e->request->progress, "eval", "requests",
                       1);
        result = likelihood_alone(&e->likelihoods, &e->stage,
                                  &e->out->requests, &call);
        if (e->progress.shown > 0) progress_end(&e->progress);
        TRY(result);
        e->out->computed = e->likelihoods.tokens;
    }
    for (int i = 0; i < e->out->count; i++) {
        struct evaluate_task *task = &e->out->tasks[i];
        const int64_t after = i + 1 < e->out->count
                                  ? e->out->tasks[i + 1].from
                                  : e->out->requests.count;

        TRY(task_answers_build(&task->answers, &task->task, &e->out->requests,
                               (struct request_range){task->from, after},
                               &e->likelihoods));
        task_score(&task->scores, &task->task, &task->answers);
    }
    return OK;
}

status evaluate(const struct evaluate_request *request,
                struct evaluation_of *out)
{
    struct evaluating e = {.request = request, .out = out};
    const double began = now_s();
    status result;

    *out = (struct evaluation_of){0};
    TRY_GOTO(done, result, open_model(&e));
    TRY_GOTO(done, result, read_tasks(&e));
    TRY_GOTO(done, result, answer(&e));
    out->seconds = now_s() - began;
    if (e.session.notice.length > 0)
        snprintf(out->notice, sizeof out->notice, "%s",
                 e.session.notice.bytes);
done:
    likelihoods_free(&e.likelihoods);
    stage_free(&e.stage);
    task_free(&e.examples);
    tokenizer_free(&e.tokenizer);
    session_close(&e.session);
    return result;
}

void evaluation_free(struct evaluation_of *evaluation)
{
    for (int i = 0; i < evaluation->count; i++) {
        task_free(&evaluation->tasks[i].task);
        task_answers_free(&evaluation->tasks[i].answers);
    }
    memory_free(evaluation->tasks);
    task_requests_free(&evaluation->requests);
    *evaluation = (struct evaluation_of){0};
}
