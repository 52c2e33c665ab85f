/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - a picture of the work of all pipeline ranks in one step. */
#include "step/trace.h"

#include "base/file.h"
#include "base/log.h"

enum { VALUES = 3 }; /* of an action: begin, end, number of the instruction */

static bool computes(struct action action)
{
    return action.kind < ACTION_COMPUTE_COUNT;
}

/* F, B and W of ranks before `rank`. */
static int actions_before(const struct schedule *s, int rank)
{
    int count = 0;

    for (int r = 0; r < rank; r++)
        for (int i = 0; i < s->lists[r].count; i++)
            count += computes(s->lists[r].items[i]);
    return count;
}

int64_t trace_values(const struct schedule *schedule)
{
    if (schedule->verified) /* each action is there, once */
        return (int64_t)VALUES * ACTION_COMPUTE_COUNT * schedule->stages *
               schedule->microbatches;
    return VALUES * (int64_t)actions_before(schedule, schedule->ranks);
}

status trace_begin(struct trace *trace, struct train_step *step)
{
    const struct schedule *s = &step->pipeline->schedule;
    void *times = NULL;

    trace_free(trace); /* a step that was refused may be traced again */
    TRY(timeline_reserve(&trace->timeline, (int)(trace_values(s) / VALUES)));
    TRY(memory_take((size_t)trace_values(s), sizeof *trace->times, &times));
    trace->times = times;
    step->executor.timeline = &trace->timeline;
    return OK;
}

/* This rank's times into its rows of the table. */
static void put_times(struct trace *trace, const struct pipeline *p)
{
    const int first = actions_before(&p->schedule, p->rank);

    const int most = actions_before(&p->schedule, p->rank + 1) - first;

    for (int i = 0; i < trace->timeline.count && i < most; i++) {
        const struct timeline_span *span = &trace->timeline.spans[i];

        trace->times[VALUES * (first + i)] = (double)span->begin_ns;
        trace->times[VALUES * (first + i) + 1] = (double)span->end_ns;
        trace->times[VALUES * (first + i) + 2] = (double)span->instruction;
    }
}

/* All spans, from the first begin on. */
static status take_times(struct trace *trace, const struct schedule *s)
{
    double began = trace->times[0];
    int at = 0;

    for (int64_t i = 0; i < trace_values(s); i += VALUES)
        if (trace->times[i] < began) began = trace->times[i];
    trace->timeline.count = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->lists[rank].count; i++) {
            const struct action action = s->lists[rank].items[i];

            if (!computes(action)) continue;
            TRY(timeline_add(&trace->timeline, (struct timeline_span){
                action, rank, (int64_t)(trace->times[VALUES * at] - began),
                (int64_t)(trace->times[VALUES * at + 1] - began),
                (int)trace->times[VALUES * at + 2]}));
            at++;
        }
    return OK;
}

status trace_end(struct trace *trace, struct train_step *step,
                 const struct trace_picture *picture)
{
    const struct pipeline *p = step->pipeline;
    const struct place *place = &step->team->place;
    struct text svg = {0};
    status result;

    step->executor.timeline = NULL;
    if (team_batch_rank(step->team) == 0 && place->at[AXIS_TENSOR] == 0 &&
        place->at[AXIS_CONTEXT] == 0)
        put_times(trace, p);
    TRY(team_join(step->team, trace->times, trace_values(&p->schedule)));
    if (team_rank(step->team) > 0) return OK;
    TRY_GOTO(done, result, take_times(trace, &p->schedule));
    TRY_GOTO(done, result, timeline_draw_svg(
        &(struct timeline_drawing){&trace->timeline, picture->predicted,
                                   picture->title}, &p->schedule, &svg));
    if (file_write_named(picture->path, svg.bytes, svg.length) != OK) {
        /* A picture is no reason to end a run. */
        LOG(WARNING, "trace", "no picture: %s", status_message());
        status_clear();
    }
done:
    text_free(&svg);
    return result;
}

void trace_free(struct trace *trace)
{
    timeline_free(&trace->timeline);
    memory_free(trace->times);
    *trace = (struct trace){0};
}
