/* SPDX-License-Identifier: Apache-2.0 */
/* board.h - the memory that ranks and their supervisor share: who is where.
 *
 * The supervisor makes it before the first rank; it has no name, and lives as
 * long as one of them does. A rank writes its own page and nothing else. What
 * a page says may come from a rank that was killed while it wrote. */
#ifndef LOCKSTEP_CONTROL_BOARD_H
#define LOCKSTEP_CONTROL_BOARD_H

#include <stdatomic.h>
#include "comm/flight.h"

enum { BOARD_SENTENCE_BYTES = 480,
       PARTNERS_MOST = 2 /* other nodes that keep copies of a node's ranks */ };

enum board_phase {
    BOARD_STARTS,    /* has not said anything yet */
    BOARD_OPENS,     /* plans, takes memory, reads its state */
    BOARD_STEPS,
    BOARD_VALIDATES,
    BOARD_SAVES,
    BOARD_ENDED,     /* with the result on the page */
    BOARD_PHASES
};

/* After replicas were compared again and again. */
enum board_verdict { BOARD_SOUND,
                     BOARD_WRONG,  /* the rank computes wrong numbers */
                     BOARD_AWAITS  /* it waits until that one is left out */
};

enum board_source { BOARD_BEGINNING, BOARD_CHECKPOINT, BOARD_MEMORY,
                    BOARD_PEER, BOARD_SOURCES };

/* The costs of a rank's copies in memory, as the rank reports them. */
struct copies_cost {
    int64_t every;     /* steps from one copy to the next; 0: none was made */
    int64_t ppm;       /* the share of the time that they cost; 0: not known */
    int64_t waited_ns; /* how long a step waits until other nodes have its
                        * copy; smoothed */
    int64_t idle_ppm;  /* the share of the node's bytes that it sent while none
                        * of its ranks was in a call that sends to other nodes;
                        * -1: it sent none */
};

struct board_page {
    _Atomic int64_t process;      /* of the rank; on its own machine */
    _Atomic int seated;           /* the rank, and one more, whose place the
                                   * page is; 0: it is the page of its rank */
    _Atomic int phase;            /* enum board_phase */
    _Atomic int64_t step;         /* steps done */
    _Atomic int64_t step_ns;      /* monotonic, when the last one ended */
    _Atomic int64_t step_most_ns; /* the longest so far */
    _Atomic int64_t needs_copy_ns; /* usual time from the end of a step until
                                   * its copy is needed; 0: not known */
    _Atomic int64_t from_step;    /* steps that were there at the start */
    _Atomic int source;           /* enum board_source: where they lay */
    _Atomic int result;           /* status; once BOARD_ENDED */
    _Atomic int verdict;          /* enum board_verdict, after its sentence */
    _Atomic int64_t met_ppm;      /* of the last steps, in calls in which all
                                   * wait for all; smoothed */
    _Atomic int64_t planned_ns;   /* predicted time of a step; 0: unknown */
    _Atomic int64_t limit_ms;     /* comm.limit; 0: unknown */
    _Atomic uint64_t plan_bytes;  /* of memory that the rank planned; 0:
                                   * unknown */
    _Atomic uint64_t slot_bytes;  /* of a copy in memory; 0: there are none */
    _Atomic uint64_t copies;      /* made since the rank began */
    _Atomic int64_t copies_every, copies_ppm, copies_waited_ns,
        copies_idle_ppm;          /* struct copies_cost */
    _Atomic int64_t copied;       /* step of the newest; 0: none */
    _Atomic int64_t carried[PARTNERS_MOST]; /* ... on each other node; in a
                                   * supervisor's the first is of all */
    char sentence[BOARD_SENTENCE_BYTES];
    struct flight flight;
};

struct board {
    uint64_t magic;
    int32_t size;
    _Atomic int state_file;       /* descriptor of the ranks' state in memory,
                                   * inherited by all; -1: none */
    _Atomic uint64_t generation;
    _Atomic int here;             /* ranks of this machine; 0: all */
    _Atomic int carries[PARTNERS_MOST]; /* that node keeps copies: ranks
                                         * wait */
    _Atomic int partners;         /* nodes that do, and whose copies this one
                                   * keeps in turn */
    _Atomic int64_t courier_ns;   /* of processors, that carrying took */
    _Atomic int64_t courier_bytes, courier_idle_bytes; /* sent to other nodes;
                                   * of these, while no rank here talked */
    _Atomic int64_t beat_ns;      /* the supervisor lives: monotonic */
    _Atomic int64_t lease_ns;     /* ranks of an agent may live until then
                                   * (lease.h); 0: no lease */
    struct board_page pages[];    /* [size] */
};

/* A new one, cleared; *descriptor of its memory. */
status board_make(struct board **out, int size, int *descriptor);
/* That of another process. *descriptor: of its memory, which may be written;
 * NULL: it is to be read. ERR_FORMAT: it is no board. */
status board_open(struct board **out, const char *path, int *descriptor);
void board_close(struct board *board); /* NULL allowed */
/* For another generation: everything but the memory's descriptor. */
void board_clear(struct board *board);

/* This process is that rank from now on. */
void board_sit(struct board *board, int rank);
/* All do nothing in a process that is no such rank. */
void board_phase(enum board_phase phase);
void board_step(int64_t steps_done);
/* The state of that step was found there. */
void board_resume(int64_t steps_done, enum board_source source);
void board_end(status result, const char *sentence);
/* That the rank is wrong, or waits for one that is, before it ends. */
void board_judge(enum board_verdict verdict, const char *sentence);
/* Descriptor of the memory for the ranks' state; -1: there is none. */
int board_state_file(void);
/* The prediction of a step (option `machine`). */
void board_planned(double seconds);
/* How long the rank waits for others (option comm.limit). */
void board_limit(int64_t limit_ms);
/* The rank will take so much memory. */
void board_plan(size_t bytes);
/* The rank's copies in memory have that size. */
void board_slots(size_t slot_bytes);
/* A copy of that step was made. */
void board_copied(int64_t step);
/* The rank says what its copies cost; idle_ppm is that of the node. */
void board_copies(struct copies_cost cost);
struct copies_cost board_copies_cost(const struct board_page *of);
/* Writes what another machine said of a rank. */
void board_copies_mirror(struct board_page *of, const struct copies_cost *cost);
/* Waits until all other nodes have that step, at most 30 s: then the run goes
 * on without. False: there are none. */
bool board_await_carried(int64_t step);
/* Seconds of processors that carrying took on this node; 0: no copies are
 * carried. */
double board_carrying(void);
/* The share of the bytes of copies that this node sent while none of its ranks
 * talked to other nodes; below 0: it sent none. */
double board_carried_idle(void);
/* The newest step that all nodes have which keep copies; 0: none. */
int64_t board_carried(const struct board *board, const struct board_page *of);
/* After a rewind the other nodes have no copy that counts. */
void board_forget(void);
/* How many of `ranks` run on this machine. */
int board_ranks_here(int ranks);
/* Nodes whose ranks have copies here. */
int board_partners(void);
/* Whether the rank is of an agent (control/agent.h). */
bool board_has_agent(void);
/* 0: this process is no such rank. */
uint64_t board_generation(void);

/* The board of this rank; NULL: this process is no such rank. */
const struct board *board_mine(void);

const char *board_phase_name(int phase); /* "steps" */
const char *board_source_name(int source); /* "memory" */

#endif
