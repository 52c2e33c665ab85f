/* SPDX-License-Identifier: Apache-2.0 */
/* normalize.c - what a tokenizer does to text before it cuts it. */
#include "data/normalize.h"

#include <string.h>
#include "data/unicode.h"

enum {
    GROWTH_MAX = 32,      /* times longer at most; Unicode's forms need 11 */
    GROWTH_FREE = 1 << 16 /* bytes that a short text may grow to */
};

#define MARK "\xE2\x96\x81" /* U+2581, SentencePiece's visible space */

static bool is_ascii(const char *text, size_t length)
{
    unsigned char seen = 0;

    for (size_t i = 0; i < length; i++) seen |= (unsigned char)text[i];
    return seen < 0x80;
}

/* The next match of literal or pattern in text[at, length). */
static status find_next(const struct normalize_step *step, const char *text,
                        struct span in, bool *found, struct span *match)
{
    const char *hit;

    if (step->regex != NULL)
        return regex_find(step->regex, text, in, found, match);
    *found = false;
    if (step->literal_length == 0) return OK;
    if (step->literal_length == 1)
        hit = memchr(text + in.start, step->literal[0], in.stop - in.start);
    else
        hit = memmem(text + in.start, in.stop - in.start, step->literal,
                     step->literal_length);
    if (hit == NULL) return OK;
    *found = true;
    match->start = (size_t)(hit - text);
    match->stop = match->start + step->literal_length;
    return OK;
}

/* A file from a stranger may make much of little, again and again. */
static status check_growth(const struct normalized *in, size_t length)
{
    if (length / GROWTH_MAX <= in->original + GROWTH_FREE / GROWTH_MAX)
        return OK;
    FAIL(ERR_FORMAT, "the normalizer makes a text of %zu bytes more than %d "
         "times longer", in->original, GROWTH_MAX);
}

static status run_replace(const struct normalize_step *step,
                          struct normalized *in, struct text *out)
{
    struct span rest = {0, in->length}, match = {0, 0};
    size_t done = 0;
    bool found;

    while (rest.start <= in->length) {
        TRY(find_next(step, in->text, rest, &found, &match));
        if (!found) break;
        TRY(text_append(out, in->text + done, match.start - done));
        TRY(text_append(out, step->content, step->content_length));
        TRY(check_growth(in, out->length));
        if (match.start == 0 && step->content_length == 0 && match.stop > 0)
            in->first = false;
        done = rest.start = match.stop;
        if (match.start == match.stop) { /* empty: one character on */
            rest.start++;
            while (rest.start < in->length &&
                   (in->text[rest.start] & 0xC0) == 0x80)
                rest.start++;
        }
    }
    return text_append(out, in->text + done, in->length - done);
}

static void run_strip(const struct normalize_step *step, struct normalized *in)
{
    const unsigned char *bytes = (const unsigned char *)in->text;
    size_t start = 0, stop = in->length, length;

    while (step->left && start < stop &&
           (unicode_at(bytes, start, &length) & CLASS_SPACE) != 0)
        start += length;
    while (step->right && stop > start) {
        const size_t last = stop - unicode_before(bytes, stop);

        if ((unicode_at(bytes, last, &length) & CLASS_SPACE) == 0) break;
        stop = last;
    }
    if (start > 0) in->first = false;
    in->text += start;
    in->length = stop - start;
}

/* What SentencePiece makes of the beginning of `text`: what is kept, a string
 * of the map, or one character as it is. */
static struct charsmap_match next_part(const struct normalize_step *step,
                                       const char *text, size_t length)
{
    struct charsmap_match match = {0};
    uint32_t code;

    if (step->kept != NULL)
        match.taken = added_longest(step->kept, text, length);
    if (match.taken == 0) {
        match = charsmap_find(&step->map, text, length, true);
        if (match.taken > 0) return match;
        match.taken = (size_t)text_utf8_decode(text, length, &code);
    }
    match.text = text;
    match.length = match.taken;
    return match;
}

static status append_escaped(const struct normalize_step *step,
                             const char *text, size_t length,
                             struct text *out)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == ' ' && step->escape)
            TRY(text_append(out, MARK, 3));
        else
            TRY(text_append(out, text + i, 1));
    return OK;
}

/* A run of text that neither map nor white space rules touch. */
static size_t plain_run(const struct normalize_step *step, const char *text,
                        size_t length)
{
    size_t at = 0;

    if (step->kept != NULL || step->map.count > 0) return 0;
    while (at < length && text[at] != ' ') at++;
    return at;
}

static status run_pieces(const struct normalize_step *step, const char *text,
                         size_t length, struct text *out)
{
    const char *space = step->escape ? MARK : " ";
    const size_t space_length = strlen(space);
    bool after_space = step->trim;
    struct charsmap_match part;
    size_t at = 0;

    for (; step->trim && at < length; at += part.taken) {
        part = next_part(step, text + at, length - at);
        if (part.length != 1 || part.text[0] != ' ') break;
    }
    if (at == length) return OK;
    if (step->before) TRY(text_append(out, space, space_length));
    while (at < length) {
        const size_t run = plain_run(step, text + at, length - at);

        if (run > 0) {
            TRY(text_append(out, text + at, run));
            at += run;
            after_space = false;
            continue;
        }
        part = next_part(step, text + at, length - at);
        at += part.taken;
        while (after_space && part.length > 0 && part.text[0] == ' ') {
            part.text++;
            part.length--;
        }
        if (part.length == 0) continue;
        TRY(append_escaped(step, part.text, part.length, out));
        after_space = step->trim && part.text[part.length - 1] == ' ';
    }
    while (step->trim && out->length >= space_length &&
           memcmp(out->bytes + out->length - space_length, space,
                  space_length) == 0)
        out->length -= space_length;
    if (step->after) TRY(text_append(out, space, space_length));
    return OK;
}

static status step_run(const struct normalize_step *step,
                       struct normalized *in, struct text *out)
{
    switch (step->kind) {
    case NORMALIZE_FORM:
        return normalize_form(step->form, in->text, in->length, out);
    case NORMALIZE_PREPEND:
        TRY(text_append(out, step->content, step->content_length));
        return text_append(out, in->text, in->length);
    case NORMALIZE_REPLACE: return run_replace(step, in, out);
    case NORMALIZE_STRIP: break;
    case NORMALIZE_CHARSMAP:
        return charsmap_clusters(&step->map, in->text, in->length, out);
    case NORMALIZE_PIECES:
        return run_pieces(step, in->text, in->length, out);
    }
    return OK;
}

status normalizer_run(const struct normalizer *normalizer, const char *text,
                      size_t length, struct normalized *out)
{
    out->text = text;
    out->length = out->original = length;
    for (int i = 0; i < normalizer->count && out->length > 0; i++) {
        const struct normalize_step *step = &normalizer->steps[i];
        struct text next = {0};
        status code = OK;

        if (step->kind == NORMALIZE_STRIP) {
            run_strip(step, out);
            continue;
        }
        if (step->kind == NORMALIZE_FORM && is_ascii(out->text, out->length))
            continue;
        code = text_append(&next, "", 0);
        if (code == OK) code = step_run(step, out, &next);
        text_free(&out->work);
        out->work = next;
        TRY(code);
        out->text = next.bytes;
        out->length = next.length;
        TRY(check_growth(out, out->length));
    }
    return OK;
}

void normalizer_free(struct normalizer *normalizer)
{
    for (int i = 0; i < normalizer->count; i++)
        regex_free(normalizer->steps[i].regex);
    *normalizer = (struct normalizer){0};
}
