/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - cuts a C file into tokens, functions and includes.
 *
 * Not a compiler: comments and white space are dropped, # lines are marked,
 * and a function is what looks like one at file scope, name (...) {. */
#include "tidy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scanner {
    const char *at, *end;
    int line;
    bool line_empty;   /* nothing but space so far on this line */
    bool preprocessor; /* inside a # line */
};

static void scanner_next_line(struct scanner *s)
{
    const bool continued = s->at[-1] == '\\';

    s->at++;
    s->line++;
    s->line_empty = true;
    if (!continued) s->preprocessor = false;
}

static void skip_block_comment(struct scanner *s)
{
    s->at += 2;
    while (s->at + 1 < s->end && !(s->at[0] == '*' && s->at[1] == '/')) {
        if (*s->at == '\n') s->line++;
        s->at++;
    }
    s->at = s->at + 2 < s->end ? s->at + 2 : s->end;
}

static void skip_line_comment(struct scanner *s)
{
    while (s->at < s->end && *s->at != '\n') s->at++;
}

static int text_length(const struct scanner *s)
{
    const char quote = *s->at;
    const char *p = s->at + 1;

    while (p < s->end && *p != quote && *p != '\n')
        p += *p == '\\' && p + 1 < s->end ? 2 : 1;
    return (int)(p - s->at) + (p < s->end ? 1 : 0);
}

static int word_length(const struct scanner *s)
{
    const char *p = s->at;

    while (p < s->end && (isalnum((unsigned char)*p) || *p == '_')) p++;
    return (int)(p - s->at);
}

static void token_add(struct source *source, struct scanner *s)
{
    struct token token = {.text = s->at, .line = s->line,
                          .preprocessor = s->preprocessor};
    const unsigned char c = (unsigned char)*s->at;

    if (isalpha(c) || c == '_') {
        token.kind = TOKEN_NAME;
        token.length = word_length(s);
    } else if (isdigit(c)) {
        token.kind = TOKEN_NUMBER;
        token.length = word_length(s);
    } else if (c == '"' || c == '\'') {
        token.kind = TOKEN_TEXT;
        token.length = text_length(s);
    } else {
        token.kind = TOKEN_MARK;
        token.length = 1;
    }
    s->at += token.length;
    source->tokens = tidy_grow(source->tokens, source->token_count,
                               sizeof token);
    source->tokens[source->token_count++] = token;
}

static void tokens_cut(struct source *source)
{
    struct scanner s = {.at = source->text, .line = 1, .line_empty = true};

    s.end = source->text + source->size;
    while (s.at < s.end) {
        if (*s.at == '\n') {
            if (s.at == source->text) s.at++, s.line++;
            else scanner_next_line(&s);
        } else if (isspace((unsigned char)*s.at) || *s.at == '\\') {
            s.at++;
        } else if (s.at[0] == '/' && s.at[1] == '*') {
            skip_block_comment(&s);
        } else if (s.at[0] == '/' && s.at[1] == '/') {
            skip_line_comment(&s);
        } else {
            if (*s.at == '#' && s.line_empty) s.preprocessor = true;
            s.line_empty = false;
            token_add(source, &s);
        }
    }
}

bool token_is(const struct token *token, const char *text)
{
    return (size_t)token->length == strlen(text)
           && memcmp(token->text, text, strlen(text)) == 0;
}

/* #include "a/b.h" or <b.h>. */
static void includes_find(struct source *source)
{
    for (int i = 0; i + 2 < source->token_count; i++) {
        const struct token *t = &source->tokens[i];
        struct include found = {.line = t->line};
        const char *begin, *end;

        if (!t->preprocessor || !token_is(t, "#")
            || !token_is(&t[1], "include"))
            continue;
        begin = t[2].text + 1;
        end = strpbrk(begin, "\">\n");
        if (!end || end - begin >= (long)sizeof found.path) continue;
        found.system = t[2].text[0] == '<';
        memcpy(found.path, begin, (size_t)(end - begin));
        source->includes = tidy_grow(source->includes, source->include_count,
                                     sizeof found);
        source->includes[source->include_count++] = found;
    }
}

/* The token after the mark that closes the one at `open`. */
static int after_closing(const struct source *source, int open, char left,
                         char right)
{
    int depth = 0;

    for (int i = open; i < source->token_count; i++) {
        const struct token *t = &source->tokens[i];

        if (t->preprocessor || t->kind != TOKEN_MARK) continue;
        if (*t->text == left) depth++;
        if (*t->text == right && --depth == 0) return i + 1;
    }
    return source->token_count;
}

/* Commas between the parentheses at `open`, plus one; (void) and () are 0. */
static int parameters_count(const struct source *source, int open)
{
    const int end = after_closing(source, open, '(', ')') - 1;
    int depth = 0, count = 1;

    if (end <= open + 1) return 0;
    if (end == open + 2 && token_is(&source->tokens[open + 1], "void"))
        return 0;
    for (int i = open; i < end; i++) {
        const char c = *source->tokens[i].text;

        if (source->tokens[i].kind != TOKEN_MARK) continue;
        if (c == '(' || c == '[' || c == '{') depth++;
        if (c == ')' || c == ']' || c == '}') depth--;
        if (c == ',' && depth == 1) count++;
    }
    return count;
}

/* Looks at tokens [first, last) of file scope, which end before ; or {.
 * True and *found when they declare or define a function. */
static bool function_read(const struct source *source, int first, int last,
                          struct function *found)
{
    *found = (struct function){0};
    for (int i = first; i < last; i++) {
        const struct token *t = &source->tokens[i];

        if (t->preprocessor) continue;
        if (token_is(t, "typedef") || token_is(t, "=") || token_is(t, "{"))
            return false;
        if (token_is(t, "static")) found->is_static = true;
        if (t->kind != TOKEN_NAME || i + 1 >= last
            || !token_is(&t[1], "("))
            continue;
        if (token_is(t, "__attribute__") || token_is(t, "_Alignas")
            || token_is(t, "_Static_assert")) {
            i = after_closing(source, i + 1, '(', ')') - 1;
            continue;
        }
        found->name = t;
        found->line_first = source->tokens[first].line;
        int open = i + 1;
        const int next = after_closing(source, open, '(', ')');
        /* NAME(add)(...): the second pair holds the parameters. */
        if (next < last && token_is(&source->tokens[next], "(")) open = next;
        found->parameters = parameters_count(source, open);
        return true;
    }
    return false;
}

static void functions_find(struct source *source)
{
    int first = 0;

    for (int i = 0; i < source->token_count; i++) {
        const struct token *t = &source->tokens[i];
        struct function found;

        if (t->preprocessor) {
            if (first == i) first = i + 1;
            continue;
        }
        const bool opens = token_is(t, "{");
        if (!opens && !token_is(t, ";")) continue;
        /* extern "C" { */
        if (opens && i > 0 && source->tokens[i - 1].kind == TOKEN_TEXT) {
            first = i + 1;
            continue;
        }
        const int end = opens ? after_closing(source, i, '{', '}') : i + 1;
        if (function_read(source, first, i, &found)) {
            found.body_first = i;
            found.body_last = end - 1;
            found.line_last = source->tokens[end - 1].line;
            source->functions = tidy_grow(
                source->functions, source->function_count, sizeof found);
            source->functions[source->function_count++] = found;
            first = end;
        } else if (!opens) {
            first = end;
        }
        i = end - 1;
    }
}

void source_parse(struct source *source)
{
    tokens_cut(source);
    includes_find(source);
    functions_find(source);
}
