/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the lists of a schedule, the rules of precedence, the text. */
#include "schedule/schedule.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"

status schedule_begin(struct schedule *out, int ranks, int stages,
                      int microbatches)
{
    void *memory = NULL;

    *out = (struct schedule){0};
    if (ranks < 1 || stages < ranks || stages > STAGES_MAX ||
        microbatches < 1 || microbatches > MICROBATCHES_MAX)
        FAIL(ERR_CONFIG, "a schedule of %d ranks, %d stages and %d "
                         "micro-batches; possible are 1 to %d stages, at "
                         "least one for each rank, and 1 to %d micro-batches",
             ranks, stages, microbatches, STAGES_MAX, MICROBATCHES_MAX);
    out->ranks = ranks;
    out->stages = stages;
    out->microbatches = out->turned = microbatches;
    TRY(memory_take((size_t)ranks, sizeof *out->lists, &memory));
    out->lists = memory;
    TRY(memory_take((size_t)stages, sizeof(int), &memory));
    out->places[0] = memory;
    for (int i = 0; i < stages; i++) out->places[0][i] = -1;
    return OK;
}

status schedule_turn(struct schedule *schedule, int turned)
{
    void *memory = NULL;

    TRY(memory_take((size_t)schedule->stages, sizeof(int), &memory));
    schedule->places[1] = memory;
    schedule->turned = turned;
    for (int i = 0; i < schedule->stages; i++) schedule->places[1][i] = -1;
    return OK;
}

status schedule_reserve(struct schedule *schedule, int rank, int count)
{
    struct action_list *list = &schedule->lists[rank];
    void *items = list->items;

    if (count <= list->capacity) return OK;
    CHECK(count <= 1 << 30);
    TRY(memory_grow(&items, (size_t)count, sizeof *list->items));
    list->items = items;
    list->capacity = count;
    return OK;
}

status schedule_add(struct schedule *schedule, int rank, struct action action)
{
    struct action_list *list = &schedule->lists[rank];

    if (list->count == list->capacity)
        TRY(schedule_reserve(schedule, rank,
                             list->capacity ? 2 * list->capacity : 64));
    list->items[list->count++] = action;
    schedule->verified = false;
    schedule->returns = 0;
    return OK;
}

static status copy_list(struct schedule *out, int rank,
                        const struct action_list *list)
{
    TRY(schedule_reserve(out, rank, list->count));
    if (list->count > 0)
        memcpy(out->lists[rank].items, list->items,
               (size_t)list->count * sizeof *list->items);
    out->lists[rank].count = list->count;
    return OK;
}

status schedule_copy(struct schedule *out, const struct schedule *schedule)
{
    const size_t bytes = (size_t)schedule->stages * sizeof(int);

    TRY(schedule_begin(out, schedule->ranks, schedule->stages,
                       schedule->microbatches));
    memcpy(out->places[0], schedule->places[0], bytes);
    if (schedule->places[1] != NULL) {
        TRY(schedule_turn(out, schedule->turned));
        memcpy(out->places[1], schedule->places[1], bytes);
    }
    for (int rank = 0; rank < schedule->ranks; rank++)
        TRY(copy_list(out, rank, &schedule->lists[rank]));
    out->lowered = schedule->lowered;
    out->verified = schedule->verified;
    out->returns = schedule->returns;
    return OK;
}

void schedule_free(struct schedule *schedule)
{
    if (schedule->borrowed) *schedule = (struct schedule){0};
    for (int i = 0; schedule->lists != NULL && i < schedule->ranks; i++)
        memory_free(schedule->lists[i].items);
    memory_free(schedule->lists);
    memory_free(schedule->places[0]);
    memory_free(schedule->places[1]);
    *schedule = (struct schedule){0};
}

int schedule_bundle(const struct action_list *list, int first)
{
    int end = first + 1;

    while (end < list->count && list->items[end].joined) end++;
    return end - first;
}

/* The data of the neighbour `from`: itself, or where it is received. */
static struct action arrival(const struct schedule *s, struct action action,
                             struct action from, enum action_kind receive)
{
    if (!s->lowered ||
        schedule_rank(s, from.stage, from.microbatch) ==
            schedule_rank(s, action.stage, action.microbatch))
        return from;
    action.kind = (int8_t)receive;
    return action;
}

/* `action` as another kind, some stages later. */
static struct action moved(struct action action, enum action_kind kind,
                           int stages)
{
    return (struct action){.kind = (int8_t)kind,
                           .stage = (int16_t)(action.stage + stages),
                           .microbatch = action.microbatch};
}

int schedule_needs(const struct schedule *schedule, struct action action,
                   struct action needs[2])
{
    int count = 0;

    switch ((enum action_kind)action.kind) {
    case ACTION_FORWARD:
        if (action.stage > 0)
            needs[count++] = arrival(schedule, action,
                                     moved(action, ACTION_FORWARD, -1),
                                     ACTION_RECEIVE_FORWARD);
        break;
    case ACTION_BACKWARD_INPUT:
        needs[count++] = moved(action, ACTION_FORWARD, 0);
        if (action.stage + 1 < schedule->stages)
            needs[count++] = arrival(schedule, action,
                                     moved(action, ACTION_BACKWARD_INPUT, 1),
                                     ACTION_RECEIVE_BACKWARD);
        break;
    case ACTION_BACKWARD_WEIGHT:
    case ACTION_SEND_BACKWARD:
        needs[count++] = moved(action, ACTION_BACKWARD_INPUT, 0);
        break;
    case ACTION_SEND_FORWARD:
        needs[count++] = moved(action, ACTION_FORWARD, 0);
        break;
    case ACTION_RECEIVE_FORWARD:
        needs[count++] = moved(action, ACTION_SEND_FORWARD, -1);
        break;
    case ACTION_RECEIVE_BACKWARD:
        needs[count++] = moved(action, ACTION_SEND_BACKWARD, 1);
        break;
    case ACTION_KIND_COUNT:
        break;
    }
    return count;
}

int schedule_held(const struct schedule *schedule)
{
    int most = 0;

    for (int rank = 0; rank < schedule->ranks; rank++) {
        int held = 0;

        for (int i = 0; i < schedule->lists[rank].count; i++) {
            const int kind = schedule->lists[rank].items[i].kind;

            held += kind == ACTION_FORWARD;
            if (held > most) most = held;
            held -= kind == ACTION_BACKWARD_WEIGHT;
        }
    }
    return most;
}

bool schedule_fused(const struct schedule *schedule, int rank)
{
    const struct action_list *list = &schedule->lists[rank];

    for (int i = 0; i < list->count; i++) {
        const struct action a = list->items[i];

        if (a.kind != ACTION_BACKWARD_WEIGHT) continue;
        if (i == 0 || list->items[i - 1].kind != ACTION_BACKWARD_INPUT ||
            list->items[i - 1].microbatch != a.microbatch ||
            list->items[i - 1].stage != a.stage)
            return false;
    }
    return true;
}

const char *action_text(char out[ACTION_BYTES],
                        const struct schedule *schedule, struct action action)
{
    static const char *const names[ACTION_KIND_COUNT] = {
        "F", "B", "W", "SF", "RF", "SB", "RB"};

    snprintf(out, ACTION_BYTES, "%s%d.%d%s", names[action.kind], action.stage,
             action.microbatch,
             schedule_direction(schedule, action.microbatch) ? "<" : "");
    return out;
}

status schedule_write(const struct schedule *schedule, struct text *out)
{
    char name[ACTION_BYTES];

    for (int rank = 0; rank < schedule->ranks; rank++) {
        const struct action_list *list = &schedule->lists[rank];

        for (int i = 0; i < list->count; i++) {
            if (i > 0)
                TRY(text_append_string(out,
                                       list->items[i].joined ? "+" : " "));
            TRY(text_append_string(out, action_text(name, schedule,
                                                    list->items[i])));
        }
        TRY(text_append_string(out, "\n"));
    }
    return OK;
}
