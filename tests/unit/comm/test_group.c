/* SPDX-License-Identifier: Apache-2.0 */
/* test_group.c - mirrors src/comm/group.c: groups in a world, and agreement. */
#include "comm/traffic.h"
#include "tests/test.h"

static struct tensor one(double *value)
{
    return tensor_1d(value, DTYPE_F64, 1);
}

/* Rows and columns of a grid of 2 x 3 ranks, at once. */
static status split_run(struct group *world, struct group *row,
                        struct group *column)
{
    const int r = world->rank / 3, c = world->rank % 3;
    const int row_members[] = {3 * r, 3 * r + 1, 3 * r + 2};
    const int column_members[] = {c, 3 + c};
    double x = world->rank, sum = 0, all[3];
    struct comm_call both = {
        .kind = COMM_REDUCE_SCATTER, .reduction = REDUCE_MAX,
        .in = tensor_1d((double[]){x, 10 * x}, DTYPE_F64, 2)};

    TRY(group_build(row, world, "row", row_members, 3));
    TRY(group_build(column, world, "column", column_members, 2));
    if (row->rank != c || column->rank != r) FAIL(ERR_VERIFY, "rank");
    TRY(comm_all_reduce(row, one(&sum), one(&x), REDUCE_SUM));
    if (sum != 9 * r + 3) FAIL(ERR_VERIFY, "row sum %g", sum);
    both.out = one(&sum);
    TRY(comm_run(column, &both));
    if (sum != (r == 0 ? 3 + c : 10 * (3 + c)))
        FAIL(ERR_VERIFY, "column %g", sum);
    TRY(comm_all_gather(row, tensor_1d(all, DTYPE_F64, 3), one(&x)));
    for (int i = 0; i < 3; i++)
        if (all[i] != 3 * r + i) FAIL(ERR_VERIFY, "gathered %g", all[i]);
    TRY(comm_broadcast(world, one(&x), 4));
    if (x != 4) FAIL(ERR_VERIFY, "broadcast %g", x);
    return OK;
}

static status split_body(void *argument, struct group *world)
{
    struct group row = {0}, column = {0};
    const status result = split_run(world, &row, &column);

    (void)argument;
    group_free(&row);
    group_free(&column);
    return result;
}

TEST(groups_of_one_world_do_not_mix)
{
    for (int i = 0; i < 20; i++) IS_OK(ranks_run(6, split_body, NULL));
}

static status limit_body(void *argument, struct group *world)
{
    struct group pair = {0};
    const int members[] = {0, 1};
    double x = 1;
    status result;

    group_limit_ms(world, 1500);
    result = group_build(&pair, world, "pair", members, 2);
    if (result == OK && world->rank == 0)
        result = comm_all_reduce(&pair, one(&x), one(&x), REDUCE_SUM);
    else
        usleep(3000000);
    group_free(&pair);
    (void)argument;
    return result;
}

TEST(groups_take_their_limit_from_the_world)
{
    FAILS(ranks_run(2, limit_body, NULL), ERR_PEER,
          "all-reduce on group pair: rank 1 has not come within 1.5 s");
}

static status outside_body(void *argument, struct group *world)
{
    const int members[] = {1, 0};
    struct group group = {0};
    status result;

    (void)argument;
    result = group_build(&group, world, "pair", members,
                         world->rank == 2 ? 2 : 0);
    group_free(&group);
    return result;
}

TEST(a_rank_cannot_build_a_group_it_is_not_in)
{
    FAILS(ranks_run(3, outside_body, NULL), ERR_CONFIG, "group pair:");
}

struct agreement {
    status mine[9], found[9];
    char text[9][COMM_REASON_BYTES];
};

static status agree_body(void *argument, struct group *world)
{
    struct agreement *a = argument;
    const int me = world->rank;

    if (a->mine[me] != OK)
        status_fail(a->mine[me], __FILE__, __LINE__, "trouble at %d", me);
    a->found[me] = comm_agree(world, a->mine[me]);
    snprintf(a->text[me], COMM_REASON_BYTES, "%s", status_message());
    status_clear();
    return comm_agree(world, OK);
}

TEST(all_ranks_hear_of_the_first_that_failed)
{
    static const struct { int size, failed; status code; } rows[] = {
        {1, -1, OK}, {1, 0, ERR_IO}, {2, 1, ERR_FORMAT}, {5, 3, ERR_MEMORY},
        {7, -1, OK}, {8, 0, ERR_IO}, {9, 8, ERR_NUMERIC}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct agreement a = {0};
        char words[40];

        if (rows[i].failed >= 0) a.mine[rows[i].failed] = rows[i].code;
        if (rows[i].size > 4) a.mine[4] = ERR_PEER; /* a consequence */
        IS_OK(ranks_run(rows[i].size, agree_body, &a));
        snprintf(words, sizeof words, "trouble at %d", rows[i].failed);
        for (int r = 0; r < rows[i].size; r++) {
            if (rows[i].failed < 0 && rows[i].size > 4) {
                EQUAL_INT(a.found[r], ERR_PEER);
                continue;
            }
            EQUAL_INT(a.found[r], rows[i].code);
            CHECK(rows[i].code == OK || strstr(a.text[r], words) ||
                  a.mine[r] != OK);
        }
    }
}

static status traffic_body(void *argument, struct group *world)
{
    const int members[] = {0, 1};
    struct traffic_row rows[8];
    struct group pair = {0};
    double x = 1;
    status result = OK;

    (void)argument;
    TRY(group_build(&pair, world, "world", members, 2));
    pair.id = (struct group_id){GROUP_STAGE, 3};
    TRY_GOTO(done, result, comm_all_reduce(world, one(&x), one(&x),
                                           REDUCE_SUM));
    TRY_GOTO(done, result, comm_all_reduce(&pair, one(&x), one(&x),
                                           REDUCE_SUM));
    TRY_GOTO(done, result, comm_all_reduce(world, one(&x), one(&x),
                                           REDUCE_MAX));
    if (comm_traffic(world, rows, 8) != 2 || rows[0].calls != 2 ||
        rows[0].id.kind != GROUP_WORLD || rows[1].calls != 1 ||
        rows[1].id.number != 3 || strcmp(rows[1].group, "world") != 0 ||
        rows[1].kind != COMM_ALL_REDUCE || rows[1].bytes != 8 ||
        comm_traffic_bytes(world, COMM_ALL_REDUCE) != 16 ||
        comm_traffic_bytes(&pair, COMM_ALL_REDUCE) != 8)
        FAIL_GOTO(done, result, ERR_VERIFY, "%s %lld calls, %lld bytes",
                  rows[1].group, (long long)rows[0].calls,
                  (long long)rows[1].bytes);
done:
    group_free(&pair);
    return result;
}

/* Two groups may have one label. */
TEST(traffic_is_kept_by_identity)
{
    IS_OK(ranks_run(2, traffic_body, NULL));
}

TEST(an_imagined_world_has_groups)
{
    const int members[] = {1, 5};
    struct group world = {0}, group = {0};

    IS_OK(ranks_imagine(&world, 8, 5));
    EQUAL_INT(world.size, 8);
    EQUAL_INT(world.rank, 5);
    IS_OK(group_build(&group, &world, "two", members, 2));
    EQUAL_INT(group.rank, 1);
    group_free(&group);
    group_free(&world);
}

TEST_MAIN(an_imagined_world_has_groups,
          groups_of_one_world_do_not_mix,
          groups_take_their_limit_from_the_world,
          a_rank_cannot_build_a_group_it_is_not_in,
          all_ranks_hear_of_the_first_that_failed, traffic_is_kept_by_identity)
