/* SPDX-License-Identifier: Apache-2.0 */
/* validation_sets.c - named validation sets. */
#include "train/validation_sets.h"

#include <limits.h>
#include <string.h>

static status open_set(struct validation_sets *sets, int index)
{
    const struct options *o = &sets->feed->setup->set->values;
    const struct named_row *row = &sets->rows.items[index];
    struct validation_set *set = &sets->items[index];
    struct loader_request request;

    set->name = row->name;
    TRY(feed_prepare(sets->feed, row->words, row->count, &set->parts));
    request = feed_request(sets->feed, &set->parts);
    request.name = set->name;
    TRY(feed_load(&set->loader, &request));
    set->samples = set->loader.samples < o->validate.sequences
                       ? set->loader.samples : o->validate.sequences;
    return OK;
}

static const struct named_form sets_form = {"validate.sets", "NAME PATH...",
                                            1, INT_MAX};

status validation_sets_check(const struct options *options)
{
    const struct option_list *list = &options->validate.sets;
    struct named_rows rows = {0};
    const status result =
        named_read(&rows, &sets_form, list->items, list->count);

    named_free(&rows);
    return result;
}

status validation_sets_open(struct validation_sets *sets,
                            const struct feed *feed)
{
    const struct option_list *list = &feed->setup->set->values.validate.sets;
    void *memory;

    *sets = (struct validation_sets){.feed = feed};
    TRY(named_read(&sets->rows, &sets_form, list->items, list->count));
    if (list->count == 0) return OK;
    TRY(memory_take((size_t)list->count, sizeof *sets->items, &memory));
    memset(memory, 0, (size_t)list->count * sizeof *sets->items);
    sets->items = memory;
    for (int i = 0; i < list->count; i++) {
        sets->count = i + 1; /* so that it is closed in any case */
        TRY(open_set(sets, i));
    }
    return OK;
}

void validation_sets_close(struct validation_sets *sets)
{
    for (int i = 0; i < sets->count; i++) {
        loader_close(&sets->items[i].loader);
        data_parts_free(&sets->items[i].parts);
    }
    memory_free(sets->items);
    named_free(&sets->rows);
    *sets = (struct validation_sets){0};
}

int64_t validation_sets_samples(const struct validation_sets *sets)
{
    int64_t most = 0;

    for (int i = 0; i < sets->count; i++)
        if (sets->items[i].samples > most) most = sets->items[i].samples;
    return most;
}

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    struct validation_sets *sets = argument;
    struct validation_set *set = sets->current;

    TRY(loader_sample(&set->loader, index, inputs, targets, positions,
                      documents));
    if (index < sets->next) return OK; /* a rank with two stages */
    sets->next = index + 1;
    sets->bytes += feed_text_bytes(sets->feed, &set->loader, targets);
    return OK;
}

struct sample_source validation_sets_source(struct validation_sets *sets,
                                            int index)
{
    token_set_drop(&sets->items[index].loader.set);
    sets->current = &sets->items[index];
    sets->bytes = sets->next = 0;
    return (struct sample_source){.fill = fill, .argument = sets,
                                  .content = 1};
}
