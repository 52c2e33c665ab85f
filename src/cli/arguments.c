/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c - a command line against the row of its command. */
#include "cli/command.h"
#include "base/file.h"
#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int flag_count(const struct command *command)
{
    int count = 0;

    while (count < FLAGS_MAX && command->flags[count].name != NULL) count++;
    return count;
}

/* The flag whose name is the first `length` bytes of `word`. */
static const struct flag *flag_find(const struct command *command,
                                    const char *word, size_t length)
{
    for (int i = 0; i < flag_count(command); i++) {
        const struct flag *flag = &command->flags[i];

        if (strlen(flag->name) == length &&
            strncmp(flag->name, word, length) == 0)
            return flag;
    }
    return NULL;
}

static status flag_unknown(const struct command *command, const char *word,
                           size_t length)
{
    const char *names[FLAGS_MAX + 1];
    const int count = flag_count(command);
    const char *nearest;
    char name[64];
    status code;

    for (int i = 0; i < count; i++) names[i] = command->flags[i].name;
    names[count] = "help";
    snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), word);
    nearest = text_nearest(name, names, count + 1);
    if (nearest != NULL)
        FAIL(ERR_USAGE, "%s has no flag --%s; the nearest is --%s",
             command->name, name, nearest);
    code = status_fail(ERR_USAGE, __FILE__, __LINE__, "%s has no flag --%s",
                       command->name, name);
    return status_hint(code, "lockstep %s --help lists its flags",
                       command->name);
}

/* argv[*at] begins with "--". Moves *at beyond the flag and its value. */
static status flag_parse(struct arguments *arguments, int argc, char **argv,
                         int *at)
{
    const struct command *command = arguments->command;
    const char *word = argv[*at] + 2;
    const char *equals = strchr(word, '=');
    const size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const struct flag *flag = flag_find(command, word, length);
    const char *value = equals ? equals + 1 : "";

    if (flag == NULL) return flag_unknown(command, word, length);
    if (flag->use != REPEATS && arguments_has(arguments, flag->name))
        FAIL(ERR_USAGE, "--%s is given twice; one is expected", flag->name);
    if (flag->value == NULL && equals != NULL)
        FAIL(ERR_USAGE, "--%s takes no value, found \"%s\"", flag->name, value);
    if (flag->value != NULL && equals == NULL) {
        const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;

        /* A known flag here means that the value was forgotten. */
        if (next == NULL ||
            (strncmp(next, "--", 2) == 0 &&
             flag_find(command, next + 2, strcspn(next + 2, "=")) != NULL))
            FAIL(ERR_USAGE, "--%s needs a value: --%s %s", flag->name,
                 flag->name, flag->value);
        value = next;
        ++*at;
    }
    ++*at;
    arguments->given[arguments->given_count++] =
        (struct given){.flag = flag, .value = value};
    return OK;
}

/* The call of this command in its example, on one line. */
static void example_call(const struct command *command, char *out, size_t bytes)
{
    char name[64];
    const char *at;
    size_t length = 0;

    snprintf(name, sizeof name, "lockstep %s", command->name);
    at = strstr(command->example, name);
    if (at == NULL) at = command->example;
    while (*at != '\0' && *at != '\n' && length + 1 < bytes) {
        if (*at == '\\' && at[1] == '\n')
            at += 2 + strspn(at + 2, " ");
        else
            out[length++] = *at++;
    }
    out[length] = '\0';
}

static status operands_check(const struct arguments *arguments)
{
    const struct command *command = arguments->command;
    const int count = arguments->operand_count;
    char call[400];
    status code;

    if (count >= command->operands_least &&
        (count <= command->operands_most ||
         command->operands_most == OPERANDS_ANY))
        return OK;
    if (count < command->operands_least)
        code = status_fail(ERR_USAGE, __FILE__, __LINE__,
                           "%s needs %s, found %d of %d", command->name,
                           command->operands, count, command->operands_least);
    else
        code = status_fail(ERR_USAGE, __FILE__, __LINE__,
                           "%s takes %s; unexpected operand: %s", command->name,
                           command->operands[0] ? command->operands
                                                : "no operand",
                           arguments->operands[command->operands_most]);
    example_call(command, call, sizeof call);
    return status_hint(code, "for example: %s", call);
}

/* Whether `other` names the file that `written` would replace, or the file that
 * will be there. */
static bool is_same(const struct given *written, const struct given *other)
{
    const char *path = written->value;

    if (file_is_same(path, other->value)) return true;
    return other->flag->use == OUTPUT && strcmp(path, other->value) == 0 &&
           !file_exists(path);
}

/* A result in the place of what it is made of would be the end of both. */
static status outputs_check(const struct arguments *arguments)
{
    for (int i = 0; i < arguments->given_count; i++) {
        const struct given *out = &arguments->given[i];

        if (out->flag->use != OUTPUT) continue;
        for (int j = 0; j < arguments->operand_count; j++)
            if (file_is_same(out->value, arguments->operands[j]))
                FAIL(ERR_USAGE, "--%s %s: the command reads that file; "
                                "expected another one to write",
                     out->flag->name, out->value);
        for (int j = 0; j < arguments->given_count; j++)
            if (j != i && is_same(out, &arguments->given[j]))
                FAIL(ERR_USAGE, "--%s and --%s name the same file, %s; "
                                "expected another one to write",
                     out->flag->name, arguments->given[j].flag->name,
                     out->value);
    }
    return OK;
}

static bool asks_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) return false;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

status arguments_parse(struct arguments *arguments,
                       const struct command *command, int argc, char **argv)
{
    void *taken;
    bool only_operands = false;

    arguments->command = command;
    arena_init(&arguments->arena, "command line", 0);
    if (asks_help(argc, argv)) {
        arguments->help = true;
        return OK;
    }
    TRY(arena_take_array(&arguments->arena, (size_t)argc + 1,
                         sizeof *arguments->operands, &taken));
    arguments->operands = taken;
    TRY(arena_take_array(&arguments->arena, (size_t)argc + 1,
                         sizeof *arguments->given, &taken));
    arguments->given = taken;
    for (int at = 0; at < argc;) {
        const char *word = argv[at];

        if (only_operands || word[0] != '-' || word[1] == '\0') {
            arguments->operands[arguments->operand_count++] = word;
            at++;
        } else if (strcmp(word, "--") == 0) {
            only_operands = true;
            at++;
        } else if (word[1] == '-') {
            TRY(flag_parse(arguments, argc, argv, &at));
        } else {
            FAIL(ERR_USAGE, "%s: flags have two dashes, found %s",
                 command->name, word);
        }
    }
    TRY(operands_check(arguments));
    return outputs_check(arguments);
}

void arguments_free(struct arguments *arguments)
{
    arena_free(&arguments->arena);
    *arguments = (struct arguments){0};
}

bool arguments_has(const struct arguments *arguments, const char *flag)
{
    return arguments_text(arguments, flag, NULL) != NULL;
}

status arguments_not_both(const struct arguments *arguments, const char *one,
                          const char *other)
{
    if (arguments_has(arguments, one) && arguments_has(arguments, other))
        FAIL(ERR_USAGE, "--%s and --%s: choose one of them", one, other);
    return OK;
}

const char *arguments_text(const struct arguments *arguments, const char *flag,
                           const char *other)
{
    for (int i = 0; i < arguments->given_count; i++)
        if (strcmp(arguments->given[i].flag->name, flag) == 0)
            return arguments->given[i].value;
    return other;
}

/* A number as people write it, "15T" or "1e9": how it is written here; "": it
 * is none. */
static const char *written(const char *value, bool whole, char *out,
                           size_t size)
{
    static const struct { const char *name; double factor; } units[] = {
        {"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9},
        {"T", 1e12}};
    char *end;
    double parsed = strtod(value, &end);
    size_t unit = 0;

    out[0] = '\0';
    while (unit < sizeof units / sizeof *units &&
           strcmp(end, units[unit].name) != 0)
        unit++;
    if (end == value || unit == sizeof units / sizeof *units) return out;
    parsed *= units[unit].factor;
    if (!isfinite(parsed) || (whole && (parsed != floor(parsed) ||
                                        fabs(parsed) > 9e15)))
        return out;
    snprintf(out, size, whole ? "; write %.0f" : "; write %.15g", parsed);
    return out;
}

status arguments_integer(const struct arguments *arguments, const char *flag,
                         int64_t least, int64_t most, int64_t *out)
{
    const char *value = arguments_text(arguments, flag, NULL);
    char *end, other[48];
    long long parsed;

    if (value == NULL) return OK;
    errno = 0;
    parsed = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0)
        FAIL(ERR_USAGE, "--%s: \"%s\" is not a whole number%s", flag, value,
             written(value, true, other, sizeof other));
    if (parsed < least || parsed > most)
        FAIL(ERR_USAGE, "--%s: %lld is outside %lld to %lld", flag, parsed,
             (long long)least, (long long)most);
    *out = parsed;
    return OK;
}

status arguments_real(const struct arguments *arguments, const char *flag,
                      double least, double most, double *out)
{
    const char *value = arguments_text(arguments, flag, NULL);
    char *end, other[48];
    double parsed;

    if (value == NULL) return OK;
    parsed = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(parsed))
        FAIL(ERR_USAGE, "--%s: \"%s\" is not a number%s", flag, value,
             written(value, false, other, sizeof other));
    if (parsed < least || parsed > most)
        FAIL(ERR_USAGE, "--%s: %g is outside %g to %g", flag, parsed, least,
             most);
    *out = parsed;
    return OK;
}

status arguments_bytes(const struct arguments *arguments, const char *flag,
                       double most, double *out)
{
    static const struct { const char *name; double bytes; } units[] = {
        {"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
        {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    enum { UNITS = sizeof units / sizeof *units };
    const char *value = arguments_text(arguments, flag, NULL);
    char *end;
    double parsed;
    int unit = 0;

    if (value == NULL) return OK;
    parsed = strtod(value, &end);
    while (*end == ' ') end++;
    while (unit < UNITS && strcmp(end, units[unit].name) != 0) unit++;
    if (end == value || unit == UNITS || !isfinite(parsed))
        FAIL(ERR_USAGE, "--%s: \"%s\" is not bytes, such as 40e9, 80GiB or "
                        "80GB", flag, value);
    parsed *= units[unit].bytes;
    if (parsed < 1 || parsed > most)
        FAIL(ERR_USAGE, "--%s: %g bytes are outside 1 to %g", flag, parsed,
             most);
    *out = parsed;
    return OK;
}

status arguments_choice(const struct arguments *arguments, const char *flag,
                        const char *const *names, int count, int *out)
{
    const char *value = arguments_text(arguments, flag, NULL);
    const char *nearest;
    char all[256] = "";

    if (value == NULL) return OK;
    if (strcmp(flag, "dtype") == 0) value = options_type_name(value);
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], value) == 0) {
            *out = i;
            return OK;
        }
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                 i == 0 ? "" : ", ", names[i]);
    }
    nearest = text_nearest(value, names, count);
    FAIL(ERR_USAGE, "--%s: \"%s\" is none of %s%s%s", flag, value, all,
         nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

status arguments_average(const struct arguments *arguments, bool *average)
{
    static const char *const weights[] = {"trained", "ema"};
    int which = 0;

    TRY(arguments_choice(arguments, "weights", weights, 2, &which));
    *average = which == 1;
    return OK;
}

status arguments_device(const struct arguments *arguments,
                        enum device_kind *device)
{
    return device_parse(device, arguments_text(arguments, "device", "auto"));
}
