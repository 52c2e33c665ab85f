/* SPDX-License-Identifier: Apache-2.0 */
/* process_world.c - joining the world of a generation, and leaving it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/threads.h"
#include "comm/process_world.h"
#include "comm/compare_ranks.h"
#include "lockstep.h"

enum { LIMIT_MS_DEFAULT = 600000, FAREWELL_MS = 300, LEAVE_MS = 5000 };

/* ---- who this process is ---- */

bool process_is_rank(void)
{
    return getenv("LOCKSTEP_RANK") != NULL;
}

static status variable(const char *name, uint64_t most, uint64_t *out)
{
    const char *text = getenv(name);
    char *end = NULL;

    if (text == NULL)
        FAIL(ERR_CONFIG, "%s is not set, though LOCKSTEP_RANK is: ranks are "
             "started by lockstep itself", name);
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' ||
        *out > most)
        FAIL(ERR_CONFIG, "%s is \"%.40s\"; expected 0 to %llu", name, text,
             (unsigned long long)most);
    return OK;
}

status process_identity_read(struct process_identity *out)
{
    const char *meet = getenv("LOCKSTEP_MEET");
    const char *token = getenv("LOCKSTEP_TOKEN");
    const char *shared = getenv("LOCKSTEP_SHARED");
    uint64_t rank, size;

    *out = (struct process_identity){0};
    TRY(variable("LOCKSTEP_RANK", PROCESSES_MOST - 1, &rank));
    TRY(variable("LOCKSTEP_RANKS", PROCESSES_MOST, &size));
    TRY(variable("LOCKSTEP_GENERATION", UINT64_MAX, &out->generation));
    TRY(variable("LOCKSTEP_JOB", UINT64_MAX, &out->job));
    if (rank >= size)
        FAIL(ERR_CONFIG, "LOCKSTEP_RANK is %d of %d ranks", (int)rank,
             (int)size);
    if (meet == NULL || token == NULL)
        FAIL(ERR_CONFIG, "LOCKSTEP_MEET and LOCKSTEP_TOKEN are not set, "
             "though LOCKSTEP_RANK is");
    out->rank = (int)rank;
    out->size = (int)size;
    snprintf(out->meet, sizeof out->meet, "%s", meet);
    if (shared != NULL)
        snprintf(out->shared, sizeof out->shared, "%s", shared);
    TRY(token_read(&out->token, token));
    return OK;
}

/* ---- shared memory ---- */

/* A file of another size is not ours: messages then travel without it. */
static status share_memory(struct process_world *world)
{
    const struct process_identity *me = &world->identity;
    const size_t bytes = (size_t)me->size * RING_BYTES;
    struct stat about;
    int descriptor;
    void *mapped;

    if (me->shared[0] == '\0' || me->size == 1) return OK;
    descriptor = open(me->shared, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        FAIL(ERR_IO, "%s: the ranks' shared memory cannot be opened: %s",
             me->shared, strerror(errno));
    if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode) ||
        (uint64_t)about.st_size < bytes) {
        close(descriptor);
        FAIL(ERR_CONFIG, "%s: is no shared memory of %d ranks", me->shared,
             me->size);
    }
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                  0);
    close(descriptor);
    if (mapped == MAP_FAILED)
        FAIL(ERR_MEMORY, "%zu bytes of shared memory: %s", bytes,
             strerror(errno));
    world->shared = mapped;
    world->shared_bytes = bytes;
    world->ring.data = world->shared + (size_t)me->rank * RING_BYTES;
    return OK;
}

/* ---- the world ---- */

static status world_fill(struct process_world *world, int64_t limit_ms)
{
    TRY(memory_take((size_t)world->identity.size, sizeof *world->links,
                    (void **)&world->links));
    for (int i = 0; i < world->identity.size; i++)
        world->links[i] = (struct link){.peer = i, .descriptor = -1};
    TRY(share_memory(world));
    TRY(process_connect(world, limit_ms));
    TRY(process_io_begin(world));
    return OK;
}

status process_world_open(struct process_world **out,
                          const struct process_identity *identity,
                          int64_t limit_ms)
{
    pthread_condattr_t attributes;
    struct process_world *world;
    status result;

    TRY(memory_take(1, sizeof *world, (void **)&world));
    world->identity = *identity;
    pthread_mutex_init(&world->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&world->change, &attributes);
    pthread_condattr_destroy(&attributes);
    comm_rank_init(&world->self);
    *out = world;
    result = world_fill(world, limit_ms);
    if (result == OK) return OK;
    process_world_close(world, 0);
    *out = NULL;
    return status_pass(result, __FILE__, __LINE__);
}

status process_world_group(struct process_world *world, struct group *group)
{
    TRY(group_build_world(group, &process_ops, world, &world->self,
                          world->identity.rank, world->identity.size));
    return OK;
}

/* Says that nothing more comes, and reads on until all others said so: what is
 * closed with bytes unread would break their connections. */
static void leave(struct process_world *world, int64_t wait_ms)
{
    const int64_t end = clock_ns() + wait_ms * 1000000;
    const struct timespec until = {end / 1000000000, end % 1000000000};
    bool stay = true;

    pthread_mutex_lock(&world->lock);
    for (int i = 0; i < world->identity.size; i++)
        process_tell(world, i, (struct frame){.kind = FRAME_LEAVING});
    while (stay && clock_ns() < end) {
        stay = false;
        for (int i = 0; i < world->identity.size; i++) {
            const struct link *link = &world->links[i];

            stay = stay || (link->descriptor >= 0 &&
                            (!link->left || link->out_first != NULL));
        }
        if (stay)
            pthread_cond_timedwait(&world->change, &world->lock, &until);
    }
    pthread_mutex_unlock(&world->lock);
}

void process_world_close(struct process_world *world, int64_t wait_ms)
{
    if (world == NULL) return;
    if (world->runs && wait_ms > 0) leave(world, wait_ms);
    process_io_end(world);
    for (int i = 0; world->links != NULL && i < world->identity.size; i++)
        link_forget(&world->links[i], &world->stock);
    memory_free(world->links);
    stock_free(&world->stock);
    if (world->shared != NULL) munmap(world->shared, world->shared_bytes);
    comm_rank_free(&world->self);
    pthread_cond_destroy(&world->change);
    pthread_mutex_destroy(&world->lock);
    memory_free(world);
}

/* ---- a rank's life ---- */

/* Programs that would not understand each other, or not give the same bits. */
static status check_programs(struct group *group)
{
    char text[80];
    const int length = snprintf(text, sizeof text, "lockstep %s, numerics %d",
                                LOCKSTEP_VERSION, LOCKSTEP_NUMERICS_VERSION);

    return comm_same_text(group, "program", text, (size_t)length);
}

static status live(struct process_world *world, int64_t limit_ms,
                   status (*body)(void *argument, struct group *group),
                   void *argument)
{
    struct group group = {0};
    status result;

    TRY_GOTO(done, result, process_world_group(world, &group));
    group_limit_ms(&group, limit_ms);
    TRY_GOTO(done, result, comm_agree(&group, threads_check_rounding()));
    TRY_GOTO(done, result, check_programs(&group));
    TRY_GOTO(done, result, body(argument, &group));
    TRY_GOTO(done, result, comm_agree(&group, OK));
done:
    if (result != OK && !world->self.agreed && group.size > 0)
        group_abort(&group, status_message());
    group_free(&group);
    return result;
}

status process_ranks_run(int count, int64_t limit_ms,
                         status (*body)(void *argument, struct group *group),
                         void *argument)
{
    struct process_identity identity;
    struct process_world *world;
    status result;

    if (limit_ms <= 0) limit_ms = LIMIT_MS_DEFAULT;
    TRY(process_identity_read(&identity));
    if (count > 0 && count != identity.size)
        FAIL(ERR_CONFIG, "%d ranks were asked for, but the launcher started "
             "%d", count, identity.size);
    TRY(process_world_open(&world, &identity, limit_ms));
    result = live(world, limit_ms, body, argument);
    process_world_close(world, result == OK || world->self.agreed
                                   ? LEAVE_MS : FAREWELL_MS);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
