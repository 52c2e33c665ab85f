/* SPDX-License-Identifier: Apache-2.0 */
/* normalize.c - the changes that a tokenizer makes to text before it cuts
 * it. */
#include "tokenizer/normalize.h"

#include <string.h>
#include "tokenizer/unicode.h"

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

/* A file from a stranger may make much of little, again and again. */
static status check_growth(const struct normalized *in, size_t length)
{
    if (length / GROWTH_MAX <= in->original + GROWTH_FREE / GROWTH_MAX)
        return OK;
    FAIL(ERR_FORMAT, "the normalizer makes a text of %zu bytes more than %d "
         "times longer", in->original, GROWTH_MAX);
}

/* Text that stays. */
static status keep(const struct normalized *in, size_t start, size_t stop,
                   struct rewritten *out)
{
    TRY(text_append(&out->text, in->text + start, stop - start));
    if (!out->traced) return OK;
    return origins_copy(&out->origins, in->origins.items + start,
                        stop - start);
}

static status put(struct rewritten *out, const char *bytes, size_t length,
                  struct origin origin)
{
    TRY(text_append(&out->text, bytes, length));
    if (!out->traced) return OK;
    return origins_fill(&out->origins, length, origin);
}

/* The origin of the character before `at`. */
static struct origin origin_before(const struct normalized *in, size_t at)
{
    const uint32_t base = (uint32_t)in->base;

    if (!in->traced || at == 0) return (struct origin){base, base};
    return in->origins.items[at - 1];
}

/* Text that is put before a text has the origin of its first character. */
static status run_prepend(const struct normalize_step *step,
                          const struct normalized *in, struct rewritten *out)
{
    TRY(put(out, step->replace.content, step->replace.content_length,
            origin_before(in, 1)));
    return keep(in, 0, in->length, out);
}

/* The bytes of the first character. A match that ends there keeps the text at
 * its beginning; a longer one moves it, since a replacement has the place of
 * the last character that it replaces. 0: nothing replaces the match. */
static size_t begins(const struct normalize_step *step,
                     const struct normalized *in)
{
    size_t length = 0;

    if (step->replace.content_length == 0 || in->length == 0) return 0;
    unicode_at((const unsigned char *)in->text, 0, &length);
    return length;
}

static status run_replace(const struct normalize_step *step,
                          struct normalized *in, struct rewritten *out)
{
    struct span rest = {0, in->length}, match = {0, 0};
    size_t done = 0;
    bool found;

    while (rest.start <= in->length) {
        TRY(replacement_find(&step->replace, in->text, rest, &found, &match));
        if (!found) break;
        TRY(keep(in, done, match.start, out));
        TRY(put(out, step->replace.content, step->replace.content_length,
                origin_before(in, match.stop)));
        TRY(check_growth(in, out->text.length));
        if (match.start == 0 && match.stop > begins(step, in))
            in->first = false;
        done = rest.start = match.stop;
        if (match.start == match.stop) { /* empty: one character on */
            rest.start++;
            while (rest.start < in->length &&
                   (in->text[rest.start] & 0xC0) == 0x80)
                rest.start++;
        }
    }
    return keep(in, done, in->length, out);
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
    origins_cut(&in->origins, start, stop);
    in->text += start;
    in->length = stop - start;
}

/* The first replacement that SentencePiece makes in `text`: a kept string, a
 * string of the map, or one unchanged character. */
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

/* Where in the original the text at `at` begins. */
static uint32_t place_of(const struct normalized *in, size_t at)
{
    if (!in->traced || in->length == 0) return 0;
    return at < in->length ? in->origins.items[at].start
                           : in->origins.items[at - 1].stop;
}

/* Appends what was made of the text at `at`. */
static status append_escaped(const struct normalize_step *step,
                             const struct charsmap_match *part,
                             uint32_t place, struct rewritten *out)
{
    const struct origin origin = {place, place};

    for (size_t at = 0; at < part->length;) {
        size_t stop = at;

        while (stop < part->length &&
               !(part->text[stop] == ' ' && step->escape))
            stop++;
        if (stop > at) TRY(put(out, part->text + at, stop - at, origin));
        if (stop < part->length) TRY(put(out, MARK, 3, origin));
        at = stop + 1;
    }
    return OK;
}

/* In SentencePiece only beginnings are known: a byte ends where the next one
 * begins. */
static void end_origins(struct origins *origins, uint32_t stop)
{
    for (size_t i = origins->count; i > 0; i--) {
        origins->items[i - 1].stop = stop;
        stop = origins->items[i - 1].start;
    }
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

/* The text from `at` on, between spaces that are put there. */
static status run_parts(const struct normalize_step *step,
                        const struct normalized *in, size_t at,
                        struct rewritten *out)
{
    bool after_space = step->trim;
    size_t done = at; /* what lies behind it stays as it is */

    while (at < in->length) {
        const size_t from = at;
        const size_t run = plain_run(step, in->text + at, in->length - at);
        struct charsmap_match part;

        if (run > 0) {
            at += run;
            after_space = false;
            continue;
        }
        part = next_part(step, in->text + at, in->length - at);
        at += part.taken;
        if (step->kept == NULL && part.text == in->text + from &&
            part.text[0] != ' ') { /* one character */
            after_space = false;
            continue;
        }
        TRY(keep(in, done, from, out));
        done = at;
        while (after_space && part.length > 0 && part.text[0] == ' ') {
            part.text++;
            part.length--;
        }
        if (part.length == 0) continue;
        TRY(append_escaped(step, &part, place_of(in, from), out));
        after_space = step->trim && part.text[part.length - 1] == ' ';
    }
    return keep(in, done, at, out);
}

static status run_pieces(const struct normalize_step *step,
                         const struct normalized *in, struct rewritten *out)
{
    const char *space = step->escape ? MARK : " ";
    const size_t space_length = strlen(space);
    struct charsmap_match part;
    uint32_t place, stop;
    size_t at = 0;

    for (; step->trim && at < in->length; at += part.taken) {
        part = next_part(step, in->text + at, in->length - at);
        if (part.length != 1 || part.text[0] != ' ') break;
    }
    if (at == in->length) return OK;
    place = place_of(in, at);
    stop = place_of(in, in->length);
    /* One that trims has lost whether a space was where the text is cut. */
    if (step->before && (step->trim || !in->inside))
        TRY(put(out, space, space_length, (struct origin){place, place}));
    TRY(run_parts(step, in, at, out));
    while (step->trim && out->text.length >= space_length &&
           memcmp(out->text.bytes + out->text.length - space_length, space,
                  space_length) == 0) {
        out->text.length -= space_length;
        if (!out->traced) continue;
        out->origins.count -= space_length;
        stop = out->origins.items[out->origins.count].start;
    }
    if (step->after)
        TRY(put(out, space, space_length, (struct origin){stop, stop}));
    end_origins(&out->origins, stop);
    return OK;
}

static status run_charsmap(const struct normalize_step *step,
                           const struct normalized *in, struct rewritten *out)
{
    struct realign realign = {.text = in->text,
                              .from = in->origins.items,
                              .length = in->length,
                              .base = (uint32_t)in->base,
                              .out = &out->origins};

    TRY(charsmap_clusters(&step->map, in->text, in->length, &out->text,
                          out->traced ? &realign : NULL));
    return realign_end(&realign);
}

static status step_run(const struct normalize_step *step,
                       struct normalized *in, struct rewritten *out)
{
    switch (step->kind) {
    case NORMALIZE_FORM:
        if (out->traced) return normalize_form_traced(step->form, in, out);
        return normalize_form(step->form, in->text, in->length, &out->text);
    case NORMALIZE_PREPEND: return run_prepend(step, in, out);
    case NORMALIZE_REPLACE: return run_replace(step, in, out);
    case NORMALIZE_STRIP: break;
    case NORMALIZE_CHARSMAP: return run_charsmap(step, in, out);
    case NORMALIZE_PIECES: return run_pieces(step, in, out);
    }
    return OK;
}

status normalizer_run(const struct normalizer *normalizer, const char *text,
                      size_t length, struct normalized *out)
{
    out->text = text;
    out->length = out->original = length;
    if (out->traced)
        TRY(origins_begin(&out->origins, text, length, out->base));
    for (int i = 0; i < normalizer->count && out->length > 0; i++) {
        const struct normalize_step *step = &normalizer->steps[i];
        struct rewritten next = {.traced = out->traced};
        status code = OK;

        if (step->kind == NORMALIZE_STRIP) {
            run_strip(step, out);
            continue;
        }
        if (step->kind == NORMALIZE_FORM && is_ascii(out->text, out->length))
            continue;
        if (step->kind == NORMALIZE_PREPEND && out->inside) continue;
        code = text_append(&next.text, "", 0);
        if (code == OK) code = step_run(step, out, &next);
        normalized_free(out);
        out->work = next.text;
        out->origins = next.origins;
        TRY(code);
        out->text = next.text.bytes;
        out->length = next.text.length;
        TRY(check_growth(out, out->length));
    }
    return OK;
}

void normalized_free(struct normalized *normalized)
{
    text_free(&normalized->work);
    origins_free(&normalized->origins);
}

void normalizer_free(struct normalizer *normalizer)
{
    for (int i = 0; i < normalizer->count; i++)
        regex_free(normalizer->steps[i].replace.regex);
    *normalizer = (struct normalizer){0};
}
