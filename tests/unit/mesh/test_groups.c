/* SPDX-License-Identifier: Apache-2.0 */
/* test_groups.c - mirrors src/mesh/group.c: places and groups by arithmetic. */
#include <string.h>
#include "mesh/group.h"
#include "tests/test.h"

#define BIT(axis) (1u << (axis))

static struct mesh mesh_of(int pipe, int data, int shard, int context,
                           int tensor)
{
    return (struct mesh){
        .size = {[AXIS_PIPE] = pipe, [AXIS_DATA] = data, [AXIS_SHARD] = shard,
                 [AXIS_CONTEXT] = context, [AXIS_TENSOR] = tensor}};
}

TEST(sizes_multiply_to_the_ranks)
{
    static const struct {
        int size[5]; /* pipe data shard context tensor */
        int ranks;
        const char *words; /* NULL: fits */
        enum axis axis;
        int found;
    } rows[] = {
        {{0, 0, 0, 0, 0}, 1, NULL, AXIS_DATA, 1},
        {{2, 2, 1, 1, 2}, 8, NULL, AXIS_TENSOR, 2},
        {{2, -1, 1, 1, 2}, 16, NULL, AXIS_DATA, 4},
        {{-1, 1, 1, 1, 1}, 7, NULL, AXIS_PIPE, 7},
        {{2, 3, 1, 1, 1}, 8,
         "pipe 2 x data 3 is 6 ranks, but there are 8", 0, 0},
        {{3, -1, 1, 1, 1}, 8, "but there are 8", 0, 0},
        {{1, 1, 1, 1, 1}, 5, "but there are 5", 0, 0},
        {{5, 3, 1, 1, 1}, 8, "but there are 8", 0, 0},
        {{-1, -1, 1, 1, 1}, 8, "both pipe and data are auto", 0, 0},
        {{1, -2, 1, 1, 1}, 8, "mesh.data: -2", 0, 0},
        {{1 << 20, 1 << 20, 1, 1, 1}, 8, "mesh.data: 1048576", 0, 0},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        const int *s = rows[i].size;
        struct mesh mesh = mesh_of(s[0], s[1], s[2], s[3], s[4]);

        if (rows[i].words != NULL) {
            FAILS(mesh_resolve(&mesh, rows[i].ranks), ERR_CONFIG,
                  rows[i].words);
            continue;
        }
        IS_OK(mesh_resolve(&mesh, rows[i].ranks));
        EQUAL_INT(mesh.size[rows[i].axis], rows[i].found);
        EQUAL_INT(mesh_ranks(&mesh), rows[i].ranks);
    }
}

TEST(places_and_ranks_are_inverse)
{
    static const char *const orders[] = {
        "", "pipe,data,tensor", "tensor x pipe", "context,data", "expert"};
    struct mesh mesh = mesh_of(2, 3, 2, 1, 4);

    IS_OK(mesh_resolve(&mesh, 48));
    for (int i = 0; i < ROWS(orders); i++) {
        struct mesh_order order;

        IS_OK(mesh_order_parse(&order, orders[i]));
        EQUAL_INT(order.count, MESH_AXES);
        for (int rank = 0; rank < 48; rank++) {
            struct place place;

            mesh_place(&mesh, &order, rank, &place);
            EQUAL_INT(mesh_rank(&mesh, &order, &place), rank);
        }
    }
}

TEST(the_last_axis_named_is_the_fastest)
{
    struct mesh mesh = mesh_of(2, 1, 1, 1, 3);
    struct mesh_order order;
    struct place place;

    IS_OK(mesh_resolve(&mesh, 6));
    IS_OK(mesh_order_parse(&order, "tensor, pipe"));
    mesh_place(&mesh, &order, 1, &place);
    EQUAL_INT(place.at[AXIS_PIPE], 1);
    EQUAL_INT(place.at[AXIS_TENSOR], 0);
    mesh_place(&mesh, &mesh_order_default, 1, &place);
    EQUAL_INT(place.at[AXIS_PIPE], 0);
    EQUAL_INT(place.at[AXIS_TENSOR], 1);
    FAILS(mesh_order_parse(&order, "tensr"), ERR_CONFIG,
          "the nearest is tensor");
    FAILS(mesh_order_parse(&order, "data,data"), ERR_CONFIG, "twice");
}

/* Groups along any axes cut the ranks in disjoint sets that all their members
 * compute alike. */
TEST(groups_cut_the_ranks)
{
    struct mesh mesh = mesh_of(2, 2, 3, 1, 2);

    IS_OK(mesh_resolve(&mesh, 24));
    for (axis_set axes = 0; axes < BIT(AXIS_COUNT); axes += 2) {
        const int size = mesh_group_size(&mesh, axes);
        int met[24] = {0};

        for (int rank = 0; rank < 24; rank++) {
            int mine[24], theirs[24];
            const int index = mesh_members(&mesh, &mesh_order_default, rank,
                                           axes, mine);

            EQUAL_INT(mine[index], rank);
            for (int m = 0; m < size; m++) {
                met[mine[m]]++;
                EQUAL_INT(mesh_members(&mesh, &mesh_order_default, mine[m],
                                       axes, theirs), m);
                EQUAL_BYTES(mine, theirs, (size_t)size * sizeof *mine);
            }
        }
        for (int rank = 0; rank < 24; rank++) EQUAL_INT(met[rank], size);
    }
}

/* Source after source, and of each the ranks that divide its tokens, whatever
 * the order of the mesh. */
TEST(folded_ranks_divide_the_experts)
{
    struct mesh mesh = mesh_of(1, 2, 1, 2, 3);
    struct mesh_order order;

    mesh.size[AXIS_EXPERT] = 2;
    IS_OK(mesh_resolve(&mesh, 24));
    EQUAL_INT(mesh_expert_ranks(&mesh), 2);
    EQUAL_TEXT(mesh_axis_group_name(&mesh, AXIS_EXPERT), "expert");
    CHECK(group_id_equal(mesh_axis_group_id(&mesh, AXIS_EXPERT),
                         mesh_group_id(&mesh, 1u << AXIS_EXPERT)));
    IS_OK(mesh_fold(&mesh, 0, true));
    EQUAL_INT(mesh_expert_ranks(&mesh), 4);
    IS_OK(mesh_fold(&mesh, 1, true));
    EQUAL_INT(mesh_expert_ranks(&mesh), 12);
    FAILS(mesh_fold(&mesh, 4, false), ERR_CONFIG, "a divisor of 6 can");
    IS_OK(mesh_fold(&mesh, 2, true));
    EQUAL_INT(mesh_expert_places(&mesh), 6);
    IS_OK(mesh_fold(&mesh, 2, false));
    EQUAL_INT(mesh_expert_places(&mesh), 3);
    IS_OK(mesh_fold(&mesh, 1, false));
    EQUAL_INT(mesh_expert_ranks(&mesh), 6);
    EQUAL_INT(mesh_axis_group_size(&mesh, AXIS_TENSOR), 3);
    EQUAL_TEXT(mesh_axis_group_name(&mesh, AXIS_EXPERT), "experts");
    CHECK(!group_id_equal(mesh_axis_group_id(&mesh, AXIS_EXPERT),
                          mesh_group_id(&mesh, 1u << AXIS_EXPERT)));
    IS_OK(mesh_order_parse(&order, "tensor,expert,data"));
    for (int rank = 0; rank < 24; rank++) {
        int members[6];
        struct place place, other;

        mesh_place(&mesh, &order, rank, &place);
        mesh_expert_members(&mesh, &order, &place, members);
        for (int m = 0; m < 6; m++) {
            mesh_place(&mesh, &order, members[m], &other);
            EQUAL_INT(other.at[AXIS_EXPERT], m / 3);
            EQUAL_INT(other.at[AXIS_TENSOR], m % 3);
            EQUAL_INT(other.at[AXIS_DATA], place.at[AXIS_DATA]);
            EQUAL_INT(other.at[AXIS_CONTEXT], place.at[AXIS_CONTEXT]);
            EQUAL_INT(mesh_expert_rank(&mesh, &other), m);
        }
        EQUAL_INT(members[mesh_expert_rank(&mesh, &place)], rank);
    }
}

/* Messages of layers along the expert axis and of gradients among the same
 * ranks are counted apart. */
TEST(the_batch_along_one_axis_is_a_group_of_its_own)
{
    struct mesh mesh = mesh_of(1, 1, 1, 1, 1);

    mesh.size[AXIS_EXPERT] = 2;
    IS_OK(mesh_resolve(&mesh, 2));
    CHECK(!group_id_equal(mesh_axis_group_id(&mesh, AXIS_EXPERT),
                          mesh_group_id(&mesh, AXES_BATCH)));
}

static status groups_run(struct group *world, struct group *group)
{
    struct mesh mesh = mesh_of(1, 2, 3, 1, MESH_AUTO);
    double x = world->rank, sum;

    TRY(mesh_resolve(&mesh, world->size));
    TRY(mesh_group_build(group, world, &mesh, &mesh_order_default,
                         BIT(AXIS_DATA) | BIT(AXIS_SHARD)));
    if (strcmp(group->label, "data+shard") != 0 || group->size != 6)
        FAIL(ERR_VERIFY, "%s %d", group->label, group->size);
    TRY(comm_all_reduce(group, tensor_1d(&sum, DTYPE_F64, 1),
                        tensor_1d(&x, DTYPE_F64, 1), REDUCE_SUM));
    if (sum != 30 + 6 * (world->rank % 2)) FAIL(ERR_VERIFY, "%g", sum);
    return OK;
}

static status groups_body(void *argument, struct group *world)
{
    struct group group = {0};
    const status result = groups_run(world, &group);

    (void)argument;
    group_free(&group);
    return result;
}

TEST(groups_of_the_mesh_reduce)
{
    IS_OK(ranks_run(12, groups_body, NULL));
    EQUAL_TEXT(axis_name(AXIS_CONTEXT), "context");
}

/* Seats of the ranks that divide experts against the numbers of the ranks. */
static void check_seats(const struct mesh *mesh,
                        const struct mesh_order *order)
{
    const int size = mesh_expert_ranks(mesh);
    const int nodes = mesh_expert_nodes(mesh), each = size / nodes;
    int members[64];
    bool taken[64] = {false};

    for (int rank = 0; rank < mesh_ranks(mesh); rank++) {
        struct place place;

        mesh_place(mesh, order, rank, &place);
        mesh_expert_members(mesh, order, &place, members);
        memset(taken, 0, sizeof taken);
        for (int m = 0; m < size; m++) {
            const struct expert_seat seat = mesh_expert_seat(mesh, m);
            const int at = seat.node * each + seat.place;

            CHECK(seat.node < nodes && seat.place < each && !taken[at]);
            taken[at] = true;
            for (int i = 0; i < m; i++)
                EQUAL_INT(members[i] / mesh->node == members[m] / mesh->node,
                          mesh_expert_seat(mesh, i).node == seat.node);
        }
    }
}

TEST(nodes_seat_the_ranks_that_divide_experts)
{
    static const char *const orders[] = {
        "", "expert,context", "tensor,expert,context", "expert,data"};

    for (int i = 0; i < ROWS(orders); i++)
        for (int node = 1; node < 32; node *= 2) {
            struct mesh mesh = mesh_of(1, 2, 1, 2, 2);
            struct mesh_order order;

            mesh.size[AXIS_EXPERT] = 4;
            IS_OK(mesh_order_parse(&order, orders[i]));
            for (int tensor = 0; tensor < 2; tensor++) {
                IS_OK(mesh_fold(&mesh, tensor, tensor == 1));
                IS_OK(mesh_nodes(&mesh, &order, node, "auto"));
                if (mesh.relays) check_seats(&mesh, &order);
            }
        }
}

TEST(nodes_that_do_not_fit_are_refused)
{
    struct mesh mesh = mesh_of(1, 3, 1, 1, 1);

    mesh.size[AXIS_EXPERT] = 4;
    IS_OK(mesh_nodes(&mesh, &mesh_order_default, 12, "auto"));
    EQUAL_INT(mesh.node, 0);
    IS_OK(mesh_nodes(&mesh, &mesh_order_default, 2, "auto"));
    EQUAL_INT(mesh_expert_nodes(&mesh), 2);
    EQUAL_INT(mesh_expert_run(&mesh), 2);
    IS_OK(mesh_nodes(&mesh, &mesh_order_default, 2, "flat"));
    EQUAL_INT(mesh_expert_nodes(&mesh), 1);
    EQUAL_INT(mesh_expert_seat(&mesh, 3).node, 1);
    IS_OK(mesh_nodes(&mesh, &mesh_order_default, 3, "auto"));
    EQUAL_INT(mesh_expert_nodes(&mesh), 1);
    FAILS(mesh_nodes(&mesh, &mesh_order_default, 3, "two_level"), ERR_CONFIG,
          "unequal parts");
    FAILS(mesh_nodes(&mesh, &mesh_order_default, 4, "two_level"), ERR_CONFIG,
          "on one node (mesh.node=4)");
    FAILS(mesh_nodes(&mesh, &mesh_order_default, 5, "auto"), ERR_CONFIG,
          "do not divide the 12 ranks; 4 does");
}

TEST_MAIN(sizes_multiply_to_the_ranks, places_and_ranks_are_inverse,
          the_last_axis_named_is_the_fastest, groups_cut_the_ranks,
          folded_ranks_divide_the_experts,
          the_batch_along_one_axis_is_a_group_of_its_own,
          nodes_seat_the_ranks_that_divide_experts,
          nodes_that_do_not_fit_are_refused,
          groups_of_the_mesh_reduce)
