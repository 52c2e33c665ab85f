/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - the command table as help and as generated docs. */
#include <string.h>
#include "cli/command.h"
#include "lockstep.h"

enum { NAME_COLUMNS = 18, FLAG_COLUMNS = 22, FLAG_TEXT_BYTES = 64 };

static const char *flag_text(char out[FLAG_TEXT_BYTES], const struct flag *flag)
{
    snprintf(out, FLAG_TEXT_BYTES, "--%s%s%s%s", flag->name,
             flag->value ? " " : "", flag->value ? flag->value : "",
             flag->repeats ? " ..." : "");
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

/* Every line of `lines`, indented. */
static status indented(struct text *out, const char *lines)
{
    while (*lines != '\0') {
        const size_t length = strcspn(lines, "\n");

        TRY(text_printf(out, "  %.*s\n", (int)length, lines));
        lines += length + (lines[length] == '\n');
    }
    return OK;
}

status help_command(const struct command *command, struct text *out)
{
    char shown[FLAG_TEXT_BYTES];

    TRY(text_printf(out, "lockstep %s: %s\n\nusage:\n  ", command->name,
                    command->summary));
    TRY(usage_line(command, out));
    if (command->flags[0].name != NULL)
        TRY(text_append_string(out, "\nflags:\n"));
    for (int i = 0; i < FLAGS_MAX && command->flags[i].name; i++)
        TRY(text_printf(out, "  %-*s  %s\n", FLAG_COLUMNS,
                        flag_text(shown, &command->flags[i]),
                        command->flags[i].meaning));
    if (command->details[0] != '\0')
        TRY(text_printf(out, "\n%s\n", command->details));
    TRY(text_append_string(out, "\nexample:\n"));
    return indented(out, command->example);
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
