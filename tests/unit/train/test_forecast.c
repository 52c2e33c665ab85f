/* SPDX-License-Identifier: Apache-2.0 */
/* test_forecast.c - the memory that search estimates (planner/memory.h) beside
 * the plan to the byte, over drawn models and layouts. */
#include "train/forecast.h"

#include <math.h>

#include "planner/memory.h"
#include "tests/test.h"

enum { DRAWS = 200, LINES = 1600 };

static uint64_t state = 20261127;

/* A number in [0, most). */
static int draw(int most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)most);
}

static int pick(const int *from, int count) { return from[draw(count)]; }

struct drawn { char text[LINES]; int ranks; };

/* Families with and without experts, with latent attention, modules for later
 * tokens; every axis, ZeRO, recomputation and schedule that search tries. */
static void draw_one(struct drawn *d, int with_experts)
{
    static const char *const dense[] = {"llama", "qwen3", "gpt2"};
    static const char *const mixed[] = {"mixtral", "olmoe", "qwen3_moe",
                                        "deepseek_v3"};
    static const char *const zeros[] = {"ddp", "zero1", "zero2", "fsdp"};
    static const char *const again[] = {"none", "attention", "block"};
    static const char *const names[] = {"1f1b", "interleaved", "zb-h1"};
    static const int powers[] = {1, 2, 4}, widths[] = {512, 1024, 2048};
    const char *family = with_experts ? mixed[draw(4)] : dense[draw(3)];
    const bool latent = strcmp(family, "deepseek_v3") == 0;
    const int width = pick(widths, 3), heads = width / 64;
    const int tensor = pick(powers, 3), context = 1 + draw(2);
    const int pipe = pick(powers, 3), data = pick(powers, 3);
    const int expert = with_experts ? pick(powers, 3) : 1;
    const int micro = pick(powers, 2), count = pipe * (1 + draw(4));
    const char *schedule = names[draw(3)];
    const bool folds = with_experts && draw(2) == 0;
    const int experts = 16;
    /* Drawn one by one: a compiler calls arguments in its own order. */
    const int forward = width * (1 + draw(3)), layers = 8 + 4 * draw(4);
    const int vocab = 4096 << draw(3), depth = latent ? draw(2) : 0;
    const bool capacity = with_experts && draw(3) == 0;
    const int top_k = with_experts ? 1 + draw(4) : 0;
    const char *recompute = again[draw(3)];
    const char *dtype = draw(3) == 0 ? "float32" : "bfloat16";
    const bool folds_context = folds && context > 1 && draw(2);
    const char *zero = zeros[draw(4)];
    size_t used;

    d->ranks = tensor * context * pipe * data * expert;
    used = (size_t)snprintf(
        d->text, LINES,
        "model: {family: %s, vocab: %d, layers: %d, width: %d, heads: %d, "
        "kv_heads: %d, feed_forward: %d%s}\n", family, vocab,
        layers, width, heads,
        latent || strcmp(family, "gpt2") == 0 ? heads : 8,
        forward,
        strcmp(family, "gpt2") == 0 ? "" : ", tied: false");
    if (latent)
        used += (size_t)snprintf(
            d->text + used, LINES - used,
            "mla: {query_rank: 256, rank: 128, nope: 64, rope: 32, value: 64}\n"
            "mtp: {depth: %d}\n", depth);
    if (with_experts)
        used += (size_t)snprintf(
            d->text + used, LINES - used,
            "moe: {experts: %d, top_k: %d%s%s}\n", experts, top_k,
            latent ? ", groups: 1, groups_chosen: 1, first_dense: 2, "
                     "intermediate_size: 256, shared_intermediate_size: 256"
            : strcmp(family, "qwen3_moe") == 0 ? ", intermediate_size: 256"
                                               : "",
            capacity ? ", capacity_factor: 1.25" : "");
    snprintf(d->text + used, LINES - used,
             "data: {sequence: 2048}\nzero: %s\n"
             "mesh: {tensor: %d, context: %d, pipe: %d, data: %d, expert: %d, "
             "expert_tensor: %d, expert_context: %s}\n"
             "schedule: {name: %s}\n"
             "numerics: {grid_context: %d}\n"
             "train: {batch: %d, micro_batch: %d, dtype: %s, steps: 1, "
             "recompute: [%s]}\n", zero, tensor, context, pipe, data,
             expert, folds && tensor > 1 ? 1 : 0,
             folds_context ? "true" : "false",
             pipe > 1 ? schedule : "1f1b", context,
             data * expert * micro * count, micro,
             dtype, recompute);
}

/* The estimate over the plan; 0: setup refuses the layout. */
static double ratio_of(const struct drawn *d)
{
    struct forecast f = {.ranks = d->ranks, .as = AS_LOCKSTEP};
    double ratio = 0;
    int at;

    IS_OK(options_init(&f.set));
    IS_OK(options_read_text(&f.set, d->text, strlen(d->text), "test",
                            ORIGIN_FILE));
    IS_OK(machine_open(&f.machine, &(struct machine_choice){.what = "h100"}));
    IS_OK(forecast_model(&f));
    if (forecast_layout(&f) == OK)
        ratio = memory_largest(&f.layout, &f.shape, &at) / f.exact_bytes;
    else
        status_clear(); /* setup refuses it */
    forecast_free(&f);
    return ratio;
}

TEST(estimates_are_near_the_plan)
{
    double sum[2] = {0}, most = 0;
    int count[2] = {0};

    for (int i = 0; i < DRAWS; i++) {
        const int mixed = i % 3 != 0;
        struct drawn d;
        double ratio;

        draw_one(&d, mixed);
        ratio = ratio_of(&d);
        if (ratio == 0) continue;
        count[mixed]++;
        sum[mixed] += fabs(ratio - 1);
        if (fabs(ratio - 1) > most) most = fabs(ratio - 1);
    }
    print_message("%d dense plans, mean %.1f%%; %d of mixtures, mean %.1f%%; "
                  "largest %.1f%%\n", count[0], 100 * sum[0] / count[0],
                  count[1], 100 * sum[1] / count[1], 100 * most);
    CHECK(count[0] > DRAWS / 8 && count[1] > DRAWS / 5);
    CHECK(sum[0] < 0.02 * count[0] && sum[1] < 0.02 * count[1]);
    CHECK(most < 0.08);
}

/* On the executor's own lists: seconds of products of a mixture whose experts
 * tensor ranks cut, or hold whole. */
static double products_of(int expert_tensor)
{
    static const char text[] =
        "model: {family: mixtral, vocab: 4096, layers: 4, width: 1024, heads: "
        "16, kv_heads: 8, feed_forward: 4096, tied: false}\n"
        "moe: {experts: 8, top_k: 2}\ndata: {sequence: 2048}\n"
        "mesh: {tensor: 4, expert: 2, expert_tensor: %d}\n"
        "train: {batch: 8, micro_batch: 4, dtype: bfloat16, steps: 1, "
        "recompute: [none]}\n";
    struct forecast f = {.ranks = 8, .as = AS_LOCKSTEP};
    const struct weather weather = {.slow = NULL};
    struct prediction found;
    struct steps steps;
    char yaml[LINES];

    snprintf(yaml, sizeof yaml, text, expert_tensor);
    IS_OK(options_init(&f.set));
    IS_OK(options_read_text(&f.set, yaml, strlen(yaml), "test", ORIGIN_FILE));
    IS_OK(machine_open(&f.machine, &(struct machine_choice){.what = "h100"}));
    IS_OK(forecast_model(&f));
    IS_OK(forecast_layout(&f));
    const struct cost cost = forecast_cost(&f);

    IS_OK(forecast_steps(&f, &steps));
    CHECK(f.walked);
    IS_OK(predict_steps(&found, &steps, &cost, &weather));
    steps_free(&steps);
    forecast_free(&f);
    return found.path_s[CAUSE_PRODUCT];
}

/* As many FLOP in wider products. */
TEST(whole_experts_have_no_more_products_than_cut_ones)
{
    const double cut = products_of(0), whole = products_of(1);

    CHECK(whole < cut && whole > 0.8 * cut);
}

TEST_MAIN(estimates_are_near_the_plan,
          whole_experts_have_no_more_products_than_cut_ones)
