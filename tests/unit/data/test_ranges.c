/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranges.c - mirrors src/data/ranges.c. */
#include "data/ranges.h"

#include "tests/test.h"

/* The numbers left out of [0, 64), as bits, and the same by the simple way. */
static uint64_t bits_of(const struct ranges *ranges)
{
    uint64_t bits = 0;

    for (int i = 0; i < ranges->count; i++)
        for (int64_t s = ranges->items[i].first; s < ranges->items[i].end; s++)
            bits |= UINT64_C(1) << s;
    return bits;
}

static int64_t place_of(uint64_t bits, int64_t from, int64_t index)
{
    int64_t place = from;

    for (;; place++) {
        if (place < 64 && (bits >> place & 1) != 0) continue;
        if (index-- == 0) return place;
    }
}

TEST(ranges_are_joined_and_walked_over)
{
    uint32_t draw = 7;

    for (int turn = 0; turn < 200; turn++) {
        struct ranges ranges = {0};
        uint64_t bits = 0;

        for (int i = 0; i < 1 + turn % 6; i++) {
            const int64_t first = (draw = draw * 1664525 + 1013904223) >> 27;
            const int64_t count = (draw = draw * 1664525 + 1013904223) >> 29;

            IS_OK(ranges_add(&ranges, first, first + count));
            for (int64_t s = first; s < first + count; s++)
                bits |= UINT64_C(1) << s;
            CHECK(bits_of(&ranges) == bits);
        }
        for (int i = 1; i < ranges.count; i++)
            CHECK(ranges.items[i - 1].end < ranges.items[i].first);
        for (int64_t from = 0; from < 40; from++)
            for (int64_t index = 0; index < 20; index++)
                EQUAL_INT(ranges_at(&ranges, from, index),
                          place_of(bits, from, index));
        ranges_free(&ranges);
    }
}

TEST(places_left_out_are_counted)
{
    struct ranges ranges = {0};

    IS_OK(ranges_add(&ranges, 10, 14));
    IS_OK(ranges_add(&ranges, 20, 21));
    EQUAL_INT(ranges_count(&ranges, 0, 64), 5);
    EQUAL_INT(ranges_count(&ranges, 12, 20), 2);
    EQUAL_INT(ranges_count(&ranges, 13, 21), 2);
    EQUAL_INT(ranges_count(&ranges, 14, 20), 0);
    EQUAL_INT(ranges_count(NULL, 0, 64), 0);
    ranges_free(&ranges);
}

TEST(rows_are_read)
{
    const char *rows[] = {"10 5", " 15\t2 ", "3 1"};
    const char *wrong[] = {"", "5", "-1 3", "3 0", "3 4 5", "a b", "3 4x",
                           "99999999999999999999 1"};
    struct ranges ranges = {0};

    IS_OK(ranges_read(&ranges, rows, 3));
    EQUAL_INT(ranges.count, 2);
    EQUAL_INT(ranges.items[1].first, 10);
    EQUAL_INT(ranges.items[1].end, 17);
    for (int i = 0; i < ROWS(wrong); i++)
        FAILS(ranges_read(&ranges, &wrong[i], 1), ERR_CONFIG,
              "is not FIRST COUNT");
    ranges_free(&ranges);
    status_clear();
}

TEST(json_comes_back)
{
    struct ranges ranges = {0}, other = {0};
    struct json_writer writer = {0};
    struct arena arena = {0};
    const struct json *root;

    IS_OK(ranges_add(&ranges, 4, 6));
    IS_OK(ranges_add(&ranges, 100, 164));
    json_write_begin(&writer, 0);
    json_write_object(&writer);
    json_write_key(&writer, "out");
    ranges_write(&ranges, &writer);
    json_write_object_end(&writer);
    IS_OK(json_write_end(&writer));
    EQUAL_TEXT(writer.out.bytes, "{\"out\": [[4, 2], [100, 64]]}");
    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, writer.out.bytes, writer.out.length, "x"));
    IS_OK(ranges_add(&other, 6, 7));
    IS_OK(ranges_join(&other, root, "x", "out"));
    IS_OK(ranges_join(&other, root, "x", "none"));
    EQUAL_INT(other.count, 2);
    EQUAL_INT(other.items[0].end, 7);
    IS_OK(json_read(&root, &arena, "{\"out\": [[4]]}", 14, "x"));
    FAILS(ranges_join(&other, root, "x", "out"), ERR_FORMAT,
          "item 0 is not [first, count]");
    status_clear();
    arena_free(&arena);
    json_writer_free(&writer);
    ranges_free(&ranges);
    ranges_free(&other);
}

TEST_MAIN(ranges_are_joined_and_walked_over, places_left_out_are_counted,
          rows_are_read, json_comes_back)
