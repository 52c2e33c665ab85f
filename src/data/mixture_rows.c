/* SPDX-License-Identifier: Apache-2.0 */
/* mixture_rows.c - the rows of data.mixture and data.phases, read. */
#include "data/mixture_rows.h"

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

static int source_named(const struct mixture_rows *rows, int count,
                        const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(rows->sources[i].name, name) == 0) return i;
    return -1;
}

static status read_source(struct mixture_rows *rows, int index,
                          const char *text)
{
    struct mixture_source *source = &rows->sources[index];
    char where[64], *row, *word;
    void *memory;

    snprintf(where, sizeof where, "data.mixture, row %d", index + 1);
    TRY(arena_copy_text(&rows->arena, text, &row));
    source->name = named_word(&row);
    if (source->name == NULL)
        FAIL(ERR_CONFIG, "%s is empty; expected " ROW_FORM, where);
    if (strchr(source->name, '=') != NULL)
        FAIL(ERR_CONFIG, "%s: the name '%s' holds a '='; expected " ROW_FORM,
             where, source->name);
    TRY(read_weight(where, named_word(&row), "; a row is " ROW_FORM,
                    &rows->weights[index]));
    TRY(arena_take_array(&rows->arena, strlen(text) / 2 + 1,
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

static status names_differ(const struct mixture_rows *rows)
{
    const char **names;
    status result = OK;
    void *memory;

    TRY(memory_take((size_t)rows->count, sizeof *names, &memory));
    names = memory;
    for (int i = 0; i < rows->count; i++)
        names[i] = rows->sources[i].name;
    qsort(names, (size_t)rows->count, sizeof *names, by_name);
    for (int i = 1; i < rows->count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            FAIL_GOTO(done, result, ERR_CONFIG, "data.mixture: two rows are "
                      "named '%s'", names[i]);
done:
    memory_free(memory);
    return result;
}

static status some_weight(const struct mixture_rows *rows, int phase,
                          const char *where)
{
    for (int i = 0; i < rows->count; i++)
        if (rows->weights[(int64_t)phase * rows->count + i] > 0) return OK;
    FAIL(ERR_CONFIG, "%s: every weight is 0", where);
}

static status read_phase(struct mixture_rows *rows, int index, const char *text)
{
    double *weights = rows->weights + (int64_t)index * rows->count;
    char where[64], *row, *word, *end = NULL;
    int64_t step;

    snprintf(where, sizeof where, "data.phases, row %d", index);
    memcpy(weights, weights - rows->count,
           (size_t)rows->count * sizeof *weights);
    TRY(arena_copy_text(&rows->arena, text, &row));
    word = named_word(&row);
    errno = 0;
    step = word != NULL ? strtoll(word, &end, 10) : 0;
    if (word == NULL || *end != '\0' || errno != 0 ||
        step <= rows->steps[index - 1])
        FAIL(ERR_CONFIG, "%s: '%s' is not a step after %lld; expected STEP "
             "NAME=WEIGHT...", where, word != NULL ? word : "",
             (long long)rows->steps[index - 1]);
    rows->steps[index] = step;
    while ((word = named_word(&row)) != NULL) {
        char *equals = strchr(word, '=');
        int source;

        if (equals == NULL)
            FAIL(ERR_CONFIG, "%s: '%s' is not NAME=WEIGHT", where, word);
        *equals = '\0';
        source = source_named(rows, rows->count, word);
        if (source < 0)
            FAIL(ERR_CONFIG, "%s: no row of data.mixture is named '%s'", where,
                 word);
        TRY(read_weight(where, equals + 1, "", &weights[source]));
    }
    return some_weight(rows, index, where);
}

static status read_rows(struct mixture_rows *rows, const char *const *mixture,
                        const char *const *phases)
{
    const size_t cells = (size_t)rows->count * (size_t)rows->phases;
    void *memory;

    TRY(arena_take_array(&rows->arena, (size_t)rows->count,
                         sizeof *rows->sources, &memory));
    rows->sources = memory;
    TRY(arena_take_array(&rows->arena, cells, sizeof *rows->weights,
                         &memory));
    rows->weights = memory;
    TRY(arena_take_array(&rows->arena, (size_t)rows->phases,
                         sizeof *rows->steps, &memory));
    rows->steps = memory;
    for (int i = 0; i < rows->count; i++)
        TRY(read_source(rows, i, mixture[i]));
    TRY(names_differ(rows));
    TRY(some_weight(rows, 0, "data.mixture"));
    for (int i = 1; i < rows->phases; i++)
        TRY(read_phase(rows, i, phases[i - 1]));
    return OK;
}

status mixture_rows_read(struct mixture_rows *rows, const char *const *mixture,
                         int count, const char *const *phases, int phase_count)
{
    *rows = (struct mixture_rows){.count = count, .phases = phase_count + 1};
    arena_init(&rows->arena, "data.mixture", 0);
    if (count > SOURCES_MAX || phase_count > PHASES_MAX ||
        (int64_t)count * (phase_count + 1) > CELLS_MAX)
        FAIL(ERR_CONFIG, "data.mixture: %d sources in %d phases are too many",
             count, phase_count + 1);
    return read_rows(rows, mixture, phases);
}

void mixture_rows_free(struct mixture_rows *rows)
{
    arena_free(&rows->arena);
    *rows = (struct mixture_rows){0};
}
