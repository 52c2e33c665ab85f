/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - text from a model, printed as it comes. */
#include "inference/generate.h"

#include <unistd.h>
#include "base/json.h"
#include "base/text.h"
#include "cli/run.h"
#include "cli/table.h"

enum { TOKENS_DEFAULT = 100 };

static const double temperature_default = 0.8;

static status print_text(void *argument, const char *bytes, size_t length)
{
    FILE *out = argument;
    struct text shown = {0}; /* a model may make bytes that are no text */
    status result;

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
    return text_append(argument, bytes, length);
}

static status read_request(struct generate_request *request,
                           const struct arguments *arguments)
{
    static const char *const dtypes[] = {"float32", "float64", "bfloat16",
                                         "float16"};
    static const char *const caches[] = {"keys", "latent"};
    int64_t threads = 0, seed = 1;
    int dtype = 0, cache = 0;

    *request = (struct generate_request){
        .model = arguments->operands[0],
        .prompt = arguments_text(arguments, "prompt", NULL),
        .tokens = TOKENS_DEFAULT,
        .sampling = {.temperature = temperature_default, .top_p = 1},
        .write = print_text,
        .argument = stdout};
    TRY(arguments_average(arguments, &request->average));
    TRY(arguments_device(arguments, &request->device));
    if (request->prompt == NULL)
        FAIL(ERR_USAGE, "generate needs --prompt TEXT; --prompt \"\" starts a "
                        "new text");
    TRY(arguments_integer(arguments, "tokens", 1, INT64_MAX,
                          &request->tokens));
    TRY(arguments_real(arguments, "temperature", 0, 1e6,
                       &request->sampling.temperature));
    TRY(arguments_integer(arguments, "top-k", 0, INT64_MAX,
                          &request->sampling.top_k));
    TRY(arguments_real(arguments, "top-p", 0, 1, &request->sampling.top_p));
    TRY(arguments_integer(arguments, "seed", 0, INT64_MAX, &seed));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(arguments_choice(arguments, "dtype", dtypes, 4, &dtype));
    TRY(arguments_choice(arguments, "cache", caches, 2, &cache));
    request->latent_cache = cache == 1;
    request->speculative = arguments_has(arguments, "speculative");
    (void)dtype_parse(dtypes[dtype], &request->dtype);
    request->sampling.seed = (uint64_t)seed;
    request->stats = arguments_has(arguments, "stats");
    request->threads = (int)threads;
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

static status print_json(const struct generate_request *request,
                         const struct generate_result *made,
                         const struct text *text)
{
    static const char *const stops[] = {"tokens", "end of text", "context"};
    struct json_writer writer = {0};

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    json_write_key(&writer, "prompt");
    json_write_string(&writer, request->prompt);
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

static status generate_json(struct generate_request *request)
{
    struct generate_result made;
    struct token_list ids = {0};
    struct text text = {0};
    status result;

    request->write = keep_text;
    request->argument = &text;
    request->ids = &ids;
    TRY_GOTO(done, result, generate(request, &made));
    if (made.notice[0] != '\0') fprintf(stderr, "%s\n", made.notice);
    TRY_GOTO(done, result, print_json(request, &made, &text));
done:
    token_list_free(&ids);
    text_free(&text);
    return result;
}

status command_generate(struct arguments *arguments)
{
    struct generate_request request;
    struct generate_result made;

    TRY(read_request(&request, arguments));
    if (arguments_has(arguments, "json")) return generate_json(&request);
    request.echo = true;
    TRY(generate(&request, &made));
    putchar('\n');
    print_notices(&made, request.stats);
    return OK;
}
