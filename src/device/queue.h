/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - work that a thread of its own does in order, later. Inside device/
 * and for the tables of kernels of a device apart.
 *
 * One thread gives work: queue_begin, room for what the work is told, and
 * queue_end. Nothing is allocated after queue_build. */
#ifndef LOCKSTEP_DEVICE_QUEUE_H
#define LOCKSTEP_DEVICE_QUEUE_H

#include "base/meter.h"
#include "device/device.h"

struct queue;

/* A point in the work of a queue: after its first `number` items. */
struct event {
    struct queue *queue; /* NULL: it is over */
    uint64_t number;
};

/* An item of work; `told`: what was written into its room. */
typedef status queue_work(void *owner, void *told);

struct queue_about {
    const char *name;     /* of its track in traces; NULL: nobody meters it */
    void *owner;          /* that work gets */
    enum device_haste haste;
    size_t told_bytes;    /* room of the largest item */
    /* STRAIGHT: after an item; before it counts as done for who awaits it. */
    status (*mark)(void *owner, uint64_t number);
    status (*reach)(void *owner, uint64_t number);
    /* STRAIGHT: before an item that is metered, and at the end of each of its
     * spans. */
    status (*before)(void *owner, const struct meter_track *track);
    void (*later)(void *owner, struct meter_track *track,
                  const struct meter_what *what);
};
status queue_build(struct queue **out, const struct queue_about *about);
void queue_free(struct queue *queue); /* does what is left; NULL allowed */

/* Room of `bytes` for an item of work, zeroed, and more for the same one. */
void *queue_begin(struct queue *queue, queue_work *work, size_t bytes);
void *queue_more(struct queue *queue, size_t bytes);
/* The event of its end. */
struct event queue_end(struct queue *queue);

/* All work that was given so far. */
struct event queue_now(const struct queue *queue);
/* Work that is given from now on begins after the event. */
void queue_after(struct queue *queue, struct event event);
/* Returns when the event has come. From any thread. */
void event_await(struct event event);
/* An error, as if the queue's work had it. */
void queue_note(struct queue *queue, status result);
/* The first error of the queue's work, said once more here. */
status queue_status(struct queue *queue);

/* ---- for launches (kernels/device_rows.c) ---- */

struct queue *device_kernels(struct device *device);
/* A copy of a list of the host's for the kernels of the open item of work. */
const void *device_tell(struct device *device, const void *at, size_t bytes);
/* Where they write host memory, which has it after device_finish. sets: they
 * set all of it, so that it holds nothing before. */
void *device_lend(struct device *device, void *at, size_t bytes, bool sets);
/* Where kernels see memory of the device; NULL: it is not the device's. */
void *device_near(const struct device *device, const void *at);
/* The stream that kernels see. */
struct stream *device_stream(struct device *device);

#endif
