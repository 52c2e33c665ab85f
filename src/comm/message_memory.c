/* SPDX-License-Identifier: Apache-2.0 */
/* message_memory.c - the memory of messages under way. It comes from the system
 * in slabs and is used again and again. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "comm/link.h"

enum { LARGE_EACH = 16, SMALL_EACH = 64 };

struct stock_slab {
    struct stock_slab *next;
    struct outgoing outgoings[LARGE_EACH];
    struct arrival arrivals[LARGE_EACH];
    struct sending sendings[SMALL_EACH];
};

static status slab_add(struct link_stock *stock)
{
    struct stock_slab *slab = mmap(NULL, sizeof *slab, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (slab == MAP_FAILED)
        FAIL(ERR_MEMORY, "no memory for messages under way: %s",
             strerror(errno));
    slab->next = stock->slabs;
    stock->slabs = slab;
    for (int i = 0; i < LARGE_EACH; i++) {
        slab->outgoings[i].next = stock->outgoings;
        stock->outgoings = &slab->outgoings[i];
        slab->arrivals[i].next = stock->arrivals;
        stock->arrivals = &slab->arrivals[i];
    }
    for (int i = 0; i < SMALL_EACH; i++) {
        slab->sendings[i].next = stock->sendings;
        stock->sendings = &slab->sendings[i];
    }
    return OK;
}

status stock_outgoing(struct link_stock *stock, struct outgoing **out)
{
    struct outgoing *o;

    if (stock->outgoings == NULL) TRY(slab_add(stock));
    o = stock->outgoings;
    stock->outgoings = o->next;
    o->next = NULL;
    o->sent = 0;
    o->sending = NULL;
    o->block = (struct comm_block){0};
    o->frame = (struct frame){0};
    *out = o;
    return OK;
}

status stock_arrival(struct link_stock *stock, struct arrival **out)
{
    if (stock->arrivals == NULL) TRY(slab_add(stock));
    *out = stock->arrivals;
    stock->arrivals = (*out)->next;
    (*out)->next = NULL;
    return OK;
}

status stock_sending(struct link_stock *stock, struct sending **out)
{
    if (stock->sendings == NULL) TRY(slab_add(stock));
    *out = stock->sendings;
    stock->sendings = (*out)->next;
    **out = (struct sending){0};
    return OK;
}

void stock_free(struct link_stock *stock)
{
    while (stock->slabs != NULL) {
        struct stock_slab *next = stock->slabs->next;

        munmap(stock->slabs, sizeof *stock->slabs);
        stock->slabs = next;
    }
    *stock = (struct link_stock){0};
}
