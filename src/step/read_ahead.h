/* SPDX-License-Identifier: Apache-2.0 */
/* read_ahead.h - the batch of the next step, and the next micro-batch of an
 * evaluation, read on the host resource while this one computes.
 *
 * A thread of the rank carries out DO_BATCH: it reads the sequences of a
 * micro-batch into the room that the plan has for it. DO_END waits until all
 * have been read, so between two steps nothing is under way. A step that reads
 * another batch than the one announced (after a rewind, or one whose batch has
 * another size) finds nothing and reads its own. A failure waits for the step
 * that needs the sequences. F alone has a room of its own, behind those of the
 * micro-batches, so that an evaluation between two steps leaves theirs. */
#ifndef LOCKSTEP_STEP_READ_AHEAD_H
#define LOCKSTEP_STEP_READ_AHEAD_H

#include "plan/pipeline.h"

/* Where sequences come from. Fills arrays of [length]: token ids, targets (-1:
 * none), positions and documents (where each one's begins) of sequence `index`
 * of the global batch. */
struct sample_source {
    status (*fill)(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents);
    void *argument;
    int64_t first;    /* number of sequence 0 among all that the run reads */
    uint64_t content; /* equal where sequences are, and then another thread of
                       * the rank may call `fill`; 0: neither */
};

struct read_ahead;
/* *out is NULL where the plan has no room for a second batch. */
status read_ahead_build(struct read_ahead **out,
                        const struct pipeline *pipeline);
/* Nothing may be under way. NULL allowed. */
void read_ahead_free(struct read_ahead *ahead);

/* The room of F alone. */
int read_ahead_room_forward(const struct pipeline *pipeline);

/* DO_BATCH: begins to read sequences `first` and up of the source into the room
 * of a micro-batch, or of F alone, for instruction `number` of the list. */
struct read_ahead_request {
    const struct sample_source *source;
    int64_t first;
    int room, number;
};
status read_ahead_start(struct read_ahead *ahead,
                        const struct read_ahead_request *request);
/* Waits until all that was begun has been read. NULL allowed. */
void read_ahead_wait(struct read_ahead *ahead);

/* Sequence `index` of the source: out of the room of its micro-batch, or read
 * now. ahead: NULL allowed. */
struct read_ahead_sequence {
    const struct sample_source *source;
    int64_t index;
    int room;
    int32_t *inputs, *targets, *positions, *documents;
};
status read_ahead_take(struct read_ahead *ahead,
                       const struct read_ahead_sequence *sequence);

#endif
