/* SPDX-License-Identifier: Apache-2.0 */
/* list_join.c - timed lists of the ranks of a pipe wait for each other: a
 * receive for its send, all ranks for each other in a collective of all. */
#include "list/partners.h"
#include "planner/list_clock.h"
#include "planner/list_offload.h"

/* Where each rank has each meeting, and what its item needs itself. */
struct met { int32_t at, needs; };

/* *out [ranks][meetings], which the caller frees. */
static status find_meetings(const struct list_clock *w, struct met **out)
{
    void *memory = NULL;

    TRY(memory_take((size_t)w->ranks * (size_t)(w->meetings + 1),
                    sizeof **out, &memory));
    *out = memory;
    for (int r = 0; r < w->ranks; r++) {
        const struct timed_list *list = &w->steps.lists.lists[r];

        for (int m = 0; m < w->meetings; m++) {
            const int32_t at = timed_meeting(list, m + 1);

            (*out)[r * w->meetings + m] = (struct met){
                at, at >= 0 ? list->items[at].needs : 0};
        }
    }
    return OK;
}

/* Nobody is through a collective of all ranks before everyone has come to it:
 * it needs what the others need there. */
static status meet_others(struct list_clock *w, const struct met *met,
                          int rank, int meeting)
{
    struct timed_list *list = &w->steps.lists.lists[rank];
    const struct met own = met[rank * w->meetings + meeting - 1];
    const int32_t first = list->items[own.at].first_need;
    const int32_t begins = list->need_count;

    /* Needs of an item lie side by side: once more, at the end. */
    for (int n = 0; n < own.needs; n++)
        TRY(timed_put_need(list, list->needs[first + n]));
    for (int other = 0; other < w->ranks; other++) {
        const struct timed_list *from = &w->steps.lists.lists[other];
        const struct met there = met[other * w->meetings + meeting - 1];

        for (int n = 0; other != rank && n < there.needs; n++)
            TRY(timed_put_need(list,
                               from->needs[from->items[there.at].first_need +
                                           n]));
    }
    list->items[own.at].first_need = begins;
    list->items[own.at].needs = list->need_count - begins;
    return OK;
}

/* A receive also needs its send, whose number is known now. */
static status join_rank(struct list_clock *w, const struct partners *partners,
                        const struct met *met, int rank)
{
    struct timed_list *list = &w->steps.lists.lists[rank];

    for (int i = 0; i < list->count; i++) {
        const int kind = w->lists[rank].items[i].kind;
        const struct timed *item = &list->items[i];

        if (kind == DO_RECEIVE || kind == DO_RECEIVE_BACK)
            list->needs[item->first_need + item->needs - 1].index =
                partners->of[rank][i];
        if (item->meeting > 0) TRY(meet_others(w, met, rank, item->meeting));
    }
    return OK;
}

status list_clock_finish(struct list_clock *walk, struct steps *out)
{
    struct partners partners = {0};
    struct met *met = NULL;
    status result;

    TRY_GOTO(done, result,
             partners_build(&partners, walk->lists, walk->ranks));
    TRY_GOTO(done, result, find_meetings(walk, &met));
    for (int r = 0; r < walk->ranks; r++)
        TRY_GOTO(done, result, join_rank(walk, &partners, met, r));
    *out = walk->steps;
    walk->steps = (struct steps){0};
    result = list_offload(out, walk->cost);
done:
    memory_free(met);
    partners_free(&partners);
    return result;
}
