/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - finds the command, runs it, prints its error and returns the exit
 * code. Nothing here touches a thread, a device or a large file, so that
 * --help costs a millisecond. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/check.h"
#include "base/mapped_files.h"
#include "base/options.h"
#include "base/stack.h"
#include "cli/command.h"
#include "lockstep.h"

static status print_and_free(status result, struct text *text)
{
    if (result == OK && text->length > 0)
        fwrite(text->bytes, 1, text->length, stdout);
    text_free(text);
    return result;
}

static status print_overview(void)
{
    struct text text = {0};

    return print_and_free(help_overview(&text), &text);
}

static status print_help(const struct command *command)
{
    struct text text = {0};

    return print_and_free(help_command(command, &text), &text);
}

/* `lockstep bench --help` and `lockstep help bench`: bench is no command, but
 * the first word of some. */
static status print_family(const char *word, bool *printed)
{
    struct text text = {0};
    const status result = help_family(word, &text);

    *printed = result == OK && text.length > 0;
    return print_and_free(result, &text);
}

static status print_options(void)
{
    struct text text = {0};

    return print_and_free(options_describe(&text, false), &text);
}

/* A flag in the place of a command. */
static const char *flag_as_command(const char *word)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return "help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return "version";
    return NULL;
}

status run_command_line(int argc, char **argv)
{
    const struct command *command;
    struct arguments arguments = {0};
    bool printed;
    int words;
    status result;

    if (argc < 1) return print_overview();
    if (flag_as_command(argv[0]) != NULL)
        argv[0] = (char *)(uintptr_t)flag_as_command(argv[0]);
    if (strcmp(argv[0], "help") == 0) {
        if (argc < 2) return print_overview();
        if (strcmp(argv[1], "options") == 0) return print_options();
        if (argc == 2) {
            TRY(print_family(argv[1], &printed));
            if (printed) return OK;
        }
        TRY(command_find(argc - 1, argv + 1, &command, &words));
        return print_help(command);
    }
    if (argc == 2 && flag_as_command(argv[1]) != NULL &&
        strcmp(flag_as_command(argv[1]), "help") == 0) {
        TRY(print_family(argv[0], &printed));
        if (printed) return OK;
    }
    TRY(command_find(argc, argv, &command, &words));
    TRY_GOTO(done, result,
             arguments_parse(&arguments, command, argc - words, argv + words));
    TRY_GOTO(done, result,
             arguments.help ? print_help(command) : command->run(&arguments));
done:
    arguments_free(&arguments);
    return result;
}

/* Checks that all output was written: a full disk behind a redirection is an
 * error like any other. */
static status flush_output(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        FAIL(ERR_IO, "cannot write to standard output; is the disk full?");
    return OK;
}

/* Where the caller closed standard input, output or errors, the files of a run
 * would get their numbers, and its messages. */
static void hold_standard(void)
{
    int file;

    do file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0) close(file);
}

int lockstep_main(int argc, char **argv)
{
    status result = check_environment();
    status flushed;
    int code;

    hold_standard();
    if (result == OK) result = stack_make_room();
    if (result == OK) result = run_command_line(argc - 1, argv + 1);
    /* A file that was cut under its reader is why the rest went wrong. */
    if (!mapped_is_whole()) result = mapped_check();
    flushed = flush_output();

    if (result == OK) result = flushed;
    code = status_exit_code(result);
    /* compare and verify say on stdout what differs: that is an answer. */
    if (result == OK || result == ERR_DIFFERS) return code;
    status_print(result, stderr);
    fprintf(stderr, "exit %d (%s)\n", code, status_name(result));
    return code;
}
