/* SPDX-License-Identifier: Apache-2.0 */
/* test_mixture_rows.c - mirrors src/data/mixture_rows.c. */
#include "data/mixture_rows.h"

#include "tests/test.h"

TEST(rows_become_sources_and_phases)
{
    const char *mixture[] = {"web 3 a b/c.jsonl", "code\t1.5  \"a b.txt\" d"};
    const char *phases[] = {"10 code=0", "20 web=1 code=9"};
    const double weights[] = {3, 1.5, 3, 0, 1, 9};
    struct mixture_rows read;

    IS_OK(mixture_rows_read(&read, mixture, 2, phases, 2));
    EQUAL_INT(read.count, 2);
    EQUAL_INT(read.phases, 3);
    EQUAL_TEXT(read.sources[1].name, "code");
    EQUAL_INT(read.sources[1].path_count, 2);
    EQUAL_TEXT(read.sources[1].paths[0], "a b.txt");
    EQUAL_TEXT(read.sources[1].paths[1], "d");
    EQUAL_INT(read.steps[2], 20);
    EQUAL_BYTES(read.weights, weights, sizeof weights);
    mixture_rows_free(&read);
}

TEST(rows_that_say_nothing_are_refused)
{
    static const struct { const char *mixture[2], *phase, *words; } rows[] = {
        {{"web 1", "b 1 x"}, NULL, "row 1: 'web 1' names no file"},
        {{"a 1 x", "b -1 x"}, NULL, "row 2: '-1' is not a weight; "
         "expected a number from 0 to 1e15; a row is NAME WEIGHT "
         "[field=KEY] PATH..."},
        {{"a 1 x", "b x"}, NULL, "'x' is not a weight"},
        {{"a 1 x", "b 1 field=y"}, NULL, "'b 1 field=y' names no file"},
        {{"a 1 x", "a 1 y"}, NULL, "two rows are named 'a'"},
        {{"a 0 x", "b 0 y"}, NULL, "every weight is 0"},
        {{"", "b 0 y"}, NULL, "row 1 is empty"},
        {{"a=b 0 x", "b 0 y"}, NULL, "holds a '='"},
        {{"a 1 x", "b 1 y"}, "0 a=1", "'0' is not a step after 0"},
        {{"a 1 x", "b 1 y"}, "5 c=1", "named 'c'"},
        {{"a 1 x", "b 1 y"}, "5 a", "'a' is not NAME=WEIGHT"},
        {{"a 1 x", "b 1 y"}, "5 a=0 b=0", "row 1: every weight is 0"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct mixture_rows read;

        FAILS(mixture_rows_read(&read, (const char *const *)rows[i].mixture, 2,
                                &rows[i].phase, rows[i].phase != NULL),
                    ERR_CONFIG, rows[i].words);
        mixture_rows_free(&read);
        status_clear();
    }
}

TEST_MAIN(rows_become_sources_and_phases, rows_that_say_nothing_are_refused)
