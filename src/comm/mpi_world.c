/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_world.c - joining the world that an MPI launcher started, and leaving it.
 *
 * MPI_Init waits for all ranks, for ever if one does not come. So a thread of
 * its own begins MPI, and ends it, while the rank waits no longer than its
 * limit. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/plugin.h"
#include "base/threads.h"
#include "comm/compare_ranks.h"
#include "comm/mpi.h"
#include "comm/mpi_wait.h"
#include "lockstep.h"

enum { BEGIN_MS_DEFAULT = 600000, LEAVE_MS = 1000 };

/* ---- the library ---- */

static status plugin_open(struct world *world, const char *name, int scope)
{
    char path[PATH_BYTES], file[64];

    snprintf(file, sizeof file, "comm_%s.so", name);
    TRY(plugin_path(file, path, sizeof path));
    world->library = dlopen(path, RTLD_NOW | scope);
    if (world->library == NULL)
        FAIL(ERR_DEVICE, "the plug-in for %s cannot be opened: %s", name,
             dlerror());
    world->mpi = dlsym(world->library, "lockstep_mpi_plugin");
    if (world->mpi == NULL || world->mpi->version != MPI_PLUGIN_VERSION)
        FAIL(ERR_DEVICE, "%s belongs to another version of this program",
             path);
    return OK;
}

status mpi_check(const char *name)
{
    struct world world = {0};
    const status result = plugin_open(&world, name, RTLD_LOCAL);

    if (world.library != NULL) dlclose(world.library);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

/* ---- the thread that begins and ends MPI ---- */

enum stage { STAGE_BEGINS, STAGE_BEGUN, STAGE_ENDS, STAGE_ENDED };

/* Static: a thread that waits for a missing rank outlives everything. */
static struct keeper {
    struct world *world;
    pthread_mutex_t lock;
    pthread_cond_t change; /* by CLOCK_MONOTONIC: keeper_begin */
    enum stage stage;
    int error, serial_ok;
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keeper_move(enum stage stage)
{
    keeper.stage = stage;
    pthread_cond_broadcast(&keeper.change);
}

static void *keeper_main(void *argument)
{
    struct world *world = keeper.world;
    const int error = world->mpi->begin(&world->rank, &world->size,
                                        &world->tag_most, &keeper.serial_ok);

    (void)argument;
    pthread_mutex_lock(&keeper.lock);
    keeper.error = error;
    keeper_move(STAGE_BEGUN);
    while (keeper.stage != STAGE_ENDS)
        pthread_cond_wait(&keeper.change, &keeper.lock);
    pthread_mutex_unlock(&keeper.lock);
    keeper.error = world->mpi->end();
    pthread_mutex_lock(&keeper.lock);
    keeper_move(STAGE_ENDED);
    pthread_mutex_unlock(&keeper.lock);
    return NULL;
}

static status keeper_wait(enum stage stage, int64_t limit_ms)
{
    const int64_t end = clock_ns() + limit_ms * 1000000;
    const struct timespec until = {.tv_sec = end / 1000000000,
                                   .tv_nsec = end % 1000000000};
    int late = 0;

    pthread_mutex_lock(&keeper.lock);
    while (keeper.stage < stage && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&keeper.change, &keeper.lock, &until);
    late = keeper.stage < stage;
    pthread_mutex_unlock(&keeper.lock);
    if (late)
        FAIL(ERR_PEER, "MPI has not %s within %.1f s: some ranks are missing; "
             "the output of the launcher may name them",
             stage == STAGE_BEGUN ? "begun" : "ended", 1e-3 * (double)limit_ms);
    return OK;
}

static status keeper_begin(struct world *world, int64_t limit_ms)
{
    pthread_condattr_t attributes;
    pthread_t thread;
    int error;

    /* A clock that somebody sets must neither end a wait nor prolong it. */
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&keeper.change, &attributes);
    pthread_condattr_destroy(&attributes);
    keeper.world = world;
    error = pthread_create(&thread, NULL, keeper_main, NULL);
    if (error != 0)
        FAIL(ERR_MEMORY, "the thread of MPI cannot be created (error %d)",
             error);
    pthread_detach(thread);
    TRY(keeper_wait(STAGE_BEGUN, limit_ms));
    TRY(world_check(world, "begin", keeper.error));
    return OK;
}

static status keeper_end(struct world *world, int64_t limit_ms)
{
    pthread_mutex_lock(&keeper.lock);
    keeper_move(STAGE_ENDS);
    pthread_mutex_unlock(&keeper.lock);
    TRY(keeper_wait(STAGE_ENDED, limit_ms));
    TRY(world_check(world, "end", keeper.error));
    return OK;
}

/* ---- the world ---- */

static struct world world; /* outlives messages that nobody took */

/* A launcher ends the others when the first rank ends with an error. Until then
 * every rank is to have said its sentence, so this comes after main; and MPI is
 * ended, so that the exit code is ours and not that of a kill. */
static void leave_together(void)
{
    if (world_leave(&world) && keeper_end(&world, LEAVE_MS) != OK)
        status_clear();
}

static status check_world(const struct mpi_launch *launch)
{
    if (!keeper.serial_ok)
        FAIL(ERR_DEVICE, "this MPI allows calls from one thread only");
    if (launch->size > 0 && launch->size != world.size)
        FAIL(ERR_CONFIG, "the launcher started %d ranks, but %s sees %d: it is "
             "another MPI than the launcher's; LOCKSTEP_MPI or srun --mpi "
             "choose", launch->size, launch->name, world.size);
    if (launch->rank != world.rank)
        FAIL(ERR_CONFIG, "the launcher says in %s that this is rank %d, but %s "
             "that it is rank %d", launch->variable, launch->rank,
             launch->name, world.rank);
    if (launch->count > 0 && launch->count != world.size)
        FAIL(ERR_CONFIG, "%d ranks were asked for, but the launcher started "
             "%d", launch->count, world.size);
    TRY(threads_check_rounding());
    return OK;
}

/* Programs that would not understand each other, or not give the same bits. */
static status check_programs(struct group *group)
{
    char text[80];
    const int length = snprintf(
        text, sizeof text, "lockstep %s, numerics %d, messages %d",
        LOCKSTEP_VERSION, LOCKSTEP_NUMERICS_VERSION, MPI_PLUGIN_VERSION);

    return comm_same_text(group, "program", text, (size_t)length);
}

static status world_live(const struct mpi_launch *launch,
                         status (*body)(void *argument, struct group *group),
                         void *argument)
{
    struct group group = {0};
    status result;

    comm_rank_init(&world.self);
    TRY_GOTO(done, result, group_build_world(&group, &mpi_ops, &world,
                                             &world.self, world.rank,
                                             world.size));
    if (launch->limit_ms > 0) group_limit_ms(&group, launch->limit_ms);
    TRY_GOTO(done, result, comm_agree(&group, check_world(launch)));
    TRY_GOTO(done, result, check_programs(&group));
    TRY_GOTO(done, result, body(argument, &group));
    TRY_GOTO(done, result, comm_agree(&group, OK));
done:
    group_free(&group);
    comm_rank_free(&world.self);
    return result;
}

status mpi_ranks_run(const struct mpi_launch *launch,
                     status (*body)(void *argument, struct group *group),
                     void *argument)
{
    const int64_t limit_ms = launch->limit_ms > 0 ? launch->limit_ms
                                                  : BEGIN_MS_DEFAULT;
    status result;

    /* The library's own plug-ins look for its symbols among the global ones. */
    TRY(plugin_open(&world, launch->name, RTLD_GLOBAL));
    pthread_mutex_init(&world.lock, NULL);
    TRY(keeper_begin(&world, limit_ms));
    result = world_live(launch, body, argument);
    if (result == OK) {
        TRY(keeper_end(&world, limit_ms));
        return OK;
    }
    if (!world.self.agreed)
        world_abort(&world, world.rank, status_message());
    atexit(leave_together);
    return status_pass(result, __FILE__, __LINE__);
}
