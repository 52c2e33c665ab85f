/* SPDX-License-Identifier: Apache-2.0 */
/* text_ends.c - a list of ids, each once, for generate and the prompts of a
 * run. */
#include "inference/text_ends.h"

#include "base/status.h"

static void add(struct text_ends *ends, const struct model *model, int64_t id)
{
    if (id < 0 || id >= model->vocab || text_ends_has(ends, (int32_t)id))
        return;
    ends->ids[ends->count++] = (int32_t)id;
}

void text_ends_find(const struct tokenizer *tokenizer,
                    const struct model *model, struct text_ends *out)
{
    int32_t id;

    out->count = 0;
    if (tokenizer_end_of_text(tokenizer, "", &id) == OK) add(out, model, id);
    else status_clear(); /* a tokenizer may do without */
    add(out, model, model->ends.eos);
    for (int i = 0; i < model->ends.more_count; i++)
        add(out, model, model->ends.more[i]);
}

bool text_ends_has(const struct text_ends *ends, int32_t id)
{
    for (int i = 0; i < ends->count; i++)
        if (ends->ids[i] == id) return true;
    return false;
}
