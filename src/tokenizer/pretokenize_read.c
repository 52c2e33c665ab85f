/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenize_read.c - the pre_tokenizer of tokenizer.json as steps. */
#include <string.h>
#include "tokenizer/component.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

/* White_Space runs dropped, words and punctuation runs kept apart. The library
 * matches this one pattern with an engine of Rust, whose words are these. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
#define WHITESPACE_PATTERN "[" WORD "]+|[^" WORD "\\s]+"

static status read_byte_level(const struct component *in,
                              const struct json *json,
                              struct pretokenize_step *step)
{
    bool use_regex;

    TRY(component_fields(in, json, "add_prefix_space trim_offsets use_regex"));
    TRY(json_get_bool_or(json, in->source, "add_prefix_space", true,
                         &step->prefix_space));
    TRY(json_get_bool_or(json, in->source, "use_regex", true, &use_regex));
    step->scan = use_regex ? scan_gpt2 : scan_whole;
    return OK;
}

static status read_digits(const struct component *in, const struct json *json,
                          struct pretokenize_step *step)
{
    bool each;

    TRY(component_fields(in, json, "individual_digits"));
    TRY(json_get_bool_or(json, in->source, "individual_digits", false, &each));
    step->scan = each ? scan_each_digit : scan_digits;
    return OK;
}

static status read_behavior(const struct component *in,
                            const struct json *json, const char *other,
                            enum split_behavior *out)
{
    static const char *const names[] = {
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous"
    };
    const char *behavior;

    TRY(json_get_string_or(json, in->source, "behavior", other, &behavior));
    for (int i = 0; i < 5; i++) {
        if (strcmp(behavior, names[i]) != 0) continue;
        *out = (enum split_behavior)i;
        return OK;
    }
    FAIL(ERR_FORMAT, "%s: %s Split: behavior %s is not one of Removed, "
         "Isolated, MergedWithPrevious, MergedWithNext, Contiguous",
         in->source, in->part, behavior);
}

static status read_split(const struct component *in, const struct json *json,
                         struct pretokenize_step *step)
{
    struct component_literal literal;
    const char *pattern;

    TRY(component_fields(in, json, "pattern behavior invert"));
    TRY(read_behavior(in, json, "", &step->behavior));
    TRY(json_get_bool_or(json, in->source, "invert", false, &step->invert));
    TRY(component_pattern(in, json, &literal, &pattern));
    if (pattern != NULL) {
        /* A scanner covers all of the text, so inverting and keeping what
         * does not match apart change nothing; nor does dropping it, where
         * all of it matches. */
        if (step->behavior == SPLIT_ISOLATED ||
            (step->behavior == SPLIT_REMOVED && step->invert))
            step->scan = scan_find(pattern);
        if (step->behavior == SPLIT_REMOVED && step->scan != NULL &&
            !scan_matches_all(step->scan))
            step->scan = NULL;
        if (step->scan == NULL)
            TRY(regex_build(&step->regex, pattern, in->source));
        return OK;
    }
    step->literal = literal.bytes;
    step->literal_length = literal.length;
    return OK;
}

static status read_metaspace(const struct component *in,
                             const struct json *json,
                             struct pretokenize_step *step)
{
    static const char *const schemes[] = {[PREPEND_ALWAYS] = "always",
                                          [PREPEND_NEVER] = "never",
                                          [PREPEND_FIRST] = "first"};
    const char *scheme;
    uint32_t code;
    bool prefix, split;
    int found = -1;

    TRY(component_fields(in, json, "replacement prepend_scheme split "
                                   "add_prefix_space str_rep"));
    TRY(component_string(in, json, "replacement", &step->mark,
                         &step->mark_length));
    if (step->mark_length == 0 ||
        (size_t)text_utf8_decode(step->mark, step->mark_length, &code) !=
            step->mark_length)
        FAIL(ERR_FORMAT, "%s: %s Metaspace: `replacement` is not one "
             "character", in->source, in->part);
    TRY(json_get_string_or(json, in->source, "prepend_scheme", "always",
                           &scheme));
    TRY(json_get_bool_or(json, in->source, "add_prefix_space", true, &prefix));
    TRY(json_get_bool_or(json, in->source, "split", true, &split));
    for (int i = 0; i < 3; i++)
        if (strcmp(scheme, schemes[i]) == 0) found = i;
    if (found < 0)
        FAIL(ERR_FORMAT, "%s: %s Metaspace: prepend_scheme %s is not one of "
             "always, never, first", in->source, in->part, scheme);
    if (!prefix && found != PREPEND_NEVER)
        FAIL(ERR_FORMAT, "%s: %s Metaspace: add_prefix_space is false, but "
             "prepend_scheme is %s", in->source, in->part, scheme);
    step->prepend = (enum prepend_scheme)found;
    step->whole = !split;
    return OK;
}

static bool is_space(uint32_t code)
{
    char bytes[4];
    size_t length;

    text_utf8_encode(code, bytes);
    return (unicode_at((const unsigned char *)bytes, 0, &length) &
            CLASS_SPACE) != 0;
}

static status read_delimiter(const struct component *in,
                             const struct json *json,
                             struct pretokenize_step *step)
{
    TRY(component_fields(in, json, "delimiter"));
    step->behavior = SPLIT_REMOVED;
    TRY(component_string(in, json, "delimiter", &step->literal,
                         &step->literal_length));
    return OK;
}

static status read_other(const struct component *in, const struct json *json,
                         const char *type, struct pretokenize_step *step)
{
    if (strcmp(type, "Punctuation") == 0) {
        TRY(component_fields(in, json, "behavior"));
        step->test = unicode_punctuation;
        return read_behavior(in, json, "Isolated", &step->behavior);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0)
        return read_delimiter(in, json, step);
    if (strcmp(type, "WhitespaceSplit") == 0) {
        step->behavior = SPLIT_REMOVED;
        step->test = is_space;
        return component_fields(in, json, "");
    }
    if (strcmp(type, "Whitespace") == 0) {
        TRY(component_fields(in, json, ""));
        step->behavior = SPLIT_REMOVED;
        step->invert = true;
        return regex_build(&step->regex, WHITESPACE_PATTERN, in->source);
    }
    FAIL(ERR_FORMAT, "%s: %s %s is not supported; ByteLevel, Split, Digits, "
         "Metaspace, Punctuation, Whitespace, WhitespaceSplit, "
         "CharDelimiterSplit and a Sequence of them are", in->source,
         in->part, type);
}

static status read_step(const struct component *in, const struct json *json,
                        struct pretokenizer *pretokenizer)
{
    struct pretokenize_step *step = &pretokenizer->steps[pretokenizer->count];
    const char *type;

    TRY(json_get_string(json, in->source, "type", &type));
    if (pretokenizer->byte_level && (strcmp(type, "ByteLevel") == 0 ||
                                     strcmp(type, "Metaspace") == 0))
        FAIL(ERR_FORMAT, "%s: %s %s stands after ByteLevel, where only steps "
             "that rewrite nothing can: Split, Digits, Punctuation, "
             "Whitespace, WhitespaceSplit, CharDelimiterSplit", in->source,
             in->part, type);
    if (pretokenizer->count == PRETOKENIZE_STEPS_MAX)
        FAIL(ERR_FORMAT, "%s: %s: more than %d steps", in->source, in->part,
             PRETOKENIZE_STEPS_MAX);
    if (pretokenizer->byte_level && pretokenizer->spelled == 0) {
        pretokenizer->spelled = pretokenizer->count;
        byte_level_init(&pretokenizer->alphabet);
    }
    pretokenizer->count++; /* now its regex is freed whatever happens */
    if (strcmp(type, "ByteLevel") == 0) {
        pretokenizer->byte_level = true;
        return read_byte_level(in, json, step);
    }
    if (strcmp(type, "Digits") == 0) return read_digits(in, json, step);
    if (strcmp(type, "Split") == 0) return read_split(in, json, step);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(in, json, step);
    return read_other(in, json, type, step);
}

/* A final ByteLevel without a pattern of its own cuts nothing. */
static void finish(struct pretokenizer *pretokenizer)
{
    pretokenizer->plain = pretokenizer->spelled == 0;
    for (int i = 0; i < pretokenizer->count; i++) {
        const struct pretokenize_step *step = &pretokenizer->steps[i];

        if (step->mark != NULL && step->prepend == PREPEND_FIRST)
            pretokenizer->asks_first = true;
        if (step->scan == NULL || step->prefix_space)
            pretokenizer->plain = false;
    }
    if (pretokenizer->plain && pretokenizer->count > 1 &&
        pretokenizer->steps[pretokenizer->count - 1].scan == scan_whole)
        pretokenizer->count--;
}

status pretokenizer_read(struct pretokenizer *pretokenizer,
                         struct arena *arena, const struct json *json,
                         const char *source)
{
    const struct component in = {source, "pre_tokenizer", arena};
    const struct json *list;
    const char *type;

    *pretokenizer = (struct pretokenizer){0};
    if (json == NULL || json->kind == JSON_NULL) return OK;
    TRY(component_type(&in, json, "pretokenizers", &type, &list));
    if (list == NULL) TRY(read_step(&in, json, pretokenizer));
    for (int i = 0; list != NULL && i < list->count; i++)
        TRY(read_step(&in, &list->items[i], pretokenizer));
    finish(pretokenizer);
    return OK;
}
