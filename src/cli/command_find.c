/* SPDX-License-Identifier: Apache-2.0 */
/* command_find.c - finds the row of the table of commands that was meant. */
#include <stdio.h>
#include <string.h>
#include "cli/command.h"

static int word_count(const char *name)
{
    return strchr(name, ' ') != NULL ? 2 : 1;
}

/* Does argv begin with the words of `name`? */
static bool is_named(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');

    if (space == NULL) return strcmp(name, argv[0]) == 0;
    return argc >= 2 && strlen(argv[0]) == (size_t)(space - name) &&
           strncmp(name, argv[0], strlen(argv[0])) == 0 &&
           strcmp(space + 1, argv[1]) == 0;
}

/* "bench" stands before "kernels" and "step" but is no command alone. */
static status command_incomplete(const char *word, const char *second)
{
    const size_t length = strlen(word);
    char all[128] = "";
    status code;

    for (int i = 0; i < command_count; i++) {
        const char *name = commands[i].name;

        if (strncmp(name, word, length) != 0 || name[length] != ' ') continue;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                 all[0] ? " or " : "", name);
    }
    if (all[0] == '\0') return OK;
    code = status_fail(ERR_USAGE, __FILE__, __LINE__,
                       "%s%s%s is not a command; expected %s", word,
                       second ? " " : "", second ? second : "", all);
    return status_hint(code, "lockstep --help lists the commands");
}

enum { NAMES_MAX = 64, NAME_BYTES = 24 };

static status command_unknown(int argc, char **argv)
{
    char words[NAMES_MAX][NAME_BYTES]; /* first words of the names */
    const char *names[NAMES_MAX];
    const char *nearest;
    status code;
    int count = 0;

    TRY(command_incomplete(argv[0], argc > 1 ? argv[1] : NULL));
    for (int i = 0; i < command_count && count < NAMES_MAX; i++) {
        if (commands[i].hidden) continue;
        snprintf(words[count], NAME_BYTES, "%.*s",
                 (int)strcspn(commands[i].name, " "), commands[i].name);
        names[count] = words[count];
        count++;
    }
    nearest = text_nearest(argv[0], names, count);
    code = status_fail(ERR_USAGE, __FILE__, __LINE__,
                       "there is no command %s%s%s", argv[0],
                       nearest ? "; the nearest is " : "",
                       nearest ? nearest : "");
    return status_hint(code, "lockstep --help lists the commands");
}

status command_find(int argc, char **argv, const struct command **command,
                    int *words)
{
    *words = 0;
    for (int i = 0; i < command_count; i++) {
        const int count = word_count(commands[i].name);

        if (count > *words && is_named(commands[i].name, argc, argv)) {
            *command = &commands[i];
            *words = count;
        }
    }
    return *words > 0 ? OK : command_unknown(argc, argv);
}
