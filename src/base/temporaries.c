/* SPDX-License-Identifier: Apache-2.0 */
/* temporaries.c - files and directories that go with the process.
 *
 * The handler may run on any thread at any time: it reads slots that are whole
 * and makes system calls, and nothing else. */
#include "base/temporaries.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/file.h"

enum { SLOTS = 64, LISTED = 4096, DEPTH = 4 };

/* The version is odd while the path changes: the handler sees it as it is, or
 * leaves it alone. */
struct slot {
    _Atomic unsigned version;
    _Atomic bool noted;
    pid_t owner; /* a child that did not note it leaves it alone */
    char path[PATH_BYTES];
};

static struct slot slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct slot *slot_of(const char *path)
{
    for (int i = 0; i < SLOTS; i++)
        if (path == NULL ? !slots[i].noted
                         : slots[i].noted && strcmp(slots[i].path, path) == 0)
            return &slots[i];
    return NULL;
}

void temporary_note(const char *path)
{
    const size_t length = strlen(path);
    struct slot *slot;

    if (length >= PATH_BYTES) return;
    pthread_mutex_lock(&lock);
    slot = slot_of(NULL);
    if (slot != NULL) {
        atomic_fetch_add(&slot->version, 1);
        slot->owner = getpid();
        memcpy(slot->path, path, length + 1);
        atomic_store(&slot->noted, true);
        atomic_fetch_add(&slot->version, 1);
    }
    pthread_mutex_unlock(&lock);
}

void temporary_forget(const char *path)
{
    struct slot *slot;

    pthread_mutex_lock(&lock);
    slot = slot_of(path);
    if (slot != NULL) atomic_store(&slot->noted, false);
    pthread_mutex_unlock(&lock);
}

/* ---- the handler ---- */

static bool empty(int directory, int depth);

static bool remove_at(int directory, const char *name, int depth)
{
    int inner;

    if (unlinkat(directory, name, 0) == 0) return true;
    inner = openat(directory, name,
                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0) return false;
    while (depth > 0 && empty(inner, depth - 1)) continue;
    close(inner);
    return unlinkat(directory, name, AT_REMOVEDIR) == 0;
}

/* As the kernel lists it: the C library's functions may hold locks. */
struct listed {
    uint64_t number;
    int64_t offset;
    unsigned short bytes;
    unsigned char type;
    char name[];
};

/* Removes what one look at the directory shows; false: nothing. */
static bool empty(int directory, int depth)
{
    _Alignas(struct listed) char bytes[LISTED];
    bool removed = false;
    long got;

    if (lseek(directory, 0, SEEK_SET) != 0) return false;
    while ((got = syscall(SYS_getdents64, directory, bytes, sizeof bytes)) > 0)
        for (long at = 0; at < got;) {
            const struct listed *entry = (const void *)(bytes + at);

            at += entry->bytes;
            if (strcmp(entry->name, ".") == 0) continue;
            if (strcmp(entry->name, "..") == 0) continue;
            removed |= remove_at(directory, entry->name, depth);
        }
    return removed;
}

static void remove_slot(const struct slot *slot)
{
    const unsigned version = atomic_load(&slot->version);
    char path[PATH_BYTES];

    if (version % 2 != 0 || !atomic_load(&slot->noted)) return;
    memcpy(path, slot->path, sizeof path);
    if (slot->owner != getpid() || atomic_load(&slot->version) != version)
        return;
    (void)remove_at(AT_FDCWD, path, DEPTH);
}

/* The action is the default again: the signal, held back in the handler, ends
 * the process once it is not. */
static void on_signal(int number)
{
    sigset_t set;

    for (int i = 0; i < SLOTS; i++) remove_slot(&slots[i]);
    (void)raise(number);
    sigemptyset(&set);
    sigaddset(&set, number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* it ends here */
    _exit(128 + number); /* process 1 has no default action */
}

void temporaries_guard(void)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction action = {.sa_handler = on_signal,
                                   .sa_flags = (int)SA_RESETHAND};
        struct sigaction now;

        sigemptyset(&action.sa_mask);
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            (void)sigaction(ending[i], &action, NULL);
    }
}
