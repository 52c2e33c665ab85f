/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_crew.h - all that a supervisor asks of processes that exist only in a
 * test: who lives, how they ended; their ends. Part of test_simulator.c. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_CREW_H
#define LOCKSTEP_TESTS_VIRTUAL_CREW_H

#include <fcntl.h>
#include <stdio.h>
#include "tests/unit/control/virtual_cluster.h"

int crew_living(const struct crew *crew)
{
    int living = 0;

    for (int i = 0; i < crew->size; i++) living += alive(i);
    return living;
}

static int rank_of(const struct crew_member *member)
{
    return (int)(member->process - 1000);
}

bool crew_lives(const struct crew_member *member)
{
    return member->process != 0 && alive(rank_of(member));
}

char crew_member_state(const struct crew_member *member)
{
    const struct virtual_rank *r = &cluster.rank[rank_of(member)];

    return crew_lives(member) && r->stopped && !r->kept ? 'T' : 'S';
}

/* One that is kept from running waits for pages. */
struct kept_time crew_member_kept(const struct crew_member *member,
                                  struct thread_clock *threads)
{
    const struct virtual_rank *r = &cluster.rank[rank_of(member)];
    const int64_t passed_ns = cluster.now_ns - threads->looked_ns;

    if (crew_lives(member) && r->stopped && r->kept) {
        threads->kept.kept_ns += passed_ns;
        threads->kept.faults += passed_ns / 1000000;
    }
    threads->looked_ns = cluster.now_ns;
    return threads->kept;
}

char crew_state(pid_t process) { (void)process; return 'S'; }

size_t crew_read(pid_t process, const char *what, char *out, size_t bytes)
{
    (void)process, (void)what, (void)bytes;
    out[0] = '\0';
    return 0;
}

uint64_t crew_began(pid_t process) { (void)process; return 1; }

void crew_signal(const struct crew *crew, int number)
{
    for (int i = 0; i < crew->size; i++) crew_signal_one(crew, i, number);
}

void crew_signal_one(const struct crew *crew, int rank, int number)
{
    (void)crew;
    if (number == SIGKILL && alive(rank)) end_rank(rank, false);
}

void crew_fence(struct crew *crew)
{
    crew_signal(crew, SIGKILL);
    for (int i = 0; i < crew->size; i++) cluster.rank[i].told = true;
    cluster.now_ns += 1000000 + draw(20000000);
}

status crew_watch(int *descriptor)
{
    *descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return OK;
}

void crew_unwatch(int *descriptor)
{
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
}

void crew_story(const struct crew_member *member, char out[CREW_STORY_BYTES])
{
    (void)member;
    snprintf(out, CREW_STORY_BYTES, "ended");
}

bool crew_starved(const struct crew_member *member)
{
    (void)member;
    return false;
}

bool crew_fell(const struct crew_member *member)
{
    return cluster.rank[rank_of(member)].itself;
}

#endif
