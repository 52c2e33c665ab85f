/* SPDX-License-Identifier: Apache-2.0 */
/* test_found_layouts.c - mirrors src/train/found_layouts.c. */
#include "train/found_layouts.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "tests/test.h"
#include "train/auto_mesh.h"

static void ask(struct forecast *f, const char *text, int ranks)
{
    *f = (struct forecast){.ranks = ranks};
    IS_OK(options_init(&f->set));
    IS_OK(options_read_text(&f->set, text, strlen(text), "test", ORIGIN_FILE));
    IS_OK(machine_open(&f->machine, &(struct machine_choice){"h100", "", false,
                                                             NULL}));
    IS_OK(forecast_model(f));
}

/* Whole stages, lists and lists of shorter steps are each timed by some
 * thread. */
TEST(threads_find_what_one_finds)
{
    static const char text[] =
        "model: {family: llama, vocab: 512, layers: 8, width: 128, heads: 4}\n"
        "data: {sequence: 128}\ntrain: {batch: 8192, steps: 1}\n";
    static const struct search_fixed piped = {
        .tensor = -1, .context = -1, .pipe = 4, .data = -1, .expert = -1,
        .expert_tensor = -1, .expert_context = -1, .zero = -1,
        .recompute = -1, .micro_batch = 1};
    struct found_layouts h[] = {{.top = 24, .fixed = &piped},
                                {.top = 24, .fixed = &piped}};
    int shorter = 0;

    IS_OK(threads_build(&h[1].pool, 3));
    for (int i = 0; i < 2; i++) {
        ask(&h[i].forecast, text, 8);
        IS_OK(found_run(&h[i]));
    }
    EQUAL_INT(h[0].kept_count, h[1].kept_count);
    EQUAL_INT(h[0].search.timed, h[1].search.timed);
    EQUAL_INT(h[0].search.candidates, h[1].search.candidates);
    EQUAL_INT(h[0].search.feasible, h[1].search.feasible);
    EQUAL_INT(h[0].search.family_count, h[1].search.family_count);
    EQUAL_BYTES(h[0].search.families, h[1].search.families,
                sizeof h[0].search.families);
    for (int i = 0; i < h[0].kept_count; i++) {
        const struct candidate *one = &h[0].search.found[h[0].kept[i]];
        const struct candidate *three = &h[1].search.found[h[1].kept[i]];

        EQUAL_INT(h[0].kept[i], h[1].kept[i]);
        EQUAL_INT(one->walked, three->walked);
        EQUAL_BYTES(&one->shorter_s, &three->shorter_s, sizeof one->shorter_s);
        EQUAL_BYTES(&one->prediction, &three->prediction,
                    sizeof one->prediction);
        shorter += one->shorter_s > 0;
    }
    CHECK(shorter > 2);
    threads_free(h[1].pool);
    for (int i = 0; i < 2; i++) {
        found_free(&h[i]);
        forecast_free(&h[i].forecast);
    }
}

/* Layouts that were not walked are guessed from one that was: by as much longer
 * than whole stages as that one is said to be. */
TEST(guesses_are_on_the_scale_of_what_was_walked)
{
    static const char text[] =
        "model: {family: llama, vocab: 512, layers: 16, width: 128, heads: 4}\n"
        "data: {sequence: 128}\ntrain: {batch: 16384, steps: 1}\n";
    static const struct search_fixed piped = {
        .tensor = -1, .context = -1, .pipe = -1, .data = -1, .expert = -1,
        .expert_tensor = -1, .expert_context = -1, .zero = -1,
        .recompute = -1, .micro_batch = 1};
    struct found_layouts h = {.top = 24, .fixed = &piped};
    int guessed = 0, shorter = 0, walked = 0;

    ask(&h.forecast, text, 8);
    IS_OK(found_run(&h));
    for (int i = 0; i < h.search.count; i++) {
        const struct candidate *c = &h.search.found[i];
        double nearest = fabs(c->prediction.step_s / c->whole_s - 1);

        if (!c->timed || c->whole_s >= 1e299) continue;
        walked += c->walked;
        shorter += !c->walked && c->shorter_s > 0;
        if (c->walked || c->shorter_s > 0) continue;
        guessed++;
        for (int k = 0; k < h.search.count; k++) {
            const struct candidate *w = &h.search.found[k];
            const double ratio = c->prediction.step_s / c->whole_s;
            const double far = fabs(w->prediction.step_s / w->whole_s - ratio);

            if ((w->walked || w->shorter_s > 0) && far < nearest)
                nearest = far;
        }
        CHECK(nearest < 1e-9);
    }
    print_message("%d guessed, %d by shorter steps, %d walked\n", guessed,
                  shorter, walked);
    CHECK(guessed > 4 && shorter > 4 && walked > 0);
    found_free(&h);
    forecast_free(&h.forecast);
}

/* The planner numbers ranks by the default order; search leaves out layouts
 * whose ranks lie in another. */
TEST(no_time_is_said_for_another_order_of_ranks)
{
    static const char *const orders[] = {"tensor,data", "data,tensor",
                                         "context,data,tensor", ""};
    static const int ranks[] = {16, 8};
    static const char form[] =
        "model: {family: llama, vocab: 512, layers: 2, width: 128, heads: 4}\n"
        "data: {sequence: 128}\ntrain: {batch: 64, steps: 1}\n"
        "mesh: {tensor: 4, data: auto, order: \"%s\"}\n";

    for (int i = 0; i < 8; i++) {
        struct found_layouts h = {.top = 1};
        char text[400];
        int other = 0;

        snprintf(text, sizeof text, form, orders[i % 4]);
        ask(&h.forecast, text, ranks[i / 4]);
        if (i == 0)
            FAILS(forecast_layout(&h.forecast), ERR_CONFIG, "mesh.order");
        else
            IS_OK(forecast_layout(&h.forecast));
        IS_OK(found_run(&h));
        CHECK(h.search.feasible > 0);
        for (int k = 0; k < h.search.count; k++) {
            const struct layout *l = &h.search.found[k].layout;

            other += l->tensor > 1 && l->data > 1;
        }
        EQUAL_INT(other > 0, i != 0);
        found_free(&h);
        forecast_free(&h.forecast);
    }
}

/* The end of a test finds memory that is out. */
TEST(mesh_auto_gives_back_what_its_search_took)
{
    static const char text[] =
        "model: {family: llama, vocab: 256, layers: 4, width: 64, heads: 4}\n"
        "data: {sequence: 64}\nmesh: auto\n"
        "train: {batch: 8, steps: 2, batch_ramp: [\"0=4\", \"1=8\"]}\n";
    struct options_set set;
    struct machine machine;

    IS_OK(options_init(&set));
    IS_OK(options_read_text(&set, text, strlen(text), "test", ORIGIN_FILE));
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    IS_OK(auto_mesh_choose(&(struct auto_mesh){
        .set = &set, .machine = &machine, .ranks = 2, .quiet = true}));
    EQUAL_TEXT(set.values.mesh.layout, "chosen");
    machine_free(&machine);
    options_free(&set);
}

TEST_MAIN(threads_find_what_one_finds,
          guesses_are_on_the_scale_of_what_was_walked,
          no_time_is_said_for_another_order_of_ranks,
          mesh_auto_gives_back_what_its_search_took)
