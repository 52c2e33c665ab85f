/* SPDX-License-Identifier: Apache-2.0 */
/* test_generator.c - logits over a cache against those of a whole pass, and
 * what is drawn from them. */
#include <math.h>

#include "base/random.h"
#include "tests/test.h"
#include "inference/generator.h"
#include "inference/sample.h"
#include "inference/score.h"

static const char *const golden = "tests/golden/models";

enum { LENGTH_MAX = 64 };

/* Logits of one sequence in one piece, [length, vocab]. */
struct whole { char *bytes; size_t row; };

static status keep(void *argument, int64_t first, const struct tensor *logits)
{
    const struct whole *whole = argument;

    memcpy(whole->bytes + (size_t)first * whole->row, logits->data,
           (size_t)logits->shape[0] * whole->row);
    return OK;
}

static void whole_pass(struct session *session, enum dtype dtype,
                       const int32_t *ids, int64_t length,
                       struct whole *whole)
{
    int32_t targets[LENGTH_MAX];
    struct stage_request request;
    struct stage stage;
    void *memory;

    whole->row = (size_t)session->model.vocab *
                 (size_t)dtype_bytes(dtype_real(dtype));
    IS_OK(memory_take((size_t)length, whole->row, &memory));
    whole->bytes = memory;
    for (int64_t t = 0; t < length; t++) targets[t] = -1;
    IS_OK(session_request(session, 1, length, &request));
    request.dtype = dtype;
    IS_OK(session_stage(session, &request, &stage));
    stage.run.logits.read = keep;
    stage.run.logits.argument = whole;
    stage.run.batch = (struct batch){.inputs = ids, .targets = targets,
                                     .tokens = length};
    IS_OK(run_forward(&stage.run));
    stage_free(&stage);
}

/* Feeds the ids in calls of `first`, then one by one. */
static void feed(struct session *session, enum dtype dtype,
                 const int32_t *ids, int64_t length, int64_t first,
                 const struct whole *whole)
{
    struct generator generator;
    int64_t at = 0;

    IS_OK(generator_open(
        &generator, session, dtype, 1,
        &(struct generator_room){.prompt = first, .context = length}));
    for (int64_t now = first; at < length; now = 1) {
        IS_OK(generator_feed(&generator, ids + at, now));
        at += now;
        EQUAL_INT(tensor_count(&generator.logits), session->model.vocab);
        EQUAL_BYTES(generator.logits.data,
                    whole->bytes + (size_t)(at - 1) * whole->row, whole->row);
    }
    FAILS(generator_feed(&generator, ids, 1), ERR_CONFIG, "do not fit");
    generator_close(&generator);
}

TEST(logits_over_a_cache_equal_those_of_a_whole_pass)
{
    static const char *const names[] = {
        "gpt2", "llama_untied", "llama_nine_heads", "qwen3_mixed",
        "smollm3_mixed", "gemma3_mixed", "phi3_long", "deepseek_v2_lite",
        "deepseek_v3"};
    static const int64_t firsts[] = {1, 5, 37};

    static const enum dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16,
                                        DTYPE_F16};

    for (int i = 0; i < ROWS(dtypes) * ROWS(names); i++) {
        const enum dtype dtype = dtypes[i % ROWS(dtypes)];
        char model[PATH_BYTES], tokens[PATH_BYTES];
        struct session session;
        struct whole whole;
        int64_t sequences, length;
        int32_t *ids;

        IS_OK(path_join(model, PATH_BYTES, golden,
                        names[i / ROWS(dtypes)]));
        IS_OK(path_join(tokens, PATH_BYTES, model, "tokens.json"));
        IS_OK(session_open(&session, model));
        IS_OK(score_read_tokens(tokens, &session.model, &ids, &sequences,
                                &length));
        whole_pass(&session, dtype, ids, length, &whole);
        for (int j = 0; j < ROWS(firsts); j++)
            feed(&session, dtype, ids, length, firsts[j], &whole);
        memory_free(whole.bytes);
        memory_free(ids);
        session_close(&session);
    }
}

struct given { const int32_t *ids; int64_t length; };

/* Guards texts under way at once: each has the logits that it has alone, at
 * positions of its own, in a cache that another text had before. */
struct under_way {
    struct given given;
    const struct whole *whole;
    int at, text;
};

static void begin_text(struct generator *g, struct under_way *u, int first)
{
    generator_begin(g, u->text);
    IS_OK(generator_feed(g, u->given.ids, first));
    u->at = first;
}

static void feed_each(struct generator *g, struct under_way *all, int count)
{
    struct generator_next next[3];

    for (int i = 0; i < count; i++)
        next[i] = (struct generator_next){all[i].given.ids[all[i].at],
                                          all[i].at, all[i].text};
    IS_OK(generator_feed_each(g, next, count));
    EQUAL_INT(g->logits.shape[0], count);
    for (int i = 0; i < count; i++) {
        const struct whole *whole = all[i].whole;

        EQUAL_BYTES((char *)g->logits.data + (size_t)i * whole->row,
                    whole->bytes + (size_t)all[i].at++ * whole->row,
                    whole->row);
    }
}

/* The logits of a text that is alone, token by token. */
static void alone(struct session *session, enum dtype dtype,
                  const struct given *given, const struct whole *whole)
{
    struct generator g;

    IS_OK(generator_open(&g, session, dtype, 2,
                         &(struct generator_room){.prompt = 1,
                                                  .context = given->length}));
    for (int64_t t = 0; t < given->length; t++) {
        IS_OK(generator_feed(&g, given->ids + t, 1));
        memcpy(whole->bytes + (size_t)t * whole->row, g.logits.data,
               whole->row);
    }
    generator_close(&g);
}

static void feed_several(struct session *session, enum dtype dtype,
                         const struct given given[2],
                         const struct whole wholes[2])
{
    const int length = (int)given[0].length;
    struct generator g;
    struct under_way all[] = {{given[0], &wholes[0], 0, 2},
                              {given[1], &wholes[1], 0, 0},
                              {given[1], &wholes[1], 0, 1}};

    IS_OK(generator_open(
        &g, session, dtype, 2,
        &(struct generator_room){.prompt = 5, .context = length, .texts = 3}));
    EQUAL_INT(g.texts, 3);
    begin_text(&g, &all[0], 5);
    begin_text(&g, &all[1], 3);
    for (int i = 0; i < 4; i++) feed_each(&g, all, 2);
    begin_text(&g, &all[2], 1);
    while (all[0].at < length) feed_each(&g, all, 3);
    all[0] = (struct under_way){given[1], &wholes[1], 0, 2};
    begin_text(&g, &all[0], 2); /* after another sequence, at its end */
    while (all[1].at < length) feed_each(&g, all, 3);
    generator_close(&g);
}

TEST(texts_under_way_at_once_have_the_logits_they_have_alone)
{
    static const char *const names[] = {
        "gpt2", "llama_nine_heads", "gemma3_mixed", "phi3_long",
        "deepseek_v3"};
    static const enum dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};

    for (int i = 0; i < ROWS(dtypes) * ROWS(names); i++) {
        const enum dtype dtype = dtypes[i % ROWS(dtypes)];
        char model[PATH_BYTES], tokens[PATH_BYTES];
        struct session session;
        struct whole wholes[2];
        int64_t sequences, length;
        int32_t *ids, *turned;
        void *memory;

        IS_OK(path_join(model, PATH_BYTES, golden, names[i / ROWS(dtypes)]));
        IS_OK(path_join(tokens, PATH_BYTES, model, "tokens.json"));
        IS_OK(session_open(&session, model));
        IS_OK(score_read_tokens(tokens, &session.model, &ids, &sequences,
                                &length));
        IS_OK(memory_take((size_t)length, sizeof *turned, &memory));
        turned = memory;
        for (int64_t t = 0; t < length; t++) turned[t] = ids[length - 1 - t];
        const struct given given[2] = {{ids, length}, {turned, length}};

        for (int k = 0; k < 2; k++)
            whole_pass(&session, dtype, given[k].ids, length, &wholes[k]);
        feed_several(&session, dtype, given, wholes);
        if (session.model.mla.rank > 0) { /* over a cache of latents, too */
            session.latent_cache = true;
            for (int k = 0; k < 2; k++)
                alone(&session, dtype, &given[k], &wholes[k]);
            feed_several(&session, dtype, given, wholes);
        }
        for (int k = 0; k < 2; k++) memory_free(wholes[k].bytes);
        memory_free(turned);
        memory_free(ids);
        session_close(&session);
    }
}

/* Guards attention over a cache of latents: logits agree with those of a whole
 * pass up to roundings, their bits do not show how the ids were cut into calls,
 * and the cache has a latent and a rotary key of each position and no more. */
struct latent_case { enum dtype dtype; double tolerance; };

static double distance(const struct tensor *logits, const struct whole *whole,
                       int64_t row)
{
    const struct tensor other = tensor_1d(
        whole->bytes + (size_t)row * whole->row, logits->dtype,
        tensor_count(logits));
    double most = 0, largest = 0;

    for (int64_t i = 0; i < other.shape[0]; i++) {
        const double x = tensor_get(&other, i);

        most = fmax(most, fabs(x - tensor_get(logits, i)));
        largest = fmax(largest, fabs(x));
    }
    return most / largest;
}

/* Feeds the ids in calls of `first`, then one by one; `kept` [length] logits of
 * the last token of each call: the first time they are filled. */
static void feed_latents(struct session *session, const struct latent_case *row,
                         const struct given *given, int64_t first,
                         const struct whole *whole, struct whole *kept)
{
    const struct mla *of = &session->model.mla;
    const int64_t length = given->length;
    struct generator g;
    int64_t at = 0, others = 0;

    session->latent_cache = true;
    IS_OK(generator_open(
        &g, session, row->dtype, 2,
        &(struct generator_room){.prompt = first, .context = length}));
    EQUAL_INT(g.stage.program.caches.width, of->rank + of->rope);
    CHECK((int64_t)g.stage.memory[MEMORY_CACHE].bytes >=
          session->model.layers * length * (of->rank + of->rope) *
              dtype_bytes(row->dtype));
    CHECK((int64_t)g.stage.memory[MEMORY_CACHE].bytes <
          session->model.layers * (length + 16) * (of->rank + of->rope) *
              dtype_bytes(row->dtype) + 4096);
    for (int64_t now = first; at < length; now = 1) {
        IS_OK(generator_feed(&g, given->ids + at, now));
        at += now;
        const double far = distance(&g.logits, whole, at - 1);
        char *mine = kept->bytes + (size_t)(at - 1) * kept->row;

        if (!(far <= row->tolerance)) {
            printf("%s, token %d: %g\n", dtype_name(row->dtype), (int)at, far);
            others++;
        }
        if (first == 1) memcpy(mine, g.logits.data, kept->row);
        EQUAL_BYTES(g.logits.data, mine, kept->row);
    }
    /* Two bytes may tip a router over to another expert. */
    CHECK(10 * others <= (dtype_is_narrow(row->dtype) ? length : 0));
    generator_close(&g);
}

TEST(a_cache_of_latents_gives_the_same_logits_up_to_roundings)
{
    static const char *const names[] = {"deepseek_v2_lite", "deepseek_v2",
                                        "deepseek_v3"};
    static const struct latent_case rows[] = {
        {DTYPE_F64, 1e-13}, {DTYPE_F32, 1e-5}, {DTYPE_BF16, 0.05},
        {DTYPE_F16, 0.01}};
    static const int64_t firsts[] = {1, 5, 37};

    for (int i = 0; i < ROWS(rows) * ROWS(names); i++) {
        const struct latent_case *row = &rows[i % ROWS(rows)];
        char model[PATH_BYTES], tokens[PATH_BYTES];
        struct session session;
        struct whole whole, kept;
        int64_t sequences, length;
        int32_t *ids;
        void *memory;

        IS_OK(path_join(model, PATH_BYTES, golden, names[i / ROWS(rows)]));
        IS_OK(path_join(tokens, PATH_BYTES, model, "tokens.json"));
        IS_OK(session_open(&session, model));
        IS_OK(score_read_tokens(tokens, &session.model, &ids, &sequences,
                                &length));
        whole_pass(&session, row->dtype, ids, length, &whole);
        kept = whole;
        IS_OK(memory_take((size_t)length, whole.row, &memory));
        kept.bytes = memory;
        for (int j = 0; j < ROWS(firsts); j++)
            feed_latents(&session, row, &(struct given){ids, length},
                         firsts[j], &whole, &kept);
        memory_free(kept.bytes);
        memory_free(whole.bytes);
        memory_free(ids);
        session_close(&session);
    }
}

/* Logits of the table below; the likeliest two are equal. */
static double row[] = {0.5, 2, -1, 2, 1, -400};
enum { ROW = sizeof row / sizeof *row };

static int32_t draw(const struct sampling *sampling, int64_t position)
{
    const struct tensor logits = tensor_2d(row, DTYPE_F64, 1, ROW);
    struct sample_candidate scratch[ROW];
    int32_t id = -1;

    IS_OK(sample_token(sampling, &logits, position, scratch, &id));
    CHECK(id >= 0 && id < ROW);
    return id;
}

TEST(temperature_zero_takes_the_largest_and_the_lowest_id)
{
    const struct sampling greedy = {.top_p = 1, .seed = 7};

    for (int64_t i = 0; i < 20; i++) EQUAL_INT(draw(&greedy, i), 1);
}

TEST(cuts_keep_the_likeliest_tokens)
{
    static const struct {
        struct sampling sampling;
        unsigned seen; /* one bit for each id that must appear */
    } rows[] = {
        {{.temperature = 1, .top_p = 1, .seed = 1}, 0x1f},
        {{.temperature = 1, .top_k = 1, .top_p = 1, .seed = 1}, 0x02},
        {{.temperature = 1, .top_k = 3, .top_p = 1, .seed = 1}, 0x1a},
        {{.temperature = 1, .top_p = 0.3, .seed = 1}, 0x02},
        {{.temperature = 1, .top_p = 0.7, .seed = 1}, 0x0a},
        {{.temperature = 1, .top_k = 5, .top_p = 0.8, .seed = 1}, 0x1a},
        {{.temperature = 0.01, .top_p = 1, .seed = 1}, 0x0a},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        unsigned seen = 0;

        for (int64_t position = 0; position < 1000; position++)
            seen |= 1u << draw(&rows[i].sampling, position);
        EQUAL_INT(seen, rows[i].seen);
    }
}

/* Frequencies against probabilities, within four standard deviations. */
TEST(draws_follow_the_probabilities)
{
    static const double expected[] = {0.0845, 0.3787, 0.0189, 0.3787, 0.1393};
    const struct sampling sampling = {.temperature = 1, .top_p = 1, .seed = 3};
    enum { DRAWS = 20000 };
    int counts[ROW] = {0};

    for (int64_t i = 0; i < DRAWS; i++) counts[draw(&sampling, i)]++;
    for (int i = 0; i < ROWS(expected); i++) {
        const double gap = counts[i] / (double)DRAWS - expected[i];

        CHECK(gap * gap < 16 * expected[i] * (1 - expected[i]) / DRAWS);
    }
    EQUAL_INT(counts[5], 0);
}

TEST(equal_seeds_draw_equal_tokens)
{
    const struct sampling a = {.temperature = 1, .top_p = 1, .seed = 3},
                          b = {.temperature = 1, .top_p = 1, .seed = 4};
    int differ = 0;

    for (int64_t i = 0; i < 100; i++) {
        EQUAL_INT(draw(&a, i), draw(&a, i));
        differ += draw(&a, i) != draw(&b, i);
    }
    CHECK(differ > 10);
}

TEST(settings_outside_their_range_are_refused)
{
    const struct sampling cold = {.temperature = -1, .top_p = 1},
                          few = {.top_k = -1, .top_p = 1},
                          none = {.top_p = 0}, most = {.top_p = 1.5};

    FAILS(sampling_check(&cold), ERR_CONFIG, "temperature of -1");
    FAILS(sampling_check(&few), ERR_CONFIG, "top-k of -1");
    FAILS(sampling_check(&none), ERR_CONFIG, "top-p of 0");
    FAILS(sampling_check(&most), ERR_CONFIG, "top-p of 1.5");
    status_clear();
}

TEST(a_logit_that_is_no_number_stops)
{
    double bad[] = {0, __builtin_nan("")};
    const struct tensor logits = tensor_2d(bad, DTYPE_F64, 1, 2);
    const struct sampling greedy = {.top_p = 1};
    struct sample_candidate scratch[2];
    int32_t id;

    FAILS(sample_token(&greedy, &logits, 5, scratch, &id), ERR_NUMERIC,
          "token 1 at position 5");
}

/* The fast way for float32 draws what the definition draws. */
TEST(types_of_logits_draw_the_same_tokens)
{
    enum { VOCAB = 1337 };
    static const struct sampling rows[] = {
        {.top_p = 1},
        {.temperature = 1, .top_p = 1, .seed = 1},
        {.temperature = 0.07, .top_p = 1, .seed = 2},
        {.temperature = 3, .top_k = 200, .top_p = 0.9, .seed = 3}};
    static double wide[VOCAB];
    static float narrow[VOCAB];
    static struct sample_candidate scratch[VOCAB];
    const struct random_key key = random_key_make(1, "logits");

    for (int i = 0; i < VOCAB; i++) { /* some equal, some far below */
        const double u = random_uniform(key, (uint64_t)i);

        narrow[i] = (float)(i % 7 == 0 ? -60 * u : 8 * u);
        wide[i] = (double)narrow[i];
    }
    wide[700] = wide[1200] = 8.5;
    narrow[700] = narrow[1200] = 8.5f;
    for (int i = 0; i < ROWS(rows); i++)
        for (int64_t position = 0; position < 50; position++) {
            const struct tensor a = tensor_2d(wide, DTYPE_F64, 1, VOCAB);
            const struct tensor b = tensor_2d(narrow, DTYPE_F32, 1, VOCAB);
            int32_t first = -1, second = -2;

            IS_OK(sample_token(&rows[i], &a, position, scratch, &first));
            IS_OK(sample_token(&rows[i], &b, position, scratch, &second));
            EQUAL_INT(first, second);
            if (rows[i].temperature == 0) EQUAL_INT(first, 700);
        }
}

TEST(a_float32_logit_that_is_no_number_stops)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static float logits[1001];
    const struct tensor view = tensor_2d(logits, DTYPE_F32, 1, 1001);
    const struct sampling greedy = {.top_p = 1};
    int32_t id;

    for (int i = 0; i < ROWS(values); i++) {
        logits[1000] = logits[998] = values[i];
        FAILS(sample_token(&greedy, &view, 2, NULL, &id), ERR_NUMERIC,
              "token 998 at position 2");
    }
}

/* A tied model reads its table for the head; rows that are looked up do not
 * count. */
TEST(weights_of_a_token_are_all_but_looked_up_tables)
{
    static const struct {
        const char *name;
        int64_t without; /* elements */
    } rows[] = {{"gpt2", 64 * 40}, {"llama_untied", 131 * 42}};
    char path[PATH_BYTES];

    for (int i = 0; i < ROWS(rows); i++) {
        struct session session;
        struct generator generator;
        int64_t all = 0;

        IS_OK(path_join(path, sizeof path, golden, rows[i].name));
        IS_OK(session_open(&session, path));
        IS_OK(generator_open(
            &generator, &session, DTYPE_BF16, 2,
            &(struct generator_room){.prompt = 3, .context = 9}));
        const struct program *p = &generator.stage.program;

        for (int j = 0; j < p->params.count; j++)
            all += p->params.items[j].elements;
        EQUAL_INT(generator_weight_bytes(&generator),
                  2 * (all - rows[i].without));
        CHECK(generator_weight_rate(&generator) > 1e6);
        generator_close(&generator);
        session_close(&session);
    }
}

TEST_MAIN(logits_over_a_cache_equal_those_of_a_whole_pass,
          texts_under_way_at_once_have_the_logits_they_have_alone,
          a_cache_of_latents_gives_the_same_logits_up_to_roundings,
          temperature_zero_takes_the_largest_and_the_lowest_id,
          cuts_keep_the_likeliest_tokens, draws_follow_the_probabilities,
          equal_seeds_draw_equal_tokens,
          settings_outside_their_range_are_refused,
          a_logit_that_is_no_number_stops,
          types_of_logits_draw_the_same_tokens,
          a_float32_logit_that_is_no_number_stops,
          weights_of_a_token_are_all_but_looked_up_tables)
