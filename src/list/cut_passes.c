/* SPDX-License-Identifier: Apache-2.0 */
/* cut_passes.c - F, B and W piece by piece. */
#include "list/passes.h"

status cut_before(struct cutter *cutter, int event)
{
    struct instruction piece = cutter->whole;

    CHECK(event <= piece.last_event);
    if (event <= piece.first_event) return OK;
    piece.last_event = event;
    cutter->begun = true;
    cutter->whole.first_event = event;
    return list_put(cutter->out, piece);
}

status cut_rest(struct cutter *cutter)
{
    struct instruction *i = &cutter->whole;

    if (i->first_event < i->last_event)
        return cut_before(cutter, i->last_event);
    return cutter->begun ? OK : list_put(cutter->out, *i);
}
