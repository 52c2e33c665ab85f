/* SPDX-License-Identifier: Apache-2.0 */
/* test_call_sums.c - mirrors src/comm/call_sums.c: of two passes over the same
 * calls, only the rank that was wrong sent another number before it received
 * one, whichever way the number took. */
#include "comm/call_sums.h"

#include "comm/progress.h"
#include "tests/test.h"

enum { RANKS = 4, NUMBERS = 6 };

static enum call_sums_first found[RANKS];
static int wrong_rank, wrong_at;

/* A chain of sends, an exchange of blocks, a sum in the background. A number of
 * the wrong rank is another at one of three places. */
static status pass(struct group *world, bool wrong)
{
    const int rank = world->rank;
    float chain[NUMBERS], blocks[RANKS], got[RANKS], sum[NUMBERS];
    struct comm_handle handle = {0};

    wrong = wrong && rank == wrong_rank;
    for (int i = 0; i < NUMBERS; i++) chain[i] = 1.0f + (float)i;
    const struct tensor all = tensor_1d(chain, DTYPE_F32, NUMBERS);

    if (rank > 0) TRY(comm_recv(world, all, rank - 1, 3));
    for (int i = 0; i < NUMBERS; i++) chain[i] += 0.25f * (float)rank;
    if (wrong && wrong_at == 0) chain[2] += 1.0f;
    if (rank + 1 < RANKS) TRY(comm_send(world, all, rank + 1, 3));
    for (int i = 0; i < RANKS; i++) blocks[i] = chain[i] + (float)(10 * i);
    if (wrong && wrong_at == 1) blocks[(rank + 1) % RANKS] += 1.0f;
    TRY(comm_run(world, &(struct comm_call){
        .kind = COMM_ALL_TO_ALL, .in = tensor_1d(blocks, DTYPE_F32, RANKS),
        .out = tensor_1d(got, DTYPE_F32, RANKS)}));
    for (int i = 0; i < NUMBERS; i++) sum[i] = got[i % RANKS] + (float)i;
    if (wrong && wrong_at == 2) sum[5] += 1.0f;
    TRY(comm_start(world, &(struct comm_call){
        .kind = COMM_ALL_REDUCE, .out = tensor_1d(sum, DTYPE_F32, NUMBERS),
        .in = tensor_1d(sum, DTYPE_F32, NUMBERS)}, &handle));
    return comm_wait(&handle);
}

static status passes(void *argument, struct group *world)
{
    struct call_sums sums;
    char scratch[4096];

    (void)argument;
    group_scratch(world, scratch, sizeof scratch);
    IS_OK(call_sums_build(&sums));
    for (int i = 0; i < CALL_SUMS_PASSES; i++) {
        call_sums_begin(&sums, world, i);
        TRY(pass(world, i == 1));
        call_sums_end(world);
    }
    TRY(pass(world, true)); /* of no pass */
    EQUAL_INT(call_sums_compare(&sums, 0, 2), CALL_SUMS_SAME);
    EQUAL_INT(call_sums_compare(&sums, 0, 1),
              call_sums_compare(&sums, 2, 1));
    found[world->rank] = call_sums_compare(&sums, 2, 1);
    call_sums_free(&sums);
    return OK;
}

TEST(the_wrong_rank_sent_something_else_first)
{
    for (wrong_at = 0; wrong_at < 3; wrong_at++)
        for (wrong_rank = 0; wrong_rank < RANKS; wrong_rank++) {
            IS_OK(ranks_run(RANKS, passes, NULL));
            for (int i = 0; i < RANKS; i++)
                EQUAL_INT(found[i], i == wrong_rank ? CALL_SUMS_SENT
                                                    : CALL_SUMS_RECEIVED);
        }
}

TEST(nobody_was_wrong)
{
    wrong_rank = -1;
    IS_OK(ranks_run(RANKS, passes, NULL));
    for (int i = 0; i < RANKS; i++) EQUAL_INT(found[i], CALL_SUMS_SAME);
}

/* A drill: a number of a sum, whatever comes before. */
static status flipped(void *argument, struct group *world)
{
    struct call_sums sums;

    (void)argument;
    IS_OK(call_sums_build(&sums));
    for (int i = 0; i < 2; i++) {
        sums.flips = i == 1 && world->rank == 2;
        call_sums_begin(&sums, world, i);
        TRY(pass(world, false));
        call_sums_end(world);
    }
    CHECK(!sums.flips);
    found[world->rank] = call_sums_compare(&sums, 0, 1);
    call_sums_free(&sums);
    return OK;
}

TEST(a_drill_flips_a_number_of_a_sum)
{
    IS_OK(ranks_run(RANKS, flipped, NULL));
    for (int i = 0; i < RANKS; i++)
        EQUAL_INT(found[i], i == 2 ? CALL_SUMS_SENT : CALL_SUMS_RECEIVED);
}

/* Behind the calls that are kept another number may have been sent. */
static status more_than_are_kept(void *argument, struct group *world)
{
    struct call_sums sums;

    (void)argument;
    IS_OK(call_sums_build(&sums));
    CHECK(call_sums_whole(&sums));
    for (int i = 0; i < 2; i++) {
        call_sums_begin(&sums, world, i);
        for (int n = 0; n < CALL_SUMS_MOST - 100 * (1 - i); n++)
            CHECK(call_sums_next(world) == n + 1);
        EQUAL_INT(call_sums_whole(&sums), i == 0);
        if (i == 1) CHECK(call_sums_next(world) == 0);
        call_sums_end(world);
    }
    EQUAL_INT(call_sums_compare(&sums, 0, 1), CALL_SUMS_SAME);
    call_sums_free(&sums);
    return OK;
}

TEST(nobody_knows_of_calls_that_are_not_kept)
{
    IS_OK(ranks_run(1, more_than_are_kept, NULL));
}

TEST_MAIN(nobody_knows_of_calls_that_are_not_kept,
          the_wrong_rank_sent_something_else_first,
          nobody_was_wrong,
          a_drill_flips_a_number_of_a_sum)
