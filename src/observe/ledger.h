/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.h - RUN/ledger.jsonl: what a run did about steps that went wrong, one
 * JSON object a line.
 *
 *     {"event": 1, "step": 14, "cause": "nan", "what": "loss", "value": null,
 *      "threshold": null, "action": "skip", "back_to": 13,
 *      "first": 104, "samples": 8}
 *
 * The action "replay" leaves nothing out: a machine was wrong, and steps are
 * made again with the same samples, after "back_to".
 *
 * A line is on the disk before what it says is done, and no line is ever
 * dropped: the samples that it leaves out stay out when the run goes on from an
 * older checkpoint. An event that comes again when steps are repeated is found
 * here and not written twice. So the file of a run that was killed equals that
 * of one that was not. */
#ifndef LOCKSTEP_OBSERVE_LEDGER_H
#define LOCKSTEP_OBSERVE_LEDGER_H

#include "base/lines.h"
#include "data/ranges.h"
#include "step/policy.h"

struct ledger_event {
    int64_t step;      /* that went wrong, counted from 1 */
    struct policy_verdict verdict;
    int64_t back_to;   /* the step after which the run went on */
    int64_t first, samples; /* of the order: of a warning, those of the step;
                             * else what is left out from now on */
};

struct ledger {
    struct ledger_event *events; /* owned, [count] */
    int64_t count, capacity;
    int64_t undone;     /* of them that are no warnings */
    struct lines file;  /* of the rank that writes; opened by its first line */
};

/* Reads RUN/ledger.jsonl, if there is one. `repair`: cuts a torn last line
 * off. ERR_FORMAT names the line. */
status ledger_open(struct ledger *ledger, const char *run, bool repair);
void ledger_close(struct ledger *ledger);
/* Keeps the event, and on the rank that `writes` appends its line to the file
 * and waits for the disk; where that fails the line waits in memory (without it
 * the event comes again). *known: it was there already. */
status ledger_append(struct ledger *ledger, const char *run, bool writes,
                     const struct ledger_event *event, bool *known);
/* Leaves out what the events say. */
status ledger_ranges(const struct ledger *ledger, struct ranges *ranges);

#endif
