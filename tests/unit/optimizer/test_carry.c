/* SPDX-License-Identifier: Apache-2.0 */
/* test_carry.c - mirrors src/optimizer/carry.c: an update that leaves the old
 * state where it is writes what the same update in place does, for every kind
 * of optimizer and of states; the sum of what kernels write, apart or in place,
 * and of what is copied is that of the whole state. */
#include "optimizer/carry.h"

#include <string.h>

#include "base/range_sum.h"
#include "optimizer/average.h"
#include "tests/test.h"
#include "tests/unit/divided.h"

enum { PARAMS = 5, STEPS = 3, WEIGHTS = 1 << 16, ROOM = 1 << 21 };

/* Weights and the memory of all slots of states; gradients. */
struct area {
    char all[ROOM];
};
static struct area in_place, slots[2];
static float gradients[WEIGHTS];

struct run {
    struct param_table table;
    struct holding holding;
    struct shards shards;
    struct states states;
    struct kernels kernels;
    struct stream stream;
    struct range_sum sum, plain; /* of slot 0; of what is in place */
};

static const struct param_spec specs[PARAMS] = {
    {.name = "table", .rows = 130, .cols = 36, .leaves = 1, .decay = true},
    {.name = "norm", .rows = 1, .cols = 36, .vector = true, .leaves = 1},
    {.name = "frozen", .rows = 64, .cols = 48, .leaves = 1, .decay = true},
    {.name = "copied", .rows = 70, .cols = 50, .leaves = 1, .decay = true},
    {.name = "bias", .rows = 1, .cols = 64, .vector = true, .leaves = 1,
     .role = ROLE_SELECTION_BIAS, .fixed = true},
};

static void run_open(struct run *r, const char *kind, enum state_type type)
{
    /* A kind that only updates in place. */
    static struct optimizer_kind stays;
    struct optimizer_choice choice = {.states = type, .average = 0.9};
    int index;

    IS_OK(optimizer_find(&choice.kind, kind));
    stays = *choice.kind;
    stays.apart = false;
    *r = (struct run){.holding = {.mesh = mesh_alone(), .leaves = 1}};
    IS_OK(kernels_get(&r->kernels, DTYPE_F32, ISA_AUTO));
    for (int i = 0; i < PARAMS; i++)
        IS_OK(param_add(&r->table, specs[i].name, 0, &specs[i], NULL, &index));
    IS_OK(divided_build(&r->shards, &r->table, &r->holding, 1, 0));
    const struct states_request request = {
        .params = &r->table, .holding = &r->holding, .shards = &r->shards,
        .choice = &choice, .real = DTYPE_F32};

    IS_OK(states_plan(&r->states, &request));
    r->states.rules[2].frozen = true;
    r->states.rules[3].kind = &stays;
    r->sum.base = slots[0].all;
    r->plain.base = in_place.all;
}

static void run_close(struct run *r)
{
    states_free(&r->states);
    shards_free(&r->shards);
    param_table_free(&r->table);
}

/* Weights first, then the slots. */
static struct update update_at(struct run *r, char *at, int64_t from)
{
    struct update u = {
        .kernels = &r->kernels, .stream = &r->stream, .params = &r->table,
        .holding = &r->holding, .shards = &r->shards,
        .weights = {at, SHARD_WHOLE}, .gradients = {gradients, SHARD_WHOLE},
        .layout = &r->states, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8,
        .weight_decay = 0.1, .share = 0.4, .from = from, .sum = &r->sum};

    at += arena_aligned((size_t)r->table.elements * sizeof(float));
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        u.states[k] = at;
        at += arena_aligned(r->states.bytes[k]);
    }
    return u;
}

static void set(struct run *r)
{
    float *weights = (float *)(void *)in_place.all;

    memset(&in_place, 0, sizeof in_place);
    CHECK(r->table.elements < WEIGHTS);
    for (uint32_t i = 0; i < (uint32_t)r->table.elements; i++)
        weights[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
    const struct update u = update_at(r, in_place.all, 0);

    IS_OK(update_start(&u));
    IS_OK(average_start(&u));
    memcpy(&slots[0], &in_place, sizeof in_place);
    /* The other place has what no kernel writes, and nothing else. */
    const struct update apart =
        update_at(r, slots[0].all, (int64_t)sizeof slots[0]);

    memset(&slots[1], 0xcd, sizeof slots[1]);
    carry_rest(&apart, slots[0].all, sizeof slots[0].all);
    CHECK(slots[1].all[0] == (char)0xcd);
}

static void step(const struct update *u, int64_t t)
{
    IS_OK(update_apply(u, 0.7, 0.01, t));
    /* Counts of tokens move a selection bias. */
    float *bias = (float *)u->weights.data + u->params->items[4].offset;

    bias[t] += 0.25f;
    IS_OK(average_apply(u));
}

static void compare(const char *kind, enum state_type type)
{
    const unsigned others = 1u << CARRY_COPIED | 1u << CARRY_STILL;
    const unsigned all = (1u << CARRY_PARTS) - 1;
    static struct area before;
    struct run r;

    run_open(&r, kind, type);
    set(&r);
    for (int64_t t = 1; t <= STEPS; t++) {
        /* The addresses stay; what lies there changes places. */
        memcpy(&before, &slots[0], sizeof before);
        memcpy(&slots[0], &slots[1], sizeof before);
        memcpy(&slots[1], &before, sizeof before);
        const struct update apart =
            update_at(&r, slots[0].all, (int64_t)sizeof slots[0]);
        struct update plain = update_at(&r, in_place.all, 0);

        plain.sum = t % 2 == 0 ? NULL : &r.plain;
        r.plain.total = 0;
        for (int i = 0; i < WEIGHTS; i++)
            gradients[i] = (float)((uint32_t)(i + t) * 40503u % 777) / 777 -
                           0.5f;
        step(&plain, t);
        r.sum.total = 0;
        carry_copy(&apart);
        step(&apart, t);
        EQUAL_BYTES(in_place.all, slots[0].all, sizeof in_place.all);
        EQUAL_BYTES(before.all, slots[1].all, sizeof before.all);
        EQUAL_INT(r.sum.total + carry_sum(&apart, others, 0),
                  carry_sum(&apart, all, 0));
        if (plain.sum != NULL)
            EQUAL_INT(r.plain.total + carry_sum(&plain, others, 0),
                      carry_sum(&apart, all, 0));
        CHECK(carry_sum(&apart, all, 0) != carry_sum(&apart, all, apart.from));
    }
    run_close(&r);
}

TEST(the_old_state_stays)
{
    static const char *const kinds[] = {"adamw", "lion", "sgd",
                                        "schedule_free"};

    for (int i = 0; i < ROWS(kinds); i++)
        for (int type = STATE_REAL; type <= STATE_INT8; type++)
            compare(kinds[i], (enum state_type)type);
}

TEST_MAIN(the_old_state_stays)
