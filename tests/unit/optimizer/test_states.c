/* SPDX-License-Identifier: Apache-2.0 */
/* test_states.c - mirrors src/optimizer/states.c: every element that a rank
 * updates is in one leaf, whole blocks of which are the same under every
 * layout; and states take what their kind and type say. */
#include "optimizer/states.h"

#include "optimizer/kind.h"
#include "tests/test.h"
#include "tests/unit/divided.h"

/* Two key-value heads of 6 rows in `fused`: four ranks hold each twice. */
static const struct param_spec specs[] = {
    {.name = "rows", .rows = 300, .cols = 52, .leaves = 4,
     .split_rows = AXIS_TENSOR},
    {.name = "columns", .rows = 301, .cols = 88, .leaves = 4,
     .split_cols = AXIS_TENSOR},
    {.name = "fused", .rows = 48, .cols = 200, .leaves = 4,
     .split_rows = AXIS_TENSOR, .piece_count = 3,
     .pieces = {{.rows = 24, .head = 6}, {.rows = 12, .head = 6},
                {.rows = 12, .head = 6}}},
    {.name = "vector", .rows = 1, .cols = 3000, .vector = true},
    {.name = "whole", .rows = 71, .cols = 90},
};
enum { SPECS = ROWS(specs) };

/* One rank of `tensor` and `shard`. */
struct rank {
    struct param_table table;
    struct holding holding;
    struct shards shards;
};

static void rank_open(struct rank *r, int tensor, int at, int ranks, int rank)
{
    *r = (struct rank){.holding = {.mesh = mesh_alone(), .leaves = 4}};
    r->holding.mesh.size[AXIS_TENSOR] = tensor;
    r->holding.place.at[AXIS_TENSOR] = at;
    for (int i = 0; i < SPECS; i++) {
        int64_t held[2];
        int index;

        layout_local_shape(&specs[i], &r->holding.mesh, &r->holding.place,
                           &held[0], &held[1]);
        IS_OK(param_add(&r->table, specs[i].name, i / 3, &specs[i], held,
                        &index));
    }
    IS_OK(divided_build(&r->shards, &r->table, &r->holding, ranks, rank));
}

static void rank_close(struct rank *r)
{
    shards_free(&r->shards);
    param_table_free(&r->table);
}

/* Marks each element of the own range with 1 + its place in its leaf, modulo
 * the block: whoever updates an element finds the same. */
static void mark(const struct rank *r, int param, int *marks)
{
    const struct param *p = &r->table.items[param];
    struct shard_range range;
    struct held_cursor c = {.param = p, .holding = &r->holding,
                            .range = &range};
    struct layout_run runs[LAYOUT_RUNS_MAX];
    void *memory = NULL;
    int *own;
    int64_t sum = 0;

    shard_own(&r->shards, &r->table, param, &range);
    IS_OK(memory_take((size_t)p->elements, sizeof *own, &memory));
    own = memory;
    memset(own, 0, (size_t)p->elements * sizeof *own);
    while (held_next(&c)) {
        const int64_t width = c.now.rows > 1 ? p->cols : 0;

        EQUAL_INT(c.now.at, sum);
        sum += c.now.rows * c.now.count;
        for (int64_t i = 0; i < c.now.rows * c.now.count; i++) {
            int *place = &own[range.first + c.now.first +
                              i / c.now.count * width + i % c.now.count];

            CHECK(*place == 0);
            *place = 1 + (int)(i % SHARD_BLOCK);
        }
    }
    EQUAL_INT(sum, range.last - range.first);
    const int count = layout_runs(&specs[param], &r->holding.mesh,
                                  &r->holding.place, range.first, range.last,
                                  runs);

    for (int i = 0; i < count; i++)
        for (int64_t j = 0; j < runs[i].length * runs[i].repeats; j++) {
            int *whole = &marks[runs[i].whole_first +
                                j / runs[i].length * runs[i].whole_stride +
                                j % runs[i].length];
            const int found = own[runs[i].local_first + j];

            CHECK(found > 0 && (*whole == 0 || *whole == found));
            *whole = found;
        }
    memory_free(memory);
}

static void mark_layout(int tensor, int ranks, int param, int *marks)
{
    for (int at = 0; at < tensor; at++)
        for (int rank = 0; rank < ranks; rank++) {
            struct rank r;

            rank_open(&r, tensor, at, ranks, rank);
            mark(&r, param, marks);
            rank_close(&r);
        }
}

TEST(every_element_has_one_place_in_one_block)
{
    static int one[40000], many[40000];

    for (int i = 0; i < SPECS; i++) {
        const int64_t count = specs[i].rows * specs[i].cols;
        const size_t bytes = (size_t)count * sizeof *one;

        memset(one, 0, sizeof one);
        mark_layout(1, 1, i, one);
        for (int64_t j = 0; j < count; j++) CHECK(one[j] > 0);
        for (int layout = 1; layout < 15; layout++) {
            memset(many, 0, sizeof many);
            mark_layout(1 << layout / 5, 1 + layout % 5, i, many);
            EQUAL_BYTES(many, one, bytes);
        }
    }
}

/* ---- bytes ---- */

static const struct bytes_case {
    const char *name;
    enum state_type type;
    int bytes[2]; /* of an element, in each slot */
} bytes_cases[] = {
    {"adamw", STATE_REAL, {4, 4}}, {"adamw", STATE_BFLOAT16, {2, 2}},
    {"adamw", STATE_INT8, {1, 1}}, {"lion", STATE_REAL, {4, 0}},
    {"lion", STATE_INT8, {1, 0}},  {"sgd", STATE_BFLOAT16, {2, 0}},
    {"schedule_free", STATE_REAL, {4, 4}},
};

TEST(states_take_what_their_kind_says)
{
    for (int i = 0; i < ROWS(bytes_cases); i++) {
        const struct bytes_case *row = &bytes_cases[i];
        struct optimizer_choice choice = {.states = row->type};
        struct states states;
        struct rank r;

        IS_OK(optimizer_find(&choice.kind, row->name));
        rank_open(&r, 1, 0, 1, 0);
        const struct states_request request = {
            .params = &r.table, .holding = &r.holding, .shards = &r.shards,
            .choice = &choice, .real = DTYPE_F32};

        IS_OK(states_plan(&states, &request));
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            const int64_t each = k < 2 ? row->bytes[k] : 0;
            int64_t least = 0, room = 0;

            for (int p = 0; p < SPECS && each > 0; p++) {
                const int64_t count = r.table.items[p].elements;
                const int64_t scales =
                    each == 1 ? 4 * (count / SHARD_BLOCK + 12) : 0;

                least += each * count;
                room += scales + 2 * ARENA_ALIGN;
            }
            CHECK((int64_t)states.bytes[k] >= least);
            CHECK((int64_t)states.bytes[k] <= least + room);
            EQUAL_INT(states.bytes[k] % ARENA_ALIGN, 0);
        }
        states_free(&states);
        rank_close(&r);
    }
}

TEST(a_name_that_is_none_is_refused)
{
    const struct optimizer_kind *kind;
    enum state_type type;

    FAILS(optimizer_find(&kind, "adamv"), ERR_CONFIG, "nearest: adamw");
    FAILS(state_type_parse(&type, "bfloat"), ERR_CONFIG, "bfloat16");
}

TEST_MAIN(every_element_has_one_place_in_one_block,
          states_take_what_their_kind_says, a_name_that_is_none_is_refused)
