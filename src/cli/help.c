/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - the command table as help and as generated docs. */
#include <string.h>
#include "cli/command.h"
#include "lockstep.h"

enum {
    NAME_COLUMNS = 18, FLAG_COLUMNS = 22, FLAG_TEXT_BYTES = 64,
    COLUMNS = 80, EXAMPLE_INDENT = 6
};

static const char *flag_text(char out[FLAG_TEXT_BYTES], const struct flag *flag)
{
    snprintf(out, FLAG_TEXT_BYTES, "--%s%s%s%s", flag->name,
             flag->value ? " " : "", flag->value ? flag->value : "",
             flag->use == REPEATS ? " ..." : "");
    return out;
}

static status usage_line(const struct command *command, struct text *out)
{
    char shown[FLAG_TEXT_BYTES];

    TRY(text_printf(out, "lockstep %s%s%s", command->name,
                    command->operands[0] ? " " : "", command->operands));
    for (int i = 0; i < FLAGS_MAX && command->flags[i].name; i++)
        TRY(text_printf(out, " [%s]", flag_text(shown, &command->flags[i])));
    return text_append_string(out, "\n");
}

status help_overview(struct text *out)
{
    TRY(text_printf(out,
                    "lockstep %s: pretrains language models; the layout "
                    "never changes the result\n\n"
                    "usage: lockstep COMMAND ...\n\n",
                    LOCKSTEP_VERSION));
    for (int i = 0; i < command_count; i++) {
        if (commands[i].hidden) continue;
        TRY(text_printf(out, "  %-*s%s\n", NAME_COLUMNS, commands[i].name,
                        commands[i].summary));
    }
    return text_append_string(
        out, "\nMODEL is a run directory (its newest checkpoint), a "
             "checkpoint, or a Hugging Face\ndirectory. `lockstep help "
             "COMMAND` or `lockstep COMMAND --help` says more.\n");
}

/* Appends `words`, which stand at column *at, and begins new lines of `indent`
 * spaces so that none is longer than COLUMNS; each ends with `more`. */
static status wrapped(struct text *out, const char *words, int *at, int indent,
                      const char *more)
{
    const int room = COLUMNS - (int)strlen(more);

    while (*words != '\0') {
        const int length = (int)strcspn(words, " \n");

        if (*at > indent && *at + 1 + length > room) {
            TRY(text_printf(out, "%s\n%*s", more, indent, ""));
            *at = indent;
        } else if (*at > indent) {
            TRY(text_append_string(out, " "));
            ++*at;
        }
        TRY(text_append(out, words, (size_t)length));
        *at += length;
        words += length;
        words += *words != '\0';
    }
    return OK;
}

static status wrapped_usage(const struct command *command, struct text *out)
{
    char shown[FLAG_TEXT_BYTES], one[FLAG_TEXT_BYTES + 2];
    int at = 2;

    TRY(wrapped(out, "lockstep", &at, 2, ""));
    TRY(wrapped(out, command->name, &at, 2, ""));
    if (command->operands[0] != '\0')
        TRY(wrapped(out, command->operands, &at, 2, ""));
    for (int i = 0; i < FLAGS_MAX && command->flags[i].name; i++) {
        const int length = snprintf(one, sizeof one, "[%s]",
                                    flag_text(shown, &command->flags[i]));

        /* The parts of one flag stay together. */
        if (at + 1 + length > COLUMNS) {
            TRY(text_append_string(out, "\n      "));
            at = 6;
        } else {
            TRY(text_append_string(out, " "));
            at++;
        }
        TRY(text_append_string(out, one));
        at += length;
    }
    return text_append_string(out, "\n");
}

static status wrapped_flags(const struct command *command, struct text *out)
{
    char shown[FLAG_TEXT_BYTES];

    if (command->flags[0].name != NULL)
        TRY(text_append_string(out, "\nflags:\n"));
    for (int i = 0; i < FLAGS_MAX && command->flags[i].name; i++) {
        int at = FLAG_COLUMNS + 4;

        flag_text(shown, &command->flags[i]);
        TRY(text_printf(out, "  %-*s  ", FLAG_COLUMNS, shown));
        if (strlen(shown) > FLAG_COLUMNS)
            TRY(text_printf(out, "\n%*s", FLAG_COLUMNS + 4, ""));
        TRY(wrapped(out, command->flags[i].meaning, &at, FLAG_COLUMNS + 4, ""));
        TRY(text_append_string(out, "\n"));
    }
    return OK;
}

/* One command a line; a long one goes on after a backslash. */
static status wrapped_examples(const struct command *command, struct text *out)
{
    char line[1024];

    for (const char *from = command->example; *from != '\0';) {
        const size_t length = strcspn(from, "\n");
        int at = 2;

        snprintf(line, sizeof line, "%.*s", (int)length, from);
        TRY(text_append_string(out, "  "));
        if (at + (int)length <= COLUMNS) TRY(text_append_string(out, line));
        else {
            /* The first word ends the indent of two. */
            char *rest = strchr(line, ' ');

            *rest = '\0';
            TRY(text_append_string(out, line));
            at += (int)strlen(line);
            if (at < EXAMPLE_INDENT + 1) at = EXAMPLE_INDENT + 1;
            TRY(wrapped(out, rest + 1, &at, EXAMPLE_INDENT, " \\"));
        }
        TRY(text_append_string(out, "\n"));
        from += length + (from[length] == '\n');
    }
    return OK;
}

status help_command(const struct command *command, struct text *out)
{
    int at = 0;

    TRY(text_printf(out, "lockstep %s:", command->name));
    at = (int)out->length;
    TRY(wrapped(out, command->summary, &at, 4, ""));
    TRY(text_append_string(out, "\n\nusage:\n  "));
    TRY(wrapped_usage(command, out));
    TRY(wrapped_flags(command, out));
    if (command->details[0] != '\0') {
        at = 0;
        TRY(text_append_string(out, "\n"));
        TRY(wrapped(out, command->details, &at, 0, ""));
        TRY(text_append_string(out, "\n"));
    }
    TRY(text_append_string(out, "\nexample:\n"));
    return wrapped_examples(command, out);
}

status help_family(const char *word, struct text *out)
{
    const size_t length = strlen(word);
    bool found = false;

    for (int i = 0; i < command_count; i++) {
        const char *name = commands[i].name;

        if (strncmp(name, word, length) != 0 || name[length] != ' ') continue;
        if (!found)
            TRY(text_printf(out, "lockstep %s: one of\n\n", word));
        found = true;
        TRY(text_printf(out, "  %-*s%s\n", NAME_COLUMNS, name,
                        commands[i].summary));
    }
    if (!found) return OK;
    return text_printf(out, "\n`lockstep help %s ...` or `lockstep %s ... "
                            "--help` says more.\n", word, word);
}

status help_markdown(struct text *out)
{
    char shown[FLAG_TEXT_BYTES];

    TRY(text_append_string(out, "# Commands\n\nPrinted by `lockstep docs "
                                "commands` from `src/cli/commands.c`.\nRun the "
                                "examples in this order, after `make demo`; "
                                "SmolLM-135M stands for any model "
                                "directory.\n"));
    for (int i = 0; i < command_count; i++) {
        const struct command *command = &commands[i];

        if (command->hidden) continue;
        TRY(text_printf(out, "\n## %s\n\n%c%s.\n\n```text\n", command->name,
                        command->summary[0] - 'a' + 'A',
                        command->summary + 1));
        TRY(usage_line(command, out));
        TRY(text_append_string(out, "```\n\n"));
        if (command->flags[0].name != NULL)
            TRY(text_append_string(out, "| flag | meaning |\n|---|---|\n"));
        for (int j = 0; j < FLAGS_MAX && command->flags[j].name; j++)
            TRY(text_printf(out, "| `%s` | %s |\n",
                            flag_text(shown, &command->flags[j]),
                            command->flags[j].meaning));
        if (command->details[0] != '\0')
            TRY(text_printf(out, "\n%s\n", command->details));
        TRY(text_printf(out, "\n<!-- check -->\n```sh\n%s\n```\n",
                        command->example));
    }
    return OK;
}
