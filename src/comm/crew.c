/* SPDX-License-Identifier: Apache-2.0 */
/* crew.c - ranks as processes of this machine. */
#include "comm/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/oom_kills.h"
#include "comm/inheritance.h"
#include "comm/process_world.h"

enum { FENCE_MS = 10000 };

static status crew_fill(struct crew *crew, const char *address,
                        const struct token *token)
{
    struct token drawn;

    TRY(token_draw(&drawn)); /* the name of the job is no secret */
    memcpy(&crew->job, drawn.key, sizeof crew->job);
    if (token != NULL) crew->token = *token;
    else TRY(token_draw(&crew->token));
    TRY(memory_take((size_t)crew->size, sizeof *crew->members,
                    (void **)&crew->members));
    for (int i = 0; i < crew->size; i++) crew->members[i].descriptor = -1;
    TRY(inherited_token(&crew->token, &crew->token_file));
    TRY(inherited_memory("lockstep-messages",
                         (int64_t)crew->size * RING_BYTES,
                         &crew->shared_file));
    TRY(meeting_open(&crew->meeting, address, &crew->token, crew->job));
    return OK;
}

status crew_open(struct crew *crew, int size, const char *address,
                 const struct token *token)
{
    status result;

    *crew = (struct crew){.size = size, .token_file = -1, .shared_file = -1};
    oom_kills_watch();
    if (size < 1 || size > PROCESSES_MOST)
        FAIL(ERR_CONFIG, "%d ranks: expected 1 to %d", size, PROCESSES_MOST);
    result = crew_fill(crew, address, token);
    if (result == OK) return OK;
    crew_close(crew);
    return status_pass(result, __FILE__, __LINE__);
}

void crew_close(struct crew *crew)
{
    if (crew->size == 0) return;
    for (int i = 0; crew->members != NULL && i < crew->size; i++)
        if (crew->members[i].descriptor >= 0)
            close(crew->members[i].descriptor);
    memory_free(crew->members);
    meeting_close(&crew->meeting);
    if (crew->token_file >= 0) close(crew->token_file);
    if (crew->shared_file >= 0) close(crew->shared_file);
    *crew = (struct crew){0};
}

status crew_begin(struct crew *crew, uint64_t generation)
{
    CHECK(crew_living(crew) == 0);
    crew->generation = generation;
    TRY(meeting_begin(&crew->meeting, crew->size, generation));
    return OK;
}

/* ---- starting ---- */

size_t crew_read(pid_t process, const char *what, char *out, size_t bytes)
{
    char path[64];
    ssize_t got;
    int file;

    out[0] = '\0';
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)process, what);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    got = read(file, out, bytes - 1);
    close(file);
    out[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* Field `field` of what the system says about a process, from 3 on; NULL: there
 * is no such process. */
static const char *process_field(pid_t process, int field, char text[1024])
{
    if (crew_read(process, "stat", text, 1024) == 0) return NULL;
    return stat_field(text, field);
}

uint64_t crew_began(pid_t process)
{
    char text[1024];
    const char *field = process_field(process, 22, text);

    return field != NULL ? strtoull(field, NULL, 10) : 0;
}

char crew_state(pid_t process)
{
    char text[1024];
    const char *field = process_field(process, 3, text);

    return (char)(field != NULL ? *field : 0);
}

static status hold(struct crew_member *member)
{
    member->descriptor = (int)syscall(SYS_pidfd_open, member->process, 0);
    if (member->descriptor < 0)
        FAIL(ERR_PEER, "process %ld cannot be watched: %s",
             (long)member->process, strerror(errno));
    member->began = crew_began(member->process);
    return OK;
}

/* The child says who it is. What it inherits stays open over exec: the token
 * and the shared memory have no other name. */
static status become(struct crew *crew, int rank)
{
    const int kept[] = {crew->token_file, crew->shared_file};
    const char *const names[] = {"LOCKSTEP_TOKEN", "LOCKSTEP_SHARED"};
    char path[64];

    TRY(inherited_number("LOCKSTEP_RANK", (uint64_t)rank));
    TRY(inherited_number("LOCKSTEP_RANKS", (uint64_t)crew->size));
    TRY(inherited_number("LOCKSTEP_GENERATION", crew->generation));
    TRY(inherited_number("LOCKSTEP_JOB", crew->job));
    for (int i = 0; i < 2; i++) {
        const int copy = dup(kept[i]); /* without close-on-exec */

        snprintf(path, sizeof path, "/proc/self/fd/%d", copy);
        if (copy < 0 || setenv(names[i], path, 1) != 0)
            FAIL(ERR_IO, "a rank cannot be started: %s", strerror(errno));
    }
    if (setenv("LOCKSTEP_MEET", crew->meeting.door.address, 1) != 0)
        FAIL(ERR_MEMORY, "no memory for the environment");
    return OK;
}

status crew_start(struct crew *crew, int rank, bool *child)
{
    struct crew_member *member = &crew->members[rank];
    pid_t process;

    fflush(NULL); /* or both would write what waits */
    process = fork();
    if (process < 0)
        FAIL(ERR_MEMORY, "rank %d cannot be started: %s", rank,
             strerror(errno));
    *child = process == 0;
    if (*child) {
        TRY(become(crew, rank));
        crew_close(crew);
        return OK;
    }
    *member = (struct crew_member){.process = process, .descriptor = -1};
    TRY(hold(member));
    return OK;
}

status crew_adopt(struct crew *crew, int rank, pid_t process, uint64_t began)
{
    struct crew_member *member = &crew->members[rank];

    *member = (struct crew_member){.process = process, .descriptor = -1,
                                   .adopted = true};
    TRY(hold(member));
    if (member->began == began && began != 0) return OK;
    close(member->descriptor);
    member->descriptor = -1;
    FAIL(ERR_PEER, "process %ld is not rank %d", (long)process, rank);
}

/* ---- watching ---- */

int crew_living(const struct crew *crew)
{
    int living = 0;

    for (int i = 0; i < crew->size; i++)
        living += crew_lives(&crew->members[i]);
    return living;
}

bool crew_lives(const struct crew_member *member)
{
    return member->far ? member->lives : member->descriptor >= 0;
}

char crew_member_state(const struct crew_member *member)
{
    return member->far ? member->state : crew_state(member->process);
}

struct kept_time crew_member_kept(const struct crew_member *member,
                                  struct thread_clock *threads)
{
    if (member->far) return member->kept;
    thread_clock_look(threads, member->process, clock_ns());
    return threads->kept;
}

/* Whether the member has ended; then it is let go. */
static bool member_ended(struct crew_member *member, int wait_ms)
{
    struct pollfd poll_one = {.fd = member->descriptor, .events = POLLIN};

    if (member->far) {
        if (!member->lives || !member->gone) return false;
        member->lives = false;
        return true;
    }
    if (member->descriptor < 0 || poll(&poll_one, 1, wait_ms) <= 0)
        return false;
    if (!member->adopted) {
        while (waitpid(member->process, &member->ended, 0) < 0 &&
               errno == EINTR)
            continue;
        member->ended = crew_ended(member->ended);
    }
    close(member->descriptor);
    member->descriptor = -1;
    return true;
}

static int first_ended(struct crew *crew)
{
    for (int i = 0; i < crew->size; i++)
        if (member_ended(&crew->members[i], 0)) return i;
    return -1;
}

status crew_wait(struct crew *crew, struct pollfd *polls, int count,
                 int timeout_ms, int *changed)
{
    struct pollfd all[PROCESSES_MOST + DOOR_POLLS + CREW_FAR_POLLS + 16];
    bool complete;
    int used = 0;

    CHECK(count <= 16);
    *changed = first_ended(crew);
    if (*changed >= 0) return OK;
    for (int i = 0; i < count; i++) all[used++] = polls[i];
    for (int i = 0; i < crew->size; i++)
        if (crew->members[i].descriptor >= 0)
            all[used++] = (struct pollfd){
                .fd = crew->members[i].descriptor, .events = POLLIN};
    used += meeting_polls(&crew->meeting, all + used);
    if (crew->far != NULL)
        used += crew->far->polls(crew->far->fleet, all + used);
    poll(all, (nfds_t)used, timeout_ms);
    for (int i = 0; i < count; i++) polls[i].revents = all[i].revents;
    TRY(meeting_step(&crew->meeting, &complete));
    if (crew->far != NULL) crew->far->step(crew->far->fleet);
    *changed = first_ended(crew);
    return OK;
}

/* ---- ending ---- */

static void member_signal(const struct crew_member *member, int number)
{
    if (member->descriptor >= 0)
        syscall(SYS_pidfd_send_signal, member->descriptor, number, NULL, 0);
}

void crew_signal(const struct crew *crew, int number)
{
    for (int i = 0; i < crew->size; i++) crew_signal_one(crew, i, number);
}

void crew_signal_one(const struct crew *crew, int rank, int number)
{
    if (crew->far != NULL) crew->far->signal(crew->far->fleet, rank, number);
    else member_signal(&crew->members[rank], number);
}

void crew_fence(struct crew *crew)
{
    if (crew->far != NULL) {
        crew->far->fence(crew->far->fleet);
        return;
    }
    crew_signal(crew, SIGKILL);
    for (int i = 0; i < crew->size; i++) {
        struct crew_member *member = &crew->members[i];

        /* Only the kernel can make this last: a process in a disk's wait. */
        while (member->descriptor >= 0 && !member_ended(member, FENCE_MS))
            member_signal(member, SIGKILL);
    }
}

/* SIGTERM, SIGINT, SIGUSR1 and, unless it is ignored (nohup), SIGHUP. A blocked
 * signal would not be ignored any more. */
static void watched_signals(sigset_t *set)
{
    struct sigaction hup;

    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
    if (sigaction(SIGHUP, NULL, &hup) != 0 || hup.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

void crew_hold_signals(void)
{
    sigset_t set;

    watched_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

status crew_watch(int *descriptor)
{
    sigset_t set;

    crew_hold_signals();
    watched_signals(&set);
    signal(SIGPIPE, SIG_IGN);
    *descriptor = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (*descriptor < 0)
        FAIL(ERR_IO, "signals cannot be watched: %s", strerror(errno));
    return OK;
}

void crew_unwatch(int *descriptor)
{
    sigset_t set;

    if (*descriptor < 0) return;
    close(*descriptor);
    *descriptor = -1;
    watched_signals(&set);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int crew_ended(int ended)
{
    if (!WIFSIGNALED(ended) || WTERMSIG(ended) != SIGKILL || !oom_kills_take())
        return ended;
    return ended | CREW_STARVED;
}

bool crew_starved(const struct crew_member *member)
{
    return !member->adopted && member->why[0] == '\0' &&
           (member->ended & CREW_STARVED) != 0;
}

bool crew_fell(const struct crew_member *member)
{
    const int number = WIFSIGNALED(member->ended) ? WTERMSIG(member->ended)
                                                  : 0;

    if (crew_starved(member)) return true;
    return !member->adopted && member->why[0] == '\0' &&
           number != SIGKILL && number != SIGTERM &&
           number != SIGINT && number != SIGHUP;
}

void crew_story(const struct crew_member *member, char out[CREW_STORY_BYTES])
{
    if (member->why[0] != '\0')
        snprintf(out, CREW_STORY_BYTES, "%s", member->why);
    else if (member->adopted)
        snprintf(out, CREW_STORY_BYTES, "has ended");
    else if (crew_starved(member))
        snprintf(out, CREW_STORY_BYTES, "was killed by the system for want of "
                 "memory (OOM kill)");
    else if (WIFSIGNALED(member->ended))
        snprintf(out, CREW_STORY_BYTES, "was killed by signal %d (%s)",
                 WTERMSIG(member->ended), strsignal(WTERMSIG(member->ended)));
    else
        snprintf(out, CREW_STORY_BYTES, "ended with exit code %d",
                 WEXITSTATUS(member->ended));
}
