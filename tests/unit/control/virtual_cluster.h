/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_cluster.h - ranks, their memory and a clock that exist only in a
 * test: what the supervisor's own code sees instead of processes.
 *
 * The program's supervisor.c and watch.c run unchanged. What they ask of the
 * system (crew.h, journal.h, the clock, poll) is answered here; time passes
 * only while the supervisor waits. A seed draws the run and its faults. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_CLUSTER_H
#define LOCKSTEP_TESTS_VIRTUAL_CLUSTER_H

#include <setjmp.h>
#include "control/watch.h"

enum { CLUSTER_RANKS_MOST = 4, CLUSTER_STEPS_MOST = 64,
       CLUSTER_FAULTS_MOST = 12 };

enum fault_kind {
    FAULT_KILL, FAULT_KILL_ALL, FAULT_STOP, FAULT_PAUSE, FAULT_CRASH,
    FAULT_CONNECTION, FAULT_COPIES, FAULT_SUPERVISOR, FAULT_SECOND,
    FAULT_FREEZE, /* the whole system stands still */
    FAULT_KINDS,
    FAULT_KEPT    /* not drawn: it waits for pages for kept_ns, then goes on */
};

/* A rank's step: it works, then changes its state (and is lost if it dies
 * then), then copies it, and waits for the others' copies. */
enum virtual_phase { V_DEAD, V_OPENS, V_WORKS, V_COPIES, V_WAITS, V_ENDS };

struct virtual_rank {
    enum virtual_phase phase;
    bool stopped, told;      /* told: its end, to the supervisor */
    bool kept;               /* stopped, for it waits for pages */
    bool itself;             /* it crashed by itself */
    int64_t until_ns;        /* end of its phase; of a pause: pause_ns */
    int64_t pause_ns;
    uint64_t generation;
    int64_t copies[2];       /* steps whose state is whole; -1 */
    int slot;                /* of them that is being written */
    int64_t stands_ns;       /* since when it is stopped for good within an
                              * instruction; 0: it is not */
};

struct cluster {
    uint64_t random;
    int64_t now_ns;
    int ranks;
    int64_t steps, step;     /* of the run; done by this generation */
    int64_t checkpoint, every;
    bool long_copies;        /* the rest of a step takes most of its time */
    bool opened;             /* all ranks of the generation went on */
    struct virtual_rank rank[CLUSTER_RANKS_MOST];
    uint64_t consumed[CLUSTER_STEPS_MOST + 1]; /* generation that made it */
    int64_t consumed_count;
    struct { int64_t when_ns; enum fault_kind kind; int rank; }
        faults[CLUSTER_FAULTS_MOST];
    int fault_count, fault_next;
    int short_lives;         /* so often rank 0 is killed after dies_at; before
                              * the first time all copies are lost */
    int64_t dies_at;
    bool flaps;              /* ... then every second time, too */
    int64_t kept_ns;         /* of FAULT_KEPT */
    int crashes;             /* a rank crashes so often when it opens */
    struct board *board;     /* of the ranks; outlives a supervisor */
    int board_file;
    bool copies_hurt;        /* or lost: more than a step may be redone */
    const char *begun;       /* a directory with a config.yaml */
    struct supervisor *leader; /* on the stack of supervise(); NULL: none */
    int leaders;             /* that live */
    jmp_buf death;           /* of the supervisor */
    int incidents, generations;
    const char *broken;      /* the invariant; NULL: none */
};

extern struct cluster cluster;

/* Draws a run from the seed. */
void cluster_draw(uint64_t seed);
/* Runs it to its end, with as many supervisors as it takes; `fresh` and `begun`
 * are directories without and with a config.yaml. */
status cluster_run(const char *fresh, const char *begun);

#endif
