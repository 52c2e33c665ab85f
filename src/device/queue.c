/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - work that a thread of its own does in order, later. */
#include "device/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/meter.h"

enum { REASON_BYTES = 480, ROOM_ITEMS = 8 };

struct item {
    queue_work *work;
    struct item *next;
    struct event after;   /* it begins then */
    struct meter_track *track; /* that it counts into; NULL: none */
    enum meter_kind scope;
    int instruction;      /* of the step's list, that gave it */
};

struct queue {
    const char *name;     /* of its track; NULL: nobody meters it */
    void *owner;
    enum device_haste haste;
    status (*mark)(void *owner, uint64_t number);
    status (*reach)(void *owner, uint64_t number);
    status (*before)(void *owner, const struct meter_track *track);
    void (*later)(void *owner, struct meter_track *track,
                  const struct meter_what *what);
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t thread;
    bool started, quits;
    char *room;           /* owned */
    size_t bytes, used;   /* of the room */
    size_t told_bytes;
    struct item *first, *last; /* given and not done */
    struct item *open;   /* between queue_begin and queue_end */
    size_t opened;        /* where it lies */
    struct event after;   /* of the next item */
    uint64_t given, done; /* items */
    uint64_t asked;       /* ... that somebody waits for */
    status result;
    char reason[REASON_BYTES];
};

static void keep_error(struct queue *queue, status result)
{
    if (queue->result == OK) {
        queue->result = result;
        snprintf(queue->reason, sizeof queue->reason, "%s", status_message());
    }
    status_clear();
}

static bool may_begin(const struct queue *queue)
{
    return queue->first != NULL &&
           (queue->haste == DEVICE_EARLY || queue->asked > queue->done ||
            queue->quits);
}

static void do_first(struct queue *queue)
{
    struct item *item = queue->first;
    status result;

    pthread_mutex_unlock(&queue->lock);
    event_await(item->after);
    meter_attach(item->track);
    meter_scope(item->scope);
    meter_instruction(item->instruction);
    result = item->work(queue->owner, item + 1);
    meter_attach(NULL);
    pthread_mutex_lock(&queue->lock);
    if (result != OK) keep_error(queue, result);
    queue->first = item->next;
    if (queue->first == NULL) queue->last = NULL;
    queue->done++;
    pthread_cond_broadcast(&queue->change);
}

static void *queue_main(void *argument)
{
    struct queue *queue = argument;

    pthread_mutex_lock(&queue->lock);
    for (;;) {
        if (may_begin(queue)) do_first(queue);
        else if (queue->quits) break;
        else pthread_cond_wait(&queue->change, &queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

status queue_build(struct queue **out, const struct queue_about *about)
{
    struct queue *queue;
    void *memory = NULL;

    TRY(memory_take(1, sizeof *queue, &memory));
    *out = queue = memory;
    const size_t told = arena_aligned(about->told_bytes);

    *queue = (struct queue){.owner = about->owner, .name = about->name,
                            .haste = about->haste, .told_bytes = told,
                            .mark = about->mark, .reach = about->reach,
                            .before = about->before, .later = about->later,
                            .bytes = ROOM_ITEMS * told};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->change, NULL);
    TRY(memory_take(queue->bytes, 1, &memory));
    queue->room = memory;
    if (about->haste == DEVICE_STRAIGHT) return OK;
    const int error = pthread_create(&queue->thread, NULL, queue_main, queue);

    if (error != 0)
        FAIL(ERR_MEMORY, "the thread of a stream cannot be created (error %d)",
             error);
    queue->started = true;
    return OK;
}

void queue_free(struct queue *queue)
{
    if (queue == NULL) return;
    if (queue->started) {
        pthread_mutex_lock(&queue->lock);
        queue->quits = true;
        pthread_cond_broadcast(&queue->change);
        pthread_mutex_unlock(&queue->lock);
        pthread_join(queue->thread, NULL);
    }
    pthread_cond_destroy(&queue->change);
    pthread_mutex_destroy(&queue->lock);
    memory_free(queue->room);
    memory_free(queue);
}

static void *take_room(struct queue *queue, size_t bytes)
{
    void *at = queue->room + queue->used;

    queue->used += arena_aligned(bytes);
    CHECK(queue->used <= queue->bytes);
    memset(at, 0, bytes);
    return at;
}

/* Work that is given in a step counts into a track of the queue, as what the
 * rank does counts into its own. */
static void find_track(const struct queue *queue, struct item *item)
{
    if (queue->name == NULL || meter_thread.track == NULL) return;
    item->track = meter_background(queue, queue->name);
    item->scope = meter_thread.track->scope;
    item->instruction = meter_instruction_now();
}

/* Room is given back all at once, when nothing is left to do: STRAIGHT work
 * has read it. */
void *queue_begin(struct queue *queue, queue_work *work, size_t bytes)
{
    CHECK(queue->open == NULL);
    if (queue->used + queue->told_bytes > queue->bytes) {
        if (queue->haste != DEVICE_STRAIGHT) event_await(queue_now(queue));
        queue->used = 0;
    }
    queue->opened = queue->used;
    queue->open = take_room(queue, sizeof *queue->open + bytes);
    queue->open->work = work;
    queue->open->after = queue->after;
    find_track(queue, queue->open);
    queue->after = (struct event){0};
    return queue->open + 1;
}

void *queue_more(struct queue *queue, size_t bytes)
{
    CHECK(queue->open != NULL);
    return take_room(queue, bytes);
}

void queue_note(struct queue *queue, status result)
{
    if (result == OK) return;
    pthread_mutex_lock(&queue->lock);
    keep_error(queue, result);
    pthread_mutex_unlock(&queue->lock);
}

static bool has_failed(struct queue *queue)
{
    bool failed;

    pthread_mutex_lock(&queue->lock);
    failed = queue->result != OK;
    pthread_mutex_unlock(&queue->lock);
    return failed;
}

/* Spans of this thread would say when the work was started: `later` is told
 * of them instead. */
static status start_metered(struct queue *queue, const struct item *item)
{
    struct meter_track *own = meter_thread.track;
    status result = queue->before(queue->owner, item->track);

    item->track->later = queue->later;
    item->track->later_owner = queue->owner;
    meter_attach(item->track);
    meter_scope(item->scope);
    meter_instruction(item->instruction);
    if (result == OK)
        result = item->work(queue->owner, (void *)(uintptr_t)(item + 1));
    meter_attach(own);
    return result;
}

static status start(struct queue *queue, const struct item *item)
{
    if (item->track != NULL) return start_metered(queue, item);
    return item->work(queue->owner, (void *)(uintptr_t)(item + 1));
}

/* Here and now: the item starts what goes on later, but not behind an
 * error. */
static struct event do_straight(struct queue *queue,
                                const struct item *item)
{
    const uint64_t number = queue->given + 1;

    if (!has_failed(queue)) queue_note(queue, start(queue, item));
    if (queue->mark != NULL)
        queue_note(queue, queue->mark(queue->owner, number));
    pthread_mutex_lock(&queue->lock);
    queue->given = queue->done = number;
    pthread_mutex_unlock(&queue->lock);
    return queue_now(queue);
}

struct event queue_end(struct queue *queue)
{
    struct item *item = queue->open;

    CHECK(item != NULL && queue->used - queue->opened <= queue->told_bytes);
    queue->open = NULL;
    if (queue->haste == DEVICE_STRAIGHT) return do_straight(queue, item);
    pthread_mutex_lock(&queue->lock);
    if (queue->last == NULL) queue->first = item;
    else queue->last->next = item;
    queue->last = item;
    queue->given++;
    if (queue->haste == DEVICE_EARLY) pthread_cond_broadcast(&queue->change);
    pthread_mutex_unlock(&queue->lock);
    return queue_now(queue);
}

struct event queue_now(const struct queue *queue)
{
    return (struct event){(struct queue *)(uintptr_t)queue, queue->given};
}

void queue_after(struct queue *queue, struct event event)
{
    const struct event *before = &queue->after;

    CHECK(queue->open == NULL);
    CHECK(before->queue == NULL || (before->queue == event.queue &&
                                    before->number <= event.number));
    queue->after = event;
}

void event_await(struct event event)
{
    struct queue *queue = event.queue;

    if (queue == NULL) return;
    pthread_mutex_lock(&queue->lock);
    if (queue->asked < event.number) {
        queue->asked = event.number;
        pthread_cond_broadcast(&queue->change);
    }
    while (queue->done < event.number)
        pthread_cond_wait(&queue->change, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    if (queue->reach != NULL && event.number > 0)
        queue_note(queue, queue->reach(queue->owner, event.number));
}

status queue_status(struct queue *queue)
{
    status result;

    pthread_mutex_lock(&queue->lock);
    result = queue->result;
    queue->result = OK;
    pthread_mutex_unlock(&queue->lock);
    if (result != OK) FAIL(result, "%s", queue->reason);
    return OK;
}
