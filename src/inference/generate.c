/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - text that continues a prompt, token by token, over a key-value
 * cache. */
#include "inference/generate.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "inference/text_ends.h"
#include "tokenizer/tokenizer.h"

struct generating {
    struct session session;
    struct tokenizer tokenizer;
    struct token_list ids;     /* of the text, with what modules guess */
    struct generator generator;
    struct token_decoder decoder;
    struct text text;          /* certain, not yet written */
    struct sample_candidate *scratch; /* owned [vocab] */
    bool *marks;               /* owned [vocab]: none is set */
    struct sampling sampling;  /* of this text */
    struct text_ends ends;
};

/* The ids of the prompt; an empty one begins as a text does, after the end of
 * another. */
static status encode(struct generating *g, const char *prompt)
{
    const struct model *model = &g->session.model;

    g->ids.count = 0;
    TRY(tokenizer_encode(&g->tokenizer, prompt, strlen(prompt), true, &g->ids));
    if (g->ids.count == 0) {
        const int32_t start = g->ends.count > 0 ? g->ends.ids[0] : -1;

        if (start < 0)
            FAIL(ERR_CONFIG, "an empty prompt has no token to begin with, and "
                             "the tokenizer has no end-of-text token; give a "
                             "--prompt");
        TRY(token_list_append(&g->ids, &start, 1));
    }
    if (g->ids.count >= model_longest(model))
        FAIL(ERR_CONFIG, "the prompt has %lld tokens, the model's context of "
                         "%lld leaves no room to continue; shorten it to %lld",
             (long long)g->ids.count, (long long)model->context,
             (long long)model->context - 1);
    return OK;
}

static status prepare(struct generating *g,
                      const struct generate_request *request)
{
    struct session *session = &g->session;
    const struct model *model = &session->model;
    void *memory;

    TRY(sampling_check(&request->sampling));
    TRY(session_open(session, request->model));
    session->average = request->average;
    session->device = request->device;
    session->latent_cache = request->latent_cache;
    if (request->latent_cache && model->mla.rank == 0)
        FAIL(ERR_CONFIG, "--cache latent: %s is a %s, which has no latent "
                         "attention; deepseek_v2, deepseek_v3 and "
                         "glm4_moe_lite have it; take --cache keys",
             request->model, model->kind->name);
    session->speculative = request->speculative;
    if (request->speculative && model->mtp_depth == 0)
        FAIL(ERR_CONFIG, "--speculative: %s has no modules that predict later "
                         "tokens; train it with mtp.depth, or leave "
                         "--speculative out", request->model);
    if (session->tokenizer[0] == 0)
        FAIL(ERR_MISSING, "%s: has no tokenizer, so text cannot become "
                          "tokens; put the one it was trained with into %s",
             request->model, session->directory);
    TRY(tokenizer_read(&g->tokenizer, session->tokenizer));
    if (tokenizer_vocab(&g->tokenizer) > model->vocab)
        FAIL(ERR_CONFIG, "%s: has %lld tokens, the model only %lld: it is the "
                         "tokenizer of another model", session->tokenizer,
             (long long)tokenizer_vocab(&g->tokenizer),
             (long long)model->vocab);
    text_ends_find(&g->tokenizer, &session->model, &g->ends);
    TRY(memory_take((size_t)model->vocab, sizeof *g->scratch, &memory));
    g->scratch = memory;
    TRY(memory_take((size_t)model->vocab, sizeof *g->marks, &memory));
    g->marks = memory;
    return OK;
}

static int64_t prompt_count(const struct generate_request *request)
{
    return request->prompts != NULL ? request->prompt_count : 1;
}

static const char *prompt_at(const struct generate_request *request, int64_t i)
{
    return request->prompts != NULL ? request->prompts[i] : request->prompt;
}

/* Room for the longest; a prompt that does not fit is found before the first
 * text is made. */
static status open_generator(struct generating *g,
                             const struct generate_request *request)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < prompt_count(request); i++) {
        const status result = encode(g, prompt_at(request, i));

        if (result != OK && request->prompt_file != NULL)
            return status_fail(result, __FILE__, __LINE__, "%s, line %lld: %s",
                               request->prompt_file,
                               (long long)request->prompt_lines[i],
                               status_message());
        TRY(result);
        if (g->ids.count > longest) longest = g->ids.count;
    }
    const int64_t room = model_longest(&g->session.model) - longest;
    const int64_t more = request->tokens < room ? request->tokens : room;

    /* A text that begins with less may grow by as many tokens. */
    return generator_open(&g->generator, &g->session, request->dtype,
                          request->threads, longest, longest + more);
}

/* Writes what no stop can take back; all: no token follows. *found: a stop is
 * there, and the text ends before it. */
static status flush(struct generating *g,
                    const struct generate_request *request, bool all,
                    bool *found)
{
    const size_t length = g->text.length;
    const size_t certain = stop_text_certain(&request->stops, g->text.bytes,
                                             length, all, found);

    if (certain > 0 && request->write != NULL)
        TRY(request->write(request->argument, g->text.bytes, certain));
    if (certain > 0)
        memmove(g->text.bytes, g->text.bytes + certain, length - certain);
    g->text.length = *found ? 0 : length - certain;
    return OK;
}

/* Puts token `id` at position `at` of the text; *ends: it is the last. */
static status take_token(struct generating *g,
                         const struct generate_request *request,
                         struct generate_result *result, int32_t id,
                         int64_t at, bool *ends)
{
    *ends = true;
    if (text_ends_has(&g->ends, id)) {
        result->stop = STOP_END_OF_TEXT;
        return OK;
    }
    result->tokens++;
    if (request->ids != NULL) TRY(token_list_append(request->ids, &id, 1));
    /* Ids above the tokenizer's vocabulary pad the model's table: they have no
     * text. */
    if (id < tokenizer_vocab(&g->tokenizer))
        TRY(token_decoder_next(&g->decoder, id, &g->text));
    TRY(flush(g, request, false, ends));
    if (*ends) {
        result->stop = STOP_TEXT;
        return OK;
    }
    *ends = true;
    if (result->tokens == request->tokens) return OK;
    *ends = at == model_longest(&g->session.model);
    if (*ends) result->stop = STOP_CONTEXT;
    return OK;
}

/* Token number `row` of those that the last call has logits of, after the first
 * `position` ones of the text. */
static status choose(struct generating *g, int64_t row, int64_t position,
                     int32_t *id)
{
    struct tensor logits = tensor_rows(g->generator.logits, row, 1);

    sample_penalize(&g->sampling, &logits, g->ids.ids, position, g->marks);
    return sample_token(&g->sampling, &logits, position, g->scratch, id);
}

static status make_tokens(struct generating *g,
                          const struct generate_request *request,
                          struct generate_result *result)
{
    struct generator *generator = &g->generator;
    bool ends = request->tokens == 0;

    while (!ends) {
        const int64_t at = generator->position;
        int32_t id;

        TRY(choose(g, 0, at, &id));
        TRY(take_token(g, request, result, id, at, &ends));
        TRY(token_list_append(&g->ids, &id, 1));
        if (!ends) TRY(generator_feed(generator, &id, 1));
    }
    return OK;
}

/* ---- tokens that modules guess ---- */

/* Appends guesses to the text, drawn as the tokens will be; returns how many.
 * One that cannot be drawn is no error of the text. */
static status guess(struct generating *g, int64_t most, int64_t *count)
{
    *count = 0;
    for (int d = 0; d < g->generator.modules.depth && *count < most; d++) {
        int32_t id;

        TRY(generator_guess(&g->generator, d, g->ids.ids));
        if (choose(g, 0, g->ids.count, &id) != OK) {
            status_clear();
            break;
        }
        TRY(token_list_append(&g->ids, &id, 1));
        ++*count;
    }
    return OK;
}

/* Takes the tokens that the model chooses after those it has checked, up to the
 * first that was guessed wrongly. guesses: at the end of the text. */
static status check_guesses(struct generating *g,
                            const struct generate_request *request,
                            struct generate_result *result, int64_t guesses,
                            bool *ends)
{
    const int64_t base = g->ids.count - guesses;
    bool right = true;
    int64_t row = 0;

    for (*ends = false; right && !*ends && row <= guesses; row++) {
        int32_t id;

        TRY(choose(g, row, base + row, &id));
        right = row < guesses && id == g->ids.ids[base + row];
        result->right += right;
        TRY(take_token(g, request, result, id, base + row, ends));
        g->ids.count = base + row; /* guesses from here on are over */
        TRY(token_list_append(&g->ids, &id, 1));
    }
    return OK;
}

static status make_guessed(struct generating *g,
                           const struct generate_request *request,
                           struct generate_result *result)
{
    struct generator *generator = &g->generator;
    int64_t guesses = 0;

    for (;;) {
        int64_t most = request->tokens - 1;
        bool ends;

        TRY(check_guesses(g, request, result, guesses, &ends));
        if (ends) return OK;
        generator_back(generator, g->ids.count - 1);
        most -= result->tokens;
        if (most > generator->context - g->ids.count)
            most = generator->context - g->ids.count;
        TRY(guess(g, most, &guesses));
        result->guessed += guesses;
        TRY(generator_feed_last(generator,
                                g->ids.ids + generator->position,
                                1 + guesses, 1 + guesses));
    }
}

/* Continues prompt number `index`. */
static status write_text(struct generating *g,
                         const struct generate_request *request, int64_t index,
                         struct generate_result *result)
{
    const char *prompt = prompt_at(request, index);
    double start, middle;
    bool found;

    TRY(encode(g, prompt));
    g->sampling = request->sampling;
    g->sampling.seed += (uint64_t)index;
    g->decoder = (struct token_decoder){.tokenizer = &g->tokenizer};
    g->text.length = 0;
    *result = (struct generate_result){.prompt_tokens = g->ids.count,
                                       .context =
                                           g->session.model.context};
    if (g->session.notice.length > 0)
        snprintf(result->notice, sizeof result->notice, "%s",
                 g->session.notice.bytes);
    if (request->echo && request->write != NULL)
        TRY(request->write(request->argument, prompt, strlen(prompt)));
    start = clock_s();
    generator_begin(&g->generator);
    TRY(generator_feed(&g->generator, g->ids.ids, g->ids.count));
    middle = clock_s();
    result->prompt_s = middle - start;
    result->stop = STOP_TOKENS;
    TRY(request->speculative ? make_guessed(g, request, result)
                             : make_tokens(g, request, result));
    if (result->stop != STOP_TEXT)
        TRY(token_decoder_end(&g->decoder, &g->text));
    TRY(flush(g, request, true, &found));
    if (found) result->stop = STOP_TEXT;
    result->tokens_s = clock_s() - middle;
    result->weight_bytes = generator_weight_bytes(&g->generator);
    result->cache_bytes =
        (int64_t)g->generator.stage.memory[MEMORY_CACHE].bytes;
    result->cache_positions = g->generator.stage.program.size.context;
    if (request->stats)
        result->weight_rate = generator_weight_rate(&g->generator);
    return request->finish != NULL
               ? request->finish(request->argument, index, result) : OK;
}

static status run(struct generating *g,
                  const struct generate_request *request,
                  struct generate_result *result)
{
    TRY(prepare(g, request));
    TRY(open_generator(g, request));
    for (int64_t i = 0; i < prompt_count(request); i++)
        TRY(write_text(g, request, i, result));
    return OK;
}

status generate(const struct generate_request *request,
                struct generate_result *result)
{
    struct generating g = {0};
    const status code = run(&g, request, result);

    generator_close(&g.generator);
    memory_free(g.scratch);
    memory_free(g.marks);
    text_free(&g.text);
    token_list_free(&g.ids);
    tokenizer_free(&g.tokenizer);
    session_close(&g.session);
    return code;
}
