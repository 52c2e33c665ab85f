/* SPDX-License-Identifier: Apache-2.0 */
/* test_process.c - mirrors src/comm/process*.c, link.c, message_memory.c,
 * frame.c, meeting.c and crew.c: ranks that are processes, one of which dies;
 * the others meet again with a new one in its place and go on.
 * tests/cases/mpi.sh runs the collectives of test_launch.c on such ranks. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "comm/crew.h"
#include "comm/process_world.h"
#include "tests/test.h"

enum { RANKS = 3, ELEMENTS = 300000, LIMIT_MS = 20000 };

/* Ranks that have noticed, and the crew that has begun the next generation: who
 * closes before breaks connections of others. All processes share it. */
static _Atomic int *ready;
enum { READY = RANKS }; /* RANKS - 1 ranks and the crew */

/* Sums that come out the same only if every rank takes part. */
static status add_up(struct group *world)
{
    static float in[ELEMENTS], out[ELEMENTS], scratch[2 * ELEMENTS];
    const struct comm_call call = {
        .kind = COMM_ALL_REDUCE, .scratch = scratch,
        .scratch_bytes = sizeof scratch,
        .out = tensor_1d(out, DTYPE_F32, ELEMENTS),
        .in = tensor_1d(in, DTYPE_F32, ELEMENTS)};

    for (int i = 0; i < ELEMENTS; i++)
        in[i] = (float)((world->rank + 1) * (i % 100));
    TRY(comm_run(world, &call));
    for (int i = 0; i < ELEMENTS; i++)
        if (out[i] != (float)(6 * (i % 100)))
            FAIL(ERR_VERIFY, "element %d is %g", i, (double)out[i]);
    return OK;
}

static int64_t ms_since(int64_t before)
{
    return (clock_ns() - before) / 1000000;
}

/* Rank 1 of the first generation dies when it has the first sum. Others may
 * still be in theirs when one that is ahead gives up the second. */
static status first_life(struct process_world *world, struct group *group)
{
    int64_t before;
    status result;

    result = add_up(group);
    if (group->rank == 1 && result == OK) raise(SIGKILL);
    before = clock_ns();
    if (result == OK) result = add_up(group);
    if (result != ERR_PEER)
        FAIL(ERR_VERIFY, "rank %d did not notice", group->rank);
    if (ms_since(before) > LIMIT_MS / 2) /* by the end, not by the limit */
        FAIL(ERR_VERIFY, "rank %d noticed after %d ms", group->rank,
             (int)ms_since(before));
    if (strstr(status_message(), "rank 1") == NULL)
        FAIL(ERR_VERIFY, "nobody says which rank: %s", status_message());
    status_clear();
    (void)world;
    return OK;
}

static status rank_life(void)
{
    struct process_identity identity;
    struct process_world *world;
    struct group group;

    TRY(process_identity_read(&identity));
    TRY(process_world_open(&world, &identity, LIMIT_MS));
    TRY(process_world_group(world, &group));
    group_limit_ms(&group, LIMIT_MS);
    if (identity.generation == 1) {
        TRY(first_life(world, &group));
        identity.generation = 2;
        ++*ready;
        for (int tries = 0; tries < LIMIT_MS && *ready < READY; tries++)
            usleep(1000);
        group_free(&group);
        process_world_close(world, 0);
        TRY(process_world_open(&world, &identity, LIMIT_MS));
        TRY(process_world_group(world, &group));
        group_limit_ms(&group, LIMIT_MS);
    }
    TRY(add_up(&group));
    TRY(comm_agree(&group, OK));
    group_free(&group);
    process_world_close(world, 2000);
    return OK;
}

static void rank_main(void)
{
    const status result = rank_life();

    if (result != OK) fprintf(stderr, "%s\n", status_message());
    fflush(NULL);
    _exit(result == OK && arena_bytes_out() == 0 ? 0 : 1);
}

static void start(struct crew *crew, int rank)
{
    bool child;

    IS_OK(crew_start(crew, rank, &child));
    if (child) rank_main();
}

TEST(ranks_that_are_left_go_on_with_a_new_one)
{
    struct crew crew;
    int changed;
    bool replaced = false;
    char story[CREW_STORY_BYTES];

    ready = mmap(NULL, sizeof *ready, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ready != MAP_FAILED);
    IS_OK(crew_open(&crew, RANKS, "127.0.0.1:0", NULL));
    IS_OK(crew_begin(&crew, 1));
    for (int i = 0; i < RANKS; i++) start(&crew, i);
    while (crew_living(&crew) > 0) {
        IS_OK(crew_wait(&crew, NULL, 0, 1000, &changed));
        if (changed < 0) continue;
        if (changed == 1 && !replaced) {
            replaced = true;
            crew_story(&crew.members[1], story);
            CHECK(strstr(story, "signal 9") != NULL);
            crew.generation = 2;
            IS_OK(meeting_begin(&crew.meeting, RANKS, 2));
            ++*ready;
            start(&crew, 1);
            continue;
        }
        EQUAL_INT(crew.members[changed].ended, 0);
    }
    CHECK(replaced);
    crew_close(&crew);
    munmap(ready, sizeof *ready);
}

TEST(a_fence_leaves_nobody)
{
    struct crew crew;
    bool child;
    pid_t processes[RANKS];

    IS_OK(crew_open(&crew, RANKS, "127.0.0.1:0", NULL));
    IS_OK(crew_begin(&crew, 1));
    for (int i = 0; i < RANKS; i++) {
        IS_OK(crew_start(&crew, i, &child));
        if (child)
            for (;;) pause();
        processes[i] = crew.members[i].process;
        CHECK(crew_began(processes[i]) != 0);
    }
    kill(processes[2], SIGSTOP);
    EQUAL_INT(crew_living(&crew), RANKS);
    crew_fence(&crew);
    EQUAL_INT(crew_living(&crew), 0);
    for (int i = 0; i < RANKS; i++) EQUAL_INT(kill(processes[i], 0), -1);
    crew_close(&crew);
}

/* A meeting sends away who does not belong to it, with a sentence. */
static void sent_away(struct crew *crew, struct process_identity identity,
                      const char *words)
{
    struct process_world *world;
    int changed;
    pid_t guest;
    int ended;

    fflush(NULL);
    guest = fork();
    if (guest == 0) {
        const status result = process_world_open(&world, &identity, 3000);

        _exit(result == ERR_PEER && strstr(status_message(), words) != NULL
                  ? 0 : 1);
    }
    while (waitpid(guest, &ended, WNOHANG) == 0)
        IS_OK(crew_wait(crew, NULL, 0, 20, &changed));
    EQUAL_INT(ended, 0);
}

TEST(strangers_are_sent_away_from_a_meeting)
{
    struct process_identity identity = {.rank = 0, .size = RANKS,
                                        .generation = 7};
    struct crew crew;

    IS_OK(crew_open(&crew, RANKS, "127.0.0.1:0", NULL));
    IS_OK(crew_begin(&crew, 7));
    identity.token = crew.token;
    identity.job = crew.job;
    snprintf(identity.meet, sizeof identity.meet, "%s",
             crew.meeting.door.address);
    identity.generation = 6;
    sent_away(&crew, identity, "generation 6 is over");
    identity.generation = 7;
    identity.size = 4;
    sent_away(&crew, identity, "but here are 3 ranks");
    identity.size = RANKS;
    identity.token.key[5] ^= 1;
    sent_away(&crew, identity, "another token");
    crew_close(&crew);
}

/* Pieces of the ring never overlap, whatever the order of giving back. */
TEST(the_ring_never_lends_twice)
{
    static struct ring ring;
    static char data[RING_BYTES];
    int64_t first[64], bytes[64];
    uint64_t id[64], next = 1, x = 12345;
    int held = 0, lent = 0;

    ring = (struct ring){.data = data};
    for (int round = 0; round < 200000; round++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (held < 64 && (x >> 33) % 2 == 0) {
            const int64_t want = (int64_t)((x >> 40) % 700000) + 1;
            const int64_t at = ring_take(&ring, next, want);

            if (at < 0) continue;
            CHECK(at >= 0 && at + want <= RING_BYTES);
            for (int i = 0; i < held; i++)
                CHECK(at + want <= first[i] || first[i] + bytes[i] <= at);
            first[held] = at;
            bytes[held] = want;
            id[held++] = next++;
            lent++;
        } else if (held > 0) {
            const int gone = (int)((x >> 45) % (unsigned)held);

            ring_give_back(&ring, id[gone]);
            held--;
            first[gone] = first[held];
            bytes[gone] = bytes[held];
            id[gone] = id[held];
        }
    }
    CHECK(lent > 10000);
}

TEST(frames_are_checked)
{
    struct frame f = {.kind = FRAME_SMALL, .bytes = 12, .generation = 3};

    frame_seal(&f);
    CHECK(frame_fault(&f, 3) == NULL);
    EQUAL_TEXT(frame_fault(&f, 4), "a frame of another generation");
    for (size_t i = 0; i < sizeof f; i++) {
        struct frame damaged = f;

        ((unsigned char *)&damaged)[i] ^= 4;
        CHECK(frame_fault(&damaged, 3) != NULL);
    }
    f.bytes = SMALL_BYTES + 1;
    frame_seal(&f);
    CHECK(frame_fault(&f, 3) != NULL);
    f.bytes = -1;
    frame_seal(&f);
    CHECK(frame_fault(&f, 3) != NULL);
    f.bytes = 12;
    f.kind = FRAME_LEAVING + 1;
    frame_seal(&f);
    CHECK(frame_fault(&f, 3) != NULL);
}

TEST_MAIN(ranks_that_are_left_go_on_with_a_new_one, a_fence_leaves_nobody,
          strangers_are_sent_away_from_a_meeting,
          the_ring_never_lends_twice, frames_are_checked)
