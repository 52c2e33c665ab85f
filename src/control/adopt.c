/* SPDX-License-Identifier: Apache-2.0 */
/* adopt.c - a supervisor takes over the ranks of one that died. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "control/report.h"
#include "control/watch.h"

/* Whether all ranks live, or ended as they should. */
static bool take_ranks(struct supervisor *s, const struct run_report *r)
{
    bool whole = true;

    for (int i = 0; i < r->ranks; i++) {
        const struct board_page *page = &s->board->pages[i];

        if (r->rank[i].lives &&
            crew_adopt(&s->crew, i, (pid_t)r->rank[i].process,
                       (uint64_t)r->rank[i].began) == OK)
            continue;
        status_clear();
        whole = whole && atomic_load(&page->phase) == BOARD_ENDED &&
                atomic_load(&page->result) == OK;
    }
    return whole;
}

/* The copies in memory are held by a rank under the number of that file in its
 * supervisor. */
static void take_state(struct supervisor *s, const struct run_report *r)
{
    const int number = atomic_load(&s->board->state_file);
    char path[64];
    int file = -1;

    for (int i = 0; i < r->ranks && file < 0 && number >= 0; i++) {
        if (!r->rank[i].lives) continue;
        snprintf(path, sizeof path, "/proc/%lld/fd/%d",
                 (long long)r->rank[i].process, number);
        file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    if (file >= 0) {
        close(s->state_file);
        s->state_file = file;
    }
    /* The number on the board stays that of the ranks, which may be about
     * to map it, and of the next supervisor that takes them over. */
}

static status adopt(struct supervisor *s, const struct run_report *r,
                    bool *watches)
{
    struct board *old;
    int file;

    if (r->ranks != s->how->ranks)
        FAIL(ERR_CONFIG, "%s: its %d ranks still run, though their supervisor "
             "is gone: take them over with lockstep resume and --ranks %d",
             s->how->run, r->ranks, r->ranks);
    if (board_open(&old, r->board_path, &file) != OK) {
        status_clear(); /* they ended just now */
        return OK;
    }
    board_close(s->board);
    close(s->board_file);
    s->board = old;
    s->board_file = file;
    s->board_number = r->board_number;
    take_state(s, r);
    *watches = take_ranks(s, r);
    return OK;
}

status supervisor_adopt(struct supervisor *s, bool *watches)
{
    struct run_report report;
    status result = run_report_read(&report, s->how->run);

    *watches = false;
    if (result == ERR_MISSING) {
        status_clear();
        return OK;
    }
    TRY(result);
    s->crew.generation = (uint64_t)report.generation;
    s->incidents = report.incidents;
    supervisor_reopen(s, &report.lines);
    if (report.state == RUN_ALONE) result = adopt(s, &report, watches);
    run_report_free(&report);
    return result;
}
