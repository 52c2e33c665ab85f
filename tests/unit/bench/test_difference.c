/* SPDX-License-Identifier: Apache-2.0 */
/* test_difference.c - mirrors src/bench/difference.c: every element that was to
 * be compared is, and nothing else. */
#include "bench/difference.h"

#include <math.h>
#include <stdlib.h>

#include "tests/test.h"

enum { ROWS = 7, COLUMNS = 3 };

/* A product of [ROWS, COLUMNS] and a vector of two elements. */
static struct operands *operands_make(float *data, enum dtype dtype)
{
    struct operands *o = calloc(1, sizeof *o);

    CHECK(o != NULL);
    o->dtype = o->narrow = dtype;
    o->t[0] = tensor_2d(data, dtype, ROWS, COLUMNS);
    o->all[0] = tensor_1d(data, dtype, ROWS * COLUMNS);
    o->all[1] = tensor_1d(data + ROWS * COLUMNS, DTYPE_F32, 2);
    o->count = 2;
    for (int i = 0; i < ROWS * COLUMNS; i++) tensor_set(&o->all[0], i, i);
    return o;
}

static const struct { int64_t every; int row; bool seen; } rows[] = {
    {0, 0, true}, {0, 1, true}, {0, 6, true}, {4, 0, true}, {4, 1, false},
    {4, 3, false}, {4, 4, true}, {4, 5, false}, {4, 6, true /* the last */},
};

TEST(rows_that_were_made_are_compared)
{
    float a[ROWS * COLUMNS + 2] = {0}, b[ROWS * COLUMNS + 2] = {0};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct operands *ours = operands_make(a, DTYPE_F32);
        struct operands *theirs = operands_make(b, DTYPE_F32);
        struct difference first;

        theirs->every = rows[i].every;
        CHECK(!difference_find(ours, theirs).is);
        a[rows[i].row * COLUMNS + 2] += 0.5f;
        first = difference_find(ours, theirs);
        CHECK(first.is == rows[i].seen);
        if (first.is) {
            EQUAL_INT(first.operand, 0);
            EQUAL_INT(first.element, rows[i].row * COLUMNS + 2);
            CHECK(first.found == first.expected + 0.5);
        }
        free(ours);
        free(theirs);
    }
}

TEST(other_operands_are_compared_whole)
{
    float a[ROWS * COLUMNS + 2] = {0}, b[ROWS * COLUMNS + 2] = {0};
    struct operands *ours = operands_make(a, DTYPE_F32);
    struct operands *theirs = operands_make(b, DTYPE_F32);

    theirs->every = 64;
    a[ROWS * COLUMNS + 1] = -0.0f; /* another bit than +0 */
    EQUAL_INT(difference_find(ours, theirs).operand, 1);
    EQUAL_INT(difference_find(ours, theirs).element, 1);
    a[ROWS * COLUMNS + 1] = b[ROWS * COLUMNS + 1] = NAN;
    CHECK(!difference_find(ours, theirs).is);
    ours->doubles[CASE_INTEGERS - 1] = 1;
    EQUAL_INT(difference_find(ours, theirs).operand, -1);
    EQUAL_INT(difference_find(ours, theirs).element, CASE_INTEGERS - 1);
    free(ours);
    free(theirs);
}

/* The reference of a narrow table is float32: it is rounded first. */
TEST(narrow_results_are_compared_rounded)
{
    float a[ROWS * COLUMNS + 2] = {0}, b[ROWS * COLUMNS + 2] = {0};
    struct operands *ours = operands_make(a, DTYPE_BF16);
    struct operands *theirs = operands_make(b, DTYPE_F32);

    b[5] = 5.001f; /* 5 in bfloat16 */
    CHECK(!difference_find(ours, theirs).is);
    b[5] = 5.02f; /* the next number */
    CHECK(difference_find(ours, theirs).is);
    EQUAL_INT(difference_find(ours, theirs).element, 5);
    free(ours);
    free(theirs);
}

TEST_MAIN(rows_that_were_made_are_compared, other_operands_are_compared_whole,
          narrow_results_are_compared_rounded)
