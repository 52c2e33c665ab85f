/* SPDX-License-Identifier: Apache-2.0 */
/* flight.h - the last calls of a rank, in memory that outlives it: the flight
 * recorder.
 *
 * A rank that is a process may be given such a record in memory that it shares
 * with its supervisor. Every call of comm.h leaves an entry when it begins and
 * a time when it ends. When a rank is killed or hangs, the entries of all ranks
 * show who was where, and who did not come. There are no locks: a reader
 * may see an entry that is half written, so it must check every text and
 * number. */
#ifndef LOCKSTEP_COMM_FLIGHT_H
#define LOCKSTEP_COMM_FLIGHT_H

#include "comm/comm.h"
#include "comm/message.h"

enum { FLIGHT_ENTRIES = 4096, FLIGHT_NAME_BYTES = 32 };

struct flight_entry {
    uint64_t number;       /* from 1, of all calls of the rank; 0: none yet */
    uint64_t call;         /* number of the call in its group and channel */
    uint64_t context;
    int64_t began_ns, ended_ns; /* monotonic; ended 0: under way */
    int64_t bytes;         /* sent */
    int64_t peer;          /* of a send or a receive: rank of the world; else
                            * -1 */
    int32_t kind;          /* enum comm_kind */
    int32_t channel;       /* enum channel */
    int32_t size, result;  /* ranks of the group; status */
    char group[COMM_LABEL_BYTES];
};

/* The instruction of a step that a rank performs. */
struct flight_doing {
    int64_t turn;          /* counts them; 0: none yet */
    int64_t usual_ns;      /* as it is planned to take, or the longest that it
                            * took in a step before; 0: unknown, or it may take
                            * any time */
    int32_t number;        /* in the step's list */
    int32_t waits;         /* for calls in the background; 0: for none */
    int32_t reads;         /* sequences that it waits for; 0: for none */
    int32_t awaits;        /* a bit for each node that is to take its copy
                            * before it goes on; 0: for none */
    char name[FLIGHT_NAME_BYTES];
};

struct flight {
    _Atomic uint64_t count; /* entries ever begun */
    _Atomic uint64_t beats; /* raised whenever the rank gets on */
    _Atomic int64_t met_ns; /* in calls of flight_meets, in all */
    _Atomic int32_t talks;  /* calls under way that send to other nodes */
    _Atomic int64_t turn, usual_ns; /* struct flight_doing */
    _Atomic int32_t number, waits, reads, awaits;
    char name[FLIGHT_NAME_BYTES];
    struct flight_entry entries[FLIGHT_ENTRIES]; /* number n at n % size */
};

/* From now on this process writes into it; NULL: nowhere. */
void flight_attach(struct flight *flight);
/* The rank gets on, outside of calls. */
void flight_beat(void);
/* The rank begins an instruction of a step. */
void flight_do(int number, const char *name, int64_t usual_ns);
/* The rest of it may take any time. */
void flight_take_time(void);
/* Whether the instruction did: how long it took says nothing of the next. */
bool flight_has_taken_time(void);
/* The rank begins (1) or ends (-1) to wait for a call in the background. */
void flight_wait(int change);
/* The same, for sequences of the data. */
void flight_read(int change);
/* It waits for those nodes (flight_doing.awaits), and gets on meanwhile. */
void flight_await(int nodes);

/* For comm.h's calls. */
uint64_t flight_enter(const struct operation *operation);
void flight_leave(uint64_t number, const struct operation *operation,
                  status result);

/* Whether every rank of the group waits for every other in it. */
bool flight_meets(const struct flight_entry *entry);
/* The oldest call outside the background that has not ended, else the newest
 * that has; number 0: there is none. Texts end, numbers are in range. */
struct flight_entry flight_position(const struct flight *flight);
/* The call of that number, as sound; number 0: it is not on record. */
struct flight_entry flight_call(const struct flight *flight, uint64_t number);
/* The oldest collective in the background that has not ended; number 0: none
 * is under way. */
struct flight_entry flight_aside(const struct flight *flight);
/* Whether a call of the rank sends to other nodes just now, or waits for others
 * to do so. */
bool flight_talks(const struct flight *flight);
/* Its text ends, numbers are in range. usual_ns is 0 if it changes just now. */
struct flight_doing flight_doing(const struct flight *flight);
/* The rank is within a call, or another wait for other ranks or nodes. */
bool flight_waits(const struct flight *flight);
/* Writes what another machine said of a rank. */
void flight_mirror(struct flight *flight, const struct flight_doing *doing);

#endif
