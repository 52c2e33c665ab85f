/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.c - checkpoints of a run in object storage. */
#include "checkpoint/mirror.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/s3.h"

enum { LATEST_MOST = 64, NAMES_MOST = 1 << 16 };
static const int64_t own_file_most = (int64_t)1 << 40;

/* Files of a run beside its checkpoints; those that are there. */
static const char *const own_files[] = {
    "config.yaml", "config.json", "tokenizer.json", "tokenizer.model",
    "metrics.jsonl", "consumed.jsonl", "ledger.jsonl", "layers.jsonl",
    "samples.jsonl", "notes.jsonl"};
enum { OWN_FILES = sizeof own_files / sizeof *own_files };

static status key_of(char out[S3_KEY_BYTES], const char *step,
                     const char *file)
{
    const int length = snprintf(out, S3_KEY_BYTES, "%s/%s", step, file);

    if (length > 0 && length < S3_KEY_BYTES) return OK;
    FAIL(ERR_CONFIG, "%.80s: the name is too long", file);
}

/* ---- sending ---- */

static status send_file(struct s3 *s3, const char *directory, const char *name,
                        const char *key)
{
    char path[PATH_BYTES];
    int64_t bytes;

    TRY(path_join(path, sizeof path, directory, name));
    TRY(file_size(path, &bytes));
    TRY(fault_point("mirror.object"));
    return s3_put_file(s3, key, path, bytes);
}

/* The step was sent before: its manifest is the same. */
static status is_there(struct s3 *s3, const char *directory, const char *name,
                       bool *found)
{
    struct text here = {0}, there = {0};
    char key[S3_KEY_BYTES], path[PATH_BYTES];
    status result;

    *found = false;
    TRY(key_of(key, name, "manifest.json"));
    TRY(path_join(path, sizeof path, directory, "manifest.json"));
    TRY_GOTO(done, result, file_read_own(path, MANIFEST_BYTES_MAX, &here));
    result = s3_get(s3, key, MANIFEST_BYTES_MAX, &there);
    *found = result == OK && here.length == there.length &&
             memcmp(here.bytes, there.bytes, here.length) == 0;
    if (result == ERR_MISSING || result == ERR_FORMAT) {
        status_clear();
        result = OK;
    }
done:
    text_free(&here);
    text_free(&there);
    return result;
}

/* The manifest last: whoever sees it sees all that it names. */
static status send_step(struct s3 *s3, const char *directory, const char *name)
{
    char key[S3_KEY_BYTES];
    char **names = NULL;
    int count = 0;
    status result = OK;

    TRY(directory_list(directory, &names, &count));
    for (int i = 0; i < count && result == OK; i++) {
        if (strcmp(names[i], "manifest.json") == 0) continue;
        result = key_of(key, name, names[i]);
        if (result == OK) result = send_file(s3, directory, names[i], key);
    }
    if (result == OK) result = key_of(key, name, "manifest.json");
    if (result == OK) result = send_file(s3, directory, "manifest.json", key);
    directory_list_free(names, count);
    return result;
}

static status send_own(struct s3 *s3, const char *run)
{
    char path[PATH_BYTES];

    for (int i = 0; i < OWN_FILES; i++) {
        TRY(path_join(path, sizeof path, run, own_files[i]));
        if (file_exists(path))
            TRY(send_file(s3, run, own_files[i], own_files[i]));
    }
    return OK;
}

/* ---- removing ---- */

struct old_steps {
    const struct mirror_step *what;
    int64_t steps[NAMES_MOST]; /* ascending, of those up to this one */
    int count;
    char **keys;               /* to be removed */
    int key_count, capacity;
    struct arena arena;
};

static bool step_of(const char *key, int64_t *step)
{
    const char *slash = strchr(key, '/');
    char name[32];

    if (slash == NULL || slash - key >= 32) return false;
    snprintf(name, sizeof name, "%.*s", (int)(slash - key), key);
    return step_parse(name, step);
}

/* Keys come sorted, so steps do. */
/* A step without its manifest was not sent whole: it takes no other's place. */
static status see_step(void *argument, const char *key)
{
    struct old_steps *old = argument;
    int64_t step;

    if (!step_of(key, &step) || step > old->what->step ||
        !text_ends_with(key, "/manifest.json") ||
        (old->count > 0 && old->steps[old->count - 1] >= step))
        return OK;
    if (old->count < NAMES_MOST) old->steps[old->count++] = step;
    return OK;
}

static bool is_old(const struct old_steps *old, int64_t step)
{
    const int64_t every = old->what->keep_every;
    const int64_t first = old->count - old->what->keep_last;

    if (step >= old->what->step || first <= 0 ||
        (every > 0 && step % every == 0))
        return false;
    return step < old->steps[first];
}

static status see_old(void *argument, const char *key)
{
    struct old_steps *old = argument;
    void *memory, *keys = old->keys;
    int64_t step;

    /* The name comes from the server, and becomes part of an address. */
    if (!step_of(key, &step) || !is_old(old, step) ||
        !file_name_is_safe(strchr(key, '/') + 1))
        return OK;
    if (old->key_count == old->capacity) {
        old->capacity = 2 * old->capacity + 64;
        TRY(memory_grow(&keys, (size_t)old->capacity, sizeof *old->keys));
        old->keys = keys;
    }
    TRY(arena_take(&old->arena, strlen(key) + 1, &memory));
    memcpy(memory, key, strlen(key) + 1);
    old->keys[old->key_count++] = memory;
    return OK;
}

/* A step without its manifest is none, so those go first. */
static status remove_keys(struct s3 *s3, const struct old_steps *old)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < old->key_count; i++)
            if (text_ends_with(old->keys[i], "/manifest.json") == (pass == 0))
                TRY(s3_delete(s3, old->keys[i]));
    return OK;
}

static status prune(struct s3 *s3, const struct mirror_step *what)
{
    struct old_steps *old;
    void *memory;
    status result;

    TRY(memory_take(1, sizeof *old, &memory));
    old = memory;
    old->what = what;
    arena_init(&old->arena, "names of objects", 0);
    TRY_GOTO(done, result, s3_list(s3, see_step, old));
    TRY_GOTO(done, result, s3_list(s3, see_old, old));
    result = remove_keys(s3, old);
done:
    arena_free(&old->arena);
    memory_free(old->keys);
    memory_free(old);
    return result;
}

/* ---- the whole ---- */

static status send_all(struct s3 *s3, const struct mirror_step *what)
{
    char name[32], ckpt[PATH_BYTES], directory[PATH_BYTES], latest[40];
    bool there;

    TRY(what->may_write(what->run, true));
    step_name(name, what->step);
    TRY(path_join(ckpt, sizeof ckpt, what->run, "ckpt"));
    TRY(path_join(directory, sizeof directory, ckpt, name));
    TRY(is_there(s3, directory, name, &there));
    if (!there) TRY(send_step(s3, directory, name));
    TRY(send_own(s3, what->run));
    snprintf(latest, sizeof latest, "%s\n", name);
    TRY(what->may_write(what->run, true));
    TRY(s3_put(s3, "latest", latest, strlen(latest)));
    TRY(what->may_write(what->run, true));
    return prune(s3, what);
}

status mirror_send(const struct mirror_step *what)
{
    struct s3 *s3;
    status result;

    TRY(s3_open(&s3, what->url));
    result = send_all(s3, what);
    s3_close(s3);
    return result;
}

/* ERR_CONFIG: a run has sent a checkpoint there. */
static status check_unused(struct s3 *s3, const char *url)
{
    struct text text = {0};
    const status found = s3_get(s3, "latest", LATEST_MOST, &text);

    text_free(&text);
    if (found != OK) status_clear(); /* what fails otherwise fails again */
    if (found != OK) return OK;
    FAIL(ERR_CONFIG, "checkpoint.mirror: %s holds checkpoints of a run; a new "
                     "run needs another prefix; lockstep fetch %s RUN, then "
                     "lockstep resume RUN, go on with that one", url, url);
}

status mirror_check(const char *url)
{
    struct s3 *s3;
    status result;

    TRY(s3_open(&s3, url));
    result = check_unused(s3, url);
    if (result == OK)
        result = s3_put(s3, "lockstep.txt",
                        "checkpoints of a run of lockstep\n", 33);
    s3_close(s3);
    return result;
}

/* ---- fetching ---- */

static status read_latest(struct s3 *s3, const char *url, char name[32])
{
    struct text text = {0};
    status result = s3_get(s3, "latest", LATEST_MOST, &text);
    int64_t step;

    if (result == ERR_MISSING) {
        status_clear();
        result = status_fail(ERR_MISSING, __FILE__, __LINE__,
                             "%s: holds no checkpoint (no object \"latest\")",
                             url);
    }
    if (result != OK) goto done;
    text.bytes[strcspn(text.bytes, "\n")] = '\0';
    snprintf(name, 32, "%.31s", text.bytes);
    if (!step_parse(name, &step))
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

    TRY(key_of(key, step, name));
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
    TRY_GOTO(done, result, key_of(key, name, "manifest.json"));
    TRY_GOTO(done, result, s3_get(s3, key, MANIFEST_BYTES_MAX, &text));
    TRY_GOTO(done, result, manifest_read(&manifest, &arena, text.bytes,
                                         text.length, key));
    for (int i = 0; i < manifest.file_count; i++)
        TRY_GOTO(done, result, fetch_file(s3, name, manifest.files[i].name,
                                          directory, manifest.files[i].bytes));
    result = fetch_file(s3, name, "layout.json", directory,
                        MANIFEST_BYTES_MAX);
    if (result == ERR_MISSING) status_clear();
    else if (result != OK) goto done;
    result = fetch_file(s3, name, "manifest.json", directory,
                        MANIFEST_BYTES_MAX);
done:
    arena_free(&arena);
    text_free(&text);
    return result;
}

static status fetch_own(struct s3 *s3, const char *run)
{
    for (int i = 0; i < OWN_FILES; i++) {
        char path[PATH_BYTES];
        status result;

        TRY(path_join(path, sizeof path, run, own_files[i]));
        result = s3_get_file(s3, own_files[i], path, own_file_most);
        if (result == ERR_MISSING) {
            status_clear();
            continue;
        }
        TRY(result);
    }
    return OK;
}

static status verify(const char *run)
{
    struct checkpoint checkpoint = {0};
    struct text notice = {0};
    const status result = checkpoint_open_newest_valid(&checkpoint, run, NULL,
                                                       &notice);

    checkpoint_close(&checkpoint);
    text_free(&notice);
    return result;
}

static status fetch_all(struct s3 *s3, const char *url, const char *run,
                        int64_t *step)
{
    char name[32], ckpt[PATH_BYTES], hidden[PATH_BYTES], whole[PATH_BYTES],
        latest[PATH_BYTES];

    TRY(read_latest(s3, url, name));
    CHECK(step_parse(name, step));
    TRY(directory_make_private(run));
    TRY(path_join(ckpt, sizeof ckpt, run, "ckpt"));
    TRY(directory_make_own(ckpt));
    TRY(path_join(hidden, sizeof hidden, ckpt, ".tmp-fetched"));
    TRY(directory_make_own(hidden));
    TRY(fetch_step(s3, name, hidden));
    TRY(path_join(whole, sizeof whole, ckpt, name));
    if (rename(hidden, whole) != 0)
        return file_fail("renaming", hidden, errno);
    TRY(path_join(latest, sizeof latest, ckpt, "latest"));
    TRY(file_write_atomic(latest, name, strlen(name)));
    TRY(verify(run));
    return fetch_own(s3, run);
}

status mirror_fetch(const char *url, const char *run, int64_t *step)
{
    struct s3 *s3;
    status result;

    if (!file_is_gone(run))
        FAIL(ERR_CONFIG, "%s is there already; choose another directory", run);
    TRY(s3_open(&s3, url));
    result = fetch_all(s3, url, run, step);
    s3_close(s3);
    if (result == OK || file_is_gone(run)) return result;
    /* Nothing is left half-fetched. */
    char why[480];

    snprintf(why, sizeof why, "%s", status_message());
    if (directory_remove(run) != OK) status_clear();
    status_clear();
    result = status_fail(result, __FILE__, __LINE__, "%s", why);
    return result;
}
