/* SPDX-License-Identifier: Apache-2.0 */
/* tidy.h - is the tree still in our style? Limits, layers, dead code.
 *
 * tidy walks the project, reads every text file once, cuts C files into
 * tokens and hands the whole to each rule. A rule reports (rule, file, line,
 * sentence). What exceptions.txt lists is not reported; an exception that
 * nothing needs any more is. It depends on the C library alone, so that it
 * runs when the project does not build. */
#ifndef TESTS_TIDY_TIDY_H
#define TESTS_TIDY_TIDY_H

#include <stdbool.h>
#include <stddef.h>

enum limit {
    LIMIT_FILE_LINES = 700,
    LIMIT_FUNCTION_LINES = 70,
    LIMIT_SWITCH_LINES = 120, /* of a function around one switch */
    LIMIT_COLUMNS = 80,
    LIMIT_PARAMETERS = 6,
    LIMIT_NESTING = 4
};

enum token_kind { TOKEN_NAME, TOKEN_NUMBER, TOKEN_TEXT, TOKEN_MARK };

struct token {
    const char *text; /* borrowed from the source, not terminated */
    int length;
    int line; /* from 1 */
    enum token_kind kind;
    bool preprocessor; /* part of a # line */
};

/* A function definition or, where body_first == body_last, a prototype. */
struct function {
    const struct token *name;
    int parameters;
    int line_first, line_last;
    int body_first, body_last; /* tokens of { and } */
    bool is_static;
};

struct include {
    char path[200];
    int line;
    bool system; /* <...> */
};

struct source {
    char path[600];     /* from the root, with slashes */
    char folder[100];   /* first folder below src, or "" */
    const char *text;   /* owned, terminated */
    size_t size;        /* bytes */
    bool is_c;          /* .c or .h: has tokens */
    bool is_code;       /* .c .h .def .py .sh, Makefile, .ci/run */
    struct token *tokens; /* owned */
    int token_count;
    struct function *functions; /* owned */
    int function_count;
    struct include *includes; /* owned */
    int include_count;
};

struct exception {
    char rule[40], path[300];
    bool used;
};

struct tidy {
    const char *root;
    const char *objects; /* directory of object files, or NULL */
    struct source *sources; /* owned, sorted by path */
    int source_count;
    struct exception *exceptions; /* owned */
    int exception_count;
    const char *expected_rule; /* of a fixture, or NULL */
    int report_count, expected_count;
};

/* Prints `path:line: rule: sentence` and counts it. */
void tidy_report(struct tidy *tidy, const char *rule, const char *path,
                 int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Fills the tokens, functions and includes of a C file. */
void source_parse(struct source *source);
/* Memory that grows by doubling; stops the program when there is none. */
void *tidy_grow(void *items, int count, size_t size);
bool token_is(const struct token *token, const char *text);
bool path_ends(const char *path, const char *end);
bool path_begins(const char *path, const char *begin);
/* The source of that path, or NULL. */
struct source *tidy_find(struct tidy *tidy, const char *path);

/* Rules: each looks at the whole tree. */
void rules_text(struct tidy *tidy);     /* rules_text.c */
void rules_function(struct tidy *tidy); /* rules_function.c */
void rules_project(struct tidy *tidy);  /* rules_project.c */
void rules_symbol(struct tidy *tidy);   /* rules_symbol.c */

#endif
