/* SPDX-License-Identifier: Apache-2.0 */
/* muster.c - agents come to a command that starts no ranks. */
#include "control/muster.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "control/fleet.h"

enum { LOOK_MS = 50 };

struct task {
    const struct muster *how;
    struct text lines;
    status result;
    char why[1024];
    _Atomic bool done;
};

static void *work(void *argument)
{
    struct task *task = argument;

    task->result = task->how->work(task->how->argument, task->lines.bytes);
    snprintf(task->why, sizeof task->why, "%s", status_message());
    status_clear();
    atomic_store(&task->done, true);
    return NULL;
}

static status work_beside(struct task *task, struct fleet *fleet)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, work, task) != 0)
        FAIL(ERR_MEMORY, "a thread cannot be started");
    while (!atomic_load(&task->done)) fleet_look(fleet, LOOK_MS);
    pthread_join(thread, NULL);
    if (task->result == OK) return OK;
    FAIL(task->result, "%s", task->why);
}

static status name_nodes(const struct fleet *fleet, struct text *lines)
{
    for (int i = 0; i < fleet->count; i++)
        if (fleet->nodes[i].wire.descriptor >= 0)
            TRY(text_printf(lines, "%s %s\n", fleet->nodes[i].name,
                            fleet->nodes[i].address));
    return text_append_string(lines, "");
}

static void await_nodes(struct fleet *fleet, const struct muster *how)
{
    const int64_t end = clock_ns() + how->seconds * 1000000000;

    while (fleet_nodes(fleet) < how->nodes && clock_ns() < end)
        fleet_look(fleet, LOOK_MS);
    if (fleet_nodes(fleet) < how->nodes)
        fprintf(stderr, "notice    %d of %d agents are here after %lld s\n",
                fleet_nodes(fleet), how->nodes, (long long)how->seconds);
}

status muster(const struct muster *how)
{
    static struct fleet fleet;
    static struct crew crew;
    struct task task = {.how = how};
    struct board *board = NULL;
    int file = -1;
    status result;

    TRY_GOTO(done, result, fleet_open(&fleet, how->listen, how->token, 1, 1));
    TRY_GOTO(done, result, board_make(&board, 1, &file));
    crew = (struct crew){.size = 0};
    fleet.crew = &crew;
    fleet.board = board;
    memcpy(fleet.stores.directory, how->stores->directory, PATH_BYTES);
    memcpy(fleet.stores.run, how->stores->run, PATH_BYTES);
    fprintf(stderr, "listens   for agents at %s\n", fleet.door.address);
    await_nodes(&fleet, how);
    TRY_GOTO(done, result, name_nodes(&fleet, &task.lines));
    result = work_beside(&task, &fleet);
    fleet_end(&fleet);
done:
    fleet_close(&fleet);
    board_close(board);
    text_free(&task.lines);
    return result;
}
