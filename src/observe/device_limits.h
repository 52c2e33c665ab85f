/* SPDX-License-Identifier: Apache-2.0 */
/* device_limits.h - the best rates of a device apart from the host: of its own
 * kernels in its own memory, by the clock that times them in steps. */
#ifndef LOCKSTEP_OBSERVE_DEVICE_LIMITS_H
#define LOCKSTEP_OBSERVE_DEVICE_LIMITS_H

#include "observe/profile.h"
#include "plan/stage.h"

/* A kernel, or some, started on the stream. */
typedef status device_work(struct stream *stream, void *of);

/* Seconds of the kernels of one call, the best of several. Between steps; with
 * device_graphs kernels have no times. */
status device_limits_seconds(struct stream *stream, device_work *work,
                             void *of, double *seconds);
/* Numbers of both signs that are ordinary in every type: on equal ones a GPU is
 * faster than on others. */
status device_limits_fill(struct stream *stream, void *at, size_t bytes);
/* Tables of kernels of a device apart, of a type and of its sums, and memory of
 * the device that is written over. */
struct device_limits_on {
    const struct kernels *kernels, *real;
    struct stream *stream;
    void *areas[3];
    size_t bytes; /* of each */
};
/* FLOPs a second of products of the type, and bytes of memory; with
 * attention_flops of products of float32 by our own kernels. What the areas are
 * too small for is 0. */
status device_limits_measure(const struct device_limits_on *on,
                             struct profile_limits *limits);
/* Rates of the stage's device, measured in its gradients, which are written
 * over; those that it has too few for, or no times, are 0. */
status device_limits_take(struct stage *stage, struct profile_limits *limits);

#endif
