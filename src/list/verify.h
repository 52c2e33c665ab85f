/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h - whether lists can be trusted: the one check of everything that
 * makes, changes or reorders them.
 *
 * Order in the list proves nothing about what is in the background: it is over
 * only when an instruction that needs it begins. */
#ifndef LOCKSTEP_LIST_VERIFY_H
#define LOCKSTEP_LIST_VERIFY_H

#include "list/list.h"

/* One rank's list: complete (each event of F, B and W of each micro-batch once
 * and in order; each message and each part of the tail once), each need names
 * something in the background before it, everything in the background is waited
 * for, no two share a handle; nothing reads what is not there (never written,
 * freed, overwritten) and nothing touches what is under way. ERR_VERIFY names
 * the first instruction that is wrong. */
status list_verify(const struct step_list *list,
                   const struct pipeline *pipeline);

/* The lists of all ranks of one pipe, [count] in their order: sends match
 * receives, ranks make calls of groups that they share in one order, and nobody
 * waits forever, although a send may not be over before the other side waits
 * for it. Each list is verified by itself before. */
status lists_verify(const struct step_list *lists,
                    const struct pipeline *pipelines, int count);
/* Like lists_verify, of lists that have been verified one by one. */
status lists_verify_pipe(const struct step_list *lists, int count);

/* A number of the messages that a list makes with one group, in their order:
 * ranks of the group must have the same. Of units whose ranks of the resource
 * are those of `axes` (0: any), of a stage (-1: any). RESOURCE_COMPUTE: parts
 * of F, B and W, inside which layers send. */
struct list_channel {
    const struct pipeline *pipeline;
    enum resource resource;
    axis_set axes;
    int stage;
};
uint64_t list_channel_hash(const struct step_list *list,
                           const struct list_channel *channel);

#endif
