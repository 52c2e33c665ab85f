/* SPDX-License-Identifier: Apache-2.0 */
/* background.c - a checkpoint that is written while training goes on. */
#include "train/background.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/first_touch.h"
#include "base/threads.h"

enum {
    /* A disk that is slow, or away for hours, ends no run: ranks wait for each
     * other's writes for so long. */
    PATIENCE_MS = 7 * 24 * 3600 * 1000,
    NICE = 10 /* products of a step come first */
};

status background_open(struct background *background, struct group *world)
{
    if (world == NULL) return OK;
    TRY(group_build_aside(&background->group, world, "saves"));
    group_limit_ms(&background->group, PATIENCE_MS);
    return OK;
}

status background_use(struct background *background, struct keeper *keeper)
{
    const struct session_parts *parts = &keeper->parts;
    const struct stage *stages = keeper->stages;

    background->keeper = keeper;
    TRY(snapshot_build(&background->snapshot, stages, keeper->stage_count,
                       parts));
    for (int i = 0; i < keeper->stage_count; i++)
        first_touch(stages[i].threads, stages[i].memory[MEMORY_SNAPSHOT].data,
                    stages[i].memory[MEMORY_SNAPSHOT].bytes);
    return OK;
}

void background_leave(struct background *background)
{
    CHECK(!background->runs);
    snapshot_free(&background->snapshot);
    background->keeper = NULL;
}

void background_close(struct background *background)
{
    int64_t step;

    if (background->runs && background_settle(background, &step) != OK)
        status_clear(); /* the run ends by another failure */
    background_leave(background);
    if (background->group.size > 0) group_free(&background->group);
}

status background_copy(struct background *background,
                       const struct counters *counters)
{
    struct keeper_job *job = &background->job;
    const double began = clock_s();

    TRY(keeper_job_init(job, background->keeper, counters));
    if (background->group.size > 0) job->group = &background->group;
    job->parts = background->snapshot.parts;
    job->threads = NULL;
    job->mirrors = true;
    background->copied_bytes += (int64_t)snapshot_take(&background->snapshot);
    background->stall_s += clock_s() - began;
    return OK;
}

void background_drop(struct background *background)
{
    keeper_job_free(&background->job);
}

static void *work(void *argument)
{
    struct background *background = argument;
    const double began = clock_s();

    threads_aside();
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    background->result = keeper_job_run(background->keeper, &background->job);
    background->why[0] = '\0';
    if (background->result != OK)
        snprintf(background->why, sizeof background->why, "%s",
                 status_message());
    status_clear();
    background->seconds = clock_s() - began;
    atomic_store(&background->done, true);
    return NULL;
}

status background_go(struct background *background)
{
    int error;

    atomic_store(&background->done, false);
    error = pthread_create(&background->thread, NULL, work, background);
    if (error == 0) {
        background->runs = true;
        return OK;
    }
    keeper_job_free(&background->job);
    FAIL(ERR_MEMORY, "the thread that writes a checkpoint cannot be created: "
         "%s", strerror(error));
}

bool background_works(const struct background *background)
{
    return background->runs && !atomic_load(&background->done);
}

status background_settle(struct background *background, int64_t *step)
{
    const double began = clock_s();

    *step = -1;
    if (!background->runs) return OK;
    pthread_join(background->thread, NULL);
    background->stall_s += clock_s() - began;
    background->runs = false;
    *step = background->job.counters.step;
    keeper_job_free(&background->job);
    if (background->result != OK)
        FAIL(background->result, "%s", background->why);
    background->saves++;
    return OK;
}
