/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard.c - mirrors src/mesh/shard.c: shards tile every unit, no block of
 * the norm is cut, and what a rank owns is found where it lies. */
#include "mesh/shard.h"
#include "tests/test.h"
#include "tests/unit/divided.h"

struct shape {
    const char *name;
    int layer;
    int64_t rows, cols;
    bool vector;
    enum axis split_rows, split_cols;
    int64_t pieces[3]; /* rows; 0: none */
};

/* A model of odd sizes: a vocabulary that no power of two divides, leaves of
 * columns whose width does not divide 1,024, vectors shorter than a block. */
static const struct shape odd[] = {
    {"embedding", -1, 517, 36, false, AXIS_TENSOR, AXIS_NONE, {0}},
    {"positions", -1, 129, 36, false, AXIS_NONE, AXIS_NONE, {0}},
    {"norm1", 0, 1, 36, true, AXIS_NONE, AXIS_NONE, {0}},
    {"wqkv", 0, 108, 36, false, AXIS_TENSOR, AXIS_NONE, {36, 36, 36}},
    {"bqkv", 0, 1, 108, true, AXIS_TENSOR, AXIS_NONE, {36, 36, 36}},
    {"wo", 0, 360, 36, false, AXIS_NONE, AXIS_TENSOR, {0}},
    {"norm1", 1, 1, 36, true, AXIS_NONE, AXIS_NONE, {0}},
    {"w2", 1, 1000, 200, false, AXIS_NONE, AXIS_TENSOR, {0}},
    {"norm", -1, 1, 36, true, AXIS_NONE, AXIS_NONE, {0}},
    {"norm_bias", -1, 1, 36, true, AXIS_NONE, AXIS_NONE, {0}},
    {"head", -1, 517, 36, false, AXIS_TENSOR, AXIS_NONE, {0}},
};

static void table_build(struct param_table *table, int leaves)
{
    *table = (struct param_table){0};
    for (int i = 0; i < ROWS(odd); i++) {
        struct param_spec spec = {
            .name = odd[i].name, .rows = odd[i].rows, .cols = odd[i].cols,
            .vector = odd[i].vector, .split_rows = odd[i].split_rows,
            .split_cols = odd[i].split_cols, .leaves = leaves};
        int index;

        for (int j = 0; j < 3 && odd[i].pieces[j] > 0; j++)
            spec.pieces[spec.piece_count++].rows = odd[i].pieces[j];
        IS_OK(param_add(table, spec.name, odd[i].layer, &spec, NULL, &index));
    }
}

/* Elements of the leaf's block before element `at` of the parameter. */
static int64_t before(const struct param *param,
                      const struct leaf_block *leaf, int64_t at)
{
    const int64_t width = param->spec.vector ? 1 : param->cols;
    const int64_t row = at / width, col = at % width;
    int64_t inside;

    if (!leaf->columns || param->spec.vector) {
        inside = at - leaf->first * width;
        if (inside < 0) inside = 0;
        return inside < leaf->count * width ? inside : leaf->count * width;
    }
    inside = col - leaf->first;
    if (inside < 0) inside = 0;
    return row * leaf->count + (inside < leaf->count ? inside : leaf->count);
}

static void check_legal(const struct param *param,
                        const struct holding *holding, int64_t at)
{
    int first, last;

    param_leaves(param, holding, &first, &last);
    for (int leaf = first; leaf < last; leaf++)
        for (int piece = 0; piece < param_pieces(param); piece++) {
            struct leaf_block block;
            int64_t n;

            if (!param_leaf(param, holding, leaf, piece, &block)) continue;
            n = before(param, &block, at);
            CHECK(n % 1024 == 0 || n == before(param, &block,
                                               param->elements));
        }
}

static void check_shards(const struct shards *s,
                         const struct param_table *table,
                         const struct holding *holding)
{
    int64_t at = 0;

    for (int u = 0; u < s->count; u++) {
        const int64_t *cuts = shard_cuts(s, u);

        EQUAL_INT(s->units[u].first, at);
        EQUAL_INT(cuts[0], 0);
        EQUAL_INT(cuts[s->classes[0].ranks], s->units[u].elements);
        for (int r = 0; r < s->classes[0].ranks; r++)
            EQUAL_INT(cuts[r + 1] - cuts[r], shard_sizes(s, u)[r]);
        at += s->units[u].elements;
    }
    EQUAL_INT(at, table->elements);
    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        int64_t next = 0;

        for (int r = 0; r < s->classes[0].ranks; r++) {
            struct shard_range range;

            shard_range(s, table, i, r, &range);
            if (range.first == range.last) continue;
            EQUAL_INT(range.first, next); /* each element once, in order */
            CHECK(range.last <= param->elements);
            if (range.last < param->elements)
                check_legal(param, holding, range.last);
            next = range.last;
        }
        EQUAL_INT(next, param->elements);
    }
}

TEST(shards_tile_and_cut_no_block)
{
    for (int leaves = 1; leaves <= 4; leaves++)
        for (int ranks = 1; ranks <= 16; ranks++)
            for (int rank = 0; rank < ranks; rank += 3) {
                const struct holding holding = {.mesh = mesh_alone(),
                                                .leaves = leaves};
                struct param_table table;
                struct shards shards;

                table_build(&table, leaves);
                IS_OK(divided_build(&shards, &table, &holding, ranks, rank));
                check_shards(&shards, &table, &holding);
                if (ranks == 1) EQUAL_INT(shards.elements, table.elements);
                shards_free(&shards);
                param_table_free(&table);
            }
}

/* Shards, where the tensor axis leaves this rank a part of each parameter. */
TEST(parts_of_a_tensor_rank_are_cut_too)
{
    for (int at = 0; at < 2; at++) {
        struct holding holding = {.mesh = mesh_alone(), .leaves = 4};
        struct param_table table;
        struct shards shards;

        holding.mesh.size[AXIS_TENSOR] = 2;
        holding.place.at[AXIS_TENSOR] = at;
        table_build(&table, 4);
        table.elements = 0;
        for (int i = 0; i < table.count; i++) {
            struct param *param = &table.items[i];

            layout_local_shape(&param->spec, &holding.mesh, &holding.place,
                               &param->rows, &param->cols);
            param->elements = param->rows * param->cols;
            param->offset = table.elements;
            table.elements += param_room(param->elements);
        }
        IS_OK(divided_build(&shards, &table, &holding, 4, 1));
        check_shards(&shards, &table, &holding);
        shards_free(&shards);
        param_table_free(&table);
    }
}

/* Shard arenas hold what their ranges say, and nothing twice. */
TEST(ranges_say_where_elements_lie)
{
    const struct holding holding = {.mesh = mesh_alone(), .leaves = 2};
    struct param_table table;
    struct shards shards;
    int64_t total = 0;

    table_build(&table, 2);
    for (int rank = 0; rank < 5; rank++) {
        int64_t end = 0;

        IS_OK(divided_build(&shards, &table, &holding, 5, rank));
        for (int i = 0; i < table.count; i++) {
            struct shard_range own;

            shard_range(&shards, &table, i, rank, &own);
            if (own.first == own.last) continue;
            CHECK(own.at >= end);
            end = own.at + own.last - own.first;
            total += own.last - own.first;
        }
        CHECK(end <= shards.elements);
        shards_free(&shards);
    }
    EQUAL_INT(total, table.parameters);
    param_table_free(&table);
}

TEST(shards_are_as_equal_as_blocks_allow)
{
    const struct holding holding = {.mesh = mesh_alone(), .leaves = 1};
    const struct param_spec spec = {.name = "w", .rows = 64, .cols = 1024,
                                    .leaves = 1};
    const struct param_spec small = {.name = "v", .rows = 1, .cols = 48,
                                     .vector = true};
    struct param_table table = {0};
    struct shards shards;
    int index;

    IS_OK(param_add(&table, "w", 0, &spec, NULL, &index));
    IS_OK(param_add(&table, "v", -1, &small, NULL, &index));
    IS_OK(divided_build(&shards, &table, &holding, 8, 0));
    for (int r = 0; r < 8; r++)
        EQUAL_INT(shard_sizes(&shards, 0)[r], 8 * 1024);
    EQUAL_INT(shards.count, 2);
    for (int r = 0; r < 8; r++) /* 48 elements are one rank's */
        CHECK(shard_sizes(&shards, 1)[r] == 0 ||
              shard_sizes(&shards, 1)[r] == 48);
    EQUAL_INT(shards.largest_unit, 64 * 1024);
    shards_free(&shards);
    param_table_free(&table);
}

/* Without frozen matrices gradients lie as the weights do; with them each
 * rank's parts follow one another without a gap, and what is found through
 * shard_range is what lies there. */
static void gradients_tile(const struct shards *shards,
                           const struct param_table *table)
{
    int64_t flat = 0, own = 0;

    for (int i = 0; i < shards->count; i++) {
        const struct shard_unit *unit = &shards->units[i];
        const int64_t *cuts = shard_gradient_cuts(shards, i);
        int64_t sum = 0;

        EQUAL_INT(unit->gradient, flat);
        EQUAL_INT(unit->gradient_at, own);
        for (int r = 0; r < shards->classes[0].ranks; r++) {
            EQUAL_INT(cuts[r], sum);
            sum += shard_gradient_sizes(shards, i)[r];
        }
        EQUAL_INT(sum, unit->gradients);
        flat += unit->gradients;
        own += param_room(shard_gradients(shards, i));
    }
    EQUAL_INT(flat, table->gradients);
    EQUAL_INT(own, shards->gradients);
    for (int i = 0; i < table->count; i++) {
        const struct param *p = &table->items[i];
        const int unit = shard_unit_of(shards, i);
        struct shard_range range;

        shard_own(shards, table, i, &range);
        if (range.first == range.last || !param_has_gradient(p)) continue;
        EQUAL_INT(range.gradient_at - shards->units[unit].gradient_at +
                      shard_gradient_cuts(shards,
                                          unit)[shard_rank(shards, unit)],
                  p->gradient - shards->units[unit].gradient + range.first);
    }
}

TEST(frozen_matrices_have_no_gradients)
{
    const struct holding holding = {.mesh = mesh_alone(), .leaves = 1};
    static const unsigned masks[] = {0, 0x008, 0x0a1, 0x7ff};

    for (int m = 0; m < ROWS(masks); m++)
        for (int rank = 0; rank < 5; rank++) {
            struct param_table table;
            struct shards shards;
            int64_t kept = 0;

            table_build(&table, 1);
            for (int i = 0; i < table.count; i++) {
                struct param *p = &table.items[i];

                p->frozen = masks[m] >> i & 1;
                if (!p->frozen || p->spec.vector)
                    kept += param_room(p->elements);
            }
            param_place_gradients(&table);
            EQUAL_INT(table.gradients, kept);
            IS_OK(divided_build(&shards, &table, &holding, 5, rank));
            gradients_tile(&shards, &table);
            if (masks[m] == 0) EQUAL_INT(shards.gradients, shards.elements);
            shards_free(&shards);
            param_table_free(&table);
        }
}

TEST(units_follow_use)
{
    static const int first[] = {0, 1, 2, 6, 8, 10};
    const struct holding holding = {.mesh = mesh_alone(), .leaves = 1};
    struct param_table table;
    struct shards shards;

    table_build(&table, 1);
    IS_OK(divided_build(&shards, &table, &holding, 2, 0));
    EQUAL_INT(shards.count, ROWS(first));
    for (int i = 0; i < shards.count; i++)
        EQUAL_INT(shards.units[i].first_param, first[i]);
    EQUAL_INT(shard_unit_of(&shards, 5), 2);
    EQUAL_INT(shard_unit_of(&shards, 9), 4);
    shards_free(&shards);
    param_table_free(&table);
}

TEST(presets)
{
    struct mesh mesh = mesh_alone();
    struct place place = {{0}};
    struct division division;

    mesh.size[AXIS_DATA] = 3;
    mesh.size[AXIS_SHARD] = 4;
    place.at[AXIS_DATA] = 2;
    place.at[AXIS_SHARD] = 1;
    IS_OK(division_parse(&division, "zero1"));
    CHECK(division.states != 0 && division.gradients == 0);
    EQUAL_INT(division_ranks(&division, &mesh), 12);
    EQUAL_INT(mesh_batch_index(&mesh, &place, division_axes(&division)), 9);
    CHECK(!division_copies(&division));
    IS_OK(division_parse(&division, "hsdp"));
    CHECK(division.weights >> AXIS_SHARD & 1);
    EQUAL_INT(division_ranks(&division, &mesh), 4);
    EQUAL_INT(mesh_batch_index(&mesh, &place, division_axes(&division)), 1);
    CHECK(division_copies(&division));
    IS_OK(division_parse(&division, "ddp"));
    EQUAL_INT(division_ranks(&division, &mesh), 1);
    FAILS(division_parse(&division, "zero4"), ERR_CONFIG, "nearest: zero");
    IS_OK(division_parse(&division, "{states: [shard]}"));
    CHECK(division.gradients == 0 && division.weights == 0);
    EQUAL_INT(division_ranks(&division, &mesh), 4);
    CHECK(division_copies(&division));
    IS_OK(division_parse(&division, "{}"));
    EQUAL_INT(division_ranks(&division, &mesh), 1);
    IS_OK(division_parse(&division,
                         "{gradients:[shard,data], states: [ data, shard ]}"));
    CHECK(division.gradients == division.states && division.weights == 0);
    EQUAL_INT(division_ranks(&division, &mesh), 12);
    FAILS(division_parse(&division, "{states: [shard]"), ERR_CONFIG, "the end");
    FAILS(division_parse(&division, "{states: [shard, data, shard]}"),
          ERR_CONFIG, "shard stands twice in one list of axes");
    FAILS(division_parse(&division, "{weights: [shard]}"), ERR_CONFIG,
          "does not keep");
}

/* A parameter that the expert axis cuts has copies on fewer ranks than its
 * neighbours, so it is a unit of its own, cut in fewer shards. */
TEST(units_are_divided_over_the_ranks_that_hold_copies)
{
    static const struct {
        const char *zero;
        int units, dense, experts, dense_rank, expert_rank;
    } rows[] = {
        {"fsdp", 4, 12, 6, 7, 3}, {"hsdp", 4, 4, 2, 3, 1},
        {"ddp", 4, 1, 1, 0, 0}};
    const struct param_spec dense = {.name = "w", .rows = 64, .cols = 512};
    const struct param_spec experts = {.name = "e", .rows = 8 * 16,
                                       .cols = 512, .leaves = 8,
                                       .split_rows = AXIS_EXPERT};
    const int64_t held[] = {4 * 16, 512};

    for (int i = 0; i < ROWS(rows); i++) {
        struct holding holding = {.mesh = mesh_alone(), .leaves = 1};
        struct param_table table = {0};
        struct division division;
        struct shards shards;
        int index;

        holding.mesh.size[AXIS_DATA] = 3;
        holding.mesh.size[AXIS_SHARD] = holding.mesh.size[AXIS_EXPERT] = 2;
        holding.place.at[AXIS_DATA] = holding.place.at[AXIS_SHARD] = 1;
        holding.place.at[AXIS_EXPERT] = 1;
        for (int block = 0; block < 2; block++) {
            IS_OK(param_add(&table, "w", block, &dense, NULL, &index));
            IS_OK(param_add(&table, "e", block, &experts, held, &index));
        }
        IS_OK(division_parse(&division, rows[i].zero));
        IS_OK(shards_build(&shards, &table, &holding, &division));
        EQUAL_INT(shards.count, rows[i].units);
        EQUAL_INT(shards.class_count, 2);
        for (int u = 0; u < shards.count; u++) {
            const struct shard_class *c = shard_class(&shards, u);

            EQUAL_INT(c->ranks, u % 2 ? rows[i].experts : rows[i].dense);
            EQUAL_INT(c->rank, u % 2 ? rows[i].expert_rank
                                     : rows[i].dense_rank);
            EQUAL_INT(shard_cuts(&shards, u)[c->ranks],
                      shards.units[u].elements);
        }
        shards_free(&shards);
        param_table_free(&table);
    }
}

/* More axes divide states than weights: parts of a shard lie side by side, and
 * are those of the ranks of `data`. */
TEST(shards_are_cut_once_more)
{
    const struct param_spec spec = {.rows = 64, .cols = 512};
    const char *text = "{weights:[shard],gradients:[shard],"
                       "states:[data,shard]}";
    int64_t sum = 0;

    for (int rank = 0; rank < 6; rank++) {
        struct holding holding = {.mesh = mesh_alone(), .leaves = 1};
        struct param_table table = {0};
        struct division division;
        struct shard_range part, all;
        struct shards shards;
        int index;

        holding.mesh.size[AXIS_DATA] = 3;
        holding.mesh.size[AXIS_SHARD] = 2;
        holding.place.at[AXIS_DATA] = rank / 2;
        holding.place.at[AXIS_SHARD] = rank % 2;
        IS_OK(param_add(&table, "w", 0, &spec, NULL, &index));
        IS_OK(division_parse(&division, text));
        IS_OK(shards_build(&shards, &table, &holding, &division));
        EQUAL_INT(shard_class(&shards, 0)->parts, 3);
        EQUAL_INT(shard_rank(&shards, 0), rank % 2 * 3 + rank / 2);
        shard_own(&shards, &table, 0, &part);
        shard_whole(&shards, &table, 0, &all);
        EQUAL_INT(all.first, rank % 2 * 16384);
        EQUAL_INT(all.last, all.first + 16384);
        CHECK(part.first >= all.first && part.last <= all.last);
        EQUAL_INT(part.first - all.first, shard_weights_before(&shards, 0));
        EQUAL_INT(part.shard_at, part.first - all.first);
        EQUAL_INT(part.gradient_at, part.first - all.first);
        EQUAL_INT(part.at, 0);
        EQUAL_INT(shards.elements, part.last - part.first);
        EQUAL_INT(shards.shard_elements, 16384);
        EQUAL_INT(shards.gradients, 16384);
        sum += part.last - part.first;
        shards_free(&shards);
        param_table_free(&table);
    }
    EQUAL_INT(sum, 64 * 512);
}

TEST_MAIN(shards_are_cut_once_more,
          shards_tile_and_cut_no_block, parts_of_a_tensor_rank_are_cut_too,
          ranges_say_where_elements_lie, shards_are_as_equal_as_blocks_allow,
          frozen_matrices_have_no_gradients, units_follow_use, presets,
          units_are_divided_over_the_ranks_that_hold_copies)
