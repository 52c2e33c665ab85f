/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - from traces to durations of instructions, and the clock. */
#include "cli/replay.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/meter.h"

enum { TRACE_BYTES = 256 << 20, STEPS_MOST = 64, READERS = 16 };

struct reader {
    const char *path;
    struct timed_list *list;
    double *first, *last;    /* owned, [count], us; last < 0: not seen */
    double *waited;          /* owned, [count], us, of the step */
    double *times;           /* owned, [STEPS_MOST][count], s */
    double *begins, *ends;   /* owned, [STEPS_MOST][count], us: of the span */
    double *woke, *waits;    /* the same, of its wait for a message and where
                              * that began; 0: none */
    double begin[STEPS_MOST], end[STEPS_MOST];
    int steps;
    int ranks;               /* readers */
};

static status take_all(struct reader *r)
{
    double **const rows[] = {&r->first, &r->last, &r->waited, &r->times,
                             &r->begins, &r->ends, &r->woke, &r->waits};

    for (int i = 0; i < 8; i++) {
        const size_t steps = i >= 3 ? STEPS_MOST : 1;
        void *memory = NULL;

        TRY(memory_take(steps * ((size_t)r->list->count + 1), sizeof(double),
                        &memory));
        *rows[i] = memory;
    }
    return OK;
}

static void free_all(struct reader *r)
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

static size_t place_of(const struct reader *r, int step, int number)
{
    return (size_t)step * (size_t)r->list->count + (size_t)number;
}

static double *time_of(const struct reader *r, int step, int number)
{
    return &r->times[place_of(r, step, number)];
}

/* Whether it waits for another rank of the pipe: the clock knows how long. */
static bool receives(const struct reader *r, int64_t number)
{
    const struct timed *t = &r->list->items[number];

    for (int n = 0; n < t->needs; n++) {
        const struct timed_need need = r->list->needs[t->first_need + n];
        const int lane = r->list->items[need.index].lane;

        if (lane == CLOCK_PIPE_DOWN || lane == CLOCK_PIPE_UP) return true;
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

static status find_steps(struct reader *r, const struct json *events)
{
    for (int i = 0; i < events->count && r->steps < STEPS_MOST; i++) {
        const struct json *event = &events->items[i];
        double at, length;

        if (!is_event(event, "step", "outline")) continue;
        TRY(json_get_real(event, r->path, "ts", &at));
        TRY(json_get_real(event, r->path, "dur", &length));
        r->begin[r->steps] = at;
        r->end[r->steps++] = at + length;
    }
    if (r->steps == 0)
        FAIL(ERR_FORMAT, "%s: no steps; expected a file of `lockstep train "
                         "--trace`", r->path);
    return OK;
}

/* The span of one event of an instruction, within step `step`. */
static status note_event(struct reader *r, const struct json *event, int step)
{
    const struct json *arguments = json_get(event, "args");
    int64_t number = -1;
    double at, length;

    if (arguments == NULL) return OK;
    TRY(json_get_integer_or(arguments, r->path, "instruction", -1, &number));
    if (number < 0) return OK;
    TRY(json_get_real(event, r->path, "ts", &at));
    TRY(json_get_real(event, r->path, "dur", &length));
    if (at < r->begin[step] || at >= r->end[step]) return OK;
    if (number >= r->list->count)
        FAIL(ERR_FORMAT, "%s: instruction %lld; the step has %d: the trace is "
                         "of another configuration", r->path,
             (long long)number, r->list->count);
    if (r->last[number] < 0 || at < r->first[number]) r->first[number] = at;
    if (at + length > r->last[number]) r->last[number] = at + length;
    if (is_event(event, NULL, meter_kind_name(METER_IDLE)) &&
        receives(r, number)) {
        r->waited[number] += length;
        r->woke[place_of(r, step, (int)number)] = at + length;
        r->waits[place_of(r, step, (int)number)] = at;
    }
    return OK;
}

/* An instruction takes until the next one of the thread begins: the executor's
 * own time between them is a part of it, what it waits for others is not. */
static void take_step(struct reader *r, int step)
{
    double next = r->end[step];

    for (int n = r->list->count - 1; n >= 0; n--) {
        const double from = r->first[n];

        r->begins[place_of(r, step, n)] = from;
        r->ends[place_of(r, step, n)] = r->last[n];
        *time_of(r, step, n) = 0;
        if (r->last[n] < 0 || from > next) continue;
        if (next - from > r->waited[n])
            *time_of(r, step, n) = 1e-6 * (next - from - r->waited[n]);
        next = from;
    }
    *time_of(r, step, 0) += 1e-6 * (next - r->begin[step]);
}

static status read_events(struct reader *r, const struct json *events)
{
    TRY(find_steps(r, events));
    for (int step = 0; step < r->steps; step++) {
        for (int n = 0; n < r->list->count; n++) {
            r->last[n] = -1;
            r->waited[n] = 0;
        }
        for (int i = 0; i < events->count; i++)
            if (is_event(&events->items[i], NULL, NULL))
                TRY(note_event(r, &events->items[i], step));
        take_step(r, step);
    }
    return OK;
}

static status read_trace(struct reader *r)
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

/* Keeps the differences that are largest, the first of them the most. */
static void keep_difference(struct replayed *out,
                            const struct replay_difference *d)
{
    const double far = fabs(d->measured_s - d->predicted_s);
    int at = out->largest_count < REPLAY_LARGEST ? out->largest_count++
                                                 : REPLAY_LARGEST;

    for (; at > 0 && fabs(out->largest[at - 1].measured_s -
                          out->largest[at - 1].predicted_s) < far; at--)
        if (at < REPLAY_LARGEST) out->largest[at] = out->largest[at - 1];
    if (at < REPLAY_LARGEST) out->largest[at] = *d;
}

/* Instructions of rank 0, mean over the steps, beside their costs. */
static void compare(struct replayed *out, const struct reader *r,
                    const struct steps *steps)
{
    for (int i = 0; i < r->list->count; i++) {
        const struct timed *t = &r->list->items[i];
        double sum = 0;

        for (int step = 0; step < r->steps; step++)
            sum += *time_of(r, step, i);
        if (t->lane != CLOCK_COMPUTE) continue;
        out->instructions += sum > 0;
        keep_difference(out, &(struct replay_difference){
            i, step_item_names[steps->items[t->kind]], sum / r->steps,
            t->seconds});
    }
}

static bool comes(const struct timed *item)
{
    return item->lane == CLOCK_PIPE_DOWN || item->lane == CLOCK_PIPE_UP;
}

/* The instruction that waits for the message `number`; -1: none. */
static int reader_of(const struct timed_list *list, int number)
{
    for (int i = number + 1; i < list->count; i++)
        for (int n = 0; n < list->items[i].needs; n++)
            if (list->needs[list->items[i].first_need + n].index == number)
                return i;
    return -1;
}

/* A message of another rank: who made it, who reads it. */
struct handover {
    const struct reader *from;
    int sends, by;         /* items there and here; by -1: nobody waits */
    double sent, arrived;  /* us; arrived 0: unknown */
};

static bool handover_of(const struct reader *readers, int rank, int step,
                       int number, struct handover *out)
{
    const struct reader *r = &readers[rank];
    const struct timed *item = &r->list->items[number];

    for (int n = 0; n < item->needs; n++) {
        const struct timed_need need = r->list->needs[item->first_need + n];

        if (need.rank == rank) continue;
        *out = (struct handover){.from = &readers[need.rank],
                                .sends = need.index,
                                .by = reader_of(r->list, number)};
        const size_t at = place_of(out->from, step, need.index);

        if (out->from->ends[at] < 0 || out->by < 0) return false;
        out->sent = out->from->begins[at] +
                    1e6 * *time_of(out->from, step, need.index);
        out->arrived = r->woke[place_of(r, step, out->by)];
        if (out->arrived <= 0)
            out->arrived = r->begins[place_of(r, step, out->by)];
        return true;
    }
    return false;
}

/* From the end of sending until the rank that waits for it has woken: the
 * message itself, and the system's time to wake a thread. */
static double flight_of(const struct reader *readers, int rank, int step,
                        int number)
{
    const struct reader *r = &readers[rank];
    struct handover m;

    if (!handover_of(readers, rank, step, number, &m)) return 0;
    const size_t at = place_of(r, step, m.by);

    if (r->woke[at] <= 0) return 0;
    if (m.sent < r->waits[at]) m.sent = r->waits[at]; /* it lay there */
    return m.arrived > m.sent ? 1e-6 * (m.arrived - m.sent) : 0;
}

/* A message leaves while its sender is still posting it: the system may give
 * the core to the receiver, or to others. What comes after it has arrived is a
 * part of the sender's next item. */
static void leave_early(const struct reader *readers, int rank, int step)
{
    const struct timed_list *list = readers[rank].list;
    struct handover m;

    for (int i = 0; i < list->count; i++) {
        if (!comes(&list->items[i]) ||
            !handover_of(readers, rank, step, i, &m) || m.arrived >= m.sent)
            continue;
        struct timed *item = &m.from->list->items[m.sends];
        const double late = 1e-6 * (m.sent - m.arrived);
        const double moved = late < item->seconds ? late : item->seconds;
        int next = m.sends + 1;

        while (next < m.from->list->count &&
               m.from->list->items[next].lane != CLOCK_COMPUTE)
            next++;
        if (next == m.from->list->count) continue;
        item->seconds -= moved;
        m.from->list->items[next].seconds += moved;
    }
}

/* From when the last rank came to a meeting: the clock knows how long the
 * others wait for it. */
static double met_for(const struct reader *readers, int rank, int step,
                      int number)
{
    const struct reader *r = &readers[rank];
    const int32_t meeting = r->list->items[number].meeting;
    const double came = r->begins[place_of(r, step, number)];
    double last = came, left;

    for (int other = 0; other < readers[0].ranks && meeting > 0; other++) {
        const struct reader *o = &readers[other];
        const int32_t there = timed_meeting(o->list, meeting);

        if (there < 0) continue;
        const double at_us = o->begins[place_of(o, step, there)];

        if (at_us > last) last = at_us;
    }
    left = *time_of(r, step, number) - 1e-6 * (last - came);
    return left > 0 ? left : 0;
}

/* The time that a rank's own thread spent: posting a message is a part of it,
 * whatever lane carries the message. */
static void set_times(const struct reader *readers, int rank, int step)
{
    const struct reader *r = &readers[rank];

    for (int i = 0; i < r->list->count; i++) {
        struct timed *item = &r->list->items[i];

        if (comes(item)) {
            item->seconds = flight_of(readers, rank, step, i);
            item->ports = 0;
        } else {
            item->lane = CLOCK_COMPUTE;
            item->seconds = met_for(readers, rank, step, i);
        }
    }
}

/* A step lasts from the first rank that begins it to the last that ends it:
 * ranks do not begin together. Returns its seconds. */
static double set_step(const struct reader *readers, int ranks, int step)
{
    double begin = readers[0].begin[step], end = readers[0].end[step];

    for (int rank = 1; rank < ranks; rank++) {
        const struct reader *r = &readers[rank];

        begin = r->begin[step] < begin ? r->begin[step] : begin;
        end = r->end[step] > end ? r->end[step] : end;
    }
    for (int rank = 0; rank < ranks; rank++)
        set_times(readers, rank, step);
    for (int rank = 0; rank < ranks; rank++) {
        leave_early(readers, rank, step);
        readers[rank].list->items[0].seconds +=
            1e-6 * (readers[rank].begin[step] - begin);
    }
    return 1e-6 * (end - begin);
}

/* Runs the clock with the times of every step in turn. */
static status replay_steps(struct replayed *out, struct steps *steps,
                           const struct reader *readers)
{
    const struct clock_rules rules = {1, 1, NULL, NULL};
    const int ranks = steps->lists.ranks, count = readers[0].steps;

    for (int rank = 1; rank < ranks; rank++)
        if (readers[rank].steps != count)
            FAIL(ERR_FORMAT, "%s: %d steps; the trace of rank 0 has %d",
                 readers[rank].path, readers[rank].steps, count);
    for (int step = 0; step < count; step++) {
        struct clock_result clock;

        out->measured_s += set_step(readers, ranks, step) / count;
        TRY(clock_run(&steps->lists, &rules, &clock));
        out->replayed_s += clock.end / count;
    }
    out->steps = count;
    return OK;
}

/* "NAME.rank-0.json" of rank 0 becomes that of the rank at `position`. */
static status path_of(char out[PATH_BYTES], const char *path,
                      const struct forecast *f, int position)
{
    const char *mark = strstr(path, ".rank-0.json");
    const int rank = position * (f->ranks / f->layout.pipe);

    if (mark == NULL && f->layout.pipe > 1)
        FAIL(ERR_CONFIG, "--replay: with %d ranks name the trace of rank 0, "
                         "NAME.rank-0.json; found %s", f->ranks, path);
    if (strlen(path) >= PATH_BYTES - 16)
        FAIL(ERR_CONFIG, "--replay: the path is too long");
    if (mark == NULL) snprintf(out, PATH_BYTES, "%s", path);
    else snprintf(out, PATH_BYTES, "%.*s.rank-%d.json", (int)(mark - path),
                  path, rank);
    return OK;
}

static status read_all(struct replayed *out, const struct forecast *f,
                       struct steps *steps, const char *path)
{
    struct reader readers[READERS] = {{.path = NULL}};
    char own[READERS][PATH_BYTES];
    status result = OK;

    for (int i = 0; i < f->layout.pipe; i++) {
        readers[i].list = &steps->lists.lists[i];
        readers[i].path = own[i];
        readers[i].ranks = f->layout.pipe;
        TRY_GOTO(done, result, path_of(own[i], path, f, i));
        TRY_GOTO(done, result, take_all(&readers[i]));
        TRY_GOTO(done, result, read_trace(&readers[i]));
    }
    compare(out, &readers[0], steps);
    result = replay_steps(out, steps, readers);
done:
    for (int i = 0; i < f->layout.pipe; i++) free_all(&readers[i]);
    return result;
}

static status play(struct replayed *out, struct forecast *f,
                   struct steps *steps, const char *path)
{
    const struct cost cost = forecast_cost(f);
    const struct weather weather = {.slow = NULL};
    struct prediction prediction;

    TRY(predict_steps(&prediction, steps, &cost, &weather));
    out->predicted_s = prediction.step_s;
    return read_all(out, f, steps, path);
}

status replay(struct replayed *out, struct forecast *f, const char *path)
{
    struct steps steps = {.span_count = 0};
    status result;

    *out = (struct replayed){.steps = 0};
    TRY(forecast_steps(f, &steps));
    if (!f->walked)
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                             "--replay: the step is too large for the "
                             "executor's own lists, or --as is not lockstep");
    else
        result = play(out, f, &steps, path);
    steps_free(&steps);
    return result;
}
