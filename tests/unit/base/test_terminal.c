/* SPDX-License-Identifier: Apache-2.0 */
/* test_terminal.c - mirrors src/base/terminal.c. */
#include "base/terminal.h"

#include "base/text.h"
#include "tests/test.h"

TEST(controls_become_text_and_all_else_stays)
{
    static const struct {
        const char *bytes, *shown;
    } rows[] = {
        {"plain, \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80 \\n",
         "plain, \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80 \\n"},
        {"a\tb\nc", "a\tb\nc"},
        {"\x1b[2J\x1b]0;title\x07", "\\u001b[2J\\u001b]0;title\\u0007"},
        {"over\rwritten\b\x7f", "over\\u000dwritten\\u0008\\u007f"},
        {"\xc2\x9b" "31m", "\\u009b31m"},           /* CSI as one C1 */
        {"\x9b" "31m", "\\x9b31m"},                 /* the same in 8 bits */
        {"\xe2\x80\xae" "gpj.exe", "\\u202egpj.exe"}, /* right to left */
        {"\xe2\x81\xa6\xe2\x81\xa9", "\\u2066\\u2069"},
        {"\xc0\x9b \xed\xa0\x80 \xff", "\\xc0\\x9b \\xed\\xa0\\x80 \\xff"},
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond U+10FFFF */
        {"cut \xe2\x80", "cut \\xe2\\x80"},
    };
    char out[512];

    for (int i = 0; i < ROWS(rows); i++) {
        const size_t length = strlen(rows[i].bytes);

        out[terminal_escape(out, rows[i].bytes, length, true)] = '\0';
        EQUAL_TEXT(out, rows[i].shown);
        /* Shown twice is shown once. */
        out[terminal_escape(out, rows[i].shown, strlen(rows[i].shown),
                            true)] = '\0';
        EQUAL_TEXT(out, rows[i].shown);
    }
}

TEST(a_line_has_one_line_and_fits)
{
    char line[24] = "a\nb\tc";

    terminal_escape_line(line, sizeof line);
    EQUAL_TEXT(line, "a\\u000ab\\u0009c");
    memset(line, 1, sizeof line);
    line[23] = '\0';
    terminal_escape_line(line, sizeof line);
    EQUAL_INT(strlen(line), 23);
    EQUAL_TEXT(line + 20, "...");
}

/* No sentence and no hint can command a terminal, whoever wrote the name. */
TEST(sentences_are_escaped)
{
    FAILS(status_fail(ERR_IO, "", 1, "%s: no", "x\x1b[31m\ny"), ERR_IO,
          "x\\u001b[31m\\u000ay: no");
    CHECK(status_hint(ERR_IO, "try %s", "\x9b") == ERR_IO);
    EQUAL_TEXT(status_hint_text(), "try \\x9b");
    status_clear();
}

/* A million bytes of noise, in pieces of every size: nothing that is shown
 * controls a terminal, and well-formed text passes as it is. */
TEST(noise_never_controls)
{
    static char noise[1 << 20], out[TERMINAL_GROWTH << 20];
    uint32_t drawn = 1;
    size_t used, bad;

    for (size_t i = 0; i < sizeof noise; i++) {
        drawn = drawn * 1664525u + 1013904223u;
        noise[i] = (char)(drawn >> 24);
    }
    used = terminal_escape(out, noise, sizeof noise, false);
    CHECK(used > sizeof noise && used <= sizeof out);
    CHECK(!text_utf8_invalid(out, used, &bad));
    for (size_t i = 0; i < used; i++) {
        const unsigned char byte = (unsigned char)out[i];

        CHECK(byte >= 0x20 && byte != 0x7f);
        CHECK(byte != 0xc2 || (unsigned char)out[i + 1] >= 0xa0);
    }
}

TEST_MAIN(controls_become_text_and_all_else_stays,
          a_line_has_one_line_and_fits, sentences_are_escaped,
          noise_never_controls)
