/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - a schedule from its text form. */
#include "schedule/read.h"

#include <ctype.h>
#include <string.h>

#include "base/file.h"

enum { FILE_BYTES_MAX = 1 << 28, WORD_BYTES = 24, CELLS_NAMED = 1 << 22 };

static const char *const kind_names[ACTION_KIND_COUNT] = {
    "F", "B", "W", "SF", "RF", "SB", "RB"};

struct reader {
    const char *source; /* for messages */
    const char *at, *end;
    int line;           /* from 1 */
    int rank;           /* of the line; -1 before the first action */
    bool fresh;         /* no action on this line yet */
    struct action action; /* that was read last */
    bool turned;          /* it goes in direction 1 */
};

/* Sizes, from a first reading. */
struct sizes {
    int ranks, stages, microbatches;
    int turned, unturned;    /* first of direction 1, last of direction 0 */
    int64_t actions;         /* F, B and W */
    bool lowered;
};

/* The word at the reader, for a message. */
static const char *word_at(const struct reader *r, char out[WORD_BYTES])
{
    int length = 0;

    while (r->at + length < r->end && length + 1 < WORD_BYTES &&
           isgraph((unsigned char)r->at[length]) &&
           (length == 0 || strchr("+#", r->at[length]) == NULL)) {
        out[length] = r->at[length];
        length++;
    }
    out[length] = '\0';
    return out;
}

static status bad_kind(const struct reader *r, const char *word)
{
    char upper[3] = {0};
    const char *near;

    for (int i = 0; i < 2 && isalpha((unsigned char)word[i]); i++)
        upper[i] = (char)toupper((unsigned char)word[i]);
    near = text_nearest(upper, kind_names, ACTION_KIND_COUNT);
    FAIL(ERR_FORMAT, "%s, line %d: %s is not an action; expected F, B, W, SF, "
                     "RF, SB or RB and stage.micro-batch, such as %s0.2",
         r->source, r->line, word[0] != '\0' ? word : "a byte",
         near != NULL ? near : "F");
}

static status read_kind(struct reader *r)
{
    char word[WORD_BYTES];
    int length = 0;

    while (r->at + length < r->end && length < 3 &&
           isalpha((unsigned char)r->at[length]))
        length++;
    for (int kind = 0; kind < ACTION_KIND_COUNT; kind++)
        if ((int)strlen(kind_names[kind]) == length &&
            memcmp(kind_names[kind], r->at, (size_t)length) == 0) {
            r->action.kind = (int8_t)kind;
            r->at += length;
            return OK;
        }
    return bad_kind(r, word_at(r, word));
}

static status read_number(struct reader *r, const char *what, int most,
                          int *out)
{
    const char *first = r->at;
    char word[WORD_BYTES];
    int64_t value = 0;

    while (r->at < r->end && isdigit((unsigned char)*r->at) && value <= most)
        value = 10 * value + (*r->at++ - '0');
    if (value > most)
        FAIL(ERR_FORMAT, "%s, line %d: %s %lld of an action is above %d",
             r->source, r->line, what, (long long)value, most);
    if (r->at == first || (*first == '0' && r->at - first > 1))
        FAIL(ERR_FORMAT, "%s, line %d: %s as %s; expected a number without "
                         "leading zeros, such as F0.2", r->source, r->line,
             r->at == first ? word_at(r, word) : "0...", what);
    *out = (int)value;
    return OK;
}

static status read_action(struct reader *r)
{
    char word[WORD_BYTES];
    int stage = 0, microbatch = 0;

    TRY(read_kind(r));
    TRY(read_number(r, "the stage", STAGES_MAX - 1, &stage));
    if (r->at == r->end || *r->at != '.')
        FAIL(ERR_FORMAT, "%s, line %d: after stage %d stands \"%s\"; expected "
                         "a point and the micro-batch, such as %s%d.0",
             r->source, r->line, stage, word_at(r, word),
             kind_names[r->action.kind], stage);
    r->at++;
    TRY(read_number(r, "the micro-batch", MICROBATCHES_MAX - 1,
                    &microbatch));
    r->turned = r->at < r->end && *r->at == '<';
    r->at += r->turned;
    if (r->at < r->end && strchr(" \t\r\n+#", *r->at) == NULL)
        FAIL(ERR_FORMAT, "%s, line %d: %s%d.%d is followed by \"%s\"; "
                         "expected a space, + or the end of the line",
             r->source, r->line, kind_names[r->action.kind], stage,
             microbatch, word_at(r, word));
    r->action.stage = (int16_t)stage;
    r->action.microbatch = microbatch;
    return OK;
}

/* Blanks, comments and ends of lines. */
static void skip(struct reader *r)
{
    for (; r->at < r->end && strchr(" \t\r\n#", *r->at) != NULL &&
           *r->at != '\0'; r->at++) {
        if (*r->at == '#')
            while (r->at + 1 < r->end && r->at[1] != '\n') r->at++;
        if (*r->at != '\n') continue;
        r->line++;
        r->fresh = true;
    }
}

/* *more is false at the end; else the next action is in the reader. */
static status next(struct reader *r, bool *more)
{
    bool joined = false;

    skip(r);
    *more = r->at < r->end;
    if (*more && *r->at == '+') {
        if (r->fresh)
            FAIL(ERR_FORMAT, "%s, line %d: + stands before the first action; "
                             "it joins two, such as F0.2+B3.1", r->source,
                 r->line);
        joined = true;
        r->at++;
    }
    if (!*more) return OK;
    if (r->fresh) r->rank++;
    r->fresh = false;
    TRY(read_action(r));
    r->action.joined = joined;
    return OK;
}

static struct reader begin(const char *text, size_t length,
                           const char *source)
{
    return (struct reader){.source = source, .at = text,
                           .end = text + length, .line = 1, .rank = -1,
                           .fresh = true};
}

static status measure(struct reader r, struct sizes *sizes)
{
    bool more = true;

    *sizes = (struct sizes){.turned = MICROBATCHES_MAX, .unturned = -1};
    for (;;) {
        TRY(next(&r, &more));
        if (!more) break;
        if (r.action.stage >= sizes->stages)
            sizes->stages = r.action.stage + 1;
        if (r.action.microbatch >= sizes->microbatches)
            sizes->microbatches = r.action.microbatch + 1;
        if (r.turned && r.action.microbatch < sizes->turned)
            sizes->turned = r.action.microbatch;
        if (!r.turned && r.action.microbatch > sizes->unturned)
            sizes->unturned = r.action.microbatch;
        sizes->actions += r.action.kind < ACTION_COMPUTE_COUNT;
        sizes->lowered |= r.action.kind >= ACTION_COMPUTE_COUNT;
    }
    sizes->ranks = r.rank + 1;
    if (sizes->ranks == 0)
        FAIL(ERR_FORMAT, "%s: no actions found; expected one line per rank, "
                         "such as F0.0 B0.0 W0.0", r.source);
    if (sizes->turned <= sizes->unturned)
        FAIL(ERR_FORMAT, "%s: micro-batch %d goes forward and %d is marked "
                         "<; those of direction 1 must come after all others",
             r.source, sizes->unturned, sizes->turned);
    return OK;
}

/* A file cannot ask for much more memory than its own length. */
static status check_sizes(const struct sizes *sizes, const char *source)
{
    const int64_t cells = (int64_t)sizes->stages * sizes->microbatches;

    if (sizes->ranks > sizes->stages)
        FAIL(ERR_CONFIG, "%s: %d lines with actions and %d stages; each rank "
                         "must have a stage", source, sizes->ranks,
             sizes->stages);
    if (cells > CELLS_NAMED && ACTION_COMPUTE_COUNT * cells > sizes->actions)
        FAIL(ERR_CONFIG, "%s: %d stages of %d micro-batches need %lld F, B "
                         "and W, and there are %lld", source, sizes->stages,
             sizes->microbatches, (long long)(ACTION_COMPUTE_COUNT * cells),
             (long long)sizes->actions);
    return OK;
}

static status place(struct schedule *s, const struct reader *r)
{
    int *where = &s->places[r->turned][r->action.stage];
    char name[ACTION_BYTES];

    if (*where < 0) *where = r->rank;
    if (*where != r->rank)
        FAIL(ERR_CONFIG, "%s, line %d: %s is on rank %d, and stage %d is "
                         "already on rank %d; the other direction of a "
                         "micro-batch is marked <", r->source, r->line,
             action_text(name, s, r->action), r->rank, r->action.stage,
             *where);
    return OK;
}

static status fill(struct schedule *out, struct reader r,
                   const struct sizes *sizes)
{
    bool more = true;

    TRY(schedule_begin(out, sizes->ranks, sizes->stages,
                       sizes->microbatches));
    if (sizes->turned < sizes->microbatches)
        TRY(schedule_turn(out, sizes->turned));
    out->lowered = sizes->lowered;
    for (;;) {
        TRY(next(&r, &more));
        if (!more) return OK;
        TRY(place(out, &r));
        TRY(schedule_add(out, r.rank, r.action));
    }
}

status schedule_read(struct schedule *out, const char *text, size_t length,
                     const char *source)
{
    const struct reader reader = begin(text, length, source);
    struct sizes sizes;
    status result;

    *out = (struct schedule){0};
    TRY(measure(reader, &sizes));
    TRY(check_sizes(&sizes, source));
    TRY_GOTO(failed, result, fill(out, reader, &sizes));
    TRY_GOTO(failed, result, schedule_verify(out));
    return OK;
failed:
    schedule_free(out);
    return result;
}

status schedule_read_file(struct schedule *out, const char *path)
{
    struct text text = {0};
    status result;

    *out = (struct schedule){0};
    TRY_GOTO(done, result, file_read(path, FILE_BYTES_MAX, &text));
    TRY_GOTO(done, result, schedule_read(out, text.bytes != NULL ? text.bytes
                                                                 : "",
                                         text.length, path));
done:
    text_free(&text);
    return result;
}
