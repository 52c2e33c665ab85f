/* SPDX-License-Identifier: Apache-2.0 */
/* message_check.c - the messages of a step are those that its list states. */
#include "step/message_check.h"

#include "comm/traffic.h"
#include "list/traffic.h"
#include "step/call_bytes.h"

/* Calls of one operation on one group count together. */
static status add_row(void *argument, const struct exchange *row)
{
    struct message_check *s = argument;

    for (int i = 0; i < s->count; i++) {
        struct exchange *like = &s->rows[i];

        if (like->kind != row->kind || !group_id_equal(like->group, row->group))
            continue;
        like->calls += row->calls;
        like->bytes += row->bytes;
        return OK;
    }
    CHECK(s->count < STATED_ROWS);
    s->rows[s->count++] = *row;
    return OK;
}

static struct exchange *row_of(struct message_check *s,
                               const struct group *group, enum comm_kind kind)
{
    for (int i = 0; i < s->count; i++)
        if (s->rows[i].kind == kind && s->rows[i].size == group->size &&
            group_id_equal(s->rows[i].group, group->id))
            return &s->rows[i];
    return NULL;
}

/* The rank's place in the instruction's own group. */
static bool is_placed(const struct message_check *s, const struct group *group)
{
    const struct list_group own = list_group(s->pipeline, s->instruction);

    return !group_id_equal(own.id, group->id) || own.rank == group->rank;
}

static void compare(void *argument, const struct group *group,
                    const struct comm_call *call)
{
    struct message_check *s = argument;

    if (group->size == 1) return; /* a supervised rank: nothing is sent */
    struct exchange *row = row_of(s, group, call->kind);
    const bool states_group_and_operation = row != NULL,
               states_place = is_placed(s, group);

    CHECK(states_group_and_operation);
    CHECK(states_place);
    row->calls--;
    row->bytes -= call_bytes(group, call);
    const bool states_calls = row->calls >= 0,
               states_bytes = row->calls > 0 ? row->bytes >= 0
                                             : row->bytes == 0;

    CHECK(states_calls);
    CHECK(states_bytes);
    s->called = true;
}

/* Weights may be there since an evaluation; a step that does not change the
 * weights exchanges no matrices and asks nobody. */
static bool may_be_left_out(const struct instruction *i)
{
    return i->kind == DO_GATHER || i->kind == DO_MATRICES ||
           i->kind == DO_ASK;
}

/* ---- F, B and W ---- */

static void compare_inside(void *argument, const struct group *group,
                           const struct comm_call *call)
{
    struct message_check *s = argument;
    const int chunk = s->instruction->chunk;

    if (group->size > 1)
        pass_calls_compare(&s->passes[chunk],
                           &s->pipeline->stages[chunk].run, group, call);
}

status message_check_build(struct message_check *s,
                           const struct pipeline *pipeline,
                           const struct team *team)
{
    void *memory = NULL;

    *s = (struct message_check){.pipeline = pipeline};
    if (team->world == NULL) return OK;
    TRY(memory_take((size_t)pipeline->count, sizeof *s->passes, &memory));
    s->passes = memory;
    for (int i = 0; i < pipeline->count; i++)
        TRY(pass_calls_build(&s->passes[i], &pipeline->stages[i]));
    return OK;
}

void message_check_free(struct message_check *s)
{
    for (int i = 0; s->passes != NULL && i < s->pipeline->count; i++)
        pass_calls_free(&s->passes[i]);
    memory_free(s->passes);
    *s = (struct message_check){0};
}

/* ---- any instruction ---- */

static status begin_inside(struct message_check *s, bool alone)
{
    const struct instruction *i = s->instruction;
    const struct pass_case at = {
        (enum instruction_kind)i->kind, i->first_event,
        alone ? 0 : pipeline_of_round(s->pipeline, i->chunk, i->microbatch),
        alone};

    return pass_calls_begin(&s->passes[i->chunk],
                            &s->pipeline->stages[i->chunk], &at);
}

status message_check_begin(struct message_check *s, const struct team *team,
                           const struct instruction *instruction, bool alone)
{
    const bool inside = instruction_computes(instruction);

    s->instruction = NULL;
    if (team->world == NULL) return OK;
    s->instruction = instruction;
    s->count = 0;
    s->called = false;
    if (inside)
        TRY(begin_inside(s, alone));
    else if (instruction->calls > 0)
        TRY(list_traffic(s->pipeline, instruction, add_row, s));
    comm_watch(team->world, inside ? compare_inside : compare, s);
    return OK;
}

void message_check_end(struct message_check *s, const struct team *team)
{
    if (s->instruction == NULL) return;
    comm_watch(team->world, NULL, NULL);
    if (instruction_computes(s->instruction))
        pass_calls_end(&s->passes[s->instruction->chunk],
                       s->instruction->last_event);
    for (int i = 0; i < s->count; i++) {
        const bool made_all_calls = s->rows[i].calls == 0;

        CHECK(made_all_calls ||
              (!s->called && may_be_left_out(s->instruction)));
    }
    s->instruction = NULL;
}

void message_check_drop(struct message_check *s, const struct team *team)
{
    if (team->world != NULL) comm_watch(team->world, NULL, NULL);
    s->instruction = NULL;
}
