/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenize.c - cuts text into the words that the model stays within. */
#include "tokenizer/pretokenize.h"

#include <string.h>
#include "base/text.h"

/* Pieces of a buffer, in order. */
struct spans {
    struct span *items; /* owned */
    size_t count, capacity;
};

static status spans_add(struct spans *spans, size_t start, size_t stop)
{
    if (start == stop) return OK; /* empty pieces vanish */
    if (spans->count == spans->capacity) {
        const size_t capacity = spans->capacity * 2 + 64;
        void *grown = spans->items;

        TRY(memory_grow(&grown, capacity, sizeof *spans->items));
        spans->items = grown;
        spans->capacity = capacity;
    }
    spans->items[spans->count++] = (struct span){start, stop};
    return OK;
}

static void spans_free(struct spans *spans)
{
    memory_free(spans->items);
    *spans = (struct spans){0};
}

static status match_next(const struct pretokenize_step *step, const char *text,
                         struct span piece, size_t at, struct span *match,
                         bool *found)
{
    if (step->regex != NULL) {
        const struct span in = {at - piece.start, piece.stop - piece.start};

        /* Look-behind sees the piece only. */
        TRY(regex_find(step->regex, text + piece.start, in, found, match));
        match->start += piece.start;
        match->stop += piece.start;
        return OK;
    }
    *found = false;
    if (step->test != NULL) {
        while (at < piece.stop) {
            uint32_t code;
            const size_t length = (size_t)text_utf8_decode(
                text + at, piece.stop - at, &code);

            *match = (struct span){at, at + length};
            *found = step->test(code);
            if (*found) return OK;
            at += length;
        }
        return OK;
    }
    if (step->literal_length > 0) {
        const char *hit = memmem(text + at, piece.stop - at, step->literal,
                                 step->literal_length);

        if (hit == NULL) return OK;
        *found = true;
        match->start = (size_t)(hit - text);
        match->stop = match->start + step->literal_length;
    }
    return OK;
}

/* All of a piece as parts that match or do not, in order. */
struct parts {
    struct spans spans;
    unsigned char *matches; /* owned [capacity] */
    size_t capacity;
};

static status parts_add(struct parts *parts, size_t start, size_t stop,
                        bool matches)
{
    const size_t count = parts->spans.count;

    TRY(spans_add(&parts->spans, start, stop));
    if (parts->spans.capacity > parts->capacity) {
        void *grown = parts->matches;

        TRY(memory_grow(&grown, parts->spans.capacity, 1));
        parts->matches = grown;
        parts->capacity = parts->spans.capacity;
    }
    if (parts->spans.count > count) parts->matches[count] = matches;
    return OK;
}

static status parts_find(struct parts *parts,
                         const struct pretokenize_step *step,
                         const char *text, struct span piece)
{
    size_t at = piece.start, done = piece.start;
    struct span match = {0, 0};
    bool found;

    parts->spans.count = 0;
    while (at <= piece.stop) {
        TRY(match_next(step, text, piece, at, &match, &found));
        if (!found) break;
        TRY(parts_add(parts, done, match.start, step->invert));
        TRY(parts_add(parts, match.start, match.stop, !step->invert));
        done = at = match.stop;
        if (match.start == match.stop) { /* an empty match: one character on */
            at++;
            while (at < piece.stop && (text[at] & 0xC0) == 0x80) at++;
        }
    }
    TRY(parts_add(parts, done, piece.stop, step->invert));
    return OK;
}

/* The rules of MergedWithPrevious, MergedWithNext and Contiguous: of several
 * matches in a row only the one that touches a neighbour joins it. */
static status parts_merge(const struct parts *parts,
                          enum split_behavior behavior, struct spans *out)
{
    const struct span *items = parts->spans.items;
    const size_t count = parts->spans.count;

    for (size_t i = 0; i < count;) {
        size_t next = i + 1;

        if (behavior == SPLIT_CONTIGUOUS) {
            while (next < count && parts->matches[next] == parts->matches[i])
                next++;
        } else if (behavior == SPLIT_WITH_PREVIOUS) {
            if (next < count && parts->matches[next] && !parts->matches[i])
                next++;
        } else if (next < count && parts->matches[i] &&
                   !parts->matches[next]) {
            next++;
        }
        TRY(spans_add(out, items[i].start, items[next - 1].stop));
        i = next;
    }
    return OK;
}

static status step_split(const struct pretokenize_step *step, const char *text,
                         const struct spans *in, struct spans *out)
{
    struct parts parts = {0};
    status result = OK;

    for (size_t i = 0; i < in->count; i++) {
        TRY_GOTO(done, result, parts_find(&parts, step, text, in->items[i]));
        if (step->behavior != SPLIT_REMOVED &&
            step->behavior != SPLIT_ISOLATED) {
            TRY_GOTO(done, result, parts_merge(&parts, step->behavior, out));
            continue;
        }
        for (size_t j = 0; j < parts.spans.count; j++)
            if (step->behavior == SPLIT_ISOLATED || !parts.matches[j])
                TRY_GOTO(done, result,
                         spans_add(out, parts.spans.items[j].start,
                                   parts.spans.items[j].stop));
    }
done:
    memory_free(parts.matches);
    spans_free(&parts.spans);
    return result;
}

static status step_scan(const struct pretokenize_step *step, const char *text,
                        const struct spans *in, struct spans *out)
{
    for (size_t i = 0; i < in->count; i++)
        for (size_t at = in->items[i].start; at < in->items[i].stop;) {
            const size_t stop = step->scan((const unsigned char *)text, at,
                                           in->items[i].stop);

            TRY(spans_add(out, at, stop));
            at = stop;
        }
    return OK;
}

/* Text that a step rewrites. */
struct rewriting {
    const char *text;          /* before */
    const struct origin *from; /* of it, or NULL */
    struct text out;           /* after */
    struct origins origins;    /* of that, or none */
    bool inside;               /* text stands right before the first piece */
};

static status keep(struct rewriting *work, size_t start, size_t stop)
{
    TRY(text_append(&work->out, work->text + start, stop - start));
    if (work->from == NULL) return OK;
    return origins_copy(&work->origins, work->from + start, stop - start);
}

/* New bytes in the place of the character at `at`. */
static status put(struct rewriting *work, const char *bytes, size_t length,
                  size_t at)
{
    TRY(text_append(&work->out, bytes, length));
    if (work->from == NULL) return OK;
    return origins_fill(&work->origins, length, work->from[at]);
}

/* Copies the pieces into a new buffer, each with a space before it unless it
 * has one. */
static status step_prefix(struct rewriting *work, struct spans *spans)
{
    for (size_t i = 0; i < spans->count; i++) {
        struct span *span = &spans->items[i];
        const size_t start = work->out.length;

        if (work->text[span->start] != ' ' && !(work->inside && i == 0))
            TRY(put(work, " ", 1, span->start));
        TRY(keep(work, span->start, span->stop));
        *span = (struct span){start, work->out.length};
    }
    return OK;
}

/* Spaces as marks, and a mark before a piece as the scheme says. */
static status mark_piece(const struct pretokenize_step *step,
                         struct rewriting *work, struct span piece, bool first,
                         bool inside)
{
    const size_t size = step->mark_length;
    const char *begin = work->text + piece.start;
    const bool wanted = !inside && (step->prepend == PREPEND_ALWAYS ||
                                    (step->prepend == PREPEND_FIRST && first));
    const bool marked = begin[0] == ' ' ||
                        (piece.stop - piece.start >= size &&
                         memcmp(begin, step->mark, size) == 0);
    size_t at = piece.start;

    if (wanted && !marked) TRY(put(work, step->mark, size, at));
    while (at < piece.stop) {
        const char *space = memchr(work->text + at, ' ', piece.stop - at);
        const size_t stop =
            space == NULL ? piece.stop : (size_t)(space - work->text);

        if (stop > at) TRY(keep(work, at, stop));
        if (space == NULL) break;
        TRY(put(work, step->mark, size, stop));
        at = stop + 1;
    }
    return OK;
}

static status step_mark(const struct pretokenize_step *step,
                        struct rewriting *work, bool first,
                        struct spans *spans)
{
    for (size_t i = 0; i < spans->count; i++) {
        struct span *span = &spans->items[i];
        const size_t start = work->out.length;

        const bool begins = work->from == NULL
                                ? first && i == 0
                                : work->from[span->start].start == 0;

        TRY(mark_piece(step, work, *span, begins, work->inside && i == 0));
        *span = (struct span){start, work->out.length};
    }
    return OK;
}

/* A piece begins at each mark. */
static status cut_marks(const struct pretokenize_step *step, const char *text,
                        const struct spans *in, struct spans *out)
{
    for (size_t i = 0; i < in->count; i++) {
        const size_t stop = in->items[i].stop;
        size_t from = in->items[i].start, at = from;

        while (at < stop) {
            const char *hit = memmem(text + at, stop - at, step->mark,
                                     step->mark_length);

            if (hit == NULL) break;
            TRY(spans_add(out, from, (size_t)(hit - text)));
            from = (size_t)(hit - text);
            at = from + step->mark_length;
        }
        TRY(spans_add(out, from, stop));
    }
    return OK;
}

struct general {
    struct spans spans; /* of the step before */
    struct spans next;  /* of this step */
    struct text buffer; /* that the spans point into; empty: the input */
    struct origins origins;    /* of the buffer, when asked for */
    const struct origin *from; /* those of the text, or NULL */
    bool first;         /* the first span is where the text began */
    bool inside;        /* it is the first of all, and text stands before it */
};

/* The rewritten text replaces the text, unless rewriting ended in `code`. */
static status adopt(struct general *work, const struct rewriting *moved,
                    status code, const char **text)
{
    text_free(&work->buffer);
    origins_free(&work->origins);
    work->buffer = moved->out;
    work->origins = moved->origins;
    TRY(code);
    if (moved->out.bytes != NULL) *text = moved->out.bytes;
    if (work->from != NULL) work->from = moved->origins.items;
    return OK;
}

static status step_rewrite(struct general *work,
                           const struct pretokenize_step *step,
                           const char **text)
{
    struct rewriting moved = {.text = *text, .from = work->from,
                              .inside = work->inside};
    const status code =
        step->mark == NULL
            ? step_prefix(&moved, &work->spans)
            : step_mark(step, &moved, work->first, &work->spans);

    return adopt(work, &moved, code, text);
}

/* Each byte as its character, or each character as its byte again. */
static status spell_piece(const struct byte_level *alphabet, bool back,
                          struct rewriting *work, struct span piece)
{
    size_t at = piece.start;

    while (at < piece.stop) {
        const char *read = work->text + at;
        char out[4];
        size_t taken = 1, count = 1;

        if (back) {
            uint32_t code;

            taken = (size_t)text_utf8_decode(read, piece.stop - at, &code);
            out[0] = (char)alphabet->byte[code];
        } else {
            count = byte_level_write(alphabet, (const unsigned char *)read, 1,
                                     out);
        }
        TRY(put(work, out, count, at));
        at += taken;
    }
    return OK;
}

/* All pieces from bytes to the alphabet, or back. */
static status spell(struct general *work, const struct byte_level *alphabet,
                    bool back, const char **text)
{
    struct rewriting moved = {.text = *text, .from = work->from};
    status code = OK;

    for (size_t i = 0; i < work->spans.count && code == OK; i++) {
        struct span *span = &work->spans.items[i];
        const size_t start = moved.out.length;

        code = spell_piece(alphabet, back, &moved, *span);
        *span = (struct span){start, moved.out.length};
    }
    return adopt(work, &moved, code, text);
}

static status step_run(struct general *work,
                       const struct pretokenize_step *step, const char **text)
{
    const struct spans used = work->spans;
    size_t start;

    if (step->prefix_space || step->mark != NULL)
        TRY(step_rewrite(work, step, text));
    if (step->whole) return OK;
    start = used.count > 0 ? work->spans.items[0].start : 0;
    work->next.count = 0;
    if (step->mark != NULL)
        TRY(cut_marks(step, *text, &work->spans, &work->next));
    else if (step->scan != NULL)
        TRY(step_scan(step, *text, &work->spans, &work->next));
    else
        TRY(step_split(step, *text, &work->spans, &work->next));
    work->spans = work->next;
    work->next = used;
    work->inside = false; /* its pieces begin wherever a text is cut */
    if (work->spans.count == 0 || work->spans.items[0].start != start)
        work->first = false;
    return OK;
}

static status run_general(const struct pretokenizer *pretokenizer,
                          const struct pretokenize_text *in,
                          pretokenize_take *take, void *context)
{
    struct general work = {.first = in->first, .from = in->from,
                           .inside = in->inside};
    const char *text = in->bytes;
    status result = OK;

    TRY_GOTO(done, result, spans_add(&work.spans, 0, in->length));
    for (int i = 0; i < pretokenizer->count; i++) {
        if (i > 0 && i == pretokenizer->spelled)
            TRY_GOTO(done, result,
                     spell(&work, &pretokenizer->alphabet, false, &text));
        TRY_GOTO(done, result,
                 step_run(&work, &pretokenizer->steps[i], &text));
    }
    if (pretokenizer->spelled > 0)
        TRY_GOTO(done, result,
                 spell(&work, &pretokenizer->alphabet, true, &text));
    for (size_t i = 0; i < work.spans.count; i++) {
        const struct span span = work.spans.items[i];

        TRY_GOTO(done, result,
                 take(context, (const unsigned char *)text + span.start,
                      span.stop - span.start,
                      work.from == NULL ? NULL : work.from + span.start));
    }
done:
    spans_free(&work.spans);
    spans_free(&work.next);
    text_free(&work.buffer);
    origins_free(&work.origins);
    return result;
}

/* Each level scans within the current piece of the level above it. */
static status run_plain(const struct pretokenizer *pretokenizer,
                        const struct pretokenize_text *in,
                        pretokenize_take *take, void *context)
{
    const unsigned char *text = (const unsigned char *)in->bytes;
    size_t stops[PRETOKENIZE_STEPS_MAX] = {0};
    const int last = pretokenizer->count - 1;

    for (size_t at = 0; at < in->length; at = stops[last]) {
        size_t end = in->length;

        for (int level = 0; level <= last; level++) {
            if (stops[level] <= at)
                stops[level] = pretokenizer->steps[level].scan(text, at, end);
            end = stops[level];
        }
        TRY(take(context, text + at, end - at,
                 in->from == NULL ? NULL : in->from + at));
    }
    return OK;
}

status pretokenizer_run(const struct pretokenizer *pretokenizer,
                        const struct pretokenize_text *text,
                        pretokenize_take *take, void *context)
{
    const unsigned char *bytes = (const unsigned char *)text->bytes;

    if (text->length == 0) return OK;
    if (pretokenizer->count == 0)
        TRY(take(context, bytes, text->length, text->from));
    else if (pretokenizer->plain)
        TRY(run_plain(pretokenizer, text, take, context));
    else
        TRY(run_general(pretokenizer, text, take, context));
    return OK;
}

void pretokenizer_free(struct pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->count; i++)
        regex_free(pretokenizer->steps[i].regex);
    *pretokenizer = (struct pretokenizer){0};
}
