/* SPDX-License-Identifier: Apache-2.0 */
/* test_policy.c - mirrors src/step/policy.c. */
#include "step/policy.h"

#include <math.h>

#include "base/options.h"
#include "tests/test.h"

/* on_nan, on_spike and more, as --set would say it. */
static void build(struct policy *policy, const char *const *assignments)
{
    struct options_set set = {0};

    IS_OK(options_init(&set));
    for (int i = 0; assignments[i] != NULL; i++)
        IS_OK(options_assign(&set, assignments[i], ORIGIN_COMMAND_LINE));
    IS_OK(policy_build(policy, &set.values));
    options_free(&set);
}

static const char *const watching[] = {
    "train.on_nan=skip", "train.on_spike=rewind", "train.spike_window=4",
    "train.spike_sigma=3", "train.spike_norm=5", NULL};

static void is_action(const struct policy *policy, double loss, double norm,
                      enum policy_action action, const char *what)
{
    struct policy_verdict verdict;

    policy_judge(policy, loss, norm, &verdict);
    EQUAL_INT(verdict.action, action);
    if (what != NULL) EQUAL_TEXT(policy_subjects[verdict.what], what);
    else CHECK(verdict.cause == POLICY_CAUSE_NONE);
}

TEST(what_is_not_finite_is_judged_at_once)
{
    const char *const stop[] = {NULL};
    struct policy policy;

    build(&policy, watching);
    is_action(&policy, (double)NAN, 1, POLICY_SKIP, "loss");
    is_action(&policy, (double)INFINITY, 1, POLICY_SKIP, "loss");
    is_action(&policy, 1, (double)NAN, POLICY_SKIP, "gradient norm");
    is_action(&policy, 1, 1, POLICY_NONE, NULL);
    policy_free(&policy);
    build(&policy, stop);
    is_action(&policy, (double)NAN, 1, POLICY_STOP, "loss");
    is_action(&policy, 1e300, 1e300, POLICY_NONE, NULL);
    CHECK(!policy_rewinds(&policy) && !policy_watches(&policy));
    policy_free(&policy);
}

/* Losses 2 4 4 6: mean 4, sigma sqrt 2; norms 1 2 9 4: median 3. */
TEST(a_spike_is_beyond_the_window)
{
    static const double losses[] = {2, 4, 4, 6}, norms[] = {1, 2, 9, 4};
    const double edge = 4 + 3 * sqrt(2.0);
    struct policy policy;

    build(&policy, watching);
    for (int i = 0; i < 4; i++) {
        is_action(&policy, 1e9, 1e9, POLICY_NONE, NULL);
        policy_accept(&policy, losses[i], norms[i]);
    }
    is_action(&policy, edge, 15, POLICY_NONE, NULL);
    is_action(&policy, nextafter(edge, 9), 15, POLICY_REWIND, "loss");
    is_action(&policy, edge, nextafter(15, 16), POLICY_REWIND,
              "gradient norm");
    is_action(&policy, -1e9, 0, POLICY_NONE, NULL);
    policy_accept(&policy, 6, 4); /* 2 leaves: norms 2 9 4 4, median 4 */
    is_action(&policy, 5, 20, POLICY_NONE, NULL);
    is_action(&policy, 5, nextafter(20, 21), POLICY_REWIND, "gradient norm");
    policy_free(&policy);
}

TEST(a_flat_curve_has_room_for_noise)
{
    struct policy policy;

    build(&policy, watching);
    for (int i = 0; i < 4; i++) policy_accept(&policy, 2, 1);
    is_action(&policy, 2.06, 1, POLICY_NONE, NULL);
    is_action(&policy, 2.0601, 1, POLICY_REWIND, "loss");
    policy_free(&policy);
}

TEST(the_window_comes_back)
{
    struct policy policy, other;
    struct json_writer writer = {0};
    struct arena arena = {0};
    const struct json *root;

    build(&policy, watching);
    build(&other, watching);
    for (int i = 0; i < 6; i++)
        policy_accept(&policy, 1 / (3.0 + i), sqrt(i + 0.1));
    policy_accept(&other, 7, 7);
    json_write_begin(&writer, 0);
    json_write_object(&writer);
    policy_write(&policy, &writer);
    json_write_object_end(&writer);
    IS_OK(json_write_end(&writer));
    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, writer.out.bytes, writer.out.length, "x"));
    IS_OK(policy_read(&other, root, "x"));
    EQUAL_INT(other.count, 4);
    EQUAL_BYTES(other.losses, policy.losses, 4 * sizeof(double));
    EQUAL_BYTES(other.norms, policy.norms, 4 * sizeof(double));
    IS_OK(json_read(&root, &arena, "{\"losses\": [1]}", 15, "x"));
    FAILS(policy_read(&other, root, "x"), ERR_FORMAT, "the same length");
    status_clear();
    arena_free(&arena);
    json_writer_free(&writer);
    policy_free(&policy);
    policy_free(&other);
}

/* A number of the golden file; null: none. */
static double number_of(const struct json *json)
{
    return json->kind == JSON_NULL ? (double)NAN : json->real;
}

/* One step: its judgement, and what it leaves in the window. */
static void step_check(struct policy *policy, const struct json *step)
{
    const double loss = number_of(&step->items[0]);
    const double norm = number_of(&step->items[1]);
    const struct json *what = &step->items[3];
    const double threshold = number_of(&step->items[4]);
    struct policy_verdict verdict;

    policy_judge(policy, loss, norm, &verdict);
    EQUAL_TEXT(policy_action_name(verdict.action), step->items[2].string);
    if (what->kind == JSON_NULL) CHECK(verdict.cause == POLICY_CAUSE_NONE);
    else EQUAL_TEXT(policy_subjects[verdict.what], what->string);
    if (!isnan(threshold))
        CHECK(fabs(verdict.threshold - threshold) <= 1e-13 * threshold);
    if (verdict.action == POLICY_NONE || verdict.action == POLICY_WARN)
        policy_accept(policy, loss, norm);
}

/* Against Python's statistics on exact fractions (make_policy.py of golden). */
TEST(steps_are_judged_as_by_another)
{
    static const char *const path = "tests/golden/training/policy.json";
    struct arena arena;
    const struct json *root;

    arena_init(&arena, "policies", 0);
    IS_OK(json_read_file(&root, &arena, path, 1 << 20));
    CHECK(root->kind == JSON_ARRAY && root->count == 5);
    for (int i = 0; i < root->count; i++) {
        const struct json *names = json_get(&root->items[i], "options");
        const struct json *steps = json_get(&root->items[i], "steps");
        const char *assignments[6] = {0};
        struct policy policy;

        CHECK(names->count == 5 && steps->count == 160);
        for (int j = 0; j < 5; j++) assignments[j] = names->items[j].string;
        build(&policy, assignments);
        for (int j = 0; j < steps->count; j++)
            step_check(&policy, &steps->items[j]);
        policy_free(&policy);
    }
    arena_free(&arena);
}

TEST(what_makes_no_policy_is_refused)
{
    static const struct { const char *assignments[3], *words; } rows[] = {
        {{"train.on_nan=warn"}, "train.on_nan: warn is not one of its 3"},
        {{"train.on_spike=rewnd"}, "the nearest is rewind"},
        {{"train.on_spike=stop"}, "train.on_spike: stop is not one"},
        {{"train.on_spike=skip", "train.spike_norm=0",
          "train.spike_sigma=0"}, "so nothing is a spike"}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct options_set set = {0};
        struct policy policy;

        IS_OK(options_init(&set));
        for (int j = 0; j < 3 && rows[i].assignments[j] != NULL; j++)
            IS_OK(options_assign(&set, rows[i].assignments[j],
                                 ORIGIN_COMMAND_LINE));
        FAILS(policy_build(&policy, &set.values), ERR_CONFIG, rows[i].words);
        status_clear();
        policy_free(&policy);
        options_free(&set);
    }
}

TEST_MAIN(what_is_not_finite_is_judged_at_once, a_spike_is_beyond_the_window,
          a_flat_curve_has_room_for_noise, the_window_comes_back,
          steps_are_judged_as_by_another, what_makes_no_policy_is_refused)
