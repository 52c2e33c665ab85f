/* SPDX-License-Identifier: Apache-2.0 */
/* frame_numbers.c - which frame a micro-batch has, which buffer its gradient
 * goes back in, and when its activation can be received: decided once, from the
 * schedule's list. */
#include "list/passes.h"

#include "base/arena.h"

/* A frame is taken by F and is free after W. */
struct walk {
    const struct pipeline *pipeline;
    int *free_since; /* [frames] position in the list; -1: in use */
    int *asked;      /* [micro-batches] position of the receive; -1: none */
    int made;        /* gradients of the entry so far */
};

static int free_frame(const struct walk *w, int frames)
{
    for (int i = 0; i < frames; i++)
        if (w->free_since[i] >= 0) return i;
    CHECK(false); /* frames are counted from the same list */
    return -1;
}

static void allot(struct walk *w, int index, int position,
                  struct allotment *out)
{
    const struct pipeline *p = w->pipeline;
    const struct action action = p->schedule.lists[p->rank].items[position];
    const struct chunk *chunk = &p->chunks[index];
    const int m = action.microbatch - chunk->first;

    switch ((enum action_kind)action.kind) {
    case ACTION_RECEIVE_FORWARD:
        w->asked[m] = position;
        break;
    case ACTION_FORWARD:
        out->frame[m] = free_frame(w, p->stages[index].request.size.frames);
        out->early[m] = w->asked[m] >= w->free_since[out->frame[m]];
        w->free_since[out->frame[m]] = -1;
        break;
    case ACTION_BACKWARD_INPUT:
        if (chunk->returns > 0)
            out->returned[m] = w->made++ % chunk->returns;
        break;
    case ACTION_BACKWARD_WEIGHT:
        w->free_since[out->frame[m]] = position;
        break;
    default:
        break;
    }
}

static status allot_chunk(const struct pipeline *p, int index,
                          struct allotment *out)
{
    const struct action_list *list = &p->schedule.lists[p->rank];
    const size_t count = (size_t)p->chunks[index].count;
    const size_t frames = (size_t)p->stages[index].request.size.frames;
    struct walk w = {.pipeline = p};
    void *free_since = NULL, *asked = NULL, *memory = NULL;
    status result;

    TRY(memory_take(count, sizeof *out->frame, &memory));
    out->frame = memory;
    TRY(memory_take(count, sizeof *out->returned, &memory));
    out->returned = memory;
    TRY(memory_take(count, sizeof *out->early, &memory));
    out->early = memory;
    TRY_GOTO(done, result, memory_take(frames, sizeof(int), &free_since));
    TRY_GOTO(done, result, memory_take(count, sizeof(int), &asked));
    w.free_since = free_since;
    w.asked = asked;
    for (size_t i = 0; i < count; i++) w.asked[i] = -1;
    for (int i = 0; i < list->count; i++)
        if (pipeline_chunk(p, list->items[i].stage,
                           list->items[i].microbatch) == index)
            allot(&w, index, i, out);
done:
    memory_free(free_since);
    memory_free(asked);
    return result;
}

status allotments_build(struct allotment **out,
                        const struct pipeline *pipeline)
{
    void *memory = NULL;

    *out = NULL;
    TRY(memory_take((size_t)pipeline->count, sizeof **out, &memory));
    *out = memory;
    for (int i = 0; i < pipeline->count; i++) {
        const status result = allot_chunk(pipeline, i, &(*out)[i]);

        if (result == OK) continue;
        allotments_free(*out, pipeline->count);
        *out = NULL;
        return result;
    }
    return OK;
}

void allotments_free(struct allotment *allotments, int count)
{
    for (int i = 0; allotments != NULL && i < count; i++) {
        memory_free(allotments[i].frame);
        memory_free(allotments[i].returned);
        memory_free(allotments[i].early);
    }
    memory_free(allotments);
}
