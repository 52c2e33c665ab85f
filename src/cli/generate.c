/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - text from a model, printed as it comes. */
#include "inference/generate.h"

#include <unistd.h>
#include "base/json.h"
#include "base/text.h"
#include "cli/prompts.h"
#include "cli/run.h"
#include "cli/table.h"

enum { TOKENS_DEFAULT = 100 };

static const double temperature_default = 0.8;

/* Texts as they come, kept where they become JSON. */
struct telling {
    const struct generate_request *request;
    struct text text;      /* as JSON: of this prompt */
    struct token_list ids;
};

static status print_text(void *argument, const char *bytes, size_t length)
{
    FILE *out = stdout;
    struct text shown = {0}; /* a model may make bytes that are no text */
    status result;

    (void)argument;
    TRY_GOTO(done, result, text_append_utf8(&shown, bytes, length));
    if (fwrite(shown.bytes, 1, shown.length, out) != shown.length ||
        fflush(out) != 0)
        FAIL_GOTO(done, result, ERR_IO, "cannot write to standard output");
done:
    text_free(&shown);
    return result;
}

static status keep_text(void *argument, const char *bytes, size_t length)
{
    struct telling *telling = argument;

    return text_append(&telling->text, bytes, length);
}

/* --prompt, as often as it is given, or --prompts. */
static status read_prompts(struct generate_request *request,
                           struct arguments *arguments)
{
    const char *file = arguments_text(arguments, "prompts", NULL);

    TRY(arguments_not_both(arguments, "prompt", "prompts"));
    request->prompt_file = file;
    if (file != NULL)
        return prompts_read(&arguments->arena, file, &request->prompts,
                            &request->prompt_lines, &request->prompt_count);
    TRY(prompts_given(arguments, "prompt", &request->prompts,
                      &request->prompt_count));
    if (request->prompt_count == 0)
        FAIL(ERR_USAGE, "generate needs --prompt TEXT or --prompts FILE; "
                        "--prompt \"\" starts a new text");
    return OK;
}

static status read_sampling(struct sampling *sampling,
                            const struct arguments *arguments)
{
    int64_t seed = 1;

    *sampling = (struct sampling){.temperature = temperature_default,
                                  .top_p = 1, .penalty = 1};
    TRY(arguments_real(arguments, "temperature", 0, 1e6,
                       &sampling->temperature));
    TRY(arguments_integer(arguments, "top-k", 0, INT64_MAX,
                          &sampling->top_k));
    TRY(arguments_real(arguments, "top-p", 0, 1, &sampling->top_p));
    TRY(arguments_real(arguments, "min-p", 0, 1, &sampling->min_p));
    TRY(arguments_real(arguments, "repetition-penalty", 1e-3, 1e3,
                       &sampling->penalty));
    TRY(arguments_integer(arguments, "seed", 0, INT64_MAX, &seed));
    sampling->seed = (uint64_t)seed;
    return OK;
}

static status read_stops(struct generate_request *request,
                         struct arguments *arguments)
{
    int64_t count;

    TRY(prompts_given(arguments, "stop", &request->stops.items, &count));
    for (int64_t i = 0; i < count; i++)
        if (request->stops.items[i][0] == '\0')
            FAIL(ERR_USAGE, "--stop \"\": an empty text would end each text "
                            "before it begins");
    request->stops.count = (int)count;
    return OK;
}

static status read_request(struct generate_request *request,
                           struct arguments *arguments)
{
    static const char *const dtypes[] = {"float32", "float64", "bfloat16",
                                         "float16"};
    static const char *const caches[] = {"keys", "latent"};
    int64_t threads = 0, texts = 0;
    int dtype = 0, cache = 0;

    *request = (struct generate_request){
        .model = arguments->operands[0],
        .tokens = TOKENS_DEFAULT,
        .write = print_text};
    TRY(arguments_average(arguments, &request->average));
    TRY(arguments_device(arguments, &request->device));
    TRY(read_prompts(request, arguments));
    TRY(read_sampling(&request->sampling, arguments));
    TRY(read_stops(request, arguments));
    TRY(arguments_integer(arguments, "tokens", 1, INT64_MAX,
                          &request->tokens));
    TRY(arguments_integer(arguments, "batch", 1, GENERATOR_TEXTS_MOST, &texts));
    TRY(arguments_not_both(arguments, "batch", "speculative"));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(arguments_choice(arguments, "dtype", dtypes, 4, &dtype));
    TRY(arguments_choice(arguments, "cache", caches, 2, &cache));
    request->latent_cache = cache == 1;
    request->speculative = arguments_has(arguments, "speculative");
    (void)dtype_parse(dtypes[dtype], &request->dtype);
    request->stats = arguments_has(arguments, "stats");
    request->threads = (int)threads;
    request->texts = (int)texts;
    return OK;
}

static double rate(const struct generate_result *made)
{
    return made->tokens_s > 0 ? (double)made->tokens / made->tokens_s : 0;
}

/* The time of reading the weights once for each token, as a share of the
 * measured time. The first token comes with the prompt. */
static double limit_share(const struct generate_result *made)
{
    if (made->weight_rate <= 0 || made->tokens_s <= 0) return 0;
    return (double)(made->tokens - 1) * (double)made->weight_bytes /
           made->weight_rate / made->tokens_s;
}

static void print_stats(const struct generate_result *made)
{
    fprintf(stderr,
            "prompt    %lld tokens in %.1f ms\n"
            "tokens    %lld in %.1f ms, %.1f per second\n",
            (long long)made->prompt_tokens, 1e3 * made->prompt_s,
            (long long)made->tokens, 1e3 * made->tokens_s, rate(made));
    if (made->weight_rate > 0) /* unless a device apart has them */
        fprintf(stderr,
                "weights   %.1f MB a token, read at %.1f GB/s: at most %.1f "
                "tokens per second\n"
                "limit     %.0f%% of the time goes into that reading\n",
                1e-6 * (double)made->weight_bytes, 1e-9 * made->weight_rate,
                made->weight_rate / (double)made->weight_bytes,
                100 * limit_share(made));
    fprintf(stderr, "cache     %lld bytes for %lld positions\n",
            (long long)made->cache_bytes, (long long)made->cache_positions);
}

static void print_guesses(const struct generate_result *made)
{
    if (made->guessed == 0) return;
    fprintf(stderr, "guessed   %lld tokens, %lld of them right (%.0f%%)\n",
            (long long)made->guessed, (long long)made->right,
            100 * (double)made->right / (double)made->guessed);
}

static void print_notices(const struct generate_result *made, bool stats)
{
    if (made->notice[0] != '\0') fprintf(stderr, "%s\n", made->notice);
    if (made->stop == STOP_CONTEXT)
        fprintf(stderr, "stopped after %lld tokens: the model's context of "
                        "%lld is full\n",
                (long long)made->tokens, (long long)made->context);
    if (stats)
        print_stats(made);
    else if (isatty(STDERR_FILENO))
        fprintf(stderr, "%lld tokens, %.0f per second\n",
                (long long)made->tokens, rate(made));
    print_guesses(made);
}

static status print_json(const struct telling *telling, int64_t index,
                         const struct generate_result *made)
{
    const struct generate_request *request = telling->request;
    const struct text *text = &telling->text;
    static const char *const stops[] = {"tokens", "end of text", "context",
                                        "stop"};
    struct json_writer writer = {0};

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    json_write_key(&writer, "prompt");
    json_write_string(&writer, request->prompts[index]);
    json_write_key(&writer, "text");
    json_write_string_n(&writer, text->bytes ? text->bytes : "",
                        text->length);
    json_write_key(&writer, "prompt_tokens");
    json_write_integer(&writer, made->prompt_tokens);
    json_write_key(&writer, "tokens");
    json_write_integer(&writer, made->tokens);
    json_write_key(&writer, "ids");
    json_write_array(&writer);
    for (int64_t i = 0; i < request->ids->count; i++)
        json_write_integer(&writer, request->ids->ids[i]);
    json_write_array_end(&writer);
    json_write_key(&writer, "stopped_by");
    json_write_string(&writer, stops[made->stop]);
    json_write_key(&writer, "tokens_per_s");
    json_write_real(&writer, rate(made));
    if (request->speculative) {
        json_write_key(&writer, "guessed");
        json_write_integer(&writer, made->guessed);
        json_write_key(&writer, "guessed_right");
        json_write_integer(&writer, made->right);
    }
    json_write_key(&writer, "weight_bytes");
    json_write_integer(&writer, made->weight_bytes);
    json_write_key(&writer, "cache_bytes");
    json_write_integer(&writer, made->cache_bytes);
    json_write_key(&writer, "cache_positions");
    json_write_integer(&writer, made->cache_positions);
    if (made->weight_rate > 0) {
        json_write_key(&writer, "weight_bytes_per_s");
        json_write_real(&writer, made->weight_rate);
        json_write_key(&writer, "limit_share");
        json_write_real(&writer, limit_share(made));
    }
    json_write_object_end(&writer);
    return json_print(&writer, stdout);
}

static status finish_json(void *argument, int64_t index,
                          const struct generate_result *made)
{
    struct telling *telling = argument;

    if (made->notice[0] != '\0' && index == 0)
        fprintf(stderr, "%s\n", made->notice);
    TRY(print_json(telling, index, made));
    telling->text.length = 0;
    telling->ids.count = 0;
    return OK;
}

static status generate_json(struct generate_request *request)
{
    struct telling telling = {.request = request};
    struct generate_result made;
    status result;

    request->write = keep_text;
    request->finish = finish_json;
    request->argument = &telling;
    request->ids = &telling.ids;
    result = generate(request, &made);
    token_list_free(&telling.ids);
    text_free(&telling.text);
    return result;
}

/* An empty line parts texts. */
static status finish_text(void *argument, int64_t index,
                          const struct generate_result *made)
{
    const struct telling *telling = argument;

    putchar('\n');
    if (index + 1 < telling->request->prompt_count) putchar('\n');
    fflush(stdout);
    print_notices(made, telling->request->stats);
    return OK;
}

status command_generate(struct arguments *arguments)
{
    struct generate_request request;
    struct generate_result made;
    struct telling telling = {.request = &request};

    TRY(read_request(&request, arguments));
    if (arguments_has(arguments, "json")) return generate_json(&request);
    request.echo = true;
    request.finish = finish_text;
    request.argument = &telling;
    return generate(&request, &made);
}
