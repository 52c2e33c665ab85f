/* SPDX-License-Identifier: Apache-2.0 */
/* test_text.c - mirrors src/base/text.c. */
#include "base/text.h"

#include <math.h>
#include "tests/test.h"

TEST(texts_grow)
{
    struct text text = {0};

    for (int i = 0; i < 1000; i++) {
        IS_OK(text_printf(&text, "%d,", i));
        EQUAL_INT(text.bytes[text.length], 0);
    }
    IS_OK(text_append(&text, "\0x", 2));
    IS_OK(text_append_string(&text, "end"));
    EQUAL_INT(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 5);
    EQUAL_TEXT(text.bytes + text.length - 3, "end");
    CHECK(strncmp(text.bytes, "0,1,2,3,", 8) == 0);
    text_free(&text);
    text_free(&text);
    FAILS(text_append(&text, "", SIZE_MAX), ERR_MEMORY, "does not fit");
}

TEST(the_nearest_name_is_found)
{
    static const char *const names[] = {"model.width", "model.heads",
                                        "optimizer.lr", "seed"};
    static const struct {
        const char *word, *nearest;
    } rows[] = {
        {"model.widht", "model.width"}, {"model.head", "model.heads"},
        {"sede", "seed"},               {"optimiser.lr", "optimizer.lr"},
        {"sea", NULL},                  {"entirely", NULL},
        {"", NULL},                     {"seed", "seed"},
        {"modelxyzwidth", "model.width"}, {"modelwxyz.width", NULL},
        {"SEED", "seed"},               {"Optimizer.LR", "optimizer.lr"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        const char *found = text_nearest(rows[i].word, names, ROWS(names));

        if (rows[i].nearest == NULL)
            CHECK(found == NULL);
        else
            EQUAL_TEXT(found, rows[i].nearest);
    }
}

TEST(endings_are_compared)
{
    CHECK(text_ends_with("a.jsonl", ".jsonl"));
    CHECK(!text_ends_with("A.JsonL", ".jsonl"));
    CHECK(text_ends_like("A.JsonL", ".jsonl"));
    CHECK(text_ends_with("x", ""));
    CHECK(!text_ends_with("l", ".jsonl"));
    CHECK(!text_ends_with("a.json", ".jsonl"));
}

TEST(sizes_times_and_counts_are_readable)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0 bytes"}, {1, "1 byte"}, {1023, "1023 bytes"},
        {1024, "1.0 KiB"}, {1536, "1.5 KiB"}, {1048575, "1.0 MiB"},
        {UINT64_C(3) << 30, "3.0 GiB"}, {UINT64_MAX, "16.0 EiB"},
    };
    static const struct {
        double seconds;
        const char *text;
    } times[] = {
        {0, "0.0 us"}, {5e-7, "0.5 us"}, {0.0041, "4.1 ms"},
        {12.34, "12.3 s"}, {59.96, "1m 00s"}, {61, "1m 01s"},
        {3723, "1h 02m 03s"}, {360000, "100h 00m 00s"}, {-1, "unknown"},
        {NAN, "unknown"}, {INFINITY, "unknown"}, {0.99999, "1.0 s"},
    };
    static const struct {
        int64_t count;
        const char *text;
    } counts[] = {
        {0, "0"}, {999, "999"}, {1000, "1,000"}, {1234567, "1,234,567"},
        {-1234, "-1,234"}, {-123, "-123"},
        {INT64_MIN, "-9,223,372,036,854,775,808"},
    };
    char out[32];

    for (int i = 0; i < ROWS(sizes); i++)
        EQUAL_TEXT(text_bytes(out, sizes[i].bytes), sizes[i].text);
    for (int i = 0; i < ROWS(times); i++)
        EQUAL_TEXT(text_duration(out, times[i].seconds), times[i].text);
    for (int i = 0; i < ROWS(counts); i++)
        EQUAL_TEXT(text_count(out, counts[i].count), counts[i].text);
}

TEST(utf8_is_checked)
{
    static const struct {
        const char *bytes;
        int bad; /* -1: valid */
    } rows[] = {
        {"", -1}, {"abc", -1}, {"\xC3\xA9", -1}, {"\xE2\x82\xAC", -1},
        {"\xF0\x9F\x98\x80", -1}, {"\xF4\x8F\xBF\xBF", -1},
        {"\xEF\xBF\xBF", -1}, {"longer than eight bytes \xC3\xA9", -1},
        {"\x80", 0}, {"a\xFF", 1}, {"\xC0\x80", 0}, {"\xC1\xBF", 0},
        {"\xE0\x9F\xBF", 0}, {"\xED\xA0\x80", 0}, {"\xED\xBF\xBF", 0},
        {"\xF0\x8F\xBF\xBF", 0}, {"\xF4\x90\x80\x80", 0},
        {"\xF5\x80\x80\x80", 0}, {"\xC3", 0}, {"\xE2\x82", 0},
        {"ab\xF0\x9F\x98", 2}, {"12345678abc\xE2\x28\xA1", 11},
        {"\xC3\xA9\xA9", 2}, {"1234567\xC3", 7},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        size_t bad = 99;
        const bool invalid =
            text_utf8_invalid(rows[i].bytes, strlen(rows[i].bytes), &bad);

        EQUAL_INT(invalid, rows[i].bad >= 0);
        if (invalid) EQUAL_INT(bad, rows[i].bad);
    }
}

TEST(every_code_point_survives_encoding)
{
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        char bytes[4];
        uint32_t back = 0;
        size_t bad;
        int length;

        if (code >= 0xD800 && code < 0xE000) continue;
        length = text_utf8_encode(code, bytes);
        if (text_utf8_invalid(bytes, (size_t)length, &bad) ||
            text_utf8_decode(bytes, (size_t)length, &back) != length ||
            back != code)
            EQUAL_INT(back, code);
    }
}

TEST(ill_formed_sequences_end_where_unicode_says)
{
    static const struct { const char *bytes; int length; } rows[] = {
        {"\x80", 1}, {"\xE6\x97", 2}, {"\xE6\x97x", 2}, {"\xE6x", 1},
        {"\xF0\x9F\x98", 3}, {"\xF0\x80\x80", 1}, {"\xED\xA0\x80", 1},
        {"\xC0\xAF", 1}, {"\xF4\x90", 1}, {"\xFF\xFF", 1},
    };

    for (int i = 0; i < ROWS(rows); i++)
        EQUAL_INT(text_utf8_ill(rows[i].bytes, strlen(rows[i].bytes)),
                  rows[i].length);
}

TEST_MAIN(ill_formed_sequences_end_where_unicode_says,
          texts_grow, the_nearest_name_is_found, endings_are_compared,
          sizes_times_and_counts_are_readable, utf8_is_checked,
          every_code_point_survives_encoding)
