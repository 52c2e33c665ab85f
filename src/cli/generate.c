/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - text from a model, token by token. */
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/json.h"
#include "cli/run.h"
#include "cli/table.h"
#include "data/tokenizer.h"
#include "train/generator.h"
#include "train/sample.h"

static const int64_t tokens_default = 100;

/* Everything that one generation holds. */
struct work {
    struct session session;
    struct tokenizer tokenizer;
    struct generator generator;
    struct token_list ids;   /* prompt, then what was drawn */
    int64_t prompt_count;    /* tokens of the prompt */
    int64_t tokens;          /* to draw, at most */
    int32_t end;             /* end-of-text token; -1: none known */
    struct sampling sampling;
    struct sample_candidate *scratch;
    struct token_stream stream;
    struct text text;        /* of the drawn tokens */
    size_t printed;          /* bytes of it */
    bool ended;              /* the model wrote its end-of-text token */
    double seconds;          /* of drawing, without the prompt */
};

static void work_free(struct work *work)
{
    memory_free(work->scratch);
    text_free(&work->text);
    token_list_free(&work->ids);
    generator_close(&work->generator);
    tokenizer_free(&work->tokenizer);
    session_close(&work->session);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The model's own end token, or the tokenizer's usual one. */
static int32_t end_token(const struct work *work)
{
    int32_t id;

    if (work->session.model.eos >= 0) return (int32_t)work->session.model.eos;
    if (tokenizer_end_of_text(&work->tokenizer, "", &id) == OK) return id;
    status_clear();
    return -1;
}

static status read_model(struct work *work, const char *path)
{
    TRY(session_open(&work->session, path));
    if (work->session.notice.length > 0)
        fprintf(stderr, "%s\n", work->session.notice.bytes);
    if (work->session.tokenizer[0] == '\0')
        FAIL(ERR_MISSING, "%s: no tokenizer.json beside the model; generate "
                          "needs one to read the prompt", path);
    TRY(tokenizer_read(&work->tokenizer, work->session.tokenizer));
    if (tokenizer_vocab(&work->tokenizer) > work->session.model.vocab)
        FAIL(ERR_CONFIG, "%s: %lld tokens, but the model's vocabulary has "
                         "%lld: it belongs to another model",
             work->session.tokenizer,
             (long long)tokenizer_vocab(&work->tokenizer),
             (long long)work->session.model.vocab);
    work->end = end_token(work);
    return OK;
}

/* An empty prompt begins as a document does: after the end of another. */
static status read_prompt(struct work *work, const char *prompt)
{
    TRY(tokenizer_encode(&work->tokenizer, prompt, strlen(prompt), true,
                         &work->ids));
    if (work->ids.count == 0 && work->end < 0)
        FAIL(ERR_CONFIG, "the prompt is empty and the tokenizer has no "
                         "end-of-text token to begin with");
    if (work->ids.count == 0)
        TRY(token_list_append(&work->ids, &work->end, 1));
    work->prompt_count = work->ids.count;
    return OK;
}

static status read_settings(struct work *work,
                            const struct arguments *arguments)
{
    const int64_t context = work->session.model.context;
    const int64_t room = context - work->prompt_count;
    int64_t seed = 1;

    work->tokens = tokens_default < room ? tokens_default : room;
    work->sampling = (struct sampling){.temperature = 0.8, .top_p = 1};
    TRY(arguments_integer(arguments, "tokens", 1, INT64_MAX, &work->tokens));
    TRY(arguments_integer(arguments, "seed", 0, INT64_MAX, &seed));
    TRY(arguments_integer(arguments, "top-k", 0, INT64_MAX,
                          &work->sampling.top_k));
    TRY(arguments_real(arguments, "temperature", 0, 1e6,
                       &work->sampling.temperature));
    TRY(arguments_real(arguments, "top-p", 0, 1, &work->sampling.top_p));
    work->sampling.seed = (uint64_t)seed;
    if (room < 1)
        FAIL(ERR_CONFIG, "the prompt has %lld tokens; the model's context of "
                         "%lld leaves no room for more",
             (long long)work->prompt_count, (long long)context);
    if (work->tokens > room)
        FAIL(ERR_CONFIG, "%lld tokens after a prompt of %lld exceed the "
                         "model's context of %lld; --tokens %lld fits",
             (long long)work->tokens, (long long)work->prompt_count,
             (long long)context, (long long)room);
    return sampling_check(&work->sampling);
}

/* Prints what became certain since the last time, if somebody watches. */
static void show(struct work *work, bool silent)
{
    if (silent || work->printed == work->text.length) return;
    fwrite(work->text.bytes + work->printed, 1,
           work->text.length - work->printed, stdout);
    fflush(stdout);
    work->printed = work->text.length;
}

static status draw_tokens(struct work *work, bool silent)
{
    const double began = now_s();

    work->stream.tokenizer = &work->tokenizer;
    for (int64_t i = 0; i < work->tokens; i++) {
        int32_t id;

        TRY(sample_token(&work->sampling, &work->generator.logits,
                         work->generator.position, work->scratch, &id));
        work->ended = id == work->end;
        if (work->ended) break;
        TRY(token_list_append(&work->ids, &id, 1));
        TRY(token_stream_next(&work->stream, id, &work->text));
        show(work, silent);
        if (i + 1 < work->tokens)
            TRY(generator_feed(&work->generator, &id, 1));
    }
    TRY(token_stream_end(&work->stream, &work->text));
    show(work, silent);
    work->seconds = now_s() - began;
    return OK;
}

static status print_json(const struct work *work, const char *prompt)
{
    const int64_t drawn = work->ids.count - work->prompt_count;
    struct json_writer writer = {0};

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    json_write_key(&writer, "prompt");
    json_write_string(&writer, prompt);
    json_write_key(&writer, "text");
    /* A sample may end inside a character; JSON cannot say that. */
    json_write_string_n(&writer, work->text.bytes, work->text.length);
    json_write_key(&writer, "prompt_tokens");
    json_write_integer(&writer, work->prompt_count);
    json_write_key(&writer, "tokens");
    json_write_integer(&writer, drawn);
    json_write_key(&writer, "ids");
    json_write_array(&writer);
    for (int64_t i = work->prompt_count; i < work->ids.count; i++)
        json_write_integer(&writer, work->ids.ids[i]);
    json_write_array_end(&writer);
    json_write_key(&writer, "ended");
    json_write_bool(&writer, work->ended);
    json_write_key(&writer, "tokens_per_s");
    json_write_real(&writer, work->seconds > 0
                                 ? (double)drawn / work->seconds : 0);
    json_write_object_end(&writer);
    return json_print(&writer, stdout);
}

static status generate(struct work *work, const struct arguments *arguments,
                       const char *prompt)
{
    const bool json = arguments_has(arguments, "json");
    int64_t threads = 0;
    void *scratch;

    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(read_model(work, arguments->operands[0]));
    TRY(read_prompt(work, prompt));
    TRY(read_settings(work, arguments));
    TRY(memory_take((size_t)work->session.model.vocab, sizeof *work->scratch,
                    &scratch));
    work->scratch = scratch;
    TRY(generator_open(&work->generator, &work->session, work->session.dtype,
                       (int)threads, work->prompt_count,
                       work->prompt_count + work->tokens));
    if (!json) fputs(prompt, stdout);
    TRY(generator_feed(&work->generator, work->ids.ids, work->prompt_count));
    TRY(draw_tokens(work, json));
    if (json) return print_json(work, prompt);
    putchar('\n');
    if (isatty(STDERR_FILENO) && work->seconds > 0)
        fprintf(stderr, "%lld tokens, %.0f per second\n",
                (long long)(work->ids.count - work->prompt_count),
                (double)(work->ids.count - work->prompt_count) /
                    work->seconds);
    return OK;
}

status command_generate(struct arguments *arguments)
{
    const char *prompt = arguments_text(arguments, "prompt", NULL);
    struct work work = {0};
    status result;

    if (prompt == NULL)
        FAIL(ERR_USAGE, "generate needs --prompt TEXT; --prompt \"\" begins a "
                        "new text");
    TRY_GOTO(done, result, generate(&work, arguments, prompt));
done:
    work_free(&work);
    return result;
}
