/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c - texts that a run continues whenever it validates. */
#include "inference/prompts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "inference/generator_beside.h"
#include "inference/likelihood.h"


struct prompt {
    const char *text;
    int64_t given;     /* tokens of the prompt */
    int64_t count;     /* tokens known */
    const char *stop;  /* "tokens", "context", "end of text"; NULL: goes on */
    int64_t place;     /* in the rows */
};

/* ---- opening ---- */

/* The ids of a prompt; an empty one begins after the end of another text. */
static status encode(const struct prompts *p, const char *text,
                     struct token_list *ids)
{
    ids->count = 0;
    TRY(tokenizer_encode(p->tokenizer, text, strlen(text), true, ids));
    if (ids->count > 0) return OK;
    const int32_t start = p->ends.count > 0 ? p->ends.ids[0] : -1;

    if (start < 0)
        FAIL(ERR_CONFIG, "validate.prompts: an empty prompt has no token to "
                         "begin with, and the tokenizer has no end-of-text "
                         "token");
    return token_list_append(ids, &start, 1);
}

/* A request as long as the text may become; its ids are filled in later. */
static status add_room(struct prompts *p, int index, struct token_list *ids)
{
    const struct options *o = &p->setup->set->values;
    struct task_requests *r = &p->requests;
    struct task_request *request = &r->items[index];
    int64_t length = ids->count + o->validate.prompt_tokens;

    if (ids->count >= o->data.sequence)
        FAIL(ERR_CONFIG, "validate.prompts: row %d has %lld tokens; sequences "
                         "of %lld leave no room to continue", index + 1,
             (long long)ids->count, (long long)o->data.sequence);
    if (length > o->data.sequence) length = o->data.sequence;
    p->items[index].given = ids->count;
    *request = (struct task_request){.first = r->ids.count, .item = index,
                                     .length = (int32_t)length};
    TRY(token_list_append(&r->ids, ids->ids, ids->count));
    for (int64_t i = ids->count; i <= length; i++)
        TRY(token_list_append(&r->ids, &(int32_t){0}, 1));
    if (length > r->longest) r->longest = length;
    r->count++;
    return OK;
}

static status open_all(struct prompts *p, struct token_list *ids)
{
    const struct options *o = &p->setup->set->values;
    const struct option_list *list = &o->validate.prompts;

    TRY(likelihood_take(list->count, sizeof *p->items, &p->items));
    p->count = list->count;
    TRY(likelihood_take(list->count, sizeof *p->requests.items,
                        &p->requests.items));
    for (int i = 0; i < list->count; i++) {
        p->items[i].text = list->items[i];
        TRY(encode(p, list->items[i], ids));
        TRY(add_room(p, i, ids));
    }
    TRY(request_rows_build(&p->rows, &p->requests, o->data.sequence));
    for (int i = 0; i < p->count; i++)
        p->items[p->rows.places[i].request].place = i;
    TRY(likelihood_take(p->count * p->setup->model.vocab, sizeof *p->logits,
                        &p->logits));
    return likelihood_take(p->setup->model.vocab, sizeof *p->scratch,
                           &p->scratch);
}

status prompts_open(struct prompts *prompts, const struct setup *setup,
                    const struct tokenizer *tokenizer)
{
    struct token_list ids = {0};
    status result;

    *prompts = (struct prompts){.setup = setup, .tokenizer = tokenizer};
    if (setup->set->values.validate.prompts.count == 0) return OK;
    if (tokenizer == NULL)
        FAIL(ERR_CONFIG, "validate.prompts: the run has no tokenizer, so text "
                         "cannot become tokens; set tokenizer.from");
    text_ends_find(prompts->tokenizer, &prompts->setup->model, &prompts->ends);
    result = open_all(prompts, &ids);
    token_list_free(&ids);
    return result;
}

void prompts_close(struct prompts *prompts)
{
    request_rows_free(&prompts->rows);
    task_requests_free(&prompts->requests);
    memory_free(prompts->items);
    memory_free(prompts->logits);
    memory_free(prompts->scratch);
    *prompts = (struct prompts){0};
}

/* ---- a token for each ---- */

/* A pass over the rows [first, ...) of this rank. */
struct prompt_pass {
    struct prompts *prompts;
    const struct program *program;
    int64_t first;        /* row of this rank's first sequence */
    int64_t vocab_first;  /* id of the first logit here */
};

/* The local token whose logits a prompt waits for, or -1. */
static int64_t local_token(const struct prompt_pass *pass,
                           const struct prompt *item)
{
    const struct program *p = pass->program;
    const struct request_place *place =
        &pass->prompts->rows.places[item->place];
    const int64_t s = place->row - pass->first;

    if (item->stop != NULL || s < 0 || s >= p->size.sequences) return -1;
    for (int64_t t = 0; t < p->size.length; t++)
        if (program_position(p, t) == place->offset + item->count - 1)
            return s * p->size.length + t;
    return -1;
}

static status keep_logits(void *argument, int64_t first_token,
                          const struct tensor *logits)
{
    const struct prompt_pass *pass = argument;
    struct prompts *p = pass->prompts;
    const int64_t rows = logits->shape[0], width = logits->shape[1];

    for (int i = 0; i < p->count; i++) {
        const int64_t row = local_token(pass, &p->items[i]) - first_token;
        double *out = p->logits + i * p->setup->model.vocab +
                      pass->vocab_first;

        for (int64_t j = 0; row >= 0 && row < rows && j < width; j++)
            out[j] = tensor_get(logits, row * width + j);
    }
    return OK;
}

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    struct prompts *p = argument;

    request_rows_fill(&p->rows, index, inputs, targets, positions, documents);
    return OK;
}

/* The next logits of all prompts, on every rank. */
static status run_pass(struct prompts *p, struct train_step *step,
                       int64_t *number)
{
    const struct pipeline *pipeline = step->pipeline;
    const struct sample_source source = {.fill = fill, .argument = p};
    const int64_t sequences = pipeline->stages[0].program.size.sequences;
    const int64_t ranks = team_batch_size(step->team);
    const int ends = executor_last(&step->executor);
    struct prompt_pass pass = {.prompts = p};
    struct run *run = ends < 0 ? NULL : &step->pipeline->stages[ends].run;

    memset(p->logits, 0, (size_t)(p->count * p->setup->model.vocab) *
                             sizeof *p->logits);
    for (int64_t first = 0; first < p->rows.count;
         first += ranks * sequences) {
        pass.first = first + team_batch_rank(step->team) * sequences;
        if (run != NULL) {
            pass.program = &pipeline->stages[ends].program;
            pass.vocab_first = likelihood_first_logit(pass.program);
            run->logits.read = keep_logits;
            run->logits.argument = &pass;
        }
        const status ran = executor_forward(&step->executor, &source,
                                            pass.first, (*number)++);

        if (run != NULL) run->logits.read = NULL;
        TRY(ran);
    }
    return likelihood_join(step->team, p->logits,
                           p->count * p->setup->model.vocab);
}

static status choose(struct prompts *p, int index,
                     const struct tensor *logits)
{
    const struct options *o = &p->setup->set->values;
    const struct sampling sampling = {.temperature = o->validate.temperature,
                                      .top_p = 1, .seed = (uint64_t)o->seed};
    const struct task_request *r = &p->requests.items[index];
    struct prompt *item = &p->items[index];
    int32_t id;

    TRY(sample_token(&sampling, logits, item->count, p->scratch, &id));
    if (text_ends_has(&p->ends, id)) {
        item->stop = "end of text";
        return OK;
    }
    p->requests.ids.ids[r->first + item->count++] = id;
    if (item->count - item->given == o->validate.prompt_tokens)
        item->stop = "tokens";
    else if (item->count > r->length)
        item->stop = "context";
    return OK;
}

/* One pass after the other, by all ranks. */
static status continue_together(struct prompts *p, struct train_step *step)
{
    const int64_t vocab = p->setup->model.vocab;
    int64_t number = 0;
    bool goes_on = true;

    while (goes_on) {
        goes_on = false;
        TRY(run_pass(p, step, &number));
        for (int i = 0; i < p->count; i++) {
            const struct tensor logits =
                tensor_2d(p->logits + i * vocab, DTYPE_F64, 1, vocab);

            if (p->items[i].stop == NULL) TRY(choose(p, i, &logits));
            goes_on = goes_on || p->items[i].stop == NULL;
        }
    }
    return executor_settle(&step->executor);
}

/* One prompt after the other, over a key-value cache. */
static status continue_alone(struct prompts *p, struct generator *g)
{
    for (int i = 0; i < p->count; i++) {
        const int32_t *ids = p->requests.ids.ids + p->requests.items[i].first;
        struct prompt *item = &p->items[i];

        g->position = 0;
        TRY(generator_feed(g, ids, item->given));
        TRY(choose(p, i, &g->logits));
        while (item->stop == NULL) {
            TRY(generator_feed(g, ids + item->count - 1, 1));
            TRY(choose(p, i, &g->logits));
        }
    }
    return OK;
}

static status try_alone(struct prompts *p, const struct train_step *step,
                        bool *done)
{
    const struct pipeline *pipeline = step->pipeline;
    struct generator generator = {0};
    int64_t longest = 1;
    status result;

    *done = false;
    if (step->team->world != NULL || pipeline->count != 1) return OK;
    /* A recipe's scale may cover the whole sequence, which a cache cuts. */
    if (pipeline->stages[0].program.precision.on) return OK;
    for (int i = 0; i < p->count; i++)
        if (p->items[i].given > longest) longest = p->items[i].given;
    TRY_GOTO(done, result, generator_beside(&generator, &pipeline->stages[0],
                                            longest, done));
    if (*done) TRY_GOTO(done, result, continue_alone(p, &generator));
done:
    generator_close(&generator);
    return result;
}

status prompts_continue(struct prompts *prompts, struct train_step *step)
{
    bool done;

    if (prompts->count == 0) return OK;
    for (int i = 0; i < prompts->count; i++) {
        prompts->items[i].count = prompts->items[i].given;
        prompts->items[i].stop = NULL;
    }
    TRY(try_alone(prompts, step, &done));
    LOG(DEBUG, "prompts", done ? "over a key-value cache"
                               : "side by side in rows");
    return done ? OK : continue_together(prompts, step);
}

/* ---- lines ---- */

/* Text of the tokens made; ids that only the model's padding has stand for
 * nothing. */
static status decode(const struct prompts *p, int index, struct text *out)
{
    const struct tokenizer *tokenizer = p->tokenizer;
    const struct prompt *item = &p->items[index];
    const int32_t *ids = p->requests.ids.ids +
                         p->requests.items[index].first;
    struct token_decoder decoder = {.tokenizer = tokenizer};

    for (int64_t i = 0; i < item->count; i++) {
        if (i == item->given) out->length = 0; /* the prompt's own text */
        if (ids[i] < tokenizer_vocab(tokenizer))
            TRY(token_decoder_next(&decoder, ids[i], out));
    }
    return token_decoder_end(&decoder, out);
}

static status write_line(const struct prompts *p, int index, int64_t step,
                         struct text *out)
{
    const struct prompt *item = &p->items[index];
    struct text text = {0};
    struct json_writer w;
    status result;

    json_write_begin(&w, 0);
    TRY_GOTO(done, result, decode(p, index, &text));
    json_write_object(&w);
    json_write_key_integer(&w, "step", step);
    json_write_key(&w, "prompt");
    json_write_string(&w, item->text);
    json_write_key(&w, "text");
    json_write_string_n(&w, text.bytes != NULL ? text.bytes : "",
                        text.length);
    json_write_key_integer(&w, "tokens", item->count - item->given);
    json_write_key(&w, "stopped_by");
    json_write_string(&w, item->stop);
    json_write_object_end(&w);
    TRY_GOTO(done, result, json_write_line(&w, out));
done:
    json_writer_free(&w);
    text_free(&text);
    return result;
}

status prompts_write(const struct prompts *prompts, struct lines *file,
                     int64_t step)
{
    struct text out = {0};
    status result = OK;

    for (int i = 0; i < prompts->count; i++)
        TRY_GOTO(done, result, write_line(prompts, i, step, &out));
    if (out.length > 0) result = lines_put(file, out.bytes, out.length);
done:
    text_free(&out);
    return result;
}

status prompts_text(const struct prompts *prompts, struct text *out)
{
    struct text made = {0};
    status result = OK;

    for (int i = 0; i < prompts->count; i++) {
        made.length = 0;
        TRY_GOTO(done, result, decode(prompts, i, &made));
        TRY_GOTO(done, result, text_printf(out, "%s%s|",
                                           i > 0 ? "\n\n" : "",
                                           prompts->items[i].text));
        TRY_GOTO(done, result, text_append(out, made.bytes, made.length));
    }
done:
    text_free(&made);
    return result;
}
