/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_turns.c - calls of a job take their operands in turn from several
 * places, as far apart as a step of training last used them. */
#include <string.h>

#include "bench/calibrate_parts.h"

/* Operands are copied there for each row: a short calibration has no time for
 * so many places. */
int64_t calibrate_far(const struct calibration *c)
{
    if (c->request->seconds < CALIBRATE_FAR_S) return CALIBRATE_FLOATS;
    return (int64_t)(calibrate_stream_bytes(c->request->ranks) / sizeof(float));
}

void calibrate_turns(struct calibration *c, int threads, unsigned cold)
{
    c->turning = (struct turning){
        CALIBRATE_NEAR / (threads > 1 ? 1 : c->request->ranks),
        calibrate_far(c), cold};
}

static int64_t places_in(int64_t floats, const struct operands *o)
{
    if (floats > o->capacity) floats = o->capacity;
    return floats < o->used ? 1 : floats / o->used;
}

static bool turns_far(const struct turns *turns, int tensor)
{
    return (turns->cold >> tensor & 1) != 0;
}

/* From the first element to behind the last: rows may lie apart. */
static size_t span_of(const struct tensor *t)
{
    int64_t last = 0;

    for (int d = 0; d < t->dimensions; d++)
        last += (t->shape[d] - 1) * t->stride[d];
    return (size_t)((last + 1) * dtype_bytes(t->dtype));
}

void turns_begin(const struct calibration *c, struct turns *turns,
                 const struct operands *o)
{
    memcpy(turns->first, o->t, sizeof turns->first);
    turns->each = o->used;
    turns->places[0] = places_in(c->turning.near, o);
    turns->places[1] = places_in(c->turning.far, o);
    turns->cold = c->turning.cold;
    turns->at = 0;
    for (int i = 0; i < CASE_TENSORS; i++) {
        const struct tensor *t = &turns->first[i];

        if (t->data == NULL) continue;
        for (int64_t p = 1; p < turns->places[turns_far(turns, i)]; p++)
            memcpy((float *)t->data + p * o->used, t->data,
                   span_of(t));
    }
}

void turns_next(struct turns *turns, struct operands *o)
{
    turns->at++;
    for (int i = 0; i < CASE_TENSORS; i++)
        if (turns->first[i].data != NULL)
            o->t[i].data = (float *)turns->first[i].data +
                           turns->at % turns->places[turns_far(turns, i)] *
                           turns->each;
}
