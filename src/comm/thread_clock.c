/* SPDX-License-Identifier: Apache-2.0 */
/* thread_clock.c - how long the system kept threads of a process from
 * running. */
#include "comm/thread_clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/threads.h"
#include "comm/crew.h"

enum { AGAIN_MS = 250, LOST_MS = 5000, FAULT_MS = 20 };

const char *stat_field(const char *text, int field)
{
    const char *at = strrchr(text, ')'); /* the name may hold anything */

    for (int i = 2; at != NULL && i < field; i++) at = strchr(at + 1, ' ');
    return at != NULL ? at + 1 : NULL;
}

/* A page from a disk takes FAULT_MS at most: where it takes longer the thread
 * is seen in state D. So a page now and then does not hide that it hangs. */
int64_t thread_kept_ns(const struct thread_times *now,
                       const struct thread_times *before, int64_t window_ns)
{
    const int64_t own_ns = now->own_ns - before->own_ns;
    const int64_t room_ns = window_ns - (own_ns > 0 ? own_ns : 0);
    const bool same_turn = now->turns == before->turns;
    int64_t kept_ns;

    if (now->state == 'T' || room_ns <= 0) return 0;
    if (now->state == 'D' || (now->state == 'R' && same_turn)) return room_ns;
    kept_ns = now->delay_ns - before->delay_ns +
              (int64_t)(now->faults - before->faults) * FAULT_MS * 1000000;
    if (now->ran_ns - before->ran_ns > own_ns) /* it worked for the system */
        kept_ns += now->ran_ns - before->ran_ns - own_ns;
    return kept_ns < 0 ? 0 : kept_ns < room_ns ? kept_ns : room_ns;
}

static int64_t number_at(const char *text, int field)
{
    const char *at = stat_field(text, field);

    return at != NULL ? strtoll(at, NULL, 10) : 0;
}

static void read_times(pid_t process, const char *thread,
                       struct thread_times *out)
{
    const int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    char what[64], text[1024];
    const char *state;

    *out = (struct thread_times){.thread = strtoll(thread, NULL, 10)};
    snprintf(what, sizeof what, "task/%.20s/stat", thread);
    if (crew_read(process, what, text, sizeof text) == 0 ||
        strstr(text, "(" THREAD_ASIDE ")") != NULL)
        return;
    state = stat_field(text, 3);
    out->state = (char)(state != NULL ? *state : 0);
    out->faults = (int32_t)number_at(text, 12);
    out->own_ns = number_at(text, 14) * tick_ns;
    snprintf(what, sizeof what, "task/%.20s/schedstat", thread);
    if (crew_read(process, what, text, sizeof text) == 0 ||
        sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64, &out->ran_ns,
               &out->delay_ns, &out->turns) != 3)
        out->ran_ns = out->delay_ns = out->turns = -1;
}

static const struct thread_times *find(const struct thread_clock *clock,
                                       int64_t thread)
{
    for (int i = 0; i < clock->count; i++)
        if (clock->threads[i].thread == thread) return &clock->threads[i];
    return NULL;
}

static int read_all(pid_t process, struct thread_times out[THREADS_SEEN])
{
    char path[64], **names;
    int found, count = 0;

    snprintf(path, sizeof path, "/proc/%ld/task", (long)process);
    if (directory_list(path, &names, &found) != OK) {
        status_clear(); /* it has ended */
        return 0;
    }
    for (int i = 0; i < found && count < THREADS_SEEN; i++) {
        read_times(process, names[i], &out[count]);
        count += out[count].state != 0;
    }
    directory_list_free(names, found);
    return count;
}

void thread_clock_look(struct thread_clock *clock, pid_t process,
                       int64_t now_ns)
{
    struct thread_times now[THREADS_SEEN];
    const int64_t window_ns = now_ns - clock->looked_ns;
    const bool same = clock->process == process &&
                      window_ns < (int64_t)LOST_MS * 1000000;
    struct kept_time most = {0};
    int count;

    if (same && window_ns < (int64_t)AGAIN_MS * 1000000) return;
    count = read_all(process, now);
    for (int i = 0; i < count && same; i++) {
        const struct thread_times *before = find(clock, now[i].thread);
        int64_t kept_ns;

        if (before == NULL) continue;
        kept_ns = thread_kept_ns(&now[i], before, window_ns);
        if (kept_ns <= most.kept_ns) continue;
        most = (struct kept_time){kept_ns, now[i].faults - before->faults};
    }
    if (clock->process != process) clock->kept = (struct kept_time){0};
    clock->kept.kept_ns += most.kept_ns;
    clock->kept.faults += most.faults;
    clock->process = process;
    clock->looked_ns = now_ns;
    clock->count = count;
    memcpy(clock->threads, now, (size_t)count * sizeof *now);
}
