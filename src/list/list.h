/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - everything that a rank does in a step, as one list.
 *
 * Passes make it, in the order of list_passes: each takes the list of the pass
 * before and puts more into it. What a pass needs to know of other ranks is in
 * the schedule, which has the actions of all of them: so a rank makes its own
 * list without a message, and anybody can make anybody's.
 *
 *   compute     F, B and W of the schedule, with the frames of micro-batches
 *   transfers   messages between stages, and copies where both are here
 *   samples     sequences into frames; those of the next step meanwhile
 *   beside      F and B of one bundle of the schedule, cut where messages start
 *   gathers     divided weights: F, B and W are cut where a unit comes or goes
 *   reductions  rooms of gradients, sums over ranks, rounds; cut likewise
 *   tail        loss, norm, decision, update, new weights to all
 *   needs       who waits for whom, and the handles of what is under way
 *
 * Order is the list's: an instruction begins after all before it that are not
 * in the background are over, and after its needs. A clock walks it so: for
 * each one in order, begin = max(its resource is free, its needs have ended,
 * the one before it was issued); one in the background is issued at once, and
 * its resource is busy until it ends (RESOURCE_PIPE never is: messages do not
 * wait behind each other); any other one ends before the next is issued. A
 * receive ends after the send that is its partner (list/partners.h) has
 * begun. */
#ifndef LOCKSTEP_LIST_LIST_H
#define LOCKSTEP_LIST_LIST_H

#include "list/instruction.h"
#include "plan/exchange.h"

struct step_list {
    struct instruction *items; /* owned */
    int count, capacity;
    int32_t *needs;            /* owned: instruction numbers */
    int need_count, need_capacity;
    int handles;               /* most that are under way at once */
    bool forward;              /* F alone */
    int rank;                  /* of the pipe */
};

/* Memory in which passes work. */
struct list_room {
    struct instruction *items[2]; /* owned */
    int capacity[2];
};
void list_room_free(struct list_room *room);

/* The list of the rank that the pipeline is planned for (it need not be open).
 * turns: 0: a step of training; else F alone of so many micro-batches, one
 * after the other, through the stages in the direction of micro-batch 0. after:
 * the last pass; NULL: all. ERR_USAGE: no such pass (names the nearest). */
struct list_request {
    const struct pipeline *pipeline;
    int turns;
    const char *after;
    struct list_room *room; /* kept from list to list; NULL: of this one */
};
status list_make(struct step_list *out, const struct list_request *request);
void list_free(struct step_list *list);

/* A pass puts the list of the pass before, and more, into `out`. */
struct list_pass {
    const char *name, *meaning;
    status (*run)(struct step_list *out, const struct step_list *before,
                  const struct list_request *request);
    bool (*idle)(const struct list_request *request); /* it would leave the list
                                     * as it is; NULL: never */
};
extern const struct list_pass list_passes[];
extern const int list_pass_count;

/* Instructions that instruction `number` needs: [i->needs] numbers. NULL: the
 * list has none. */
static inline const int32_t *list_needs(const struct step_list *list,
                                        int number)
{
    return list->needs != NULL
               ? list->needs + list->items[number].first_need : NULL;
}
/* The group whose messages an instruction makes: the name by which traffic is
 * counted, its size and this rank in it; size 1: nothing is sent. */
struct list_group {
    struct group_id id;
    char name[COMM_LABEL_BYTES];
    int size, rank;
};
struct list_group list_group(const struct pipeline *pipeline,
                             const struct instruction *instruction);

/* ---- for passes ---- */

/* Appends. Fields that a kind has none of are -1 in instruction_of. */
status list_put(struct step_list *list, struct instruction instruction);
struct instruction instruction_of(enum instruction_kind kind);

#endif
