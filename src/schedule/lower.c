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

/* Transfers of the bundle [first, first + count): receives or sends. */
static status add_transfers(struct schedule *s, int rank,
                            const struct action *bundle, int count, bool sends)
{
    for (int i = 0; i < count; i++) {
        const bool forward = bundle[i].kind == ACTION_FORWARD;
        const int step = forward == sends ? 1 : -1;
        struct action transfer = bundle[i];

        if (bundle[i].kind == ACTION_BACKWARD_WEIGHT ||
            !is_elsewhere(s, transfer.stage + step, transfer.microbatch, rank))
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
    count = schedule_bundle(plain, 0);
    TRY(add_transfers(s, rank, plain->items, count, false));
    while (first < plain->count) {
        const struct action *bundle = &plain->items[first];
        const int next = first + count;
        const int next_count = next < plain->count
                                   ? schedule_bundle(plain, next) : 0;

        TRY(add_transfers(s, rank, bundle + count, next_count, false));
        for (int i = 0; i < count; i++)
            TRY(schedule_add(s, rank, bundle[i]));
        TRY(add_transfers(s, rank, bundle, count, true));
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
