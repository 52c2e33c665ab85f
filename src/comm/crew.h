/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h - starts ranks as processes of this machine, lets them meet, notices
 * when one ends, and ends them.
 *
 * A member is a child of this process, or one that an earlier process started
 * and this one adopted; either way it is held by a descriptor of the process,
 * so that a number that the system gives to another is never signalled. */
#ifndef LOCKSTEP_COMM_CREW_H
#define LOCKSTEP_COMM_CREW_H

#include <signal.h>
#include <sys/types.h>
#include "comm/meeting.h"
#include "comm/thread_clock.h"

/* How members on other machines are reached; what happens to them is written
 * into `members`: lives, gone, ended, why. */
struct crew_far {
    void *fleet;
    int (*polls)(void *fleet, struct pollfd *polls); /* CREW_FAR_POLLS */
    void (*step)(void *fleet);
    void (*signal)(void *fleet, int rank, int number);
    void (*fence)(void *fleet); /* until nobody lives */
};

enum { CREW_STORY_BYTES = 96, CREW_FAR_POLLS = 400,
       CREW_STARVED = 1 << 20 /* the system killed it for want of memory */ };

struct crew_member {
    pid_t process;        /* 0: was never started */
    bool far, lives, gone; /* not here; lives: as far as is known; gone: it has
                            * ended since, which crew_wait tells */
    char state;           /* of a far one: crew_state; how long its machine */
    struct kept_time kept;/* kept it from running, */
    int64_t heard_ns;     /* and when it last spoke of it */
    char why[CREW_STORY_BYTES]; /* it is gone; "": as `ended` says */
    int descriptor;       /* of the process; -1: it has ended */
    bool adopted;         /* how it ended cannot be known */
    int ended;            /* as waitpid tells it, and CREW_STARVED */
    uint64_t began;       /* when it began, by the system's count */
};

struct crew {
    int size;
    uint64_t generation;
    struct meeting meeting;
    struct token token;
    uint64_t job;
    int token_file, shared_file; /* in memory; -1: none */
    struct crew_member *members; /* owned, [size] */
    struct crew_far *far; /* borrowed; NULL: all are children of this process */
};

/* address: of the meeting. No process is started. */
/* token NULL: a new one. */
status crew_open(struct crew *crew, int size, const char *address,
                 const struct token *token);
void crew_close(struct crew *crew); /* zeroed: allowed. Ends nobody. */
/* The ranks of the next generation may come. Nobody of the crew may live. */
status crew_begin(struct crew *crew, uint64_t generation);
/* Another process from here on: in it, *child is true and the environment says
 * that it is the rank. */
status crew_start(struct crew *crew, int rank, bool *child);
/* Takes a process that lives already for the rank; ERR_PEER: it does not, or
 * did not begin then. */
status crew_adopt(struct crew *crew, int rank, pid_t process, uint64_t began);
/* Waits for a moment, and longer only while nothing happens; polls [count] are
 * watched, too. *changed: the first rank that has ended since; -1: none. Ask
 * until it is. */
status crew_wait(struct crew *crew, struct pollfd *polls, int count,
                 int timeout_ms, int *changed);
int crew_living(const struct crew *crew);
bool crew_lives(const struct crew_member *member);
/* Sends a signal to all who live. */
void crew_signal(const struct crew *crew, int number);
void crew_signal_one(const struct crew *crew, int rank, int number);
/* Kills all who live and waits until none does. */
void crew_fence(struct crew *crew);

/* Signals that ask a crew to stop wait from now on, until crew_watch. */
void crew_hold_signals(void);
/* Signals that ask a crew to stop are blocked, and read from *descriptor.
 * SIGPIPE is ignored: a reader of this process's output who is gone must not
 * end it. */
status crew_watch(int *descriptor);
/* They come as usual again, to a child, too; SIGPIPE stays ignored. *descriptor
 * is -1 then; nothing where it was. */
void crew_unwatch(int *descriptor);

/* "was killed by signal 9 (Killed)", "ended with exit code 3". */
void crew_story(const struct crew_member *member, char out[CREW_STORY_BYTES]);
/* Adds CREW_STARVED to what waitpid told of a process of this machine. */
int crew_ended(int ended);
/* Whether the system killed it for want of memory. */
bool crew_starved(const struct crew_member *member);
/* Whether it ended by its own fault: not by a signal that others send. */
bool crew_fell(const struct crew_member *member);
/* Reads /proc/PROCESS/what into out [bytes], zero bytes and all, and ends it
 * with another; returns the length; 0: there is no such process. */
size_t crew_read(pid_t process, const char *what, char *out, size_t bytes);
/* As ps prints that of its first thread: 'T' is stopped. 0: there is no such
 * process. */
char crew_state(pid_t process);
char crew_member_state(const struct crew_member *member);
/* How long the system kept it from running so far. threads: of a process of
 * this machine, at the last look. */
struct kept_time crew_member_kept(const struct crew_member *member,
                                  struct thread_clock *threads);
/* When the process began, in the system's ticks; 0: there is none. */
uint64_t crew_began(pid_t process);

#endif
