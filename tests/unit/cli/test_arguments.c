/* SPDX-License-Identifier: Apache-2.0 */
/* test_arguments.c - mirrors src/cli/arguments.c and the search of
 * src/cli/commands.c. */
#include "cli/command.h"
#include "tests/test.h"

static status do_nothing(struct arguments *arguments)
{
    (void)arguments;
    return OK;
}

static const struct command sample = {
    "sample", "FILE...", 1, OPERANDS_ANY, "", "", "lockstep sample x", false,
    do_nothing,
    {{"count", "N", "", ONCE}, {"rate", "X", "", ONCE},
     {"kind", "KIND", "", ONCE}, {"set", "K=V", "", REPEATS},
     {"json", NULL, "", ONCE}, {"draw", "FILE.svg", "", OUTPUT},
     {"text", "FILE", "", OUTPUT}, {"out", "N", "", ONCE}}};

enum { WORDS_MAX = 16 };

/* The words of `line`, apart by single spaces. */
static int words_of(char *line, char **words)
{
    char *rest = line;
    int count = 0;

    while (count < WORDS_MAX && rest != NULL && *rest != '\0') {
        words[count++] = rest;
        rest = strchr(rest, ' ');
        if (rest != NULL) *rest++ = '\0';
    }
    return count;
}

static status parse(struct arguments *arguments, const char *line,
                    char buffer[256])
{
    char *words[WORDS_MAX];

    snprintf(buffer, 256, "%s", line);
    *arguments = (struct arguments){0};
    return arguments_parse(arguments, &sample, words_of(buffer, words), words);
}

TEST(flags_and_operands_mix)
{
    struct arguments arguments;
    char buffer[256];
    int64_t count = 5;
    double rate = 0;
    int repeats = 0;

    IS_OK(parse(&arguments, "a --count=12 b --set x=1 --set=y=2 --json --rate "
                            "-0.5", buffer));
    EQUAL_INT(arguments.operand_count, 2);
    EQUAL_TEXT(arguments.operands[1], "b");
    IS_OK(arguments_integer(&arguments, "count", 0, 100, &count));
    EQUAL_INT(count, 12);
    IS_OK(arguments_real(&arguments, "rate", -1, 1, &rate));
    CHECK(rate == -0.5);
    CHECK(arguments_has(&arguments, "json"));
    CHECK(!arguments_has(&arguments, "kind"));
    for (int i = 0; i < arguments.given_count; i++)
        repeats += strcmp(arguments.given[i].flag->name, "set") == 0;
    EQUAL_INT(repeats, 2);
    EQUAL_TEXT(arguments_text(&arguments, "set", ""), "x=1");
    arguments_free(&arguments);
}

TEST(after_two_dashes_all_is_operand)
{
    struct arguments arguments;
    char buffer[256];

    IS_OK(parse(&arguments, "- -- --json --help", buffer));
    EQUAL_INT(arguments.operand_count, 3);
    EQUAL_TEXT(arguments.operands[1], "--json");
    CHECK(!arguments.help);
    arguments_free(&arguments);
}

TEST(help_wins_over_mistakes)
{
    struct arguments arguments;
    char buffer[256];

    IS_OK(parse(&arguments, "--nonsense --help", buffer));
    CHECK(arguments.help);
    arguments_free(&arguments);
}

TEST(mistakes_name_the_nearest)
{
    static const struct {
        const char *line, *words;
    } rows[] = {
        {"a --cuont 3", "nearest is --count"},
        {"a --zzzzzz", "no flag --zzzzzz"},
        {"a --count", "needs a value: --count N"},
        {"a --count --json", "needs a value"},
        {"a --json=yes", "takes no value"},
        {"a --count 1 --count 2", "given twice"},
        {"a -x", "two dashes"},
        {"--json", "needs FILE..., found 0 of 1"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct arguments arguments;
        char buffer[256];

        FAILS(parse(&arguments, rows[i].line, buffer), ERR_USAGE,
              rows[i].words);
        arguments_free(&arguments);
    }
}

/* Guards a corpus, a task or a configuration that is named twice. */
TEST(a_result_does_not_replace_what_is_read)
{
    static const struct {
        const char *line, *words; /* @: the directory */
    } rows[] = {
        {"@/in --draw @/in", "the command reads that file"},
        {"@/in --draw @/../%/link", "the command reads that file"},
        {"a --kind @/in --text @/in", "--text and --kind name the same file"},
        {"a --draw @/new --text @/new", "--draw and --text name the same"},
        {"@/in --draw @/new --text @/other", NULL},
        {"@ --draw /dev/null --text /dev/null", NULL},
        {"12 --out 12", NULL}};
    char directory[PATH_BYTES], in[PATH_BYTES], link[PATH_BYTES];

    test_directory(directory);
    IS_OK(path_join(in, sizeof in, directory, "in"));
    IS_OK(path_join(link, sizeof link, directory, "link"));
    IS_OK(file_write_atomic(in, "x", 1));
    EQUAL_INT(symlink("in", link), 0);
    for (int i = 0; i < ROWS(rows); i++) {
        const char *name = strrchr(directory, '/') + 1;
        struct arguments arguments;
        char line[256] = "", buffer[256];

        for (const char *c = rows[i].line; *c != '\0'; c++) {
            const size_t used = strlen(line);

            snprintf(line + used, sizeof line - used, "%.*s",
                     *c == '@' || *c == '%' ? 100 : 1,
                     *c == '@' ? directory : *c == '%' ? name : c);
        }
        if (rows[i].words == NULL)
            IS_OK(parse(&arguments, line, buffer));
        else
            FAILS(parse(&arguments, line, buffer), ERR_USAGE, rows[i].words);
        arguments_free(&arguments);
    }
    IS_OK(directory_remove(directory));
}

TEST(values_are_checked)
{
    static const char *const kinds[] = {"red", "green"};
    struct arguments arguments;
    char buffer[256];
    int64_t count = 7;
    double rate = 7;
    int kind = 7;

    IS_OK(parse(&arguments, "a --count 12x --rate inf --kind gren", buffer));
    FAILS(arguments_integer(&arguments, "count", 0, 9, &count), ERR_USAGE,
          "\"12x\" is not a whole number");
    FAILS(arguments_real(&arguments, "rate", 0, 9, &rate), ERR_USAGE,
          "not a number");
    FAILS(arguments_choice(&arguments, "kind", kinds, 2, &kind), ERR_USAGE,
          "none of red, green; the nearest is green");
    EQUAL_INT(count + (int64_t)rate + kind, 21); /* untouched */
    arguments_free(&arguments);
    IS_OK(parse(&arguments, "a --count 12 --kind green", buffer));
    FAILS(arguments_integer(&arguments, "count", 0, 9, &count), ERR_USAGE,
          "12 is outside 0 to 9");
    IS_OK(arguments_choice(&arguments, "kind", kinds, 2, &kind));
    EQUAL_INT(kind, 1);
    IS_OK(arguments_real(&arguments, "rate", 0, 9, &rate)); /* not given */
    CHECK(rate == 7);
    arguments_free(&arguments);
}

TEST(commands_are_found)
{
    static const struct {
        const char *line, *name;
        int words;
    } found[] = {{"version --json", "version", 1}, {"score x", "score", 1}};
    static const struct {
        const char *line, *words;
    } lost[] = {{"scroe x", "the nearest is score"},
                {"zzzzzzzz", "no command zzzzzzzz"},
                {"", "no command"}};
    char buffer[256], *words[WORDS_MAX] = {buffer};
    const struct command *command;
    int count;

    for (int i = 0; i < ROWS(found); i++) {
        snprintf(buffer, sizeof buffer, "%s", found[i].line);
        IS_OK(command_find(words_of(buffer, words), words, &command, &count));
        EQUAL_TEXT(command->name, found[i].name);
        EQUAL_INT(count, found[i].words);
    }
    for (int i = 0; i < ROWS(lost); i++) {
        snprintf(buffer, sizeof buffer, "%s", lost[i].line);
        words[0] = buffer;
        words_of(buffer, words);
        FAILS(command_find(1, words, &command, &count), ERR_USAGE,
              lost[i].words);
    }
}

/* Every row can be shown, and its example names it. */
TEST(every_row_is_whole)
{
    for (int i = 0; i < command_count; i++) {
        struct text help = {0};
        char start[64];

        snprintf(start, sizeof start, "lockstep %s", commands[i].name);
        IS_OK(help_command(&commands[i], &help));
        CHECK(strstr(help.bytes, "example:\n  ") != NULL);
        CHECK(strstr(commands[i].example, start) != NULL);
        CHECK(commands[i].summary[0] >= 'a' && commands[i].summary[0] <= 'z');
        text_free(&help);
    }
}

TEST_MAIN(flags_and_operands_mix, after_two_dashes_all_is_operand,
          help_wins_over_mistakes, mistakes_name_the_nearest,
          a_result_does_not_replace_what_is_read,
          values_are_checked, commands_are_found, every_row_is_whole)
