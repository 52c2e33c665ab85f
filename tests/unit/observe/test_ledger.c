/* SPDX-License-Identifier: Apache-2.0 */
/* test_ledger.c - mirrors src/observe/ledger.c. */
#include "observe/ledger.h"

#include <math.h>

#include "tests/test.h"

static const struct ledger_event events[] = {
    {14, {POLICY_SKIP, POLICY_CAUSE_NAN, POLICY_LOSS, NAN, NAN}, 13, 104, 8},
    {20,
     {POLICY_WARN, POLICY_CAUSE_SPIKE, POLICY_NORM, 1.0 / 3, 0.125},
     20,
     200,
     8},
    {31,
     {POLICY_REWIND, POLICY_CAUSE_SPIKE, POLICY_LOSS, 9.5, 4.25},
     25,
     208,
     48}};

static void write_file(const char *path, const char *text, const char *mode)
{
    FILE *file = fopen(path, mode);

    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

TEST(events_come_back_and_are_written_once)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct ledger ledger, other;
    struct ranges ranges = {0};
    struct text before = {0}, after = {0};
    bool known;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "ledger.jsonl"));
    IS_OK(ledger_open(&ledger, directory, true));
    EQUAL_INT(ledger.count, 0);
    for (int i = 0; i < ROWS(events); i++) {
        IS_OK(ledger_append(&ledger, directory, true, &events[i], &known));
        CHECK(!known);
    }
    EQUAL_INT(ledger.undone, 2);
    IS_OK(file_read(path, 1 << 16, &before));
    write_file(path, "{\"event\": 4", "a");
    IS_OK(ledger_open(&other, directory, true));
    EQUAL_INT(other.count, 3);
    EQUAL_INT(other.undone, 2);
    EQUAL_INT(other.events[1].verdict.what, POLICY_NORM);
    CHECK(other.events[1].verdict.value == 1.0 / 3);
    CHECK(isnan(other.events[0].verdict.threshold));
    IS_OK(ledger_append(&other, directory, true, &events[1], &known));
    CHECK(known);
    IS_OK(file_read(path, 1 << 16, &after));
    EQUAL_TEXT(after.bytes, before.bytes);
    IS_OK(ledger_ranges(&other, &ranges));
    EQUAL_INT(ranges.count, 2); /* a warning leaves nothing out */
    EQUAL_INT(ranges.items[1].first, 208);
    EQUAL_INT(ranges.items[1].end, 256);
    text_free(&before);
    text_free(&after);
    ranges_free(&ranges);
    ledger_close(&ledger);
    ledger_close(&other);
    IS_OK(directory_remove(directory));
}

/* Ranks other than the first know the event, and write nothing. */
TEST(one_rank_writes)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct ledger ledger = {0};
    bool known;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "ledger.jsonl"));
    IS_OK(ledger_append(&ledger, directory, false, &events[0], &known));
    EQUAL_INT(ledger.count, 1);
    CHECK(!file_exists(path));
    ledger_close(&ledger);
    IS_OK(directory_remove(directory));
}

TEST(damage_is_named)
{
    static const struct { const char *line, *words; } rows[] = {
        {"{}\n", "line 1"}, {"nonsense\n", "line 1"},
        {"{\"step\": 1, \"cause\": \"moon\", \"what\": \"loss\"}\n",
         "cause is \"moon\""},
        {"{\"step\": 1, \"cause\": \"nan\", \"what\": \"loss\", \"action\": "
         "\"stop\"}\n", "action is \"stop\""},
        {"{\"step\": 1, \"cause\": \"nan\", \"what\": \"loss\", \"action\": "
         "\"skip\", \"back_to\": 0, \"first\": 3, \"samples\": 0}\n",
         "0 samples from 3 are not a range"}};
    char directory[PATH_BYTES], path[PATH_BYTES];

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "ledger.jsonl"));
    for (int i = 0; i < ROWS(rows); i++) {
        struct ledger ledger;

        write_file(path, rows[i].line, "w");
        FAILS(ledger_open(&ledger, directory, true), ERR_FORMAT,
              rows[i].words);
        ledger_close(&ledger);
        status_clear();
    }
    IS_OK(directory_remove(directory));
}

/* Whatever stands in the file: events that make sense, or a sentence. */
TEST(damaged_bytes_are_no_events)
{
    static const char valid[] =
        "{\"event\": 1, \"step\": 13, \"cause\": \"spike\", \"what\": "
        "\"loss\", \"value\": 9.5, \"threshold\": 4.25, \"action\": "
        "\"rewind\", \"back_to\": 10, \"first\": 80, \"samples\": 24}\n";
    char directory[PATH_BYTES], path[PATH_BYTES];
    int refused = 0;
    uint32_t draw = 3;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "ledger.jsonl"));
    for (int turn = 0; turn < 1000; turn++) {
        char bytes[sizeof valid];
        struct ledger ledger;

        memcpy(bytes, valid, sizeof valid);
        for (int i = 0; i <= turn % 3; i++) {
            draw = draw * 1664525 + 1013904223;
            bytes[(draw >> 16) % (sizeof valid - 2)] =
                (char)(1 + (draw >> 8) % 127);
        }
        write_file(path, bytes, "w");
        if (ledger_open(&ledger, directory, false) != OK) {
            CHECK(strstr(status_message(), "ledger.jsonl") != NULL);
            refused++;
        }
        for (int64_t i = 0; i < ledger.count; i++)
            CHECK(ledger.events[i].first >= 0 && ledger.events[i].samples > 0);
        ledger_close(&ledger);
        status_clear();
    }
    CHECK(refused > 500 && refused < 1000);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(events_come_back_and_are_written_once, one_rank_writes,
          damage_is_named, damaged_bytes_are_no_events)
