/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - from traces to durations of instructions, and the clock. */
#include "cli/replay.h"

#include <math.h>
#include <string.h>

#include "base/file.h"

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
static void compare(struct replayed *out, const struct replay_trace *r,
                    const struct steps *steps)
{
    for (int i = 0; i < r->list->count; i++) {
        const struct timed *t = &r->list->items[i];
        double sum = 0;

        for (int step = 0; step < r->steps; step++)
            sum += *replay_time(r, step, i);
        if (t->resource != CLOCK_COMPUTE) continue;
        out->instructions += sum > 0;
        keep_difference(out, &(struct replay_difference){
            i, step_item_names[steps->items[t->kind]], sum / r->steps,
            t->seconds});
    }
}

static bool comes(const struct timed *item)
{
    return item->resource == CLOCK_PIPE_DOWN || item->resource == CLOCK_PIPE_UP;
}

/* The instruction that waits for the message `number`; -1: none. */
static int reader_of(const struct replay_trace *r, int number)
{
    const struct timed_list *list = r->list;

    for (int i = number + 1; i < list->count; i++)
        for (int n = 0; n < list->items[i].needs; n++) {
            const struct timed_need need =
                list->needs[list->items[i].first_need + n];

            if (need.rank == r->rank && need.index == number) return i;
        }
    return -1;
}

/* A message of another rank: who made it, who reads it. */
struct handover {
    const struct replay_trace *from;
    int sends, by;         /* items there and here; by -1: nobody waits */
    double sent, arrived;  /* us; arrived 0: unknown */
};

static bool handover_of(const struct replay_trace *readers, int rank, int step,
                       int number, struct handover *out)
{
    const struct replay_trace *r = &readers[rank];
    const struct timed *item = &r->list->items[number];

    for (int n = 0; n < item->needs; n++) {
        const struct timed_need need = r->list->needs[item->first_need + n];

        if (need.rank == rank) continue;
        *out = (struct handover){.from = &readers[need.rank],
                                .sends = need.index,
                                .by = reader_of(r, number)};
        const size_t at = replay_place(out->from, step, need.index);

        if (out->from->ends[at] < 0 || out->by < 0) return false;
        out->sent = out->from->begins[at] +
                    1e6 * *replay_time(out->from, step, need.index);
        out->arrived = r->woke[replay_place(r, step, out->by)];
        if (out->arrived <= 0)
            out->arrived = r->begins[replay_place(r, step, out->by)];
        return true;
    }
    return false;
}

/* From the end of sending until the rank that waits for it has woken: the
 * message itself, and the system's time to wake a thread. */
static double flight_of(const struct replay_trace *readers, int rank, int step,
                        int number)
{
    const struct replay_trace *r = &readers[rank];
    struct handover m;

    if (!handover_of(readers, rank, step, number, &m)) return 0;
    const size_t at = replay_place(r, step, m.by);

    if (r->woke[at] <= 0) return 0;
    if (m.sent < r->waits[at]) m.sent = r->waits[at]; /* it lay there */
    return m.arrived > m.sent ? 1e-6 * (m.arrived - m.sent) : 0;
}

/* Messages that lay there until `number` asked for them: it began when it was
 * through with what came before. */
static void arrive_when_read(const struct replay_trace *readers, int rank,
                             int step, int number)
{
    const struct timed_list *list = readers[rank].list;
    const struct timed *by = &list->items[number];

    for (int n = 0; n < by->needs; n++) {
        const struct timed_need need = list->needs[by->first_need + n];
        struct handover m;
        double from;

        if (need.rank != rank || !comes(&list->items[need.index]) ||
            !handover_of(readers, rank, step, need.index, &m))
            continue;
        /* The clock begins a message when it is sent and expected. */
        from = readers[rank].begins[replay_place(&readers[rank], step,
                                                 need.index)];
        if (from < m.sent) from = m.sent;
        if (m.arrived > from)
            list->items[need.index].seconds = 1e-6 * (m.arrived - from);
    }
}

/* A message leaves while its sender is still posting it: the system may give
 * the core to the receiver, or to others. What comes after it has arrived is a
 * part of the sender's next item, unless that waits for a message anyway. */
static void leave_early(const struct replay_trace *readers, int rank, int step)
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
               m.from->list->items[next].resource != CLOCK_COMPUTE)
            next++;
        if (next == m.from->list->count) continue;
        item->seconds -= moved;
        if (m.from->woke[replay_place(m.from, step, next)] > 0)
            arrive_when_read(readers, m.from->rank, step, next);
        else
            m.from->list->items[next].seconds += moved;
    }
}

/* From when the last rank came to a meeting: the clock knows how long the
 * others wait for it. */
static double met_for(const struct replay_trace *readers, int rank, int step,
                      int number)
{
    const struct replay_trace *r = &readers[rank];
    const int32_t meeting = r->list->items[number].meeting;
    const double came = r->begins[replay_place(r, step, number)];
    double last = came, left;

    for (int other = 0; other < readers[0].ranks && meeting > 0; other++) {
        const struct replay_trace *o = &readers[other];
        const int32_t there = timed_meeting(o->list, meeting);

        if (there < 0) continue;
        const double at_us = o->begins[replay_place(o, step, there)];

        if (at_us > last) last = at_us;
    }
    left = *replay_time(r, step, number) - 1e-6 * (last - came);
    return left > 0 ? left : 0;
}

/* The time that a rank's own thread spent: posting a message is a part of it,
 * whatever resource carries the message. */
static void set_times(const struct replay_trace *readers, int rank, int step)
{
    const struct replay_trace *r = &readers[rank];

    for (int i = 0; i < r->list->count; i++) {
        struct timed *item = &r->list->items[i];

        if (comes(item)) {
            item->seconds = flight_of(readers, rank, step, i);
            item->ports = 0;
        } else {
            item->resource = CLOCK_COMPUTE;
            item->seconds = met_for(readers, rank, step, i);
        }
    }
}

/* A step lasts from the first rank that begins it to the last that ends it:
 * ranks do not begin together. Returns its seconds. */
static double set_step(const struct replay_trace *readers, int ranks, int step)
{
    double begin = readers[0].begin[step], end = readers[0].end[step];

    for (int rank = 1; rank < ranks; rank++) {
        const struct replay_trace *r = &readers[rank];

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
                           const struct replay_trace *readers)
{
    const struct clock_rules rules = {1, 1, NULL, NULL, NULL, NULL, 0};
    const int ranks = steps->lists.ranks, count = readers[0].steps;

    for (int rank = 1; rank < ranks; rank++)
        if (readers[rank].steps != count)
            FAIL(ERR_FORMAT, "%s: %d steps; the trace of rank 0 has %d",
                 readers[rank].path, readers[rank].steps, count);
    for (int step = 0; step < count; step++) {
        struct clock_result clock;
        const double measured_s = set_step(readers, ranks, step);

        TRY(clock_run(&steps->lists, &rules, &clock));
        out->measured_s += measured_s / count;
        out->replayed_s += clock.end / count;
        out->errors[step] = measured_s > 0 ? clock.end / measured_s - 1 : 0;
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
    const size_t ranks = (size_t)f->layout.pipe;
    void *memory = NULL;
    struct replay_trace *readers;
    status result;

    TRY(memory_take(ranks, sizeof *readers, &memory));
    readers = memory;
    for (int i = 0; i < f->layout.pipe; i++) {
        readers[i].list = &steps->lists.lists[i];
        readers[i].rank = i;
        readers[i].ranks = f->layout.pipe;
        TRY_GOTO(done, result, path_of(readers[i].path, path, f, i));
        TRY_GOTO(done, result, replay_trace_read(&readers[i]));
    }
    compare(out, &readers[0], steps);
    result = replay_steps(out, steps, readers);
done:
    for (int i = 0; i < f->layout.pipe; i++) replay_trace_free(&readers[i]);
    memory_free(memory);
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
