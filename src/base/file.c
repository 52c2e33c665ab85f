/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - whole files, mapped files, directories, locks. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/mapped_files.h"
#include "base/temporaries.h"

static status open_to_read(const char *path, int flags, int *descriptor,
                           struct stat *facts)
{
    *descriptor = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (*descriptor < 0) TRY(file_fail("opening", path, errno));
    if (fstat(*descriptor, facts) != 0) {
        const int reason = errno;

        close(*descriptor);
        *descriptor = -1;
        TRY(file_fail("examining", path, reason));
    }
    if (S_ISDIR(facts->st_mode)) {
        close(*descriptor);
        *descriptor = -1;
        FAIL(ERR_IO, "%s is a directory, a file is needed", path);
    }
    return OK;
}

static status read_all(int descriptor, const char *path, size_t bytes_max,
                       struct text *out)
{
    static const size_t most = 1 << 16;
    char allowed[32];
    void *buffer = NULL;
    status result = OK;

    TRY(memory_take(most, 1, &buffer));
    for (;;) {
        const ssize_t got = read(descriptor, buffer, most);

        if (got == 0) break;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            TRY_GOTO(done, result, file_fail("reading", path, errno));
        if ((size_t)got > bytes_max - out->length)
            FAIL_GOTO(done, result, ERR_FORMAT, "%s is larger than %s", path,
                      text_bytes(allowed, bytes_max));
        TRY_GOTO(done, result, text_append(out, buffer, (size_t)got));
    }
    TRY_GOTO(done, result, text_append(out, "", 0)); /* the NUL */
done:
    memory_free(buffer);
    return result;
}

static status read_file(const char *path, bool regular, size_t bytes_max,
                        struct text *out)
{
    char size[32], allowed[32];
    struct stat facts;
    int descriptor;
    status result;

    *out = (struct text){0};
    TRY(open_to_read(path, regular ? O_NONBLOCK : 0, &descriptor, &facts));
    if (regular && !S_ISREG(facts.st_mode))
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: expected a regular file",
                  path);
    if (S_ISREG(facts.st_mode) && (uint64_t)facts.st_size > bytes_max)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s has %s; the limit is %s",
                  path, text_bytes(size, (uint64_t)facts.st_size),
                  text_bytes(allowed, bytes_max));
    TRY_GOTO(done, result, read_all(descriptor, path, bytes_max, out));
done:
    close(descriptor);
    if (result != OK) text_free(out);
    return result;
}

status file_read(const char *path, size_t bytes_max, struct text *out)
{
    return read_file(path, false, bytes_max, out);
}

status file_read_regular(const char *path, size_t bytes_max,
                         struct text *out)
{
    return read_file(path, true, bytes_max, out);
}

status file_read_own(const char *path, size_t bytes_max, struct text *out)
{
    int descriptor;
    status result;

    *out = (struct text){0};
    TRY(file_open_own(path, O_RDONLY, &descriptor));
    result = read_all(descriptor, path, bytes_max, out);
    close(descriptor);
    if (result != OK) text_free(out);
    return result;
}

status file_get(int descriptor, const char *path, void *bytes, size_t length,
                int64_t offset, size_t *got)
{
    *got = 0;
    while (*got < length) {
        const ssize_t some = pread(descriptor, (char *)bytes + *got,
                                   length - *got,
                                   (off_t)(offset + (int64_t)*got));

        if (some < 0 && errno == EINTR) continue;
        if (some < 0) TRY(file_fail("reading", path, errno));
        if (some <= 0) break;
        *got += (size_t)some;
    }
    return OK;
}

status file_put(int descriptor, const char *path, const void *bytes,
                size_t length)
{
    const char *at = bytes;

    while (length > 0) {
        const ssize_t put = write(descriptor, at, length);

        if (put < 0 && errno == EINTR) continue;
        if (put < 0) TRY(file_fail("writing", path, errno));
        at += put;
        length -= (size_t)put;
    }
    return OK;
}

/* Directory of a path: "." for a bare name. */
static status directory_of(char *out, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 1 : (size_t)(slash - path);

    if (slash == path) length = 1; /* "/name": the root */
    if (length >= size)
        FAIL(ERR_CONFIG, "%.60s...: path longer than %d bytes", path,
             PATH_BYTES);
    memcpy(out, slash == NULL ? "." : path, length);
    out[length] = '\0';
    return OK;
}

struct writing {
    const void *bytes;
    size_t length;
    bool sync;
    bool named; /* by the user: the umask alone says who may read it */
};

static status write_then_rename(const struct file_place *place,
                                const char *temporary, const char *path,
                                const struct writing *writing)
{
    const int descriptor =
        openat(place->directory, temporary,
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
               writing->named ? 0666 : place->file_mode);
    status result;

    if (descriptor < 0) TRY(file_fail("creating", path, errno));
    TRY_GOTO(done, result, fault_point("file.write"));
    TRY_GOTO(done, result, file_put(descriptor, path, writing->bytes,
                                    writing->length));
    if (writing->sync && fsync(descriptor) != 0)
        TRY_GOTO(done, result, file_fail("syncing", path, errno));
    TRY_GOTO(done, result, fault_point("file.rename"));
    TRY_GOTO(done, result, mapped_check());
done:
    /* A network file system may report a full disk only now. */
    if (close(descriptor) != 0 && result == OK)
        result = file_fail("closing", path, errno);
    if (result == OK && renameat(place->directory, temporary,
                                 place->directory, place->name) != 0)
        result = file_fail("renaming", path, errno);
    if (result != OK) unlinkat(place->directory, temporary, 0);
    return result;
}

/* Process ids alone repeat: each container has a process 1. */
status file_temporary_name(const char *path, char *name)
{
    static _Atomic unsigned serial;
    uint64_t drawn;
    int needed;

    if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) !=
        (ssize_t)sizeof drawn) {
        drawn = (uint64_t)clock_wall_ns();
    }
    needed = snprintf(name, PATH_BYTES, "%s.tmp-%ld-%u-%016llx", path,
                      (long)getpid(), atomic_fetch_add(&serial, 1),
                      (unsigned long long)drawn);
    if (needed < 0 || needed >= PATH_BYTES)
        FAIL(ERR_CONFIG, "%.60s...: path longer than %d bytes", path,
             PATH_BYTES);
    return OK;
}

static status write_beside(const char *path, const struct writing *writing)
{
    char temporary[PATH_BYTES];
    struct file_place place;
    status result;

    TRY(file_temporary_name(path, temporary));
    TRY(file_place_open(&place, path));
    if (writing->named) temporary_note(temporary);
    result = write_then_rename(&place, temporary + (place.name - path), path,
                               writing);
    if (writing->named) temporary_forget(temporary);
    file_place_close(&place);
    return result;
}

static status write_through(const char *path, const void *bytes,
                            size_t length)
{
    const int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    status result;

    if (descriptor < 0) TRY(file_fail("opening", path, errno));
    result = file_put(descriptor, path, bytes, length);
    if (close(descriptor) != 0 && result == OK)
        result = file_fail("closing", path, errno);
    return result;
}

/* Pipes and devices (/dev/stdout): a rename would put a file in their place. */
static bool is_special(const char *path)
{
    struct stat facts;

    return stat(path, &facts) == 0 && !S_ISREG(facts.st_mode) &&
           !S_ISDIR(facts.st_mode);
}

status file_write_cache(const char *path, const void *bytes, size_t length)
{
    const struct writing writing = {.bytes = bytes, .length = length};

    return write_beside(path, &writing);
}

static status write_synced(const char *path, const struct writing *writing)
{
    char directory[PATH_BYTES];

    TRY(directory_of(directory, sizeof directory, path));
    TRY(write_beside(path, writing));
    return directory_sync(directory);
}

status file_write_atomic(const char *path, const void *bytes, size_t length)
{
    return write_synced(path, &(struct writing){bytes, length, true, false});
}

/* A name that the user gave cannot be of a file to write. */
static status check_named(const char *path)
{
    if (path[0] == 0) FAIL(ERR_IO, "a file to write has an empty name");
    if (file_is_directory(path))
        FAIL(ERR_IO, "%s is a directory, not a file to write", path);
    return OK;
}

status file_write_named(const char *path, const void *bytes, size_t length)
{
    TRY(check_named(path));
    if (is_special(path)) return write_through(path, bytes, length);
    return write_synced(path, &(struct writing){bytes, length, true, true});
}

status file_may_write(const char *path)
{
    char directory[PATH_BYTES];

    if (path == NULL) return OK;
    TRY(check_named(path));
    if (is_special(path)) return OK;
    TRY(directory_of(directory, sizeof directory, path));
    if (access(directory, W_OK) != 0)
        TRY(file_fail("writing into", directory, errno));
    return OK;
}

status file_may_replace(const char *path)
{
    TRY(file_may_write(path));
    if (path != NULL && is_special(path))
        FAIL(ERR_IO, "%s is a pipe or a device; expected the name of a file, "
                     "which is made beside it and renamed", path);
    return OK;
}

status file_map_open(struct file_map *map, const char *path)
{
    struct stat facts;
    int descriptor;
    status result = OK;
    void *bytes;

    *map = (struct file_map){0};
    TRY(open_to_read(path, O_NONBLOCK, &descriptor, &facts));
    if (!S_ISREG(facts.st_mode))
        FAIL_GOTO(done, result, ERR_FORMAT,
                  "%s: expected a regular file", path);
    if (facts.st_size == 0) goto done; /* mmap refuses empty files */
    bytes = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE,
                 descriptor, 0);
    if (bytes == MAP_FAILED)
        TRY_GOTO(done, result, file_fail("mapping", path, errno));
    map->bytes = bytes;
    map->length = (size_t)facts.st_size;
    map->ticket = mapped_add(bytes, map->length, path);
done:
    close(descriptor);
    return result;
}

void file_map_drop(const struct file_map *map)
{
    if (map->bytes == NULL) return;
    /* Advice: where it is not taken, memory is only higher. */
    (void)madvise((void *)(uintptr_t)map->bytes, map->length, MADV_DONTNEED);
}

void file_map_close(struct file_map *map)
{
    mapped_remove(map->ticket);
    if (map->bytes != NULL) munmap((void *)(uintptr_t)map->bytes, map->length);
    *map = (struct file_map){0};
}

bool file_exists(const char *path)
{
    struct stat facts;

    return stat(path, &facts) == 0;
}

bool file_is_same(const char *one, const char *other)
{
    struct stat a, b;

    return stat(one, &a) == 0 && stat(other, &b) == 0 && S_ISREG(a.st_mode) &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool file_is_gone(const char *path)
{
    struct stat facts;

    return stat(path, &facts) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool file_is_directory(const char *path)
{
    struct stat facts;

    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

status file_size(const char *path, int64_t *bytes)
{
    struct stat facts;

    *bytes = 0;
    if (stat(path, &facts) != 0) TRY(file_fail("examining", path, errno));
    *bytes = facts.st_size;
    return OK;
}

/* The mode of a directory to be made. If its parent directory cannot be opened,
 * mkdir reports why. */
static mode_t mode_inside(const char *path)
{
    struct file_place place;
    mode_t mode = 0777;

    if (file_place_open(&place, path) == OK) mode = place.directory_mode;
    else status_clear();
    file_place_close(&place);
    return mode;
}

status directory_make(const char *path)
{
    char part[PATH_BYTES];
    const size_t length = strlen(path);

    if (length == 0) FAIL(ERR_CONFIG, "an empty path names no directory");
    if (length >= sizeof part)
        FAIL(ERR_CONFIG, "%.60s...: path longer than %d bytes", path,
             PATH_BYTES);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        part[i] = '\0';
        if (mkdir(part, mode_inside(part)) != 0 && errno != EEXIST) {
            if (errno == ENOTDIR || errno == ENOENT)
                FAIL(ERR_IO, "%s: cannot create the directory: %s", part,
                     strerror(errno));
            TRY(file_fail("making a directory", part, errno));
        }
        part[i] = path[i];
    }
    if (!file_is_directory(path))
        FAIL(ERR_IO, "%s exists and is not a directory", path);
    return OK;
}

status directory_make_temporary(char *out, const char *name)
{
    const char *set = getenv("TMPDIR");
    const char *place = set == NULL || set[0] == '\0' ? "/tmp" : set;
    const int length = snprintf(out, PATH_BYTES, "%s/lockstep-%s-XXXXXX",
                                place, name);

    if (length < PATH_BYTES && mkdtemp(out) != NULL) {
        temporary_note(out);
        return OK;
    }
    out[0] = '\0';
    FAIL(ERR_IO, "%.200s: cannot make a temporary directory there: %s; TMPDIR "
         "can name another place", place,
         length < PATH_BYTES ? strerror(errno) : "the path is too long");
}

status directory_sync(const char *path)
{
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int reason;

    if (descriptor < 0) TRY(file_fail("opening", path, errno));
    reason = fsync(descriptor) == 0 ? 0 : errno;
    close(descriptor);
    /* Some file systems cannot sync a directory; that is not a failure. */
    if (reason != 0 && reason != EINVAL && reason != ENOTSUP)
        TRY(file_fail("syncing", path, reason));
    return OK;
}

/* The first entry of a directory that is neither . nor ..; false at the end. */
static bool first_entry(DIR *directory, char name[256])
{
    struct dirent *entry;

    while ((entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0) continue;
        if (strcmp(entry->d_name, "..") == 0) continue;
        snprintf(name, 256, "%s", entry->d_name);
        return true;
    }
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static status list_add(char ***names, int *count, int *capacity,
                       const char *name)
{
    const size_t bytes = strlen(name) + 1;
    void *copy;

    if (*count == *capacity) {
        void *grown = *names;

        CHECK(*capacity < 1 << 28);
        *capacity = *capacity == 0 ? 16 : *capacity * 2;
        TRY(memory_grow(&grown, (size_t)*capacity, sizeof **names));
        *names = grown;
    }
    TRY(memory_take(bytes, 1, &copy));
    memcpy(copy, name, bytes);
    (*names)[(*count)++] = copy;
    return OK;
}

status directory_list(const char *path, char ***names, int *count)
{
    DIR *directory = opendir(path);
    status result = OK;
    int capacity = 0;
    char name[256];

    *names = NULL;
    *count = 0;
    if (directory == NULL) TRY(file_fail("opening", path, errno));
    while (first_entry(directory, name))
        TRY_GOTO(done, result, list_add(names, count, &capacity, name));
    if (*count > 0) qsort(*names, (size_t)*count, sizeof **names, by_bytes);
done:
    closedir(directory);
    if (result != OK) {
        directory_list_free(*names, *count);
        *names = NULL;
        *count = 0;
    }
    return result;
}

void directory_list_free(char **names, int count)
{
    for (int i = 0; i < count; i++) memory_free(names[i]);
    memory_free(names);
}

status path_absolute(const char *path, char *out)
{
    char folder[PATH_BYTES] = "";

    if (path[0] != '/' && getcwd(folder, sizeof folder) == NULL)
        FAIL(ERR_IO, "the name of this folder is too long");
    return path_join(out, PATH_BYTES, folder, path);
}

status path_join(char *out, size_t size, const char *directory,
                 const char *name)
{
    size_t length = strlen(directory);
    int needed;

    while (length > 1 && directory[length - 1] == '/') length--;
    while (length > 0 && *name == '/') name++;
    if (length == 0) /* no directory: the name as it is */
        needed = snprintf(out, size, "%s", name);
    else if (length == 1 && directory[0] == '/')
        needed = snprintf(out, size, "/%s", name);
    else
        needed = snprintf(out, size, "%.*s/%s", (int)length, directory, name);
    if (needed < 0 || (size_t)needed >= size)
        FAIL(ERR_CONFIG, "%.60s...: path longer than %zu bytes", directory,
             size - 1);
    return OK;
}

/* flock belongs to the open file: it ends with the process, and two takers in
 * one process exclude each other as well. */
status file_lock_take(struct file_lock *lock, const char *path)
{
    int descriptor;
    char holder[32] = "";
    ssize_t length;
    int reason;

    *lock = (struct file_lock){.descriptor = -1};
    TRY(file_open_own(path, O_RDWR | O_CREAT, &descriptor));
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        const int digits =
            snprintf(holder, sizeof holder, "%ld\n", (long)getpid());

        /* The number only helps the message: failing to write it is no
         * reason to refuse the lock. */
        if (ftruncate(descriptor, 0) == 0 &&
            pwrite(descriptor, holder, (size_t)digits, 0) != digits)
            (void)!ftruncate(descriptor, 0);
        lock->descriptor = descriptor;
        return OK;
    }
    reason = errno;
    length = pread(descriptor, holder, sizeof holder - 1, 0);
    close(descriptor);
    if (reason == ENOSYS || reason == EOPNOTSUPP || reason == ENOLCK)
        FAIL(ERR_IO, "%s: its file system has no locks, which keep two runs "
             "out of one directory (%s); mount it with them (Lustre: -o "
             "flock), or choose another directory", path, strerror(reason));
    if (reason != EWOULDBLOCK) TRY(file_fail("locking", path, reason));
    holder[length > 0 ? length : 0] = '\0';
    holder[strspn(holder, "0123456789")] = '\0';
    FAIL(ERR_CONFIG, "%s: in use by process %s", path,
         holder[0] != '\0' ? holder : "unknown");
}

void file_lock_drop(struct file_lock *lock)
{
    if (lock->descriptor > 0) close(lock->descriptor);
    *lock = (struct file_lock){.descriptor = -1};
}

status file_lock_look(const char *path)
{
    struct file_lock lock;

    if (!file_exists(path)) return OK;
    TRY(file_lock_take(&lock, path));
    file_lock_drop(&lock);
    return OK;
}
