/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - a pinned pool of our own with fixed static splits.
 *
 * All waiting goes through one primitive, a `signal`: a counter that somebody
 * raises and others wait for, first spinning, then asleep in the kernel
 * (futex). A run raises `start` once; the last worker to finish raises
 * `finish`; a barrier raises `barrier` when its last thread arrives.
 *
 * Workers are pinned when all living pools together have no more threads than
 * there are cores, without those that are left to other processes; the calling
 * thread never is, since threads that it creates later would inherit its
 * place. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/threads.h"

enum {
    CACHE_LINE = 64,  /* bytes */
    SPIN_NS = 50000,  /* a wake-up from the kernel costs about as much */
    OWN_SPIN_NS = 400000, /* on a core of its own: the work of one thread
                           * between kernels is shorter */
    YIELD_NS = 20000, /* so often other threads may have the core */
    SPIN_BATCH = 32   /* pauses between two looks at the clock */
};

/* Each on a cache line of its own, lest waiting for one slow the others. */
struct signal {
    _Atomic uint32_t value;
    _Atomic int sleepers;
    char pad[CACHE_LINE - sizeof(uint32_t) - sizeof(int)];
};

struct counter {
    _Atomic int value;
    char pad[CACHE_LINE - sizeof(int)];
};

struct threads {
    struct signal start, finish, barrier;
    struct counter running; /* workers that are not done */
    struct counter arrived; /* at the barrier */
    int count, created;
    int64_t spin_ns; /* 0 when there are more threads than cores */
    bool quits;    /* written before `start` is raised for the last time */
    int first_core; /* of this pool among the allowed; -1: not pinned */
    void (*body)(void *argument, int index, int count);
    void *argument;
    struct worker *workers; /* owned, [count - 1] */
};

struct worker {
    struct threads *pool;
    pthread_t handle;
    int index;
};

/* Cores promised to the pools of this process, and those before them that are
 * left to other processes. */
static _Atomic int cores_claimed, cores_left;

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    syscall(SYS_futex, (void *)word, operation, value, NULL, NULL, 0);
}

/* A waiter counts itself before it looks at the value for the last time (in
 * the kernel), and the raiser changes the value before it looks for waiters:
 * one of the two sees the other. Both therefore need sequential consistency. */
static void signal_raise(struct signal *signal)
{
    atomic_fetch_add(&signal->value, 1);
    if (atomic_load(&signal->sleepers) > 0)
        futex(&signal->value, FUTEX_WAKE_PRIVATE, THREADS_MOST);
}

static void signal_wait(struct signal *signal, uint32_t old, int64_t spin_ns)
{
    const int64_t begun = spin_ns > 0 ? clock_ns() : 0;
    int64_t waited = 0, next_yield = YIELD_NS;

    do {
        if (waited > next_yield) {
            sched_yield();
            next_yield += YIELD_NS;
        }
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (atomic_load_explicit(&signal->value, memory_order_acquire) !=
                old)
                return;
            pause_briefly();
        }
        waited = spin_ns > 0 ? clock_ns() - begun : 0;
    } while (waited < spin_ns);
    atomic_fetch_add(&signal->sleepers, 1);
    while (atomic_load(&signal->value) == old)
        futex(&signal->value, FUTEX_WAIT_PRIVATE, old);
    atomic_fetch_sub(&signal->sleepers, 1);
}

/* The cores of the process are those of its first thread, which no pool pins; a
 * thread of a pool has one. */
static bool process_cores(cpu_set_t *out)
{
    return sched_getaffinity(getpid(), sizeof *out, out) == 0;
}

int threads_cores(void)
{
    cpu_set_t set;
    int count;

    if (process_cores(&set)) return CPU_COUNT(&set);
    count = (int)sysconf(_SC_NPROCESSORS_ONLN); /* beyond 1,024 cores */
    return count > 0 ? count : 1;
}

void threads_mark(unsigned char mark[THREADS_MARK_BYTES])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    cpu_set_t set;

    memset(mark, 0, THREADS_MARK_BYTES);
    if (file) {
        if (fread(mark, 1, BOOT_MARK_BYTES, file) == 0) mark[0] = 0;
        fclose(file);
    }
    if (process_cores(&set))
        memcpy(mark + BOOT_MARK_BYTES, &set, CORES_MARK_BYTES);
}
_Static_assert(sizeof(cpu_set_t) == CORES_MARK_BYTES, "the mark holds it");

void threads_leave_cores(int cores)
{
    cores_left = cores;
}

/* Failure only costs locality, so it is not an error. */
static void worker_pin(const struct worker *worker)
{
    cpu_set_t allowed, one;
    int skip = worker->pool->first_core + worker->index;

    if (worker->pool->first_core < 0) return;
    if (!process_cores(&allowed)) return;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct threads *pool = worker->pool;
    uint32_t seen = 0;

    worker_pin(worker);
    for (;;) {
        signal_wait(&pool->start, seen, pool->spin_ns);
        seen++;
        if (pool->quits) return NULL;
        pool->body(pool->argument, worker->index, pool->count);
        if (atomic_fetch_sub(&pool->running.value, 1) == 1)
            signal_raise(&pool->finish);
    }
}

/* argument: _Atomic int, number of threads that round differently. */
static void rounding_body(void *argument, int index, int count)
{
    (void)index, (void)count;
    if (threads_check_rounding() != OK) {
        status_clear();
        atomic_fetch_add((_Atomic int *)argument, 1);
    }
}

static status workers_start(struct threads *pool)
{
    TRY(memory_take((size_t)pool->count - 1, sizeof *pool->workers,
                    (void **)&pool->workers));
    for (int i = 1; i < pool->count; i++) {
        struct worker *worker = &pool->workers[i - 1];
        int error;

        worker->pool = pool;
        worker->index = i;
        error = pthread_create(&worker->handle, NULL, worker_main, worker);
        if (error != 0)
            FAIL(ERR_MEMORY,
                 "thread %d of %d cannot be created (error %d): ask for fewer",
                 i + 1, pool->count, error);
        pool->created++;
    }
    return OK;
}

status threads_build(struct threads **out, int count)
{
    int cores = threads_cores(), claimed;
    _Atomic int wrong = 0;
    struct threads *pool;

    *out = NULL;
    if (count == 0) count = cores;
    if (count < 1 || count > THREADS_MOST)
        FAIL(ERR_CONFIG, "%d threads: expected 1 to %d", count, THREADS_MOST);
    TRY(threads_check_rounding());
    TRY(memory_take(1, sizeof *pool, (void **)&pool));
    *out = pool;
    pool->count = count;
    claimed = cores_left + atomic_fetch_add(&cores_claimed, count);
    pool->first_core = claimed + count <= cores ? claimed : -1;
    pool->spin_ns = count > cores ? 0
                    : pool->first_core < 0 ? SPIN_NS : OWN_SPIN_NS;
    if (count > 1) TRY(workers_start(pool));
    threads_run(pool, rounding_body, &wrong);
    if (wrong > 0)
        FAIL(ERR_DEVICE,
             "%d of %d new threads flush denormals or do not round to nearest",
             wrong, count);
    return OK;
}

void threads_free(struct threads *pool)
{
    if (!pool) return;
    pool->quits = true;
    signal_raise(&pool->start);
    for (int i = 0; i < pool->created; i++)
        pthread_join(pool->workers[i].handle, NULL);
    atomic_fetch_sub(&cores_claimed, pool->count);
    memory_free(pool->workers);
    memory_free(pool);
}

int threads_count(const struct threads *pool)
{
    return pool ? pool->count : 1;
}

void threads_run(struct threads *pool,
                 void (*body)(void *argument, int index, int count),
                 void *argument)
{
    uint32_t finished;

    if (!pool || pool->count == 1) {
        body(argument, 0, 1);
        return;
    }
    finished = atomic_load(&pool->finish.value);
    pool->body = body;
    pool->argument = argument;
    atomic_store(&pool->running.value, pool->count - 1);
    signal_raise(&pool->start);
    body(argument, 0, pool->count);
    signal_wait(&pool->finish, finished, pool->spin_ns);
}

/* The phase is read before arriving: it cannot change until all arrived. */
void threads_barrier(struct threads *pool)
{
    uint32_t phase;

    if (!pool || pool->count == 1) return;
    phase = atomic_load(&pool->barrier.value);
    if (atomic_fetch_add(&pool->arrived.value, 1) + 1 == pool->count) {
        atomic_store(&pool->arrived.value, 0);
        signal_raise(&pool->barrier);
    } else {
        signal_wait(&pool->barrier, phase, pool->spin_ns);
    }
}

void threads_aside(void) { prctl(PR_SET_NAME, THREAD_ASIDE); }

void threads_split(int64_t total, int64_t grain, int index, int count,
                   int64_t *first, int64_t *last)
{
    int64_t units = total / grain + (total % grain != 0);
    int64_t each = units / count, rest = units % count;
    int64_t begin = each * index + (index < rest ? index : rest);
    int64_t end = begin + each + (index < rest ? 1 : 0);

    *first = begin * grain < total ? begin * grain : total;
    *last = end * grain < total ? end * grain : total;
}

/* By arithmetic, so that it holds on any machine. The volatile operands keep
 * the compiler, which rounds to nearest, from computing it beforehand. */
status threads_check_rounding(void)
{
    volatile float one = 1.0f, tiny = 0x1p-149f, small = 0x1p-126f;
    volatile float half_unit = 0x1p-24f, most_unit = 0x1.8p-24f, result;

    result = tiny * 0x1p100f;
    if (result == 0)
        FAIL(ERR_DEVICE, "denormal operands count as zero (DAZ or FZ is set): "
             "was a library linked with -ffast-math?");
    result = small * 0.5f;
    if (result == 0)
        FAIL(ERR_DEVICE, "denormal results are flushed to zero (FTZ or FZ is "
             "set): was a library linked with -ffast-math?");
    result = one + half_unit;
    if (result != 1)
        FAIL(ERR_DEVICE, "sums are rounded up, expected to nearest even");
    result = one + most_unit;
    if (result == 1)
        FAIL(ERR_DEVICE, "sums are rounded down, expected to nearest even");
    return OK;
}
