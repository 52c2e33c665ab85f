/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - where every activation and gradient of a micro-batch lives.
 *
 * From the layers' keeps flags and the order of passes follows each slot's
 * life, and from the lives follow offsets in one frame. The plan is the
 * allocation: predicted bytes and measured bytes are the same number.
 *
 *   event  one pass of one step: F, R (F again, for a dropped slot), B or W
 *   frame  the memory of all slots of one micro-batch in flight; where there
 *          are several, of those that one pass leaves for another
 *   room   of a pass: all other slots, which live inside one F, B or W. A
 *          stage has one for all frames, since its passes take turns */
#ifndef LOCKSTEP_NN_FRAME_H
#define LOCKSTEP_NN_FRAME_H

#include "nn/program.h"

enum pass { PASS_FORWARD, PASS_RECOMPUTE, PASS_BACKWARD_INPUT,
            PASS_BACKWARD_WEIGHT };

struct event {
    enum pass pass;
    int step;
    bool adds;       /* B: the input's gradient exists already */
    bool adds_left;  /* B: the residual's gradient exists already */
    bool adds_second; /* B: the second input's gradient exists already */
    bool alias_left; /* B: the residual's gradient is the output's, in place */
    int ahead;       /* F, B of a product: step of the relayout after it, whose
                      * sums it starts sub-batch by sub-batch; 0: none */
    int norm;        /* F: step of the norm that it makes, too: the next; 0:
                      * none */
    bool is_made;    /* F: by the event before */
    bool beside;     /* of a relayout: its messages go beside products */
};

enum backward_mode {
    BACKWARD_NONE,   /* F only */
    BACKWARD_FUSED,  /* each step's W right after its B: least memory */
    BACKWARD_SPLIT   /* all B, then all W: for schedules that defer W */
};

/* A span of the frame, or of the room of a pass. */
struct frame_buffer {
    int64_t offset, bytes;
    bool shared;      /* in the room */
    int first, last;  /* events between which it is alive, both included */
    slot slot;
    bool gradient;
    bool sums;        /* over ranks, before they are rounded */
    bool codes;       /* of the slot, as one product reads it in W
                       * (saved_codes.h), or SwiGLU in B (glu_codes.h) */
    enum number_format format; /* of these */
    enum dtype dtype;
};

/* Bytes: of a frame that has everything; of one that has what outlives a pass,
 * and of the room beside it: 0 where one frame was asked for. */
struct frame_sizes { int64_t joint, kept, within; };

struct frame_plan {
    enum backward_mode mode;
    struct event *events;        /* owned */
    int event_count, event_capacity;
    int forward_end, backward_end; /* F events, then B (and fused W), then W */
    struct frame_buffer *buffers;/* owned */
    int buffer_count, buffer_capacity;
    int *activation;  /* owned, [slots]: buffer in F */
    int *again;       /* owned, [slots]: buffer in R, B and W */
    int *gradient;    /* owned, [slots]: buffer of the gradient, -1 none */
    int *sums, *gradient_sums; /* owned, [slots]: buffers of sums over ranks
                       * that a product starts, where the slot, or its
                       * gradient, is narrow; -1 none */
    int *codes;       /* owned, [steps]: buffer of the input's codes, from F
                       * to W or B, in place of the slot; -1 none */
    int64_t bytes;    /* of one frame */
    int64_t pass_bytes; /* of the room of a pass; 0: frames have everything */
    struct frame_sizes sizes;
};

/* Micro-batches in flight, and whether another stage of the rank has the same
 * room of a pass. If not, there is one where that is less memory. */
struct frame_count { int frames; bool shares; };

/* Plans the program under its dropped slots. */
status frame_plan_build(struct frame_plan *plan, const struct program *program,
                        enum backward_mode mode, struct frame_count count);
/* Its last part: the offsets of the buffers, whose lives are known. */
status frame_plan_place(struct frame_plan *plan, const struct program *program,
                        struct frame_count count);
/* Bytes for another number of micro-batches in flight, of a plan that was made
 * for several; offsets stay as they were. */
void frame_plan_count(struct frame_plan *plan, struct frame_count count);
/* Where the events from `event` on end that F does sub-batch by sub-batch, one
 * behind the other; `event` when it is not of those. */
int frame_segment(const struct program *program,
                  const struct frame_plan *plan, int event);
/* Like frame_segment, for all events of F at once: *out [forward_end], which
 * the caller frees, has the segment of each; an event of none is one alone. */
struct segment { int first, end; };
status frame_segments(const struct program *program,
                      const struct frame_plan *plan, struct segment **out);
void frame_plan_free(struct frame_plan *plan);
/* The buffers by size, with owners and lives, for plan --explain memory. */
status frame_plan_print(const struct frame_plan *plan,
                        const struct program *program, struct text *out);

#endif
