/* SPDX-License-Identifier: Apache-2.0 */
/* test_meter.c - mirrors src/base/meter.c. */
#include "base/meter.h"

#include <pthread.h>
#include "tests/test.h"

static const struct meter_what product = {
    .kind = METER_MATMUL, .name = "product", .flops = 12, .bytes = 5,
    .shape = {1, 2, 3}};
static const struct meter_what norm = {.kind = METER_MEMORY, .name = "norm"};
static const struct meter_what message = {
    .kind = METER_MESSAGES, .name = "all-reduce", .label = "data"};
static const struct meter_what wait = {.kind = METER_IDLE, .name = "wait"};

static void busy(int64_t ns)
{
    const int64_t end = meter_now_ns() + ns;

    while (meter_now_ns() < end) continue;
}

static void span(const struct meter_what *what, int64_t ns)
{
    struct meter_track *track = meter_begin();

    busy(ns);
    meter_end(track, what);
}

static const struct meter_row *row_of(const struct meter *meter,
                                      const char *name, enum meter_kind kind)
{
    const struct meter_track *track = &meter->tracks[0];

    for (int i = 0; i < track->row_count; i++)
        if (strcmp(track->rows[i].name, name) == 0 &&
            track->rows[i].kind == kind)
            return &track->rows[i];
    return NULL;
}

static int64_t sum_of_rows(const struct meter *meter)
{
    const struct meter_track *track = &meter->tracks[0];
    int64_t sum = 0;

    for (int i = 0; i < track->row_count; i++) sum += track->rows[i].own_ns;
    return sum;
}

/* A message with a wait inside, between two kernels. */
static void work(void)
{
    span(&product, 2000);
    struct meter_track *track = meter_begin();

    busy(1000);
    span(&wait, 50000);
    meter_end(track, &message);
    span(&norm, 3000);
}

TEST(own_times_add_up_to_the_steps)
{
    struct meter meter;

    IS_OK(meter_build(&meter, 0, 0));
    for (int i = 0; i < 10; i++) {
        meter_step_begin(&meter);
        work();
        meter_step_end(&meter);
    }
    EQUAL_INT(meter.tracks[0].steps, 10);
    EQUAL_INT(sum_of_rows(&meter), meter.tracks[0].total_ns);
    const struct meter_row *row = row_of(&meter, "product", METER_MATMUL);

    CHECK(row != NULL);
    EQUAL_INT(row->calls, 10);
    CHECK(row->flops == 120 && row->bytes == 50);
    EQUAL_INT(row->shape[2], 3);
    CHECK(row->own_ns >= 10 * 2000);
    row = row_of(&meter, "all-reduce", METER_MESSAGES);
    EQUAL_TEXT(row->label, "data");
    CHECK(row->own_ns >= 10 * 1000);
    /* The wait is not the message's own. */
    CHECK(row_of(&meter, "wait", METER_IDLE)->own_ns >= 10 * 50000);
    meter_clear(&meter);
    EQUAL_INT(sum_of_rows(&meter), 0);
    EQUAL_INT(meter.tracks[0].steps, 0);
    meter_free(&meter);
}

TEST(nothing_counts_outside_a_step)
{
    struct meter meter;

    IS_OK(meter_build(&meter, 0, 16));
    meter_record(&meter, true);
    CHECK(meter_begin() == NULL); /* no meter yet */
    meter_step_begin(&meter);
    meter_step_end(&meter);
    CHECK(meter_begin() == NULL);
    EQUAL_INT(meter.tracks[0].row_count, 1);
    EQUAL_INT(meter.tracks[0].span_count, 1);
    meter_free(&meter);
    CHECK(meter_begin() == NULL);
}

TEST(a_step_begins_anew_after_an_error)
{
    struct meter meter;

    IS_OK(meter_build(&meter, 0, 0));
    meter_step_begin(&meter);
    meter_begin(); /* and an error leaves it open */
    meter_step_begin(&meter);
    work();
    meter_step_end(&meter);
    EQUAL_INT(meter.tracks[0].steps, 1);
    meter_free(&meter);
}

TEST(a_scope_says_what_memory_bound_kernels_are_for)
{
    struct meter meter;

    IS_OK(meter_build(&meter, 0, 0));
    meter_step_begin(&meter);
    span(&norm, 0);
    EQUAL_INT(meter_scope(METER_OPTIMIZER), METER_MEMORY);
    span(&norm, 0);
    span(&product, 0);
    EQUAL_INT(meter_scope(METER_MEMORY), METER_OPTIMIZER);
    span(&norm, 0);
    meter_step_end(&meter);
    EQUAL_INT(row_of(&meter, "norm", METER_MEMORY)->calls, 2);
    EQUAL_INT(row_of(&meter, "norm", METER_OPTIMIZER)->calls, 1);
    CHECK(row_of(&meter, "product", METER_MATMUL) != NULL);
    meter_step_begin(&meter);
    meter_scope(METER_OPTIMIZER); /* ends with the step */
    meter_step_end(&meter);
    meter_step_begin(&meter);
    span(&norm, 0);
    meter_step_end(&meter);
    EQUAL_INT(row_of(&meter, "norm", METER_MEMORY)->calls, 3);
    meter_free(&meter);
}

/* More shapes than there are rows: sums stay whole. */
TEST(too_many_shapes_share_rows)
{
    struct meter meter;
    struct meter_what what = product;
    double flops = 0;

    IS_OK(meter_build(&meter, 0, 0));
    meter_step_begin(&meter);
    for (int i = 0; i < 5 * METER_ROWS_MAX; i++) {
        what.shape[0] = i + 1;
        span(&what, 0);
    }
    meter_step_end(&meter);
    EQUAL_INT(sum_of_rows(&meter), meter.tracks[0].total_ns);
    for (int i = 0; i < meter.tracks[0].row_count; i++)
        flops += meter.tracks[0].rows[i].flops;
    CHECK(flops == 12.0 * 5 * METER_ROWS_MAX);
    CHECK(meter.tracks[0].row_count <= METER_SHAPES_MAX + 2);
    meter_free(&meter);
}

TEST(spans_are_kept_as_long_as_there_is_room)
{
    struct meter meter;

    IS_OK(meter_build(&meter, 0, 8));
    for (int step = 0; step < 3; step++) {
        meter_record(&meter, step > 0);
        meter_step_begin(&meter);
        work(); /* 4 spans and the step */
        meter_step_end(&meter);
    }
    const struct meter_track *track = &meter.tracks[0];

    EQUAL_INT(track->span_count, 8);
    EQUAL_INT(track->dropped, 2);
    for (int i = 0; i < 8; i++)
        CHECK(track->spans[i].end_ns >= track->spans[i].begin_ns);
    /* The wait ends before the message that it lies in, and begins after. */
    CHECK(track->spans[1].begin_ns >= track->spans[2].begin_ns);
    CHECK(track->spans[1].end_ns <= track->spans[2].end_ns);
    EQUAL_TEXT(track->rows[track->spans[4].row].name, "step");
    meter_free(&meter);
}

static void *background(void *argument)
{
    CHECK(meter_begin() == NULL); /* another thread's meter */
    meter_attach(argument);
    span(&message, 1000);
    meter_attach(NULL);
    return NULL;
}

TEST(background_threads_have_tracks_of_their_own)
{
    struct meter meter;
    pthread_t thread;

    IS_OK(meter_build(&meter, 1, 0));
    CHECK(meter_background(&meter, "data") == NULL); /* nobody is metered */
    meter_step_begin(&meter);
    struct meter_track *track = meter_background(&meter, "data");

    CHECK(track == &meter.tracks[1]);
    CHECK(meter_background(&meter, "data") == track);
    CHECK(meter_background(&thread, "tensor") == NULL); /* there is no more */
    CHECK(pthread_create(&thread, NULL, background, track) == 0);
    pthread_join(thread, NULL);
    meter_step_end(&meter);
    EQUAL_INT(track->rows[0].calls, 1);
    EQUAL_INT(meter.tracks[0].row_count, 1);
    EQUAL_INT(sum_of_rows(&meter), meter.tracks[0].total_ns);
    meter_free(&meter);
}

/* Spans outside of instructions are longer, and are not it. */
TEST(a_row_knows_the_instruction_of_its_longest_span)
{
    const int64_t us[] = {10, 3000, 20};
    struct meter meter;

    IS_OK(meter_build(&meter, 0, 0));
    for (int step = 0; step < 2; step++) {
        meter_step_begin(&meter);
        for (int i = 0; i < 3; i++) {
            meter_instruction(7 + i);
            span(&product, 1000 * us[i]);
        }
        meter_instruction(-1);
        span(&product, 6000000);
        span(&norm, 1000);
        meter_step_end(&meter);
    }
    const struct meter_row *row = row_of(&meter, product.name, METER_MATMUL);

    CHECK(row != NULL && row->longest_ns >= 3000000);
    EQUAL_INT(row->longest_in, 8);
    EQUAL_INT(row_of(&meter, norm.name, METER_MEMORY)->longest_ns, 0);
    meter_free(&meter);
}

TEST_MAIN(own_times_add_up_to_the_steps,
          a_row_knows_the_instruction_of_its_longest_span,
          nothing_counts_outside_a_step,
          a_step_begins_anew_after_an_error,
          a_scope_says_what_memory_bound_kernels_are_for,
          too_many_shapes_share_rows,
          spans_are_kept_as_long_as_there_is_room,
          background_threads_have_tracks_of_their_own)
