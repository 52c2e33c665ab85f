/* SPDX-License-Identifier: Apache-2.0 */
/* test_likelihood.c - mirrors src/inference/likelihood.c: what lies beside a
 * request shows in no bit, in models with windows, soft caps, learned
 * positions and 16 bits; what is greedy is what the logits say. */
#include "inference/likelihood.h"

#include "tests/test.h"

enum { VOCAB = 61, LENGTH = 512, REQUESTS = 24, SEQUENCES = 2 };

static struct model tiny(const struct model_kind *kind)
{
    return (struct model){
        .kind = kind, .vocab = VOCAB, .layers = 2, .heads = 4, .kv_heads = 2,
        .head_width = 8, .width = 32, .feed_forward = 48, .context = LENGTH,
        .tied = true, .rope.base = 10000, .norm_epsilon = 1e-5,
        .activation = ACTIVATION_SILU, .init_std = 0.3,
        .ends = {.bos = -1, .eos = -1}};
}

/* Requests [from, last) of lengths around every border. */
static void make_requests(struct task_requests *r, int from, int last)
{
    static const int lengths[] = {1, 2, 15, 16, 17, 40, 100, 127, 128, 129,
                                  130, 200, 255, 256, 257, 300, 384, 400, 512,
                                  3, 60, 64, 5, 90};
    uint32_t seed = 77;

    *r = (struct task_requests){0};
    for (int i = 0; i < last; i++) {
        struct task_request request = {.first = r->ids.count, .item = i,
                                       .length = lengths[i]};
        void *grown = r->items;
        int32_t ids[LENGTH + 1];

        for (int j = 0; j <= lengths[i]; j++) {
            seed = seed * 1664525u + 1013904223u;
            ids[j] = (int32_t)((seed >> 9) % VOCAB);
        }
        request.scored = 1 + (i * 7) % lengths[i];
        if (i < from) continue;
        IS_OK(token_list_append(&r->ids, ids, lengths[i] + 1));
        IS_OK(memory_grow(&grown, (size_t)r->count + 1, sizeof *r->items));
        r->items = grown;
        r->items[r->count++] = request;
        r->scored += request.scored;
        if (request.length > r->longest) r->longest = request.length;
    }
}

static void open_stage(struct stage *stage, const struct model *model,
                       enum dtype dtype, int64_t sequences)
{
    const struct stage_request plan = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = dtype,
        .machine.isa = ISA_AUTO, .layout.grid = {1, 2, 1, 1},
        .size.batch = sequences,
        .size.micro_batch = sequences, .size.length = LENGTH,
        .backward = BACKWARD_NONE, .machine.threads = 2};

    IS_OK(stage_plan(stage, &plan));
    IS_OK(stage_open(stage));
    IS_OK(stage_init_weights(stage, model, 5));
}

static void ask(struct likelihoods *out, const struct task_requests *requests,
                const struct model *model, enum dtype dtype,
                int64_t sequences)
{
    struct stage stage;
    const struct likelihood_call call = {.greedy = true};

    open_stage(&stage, model, dtype, sequences);
    IS_OK(likelihood_alone(out, &stage, requests, &call));
    stage_free(&stage);
}

static void compare(const struct model *model, enum dtype dtype)
{
    struct task_requests all, one;
    struct likelihoods together, alone;

    make_requests(&all, 0, REQUESTS);
    ask(&together, &all, model, dtype, SEQUENCES);
    for (int i = 0; i < REQUESTS; i++) {
        make_requests(&one, i, i + 1);
        ask(&alone, &one, model, dtype, 1);
        CHECK(alone.sums[0] < 0);
        EQUAL_BYTES(&alone.sums[0], &together.sums[i], sizeof(double));
        EQUAL_INT(alone.greedy[0], together.greedy[i]);
        likelihoods_free(&alone);
        task_requests_free(&one);
    }
    likelihoods_free(&together);
    task_requests_free(&all);
}

TEST(what_lies_beside_a_request_does_not_show)
{
    struct model model = tiny(&model_llama);

    compare(&model, DTYPE_F32);
    compare(&model, DTYPE_F64);
    compare(&model, DTYPE_BF16);
    model = tiny(&model_mistral);
    model.window.tokens = 150;
    compare(&model, DTYPE_F32);
    model = tiny(&model_gpt2);
    model.kv_heads = 4;
    model.biases.attention = model.biases.mlp = true;
    model.activation = ACTIVATION_GELU_TANH;
    compare(&model, DTYPE_F32);
    model = tiny(&model_gemma2);
    model.window.tokens = 37;
    blocks_every(&model.window.whole, model.layers, 2);
    model.scaled.queries = 8;
    model.softcap.attention = 5;
    model.softcap.head = 3;
    model.activation = ACTIVATION_GELU_TANH;
    compare(&model, DTYPE_F32);
}

/* A request whose only target is the likeliest token is greedy, all others are
 * not: tried with every token. */
TEST(greedy_is_the_largest_logit)
{
    const struct model model = tiny(&model_llama);
    struct task_requests requests;
    struct likelihoods found;
    int greedy = 0, best = 0;

    make_requests(&requests, 5, 6);
    requests.items[0].scored = 1;
    requests.scored = 1;
    for (int32_t id = 0; id < VOCAB; id++) {
        struct task_request copy = requests.items[0];
        void *grown = requests.items;
        const int64_t first = requests.ids.count;

        if (id == 0) {
            requests.ids.ids[copy.length] = 0;
            continue;
        }
        /* One at a time: the list that grows is the one that is read. */
        for (int64_t i = 0; i < copy.length; i++) {
            const int32_t again = requests.ids.ids[i];

            IS_OK(token_list_append(&requests.ids, &again, 1));
        }
        IS_OK(token_list_append(&requests.ids, &id, 1));
        copy.first = first;
        copy.item = id;
        IS_OK(memory_grow(&grown, (size_t)requests.count + 1,
                          sizeof *requests.items));
        requests.items = grown;
        requests.items[requests.count++] = copy;
        requests.scored++;
    }
    ask(&found, &requests, &model, DTYPE_F32, SEQUENCES);
    for (int i = 0; i < VOCAB; i++) {
        greedy += found.greedy[i];
        if (found.sums[i] > found.sums[best]) best = i;
    }
    EQUAL_INT(greedy, 1);
    CHECK(found.greedy[best]);
    likelihoods_free(&found);
    task_requests_free(&requests);
}

/* ---- choices that share their context ---- */

enum { CHOICES = 3, ITEMS = 8 };

/* Items of CHOICES continuations of one context, lengths around borders of
 * granules; the last choice of the third begins unlike the others. */
static void make_items(struct task_requests *r)
{
    static const int contexts[ITEMS] = {3, 40, 126, 127, 130, 255, 300,
                                          470};
    uint32_t seed = 99;

    *r = (struct task_requests){0};
    for (int i = 0; i < ITEMS * CHOICES; i++) {
        const int item = i / CHOICES, choice = i % CHOICES;
        const int own = 1 + 9 * choice + item, length = contexts[item] + own;
        struct task_request request = {
            .first = r->ids.count, .item = item, .choice = choice,
            .length = length - 1, .scored = own};
        void *grown = r->items;
        int32_t ids[LENGTH];

        for (int j = 0; j < length; j++) {
            seed = seed * 1664525u + 1013904223u;
            ids[j] = (int32_t)((seed >> 9) % VOCAB);
            if (j < contexts[item] && (i != 8 || j > 20))
                ids[j] = (j * 7 + item) % VOCAB;
        }
        IS_OK(token_list_append(&r->ids, ids, length));
        IS_OK(memory_grow(&grown, (size_t)r->count + 1, sizeof *r->items));
        r->items = grown;
        r->items[r->count++] = request;
        r->scored += own;
        if (request.length > r->longest) r->longest = request.length;
    }
}

/* A sequence of its own, as any forward pass has it. */
static double plainly(struct stage *stage, const struct task_requests *all,
                      const struct task_request *r)
{
    const struct stage_batch batch = stage_batch(stage, 0);
    const int32_t *ids = all->ids.ids + r->first;
    double sum = 0;

    for (int t = 0; t < LENGTH; t++) {
        batch.inputs[t] = t < r->length ? ids[t] : 0;
        batch.targets[t] = t < r->length ? ids[t + 1] : -1;
    }
    stage->run.batch = (struct batch){.inputs = batch.inputs,
                                      .targets = batch.targets,
                                      .tokens = LENGTH};
    IS_OK(run_forward(&stage->run));
    for (int i = r->length - r->scored; i < r->length; i++)
        sum += stage->run.losses[i];
    return -sum;
}

static void share(const struct model *model, enum dtype dtype)
{
    struct task_requests all;
    struct likelihoods shared, wide;
    struct stage stage;
    int64_t tokens = 0;

    make_items(&all);
    ask(&shared, &all, model, dtype, 1); /* trunks fall apart */
    ask(&wide, &all, model, dtype, 3);
    open_stage(&stage, model, dtype, 1);
    for (int64_t i = 0; i < all.count; i++) {
        const double sum = plainly(&stage, &all, &all.items[i]);

        tokens += all.items[i].length;
        CHECK(sum < 0);
        EQUAL_BYTES(&sum, &shared.sums[i], sizeof sum);
        EQUAL_BYTES(&sum, &wide.sums[i], sizeof sum);
    }
    CHECK(wide.tokens < shared.tokens && shared.tokens < tokens * 3 / 5);
    stage_free(&stage);
    likelihoods_free(&shared);
    likelihoods_free(&wide);
    task_requests_free(&all);
}

TEST(a_shared_context_does_not_show)
{
    struct model model = tiny(&model_llama);

    share(&model, DTYPE_F32);
    share(&model, DTYPE_F64);
    share(&model, DTYPE_BF16);
    model = tiny(&model_mistral);
    model.window.tokens = 50;
    share(&model, DTYPE_F32);
    model = tiny(&model_gpt2);
    model.kv_heads = 4;
    model.biases.attention = model.biases.mlp = true;
    model.activation = ACTIVATION_GELU_TANH;
    share(&model, DTYPE_F32);
}

TEST_MAIN(what_lies_beside_a_request_does_not_show,
          a_shared_context_does_not_show,
          greedy_is_the_largest_logit)
