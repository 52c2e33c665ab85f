/* SPDX-License-Identifier: Apache-2.0 */
/* frame_numbers.c - which frame a micro-batch has, which buffer its gradient
 * goes back in, and when its activation can be received: decided once, from the
 * schedule's list. */
#include "list/passes.h"

#include "base/arena.h"

/* A chunk's frame is taken by F and is free after W. */
struct walk {
    int *free_since; /* owned, [frames] position in the list; -1: in use */
    int *asked;      /* owned, [micro-batches] position of the receive; -1 */
    int made;        /* gradients of the entry so far */
};

static int free_frame(const struct walk *w, int frames)
{
    for (int i = 0; i < frames; i++)
        if (w->free_since[i] >= 0) return i;
    CHECK(false); /* frames are counted from the same list */
    return -1;
}

static void allot(const struct pipeline *p, struct walk *w, int index,
                  int position, struct allotment *out)
{
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

static status take_chunk(const struct pipeline *p, int index, struct walk *w,
                         struct allotment *out)
{
    const size_t count = (size_t)p->chunks[index].count;
    const size_t frames = (size_t)p->stages[index].request.size.frames;
    void *memory = NULL;

    TRY(memory_take(count, sizeof *out->frame, &memory));
    out->frame = memory;
    TRY(memory_take(count, sizeof *out->returned, &memory));
    out->returned = memory;
    TRY(memory_take(count, sizeof *out->early, &memory));
    out->early = memory;
    TRY(memory_take(frames, sizeof *w->free_since, &memory));
    w->free_since = memory;
    TRY(memory_take(count, sizeof *w->asked, &memory));
    w->asked = memory;
    for (size_t i = 0; i < count; i++) w->asked[i] = -1;
    return OK;
}

static status allot_all(const struct pipeline *p, struct walk *walks,
                        struct allotment *out)
{
    const struct action_list *list = &p->schedule.lists[p->rank];

    for (int i = 0; i < p->count; i++)
        TRY(take_chunk(p, i, &walks[i], &out[i]));
    for (int i = 0; i < list->count; i++) {
        const struct action *a = &list->items[i];
        const int chunk = pipeline_chunk(p, a->stage, a->microbatch);

        if (chunk >= 0) allot(p, &walks[chunk], chunk, i, &out[chunk]);
    }
    return OK;
}

status allotments_build(struct allotment **out,
                        const struct pipeline *pipeline)
{
    const size_t count = (size_t)pipeline->count;
    void *memory = NULL, *walks = NULL;
    status result;

    *out = NULL;
    TRY(memory_take(count, sizeof **out, &memory));
    result = memory_take(count, sizeof(struct walk), &walks);
    if (result == OK) result = allot_all(pipeline, walks, memory);
    for (size_t i = 0; walks != NULL && i < count; i++) {
        const struct walk *w = &((struct walk *)walks)[i];

        memory_free(w->free_since);
        memory_free(w->asked);
    }
    memory_free(walks);
    *out = memory;
    if (result == OK) return OK;
    allotments_free(*out, pipeline->count);
    *out = NULL;
    return result;
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
