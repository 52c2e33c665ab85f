/* SPDX-License-Identifier: Apache-2.0 */
/* test_draw.c - mirrors src/schedule/draw.c and timeline.c. */
#include "schedule/timeline.h"

#include "tests/test.h"

/* F takes 2, B and W 3 each; stage 0 on rank 0, stage 1 on rank 1. */
static void fill(struct timeline *timeline)
{
    static const struct timeline_span spans[] = {
        {{ACTION_FORWARD, false, 0, 0}, 0, 0, 2, 0},
        {{ACTION_FORWARD, false, 1, 0}, 1, 2, 4, 0},
        {{ACTION_BACKWARD_INPUT, false, 1, 0}, 1, 4, 7, 23},
        {{ACTION_BACKWARD_WEIGHT, true, 1, 0}, 1, 7, 10, 0},
        {{ACTION_BACKWARD_INPUT, false, 0, 0}, 0, 10, 13, 0},
        {{ACTION_BACKWARD_WEIGHT, true, 0, 0}, 0, 13, 16, 0}};

    for (int i = 0; i < ROWS(spans); i++)
        IS_OK(timeline_add(timeline, spans[i]));
}

TEST(text_has_a_line_a_rank)
{
    struct timeline timeline = {0};
    struct schedule schedule = {0};
    struct text text = {0};

    IS_OK(schedule_build(&schedule, "1f1b", 2, 1));
    fill(&timeline);
    EQUAL_INT(timeline_end_ns(&timeline), 16);
    IS_OK(timeline_draw_text(&timeline, &schedule, 40, &text));
    CHECK(strncmp(text.bytes,
                  "rank 0   |F0--................B0----W0----|\n"
                  "rank 1   |....F0--B0----W0----............|\n", 88) == 0);
    text_free(&text);
    timeline_free(&timeline);
    schedule_free(&schedule);
}

TEST(svg_has_a_box_a_span_and_safe_words)
{
    struct timeline timeline = {0};
    struct schedule schedule = {0};
    struct text text = {0};
    int boxes = 0;

    IS_OK(schedule_build(&schedule, "1f1b", 2, 1));
    fill(&timeline);
    IS_OK(timeline_draw_svg(&(struct timeline_drawing){
        &timeline, NULL, "a<b & \"c\""}, &schedule, &text));
    CHECK(strstr(text.bytes, "a&lt;b &amp; \"c\"") != NULL);
    CHECK(strstr(text.bytes, "<title>instruction 23</title>") != NULL);
    for (const char *at = text.bytes; (at = strstr(at, "<rect")); at++)
        boxes++;
    EQUAL_INT(boxes, 6 + 3 + 2); /* spans, legend, backgrounds */
    CHECK(strstr(text.bytes, "</svg>") != NULL);
    text_free(&text);
    timeline_free(&timeline);
    schedule_free(&schedule);
}

TEST(nothing_is_drawn_of_an_empty_timeline)
{
    const struct timeline timeline = {0};
    struct schedule schedule = {0};
    struct text text = {0};

    IS_OK(schedule_build(&schedule, "1f1b", 1, 1));
    IS_OK(timeline_draw_text(&timeline, &schedule, 4, &text));
    CHECK(strncmp(text.bytes, "rank 0   |....|\n", 16) == 0);
    IS_OK(timeline_draw_svg(&(struct timeline_drawing){
        &timeline, NULL, ""}, &schedule, &text));
    text_free(&text);
    schedule_free(&schedule);
}

TEST_MAIN(text_has_a_line_a_rank,
          svg_has_a_box_a_span_and_safe_words,
          nothing_is_drawn_of_an_empty_timeline)
