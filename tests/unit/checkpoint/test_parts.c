/* SPDX-License-Identifier: Apache-2.0 */
/* test_parts.c - mirrors src/checkpoint/parts.c. */
#include "tests/test.h"
#include "checkpoint/parts.h"

/* Every element of small runs, found in windows of every size and place, lies
 * where a plain double loop puts it. */
static void check_run(const struct saved_run *run)
{
    enum { WHOLE = 40 };
    const int64_t step = run->local_step ? run->local_step : 1;
    const int64_t stride =
        run->local_stride ? run->local_stride : run->length * step;
    int64_t expected[WHOLE], found[WHOLE];

    for (int i = 0; i < WHOLE; i++) expected[i] = -1;
    for (int64_t r = 0; r < run->repeats; r++)
        for (int64_t i = 0; i < run->length; i++)
            expected[run->whole_first + r * run->whole_stride + i] =
                run->local_first + r * stride + i * step;
    for (int64_t window = 1; window <= WHOLE; window++) {
        for (int i = 0; i < WHOLE; i++) found[i] = -1;
        for (int64_t first = 0; first < WHOLE; first += window) {
            struct saved_stretch stretch;
            int64_t row = 0;

            while (run_next(run, first, first + window, &row, &stretch)) {
                CHECK(stretch.count > 0 && stretch.whole >= first);
                CHECK(stretch.whole + stretch.count <= first + window);
                for (int64_t i = 0; i < stretch.count; i++)
                    found[stretch.whole + i] = stretch.local + i * stretch.step;
            }
        }
        EQUAL_BYTES(found, expected, sizeof found);
    }
}

TEST(windows_find_every_element)
{
    static const struct saved_run runs[] = {
        {.length = 40, .repeats = 1},
        {.length = 1, .repeats = 1, .whole_first = 39},
        {.length = 3, .repeats = 5, .whole_stride = 8, .whole_first = 2},
        {.length = 8, .repeats = 5, .whole_stride = 8},
        {.length = 1, .repeats = 40, .whole_stride = 1, .local_first = 7},
        {.length = 4,
         .repeats = 10,
         .whole_stride = 4,
         .local_stride = 1,
         .local_step = 10},
        {.length = 0, .repeats = 5, .whole_stride = 8},
        {.length = 5, .repeats = 0, .whole_stride = 8},
        {.length = 2, .repeats = 2, .whole_stride = 30, .whole_first = 5},
    };

    for (int i = 0; i < ROWS(runs); i++) check_run(&runs[i]);
}

TEST(parts_that_make_no_sense)
{
    static const struct saved_run good = {.length = 6, .repeats = 1};
    static const struct saved_run bad[] = {
        {.length = 7, .repeats = 1},
        {.length = 1, .repeats = 1, .whole_first = 6},
        {.length = 1, .repeats = 1, .whole_first = -1},
        {.length = -1, .repeats = 1},
        {.length = 1, .repeats = -1},
        {.length = 2, .repeats = 2, .whole_stride = 1},
        {.length = 2, .repeats = 3, .whole_stride = 3},
        {.length = 1, .repeats = INT64_MAX, .whole_stride = INT64_MAX},
        {.length = INT64_MAX, .repeats = 1, .whole_first = INT64_MAX},
        {.length = 1, .repeats = 1, .local_first = -1},
    };
    struct saved_part part = {.name = "w",
                              .kind = "weight",
                              .dimensions = 2,
                              .shape = {2, 3},
                              .run_count = 1,
                              .runs = &good};

    IS_OK(part_check(&part));
    for (int i = 0; i < ROWS(bad); i++) {
        part.runs = &bad[i];
        FAILS(part_check(&part), ERR_CONFIG, "leaves the tensor of 6");
    }
    part.runs = &good;
    part.kind = "a/b";
    FAILS(part_check(&part), ERR_CONFIG, "kind");
    part.kind = "m";
    part.name = "a b";
    FAILS(part_check(&part), ERR_CONFIG, "tensor name a b");
    part.name = "w";
    part.shape[0] = (int64_t)1 << 62;
    FAILS(part_check(&part), ERR_FORMAT, "elements");
    part.shape[0] = -2;
    FAILS(part_check(&part), ERR_FORMAT, "dimension 0");
}

TEST(names)
{
    static const struct {
        const char *name;
        bool tensor, file;
    } rows[] = {
        {"model.layers.0.q_proj.weight", true, true},
        {"a/b", true, false},
        {"..", true, false},
        {".a", true, false},
        {"a b", false, false},
        {"", false, false},
        {"a\"", false, false},
        {"a\\b", false, false},
        {"a\n", false, false},
        {"a\x7f", false, false},
        {"\xc3\xa9", false, false},
        {"__metadata__", false, true},
        {"A-1_2.x", true, true},
    };
    char longest[600];

    for (int i = 0; i < ROWS(rows); i++) {
        CHECK(name_is_safe(rows[i].name) == rows[i].tensor);
        CHECK(file_name_is_safe(rows[i].name) == rows[i].file);
    }
    memset(longest, 'a', sizeof longest);
    longest[511] = 0;
    CHECK(name_is_safe(longest));
    CHECK(!file_name_is_safe(longest));
    longest[511] = 'a';
    longest[512] = 0;
    CHECK(!name_is_safe(longest));
}

TEST_MAIN(windows_find_every_element, parts_that_make_no_sense, names)
