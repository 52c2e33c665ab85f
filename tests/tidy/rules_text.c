/* SPDX-License-Identifier: Apache-2.0 */
/* rules_text.c - rules that read lines: lengths, licence, opening comment,
 * debts, paths of one machine, first words of comments. */
#include "tidy.h"

#include <ctype.h>
#include <string.h>

/* Code points of UTF-8, so that a drawing may use boxes. */
static int columns(const char *line, size_t bytes)
{
    int count = 0;

    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)line[i] & 0xc0) != 0x80) count++;
    return count;
}

static bool is_narrow(const struct source *source)
{
    return source->is_c
           && (path_begins(source->path, "src/")
               || path_begins(source->path, "include/")
               || path_begins(source->path, "tests/"));
}

static void rule_lines(struct tidy *tidy, const struct source *source)
{
    const char *at = source->text;
    int line = 0;

    while (*at) {
        const size_t bytes = strcspn(at, "\n");
        const int wide = columns(at, bytes);

        line++;
        if (is_narrow(source) && wide > LIMIT_COLUMNS)
            tidy_report(tidy, "columns", source->path, line,
                        "%d columns, at most %d", wide, LIMIT_COLUMNS);
        if (source->is_c && memchr(at, '\t', bytes))
            tidy_report(tidy, "space", source->path, line, "a tab");
        if (source->is_code && bytes > 0 && (at[bytes - 1] == ' '
                                             || at[bytes - 1] == '\r'))
            tidy_report(tidy, "space", source->path, line,
                        "space at the end of a line");
        at += bytes + (at[bytes] == '\n');
    }
    if (source->is_code && line > LIMIT_FILE_LINES)
        tidy_report(tidy, "file", source->path, line,
                    "%d lines, at most %d", line, LIMIT_FILE_LINES);
}

/* In the first line; in the second after #!. */
static void rule_licence(struct tidy *tidy, const struct source *source)
{
    const char *at = source->text;
    const char *second = strchr(at, '\n');
    static const char words[] = "SPDX-License-Identifier: Apache-2.0";

    if (!source->is_code) return;
    if (at[0] == '#' && at[1] == '!' && second) at = second + 1;
    const char *found = strstr(at, words);
    if (!found || memchr(at, '\n', (size_t)(found - at)))
        tidy_report(tidy, "licence", source->path, 1,
                    "the first line has no %s", words);
}

/* A C file opens with its own name, a dash and what it is for. */
static void rule_opening(struct tidy *tidy, const struct source *source)
{
    const char *slash = strrchr(source->path, '/');
    const char *name = slash ? slash + 1 : source->path;
    const char *comment = strstr(source->text, "\n/* ");

    if (!source->is_c) return;
    if (!comment || !path_begins(comment + 4, name)
        || !path_begins(comment + 4 + strlen(name), " - "))
        tidy_report(tidy, "opening", source->path, 2,
                    "the second comment is not \"%s - what it is for\"",
                    name);
}

static int line_of(const struct source *source, const char *at)
{
    int line = 1;

    for (const char *p = source->text; p < at; p++) line += *p == '\n';
    return line;
}

/* A debt is TO-DO(name, #issue): anything else is a wish. */
static void rule_debt(struct tidy *tidy, const struct source *source)
{
    static const char *const words[] = {"TO" "DO", "FIX" "ME", "XX" "X",
                                        "HA" "CK"};

    for (size_t i = 0; source->is_code && i < sizeof words / sizeof *words;
         i++) {
        const char *at = source->text;
        const size_t length = strlen(words[i]);

        for (; (at = strstr(at, words[i])); at += length) {
            const char *close = strchr(at, ')');
            const char *number = strchr(at, '#');
            const bool word = !isalnum((unsigned char)at[length])
                              && (at == source->text
                                  || !isalnum((unsigned char)at[-1]));
            const bool owned = at[length] == '(' && close && number
                               && number < close && i == 0;

            if (word && !owned)
                tidy_report(tidy, "debt", source->path, line_of(source, at),
                            "%s without (name, #issue)", words[i]);
        }
    }
}

/* Paths that exist on one machine only. */
static void rule_paths(struct tidy *tidy, const struct source *source)
{
    static const char *const paths[] = {"/wo" "rk/", "/ro" "ot/",
                                        "/ho" "me/", "../sha" "red"};

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *at = strstr(source->text, paths[i]);
        /* A test may read shared files where they happen to be. */
        const bool allowed = i == 3 && path_begins(source->path, "tests/");

        if (at && !allowed)
            tidy_report(tidy, "path", source->path, line_of(source, at),
                        "%s exists on one machine only", paths[i]);
    }
}

/* The length of a word at `at` that begins no plain sentence; 0: none. */
static size_t riddle(const char *at)
{
    static const char *const words[] = {"What", "Of", "Who", "Whoever",
                                        "what", "of", "who", "whoever",
                                        "Those", "The same of",
                                        "The same where", "The same for",
                                        "The same with", "The same by"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t length = strlen(words[i]);

        if (path_begins(at, words[i]) && !isalnum((unsigned char)at[length]))
            return length;
    }
    return 0;
}

/* A comment, or a line of one, begins with a subject. So does the sentence of
 * a file's opening, behind its dash. */
static void rule_english(struct tidy *tidy, const struct source *source)
{
    const char *opening = strstr(source->text, "\n/* ");
    const char *dash = opening ? strstr(opening, " - ") : NULL;
    const char *at = source->text;

    if (!is_narrow(source)) return;
    if (dash && !memchr(opening + 1, '\n', (size_t)(dash - opening - 1))
        && riddle(dash + 3))
        tidy_report(tidy, "english", source->path, line_of(source, dash),
                    "the opening begins with \"%.*s\", not with its subject",
                    (int)riddle(dash + 3), dash + 3);
    for (; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        const size_t bytes = strcspn(at, "\n");
        const char *text = at + strspn(at, " ");
        const char *comment = strstr(at, "/* ");

        if (path_begins(text, "* ")) text += 2;
        else if (comment && comment < at + bytes) text = comment + 3;
        else continue;
        if (isupper((unsigned char)*text) && riddle(text))
            tidy_report(tidy, "english", source->path, line_of(source, at),
                        "a comment begins with \"%.*s\", not with its "
                        "subject", (int)riddle(text), text);
    }
}

/* Likewise the comments of scripts. */
static void rule_script_english(struct tidy *tidy, const struct source *source)
{
    const char *at = source->text;

    if (!path_ends(source->path, ".sh")) return;
    for (; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        const char *text = at + strspn(at, " ");

        if (!path_begins(text, "# ") || !isupper((unsigned char)text[2]) ||
            riddle(text + 2) == 0)
            continue;
        tidy_report(tidy, "english", source->path, line_of(source, at),
                    "a comment begins with \"%.*s\", not with its subject",
                    (int)riddle(text + 2), text + 2);
    }
}

void rules_text(struct tidy *tidy)
{
    for (int i = 0; i < tidy->source_count; i++) {
        const struct source *source = &tidy->sources[i];

        rule_lines(tidy, source);
        rule_licence(tidy, source);
        rule_opening(tidy, source);
        rule_debt(tidy, source);
        rule_paths(tidy, source);
        rule_english(tidy, source);
        rule_script_english(tidy, source);
    }
}
