/* SPDX-License-Identifier: Apache-2.0 */
/* test_lists_agree.c - mirrors src/step/lists_agree.c: a list that one rank
 * alone has otherwise is refused on all ranks, in each group that talks. */
#include "step/lists_agree.h"
#include "tests/unit/list/cases.h"

enum change { CHANGE_NONE, CHANGE_LOSE, CHANGE_SWAP };

struct tried {
    struct layout_case layout;
    enum resource resource;          /* of what is changed */
    enum instruction_kind kind; /* of what is changed; DO_COUNT: any */
    enum change change;      /* on the last rank */
    status ends[CASE_RANKS];
};

static bool is_changed(const struct tried *t, const struct instruction *i)
{
    return i->resource == (uint8_t)t->resource &&
           (t->kind == DO_COUNT || i->kind == (uint8_t)t->kind) &&
           (i->calls > 0 || instruction_computes(i));
}

/* The first call of the resource is lost, or changes places with the first that
 * is of another unit, stage or micro-batch. */
static status change_list(const struct tried *t, struct step_list *list)
{
    struct instruction *first = NULL;

    for (int n = 0; n < list->count; n++) {
        struct instruction *i = &list->items[n];

        if (!is_changed(t, i)) continue;
        if (t->change == CHANGE_LOSE) {
            i->kind = DO_TARGETS;
            i->resource = RESOURCE_HOST;
            i->calls = 0;
            return OK;
        }
        if (first == NULL) first = i;
        if (i->unit == first->unit && i->stage == first->stage &&
            i->microbatch == first->microbatch)
            continue;
        const struct instruction kept = *first;

        *first = *i;
        *i = kept;
        return OK;
    }
    FAIL(ERR_USAGE, "the list has nothing to change");
}

static status compare(struct tried *t, struct pipeline *pipeline,
                      struct team *team)
{
    const struct list_request request = {.pipeline = pipeline};
    struct step_list list = {0};
    status result;

    TRY(list_make(&list, &request));
    result = team_rank(team) == team_size(team) - 1 &&
             t->change != CHANGE_NONE ? change_list(t, &list) : OK;
    if (result == OK)
        result = lists_agree(&list, pipeline, team);
    list_free(&list);
    return result;
}

static status rank_body(void *argument, struct group *world)
{
    struct tried *t = argument;
    const struct mesh mesh = case_mesh(&t->layout);
    struct pipeline pipeline = {0};
    struct team team = {0};
    status result;

    TRY_GOTO(done, result, team_build(&team, world, &mesh,
                                      &mesh_order_default, 5));
    TRY_GOTO(done, result, case_plan_at(&pipeline, &t->layout, &team.place));
    TRY_GOTO(done, result, team_add_chunks(&team, &pipeline));
    result = compare(t, &pipeline, &team);
done:
    t->ends[world->rank] = result;
    pipeline_free(&pipeline);
    team_free(&team);
    return result;
}

static status run(struct tried *t)
{
    const struct mesh mesh = case_mesh(&t->layout);

    return ranks_run(mesh_ranks(&mesh), rank_body, t);
}

/* Each group's comparison is the only one that sees the change: without the
 * pipe a lost call deadlocks nobody until the step runs. */
static const struct {
    struct tried tried;
    status end;
    const char *words;
} rows[] = {
    {{{.schedule = "1f1b", .zero = "fsdp", .data = 2, .prefetch = 1},
      RESOURCE_SHARD,
      DO_GATHER,
      CHANGE_SWAP,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "1f1b", .zero = "zero2", .data = 4},
      RESOURCE_SHARD,
      DO_REDUCE,
      CHANGE_SWAP,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "1f1b", .zero = "hsdp", .data = 2, .shard = 2},
      RESOURCE_COPIES,
      DO_SUM,
      CHANGE_SWAP,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "1f1b", .zero = "ddp", .tensor = 2},
      RESOURCE_TENSOR,
      DO_JOIN,
      CHANGE_LOSE,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "1f1b", .zero = "ddp", .tensor = 2},
      RESOURCE_COMPUTE,
      DO_FORWARD,
      CHANGE_SWAP,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "1f1b", .zero = "ddp", .context = 2},
      RESOURCE_COMPUTE,
      DO_BACKWARD,
      CHANGE_SWAP,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "1f1b", .zero = "ddp", .data = 2},
      RESOURCE_WORLD,
      DO_COUNT,
      CHANGE_LOSE,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "dualpipe", .zero = "ddp", .pipe = 2},
      RESOURCE_PEER,
      DO_HALVES,
      CHANGE_LOSE,
      {OK}},
     ERR_CONFIG,
     "another list of a step"},
    {{{.schedule = "1f1b", .zero = "ddp", .pipe = 2},
      RESOURCE_PIPE,
      DO_SEND_BACK,
      CHANGE_LOSE,
      {OK}},
     ERR_VERIFY,
     "has no other side"},
};

TEST(a_list_that_one_rank_has_otherwise_is_refused_on_all)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct tried t = rows[i].tried;
        const struct mesh mesh = case_mesh(&t.layout);

        t.change = CHANGE_NONE;
        IS_OK(run(&t));
        t.change = rows[i].tried.change;
        const status end = run(&t);

        if (end != rows[i].end) print_error("row %d\n", i);
        FAILS(end, rows[i].end, rows[i].words);
        for (int rank = 0; rank < mesh_ranks(&mesh); rank++)
            EQUAL_INT(t.ends[rank], rows[i].end);
        status_clear();
    }
}

TEST_MAIN(a_list_that_one_rank_has_otherwise_is_refused_on_all)
