/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - whole files, mapped files, directories, checksums, locks.
 *
 * Every error is one sentence with the path and the system's reason. Nothing
 * is left half-written: file_write_atomic writes beside, fsyncs and renames.
 *
 * A path that a user names may be a link, a pipe or a device. What Lockstep
 * makes inside a run is a regular file or a directory: functions whose name
 * ends with _own, file_read_regular and directory_remove hold to that, whatever
 * stands there. A new file or directory has no permission for others that the
 * directory around it does not give. */
#ifndef LOCKSTEP_BASE_FILE_H
#define LOCKSTEP_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "base/status.h"
#include "base/text.h"

/* The whole file; ERR_MISSING, ERR_IO, or ERR_FORMAT beyond bytes_max. */
status file_read(const char *path, size_t bytes_max, struct text *out);
/* Like file_read; ERR_FORMAT for a pipe or a device, at once. Links are
 * followed. */
status file_read_regular(const char *path, size_t bytes_max,
                         struct text *out);
/* A name beside `path` that no other writer has, be it on another machine that
 * shares the directory: "<path>.tmp-...", in name[PATH_BYTES]. ERR_CONFIG: too
 * long. */
status file_temporary_name(const char *path, char *name);
/* Whether `name` is one, to its last byte; of [PATH_BYTES]: the file it is of.
 */
bool file_is_temporary(const char *name, char *of);
/* Temporary name in the same directory, fsync, rename, fsync directory: takes
 * the place of a link or a pipe, and never writes through it. ERR_IO says
 * "disk full" by name when it is. */
status file_write_atomic(const char *path, const void *bytes, size_t length);
/* Like file_write_atomic, for a path that the user names: pipes and devices
 * (/dev/stdout) are written as they are, and the umask alone says who may read
 * a new file. */
status file_write_named(const char *path, const void *bytes, size_t length);
/* The same without waiting for the disk, for what can be made again: when the
 * machine itself stops, the file may be there and not be whole. */
status file_write_cache(const char *path, const void *bytes, size_t length);
/* Could that be written, as far as can be seen beforehand? For what comes after
 * long work. NULL: nothing is asked. */
status file_may_write(const char *path);
/* file_may_write of a path whose file is written in parts and then renamed. No
 * pipe and no device: a file in its place would be the end of /dev/null. */
status file_may_replace(const char *path);

/* ERR_IO or ERR_MISSING from errno: "path: doing: reason". */
status file_fail(const char *doing, const char *path, int reason);
/* ERR_MISSING of a path that a configuration names; if it is relative, the hint
 * says from which directory. */
status file_absent(const char *path);

/* The directory of a path, open, and the name in it. */
struct file_place {
    int directory;         /* O_PATH; -1: closed */
    const char *name;      /* borrowed from the path */
    mode_t file_mode, directory_mode; /* of what is made there */
};
status file_place_open(struct file_place *place, const char *path);
void file_place_close(struct file_place *place);

/* open(2) of a regular file inside a run. ERR_FORMAT: a link, a pipe, a
 * device; never waits for the other end of a pipe. */
status file_open_own(const char *path, int flags, int *descriptor);
/* A new file, to be written and read; ERR_IO if the name is taken. */
status file_create(const char *path, FILE **file);
/* The whole file, opened once; ERR_FORMAT beyond bytes_max. */
status file_read_own(const char *path, size_t bytes_max, struct text *out);
/* Bytes from `offset` on, as many as are asked for or fewer where the file
 * ends; interrupted calls are repeated. ERR_IO; `path` is for its sentence. */
status file_get(int descriptor, const char *path, void *bytes, size_t length,
                int64_t offset, size_t *got);
/* All bytes to an open file. */
status file_put(int descriptor, const char *path, const void *bytes,
                size_t length);
/* ERR_FORMAT unless `path` is a regular file and no link. */
status file_check_own(const char *path);
status file_cut(const char *path, int64_t bytes); /* as file_open_own */

struct file_map {
    const unsigned char *bytes; /* owned mapping; NULL when closed or empty */
    size_t length;              /* bytes */
    int ticket;                 /* of mapped_files.h: the file may shrink */
};
/* Read-only. Regular files only; a pipe is refused at once. */
status file_map_open(struct file_map *map, const char *path);
void file_map_close(struct file_map *map);
/* Gives back the memory of pages that were read; touched again, they come from
 * the file (from the system's cache, as a rule). Never changes a byte. */
void file_map_drop(const struct file_map *map);

bool file_exists(const char *path);
/* Two names of one regular file that is there. */
bool file_is_same(const char *one, const char *other);
bool file_is_gone(const char *path); /* not there; other errors are no answer */
bool file_is_directory(const char *path);
status file_size(const char *path, int64_t *bytes);
status directory_make(const char *path);     /* with parents; exists: OK */
/* An empty one of the caller's own in $TMPDIR (/tmp), whose name begins with
 * lockstep and `name`; the caller removes it. Of [PATH_BYTES]; ERR_IO: "". */
status directory_make_temporary(char *out, const char *name);
status directory_sync(const char *path);
/* With what is in it. Of a link the link goes, never what it points to. */
status directory_remove(const char *path);
bool file_is_link(const char *path);
/* Inside a run, in a directory that is there: ERR_FORMAT for a link. */
status directory_make_own(const char *path); /* exists: OK */
status directory_make_new(const char *path); /* exists: ERR_IO */
status directory_check_own(const char *path); /* missing: OK */
/* With parents; only the owner may enter. One that is there keeps the
 * permissions that it has. */
status directory_make_private(const char *path);
/* Names in `path`, sorted by bytes, without . and ..; free with
 * directory_list_free. */
status directory_list(const char *path, char ***names, int *count);
/* Removes the files there that a killed process had not finished: their names
 * are temporary ones of files that are `ours`. Nobody may write those
 * meanwhile. */
status directory_clean(const char *path, bool (*ours)(const char *name));
void directory_list_free(char **names, int count);
/* out [PATH_BYTES] = the path, below the working directory unless it begins
 * with '/'. */
status path_absolute(const char *path, char *out);
/* a/b with exactly one slash. ERR_CONFIG beyond the buffer. */
status path_join(char *out, size_t size, const char *directory,
                 const char *name);
enum { PATH_BYTES = 4096 };

/* CRC-32C (Castagnoli), hardware where there is some; start with crc 0.
 * crc32c("123456789") = 0xE3069283. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t length);
/* The same without the hardware; tests compare the two. */
uint32_t crc32c_by_tables(uint32_t crc, const void *bytes, size_t length);
/* CRC of A followed by B from their CRCs and the length of B. */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);
/* SHA-256 (FIPS 180-4), for printing what a corpus is. hex [65]. */
enum { SHA256_BYTES = 32, HMAC_BYTES_MOST = 4096 };
void sha256_hex(const void *bytes, size_t length, char hex[65]);
/* MD5 (RFC 1321), by which object storage names parts; nothing is safe by it.
 * hex [33]. */
void md5_hex(const void *bytes, size_t length, char hex[33]);
/* HMAC-SHA256 (RFC 2104). ERR_CONFIG: more than HMAC_BYTES_MOST. */
status hmac_sha256(const unsigned char key[SHA256_BYTES], const void *bytes,
                   size_t length, unsigned char out[SHA256_BYTES]);
/* Takes as long whatever differs. */
bool hmac_equal(const unsigned char a[SHA256_BYTES],
                const unsigned char b[SHA256_BYTES]);

/* An advisory lock that the kernel drops when the process ends, however it
 * ends: no stale file. ERR_CONFIG: another process (its pid is in the
 * sentence) holds it. */
struct file_lock { int descriptor; /* -1 or 0 in a zeroed one: none */ };
status file_lock_take(struct file_lock *lock, const char *path);
void file_lock_drop(struct file_lock *lock);
/* ERR_CONFIG as well, while somebody holds it; the lock stays free. A file that
 * does not exist is not made. */
status file_lock_look(const char *path);

#endif
