/* SPDX-License-Identifier: Apache-2.0 */
/* cut_passes.c - F, B and W part by part. */
#include "list/passes.h"

status cut_before(struct cutter *cutter, int event)
{
    struct instruction part = cutter->whole;

    CHECK(event <= part.last_event);
    if (event <= part.first_event) return OK;
    part.last_event = event;
    cutter->begun = true;
    cutter->whole.first_event = event;
    return list_put(cutter->out, part);
}

status cut_rest(struct cutter *cutter)
{
    struct instruction *i = &cutter->whole;

    if (i->first_event < i->last_event)
        return cut_before(cutter, i->last_event);
    return cutter->begun ? OK : list_put(cutter->out, *i);
}
