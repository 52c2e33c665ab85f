/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - the table of commands: one row says how a command is called and
 * which function does it. Parsing, help, suggestions and docs/commands.md
 * read the same rows. */
#ifndef LOCKSTEP_CLI_COMMAND_H
#define LOCKSTEP_CLI_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/text.h"
#include "device/device.h"

enum flag_use {
    ONCE,
    REPEATS, /* may be given more than once */
    OUTPUT   /* once; names a file that the command writes */
};

struct flag {
    const char *name;    /* "threads"; written --threads N or --threads=N */
    const char *value;   /* "N"; NULL: the flag stands alone */
    const char *meaning;
    enum flag_use use;
};

enum { FLAGS_MAX = 24, OPERANDS_ANY = -1 };

struct arguments;

struct command {
    const char *name;     /* "train", "tokenizer train" */
    const char *operands; /* "CONFIG"; "" if none */
    int operands_least, operands_most; /* OPERANDS_ANY: no limit */
    const char *summary;  /* one line */
    const char *details;  /* paragraphs of --help; "" if the line says it */
    const char *example;  /* one shell line or more */
    bool hidden;          /* left out of the overview */
    status (*run)(struct arguments *arguments);
    struct flag flags[FLAGS_MAX]; /* ends with a row of NULLs */
};

extern const struct command commands[];
extern const int command_count;

/* A command line that fits its row. Texts point into argv. */
struct arguments {
    const struct command *command;
    struct arena arena; /* owns the arrays; a command may take from it */
    const char **operands;
    int operand_count;
    struct given {
        const struct flag *flag;
        const char *value; /* "" for a flag that stands alone */
    } *given;
    int given_count;
    bool help; /* --help was given: nothing else was checked */
};

/* The row that argv names (one word or two) and how many words it took.
 * ERR_USAGE names the nearest command. */
status command_find(int argc, char **argv, const struct command **command,
                    int *words);
/* Parses what follows the name. ERR_USAGE: unknown flag (with the nearest),
 * missing value, too few or too many operands. */
status arguments_parse(struct arguments *arguments,
                       const struct command *command, int argc, char **argv);
void arguments_free(struct arguments *arguments);

bool arguments_has(const struct arguments *arguments, const char *flag);
/* ERR_USAGE: both flags were given. */
status arguments_not_both(const struct arguments *arguments, const char *one,
                          const char *other);
/* Value of a flag, or `other` when it was not given. */
const char *arguments_text(const struct arguments *arguments,
                           const char *flag, const char *other);
/* ERR_USAGE: not a number, or outside [least, most]. *out keeps its value
 * when the flag was not given. */
status arguments_integer(const struct arguments *arguments, const char *flag,
                         int64_t least, int64_t most, int64_t *out);
status arguments_real(const struct arguments *arguments, const char *flag,
                      double least, double most, double *out);
/* The same, bytes from 1 on, with or without a unit ("80GiB", "80GB"). */
status arguments_bytes(const struct arguments *arguments, const char *flag,
                       double most, double *out);
/* Index of the value in `names`, ERR_USAGE with the nearest otherwise. *out
 * keeps its value when the flag was not given. */
status arguments_choice(const struct arguments *arguments, const char *flag,
                        const char *const *names, int count, int *out);

/* Whether --weights asks for the moving average of a run's weights. */
status arguments_average(const struct arguments *arguments, bool *average);
/* --device: where it is computed. */
status arguments_device(const struct arguments *arguments,
                        enum device_kind *device);

/* `lockstep --help`. */
status help_overview(struct text *out);
/* `lockstep help COMMAND`. */
status help_command(const struct command *command, struct text *out);
/* Prints the commands of two words that begin with this one: "bench". Prints
 * nothing if there are none. */
status help_family(const char *word, struct text *out);
/* docs/generated/commands.md. */
status help_markdown(struct text *out);

#endif
