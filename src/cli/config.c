/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - the configuration that a command line asks for. */
#include "cli/config.h"
#include "cli/scale.h"

#include <string.h>
#include "base/file.h"
#include "checkpoint/run_dir.h"
#include "comm/launch.h"
#include "setup/recipe_file.h"
#include "train/start_tokenizer.h"

static status add(struct assignments *out, const char *assignment)
{
    if (out->count == ASSIGNMENTS_MAX)
        FAIL(ERR_USAGE, "more than %d settings; put them into a file",
             (int)ASSIGNMENTS_MAX);
    out->items[out->count++] = assignment;
    return OK;
}

/* A flag that is short for an option. */
static status add_short(struct assignments *out, struct arguments *arguments,
                        const char *option, const char *value)
{
    char text[ASSIGNMENT_BYTES];
    char *copy;

    if (snprintf(text, sizeof text, "%s=%s", option, value) >=
        ASSIGNMENT_BYTES)
        FAIL(ERR_USAGE, "%s: a value of %zu bytes is too long", option,
             strlen(value));
    TRY(arena_copy_text(&arguments->arena, text, &copy));
    return add(out, copy);
}

status assignments_read(struct assignments *out, struct arguments *arguments)
{
    *out = (struct assignments){0};
    for (int i = 0; i < arguments->given_count; i++) {
        const char *name = arguments->given[i].flag->name;
        const char *value = arguments->given[i].value;

        if (strcmp(name, "set") == 0)
            TRY(add(out, value));
        else if (strcmp(name, "run") == 0)
            TRY(add_short(out, arguments, "run.dir", value));
        else if (strcmp(name, "threads") == 0)
            TRY(add_short(out, arguments, "train.threads", value));
        else if (strcmp(name, "isa") == 0)
            TRY(add_short(out, arguments, "numerics.isa", value));
    }
    return OK;
}

/* Whether an option of the architecture was set. */
static bool says_model(const struct options_set *set)
{
    for (int i = 0; i < options_count(); i++) {
        const char *name = option_name(i);

        if (strncmp(name, "model.", 6) == 0 &&
            strcmp(name, "model.dropout") != 0 &&
            strcmp(name, "model.init_std") != 0 &&
            options_origin(set, name) != ORIGIN_DEFAULT)
            return true;
    }
    return false;
}

/* Weights bring their architecture, unless another was asked for. */
static status bring_model(struct options_set *set)
{
    const char *from = set->values.init.from;
    struct model_place place;
    char text[PATH_BYTES + 16];

    if (from[0] == '\0' || says_model(set)) return OK;
    if (!file_is_directory(from)) { /* RUN/best names another directory */
        if (model_place_find(from, &place) == OK) from = place.directory;
        else status_clear();
    }
    snprintf(text, sizeof text, "model.from=%s", from);
    return options_assign(set, text, options_origin(set, "init.from"));
}

/* A run's adapters are described in its checkpoints. */
static status bring_adapters(struct options_set *set)
{
    const char *from = set->values.lora.from;
    struct model_place place;
    char text[PATH_BYTES + 16];

    if (from[0] == '\0') return OK;
    TRY(path_join(text, PATH_BYTES, from, "adapter_config.json"));
    if (file_exists(text)) return OK;
    if (model_place_find(from, &place) != OK) {
        status_clear(); /* who reads it says what was expected */
        return OK;
    }
    snprintf(text, sizeof text, "lora.from=%s", place.directory);
    return options_assign(set, text, options_origin(set, "lora.from"));
}

static status bring_tokenizer(struct options_set *set)
{
    struct text told = {0};
    const status result = start_tokenizer_choose(set, &told);

    if (result == OK && told.length > 0 && launch_rank() <= 0)
        fprintf(stderr, "%s\n", told.bytes);
    text_free(&told);
    return result;
}

/* A tokenizer of --set brings its vocabulary. */
static status scale(struct options_set *set, const struct arguments *arguments,
                    const struct assignments *assignments)
{
    const char *text = arguments_text(arguments, "scale", NULL);

    for (int i = 0; text != NULL && i < assignments->count; i++)
        if (strncmp(assignments->items[i], "tokenizer.from=", 15) == 0)
            TRY(options_assign(set, assignments->items[i],
                               ORIGIN_COMMAND_LINE));
    return text != NULL ? scale_options(set, text) : OK;
}

status config_read(struct options_set *set, const char *path,
                   struct arguments *arguments)
{
    struct assignments assignments;
    const bool run = file_is_directory(path);
    char inside[PATH_BYTES];

    TRY(assignments_read(&assignments, arguments));
    TRY(options_init(set));
    if (run) {
        TRY(path_join(inside, PATH_BYTES, path, "config.yaml"));
        if (!file_exists(inside))
            FAIL(ERR_MISSING, "%s: a directory without config.yaml; expected "
                              "a configuration file or a run", path);
        path = inside;
    }
    TRY(run ? options_read_run(set, path) : options_read_file(set, path));
    TRY(options_read_environment(set));
    TRY(scale(set, arguments, &assignments));
    for (int i = 0; i < assignments.count; i++)
        TRY(options_assign(set, assignments.items[i], ORIGIN_COMMAND_LINE));
    TRY(recipe_file_read(set));
    TRY(bring_model(set));
    TRY(bring_adapters(set));
    return bring_tokenizer(set);
}
