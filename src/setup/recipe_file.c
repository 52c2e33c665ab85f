/* SPDX-License-Identifier: Apache-2.0 */
/* recipe_file.c - a recipe of one's own as a file. */
#include "setup/recipe_file.h"

#include <string.h>

#include "base/file.h"
#include "nn/precision.h"
#include "setup/recipe.h"

static const char *const keys[] = {
    "numerics.recipe", "numerics.recipe_rows", "numerics.recipe_steps",
    "numerics.recipe_history", "numerics.accumulator", "numerics.high_first",
    "numerics.high_last"};
enum { KEYS = sizeof keys / sizeof *keys };

static bool ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);

    return length > tail && strcmp(text + length - tail, end) == 0;
}

static bool is_file(const char *name)
{
    return strchr(name, '/') != NULL || ends_in(name, ".yaml") ||
           ends_in(name, ".yml");
}

static bool is_key(const char *name)
{
    for (int i = 0; i < KEYS; i++)
        if (strcmp(name, keys[i]) == 0) return true;
    return false;
}

static status check_keys(const struct options_set *file, const char *path)
{
    for (int i = 0; i < options_count(); i++) {
        const char *name = option_name(i);

        if (options_origin(file, name) != ORIGIN_DEFAULT && !is_key(name))
            FAIL(ERR_CONFIG, "%s: %s is no key of a recipe; a recipe file has "
                             "numerics.recipe, .recipe_rows, .recipe_steps, "
                             ".recipe_history, .accumulator, .high_first and "
                             ".high_last",
                 path, name);
    }
    return OK;
}

/* Puts the file's name in front of what is wrong with a value of it. */
static status of_file(status result, const char *path)
{
    if (result != OK) FAIL(result, "%s: %s", path, status_message());
    return OK;
}

/* The recipe that the file changes, and its rows, are right. */
static status check_recipe(const struct options_set *file, const char *path)
{
    const struct options *o = &file->values;
    const struct precision *base;
    struct precision changed;
    struct accumulator accumulator;

    if (is_file(o->numerics.recipe))
        FAIL(ERR_CONFIG, "%s: numerics.recipe: %s is a file again; a recipe "
                         "file begins with a recipe by name, such as mxfp8",
             path, o->numerics.recipe);
    TRY(of_file(precision_parse(&base, o->numerics.recipe), path));
    if (base == NULL)
        FAIL(ERR_CONFIG, "%s: numerics.recipe is missing or none; a recipe "
                         "file begins with a recipe by name, such as mxfp8",
             path);
    changed = *base;
    TRY(of_file(recipe_accumulator(&accumulator, o->numerics.accumulator),
                path));
    return of_file(precision_change(&changed, o->numerics.recipe_rows.items,
                                    o->numerics.recipe_rows.count), path);
}

/* One value of the file, in the place of a default. */
static status take(struct options_set *set, const struct options_set *file,
                   const char *key, enum option_origin origin)
{
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, text_printf(&text, "%s=", key));
    TRY_GOTO(done, result, options_get_text(file, key, &text));
    result = options_assign(set, text.bytes, origin);
done:
    text_free(&text);
    return result;
}

status recipe_file_apply(struct options_set *set,
                         const struct options_set *file, const char *path)
{
    const enum option_origin origin = options_origin(set, keys[0]);

    TRY(check_keys(file, path));
    TRY(check_recipe(file, path));
    for (int i = 0; i < KEYS; i++)
        if (options_origin(file, keys[i]) != ORIGIN_DEFAULT &&
            (i == 0 || options_origin(set, keys[i]) == ORIGIN_DEFAULT))
            TRY(take(set, file, keys[i], origin));
    return OK;
}

status recipe_file_read(struct options_set *set)
{
    const char *path = set->values.numerics.recipe;
    struct options_set file;
    status result;

    if (!is_file(path)) return OK;
    TRY(options_init(&file));
    TRY_GOTO(done, result, options_read_run(&file, path));
    result = recipe_file_apply(set, &file, path);
done:
    options_free(&file);
    return result;
}
