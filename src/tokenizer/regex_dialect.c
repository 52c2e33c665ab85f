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
 *     \w \b      Ruby: marks are letters PCRE2: they are not (before 10.43)
 *     [\w]       Ruby: no \xB2, \xBD   PCRE2: numbers; to \w alone Ruby too
 *     \s         Ruby: without U+180E    PCRE2: with it
 *     [:punct:]  Ruby: symbols too       PCRE2: of ASCII alone
 *     \p{Han}    Ruby: the script        PCRE2: script extensions too
 *     \p{L}      Ruby: Unicode 16        PCRE2: that of its version
 *     [a&&[^b]]  Ruby: in both           PCRE2: the characters; (?=[^b])[a]
 *
 * They are rewritten. What has no short equivalent is an error by name. */
#include <string.h>
#include "tokenizer/regex.h"

enum { GROUPS_MAX = 64, NAME_BYTES = 32 };

/* Within a class. To \w alone and \b Oniguruma counts some numbers of Latin-1
 * too, from another table than to [\w]. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_NUMBERS "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define SPACE "\\t-\\r\\x{85}\\p{Z}"

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

static status put(struct dialect *d, const char *words)
{
    return text_append(d->out, words, strlen(words));
}

/* Adds the characters of a word, as members of a class. */
static status put_word(struct dialect *d, bool in_class)
{
    TRY(put(d, in_class ? WORD : WORD WORD_NUMBERS));
    TRY(regex_newer(d->out, "L"));
    TRY(regex_newer(d->out, "M"));
    return regex_newer(d->out, "Nd");
}

/* \w \d \s and their opposites. */
static status read_shorthand(struct dialect *d, bool in_class)
{
    const char kind = d->at[1];
    const bool opposite = kind < 'a';

    d->at += 2;
    if (in_class && kind == 'W') return refuse(d, "\\W in a class");
    if (in_class && opposite)
        return put(d, kind == 'S' ? "\\S\\x{180e}" : "\\P{Nd}");
    if (!in_class) TRY(put(d, opposite ? "[^" : "["));
    if (kind == 'w' || kind == 'W') {
        TRY(put_word(d, in_class));
    } else if (kind == 's' || kind == 'S') {
        TRY(put(d, SPACE));
    } else {
        TRY(put(d, "\\p{Nd}"));
        TRY(regex_newer(d->out, "Nd"));
    }
    return in_class ? OK : put(d, "]");
}

/* Between a character of a word and another, or the end. */
static status read_boundary(struct dialect *d)
{
    static const char *const parts[2][5] = {
        {"(?:(?<=[", "])(?![", "])|(?<![", "])(?=[", "]))"},
        {"(?:(?<=[", "])(?=[", "])|(?<![", "])(?![", "]))"}};
    const bool inside = d->at[1] == 'B';

    d->at += 2;
    for (int i = 0; i < 5; i++) {
        TRY(put(d, parts[inside][i]));
        if (i < 4) TRY(put_word(d, false));
    }
    return OK;
}

/* \p{Name}: a name of three letters and more is a script, but for a few. What
 * PCRE2 is too old for stands behind it, in the same class. */
static status read_property(struct dialect *d, const char *end, bool in_class)
{
    static const char *const others[] = {"Alphabetic", "Any", "Lowercase",
                                         "Uppercase", "White_Space"};
    char name[NAME_BYTES] = "";
    const char *from = d->at + 3 + (d->at[3] == '^');
    const bool opposite = (d->at[1] == 'P') != (d->at[3] == '^');
    const size_t length = (size_t)(end - from);
    bool script = length > 2 && length < sizeof name;

    if (length < sizeof name) memcpy(name, from, length);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) script = false;
    if (in_class && opposite) { /* of them the newer ones stay outside */
        TRY(copy(d, (size_t)(from - d->at)));
        if (script) TRY(put(d, "sc:"));
        return copy(d, length + 1);
    }
    d->at = end + 1;
    TRY(text_printf(d->out, "%s\\p{%s%.*s}",
                    in_class ? "" : opposite ? "[^" : "[",
                    script ? "sc:" : "", (int)length, from));
    TRY(regex_newer(d->out, name));
    return in_class ? OK : put(d, "]");
}

/* \x, \p{Name}, \x{41}. */
static status read_escape(struct dialect *d, bool in_class)
{
    const char kind = d->at[1];
    const char *end;

    if (kind == 0) return refuse(d, "a \\ at its end");
    if (strchr("hHRXGKkg", kind) != NULL)
        return refuse(d, "one of \\h \\R \\X \\G \\K \\k \\g");
    if (strchr("wWsSdD", kind) != NULL) return read_shorthand(d, in_class);
    if (strchr("bB", kind) != NULL && !in_class) return read_boundary(d);
    if (strchr("pPx", kind) == NULL || d->at[2] != '{') return copy(d, 2);
    end = strchr(d->at, '}');
    if (end == NULL) return refuse(d, "a { without }");
    if (kind != 'x') return read_property(d, end, in_class);
    return copy(d, (size_t)(end - d->at) + 1);
}

/* [:name:] in a class. */
static status read_named_class(struct dialect *d)
{
    static const struct { const char *name, *set, *newer[3]; } known[] = {
        {"[:alpha:]", "\\p{Alphabetic}", {"L"}},
        {"[:digit:]", "\\p{Nd}", {"Nd"}},
        {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}", {"L", "Nd"}},
        {"[:space:]", SPACE, {NULL}},
        {"[:punct:]", "\\p{P}\\p{S}", {"P", "S"}},
        {"[:word:]", WORD, {"L", "M", "Nd"}},
        {"[:upper:]", "\\p{Uppercase}", {"Lu"}},
        {"[:lower:]", "\\p{Lowercase}", {"Ll"}}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t length = strlen(known[i].name);

        if (strncmp(d->at, known[i].name, length) != 0) continue;
        d->at += length;
        TRY(put(d, known[i].set));
        for (int j = 0; j < 3 && known[i].newer[j] != NULL; j++)
            TRY(regex_newer(d->out, known[i].newer[j]));
        return OK;
    }
    return refuse(d, d->at[1] == ':' ? "a [:class:] that is not known"
                                     : "a class within a class");
}

/* [...] up to && or the end. */
static status read_members(struct dialect *d)
{
    TRY(copy(d, 1));
    if (*d->at == '^') TRY(copy(d, 1));
    if (*d->at == ']') return refuse(d, "a class that begins with ]");
    while (*d->at != ']') {
        if (*d->at == 0) return refuse(d, "a [ without ]");
        if (d->at[0] == '&' && d->at[1] == '&') return OK;
        if (*d->at == '[')
            TRY(read_named_class(d));
        else if (*d->at == '\\')
            TRY(read_escape(d, true));
        else
            TRY(copy(d, 1));
    }
    return OK;
}

/* [...&&[...]]: what is in the second and in the first. */
static status read_class(struct dialect *d)
{
    const size_t start = d->out->length;
    const bool opposite = d->at[1] == '^';
    struct text first = {0};
    status result;

    TRY(read_members(d));
    if (*d->at == ']') return copy(d, 1);
    if (opposite || d->at[2] != '[')
        return refuse(d, "&& in a class but as [...&&[...]]");
    TRY_GOTO(done, result, text_append(&first, d->out->bytes + start,
                                       d->out->length - start));
    d->out->length = start;
    d->at += 2;
    TRY_GOTO(done, result, put(d, "(?:(?="));
    TRY_GOTO(done, result, read_members(d));
    if (d->at[0] != ']' || d->at[1] != ']')
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: the pattern has && in a "
                  "class but as [...&&[...]], which is not supported",
                  d->source);
    d->at += 2;
    TRY_GOTO(done, result, put(d, "])"));
    TRY_GOTO(done, result, put(d, first.bytes));
    TRY_GOTO(done, result, put(d, "])"));
done:
    text_free(&first);
    return result;
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
    case '\\': atom_begin(d); return read_escape(d, false);
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
        return refuse(d, "a { that is not a repetition; write \\{");
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
