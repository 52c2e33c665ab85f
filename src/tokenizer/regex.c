/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c - regular expressions of tokenizers that no scanner knows.
 *
 * A foreign pattern may take exponential time; the match limit turns that
 * into an error. Matches are looked for in one piece at a time, so that
 * look-around sees no neighbours, as in the `tokenizers` library. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "base/arena.h"
#include "tokenizer/regex.h"

enum { MATCH_LIMIT = 10000000, DEPTH_LIMIT = 10000 };

struct regex {
    pcre2_code *code;             /* owned */
    pcre2_match_context *context; /* owned */
    const char *source;           /* borrowed; for messages */
};

status regex_build(struct regex **out, const char *pattern,
                   const char *source)
{
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
        PCRE2_NO_UTF_CHECK | PCRE2_MULTILINE;
    struct text translated = {0};
    void *memory = NULL;
    struct regex *regex;
    PCRE2_UCHAR why[128];
    PCRE2_SIZE where;
    status result;
    int error;

    TRY(memory_take(1, sizeof *regex, &memory));
    *out = regex = memory;
    regex->source = source;
    TRY_GOTO(done, result, regex_translate(&translated, pattern, source));
    regex->code = pcre2_compile((PCRE2_SPTR)translated.bytes,
                                translated.length, options, &error, &where,
                                NULL);
    if (regex->code == NULL) {
        pcre2_get_error_message(error, why, sizeof why);
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: the pattern "
                  "is wrong at byte %zu of %s: %s", source, where,
                  translated.bytes, (const char *)why);
    }
    /* Without machine code it is only slower. */
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    regex->context = pcre2_match_context_create(NULL);
    if (regex->context == NULL)
        FAIL_GOTO(done, result, ERR_MEMORY, "%s: no memory for a pattern",
                  source);
    pcre2_set_match_limit(regex->context, MATCH_LIMIT);
    pcre2_set_depth_limit(regex->context, DEPTH_LIMIT);
done:
    text_free(&translated);
    return result;
}

void regex_free(struct regex *regex)
{
    if (regex == NULL) return;
    pcre2_code_free(regex->code);
    pcre2_match_context_free(regex->context);
    memory_free(regex);
}

status regex_find(const struct regex *regex, const char *text, struct span in,
                  bool *found, struct span *match)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    const PCRE2_SIZE *ends;
    PCRE2_UCHAR why[128];
    int code;

    *found = false;
    if (data == NULL)
        FAIL(ERR_MEMORY, "%s: no memory for a match", regex->source);
    code = pcre2_match(regex->code, (PCRE2_SPTR)text, in.stop, in.start,
                       PCRE2_NO_UTF_CHECK, data, regex->context);
    ends = pcre2_get_ovector_pointer(data);
    if (code >= 0) {
        *found = true;
        *match = (struct span){ends[0], ends[1]};
    }
    pcre2_match_data_free(data);
    if (code >= 0 || code == PCRE2_ERROR_NOMATCH) return OK;
    pcre2_get_error_message(code, why, sizeof why);
    FAIL(ERR_FORMAT, "%s: matching a text of %zu bytes "
         "failed: %s", regex->source, in.stop, (const char *)why);
}
