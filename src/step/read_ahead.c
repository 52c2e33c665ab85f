/* SPDX-License-Identifier: Apache-2.0 */
/* read_ahead.c - the batch of the next step, or of the next turn of an
 * evaluation, read while this one computes. */
#include "step/read_ahead.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/mapped_files.h"
#include "base/meter.h"
#include "comm/comm.h"
#include "comm/flight.h"

/* The content of a room. */
struct room {
    struct sample_source source; /* content 0: nothing */
    int64_t first;               /* its first sequence */
    int number;                  /* of the instruction that reads it */
    status result;
};

struct read_ahead {
    const struct pipeline *pipeline; /* borrowed */
    struct room *rooms;     /* owned, [count]: of micro-batches, of F alone */
    int *queue;             /* owned, [count]: rooms to be read into */
    int count;
    int begun, ended;       /* of the queue; both 0 after a wait */
    bool held;              /* lives:late: until it is waited for */
    int failed;             /* room whose reason is kept; -1: none */
    char reason[COMM_REASON_BYTES];
    struct meter_track *track; /* that the thread counts into */
    pthread_mutex_t lock;   /* of all above */
    pthread_mutex_t source; /* one thread at a time reads */
    pthread_cond_t change;
    pthread_t thread;
    bool started, quits;
};

int read_ahead_room_forward(const struct pipeline *pipeline)
{
    return pipeline_microbatches(pipeline);
}

status read_ahead_build(struct read_ahead **out,
                        const struct pipeline *pipeline)
{
    const int count = read_ahead_room_forward(pipeline) + 1;
    void *memory = NULL;
    struct read_ahead *a;

    *out = NULL;
    if (!pipeline_reads_ahead(pipeline)) return OK;
    TRY(memory_take(1, sizeof *a, &memory));
    *out = a = memory;
    *a = (struct read_ahead){.pipeline = pipeline, .count = count,
                             .failed = -1};
    pthread_mutex_init(&a->lock, NULL);
    pthread_mutex_init(&a->source, NULL);
    pthread_cond_init(&a->change, NULL);
    TRY(memory_take((size_t)count, sizeof *a->rooms, &memory));
    a->rooms = memory;
    memset(a->rooms, 0, (size_t)count * sizeof *a->rooms);
    TRY(memory_take((size_t)count, sizeof *a->queue, &memory));
    a->queue = memory;
    return OK;
}

void read_ahead_free(struct read_ahead *ahead)
{
    if (ahead == NULL) return;
    if (ahead->started) {
        pthread_mutex_lock(&ahead->lock);
        ahead->quits = true;
        pthread_cond_broadcast(&ahead->change);
        pthread_mutex_unlock(&ahead->lock);
        pthread_join(ahead->thread, NULL);
    }
    pthread_cond_destroy(&ahead->change);
    pthread_mutex_destroy(&ahead->source);
    pthread_mutex_destroy(&ahead->lock);
    memory_free(ahead->rooms);
    memory_free(ahead->queue);
    memory_free(ahead);
}

/* ---- the thread ---- */

static status fill(struct read_ahead *a, const struct sample_source *source,
                   int64_t index, const struct stage_batch *to)
{
    status result;

    pthread_mutex_lock(&a->source);
    result = source->fill(source->argument, index, to->inputs, to->targets,
                          to->positions, to->documents);
    pthread_mutex_unlock(&a->source);
    return result;
}

/* The arrays of sequence `at` in a room. */
static struct stage_batch sequence_at(const struct read_ahead *a, int which,
                                      int64_t at)
{
    const struct stage_batch all = pipeline_ahead(a->pipeline, which);
    const int64_t skip =
        at * program_sequence(&a->pipeline->stages[0].program);

    return (struct stage_batch){.inputs = all.inputs + skip,
                                .targets = all.targets + skip,
                                .positions = all.positions + skip,
                                .documents = all.documents + skip};
}

static status read_room(struct read_ahead *a, int which)
{
    const struct room *room = &a->rooms[which];
    const struct program *p = &a->pipeline->stages[0].program;

    TRY(fault_point(which < a->count - 1 ? "data.ahead" : "validate.ahead"));
    for (int64_t s = 0; s < p->size.sequences; s++) {
        const struct stage_batch to = sequence_at(a, which, s);

        TRY(fill(a, &room->source, room->first + s, &to));
    }
    return OK;
}

static void read_next(struct read_ahead *a, int which,
                      struct meter_track *counted)
{
    struct room *room = &a->rooms[which];
    const struct program *p = &a->pipeline->stages[0].program;
    struct meter_track *track;
    status result;

    meter_attach(counted);
    meter_instruction(room->number);
    track = meter_begin();
    result = read_room(a, which);
    meter_end(track, &(struct meter_what){
        .kind = METER_DATA, .name = "batch", .number = which,
        .bytes = 4.0 * sizeof(int32_t) *
                 (double)(p->size.sequences * program_sequence(p))});
    meter_attach(NULL);
    if (result == OK) return;
    pthread_mutex_lock(&a->lock);
    room->result = result;
    if (a->failed < 0) {
        a->failed = which;
        snprintf(a->reason, sizeof a->reason, "%s", status_message());
    }
    pthread_mutex_unlock(&a->lock);
    status_clear();
}

static void *ahead_main(void *argument)
{
    struct read_ahead *a = argument;

    mapped_read_ahead();
    pthread_mutex_lock(&a->lock);
    while (!a->quits) {
        if (a->begun == a->ended || a->held) {
            pthread_cond_wait(&a->change, &a->lock);
            continue;
        }
        const int which = a->queue[a->begun];

        struct meter_track *track = a->track;

        pthread_mutex_unlock(&a->lock);
        read_next(a, which, track);
        pthread_mutex_lock(&a->lock);
        a->begun++;
        pthread_cond_broadcast(&a->change);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- the caller's side ---- */

static status begin_thread(struct read_ahead *a)
{
    int error;

    if (a->started) return OK;
    error = pthread_create(&a->thread, NULL, ahead_main, a);
    if (error != 0)
        FAIL(ERR_MEMORY, "the thread that reads batches cannot be created "
                         "(error %d)", error);
    a->started = true;
    return OK;
}

status read_ahead_start(struct read_ahead *ahead,
                        const struct read_ahead_request *request)
{
    struct meter_track *track = meter_begin();

    TRY(begin_thread(ahead));
    pthread_mutex_lock(&ahead->lock);
    CHECK(ahead->ended < ahead->count);
    ahead->rooms[request->room] = (struct room){
        *request->source, request->first, request->number, OK};
    if (ahead->failed == request->room) ahead->failed = -1;
    ahead->queue[ahead->ended++] = request->room;
    ahead->track = meter_background(ahead, "host");
    ahead->held = check_lives() == CHECK_LATE;
    pthread_cond_broadcast(&ahead->change);
    pthread_mutex_unlock(&ahead->lock);
    meter_end(track, &(struct meter_what){.kind = METER_DATA, .name = "start",
                                          .label = "host"});
    if (check_lives() == CHECK_EARLY) read_ahead_wait(ahead);
    return OK;
}

void read_ahead_wait(struct read_ahead *ahead)
{
    struct meter_track *track;

    if (ahead == NULL || ahead->ended == 0) return;
    track = meter_begin();
    pthread_mutex_lock(&ahead->lock);
    if (ahead->held) pthread_cond_broadcast(&ahead->change);
    ahead->held = false;
    flight_read(1);
    while (ahead->begun < ahead->ended)
        pthread_cond_wait(&ahead->change, &ahead->lock);
    flight_read(-1);
    ahead->begun = ahead->ended = 0;
    pthread_mutex_unlock(&ahead->lock);
    meter_end(track, &(struct meter_what){
        .kind = METER_DATA, .name = "wait for the background",
        .label = "host"});
}

/* Whether the room has the sequence; *result: what reading it came to. */
static bool has(struct read_ahead *a, const struct read_ahead_sequence *wanted,
                int64_t *at, status *result)
{
    const int64_t count = a->pipeline->stages[0].program.size.sequences;
    const struct room *room = &a->rooms[wanted->room];
    bool there;

    pthread_mutex_lock(&a->lock);
    *at = wanted->index - room->first;
    there = room->source.content != 0 &&
            room->source.content == wanted->source->content &&
            *at >= 0 && *at < count &&
            (room->result == OK || a->failed == wanted->room);
    *result = room->result;
    pthread_mutex_unlock(&a->lock);
    return there;
}

static status take(struct read_ahead *ahead,
                   const struct read_ahead_sequence *sequence)
{
    const struct sample_source *source = sequence->source;
    const struct stage_batch to = {
        .inputs = sequence->inputs, .targets = sequence->targets,
        .positions = sequence->positions, .documents = sequence->documents};
    int64_t at;
    status result;

    if (ahead == NULL || source->content == 0)
        return source->fill(source->argument, sequence->index, to.inputs,
                            to.targets, to.positions, to.documents);
    if (!has(ahead, sequence, &at, &result))
        return fill(ahead, source, sequence->index, &to);
    if (result != OK) FAIL(result, "%s", ahead->reason);

    const struct stage_batch from =
        sequence_at(ahead, sequence->room, at);
    const size_t bytes =
        (size_t)program_sequence(&ahead->pipeline->stages[0].program) *
        sizeof(int32_t);

    memcpy(to.inputs, from.inputs, bytes);
    memcpy(to.targets, from.targets, bytes);
    memcpy(to.positions, from.positions, bytes);
    memcpy(to.documents, from.documents, bytes);
    return OK;
}

status read_ahead_take(struct read_ahead *ahead,
                       const struct read_ahead_sequence *sequence)
{
    status result;

    flight_read(1);
    result = take(ahead, sequence);
    flight_read(-1);
    return result;
}
