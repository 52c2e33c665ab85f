/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.c - for whom the threads of a rank wait. */
#include "comm/waiting.h"

struct waiting waiting_for(const struct operation *operation, int peer)
{
    return (struct waiting){.context = operation->group->context,
                            .tag = operation->tag & ~TAG_RESULT,
                            .channel = operation->group->aside != NULL
                                           ? CHANNEL_BACKGROUND
                                           : operation->channel,
                            .peer = peer};
}

void waiting_add(struct waiting **list, struct waiting *waiting)
{
    waiting->next = *list;
    *list = waiting;
}

void waiting_remove(struct waiting **list, const struct waiting *waiting)
{
    while (*list != NULL && *list != waiting) list = &(*list)->next;
    if (*list != NULL) *list = waiting->next;
}

int waiting_peer(const struct waiting *list, const struct waiting *asker)
{
    int peer = -1;

    for (; list != NULL; list = list->next) {
        if (list->context == asker->context && list->tag == asker->tag)
            return list->peer;
        if (list->channel == CHANNEL_NOW) peer = list->peer;
    }
    return peer;
}

int waiting_missing(const struct waiting *asker, int size, int me,
                    waiting_ask *ask, void *argument)
{
    int peer = asker->peer;

    for (int hops = 0; hops < size; hops++) {
        const int next = peer == me ? -1 : ask(argument, asker, peer);

        if (next < 0 || next >= size) return peer;
        peer = next;
    }
    return asker->peer; /* they wait in a circle */
}
