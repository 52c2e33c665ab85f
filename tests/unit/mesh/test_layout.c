/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout.c - mirrors src/mesh/layout.c. */
#include "mesh/layout.h"

#include "tests/test.h"

/* Grouped-query attention with head width 12 and 12 query, 12 / 3 key-value
 * heads; a matrix cut by columns; one cut by rows; one that no axis cuts; a
 * vector; an expert's cut both ways. */
static const struct param_spec specs[] = {
    {.name = "wqkv", .rows = 144 + 48 + 48, .cols = 7,
     .split_rows = AXIS_TENSOR, .piece_count = 3,
     .pieces = {{"q", 144, 0}, {"k", 48, 0}, {"v", 48, 0}}},
    {.name = "wo", .rows = 5, .cols = 36, .split_cols = AXIS_TENSOR},
    {.name = "w1", .rows = 24, .cols = 3, .split_rows = AXIS_TENSOR},
    {.name = "embedding", .rows = 11, .cols = 13},
    {.name = "norm", .rows = 1, .cols = 17, .vector = true},
    {.name = "bias", .rows = 1, .cols = 12, .vector = true,
     .split_cols = AXIS_TENSOR},
    {.name = "expert", .rows = 36 + 12, .cols = 24, .split_rows = AXIS_EXPERT,
     .split_cols = AXIS_TENSOR, .piece_count = 2,
     .pieces = {{"up", 36, 0}, {"gate", 12, 0}}},
};

enum { ELEMENTS_MAX = 240 * 24 };

static int64_t local_size(const struct param_spec *spec,
                          const struct mesh *mesh, const struct place *place)
{
    int64_t rows, cols;

    IS_OK(layout_check(spec, mesh));
    layout_local_shape(spec, mesh, place, &rows, &cols);
    return rows * cols;
}

/* Walks one share of one rank's part, counts every element of the whole, and
 * checks that the local elements come in order. */
static void count_share(const struct param_spec *spec,
                        const struct mesh *mesh, const struct place *place,
                        const int64_t range[2], int *held)
{
    struct layout_run runs[LAYOUT_RUNS_MAX];
    const int count =
        layout_runs(spec, mesh, place, range[0], range[1], runs);
    int64_t local = range[0];

    CHECK(count <= LAYOUT_RUNS_MAX);
    for (int i = 0; i < count; i++) {
        const struct layout_run *run = &runs[i];

        EQUAL_INT(run->local_first, local);
        CHECK(run->length > 0 && run->repeats > 0);
        for (int64_t r = 0; r < run->repeats; r++) {
            const int64_t at = run->whole_first + r * run->whole_stride;
            const int64_t row = at / spec->cols;
            int64_t piece_first = 0;

            CHECK(at >= 0 && at + run->length <= spec->rows * spec->cols);
            for (int p = 0; p < run->piece; p++)
                piece_first += spec->pieces[p].rows;
            CHECK(row >= piece_first);
            for (int64_t c = 0; c < run->length; c++) held[at + c]++;
        }
        local += run->length * run->repeats;
    }
    EQUAL_INT(local, range[1]);
}

/* Every rank of the mesh, its part cut in uneven shares over the data axis. */
static void count_mesh(const struct param_spec *spec, const struct mesh *mesh,
                       int *held)
{
    const int shares = mesh->size[AXIS_DATA];

    for (int t = 0; t < mesh->size[AXIS_TENSOR]; t++) {
        for (int e = 0; e < mesh->size[AXIS_EXPERT]; e++) {
            struct place place = {{0}};

            place.at[AXIS_TENSOR] = t;
            place.at[AXIS_EXPERT] = e;
            const int64_t size = local_size(spec, mesh, &place);

            for (int64_t s = 0; s < shares; s++) {
                /* Shares grow with s: 1 + 2 + ... of the whole. */
                const int64_t sum = (int64_t)shares * (shares + 1) / 2;
                const int64_t range[2] = {
                    size * (s * (s + 1) / 2) / sum,
                    size * ((s + 1) * (s + 2) / 2) / sum};

                count_share(spec, mesh, &place, range, held);
            }
        }
    }
}

TEST(every_element_is_held_once_per_replica)
{
    static int held[ELEMENTS_MAX];
    int meshes = 0;

    for (int m = 0; m < 3 * 3 * 7; m++) {
        static const int sizes[3] = {1, 2, 4};
        struct mesh mesh = {.size = {1, 1, 1, 1, 1, 1, 1}};

        mesh.size[AXIS_TENSOR] = sizes[m % 3];
        mesh.size[AXIS_EXPERT] = sizes[m / 3 % 3];
        mesh.size[AXIS_DATA] = 1 + m / 9;
        meshes++;
        for (int i = 0; i < ROWS(specs); i++) {
            const struct param_spec *spec = &specs[i];
            int replicas = mesh.size[AXIS_TENSOR] * mesh.size[AXIS_EXPERT];

            if (spec->split_rows != AXIS_NONE)
                replicas /= mesh.size[spec->split_rows];
            if (spec->split_cols != AXIS_NONE)
                replicas /= mesh.size[spec->split_cols];
            memset(held, 0, sizeof held);
            count_mesh(spec, &mesh, held);
            for (int64_t k = 0; k < spec->rows * spec->cols; k++)
                EQUAL_INT(held[k], replicas);
            EQUAL_INT(held[spec->rows * spec->cols], 0);
        }
    }
    EQUAL_INT(meshes, 63);
}

TEST(runs_are_as_long_as_they_can_be)
{
    struct mesh mesh = {.size = {1, 1, 1, 1, 1, 1, 1}};
    struct layout_run runs[LAYOUT_RUNS_MAX];
    struct place place = {{0}};
    int64_t size;

    /* Not cut: one run. */
    size = local_size(&specs[3], &mesh, &place);
    EQUAL_INT(layout_runs(&specs[3], &mesh, &place, 0, size, runs), 1);
    EQUAL_INT(runs[0].length, 11 * 13);
    EQUAL_INT(runs[0].repeats, 1);
    EQUAL_INT(layout_runs(&specs[3], &mesh, &place, 5, 5, runs), 0);

    /* Rank 1 of 2: one run for each of q, k and v. */
    mesh.size[AXIS_TENSOR] = 2;
    place.at[AXIS_TENSOR] = 1;
    size = local_size(&specs[0], &mesh, &place);
    EQUAL_INT(size, 120 * 7);
    EQUAL_INT(layout_runs(&specs[0], &mesh, &place, 0, size, runs), 3);
    EQUAL_INT(runs[0].whole_first, 72 * 7);
    EQUAL_INT(runs[1].whole_first, (144 + 24) * 7);
    EQUAL_INT(runs[1].local_first, 72 * 7);
    EQUAL_INT(runs[1].piece, 1);
    EQUAL_INT(runs[2].length, 24 * 7);

    /* Columns 18 to 35 of five rows, without the first and last element. */
    size = local_size(&specs[1], &mesh, &place);
    EQUAL_INT(layout_runs(&specs[1], &mesh, &place, 1, size - 1, runs), 3);
    EQUAL_INT(runs[0].whole_first, 19);
    EQUAL_INT(runs[0].length, 17);
    EQUAL_INT(runs[1].whole_first, 36 + 18);
    EQUAL_INT(runs[1].length, 18);
    EQUAL_INT(runs[1].repeats, 3);
    EQUAL_INT(runs[1].whole_stride, 36);
    EQUAL_INT(runs[2].length, 17);
}

TEST(what_does_not_divide_is_said_with_the_nearest_that_does)
{
    static const struct {
        int spec, tensor;
        const char *words;
    } rows[] = {
        {0, 5, "wqkv: 144 rows do not divide over 5 ranks of the tensor axis; "
               "nearest that does: 4"},
        {0, 9, "wqkv: 48 rows do not divide over 9 ranks of the tensor axis; "
               "nearest that does: 8"},
        {1, 10, "wo: 36 columns do not divide over 10 ranks of the tensor "
                "axis; nearest that does: 9"},
        {2, 7, "nearest that does: 6"},
        {2, 100, "nearest that does: 24"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct mesh mesh = {.size = {1, 1, 1, 1, 1, 1, 1}};

        mesh.size[AXIS_TENSOR] = rows[i].tensor;
        FAILS(layout_check(&specs[rows[i].spec], &mesh), ERR_CONFIG,
              rows[i].words);
    }
}

TEST(a_count_beyond_64_bits_is_refused)
{
    const struct mesh mesh = {.size = {1, 1, 1, 1, 1, 1, 1}};
    const struct param_spec spec = {.name = "big", .rows = INT64_MAX / 2,
                                    .cols = 3};

    FAILS(layout_check(&spec, &mesh), ERR_CONFIG, "more than 64 bits");
}

/* 13 rows in 4 leaves of 4, 4, 4 and 1: two ranks hold 8 and 5. */
TEST(leaves_may_be_uneven)
{
    const struct param_spec spec = {.name = "table", .rows = 13, .cols = 3,
                                    .split_rows = AXIS_TENSOR, .leaves = 4};
    static const int64_t rows[][4] = {{13}, {8, 5}, {0}, {4, 4, 4, 1}};
    struct mesh mesh = {.size = {1, 1, 1, 1, 1, 1, 1}};
    static int held[13 * 3 + 1];

    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        mesh.size[AXIS_TENSOR] = ranks;
        memset(held, 0, sizeof held);
        for (int t = 0; t < ranks; t++) {
            struct place place = {{0}};

            place.at[AXIS_TENSOR] = t;
            EQUAL_INT(local_size(&spec, &mesh, &place),
                      3 * rows[ranks - 1][t]);
            EQUAL_INT(layout_held(&spec, &mesh, &place, 0).count,
                      rows[ranks - 1][t]);
            count_share(&spec, &mesh, &place,
                        (int64_t[]){0, 3 * rows[ranks - 1][t]}, held);
        }
        for (int i = 0; i < 13 * 3; i++) EQUAL_INT(held[i], 1);
    }
    EQUAL_INT(layout_leaf(&spec, 4, 3, 0).first, 12);
    EQUAL_INT(layout_leaf(&spec, 4, 3, 0).count, 1);
    mesh.size[AXIS_TENSOR] = 3;
    FAILS(layout_check(&spec, &mesh), ERR_CONFIG,
          "3 ranks of the tensor axis do not divide the grid's 4 leaves");
}

/* Two key-value heads of width 6 and four ranks: two ranks hold each head, and
 * of the bias the same. */
TEST(heads_are_held_whole)
{
    struct param_spec spec = {
        .name = "wqkv", .rows = 48 + 12 + 12, .cols = 5,
        .split_rows = AXIS_TENSOR, .leaves = 4, .piece_count = 3,
        .pieces = {{"q", 48, 6}, {"k", 12, 6}, {"v", 12, 6}}};
    struct mesh mesh = {.size = {1, 1, 1, 1, 1, 1, 1}};
    struct layout_run runs[LAYOUT_RUNS_MAX];
    static int held[72 * 5 + 1];

    mesh.size[AXIS_TENSOR] = 4;
    for (int vector = 0; vector < 2; vector++) {
        memset(held, 0, sizeof held);
        for (int t = 0; t < 4; t++) {
            struct place place = {{0}};

            place.at[AXIS_TENSOR] = t;
            const int64_t size = local_size(&spec, &mesh, &place);

            EQUAL_INT(size, (12 + 6 + 6) * (vector ? 1 : 5));
            EQUAL_INT(layout_runs(&spec, &mesh, &place, 0, size, runs), 3);
            EQUAL_INT(layout_held(&spec, &mesh, &place, 2).first, t / 2 * 6);
            for (int i = 0; i < 3; i++)
                for (int64_t j = 0; j < runs[i].length; j++)
                    held[runs[i].whole_first + j]++;
        }
        for (int64_t i = 0; i < spec.rows * spec.cols; i++)
            EQUAL_INT(held[i], i < 48 * (vector ? 1 : 5) ? 1 : 2);
        spec.vector = true; /* then the bias */
        spec.cols = spec.rows;
        spec.rows = 1;
    }
}

TEST_MAIN(every_element_is_held_once_per_replica,
          runs_are_as_long_as_they_can_be,
          what_does_not_divide_is_said_with_the_nearest_that_does,
          leaves_may_be_uneven, heads_are_held_whole,
          a_count_beyond_64_bits_is_refused)
