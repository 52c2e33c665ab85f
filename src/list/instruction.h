/* SPDX-License-Identifier: Apache-2.0 */
/* instruction.h - one thing that a rank does in a step.
 *
 * A step of a rank is one list of instructions (list/list.h): passes make it,
 * one verifier checks it, the executor (step/execute.h) is a loop over it, and
 * `plan --explain step` prints it.
 *
 *   resource    where an instruction is busy: the arithmetic, the host, or the
 *               messages of one group
 *   background  the executor posts it and goes on. An instruction that reads
 *               what it makes, or overwrites what it reads, has it among its
 *               needs. All others are over before the next one begins */
#ifndef LOCKSTEP_LIST_INSTRUCTION_H
#define LOCKSTEP_LIST_INSTRUCTION_H

#include "comm/comm.h"
#include "nn/exchange.h"

enum instruction_kind {
    DO_ROUND,         /* a stage's sums are empty: gradients that are reduced
                       * together begin */
    DO_TARGETS,       /* targets of the whole batch, of later tokens too */
    DO_SAMPLE,        /* the sequences of a micro-batch into its frame */
    DO_BATCH,         /* the sequences of that micro-batch of the next step,
                       * into a room that this step reads no more */
    DO_COPY,          /* activation from the stage before, on this rank */
    DO_FORWARD,       /* F, events [first_event, last_event) */
    DO_BACKWARD,      /* B, and W where it is fused */
    DO_KEEP,          /* gradient of the entry into a buffer to send from */
    DO_COPY_BACK,     /* gradient of the entry to the stage before, here */
    DO_WEIGHT,        /* W; the frame is free after the last part */
    DO_SEND, DO_RECEIVE,           /* activations */
    DO_SEND_BACK, DO_RECEIVE_BACK, /* gradients of activations */
    DO_GATHER,        /* a unit's weights into a room */
    DO_PLACE,         /* kernels read the unit there from now on */
    DO_RELEASE,       /* ... no more */
    DO_TAKE,          /* a room for a unit's gradients, or a second use's */
    DO_JOIN,          /* sums of vectors over tensor ranks: of an item, or of
                       * the whole stage */
    DO_REDUCE,        /* a unit's gradients to their owners */
    DO_GIVE,          /* the room of DO_TAKE is free */
    DO_SUM,           /* a unit's sums over ranks with copies of a shard */
    DO_CLOSE,         /* the trees of a round are complete */
    DO_HALVES,        /* gradients of a stage on two ranks of the pipe */
    DO_MERGE,         /* a round's sums and those that wait for it */
    DO_LOSS, DO_Z_LOSS,
    DO_LATER_LOSSES,  /* of modules that predict later tokens */
    DO_SECOND,        /* second uses of a parameter are added */
    DO_TIE,           /* a matrix that two stages use */
    DO_PEAKS,         /* largest scores, for QK-clip */
    DO_LATE,          /* largest operands, for the scales of later steps */
    DO_ROUTES,        /* tokens of experts */
    DO_BLOCKS,        /* the norm's sums of a stage */
    DO_SHARE,         /* ... of units that the same ranks divide, to all of
                       * those; `unit` is one of them */
    DO_NORM,
    DO_DECIDE,        /* the host decides: update, skip or refuse; DO_UPDATE to
                       * DO_AVERAGE obey */
    DO_UPDATE,
    DO_MATRICES,      /* whole matrices to their rank, computed and back */
    DO_CLIP,          /* QK-clip */
    DO_BALANCE,       /* selection biases of routers */
    DO_AVERAGE,
    DO_REGATHER,      /* new weights of a unit to all ranks */
    DO_ENCODE,        /* weights of a unit become the codes that are gathered;
                       * their largest magnitudes are joined */
    DO_ASK,           /* whether to stop */
    DO_END,           /* nothing is under way any more */
    DO_COUNT
};

enum resource {
    RESOURCE_COMPUTE, RESOURCE_HOST,
    RESOURCE_PIPE,      /* sends and receives: none waits behind another */
    RESOURCE_SHARD,     /* the ranks that divide something, or share the
                         * batch */
    RESOURCE_COPIES,    /* the ranks with copies of the same shard */
    RESOURCE_TENSOR, RESOURCE_CONTEXT, RESOURCE_EXPERT,
    RESOURCE_PEER,      /* the two ranks of the pipe with one stage */
    RESOURCE_MATRICES,  /* all ranks of a stage */
    RESOURCE_WORLD,
    RESOURCE_COUNT
};

struct instruction {
    uint8_t kind, resource;  /* enum instruction_kind, enum resource */
    bool joined;             /* of the schedule's unit of the F, B or W before
                              * it */
    int16_t stage;           /* of the schedule; -1: of none */
    int32_t chunk;           /* of this rank (plan/pipeline.h); -1: none */
    int32_t microbatch;      /* number in the step; -1: of the step */
    int32_t round;           /* of the step, from 0 */
    int32_t first_event, last_event; /* of the frame: compute */
    int32_t unit;            /* of the stage's shards; -1: none */
    int32_t item;            /* of stage->gathered, stage->reduced
                              * (residency.h); -1: none, the unit lies where it
                              * does in a flat arena */
    int32_t buffer;          /* the frame; -1: none */
    int32_t other;           /* frame of the other stage of a copy, buffer of
                              * gradients on their way back, phase of weights
                              * that are gathered once; -1: none */
    int32_t peer;            /* rank of the pipe; -1: none */
    int32_t first_need, needs; /* in struct step_list: instructions that must be
                              * over before this one begins */
    int32_t handle;          /* background: which of the list's handles; else
                              * -1 */
    int32_t calls;           /* messages of this rank; 0: none */
    int64_t bytes;           /* that they send, beside what layers send inside
                              * (list/traffic.h) */
};

/* The facts about a kind that do not depend on the list. */
struct instruction_row {
    const char *name;        /* "gather" */
    enum resource resource;
    bool background;
    enum comm_kind call;     /* of its messages; COMM_KIND_COUNT: it has none */
    enum sent what;          /* of its messages */
};
extern const struct instruction_row instruction_rows[DO_COUNT];

const char *resource_name(enum resource resource); /* "compute" */

static inline bool instruction_computes(const struct instruction *i)
{
    return i->kind == DO_FORWARD || i->kind == DO_BACKWARD ||
           i->kind == DO_WEIGHT;
}

/* A message from stage to stage. */
static inline bool instruction_is_message(const struct instruction *i)
{
    return i->kind == DO_SEND || i->kind == DO_RECEIVE ||
           i->kind == DO_SEND_BACK || i->kind == DO_RECEIVE_BACK;
}

/* "F2.5 [3, 17)", "gather 3.2"; writes at most INSTRUCTION_BYTES. */
enum { INSTRUCTION_BYTES = 64 };
const char *instruction_text(char out[INSTRUCTION_BYTES],
                             const struct instruction *instruction);

#endif
