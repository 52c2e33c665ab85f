/* SPDX-License-Identifier: Apache-2.0 */
/* replay_trace.c - a trace of `train --trace` as times of instructions. */
#include "cli/replay_trace.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/meter.h"

enum { TRACE_BYTES = 256 << 20 };
static const double span_least = 1e-3 /* of a step */, span_most = 1e15;

static status take_all(struct replay_trace *r)
{
    double **const rows[] = {&r->first, &r->last, &r->waited, &r->times,
                             &r->begins, &r->ends, &r->woke, &r->waits};

    for (int i = 0; i < 8; i++) {
        const size_t steps = i >= 3 ? REPLAY_STEPS_MOST : 1;
        void *memory = NULL;

        TRY(memory_take(steps * ((size_t)r->list->count + 1), sizeof(double),
                        &memory));
        *rows[i] = memory;
    }
    return OK;
}

void replay_trace_free(struct replay_trace *r)
{
    memory_free(r->first);
    memory_free(r->last);
    memory_free(r->waited);
    memory_free(r->times);
    memory_free(r->begins);
    memory_free(r->ends);
    memory_free(r->woke);
    memory_free(r->waits);
}

size_t replay_place(const struct replay_trace *r, int step, int number)
{
    return (size_t)step * (size_t)r->list->count + (size_t)number;
}

double *replay_time(const struct replay_trace *r, int step, int number)
{
    return &r->times[replay_place(r, step, number)];
}

/* Whether it waits for another rank of the pipe: the clock knows how long. */
static bool receives(const struct replay_trace *r, int64_t number)
{
    const struct timed *t = &r->list->items[number];

    for (int n = 0; n < t->needs; n++) {
        const struct timed_need need = r->list->needs[t->first_need + n];
        const int resource = need.rank == r->rank
                                 ? r->list->items[need.index].resource
                                 : CLOCK_COMPUTE;

        if (resource == CLOCK_PIPE_DOWN || resource == CLOCK_PIPE_UP)
            return true;
    }
    return false;
}

static bool is_event(const struct json *event, const char *name,
                     const char *cat)
{
    const struct json *found = json_get(event, "name");
    const struct json *kind = json_get(event, "cat");
    const struct json *track = json_get(event, "tid");

    return found != NULL && kind != NULL && track != NULL &&
           found->kind == JSON_STRING && kind->kind == JSON_STRING &&
           track->integer == 0 &&
           (name == NULL || strcmp(found->string, name) == 0) &&
           (cat == NULL || strcmp(kind->string, cat) == 0);
}

/* A span of a trace, in microseconds; longer ones are no time of a run, and
 * leave the range of the clock. */
static status span_of(const struct replay_trace *r, const struct json *event,
                      double least, double *at, double *length)
{
    TRY(json_get_real(event, r->path, "ts", at));
    TRY(json_get_real(event, r->path, "dur", length));
    if (!(fabs(*at) <= span_most && *length >= least && *length <= span_most))
        FAIL(ERR_FORMAT, "%s: a span of %g us from %g us on; expected %g to %g",
             r->path, *length, *at, least, span_most);
    return OK;
}

static status find_steps(struct replay_trace *r, const struct json *events)
{
    for (int i = 0; i < events->count && r->steps < REPLAY_STEPS_MOST; i++) {
        const struct json *event = &events->items[i];
        double at, length;

        if (!is_event(event, "step", "outline")) continue;
        TRY(span_of(r, event, span_least, &at, &length));
        r->begin[r->steps] = at;
        r->end[r->steps++] = at + length;
    }
    if (r->steps == 0)
        FAIL(ERR_FORMAT, "%s: no steps; expected a file of `lockstep train "
                         "--trace`", r->path);
    return OK;
}

/* The span of one event of an instruction, within step `step`. */
static status note_event(struct replay_trace *r, const struct json *event,
                         int step)
{
    const struct json *arguments = json_get(event, "args");
    int64_t number = -1;
    double at, length;

    if (arguments == NULL) return OK;
    TRY(json_get_integer_or(arguments, r->path, "instruction", -1, &number));
    if (number < 0) return OK;
    TRY(span_of(r, event, 0, &at, &length));
    if (at < r->begin[step] || at >= r->end[step]) return OK;
    if (number >= r->list->count)
        FAIL(ERR_FORMAT, "%s: instruction %lld; the step has %d: the trace is "
                         "of another configuration", r->path,
             (long long)number, r->list->count);
    if (r->last[number] < 0 || at < r->first[number]) r->first[number] = at;
    if (at + length > r->last[number]) r->last[number] = at + length;
    if (is_event(event, NULL, meter_kind_name(METER_IDLE)) &&
        receives(r, number)) {
        const size_t place = replay_place(r, step, (int)number);

        r->waited[number] += length;
        r->woke[place] = at + length;
        if (r->waits[place] <= 0) r->waits[place] = at;
    }
    return OK;
}

/* An instruction takes until the next one of the thread begins: the executor's
 * own time between them is a part of it, what it waits for others is not. */
static void take_step(struct replay_trace *r, int step)
{
    double next = r->end[step];

    for (int n = r->list->count - 1; n >= 0; n--) {
        const double from = r->first[n];

        r->begins[replay_place(r, step, n)] = from;
        r->ends[replay_place(r, step, n)] = r->last[n];
        *replay_time(r, step, n) = 0;
        if (r->last[n] < 0 || from > next) continue;
        if (next - from > r->waited[n])
            *replay_time(r, step, n) =
                1e-6 * (next - from - r->waited[n]);
        next = from;
    }
    *replay_time(r, step, 0) += 1e-6 * (next - r->begin[step]);
}

static status read_events(struct replay_trace *r, const struct json *events)
{
    bool any = false;

    TRY(find_steps(r, events));
    for (int step = 0; step < r->steps; step++) {
        for (int n = 0; n < r->list->count; n++) {
            r->last[n] = -1;
            r->waited[n] = 0;
        }
        for (int i = 0; i < events->count; i++)
            if (is_event(&events->items[i], NULL, NULL))
                TRY(note_event(r, &events->items[i], step));
        for (int n = 0; n < r->list->count; n++) any |= r->last[n] >= 0;
        take_step(r, step);
    }
    if (!any)
        FAIL(ERR_FORMAT, "%s: no step has a span of an instruction; expected a "
                         "file of `lockstep train --trace`", r->path);
    return OK;
}

static status read_file(struct replay_trace *r)
{
    const struct json *root, *events;
    struct arena arena;
    status result;

    arena_init(&arena, "trace", 0);
    TRY_GOTO(done, result,
             json_read_file(&root, &arena, r->path, TRACE_BYTES));
    events = json_get(root, "traceEvents");
    if (events == NULL || events->kind != JSON_ARRAY)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: no traceEvents; expected a "
                  "file of `lockstep train --trace`", r->path);
    result = read_events(r, events);
done:
    arena_free(&arena);
    return result;
}

status replay_trace_read(struct replay_trace *r)
{
    TRY(take_all(r));
    return read_file(r);
}
