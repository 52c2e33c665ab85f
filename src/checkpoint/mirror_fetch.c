/* SPDX-License-Identifier: Apache-2.0 */
/* mirror_fetch.c - checkpoints come back from object storage. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/local_stores.h"
#include "base/text.h"
#include "checkpoint/best.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/mirror.h"
#include "checkpoint/mirror_places.h"

/* A step that is removed while it is fetched was not the newest any more. */
enum { TRIES = 3 };
static const int64_t own_file_most = (int64_t)1 << 40;

static status read_latest(struct s3 *s3, const char *url,
                          char name[MIRROR_NAME_BYTES],
                          struct mirror_place *place)
{
    struct text text = {0};
    status result = s3_get(s3, "latest", MIRROR_LATEST_MOST, &text);

    if (result == ERR_MISSING) {
        status_clear();
        result = status_fail(ERR_MISSING, __FILE__, __LINE__,
                             "%s: holds no checkpoint (no object \"latest\")",
                             url);
    }
    if (result != OK) goto done;
    text.bytes[strcspn(text.bytes, "\n")] = '\0';
    if (mirror_place_parse(text.bytes, place) &&
        strchr(text.bytes, '/') == NULL)
        mirror_place_name(name, place);
    else
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__, "%s/latest: names "
                             "no step", url);
done:
    text_free(&text);
    return result;
}

static status fetch_file(struct s3 *s3, const char *step, const char *name,
                         const char *directory, int64_t bytes_max)
{
    char key[S3_KEY_BYTES], path[PATH_BYTES];

    TRY(mirror_key(key, step, name));
    TRY(path_join(path, sizeof path, directory, name));
    return s3_get_file(s3, key, path, bytes_max);
}

/* The manifest says which files there are, and how long. */
static status fetch_step(struct s3 *s3, const char *name, const char *directory)
{
    struct manifest manifest = {0};
    struct text text = {0};
    struct arena arena;
    char key[S3_KEY_BYTES];
    status result;

    arena_init(&arena, "manifest", 0);
    TRY_GOTO(done, result, mirror_key(key, name, "manifest.json"));
    TRY_GOTO(done, result, s3_get(s3, key, MANIFEST_BYTES_MAX, &text));
    TRY_GOTO(done, result, manifest_read(&manifest, &arena, text.bytes,
                                         text.length, key));
    for (int i = 0; i < manifest.file_count; i++)
        TRY_GOTO(done, result, fetch_file(s3, name, manifest.files[i].name,
                                          directory, manifest.files[i].bytes));
    result = fetch_file(s3, name, "manifest.json", directory,
                        MANIFEST_BYTES_MAX);
done:
    arena_free(&arena);
    text_free(&text);
    return result;
}

/* Files that are there already stay: they are of this run, and newer. */
static status fetch_own(struct s3 *s3, const char *run)
{
    for (int i = 0; i < STORES_MIRRORED_FILES; i++) {
        char path[PATH_BYTES];
        status result;

        TRY(path_join(path, sizeof path, run, stores_run_files[i]));
        if (!file_is_gone(path)) continue;
        result = s3_get_file(s3, stores_run_files[i], path, own_file_most);
        if (result == ERR_MISSING) {
            status_clear();
            continue;
        }
        TRY(result);
    }
    return OK;
}

/* The newest step, into a directory that is not there; what was removed
 * meanwhile is replaced by what is newest then. */
static status fetch_newest(struct s3 *s3, const char *url,
                           const char *directory, struct mirror_place *place)
{
    char name[MIRROR_NAME_BYTES], again[MIRROR_NAME_BYTES];
    status result;

    for (int i = 0;; i++) {
        TRY(read_latest(s3, url, name, place));
        if (!file_is_gone(directory)) TRY(directory_remove(directory));
        TRY(directory_make_own(directory));
        result = fetch_step(s3, name, directory);
        if (result != ERR_MISSING || i == TRIES) return result;

        char why[480];

        snprintf(why, sizeof why, "%s", status_message());
        status_clear();
        TRY(read_latest(s3, url, again, place));
        if (strcmp(name, again) == 0)
            return status_fail(ERR_MISSING, __FILE__, __LINE__, "%s", why);
    }
}

static status verify(const char *directory)
{
    struct checkpoint checkpoint = {0};
    status result = checkpoint_open_patient(&checkpoint, directory, NULL);

    if (result == OK) result = checkpoint_verify(&checkpoint);
    checkpoint_close(&checkpoint);
    return result;
}

/* A step of this name that is there is damaged: STEP.damaged, for who wants to
 * look at it. An older one of that name goes. */
static status set_aside(const char *whole)
{
    char aside[PATH_BYTES];

    if (file_is_gone(whole)) return OK;
    if (strlen(whole) >= PATH_BYTES - 16)
        FAIL(ERR_CONFIG, "%.80s...: the path is too long", whole);
    snprintf(aside, sizeof aside, "%.*s.damaged", PATH_BYTES - 16, whole);
    if (!file_is_gone(aside)) TRY(directory_remove(aside));
    if (rename(whole, aside) == 0) return OK;
    return file_fail("renaming", whole, errno);
}

/* Gives a step that was fetched its name, verified. */
static status take_place(const char *hidden, const char *ckpt, int64_t step)
{
    char name[32], whole[PATH_BYTES];

    TRY(verify(hidden));
    step_name(name, step);
    TRY(path_join(whole, sizeof whole, ckpt, name));
    TRY(directory_sync(hidden));
    TRY(set_aside(whole));
    if (rename(hidden, whole) != 0)
        return file_fail("renaming", hidden, errno);
    return directory_sync(ckpt);
}

/* Into RUN/ckpt: verified before it has the name of a step. */
static status place_newest(struct s3 *s3, const char *url, const char *run,
                           int64_t *step)
{
    char name[32], line[40], ckpt[PATH_BYTES], hidden[PATH_BYTES],
        latest[PATH_BYTES];
    struct mirror_place place;

    TRY(path_join(ckpt, sizeof ckpt, run, "ckpt"));
    TRY(directory_make_own(ckpt));
    TRY(path_join(hidden, sizeof hidden, ckpt, ".tmp-fetched"));
    TRY(fetch_newest(s3, url, hidden, &place));
    TRY(take_place(hidden, ckpt, place.step));
    step_name(name, place.step);
    TRY(path_join(latest, sizeof latest, ckpt, "latest"));
    *step = place.step;
    snprintf(line, sizeof line, "%s\n", name); /* as a save has it */
    return file_write_atomic(latest, line, strlen(line));
}

/* The best step that the newest knows, beside it. */
static status place_best(struct s3 *s3, const char *run, int64_t newest,
                         int64_t *best)
{
    struct mirror_objects there = {.items = NULL};
    char name[MIRROR_NAME_BYTES], step[32], ckpt[PATH_BYTES],
        hidden[PATH_BYTES];
    struct mirror_place place;
    status result;

    TRY(path_join(ckpt, sizeof ckpt, run, "ckpt"));
    step_name(step, newest);
    TRY(path_join(hidden, sizeof hidden, ckpt, step));
    TRY(checkpoint_best_known(hidden, best));
    if (*best <= 0 || *best == newest) return OK;
    TRY_GOTO(done, result, mirror_objects_read(&there, s3));
    place = (struct mirror_place){*best, mirror_version(&there, *best)};
    if (place.version == 0)
        FAIL_GOTO(done, result, ERR_MISSING, "the validation loss was lowest "
                  "at step %lld, which the storage does not hold; leave out "
                  "--best", (long long)*best);
    mirror_place_name(name, &place);
    TRY_GOTO(done, result, path_join(hidden, sizeof hidden, ckpt,
                                     ".tmp-fetched"));
    TRY_GOTO(done, result, directory_make_own(hidden));
    TRY_GOTO(done, result, fetch_step(s3, name, hidden));
    result = take_place(hidden, ckpt, *best);
done:
    mirror_objects_free(&there);
    return result;
}

status mirror_restore(const char *url, const char *run, int64_t *step)
{
    struct s3 *s3;
    status result;

    TRY(s3_open(&s3, url));
    result = place_newest(s3, url, run, step);
    if (result == OK) result = fetch_own(s3, run);
    s3_close(s3);
    return result;
}

/* Where a run is made before it has its name. */
static status hidden_run(char out[PATH_BYTES], const char *run)
{
    size_t length = strlen(run);
    const int longest = PATH_BYTES - 16;

    while (length > 1 && run[length - 1] == '/') length--;
    if (length >= (size_t)longest)
        FAIL(ERR_CONFIG, "%.80s...: the path is too long", run);
    snprintf(out, PATH_BYTES, "%.*s.fetching", (int)length, run);
    return OK;
}

static status fetch_all(struct s3 *s3, const char *url, const char *run,
                        const char *hidden, int64_t *step, int64_t *best)
{
    TRY(place_newest(s3, url, hidden, step));
    if (best != NULL) TRY(place_best(s3, hidden, *step, best));
    TRY(fetch_own(s3, hidden));
    if (rename(hidden, run) != 0) return file_fail("renaming", hidden, errno);
    return OK;
}

/* Replaces what a fetch that was killed left. Nobody else may be at it. */
static status fetch_locked(const char *url, const char *run,
                           const char *hidden, int64_t *step, int64_t *best)
{
    char path[PATH_BYTES], why[480];
    struct file_lock lock = {0};
    struct s3 *s3;
    status result;

    TRY(s3_open(&s3, url));
    TRY_GOTO(closed, result, directory_make_private(hidden));
    TRY_GOTO(closed, result, path_join(path, sizeof path, hidden, "lock"));
    TRY_GOTO(closed, result, file_lock_take(&lock, path));
    result = fetch_all(s3, url, run, hidden, step, best);
    if (result != OK) { /* nothing is left half-fetched */
        snprintf(why, sizeof why, "%s", status_message());
        status_clear();
        if (directory_remove(hidden) != OK) status_clear();
        result = status_fail(result, __FILE__, __LINE__, "%s", why);
    }
    file_lock_drop(&lock);
closed:
    s3_close(s3);
    return result;
}

status mirror_fetch(const char *url, const char *run, int64_t *step,
                    int64_t *best)
{
    char hidden[PATH_BYTES];

    if (!file_is_gone(run))
        FAIL(ERR_CONFIG, "%s is there already; choose another directory", run);
    TRY(hidden_run(hidden, run));
    return fetch_locked(url, run, hidden, step, best);
}

status mirror_newest(const char *url, double seconds, int64_t *step)
{
    char name[MIRROR_NAME_BYTES];
    struct mirror_place place;
    struct s3 *s3;
    status result;

    TRY(s3_open(&s3, url));
    s3_hurry(s3, seconds);
    result = read_latest(s3, url, name, &place);
    *step = place.step;
    s3_close(s3);
    return result;
}
