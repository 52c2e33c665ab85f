/* SPDX-License-Identifier: Apache-2.0 */
/* wait_chain.c - for whom the threads of a rank wait. */
#include "comm/wait_chain.h"

struct wait_chain wait_chain_for(const struct operation *operation, int peer)
{
    return (struct wait_chain){.context = operation->group->context,
                               .tag = operation->tag & ~TAG_RESULT,
                               .channel = operation->group->aside != NULL
                                              ? CHANNEL_BACKGROUND
                                              : operation->channel,
                               .peer = peer};
}

void wait_chain_add(struct wait_chain **list, struct wait_chain *waiting)
{
    waiting->next = *list;
    *list = waiting;
}

void wait_chain_remove(struct wait_chain **list,
                       const struct wait_chain *waiting)
{
    while (*list != NULL && *list != waiting) list = &(*list)->next;
    if (*list != NULL) *list = waiting->next;
}

int wait_chain_peer(const struct wait_chain *list,
                    const struct wait_chain *asker)
{
    int peer = -1;

    for (; list != NULL; list = list->next) {
        if (list->context == asker->context && list->tag == asker->tag)
            return list->peer;
        if (list->channel == CHANNEL_NOW) peer = list->peer;
    }
    return peer;
}

int wait_chain_missing(const struct wait_chain *asker, int size, int me,
                       wait_chain_ask *ask, void *argument)
{
    int peer = asker->peer;

    for (int hops = 0; hops < size; hops++) {
        const int next = peer == me ? -1 : ask(argument, asker, peer);

        if (next < 0 || next >= size) return peer;
        peer = next;
    }
    return asker->peer; /* they wait in a circle */
}
