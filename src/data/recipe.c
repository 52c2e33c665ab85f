/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - the rows of data.mixture and data.phases, read. */
#include "data/recipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/named_rows.h"

#define ROW_FORM "NAME WEIGHT [field=KEY] PATH..."

enum { SOURCES_MAX = 100000, PHASES_MAX = 10000, CELLS_MAX = 1 << 24 };

/* form: what a row looks like, or "". */
static status read_weight(const char *where, const char *word,
                          const char *form, double *weight)
{
    char *end = NULL;

    *weight = word != NULL ? strtod(word, &end) : -1;
    if (word == NULL || end == word || *end != '\0' || !(*weight >= 0) ||
        *weight > 1e15)
        FAIL(ERR_CONFIG, "%s: '%s' is not a weight; expected a number from 0 "
             "to 1e15%s", where, word != NULL ? word : "", form);
    return OK;
}

static int source_named(const struct recipe *recipe, int count,
                        const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(recipe->sources[i].name, name) == 0) return i;
    return -1;
}

static status read_source(struct recipe *recipe, int index, const char *text)
{
    struct recipe_source *source = &recipe->sources[index];
    char where[64], *row, *word;
    void *memory;

    snprintf(where, sizeof where, "data.mixture, row %d", index + 1);
    TRY(arena_copy_text(&recipe->arena, text, &row));
    source->name = named_word(&row);
    if (source->name == NULL)
        FAIL(ERR_CONFIG, "%s is empty; expected " ROW_FORM, where);
    if (strchr(source->name, '=') != NULL)
        FAIL(ERR_CONFIG, "%s: the name '%s' holds a '='; expected " ROW_FORM,
             where, source->name);
    TRY(read_weight(where, named_word(&row), "; a row is " ROW_FORM,
                    &recipe->weights[index]));
    TRY(arena_take_array(&recipe->arena, strlen(text) / 2 + 1,
                         sizeof *source->paths, &memory));
    source->paths = memory;
    while ((word = named_word(&row)) != NULL)
        source->paths[source->path_count++] = word;
    if (source->path_count == 0 ||
        (source->path_count == 1 &&
         strncmp(source->paths[0], "field=", strlen("field=")) == 0))
        FAIL(ERR_CONFIG, "%s: '%s' names no file; expected " ROW_FORM, where,
             text);
    return OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static status names_differ(const struct recipe *recipe)
{
    const char **names;
    status result = OK;
    void *memory;

    TRY(memory_take((size_t)recipe->count, sizeof *names, &memory));
    names = memory;
    for (int i = 0; i < recipe->count; i++)
        names[i] = recipe->sources[i].name;
    qsort(names, (size_t)recipe->count, sizeof *names, by_name);
    for (int i = 1; i < recipe->count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            FAIL_GOTO(done, result, ERR_CONFIG, "data.mixture: two rows are "
                      "named '%s'", names[i]);
done:
    memory_free(memory);
    return result;
}

static status some_weight(const struct recipe *recipe, int phase,
                          const char *where)
{
    for (int i = 0; i < recipe->count; i++)
        if (recipe->weights[(int64_t)phase * recipe->count + i] > 0) return OK;
    FAIL(ERR_CONFIG, "%s: every weight is 0", where);
}

static status read_phase(struct recipe *recipe, int index, const char *text)
{
    double *weights = recipe->weights + (int64_t)index * recipe->count;
    char where[64], *row, *word, *end = NULL;
    int64_t step;

    snprintf(where, sizeof where, "data.phases, row %d", index);
    memcpy(weights, weights - recipe->count,
           (size_t)recipe->count * sizeof *weights);
    TRY(arena_copy_text(&recipe->arena, text, &row));
    word = named_word(&row);
    errno = 0;
    step = word != NULL ? strtoll(word, &end, 10) : 0;
    if (word == NULL || *end != '\0' || errno != 0 ||
        step <= recipe->steps[index - 1])
        FAIL(ERR_CONFIG, "%s: '%s' is not a step after %lld; expected STEP "
             "NAME=WEIGHT...", where, word != NULL ? word : "",
             (long long)recipe->steps[index - 1]);
    recipe->steps[index] = step;
    while ((word = named_word(&row)) != NULL) {
        char *equals = strchr(word, '=');
        int source;

        if (equals == NULL)
            FAIL(ERR_CONFIG, "%s: '%s' is not NAME=WEIGHT", where, word);
        *equals = '\0';
        source = source_named(recipe, recipe->count, word);
        if (source < 0)
            FAIL(ERR_CONFIG, "%s: no row of data.mixture is named '%s'", where,
                 word);
        TRY(read_weight(where, equals + 1, "", &weights[source]));
    }
    return some_weight(recipe, index, where);
}

static status read_rows(struct recipe *recipe, const char *const *mixture,
                        const char *const *phases)
{
    const size_t cells = (size_t)recipe->count * (size_t)recipe->phases;
    void *memory;

    TRY(arena_take_array(&recipe->arena, (size_t)recipe->count,
                         sizeof *recipe->sources, &memory));
    recipe->sources = memory;
    TRY(arena_take_array(&recipe->arena, cells, sizeof *recipe->weights,
                         &memory));
    recipe->weights = memory;
    TRY(arena_take_array(&recipe->arena, (size_t)recipe->phases,
                         sizeof *recipe->steps, &memory));
    recipe->steps = memory;
    for (int i = 0; i < recipe->count; i++)
        TRY(read_source(recipe, i, mixture[i]));
    TRY(names_differ(recipe));
    TRY(some_weight(recipe, 0, "data.mixture"));
    for (int i = 1; i < recipe->phases; i++)
        TRY(read_phase(recipe, i, phases[i - 1]));
    return OK;
}

status recipe_read(struct recipe *recipe, const char *const *mixture,
                   int count, const char *const *phases, int phase_count)
{
    *recipe = (struct recipe){.count = count, .phases = phase_count + 1};
    arena_init(&recipe->arena, "data.mixture", 0);
    if (count > SOURCES_MAX || phase_count > PHASES_MAX ||
        (int64_t)count * (phase_count + 1) > CELLS_MAX)
        FAIL(ERR_CONFIG, "data.mixture: %d sources in %d phases are too many",
             count, phase_count + 1);
    return read_rows(recipe, mixture, phases);
}

void recipe_free(struct recipe *recipe)
{
    arena_free(&recipe->arena);
    *recipe = (struct recipe){0};
}
