/* SPDX-License-Identifier: Apache-2.0 */
/* regex_dialect.c - patterns of tokenizer.json, written for PCRE2.
 *
 * The `tokenizers` library matches with Oniguruma in its Ruby syntax. The two
 * engines read a few things differently, and each difference would give other
 * ids without a word:
 *
 *     a{1,3}+    Ruby: (?:a{1,3})+       PCRE2: possessive, at most 3
 *     a{,3}      Ruby: a{0,3}            PCRE2 10.42: the characters
 *     ^ $        Ruby: of every line     PCRE2: of the text; an option there
 *
 * They are rewritten. What has no short equivalent is an error by name. */
#include <string.h>
#include "data/regex.h"

enum { GROUPS_MAX = 64 };

struct dialect {
    const char *at;            /* borrowed; what is still to be read */
    struct text *out;          /* borrowed */
    size_t groups[GROUPS_MAX]; /* where open groups begin in `out` */
    int depth;
    size_t atom;               /* where the last atom begins in `out` */
    bool has_atom;
    const char *source;        /* borrowed; for messages */
};

static status refuse(const struct dialect *d, const char *what)
{
    FAIL(ERR_FORMAT, "%s: the pattern has %s, which is not "
         "supported", d->source, what);
}

static status copy(struct dialect *d, size_t length)
{
    TRY(text_append(d->out, d->at, length));
    d->at += length;
    return OK;
}

static void atom_begin(struct dialect *d)
{
    d->atom = d->out->length;
    d->has_atom = true;
}

/* \x, \p{Name}, \x{41}. */
static status read_escape(struct dialect *d)
{
    const char kind = d->at[1];
    size_t length = 2;

    if (kind == 0) return refuse(d, "a \\ at its end");
    if (strchr("hHRXGKkg", kind) != NULL)
        return refuse(d, "one of \\h \\R \\X \\G \\K \\k \\g");
    if (strchr("pPx", kind) != NULL && d->at[2] == '{') {
        const char *end = strchr(d->at, '}');

        if (end == NULL) return refuse(d, "a { without }");
        length = (size_t)(end - d->at) + 1;
    }
    return copy(d, length);
}

/* [...]: classes within classes and && are Ruby's alone. */
static status read_class(struct dialect *d)
{
    TRY(copy(d, 1));
    if (*d->at == '^') TRY(copy(d, 1));
    if (*d->at == ']') return refuse(d, "a class that begins with ]");
    while (*d->at != ']') {
        if (*d->at == 0) return refuse(d, "a [ without ]");
        if (d->at[0] == '&' && d->at[1] == '&')
            return refuse(d, "&& in a class");
        if (*d->at == '[') {
            const char *end = d->at[1] == ':' ? strstr(d->at, ":]") : NULL;

            if (end == NULL) return refuse(d, "a class within a class");
            TRY(copy(d, (size_t)(end - d->at) + 2));
        } else if (*d->at == '\\') {
            TRY(read_escape(d));
        } else {
            TRY(copy(d, 1));
        }
    }
    return copy(d, 1);
}

static status read_open(struct dialect *d)
{
    if (d->depth == GROUPS_MAX) return refuse(d, "groups nested too deeply");
    d->groups[d->depth++] = d->out->length;
    d->has_atom = false;
    TRY(copy(d, 1));
    if (*d->at != '?') return OK;
    for (size_t i = 1; d->at[i] != 0 && strchr("imx-", d->at[i]); i++)
        if (d->at[i] == 'm' || d->at[i] == 'x')
            return refuse(d, "(?m) or (?x)");
    if (strchr("#(|&P'+", d->at[1]) != NULL)
        return refuse(d, "a group of its own kind");
    return copy(d, d->at[1] == 0 ? 1 : 2);
}

/* The end of {n}, {n,}, {,m} or {n,m}; NULL: no interval. */
static const char *interval_end(const char *at)
{
    const char *end = at + 1 + strspn(at + 1, "0123456789");
    const bool first = end > at + 1;

    if (*end == ',') {
        const size_t second = strspn(end + 1, "0123456789");

        if (!first && second == 0) return NULL;
        end += 1 + second;
    } else if (!first) {
        return NULL;
    }
    return *end == '}' ? end + 1 : NULL;
}

/* A + after an interval is an operator of its own. */
static status read_interval(struct dialect *d, const char *end)
{
    struct text atom = {0};
    status result = OK;

    if (*end == '?' && memchr(d->at, ',', (size_t)(end - d->at)) == NULL)
        return refuse(d, "{n}?");
    if (d->at[1] == ',') {
        TRY(text_append(d->out, "{0", 2));
        d->at++;
    }
    TRY(copy(d, (size_t)(end - d->at)));
    if (*d->at != '+') return OK;
    TRY_GOTO(done, result, text_printf(&atom, "(?:%s)",
                                       d->out->bytes + d->atom));
    d->out->length = d->atom;
    TRY_GOTO(done, result, text_append(d->out, atom.bytes, atom.length));
    TRY_GOTO(done, result, copy(d, 1));
done:
    text_free(&atom);
    return result;
}

static status read_one(struct dialect *d)
{
    const char *end;

    switch (*d->at) {
    case '\\': atom_begin(d); return read_escape(d);
    case '[': atom_begin(d); return read_class(d);
    case '(': return read_open(d);
    case ')':
        if (d->depth == 0) return refuse(d, "a ) without (");
        d->atom = d->groups[--d->depth];
        d->has_atom = true;
        return copy(d, 1);
    case '{':
        end = d->has_atom ? interval_end(d->at) : NULL;
        if (end != NULL) return read_interval(d, end);
        return refuse(d, "a { that is no repetition; write \\{");
    case '|': d->has_atom = false; return copy(d, 1);
    case '*': case '+': case '?': return copy(d, 1);
    default:
        atom_begin(d);
        TRY(copy(d, 1));
        while ((*d->at & 0xC0) == 0x80) TRY(copy(d, 1));
        return OK;
    }
}

status regex_translate(struct text *out, const char *pattern,
                       const char *source)
{
    struct dialect d = {.at = pattern, .out = out, .source = source};

    while (*d.at != 0) TRY(read_one(&d));
    return OK;
}
