/* SPDX-License-Identifier: Apache-2.0 */
/* average.c - an exponential moving average of the weights. */
#include "optimizer/average.h"

#include <string.h>

#include "base/meter.h"

enum work { WORK_MOVE, WORK_START, WORK_SWAP };

struct averaging {
    void *average, *weight;   /* [count] real */
    enum dtype dtype;
    int64_t count;
    double rest;              /* 1 - decay */
    enum work work;
};

/* No FMA: every compiler and machine rounds after each of the three. */
static void move_singles(const struct averaging *a, int64_t first,
                         int64_t last)
{
    const float *weight = a->weight;
    float *average = a->average;
    const float rest = (float)a->rest;

    for (int64_t i = first; i < last; i++)
        average[i] = average[i] + rest * (weight[i] - average[i]);
}

static void move_doubles(const struct averaging *a, int64_t first,
                         int64_t last)
{
    const double *weight = a->weight;
    double *average = a->average;

    for (int64_t i = first; i < last; i++)
        average[i] = average[i] + a->rest * (weight[i] - average[i]);
}

static void swap_bytes(char *a, char *b, size_t count)
{
    char room[4096];

    while (count > 0) {
        const size_t some = count < sizeof room ? count : sizeof room;

        memcpy(room, a, some);
        memcpy(a, b, some);
        memcpy(b, room, some);
        a += some;
        b += some;
        count -= some;
    }
}

static void body(void *argument, int index, int count)
{
    const struct averaging *a = argument;
    const int64_t bytes = dtype_bytes(a->dtype);
    int64_t first, last;

    threads_split(a->count, 64, index, count, &first, &last);
    if (first >= last) return;
    if (a->work == WORK_SWAP)
        swap_bytes((char *)a->average + first * bytes,
                   (char *)a->weight + first * bytes,
                   (size_t)((last - first) * bytes));
    else if (a->work == WORK_START)
        memcpy((char *)a->average + first * bytes,
               (char *)a->weight + first * bytes,
               (size_t)((last - first) * bytes));
    else if (a->dtype == DTYPE_F64)
        move_doubles(a, first, last);
    else
        move_singles(a, first, last);
}

enum { AT_ONCE = 1024 }; /* elements that the host has of a device apart */

/* Averages by copies to the host and back. */
static status work_apart(const struct update *u, const struct averaging *all)
{
    const int64_t bytes = dtype_bytes(all->dtype);
    double average[AT_ONCE], weight[AT_ONCE];

    for (int64_t at = 0; at < all->count; at += AT_ONCE) {
        const int64_t left = all->count - at;
        const int64_t count = left < AT_ONCE ? left : AT_ONCE;
        char *a = (char *)all->average + at * bytes;
        char *w = (char *)all->weight + at * bytes;
        struct averaging some = *all;

        some.average = average;
        some.weight = weight;
        some.count = count;
        TRY(device_read(u->stream, average, a, (size_t)(count * bytes)));
        TRY(device_read(u->stream, weight, w, (size_t)(count * bytes)));
        body(&some, 0, 1);
        TRY(device_write(u->stream, a, average, (size_t)(count * bytes)));
        if (all->work == WORK_SWAP)
            TRY(device_write(u->stream, w, weight, (size_t)(count * bytes)));
    }
    return OK;
}

static status each(const struct update *u, enum work work)
{
    const struct update_call call = {.factor = 1};
    struct meter_track *track = meter_begin();

    for (int i = u->first; i < update_end(u); i++) {
        const struct update_item item = update_item(u, i, &call);
        const struct tensor *average = &item.states[STATE_AVERAGE];
        struct averaging a = {
            .average = average->data, .weight = item.weight.data,
            .dtype = item.weight.dtype, .count = item.weight.shape[0],
            .rest = 1 - item.rule->average, .work = work};

        if (item.range.first == item.range.last || average->data == NULL)
            continue;
        CHECK(average->dtype == a.dtype && average->shape[0] == a.count);
        if (u->stream->device != NULL) TRY(work_apart(u, &a));
        else threads_run(u->stream->threads, body, &a);
    }
    meter_end(track, &(struct meter_what){.kind = METER_OPTIMIZER,
                                          .name = "moving average"});
    return OK;
}

status average_apply(const struct update *update)
{
    return each(update, WORK_MOVE);
}

status average_start(const struct update *update)
{
    return each(update, WORK_START);
}

status average_swap(const struct update *update)
{
    TRY(each(update, WORK_SWAP));
    return update_copy(update);
}
