/* SPDX-License-Identifier: Apache-2.0 */
/* test_matrices.c - mirrors src/mesh/matrices.c: whoever sends brings every
 * element of a tensor, nobody brings another's, and all ranks agree on owners
 * and on what is sent. */
#include "mesh/matrices.h"
#include "tests/test.h"

static const struct shape {
    const char *name;
    int layer;
    int64_t rows, cols;
    bool vector;
    enum axis split_rows, split_cols;
    int64_t pieces[3];
    bool named;  /* pieces have names outside */
    int64_t head; /* of pieces 1 and 2 */
    int64_t each; /* so many elements are a tensor outside */
} model[] = {
    {"table", -1, 517, 36, false, AXIS_TENSOR, AXIS_NONE, {0}, false, 0, 0},
    {"qkv", 0, 72, 36, false, AXIS_TENSOR, AXIS_NONE, {36, 18, 18}, true, 9, 0},
    {"fused", 0, 108, 36, false, AXIS_TENSOR, AXIS_NONE, {36, 36, 36}, false,
     0, 0},
    {"down", 0, 300, 40, false, AXIS_NONE, AXIS_TENSOR, {0}, false, 0, 0},
    {"norm", 0, 1, 36, true, AXIS_NONE, AXIS_NONE, {0}, false, 0, 0},
    {"bias", 1, 1, 108, true, AXIS_TENSOR, AXIS_NONE, {36, 36, 36}, true, 0, 0},
    {"up", 1, 100, 600, false, AXIS_TENSOR, AXIS_NONE, {0}, false, 0, 0},
    {"each", 1, 1, 60, true, AXIS_NONE, AXIS_NONE, {0}, false, 0, 12},
    {"experts.%d.up", 1, 24, 36, false, AXIS_NONE, AXIS_NONE, {0}, false, 0, 0},
    {"experts.%d.up", 1, 24, 36, false, AXIS_NONE, AXIS_NONE, {0}, false, 0, 0},
};

enum { EXPERTS_EACH = 2 };

static void table_build(struct param_table *table, const struct mesh *mesh,
                        const struct place *place)
{
    *table = (struct param_table){0};
    for (int i = 0; i < ROWS(model); i++) {
        const struct shape *s = &model[i];
        struct param_spec spec = {
            .name = s->name, .rows = s->rows, .cols = s->cols,
            .vector = s->vector, .split_rows = s->split_rows,
            .split_cols = s->split_cols, .leaves = 4,
            .outside_each = s->each};
        if (strchr(s->name, '%') != NULL) { /* two experts for each rank */
            spec.spread = mesh_expert_ranks(mesh) > 1 ? EXPERTS_EACH : 0;
            spec.folded = mesh->folded;
            if (spec.folded != 0 || mesh->expert_cut > 1) {
                spec.split_rows = AXIS_TENSOR;
                spec.within = mesh_expert_cut(mesh);
            }
            spec.expert = mesh_expert_place(mesh, place) * EXPERTS_EACH + 1 +
                          i - (ROWS(model) - EXPERTS_EACH);
        }
        int64_t held[2];
        int index;

        for (int j = 0; j < 3 && s->pieces[j] > 0; j++)
            spec.pieces[spec.piece_count++] = (struct param_piece){
                .outside_name = s->named ? s->name : NULL,
                .rows = s->pieces[j], .head = j > 0 ? s->head : 0};
        layout_local_shape(&spec, mesh, place, &held[0], &held[1]);
        IS_OK(param_add(table, s->name, s->layer, &spec, held, &index));
    }
}

static void matrices_at(struct matrices *out, const struct mesh *mesh,
                        const struct division *division, int rank)
{
    /* The last place on the expert axis has one expert that is no matrix. */
    static const int gathers[2 * ROWS(model)] = {
        2, 1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 1, 0, 2};
    struct holding holding = {.mesh = *mesh, .leaves = 4};
    struct param_table table;

    stage_rank_place(mesh, 0, rank, &holding.place);
    table_build(&table, mesh, &holding.place);
    const struct matrices_of of = {.table = &table, .holding = &holding,
                                   .division = *division,
                                   .gathers = gathers};

    IS_OK(matrices_build(out, &of));
    EQUAL_INT(out->rank, rank);
    param_table_free(&table);
}

static int64_t part_marks(const struct matrices *m,
                          const struct matrix *matrix, int rank,
                          unsigned char *seen)
{
    int64_t elements = 0;

    for (int piece = 0; piece < PARAM_PIECES_MAX; piece++) {
        struct layout_run run;

        if (!matrix_part(m, matrix, rank, piece, &run)) continue;
        elements += run.length * run.repeats;
        for (int64_t i = 0; i < run.repeats; i++)
            for (int64_t j = 0; j < run.length; j++) {
                const int64_t at =
                    run.whole_first + i * run.whole_stride + j;

                CHECK(at >= 0 && at < matrix->rows * matrix->cols);
                seen[at]++;
            }
    }
    return elements;
}

static void check(const struct mesh *mesh, const char *zero)
{
    struct matrices first, other;
    struct division division;
    int64_t sent = 0, moved = 0, calls, bytes;

    IS_OK(division_parse(&division, zero));
    matrices_at(&first, mesh, &division, 0);
    EQUAL_INT(first.count, 5 + 3 + 3 + 60 / 12 +
                               (mesh_expert_places(mesh) > 1 ? 3 : 2));
    for (int i = 0; i < first.count; i++) {
        const struct matrix *matrix = &first.items[i];
        static unsigned char seen[517 * 600];
        const bool heads = model[matrix->param].head > 0;

        struct place owner;

        stage_rank_place(mesh, 0, matrix->owner, &owner);
        CHECK(matrix->expert < 0 ||
              matrix->expert == mesh_expert_place(mesh, &owner));
        memset(seen, 0, sizeof seen);
        for (int r = 0; r < first.ranks; r++) {
            static unsigned char held[517 * 600];
            const bool sends = matrix_sends(&first, matrix, r);
            const int64_t elements =
                part_marks(&first, matrix, r, sends ? seen : held);

            if (r == matrix->owner) continue;
            moved += elements + (sends ? matrix->gathers * elements : 0);
        }
        for (int64_t j = 0; j < matrix->rows * matrix->cols; j++)
            CHECK(seen[j] == 1 || (heads && seen[j] >= 1));
        CHECK(matrix_of(&first, matrix->turn, matrix->owner) == matrix);
    }
    for (int r = 0; r < first.ranks; r++) {
        matrices_at(&other, mesh, &division, r);
        for (int i = 0; i < first.count; i++)
            EQUAL_INT(other.items[i].owner, first.items[i].owner);
        matrices_traffic(&other, 4, &calls, &bytes);
        sent += bytes;
        matrices_free(&other);
    }
    EQUAL_INT(sent, first.ranks == 1 ? 0 : 4 * moved);
    matrices_free(&first);
}

TEST(senders_bring_every_element)
{
    struct mesh mesh = mesh_alone();

    check(&mesh, "ddp");
    mesh.size[AXIS_TENSOR] = 2;
    check(&mesh, "ddp");
    mesh.size[AXIS_DATA] = 3;
    check(&mesh, "ddp");
    check(&mesh, "zero1");
    check(&mesh, "fsdp");
    mesh.size[AXIS_TENSOR] = 4;
    mesh.size[AXIS_SHARD] = 2;
    mesh.size[AXIS_CONTEXT] = 2;
    check(&mesh, "fsdp");
    check(&mesh, "hsdp");
}

/* An expert's tensors stay with the ranks that hold the expert. */
TEST(experts_have_owners_that_hold_them)
{
    struct mesh mesh = mesh_alone();

    mesh.size[AXIS_EXPERT] = 2;
    check(&mesh, "ddp");
    mesh.size[AXIS_TENSOR] = 2;
    check(&mesh, "ddp");
    mesh.size[AXIS_SHARD] = 2;
    check(&mesh, "fsdp");
    mesh.size[AXIS_DATA] = 2;
    check(&mesh, "hsdp");
    check(&mesh, "zero1");
}

/* Tensor ranks that divide the experts do not cut them. */
TEST(folded_experts_have_owners_that_hold_them)
{
    struct mesh mesh = mesh_alone();

    mesh.size[AXIS_TENSOR] = 2;
    IS_OK(mesh_fold(&mesh, 1, false));
    check(&mesh, "ddp");
    mesh.size[AXIS_SHARD] = 2;
    check(&mesh, "fsdp");
    mesh.size[AXIS_CONTEXT] = 2;
    mesh.size[AXIS_DATA] = 2;
    check(&mesh, "hsdp");
    check(&mesh, "zero1");
}

/* Two ranks of the expert axis cut the experts of each place. */
TEST(experts_are_cut_by_neighbours)
{
    struct mesh mesh = mesh_alone();

    mesh.size[AXIS_EXPERT] = 4;
    IS_OK(mesh_fold(&mesh, 2, false));
    check(&mesh, "ddp");
    mesh.size[AXIS_EXPERT] = 2;
    mesh.size[AXIS_TENSOR] = 4;
    IS_OK(mesh_fold(&mesh, 4, false));
    EQUAL_INT(mesh_expert_places(&mesh), 2);
    IS_OK(mesh_fold(&mesh, 2, false));
    EQUAL_INT(mesh_expert_places(&mesh), 4);
    mesh.size[AXIS_TENSOR] = 2;
    mesh.size[AXIS_SHARD] = 2;
    IS_OK(mesh_fold(&mesh, 2, false));
    check(&mesh, "fsdp");
    mesh.size[AXIS_TENSOR] = 1;
    mesh.size[AXIS_EXPERT] = 4;
    IS_OK(mesh_fold(&mesh, 2, false));
    check(&mesh, "fsdp");
    check(&mesh, "hsdp");
    mesh.size[AXIS_CONTEXT] = 2; /* neighbours at several of its places */
    mesh.size[AXIS_EXPERT] = 2;
    IS_OK(mesh_fold(&mesh, 4, true));
    EQUAL_INT(mesh_expert_places(&mesh), 1);
    check(&mesh, "fsdp");
}

/* The names and numbers that another rank has: rules of groups read them. */
TEST(a_table_beside_has_the_other_experts_names)
{
    struct mesh mesh = mesh_alone();
    struct place place = {0};
    struct param_table table, beside, other;

    mesh.size[AXIS_EXPERT] = 6;
    place.at[AXIS_EXPERT] = 4;
    table_build(&table, &mesh, &place);
    IS_OK(param_table_beside(&table, 1, &beside));
    place.at[AXIS_EXPERT] = 5; /* its numbers have a digit more */
    table_build(&other, &mesh, &place);
    for (int i = 0; i < table.count; i++) {
        EQUAL_TEXT(beside.items[i].name, other.items[i].name);
        EQUAL_INT(beside.items[i].spec.expert, other.items[i].spec.expert);
    }
    EQUAL_TEXT(beside.items[ROWS(model) - 1].name, "layers.1.experts.11.up");
    param_table_free(&table);
    param_table_free(&beside);
    param_table_free(&other);
}

TEST_MAIN(senders_bring_every_element,
          experts_have_owners_that_hold_them,
          folded_experts_have_owners_that_hold_them,
          experts_are_cut_by_neighbours,
          a_table_beside_has_the_other_experts_names)
