/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c - transfers as actions. */
#include "schedule/lower.h"

#include "base/arena.h"

static bool is_elsewhere(const struct schedule *s, int stage, int microbatch,
                         int rank)
{
    return stage >= 0 && stage < s->stages &&
           schedule_rank(s, stage, microbatch) != rank;
}

/* Transfers of the unit [first, first + count): receives or sends. */
static status add_transfers(struct schedule *s, int rank,
                            const struct action *unit, int count, bool sends)
{
    for (int i = 0; i < count; i++) {
        const bool forward = unit[i].kind == ACTION_FORWARD;
        const int step = forward == sends ? 1 : -1;
        struct action transfer = unit[i];

        if (unit[i].kind == ACTION_BACKWARD_WEIGHT ||
            !is_elsewhere(s, unit[i].stage + step, unit[i].microbatch, rank))
            continue;
        transfer.joined = false;
        transfer.kind = (int8_t)(
            sends ? (forward ? ACTION_SEND_FORWARD : ACTION_SEND_BACKWARD)
                  : (forward ? ACTION_RECEIVE_FORWARD
                             : ACTION_RECEIVE_BACKWARD));
        TRY(schedule_add(s, rank, transfer));
    }
    return OK;
}

static status lower_rank(struct schedule *s, int rank,
                         const struct action_list *plain)
{
    int first = 0, count;

    if (plain->count == 0) return OK;
    count = schedule_unit(plain, 0);
    TRY(add_transfers(s, rank, plain->items, count, false));
    while (first < plain->count) {
        const struct action *unit = &plain->items[first];
        const int next = first + count;
        const int next_count = next < plain->count
                                   ? schedule_unit(plain, next) : 0;

        TRY(add_transfers(s, rank, unit + count, next_count, false));
        for (int i = 0; i < count; i++)
            TRY(schedule_add(s, rank, unit[i]));
        TRY(add_transfers(s, rank, unit, count, true));
        first = next;
        count = next_count;
    }
    return OK;
}

status schedule_lower(struct schedule *schedule)
{
    if (schedule->lowered)
        FAIL(ERR_CONFIG, "schedule: its transfers are already there");
    if (!schedule->verified) TRY(schedule_verify(schedule));
    for (int rank = 0; rank < schedule->ranks; rank++) {
        struct action_list plain = schedule->lists[rank];
        status result;

        schedule->lists[rank] = (struct action_list){0};
        result = lower_rank(schedule, rank, &plain);
        memory_free(plain.items);
        TRY(result);
    }
    schedule->lowered = true;
    TRY(schedule_verify(schedule));
    schedule->verified = true;
    return OK;
}
