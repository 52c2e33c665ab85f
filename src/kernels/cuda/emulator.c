/* SPDX-License-Identifier: Apache-2.0 */
/* emulator.c - runs kernels of CUDA on a processor, to find their mistakes.
 *
 * Each thread of a block runs until it comes to a barrier or to its end, then
 * another one does; one that waits keeps its stack. Between two barriers
 * threads run in another order each time, and so do blocks, so what depends on
 * an order that CUDA does not promise does not have the bits of the reference.
 * Memory of a block holds NaN when the block begins. A barrier that some
 * threads do not come to, or another one than the others, ends the program.
 * Threads of a warp wait for each other, too (warp.h): then some warps go on,
 * drawn anew each time. Copies that arrive later do so as late as they may.
 * Memory at an address that the type does not divide ends the program, as it
 * does on a GPU: kernels are compiled so (Makefile).
 * The address sanitizer is told of each change of stack. */
#undef _FORTIFY_SOURCE /* its longjmp refuses another stack */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#if defined(__has_feature)
#define CHECKED_ADDRESSES __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define CHECKED_ADDRESSES 1
#else
#define CHECKED_ADDRESSES 0
#endif
#if CHECKED_ADDRESSES
#include <sanitizer/common_interface_defs.h>
#endif
#include "base/status.h"
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/words.h"

enum {
    STACK_BYTES = 64 * 1024,
    SHARED_MOST = 48 * 1024, /* what every GPU has without asking */
    CALL_MOST = 4000,        /* bytes of arguments that CUDA takes */
    COPIES_MOST = 64,        /* of a thread, that are late */
    COPY_BYTES = 16,
    WARPS = BLOCK_THREADS / EMULATED_WARP
};

#define DECLARE_KERNEL(name) void emulated_##name(const void *call);
CUDA_KERNELS(DECLARE_KERNEL)
#define KERNEL_NAME(name) #name,
static const char *const names[] = {CUDA_KERNELS(KERNEL_NAME)};
#define KERNEL_OF(name) [CUDA_##name] = emulated_##name,
static void (*const kernels_of[CUDA_KERNEL_COUNT])(const void *) = {
    CUDA_KERNELS(KERNEL_OF)};

struct emulated emulated;

/* At each longjmp of the C library the address sanitizer marks a whole stack,
 * which takes most of the time of a checked kernel; not at the compiler's. */
#if CHECKED_ADDRESSES && defined(__x86_64__)
typedef void *jump_state[5];
#define JUMP_SAVE(state) __builtin_setjmp(state)
#define UNCHECKED __attribute__((noinline, no_sanitize("address")))
UNCHECKED static void jump_to(jump_state state)
{
    __builtin_longjmp(state, 1);
}
#else
typedef jmp_buf jump_state;
#define JUMP_SAVE(state) _setjmp(state)
#define UNCHECKED
static void jump_to(jump_state state)
{
    _longjmp(state, 1);
}
#endif

/* Where a stack goes on, and where it lies. */
struct context {
    jump_state state;
    const void *stack;
    size_t bytes;
    void *kept; /* the sanitizer's */
};
static _Alignas(64) unsigned char stacks[BLOCK_THREADS][STACK_BYTES];

/* A thread: fresh (no context), waiting at a line, or at its end (line 0). */
struct thread {
    struct context *context;
    const char *file;
    int line;
    bool in_warp;    /* for its warp alone */
    int calls;       /* of emulated_warp */
    int groups, copies; /* of copies that are late, and how many wait */
};

struct late {
    void *to;
    const void *from;
    int group;
};

static struct {
    struct context contexts[BLOCK_THREADS], *unused[BLOCK_THREADS];
    int unused_count;
    struct thread threads[BLOCK_THREADS];
    struct context scheduler;
    int factor, first, turn; /* turn i is that of thread factor i + first */
    ucontext_t maker, made;
    void (*kernel)(const void *call);
    const char *name;
    _Alignas(64) unsigned char call[CALL_MOST];
    _Alignas(64) unsigned char shared[SHARED_MOST];
    bool shared_taken[BLOCK_THREADS];
    bool awake[WARPS];
    struct late copies[BLOCK_THREADS][COPIES_MOST];
    _Alignas(16) emulated_box boxes[2][WARPS][EMULATED_WARP];
    bool runs;  /* a kernel: one at a time */
    uint64_t random;
} machine = {.random = 1};

static uint64_t random_next(void)
{
    machine.random = machine.random * UINT64_C(6364136223846793005) +
                     UINT64_C(1442695040888963407);
    return machine.random >> 33;
}

/* This stack is left for that of `to`. */
static void stack_leave(struct context *from, const struct context *to)
{
#if CHECKED_ADDRESSES
    __sanitizer_start_switch_fiber(&from->kept, to->stack, to->bytes);
#else
    (void)from;
    (void)to;
#endif
}

/* This stack goes on; the scheduler's is found when it is left first. */
static void stack_enter(struct context *self)
{
#if CHECKED_ADDRESSES
    const void *stack = NULL;
    size_t bytes = 0;

    __sanitizer_finish_switch_fiber(self->kept, &stack, &bytes);
    if (machine.scheduler.stack) return;
    machine.scheduler.stack = stack;
    machine.scheduler.bytes = bytes;
#else
    (void)self;
#endif
}

UNCHECKED static void context_switch(struct context *from, struct context *to)
{
    stack_leave(from, to);
    if (JUMP_SAVE(from->state) == 0) jump_to(to->state);
    stack_enter(from);
}

/* The context of the thread whose turn it is, which is then the running one;
 * the scheduler's after the last. A fresh thread has none: `own`, if it is
 * free to begin one, else an unused one. */
static struct context *turn_next(struct context *own)
{
    struct thread *thread;

    do {
        if (machine.turn == BLOCK_THREADS) return &machine.scheduler;
        emulated.thread =
            (machine.factor * machine.turn++ + machine.first) % BLOCK_THREADS;
    } while (!machine.awake[emulated.thread / EMULATED_WARP]);
    thread = &machine.threads[emulated.thread];
    if (!thread->context)
        thread->context =
            own ? own : machine.unused[--machine.unused_count];
    return thread->context;
}

/* Runs one thread after the other, as long as they come to their ends. */
static void context_main(void)
{
    struct context *self = &machine.contexts[machine.unused_count];

    stack_enter(self);
    stack_leave(self, &machine.scheduler);
    if (JUMP_SAVE(self->state) == 0) setcontext(&machine.maker);
    stack_enter(self);
    for (;;) {
        struct context *next;

        machine.kernel(machine.call);
        CHECK(machine.threads[emulated.thread].copies == 0 &&
              "copies are waited for before the end");
        machine.threads[emulated.thread].line = 0;
        next = turn_next(self);
        if (next == self) continue;
        machine.unused[machine.unused_count++] = self;
        context_switch(self, next);
    }
}

/* The trap of the compiler. */
static void misaligned(int number)
{
    fprintf(stderr, "kernel %s, block %lld, thread %d: signal %d: an address "
            "that its type does not divide\n", machine.name,
            (long long)emulated.block, emulated.thread, number);
    abort();
}

static void contexts_make(void)
{
    if (machine.made.uc_stack.ss_sp) return;
    while (machine.unused_count < BLOCK_THREADS) {
        struct context *context = &machine.contexts[machine.unused_count];

        getcontext(&machine.made);
        machine.made.uc_stack.ss_sp = stacks[machine.unused_count];
        machine.made.uc_stack.ss_size = STACK_BYTES;
        context->stack = stacks[machine.unused_count];
        context->bytes = STACK_BYTES;
        makecontext(&machine.made, context_main, 0);
        stack_leave(&machine.scheduler, context);
        swapcontext(&machine.maker, &machine.made);
        stack_enter(&machine.scheduler);
        machine.unused[machine.unused_count++] = context;
    }
}

void *emulated_shared(size_t bytes)
{
    CHECK(bytes <= SHARED_MOST);
    CHECK(!machine.shared_taken[emulated.thread] && "one object in a kernel");
    machine.shared_taken[emulated.thread] = true;
    return machine.shared;
}

static void thread_wait(const char *file, int line, bool in_warp)
{
    struct thread *self = &machine.threads[emulated.thread];

    self->file = file;
    self->line = line;
    self->in_warp = in_warp;
    context_switch(self->context, turn_next(NULL));
}

void emulated_barrier(const char *file, int line)
{
    thread_wait(file, line, false);
}

/* Boxes are used in turn: a thread that writes into one again has seen that all
 * others have come to the call between, and so have read it. */
const emulated_box *emulated_warp(const char *file, int line, const void *mine,
                                  size_t bytes)
{
    const int thread = emulated.thread, warp = thread / EMULATED_WARP;
    const int turn = machine.threads[thread].calls++ % 2;

    CHECK(bytes <= EMULATED_BOX);
    memcpy(machine.boxes[turn][warp][thread % EMULATED_WARP], mine, bytes);
    thread_wait(file, line, true);
    return (const emulated_box *)machine.boxes[turn][warp];
}

void emulated_copy_late(void *to, const void *from)
{
    struct thread *self = &machine.threads[emulated.thread];

    CHECK(self->copies < COPIES_MOST);
    CHECK((uintptr_t)to % COPY_BYTES == 0 &&
          (uintptr_t)from % COPY_BYTES == 0);
    machine.copies[emulated.thread][self->copies++] =
        (struct late){to, from, self->groups};
    memset(to, 0xff, COPY_BYTES);
}

void emulated_copies_close(void)
{
    machine.threads[emulated.thread].groups++;
}

void emulated_copies_wait(int open)
{
    struct thread *self = &machine.threads[emulated.thread];
    struct late *copies = machine.copies[emulated.thread];
    int kept = 0;

    for (int i = 0; i < self->copies; i++) {
        const struct late copy = copies[i];

        if (copy.group >= self->groups - open) copies[kept++] = copy;
        else if (copy.from) memcpy(copy.to, copy.from, COPY_BYTES);
        else memset(copy.to, 0, COPY_BYTES);
    }
    self->copies = kept;
}

static bool is_same_wait(const struct thread *a, const struct thread *b)
{
    return a->line == b->line &&
           (a->line == 0 ||
            (a->file == b->file && a->in_warp == b->in_warp));
}

/* Wakes about half of the warps whose threads wait for each other, and at least
 * one; false: there is none. */
static bool warps_wake(void)
{
    int waits[WARPS], count = 0;

    for (int w = 0; w < WARPS; w++) {
        const struct thread *one = &machine.threads[w * EMULATED_WARP];

        for (int i = 1; i < EMULATED_WARP; i++)
            CHECK(is_same_wait(&one[i], one) &&
                  "all threads of a warp come to the same barrier");
        machine.awake[w] = false;
        if (one->line != 0 && one->in_warp) waits[count++] = w;
    }
    if (count == 0) return false;
    for (int i = 0; i < count; i++)
        machine.awake[waits[i]] = random_next() % 2 == 0;
    machine.awake[waits[random_next() % (uint64_t)count]] = true;
    return true;
}

/* Threads that are awake to their next barrier, or to their end, in a new
 * order. Returns whether any waits. */
static bool threads_step(void)
{
    const struct thread *one = &machine.threads[0];

    machine.factor = (int)(random_next() % BLOCK_THREADS) | 1;
    machine.first = (int)(random_next() % BLOCK_THREADS);
    machine.turn = 0;
    context_switch(&machine.scheduler, turn_next(NULL));
    if (warps_wake()) return true;
    for (int w = 1; w < WARPS; w++)
        CHECK(is_same_wait(&machine.threads[w * EMULATED_WARP], one) &&
              "all threads of a block come to the same barrier");
    memset(machine.awake, 1, sizeof machine.awake);
    return one->line != 0;
}

static void block_run(int64_t block)
{
    emulated.block = block;
    memset(machine.shared, 0xff, sizeof machine.shared);
    memset(machine.shared_taken, 0, sizeof machine.shared_taken);
    memset(machine.threads, 0, sizeof machine.threads);
    memset(machine.awake, 1, sizeof machine.awake);
    while (threads_step()) continue;
}

/* A number that has no divisor in common with `count`. */
static int64_t step_of(int64_t count)
{
    for (;;) {
        int64_t step = (int64_t)random_next() % count + 1, a = step, b = count;

        while (b != 0) {
            const int64_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1) return step;
    }
}

void emulator_run(enum cuda_kernel kernel, int64_t blocks, const void *call,
                  size_t bytes)
{
    const int64_t step = blocks > 0 ? step_of(blocks) : 0;

    CHECK(!machine.runs && bytes <= CALL_MOST && blocks >= 0);
    CHECK(blocks <= INT32_MAX);
    contexts_make();
    signal(SIGILL, misaligned); /* others set these, too */
    signal(SIGTRAP, misaligned);
    machine.runs = true;
    memcpy(machine.call, call, bytes);
    machine.kernel = kernels_of[kernel];
    machine.name = names[kernel];
    emulated.blocks = blocks;
    for (int64_t i = 0; i < blocks; i++) block_run(i * step % blocks);
    memset(machine.call, 0xff, sizeof machine.call); /* nothing is left */
    machine.runs = false;
}
