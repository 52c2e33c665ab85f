/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - tasks put to a model. */
#include "inference/evaluate.h"

#include <string.h>

#include "base/clock.h"
#include "comm/launch.h"
#include "setup/cores.h"

enum { TOKENS_AT_ONCE = 4096 /* aim of a pass */ };
/* A rank may wait until the slowest one is done: a day. */
static const int64_t limit_ms = 24 * 3600 * INT64_C(1000);

struct evaluating {
    const struct evaluate_request *request;
    struct evaluation_of *out;
    struct group *world; /* NULL: one rank */
    struct session session;
    struct tokenizer tokenizer;
    struct task examples;
    struct stage stage;
    struct likelihoods likelihoods; /* of this rank's share */
    struct likelihoods all;         /* of several ranks, on the first */
    struct progress progress;
    int threads; /* of this rank */
};

static int rank_of(const struct evaluating *e)
{
    return e->world == NULL ? 0 : e->world->rank;
}

static int ranks_of(const struct evaluating *e)
{
    return e->world == NULL ? 1 : e->world->size;
}

/* A phase in which a rank can fail alone is over. */
static status agree(const struct evaluating *e, status result)
{
    return e->world == NULL ? result : comm_agree(e->world, result);
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
    session->device = e->request->device;
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
    if (e->request->context > model_longest(&session->model))
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
    TRY(task_prefix(&e->tokenizer, m->ends.bos, m->ends.eos, &encoding.prefix));
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

/* ---- shares ---- */

/* The first request of a rank's share: that of the first item, or window of a
 * document, before which rank / ranks of all tokens lie. */
static int64_t share_begin(const struct task_requests *requests, int64_t tokens,
                           int rank, int ranks)
{
    const struct task_request *items = requests->items;
    int64_t before = 0;

    for (int64_t i = 0; i < requests->count; i++) {
        const bool begins = i == 0 || items[i].item != items[i - 1].item ||
                            items[i].choice == items[i - 1].choice;

        if (begins && before * ranks >= tokens * rank) return i;
        before += items[i].length;
    }
    return requests->count;
}

static struct request_range share_of(const struct evaluating *e, int rank)
{
    const struct evaluation_of *out = e->out;
    const int ranks = ranks_of(e);

    return (struct request_range){
        share_begin(&out->requests, out->tokens, rank, ranks),
        rank + 1 < ranks ? share_begin(&out->requests, out->tokens, rank + 1,
                                       ranks)
                         : out->requests.count};
}

/* A share's numbers in those of all. */
static struct tensor sums_of(const struct likelihoods *l, int64_t first,
                             int64_t count)
{
    return tensor_1d(l->sums + first, DTYPE_F64, count);
}

static struct tensor greedy_of(const struct likelihoods *l, int64_t first,
                               int64_t count)
{
    return tensor_1d(l->greedy + first, DTYPE_U8, count);
}

static status send_share(struct evaluating *e)
{
    struct likelihoods *l = &e->likelihoods;

    TRY(comm_send(e->world, tensor_1d(&l->tokens, DTYPE_I64, 1), 0, 0));
    if (l->requests == 0) return OK;
    TRY(comm_send(e->world, sums_of(l, 0, l->requests), 0, 0));
    if (l->greedy == NULL) return OK;
    return comm_send(e->world, greedy_of(l, 0, l->requests), 0, 0);
}

static status receive_share(struct evaluating *e, struct likelihoods *all,
                            int rank)
{
    const struct request_range range = share_of(e, rank);
    const int64_t count = range.last - range.first;
    int64_t tokens = 0;

    TRY(comm_recv(e->world, tensor_1d(&tokens, DTYPE_I64, 1), rank, 0));
    all->tokens += tokens;
    if (count == 0) return OK;
    TRY(comm_recv(e->world, sums_of(all, range.first, count), rank, 0));
    if (all->greedy == NULL) return OK;
    return comm_recv(e->world, greedy_of(all, range.first, count), rank, 0);
}

/* Rank 0 has the first share, and then all of them. */
static status receive_all(struct evaluating *e)
{
    struct likelihoods *own = &e->likelihoods, *all = &e->all;

    all->tokens = own->tokens;
    for (int64_t i = 0; i < own->requests; i++) {
        all->sums[i] = own->sums[i];
        if (all->greedy != NULL) all->greedy[i] = own->greedy[i];
    }
    for (int rank = 1; rank < ranks_of(e); rank++)
        TRY(receive_share(e, all, rank));
    return OK;
}

/* ---- answers ---- */

static status open_stage(struct evaluating *e)
{
    struct evaluation_of *out = e->out;
    struct stage_request plan;
    int64_t batch = e->request->batch;

    out->length = request_rows_length(&out->requests, out->context);
    if (batch == 0) batch = TOKENS_AT_ONCE / out->length;
    if (batch > out->tokens / out->length + 1)
        batch = out->tokens / out->length + 1;
    if (batch < 1) batch = 1;
    out->batch = batch * out->length;
    TRY(session_request(&e->session, batch, out->length, &plan));
    plan.dtype = e->request->dtype;
    plan.machine.threads = e->threads;
    /* A leaf needs a token. */
    if (out->length < plan.layout.grid.tensor) plan.layout.grid.tensor = 1;
    return session_stage(&e->session, &plan, &e->stage);
}

static bool wants_greedy(const struct evaluation_of *out)
{
    for (int i = 0; i < out->count; i++)
        if (task_wants_greedy(out->tasks[i].task.kind)) return true;
    return false;
}

/* This rank's share. */
static status ask(struct evaluating *e, bool greedy)
{
    const struct request_range range = share_of(e, rank_of(e));
    const struct likelihood_call call = {
        .greedy = greedy, .progress = show, .argument = &e->progress};
    struct task_requests share = e->out->requests; /* owns nothing */
    status result;

    share.items += range.first;
    share.count = range.last - range.first;
    if (share.count == 0) return OK;
    TRY(open_stage(e));
    progress_begin(&e->progress, rank_of(e) == 0 ? e->request->progress : NULL,
                   "eval", "requests", 1);
    result = likelihood_alone(&e->likelihoods, &e->stage, &share, &call);
    progress_end(&e->progress);
    return result;
}

static status score_tasks(struct evaluating *e, const struct likelihoods *all)
{
    e->out->computed = all->tokens;
    for (int i = 0; i < e->out->count; i++) {
        struct evaluate_task *task = &e->out->tasks[i];
        const int64_t after = i + 1 < e->out->count
                                  ? e->out->tasks[i + 1].from
                                  : e->out->requests.count;

        TRY(task_answers_build(&task->answers, &task->task, &e->out->requests,
                               (struct request_range){task->from, after},
                               all));
        task_score(&task->scores, &task->task, &task->answers);
    }
    return OK;
}

static status take_all(struct evaluating *e, bool greedy)
{
    struct likelihoods *all = &e->all;

    all->requests = e->out->requests.count;
    TRY(likelihood_take(all->requests, sizeof *all->sums, &all->sums));
    if (!greedy) return OK;
    return likelihood_take(all->requests, sizeof *all->greedy, &all->greedy);
}

static status begin_answers(struct evaluating *e)
{
    const bool greedy = wants_greedy(e->out);

    for (int64_t i = 0; i < e->out->requests.count; i++)
        e->out->tokens += e->out->requests.items[i].length;
    if (rank_of(e) == 0 && ranks_of(e) > 1) TRY(take_all(e, greedy));
    return ask(e, greedy);
}

static status answer(struct evaluating *e)
{
    TRY(agree(e, begin_answers(e)));
    if (rank_of(e) > 0) return send_share(e);
    if (ranks_of(e) == 1) return score_tasks(e, &e->likelihoods);
    TRY(receive_all(e));
    return score_tasks(e, &e->all);
}

static status open_all(struct evaluating *e)
{
    TRY(open_model(e));
    return read_tasks(e);
}

struct rank_evaluation {
    const struct evaluate_request *request;
    struct evaluation_of *out; /* of rank 0 */
};

static status rank_body(void *argument, struct group *world)
{
    const struct rank_evaluation *of = argument;
    struct evaluation_of own = {0};
    struct evaluating e = {.request = of->request, .out = of->out,
                           .world = world};
    const double began = clock_s();
    status result;

    if (rank_of(&e) > 0) e.out = &own;
    TRY_GOTO(done, result, agree(&e, open_all(&e)));
    TRY_GOTO(done, result,
             cores_share(world, of->request->threads, &e.threads));
    e.out->ranks = ranks_of(&e);
    TRY_GOTO(done, result, agree(&e, answer(&e)));
    e.out->seconds = clock_s() - began;
    if (e.session.notice.length > 0)
        snprintf(e.out->notice, sizeof e.out->notice, "%s",
                 e.session.notice.bytes);
done:
    likelihoods_free(&e.likelihoods);
    likelihoods_free(&e.all);
    stage_free(&e.stage);
    task_free(&e.examples);
    tokenizer_free(&e.tokenizer);
    session_close(&e.session);
    evaluation_free(&own);
    return result;
}

status evaluate(const struct evaluate_request *request,
                struct evaluation_of *out)
{
    struct rank_evaluation of = {request, out};

    *out = (struct evaluation_of){0};
    if (request->ranks <= 1 && launch_rank() < 0) return rank_body(&of, NULL);
    return launch_run(&(struct launch){request->ranks, limit_ms}, rank_body,
                      &of);
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
