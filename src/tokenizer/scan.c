/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - the pre-tokenisation patterns of known tokenizers, by hand.
 *
 * The patterns are alternatives tried in order, so each scanner looks at the
 * first character and asks, in that order, which alternative takes it. Where
 * a pattern would backtrack, the comment says to what. */
#include "tokenizer/scan.h"

#include <limits.h>
#include <string.h>
#include "tokenizer/unicode.h"

static size_t run(const unsigned char *text, size_t at, size_t end,
                  unsigned wanted)
{
    size_t length;

    while (at < end && (unicode_at(text, at, &length) & wanted) != 0)
        at += length;
    return at;
}

/* [^\s\p{L}\p{N}]* */
static size_t run_other(const unsigned char *text, size_t at, size_t end)
{
    const unsigned known = CLASS_SPACE | CLASS_LETTER | CLASS_NUMBER;
    size_t length;

    while (at < end && (unicode_at(text, at, &length) & known) == 0)
        at += length;
    return at;
}

/* \p{N}{1,most} */
static size_t run_numbers(const unsigned char *text, size_t at, size_t end,
                          int most)
{
    size_t length;

    for (int i = 0; i < most && at < end; i++) {
        if ((unicode_at(text, at, &length) & CLASS_NUMBER) == 0) break;
        at += length;
    }
    return at;
}

/* Length of 's 't 're 've 'm 'll 'd at the apostrophe text[at], or 0. With
 * `fold`, as (?i:...): besides capitals, U+017F (long s) folds to s. */
static size_t contraction(const unsigned char *text, size_t at, size_t end,
                          bool fold)
{
    const unsigned char mask = fold ? 0x20 : 0;
    unsigned char first, second;

    if (end - at < 2) return 0;
    first = text[at + 1] | mask;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if (end - at < 3) return 0;
    if (fold && text[at + 1] == 0xC5 && text[at + 2] == 0xBF) return 3;
    second = text[at + 2] | mask;
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    return first == 'l' && second == 'l' ? 3 : 0;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at a white space; the first only with `lines`. */
static size_t spaces(const unsigned char *text, size_t at, size_t end,
                     bool lines)
{
    size_t length, stop = at, last = at, newline = 0;

    while (stop < end) {
        const unsigned class = unicode_at(text, stop, &length);

        if ((class & CLASS_SPACE) == 0) break;
        last = stop;
        stop += length;
        if ((class & CLASS_NEWLINE) != 0) newline = stop;
    }
    if (lines && newline > 0) return newline; /* gives back what follows */
    if (stop == end) return stop;
    /* (?!\S) fails after the whole run and gives back one character. */
    return last > at ? last : stop;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t scan_gpt2(const unsigned char *text, size_t at, size_t end)
{
    size_t start = at, length;
    unsigned class;

    if (text[at] == '\'') {
        length = contraction(text, at, end, false);
        if (length > 0) return at + length;
    }
    if (text[at] == ' ' && at + 1 < end) start++;
    class = unicode_at(text, start, &length);
    if ((class & CLASS_LETTER) != 0)
        return run(text, start + length, end, CLASS_LETTER);
    if ((class & CLASS_NUMBER) != 0)
        return run(text, start + length, end, CLASS_NUMBER);
    if ((class & CLASS_SPACE) == 0)
        return run_other(text, start + length, end);
    return spaces(text, at, end, false);
}

/* The three alternatives that cl100k and its kin end with:
 * ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`; o200k takes slashes
 * after the new lines too. */
static size_t scan_tail(const unsigned char *text, size_t at, size_t end,
                        bool slash)
{
    const size_t start = at + (text[at] == ' ' && at + 1 < end);
    size_t stop = run_other(text, start, end);

    if (stop == start) return spaces(text, at, end, true);
    while (stop < end && (text[stop] == '\r' || text[stop] == '\n' ||
                          (slash && text[stop] == '/')))
        stop++;
    return stop;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|tail */
static inline size_t scan_modern(const unsigned char *text, size_t at,
                                 size_t end, int digits)
{
    size_t length, next;
    unsigned class = unicode_at(text, at, &length);

    if ((class & CLASS_LETTER) != 0)
        return run(text, at + length, end, CLASS_LETTER);
    if (text[at] == '\'') {
        const size_t taken = contraction(text, at, end, true);

        if (taken > 0) return at + taken;
    }
    if ((class & CLASS_NUMBER) != 0)
        return run_numbers(text, at, end, digits);
    if ((class & CLASS_NEWLINE) == 0 && at + length < end) {
        class = unicode_at(text, at + length, &next);
        if ((class & CLASS_LETTER) != 0)
            return run(text, at + length + next, end, CLASS_LETTER);
    }
    return scan_tail(text, at, end, false);
}

static size_t scan_cl100k(const unsigned char *text, size_t at, size_t end)
{
    return scan_modern(text, at, end, 3);
}

static size_t scan_qwen2(const unsigned char *text, size_t at, size_t end)
{
    return scan_modern(text, at, end, 1);
}

/* Upper and Lower overlap in marks and caseless letters, so that
 * Upper*Lower+ may have to give characters back: when no lower-case letter
 * follows the run of Upper, the match ends behind the last character of that
 * run that is Lower too. Returns `at` when nothing matches. */
static size_t word_lower(const unsigned char *text, size_t at, size_t end)
{
    size_t length, stop = at, both = at;

    while (stop < end) {
        const unsigned class = unicode_at(text, stop, &length);

        if ((class & CLASS_UPPER) == 0) break;
        stop += length;
        if ((class & CLASS_LOWER) != 0) both = stop;
    }
    if (stop < end && (unicode_at(text, stop, &length) & CLASS_LOWER) != 0)
        return run(text, stop, end, CLASS_LOWER);
    return both;
}

/* Upper+Lower* */
static size_t word_upper(const unsigned char *text, size_t at, size_t end)
{
    const size_t stop = run(text, at, end, CLASS_UPPER);

    return stop == at ? at : run(text, stop, end, CLASS_LOWER);
}

/* [^\r\n\p{L}\p{N}]?Upper*Lower+(?i:'s|...)?|
 * [^\r\n\p{L}\p{N}]?Upper+Lower*(?i:'s|...)?|\p{N}{1,3}|tail with [\r\n/]*,
 * Upper = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], Lower = [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
static inline size_t scan_cased(const unsigned char *text, size_t at,
                                size_t end, bool endings, int digits)
{
    const unsigned never = CLASS_LETTER | CLASS_NUMBER | CLASS_NEWLINE;
    size_t length, stop = at, after = at;
    const unsigned class = unicode_at(text, at, &length);

    if ((class & never) == 0) after = at + length;
    for (int lower = 1; lower >= 0 && stop <= at; lower--) {
        size_t (*word)(const unsigned char *, size_t, size_t) =
            lower ? word_lower : word_upper;

        stop = word(text, after, end);
        if (stop == after) stop = after == at ? at : word(text, at, end);
    }
    if (stop > at) {
        if (endings && stop < end && text[stop] == '\'')
            stop += contraction(text, stop, end, true);
        return stop;
    }
    if ((class & CLASS_NUMBER) != 0) return run_numbers(text, at, end, digits);
    return scan_tail(text, at, end, true);
}

static size_t scan_o200k(const unsigned char *text, size_t at, size_t end)
{
    return scan_cased(text, at, end, true, 3);
}

/* The same without 's and its kin, and with one digit at a time. */
static size_t scan_tekken(const unsigned char *text, size_t at, size_t end)
{
    return scan_cased(text, at, end, false, 1);
}

/* Is there a number at text[at]? Digits asks Rust's char::is_numeric, which
 * knows Unicode 17, where regular expressions know 16: U+11DE0 to U+11DE9 and
 * U+16FF4 to U+16FF6 are numbers to it alone. */
static bool is_number(const unsigned char *text, size_t at, bool newest,
                      size_t *length)
{
    const unsigned class = unicode_at(text, at, length);

    if ((class & CLASS_NUMBER) != 0) return true;
    if (!newest || *length < 4) return false;
    if (memcmp(text + at, "\xF0\x91\xB7", 3) == 0)
        return text[at + 3] >= 0xA0 && text[at + 3] <= 0xA9;
    if (memcmp(text + at, "\xF0\x96\xBF", 3) == 0)
        return text[at + 3] >= 0xB4 && text[at + 3] <= 0xB6;
    return false;
}

/* A run of numbers of at most `most`, or a run without any. */
static inline size_t scan_number(const unsigned char *text, size_t at,
                                 size_t end, int most, bool newest)
{
    size_t length;
    const bool number = is_number(text, at, newest, &length);

    for (int i = 0; at < end && (!number || i < most); i++) {
        if (is_number(text, at, newest, &length) != number) break;
        at += length;
    }
    return at;
}

size_t scan_digits(const unsigned char *text, size_t at, size_t end)
{
    return scan_number(text, at, end, INT_MAX, true);
}

size_t scan_each_digit(const unsigned char *text, size_t at, size_t end)
{
    return scan_number(text, at, end, 1, true);
}

static size_t scan_numbers(const unsigned char *text, size_t at, size_t end)
{
    return scan_number(text, at, end, INT_MAX, false);
}

static size_t scan_each_number(const unsigned char *text, size_t at,
                               size_t end)
{
    return scan_number(text, at, end, 1, false);
}

static size_t scan_three_numbers(const unsigned char *text, size_t at,
                                 size_t end)
{
    return scan_number(text, at, end, 3, false);
}

size_t scan_whole(const unsigned char *text, size_t at, size_t end)
{
    (void)text;
    (void)at;
    return end;
}

#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define OTHER "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ENDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"

/* StableLM 2's file, for one, holds the characters that \r and \n stand for. */
static bool same_pattern(const char *known, const char *pattern)
{
    while (*known != 0) {
        if (known[0] == '\\' && ((known[1] == 'r' && *pattern == '\r') ||
                                 (known[1] == 'n' && *pattern == '\n')))
            known++;
        else if (*known != *pattern)
            return false;
        known++;
        pattern++;
    }
    return *pattern == 0;
}

scan_piece *scan_find(const char *pattern)
{
    static const struct {
        const char *pattern;
        scan_piece *scan;
    } rows[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
         "|\\s+(?!\\S)|\\s+", scan_gpt2},
        {WORDS "\\p{N}{1,3}" OTHER TAIL, scan_cl100k},
        {WORDS "\\p{N}" OTHER TAIL, scan_qwen2},
        {BEFORE UPPER "*" LOWER "+" ENDS BEFORE UPPER "+" LOWER "*" ENDS
         "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL, scan_o200k},
        {BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}"
         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL, scan_tekken},
        {"\\p{N}{1,3}", scan_three_numbers},
        {"\\p{N}+", scan_numbers},
        {"\\p{N}", scan_each_number},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (same_pattern(rows[i].pattern, pattern)) return rows[i].scan;
    return NULL;
}

bool scan_matches_all(scan_piece *scan)
{
    return scan != scan_numbers && scan != scan_each_number &&
           scan != scan_three_numbers;
}

scan_piece *scan_named(const char *name)
{
    static const struct {
        const char *name;
        scan_piece *scan;
    } rows[] = {{"r50k_base", scan_gpt2},
                {"cl100k_base", scan_cl100k},
                {"o200k_base", scan_o200k},
                {"qwen", scan_qwen2}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].scan;
    return NULL;
}
