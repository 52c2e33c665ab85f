/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.h - counters of sent messages: one row for each group and kind. */
#ifndef LOCKSTEP_COMM_TRAFFIC_H
#define LOCKSTEP_COMM_TRAFFIC_H

#include <pthread.h>
#include "comm/comm.h"

enum { TRAFFIC_ROWS_MAX = 128 };

struct traffic_row {
    struct group_id id;
    enum comm_kind kind;
    char group[COMM_LABEL_BYTES]; /* the label of the first group with that
                                   * identity, for people */
    int64_t calls, messages;
    int64_t bytes; /* sent to other ranks */
    int64_t between; /* of these, to ranks of other nodes (group_nodes) */
};

struct traffic {
    pthread_mutex_t lock;
    struct traffic_row rows[TRAFFIC_ROWS_MAX]; /* the last takes the rest */
    int count;
};

void traffic_init(struct traffic *traffic);
void traffic_free(struct traffic *traffic);

/* The rank's rows (all its groups); returns how many of at most `most`. */
int comm_traffic(const struct group *group, struct traffic_row *rows,
                 int most);
void comm_traffic_reset(struct group *group);
/* Bytes of the rank's row of this group's identity and kind. */
int64_t comm_traffic_bytes(const struct group *group, enum comm_kind kind);

/* Is told of each call, at once or in the background, before it begins. */
typedef void comm_watcher(void *argument, const struct group *group,
                          const struct comm_call *call);
/* Tells `watcher` of the calls of all groups of this rank from now on, but of
 * agreements; NULL: nobody any more. */
void comm_watch(struct group *group, comm_watcher *watcher, void *argument);

void traffic_count(struct traffic *traffic, const struct traffic_row *add);

#endif
