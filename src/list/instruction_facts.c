/* SPDX-License-Identifier: Apache-2.0 */
/* instruction_facts.c - facts about an instruction that follow from the plan,
 * as text. */
#include "list/instruction_facts.h"

#include <stdio.h>

#include "list/access.h"

const char *list_cost_key(char out[COST_KEY_BYTES], const struct pipeline *p,
                          const struct instruction *i)
{
    const struct instruction_row *row = &instruction_rows[i->kind];

    if (instruction_computes(i))
        snprintf(out, COST_KEY_BYTES, "%s%d [%d, %d)", row->name, i->chunk,
                 i->first_event, i->last_event);
    else if (i->calls > 0)
        snprintf(out, COST_KEY_BYTES, "%s %s %lld", comm_kind_name(row->call),
                 list_group(p, i).name, (long long)i->bytes);
    else if (i->chunk >= 0)
        snprintf(out, COST_KEY_BYTES, "%s %d", row->name, i->chunk);
    else
        snprintf(out, COST_KEY_BYTES, "%s", row->name);
    return out;
}

/* Spaces up to SPACE_RETURN have numbers: of frames, of buffers. */
static const char *const names[SPACE_COUNT] = {
    [SPACE_BATCH] = "batch", [SPACE_FRAME] = "frame",
    [SPACE_ENTRY] = "entry", [SPACE_EXIT] = "exit",
    [SPACE_EXIT_GRADIENT] = "gradient of the exit",
    [SPACE_ENTRY_GRADIENT] = "gradient of the entry",
    [SPACE_RETURN] = "gradient on its way back", [SPACE_ROOM] = "room",
    [SPACE_BUCKET] = "room of gradients", [SPACE_GRADIENTS] = "sums",
    [SPACE_WEIGHTS] = "weights", [SPACE_PLACED] = "place",
    [SPACE_AHEAD] = "batch of the next step"};

static status add_freed(void *argument, const struct access *a)
{
    struct text *out = argument;
    const char *comma = out->length > 0 ? ", " : "";

    if (!a->writes || a->leaves != TAG_NONE || a->expects == TAG_NONE ||
        a->first == a->end)
        return OK;
    if (a->space <= SPACE_RETURN)
        return text_printf(out, "%s%s %lld", comma, names[a->space],
                           (long long)a->first);
    return text_printf(out, "%s%s", comma, names[a->space]);
}

status list_frees(const struct pipeline *pipeline, bool forward,
                  const struct instruction *instruction, struct text *out)
{
    return list_accesses(pipeline, forward, instruction, add_freed, out);
}
