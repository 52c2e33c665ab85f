/* SPDX-License-Identifier: Apache-2.0 */
/* timed.c - when a GPU ran kernels. */
#include "device/timed.h"

/* Returns the sentence of a function of the plug-in. */
#define ASK(call)                                                          \
    do {                                                                   \
        const char *sentence_ = (call);                                    \
        if (sentence_ != NULL) return sentence_;                           \
    } while (0)

const char *timed_build(struct timed *timed, const struct cuda_plugin *plugin,
                        struct gpu *gpu)
{
    timed->plugin = plugin;
    timed->gpu = gpu;
    ASK(plugin->make_event(gpu, true, &timed->base));
    for (int i = 0; i < TIMED_MOST; i++) {
        ASK(plugin->make_event(gpu, true, &timed->spans[i].begin));
        ASK(plugin->make_event(gpu, true, &timed->spans[i].end));
    }
    return NULL;
}

static void free_event(const struct timed *timed, struct gpu_event *event)
{
    if (event != NULL) timed->plugin->free_event(timed->gpu, event);
}

void timed_free(struct timed *timed)
{
    free_event(timed, timed->base);
    for (int i = 0; i < TIMED_MOST; i++) {
        free_event(timed, timed->spans[i].begin);
        free_event(timed, timed->spans[i].end);
    }
}

/* Nothing is under way when the two clocks are set beside each other. */
static const char *find_base(struct timed *timed)
{
    ASK(timed->plugin->finish(timed->gpu, GPU_KERNELS));
    ASK(timed->plugin->record(timed->gpu, GPU_KERNELS, timed->base));
    ASK(timed->plugin->await(timed->gpu, timed->base));
    timed->base_ns = meter_now_ns();
    return NULL;
}

const char *timed_begin(struct timed *timed)
{
    if (timed->base_ns == 0) ASK(find_base(timed));
    if (timed->count == TIMED_MOST) {
        ASK(timed->plugin->await(timed->gpu,
                                 timed->spans[TIMED_MOST - 1].end));
        ASK(timed_settle(timed));
    }
    return timed->plugin->record(timed->gpu, GPU_KERNELS,
                                 timed->spans[timed->count].begin);
}

const char *timed_end(struct timed *timed, struct meter_track *track,
                      const struct meter_what *what)
{
    struct timed_span *span = &timed->spans[timed->count++];

    span->track = track;
    span->what = *what;
    span->instruction = track->instruction;
    return timed->plugin->record(timed->gpu, GPU_KERNELS, span->end);
}

/* Nanoseconds of the host's clock at an event behind the base. */
static const char *when(const struct timed *timed, struct gpu_event *event,
                        int64_t *ns)
{
    float ms = 0;

    ASK(timed->plugin->elapsed(timed->gpu, timed->base, event, &ms));
    *ns = timed->base_ns + (int64_t)(1e6 * (double)ms);
    return NULL;
}

/* The last end is the next base, so that milliseconds stay few: they are
 * float32. */
const char *timed_settle(struct timed *timed)
{
    const int count = timed->count;
    struct timed_span *last = &timed->spans[count > 0 ? count - 1 : 0];
    struct gpu_event *base = timed->base;
    int64_t end = 0;

    timed->count = 0;
    if (count == 0) return NULL;
    for (int i = 0; i < count; i++) {
        const struct timed_span *span = &timed->spans[i];
        int64_t begin = 0;

        ASK(when(timed, span->begin, &begin));
        ASK(when(timed, span->end, &end));
        meter_add(span->track, &span->what, &(struct meter_span){
            .begin_ns = begin, .end_ns = end,
            .instruction = span->instruction});
    }
    timed->base = last->end;
    last->end = base;
    timed->base_ns = end;
    return NULL;
}
