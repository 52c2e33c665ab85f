/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the state of a supervised run, as anybody can read it: from its
 * journal and, while some of its processes live, from their shared board. */
#ifndef LOCKSTEP_CONTROL_REPORT_H
#define LOCKSTEP_CONTROL_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include "control/board.h"
#include "control/journal.h"

enum run_state {
    RUN_RUNS,      /* the supervisor and its ranks live */
    RUN_ALONE,     /* ranks live, the supervisor does not */
    RUN_RESTARTS,  /* the supervisor lives, and no rank; or waits for agents */
    RUN_WAITS,     /* it waits for the first agents of a new run, of which there
                    * is no more than its lock */
    RUN_ENDED,     /* as the journal says */
    RUN_ELSEWHERE, /* the supervisor was started on another machine, which alone
                    * can say whether it lives */
    RUN_DEAD       /* nobody lives, and nobody said why */
};

struct run_report {
    struct arena arena;        /* owned */
    struct journal_lines lines;
    struct board *board;       /* owned; NULL: nobody has it any more */
    char board_path[64];
    int board_number;          /* of its descriptor in ranks: children */
    enum run_state state;
    int64_t supervisor;        /* process, and its machine; "": not on */
    const char *host;          /* record */
    bool elsewhere;            /* than this one */
    int64_t generation;
    const char *result;        /* of the end; NULL */
    int64_t step;              /* steps done, as far as it is known */
    int incidents, recovered;
    int ranks;
    bool agents;               /* ranks are on nodes of agents */
    const char *layout;        /* of the generation; "": as the run says */
    const char *survives;      /* fleet_survives(), as it was told last; "" */
    struct { int64_t process, began; bool lives; const char *node; }
        *rank;                 /* [ranks] */
};

/* Whether a supervisor waits for the first agents of the run. */
bool run_waits(const char *run);
/* ERR_MISSING: the run was never supervised. */
status run_report_read(struct run_report *report, const char *run);
void run_report_free(struct run_report *report);
/* Steps of the newest copies in memory that all ranks have, and that all other
 * nodes have which keep copies; 0: none, or nobody can say. */
void run_report_copies(const struct run_report *report, int64_t *own,
                       int64_t *other);
/* The worst of all ranks: cost most, waited longest, the smallest share in idle
 * time; every 0: none was made. */
struct copies_cost run_report_cost(const struct run_report *report);
const char *run_state_name(enum run_state state); /* "runs" */

#endif
