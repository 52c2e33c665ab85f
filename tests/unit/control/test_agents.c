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
#include "tests/unit/control/virtual_hosts.h"
#include "tests/unit/control/virtual_lines.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "control/watch.h"
#include "tests/test.h"
#include "tests/unit/control/seeds.h"
#include "tests/unit/control/virtual_signals.h"

enum { STEPS_MOST = 200, FAULTS_MOST = 8, LIMIT_S = 900 };

enum fault_kind {
    FAULT_RANK, FAULT_AGENT, FAULT_MACHINE, FAULT_STOP, FAULT_STAND,
    FAULT_CUT, FAULT_CUT_IN, FAULT_CUT_OUT, FAULT_CUT_PEERS,
    FAULT_SUPERVISOR, FAULT_KINDS
};

/* The run: what its directory has. */
static struct run {
    uint64_t random;
    int64_t steps, every, checkpoint, done;
    uint64_t writer;         /* generation that wrote last */
    int64_t wrote_ns;
    uint64_t generation;     /* that has opened; step_ns: end of its step */
    int64_t step_ns;
    struct { int64_t when_ns; enum fault_kind kind; int host; }
        faults[FAULTS_MOST];
    int fault_count, fault_next, replicas;
    jmp_buf death;
    bool virtual, lives;     /* lives: a supervisor does */
    const char *broken;
} run;

static uint64_t draw_bits(void)
{
    uint64_t x = run.random += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int64_t draw(int64_t below)
{
    return (int64_t)(draw_bits() % (uint64_t)below);
}

static int64_t net_delay(void) { return 200000 + draw(3000000); }

static void must(bool holds, const char *what)
{
    if (!holds && run.broken == NULL) run.broken = what;
}

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

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    for (nfds_t i = 0; i < count; i++) fds[i].revents = 0;
    /* One descriptor: signals alone; messages do not wake that. */
    if (run.virtual && net.host == 0)
        advance((int64_t)timeout_ms * 1000000, count != 1);
    if (run.broken != NULL && run.lives) longjmp(run.death, 2);
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

/* ---- ranks ---- */

struct seat_of { struct host *host; int index, place; };

/* Where that rank of a generation is; false: no process is it any more. */
static bool find_rank(uint64_t generation, int rank, struct seat_of *out)
{
    for (int h = 1; h <= HOSTS; h++)
        for (int p = 0; p < PLACES; p++) {
            const struct place_memory *m = &hosts[h].memories[p];

            if (!place_is_busy(m) || m->order.generation != generation ||
                m->order.rank != rank || hosts[h].workers[p].process == 0)
                continue;
            *out = (struct seat_of){&hosts[h], h, p};
            return true;
        }
    return false;
}

/* As lease_holds() asks, by the clock of the machine. */
static bool may_write(int host)
{
    return !lease_is_over(hosts[host].board, net.now_ns + net.skew_ns[host]);
}

/* No rank of an older generation may be able to write. */
static void check_alone(uint64_t generation, const char *what)
{
    for (int h = 1; h <= HOSTS; h++)
        for (int p = 0; p < PLACES; p++) {
            const struct place_memory *m = &hosts[h].memories[p];

            if (place_is_busy(m) && hosts[h].workers[p].process != 0 &&
                m->order.generation < generation)
                must(!may_write(h), what);
        }
}

static void model_order(struct host *host, int place)
{
    struct place *p = &host->places[place];

    check_alone(host->memories[place].order.generation, "leader");
    *p = (struct place){.phase = BOARD_OPENS,
                        .ready_ns = net.now_ns + 20000000 + draw(200000000)};
    atomic_store(&host->board->pages[place].step, 0);
    atomic_store(&host->board->pages[place].step_ns, 0);
}

static void end_rank(struct seat_of *at, status result)
{
    struct place *p = &at->host->places[at->place];
    struct place_memory *m = &at->host->memories[at->place];

    p->phase = BOARD_ENDED;
    p->result = (int)result;
    p->steps = false;
    atomic_store(&m->done, atomic_load(&m->ordered));
    at->host->agent.changed = true;
}

/* All ranks of the generation, if every one is there, awake, and reaches the
 * others; a rank that misses another for a while gives up. */
static bool gather(uint64_t generation, int size, struct seat_of at[RANKS])
{
    bool whole = true;

    for (int i = 0; i < size; i++) {
        whole = find_rank(generation, i, &at[i]) && whole;
        if (!whole) return false;
        whole = !at[i].host->stands;
    }
    for (int i = 0; i < size && whole; i++)
        for (int j = 0; j < size; j++)
            whole = whole && !net.cut[at[i].index][at[j].index];
    return whole;
}

static void miss(uint64_t generation, int size)
{
    struct seat_of at;

    for (int i = 0; i < size; i++) {
        struct place *p;

        if (!find_rank(generation, i, &at) || at.host->stands) continue;
        p = &at.host->places[at.place];
        if (p->alone_ns == 0) p->alone_ns = net.now_ns;
        if (net.now_ns - p->alone_ns > (p->steps ? 1000 : 5000) * 1000000LL)
            end_rank(&at, ERR_PEER);
    }
}

static bool has_copy(const struct seat_of *at, int rank, int size,
                     int64_t step)
{
    const struct copy *c = &at->host->copies[rank];

    return c->size == size && (c->step[0] == step || c->step[1] == step);
}

/* The newest step that all ranks have where they are; -1. */
static int64_t newest_copy(const struct seat_of at[RANKS], int size)
{
    const struct copy *first = &at[0].host->copies[0];
    int64_t newest = -1;

    for (int k = 0; k < 2; k++) {
        bool all = first->size == size;

        for (int i = 0; i < size; i++)
            all = all && has_copy(&at[i], i, size, first->step[k]);
        if (all && first->step[k] > newest) newest = first->step[k];
    }
    return newest;
}

static void write_step(uint64_t generation, int host, int64_t step)
{
    must(generation >= run.writer, "one");
    check_alone(generation, "one");
    must(may_write(host), "one");
    run.writer = generation;
    run.done = step;
    run.wrote_ns = net.now_ns;
}

/* All have opened: they agree where to go on, and cut later lines. */
static void go_on(uint64_t generation, int size, struct seat_of at[RANKS])
{
    const int64_t copy = newest_copy(at, size);
    const bool memory = copy > run.checkpoint;
    const int64_t step = memory ? copy : run.checkpoint;

    must(step <= run.done, "whole");
    write_step(generation, at[0].index, step);
    for (int i = 0; i < size; i++) {
        struct place *p = &at[i].host->places[at[i].place];
        struct copy *c = &at[i].host->copies[i];

        *p = (struct place){.phase = BOARD_STEPS, .steps = true, .from = step,
                            .asked = p->asked,
                            .source = memory ? BOARD_MEMORY
                                             : BOARD_CHECKPOINT};
        for (int k = 0; k < 2; k++)
            if (!memory || c->step[k] > step) c->step[k] = -1;
        atomic_store(&at[i].host->board->pages[at[i].place].step, step);
    }
    run.generation = generation;
    run.step_ns = net.now_ns + 30000000 + draw(100000000);
}

static void keep_copy(struct host *host, int rank, int size, int64_t step)
{
    struct copy *c = &host->copies[rank];

    if (c->size != size) *c = (struct copy){.step = {-1, -1}, .size = size};
    c->step[c->step[1] < c->step[0]] = step;
}

static void end_all(struct seat_of at[RANKS], int size, status result)
{
    for (int i = 0; i < size; i++) end_rank(&at[i], result);
}

/* The decision of a step, its lines, its copies. Rank 0 writes. */
static void make_step(uint64_t generation, int size, struct seat_of at[RANKS])
{
    const int64_t step = run.done + 1;
    bool asked = false;

    for (int i = 0; i < size; i++)
        asked = asked || at[i].host->places[at[i].place].asked;
    if (!may_write(at[0].index)) {
        end_all(at, size, ERR_PEER);
        return;
    }
    if (run.done == run.steps) {
        end_all(at, size, OK);
        return;
    }
    must(run.writer == generation, "once");
    write_step(generation, at[0].index, step);
    for (int i = 0; i < size; i++) {
        struct host *host = at[i].host;
        struct board_page *page = &host->board->pages[at[i].place];

        keep_copy(host, i, size, step);
        for (int k = 0; k < PARTNERS_MOST; k++) {
            const int other = host->partners[k];

            if (other == 0 || !hosts[other].runs ||
                net.cut[at[i].index][other])
                continue;
            keep_copy(&hosts[other], i, size, step);
            host->held |= 1u << k;
        }
        atomic_store(&page->step, step);
        atomic_store(&page->step_ns, net.now_ns + net.skew_ns[at[i].index]);
        atomic_fetch_add(&page->flight.beats, 1);
    }
    if (asked || step % run.every == 0 || step == run.steps)
        run.checkpoint = step;
    if (step == run.steps) end_all(at, size, OK);
    else if (asked) end_all(at, size, ERR_STOPPED);
    else run.step_ns = net.now_ns + 30000000 + draw(100000000);
}

static void generation_turn(uint64_t generation, int size)
{
    struct seat_of at[RANKS];
    bool opened = true, steps = true;

    if (!gather(generation, size, at)) {
        miss(generation, size);
        return;
    }
    for (int i = 0; i < size; i++) {
        struct place *p = &at[i].host->places[at[i].place];

        p->alone_ns = 0;
        steps = steps && p->steps;
        opened = opened && p->ready_ns <= net.now_ns;
    }
    if (steps && run.generation == generation && net.now_ns >= run.step_ns)
        make_step(generation, size, at);
    else if (!steps && opened && may_write(at[0].index))
        go_on(generation, size, at);
}

/* Each generation that has a process. */
static void ranks_turn(void)
{
    uint64_t turned[HOSTS * PLACES];
    int count = 0;

    for (int h = 1; h <= HOSTS; h++)
        for (int p = 0; p < PLACES; p++) {
            const struct place_memory *m = &hosts[h].memories[p];
            bool again = !place_is_busy(m);

            for (int i = 0; i < count && !again; i++)
                again = turned[i] == m->order.generation;
            if (again) continue;
            turned[count++] = m->order.generation;
            generation_turn(m->order.generation, m->order.size);
        }
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

static void hurt(enum fault_kind kind, int index)
{
    struct host *host = &hosts[index];

    if (kind == FAULT_SUPERVISOR) {
        if (run.lives) longjmp(run.death, 1);
        return;
    }
    if (!host->runs) return;
    if (kind >= FAULT_CUT && kind <= FAULT_CUT_PEERS) hurt_links(kind, index);
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
    struct supervisor *s = written.leader;
    struct supervisor copy;

    net_kill(0);
    memcpy(&copy, s, sizeof copy);
    if (copy.fleet->adopts) {
        struct arena read;

        memcpy(&read, written.reads, sizeof read);
        arena_free(&read);
    }
    copy.crew.size = RANKS;
    fleet_close(copy.fleet);
    crew_close(&copy.crew);
    board_close(copy.board);
    close(copy.board_file);
    close(copy.state_file);
    memory_free(copy.sights);
    close(copy.signals);
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
    advance(draw(9000) * 1000000, false); /* agents are alone */
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

TEST_MAIN(every_seed_ends_with_each_step_once, a_seed_repeats)
