/* SPDX-License-Identifier: Apache-2.0 */
/* mapped_files.c - files that are mapped, and the one that shrinks under its
 * reader.
 *
 * The handler may run on any thread at any time: it walks slots that are never
 * given back, reads atomics and makes system calls, and nothing else. */
#include "base/mapped_files.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCKS = 512, SLOTS = 256, NAME = 480 };

struct slot {
    _Atomic uintptr_t begin; /* 0: free */
    _Atomic size_t length;
    _Atomic size_t fault;    /* 1 + the first byte that was not there */
    char path[NAME];
};

struct block { struct slot slots[SLOTS]; };

static struct block *_Atomic blocks[BLOCKS]; /* from mmap, kept for good */
static struct slot *_Atomic faulted;         /* the first; NULL: none */
static struct slot *_Atomic faulted_ahead;   /* ... of a thread that reads what
                                              * nobody has used yet */
static _Thread_local volatile sig_atomic_t ahead;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static size_t page_bytes;
static int next_slot; /* where a free one may be */

/* ---- the handler ---- */

static struct slot *slot_of(uintptr_t at)
{
    for (int b = 0; b < BLOCKS; b++) {
        struct block *block = atomic_load(&blocks[b]);

        if (block == NULL) return NULL;
        for (int i = 0; i < SLOTS; i++) {
            struct slot *slot = &block->slots[i];
            const uintptr_t begin = atomic_load(&slot->begin);

            if (begin != 0 && at >= begin &&
                at - begin < atomic_load(&slot->length))
                return slot;
        }
    }
    return NULL;
}

/* Zeros from the page that is gone to the end of the mapping. */
static bool put_zeros(const struct slot *slot, uintptr_t at)
{
    const uintptr_t page = at / page_bytes * page_bytes;
    const uintptr_t end = atomic_load(&slot->begin) +
                          atomic_load(&slot->length);

    return mmap((void *)page, end - page, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                0) != MAP_FAILED;
}

static void on_bus(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;
    struct slot *slot = slot_of(at), *none = NULL;

    (void)context;
    if (slot == NULL || !put_zeros(slot, at)) {
        sigaction(number, &before, NULL); /* it comes again, to whom it did */
        if (info->si_code <= 0) (void)raise(number); /* from kill: only once */
        return;
    }
    atomic_store(&slot->fault, at - atomic_load(&slot->begin) + 1);
    atomic_compare_exchange_strong(ahead ? &faulted_ahead : &faulted, &none,
                                   slot);
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus,
                               .sa_flags = SA_SIGINFO};

    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, &before);
}

/* ---- slots ---- */

static struct block *block_at(int index)
{
    struct block *block = atomic_load(&blocks[index]);
    void *memory;

    if (block != NULL) return block;
    memory = mmap(NULL, sizeof *block, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    atomic_store(&blocks[index], (struct block *)memory);
    return memory;
}

/* The end of a path says more than its start. */
static void keep_path(struct slot *slot, const char *path)
{
    const size_t length = strlen(path);

    if (length < NAME) {
        memcpy(slot->path, path, length + 1);
        return;
    }
    memcpy(slot->path, "...", 3);
    memcpy(slot->path + 3, path + length - (NAME - 4), NAME - 3);
}

int mapped_add(const void *bytes, size_t length, const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int ticket = 0;

    pthread_once(&once, install);
    pthread_mutex_lock(&lock);
    for (int i = next_slot; i < BLOCKS * SLOTS && ticket == 0; i++) {
        struct block *block = block_at(i / SLOTS);
        struct slot *slot;

        if (block == NULL) break;
        slot = &block->slots[i % SLOTS];
        if (atomic_load(&slot->begin) != 0 || atomic_load(&slot->fault) != 0)
            continue;
        keep_path(slot, path);
        atomic_store(&slot->length, length);
        atomic_store(&slot->begin, (uintptr_t)bytes);
        ticket = next_slot = i + 1;
    }
    pthread_mutex_unlock(&lock);
    return ticket;
}

/* A slot that had a fault keeps its path, and is not used again. */
void mapped_remove(int ticket)
{
    struct block *block;

    if (ticket == 0) return;
    pthread_mutex_lock(&lock);
    block = atomic_load(&blocks[(ticket - 1) / SLOTS]);
    atomic_store(&block->slots[(ticket - 1) % SLOTS].begin, 0);
    if (ticket - 1 < next_slot) next_slot = ticket - 1;
    pthread_mutex_unlock(&lock);
}

/* ---- asking ---- */

bool mapped_is_whole(void)
{
    return atomic_load(&faulted) == NULL;
}

void mapped_read_ahead(void)
{
    ahead = true;
}

static status check(const struct slot *slot)
{
    struct stat facts;
    size_t length, at;

    if (slot == NULL) return OK;
    length = atomic_load(&slot->length);
    at = atomic_load(&slot->fault) - 1;
    if (stat(slot->path, &facts) != 0 || (size_t)facts.st_size != length)
        FAIL(ERR_FORMAT, "%s: the file was cut while it was read: it had %zu "
             "bytes and has %lld; nothing that followed was kept", slot->path,
             length, stat(slot->path, &facts) == 0 ? (long long)facts.st_size
                                                   : 0LL);
    FAIL(ERR_IO, "%s: byte %zu of %zu could not be read (the disk failed, or "
         "the file was cut and written again)", slot->path, at, length);
}

status mapped_check(void)
{
    TRY(check(atomic_load(&faulted)));
    return check(atomic_load(&faulted_ahead));
}

status mapped_check_used(void)
{
    return check(atomic_load(&faulted));
}

void mapped_forget(void)
{
    struct slot *slots[] = {atomic_exchange(&faulted, NULL),
                            atomic_exchange(&faulted_ahead, NULL)};

    for (int i = 0; i < 2; i++)
        if (slots[i] != NULL) atomic_store(&slots[i]->fault, 0);
    install();
}
