/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_number.c - mirrors src/control/run_number.c: what is written comes
 * back, and a file that is damaged is none. */
#include "control/run_number.h"

#include "base/file.h"
#include "tests/test.h"

static const struct { const char *text; uint64_t number; } rows[] = {
    {"1\n", 1}, {"18446744073709551615\n", UINT64_MAX}, {"007\n", 7},
    {"0\n", 0}, {"", 0}, {"\n", 0}, {"12", 0}, {"12 \n", 0}, {"12\n\n", 0},
    {"-3\n", 0}, {"+3\n", 0}, {" 3\n", 0}, {"3x\n", 0}, {"x\n", 0},
    {"18446744073709551616\n", 0}, {"0000000000000000000000001\n", 0}};

TEST(a_number_is_digits_and_a_newline)
{
    static char nul[] = "12\n\0\n";
    const struct text cut = {.bytes = nul, .length = sizeof nul - 1};

    for (int i = 0; i < ROWS(rows); i++) {
        char bytes[32];
        const struct text text = {.bytes = bytes,
                                  .length = strlen(rows[i].text)};

        memcpy(bytes, rows[i].text, text.length + 1);
        CHECK(run_number_in(&text) == rows[i].number);
    }
    CHECK(run_number_in(&cut) == 0);
}

TEST(a_number_comes_back)
{
    char run[PATH_BYTES], control[PATH_BYTES], path[PATH_BYTES];

    test_directory(run);
    CHECK(run_number_read(run, "it") == 0); /* there is none */
    IS_OK(path_join(control, sizeof control, run, "control"));
    IS_OK(directory_make(control));
    IS_OK(run_number_write(run, "it", 41));
    IS_OK(run_number_write(run, "it", UINT64_MAX));
    CHECK(run_number_read(run, "it") == UINT64_MAX);
    IS_OK(path_join(path, sizeof path, control, "it"));
    for (int i = 0; i < ROWS(rows); i++) {
        IS_OK(file_write_atomic(path, rows[i].text, strlen(rows[i].text)));
        CHECK(run_number_read(run, "it") == rows[i].number);
        EQUAL_TEXT(status_message(), "");
    }
    IS_OK(directory_remove(run));
}

TEST_MAIN(a_number_is_digits_and_a_newline, a_number_comes_back)
