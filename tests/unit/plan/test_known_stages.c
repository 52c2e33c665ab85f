/* SPDX-License-Identifier: Apache-2.0 */
/* test_known_stages.c - mirrors src/plan/known_stages.c: steps whose stages
 * share plans are those of stages that are planned one by one, to the bit. */
#include "plan/known_stages.h"

#include <string.h>

#include "tests/test.h"
#include "planner/search_time.h"
#include "train/forecast.h"

enum { DRAWS = 100, LINES = 1600 };

static uint64_t state = 101000;

static int draw(int most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)most);
}

/* Models whose blocks differ in some way, or in none. */
static const char *const models[] = {
    "model: {family: llama, vocab: 4096, layers: %d, width: 512, heads: 8}\n",
    "model: {family: gpt2, vocab: 4096, layers: %d, width: 512, heads: 8}\n",
    "model: {family: gemma3, vocab: 4096, layers: %d, width: 512, heads: 8, "
    "kv_heads: 4, window: 256}\n",
    "model: {family: smollm3, vocab: 4096, layers: %d, width: 512, heads: 8, "
    "kv_heads: 4}\n",
    "model: {family: deepseek_v3, vocab: 4096, layers: %d, width: 512, "
    "heads: 8, feed_forward: 1024, tied: false}\n"
    "mla: {query_rank: 256, rank: 128, nope: 64, rope: 32, value: 64}\n"
    "moe: {experts: 16, top_k: 2, intermediate_size: 256, first_dense: 3, "
    "shared_intermediate_size: 256}\nmtp: {depth: 1}\n",
    "model: {family: mixtral, vocab: 4096, layers: %d, width: 512, heads: 8}\n"
    "moe: {experts: 8, top_k: 2}\n",
    "model: {family: llama, vocab: 4096, layers: %d, width: 512, heads: 8}\n"
    "numerics: {recipe: fp8-tiles, grid_context: 2}\n",
    "model: {family: llama, vocab: 4096, layers: %d, width: 512, heads: 8}\n"
    "optimizer: {name: muon}\n",
    "model: {family: llama, vocab: 4096, layers: %d, width: 512, heads: 8}\n"
    "lora: {rank: 8}\n"};

struct drawn {
    char text[LINES];
    int ranks, microbatches, model;
    int each;              /* sequences of a micro-batch, of all ranks */
};

/* On ranks of a mesh with a pipe, or on one rank. */
static void draw_on(struct drawn *d, bool one_rank)
{
    static const char *const zeros[] = {"ddp", "zero1", "zero2", "fsdp"};
    static const char *const schedules[] = {
        "1f1b", "interleaved", "zb-h1", "zb-v", "gpipe", "dualpipe"};
    static const char *const again[] = {"none", "attention", "block",
                                        "norm, activation"};
    const int model = draw(ROWS(models)), pipe = one_rank ? 1 : 4 << draw(2);
    const int most = one_rank ? 1 : 2;
    const int tensor = 1 + draw(most), data = 1 + draw(most);
    const int context = 1 + draw(most);
    const char *schedule = schedules[draw(ROWS(schedules))];
    const int layers = (one_rank ? 4 : 2 * pipe) + draw(3), micro = 1 + draw(2);
    const char *zero = zeros[draw(ROWS(zeros))];
    size_t used;

    d->model = model;
    d->each = data * micro;
    d->microbatches = pipe * (1 + draw(4));
    d->ranks = tensor * data * context * pipe;
    used = (size_t)snprintf(d->text, LINES, models[model], layers);
    snprintf(d->text + used, LINES - used,
             "data: {sequence: 1024}\nzero: %s\n"
             "mesh: {tensor: %d, context: %d, pipe: %d, data: %d}\n"
             "schedule: {name: %s}\ntrain: {batch: %d, micro_batch: %d, "
             "dtype: bfloat16, steps: 1, recompute: [%s]}\n%s", zero, tensor,
             context, pipe, data, schedule, d->each * d->microbatches,
             micro, again[draw(ROWS(again))],
             strstr(models[model], "numerics") != NULL
                 ? "" : "numerics: {grid_context: 2}\n");
}

static void draw_one(struct drawn *d) { draw_on(d, false); }

/* False: setup refuses it. */
static bool open_one(struct forecast *f, const struct drawn *d)
{
    char batch[64];

    *f = (struct forecast){.ranks = d->ranks, .as = AS_LOCKSTEP};
    IS_OK(options_init(&f->set));
    IS_OK(options_read_text(&f->set, d->text, strlen(d->text), "test",
                            ORIGIN_FILE));
    snprintf(batch, sizeof batch, "train.batch=%d", d->each * d->microbatches);
    IS_OK(options_assign(&f->set, batch, ORIGIN_FILE));
    IS_OK(machine_open(&f->machine, &(struct machine_choice){.what = "h100"}));
    return forecast_model(f) == OK && forecast_layout(f) == OK;
}

struct walked { double step, bytes; struct steps steps; };

static void walk(struct forecast *f, struct walked *out, bool unfolded,
                 struct hunting *hunting)
{
    const struct weather weather = {.slow = NULL};
    struct prediction p;

    f->unfolded = unfolded;
    f->hunting = hunting;
    f->exact_bytes = 0;
    IS_OK(forecast_exactly_timed(f, 1e15, &out->steps));
    CHECK(out->steps.lists.ranks == f->layout.pipe);
    const struct cost cost = forecast_cost(f);

    IS_OK(predict_steps(&p, &out->steps, &cost, &weather));
    out->step = p.step_s;
    out->bytes = f->exact_bytes;
}

static void are_same(const struct walked *a, const struct walked *b)
{
    CHECK(a->step == b->step && a->bytes == b->bytes);
    for (int r = 0; r < a->steps.lists.ranks; r++) {
        const struct timed_list *x = &a->steps.lists.lists[r];
        const struct timed_list *y = &b->steps.lists.lists[r];

        EQUAL_INT(x->count, y->count);
        EQUAL_INT(x->need_count, y->need_count);
        for (int i = 0; i < x->count; i++)
            CHECK(x->items[i].seconds == y->items[i].seconds &&
                  x->items[i].begin == y->items[i].begin &&
                  x->items[i].end == y->items[i].end &&
                  x->items[i].resource == y->items[i].resource);
        for (int i = 0; i < x->need_count; i++)
            CHECK(x->needs[i].rank == y->needs[i].rank &&
                  x->needs[i].index == y->needs[i].index);
    }
}

TEST(stages_that_share_plans_are_those_planned_alone)
{
    struct hunting hunting = {.parameters = 0};
    int compared = 0, fewer = 0, stages = 0, models_seen = 0;

    for (int i = 0; i < DRAWS; i++) {
        struct walked alone, folded, follows;
        struct forecast f;
        struct drawn d;

        draw_one(&d);
        if (open_one(&f, &d)) {
            walk(&f, &alone, true, NULL);
            walk(&f, &folded, false, NULL);
            walk(&f, &follows, false, &hunting);
            are_same(&alone, &folded);
            are_same(&alone, &follows);
            compared++;
            models_seen |= 1 << d.model;
            stages += f.layout.pipe * f.layout.chunks;
            fewer += hunting.stages.count;
            steps_free(&alone.steps);
            steps_free(&folded.steps);
            steps_free(&follows.steps);
        } else {
            status_clear();
        }
        forecast_free(&f);
        hunting_free(&hunting);
    }
    print_message("%d steps compared; %d stages, of which %d were planned\n",
                  compared, stages, fewer);
    EQUAL_INT(models_seen, (1 << ROWS(models)) - 1);
    CHECK(compared > DRAWS / 3 && 4 * fewer < 3 * stages);
}

/* A search plans one layout with several numbers of micro-batches. */
TEST(steps_of_another_batch_share_programs)
{
    int compared = 0, shared = 0;

    for (int i = 0; i < DRAWS / 2; i++) {
        struct hunting hunting = {.parameters = 0};
        struct drawn d;

        draw_one(&d);
        for (int fills = 1; fills <= 3; fills++) {
            struct walked alone, follows;
            struct forecast f;

            if (fills > 1) d.microbatches *= 2;
            if (open_one(&f, &d)) {
                walk(&f, &alone, true, NULL);
                walk(&f, &follows, false, &hunting);
                are_same(&alone, &follows);
                steps_free(&alone.steps);
                steps_free(&follows.steps);
                compared++;
            } else {
                status_clear();
            }
            forecast_free(&f);
        }
        shared += hunting.stages.count - hunting.stages.programs;
        hunting_free(&hunting);
    }
    print_message("%d steps compared; %d stages took another batch's program\n",
                  compared, shared);
    CHECK(compared > DRAWS / 2 && shared > DRAWS);
}

/* One rank has all rows, whose names are its program's: no batch takes another
 * one's. */
TEST(one_rank_plans_each_batch)
{
    int compared = 0;

    for (int i = 0; i < DRAWS / 2; i++) {
        struct hunting hunting = {.parameters = 0};
        struct drawn d;

        draw_on(&d, true);
        for (int fills = 1; fills <= 2; fills++) {
            struct walked alone, follows;
            struct forecast f;

            if (fills > 1) d.microbatches *= 2;
            if (open_one(&f, &d)) {
                walk(&f, &alone, true, NULL);
                walk(&f, &follows, false, &hunting);
                are_same(&alone, &follows);
                steps_free(&alone.steps);
                steps_free(&follows.steps);
                compared++;
            } else {
                status_clear();
            }
            forecast_free(&f);
        }
        EQUAL_INT(hunting.stages.count, hunting.stages.programs);
        hunting_free(&hunting);
    }
    print_message("%d steps of one rank compared\n", compared);
    CHECK(compared > DRAWS / 2);
}

/* Gradients that are reduced once are whole until then: ZeRO 1 and 2 have the
 * same lists, and a search walks one of them. */
TEST(twins_have_the_same_lists)
{
    int compared = 0;

    for (int i = 0; i < DRAWS; i++) {
        struct walked one, two;
        struct forecast f, g;
        struct drawn d;
        char *zero;

        draw_one(&d);
        zero = strstr(d.text, "zero: zero1");
        if (zero == NULL) continue;
        const bool opens = open_one(&f, &d);

        memcpy(zero, "zero: zero2", strlen("zero: zero2"));
        if (opens && open_one(&g, &d) &&
            search_twins(&f.layout, &g.layout, &f.shape)) {
            walk(&f, &one, false, NULL);
            walk(&g, &two, false, NULL);
            are_same(&one, &two);
            steps_free(&one.steps);
            steps_free(&two.steps);
            compared++;
        }
        if (opens) forecast_free(&g);
        forecast_free(&f);
        status_clear();
    }
    print_message("%d pairs compared\n", compared);
    CHECK(compared > 8);
}

TEST_MAIN(twins_have_the_same_lists, steps_of_another_batch_share_programs,
          one_rank_plans_each_batch,
          stages_that_share_plans_are_those_planned_alone)
