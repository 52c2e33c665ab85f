/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.h - counters of sent messages: one row for each group, kind and
 * phase. */
#ifndef LOCKSTEP_COMM_TRAFFIC_H
#define LOCKSTEP_COMM_TRAFFIC_H

#include <pthread.h>
#include "comm/comm.h"

enum { TRAFFIC_ROWS_MAX = 128, TRAFFIC_PHASE_BYTES = 24 };

struct traffic_row {
    char group[COMM_LABEL_BYTES]; /* its label */
    struct group_id id;
    enum comm_kind kind;
    char phase[TRAFFIC_PHASE_BYTES];
    int64_t calls, messages;
    int64_t bytes; /* sent to other ranks */
    int64_t between; /* of these, to ranks of other nodes (group_nodes) */
};

struct traffic {
    pthread_mutex_t lock;
    char phase[TRAFFIC_PHASE_BYTES];
    struct traffic_row rows[TRAFFIC_ROWS_MAX]; /* the last takes the rest */
    int count;
};

void traffic_init(struct traffic *traffic);
void traffic_free(struct traffic *traffic);

/* Names what the rank's calls are for from now on: "forward". */
void comm_phase(struct group *group, const char *phase);
/* The rank's rows (all its groups); returns how many of at most `most`. */
int comm_traffic(const struct group *group, struct traffic_row *rows,
                 int most);
void comm_traffic_reset(struct group *group);
/* Bytes of the rank's rows of this group's label and kind, all phases. */
int64_t comm_traffic_bytes(const struct group *group, enum comm_kind kind);

/* Is told of each call, at once or in the background, before it begins. */
typedef void comm_watcher(void *argument, const struct group *group,
                          const struct comm_call *call);
/* Tells `watcher` of the calls of all groups of this rank from now on, but of
 * agreements; NULL: nobody any more. */
void comm_watch(struct group *group, comm_watcher *watcher, void *argument);

/* The phase that calls belong to now. */
void traffic_phase(struct traffic *traffic, char phase[TRAFFIC_PHASE_BYTES]);
void traffic_count(struct traffic *traffic, const struct traffic_row *add);

#endif
