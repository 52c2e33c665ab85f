/* SPDX-License-Identifier: Apache-2.0 */
/* file_own.c - files and directories inside a run: links are not followed,
 * pipes and devices are refused, and nothing is more open than its directory.
 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/temporaries.h"

enum {
    FILE_MODE = 0666, FILE_MODE_LEAST = 0600, /* further cut by the umask */
    DIRECTORY_MODE = 0777, DIRECTORY_MODE_LEAST = 0700,
    DIRECTORY_DEPTH_MAX = 16
};

/* A file system may have room for bytes, but none for another file. */
static bool has_no_file_left(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    char directory[PATH_BYTES] = ".";
    struct statvfs system;

    if (length >= sizeof directory) return false;
    if (length > 0) snprintf(directory, length + 1, "%s", path);
    return statvfs(directory, &system) == 0 && system.f_files > 0 &&
           system.f_favail == 0;
}

status file_fail(const char *doing, const char *path, int reason)
{
    if (reason == ENOENT || reason == ENOTDIR)
        FAIL(ERR_MISSING, "%s: no such file or directory", path);
    if (reason == ENOSPC && has_no_file_left(path))
        FAIL(ERR_IO, "%s: disk full: no file is left on it (df -i; %s)", path,
             doing);
    if (reason == ENOSPC || reason == EDQUOT)
        FAIL(ERR_IO, "%s: disk full (%s)", path, doing);
    if (reason == EMFILE)
        FAIL(ERR_IO, "%s: %s: as many files are open as this process may have "
                     "(ulimit -n)", path, doing);
    FAIL(ERR_IO, "%s: %s: %s", path, doing, strerror(reason));
}

status file_absent(const char *path)
{
    const status result = file_fail("opening it", path, ENOENT);
    char folder[PATH_BYTES];

    if (path[0] == '/' || getcwd(folder, sizeof folder) == NULL) return result;
    return status_hint(result, "relative paths begin in the directory of the "
                               "command, here %s", folder);
}

static status refuse_link(const char *path)
{
    status result;

    result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                         "%s: is a link; Lockstep does not write through "
                         "links inside a run", path);
    return status_hint(result, "remove the link; to keep a run elsewhere, "
                               "link or name its whole directory");
}

/* ---- places: a directory and a name in it ---- */

status file_place_open(struct file_place *place, const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    char directory[PATH_BYTES] = ".";
    struct stat facts;
    int reason;

    *place = (struct file_place){
        .directory = -1, .name = path + length,
        .file_mode = FILE_MODE, .directory_mode = DIRECTORY_MODE};
    if (length >= sizeof directory)
        FAIL(ERR_CONFIG, "%.60s...: path longer than %d bytes", path,
             PATH_BYTES);
    if (length > 0) {
        memcpy(directory, path, length);
        directory[length] = '\0';
    }
    place->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (place->directory < 0 || fstat(place->directory, &facts) != 0) {
        reason = errno;
        file_place_close(place);
        return file_fail("opening its directory", path, reason);
    }
    place->file_mode = (facts.st_mode & FILE_MODE) | FILE_MODE_LEAST;
    place->directory_mode =
        (facts.st_mode & DIRECTORY_MODE) | DIRECTORY_MODE_LEAST;
    return OK;
}

void file_place_close(struct file_place *place)
{
    if (place->directory >= 0) close(place->directory);
    place->directory = -1;
}

/* ---- files ---- */

/* A pipe answers ENXIO to a writer when nobody reads. */
static status refuse_open(const char *path, int reason)
{
    if (reason == ELOOP) return refuse_link(path);
    if (reason == ENXIO || reason == ENODEV || reason == EISDIR)
        FAIL(ERR_FORMAT, "%s: expected a regular file", path);
    return file_fail("opening", path, reason);
}

static status check_regular(const char *path, int descriptor)
{
    struct stat facts;

    if (fstat(descriptor, &facts) != 0)
        return file_fail("examining", path, errno);
    if (S_ISREG(facts.st_mode)) return OK;
    FAIL(ERR_FORMAT, "%s: expected a regular file, found %s", path,
         S_ISFIFO(facts.st_mode)  ? "a named pipe"
         : S_ISDIR(facts.st_mode) ? "a directory" : "a device");
}

status file_open_own(const char *path, int flags, int *descriptor)
{
    struct file_place place;
    status result;
    int reason;

    *descriptor = -1;
    result = file_place_open(&place, path);
    if (result == ERR_MISSING && flags & O_CREAT)
        FAIL(ERR_IO, "%s: cannot be written; its directory does not exist",
             path);
    TRY(result);
    do
        *descriptor = openat(place.directory, place.name,
                             flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
                                 O_CLOEXEC, place.file_mode);
    while (*descriptor < 0 && errno == EINTR);
    reason = errno;
    file_place_close(&place);
    if (*descriptor < 0) return refuse_open(path, reason);
    result = check_regular(path, *descriptor);
    if (result == OK) return OK;
    close(*descriptor);
    *descriptor = -1;
    return result;
}

status file_create(const char *path, FILE **file)
{
    int descriptor, reason;

    *file = NULL;
    TRY(file_open_own(path, O_RDWR | O_CREAT | O_EXCL, &descriptor));
    *file = fdopen(descriptor, "w+b");
    if (*file != NULL) return OK;
    reason = errno;
    close(descriptor);
    return file_fail("opening", path, reason);
}

status file_check_own(const char *path)
{
    int descriptor;

    TRY(file_open_own(path, O_RDONLY, &descriptor));
    close(descriptor);
    return OK;
}

status file_cut(const char *path, int64_t bytes)
{
    status result = OK;
    int descriptor;

    TRY(file_open_own(path, O_WRONLY, &descriptor));
    if (ftruncate(descriptor, (off_t)bytes) != 0)
        FAIL_GOTO(done, result, ERR_IO, "%s: cannot cut to %lld bytes: %s",
                  path, (long long)bytes, strerror(errno));
done:
    close(descriptor);
    return result;
}

/* ---- directories ---- */

bool file_is_link(const char *path)
{
    struct stat facts;

    return lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode);
}

status directory_check_own(const char *path)
{
    struct stat facts;

    if (lstat(path, &facts) != 0)
        return errno == ENOENT ? OK : file_fail("examining", path, errno);
    if (S_ISLNK(facts.st_mode)) return refuse_link(path);
    if (!S_ISDIR(facts.st_mode))
        FAIL(ERR_IO, "%s exists and is not a directory", path);
    return OK;
}

/* Makes one directory; *made false: something of that name is there. */
static status make_one(const char *path, mode_t most, bool *made)
{
    struct file_place place;
    int reason;

    TRY(file_place_open(&place, path));
    *made = mkdirat(place.directory, place.name,
                    place.directory_mode & most) == 0;
    reason = errno;
    file_place_close(&place);
    if (*made || reason == EEXIST) return OK;
    return file_fail("making a directory", path, reason);
}

status directory_make_own(const char *path)
{
    bool made;

    TRY(make_one(path, DIRECTORY_MODE, &made));
    return made ? OK : directory_check_own(path);
}

status directory_make_new(const char *path)
{
    bool made;

    TRY(make_one(path, DIRECTORY_MODE, &made));
    if (!made) FAIL(ERR_IO, "%s: is there already", path);
    return OK;
}

/* The umask without changing it, which would be seen by other threads. */
static mode_t plain_directory_mode(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned mask = 022;
    char line[128];

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Umask: %o", &mask) == 1) break;
    if (file != NULL) fclose(file);
    return DIRECTORY_MODE & ~(mode_t)mask;
}

/* An empty directory that has just the permissions which mkdir gives stands
 * for no choice. One with other permissions does. */
static status make_private(const char *path)
{
    char **names;
    struct stat facts;
    int count;

    TRY(directory_list(path, &names, &count));
    directory_list_free(names, count);
    if (count > 0 || stat(path, &facts) != 0 || facts.st_uid != geteuid() ||
        (facts.st_mode & 07777) != plain_directory_mode())
        return OK;
    if (chmod(path, DIRECTORY_MODE_LEAST) != 0)
        return file_fail("changing its permissions", path, errno);
    return OK;
}

status directory_make_private(const char *path)
{
    char whole[PATH_BYTES];
    size_t length = strlen(path);
    char *slash;
    bool made;

    if (length == 0) FAIL(ERR_CONFIG, "an empty path names no directory");
    TRY(path_join(whole, sizeof whole, "", path));
    length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/') whole[--length] = '\0';
    slash = strrchr(whole, '/');
    if (slash != NULL && slash != whole) {
        *slash = '\0';
        TRY(directory_make(whole));
        *slash = '/';
    }
    if (file_exists(whole)) {
        if (!file_is_directory(whole))
            FAIL(ERR_IO, "%s exists and is not a directory", whole);
        return make_private(whole);
    }
    TRY(make_one(whole, DIRECTORY_MODE_LEAST, &made));
    return made ? OK : directory_check_own(whole);
}

/* ---- removing ---- */

static status empty(int descriptor, const char *path, int depth);

static status remove_entry(int directory, const char *name, const char *path,
                           int depth)
{
    char inner[PATH_BYTES];
    struct stat facts;
    int descriptor;

    TRY(path_join(inner, sizeof inner, path, name));
    if (fstatat(directory, name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
        return file_fail("examining", inner, errno);
    if (!S_ISDIR(facts.st_mode)) {
        if (unlinkat(directory, name, 0) == 0) return OK;
        return file_fail("removing", inner, errno);
    }
    if (depth >= DIRECTORY_DEPTH_MAX)
        FAIL(ERR_IO, "%s: more than %d directories deep", inner,
             DIRECTORY_DEPTH_MAX);
    descriptor = openat(directory, name,
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) return file_fail("opening", inner, errno);
    TRY(empty(descriptor, inner, depth + 1));
    if (unlinkat(directory, name, AT_REMOVEDIR) == 0) return OK;
    return file_fail("removing", inner, errno);
}

/* Takes the descriptor. Reads from the start again after each entry: what a
 * listing says after a removal is not defined. */
static status empty(int descriptor, const char *path, int depth)
{
    DIR *directory = fdopendir(descriptor);
    const struct dirent *entry;
    char name[256];
    status result = OK;

    if (directory == NULL) {
        const int reason = errno;

        close(descriptor);
        return file_fail("opening", path, reason);
    }
    while ((entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0) continue;
        if (strcmp(entry->d_name, "..") == 0) continue;
        snprintf(name, sizeof name, "%s", entry->d_name);
        TRY_GOTO(done, result, remove_entry(dirfd(directory), name, path,
                                            depth));
        rewinddir(directory);
    }
done:
    closedir(directory);
    return result;
}

status directory_remove(const char *path)
{
    char whole[PATH_BYTES], around[PATH_BYTES];
    struct file_place place;
    const char *slash;
    size_t length;
    status result;

    TRY(path_join(whole, sizeof whole, "", path));
    length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/') whole[--length] = '\0';
    TRY(file_place_open(&place, whole));
    slash = strrchr(whole, '/');
    snprintf(around, sizeof around, "%.*s",
             slash == NULL ? 0 : (int)(slash - whole) + 1, whole);
    result = remove_entry(place.directory, place.name, around, 0);
    temporary_forget(path);
    file_place_close(&place);
    return result;
}

/* Past a number in digits of `set`, or NULL. */
static const char *past_number(const char *at, const char *set)
{
    const size_t digits = at == NULL ? 0 : strspn(at, set);

    return digits == 0 ? NULL : at + digits;
}

bool file_is_temporary(const char *name, char *of)
{
    static const char MARK[] = ".tmp-", DIGITS[] = "0123456789";
    const char *mark = NULL, *at;

    for (at = strstr(name, MARK); at != NULL; at = strstr(at + 1, MARK))
        mark = at; /* the last one */
    if (mark == NULL || mark == name || mark - name >= PATH_BYTES) return false;
    at = past_number(mark + sizeof MARK - 1, DIGITS);
    at = at != NULL && *at == '-' ? past_number(at + 1, DIGITS) : NULL;
    if (at == NULL || *at != '-' || strlen(at + 1) != 16 ||
        strspn(at + 1, "0123456789abcdef") != 16)
        return false;
    snprintf(of, PATH_BYTES, "%.*s", (int)(mark - name), name);
    return true;
}

status directory_clean(const char *path, bool (*ours)(const char *name))
{
    char file[PATH_BYTES], of[PATH_BYTES];
    char **names = NULL;
    int count = 0;
    status result = OK;

    TRY(directory_list(path, &names, &count));
    for (int i = 0; i < count; i++) {
        if (!file_is_temporary(names[i], of) || !ours(of)) continue;
        TRY_GOTO(done, result, path_join(file, sizeof file, path, names[i]));
        unlink(file); /* a directory stays */
    }
done:
    directory_list_free(names, count);
    return result;
}
