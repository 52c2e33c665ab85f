/* SPDX-License-Identifier: Apache-2.0 */
/* test_agents.c - the supervisor and its agents under a virtual clock: runs on
 * three machines whose ranks, agents, links and supervisors are hurt at any
 * instant. The program's supervisor*.c, fleet*.c, watch.c, crew.c and agent.c
 * run unchanged; connections, processes and the steps of ranks are models. Each
 * machine has a clock of its own. A seed repeats a run:
 *
 *     SEED=4711 build/tests/unit/control/test_agents
 *
 * SEEDS=N: how many. Invariants, checked at every event:
 *   one     no rank writes while one of another generation may write
 *   leader  no generation begins while ranks of another may write
 *   whole   what is gone back to was there on every rank
 *   once    each step is in the run's history once, in order
 *   ends    the run ends, in bounded time, with all of its steps
 * Ranks of this model know nothing of RUN/control/generation, nor of the lock
 * of the run's directory: the lease alone must keep generations apart. */
#include "tests/unit/control/virtual_lines.h"
#include "tests/unit/control/virtual_ranks.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "control/watch.h"
#include "tests/test.h"
#include "tests/unit/control/seeds.h"
#include "tests/unit/control/virtual_signals.h"

/* ---- the system ---- */

int clock_gettime(clockid_t which, struct timespec *t)
{
    const int64_t now = net.now_ns + net.skew_ns[net.host];

    if (!run.virtual) return (int)syscall(SYS_clock_gettime, which, t);
    t->tv_sec = now / 1000000000;
    t->tv_nsec = now % 1000000000;
    return 0;
}

static void advance(int64_t ns, bool until_news);

/* A supervisor that dies leaves this behind: its frames are gone afterwards. */
static struct { struct supervisor leader; struct arena reads; } left;

static _Noreturn void die(int how)
{
    memcpy(&left.leader, written.leader, sizeof left.leader);
    if (left.leader.fleet->adopts)
        memcpy(&left.reads, written.reads, sizeof left.reads);
    longjmp(run.death, how);
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    for (nfds_t i = 0; i < count; i++) fds[i].revents = 0;
    /* One descriptor: signals alone; messages do not wake that. */
    if (run.virtual && net.host == 0)
        advance((int64_t)timeout_ms * 1000000, count != 1);
    if (run.broken != NULL && run.lives) die(2);
    return 0;
}

/* poll with checks (-D_FORTIFY_SOURCE). */
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes)
{
    CHECK(count * sizeof *fds <= bytes);
    return poll(fds, count, timeout_ms);
}

status lease_announce(const char *where, uint64_t generation)
{
    (void)where;
    must(generation >= run.writer, "leader");
    return OK;
}

/* ---- faults ---- */

static void cut(int from, int to, bool value)
{
    net_settle();
    net.cut[from][to] = value;
}

static void heal(int host)
{
    for (int i = 0; i < NET_HOSTS; i++) {
        cut(i, host, false);
        cut(host, i, false);
    }
    for (int i = 0; i < NET_HOSTS; i++) net_find_news(i);
}

static void hurt_links(enum fault_kind kind, int index)
{
    if (kind != FAULT_CUT_OUT) cut(0, index, kind != FAULT_CUT_PEERS);
    if (kind != FAULT_CUT_IN) cut(index, 0, kind != FAULT_CUT_PEERS);
    for (int i = 1; i <= HOSTS && kind == FAULT_CUT_PEERS; i++) {
        cut(i, index, i != index);
        cut(index, i, i != index);
    }
    hosts[index].cut_ns = net.now_ns + 300000000 + draw(12000) * 1000000;
}

/* Whether the rank of a place makes steps now. */
static bool makes_steps(const struct host *host, int place)
{
    return place_is_busy(&host->memories[place]) &&
           host->workers[place].process != 0 && host->places[place].steps &&
           host->memories[place].order.generation == run.generation;
}

/* A rank of the machine, or of the next one, waits for data, for its disk, or
 * stands still; the others wait for it. */
static void delay(enum fault_kind kind, int index)
{
    struct host *host = NULL;
    int slow = PLACES;

    for (int i = 0; i < HOSTS && slow == PLACES; i++) {
        host = &hosts[1 + (index - 1 + i) % HOSTS];
        for (slow = 0; slow < PLACES && !makes_steps(host, slow);) slow++;
    }
    if (slow == PLACES) return;
    if (kind != FAULT_HANG)
        run.slow_ns = net.now_ns + (run.alone_ms > 0 ? 10000 : draw(12000)) *
                                       (int64_t)1000000;
    host->places[slow].hangs = kind == FAULT_HANG;
    for (int h = 1; h <= HOSTS; h++)
        for (int i = 0; i < PLACES; i++)
            if (makes_steps(&hosts[h], i))
                set_page(&hosts[h], i, kind == FAULT_SAVE ? BOARD_SAVES
                                                          : BOARD_STEPS,
                         &hosts[h] != host || i != slow);
    if (kind == FAULT_DATA)
        atomic_store(&page_of(host, slow)->flight.reads, 1);
}

static void hurt(enum fault_kind kind, int index)
{
    struct host *host = &hosts[index];

    if (kind == FAULT_SUPERVISOR) {
        if (run.lives) die(1);
        return;
    }
    if (!host->runs) return;
    if (kind >= FAULT_CUT && kind <= FAULT_CUT_PEERS) hurt_links(kind, index);
    if (kind >= FAULT_DATA && kind <= FAULT_HANG) delay(kind, index);
    if (kind == FAULT_RANK) end_process(host, (int)draw(SLOTS));
    if (kind == FAULT_STOP) {
        host->stopped = true;
        host->stop_ns = net.now_ns + draw(12000) * 1000000;
    }
    if (kind == FAULT_STAND) {
        host->stands = true;
        host->stand_ns = net.now_ns + draw(12000) * 1000000;
    }
    if (kind != FAULT_AGENT && kind != FAULT_MACHINE) return;
    if (kind == FAULT_MACHINE) { /* nobody says that it has gone */
        cut(0, index, true);
        cut(index, 0, true);
    }
    host_kill(index);
    host->start_ns = net.now_ns + 100000000 + draw(8000) * 1000000;
    host->cut_ns = host->start_ns;
}

static void happen(void)
{
    while (run.fault_next < run.fault_count &&
           run.faults[run.fault_next].when_ns <= net.now_ns) {
        const int i = run.fault_next++;

        hurt(run.faults[i].kind, run.faults[i].host);
    }
    for (int h = 1; h <= HOSTS; h++) {
        struct host *host = &hosts[h];

        if (host->cut_ns > 0 && host->cut_ns <= net.now_ns) {
            host->cut_ns = 0;
            heal(h);
        }
        if (host->stop_ns <= net.now_ns) host->stopped = false;
        if (host->stand_ns <= net.now_ns) host->stands = false;
        if (!host->runs && host->start_ns <= net.now_ns) host_start(h);
        if (host->next_ns <= net.now_ns || net.news_ns[h] <= net.now_ns)
            host_turn(h);
    }
    ranks_turn();
}

/* In pieces of 10 ms: ranks are looked at as often. */
static void advance(int64_t ns, bool until_news)
{
    const int64_t end = net.now_ns + ns;

    net_find_news(0);
    while (net.now_ns < end && run.broken == NULL &&
           !(until_news && net.news_ns[0] <= net.now_ns)) {
        int64_t when = net.now_ns + 10000000;

        if (until_news && net.news_ns[0] < when) when = net.news_ns[0];
        if (when > end) when = end;
        net.now_ns = when > net.now_ns ? when : net.now_ns + 1;
        happen();
    }
    must(net.now_ns < (int64_t)LIMIT_S * 1000000000, "ends");
}

/* ---- supervisors ---- */

static status words(void *argument, bool again, const char *layout,
                    struct order *order)
{
    (void)argument, (void)again, (void)layout;
    order->words = 1;
    return OK;
}

static status choose(void *argument, int most, char out[LAYOUT_WORDS_BYTES],
                     int *ranks)
{
    (void)argument;
    *ranks = most >= 4 ? 4 : most >= 2 ? 2 : most;
    snprintf(out, LAYOUT_WORDS_BYTES, "mesh.data=%d", *ranks);
    return OK;
}

/* The system takes back everything that a killed supervisor had. */
static void bury(void)
{
    struct supervisor *s = &left.leader;

    net_kill(0);
    if (s->fleet->adopts) arena_free(&left.reads);
    s->crew.size = RANKS;
    fleet_close(s->fleet);
    crew_close(&s->crew);
    board_close(s->board);
    close(s->board_file);
    close(s->state_file);
    memory_free(s->sights);
    close(s->signals);
}

static status one_supervisor(const char *where)
{
    static struct supervision how;
    static struct token token;
    status result;
    int ended;

    how = (struct supervision){
        .ranks = RANKS, .run = where, .limit_ms = 20000, .again = true,
        .listen = "10.0.0.0:1", .token = &token, .words = words,
        .layout = choose, .replicas = run.replicas};
    net.host = 0;
    ended = setjmp(run.death);
    if (ended == 0) {
        run.lives = true;
        result = supervise_agents(&how);
        run.lives = false;
        return result;
    }
    run.lives = false;
    net.host = 0;
    bury();
    if (ended == 2) return ERR_VERIFY;
    advance((run.alone_ms > 0 ? run.alone_ms : draw(9000)) * 1000000, false);
    return ERR_PEER;
}

static void draw_run(uint64_t seed)
{
    const uint64_t mixed = seed * 0x9e3779b97f4a7c15u;

    net_clear();
    written_clear();
    run = (struct run){.random = mixed, .virtual = true};
    net.now_ns = 5000000000;
    next_process = 1000;
    run.steps = 60 + draw(STEPS_MOST - 60);
    run.every = 1 + draw(40);
    run.fault_count = (int)draw(FAULTS_MOST + 1);
    run.replicas = 1 + (int)(seed % 3);
    for (int h = 1; h <= HOSTS; h++) {
        net.skew_ns[h] = draw(3000000000000);
        host_start(h);
    }
    for (int i = 0, at = 500; i < run.fault_count; i++) {
        at += 1 + (int)draw(draw(3) == 0 ? 100 : 5000);
        run.faults[i].when_ns = net.now_ns + (int64_t)at * 1000000;
        run.faults[i].kind = (enum fault_kind)draw(FAULT_KINDS);
        run.faults[i].host = 1 + (int)draw(HOSTS);
    }
}

/* People start a supervisor again that ended because it was hurt too often. */
static status run_all(const char *where)
{
    status result = ERR_PEER;

    for (int i = 0; i < 40 && result == ERR_PEER; i++) {
        result = one_supervisor(where);
        status_clear();
    }
    return result;
}

/* ---- the tests ---- */

static char begun[64];
static int kept_stderr;

static void begin_virtual(void)
{
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char path[PATH_BYTES];

    snprintf(begun, sizeof begun, "/tmp/lockstep-agents-XXXXXX");
    CHECK(mkdtemp(begun) != NULL && null >= 0);
    IS_OK(path_join(path, sizeof path, begun, "config.yaml"));
    IS_OK(file_write_atomic(path, "version: 1\n", 11));
    fflush(stderr);
    kept_stderr = dup(2); /* a supervisor tells each incident */
    if (getenv("TELL") == NULL) dup2(null, 2);
    close(null);
}

static void end_virtual(void)
{
    run.virtual = false;
    net_clear();
    written_clear();
    fflush(stderr);
    dup2(kept_stderr, 2);
    close(kept_stderr);
    for (int h = 1; h <= HOSTS; h++) {
        free(hosts[h].board);
        hosts[h].board = NULL;
    }
    IS_OK(directory_remove(begun));
}

static bool seed_holds(uint64_t seed)
{
    status result;

    draw_run(seed);
    result = run_all(begun);
    must(result == OK, "ends");
    must(run.done == run.steps, "once");
    if (run.broken == NULL) return true;
    printf("SEED=%llu: %s at %.3f s; %lld of %lld steps, %d generations, %d "
           "incidents, status %s\n", (unsigned long long)seed, run.broken,
           1e-9 * (double)net.now_ns, (long long)run.done,
           (long long)run.steps, written.generations, written.incidents,
           status_name(result));
    return false;
}

TEST(every_seed_ends_with_each_step_once)
{
    struct seeds seeds = {.usual = 10000, .holds = seed_holds,
                          .incidents = &written.incidents,
                          .generations = &written.generations};

    begin_virtual();
    seeds_run(&seeds);
    end_virtual();
    seeds_check(&seeds);
}

TEST(a_seed_repeats)
{
    int64_t now_ns;
    uint64_t random;
    int generations;

    begin_virtual();
    CHECK(seed_holds(77));
    now_ns = net.now_ns;
    random = run.random;
    generations = written.generations;
    CHECK(seed_holds(77));
    now_ns -= net.now_ns;
    generations -= written.generations;
    end_virtual();
    EQUAL_INT(now_ns, 0);
    EQUAL_INT(generations, 0);
    CHECK(random == run.random);
}

/* The supervisor dies at 3 s; that happens on machine 1 0.2 s later. */
static void draw_alone(enum fault_kind kind)
{
    draw_run(1);
    run.steps = 150;
    run.fault_count = 2;
    run.faults[0].when_ns = net.now_ns + 3000000000;
    run.faults[0].kind = FAULT_SUPERVISOR;
    run.faults[1].when_ns = net.now_ns + 3200000000;
    run.faults[1].kind = kind;
    run.faults[1].host = 1;
    run.alone_ms = 25000;
}

static int count_busy(void)
{
    int busy = 0;

    for (int h = 1; h <= HOSTS; h++)
        for (int i = 0; i < PLACES; i++)
            busy += place_is_busy(&hosts[h].memories[i]);
    return busy;
}

/* Guards ranks that were ended 3 s into an evaluation, a save or a wait for
 * data, as no step was finished. */
TEST(ranks_that_are_slow_go_on_without_a_supervisor)
{
    static const enum fault_kind kinds[] = {FAULT_DATA, FAULT_SAVE};
    int64_t done[ROWS(kinds)];
    int generations[ROWS(kinds)];
    status first[ROWS(kinds)];

    begin_virtual();
    for (size_t i = 0; i < ROWS(kinds); i++) {
        draw_alone(kinds[i]);
        first[i] = one_supervisor(begun);
        done[i] = run.done;
        generations[i] = written.generations;
        status_clear();
    }
    end_virtual();
    for (size_t i = 0; i < ROWS(kinds); i++) {
        EQUAL_INT(first[i], ERR_PEER);
        EQUAL_INT(done[i], 150);
        EQUAL_INT(generations[i], 1);
    }
}

/* Guards ranks that ended 4 s after their supervisor. */
TEST(ranks_go_on_where_a_name_has_an_address_without_a_way)
{
    int64_t done;
    int generations;
    status first;

    begin_virtual();
    draw_alone(FAULT_DATA);
    net.no_ipv6 = true;
    first = one_supervisor(begun);
    done = run.done;
    generations = written.generations;
    status_clear();
    end_virtual();
    EQUAL_INT(first, ERR_PEER);
    EQUAL_INT(done, 150);
    EQUAL_INT(generations, 1);
}

TEST(ranks_end_where_one_stands_still_without_a_supervisor)
{
    status first, second;
    int64_t done, steps;
    int busy, generations;

    begin_virtual();
    draw_alone(FAULT_HANG);
    first = one_supervisor(begun);
    done = run.done;
    busy = count_busy();
    status_clear();
    second = run_all(begun);
    steps = run.done;
    generations = written.generations;
    end_virtual();
    EQUAL_INT(first, ERR_PEER);
    EQUAL_INT(busy, 0);
    CHECK(done > 0 && done < 150);
    EQUAL_INT(second, OK);
    EQUAL_INT(steps, 150);
    CHECK(generations > 1);
}

TEST_MAIN(every_seed_ends_with_each_step_once, a_seed_repeats,
          ranks_that_are_slow_go_on_without_a_supervisor,
          ranks_go_on_where_a_name_has_an_address_without_a_way,
          ranks_end_where_one_stands_still_without_a_supervisor)
