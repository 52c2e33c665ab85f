/* SPDX-License-Identifier: Apache-2.0 */
/* test_forecast.c - memory and seconds that search estimates (planner/memory.h,
 * cost.h) beside the plan to the byte and the executor's own lists, over drawn
 * models and layouts. */
#include "train/forecast.h"

#include <math.h>

#include "planner/memory.h"
#include "tests/test.h"
#include "train/found_layouts.h"

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

static const char *const zeros[] = {
    "ddp", "zero1", "zero2", "fsdp", "hsdp",
    "{weights: [shard], gradients: [shard], states: [data, shard]}",
    "{weights: [shard], gradients: [data, shard], states: [data, shard]}",
    "{states: [shard]}", "{gradients: [shard], states: [shard]}",
    "{gradients: [shard], states: [data, shard]}"};
enum { PRESETS = 4, SETS = sizeof zeros / sizeof *zeros };

static const char *with_latents(const char *recompute)
{
    if (strcmp(recompute, "none") == 0) return "latent";
    return recompute[0] == 'a' ? "attention, latent" : recompute;
}

/* Families with and without experts, with latent attention, modules for later
 * tokens; every axis, ZeRO, recomputation and schedule that search tries. */
static void draw_one(struct drawn *d, int with_experts)
{
    static const char *const dense[] = {"llama", "qwen3", "gpt2"};
    static const char *const mixed[] = {"mixtral", "olmoe", "qwen3_moe",
                                        "deepseek_v3"};
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
    const int shard = 1 + draw(2);
    const char *zero = zeros[draw(shard > 1 ? SETS : PRESETS)];
    size_t used;

    if (latent && layers % 8 == 0) recompute = with_latents(recompute);
    d->ranks = tensor * context * pipe * data * shard * expert;
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
             "mesh: {tensor: %d, context: %d, pipe: %d, data: %d, shard: %d, "
             "expert: %d, "
             "expert_tensor: %d, expert_context: %s}\n"
             "schedule: {name: %s}\n"
             "numerics: {grid_context: %d}\n"
             "train: {batch: %d, micro_batch: %d, dtype: %s, steps: 1, "
             "recompute: [%s]}\n", zero, tensor, context, pipe, data,
             shard, expert, folds && tensor > 1 ? 1 : 0,
             folds_context ? "true" : "false",
             pipe > 1 ? schedule : "1f1b", context,
             data * shard * expert * micro * count, micro,
             dtype, recompute);
}

/* False: setup refuses the layout. Free it in both cases. */
static bool forecast_with(struct forecast *f, const char *text, int ranks,
                          const char *const *settings)
{
    *f = (struct forecast){.ranks = ranks, .as = AS_LOCKSTEP};
    IS_OK(options_init(&f->set));
    IS_OK(options_read_text(&f->set, text, strlen(text), "test", ORIGIN_FILE));
    for (; *settings != NULL; settings++)
        IS_OK(options_assign(&f->set, *settings, ORIGIN_FILE));
    IS_OK(machine_open(&f->machine, &(struct machine_choice){.what = "h100"}));
    IS_OK(forecast_model(f));
    if (forecast_layout(f) == OK) return true;
    status_clear();
    return false;
}

static bool forecast_of(struct forecast *f, const char *text, int ranks)
{
    static const char *const none[] = {NULL};

    return forecast_with(f, text, ranks, none);
}

/* A search counts and keeps parts of it: the same. */
static void same_least(const struct forecast *f)
{
    static struct known_sums kept[2]; /* of the layouts before */
    struct known_sums none[2] = {{.sums = 0}};
    struct layout l = f->layout;
    const double least = memory_least(&l, &f->shape, none);

    memory_count_ends(&l, &f->shape);
    CHECK(memory_least(&l, &f->shape, kept) == least);
    CHECK(memory_least(&l, &f->shape, kept) == least);
}

/* The estimate over the plan; 0: setup refuses the layout. */
static double ratio_of(const struct drawn *d)
{
    struct forecast f;
    double ratio = 0;
    int at;

    if (forecast_of(&f, d->text, d->ranks)) {
        ratio = memory_largest(&f.layout, &f.shape, &at) / f.exact_bytes;
        same_least(&f);
    }
    forecast_free(&f);
    return ratio;
}

/* Micro-batches that are leaves of a named grid are reduced one by one. */
TEST(a_named_grid_is_estimated)
{
    static const char text[] =
        "model: {family: llama, vocab: 4096, layers: 8, width: 512, heads: 8, "
        "feed_forward: 1024}\ndata: {sequence: 512}\nmesh: {data: 8}\n"
        "zero: fsdp\nnumerics: {grid_data: %d}\n"
        "train: {batch: 256, micro_batch: 2, steps: 1, recompute: [none]}\n";
    static const int grids[] = {32, 64, 128, 256};

    for (int i = 0; i < ROWS(grids); i++) {
        struct drawn d = {.ranks = 8};

        snprintf(d.text, sizeof d.text, text, grids[i]);
        const double ratio = ratio_of(&d);

        print_message("grid_data %d: %.3f\n", grids[i], ratio);
        CHECK(fabs(ratio - 1) < 0.08);
    }
}

/* So does a search: each estimate is near the plan that follows it. */
TEST(a_search_estimates_a_named_grid)
{
    static const char text[] =
        "model: {family: llama, vocab: 4096, layers: 8, width: 512, heads: 8, "
        "feed_forward: 1024}\ndata: {sequence: 512}\nmesh: {data: 8}\n"
        "numerics: {grid_data: 256}\n"
        "train: {batch: 512, steps: 1}\n";
    struct found_layouts h = {.objective = OBJECTIVE_MEMORY, .top = 8};

    CHECK(forecast_of(&h.forecast, text, 8));
    IS_OK(found_run(&h));
    CHECK(h.kept_count == 8);
    for (int i = 0; i < h.kept_count; i++) {
        const struct candidate *c = &h.search.found[h.kept[i]];
        int at;
        const double ratio = memory_largest(&c->layout, &h.forecast.shape,
                                            &at) / c->memory_bytes;

        print_message("data %d, micro-batch %d, zero %d: %.3f\n",
                      c->layout.data, (int)c->layout.micro_batch,
                      c->layout.zero, ratio);
        EQUAL_INT(c->layout.grid_data, 256);
        CHECK(h.exact[i] && fabs(ratio - 1) < 0.08);
    }
    found_free(&h);
    forecast_free(&h.forecast);
}

/* Adapters alone have gradients and states. */
TEST(adapters_are_estimated)
{
    double sum = 0, worst = 0;
    int count = 0;

    state = 52000;
    for (int i = 0; i < 60; i++) {
        struct drawn d, tuned;

        draw_one(&d, i % 2);
        tuned.ranks = d.ranks;
        snprintf(tuned.text, LINES, "lora: {rank: %d}\n%.900s", 8 << draw(3),
                 d.text);
        const double ratio = ratio_of(&tuned);

        if (ratio == 0) continue;
        count++;
        sum += fabs(ratio - 1);
        if (fabs(ratio - 1) > worst) worst = fabs(ratio - 1);
    }
    print_message("%d plans, mean %.1f%%, largest %.1f%%\n", count,
                  100 * sum / count, 100 * worst);
    CHECK(count > 30 && sum < 0.013 * count && worst < 0.085);
}

/* Sums of integers, recipes, and weights and activations that are their
 * codes. */
enum { SETTINGS_MOST = 8 };
static void draw_numerics(const char *out[SETTINGS_MOST])
{
    static const char *const recipes[] = {
        "numerics.recipe=fp8-tiles", "numerics.recipe=mxfp8",
        "numerics.recipe=nvfp4", "numerics.recipe=bitnet",
        "numerics.recipe=hfp8", "numerics.recipe=mxfp4-quartet",
        "numerics.recipe=fp8-delayed"};
    int n = 0;

    if (draw(2)) out[n++] = "numerics.sums=integer";
    if (draw(4) > 0) {
        out[n++] = "train.dtype=bfloat16";
        out[n++] = recipes[draw(ROWS(recipes))];
        if (draw(2)) out[n++] = "train.kept_weights=auto";
        if (draw(2)) out[n++] = "fsdp.gather_format=auto";
        if (draw(2)) out[n++] = "train.saved_activations=auto";
    }
    out[n] = NULL;
}

TEST(numerics_are_estimated)
{
    double sum = 0, worst = 0;
    int count = 0;

    state = 81000;
    for (int i = 0; i < 120; i++) {
        const char *settings[SETTINGS_MOST];
        struct forecast f;
        struct drawn d;

        draw_one(&d, i % 2);
        draw_numerics(settings);
        if (forecast_with(&f, d.text, d.ranks, settings)) {
            int at;
            const double ratio = memory_largest(&f.layout, &f.shape, &at) /
                                 f.exact_bytes;
            char text[160];

            if (fabs(ratio - 1) > 0.05) {
                print_message("%.4f %d %s", ratio, i,
                              layout_text(&f.layout, text, sizeof text));
                for (int k = 0; settings[k] != NULL; k++)
                    print_message(" %s", settings[k]);
                print_message("\n");
            }
            count++;
            sum += fabs(ratio - 1);
            if (fabs(ratio - 1) > worst) worst = fabs(ratio - 1);
        }
        forecast_free(&f);
    }
    print_message("%d plans, mean %.1f%%, largest %.1f%%\n", count,
                  100 * sum / count, 100 * worst);
    CHECK(count > 60 && sum < 0.011 * count && worst < 0.09);
}

/* Seconds of the lists of all ranks, by cause, and of the step. */
struct timed_sums { double seconds[CAUSES], step; };

static void add_list(const struct steps *steps, const struct timed_list *list,
                     struct timed_sums *out)
{
    for (int i = 0; i < list->count; i++) {
        const struct spent *span = &steps->spans[list->items[i].kind];
        const double whole = spent_seconds(span);

        for (int c = 0; c < CAUSES && whole > 0; c++)
            out->seconds[c] += list->items[i].seconds * span->seconds[c] /
                               whole;
    }
}

static void sums_of(const struct forecast *f, struct steps *steps,
                    struct timed_sums *out)
{
    const struct cost cost = forecast_cost(f);
    const struct weather weather = {.slow = NULL};
    struct prediction found;

    *out = (struct timed_sums){.step = 0};
    IS_OK(predict_steps(&found, steps, &cost, &weather));
    out->step = found.step_s;
    for (int r = 0; r < steps->lists.ranks; r++)
        add_list(steps, &steps->lists.lists[r], out);
    steps_free(steps);
}

/* The executor's own lists, and the closed form. */
struct both { struct timed_sums lists, closed; };

static bool time_both(const char *text, int ranks, struct both *out)
{
    struct forecast f;
    const bool works = forecast_of(&f, text, ranks);
    struct steps steps;

    if (works) {
        const struct cost cost = forecast_cost(&f);

        IS_OK(forecast_steps(&f, &steps));
        CHECK(f.walked);
        sums_of(&f, &steps, &out->lists);
        IS_OK(steps_build(&steps, &cost));
        sums_of(&f, &steps, &out->closed);
    }
    forecast_free(&f);
    return works;
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
                  "largest %.1f%%\n", count[0],
                  100 * sum[0] / count[0], count[1],
                  100 * sum[1] / count[1], 100 * most);
    CHECK(count[0] > DRAWS / 8 && count[1] > DRAWS / 5);
    CHECK(sum[0] < 0.011 * count[0] && sum[1] < 0.008 * count[1]);
    CHECK(most < 0.08);
}

static double off(double estimate, double list)
{
    return fabs(log(estimate / list));
}

/* Products and attention are the same numbers of FLOP, whatever is divided and
 * made again. Steps differ most in small models whose context ranks add
 * gradients in some micro-batches and not in others. */
TEST(closed_forms_time_what_the_lists_time)
{
    double sum = 0, products = 0, attention = 0, step = 0;
    int count = 0;

    for (int i = 0; i < DRAWS; i++) {
        struct both b;
        struct drawn d;

        draw_one(&d, i % 3 != 0);
        if (!time_both(d.text, d.ranks, &b)) continue;
        const double p = off(b.closed.seconds[CAUSE_PRODUCT],
                             b.lists.seconds[CAUSE_PRODUCT]);
        const double a = off(b.closed.seconds[CAUSE_ATTENTION],
                             b.lists.seconds[CAUSE_ATTENTION]);
        const double all = off(b.closed.step, b.lists.step);

        count++;
        sum += all;
        if (p > products) products = p;
        if (a > attention) attention = a;
        if (all > step) step = all;
    }
    print_message("%d steps: mean %.1f%%, largest %.1f%%; products %.1f%%, "
                  "attention %.1f%%\n", count, 100 * sum / count, 100 * step,
                  100 * products, 100 * attention);
    CHECK(count > DRAWS / 2 && sum < 0.13 * count && step < 0.9);
    CHECK(products < 0.03 && attention < 0.07);
}

static const char recipes_text[] =
    "model: {family: %s, vocab: 4096, layers: 8, width: 1024, heads: 16, "
    "kv_heads: 8, feed_forward: 2048, tied: false}\n%s"
    "data: {sequence: 2048}\nmesh: {%s}\n"
    "train: {batch: 16, micro_batch: 1, dtype: bfloat16, steps: 1, "
    "recompute: [%s]}\nnumerics: {recipe: %s, %sgrid_context: %d}\n";

/* Roundings are of the same numbers of elements in the closed form and in the
 * lists, whatever is divided and made again. */
TEST(closed_forms_round_what_the_lists_round)
{
    static const char *const recipes[] = {"fp8-tiles", "nvfp4",
                                          "mxfp4-quartet", "bitnet", "mxfp8"};
    static const char *const meshes[] = {"data: 2", "tensor: 2, data: 2",
                                         "pipe: 2, data: 2", "context: 2"};
    static const int ranks[] = {2, 4, 4, 2};

    for (int i = 0; i < ROWS(recipes) * ROWS(meshes); i++) {
        const int mesh = i % ROWS(meshes);
        const bool straight = i / ROWS(meshes) == 2 || i / ROWS(meshes) == 3;
        const bool mixed = i % 3 == 0, gated = i / 2 % 2 == 0 && !straight;
        char text[LINES];
        struct both b;

        snprintf(text, sizeof text, recipes_text,
                 mixed ? "mixtral" : "llama",
                 mixed ? "moe: {experts: 8, top_k: 2}\n" : "", meshes[mesh],
                 i % 2 == 0 ? "none" : "block", recipes[i / ROWS(meshes)],
                 gated ? "recipe_rows: [\"glu e4m3 1x128 up\"], " : "",
                 mesh == 3 ? 2 : 1);
        CHECK(time_both(text, ranks[mesh], &b));
        print_message("%s, %s, %s%s: %.5f and %.5f s\n",
                      recipes[i / ROWS(meshes)], meshes[mesh],
                      mixed ? "mixed" : "dense", gated ? ", glu" : "",
                      b.lists.seconds[CAUSE_ROUNDING],
                      b.closed.seconds[CAUSE_ROUNDING]);
        CHECK(b.lists.seconds[CAUSE_ROUNDING] > 0);
        CHECK(off(b.closed.seconds[CAUSE_ROUNDING],
                  b.lists.seconds[CAUSE_ROUNDING]) < 0.05);
    }
}

static const char nodes_text[] =
    "model: {family: llama, vocab: 32000, layers: 16, width: 2048, heads: 16, "
    "feed_forward: 8192, tied: false}\ndata: {sequence: 2048}\n"
    "zero: %s\nmesh: {shard: 8, data: 4}\n"
    "train: {batch: 64, micro_batch: 1, dtype: bfloat16, steps: 1, "
    "recompute: [none]}\n";

/* Weights that are divided inside a node: their gradients also go between the
 * nodes, once a round. */
TEST(copies_of_a_shard_send_each_other_their_gradients)
{
    for (int i = PRESETS; i < SETS; i++) {
        char text[LINES];
        struct both b;

        snprintf(text, sizeof text, nodes_text, zeros[i]);
        CHECK(time_both(text, 32, &b));
        print_message("%s: %.4f and %.4f s; steps %.4f and %.4f s\n",
                      zeros[i], b.lists.seconds[CAUSE_DATA],
                      b.closed.seconds[CAUSE_DATA], b.lists.step,
                      b.closed.step);
        CHECK(off(b.closed.seconds[CAUSE_DATA],
                  b.lists.seconds[CAUSE_DATA]) < 0.1);
        CHECK(off(b.closed.step, b.lists.step) < 0.3);
    }
}

static const char pairs_text[] =
    "model: {family: mixtral, vocab: 4096, layers: 8, width: 2048, heads: "
    "16, kv_heads: 8, feed_forward: 4096, tied: false}\n"
    "moe: {experts: 16, top_k: 2}\ndata: {sequence: 4096}\n"
    "mesh: {pipe: 2, expert: 8}\nschedule: {name: %s}\n"
    "train: {batch: 128, micro_batch: 1, dtype: bfloat16, steps: 1, "
    "recompute: [none]}\n";

/* Rows of a micro-batch travel while the other one of its pair is computed. */
TEST(pairs_hide_rows_of_experts)
{
    struct both straight, pairs;
    char text[LINES];

    snprintf(text, sizeof text, pairs_text, "1f1b");
    CHECK(time_both(text, 16, &straight));
    snprintf(text, sizeof text, pairs_text, "dualpipe");
    CHECK(time_both(text, 16, &pairs));
    print_message("rows in lists %.4f and %.4f s, closed %.4f and %.4f s\n",
                  straight.lists.seconds[CAUSE_EXPERT],
                  pairs.lists.seconds[CAUSE_EXPERT],
                  straight.closed.seconds[CAUSE_EXPERT],
                  pairs.closed.seconds[CAUSE_EXPERT]);
    CHECK(pairs.lists.seconds[CAUSE_EXPERT] <
          0.6 * straight.lists.seconds[CAUSE_EXPERT]);
    CHECK(pairs.closed.seconds[CAUSE_EXPERT] <
          0.6 * straight.closed.seconds[CAUSE_EXPERT]);
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
    char yaml[LINES];
    struct both b;

    snprintf(yaml, sizeof yaml, text, expert_tensor);
    CHECK(time_both(yaml, 8, &b));
    return b.lists.seconds[CAUSE_PRODUCT];
}

/* As many FLOP in wider products. */
TEST(whole_experts_have_no_more_products_than_cut_ones)
{
    const double cut = products_of(0), whole = products_of(1);

    CHECK(whole < cut && whole > 0.8 * cut);
}

static double planned(const char *text, int ranks, struct hunting *hunting)
{
    struct forecast f = {.ranks = ranks, .as = AS_LOCKSTEP,
                         .hunting = hunting};
    double bytes;

    IS_OK(options_init(&f.set));
    IS_OK(options_read_text(&f.set, text, strlen(text), "test", ORIGIN_FILE));
    IS_OK(machine_open(&f.machine, &(struct machine_choice){.what = "h100"}));
    IS_OK(forecast_model(&f));
    IS_OK(forecast_exactly(&f));
    bytes = f.exact_bytes;
    forecast_free(&f);
    return bytes;
}

static double step_of(struct forecast *f, struct steps *steps)
{
    const struct cost cost = forecast_cost(f);
    const struct weather weather = {.slow = NULL};
    struct prediction p;

    IS_OK(predict_steps(&p, steps, &cost, &weather));
    steps_free(steps);
    return p.step_s;
}

/* One go plans and times what two do, and times nothing that is too large. */
static void times_in_one_go(const char *text)
{
    struct forecast f;
    struct steps steps;

    CHECK(forecast_of(&f, text, 4));
    const double bytes = f.exact_bytes;

    IS_OK(forecast_steps(&f, &steps));
    const double step = step_of(&f, &steps);

    f.exact_bytes = 0;
    f.max_memory = 1e15;
    IS_OK(forecast_exactly_timed(&f, bytes, &steps));
    CHECK(f.exact_bytes == bytes && steps.lists.ranks == f.layout.pipe);
    CHECK(step_of(&f, &steps) == step);
    f.exact_bytes = 0;
    IS_OK(forecast_exactly_timed(&f, bytes - 1, &steps));
    CHECK(f.exact_bytes == bytes && steps.lists.ranks == 0);
    steps_free(&steps);
    forecast_free(&f);
}

/* No layout shows in the plan of the next. */
TEST(layouts_that_follow_each_other_are_planned_as_alone)
{
    static const char *const meshes[] = {
        "mesh: {pipe: 4}\nschedule: {name: zb-h2}\n",
        "mesh: {pipe: 4}\nschedule: {name: 1f1b}\n",
        "mesh: {pipe: 2, tensor: 2}\nschedule: {name: 1f1b}\n",
        "mesh: {pipe: 2, data: 2}\nzero: zero1\nschedule: {name: zb-v}\n",
        "mesh: {pipe: 2, data: 2}\nzero: zero2\nschedule: {name: zb-v}\n",
        "mesh: {pipe: 2, data: 2}\nschedule: {name: dualpipe}\n"};
    static const char model[] =
        "model: {family: llama, vocab: 4096, layers: 8, width: 512, heads: 8, "
        "feed_forward: 1024}\ndata: {sequence: 512}\n"
        "train: {batch: 32, micro_batch: %d, steps: 1}\n%s";
    struct hunting hunting = {.parameters = 0};

    for (int i = 0; i < 2 * ROWS(meshes); i++) {
        char text[LINES];

        snprintf(text, sizeof text, model, 1 + i / ROWS(meshes),
                 meshes[i % ROWS(meshes)]);
        const double follows = planned(text, 4, &hunting);

        CHECK(follows == planned(text, 4, &hunting));
        CHECK(follows == planned(text, 4, NULL));
        times_in_one_go(text);
    }
    CHECK(hunting.parameters > 0);
    hunting_free(&hunting);
}

/* Seconds of a step with so many bytes a second to the host, and of the copies
 * there, on the mean rank. */
struct away { double step, copies; int items; };
static struct away away_with(const char *text, int ranks, unsigned offload,
                             double rate)
{
    const struct weather weather = {.slow = NULL};
    struct forecast f;
    struct steps steps;
    struct prediction p;
    struct away away = {.items = 0};

    CHECK(forecast_of(&f, text, ranks));
    f.layout.offload = f.offload = offload;
    f.machine.value[M_HOST_RATE] = rate;
    IS_OK(forecast_steps(&f, &steps));
    CHECK(f.walked);
    const struct cost cost = forecast_cost(&f);

    IS_OK(predict_steps(&p, &steps, &cost, &weather));
    for (int r = 0; r < steps.lists.ranks; r++)
        for (int i = 0; i < steps.lists.lists[r].count; i++)
            away.items += steps.lists.lists[r].items[i].resource ==
                          CLOCK_OFFLOAD;
    away.step = p.step_s;
    away.copies = p.resource_s[CLOCK_OFFLOAD];
    steps_free(&steps);
    forecast_free(&f);
    return away;
}

/* The way to the host is a resource of the executor's lists: without a limit it
 * costs nothing, and with a tight one it is the step. */
TEST(the_host_is_a_resource_of_the_lists)
{
    static const char *const layouts[] = {
        "mesh: {pipe: 4}\nschedule: {name: 1f1b}\n",
        "mesh: {pipe: 2, data: 2}\nzero: fsdp\nschedule: {name: zb-v}\n",
        "mesh: {pipe: 2, data: 2}\nschedule: {name: dualpipe}\n",
        "mesh: {data: 4}\nzero: zero2\n"};
    static const unsigned whats[] = {
        OFFLOAD_ACTIVATIONS, OFFLOAD_WEIGHTS, OFFLOAD_STATES,
        OFFLOAD_ACTIVATIONS | OFFLOAD_WEIGHTS | OFFLOAD_STATES};
    static const char model[] =
        "model: {family: llama, vocab: 4096, layers: 8, width: 512, heads: 8, "
        "feed_forward: 1024}\ndata: {sequence: 512}\n"
        "train: {batch: 32, micro_batch: 1, steps: 1}\n%s";

    for (int i = 0; i < ROWS(layouts) * ROWS(whats); i++) {
        const unsigned what = whats[i % ROWS(whats)];
        char text[LINES];

        snprintf(text, sizeof text, model, layouts[i / ROWS(whats)]);
        const struct away none = away_with(text, 4, 0, 1e9),
                          fast = away_with(text, 4, what, 1e18),
                          slow = away_with(text, 4, what, 1e6),
                          half = away_with(text, 4, what, 2e6);

        CHECK(none.items == 0 && fast.items > 0 && fast.items == slow.items);
        CHECK(off(fast.step, none.step) < 1e-6);
        CHECK(off(slow.copies, 2 * half.copies) < 1e-9);
        CHECK(slow.step >= slow.copies && slow.copies > 100 * none.step);
        CHECK(half.step < 0.51 * slow.step);
    }
}

TEST_MAIN(estimates_are_near_the_plan, the_host_is_a_resource_of_the_lists,
          a_named_grid_is_estimated,
          a_search_estimates_a_named_grid,
          closed_forms_time_what_the_lists_time,
          closed_forms_round_what_the_lists_round,
          copies_of_a_shard_send_each_other_their_gradients,
          pairs_hide_rows_of_experts,
          whole_experts_have_no_more_products_than_cut_ones,
          layouts_that_follow_each_other_are_planned_as_alone,
          adapters_are_estimated, numerics_are_estimated)
