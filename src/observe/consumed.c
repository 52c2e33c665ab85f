/* SPDX-License-Identifier: Apache-2.0 */
/* consumed.c - which samples each step consumed. */
#include "observe/consumed.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/json.h"

static const int64_t place_most = (int64_t)1 << 56;

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t consumed_mark(int64_t place)
{
    uint64_t x = (uint64_t)place + 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

status consumed_write(const struct consumed *step, struct text *out)
{
    struct json_writer w = {0};
    char sum[24];
    status result;

    json_write_begin(&w, 0);
    json_write_object(&w);
    json_write_key_integer(&w, "step", step->step);
    json_write_key_integer(&w, "from", step->from);
    json_write_key_integer(&w, "to", step->to);
    json_write_key_integer(&w, "samples", step->samples);
    snprintf(sum, sizeof sum, "%016" PRIx64, step->order);
    json_write_key(&w, "order");
    json_write_string(&w, sum);
    snprintf(sum, sizeof sum, "%016" PRIx64, step->tokens);
    json_write_key(&w, "tokens");
    json_write_string(&w, sum);
    json_write_object_end(&w);
    result = json_write_line(&w, out);
    json_writer_free(&w);
    return result;
}

/* ---- reading ---- */

static status read_sum(const struct json *object, const char *source,
                       const char *key, uint64_t *out)
{
    const char *text;

    TRY(json_get_string(object, source, key, &text));
    *out = 0;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        FAIL(ERR_FORMAT, "%s: %s is no sum of 16 hexadecimal digits", source,
             key);
    for (const char *c = text; *c != '\0'; c++)
        *out = *out << 4 | (uint64_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
    return OK;
}

static status read_step(struct consumed *step, struct arena *scratch,
                        const char *line, size_t length, const char *source)
{
    const struct json *object;

    TRY(json_read(&object, scratch, line, length, source));
    TRY(json_get_integer(object, source, "step", &step->step));
    TRY(json_get_integer(object, source, "from", &step->from));
    TRY(json_get_integer(object, source, "to", &step->to));
    TRY(json_get_integer(object, source, "samples", &step->samples));
    TRY(read_sum(object, source, "order", &step->order));
    TRY(read_sum(object, source, "tokens", &step->tokens));
    if (step->step < 1 || step->step > place_most || step->from < 0 ||
        step->from > step->to || step->to > place_most)
        FAIL(ERR_FORMAT, "%s: step %" PRId64 " cannot have consumed places %"
             PRId64 " to %" PRId64, source, step->step, step->from, step->to);
    return OK;
}

/* ---- the audit ---- */

void consumed_find(struct consumed_audit *audit, const char *format, ...)
{
    va_list rest;

    if (audit->finding_count++ >= CONSUMED_FINDINGS) return;
    va_start(rest, format);
    vsnprintf(audit->findings[audit->finding_count - 1],
              sizeof *audit->findings, format, rest);
    va_end(rest);
}

static uint64_t sum_marks(int64_t first, int64_t end)
{
    uint64_t sum = 0;

    for (int64_t place = first; place < end; place++)
        sum += consumed_mark(place);
    return sum;
}

/* The sum over what is not left out. */
static uint64_t sum_kept(const struct ranges *ranges, int64_t first,
                         int64_t end)
{
    uint64_t sum = 0;

    for (int i = 0; ranges != NULL && i < ranges->count; i++) {
        const struct range *range = &ranges->items[i];

        if (range->end <= first) continue;
        if (range->first >= end) break;
        if (range->first > first) sum += sum_marks(first, range->first);
        first = range->end;
    }
    return first < end ? sum + sum_marks(first, end) : sum;
}

/* The range of a step, against the places after the step before. */
static void check_place(struct consumed_audit *a, const struct consumed *step)
{
    if (step->from > a->next) {
        const int64_t left = ranges_count(a->left_out, a->next, step->from);
        const int64_t lost = step->from - a->next - left;

        a->left += left;
        a->lost += lost;
        if (lost > 0)
            consumed_find(a, "step %" PRId64 " begins at place %" PRId64
                          ", the one before ended at %" PRId64 ": %" PRId64
                          " samples are lost", step->step, step->from, a->next,
                          lost);
    } else if (step->from < a->next) {
        const int64_t again = (step->to < a->next ? step->to : a->next) -
                              step->from;

        a->repeated += again;
        consumed_find(a, "step %" PRId64 " begins at place %" PRId64 ", the "
                      "one before ended at %" PRId64 ": %" PRId64 " samples "
                      "are repeated", step->step, step->from, a->next, again);
    }
}

/* Whether the ranks together consumed the range, each place once. A range that
 * was left out after it had been consumed was in. */
static void check_sum(struct consumed_audit *a, const struct consumed *step)
{
    const int64_t left = ranges_count(a->left_out, step->from, step->to);
    const int64_t range = step->to - step->from;

    if (step->samples == range - left &&
        step->order == sum_kept(a->left_out, step->from, step->to)) {
        a->left += left;
        return;
    }
    if (left > 0 && step->samples == range &&
        step->order == sum_marks(step->from, step->to))
        return;
    a->wrong++;
    consumed_find(a, "step %" PRId64 " consumed %" PRId64 " samples that are "
                  "not the %" PRId64 " of places %" PRId64 " to %" PRId64,
                  step->step, step->samples, range - left, step->from,
                  step->to);
}

static status check_step(void *argument, const struct consumed *step,
                         const char *source)
{
    struct consumed_audit *a = argument;

    if (step->samples < 1 || step->samples > a->batch_most)
        FAIL(ERR_FORMAT, "%s: %" PRId64 " samples; a step of this run has at "
             "most %" PRId64, source, step->samples, a->batch_most);
    if (a->steps == 0) {
        a->first_step = step->step;
        a->next = step->step == 1 ? 0 : step->from;
        a->missing += step->step - 1;
        if (step->step > 1)
            consumed_find(a, "steps 1 to %" PRId64 " have no line",
                          step->step - 1);
    } else if (step->step <= a->last_step) {
        FAIL(ERR_FORMAT, "%s: step %" PRId64 " follows step %" PRId64, source,
             step->step, a->last_step);
    } else if (step->step > a->last_step + 1) {
        a->missing += step->step - a->last_step - 1;
        consumed_find(a, "steps %" PRId64 " to %" PRId64 " have no line",
                      a->last_step + 1, step->step - 1);
    }
    check_place(a, step);
    check_sum(a, step);
    a->steps++;
    a->last_step = step->step;
    a->samples += step->samples;
    if (step->to > a->next) a->next = step->to;
    return OK;
}

/* Calls `each` for every whole line, with its place for messages. */
static status read_lines(const char *bytes, size_t length, const char *source,
                         status (*each)(void *argument,
                                        const struct consumed *step,
                                        const char *where),
                         void *argument)
{
    struct arena scratch;
    size_t at = 0;
    int64_t number = 1;
    status result = OK;

    arena_init(&scratch, "a line of samples", 0);
    while (at < length) {
        const char *end = memchr(bytes + at, '\n', length - at);
        struct consumed step;
        char where[512];

        if (end == NULL) break; /* torn by a kill */
        snprintf(where, sizeof where, "%.400s: line %" PRId64, source,
                 number++);
        TRY_GOTO(done, result,
                 read_step(&step, &scratch, bytes + at,
                           (size_t)(end - bytes) - at, where));
        TRY_GOTO(done, result, each(argument, &step, where));
        arena_reset(&scratch);
        at = (size_t)(end - bytes) + 1;
    }
done:
    arena_free(&scratch);
    return result;
}

status consumed_audit(struct consumed_audit *audit, const char *bytes,
                      size_t length, const char *source)
{
    CHECK(audit->batch_most <= CONSUMED_BATCH_MOST);
    return read_lines(bytes, length, source, check_step, audit);
}

struct search { int64_t step; struct consumed *out; };

static status keep_before(void *argument, const struct consumed *step,
                          const char *where)
{
    const struct search *search = argument;

    (void)where;
    if (step->step <= search->step) *search->out = *step;
    return OK;
}

status consumed_before(const char *bytes, size_t length, const char *source,
                       int64_t step, struct consumed *out)
{
    struct search search = {.step = step, .out = out};

    *out = (struct consumed){0};
    return read_lines(bytes, length, source, keep_before, &search);
}
