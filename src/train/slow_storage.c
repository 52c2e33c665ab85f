/* SPDX-License-Identifier: Apache-2.0 */
/* slow_storage.c - work of rank 0 that takes as long as a storage takes. */
#include "train/slow_storage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "checkpoint/mirror.h"
#include "train/signals.h"

enum { LOOKS = 20, LOOK_MS = 10 }; /* between two meetings; of those */

static bool leads(const struct group *world)
{
    return world == NULL || world->rank == 0;
}

static bool works_still(bool (*works)(const void *argument),
                        const void *argument)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};

    for (int i = 0; i < LOOKS && works(argument); i++)
        nanosleep(&pause, NULL);
    return works(argument);
}

status attend(struct group *world, bool (*works)(const void *argument),
              const void *argument)
{
    double word[2]; /* a signal of some rank; whether rank 0 works */
    const struct tensor all = tensor_1d(word, DTYPE_F64, 2);
    const struct comm_call most = {.kind = COMM_ALL_REDUCE, .out = all,
                                   .in = all, .reduction = REDUCE_MAX};

    do {
        word[1] = leads(world) && works_still(works, argument);
        word[0] = signals_asked();
        if (world != NULL) TRY(comm_run_alone(world, most));
        if (word[0] > 0) mirror_stop_soon();
    } while (word[1] > 0);
    return OK;
}

struct task {
    status (*work)(void *argument);
    void *argument;
    status result;
    char why[2048], hint[1024];
    _Atomic bool done;
};

static void *run(void *argument)
{
    struct task *task = argument;

    task->result = task->work(task->argument);
    snprintf(task->why, sizeof task->why, "%s", status_message());
    snprintf(task->hint, sizeof task->hint, "%s", status_hint_text());
    status_clear();
    atomic_store(&task->done, true);
    return NULL;
}

static bool runs(const void *argument)
{
    const struct task *task = argument;

    return !atomic_load(&task->done);
}

status attend_work(struct group *world, status (*work)(void *argument),
                   void *argument)
{
    struct task task = {.work = work, .argument = argument,
                        .done = !leads(world)};
    pthread_t thread;
    status met;
    int error = 0;

    if (leads(world)) {
        error = pthread_create(&thread, NULL, run, &task);
        if (error != 0) atomic_store(&task.done, true);
    }
    met = attend(world, runs, &task);
    if (error != 0)
        return status_fail(ERR_MEMORY, __FILE__, __LINE__, "a thread that "
                           "sends cannot be created: %s", strerror(error));
    if (leads(world)) pthread_join(thread, NULL);
    TRY(met);
    if (task.result != OK)
        status_hint(status_fail(task.result, __FILE__, __LINE__, "%s",
                                task.why), "%s", task.hint);
    return world == NULL ? task.result : comm_agree(world, task.result);
}
