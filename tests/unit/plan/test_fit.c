/* SPDX-License-Identifier: Apache-2.0 */
/* test_fit.c - mirrors src/plan/fit.c: blocks of the stages of a pipeline. */
#include "plan/fit.h"

#include "tests/test.h"

static int blocks_of(int layers, int later, int stages, int stage)
{
    return fit_first(layers, later, stages, stage + 1) -
           fit_first(layers, later, stages, stage);
}

static int sum_of(int layers, int later, int stages, int *least, int *most)
{
    int sum = 0;

    *least = layers + later;
    *most = 0;
    for (int i = 0; i < stages; i++) {
        const int blocks = blocks_of(layers, later, stages, i);
        const int work = blocks + (i == stages - 1 ? later : 0);

        CHECK(blocks >= 1);
        if (work < *least) *least = work;
        if (work > *most) *most = work;
        sum += blocks;
    }
    return sum;
}

TEST(stages_are_even_with_what_the_last_one_does_more)
{
    int least, most;

    for (int layers = 1; layers <= 40; layers++)
        for (int later = 0; later <= 2; later++)
            for (int stages = 1; stages <= layers; stages++) {
                EQUAL_INT(sum_of(layers, later, stages, &least, &most),
                          layers);
                /* Unless the last stage has a single block. */
                if ((layers + later) / stages > later)
                    CHECK(most - least <= 1);
            }
    EQUAL_INT(blocks_of(61, 0, 16, 15), 4);
    EQUAL_INT(blocks_of(8, 0, 4, 3), 2);
    EQUAL_INT(blocks_of(8, 1, 4, 3), 2);
    EQUAL_INT(blocks_of(8, 1, 3, 2), 2);
    EQUAL_INT(blocks_of(8, 2, 8, 7), 1);
}

TEST_MAIN(stages_are_even_with_what_the_last_one_does_more)
