/* SPDX-License-Identifier: Apache-2.0 */
/* test_consumed.c - the audit of consumed samples finds what is lost, repeated
 * or other than it says, and believes no line that cannot be. */
#include "observe/consumed.h"

#include <stdio.h>
#include <string.h>
#include "tests/test.h"

enum { BATCH = 8 };

struct lines {
    struct text text;
    int64_t step, place;
};

/* A step of a batch that begins at `from`, without places of `left`. */
static void add(struct lines *lines, const struct ranges *left, int64_t from)
{
    struct consumed step = {.step = ++lines->step, .samples = BATCH,
                            .from = ranges_at(left, from, 0)};

    for (int i = 0; i < BATCH; i++) {
        const int64_t place = ranges_at(left, from, i);

        step.order += consumed_mark(place);
        step.to = place + 1;
    }
    lines->place = step.to;
    IS_OK(consumed_write(&step, &lines->text));
}

static struct consumed_audit audit(const struct lines *lines,
                                   const struct ranges *left, status expected)
{
    struct consumed_audit a = {.left_out = left, .batch_most = BATCH};

    const struct text *text = &lines->text;

    EQUAL_INT(consumed_audit(&a, text->bytes, text->length, "lines"),
              expected);
    status_clear();
    return a;
}

TEST(every_sample_once)
{
    struct ranges left = {0};
    struct lines lines = {0};

    IS_OK(ranges_add(&left, 20, 31));
    for (int i = 0; i < 10; i++) add(&lines, &left, lines.place);
    const struct consumed_audit a = audit(&lines, &left, OK);

    EQUAL_INT(a.steps, 10);
    EQUAL_INT(a.samples, 10 * BATCH);
    EQUAL_INT(a.left, 11);
    EQUAL_INT(a.next, 10 * BATCH + 11);
    EQUAL_INT(a.lost + a.repeated + a.wrong + a.missing + a.finding_count, 0);
    text_free(&lines.text);
    ranges_free(&left);
}

TEST(lost_and_repeated)
{
    const struct ranges none = {0};
    struct lines lines = {0};

    add(&lines, &none, 0);
    add(&lines, &none, 11); /* 3 lost */
    add(&lines, &none, 16); /* 3 again */
    const struct consumed_audit a = audit(&lines, &none, OK);

    EQUAL_INT(a.lost, 3);
    EQUAL_INT(a.repeated, 3);
    EQUAL_INT(a.wrong, 0);
    EQUAL_INT(a.finding_count, 2);
    text_free(&lines.text);
}

/* A rank that reads the sample of another one keeps the count. */
TEST(another_sample)
{
    const struct ranges none = {0};
    struct consumed step = {.step = 1, .to = BATCH, .samples = BATCH};
    struct lines lines = {0};

    for (int i = 0; i < BATCH; i++)
        step.order += consumed_mark(i == 5 ? 4 : i);
    IS_OK(consumed_write(&step, &lines.text));
    EQUAL_INT(audit(&lines, &none, OK).wrong, 1);
    text_free(&lines.text);
}

TEST(steps_without_a_line)
{
    const struct ranges none = {0};
    struct lines lines = {0};

    add(&lines, &none, 0);
    lines.step++;
    add(&lines, &none, 16);
    const struct consumed_audit a = audit(&lines, &none, OK);

    EQUAL_INT(a.missing, 1);
    EQUAL_INT(a.lost, BATCH);
    text_free(&lines.text);
}

TEST(a_range_left_out_later_had_been_consumed)
{
    const struct ranges none = {0};
    struct ranges left = {0};
    struct lines lines = {0};

    add(&lines, &none, 0);
    IS_OK(ranges_add(&left, 2, 4));
    add(&lines, &left, 8);
    const struct consumed_audit a = audit(&lines, &left, OK);

    EQUAL_INT(a.finding_count, 0);
    text_free(&lines.text);
    ranges_free(&left);
}

TEST(lines_that_cannot_be)
{
    static const char *const bad[] = {
        "nonsense\n",
        "{\"step\": 1}\n",
        "{\"step\": 1, \"from\": 8, \"to\": 0, \"samples\": 8, \"order\": "
        "\"0000000000000000\", \"tokens\": \"0000000000000000\"}\n",
        "{\"step\": 1, \"from\": 0, \"to\": 4611686018427387904, \"samples\": "
        "8, \"order\": \"0000000000000000\", \"tokens\": "
        "\"0000000000000000\"}\n",
        "{\"step\": 1, \"from\": 0, \"to\": 9, \"samples\": 9, \"order\": "
        "\"0000000000000000\", \"tokens\": \"0000000000000000\"}\n",
        "{\"step\": 1, \"from\": 0, \"to\": 8, \"samples\": 8, \"order\": "
        "\"xyz\", \"tokens\": \"0000000000000000\"}\n"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct lines lines = {.text = {.bytes = (char *)(uintptr_t)bad[i],
                                       .length = strlen(bad[i])}};

        audit(&lines, NULL, ERR_FORMAT);
    }
}

TEST(a_torn_line_is_left_out)
{
    const struct ranges none = {0};
    struct lines lines = {0};

    add(&lines, &none, 0);
    add(&lines, &none, 8);
    lines.text.length -= 5;
    EQUAL_INT(audit(&lines, &none, OK).steps, 1);
    text_free(&lines.text);
}

/* The last line up to a step, for whoever asks what that step consumed. */
TEST(the_line_before_a_step)
{
    const struct ranges none = {0};
    struct lines lines = {0};
    struct consumed found;
    const struct {
        int64_t step, found, to;
    } cases[] = {{1, 1, 8}, {2, 2, 20}, {3, 2, 20}, {0, 0, 0}};

    add(&lines, &none, 0);
    add(&lines, &none, 12); /* 8 to 12 were left out */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        IS_OK(consumed_before(lines.text.bytes, lines.text.length, "lines",
                              cases[i].step, &found));
        EQUAL_INT(found.step, cases[i].found);
        EQUAL_INT(found.to, cases[i].to);
    }
    EQUAL_INT(consumed_before("x\n", 2, "lines", 1, &found), ERR_FORMAT);
    status_clear();
    text_free(&lines.text);
}

TEST_MAIN(every_sample_once, lost_and_repeated, another_sample,
          steps_without_a_line, a_range_left_out_later_had_been_consumed,
          lines_that_cannot_be, a_torn_line_is_left_out,
          the_line_before_a_step)
