/* SPDX-License-Identifier: Apache-2.0 */
/* task_clean.c - the text clean-up of the evaluation harness. */
#include "corpus/task_clean.h"

#include <string.h>
#include <utf8proc.h>

#include "corpus/task.h"
#include "tokenizer/unicode.h"

/* str.isspace(): White_Space and the separators of ASCII. *length: bytes. */
static bool is_space(const char *bytes, size_t at, size_t *length)
{
    const unsigned char *text = (const unsigned char *)bytes;

    if (text[at] >= 0x1C && text[at] <= 0x1F) {
        *length = 1;
        return true;
    }
    return (unicode_at(text, at, length) & CLASS_SPACE) != 0;
}

size_t task_trailing_space(struct task_text text)
{
    size_t at = text.length, length;

    while (at > 0) {
        const size_t before =
            at - unicode_before((const unsigned char *)text.bytes, at);

        if (!is_space(text.bytes, before, &length)) break;
        at = before;
    }
    return text.length - at;
}

int64_t task_characters(struct task_text text)
{
    int64_t count = 0;

    for (size_t i = 0; i < text.length; i++)
        count += ((unsigned char)text.bytes[i] & 0xC0) != 0x80;
    return count;
}

int64_t task_words(struct task_text text)
{
    int64_t count = 1;
    bool before = false;
    size_t length;

    for (size_t at = 0; at < text.length; at += length) {
        const bool space = is_space(text.bytes, at, &length);

        count += space && !before;
        before = space;
    }
    return count;
}

/* Replaces `from` by `to`, left to right. */
static status replace(struct text *out, const struct text *in,
                      const char *from, const char *to)
{
    const size_t length = strlen(from);

    for (size_t at = 0; at < in->length;) {
        if (in->length - at >= length &&
            memcmp(in->bytes + at, from, length) == 0) {
            TRY(text_append_string(out, to));
            at += length;
        } else {
            TRY(text_append(out, in->bytes + at, 1));
            at++;
        }
    }
    return OK;
}

/* The end of "[...]" that begins at `at`, or `at`. Up to *barren no bracket
 * closes: a line of open ones is looked through once. */
static size_t bracket_end(const struct text *in, size_t at, size_t *barren)
{
    size_t i = at + 1;

    if (in->bytes[at] != '[' || at < *barren) return at;
    for (; i < in->length && in->bytes[i] != '\n'; i++)
        if (in->bytes[i] == ']') return i + 1;
    *barren = i;
    return at;
}

static status drop_brackets(struct text *out, const struct text *in)
{
    size_t barren = 0;

    for (size_t at = 0; at < in->length;) {
        const size_t end = bracket_end(in, at, &barren);

        if (end == at) TRY(text_append(out, in->bytes + at, 1));
        at = end == at ? at + 1 : end;
    }
    return OK;
}

void task_strip(const char **bytes, size_t *length)
{
    size_t width, at = 0;

    *length -= task_trailing_space((struct task_text){*bytes, *length});
    while (at < *length && is_space(*bytes, at, &width)) at += width;
    *bytes += at;
    *length -= at;
}

status task_clean(struct text *out, const char *bytes, size_t length)
{
    struct text stages[3] = {{0}};
    status result;

    task_strip(&bytes, &length);
    TRY_GOTO(done, result, text_append(&stages[0], bytes, length));
    TRY_GOTO(done, result, replace(&stages[1], &stages[0], " [title]", ". "));
    TRY_GOTO(done, result, drop_brackets(&stages[2], &stages[1]));
    TRY_GOTO(done, result, replace(out, &stages[2], "  ", " "));
    TRY_GOTO(done, result, text_append(out, "", 0));
done:
    for (int i = 0; i < 3; i++) text_free(&stages[i]);
    return result;
}

status task_capitalize(struct text *out, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        uint32_t code;
        char shown[4];
        const int width = text_utf8_decode(bytes + at, length - at, &code);

        code = (uint32_t)(at == 0 ? utf8proc_totitle((utf8proc_int32_t)code)
                                  : utf8proc_tolower((utf8proc_int32_t)code));
        TRY(text_append(out, shown, (size_t)text_utf8_encode(code, shown)));
        at += (size_t)width;
    }
    return OK;
}
