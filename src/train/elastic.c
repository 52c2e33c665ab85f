/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c - finds the largest layout for the ranks that are left. */
#include "train/elastic.h"

#include <stdio.h>
#include "train/draft.h"
#include "tokenizer/run_tokenizer.h"

/* In the order in which they are changed: the first costs least. */
static const enum axis changed[] = {AXIS_DATA, AXIS_SHARD, AXIS_PIPE,
                                    AXIS_CONTEXT, AXIS_TENSOR};
enum { CHANGED = sizeof changed / sizeof *changed, PIPE = 2 };

static const char *const evenly = "mesh.layers=[]";

/* The blocks of a pipe of that size; NULL: as they are. */
static const char *blocks_of(const struct elastic *e, const int sizes[CHANGED])
{
    if (!e->uneven) return NULL;
    if (sizes[PIPE] != e->mesh.size[AXIS_PIPE]) return evenly;
    return e->blocks[0] != '\0' ? e->blocks : NULL;
}

static status assign(const struct elastic *e, const int sizes[CHANGED])
{
    const char *blocks = blocks_of(e, sizes);
    char text[64];

    for (int i = 0; i < CHANGED; i++) {
        snprintf(text, sizeof text, "mesh.%s=%d", axis_names[changed[i]],
                 sizes[i]);
        TRY(options_assign(e->set, text, ORIGIN_COMMAND_LINE));
    }
    if (blocks != NULL)
        TRY(options_assign(e->set, blocks, ORIGIN_COMMAND_LINE));
    return OK;
}

static status try_plan(const struct elastic *e, struct setup *setup, int ranks)
{
    struct draft draft;

    TRY(setup_resolve(setup, e->set, &e->vocabulary, ranks, 0));
    TRY(setup_use_grid(setup, &e->grid));
    if (!setup->exact) FAIL(ERR_CONFIG, "the layout shows in the bits");
    TRY(draft_build(&draft, setup, 0));
    draft_free(&draft);
    return OK;
}

static bool is_legal(const struct elastic *e, const int sizes[CHANGED],
                     int ranks)
{
    struct setup setup = {0};
    status result = assign(e, sizes);

    if (result == OK) {
        result = try_plan(e, &setup, ranks);
        setup_free(&setup);
    }
    status_clear();
    return result == OK;
}

/* How much of the layout changes. */
static int changes(const struct elastic *e, const int sizes[CHANGED])
{
    int cost = 0;

    for (int i = 0; i < CHANGED; i++)
        if (sizes[i] != e->mesh.size[changed[i]]) cost += 1 << i;
    return cost;
}

struct search {
    const struct elastic *elastic;
    int ranks, cost;          /* of the candidate; changes that are tried */
    int sizes[CHANGED];
    bool found;
};

/* All sizes of the axes from `axis` on whose product is `left`. */
static void try_axis(struct search *search, int axis, int left)
{
    const struct elastic *e = search->elastic;

    if (axis == CHANGED) {
        if (left == 1 && changes(e, search->sizes) == search->cost)
            search->found = is_legal(e, search->sizes, search->ranks);
        return;
    }
    for (int size = 1; size <= left && !search->found; size++) {
        const bool divides = e->mesh.size[changed[axis]] % size == 0;

        if (left % size != 0 || (axis >= 2 && !divides)) continue;
        search->sizes[axis] = size;
        try_axis(search, axis + 1, left / size);
        if (search->found) return;
    }
}

static void write_settings(const struct search *search, char *out, size_t size)
{
    const char *blocks = blocks_of(search->elastic, search->sizes);
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < CHANGED && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%smesh.%s=%d",
                                 i > 0 ? " " : "", axis_names[changed[i]],
                                 search->sizes[i]);
    if (blocks != NULL && used < size)
        snprintf(out + used, size - used, " %s", blocks);
}

static void keep_blocks(struct elastic *e)
{
    const struct option_list *list = &e->set->values.mesh.layers;
    size_t used;

    e->uneven = list->count > 0;
    used = (size_t)snprintf(e->blocks, sizeof e->blocks, "mesh.layers=[");
    for (int i = 0; i < list->count && used < sizeof e->blocks; i++)
        used += (size_t)snprintf(e->blocks + used, sizeof e->blocks - used,
                                 "%s%s", list->items[i],
                                 i + 1 < list->count ? "," : "]");
    if (!e->uneven || used >= sizeof e->blocks) e->blocks[0] = '\0';
}

status elastic_open(struct elastic *elastic, struct options_set *set,
                    int ranks)
{
    struct setup setup = {0};
    struct vocabulary vocabulary;
    status result;

    TRY(run_vocabulary(&vocabulary, &set->values));
    result = setup_resolve(&setup, set, &vocabulary, ranks, 0);
    *elastic = (struct elastic){.set = set, .vocabulary = vocabulary,
                                .ranks = ranks, .mesh = setup.mesh,
                                .grid = setup.grid};
    keep_blocks(elastic);
    if (result == OK && !setup.exact)
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                             "numerics.mode=fast: the layout shows in the "
                             "bits, so a run that loses ranks could not go on "
                             "with fewer; leave it out, or use --supervised "
                             "without --spares");
    setup_free(&setup);
    return result;
}

status elastic_layout(const struct elastic *elastic, int most, char *settings,
                      size_t size, int *ranks)
{
    struct search search = {.elastic = elastic};
    const int expert = elastic->mesh.size[AXIS_EXPERT];

    *ranks = 0;
    if (most > elastic->ranks) most = elastic->ranks;
    for (search.ranks = most; search.ranks > 0; search.ranks--) {
        if (search.ranks % expert != 0) continue;
        for (search.cost = 0; search.cost < 1 << CHANGED; search.cost++) {
            try_axis(&search, 0, search.ranks / expert);
            if (!search.found) continue;
            write_settings(&search, settings, size);
            *ranks = search.ranks;
            return OK;
        }
    }
    return OK;
}
