/* SPDX-License-Identifier: Apache-2.0 */
/* pass_calls.c - the calls inside F, B and W are those that layers state. */
#include "step/pass_calls.h"

#include "base/arena.h"
#include "list/traffic.h"
#include "mesh/group.h"
#include "step/call_bytes.h"

static const enum axis axes_of_layers[] = {AXIS_TENSOR, AXIS_CONTEXT,
                                           AXIS_EXPERT};
enum { AXES_OF_LAYERS = sizeof axes_of_layers / sizeof *axes_of_layers };

/* ---- building ---- */

/* Rows of a pass, at most: each parameter's leaves in one of its events. */
static int most_rows(const struct stage *stage)
{
    const struct program *p = &stage->program;
    int rows = p->use_count;

    for (int i = 0; i < stage->frame.event_count; i++)
        if (p->steps[stage->frame.events[i].step].layer->exchanges != NULL)
            rows += LAYER_EXCHANGES_MAX;
    return rows;
}

static bool has_groups(const struct mesh *mesh)
{
    bool has = false;

    for (int i = 0; i < AXES_OF_LAYERS; i++)
        has |= mesh_axis_group_size(mesh, axes_of_layers[i]) > 1;
    return has;
}

status pass_calls_build(struct pass_calls *calls, const struct stage *stage)
{
    void *memory = NULL;

    *calls = (struct pass_calls){.count = 0};
    if (!has_groups(&stage->program.layout.mesh)) return OK;
    calls->capacity = most_rows(stage);
    TRY(memory_take((size_t)calls->capacity + 1, sizeof *calls->rows,
                    &memory));
    calls->rows = memory;
    TRY(memory_take((size_t)stage->frame.event_count + 1,
                    sizeof *calls->first, &memory));
    calls->first = memory;
    return OK;
}

void pass_calls_free(struct pass_calls *calls)
{
    memory_free(calls->rows);
    memory_free(calls->first);
    *calls = (struct pass_calls){0};
}

/* ---- what is stated ---- */

static bool is_like(const struct exchange *a, const struct exchange *b)
{
    return a->kind == b->kind && group_id_equal(a->group, b->group);
}

/* Calls of one operation on one group in an event count together. */
static status add_row(void *argument, const struct exchange *row)
{
    struct pass_calls *c = argument;

    if (row->calls == 0 && !row->further) return OK;
    for (int i = c->first[c->event]; i < c->count; i++) {
        struct exchange *like = &c->rows[i].left;

        if (!is_like(like, row)) continue;
        like->calls += row->calls;
        like->bytes += row->bytes;
        like->further |= row->further;
        return OK;
    }
    CHECK(c->count < c->capacity);
    c->rows[c->count++] = (struct pass_row){*row, c->event};
    return OK;
}

static void find_pass(struct pass_calls *c, const struct frame_plan *frame,
                      enum instruction_kind kind)
{
    c->begin = kind == DO_FORWARD    ? 0
               : kind == DO_BACKWARD ? frame->forward_end
                                     : frame->backward_end;
    c->end = kind == DO_FORWARD    ? frame->forward_end
             : kind == DO_BACKWARD ? frame->backward_end
                                   : frame->event_count;
}

status pass_calls_begin(struct pass_calls *c, const struct stage *stage,
                        const struct pass_case *at)
{
    const struct frame_plan *frame = &stage->frame;

    find_pass(c, frame, at->kind);
    if (c->first == NULL || at->first_event > c->begin) return OK;
    c->count = 0;
    c->routed_calls = c->routed_bytes = 0;
    c->counted_calls = stage->run.counted.routed.calls;
    c->counted_bytes = stage->run.counted.routed.bytes;
    for (c->event = c->begin; c->event < c->end; c->event++) {
        const struct exchange_case event = {
            &frame->events[c->event], frame->mode, at->microbatch, at->alone};

        c->first[c->event] = c->count;
        TRY(list_event_traffic(stage, &event, add_row, c));
    }
    c->first[c->end] = c->count;
    return OK;
}

/* ---- what is done ---- */

static bool is_of(const struct exchange *row, const struct mesh *mesh,
                  const struct place *place, const struct group *group)
{
    const enum axis axis = (enum axis)row->group.number;

    return row->size == group->size &&
           group_id_equal(row->group, group->id) &&
           mesh_axis_group_rank(mesh, place, axis) == group->rank;
}

static struct exchange *row_of(struct pass_calls *c, int event,
                               const struct program *p,
                               const struct group *group, enum comm_kind kind)
{
    for (int i = c->first[event]; i < c->first[event + 1]; i++)
        if (c->rows[i].left.kind == kind &&
            is_of(&c->rows[i].left, &p->layout.mesh, &p->layout.place, group))
            return &c->rows[i].left;
    return NULL;
}

/* The relayout whose sums the product `event` starts. */
static int started_by(const struct pass_calls *c, const struct frame_plan *plan,
                      int event)
{
    const int ahead = plan->events[event].ahead;

    if (ahead == 0) return -1;
    while (++event < c->end && plan->events[event].step != ahead) continue;
    return event < c->end ? event : -1;
}

static void compare_routed(struct pass_calls *c, const struct run *run,
                           struct exchange *row, int64_t bytes)
{
    c->routed_calls++;
    c->routed_bytes += bytes;
    const bool states_calls = row->calls >= 0 || row->further,
               choices_state_calls =
                   run->counted.routed.calls - c->counted_calls ==
                   c->routed_calls,
               choices_state_bytes =
                   run->counted.routed.bytes - c->counted_bytes ==
                   c->routed_bytes;

    CHECK(states_calls);
    CHECK(choices_state_calls);
    CHECK(choices_state_bytes);
}

void pass_calls_compare(struct pass_calls *c, const struct run *run,
                        const struct group *group,
                        const struct comm_call *call)
{
    const int event = (int)(run->event - run->plan->events);
    const bool has_layers_that_call = c->first != NULL,
               is_of_the_pass = event >= c->begin && event < c->end;

    CHECK(has_layers_that_call);
    CHECK(is_of_the_pass);
    const int ahead = started_by(c, run->plan, event);
    struct exchange *row = row_of(c, event, run->program, group, call->kind);
    const int64_t bytes = call_bytes(group, call);

    if (row == NULL && ahead >= 0)
        row = row_of(c, ahead, run->program, group, call->kind);
    const bool states_group_and_operation = row != NULL;

    CHECK(states_group_and_operation);
    row->calls--;
    if (row->routed) {
        compare_routed(c, run, row, bytes);
        return;
    }
    row->bytes -= bytes;
    const bool states_calls = row->calls >= 0,
               states_bytes = row->calls > 0 ? row->bytes >= 0
                                             : row->bytes == 0;

    CHECK(states_calls);
    CHECK(states_bytes);
}

void pass_calls_end(const struct pass_calls *c, int end)
{
    for (int i = 0; i < c->count && c->rows[i].event < end; i++) {
        const bool made_all_calls =
            c->rows[i].left.calls == 0 || (c->rows[i].left.calls < 0 &&
                                           c->rows[i].left.further);

        CHECK(made_all_calls);
    }
}
