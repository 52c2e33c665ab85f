/* SPDX-License-Identifier: Apache-2.0 */
/* test_status.c - mirrors src/base/status.c. */
#include "base/status_kept.h"

#include "tests/test.h"

static status deepest(int code)
{
    if (code != OK) FAIL((status)code, "found %d, expected %d", code, OK);
    return OK;
}

static status middle(int code)
{
    TRY(deepest(code));
    return OK;
}

static status with_label(int code, int *cleaned)
{
    status result;

    if (code == ERR_NUMERIC)
        FAIL_GOTO(done, result, ERR_NUMERIC, "failed here");
    TRY_GOTO(done, result, middle(code));
done:
    ++*cleaned;
    return result;
}

/* The text that status_print writes. */
static const char *printed(status code)
{
    static char text[4096];
    FILE *file = tmpfile();
    size_t length;

    CHECK(file != NULL);
    status_print(code, file);
    rewind(file);
    length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

TEST(a_failure_keeps_its_sentence_and_passes_labels)
{
    int cleaned = 0;

    EQUAL_INT(with_label(OK, &cleaned), OK);
    EQUAL_INT(with_label(ERR_FORMAT, &cleaned), ERR_FORMAT);
    EQUAL_INT(cleaned, 2);
    EQUAL_TEXT(status_message(), "found 5, expected 0");
    EQUAL_INT(with_label(ERR_NUMERIC, &cleaned), ERR_NUMERIC);
    EQUAL_TEXT(status_message(), "failed here");
}

TEST(printing_shows_the_trace_when_asked)
{
    int cleaned = 0;
    const char *text;

    unsetenv("LOCKSTEP_TRACE");
    (void)with_label(ERR_CONFIG, &cleaned);
    status_hint(ERR_CONFIG, "try %s", "harder");
    EQUAL_TEXT(printed(ERR_CONFIG),
               "error (config): found 3, expected 0\nhint: try harder\n");
    EQUAL_TEXT(status_message(), ""); /* printed once */
    EQUAL_TEXT(printed(OK), "");

    setenv("LOCKSTEP_TRACE", "1", 1);
    (void)with_label(ERR_CONFIG, &cleaned);
    text = printed(ERR_CONFIG);
    CHECK(strstr(text, "\n  at tests/unit/base/test_status.c:") != NULL);
    CHECK(strstr(text, "\n  in tests/unit/base/test_status.c:") != NULL);
    status_fail(ERR_IO, "/somewhere/src/base/file.c", 12, "x");
    CHECK(strstr(printed(ERR_IO), "\n  at base/file.c:12\n") != NULL);
    unsetenv("LOCKSTEP_TRACE");
}

TEST(a_new_failure_forgets_the_old_hint)
{
    status_fail(ERR_IO, "a", 1, "first");
    status_hint(ERR_IO, "hint of the first");
    status_fail(ERR_IO, "a", 1, "second after: %s", status_message());
    EQUAL_TEXT(printed(ERR_IO), "error (io): second after: first\n");
}

TEST(long_sentences_and_traces_are_cut_visibly)
{
    static char text[5000];

    memset(text, 'x', sizeof text - 1);
    status_fail(ERR_IO, "src/a.c", 1, "%s", text);
    EQUAL_INT(strlen(status_message()), 1023);
    EQUAL_TEXT(status_message() + 1020, "...");
    for (int i = 0; i < 100; i++) status_pass(ERR_IO, "src/a.c", i);
    setenv("LOCKSTEP_TRACE", "1", 1);
    CHECK(strstr(printed(ERR_IO), "and 76 more") != NULL);
    unsetenv("LOCKSTEP_TRACE");
}

TEST(exit_codes_are_the_documented_ones)
{
    static const struct {
        status code;
        const char *name;
        int exit_code;
    } rows[] = {
        {OK, "ok", 0},           {ERR_DIFFERS, "differs", 1},
        {ERR_USAGE, "usage", 2}, {ERR_CONFIG, "config", 78},
        {ERR_MISSING, "missing", 66}, {ERR_FORMAT, "format", 65},
        {ERR_MEMORY, "memory", 71},   {ERR_IO, "io", 74},
        {ERR_DEVICE, "device", 69},   {ERR_PEER, "peer", 68},
        {ERR_STOPPED, "stopped", 75}, {ERR_NUMERIC, "numeric", 76},
        {ERR_VERIFY, "verify", 77},
        {ERR_FIT, "fit", 79},
    };

    EQUAL_INT(ROWS(rows), STATUS_COUNT);
    for (int i = 0; i < ROWS(rows); i++) {
        EQUAL_INT(status_exit_code(rows[i].code), rows[i].exit_code);
        EQUAL_TEXT(status_name(rows[i].code), rows[i].name);
    }
}

/* Another call because of a failure may fail, too, or not. */
TEST(a_failure_is_kept_over_another_one)
{
    struct status_trace kept;

    for (int other = 0; other < 2; other++) {
        status_hint(status_fail(ERR_IO, "src/a.c", 7, "first"), "of the first");
        status_pass(ERR_IO, "src/b.c", 8);
        status_keep(&kept);
        EQUAL_TEXT(status_message(), "");
        EQUAL_TEXT(status_hint_text(), "");
        if (other == 1)
            status_hint(status_fail(ERR_IO, "c", 9, "second"), "of the second");
        EQUAL_INT(status_again(ERR_CONFIG, &kept), ERR_CONFIG);
        setenv("LOCKSTEP_TRACE", "1", 1);
        EQUAL_TEXT(printed(ERR_CONFIG), "error (config): first\n  at a.c:7\n"
                                        "  in b.c:8\nhint: of the first\n");
        unsetenv("LOCKSTEP_TRACE");
    }
}

TEST_MAIN(a_failure_keeps_its_sentence_and_passes_labels,
          printing_shows_the_trace_when_asked,
          a_new_failure_forgets_the_old_hint,
          long_sentences_and_traces_are_cut_visibly,
          a_failure_is_kept_over_another_one,
          exit_codes_are_the_documented_ones)
