/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h - the collectives that a layer makes with ranks of the tensor and
 * context axes, stated beside its passes. The plan's traffic, the list of a
 * step and the check of a trial read this one statement; the layer's pass makes
 * the calls, and each is compared with it before it begins
 * (step/message_check.h). */
#ifndef LOCKSTEP_NN_EXCHANGE_H
#define LOCKSTEP_NN_EXCHANGE_H

#include "nn/frame.h"

/* The purposes of messages, by which the plan adds them up. */
#define SENT_LIST(X) \
    X(SENT_NOTHING, "") \
    X(SENT_ACTIVATIONS, "activations") \
    X(SENT_GRADIENTS_OF_ACTIVATIONS, "gradients of activations") \
    X(SENT_WEIGHTS, "weights") \
    X(SENT_GRADIENTS, "gradients") \
    X(SENT_VECTOR_GRADIENTS, "vector gradients") \
    X(SENT_GRADIENTS_OF_COPIES, "gradients of copies") \
    X(SENT_KEY_VALUE_GRADIENTS, "key-value gradients") \
    X(SENT_ATTENTION_FORWARD, "attention, forward") \
    X(SENT_ATTENTION_BACKWARD, "attention, backward") \
    X(SENT_ROWS_OF_QUERIES_AND_KEYS, "rows of queries and keys") \
    X(SENT_TOKEN_LOSSES, "token losses") \
    X(SENT_PLACES_OF_EXPERTS, "places of experts") \
    X(SENT_TOKENS_OF_EXPERTS, "tokens of experts") \
    X(SENT_CHOICES_OF_TOKENS, "choices of tokens") \
    X(SENT_ROWS_OF_EXPERTS, "rows of experts") \
    X(SENT_SHARED_MATRIX, "shared matrix") \
    X(SENT_WHOLE_MATRICES, "whole matrices") \
    X(SENT_NORM, "norm") \
    X(SENT_LOSS, "loss") \
    X(SENT_Z_LOSS, "z-loss") \
    X(SENT_LOSSES_OF_LATER_TOKENS, "losses of later tokens") \
    X(SENT_TARGETS, "targets") \
    X(SENT_LARGEST_SCORES, "largest scores") \
    X(SENT_LARGEST_OPERANDS, "largest operands") \
    X(SENT_WHETHER_TO_STOP, "whether to stop")

#define SENT_ENUM(name, text) name,
enum sent { SENT_LIST(SENT_ENUM) SENT_COUNT };
#undef SENT_ENUM
const char *sent_name(enum sent what); /* "activations" */

/* One event of one micro-batch. */
struct exchange_case {
    const struct event *event;
    enum backward_mode mode; /* of the frame */
    int64_t microbatch;      /* of a round */
    bool alone;              /* F that no B follows: it makes the losses */
};

struct layer_exchange {
    enum axis axis;
    enum comm_kind kind;
    enum sent what;
    int64_t calls;           /* of this rank in the event */
    int64_t bytes;           /* that this rank sends in the event */
    int64_t between;         /* of the bytes, to other nodes; of the expert
                              * axis only */
    int64_t saved;           /* bytes more that rows of experts would be as
                              * they are */
    bool after;              /* the arithmetic of the event; else before it */
    bool routed;             /* the bytes follow from what tokens choose: here
                              * with equal shares (run.counted: as is) */
    bool further;            /* routed, and tokens may choose more calls */
};

enum { LAYER_EXCHANGES_MAX = 4 };

struct layer_exchanges {
    struct layer_exchange items[LAYER_EXCHANGES_MAX];
    int count;
    bool varies;             /* from micro-batch to micro-batch */
};

/* Lists the exchanges of an event. It lists none for a layer without exchanges
 * and for an axis of one rank. */
void layer_exchanges(const struct program *program,
                     const struct exchange_case *at,
                     struct layer_exchanges *out);
/* For layers: one more, left out where the axis has one rank. */
void layer_exchanges_add(struct layer_exchanges *out,
                         const struct program *program,
                         struct layer_exchange exchange);
/* Elements that rank `rank` of `size` sends in an ordered all-reduce: a
 * reduce-scatter of equal blocks, longer ones first, then an all-gather. */
int64_t exchange_all_reduce(int64_t elements, int size, int rank);

static inline bool exchange_forward(const struct exchange_case *at)
{
    return at->event->pass == PASS_FORWARD || at->event->pass == PASS_RECOMPUTE;
}
static inline bool exchange_backward(const struct exchange_case *at)
{
    return at->event->pass == PASS_BACKWARD_INPUT;
}

#endif
