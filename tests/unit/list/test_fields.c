/* SPDX-License-Identifier: Apache-2.0 */
/* test_fields.c - mirrors src/list/fields.c: lists of runs with every kind of
 * instruction, in which one field of one instruction is another. */
#include "list/verify.h"
#include "setup/setup.h"
#include "tests/test.h"

static const char model[] =
    "model.vocab=96 model.layers=4 model.width=32 model.heads=4 "
    "model.kv_heads=2 model.head_width=8 model.feed_forward=40 "
    "data.sequence=16 train.batch=16 train.steps=2 train.micro_batch=2";

/* Ranks, and which of them the list is of. */
static const struct row { int ranks, rank; const char *assignments; } rows[] = {
    {4, 0, "model.family=mixtral moe.experts=4 moe.top_k=2 moe.bias_rate=0.01 "
           "mesh.expert=2 mesh.data=2 zero=fsdp mtp.depth=1"},
    {4, 1, "mesh.data=4 zero=zero2 zero_reduce=each numerics.grid_data=16 "
           "optimizer.qk_clip=10 optimizer.ema=0.9 train.z_loss=0.001 "
           "optimizer.name=muon"},
    {4, 3, "zero={weights:[shard],gradients:[shard],states:[data,shard]} "
           "mesh.data=2 mesh.shard=2 train.dtype=bfloat16 "
           "numerics.recipe=fp8-tensor fsdp.gather_format=auto"},
    {4, 0, "zero=zero1 mesh.data=4 train.dtype=bfloat16 "
           "numerics.recipe=fp8-delayed train.kept_weights=auto"},
    {4, 2, "schedule.name=dualpipe mesh.pipe=2 mesh.tensor=2 model.tied=true "
           "train.micro_batch=1 tensor.overlap=2"},
    {2, 1, "schedule.name=interleaved mesh.pipe=2 model.tied=true"},
    {4, 3, "mesh.pipe=2 mesh.data=2 zero=fsdp schedule.name=zb-v"},
    {4, 1, "mesh.pipe=2 mesh.data=2 zero=fsdp zero_reduce=each"},
};

struct made {
    struct options_set set;
    struct setup setup;
    struct pipeline pipeline;
    struct step_list list;
};

static status assign_all(struct options_set *set, const char *assignments)
{
    char copy[512], *rest = copy, *word;

    CHECK(strlen(assignments) < sizeof copy);
    snprintf(copy, sizeof copy, "%s", assignments);
    while ((word = strsep(&rest, " ")) != NULL)
        TRY(options_assign(set, word, ORIGIN_COMMAND_LINE));
    return OK;
}

static void make(struct made *m, const struct row *row)
{
    struct pipeline_request request;
    const struct list_request asked = {.pipeline = &m->pipeline};

    *m = (struct made){0};
    IS_OK(options_init(&m->set));
    IS_OK(assign_all(&m->set, model));
    IS_OK(assign_all(&m->set, row->assignments));
    IS_OK(setup_resolve(&m->setup, &m->set, &(struct vocabulary){0, -1},
                        row->ranks, row->rank));
    request = setup_pipeline(&m->setup);
    IS_OK(pipeline_plan(&m->pipeline, &request));
    pipeline_reserve_ahead(&m->pipeline);
    IS_OK(list_make(&m->list, &asked));
    IS_OK(list_verify(&m->list, &m->pipeline));
}

static void drop(struct made *m)
{
    list_free(&m->list);
    pipeline_free(&m->pipeline);
    setup_free(&m->setup);
    options_free(&m->set);
    status_clear();
}

TEST(every_kind_stands_in_a_list)
{
    bool seen[DO_COUNT] = {false};

    for (int i = 0; i < ROWS(rows); i++) {
        struct made m;

        make(&m, &rows[i]);
        for (int n = 0; n < m.list.count; n++)
            seen[m.list.items[n].kind] = true;
        drop(&m);
    }
    for (int kind = 0; kind < DO_COUNT; kind++) {
        if (!seen[kind])
            print_error("no %s\n", instruction_rows[kind].name);
        CHECK(seen[kind]);
    }
}

/* ---- changes ---- */

/* A field of an instruction and what it becomes; false: it would not be
 * another instruction. */
enum change {
    CHANGE_RESOURCE, CHANGE_COPIES, CHANGE_CHUNK, CHANGE_NO_CHUNK, CHANGE_STAGE,
    CHANGE_MICROBATCH, CHANGE_NO_MICROBATCH, CHANGE_ROUND, CHANGE_NO_ROUND,
    CHANGE_UNIT, CHANGE_NO_UNIT, CHANGE_MANY_UNITS, CHANGE_ITEM,
    CHANGE_NO_FRAME, CHANGE_PHASE, CHANGE_CALLS, CHANGE_KIND, CHANGE_COUNT
};

static bool is_of_room(const struct instruction *i)
{
    return i->kind == DO_GATHER || i->kind == DO_PLACE ||
           i->kind == DO_RELEASE;
}

static bool is_of_sum(const struct instruction *i)
{
    return i->kind == DO_TAKE || i->kind == DO_REDUCE || i->kind == DO_GIVE ||
           i->kind == DO_SUM;
}

static bool has_unit(const struct instruction *i)
{
    return is_of_room(i) || is_of_sum(i) || i->kind == DO_UPDATE ||
           i->kind == DO_AVERAGE;
}

static bool has_microbatch(const struct instruction *i)
{
    return instruction_computes(i) || instruction_is_message(i) ||
           i->kind == DO_SAMPLE || i->kind == DO_BATCH || i->kind == DO_COPY ||
           i->kind == DO_COPY_BACK || i->kind == DO_KEEP;
}

static bool has_round(const struct instruction *i)
{
    return is_of_sum(i) || i->kind == DO_ROUND || i->kind == DO_CLOSE ||
           i->kind == DO_MERGE || i->kind == DO_HALVES ||
           i->kind == DO_BACKWARD || i->kind == DO_WEIGHT;
}

static bool change_number(struct instruction *i, enum change change)
{
    switch (change) {
    case CHANGE_ROUND: i->round++; return has_round(i);
    case CHANGE_NO_ROUND: i->round = -1; return has_round(i);
    case CHANGE_UNIT: i->unit ^= 1; return has_unit(i);
    case CHANGE_NO_UNIT: i->unit = -1; return has_unit(i);
    case CHANGE_MANY_UNITS: i->unit = 1 << 20; return has_unit(i);
    case CHANGE_ITEM: i->item += 1 << 20; return is_of_room(i) || is_of_sum(i);
    case CHANGE_NO_FRAME:
        i->buffer = -1;
        return has_microbatch(i) && i->kind != DO_BATCH;
    case CHANGE_PHASE: i->other = 2; return is_of_room(i);
    case CHANGE_CALLS:
        i->calls = 1;
        return instruction_rows[i->kind].call == COMM_KIND_COUNT;
    default:
        if (++i->kind == DO_COUNT) i->kind = DO_ROUND;
        return true;
    }
}

static bool change(struct instruction *i, enum change change)
{
    switch (change) {
    case CHANGE_RESOURCE:
        i->resource =
            i->resource == RESOURCE_WORLD ? RESOURCE_TENSOR : RESOURCE_WORLD;
        return true;
    case CHANGE_COPIES:
        if (i->resource == RESOURCE_COPIES) return false;
        i->resource = RESOURCE_COPIES;
        return i->kind != DO_SHARE && i->kind != DO_REGATHER &&
               i->kind != DO_ENCODE; /* those of one list may change */
    case CHANGE_CHUNK: i->chunk += 1 << 10; return true;
    case CHANGE_NO_CHUNK: i->chunk--; return true;
    case CHANGE_STAGE: i->stage++; return true;
    case CHANGE_MICROBATCH: i->microbatch++; return has_microbatch(i);
    case CHANGE_NO_MICROBATCH: i->microbatch = -1; return has_microbatch(i);
    default: return change_number(i, change);
    }
}

static void try_change(struct made *m, int number, enum change what)
{
    const struct instruction kept = m->list.items[number];
    char text[INSTRUCTION_BYTES];

    if (change(&m->list.items[number], what)) {
        const status result = list_verify(&m->list, &m->pipeline);

        if (result != ERR_VERIFY)
            print_error("%d, %s: change %d\n", number,
                        instruction_text(text, &kept), (int)what);
        EQUAL_INT(result, ERR_VERIFY);
        status_clear();
    }
    m->list.items[number] = kept;
}

TEST(a_field_that_fits_no_other_is_refused)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct made m;

        make(&m, &rows[i]);
        for (int n = 0; n < m.list.count; n++)
            for (int c = 0; c < CHANGE_COUNT; c++)
                try_change(&m, n, (enum change)c);
        IS_OK(list_verify(&m.list, &m.pipeline));
        drop(&m);
    }
}

static int find(const struct step_list *list, enum instruction_kind kind)
{
    int at = 0;

    while (at < list->count && list->items[at].kind != kind) at++;
    CHECK(at < list->count);
    return at;
}

/* Nothing changes weights, or is on its way, when watchers read them. */
TEST(a_step_asks_when_weights_are_new)
{
    static const int late[][2] = {{0, DO_BALANCE}, {7, DO_UPDATE}};

    for (int i = 0; i < ROWS(late); i++) {
        struct made m;
        struct instruction kept;
        int ask;

        make(&m, &rows[late[i][0]]);
        ask = find(&m.list, DO_ASK);
        kept = m.list.items[ask];
        EQUAL_INT(m.list.items[ask - 1].kind, late[i][1]);
        m.list.items[ask] = m.list.items[ask - 1];
        m.list.items[ask - 1] = kept;
        FAILS(list_verify(&m.list, &m.pipeline), ERR_VERIFY,
              "it comes after the question whether to stop");
        drop(&m);
    }
}

/* The needs of the question are needed by the end instead. */
TEST(new_weights_under_way_are_no_answer)
{
    struct made m;
    struct instruction *ask, *end;

    make(&m, &rows[1]);
    ask = &m.list.items[find(&m.list, DO_ASK)];
    end = ask + 1;
    EQUAL_INT(end->kind, DO_END);
    CHECK(ask->needs > 0 && ask->first_need + ask->needs == end->first_need);
    end->first_need = ask->first_need;
    end->needs += ask->needs;
    ask->needs = 0;
    FAILS(list_verify(&m.list, &m.pipeline), ERR_VERIFY,
          "new weights are under way");
    drop(&m);
}

TEST_MAIN(every_kind_stands_in_a_list, a_field_that_fits_no_other_is_refused,
          a_step_asks_when_weights_are_new,
          new_weights_under_way_are_no_answer)
