/* SPDX-License-Identifier: Apache-2.0 */
/* test_events_read.c - mirrors src/observe/events_read.c. */
#include "tests/test.h"
#include "observe/events_read.h"

static const char golden_path[] = "tests/golden/data/events.tfevents";

struct seen { int scalars, histograms, texts; double sum; };

static status see(void *argument, const struct events_value *value)
{
    struct seen *seen = argument;

    seen->scalars += value->kind == EVENTS_SCALAR;
    seen->histograms += value->kind == EVENTS_HISTOGRAM;
    seen->texts += value->kind == EVENTS_TEXT;
    seen->sum += value->buckets_sum;
    return OK;
}

TEST(every_kind_of_value_is_read)
{
    struct seen seen = {0};
    struct events_scan scan = {.source = golden_path, .step_kept = -1,
                               .value = see, .argument = &seen};
    struct text bytes = {0};

    IS_OK(file_read(golden_path, 1 << 20, &bytes));
    IS_OK(events_scan(&scan, bytes.bytes, bytes.length));
    EQUAL_INT(scan.events, 5);
    EQUAL_INT(scan.kept, bytes.length);
    EQUAL_INT(seen.scalars, 2);
    EQUAL_INT(seen.histograms, 1);
    EQUAL_INT(seen.texts, 1);
    CHECK(seen.sum == 7);
    text_free(&bytes);
}

TEST(no_changed_byte_goes_unnoticed)
{
    struct text bytes = {0};

    IS_OK(file_read(golden_path, 1 << 20, &bytes));
    for (size_t i = 0; i < bytes.length; i++) {
        struct events_scan scan = {.source = "changed", .step_kept = -1};

        bytes.bytes[i] = (char)(bytes.bytes[i] ^ 0x20);
        CHECK(events_scan(&scan, bytes.bytes, bytes.length) == ERR_FORMAT);
        status_clear();
        bytes.bytes[i] = (char)(bytes.bytes[i] ^ 0x20);
    }
    text_free(&bytes);
}

TEST(a_torn_file_ends_with_its_last_whole_record)
{
    struct text bytes = {0};
    size_t before = 0;

    IS_OK(file_read(golden_path, 1 << 20, &bytes));
    for (size_t length = 0; length <= bytes.length; length++) {
        struct events_scan scan = {.source = "torn", .step_kept = -1,
                                   .torn_ok = true};
        struct events_scan strict = {.source = "torn", .step_kept = -1};

        IS_OK(events_scan(&scan, bytes.bytes, length));
        CHECK(scan.kept <= length && scan.kept >= before);
        before = scan.kept;
        if (scan.kept == length)
            IS_OK(events_scan(&strict, bytes.bytes, length));
        else
            FAILS(events_scan(&strict, bytes.bytes, length), ERR_FORMAT,
                  "torn: byte");
        status_clear();
    }
    text_free(&bytes);
}

TEST(what_lies_beyond_a_step_is_not_kept)
{
    struct events_scan scan = {.source = golden_path, .step_kept = 100};
    struct text bytes = {0};

    IS_OK(file_read(golden_path, 1 << 20, &bytes));
    IS_OK(events_scan(&scan, bytes.bytes, bytes.length));
    EQUAL_INT(scan.events, 2); /* the head and the session of step 6 */
    text_free(&bytes);
}

TEST_MAIN(every_kind_of_value_is_read, no_changed_byte_goes_unnoticed,
          a_torn_file_ends_with_its_last_whole_record,
          what_lies_beyond_a_step_is_not_kept)
