/* SPDX-License-Identifier: Apache-2.0 */
/* test_simulator.c - the supervisor under a virtual clock: 10,000 runs whose
 * ranks, and supervisors, are hurt at any instant. A seed repeats a run:
 *
 *     SEED=4711 build/tests/unit/control/test_simulator
 *
 * SEEDS=N: how many. Invariants, checked at every event:
 *   one     no rank of a generation starts while one of another lives
 *   leader  at most one supervisor acts
 *   whole   what is gone back to was whole on every rank
 *   newest  and no step whose copies are whole everywhere is redone twice
 *   once    each step is in the run's history once, in order
 *   falsely only a rank that is stopped hangs, not because all stand still
 *   soon    one that is stopped within an instruction is noticed by the
 *           deadline of that instruction, however long steps are
 *   ends    the run ends, in bounded time, with all of its steps */
#include "tests/unit/control/virtual_cluster.h"
#include "tests/unit/control/virtual_journal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/test.h"
#include "tests/unit/control/seeds.h"
#include "tests/unit/control/virtual_signals.h"

struct cluster cluster;
static bool virtual;

static uint64_t draw_bits(void)
{
    uint64_t x = cluster.random += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int64_t draw(int64_t below)
{
    return (int64_t)(draw_bits() % (uint64_t)below);
}

static void must(bool holds, const char *what)
{
    if (!holds && cluster.broken == NULL) cluster.broken = what;
}

/* ---- the system that the supervisor sees ---- */

int clock_gettime(clockid_t which, struct timespec *t)
{
    if (!virtual) return (int)syscall(SYS_clock_gettime, which, t);
    t->tv_sec = cluster.now_ns / 1000000000;
    t->tv_nsec = cluster.now_ns % 1000000000;
    return 0;
}

static void advance(int64_t ns);

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    for (nfds_t i = 0; i < count; i++) fds[i].revents = 0;
    if (virtual) advance((int64_t)timeout_ms * 1000000);
    return 0;
}

/* ---- processes ---- */

static struct supervisor *supervisor_of(const struct crew *crew)
{
    return (struct supervisor *)((char *)(uintptr_t)crew -
                                 offsetof(struct supervisor, crew));
}

static struct board_page *page_of(int rank)
{
    return &cluster.board->pages[rank];
}

static bool alive(int rank)
{
    return cluster.rank[rank].phase != V_DEAD;
}

status crew_open(struct crew *crew, int size, const char *address,
                 const struct token *token)
{
    void *members;

    (void)address, (void)token;
    *crew = (struct crew){.size = size};
    TRY(memory_take((size_t)size, sizeof *crew->members, &members));
    crew->members = members;
    return OK;
}

void crew_close(struct crew *crew)
{
    memory_free(crew->members);
    crew->members = NULL;
}

status crew_begin(struct crew *crew, uint64_t generation)
{
    crew->generation = generation;
    if (cluster.leader == NULL) {
        cluster.leader = supervisor_of(crew);
        cluster.leaders++;
    }
    must(cluster.leader == supervisor_of(crew), "leader");
    cluster.board = cluster.leader->board;
    cluster.board_file = cluster.leader->board_file;
    cluster.opened = false;
    cluster.generations++;
    return OK;
}

status crew_start(struct crew *crew, int rank, bool *child)
{
    struct virtual_rank *r = &cluster.rank[rank];

    *child = false;
    must(cluster.leader == supervisor_of(crew), "leader");
    for (int i = 0; i < cluster.ranks; i++)
        must(!alive(i) || cluster.rank[i].generation == crew->generation,
             "one");
    r->phase = V_OPENS;
    r->stopped = r->told = r->itself = r->kept = false;
    r->stands_ns = 0;
    r->pause_ns = 0;
    r->generation = crew->generation;
    r->until_ns = cluster.now_ns + 20000000 + draw(300000000);
    crew->members[rank].process = 1000 + rank;
    return OK;
}

status crew_adopt(struct crew *crew, int rank, pid_t process, uint64_t began)
{
    (void)crew, (void)rank, (void)process, (void)began;
    return OK;
}

static void end_rank(int rank, bool itself)
{
    cluster.rank[rank].phase = V_DEAD;
    cluster.rank[rank].itself = itself;
}

#include "tests/unit/control/virtual_crew.h"

/* ---- the ranks ---- */

#include "tests/unit/control/virtual_stand.h"

static bool all_in(enum virtual_phase phase)
{
    for (int i = 0; i < cluster.ranks; i++)
        if (cluster.rank[i].phase != phase) return false;
    return true;
}

static void beat(int rank)
{
    atomic_fetch_add(&page_of(rank)->flight.beats, 1);
}

static bool has_copy(int rank, int64_t step)
{
    return cluster.rank[rank].copies[0] == step ||
           cluster.rank[rank].copies[1] == step;
}

/* The newest step that all ranks have whole in memory; -1. */
static int64_t newest_copy(void)
{
    for (int64_t step = cluster.steps; step >= 0; step--) {
        int have = 0;

        for (int i = 0; i < cluster.ranks; i++) have += has_copy(i, step);
        if (have == cluster.ranks) return step;
    }
    return -1;
}

static void work(int rank)
{
    struct virtual_rank *r = &cluster.rank[rank];

    r->phase = V_WORKS;
    r->until_ns = cluster.now_ns + 20000000 + draw(60000000);
    atomic_store(&page_of(rank)->phase, BOARD_STEPS);
    begin_instruction(rank, WORK_MOST_NS);
}

static void end_all(void)
{
    for (int i = 0; i < cluster.ranks; i++) {
        atomic_store(&page_of(i)->result, OK);
        atomic_store(&page_of(i)->phase, BOARD_ENDED);
        end_rank(i, false);
    }
}

/* All have opened: they agree where to go on. */
static void go_on(void)
{
    const int64_t copy = newest_copy();
    const bool memory = copy > cluster.checkpoint;

    cluster.opened = true;
    cluster.step = memory ? copy : cluster.checkpoint;
    must(cluster.step <= cluster.consumed_count, "whole");
    must(cluster.consumed_count - cluster.step <= 1 || cluster.copies_hurt,
         "newest");
    cluster.copies_hurt = false;
    if (cluster.generations > 1) cluster.dies_at = cluster.step + 2;
    cluster.consumed_count = cluster.step; /* lines behind it are cut */
    if (cluster.step == cluster.steps) {
        end_all();
        return;
    }
    for (int i = 0; i < cluster.ranks; i++) {
        struct board_page *page = page_of(i);

        atomic_store(&page->from_step, cluster.step);
        atomic_store(&page->step, cluster.step);
        atomic_store(&page->source, memory ? BOARD_MEMORY
                                           : BOARD_CHECKPOINT);
        for (int j = 0; j < 2; j++) /* memory_copy_restore, forget */
            if (!memory || cluster.rank[i].copies[j] > cluster.step)
                cluster.rank[i].copies[j] = -1;
        work(i);
    }
}

/* The decision of a step: all ranks have their gradients. From here on a rank
 * that dies has a torn state; the copy of the step before is whole. */
static void decide(void)
{
    const int64_t step = cluster.step + 1;

    must(cluster.consumed_count + 1 == step, "once");
    cluster.consumed[step] = cluster.rank[0].generation;
    cluster.consumed_count = step;
    for (int i = 0; i < cluster.ranks; i++) {
        struct virtual_rank *r = &cluster.rank[i];

        must(r->generation == cluster.rank[0].generation, "one");
        r->slot = r->copies[1] < r->copies[0]; /* the older one */
        r->copies[r->slot] = -1;
        r->phase = V_COPIES;
        r->until_ns = cluster.now_ns + 1000000 + draw(9000000) +
                      (cluster.long_copies ? 500000000 : 0);
        begin_instruction(i, 0);
    }
}

static void end_copy(int rank)
{
    struct virtual_rank *r = &cluster.rank[rank];
    const int64_t step = cluster.step + 1;

    r->copies[r->slot] = step;
    r->phase = V_WAITS;
    atomic_store(&page_of(rank)->step, step);
    atomic_store(&page_of(rank)->step_ns, cluster.now_ns);
}

static void hurt(enum fault_kind kind, int rank);

/* The run went far back, and no generation gets far. */
static void live_shortly(void)
{
    if (cluster.short_lives == 0 || cluster.step < cluster.dies_at) return;
    const bool loses = cluster.generations == 1 ||
                       (cluster.flaps && cluster.generations % 2 == 1);

    for (int i = 0; i < cluster.ranks && loses; i++) hurt(FAULT_COPIES, i);
    hurt(FAULT_KILL, 0);
    cluster.short_lives--;
}

/* All copies are whole: the step is done. */
static void end_step(void)
{
    cluster.step++;
    if (cluster.step % cluster.every == 0) cluster.checkpoint = cluster.step;
    if (cluster.step == cluster.steps) {
        end_all();
        return;
    }
    for (int i = 0; i < cluster.ranks; i++) work(i);
    live_shortly();
}

/* A rank's phase is over; ranks that wait for others wait on. */
static void act(int rank)
{
    struct virtual_rank *r = &cluster.rank[rank];

    if (r->phase == V_OPENS && !cluster.opened) {
        if (cluster.crashes > 0 && rank == 0) {
            cluster.crashes--;
            end_rank(rank, true);
            return;
        }
        atomic_store(&page_of(rank)->phase, BOARD_OPENS);
    }
    beat(rank);
    if (r->phase == V_COPIES) end_copy(rank);
    else {
        r->until_ns = INT64_MAX;
        atomic_store(&page_of(rank)->flight.waits, 1);
    }
}

static bool waits_for_all(enum virtual_phase phase)
{
    for (int i = 0; i < cluster.ranks; i++)
        if (cluster.rank[i].phase != phase || cluster.rank[i].stopped ||
            (phase != V_WAITS && cluster.rank[i].until_ns != INT64_MAX))
            return false;
    return true;
}

static void meet(void)
{
    if (!cluster.opened && waits_for_all(V_OPENS)) go_on();
    else if (waits_for_all(V_WORKS)) decide();
    else if (all_in(V_WAITS) && waits_for_all(V_WAITS)) end_step();
}

/* ---- faults ---- */

static void second_supervisor(void)
{
    const struct supervision how = {.ranks = cluster.ranks,
                                    .run = cluster.begun, .limit_ms = 3000};
    struct cluster before = cluster;
    bool rank = false, again = true;
    const status result = supervise(&how, &rank, &again);

    must(result == ERR_CONFIG, "leader");
    must(memcmp(before.rank, cluster.rank, sizeof before.rank) == 0, "leader");
    status_clear();
}

static void hurt(enum fault_kind kind, int rank)
{
    struct virtual_rank *r = &cluster.rank[rank];

    if (kind == FAULT_KILL_ALL)
        for (int i = 0; i < cluster.ranks; i++) hurt(FAULT_KILL, i);
    if (kind == FAULT_SUPERVISOR && cluster.leader != NULL)
        longjmp(cluster.death, 1);
    if (kind == FAULT_FREEZE) stand_still(draw(20) * 1000000000);
    if (kind == FAULT_SECOND && cluster.leader != NULL) second_supervisor();
    if (kind == FAULT_COPIES) {
        r->copies[0] = r->copies[1] = -1;
        cluster.copies_hurt = true;
    }
    if (kind == FAULT_CRASH) cluster.crashes = 1 + (int)draw(3);
    if (!alive(rank)) return;
    if (kind == FAULT_KILL || kind == FAULT_CRASH)
        end_rank(rank, kind == FAULT_CRASH);
    if (kind == FAULT_STOP || kind == FAULT_PAUSE) r->stopped = true;
    if (kind == FAULT_STOP) r->pause_ns = 0;
    if (kind == FAULT_STOP) stand(r);
    if (kind == FAULT_KEPT) {
        r->stopped = r->kept = true;
        r->pause_ns = cluster.now_ns + cluster.kept_ns;
    }
    if (kind == FAULT_PAUSE)
        r->pause_ns = cluster.now_ns + 10000000 + draw(1000000000);
    if (kind == FAULT_CONNECTION && r->phase != V_OPENS) {
        atomic_store(&page_of(rank)->result, ERR_PEER);
        atomic_store(&page_of(rank)->phase, BOARD_ENDED);
        r->phase = V_ENDS; /* waits to be fenced */
        r->until_ns = INT64_MAX;
    }
}

/* ---- time ---- */

static int64_t next_event(int64_t end)
{
    for (int i = 0; i < cluster.ranks; i++) {
        const struct virtual_rank *r = &cluster.rank[i];

        if (!alive(i)) continue;
        if (r->stopped && r->pause_ns > 0 && r->pause_ns < end)
            end = r->pause_ns;
        if (!r->stopped && r->until_ns < end) end = r->until_ns;
    }
    if (cluster.fault_next < cluster.fault_count &&
        cluster.faults[cluster.fault_next].when_ns < end)
        end = cluster.faults[cluster.fault_next].when_ns;
    return end;
}

static void happen(void)
{
    while (cluster.fault_next < cluster.fault_count &&
           cluster.faults[cluster.fault_next].when_ns <= cluster.now_ns) {
        const int i = cluster.fault_next++;

        hurt(cluster.faults[i].kind, cluster.faults[i].rank);
    }
    for (int i = 0; i < cluster.ranks; i++) {
        struct virtual_rank *r = &cluster.rank[i];

        if (alive(i) && r->stopped && r->pause_ns > 0 &&
            r->pause_ns <= cluster.now_ns) {
            r->stopped = r->kept = false;
            r->pause_ns = r->stands_ns = 0;
        }
        if (alive(i) && !r->stopped && r->until_ns <= cluster.now_ns) act(i);
    }
    meet();
}

static void advance(int64_t ns)
{
    const int64_t end = cluster.now_ns + ns;

    for (;;) {
        const int64_t when = next_event(end);

        if (when > cluster.now_ns) cluster.now_ns = when;
        happen();
        if (when >= end || cluster.now_ns >= end) return;
    }
}

static int find_ended(struct crew *crew)
{
    for (int i = 0; i < crew->size; i++)
        if (!alive(i) && !cluster.rank[i].told &&
            crew->members[i].process != 0) {
            cluster.rank[i].told = true;
            return i;
        }
    return -1;
}

/* Looks every millisecond: the death of a process wakes a supervisor. */
status crew_wait(struct crew *crew, struct pollfd *polls, int count,
                 int timeout_ms, int *changed)
{
    for (int i = 0; i < count; i++) polls[i].revents = 0;
    *changed = find_ended(crew);
    for (int i = 0; i < timeout_ms && *changed < 0; i += 5) {
        advance(5000000);
        *changed = find_ended(crew);
    }
    must(cluster.now_ns < (int64_t)1000 * 1000000000, "ends");
    must(stands_soon(), "soon");
    if (cluster.broken != NULL) longjmp(cluster.death, 2);
    return OK;
}

/* ---- supervisors ---- */

/* The ranks of the last one, as its journal and its board would say. Their
 * memory is gone with the last of them. */
status supervisor_adopt(struct supervisor *s, bool *watches)
{
    int living = 0;

    cluster.leader = s;
    cluster.leaders++;
    board_close(s->board);
    close(s->board_file);
    s->board = cluster.board;
    s->board_file = cluster.board_file;
    s->crew.generation = cluster.rank[0].generation;
    for (int i = 0; i < cluster.ranks; i++) {
        s->crew.members[i].process = 1000 + i;
        if (cluster.rank[i].stands_ns > 0) /* nobody saw it before */
            cluster.rank[i].stands_ns = cluster.now_ns;
        living += alive(i);
    }
    for (int i = 0; i < cluster.ranks && living == 0; i++) {
        cluster.rank[i].copies[0] = cluster.rank[i].copies[1] = -1;
        cluster.copies_hurt = true;
    }
    *watches = living == cluster.ranks;
    return OK;
}

/* The system takes back everything that a killed supervisor had, but for the
 * memory that its ranks have, too. */
static void bury(const struct supervisor *s, bool ranks_too)
{
    struct supervisor copy;

    memcpy(&copy, s, sizeof copy);
    cluster.leader = NULL;
    cluster.leaders = 0;
    memory_free(copy.sights);
    memory_free(copy.crew.members);
    close(copy.state_file);
    close(copy.signals);
    if (!ranks_too) return;
    board_close(copy.board);
    close(copy.board_file);
}

void cluster_draw(uint64_t seed)
{
    cluster = (struct cluster){.random = seed, .now_ns = 1000000000};
    cluster.ranks = 1 + (int)draw(CLUSTER_RANKS_MOST);
    cluster.steps = 5 + draw(CLUSTER_STEPS_MOST - 5);
    cluster.every = 1 + draw(12);
    cluster.long_copies = draw(4) == 0;
    cluster.fault_count = (int)draw(CLUSTER_FAULTS_MOST + 1);
    for (int i = 0; i < CLUSTER_RANKS_MOST; i++)
        cluster.rank[i].copies[0] = cluster.rank[i].copies[1] = -1;
    for (int i = 0, at = 0; i < cluster.fault_count; i++) {
        /* Some follow each other at once, also in a recovery. */
        at += 1 + (int)draw(draw(3) == 0 ? 50 : 1500);
        cluster.faults[i].when_ns = (int64_t)(1000 + at) * 1000000 + draw(999);
        cluster.faults[i].kind = (enum fault_kind)draw(FAULT_KINDS);
        cluster.faults[i].rank = (int)draw(cluster.ranks);
    }
}

/* A supervisor was killed, or found what must not be. */
static bool goes_on(void)
{
    bury(cluster.leader, cluster.broken != NULL);
    if (cluster.broken != NULL) return false;
    advance(draw(3000) * 1000000); /* ranks go on alone */
    return true;
}

static status one_supervisor(bool first, const char *fresh)
{
    static struct supervision how; /* of setjmp's frame nothing is kept */
    bool rank = false, again = !first;

    how = (struct supervision){.ranks = cluster.ranks, .limit_ms = 3000,
                               .run = first ? fresh : cluster.begun};
    if (setjmp(cluster.death) != 0) return ERR_STOPPED;
    const status result = supervise(&how, &rank, &again);

    cluster.leader = NULL;
    cluster.leaders = 0;
    return result;
}

/* People resume a run that ended because it was hurt too often. */
status cluster_run(const char *fresh, const char *begun)
{
    status result = ERR_PEER;

    cluster.begun = begun;
    for (int i = 0; i < 40 && result == ERR_PEER; i++) {
        result = one_supervisor(i == 0, fresh);
        status_clear();
        if (result == ERR_STOPPED && !goes_on()) return ERR_VERIFY;
        if (result == ERR_STOPPED) result = ERR_PEER;
        else cluster.board = NULL;
        if (result == ERR_PEER && cluster.board == NULL)
            must(board_make(&cluster.board, cluster.ranks,
                            &cluster.board_file) == OK, "memory");
    }
    return result;
}

/* ---- the tests ---- */

static char fresh[64], begun[64];
static int kept_stderr;

static void begin_virtual(void)
{
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char path[PATH_BYTES];

    snprintf(fresh, sizeof fresh, "/tmp/lockstep-simulator-XXXXXX");
    snprintf(begun, sizeof begun, "/tmp/lockstep-simulator-XXXXXX");
    CHECK(mkdtemp(fresh) != NULL && mkdtemp(begun) != NULL && null >= 0);
    IS_OK(path_join(path, sizeof path, begun, "config.yaml"));
    IS_OK(file_write_atomic(path, "version: 1\n", 11));
    fflush(stderr);
    kept_stderr = dup(2); /* a supervisor tells each incident */
    dup2(null, 2);
    close(null);
    virtual = true;
}

static void end_virtual(void)
{
    virtual = false;
    dup2(kept_stderr, 2);
    close(kept_stderr);
    IS_OK(directory_remove(fresh));
    IS_OK(directory_remove(begun));
}

/* Whether the run of this seed ends with every step once. */
static bool seed_holds(uint64_t seed)
{
    status result;

    cluster_draw(seed);
    result = cluster_run(fresh, begun);
    must(result == OK, "ends");
    must(cluster.consumed_count == cluster.steps, "once");
    for (int64_t step = 1; step <= cluster.steps; step++)
        must(cluster.consumed[step] > 0, "once");
    if (cluster.broken == NULL) return true;
    printf("SEED=%llu: %s; %d ranks, %lld of %lld steps, %d generations, %d "
           "incidents, status %s\n", (unsigned long long)seed, cluster.broken,
           cluster.ranks, (long long)cluster.consumed_count,
           (long long)cluster.steps, cluster.generations, cluster.incidents,
           status_name(result));
    return false;
}

TEST(every_seed_ends_with_each_step_once)
{
    struct seeds seeds = {.usual = 10000, .holds = seed_holds,
                          .incidents = &cluster.incidents,
                          .generations = &cluster.generations};

    begin_virtual();
    seeds_run(&seeds);
    end_virtual();
    seeds_check(&seeds);
}

TEST(a_seed_repeats)
{
    struct cluster first;

    begin_virtual();
    CHECK(seed_holds(77));
    first = cluster;
    CHECK(seed_holds(77));
    end_virtual();
    EQUAL_INT(first.now_ns, cluster.now_ns);
    EQUAL_INT(first.generations, cluster.generations);
    EQUAL_INT(first.incidents, cluster.incidents);
    EQUAL_INT(first.random, cluster.random);
}

#include "tests/unit/control/virtual_plights.h"

/* 13 restarts in a row ended a run whose copies were lost, or which was
 * rewound, though each began where the one before it had got to. */
TEST(steps_that_are_made_again_are_made)
{
    EQUAL_INT(short_lives(20, false), OK);
    EQUAL_INT(cluster.short_lives, 0);
    EQUAL_INT(cluster.consumed_count, 60);
}

/* From step 0 to 2, then all copies are lost, for ever: it did not end. */
TEST(a_run_that_falls_back_without_end_ends)
{
    EQUAL_INT(short_lives(1000, true), ERR_PEER);
    CHECK(cluster.incidents < 30);
}

/* It hung after 2.4 s, whether the system let it run or not. The limit of
 * anything, 3 s here, is the longest that is taken off. */
TEST(a_rank_that_waits_for_memory_does_not_hang)
{
    EQUAL_INT(incidents_of_kept((int64_t)4500 * 1000000), 0);
    EQUAL_INT(incidents_of_kept((int64_t)30000 * 1000000), 1);
}

TEST_MAIN(steps_that_are_made_again_are_made,
          a_run_that_falls_back_without_end_ends,
          a_rank_that_waits_for_memory_does_not_hang,
          every_seed_ends_with_each_step_once, a_seed_repeats)
