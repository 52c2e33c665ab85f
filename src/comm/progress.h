/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - calls in the background.
 *
 * Collectives of a group are done, in the order in which they were started, by
 * a thread of the rank for this group, which begins with the first of them.
 * Collectives of different groups do not wait for each other, so ranks may
 * start them in any order. A send is posted at once and a receive happens in
 * comm_wait, so neither waits behind a collective, and two ranks may each start
 * a send to the other before either receives. */
#ifndef LOCKSTEP_COMM_PROGRESS_H
#define LOCKSTEP_COMM_PROGRESS_H

#include <stdbool.h>
#include "base/meter.h"
#include "comm/message.h"
#include "comm/peers.h"
#include "comm/traffic.h"
#include "device/point.h"

struct comm_handle {
    struct comm_call call;
    struct device_point ready; /* it moves nothing before */
    uint64_t number;         /* of a collective, among those of its group */
    struct group *group;     /* borrowed; NULL: nothing to wait for */
    uint64_t tag;
    bool done;               /* under the progress lock */
    bool left;               /* to the device: comm_leave */
    status result;
    char reason[COMM_REASON_BYTES];
    struct message message;  /* of a send */
    struct operation operation; /* of a send */
    struct peer_told told;   /* of a send that the receiver reads here */
    struct meter_track *track; /* that the background thread counts into */
    int sums_number;         /* of call_sums.h; 0: of no pass */
    int instruction;         /* of the step's list, that started it; -1 */
    struct comm_handle *next;
    bool released;           /* may begin: at once, but for LOCKSTEP_CHECK */
    /* For lifetime_check.h: the next call, hashes of inputs and of outputs */
    struct comm_handle *under_way;
    uint64_t read, written;
    bool in_place, spoilt;
};

status progress_build(struct progress **out);
/* All handles must have been waited for. NULL allowed. */
void progress_free(struct progress *progress);

/* The call's tensors, counts and scratch, and the handle, must not be touched
 * until comm_wait. Every started call must be waited for, also after errors. */
status comm_start(struct group *group, const struct comm_call *call,
                  struct comm_handle *handle);
/* The status of the call; OK for a zeroed handle and for one already waited
 * for. */
status comm_wait(struct comm_handle *handle);
/* Where the call moves memory of a device apart: what the device is given from
 * now on begins when it is over, and comm_wait, for its status, may come later.
 * Other calls: comm_wait. */
status comm_leave(struct comm_handle *handle);

#endif
