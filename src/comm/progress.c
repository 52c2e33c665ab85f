/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - calls in the background: for each group a thread and a queue. */
#include "comm/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/arena.h"
#include "base/clock.h"
#include "comm/call_sums.h"
#include "comm/flight.h"
#include "comm/lifetime_check.h"
#include "comm/rank.h"

enum { SEND_TAG_SHIFT = 62 };

struct progress {
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t thread;
    bool started, quits;
    struct comm_handle *first, *last; /* not yet begun */
    uint64_t given, finished; /* calls */
};

status progress_build(struct progress **out)
{
    pthread_condattr_t attributes;

    TRY(memory_take(1, sizeof **out, (void **)out));
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&(*out)->change, &attributes);
    pthread_condattr_destroy(&attributes);
    return OK;
}

void progress_free(struct progress *progress)
{
    if (progress == NULL) return;
    if (progress->started) {
        pthread_mutex_lock(&progress->lock);
        progress->quits = true;
        pthread_cond_broadcast(&progress->change);
        pthread_mutex_unlock(&progress->lock);
        pthread_join(progress->thread, NULL);
    }
    pthread_cond_destroy(&progress->change);
    pthread_mutex_destroy(&progress->lock);
    memory_free(progress);
}

/* The call moves memory of a device when that is done with it. */
static status call_moved(struct comm_handle *handle, enum channel channel)
{
    TRY(device_await(&handle->ready));
    TRY(call_fetch(handle->group, &handle->call));
    if (call_sums_sent(handle->group, &handle->call, handle->sums_number))
        lives_changed(handle);
    TRY(call_run(handle->group, &handle->call, channel, handle->tag));
    call_sums_received(handle->group, &handle->call, handle->sums_number);
    return call_store(handle->group, &handle->call);
}

static void handle_run(struct comm_handle *handle)
{
    status result;

    meter_attach(handle->track);
    meter_instruction(handle->instruction);
    result = call_moved(handle, CHANNEL_BACKGROUND);
    meter_attach(NULL);
    handle->result = result;
    if (result != OK)
        snprintf(handle->reason, sizeof handle->reason, "%s",
                 status_message());
    status_clear();
}

/* The call, and those before it, begin. With the lock held. */
static void release(struct progress *progress, const struct comm_handle *last)
{
    if (last->released) return;
    for (struct comm_handle *h = progress->first; h != NULL; h = h->next) {
        lives_release(h);
        h->released = true;
        if (h == last) break;
    }
    pthread_cond_broadcast(&progress->change);
}

/* Until the caller changes something. With the lock held. */
static void progress_sleep(struct progress *progress)
{
    struct comm_handle *held = progress->first;
    int64_t until = clock_ns() + LIVES_LOOK_MS * (int64_t)1000000;

    if (held == NULL) {
        pthread_cond_wait(&progress->change, &progress->lock);
        return;
    }
    pthread_cond_timedwait(&progress->change, &progress->lock,
                           &(struct timespec){until / 1000000000,
                                              until % 1000000000});
    if (progress->first == held && lives_stuck(held->group->self))
        release(progress, progress->last);
}

static void *progress_main(void *argument)
{
    struct progress *progress = argument;

    pthread_mutex_lock(&progress->lock);
    for (;;) {
        struct comm_handle *handle = progress->first;

        if (handle == NULL || !handle->released) {
            if (progress->quits) break;
            progress_sleep(progress);
            continue;
        }
        progress->first = handle->next;
        pthread_mutex_unlock(&progress->lock);
        handle_run(handle);
        lives_done(handle);
        pthread_mutex_lock(&progress->lock);
        progress->finished++;
        handle->done = true; /* and from here on it is the caller's again */
        pthread_cond_broadcast(&progress->change);
    }
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

static status progress_begin(struct progress *progress)
{
    int error;

    if (progress->started) return OK;
    error = pthread_create(&progress->thread, NULL, progress_main, progress);
    if (error != 0)
        FAIL(ERR_MEMORY,
             "the background thread of a group cannot be created (error %d)",
             error);
    progress->started = true;
    return OK;
}

static status send_start(struct comm_handle *handle)
{
    struct group *group = handle->group;
    const struct tensor *in = &handle->call.in;
    status result;

    call_sums_sent(group, &handle->call, handle->sums_number);
    handle->operation = (struct operation){
        .group = group, .call = &handle->call, .tag = handle->tag};
    handle->message = (struct message){
        .block = block_plain(in->data, tensor_bytes(in))};
    if (peers_take(group, &handle->call))
        result = peers_post(&handle->operation, &handle->message,
                            &handle->told);
    else
        result = group->ops->post(&handle->operation, handle->call.peer,
                                  &handle->message);
    if (result == OK) return OK;
    (void)lives_wait(handle);
    handle->group = NULL;
    return result;
}

static status send_wait(struct comm_handle *handle)
{
    struct group *group = handle->group;
    const status result =
        peers_take(group, &handle->call)
            ? peers_finish(&handle->operation, &handle->message)
            : group->ops->finish(&handle->operation, &handle->message, false);

    operation_count(&handle->operation);
    return result;
}

static void await_done(struct comm_handle *handle)
{
    struct progress *progress = handle->group->progress;

    pthread_mutex_lock(&progress->lock);
    release(progress, handle);
    while (!handle->done)
        pthread_cond_wait(&progress->change, &progress->lock);
    pthread_mutex_unlock(&progress->lock);
}

static status begin_life(struct comm_handle *handle)
{
    const status result = lives_start(handle);

    if (result != OK) handle->group = NULL;
    return result;
}

static bool is_background(const struct comm_call *call)
{
    return call->kind != COMM_SEND && call->kind != COMM_RECV;
}

static status start(struct group *group, const struct comm_call *call,
                    struct comm_handle *handle)
{
    struct progress *progress = group->progress;

    memset(handle, 0, sizeof *handle);
    TRY(call_begin(group, call));
    TRY(lives_spoil(group, call));
    call_see(call, &handle->call);
    handle->ready = call_point(group, call);
    handle->sums_number = call_sums_next(group);
    if (call->kind == COMM_SEND && !peers_take(group, &handle->call)) {
        TRY(device_await(&handle->ready));
        TRY(call_fetch(group, &handle->call));
    }
    handle->instruction = meter_instruction_now();
    if (!is_background(call)) {
        handle->group = group;
        handle->tag = (uint64_t)1 << SEND_TAG_SHIFT | (uint64_t)call->tag;
        TRY(begin_life(handle));
        if (call->kind == COMM_RECV) return OK;
        TRY(send_start(handle));
        return OK;
    }
    TRY(progress_begin(progress));
    handle->group = group;
    TRY(begin_life(handle));
    handle->released = check_lives() != CHECK_LATE;
    handle->track = meter_background(progress, group->label);
    handle->tag = group->calls[CHANNEL_BACKGROUND]++;
    pthread_mutex_lock(&progress->lock);
    handle->number = ++progress->given;
    if (progress->first == NULL) progress->first = handle;
    else progress->last->next = handle;
    progress->last = handle;
    pthread_cond_broadcast(&progress->change);
    pthread_mutex_unlock(&progress->lock);
    if (check_lives() == CHECK_EARLY) await_done(handle);
    return OK;
}

/* Waking the background may cost this thread its processor. */
status comm_start(struct group *group, const struct comm_call *call,
                  struct comm_handle *handle)
{
    struct meter_track *track = meter_begin();
    const status result = start(group, call, handle);

    meter_end(track, &(struct meter_what){
        .kind = METER_MESSAGES, .name = "start", .label = group->label});
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

static status background_wait(struct comm_handle *handle)
{
    struct meter_track *track = meter_begin();

    await_done(handle);
    meter_end(track, &(struct meter_what){
        .kind = METER_MESSAGES, .name = "wait for the background",
        .label = handle->group->label});
    if (handle->result != OK) FAIL(handle->result, "%s", handle->reason);
    return OK;
}

/* A call that was held back can begin as long as its rank waits in another,
 * so not from here on. */
static bool has_begun(struct comm_handle *handle)
{
    struct progress *progress = handle->group->progress;
    bool begun;

    if (check_lives() == CHECK_OFF || !is_background(&handle->call))
        return false;
    pthread_mutex_lock(&progress->lock);
    begun = handle->released;
    pthread_mutex_unlock(&progress->lock);
    return begun;
}

status comm_wait(struct comm_handle *handle)
{
    struct comm_rank *self =
        handle->group != NULL ? handle->group->self : NULL;
    status result, kept;

    if (handle->group == NULL) return OK;
    flight_wait(1);
    if (has_begun(handle)) {
        lives_wait_begin(self);
        await_done(handle);
    }
    kept = lives_wait(handle);
    lives_wait_begin(self);
    if (handle->call.kind == COMM_RECV) {
        result = call_moved(handle, CHANNEL_NOW);
    } else if (handle->call.kind == COMM_SEND)
        result = send_wait(handle);
    else
        result = background_wait(handle);
    lives_wait_end(self);
    flight_wait(-1);
    handle->group = NULL;
    if (result == OK) result = kept;
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

/* The handle may have another call by then: calls end in their order. */
static void await_number(void *of, uint64_t number)
{
    const struct group *group = of;
    struct progress *progress = group->progress;

    flight_wait(1);
    lives_hold_begin(group->self);
    pthread_mutex_lock(&progress->lock);
    while (progress->finished < number)
        pthread_cond_wait(&progress->change, &progress->lock);
    pthread_mutex_unlock(&progress->lock);
    lives_hold_end(group->self);
    flight_wait(-1);
}

/* No later does a call begin that was held back: the device waits for it from
 * now on, and has the memory again. */
static void let_go(struct comm_handle *handle)
{
    struct progress *progress = handle->group->progress;

    (void)lives_wait(handle);
    pthread_mutex_lock(&progress->lock);
    release(progress, handle);
    pthread_mutex_unlock(&progress->lock);
}

status comm_leave(struct comm_handle *handle)
{
    if (handle->group == NULL) return OK;
    if (handle->ready.kernels.queue == NULL || !is_background(&handle->call))
        return comm_wait(handle);
    handle->left = true;
    if (check_lives() != CHECK_OFF) let_go(handle);
    device_hold(&handle->ready, &(struct device_hold){
        await_number, handle->group, handle->number});
    return OK;
}
