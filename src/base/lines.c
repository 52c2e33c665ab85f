/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - files that a run appends to, and cuts when it goes on from an
 * earlier step. */
#include "base/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

/* ---- appending ---- */

status lines_open(struct lines *lines, const char *path, const char *fault,
                  int flags)
{
    const size_t length = strlen(path) + 1;
    void *copy;

    *lines = (struct lines){.fault = fault};
    TRY(memory_take(length, 1, &copy));
    lines->path = memcpy(copy, path, length);
    return file_open_own(path, O_WRONLY | O_CREAT | O_APPEND | flags,
                         &lines->descriptor);
}

/* Bytes that were written leave the front, so that a record that the disk took
 * only in part continues where it stopped. */
static status write_waiting(struct lines *lines)
{
    struct text *waiting = &lines->waiting;
    size_t done = 0;
    int reason = 0;

    if (waiting->length == 0) return OK;
    TRY(fault_point(lines->fault));
    while (done < waiting->length && reason == 0) {
        const ssize_t put = write(lines->descriptor, waiting->bytes + done,
                                  waiting->length - done);

        if (put > 0) done += (size_t)put;
        else if (put == 0) reason = ENOSPC;
        else if (errno != EINTR) reason = errno;
    }
    waiting->length -= done;
    memmove(waiting->bytes, waiting->bytes + done, waiting->length);
    if (reason == 0) return OK;
    FAIL(ERR_IO, "%s: cannot append: %s", lines->path,
         reason == ENOSPC || reason == EDQUOT ? "disk full"
                                              : strerror(reason));
}

status lines_put(struct lines *lines, const char *bytes, size_t length)
{
    if (lines->also != NULL) TRY(text_append(lines->also, bytes, length));
    if (lines->waiting.length + length > LINES_WAITING_MOST) lines->lost++;
    else TRY(text_append(&lines->waiting, bytes, length));
    if (write_waiting(lines) == OK) {
        if (lines->failing)
            LOG(INFO, "files", "%s: written up to now again", lines->path);
        lines->failing = false;
        return OK;
    }
    if (!lines->failing)
        LOG(WARNING, "files", "what cannot be written waits in memory: %s",
            status_message());
    lines->failing = true;
    status_clear();
    return OK;
}

status lines_finish(struct lines *lines)
{
    struct timespec wait = {.tv_nsec = 200000000};
    status result;

    if (lines->descriptor <= 0) return OK;
    for (int i = 0; i < 4 && lines->waiting.length > 0; i++) {
        if (write_waiting(lines) == OK) break;
        status_clear();
        nanosleep(&wait, NULL);
        wait.tv_sec += i / 2;
        wait.tv_nsec = i % 2 == 0 ? 400000000 : 800000000;
    }
    result = write_waiting(lines);
    if (result != OK) return status_pass(result, __FILE__, __LINE__);
    if (lines->lost > 0)
        FAIL(ERR_IO, "%s: %lld records are missing: the disk took none for so "
             "long that %d MiB were waiting", lines->path,
             (long long)lines->lost, LINES_WAITING_MOST >> 20);
    return OK;
}

void lines_sync(struct lines *lines)
{
    if (lines->descriptor <= 0) return;
    if (write_waiting(lines) != OK) status_clear(); /* was said, and waits */
    if (fsync(lines->descriptor) != 0 && !lines->failing)
        LOG(WARNING, "files", "%s: cannot be synced: %s", lines->path,
            strerror(errno));
}

void lines_close(struct lines *lines)
{
    if (lines->descriptor > 0) {
        /* Where an error ends the run, its sentence must stand. */
        if (lines->waiting.length > 0)
            (void)!write(lines->descriptor, lines->waiting.bytes,
                         lines->waiting.length);
        close(lines->descriptor);
    }
    memory_free(lines->path);
    text_free(&lines->waiting);
    *lines = (struct lines){0};
}

/* ---- cutting ---- */

struct cutting {
    const char *path;
    const char *bytes;
    size_t length;
    int64_t step_kept;
    lines_step *of_line;
    size_t prefix;    /* bytes of the first lines that stay */
    bool scattered;   /* others stay behind one that goes */
    struct text stays, goes; /* stays: only what is behind the prefix */
    int64_t damaged;  /* lines; each of the first few gets a warning */
};
enum { DAMAGED_SHOWN = 4 };

static status json_step(struct arena *scratch, const char *line, size_t length,
                        const char *source, int64_t *step)
{
    const struct json *object;

    TRY(json_read(&object, scratch, line, length, source));
    return json_get_integer(object, source, "step", step);
}

/* A line without its end was torn by a kill: it is no damage. */
static bool stays(struct cutting *c, struct arena *scratch, size_t at,
                  size_t line, int64_t number)
{
    char source[PATH_BYTES + 32];
    int64_t step;
    status result;

    if (at + line == c->length) return false;
    snprintf(source, sizeof source, "%s: line %lld", c->path,
             (long long)number);
    result = c->of_line(scratch, c->bytes + at, line, source, &step);
    arena_reset(scratch);
    if (result == OK) return step <= c->step_kept;
    if (++c->damaged <= DAMAGED_SHOWN)
        LOG(WARNING, "files", "a damaged line was moved to %s.cut, the others "
            "stay: %s", c->path, status_message());
    status_clear();
    return false;
}

static status sort_lines(struct cutting *c)
{
    struct arena scratch = {0};
    int64_t number = 0;
    status result = OK;

    arena_init(&scratch, "a line of a run", 0);
    for (size_t at = 0; at < c->length;) {
        const char *first = c->bytes + at;
        const char *end = memchr(first, '\n', c->length - at);
        const size_t line = end == NULL ? c->length - at
                                        : (size_t)(end - first);
        const size_t whole = line + (end != NULL);

        if (!stays(c, &scratch, at, line, ++number)) {
            TRY_GOTO(done, result, text_append(&c->goes, first, line));
            TRY_GOTO(done, result, text_append(&c->goes, "\n", 1));
        } else if (c->prefix == at) {
            c->prefix += whole;
        } else {
            c->scattered = true;
            TRY_GOTO(done, result, text_append(&c->stays, first, whole));
        }
        at += whole;
    }
    if (c->damaged > DAMAGED_SHOWN)
        LOG(WARNING, "files", "%s: %lld more damaged lines were moved", c->path,
            (long long)(c->damaged - DAMAGED_SHOWN));
done:
    arena_free(&scratch);
    return result;
}

/* Whether the last bytes of the file are those that go: a process that was
 * killed between the two writes had kept them already. */
static bool ends_with(int descriptor, const struct text *goes)
{
    const off_t end = lseek(descriptor, 0, SEEK_END);
    size_t at = 0, got;
    char bytes[4096];

    if (end < 0 || (uint64_t)end < goes->length) return false;
    while (at < goes->length) {
        const size_t left = goes->length - at;
        const size_t here = left < sizeof bytes ? left : sizeof bytes;

        if (file_get(descriptor, "lines that were cut", bytes, here,
                     end - (off_t)(goes->length - at), &got) != OK)
            status_clear();
        if (got != here || memcmp(bytes, goes->bytes + at, here) != 0)
            return false;
        at += here;
    }
    return true;
}

/* On the disk before anything leaves the file. */
static status keep_cut(const struct cutting *c)
{
    char path[PATH_BYTES];
    status result = OK;
    int descriptor;

    TRY(path_join(path, sizeof path, "", c->path));
    if (strlen(path) + 5 > sizeof path)
        FAIL(ERR_CONFIG, "%.60s...: the path is too long", path);
    memcpy(path + strlen(path), ".cut", 5);
    TRY(file_open_own(path, O_RDWR | O_CREAT | O_APPEND, &descriptor));
    if (!ends_with(descriptor, &c->goes))
        result = file_put(descriptor, path, c->goes.bytes, c->goes.length);
    if (result == OK && fsync(descriptor) != 0)
        result = status_fail(ERR_IO, __FILE__, __LINE__,
                             "%s: cannot be synced: %s", path,
                             strerror(errno));
    close(descriptor);
    return result;
}

static status write_rest(const struct cutting *c)
{
    struct text all = {0};
    status result;

    if (!c->scattered) return file_cut(c->path, (int64_t)c->prefix);
    TRY_GOTO(done, result, text_append(&all, c->bytes, c->prefix));
    TRY_GOTO(done, result, text_append(&all, c->stays.bytes,
                                       c->stays.length));
    TRY_GOTO(done, result, file_write_atomic(c->path, all.bytes, all.length));
done:
    text_free(&all);
    return result;
}

status lines_cut(const char *path, int64_t step_kept, lines_step *of_line)
{
    struct cutting c = {.path = path, .step_kept = step_kept,
                        .of_line = of_line != NULL ? of_line : json_step};
    struct file_map map = {0};
    status result;

    if (!file_exists(path)) return OK;
    TRY(file_check_own(path)); /* what is cut is copied */
    TRY_GOTO(done, result, file_map_open(&map, path));
    c.bytes = (const char *)map.bytes;
    c.length = map.length;
    TRY_GOTO(done, result, sort_lines(&c));
    if (c.goes.length == 0) goto done;
    TRY_GOTO(done, result, keep_cut(&c));
    result = write_rest(&c);
done:
    file_map_close(&map);
    text_free(&c.stays);
    text_free(&c.goes);
    return result;
}
