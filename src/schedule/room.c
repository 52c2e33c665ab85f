/* SPDX-License-Identifier: Apache-2.0 */
/* room.c - how much room a schedule asks of a rank. */
#include "schedule/room.h"

#include <string.h>

#include "base/arena.h"

int schedule_held_stage(const struct schedule *schedule, int stage,
                        int direction)
{
    const struct action_list *list =
        &schedule->lists[schedule->places[direction][stage]];
    const bool both = schedule->places[1] == NULL ||
                      schedule->places[0][stage] == schedule->places[1][stage];
    int held = 0, most = 0;

    for (int i = 0; i < list->count; i++) {
        const struct action a = list->items[i];

        if (a.stage != stage ||
            (!both && schedule_direction(schedule, a.microbatch) != direction))
            continue;
        held += a.kind == ACTION_FORWARD;
        if (held > most) most = held;
        held -= a.kind == ACTION_BACKWARD_WEIGHT;
    }
    return most;
}

/* A walk in which a B also waits for a buffer to put its result in. */
struct walk {
    const struct schedule *schedule;
    int buffers;
    unsigned char *done;  /* [stages * microbatches], a bit per kind */
    unsigned char *taken; /* [stages * microbatches]: B has begun */
    int *order;           /* [stages * microbatches]: results of a stage */
    int *made;            /* [2 * stages]: results so far, by direction */
    int *at;              /* [ranks] */
};

static size_t cell(const struct walk *w, int stage, int microbatch)
{
    return (size_t)stage * (size_t)w->schedule->microbatches +
           (size_t)microbatch;
}

static bool is_done(const struct walk *w, struct action a)
{
    return w->done[cell(w, a.stage, a.microbatch)] >> a.kind & 1;
}

/* A receive is complete when the other side has sent. */
static bool has_data(const struct walk *w, struct action a)
{
    struct action needs[2], sent[2];
    const int count = schedule_needs(w->schedule, a, needs);

    if (a.kind >= ACTION_COMPUTE_COUNT) return true; /* posted */
    for (int i = 0; i < count; i++) {
        if (needs[i].kind >= ACTION_COMPUTE_COUNT) {
            schedule_needs(w->schedule, needs[i], sent);
            if (!is_done(w, sent[0])) return false;
        } else if (!is_done(w, needs[i])) {
            return false;
        }
    }
    return true;
}

static bool returns(const struct walk *w, struct action a)
{
    const struct schedule *s = w->schedule;

    return a.kind == ACTION_BACKWARD_INPUT && a.stage > 0 &&
           schedule_rank(s, a.stage - 1, a.microbatch) !=
               schedule_rank(s, a.stage, a.microbatch);
}

/* Micro-batches of direction 1 are kept apart: they are the later ones. */
static int *made(const struct walk *w, struct action a)
{
    return &w->made[2 * a.stage +
                    schedule_direction(w->schedule, a.microbatch)];
}

static int *result_at(const struct walk *w, struct action a, int number)
{
    const int first = schedule_direction(w->schedule, a.microbatch)
                          ? w->schedule->turned : 0;

    return &w->order[cell(w, a.stage, first + number)];
}

static bool has_buffer(const struct walk *w, struct action a)
{
    const int number = *made(w, a);

    if (!returns(w, a) || number < w->buffers) return true;
    return w->taken[cell(w, a.stage - 1,
                         *result_at(w, a, number - w->buffers))];
}

/* As far as the list of one rank goes; whether it moved. */
static bool advance(struct walk *w, int rank)
{
    const struct action_list *list = &w->schedule->lists[rank];
    bool moved = false;

    while (w->at[rank] < list->count) {
        const struct action a = list->items[w->at[rank]];
        const size_t here = cell(w, a.stage, a.microbatch);

        if (!has_data(w, a)) break;
        if (a.kind == ACTION_BACKWARD_INPUT && !w->taken[here]) {
            w->taken[here] = 1;
            moved = true;
        }
        if (!has_buffer(w, a)) break;
        if (returns(w, a)) {
            *result_at(w, a, *made(w, a)) = a.microbatch;
            ++*made(w, a);
        }
        w->done[here] = (unsigned char)(w->done[here] | 1U << a.kind);
        w->at[rank]++;
        moved = true;
    }
    return moved;
}

/* Whether every list ends with so many buffers. */
static bool suffices(struct walk *w, int buffers)
{
    const struct schedule *s = w->schedule;
    const size_t cells = (size_t)s->stages * (size_t)s->microbatches;
    bool moved = true;

    w->buffers = buffers;
    memset(w->done, 0, cells);
    memset(w->taken, 0, cells);
    memset(w->made, 0, 2 * (size_t)s->stages * sizeof *w->made);
    memset(w->at, 0, (size_t)s->ranks * sizeof *w->at);
    while (moved) {
        moved = false;
        for (int rank = 0; rank < s->ranks; rank++)
            if (advance(w, rank)) moved = true;
    }
    for (int rank = 0; rank < s->ranks; rank++)
        if (w->at[rank] < s->lists[rank].count) return false;
    return true;
}

status schedule_returns(const struct schedule *schedule, int *out)
{
    const size_t cells = (size_t)schedule->stages *
                         (size_t)schedule->microbatches;
    void *done = NULL, *taken = NULL, *order = NULL, *made_ = NULL,
         *at = NULL;
    struct walk w = {.schedule = schedule};
    status result;

    CHECK(schedule->lowered);
    TRY_GOTO(done, result, memory_take(cells, 1, &done));
    TRY_GOTO(done, result, memory_take(cells, 1, &taken));
    TRY_GOTO(done, result, memory_take(cells, sizeof(int), &order));
    TRY_GOTO(done, result, memory_take(2 * (size_t)schedule->stages,
                                       sizeof(int), &made_));
    TRY_GOTO(done, result, memory_take((size_t)schedule->ranks, sizeof(int),
                                       &at));
    w = (struct walk){schedule, 0, done, taken, order, made_, at};
    *out = 1;
    while (*out < schedule->microbatches && !suffices(&w, *out)) ++*out;
done:
    memory_free(done);
    memory_free(taken);
    memory_free(order);
    memory_free(made_);
    memory_free(at);
    return result;
}
