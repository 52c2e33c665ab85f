/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h - a prediction of the messages that a rank sends in one training
 * step, from the parameter table, the division and the program alone.
 *
 * Rows carry the names of the groups and kinds by which the counters of
 * comm/traffic.h count, and the bytes are theirs, exactly: a trial compares the
 * two after every run. */
#ifndef LOCKSTEP_PLAN_EXCHANGE_H
#define LOCKSTEP_PLAN_EXCHANGE_H

#include "comm/comm.h"
#include "nn/exchange.h"
#include "plan/pipeline.h"

enum { EXCHANGES_MAX = 40 };

/* How gradients of a unit travel to their owners. */
struct comm_narrow exchange_narrow(const struct stage *stage, int unit);
/* Bytes that this rank sends them in a round. */
int64_t exchange_scatter(const struct stage *stage, int unit);

struct exchange {
    struct group_id group;
    char label[COMM_LABEL_BYTES]; /* its name: "batch", "stage 1" */
    enum sent what;
    enum comm_kind kind;
    int size;            /* ranks of the group */
    int64_t calls;       /* of this rank in a step */
    int64_t bytes;       /* that it sends to other ranks in a step */
    int64_t between;     /* of these, to other nodes: of the ranks that divide
                          * experts only (struct mesh, inside) */
    bool routed;         /* bytes are those of equal shares: what tokens choose
                          * decides (layer_exchange.routed) */
    bool further;        /* likewise, and there may be more calls */
    bool between_copies; /* gradients of shards that other ranks hold, too */
    bool updates;        /* only in a step that changes the weights */
};

struct exchanges { struct exchange items[EXCHANGES_MAX]; int count; };

static inline bool exchange_is_like(const struct exchange *a,
                                    const struct exchange *b)
{
    return a->kind == b->kind && a->what == b->what &&
           group_id_equal(a->group, b->group);
}

/* The exchanges of the rank that the pipeline is planned for. */
void exchanges_of(struct exchanges *out, const struct pipeline *pipeline);
/* Steps that were made, and those of them that changed the weights: one whose
 * gradients overflow float16 does not. */
struct exchange_steps {
    int64_t made, updated;
    int64_t routed_calls, routed_bytes; /* in them, that tokens' choices
                          * decided */
    int64_t routed_between;
};
/* Calls, bytes, and bytes between nodes. */
enum { SENT_CALLS, SENT_BYTES, SENT_BETWEEN, SENT_SUMS };
/* Its rows of that group and kind, added up over the steps. */
void exchanges_sum(const struct exchanges *exchanges, struct group_id group,
                   enum comm_kind kind, const struct exchange_steps *steps,
                   int64_t sums[SENT_SUMS]);

#endif
