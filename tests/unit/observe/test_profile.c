/* SPDX-License-Identifier: Apache-2.0 */
/* test_profile.c - mirrors src/observe/profile.c, profile_print.c and
 * profile_draw.c. */
#include "observe/profile.h"

#include <math.h>
#include "tests/test.h"

static void span(struct meter_what what)
{
    struct meter_track *track = meter_begin();
    const int64_t end = meter_now_ns() + 20000;

    while (meter_now_ns() < end) continue;
    meter_end(track, &what);
}

static const char form[] = "y = x W'", norm[] = "norm", product[] = "matmul";

/* Two shapes of one product, a kernel, a message, a bracket around it. */
static void fill(struct meter *meter)
{
    IS_OK(meter_build(meter, 0, 0));
    for (int i = 0; i < 4; i++) {
        meter_step_begin(meter);
        span((struct meter_what){METER_MATMUL, product, form, 100, 10,
                                 {1, 2, 3}, 0, 0, {0}});
        span((struct meter_what){METER_MATMUL, product, form, 300, 10,
                                 {4, 5, 6}, 0, 0, {0}});
        span((struct meter_what){METER_MEMORY, norm, NULL, 1, 1000, {0}, 0,
                                 0, {0}});
        struct meter_track *track = meter_begin();

        span((struct meter_what){METER_MESSAGES, "send", "a<b>&c", 0, 64,
                                 {0}, 0, 0, {0}});
        meter_end(track, &(struct meter_what){.kind = METER_OTHER,
                                              .name = "layer"});
        meter_step_end(meter);
    }
}

static double sum_of(const struct profile *p)
{
    double sum = 0;

    for (int i = 0; i < p->count; i++) sum += p->rows[i].ms;
    return sum;
}

TEST(rows_and_kinds_add_up_to_the_step)
{
    const struct profile_limits limits = {.product_flops = 1e6,
                                          .memory_bytes = 1e7};
    static struct profile p;
    struct meter meter;

    fill(&meter);
    profile_take(&p, &meter, &limits);
    EQUAL_INT(p.steps, 4);
    EQUAL_INT(p.count, 5);
    CHECK(fabs(sum_of(&p) - p.step_ms) < 1e-9 * p.step_ms);
    EQUAL_INT(p.rows[4].kind, METER_OTHER);
    profile_merge(&p);
    EQUAL_INT(p.count, 4);
    CHECK(fabs(sum_of(&p) - p.step_ms) < 1e-9 * p.step_ms);
    double kinds = 0;

    for (int k = 0; k < METER_KINDS; k++) kinds += p.kind_ms[k];
    CHECK(fabs(kinds - p.step_ms) < 1e-9 * p.step_ms);
    /* The merged product: of one step. */
    EQUAL_INT(p.rows[0].kind, METER_MATMUL);
    CHECK(p.rows[0].calls == 2 && p.rows[0].flops == 400);
    CHECK(p.rows[0].shape[0] == 0);
    CHECK(fabs(p.rows[0].limit_ms - 1e3 * 400 / 1e6) < 1e-12);
    CHECK(fabs(p.kinds[METER_MEMORY].limit_ms - 1e3 * 1000 / 1e7) < 1e-12);
    CHECK(fabs(p.kinds[METER_MESSAGES].limit_ms - 1e3 * 2 * 64 / 1e7) < 1e-12);
    CHECK(p.kinds[METER_OTHER].limit_ms == 0);
    CHECK(p.kinds[METER_MATMUL].calls == 2);
    CHECK(fabs(profile_bound_ms(&p) - 0.5128) < 1e-12);
    meter_free(&meter);
}

/* Products in tiles have the rate of products, what is beside them that of
 * float32; other attention is float32. */
TEST(attention_in_tiles_is_held_to_two_rates)
{
    const struct profile_limits limits = {.product_flops = 1e6,
                                          .attention_flops = 1e5};
    static struct profile p;
    struct meter meter;

    IS_OK(meter_build(&meter, 0, 0));
    meter_step_begin(&meter);
    span((struct meter_what){METER_ATTENTION, "tiles", NULL, 700, 10, {0}, 0,
                             50, {0}});
    span((struct meter_what){METER_ATTENTION, "chains", NULL, 700, 10, {0}, 0,
                             0, {0}});
    meter_step_end(&meter);
    profile_take(&p, &meter, &limits);
    for (int i = 0; i < 2; i++) {
        const bool tiles = strcmp(p.rows[i].name, "tiles") == 0;

        CHECK(fabs(p.rows[i].limit_ms - (tiles ? 1.2 : 7)) < 1e-12);
    }
    meter_free(&meter);
}

TEST(a_profile_is_a_table_values_and_json)
{
    static struct profile p;
    struct meter meter;
    struct text text = {0};
    struct json_writer json;
    struct arena arena = {0};
    const struct json *root;
    double ms, sum = 0;

    fill(&meter);
    profile_take(&p, &meter, &(struct profile_limits){0});
    IS_OK(profile_csv(&p, &text));
    CHECK(strstr(text.bytes, "\nmatmul,matmul,y = x W',1,2,3,1,") != NULL ||
          strstr(text.bytes, "\nmatmul,matmul,y = x W',4,5,6,1,") != NULL);
    text_free(&text);
    profile_merge(&p);
    IS_OK(profile_print(&p, &text));
    CHECK(strstr(text.bytes, "unaccounted") != NULL);
    text_free(&text);
    json_write_begin(&json, 0);
    profile_write(&p, &json);
    IS_OK(json_write_end(&json));
    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, json.out.bytes, json.out.length, "profile"));
    const struct json *rows = json_get(root, "rows");

    EQUAL_INT(rows->count, 4);
    for (int i = 0; i < rows->count; i++) {
        IS_OK(json_get_real(&rows->items[i], "profile", "ms", &ms));
        sum += ms;
    }
    IS_OK(json_get_real(root, "profile", "step_ms", &ms));
    CHECK(fabs(sum - ms) < 1e-9 * ms);
    arena_free(&arena);
    json_writer_free(&json);
    meter_free(&meter);
}

TEST(pictures_escape_what_they_show)
{
    static struct profile p;
    const double kinds[2 * METER_KINDS] = {1, 2, [METER_KINDS] = 3};
    struct meter meter;
    struct text text = {0};

    fill(&meter);
    profile_take(&p, &meter, &(struct profile_limits){1e9, 1e9, 1e9, 0});
    profile_merge(&p);
    IS_OK(profile_svg(&p, "a <title>", &text));
    CHECK(strstr(text.bytes, "a &lt;title&gt;") != NULL);
    CHECK(strstr(text.bytes, "a&lt;b&gt;&amp;c") != NULL);
    CHECK(strstr(text.bytes, "</svg>") != NULL);
    CHECK(strstr(text.bytes, "nan") == NULL);
    text_free(&text);
    IS_OK(profile_html(&p, &text));
    CHECK(strstr(text.bytes, "a&lt;b&gt;&amp;c") != NULL);
    text_free(&text);
    IS_OK(profile_ranks_svg(kinds, 2, &text));
    CHECK(strstr(text.bytes, "rank 1") != NULL);
    text_free(&text);
    meter_free(&meter);
}

TEST(a_meter_without_steps_gives_an_empty_profile)
{
    static struct profile p;
    struct meter meter;
    struct text text = {0};

    IS_OK(meter_build(&meter, 0, 0));
    profile_take(&p, &meter, &(struct profile_limits){0});
    profile_merge(&p);
    EQUAL_INT(p.steps, 0);
    CHECK(p.step_ms == 0);
    IS_OK(profile_svg(&p, "", &text));
    CHECK(strstr(text.bytes, "nan") == NULL);
    text_free(&text);
    meter_free(&meter);
}

TEST_MAIN(rows_and_kinds_add_up_to_the_step,
          attention_in_tiles_is_held_to_two_rates,
          a_profile_is_a_table_values_and_json,
          pictures_escape_what_they_show,
          a_meter_without_steps_gives_an_empty_profile)
