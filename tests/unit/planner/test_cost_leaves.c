/* SPDX-License-Identifier: Apache-2.0 */
/* test_cost_leaves.c - mirrors src/planner/cost_leaves.c: closed forms of sums
 * of leaves beside the executor's own lists and the plan to the byte. */
#include "planner/memory.h"

#include <math.h>
#include <string.h>

#include "tests/test.h"
#include "train/forecast.h"

enum { LINES = 1600 };

static void open_one(struct forecast *f, const char *text, int ranks)
{
    *f = (struct forecast){.ranks = ranks, .as = AS_LOCKSTEP};
    IS_OK(options_init(&f->set));
    IS_OK(options_read_text(&f->set, text, strlen(text), "test", ORIGIN_FILE));
    IS_OK(machine_open(&f->machine, &(struct machine_choice){.what = "h100"}));
    IS_OK(forecast_model(f));
    IS_OK(forecast_layout(f));
}

/* Seconds of all ranks of the pipe that memory is busy. */
static double moved(struct steps *steps)
{
    double sum = 0;

    for (int r = 0; r < steps->lists.ranks; r++) {
        const struct timed_list *list = &steps->lists.lists[r];

        for (int i = 0; i < list->count; i++) {
            const struct spent *span = &steps->spans[list->items[i].kind];
            const double whole = spent_seconds(span);

            if (whole > 0)
                sum += list->items[i].seconds * span->seconds[CAUSE_MEMORY] /
                       whole;
        }
    }
    steps_free(steps);
    return sum;
}

/* The executor's own lists, and the closed form. */
struct both { double lists, closed; };

static void time_both(const char *text, struct both *out)
{
    struct forecast f;
    struct steps steps;

    open_one(&f, text, 4);
    const struct cost cost = forecast_cost(&f);

    IS_OK(forecast_steps(&f, &steps));
    CHECK(f.walked);
    out->lists = moved(&steps);
    IS_OK(steps_build(&steps, &cost));
    out->closed = moved(&steps);
    forecast_free(&f);
}

static const char adds_text[] =
    "model: {family: %s, vocab: 4096, layers: 8, width: 1024, heads: 16, "
    "feed_forward: 4096, tied: false}\n%s"
    "data: {sequence: 256}\nmesh: {data: 2, %s: %d}\nzero: %s\n"
    "zero_reduce: %s\ntrain: {batch: %d, micro_batch: %d, "
    "dtype: bfloat16, steps: 1, recompute: [none]}\n"
    "numerics: {%s, grid_context: 2, grid_data: %d}\n";

/* Adds of leaves: what a step takes beyond the same one whose ranks have a
 * single leaf, which all micro-batches fill. */
TEST(closed_forms_add_the_leaves_that_the_lists_add)
{
    static const struct {
        const char *axis, *zero, *reduce, *numerics;
        int batch, micro;
    } rows[] = {{"tensor", "zero1", "auto", "recipe: none", 16, 1},
                {"tensor", "zero1", "auto", "recipe: none", 24, 1},
                {"pipe", "zero1", "auto", "recipe: none", 32, 2},
                {"tensor", "fsdp", "once", "recipe: none", 16, 1},
                {"tensor", "fsdp", "each", "recipe: none", 16, 1},
                {"pipe", "zero2", "each", "recipe: none", 16, 1},
                {"context", "zero1", "auto", "recipe: none", 16, 1},
                {"context", "zero1", "auto", "recipe: none", 32, 4},
                {"tensor", "zero1", "auto", "recipe: mxfp4-quartet", 16, 1},
                {"tensor", "zero1", "auto", "sums: integer", 16, 1}};

    for (int i = 0; i < 2 * ROWS(rows); i++) {
        const int r = i / 2, mixed = i % 2;
        struct both b[2];

        for (int one = 0; one < 2; one++) {
            char text[LINES];

            snprintf(text, sizeof text, adds_text,
                     mixed ? "mixtral" : "llama",
                     mixed ? "moe: {experts: 4, top_k: 2}\n" : "",
                     rows[r].axis, 2, rows[r].zero,
                     one ? "auto" : rows[r].reduce,
                     rows[r].batch, rows[r].micro, rows[r].numerics,
                     one ? 2 : rows[r].batch);
            time_both(text, &b[one]);
        }
        const double lists = b[0].lists -
                             b[1].lists;
        const double closed = b[0].closed -
                              b[1].closed;

        print_message("%s, %s, %s, batch %d%s: %.6f and %.6f s of %.6f\n",
                      rows[r].axis, rows[r].zero, rows[r].numerics,
                      rows[r].batch, mixed ? ", mixed" : "", lists, closed,
                      b[0].lists);
        CHECK(fabs(closed - lists) < 0.002 * b[0].lists);
        CHECK((lists == 0) == (strcmp(rows[r].numerics, "sums: integer") == 0));
    }
}

/* zero_reduce, and micro-batches that are no subtree of the leaves. */
TEST(what_reduces_once_is_estimated)
{
    static const char text[] =
        "model: {family: llama, vocab: 4096, layers: 8, width: 512, heads: 8, "
        "feed_forward: 1024}\ndata: {sequence: 512}\n"
        "mesh: {pipe: %d, data: %d}\nzero: %s\nzero_reduce: %s\n"
        "numerics: {grid_data: %d}\n"
        "train: {batch: %d, micro_batch: 2, steps: 1, recompute: [none]}\n";
    static const struct {
        int pipe, data;
        const char *zero, *reduce;
        int grid, batch;
    } rows[] = {{1, 8, "fsdp", "once", 64, 128},
                {1, 8, "fsdp", "each", 64, 128},
                {1, 8, "zero2", "once", 64, 128},
                {2, 4, "fsdp", "each", 32, 64},
                {2, 4, "fsdp", "once", 32, 64}, {1, 8, "fsdp", "auto", 24, 48}};

    for (int i = 0; i < ROWS(rows); i++) {
        char yaml[LINES];
        struct forecast f;
        int at;

        snprintf(yaml, sizeof yaml, text, rows[i].pipe, rows[i].data,
                 rows[i].zero, rows[i].reduce, rows[i].grid, rows[i].batch);
        open_one(&f, yaml, 8);
        const double ratio = memory_largest(&f.layout, &f.shape, &at) /
                             f.exact_bytes;

        print_message("%s, %s, pipe %d, grid_data %d: %.3f\n", rows[i].zero,
                      rows[i].reduce, rows[i].pipe, rows[i].grid, ratio);
        CHECK(fabs(ratio - 1) < 0.08);
        forecast_free(&f);
    }
}

TEST_MAIN(closed_forms_add_the_leaves_that_the_lists_add,
          what_reduces_once_is_estimated)
