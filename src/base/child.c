/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - a question that a process of its own answers, within a time. */
#include "base/child.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/status.h"

/* So long an ended process may take to be gone; a system that waits for a
 * device in its stead is not waited for. */
enum { END_MS = 5000, END_TURN_MS = 10 };

static void tell(child_work *work, const void *of, size_t bytes, int to)
{
    _Alignas(max_align_t) char answer[PIPE_BUF] = {0};
    ssize_t written;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(answer, of);
    written = write(to, answer, bytes);
    _exit(written == (ssize_t)bytes ? 0 : 1);
}

static enum child_end hear(int from, void *answer, size_t bytes,
                           int64_t patience_ms)
{
    const int64_t end = clock_ns() + patience_ms * 1000000;
    struct pollfd wait = {.fd = from, .events = POLLIN};

    for (;;) {
        const int64_t left = (end - clock_ns()) / 1000000;

        if (left <= 0) return CHILD_LATE;
        if (poll(&wait, 1, left < INT_MAX ? (int)left : INT_MAX) > 0) break;
    }
    return read(from, answer, bytes) == (ssize_t)bytes ? CHILD_ANSWERED
                                                       : CHILD_ENDED;
}

static void bury(pid_t child)
{
    kill(child, SIGKILL);
    for (int i = 0; i < END_MS / END_TURN_MS; i++) {
        const pid_t gone = waitpid(child, NULL, WNOHANG);

        if (gone == child || (gone < 0 && errno != EINTR)) return;
        poll(NULL, 0, END_TURN_MS);
    }
}

enum child_end child_ask(child_work *work, const void *of, void *answer,
                         size_t bytes, int64_t patience_ms)
{
    enum child_end end = CHILD_NONE;
    int ends[2];
    pid_t child;

    CHECK(bytes <= PIPE_BUF);
    if (pipe(ends) != 0) return CHILD_NONE;
    child = fork();
    if (child == 0) tell(work, of, bytes, ends[1]);
    close(ends[1]);
    if (child > 0) {
        end = hear(ends[0], answer, bytes, patience_ms);
        bury(child);
    }
    close(ends[0]);
    return end;
}
