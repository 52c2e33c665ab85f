/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenize_read.c - the pre_tokenizer of tokenizer.json as steps. */
#include "data/pretokenize.h"

#include <string.h>

/* White_Space runs dropped, words and punctuation runs kept apart. */
#define WHITESPACE_PATTERN "\\w+|[^\\w\\s]+"

static status read_byte_level(struct pretokenize_step *step,
                              const struct json *json, const char *source)
{
    bool use_regex;

    TRY(json_get_bool_or(json, source, "add_prefix_space", true,
                         &step->prefix_space));
    TRY(json_get_bool_or(json, source, "use_regex", true, &use_regex));
    step->scan = use_regex ? scan_gpt2 : scan_whole;
    return OK;
}

static status read_digits(struct pretokenize_step *step,
                          const struct json *json, const char *source)
{
    bool each;

    TRY(json_get_bool_or(json, source, "individual_digits", false, &each));
    step->scan = each ? scan_each_digit : scan_digits;
    return OK;
}

static status read_behavior(struct pretokenize_step *step,
                            const struct json *json, const char *source)
{
    static const char *const names[] = {
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous"
    };
    const char *behavior;

    TRY(json_get_string(json, source, "behavior", &behavior));
    for (int i = 0; i < 5; i++) {
        if (strcmp(behavior, names[i]) != 0) continue;
        step->behavior = (enum split_behavior)i;
        return OK;
    }
    FAIL(ERR_FORMAT, "%s: pre_tokenizer Split: behavior %s is not one of "
         "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous",
         source, behavior);
}

static status read_split(struct pretokenize_step *step, struct arena *arena,
                         const struct json *json, const char *source)
{
    const struct json *pattern = json_get(json, "pattern"), *value;
    char *copy;

    TRY(read_behavior(step, json, source));
    TRY(json_get_bool_or(json, source, "invert", false, &step->invert));
    value = json_get(pattern, "Regex");
    if (value != NULL && value->kind == JSON_STRING) {
        if (strlen(value->string) != (size_t)value->string_length)
            FAIL(ERR_FORMAT, "%s: pre_tokenizer Split: U+0000 in the pattern",
                 source);
        /* A scanner covers all of the text, so inverting and keeping what
         * does not match apart change nothing; nor does dropping it. */
        if (step->behavior == SPLIT_ISOLATED ||
            (step->behavior == SPLIT_REMOVED && step->invert))
            step->scan = scan_find(value->string);
        if (step->scan == NULL)
            TRY(regex_build(&step->regex, value->string, source));
        return OK;
    }
    value = json_get(pattern, "String");
    if (value == NULL || value->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: pre_tokenizer Split: the pattern must be "
             "{\"Regex\": ...} or {\"String\": ...}", source);
    TRY(arena_copy_text(arena, value->string, &copy));
    step->literal = copy;
    step->literal_length = strlen(copy);
    return OK;
}

static status read_step(struct pretokenizer *pretokenizer,
                        struct arena *arena, const struct json *json,
                        const char *source)
{
    struct pretokenize_step *step = &pretokenizer->steps[pretokenizer->count];
    const char *type;

    TRY(json_get_string(json, source, "type", &type));
    if (pretokenizer->byte_level)
        FAIL(ERR_FORMAT, "%s: pre_tokenizer %s stands after ByteLevel, which "
             "must be the last", source, type);
    if (pretokenizer->count == PRETOKENIZE_STEPS_MAX)
        FAIL(ERR_FORMAT, "%s: pre_tokenizer: more than %d steps", source,
             PRETOKENIZE_STEPS_MAX);
    pretokenizer->count++; /* now its regex is freed whatever happens */
    if (strcmp(type, "ByteLevel") == 0) {
        pretokenizer->byte_level = true;
        TRY(read_byte_level(step, json, source));
    } else if (strcmp(type, "Digits") == 0) {
        TRY(read_digits(step, json, source));
    } else if (strcmp(type, "Split") == 0) {
        TRY(read_split(step, arena, json, source));
    } else if (strcmp(type, "Whitespace") == 0) {
        step->behavior = SPLIT_REMOVED;
        step->invert = true;
        TRY(regex_build(&step->regex, WHITESPACE_PATTERN, source));
    } else {
        FAIL(ERR_FORMAT, "%s: pre_tokenizer %s is not supported; ByteLevel, "
             "Split, Digits, Whitespace and a Sequence of them are", source,
             type);
    }
    return OK;
}

/* A final ByteLevel without a pattern of its own cuts nothing. */
static void finish(struct pretokenizer *pretokenizer)
{
    pretokenizer->plain = true;
    for (int i = 0; i < pretokenizer->count; i++) {
        const struct pretokenize_step *step = &pretokenizer->steps[i];

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
    const struct json *list;
    const char *type;

    *pretokenizer = (struct pretokenizer){0};
    if (json == NULL || json->kind == JSON_NULL)
        FAIL(ERR_FORMAT, "%s: no pre_tokenizer; byte-level tokenizers have "
             "one that ends with ByteLevel", source);
    TRY(json_get_string(json, source, "type", &type));
    if (strcmp(type, "Sequence") != 0) {
        TRY(read_step(pretokenizer, arena, json, source));
    } else {
        list = json_get(json, "pretokenizers");
        if (list == NULL || list->kind != JSON_ARRAY)
            FAIL(ERR_FORMAT, "%s: pre_tokenizer Sequence has no list "
                 "`pretokenizers`", source);
        for (int i = 0; i < list->count; i++)
            TRY(read_step(pretokenizer, arena, &list->items[i], source));
    }
    if (!pretokenizer->byte_level)
        FAIL(ERR_FORMAT, "%s: pre_tokenizer %s is not byte-level; only "
             "byte-level BPE tokenizers are supported", source, type);
    finish(pretokenizer);
    return OK;
}
