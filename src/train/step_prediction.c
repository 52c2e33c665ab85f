/* SPDX-License-Identifier: Apache-2.0 */
/* step_prediction.c - the predicted step beside the measured one. */
#include "train/step_prediction.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/median.h"
#include "base/threads_exchange.h"
#include "comm/launch.h"
#include "control/board.h"
#include "step/execute.h"
#include "train/prediction_causes.h"
#include "train/run_machine.h"

enum { NOISE_STEPS = 8 /* fewer do not say how much they differ */,
       EXCHANGES = 5 };
#define NOISE_APART 0.10

/* ---- the prediction ---- */

/* A pass may be several instructions: one span, with the number of the last,
 * as the executor measures it. */
static status draw_span(struct timeline *timeline,
                        const struct timeline_span *span)
{
    for (int i = timeline->count - 1; i >= 0; i--) {
        struct timeline_span *s = &timeline->spans[i];

        if (s->rank != span->rank) break;
        if (s->action.kind != span->action.kind ||
            s->action.stage != span->action.stage ||
            s->action.microbatch != span->action.microbatch)
            continue;
        s->end_ns = span->end_ns;
        s->instruction = span->instruction;
        return OK;
    }
    return timeline_add(timeline, *span);
}

/* F, B and W of the pipeline, each with the number of its instruction. */
static status draw_items(struct step_prediction *p)
{
    for (int rank = 0; rank < p->steps.lists.ranks; rank++) {
        const struct timed_list *list = &p->steps.lists.lists[rank];

        for (int i = 0; i < list->count; i++) {
            const struct timed *t = &list->items[i];
            const enum step_item item = p->steps.items[t->kind];
            const enum action_kind kind =
                item == ITEM_F   ? ACTION_FORWARD
                : item == ITEM_W ? ACTION_BACKWARD_WEIGHT
                                 : ACTION_BACKWARD_INPUT;

            if (item > ITEM_BACKWARD) continue;
            TRY(draw_span(&p->timeline, &(struct timeline_span){
                {.kind = (int8_t)kind, .stage = (int16_t)t->stage,
                 .microbatch = t->microbatch},
                rank, (int64_t)(1e9 * t->begin), (int64_t)(1e9 * t->end),
                t->number}));
        }
    }
    return OK;
}

static status predict_run(struct step_prediction *p, struct forecast *f)
{
    struct prediction prediction;
    const struct weather weather = {.slow = NULL};
    struct cost cost;

    TRY(forecast_model(f));
    TRY(layout_from_options(&f->layout, &(struct layout_request){
        &f->set.values, &f->shape, &f->machine, AS_LOCKSTEP, f->ranks,
        f->nodes, f->blocks}));
    cost = forecast_cost(f);
    TRY(forecast_steps(f, &p->steps));
    TRY(predict_steps(&prediction, &p->steps, &cost, &weather));
    p->step_s = prediction.step_s;
    p->guessed_share = prediction.guessed_share;
    p->numbered = f->walked;
    return f->walked ? draw_items(p) : OK;
}

status step_prediction_open(struct step_prediction *p,
                            const struct setup *setup, int ranks)
{
    struct forecast f = {.ranks = ranks, .set = *setup->set};
    bool there;
    status result;

    *p = (struct step_prediction){.batch = setup->batch};
    TRY(run_machine_open(&f.machine, &setup->set->values, &there));
    if (!there) return OK;
    f.nodes = launch_is_own();
    f.set.values.train.micro_batch = setup->request.size.micro_batch;
    snprintf(p->machine, sizeof p->machine, "%s", f.machine.name);
    p->moments = f.machine.moments;
    result = predict_run(p, &f);
    machine_free(&f.machine);
    p->there = result == OK;
    if (result == OK) return OK;
    /* A run is not refused because nobody can say how long it takes. */
    fprintf(stderr, "notice    no prediction: %s\n", status_message());
    status_clear();
    step_prediction_free(p);
    return OK;
}

status step_prediction_store(const struct options *o, const char *run)
{
    struct text text = {0};
    struct machine machine;
    char path[PATH_BYTES];
    bool there;
    status result;

    TRY(run_machine_open(&machine, o, &there));
    if (!there) return OK;
    TRY_GOTO(done, result, machine_write(&machine, &text));
    TRY_GOTO(done, result, path_join(path, sizeof path, run, RUN_MACHINE));
    result = file_write_atomic(path, text.bytes, text.length);
done:
    text_free(&text);
    machine_free(&machine);
    return result;
}

/* ---- the measurement ---- */

status step_prediction_watch(struct step_prediction *p,
                             struct executor *executor, int64_t batch)
{
    void *marks = NULL, *seconds = NULL;

    executor->marks = NULL;
    /* This list was not predicted, so there is nothing to join. */
    if (!p->there || !p->numbered || batch != p->batch ||
        executor->step.count != p->steps.lists.lists[0].count)
        return OK;
    p->list = &executor->step;
    p->count = executor->step.count;
    memory_free(p->marks);
    memory_free(p->seconds);
    TRY(memory_take((size_t)p->count + 1, sizeof *p->marks, &marks));
    p->marks = marks;
    TRY(memory_take((size_t)p->count, sizeof *p->seconds, &seconds));
    p->seconds = seconds;
    executor->marks = p->marks;
    return OK;
}

/* The longest list that was predicted for this step; 0: none was. */
static int longest_list(const struct step_prediction *p, int64_t batch)
{
    int most = 0;

    if (!p->there || !p->numbered || batch != p->batch) return 0;
    for (int i = 0; i < p->steps.lists.ranks; i++)
        if (p->steps.lists.lists[i].count > most)
            most = p->steps.lists.lists[i].count;
    return most;
}

/* A row for each position of the pipe: the length of its list, then seconds. */
static void fill_planned(const struct step_prediction *p, double *values,
                         int width)
{
    for (int i = 0; p->there && i < p->steps.lists.ranks; i++) {
        const struct timed_list *list = &p->steps.lists.lists[i];
        double *row = values + (size_t)i * (size_t)width;

        row[0] = list->count;
        for (int k = 0; k < list->count; k++)
            row[k + 1] = list->items[k].seconds;
    }
}

static void take_planned(struct step_prediction *p, struct executor *executor,
                         const double *row)
{
    if (row[0] != (double)executor->step.count) return;
    for (int i = 0; i < executor->step.count; i++)
        p->planned_ns[i] = (int64_t)(1e9 * row[i + 1]);
    executor->planned_ns = p->planned_ns;
}

status step_prediction_share(struct step_prediction *p,
                             struct executor *executor, struct team *team,
                             int64_t batch)
{
    int width = longest_list(p, batch) + 1;
    void *values = NULL, *planned = NULL;
    status result;

    executor->planned_ns = NULL;
    memory_free(p->planned_ns);
    p->planned_ns = NULL;
    if (board_generation() == 0) return OK;
    TRY(team_most(team, &width));
    if (width == 1) return OK;
    const size_t count =
        (size_t)width * (size_t)team->mesh.size[AXIS_PIPE];

    result = memory_take(count, sizeof(double), &values);
    if (result == OK)
        result = memory_take((size_t)executor->step.count,
                             sizeof *p->planned_ns, &planned);
    p->planned_ns = planned;
    TRY_GOTO(done, result, team_agree(team, result));
    if (team_rank(team) == 0) fill_planned(p, values, width);
    TRY_GOTO(done, result, team_largest(team, values, (int64_t)count));
    take_planned(p, executor, (const double *)values +
                                  (size_t)team->place.at[AXIS_PIPE] *
                                      (size_t)width);
done:
    memory_free(values);
    return result;
}

void step_prediction_note(struct step_prediction *p, int64_t batch,
                          double seconds, double *ms)
{
    *ms = (double)NAN;
    if (!p->there || batch != p->batch) return;
    *ms = 1e3 * p->step_s;
    if (p->measured++ == 0) return; /* the first is slower */
    p->measured_s += seconds;
    p->recent[(p->measured - 2) % PREDICTED_RECENT] = seconds;
    for (int i = 0; i < p->count && p->marks != NULL; i++)
        p->seconds[i] += 1e-9 * (double)(p->marks[i + 1] - p->marks[i]);
}

/* ---- the comparison ---- */

static void name_item(const struct step_prediction *p, int number, char *out,
                      size_t size)
{
    const struct timed *t = &p->steps.lists.lists[0].items[number];
    const char *what =
        instruction_rows[p->list->items[number].kind].name;

    if (t->stage >= 0 && t->microbatch >= 0)
        snprintf(out, size, "%s of stage %d, micro-batch %d", what, t->stage,
                 t->microbatch);
    else
        snprintf(out, size, "%s of the step", what);
}

/* Keeps the differences that are largest, the first of them the most. */
static void keep(struct report_prediction *out,
                 const struct report_difference *d)
{
    const double far = fabs(d->measured_ms - d->predicted_ms);
    int at = out->count < REPORT_DIFFERENCES ? out->count++
                                             : REPORT_DIFFERENCES;

    for (; at > 0 && fabs(out->items[at - 1].measured_ms -
                          out->items[at - 1].predicted_ms) < far; at--)
        if (at < REPORT_DIFFERENCES) out->items[at] = out->items[at - 1];
    if (at < REPORT_DIFFERENCES) out->items[at] = *d;
}

/* How far apart the quarter of the slowest steps and that of the fastest ones
 * begin, as a share of the middle one. */
static double steps_apart(const struct step_prediction *p, int64_t steps)
{
    const int count = steps < PREDICTED_RECENT ? (int)steps : PREDICTED_RECENT;
    double sorted[PREDICTED_RECENT];

    if (count < NOISE_STEPS) return 0;
    memcpy(sorted, p->recent, (size_t)count * sizeof *sorted);
    median_sort(sorted, count);
    return (sorted[count * 3 / 4] - sorted[count / 4]) / sorted[count / 2];
}

void step_prediction_watch_cores(struct step_prediction *p,
                                 struct threads *threads)
{
    const bool is_power = (p->measured & (p->measured - 1)) == 0;
    double now;

    if (!p->there || !is_power || moments_usual(&p->moments).exchange_s <= 0)
        return;
    now = threads_exchange(threads, EXCHANGES);
    if (now > p->exchange_s) p->exchange_s = now;
}

/* Predictions are of a machine that is equally fast all the time. */
static void say_noise(const struct step_prediction *p,
                      struct report_prediction *out)
{
    const double apart = steps_apart(p, out->steps);
    const double usual_s = moments_usual(&p->moments).exchange_s;

    moments_noise(&p->moments, out->noise);
    if (out->noise[0] == '\0' && usual_s > 0 &&
        sentinel_is_far(p->exchange_s / usual_s))
        snprintf(out->noise, sizeof out->noise, "the cores were far from each "
                 "other: an exchange took up to %.0f ns, and %.0f ns when the "
                 "machine was measured", 1e9 * p->exchange_s, 1e9 * usual_s);
    if (out->noise[0] == '\0' && apart > NOISE_APART)
        snprintf(out->noise, sizeof out->noise, "the middle half of the steps "
                 "lies %.0f%% apart: the machine was not equally fast all the "
                 "time, as predictions take it to be", 100 * apart);
}

void step_prediction_compare(const struct step_prediction *p,
                             const struct profile *profile,
                             struct report_prediction *out)
{
    const double steps = (double)(p->measured - 1);
    double before = 0;

    *out = (struct report_prediction){
        .machine = p->machine, .predicted_ms = 1e3 * p->step_s,
        .guessed_share = p->guessed_share};
    if (!p->there || steps < 1) return;
    out->steps = p->measured - 1;
    out->measured_ms = 1e3 * p->measured_s / steps;
    say_noise(p, out);
    prediction_causes(&p->steps, p->step_s, profile, out);
    for (int i = 0; i < p->count && p->marks != NULL; i++) {
        const struct timed *t = &p->steps.lists.lists[0].items[i];
        const bool serial = t->resource == CLOCK_COMPUTE ||
                            t->resource == CLOCK_HOST;
        struct report_difference d = {.instruction = i};

        d.measured_ms = 1e3 * p->seconds[i] / steps;
        if (serial) {
            d.predicted_ms = 1e3 * (t->end > before ? t->end - before : 0);
            before = t->end > before ? t->end : before;
        }
        name_item(p, i, d.what, sizeof d.what);
        keep(out, &d);
    }
}

void step_prediction_free(struct step_prediction *p)
{
    steps_free(&p->steps);
    timeline_free(&p->timeline);
    memory_free(p->marks);
    memory_free(p->seconds);
    memory_free(p->planned_ns);
    *p = (struct step_prediction){.there = false};
}
