/* SPDX-License-Identifier: Apache-2.0 */
/* test_delayed_scales.c - mirrors src/step/delayed_scales.c: rows rotate, are
 * rounded up, and come back from a checkpoint's state; states that are damaged
 * are refused. */
#include "step/delayed_scales.h"
#include "tests/test.h"

enum { VALUES = 3, WINDOW = 2 };

static struct stage stage;
static struct pipeline pipeline = {.stages = &stage, .count = 1};

static void begin(struct delayed *d)
{
    void *memory;

    *d = (struct delayed){.pipeline = &pipeline, .values = VALUES,
                          .window = WINDOW};
    IS_OK(memory_take(VALUES, sizeof(double), &memory));
    d->table = memory;
    IS_OK(memory_take(VALUES * WINDOW, sizeof(uint16_t), &memory));
    d->history = memory;
}

/* A step whose largest magnitude is `most`. */
static void keep(struct delayed *d, double most)
{
    for (int i = 0; i < VALUES; i++) d->table[i] = most * (i + 1);
    delayed_keep(d);
}

TEST(scales_are_of_the_last_steps_alone)
{
    struct delayed d;

    begin(&d);
    delayed_begin(&d);
    CHECK(d.table[0] == 0);
    keep(&d, 8);
    keep(&d, 1);
    delayed_begin(&d);
    CHECK(d.table[0] == 8 && d.table[2] == 24);
    keep(&d, 2);
    EQUAL_INT(d.rows, WINDOW);
    delayed_begin(&d);
    CHECK(d.table[0] == 2 && d.table[2] == 6);
    delayed_free(&d);
}

/* A scale for a number that was rounded down would cut it off. */
TEST(largest_magnitudes_are_rounded_up)
{
    struct delayed d;

    begin(&d);
    keep(&d, 1 + 0x1p-20);
    delayed_begin(&d);
    CHECK(d.table[0] == 1 + 0x1p-7);
    keep(&d, 3.4e38);
    delayed_begin(&d);
    CHECK(d.table[0] == 0x1.fep127);
    delayed_free(&d);
}

static status read_text(struct delayed *d, const char *text)
{
    struct arena arena;
    const struct json *state;
    status result;

    arena_init(&arena, "test", 0);
    IS_OK(json_read(&state, &arena, text, strlen(text), "test"));
    result = delayed_read(d, state, "state.json");
    arena_free(&arena);
    return result;
}

TEST(a_state_hands_the_history_on)
{
    struct delayed d, other;
    struct json_writer w = {0};

    begin(&d);
    begin(&other);
    keep(&d, 0.3);
    keep(&d, 5);
    json_write_begin(&w, 0);
    json_write_object(&w);
    IS_OK(delayed_write(&d, &w));
    json_write_object_end(&w);
    IS_OK(json_write_end(&w));
    IS_OK(read_text(&other, w.out.bytes));
    EQUAL_INT(other.rows, 2);
    CHECK(memcmp(d.history, other.history,
                 VALUES * WINDOW * sizeof *d.history) == 0);
    json_writer_free(&w);
    delayed_free(&d);
    delayed_free(&other);
}

TEST(damaged_states_are_refused)
{
    struct delayed d;

    begin(&d);
    FAILS(read_text(&d, "{}"), ERR_FORMAT, "up to 2 rows");
    FAILS(read_text(&d, "{\"largest\": [\"3f803f80\"]}"), ERR_FORMAT,
          "a text of 12 digits");
    FAILS(read_text(&d, "{\"largest\": [\"3f80zz803f80\"]}"), ERR_FORMAT,
          "value 1: \"zz80\"");
    FAILS(read_text(&d, "{\"largest\": [\"3f803f807f80\"]}"), ERR_FORMAT,
          "finite magnitude");
    FAILS(read_text(&d, "{\"largest\": [1, 2, 3]}"), ERR_FORMAT, "up to 2");
    EQUAL_INT(d.rows, 0);
    delayed_free(&d);
}

TEST_MAIN(scales_are_of_the_last_steps_alone,
          largest_magnitudes_are_rounded_up, a_state_hands_the_history_on,
          damaged_states_are_refused)
