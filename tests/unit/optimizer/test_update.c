/* SPDX-License-Identifier: Apache-2.0 */
/* test_update.c - mirrors src/optimizer/update.c: ranks that update their
 * shards find the norm and the weights of one rank that updates everything, in
 * every bit.
 *
 * Mutations that were tried, each of which a test here or a row of
 * tests/equivalence/zero_ranks.sh finds: a shard of another rank, a shard that
 * begins one block late, blocks added by rank instead of by number, a factor of
 * the local instead of the global count of targets, a reduce-scatter left
 * out. */
#include "optimizer/update.h"

#include <math.h>

#include "mesh/grid.h"
#include "tests/test.h"
#include "tests/unit/divided.h"

enum { TARGETS = 37, STEPS = 3 };

struct shape {
    int layer;
    int64_t rows, cols;
    bool vector;
    enum axis split_rows, split_cols;
    int64_t pieces[3]; /* rows; 0: none */
};

static const struct shape model[] = {
    {-1, 517, 36, false, AXIS_TENSOR, AXIS_NONE, {0}},
    {0, 1, 36, true, AXIS_NONE, AXIS_NONE, {0}},
    {0, 108, 36, false, AXIS_TENSOR, AXIS_NONE, {36, 36, 36}},
    {0, 1, 108, true, AXIS_TENSOR, AXIS_NONE, {36, 36, 36}},
    {0, 600, 36, false, AXIS_NONE, AXIS_TENSOR, {0}},
    {1, 1000, 50, false, AXIS_NONE, AXIS_TENSOR, {0}},
    {-1, 1, 36, true, AXIS_NONE, AXIS_NONE, {0}},
};

/* Everything a rank has, or all of them one after the other. */
struct room {
    struct param_table table;
    struct holding holding;
    struct kernels kernels;
    struct stream stream;
    void *arena[4]; /* whole: weights, gradients, moments */
};

static void table_build(struct param_table *table, int leaves)
{
    static const char *const names[] = {"embedding", "norm1", "wqkv", "bqkv",
                                        "wo", "w2", "norm"};

    *table = (struct param_table){0};
    for (int i = 0; i < ROWS(model); i++) {
        struct param_spec spec = {
            .name = names[i], .rows = model[i].rows, .cols = model[i].cols,
            .vector = model[i].vector, .split_rows = model[i].split_rows,
            .split_cols = model[i].split_cols, .leaves = leaves,
            .decay = !model[i].vector};
        int index;

        for (int j = 0; j < 3 && model[i].pieces[j] > 0; j++)
            spec.pieces[spec.piece_count++].rows = model[i].pieces[j];
        IS_OK(param_add(table, spec.name, model[i].layer, &spec, NULL,
                        &index));
    }
}

static double value(int arena, int64_t i)
{
    const uint32_t mixed = (uint32_t)(i * 7919 + arena * 104729 + 5) *
                           2654435761u;
    const double x = ((double)mixed - 2147483648.0) / 2147483648.0;

    return arena == 3 ? x * x : x / (1 + (double)(mixed % 97));
}

static void room_open(struct room *room, enum dtype dtype, int leaves)
{
    *room = (struct room){.holding = {.mesh = mesh_alone(), .leaves = leaves}};
    IS_OK(kernels_get(&room->kernels, dtype, ISA_AUTO));
    table_build(&room->table, leaves);
    for (int a = 0; a < 4; a++) {
        struct tensor all;

        IS_OK(memory_take((size_t)room->table.elements,
                          (size_t)dtype_bytes(dtype), &room->arena[a]));
        all = tensor_1d(room->arena[a], dtype, room->table.elements);
        for (int i = 0; i < room->table.count; i++) {
            const struct param *p = &room->table.items[i];

            for (int64_t j = 0; j < p->elements; j++)
                tensor_set(&all, p->offset + j, value(a, p->offset + j));
        }
    }
}

static void room_close(struct room *room)
{
    for (int a = 0; a < 4; a++) memory_free(room->arena[a]);
    param_table_free(&room->table);
}

/* ---- R ranks, one after the other ---- */

struct rank_update {
    struct update update;
    struct shards shards;
    struct states states;
    void *own[4]; /* arenas of the rank */
};

/* The address in the arena of the elements that the rank updates. */
static char *own_elements(const struct rank_update *r,
                          const struct room *room, int param, int a,
                          struct shard_range *range)
{
    const struct param *p = &room->table.items[param];
    const struct update_arena *arena =
        a == 0 ? &r->update.weights : &r->update.gradients;
    const int64_t real = dtype_bytes(room->kernels.dtype);

    shard_own(&r->shards, &room->table, param, range);
    if (a >= 2)
        return (char *)r->own[a] + states_place(&r->states, param, a - 2)->at;
    return (char *)r->own[a] +
           shard_place(range, arena->level, p) * real;
}

/* This rank's part of arena `a`, from or into a whole one. */
static void exchange(const struct rank_update *r, struct room *room, int a,
                     bool collects)
{
    const size_t real = (size_t)dtype_bytes(room->kernels.dtype);

    for (int i = 0; i < room->table.count; i++) {
        struct shard_range range;
        char *own = own_elements(r, room, i, a, &range);
        char *whole = (char *)room->arena[a] +
                      (size_t)(room->table.items[i].offset + range.first) *
                          real;
        const size_t bytes = (size_t)(range.last - range.first) * real;

        memcpy(collects ? whole : own, collects ? own : whole, bytes);
    }
}

/* divided: bits of arenas, as above, that hold shards only. Of the others each
 * rank has a copy. */
static void rank_open(struct rank_update *r, struct room *room, int ranks,
                      int rank, unsigned divided)
{
    const struct optimizer_choice adamw = {0};
    const enum dtype dtype = room->kernels.dtype;

    IS_OK(divided_build(&r->shards, &room->table, &room->holding, ranks, rank));
    const struct states_request states = {
        .params = &room->table, .holding = &room->holding,
        .shards = &r->shards, .choice = &adamw, .real = dtype};

    IS_OK(states_plan(&r->states, &states));
    for (int a = 0; a < 4; a++) {
        const bool is_divided = divided >> a & 1;
        const size_t size =
            (size_t)(is_divided ? r->shards.elements : room->table.elements) *
            (size_t)dtype_bytes(dtype);

        IS_OK(memory_take((a < 2 ? size : r->states.bytes[a - 2]) + 1, 1,
                          &r->own[a]));
        if (a < 2 && !is_divided) memcpy(r->own[a], room->arena[a], size);
    }
    r->update = (struct update){
        .kernels = &room->kernels, .stream = &room->stream,
        .params = &room->table, .holding = &room->holding,
        .shards = &r->shards, .weights = {r->own[0], divided & 1},
        .gradients = {r->own[1], divided >> 1 & 1}, .layout = &r->states,
        .states = {r->own[2], r->own[3]}, .beta1 = 0.9, .beta2 = 0.95,
        .epsilon = 1e-8, .weight_decay = 0.1, .clip = 0.5};
    for (int a = 0; a < 4; a++) exchange(r, room, a, false);
}

static void rank_close(struct rank_update *r)
{
    for (int a = 0; a < 4; a++) memory_free(r->own[a]);
    states_free(&r->states);
    shards_free(&r->shards);
}

static void collect(const struct rank_update *r, struct room *room, int a)
{
    exchange(r, room, a, true);
}

/* One step of all ranks; what travels between them is added here. */
static void step(struct rank_update *r, struct room *room, int ranks,
                 int64_t t, struct update_result *out)
{
    const int64_t count = shard_blocks(&room->table, &room->holding);
    const int64_t sums_count =
        (int64_t)room->table.orders * room->holding.leaves;
    void *blocks = NULL, *all = NULL, *sums = NULL;

    IS_OK(memory_take((size_t)count, sizeof(double), &blocks));
    IS_OK(memory_take((size_t)count, sizeof(double), &all));
    IS_OK(memory_take((size_t)sums_count, sizeof(double), &sums));
    for (int i = 0; i < ranks; i++) {
        r[i].update.blocks = blocks;
        IS_OK(update_blocks(&r[i].update, TARGETS));
        for (int64_t b = 0; b < count; b++)
            ((double *)all)[b] += ((double *)blocks)[b];
    }
    r[0].update.blocks = all;
    update_squares(&r[0].update, sums);
    IS_OK(update_norm(&r[0].update, sums, room->table.orders, out));
    for (int i = 0; i < ranks; i++)
        IS_OK(update_apply(&r[i].update, out->factor, 0.01, t));
    memory_free(blocks);
    memory_free(all);
    memory_free(sums);
}

static void train(struct room *room, int ranks, unsigned divided,
                  struct update_result *out)
{
    for (int64_t t = 1; t <= STEPS; t++) {
        struct rank_update r[16];

        for (int i = 0; i < ranks; i++)
            rank_open(&r[i], room, ranks, i, divided);
        step(r, room, ranks, t, out);
        for (int i = 0; i < ranks; i++) {
            for (int a = 0; a < 4; a++) collect(&r[i], room, a);
            rank_close(&r[i]);
        }
    }
}

TEST(shards_are_updated_as_the_whole_is)
{
    static const unsigned divided[] = {0, 2, 3}; /* zero1, 2, 3 */

    for (int leaves = 1; leaves <= 4; leaves++)
        for (int d = 0; d < ROWS(divided); d++)
            for (int ranks = 2; ranks <= 16; ranks += leaves + d) {
                const enum dtype dtype =
                    ranks % 3 == 0 ? DTYPE_F64 : DTYPE_F32;
                struct update_result one, many;
                struct room whole, parts;

                room_open(&whole, dtype, leaves);
                room_open(&parts, dtype, leaves);
                train(&whole, 1, 0, &one);
                train(&parts, ranks, divided[d], &many);
                CHECK(one.norm == many.norm && one.factor == many.factor);
                for (int a = 0; a < 4; a++)
                    EQUAL_BYTES(whole.arena[a], parts.arena[a],
                                whole.table.elements * dtype_bytes(dtype));
                room_close(&whole);
                room_close(&parts);
            }
}

/* ---- the definition, in words of docs/numerics.md ---- */

static double block_sum(const struct tensor *all, const struct param *p,
                        const struct leaf_block *leaf, int64_t first)
{
    const int64_t width = p->spec.vector ? 1 : p->cols;
    const int64_t cols = leaf->columns && !p->spec.vector ? leaf->count
                                                          : width;
    const int64_t count = leaf->columns && !p->spec.vector
                              ? p->rows * leaf->count
                              : leaf->count * width;
    double lane[16] = {0};

    for (int64_t i = first; i < count && i < first + 1024; i++) {
        const int64_t row = i / cols, col = i % cols;
        const int64_t at = leaf->columns && !p->spec.vector
                               ? row * width + leaf->first + col
                               : leaf->first * width + i;
        const double x = tensor_get(all, p->offset + at);

        lane[(i - first) % 16] = fma(x, x, lane[(i - first) % 16]);
    }
    for (int half = 8; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lane[j] += lane[j + half];
    return lane[0];
}

static double node_sum(const struct tensor *all, const struct param *p,
                       const struct leaf_block *leaf, int64_t first,
                       int64_t blocks)
{
    const int64_t count = leaf_blocks(p, leaf);
    double left;

    if (blocks == 1) return block_sum(all, p, leaf, 1024 * first);
    left = node_sum(all, p, leaf, first, blocks / 2);
    if (first + blocks / 2 >= count) return left;
    return left + node_sum(all, p, leaf, first + blocks / 2, blocks / 2);
}

static double defined_norm(const struct room *room)
{
    const struct tensor all = tensor_1d(
        room->arena[1], room->kernels.dtype, room->table.elements);
    double total = 0;

    for (int i = 0; i < room->table.count; i++) {
        const struct param *p = &room->table.items[i];
        double leaf_sum[LEAVES_MAX];
        int first, last;

        param_leaves(p, &room->holding, &first, &last);
        for (int leaf = first; leaf < last; leaf++) {
            leaf_sum[leaf] = 0;
            for (int piece = 0; piece < param_pieces(p); piece++) {
                struct leaf_block block;

                if (param_leaf(p, &room->holding, leaf, piece, &block))
                    leaf_sum[leaf] += node_sum(&all, p, &block, 0, 1 << 20);
            }
        }
        total += grid_tree(leaf_sum, last);
    }
    return sqrt(total);
}

TEST(the_norm_is_the_defined_one)
{
    for (int leaves = 1; leaves <= 4; leaves++) {
        struct update_result found;
        struct rank_update r;
        struct room room;

        room_open(&room, DTYPE_F32, leaves);
        rank_open(&r, &room, 1, 0, 0);
        step(&r, &room, 1, 1, &found);
        collect(&r, &room, 1);
        CHECK(found.norm == defined_norm(&room));
        CHECK(found.factor <= 1);
        rank_close(&r);
        room_close(&room);
    }
}

TEST(a_gradient_that_is_not_finite_is_named)
{
    const int64_t leaves = 2;
    struct update_result result;
    struct rank_update r;
    struct room room;
    struct tensor all;
    void *blocks = NULL, *sums = NULL;

    room_open(&room, DTYPE_F32, (int)leaves);
    all = tensor_1d(room.arena[1], DTYPE_F32, room.table.elements);
    tensor_set(&all, room.table.items[4].offset + 7, (double)INFINITY);
    rank_open(&r, &room, 1, 0, 0);
    IS_OK(memory_take((size_t)shard_blocks(&room.table, &room.holding),
                      sizeof(double), &blocks));
    IS_OK(memory_take((size_t)(room.table.orders * leaves), sizeof(double),
                      &sums));
    r.update.blocks = blocks;
    IS_OK(update_blocks(&r.update, 1));
    update_squares(&r.update, sums);
    FAILS(update_norm(&r.update, sums, room.table.orders, &result),
          ERR_NUMERIC, "layers.0.wo");
    memory_free(blocks);
    memory_free(sums);
    rank_close(&r);
    room_close(&room);
}

TEST_MAIN(shards_are_updated_as_the_whole_is, the_norm_is_the_defined_one,
          a_gradient_that_is_not_finite_is_named)
