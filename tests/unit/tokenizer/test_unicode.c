/* SPDX-License-Identifier: Apache-2.0 */
/* test_unicode.c - mirrors src/tokenizer/unicode.c: counts as the `tokenizers`
 * library's regular expressions have them (Unicode 16.0.0), and the table for
 * ASCII against the large one. */
#include "tokenizer/unicode.h"

#include "base/text.h"
#include "tests/test.h"

TEST(classes_have_the_sizes_of_unicode_16)
{
    static const struct { unsigned class; int count; } rows[] = {
        {CLASS_LETTER, 141028}, {CLASS_NUMBER, 1911}, {CLASS_MARK, 2501},
        {CLASS_SPACE, 25}};
    int counts[ROWS(rows)] = {0};

    for (uint32_t code = 0; code < 0x110000; code++)
        for (int i = 0; i < ROWS(rows); i++)
            counts[i] += (unicode_classes[unicode_category(code)] &
                          rows[i].class) != 0;
    for (int i = 0; i < ROWS(rows); i++) EQUAL_INT(counts[i], rows[i].count);
}

TEST(ascii_is_as_in_the_large_table)
{
    for (uint32_t code = 0; code < 128; code++) {
        const unsigned line =
            code == '\r' || code == '\n' ? CLASS_NEWLINE : 0;

        EQUAL_INT(unicode_ascii[code],
                  unicode_classes[unicode_category(code)] | line);
    }
}

TEST(every_length_of_utf8_is_decoded)
{
    static const struct {
        uint32_t code;
        enum unicode_category category;
    } rows[] = {
        {'a', UNICODE_LL}, {0xC9, UNICODE_LU}, {0x3000, UNICODE_ZS},
        {0x85, UNICODE_CONTROL_SPACE}, {0x1F6A2, UNICODE_SO},
        {0x10FFFD, UNICODE_CO}, {0x10FFFF, UNICODE_CN}, {0x1C5, UNICODE_LT},
        {0xE0001, UNICODE_CF}, {0xE0100, UNICODE_MN}, {0x660, UNICODE_ND}};

    for (int i = 0; i < ROWS(rows); i++) {
        char bytes[4];
        const int length = text_utf8_encode(rows[i].code, bytes);
        size_t found;

        EQUAL_INT(unicode_category(rows[i].code), rows[i].category);
        EQUAL_INT(unicode_at((const unsigned char *)bytes, 0, &found),
                  unicode_classes[rows[i].category]);
        EQUAL_INT(found, length);
        EQUAL_INT(unicode_before((const unsigned char *)bytes, found), found);
    }
}

TEST_MAIN(classes_have_the_sizes_of_unicode_16,
          ascii_is_as_in_the_large_table, every_length_of_utf8_is_decoded)
