/* SPDX-License-Identifier: Apache-2.0 */
/* system.c - a system that is not kind, loaded before the C library:
 *
 *     cc -shared -fPIC -o system.so tests/drills/system.c -ldl
 *     SYSTEM=clock,short LD_PRELOAD=./system.so lockstep ...
 *
 * clock: the wall clock jumps by a day to and fro, and to 1970, every 7th time
 * somebody asks. short: every third read or write is interrupted by a signal,
 * every other one moves half of its bytes. locks: the file system has none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic unsigned turns;

static int is_on(const char *what)
{
    const char *said = getenv("SYSTEM");

    return said != NULL && strstr(said, what) != NULL;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* ---- clock ---- */

static time_t jumped(time_t now)
{
    const unsigned turn = atomic_fetch_add(&turns, 1) / 7 % 4;

    if (!is_on("clock")) return now;
    return turn == 1 ? now + 86400 : turn == 2 ? now - 86400
         : turn == 3 ? 5 : now;
}

int clock_gettime(clockid_t which, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    int result;

    if (real == NULL) real = next("clock_gettime");
    result = real(which, t);
    if (which == CLOCK_REALTIME) t->tv_sec = jumped(t->tv_sec);
    return result;
}

time_t time(time_t *out)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (out != NULL) *out = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec t;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

/* ---- locks ---- */

int flock(int file, int operation)
{
    static int (*real)(int, int);

    if (real == NULL) real = next("flock");
    if (!is_on("locks")) return real(file, operation);
    errno = ENOSYS;
    return -1;
}

/* ---- short reads and writes ---- */

/* How many of so many bytes; -1: interrupted. */
static ssize_t some_of(size_t bytes)
{
    const unsigned turn = atomic_fetch_add(&turns, 1);

    if (!is_on("short")) return (ssize_t)bytes;
    if (turn % 3 == 2) {
        errno = EINTR;
        return -1;
    }
    return (ssize_t)(turn % 2 == 0 && bytes > 1 ? bytes / 2 : bytes);
}

#define MOVES(name, bytes_type)                                              \
    ssize_t name(int file, bytes_type *bytes, size_t length)                 \
    {                                                                        \
        static ssize_t (*real)(int, bytes_type *, size_t);                   \
        const ssize_t some = some_of(length);                                \
                                                                             \
        if (real == NULL) real = next(#name);                                \
        return some < 0 ? some : real(file, bytes, (size_t)some);            \
    }
#define MOVES_AT(name, bytes_type)                                           \
    ssize_t name(int file, bytes_type *bytes, size_t length, off_t at)       \
    {                                                                        \
        static ssize_t (*real)(int, bytes_type *, size_t, off_t);            \
        const ssize_t some = some_of(length);                                \
                                                                             \
        if (real == NULL) real = next(#name);                                \
        return some < 0 ? some : real(file, bytes, (size_t)some, at);        \
    }

MOVES(read, void)
MOVES(write, const void)
MOVES_AT(pread, void)
MOVES_AT(pread64, void)
MOVES_AT(pwrite, const void)
MOVES_AT(pwrite64, const void)
