/* SPDX-License-Identifier: Apache-2.0 */
/* test_scan.c - mirrors src/tokenizer/scan.c: where the patterns cut. The cases
 * are worked out by hand; the golden files of test_tokenizer.c cover the rest.
 * */
#include "tokenizer/scan.h"

#include "base/text.h"
#include "tests/test.h"

#define LLAMA3 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" \
               "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"   \
               "\\s+(?!\\S)|\\s+"
#define QWEN2 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"  \
              "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"         \
              "\\s+(?!\\S)|\\s+"
#define HALF "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ENDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
#define O200K HALF "*" LOWER "+" ENDS HALF "+" LOWER "*" ENDS               \
              "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"   \
              "\\s+(?!\\S)|\\s+"

static void cut(scan_piece *scan, const char *text, const char *expected)
{
    const unsigned char *bytes = (const unsigned char *)text;
    const size_t length = strlen(text);
    struct text pieces = {0};

    CHECK(scan != NULL);
    for (size_t at = 0; at < length;) {
        const size_t stop = scan(bytes, at, length);

        CHECK(stop > at && stop <= length);
        if (at > 0) IS_OK(text_append(&pieces, "|", 1));
        IS_OK(text_append(&pieces, text + at, stop - at));
        at = stop;
    }
    EQUAL_TEXT(pieces.bytes, expected);
    text_free(&pieces);
}

TEST(gpt2_cuts)
{
    static const char *const rows[][2] = {
        {"a ship's 12 men", "a| ship|'s| 12| men"},
        {"it'S 'tis", "it|'|S| '|tis"},
        {"a  b   \n", "a| | b|   \n"},
        {"x\n\ny", "x|\n|\n|y"},
        {"a1b_2 -- ok!?", "a|1|b|_|2| --| ok|!?"},
        {"\xC3\xA9\xE7\x81\xAF \xD9\xA3x", "\xC3\xA9\xE7\x81\xAF| \xD9\xA3|x"},
        {"a\xC2\xA0\xE3\x80\x80 b", "a|\xC2\xA0\xE3\x80\x80| b"},
        {" ", " "},
    };

    for (int i = 0; i < ROWS(rows); i++) cut(scan_gpt2, rows[i][0], rows[i][1]);
}

TEST(llama3_and_qwen2_cut)
{
    static const char *const rows[][3] = {
        {"a ship'S 12345", "a| ship|'S| |123|45", "a| ship|'S| |1|2|3|4|5"},
        {"x\n\n  y", "x|\n\n| | y", "x|\n\n| | y"},
        {"(ok)!\n\nx", "(ok|)!\n\n|x", "(ok|)!\n\n|x"},
        {"a \n \t b", "a| \n| \t| b", "a| \n| \t| b"},
        {"'\xC5\xBFx 'x", "'\xC5\xBF|x| '|x", "'\xC5\xBF|x| '|x"},
        {"\tif \t\tx", "\tif| \t|\tx", "\tif| \t|\tx"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        cut(scan_find(LLAMA3), rows[i][0], rows[i][1]);
        cut(scan_find(QWEN2), rows[i][0], rows[i][2]);
    }
}

TEST(o200k_cuts_at_capitals)
{
    static const char *const rows[][2] = {
        {"camelCaseWord", "camel|Case|Word"},
        {"HTTPServer's XMLs", "HTTPServer's| XMLs"},
        {"ABC abc'LL", "ABC| abc'LL"},
        {"\xE7\x81\xAF" "A\xE7\x81\xAF" "B", "\xE7\x81\xAF" "A\xE7\x81\xAF|B"},
        {"a/b//\n/ c", "a|/b|//\n/| c"},
        {"\xCC\x81x", "\xCC\x81x"},
        {"1234", "123|4"},
    };

    for (int i = 0; i < ROWS(rows); i++)
        cut(scan_find(O200K), rows[i][0], rows[i][1]);
}

TEST(digits_cut)
{
    cut(scan_digits, "ab12c345", "ab|12|c|345");
    cut(scan_each_digit, "ab12c", "ab|1|2|c");
    cut(scan_find("\\p{N}{1,3}"), "ab12c3456", "ab|12|c|345|6");
    /* A number since Unicode 17: for Digits, not for expressions. */
    cut(scan_digits, "a\xF0\x91\xB7\xA0" "1b", "a|\xF0\x91\xB7\xA0" "1|b");
    cut(scan_find("\\p{N}+"), "a\xF0\x91\xB7\xA0" "1b",
        "a\xF0\x91\xB7\xA0|1|b");
    cut(scan_whole, "ab 12", "ab 12");
    CHECK(scan_find("\\p{N}{1,4}") == NULL);
}

/* Unfinished pieces at the end of the text, which must not be looked beyond. */
TEST(the_end_is_respected)
{
    static const unsigned char text[] = "a 'll";

    EQUAL_INT(scan_gpt2(text, 1, 2), 2);
    EQUAL_INT(scan_gpt2(text, 2, 3), 3);
    EQUAL_INT(scan_gpt2(text, 2, 4), 3);
    EQUAL_INT(scan_gpt2(text, 2, 5), 5);
}

TEST_MAIN(gpt2_cuts, llama3_and_qwen2_cut, o200k_cuts_at_capitals, digits_cut,
          the_end_is_respected)
