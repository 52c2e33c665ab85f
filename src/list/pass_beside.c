/* SPDX-License-Identifier: Apache-2.0 */
/* pass_beside.c - actions of one bundle of the schedule run side by side: an F
 * and a B of two stages of the rank are cut where messages have just been
 * started, of tensor ranks (tensor.overlap) or of rows of experts, and their
 * parts alternate. So the messages of one micro-batch travel while the other
 * is computed. The order is fixed here, alike on all ranks of the group.
 *
 * Source: DeepSeek-AI 2024, "DeepSeek-V3 technical report", arXiv:2412.19437,
 * section 3.2.1 (DualPipe). */
#include "list/passes.h"

#include "base/arena.h"

/* Whether the event has started messages for which a later one waits. */
static bool starts_messages(const struct stage *stage, int event)
{
    const struct event *e = &stage->frame.events[event];
    const struct step *step = &stage->program.steps[e->step];
    const bool forward = e->pass == PASS_FORWARD || e->pass == PASS_RECOMPUTE;

    if (e->pass == PASS_BACKWARD_WEIGHT) return false;
    if (forward ? step->layer->starts_forward : step->layer->starts_backward)
        return true;
    return e->beside && step->layer->relayout ==
                            (forward ? RELAYOUT_GATHER : RELAYOUT_SCATTER);
}

/* Puts the next part, up to where messages have been started; false: there is
 * no such place any more, and nothing is put. */
static status put_part(struct cutter *cutter, const struct stage *stage,
                       bool *put)
{
    for (int e = cutter->whole.first_event;
         e + 1 < cutter->whole.last_event; e++)
        if (starts_messages(stage, e)) {
            *put = true;
            return cut_before(cutter, e + 1);
        }
    *put = false;
    return OK;
}

/* F ends before B does. */
static status alternate(struct step_list *out, const struct pipeline *p,
                        const struct instruction *f,
                        const struct instruction *b)
{
    struct cutter forward = {out, *f, false}, backward = {out, *b, false};
    bool more = true;

    while (more) {
        TRY(put_part(&forward, &p->stages[f->chunk], &more));
        if (more) TRY(put_part(&backward, &p->stages[b->chunk], &more));
    }
    TRY(cut_rest(&forward));
    return cut_rest(&backward);
}

/* The B of the bundle that begins with the F at `at`, or -1. */
static int find_pair(const struct step_list *list, const struct pipeline *p,
                     int at)
{
    const struct instruction *f = &list->items[at];
    int next = at + 1;

    if (f->kind != DO_FORWARD || list->forward) return -1;
    while (next < list->count && !instruction_computes(&list->items[next]))
        next++;
    if (next == list->count) return -1;
    const struct instruction *b = &list->items[next];
    const struct program *program = &p->stages[f->chunk].program;

    /* One stage has one run, and a sub-batch of domino is all of the block. */
    if (b->kind != DO_BACKWARD || !b->joined || b->chunk == f->chunk ||
        program->layout.overlap.domino)
        return -1;
    return next;
}

bool pass_beside_idle(const struct list_request *request)
{
    return request->turns > 0 || request->pipeline->takes_turns;
}

status pass_beside(struct step_list *out, const struct step_list *before,
                   const struct list_request *request)
{
    for (int i = 0; i < before->count; i++) {
        const int pair = find_pair(before, request->pipeline, i);

        if (pair < 0) {
            TRY(list_put(out, before->items[i]));
            continue;
        }
        for (int j = i + 1; j < pair; j++)
            TRY(list_put(out, before->items[j]));
        TRY(alternate(out, request->pipeline, &before->items[i],
                      &before->items[pair]));
        i = pair;
    }
    return OK;
}
