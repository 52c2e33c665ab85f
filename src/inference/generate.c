/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - text that continues a prompt, token by token, over a key-value
 * cache. */
#include "inference/generate.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status_kept.h"
#include "inference/text_ends.h"
#include "tokenizer/tokenizer.h"

/* A text that is under way, or over and not yet told because one before it is
 * not. */
struct writing {
    int64_t index;             /* of its prompt */
    struct token_list ids;     /* of the text, with what modules guess */
    struct token_decoder decoder;
    struct text uncertain;     /* bytes that a stop may take back */
    struct text kept;          /* certain, not yet told */
    struct sampling sampling;
    struct generate_result result;
    double began;              /* its first token, in seconds */
    bool over;
    status failed;             /* why it is over, if it cannot go on */
};

struct seat { struct writing *text; int32_t cache; };

struct generating {
    struct session session;
    struct tokenizer tokenizer;
    struct token_list ids;     /* of a prompt that is looked at */
    struct generator generator;
    struct sample_candidate *scratch; /* owned [vocab] */
    bool *marks;               /* owned [vocab]: none is set */
    struct text_ends ends;
    struct writing *ring;      /* owned [room]: of prompt i at i % room */
    int64_t room;
    int64_t prompts;           /* whose texts are made */
    int64_t told, begun;       /* prompts whose texts were told; were begun */
    struct seat *seats;        /* owned [texts]: the first `active` ones have a
                                * text that is under way, the caches of the
                                * others are free */
    int active;
    struct generator_next *next; /* owned [texts] */
    double weight_rate;        /* 0: not yet measured */
    struct status_trace failure; /* of a text that failed */
};

/* The ids of the prompt; an empty one begins as a text does, after the end of
 * another. */
static status encode(const struct generating *g, const char *prompt,
                     struct token_list *ids)
{
    const struct model *model = &g->session.model;

    ids->count = 0;
    TRY(tokenizer_encode(&g->tokenizer, prompt, strlen(prompt), true, ids));
    if (ids->count == 0) {
        const int32_t start = g->ends.count > 0 ? g->ends.ids[0] : -1;

        if (start < 0)
            FAIL(ERR_CONFIG, "an empty prompt has no token to begin with, and "
                             "the tokenizer has no end-of-text token; give a "
                             "--prompt");
        TRY(token_list_append(ids, &start, 1));
    }
    if (ids->count >= model_longest(model))
        FAIL(ERR_CONFIG, "the prompt has %lld tokens, the model's context of "
                         "%lld leaves no room to continue; shorten it to %lld",
             (long long)ids->count, (long long)model->context,
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
    const int64_t prompts = g->prompts = prompt_count(request);
    const int64_t wanted =
        request->texts > 0 ? request->texts : GENERATOR_TEXTS;
    int64_t longest = 0;

    for (int64_t i = 0; i < prompts; i++) {
        const status result = encode(g, prompt_at(request, i), &g->ids);

        if (result != OK && request->prompt_file != NULL)
            return status_fail(result, __FILE__, __LINE__, "%s, line %lld: %s",
                               request->prompt_file,
                               (long long)request->prompt_lines[i],
                               status_message());
        TRY(result);
        if (g->ids.count > longest) longest = g->ids.count;
    }
    const int64_t left = model_longest(&g->session.model) - longest;
    const int64_t more = request->tokens < left ? request->tokens : left;
    const struct generator_room room = {
        .prompt = longest,
        /* A text that begins with less may grow by as many tokens. */
        .context = longest + more,
        /* Guesses of one text are checked in one call. */
        .texts = request->speculative ? 1
                 : (int)(wanted < prompts ? wanted : prompts),
        .fewer = request->texts == 0};

    return generator_open(&g->generator, &g->session, request->dtype,
                          request->threads, &room);
}

/* Texts that are over may wait for one before them that goes on. */
static status take_room(struct generating *g,
                        const struct generate_request *request)
{
    enum { WAITING = 4 }; /* for each that is under way */
    const int64_t prompts = prompt_count(request);
    const size_t texts = (size_t)g->generator.texts;
    void *memory;

    g->room = WAITING * (int64_t)texts;
    if (g->room > prompts) g->room = prompts;
    TRY(memory_take((size_t)g->room, sizeof *g->ring, &memory));
    g->ring = memory;
    TRY(memory_take(texts, sizeof *g->next, &memory));
    g->next = memory;
    TRY(memory_take(texts, sizeof *g->seats, &memory));
    g->seats = memory;
    for (size_t i = 0; i < texts; i++) g->seats[i].cache = (int32_t)i;
    return OK;
}

static void free_room(struct generating *g)
{
    for (int64_t i = 0; g->ring != NULL && i < g->room; i++) {
        token_list_free(&g->ring[i].ids);
        text_free(&g->ring[i].uncertain);
        text_free(&g->ring[i].kept);
    }
    memory_free(g->ring);
    memory_free(g->seats);
    memory_free(g->next);
}

/* ---- telling, in the order of prompts ---- */

static status tell(struct generating *g,
                   const struct generate_request *request, struct writing *w,
                   const char *bytes, size_t length)
{
    if (request->write == NULL || length == 0) return OK;
    if (w->index != g->told) return text_append(&w->kept, bytes, length);
    return request->write(request->argument, bytes, length);
}

static status tell_kept(const struct generate_request *request,
                        struct writing *w)
{
    const size_t length = w->kept.length;

    w->kept.length = 0;
    return length > 0 ? request->write(request->argument, w->kept.bytes,
                                       length) : OK;
}

static status tell_end(struct generating *g,
                       const struct generate_request *request,
                       struct writing *w, struct generate_result *result)
{
    struct generate_result *made = &w->result;

    if (request->ids != NULL)
        TRY(token_list_append(request->ids, w->ids.ids + made->prompt_tokens,
                              made->tokens));
    made->weight_bytes = generator_weight_bytes(&g->generator);
    made->cache_bytes =
        (int64_t)g->generator.stage.memory[MEMORY_CACHE].bytes /
        g->generator.texts;
    made->cache_positions = g->generator.stage.program.size.context;
    if (request->stats && g->weight_rate == 0)
        g->weight_rate = generator_weight_rate(&g->generator);
    made->weight_rate = g->weight_rate;
    *result = *made;
    return request->finish != NULL
               ? request->finish(request->argument, w->index, made) : OK;
}

/* Tells of texts that are over, and what there is of the first that is not. */
static status tell_those(struct generating *g,
                         const struct generate_request *request,
                         struct generate_result *result)
{
    while (g->told < g->begun) {
        struct writing *w = &g->ring[g->told % g->room];

        TRY(tell_kept(request, w));
        if (!w->over) return OK;
        if (w->failed != OK) return status_again(w->failed, &g->failure);
        TRY(tell_end(g, request, w, result));
        g->told++;
    }
    return OK;
}

/* Tells what no stop can take back; all: no token follows. *found: a stop is
 * there, and the text ends before it. */
static status flush(struct generating *g,
                    const struct generate_request *request, struct writing *w,
                    bool all, bool *found)
{
    struct text *text = &w->uncertain;
    const size_t length = text->length;
    const size_t certain = stop_text_certain(&request->stops, text->bytes,
                                             length, all, found);

    TRY(tell(g, request, w, text->bytes, certain));
    if (certain > 0)
        memmove(text->bytes, text->bytes + certain, length - certain);
    text->length = *found ? 0 : length - certain;
    return OK;
}

/* ---- tokens ---- */

/* Puts token `id` at position `at` of the text; *ends: it is the last. */
static status take_token(struct generating *g,
                         const struct generate_request *request,
                         struct writing *w, int32_t id, int64_t at, bool *ends)
{
    struct generate_result *result = &w->result;

    *ends = true;
    if (text_ends_has(&g->ends, id)) {
        result->stop = STOP_END_OF_TEXT;
        return OK;
    }
    result->tokens++;
    /* Ids above the tokenizer's vocabulary pad the model's table: they have no
     * text. */
    if (id < tokenizer_vocab(&g->tokenizer))
        TRY(token_decoder_next(&w->decoder, id, &w->uncertain));
    TRY(flush(g, request, w, false, ends));
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

/* The token after the first `position` ones of the text, of row `row` of those
 * that the last call has logits of. */
static status choose(struct generating *g, const struct writing *w,
                     int64_t row, int64_t position, int32_t *id)
{
    struct tensor logits = tensor_rows(g->generator.logits, row, 1);

    sample_penalize(&w->sampling, &logits, w->ids.ids, position, g->marks);
    return sample_token(&w->sampling, &logits, position, g->scratch, id);
}

/* As where texts are made one by one: those before this one are finished, and
 * its failure ends the command; those behind it are left out. */
static void fail_text(struct generating *g, struct writing *w, status why)
{
    status_keep(&g->failure);
    w->failed = why;
    w->over = true;
    g->prompts = w->index + 1;
}

static status choose_next(struct generating *g,
                          const struct generate_request *request,
                          struct writing *w, int64_t row)
{
    const int64_t at = w->ids.count;
    int32_t id;
    const status chosen = choose(g, w, row, at, &id);

    if (chosen != OK) {
        fail_text(g, w, chosen);
        return OK;
    }
    TRY(take_token(g, request, w, id, at, &w->over));
    return token_list_append(&w->ids, &id, 1);
}

/* ---- tokens that modules guess ---- */

/* Appends guesses to the text, drawn as the tokens will be; returns how many.
 * One that cannot be drawn is no error of the text. */
static status guess(struct generating *g, struct writing *w, int64_t most,
                    int64_t *count)
{
    *count = 0;
    for (int d = 0; d < g->generator.modules.depth && *count < most; d++) {
        int32_t id;

        TRY(generator_guess(&g->generator, d, w->ids.ids));
        if (choose(g, w, 0, w->ids.count, &id) != OK) {
            status_clear();
            break;
        }
        TRY(token_list_append(&w->ids, &id, 1));
        ++*count;
    }
    return OK;
}

/* Takes the tokens that the model chooses after those it has checked, up to the
 * first that was guessed wrongly. guesses: at the end of the text. */
static status check_guesses(struct generating *g,
                            const struct generate_request *request,
                            struct writing *w, int64_t guesses)
{
    const int64_t base = w->ids.count - guesses;
    bool right = true;
    int64_t row = 0;

    for (; right && !w->over && row <= guesses; row++) {
        int32_t id;

        TRY(choose(g, w, row, base + row, &id));
        right = row < guesses && id == w->ids.ids[base + row];
        w->result.right += right;
        TRY(take_token(g, request, w, id, base + row, &w->over));
        w->ids.count = base + row; /* guesses from here on are over */
        TRY(token_list_append(&w->ids, &id, 1));
    }
    return OK;
}

/* All of a text, from the logits of its prompt. */
static status make_guessed(struct generating *g,
                           const struct generate_request *request,
                           struct writing *w)
{
    struct generator *generator = &g->generator;
    int64_t guesses = 0;

    for (;;) {
        int64_t most = request->tokens - 1;

        TRY(check_guesses(g, request, w, guesses));
        if (w->over) return OK;
        generator_back(generator, w->ids.count - 1);
        most -= w->result.tokens;
        if (most > generator->context - w->ids.count)
            most = generator->context - w->ids.count;
        TRY(guess(g, w, most, &guesses));
        w->result.guessed += guesses;
        TRY(generator_feed_last(generator,
                                w->ids.ids + generator->position,
                                1 + guesses, 1 + guesses));
    }
}

/* ---- texts ---- */

/* The last bytes of a text. */
static status end_text(struct generating *g,
                       const struct generate_request *request,
                       struct writing *w)
{
    bool found;

    if (w->result.stop != STOP_TEXT)
        TRY(token_decoder_end(&w->decoder, &w->uncertain));
    TRY(flush(g, request, w, true, &found));
    if (found) w->result.stop = STOP_TEXT;
    w->result.tokens_s = clock_s() - w->began;
    return OK;
}

/* The next prompt in a cache that is free; room and cache are there. */
static status begin_text(struct generating *g,
                         const struct generate_request *request)
{
    const char *prompt = prompt_at(request, g->begun);
    struct writing *w = &g->ring[g->begun % g->room];
    struct seat *seat = &g->seats[g->active++];
    double start;

    seat->text = w;
    w->index = g->begun++;
    TRY(encode(g, prompt, &w->ids));
    w->over = request->tokens == 0;
    w->failed = OK;
    w->sampling = request->sampling;
    w->sampling.seed += (uint64_t)w->index;
    w->decoder = (struct token_decoder){.tokenizer = &g->tokenizer};
    w->uncertain.length = w->kept.length = 0;
    w->result = (struct generate_result){.prompt_tokens = w->ids.count,
                                         .context = g->session.model.context,
                                         .stop = STOP_TOKENS};
    if (g->session.notice.length > 0)
        snprintf(w->result.notice, sizeof w->result.notice, "%s",
                 g->session.notice.bytes);
    if (request->echo) TRY(tell(g, request, w, prompt, strlen(prompt)));
    start = clock_s();
    generator_begin(&g->generator, seat->cache);
    TRY(generator_feed(&g->generator, w->ids.ids, w->ids.count));
    w->began = clock_s();
    w->result.prompt_s = w->began - start;
    if (w->over) return OK;
    return request->speculative ? make_guessed(g, request, w)
                                : choose_next(g, request, w, 0);
}

/* Texts that are over, or left out, leave their caches. */
static status end_texts(struct generating *g,
                        const struct generate_request *request)
{
    for (int i = g->active - 1; i >= 0; i--) {
        const struct seat seat = g->seats[i];
        const struct writing *w = seat.text;

        if (!w->over && w->index < g->prompts) continue;
        if (w->failed == OK && w->index < g->prompts)
            TRY(end_text(g, request, seat.text));
        g->seats[i] = g->seats[--g->active];
        g->seats[g->active] = seat;
    }
    return OK;
}

/* Afterwards all that are under way go on. One may end with its first token. */
static status turn_texts(struct generating *g,
                         const struct generate_request *request,
                         struct generate_result *result)
{
    for (;;) {
        TRY(end_texts(g, request));
        TRY(tell_those(g, request, result));
        if (g->active == g->generator.texts || g->begun >= g->prompts ||
            g->begun == g->told + g->room)
            return OK;
        TRY(begin_text(g, request));
    }
}

/* A token of each text that is under way. */
static status make_tokens(struct generating *g,
                          const struct generate_request *request)
{
    for (int i = 0; i < g->active; i++) {
        const struct token_list *ids = &g->seats[i].text->ids;
        const int64_t last = ids->count - 1;

        g->next[i] = (struct generator_next){ids->ids[last], (int32_t)last,
                                             g->seats[i].cache};
    }
    TRY(generator_feed_each(&g->generator, g->next, g->active));
    for (int i = 0; i < g->active; i++)
        if (g->seats[i].text->index < g->prompts) /* one before it failed */
            TRY(choose_next(g, request, g->seats[i].text, i));
    return OK;
}

static status run(struct generating *g,
                  const struct generate_request *request,
                  struct generate_result *result)
{
    TRY(prepare(g, request));
    TRY(open_generator(g, request));
    TRY(take_room(g, request));
    for (;;) {
        TRY(turn_texts(g, request, result));
        if (g->active == 0) return OK;
        TRY(make_tokens(g, request));
    }
}

status generate(const struct generate_request *request,
                struct generate_result *result)
{
    struct generating g = {0};
    const status code = run(&g, request, result);

    free_room(&g);
    generator_close(&g.generator);
    memory_free(g.scratch);
    memory_free(g.marks);
    token_list_free(&g.ids);
    tokenizer_free(&g.tokenizer);
    session_close(&g.session);
    return code;
}
