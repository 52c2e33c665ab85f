/* SPDX-License-Identifier: Apache-2.0 */
/* lent_memory.c - memory that somebody outside the program may still read or
 * write. */
#include "base/lent_memory.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static _Atomic int64_t under_way;
static _Atomic(struct lent *) waiting;

void lent_add(int messages)
{
    atomic_fetch_add(&under_way, messages);
}

static void put_aside(struct lent *lent)
{
    struct lent *first = atomic_load(&waiting);

    do lent->next = first;
    while (!atomic_compare_exchange_weak(&waiting, &first, lent));
}

void lent_free(struct lent *lent)
{
    struct lent *next;

    if (atomic_load(&under_way) > 0) {
        put_aside(lent);
        return;
    }
    lent->give_back(lent);
    if (atomic_load_explicit(&waiting, memory_order_relaxed) == NULL) return;
    for (lent = atomic_exchange(&waiting, NULL); lent != NULL; lent = next) {
        next = lent->next;
        lent->give_back(lent);
    }
}
