/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - the collectives that a layer makes, stated beside its passes. */
#include "nn/exchange.h"

#include "mesh/group.h"

const char *sent_name(enum sent what)
{
#define SENT_TEXT(name, text) text,
    static const char *const names[SENT_COUNT] = {SENT_LIST(SENT_TEXT)};
#undef SENT_TEXT

    return names[what];
}

int64_t exchange_all_reduce(int64_t elements, int size, int rank)
{
    const int64_t own = elements / size + (rank < elements % size);

    return (elements - own) + own * (size - 1);
}

void layer_exchanges_add(struct layer_exchanges *out,
                         const struct program *program,
                         struct layer_exchange exchange)
{
    if (mesh_axis_group_size(&program->layout.mesh, exchange.axis) < 2) return;
    CHECK(out->count < LAYER_EXCHANGES_MAX);
    out->items[out->count++] = exchange;
}

void layer_exchanges(const struct program *program,
                     const struct exchange_case *at,
                     struct layer_exchanges *out)
{
    const struct step *step = &program->steps[at->event->step];

    *out = (struct layer_exchanges){.count = 0};
    if (step->layer->exchanges != NULL)
        step->layer->exchanges(step, program, at, out);
}
