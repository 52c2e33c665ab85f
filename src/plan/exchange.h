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
#include "plan/pipeline.h"

enum { EXCHANGES_MAX = 40 };

struct exchange {
    const char *group;   /* "batch"; NULL: the label */
    char label[COMM_LABEL_BYTES]; /* "stage 1": rows outlive the pipeline */
    const char *what;    /* "gradients" */
    enum comm_kind kind;
    int size;            /* ranks of the group */
    int64_t calls;       /* of this rank in a step */
    int64_t bytes;       /* that it sends to other ranks in a step */
    bool routed;         /* bytes are those of equal shares: what tokens choose
                          * decides (layer_exchange.routed) */
    bool between_copies; /* gradients of shards that other ranks hold, too */
    bool updates;        /* only in a step that changes the weights */
};

struct exchanges { struct exchange items[EXCHANGES_MAX]; int count; };

static inline const char *exchange_group(const struct exchange *row)
{
    return row->group != NULL ? row->group : row->label;
}

/* The exchanges of the rank that the pipeline is planned for. */
void exchanges_of(struct exchanges *out, const struct pipeline *pipeline);
/* Steps that were made, and those of them that changed the weights: one whose
 * gradients overflow float16 does not. */
struct exchange_steps {
    int64_t made, updated;
    int64_t routed_calls, routed_bytes; /* in them, that tokens' choices
                          * decided */
};
/* Its rows of that group and kind, added up over the steps. */
void exchanges_sum(const struct exchanges *exchanges, const char *group,
                   enum comm_kind kind, const struct exchange_steps *steps,
                   int64_t *calls, int64_t *bytes);

#endif
