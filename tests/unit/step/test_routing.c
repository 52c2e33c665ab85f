/* SPDX-License-Identifier: Apache-2.0 */
/* test_routing.c - statistics from the counts of experts' tokens. */
#include <math.h>

#include "step/routing.h"
#include "tests/test.h"

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

TEST(even_counts_are_balanced)
{
    const double table[] = {5, 5, 5, 5};
    struct routing_result r;

    routing_judge(table, 1, 4, &r);
    CHECK(r.busiest == 1 && r.mean == 1 && r.idle == 0);
    CHECK(near(r.entropy, 1));
}

/* The worst block and the mean; dense blocks count for nothing. */
TEST(skewed_counts_are_seen)
{
    const double table[] = {6, 2, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2};
    struct routing_result r;

    routing_judge(table, 3, 4, &r);
    CHECK(r.busiest == 3 && r.mean == 2 && r.idle == 2);
    const double skewed = -(0.75 * log(0.75) + 0.25 * log(0.25)) / log(4);

    CHECK(near(r.entropy, (skewed + 1) / 2));
}

/* ---- tokens of the step before ---- */

enum { LAYERS = 2, EXPERTS = 3, COUNTS = LAYERS * EXPERTS };

static struct stage stage;
static struct pipeline pipeline = {.stages = &stage, .count = 1};

static void begin(struct routing *r, bool keeps)
{
    void *memory;

    *r = (struct routing){.pipeline = &pipeline, .experts = EXPERTS,
                          .layers = LAYERS};
    IS_OK(memory_take(COUNTS + 1, sizeof(double), &memory));
    r->table = memory;
    if (!keeps) return;
    IS_OK(memory_take(COUNTS, sizeof(double), &memory));
    r->before = memory;
}

static void count(struct routing *r, double first)
{
    for (int i = 0; i < COUNTS; i++) r->table[i] = first + i;
}

/* A refused step does not reach routing_keep, and the next one begins with
 * counts of zero. */
TEST(a_step_has_the_counts_of_the_last_that_counts)
{
    struct routing r, other;

    begin(&r, true);
    begin(&other, true);
    count(&r, 10);
    routing_keep(&r);
    count(&r, 70);
    stage.program = (struct program){.mode = PROGRAM_GENERATE};
    stage.run = (struct run){.program = &stage.program};
    routing_begin(&r);
    CHECK(r.table[0] == 0 && r.before[0] == 10 && r.before[5] == 15);
    CHECK(stage.run.counted.before == r.before);
    routing_take(&other, &r);
    CHECK(memcmp(other.before, r.before, COUNTS * sizeof(double)) == 0);
    routing_free(&r);
    routing_free(&other);
    begin(&r, false);
    routing_begin(&r);
    CHECK(stage.run.counted.before == NULL);
    routing_free(&r);
}

static status read_text(struct routing *r, const char *text)
{
    struct arena arena;
    const struct json *state;
    status result;

    arena_init(&arena, "test", 0);
    IS_OK(json_read(&state, &arena, text, strlen(text), "test"));
    result = routing_read(r, state, "state.json");
    arena_free(&arena);
    return result;
}

TEST(a_state_hands_the_counts_on)
{
    struct routing r, other;
    struct json_writer w = {0};

    begin(&r, true);
    begin(&other, true);
    count(&r, 1e9);
    routing_keep(&r);
    json_write_begin(&w, 0);
    json_write_object(&w);
    routing_write(&r, &w);
    json_write_object_end(&w);
    IS_OK(json_write_end(&w));
    IS_OK(read_text(&other, w.out.bytes));
    CHECK(memcmp(other.before, r.before, COUNTS * sizeof(double)) == 0);
    json_writer_free(&w);
    routing_free(&r);
    routing_free(&other);
    begin(&r, false);
    IS_OK(read_text(&r, "{}")); /* nobody asks */
    routing_free(&r);
}

TEST(damaged_states_are_refused)
{
    struct routing r;

    begin(&r, true);
    FAILS(read_text(&r, "{}"), ERR_FORMAT, "2 blocks");
    FAILS(read_text(&r, "{\"expert_tokens\": [[1, 2, 3]]}"), ERR_FORMAT,
          "2 blocks");
    FAILS(read_text(&r, "{\"expert_tokens\": [[1, 2, 3], [1, 2]]}"),
          ERR_FORMAT, "block 1");
    FAILS(read_text(&r, "{\"expert_tokens\": [[1, 2, 3], [1, -2, 0]]}"),
          ERR_FORMAT, "block 1, expert 1");
    FAILS(read_text(&r, "{\"expert_tokens\": [[1, 0.5, 3], [1, 2, 0]]}"),
          ERR_FORMAT, "block 0, expert 1");
    FAILS(read_text(&r, "{\"expert_tokens\": [[99999999999999999, 5, 3], "
                        "[1, 2, 0]]}"), ERR_FORMAT, "block 0, expert 0");
    routing_free(&r);
}

TEST_MAIN(even_counts_are_balanced, skewed_counts_are_seen,
          a_step_has_the_counts_of_the_last_that_counts,
          a_state_hands_the_counts_on, damaged_states_are_refused)
