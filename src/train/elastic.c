/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c - finds the largest layout for the ranks that are left. */
#include "train/elastic.h"

#include <stdio.h>
#include <string.h>
#include "train/draft.h"
#include "tokenizer/run_tokenizer.h"

/* In the order in which they are changed: the first costs least. */
static const enum axis changed[] = {AXIS_DATA, AXIS_SHARD, AXIS_PIPE,
                                    AXIS_CONTEXT, AXIS_TENSOR};
enum { CHANGED = sizeof changed / sizeof *changed, DATA = 0, SHARD = 1,
       PIPE = 2 };

/* Most bytes of the settings of a layout beside its blocks and the file of its
 * schedule. */
enum { AXES_BYTES = 256 };

/* The settings of a layout, separated by spaces. Blocks that are named, and a
 * schedule from a file, are for the whole pipe; such a schedule is also for the
 * micro-batches of the whole layout, so for as many ranks that share the
 * batch. */
static void write_settings(const struct elastic *e, const int sizes[CHANGED],
                           char out[LAYOUT_WORDS_BYTES])
{
    const int copies = e->mesh.size[AXIS_DATA] * e->mesh.size[AXIS_SHARD];
    const bool whole = sizes[PIPE] == e->mesh.size[AXIS_PIPE];
    const bool filed = whole && sizes[DATA] * sizes[SHARD] == copies;
    const bool named = whole && (filed || e->file == NULL);
    size_t used = 0;

    for (int i = 0; i < CHANGED; i++)
        used += (size_t)snprintf(out + used, LAYOUT_WORDS_BYTES - used,
                                 "%smesh.%s=%d", i > 0 ? " " : "",
                                 axis_names[changed[i]], sizes[i]);
    if (e->blocks[0] != '\0')
        used += (size_t)snprintf(out + used, LAYOUT_WORDS_BYTES - used,
                                 " mesh.layers=[%s]", named ? e->blocks : "");
    if (e->file != NULL)
        snprintf(out + used, LAYOUT_WORDS_BYTES - used,
                 " schedule.name=%s schedule.chunks=%d",
                 filed ? e->file : "1f1b", filed ? e->chunks : 0);
}

static status assign(const struct elastic *e, const int sizes[CHANGED])
{
    char words[LAYOUT_WORDS_BYTES], *rest, *word;

    write_settings(e, sizes, words);
    for (word = strtok_r(words, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest))
        TRY(options_assign(e->set, word, ORIGIN_COMMAND_LINE));
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

/* OK: it is a layout of the run. */
static status check_legal(const struct elastic *e, const int sizes[CHANGED],
                          int ranks)
{
    struct setup setup = {0};
    status result = assign(e, sizes);

    if (result == OK) {
        result = try_plan(e, &setup, ranks);
        setup_free(&setup);
    }
    status_clear();
    return result;
}

/* The layout may be legal all the same, at another time: there was no memory,
 * or the file of the schedule could not be read. */
static bool says_nothing(const struct elastic *e, status result)
{
    return result == ERR_IO || result == ERR_MISSING || result == ERR_MEMORY ||
           (result != OK && e->file != NULL &&
            !setup_schedule_is_file(e->file));
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
    bool found, unsure;       /* unsure: of a layout that was tried */
};

/* All sizes of the axes from `axis` on whose product is `left`. */
static void try_axis(struct search *search, int axis, int left)
{
    const struct elastic *e = search->elastic;

    if (axis == CHANGED) {
        if (left != 1 || changes(e, search->sizes) != search->cost) return;
        const status result = check_legal(e, search->sizes, search->ranks);

        search->found = result == OK;
        search->unsure |= says_nothing(e, result);
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

/* A later layout may have neither, and the whole one needs them again: they
 * go along with every layout. */
static status keep_settings(struct elastic *e, const struct options *o)
{
    const struct option_list *list = &o->mesh.layers;
    size_t used = strlen(o->schedule.name);

    if (setup_schedule_is_file(o->schedule.name)) e->file = o->schedule.name;
    e->chunks = (int)o->schedule.chunks;
    for (int i = 0; i < list->count; i++) used += strlen(list->items[i]) + 1;
    if (used >= LAYOUT_WORDS_BYTES - AXES_BYTES)
        FAIL(ERR_CONFIG, "mesh.layers and schedule.name: %zu bytes, of which a "
             "run that may lose ranks takes at most %d from layout to layout; "
             "use fewer stages, a shorter name, or --supervised without "
             "--spares", used, LAYOUT_WORDS_BYTES - AXES_BYTES - 1);
    if (e->file != NULL && strpbrk(e->file, " \t\n") != NULL)
        FAIL(ERR_CONFIG, "schedule.name: \"%s\" has a space, which a run that "
             "may lose ranks cannot take from layout to layout; name the file "
             "without, or use --supervised without --spares", e->file);
    used = 0;
    for (int i = 0; i < list->count; i++)
        used += (size_t)snprintf(e->blocks + used, sizeof e->blocks - used,
                                 "%s%s", i > 0 ? "," : "", list->items[i]);
    return OK;
}

status elastic_open(struct elastic *elastic, struct options_set *set,
                    int ranks)
{
    struct setup setup = {0};
    status result;

    *elastic = (struct elastic){.set = set, .ranks = ranks};
    TRY(arena_take_array(&set->arena, (size_t)ranks + 1,
                         sizeof *elastic->known, (void **)&elastic->known));
    memset(elastic->known, 0, ((size_t)ranks + 1) * sizeof *elastic->known);
    TRY(keep_settings(elastic, &set->values));
    TRY(run_vocabulary(&elastic->vocabulary, &set->values));
    result = setup_resolve(&setup, set, &elastic->vocabulary, ranks, 0);
    elastic->mesh = setup.mesh;
    elastic->grid = setup.grid;
    if (elastic->mesh.size[AXIS_PIPE] == 1) elastic->file = NULL;
    if (result == OK && !setup.exact)
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                             "numerics.mode=fast: the layout shows in the "
                             "bits, so a run that loses ranks could not go on "
                             "with fewer; leave it out, or use --supervised "
                             "without --spares");
    setup_free(&setup);
    return result;
}

/* False: another search may find another one. */
static bool search_layout(const struct elastic *elastic, int most,
                          char settings[LAYOUT_WORDS_BYTES], int *ranks)
{
    struct search search = {.elastic = elastic};
    const int expert = elastic->mesh.size[AXIS_EXPERT];

    *ranks = 0;
    for (search.ranks = most; search.ranks > 0; search.ranks--) {
        if (search.ranks % expert != 0) continue;
        for (search.cost = 0; search.cost < 1 << CHANGED; search.cost++) {
            try_axis(&search, 0, search.ranks / expert);
            if (!search.found) continue;
            write_settings(elastic, search.sizes, settings);
            *ranks = search.ranks;
            return !search.unsure;
        }
    }
    return !search.unsure;
}

/* Found once for each number of ranks, unless it is unsure: a run changes its
 * layout as often as machines come and go. */
status elastic_layout(const struct elastic *elastic, int most,
                      char settings[LAYOUT_WORDS_BYTES], int *ranks)
{
    struct elastic_known *known;

    *ranks = 0;
    if (most > elastic->ranks) most = elastic->ranks;
    if (most < 1) return OK;
    known = &elastic->known[most];
    if (known->settings == NULL) {
        if (!search_layout(elastic, most, settings, ranks)) return OK;
        known->ranks = *ranks;
        if (known->ranks == 0) settings[0] = '\0';
        TRY(arena_copy_text(&elastic->set->arena, settings, &known->settings));
    }
    *ranks = known->ranks;
    if (known->ranks > 0)
        snprintf(settings, LAYOUT_WORDS_BYTES, "%s", known->settings);
    return OK;
}
