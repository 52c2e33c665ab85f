/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - the supervisor's view of one generation. Private to control. */
#ifndef LOCKSTEP_CONTROL_WATCH_H
#define LOCKSTEP_CONTROL_WATCH_H

#include "base/text.h"
#include "comm/crew.h"
#include "control/board.h"
#include "control/fleet.h"
#include "control/journal.h"
#include "control/supervisor.h"

enum { HANG_FACTOR = 5, HANG_EXTRA_MS = 2000, ORPHAN_MS = 1000,
       AWAITED_MS = 10000, /* for a rank that others say is wrong */
       LOOKED_MOST_MS = 200 /* of the time between two looks counts: who looks
                             * late was kept from it himself */ };

enum incident_kind { INCIDENT_NONE, INCIDENT_DEATH, INCIDENT_HANG,
                     INCIDENT_CONNECTION };

struct incident {
    enum incident_kind kind;
    int rank;
    int64_t process;
    int64_t seen_ns;
    bool itself;          /* nobody killed it */
    bool wrong;           /* it says that it computes wrong numbers */
    bool starved;         /* the system killed it for want of memory */
    char cause[384];
};

/* One rank, as it was seen last. */
struct sight {
    uint64_t beats;
    int64_t changed_ns;   /* when it last got on */
    int64_t silent_ns;    /* how long it was seen without that */
    int64_t step, step_ns, step_most_ns; /* the longest step so far */
    int64_t turn, turn_ns;/* of its instruction, and how long it was seen in
                           * it */
    bool told;            /* of the signal */
    struct thread_clock threads; /* of a process of this machine */
    struct kept_time kept;/* at the end of the last window of kept.c, */
    int64_t heard_ns;     /* and when its machine had spoken of it */
    int64_t kept_ns;      /* how long the system kept it from running, or its
                           * data were late, since it got on, */
    int64_t kept_faults;  /* pages that it waited for then; */
    bool kept_reads;      /* its data were late; */
    bool kept_told;       /* and that was said */
    int64_t awaits_ns;    /* how long it waited for other nodes to take its
                           * copy, */
    int64_t awaits_step;  /* in that step; */
    bool awaits_told;     /* and that was said */
};

struct supervisor {
    bool marked;          /* it is known here that the run has begun */
    /* With checkpoint.local: machines that had ranks last, whose shards the
     * next ones need. */
    char wanted[NODES_MOST][NODE_NAME_BYTES];
    int wanted_count;
    int64_t wanted_until_ns; /* then they are not waited for; 0: unknown */
    const struct supervision *how;
    struct crew crew;
    struct fleet *fleet;  /* NULL: ranks are children */
    /* With a fleet: the layout of this generation; what it is for. */
    char layout[LAYOUT_WORDS_BYTES];
    int layout_ranks;     /* 0: none yet */
    bool converts;        /* it only saves, for another layout */
    bool regroups;        /* it was asked to save: a larger layout fits */
    bool saved;           /* the newest checkpoint is of the newest step */
    int wished;           /* a signal from outside meanwhile; 0: none */
    int converted_in_vain;
    int64_t grow_ns;      /* not before */
    /* Nothing larger than a layout of so many ranks fits so many places. */
    struct { int ranks, places; } full;
    struct board *board;
    int board_file, state_file; /* in memory; -1: none */
    int board_number;     /* of the board's descriptor in the ranks: not that
                           * of a supervisor that took them over */
    struct journal journal;
    int signals;          /* descriptor */
    int64_t looked_ns;    /* for hangs, last */
    int64_t window_ns;    /* since kept_take_off last looked */
    int64_t failed_ns;    /* when a rank failed for good; 0: none did */
    int asked;            /* signal to be passed on; 0: none */
    bool ended;           /* SIGTERM or SIGINT came, */
    bool insists;         /* and one of them again */
    struct sight *sights; /* owned, [ranks] */
    int incidents;        /* so far */
    int64_t starved_ns;   /* when a rank was killed for want of memory; 0:
                           * none was */
    int in_vain;          /* restarts since a step was last finished for good:
                           * a later one than ever, or one that a generation
                           * went on from, later than any before it (since the
                           * run last fell back: the first FALLS_MOST times) */
    int64_t from_step;    /* where the newest generation went on */
    int64_t furthest_from;/* the latest such step that counts */
    int64_t fallen_to;    /* the latest step that the run went back to, */
    int falls;            /* and how often to it or behind it */
    uint64_t from_generation; /* that one */
    int64_t most_steps;   /* finished by some rank, ever */
    int64_t last_step_ns; /* when */
    int64_t usual_ns;     /* the longest step of the generations before */
    /* The incident that is not over yet; number 0: none. */
    int open_incident;
    int64_t open_since_ns, open_step;
    double fenced_ms;
    /* With a fleet: the rank that was named last. */
    struct { int rank; int64_t look_ns, again_ns; } slow;
    char wrong[300];      /* of the last incident of a rank that was wrong */
};

/* The journal says how many generations there were; if ranks of the last one
 * live without a supervisor, they are this one's now. *watches: all of them
 * go on; otherwise those who live are to be fenced. */
status supervisor_adopt(struct supervisor *s, bool *watches);

/* The last incident of an earlier supervisor, if nothing was recovered then. */
void supervisor_reopen(struct supervisor *s,
                       const struct journal_lines *lines);

/* supervisor_fleet.c */
status generation_of_agents(struct supervisor *s, uint64_t generation,
                            bool begun);
/* Another layout or none: the generation ended because it was asked to. */
bool generation_goes_on(struct supervisor *s, status *result);
/* Says which losses of nodes the copies in memory survive. */
void generation_copies(struct supervisor *s);
/* A lease that is longer than any before is written down, and then given. */
void generation_leases(struct supervisor *s);
/* Names a rank for which the others wait, once in ten minutes. */
void generation_stragglers(struct supervisor *s);
/* Asks for a larger layout, if one fits now. */
void generation_grow(struct supervisor *s);
status supervisor_adopt_agents(struct supervisor *s, bool *watches);
void json_key_seat(struct json_writer *w, const struct fleet *fleet, int rank);

/* Takes signals that came. */
void supervisor_hear(struct supervisor *s);

/* The news of one look. */
enum look { LOOK_ON, LOOK_INCIDENT, LOOK_OVER };
enum look watch_once(struct supervisor *s, struct incident *incident,
                     status *result);

/* It is within a call, or another wait for other ranks. */
bool rank_waits(const struct supervisor *s, int rank);
/* It waits until another node has its copy, however often it beats. */
bool rank_awaits(const struct supervisor *s, int rank);
/* By SIGSTOP, or a debugger. */
bool rank_is_stopped(const struct supervisor *s, int rank);

/* kept.c: the time in which a rank that all wait for wanted to run, and the
 * system did not let it (memory is short, processors are busy or its control
 * group may not use them), or in which its data were late, is taken off what
 * counts as silence of all. Time in which it waited for another node to take
 * its copy is taken off the silence of those that wait. */
void kept_take_off(struct supervisor *s, int64_t passed_ns);
/* Now, before a verdict: a machine may have said since the last look how long
 * its rank was kept. */
void kept_look(struct supervisor *s);
/* ", beside 3.1 s in which it waited for ..."; "": there was none. */
void kept_text(const struct sight *sight, char out[96]);

/* "node b", which is to take the rank's copy. */
const char *awaited_text(const struct supervisor *s, int rank,
                         char out[NODE_NAME_BYTES + 8]);

/* With a fleet: nodes whose ranks say that they are wrong are not used again.
 * Ranks may say it while they are ended because of another incident. */
void watch_verdicts(struct supervisor *s);

/* "rank 0: steps, step 14, in all-reduce on group data (call 9) for 0.3 s". */
void position_text(const struct board *board, int rank, int64_t now_ns,
                   char out[160]);
/* How long before `now_ns` the rank last began or ended a call or a step,
 * milliseconds; -1: nobody knows. */
double sign_of_life_ms(const struct board *board, int rank, int64_t now_ns);
/* Which rank did not come to the call that others wait in; "" if nobody
 * waits. */
void explain_waits(const struct board *board, char out[256]);

#endif
