/* SPDX-License-Identifier: Apache-2.0 */
/* rules_function.c - rules that read tokens: length, parameters and nesting
 * of functions, calls that are banned, tests that no table lists. */
#include "tidy.h"

#include <string.h>

enum { STACK_MAX = 200 };

/* The kinds of an open statement. A CONTROL has a body without braces, a BLOCK
 * has braces and belongs to a control, a PLAIN brace does not count. */
enum frame { FRAME_CONTROL, FRAME_IF, FRAME_DO, FRAME_BLOCK, FRAME_IF_BLOCK,
             FRAME_DO_BLOCK, FRAME_PLAIN };

struct nesting {
    enum frame stack[STACK_MAX];
    int depth;   /* frames */
    int counted; /* frames that are not plain */
    int deepest, line;
};

static void push(struct nesting *n, enum frame frame, int line)
{
    if (n->depth < STACK_MAX) n->stack[n->depth++] = frame;
    n->counted += frame != FRAME_PLAIN;
    if (n->counted > n->deepest) {
        n->deepest = n->counted;
        n->line = line;
    }
}

static enum frame pop(struct nesting *n)
{
    if (n->depth == 0) return FRAME_PLAIN;
    const enum frame frame = n->stack[--n->depth];
    n->counted -= frame != FRAME_PLAIN;
    return frame;
}

/* The body of a control begins with {: its frame becomes a block. */
static bool becomes_block(struct nesting *n)
{
    if (n->depth == 0) return false;
    enum frame *top = &n->stack[n->depth - 1];

    switch (*top) {
    case FRAME_CONTROL: *top = FRAME_BLOCK; return true;
    case FRAME_IF: *top = FRAME_IF_BLOCK; return true;
    case FRAME_DO: *top = FRAME_DO_BLOCK; return true;
    case FRAME_BLOCK:
    case FRAME_IF_BLOCK:
    case FRAME_DO_BLOCK:
    case FRAME_PLAIN: break;
    }
    return false;
}

/* A statement is over: so are the controls that waited for it, up to an if
 * whose else comes next. */
static void statement_end(struct nesting *n, bool else_follows)
{
    while (n->depth > 0) {
        const enum frame top = n->stack[n->depth - 1];

        if (top != FRAME_CONTROL && top != FRAME_IF) return;
        pop(n);
        if (top == FRAME_IF && else_follows) return;
    }
}

static int skip_parentheses(const struct source *source, int open)
{
    int depth = 0;

    for (int i = open; i < source->token_count; i++) {
        const struct token *t = &source->tokens[i];

        if (t->preprocessor || t->kind != TOKEN_MARK) continue;
        if (*t->text == '(') depth++;
        if (*t->text == ')' && --depth == 0) return i;
    }
    return source->token_count - 1;
}

static bool is_control(const struct token *t)
{
    return t->kind == TOKEN_NAME
           && (token_is(t, "if") || token_is(t, "for")
               || token_is(t, "while") || token_is(t, "switch"));
}

static void close_brace(struct nesting *n, const struct source *source,
                        int *at)
{
    const enum frame frame = pop(n);
    const bool else_follows = token_is(&source->tokens[*at + 1], "else");

    if (frame == FRAME_DO_BLOCK) /* skip its while (...) */
        *at = skip_parentheses(source, *at + 2);
    else if (frame == FRAME_IF_BLOCK && else_follows)
        return;
    else if (frame != FRAME_PLAIN)
        statement_end(n, else_follows);
}

/* Returns the last token that it has read. */
static int nesting_step(struct nesting *n, const struct source *source, int i)
{
    const struct token *t = &source->tokens[i];

    if (is_control(t)) {
        push(n, token_is(t, "if") ? FRAME_IF : FRAME_CONTROL, t->line);
        i = skip_parentheses(source, i + 1);
        if (token_is(&source->tokens[i + 1], "{")) becomes_block(n), i++;
    } else if (token_is(t, "do") || token_is(t, "else")) {
        if (token_is(t, "else") && token_is(&t[1], "if"))
            return i; /* one level with its if */
        push(n, token_is(t, "do") ? FRAME_DO : FRAME_CONTROL, t->line);
        if (token_is(&t[1], "{")) becomes_block(n), i++;
    } else if (token_is(t, "(")) {
        i = skip_parentheses(source, i);
    } else if (token_is(t, "{")) {
        push(n, FRAME_PLAIN, t->line);
    } else if (token_is(t, "}")) {
        close_brace(n, source, &i);
    } else if (token_is(t, ";")) {
        statement_end(n, token_is(&t[1], "else"));
    }
    return i;
}

static void rule_nesting(struct tidy *tidy, const struct source *source,
                         const struct function *f)
{
    struct nesting nesting = {0};

    for (int i = f->body_first + 1; i < f->body_last; i++)
        if (!source->tokens[i].preprocessor)
            i = nesting_step(&nesting, source, i);
    if (nesting.deepest > LIMIT_NESTING)
        tidy_report(tidy, "nesting", source->path, nesting.line,
                    "%.*s is %d deep, at most %d", f->name->length,
                    f->name->text, nesting.deepest, LIMIT_NESTING);
}

static void rule_length(struct tidy *tidy, const struct source *source,
                        const struct function *f)
{
    const int lines = f->line_last - f->line_first + 1;
    int switches = 0;

    for (int i = f->body_first; i < f->body_last; i++)
        switches += token_is(&source->tokens[i], "switch");
    const int limit = switches == 1 ? LIMIT_SWITCH_LINES
                                    : LIMIT_FUNCTION_LINES;
    if (lines > limit)
        tidy_report(tidy, "function", source->path, f->line_first,
                    "%.*s has %d lines, at most %d", f->name->length,
                    f->name->text, lines, limit);
}

/* Calls that one file may make, or none. */
static const struct ban {
    const char *name, *where, *why;
} bans[] = {
    {"malloc", "src/base/arena.c", "use an arena or memory_take"},
    {"calloc", "src/base/arena.c", "use an arena or memory_take"},
    {"realloc", "src/base/arena.c", "use an arena or memory_grow"},
    {"free", "src/base/arena.c", "use an arena or memory_free"},
    {"clock_gettime", "src/base/clock.h", "use base/clock.h"},
    {"strdup", "", "use text"},
    {"alloca", "", "no stack of unknown size"},
    {"sprintf", "", "use snprintf or text"},
    {"strcpy", "", "use text"},
    {"strcat", "", "use text"},
    {"gets", "", "never"},
    {"strtok", "", "changes its input and keeps a hidden state"},
    {"atoi", "", "cannot report an error"},
    {"atof", "", "cannot report an error and depends on the locale"},
    {"rand", "", "use base/random.h"},
    {"exit", "src/cli/main.c", "return a status"},
    {"fmaxf", "", "differs between libraries for NaN, and is slow"},
    {"fminf", "", "differs between libraries for NaN, and is slow"},
    {"fmax", "", "differs between libraries for NaN"},
    {"fmin", "", "differs between libraries for NaN"},
    {"lrintf", "", "depends on the rounding mode"},
    {"expf", "", "use kernels/math.h"}, {"exp", "", "use kernels/math.h"},
    {"logf", "", "use kernels/math.h"}, {"log", "", "use kernels/math.h"},
    {"powf", "", "use kernels/math.h"}, {"pow", "", "use kernels/math.h"},
    {"sinf", "", "use kernels/math.h"}, {"sin", "", "use kernels/math.h"},
    {"cosf", "", "use kernels/math.h"}, {"cos", "", "use kernels/math.h"},
    {"tanhf", "", "use kernels/math.h"}, {"tanh", "", "use kernels/math.h"},
    {"erff", "", "use kernels/math.h"}, {"erf", "", "use kernels/math.h"},
};

static const struct ban *ban_of(const struct source *source, int i)
{
    const struct token *t = &source->tokens[i];

    if (t->kind != TOKEN_NAME || !token_is(&t[1], "(")) return NULL;
    /* A field of that name: x.free(...), x->free(...), (*free)(...). */
    if (i > 0 && (token_is(&t[-1], ".") || token_is(&t[-1], ">")
                  || token_is(&t[-1], "*")))
        return NULL;
    for (size_t b = 0; b < sizeof bans / sizeof *bans; b++)
        if (token_is(t, bans[b].name)
            && strcmp(source->path, bans[b].where) != 0)
            return &bans[b];
    return NULL;
}

/* Waits and durations go by CLOCK_MONOTONIC: nobody sets it. */
static const struct ban wall_clocks[] = {
    {"CLOCK_REALTIME", "src/comm/", "waits go by CLOCK_MONOTONIC"},
    {"PTHREAD_COND_INITIALIZER", "src/",
     "its waits go by a clock that can be set; use pthread_condattr_setclock"},
};

static const struct ban *wall_clock_of(const struct source *source, int i)
{
    const int count = (int)(sizeof wall_clocks / sizeof *wall_clocks);

    for (int b = 0; b < count; b++)
        if (token_is(&source->tokens[i], wall_clocks[b].name) &&
            path_begins(source->path, wall_clocks[b].where))
            return &wall_clocks[b];
    return NULL;
}

static void rule_banned(struct tidy *tidy, const struct source *source)
{
    if (!path_begins(source->path, "src/")) return;
    for (int i = 0; i + 1 < source->token_count; i++) {
        const struct ban *ban = ban_of(source, i);

        if (!ban) ban = wall_clock_of(source, i);

        if (ban)
            tidy_report(tidy, "banned", source->path,
                        source->tokens[i].line, "%s: %s", ban->name,
                        ban->why);
    }
}

/* The name of a cmocka test: NAME(void **state), or TEST(NAME); else NULL. */
static const struct token *test_name(const struct source *source,
                                     const struct function *f)
{
    const struct token *t = f->name;

    if (!path_begins(source->path, "tests/") || f->body_last <= f->body_first
        || f->parameters != 1)
        return NULL;
    if (token_is(t, "TEST") && token_is(&t[1], "(")) return &t[2];
    if (f->is_static && token_is(&t[1], "(") && token_is(&t[2], "void")
        && token_is(&t[3], "*") && token_is(&t[4], "*"))
        return t;
    return NULL;
}

/* A test must be named again: in the table. */
static void rule_unlisted(struct tidy *tidy, const struct source *source,
                          const struct function *f)
{
    const struct token *name = test_name(source, f);
    int mentions = 0;

    if (!name) return;
    for (int i = 0; i < source->token_count; i++)
        mentions += source->tokens[i].length == name->length
                    && memcmp(source->tokens[i].text, name->text,
                              (size_t)name->length) == 0;
    if (mentions < 2)
        tidy_report(tidy, "unlisted", source->path, f->line_first,
                    "no table lists the test %.*s", name->length,
                    name->text);
}

void rules_function(struct tidy *tidy)
{
    for (int i = 0; i < tidy->source_count; i++) {
        const struct source *source = &tidy->sources[i];

        rule_banned(tidy, source);
        for (int j = 0; j < source->function_count; j++) {
            const struct function *f = &source->functions[j];

            rule_length(tidy, source, f);
            rule_nesting(tidy, source, f);
            rule_unlisted(tidy, source, f);
            if (f->parameters > LIMIT_PARAMETERS)
                tidy_report(tidy, "parameters", source->path, f->line_first,
                            "%.*s takes %d, at most %d", f->name->length,
                            f->name->text, f->parameters, LIMIT_PARAMETERS);
        }
    }
}
