/* SPDX-License-Identifier: Apache-2.0 */
/* history.c - the checkpoints of a run: newest, next best, old ones. */
#include "checkpoint/history.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/fault.h"
#include "base/retry.h"

enum { STEP_DIGITS_LEAST = 8, STEP_DIGITS_MOST = 11,
       REMOVALS_MOST = 100 /* of checkpoints beside one that is opened */ };

void step_name(char out[32], int64_t step)
{
    snprintf(out, 32, "step-%0*lld", STEP_DIGITS_LEAST, (long long)step);
}

bool step_parse(const char *name, int64_t *step)
{
    static const char START[] = "step-";
    const char *digits = name + sizeof START - 1;
    char again[32];

    if (strncmp(name, START, sizeof START - 1) != 0) return false;
    if (strlen(digits) < STEP_DIGITS_LEAST ||
        strlen(digits) > STEP_DIGITS_MOST ||
        strspn(digits, "0123456789") != strlen(digits))
        return false;
    *step = strtoll(digits, NULL, 10);
    /* One name for each step: no further leading zeros. */
    step_name(again, *step);
    return strcmp(again, name) == 0;
}

static status checkpoints_path(const char *run, char out[PATH_BYTES])
{
    return path_join(out, PATH_BYTES, run, "ckpt");
}

static int order_steps(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return a < b ? -1 : a > b;
}

/* A directory that cannot be looked at is not one that is missing. */
static status is_missing(const char *path, bool *missing)
{
    struct stat facts;

    *missing = stat(path, &facts) != 0;
    if (!*missing || errno == ENOENT || errno == ENOTDIR) return OK;
    FAIL(ERR_IO, "%s: cannot be examined: %s", path, strerror(errno));
}

status checkpoint_steps(const char *run, int64_t **steps, int *count)
{
    char directory[PATH_BYTES];
    char **names = NULL;
    int name_count = 0;
    bool missing;
    void *memory;
    status result;

    *steps = NULL;
    *count = 0;
    TRY(checkpoints_path(run, directory));
    TRY(is_missing(directory, &missing));
    if (missing) return OK;
    TRY(directory_list(directory, &names, &name_count));
    TRY_GOTO(done, result,
             memory_take((size_t)name_count + 1, sizeof **steps, &memory));
    *steps = memory;
    for (int i = 0; i < name_count; i++) {
        int64_t step;

        if (step_parse(names[i], &step)) (*steps)[(*count)++] = step;
    }
    if (*count > 1)
        qsort(*steps, (size_t)*count, sizeof **steps, order_steps);
done:
    directory_list_free(names, name_count);
    return result;
}

/* The text of `latest`, without its newline; "": none. Damage of the pointer is
 * harmless; a failure to read it is not, since steps beyond it may be of a
 * future that was given up. */
static status read_latest(const char *run, char name[32])
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text text = {0};
    status result;

    name[0] = 0;
    TRY(checkpoints_path(run, directory));
    TRY(path_join(path, sizeof path, directory, "latest"));
    result = file_read_regular(path, 32, &text);
    if (result == ERR_FORMAT || result == ERR_MISSING) {
        status_clear();
        result = OK;
    } else if (result == OK && text.length > 1 && text.length < 32 &&
               text.bytes[text.length - 1] == '\n') {
        memcpy(name, text.bytes, text.length - 1);
        name[text.length - 1] = 0;
    }
    text_free(&text);
    return result;
}

/* The step that `latest` names, if the file is there. */
static status read_pointer(const char *run, int64_t *step, bool *found)
{
    char directory[PATH_BYTES], path[PATH_BYTES], name[32];
    bool missing;

    *found = false;
    TRY(read_latest(run, name));
    if (!step_parse(name, step)) return OK;
    TRY(checkpoints_path(run, directory));
    TRY(path_join(path, sizeof path, directory, name));
    TRY(is_missing(path, &missing));
    *found = !missing;
    return OK;
}

status checkpoint_is_named(const char *run, bool *named)
{
    int64_t step;

    return read_pointer(run, &step, named);
}

static status none_path(const char *run, char out[PATH_BYTES])
{
    char directory[PATH_BYTES];

    TRY(checkpoints_path(run, directory));
    return path_join(out, PATH_BYTES, directory, ".none");
}

status checkpoint_announce(const char *run)
{
    char directory[PATH_BYTES], path[PATH_BYTES];

    TRY(checkpoints_path(run, directory));
    TRY(directory_make_own(directory));
    TRY(none_path(run, path));
    return file_write_atomic(path, "", 0);
}

void checkpoint_announced(const char *run)
{
    char path[PATH_BYTES];

    if (none_path(run, path) != OK) status_clear();
    else (void)unlink(path); /* as a rule it is not there */
}

status checkpoint_count(const char *run, int *count, bool *none)
{
    struct retry retry = {0};
    int64_t *steps = NULL;
    char path[PATH_BYTES];
    bool missing = true;
    status result;

    TRY(none_path(run, path));
    do {
        result = checkpoint_steps(run, &steps, count);
        memory_free(steps);
        steps = NULL;
        if (result == OK) result = is_missing(path, &missing);
    } while (retry_again(&retry, result));
    *none = result == OK && *count == 0 && !missing;
    return result;
}

static status step_path(const char *run, int64_t step, char out[PATH_BYTES])
{
    char directory[PATH_BYTES], name[32];

    TRY(checkpoints_path(run, directory));
    step_name(name, step);
    return path_join(out, PATH_BYTES, directory, name);
}

status checkpoint_name_newest(const char *run, int64_t step)
{
    char directory[PATH_BYTES], path[PATH_BYTES], name[32], line[40];
    bool named, missing;

    TRY(checkpoint_is_named(run, &named));
    if (named) return OK;
    TRY(step_path(run, step, path));
    TRY(is_missing(path, &missing));
    if (missing) return OK;
    TRY(checkpoints_path(run, directory));
    TRY(path_join(path, sizeof path, directory, "latest"));
    step_name(name, step);
    snprintf(line, sizeof line, "%s\n", name);
    return file_write_atomic(path, line, strlen(line));
}

/* Best first: what `latest` names, then the others from the highest. */
static status list_candidates(const char *run, int64_t **steps, int *count)
{
    int64_t pointed = -1;
    bool found;
    int kept = 0;

    TRY(checkpoint_steps(run, steps, count));
    for (int i = 0; i < *count / 2; i++) {
        const int64_t other = (*steps)[*count - 1 - i];

        (*steps)[*count - 1 - i] = (*steps)[i];
        (*steps)[i] = other;
    }
    TRY(read_pointer(run, &pointed, &found));
    if (!found) return OK;
    while (kept < *count && (*steps)[kept] != pointed) kept++;
    if (kept == *count) return OK;
    memmove(*steps + 1, *steps, (size_t)kept * sizeof **steps);
    (*steps)[0] = pointed;
    return OK;
}

status checkpoint_find_newest(const char *run, char out[PATH_BYTES],
                              int64_t *step)
{
    int64_t *steps = NULL;
    int count = 0;
    status result;

    TRY_GOTO(done, result, list_candidates(run, &steps, &count));
    if (count == 0)
        FAIL_GOTO(done, result, ERR_MISSING, "%s: has no checkpoint yet", run);
    *step = steps[0];
    TRY_GOTO(done, result, step_path(run, steps[0], out));
done:
    memory_free(steps);
    return result;
}

static bool is_damage(status code)
{
    return code == ERR_FORMAT || code == ERR_MISSING;
}

/* Once: ERR_IO says nothing about the checkpoint. *removed: one was removed
 * while it was opened, as a run that goes on does with old ones. */
static status open_newest_valid(struct checkpoint *checkpoint, const char *run,
                                struct threads *threads, struct text *notice,
                                bool *removed)
{
    int64_t *steps = NULL;
    int count = 0;
    status result;

    memset(checkpoint, 0, sizeof *checkpoint);
    *removed = false;
    TRY_GOTO(done, result, list_candidates(run, &steps, &count));
    if (count == 0)
        FAIL_GOTO(done, result, ERR_MISSING, "%s: has no checkpoint", run);
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];

        TRY_GOTO(done, result, step_path(run, steps[i], path));
        result = checkpoint_open(checkpoint, path, threads);
        if (result == OK) result = checkpoint_verify(checkpoint);
        if (result == OK || !is_damage(result)) goto done;
        checkpoint_close(checkpoint);
        *removed |= file_is_gone(path) && !file_is_link(path);
        TRY_GOTO(done, result,
                 text_printf(notice, "%sthe checkpoint of step %lld is "
                             "damaged and was passed over (%s)",
                             notice->length ? "; " : "", (long long)steps[i],
                             status_message()));
        status_clear();
    }
    FAIL_GOTO(done, result, ERR_FORMAT,
              "%s: none of its %d checkpoints is whole: %s", run, count,
              notice->bytes);
done:
    memory_free(steps);
    return result;
}

status checkpoint_open_newest_valid(struct checkpoint *checkpoint,
                                    const char *run, struct threads *threads,
                                    struct text *notice)
{
    struct retry retry = {0};
    bool removed;
    int times = 0;
    status result =
        open_newest_valid(checkpoint, run, threads, notice, &removed);

    while ((removed && ++times < REMOVALS_MOST) ||
           retry_again(&retry, result)) {
        checkpoint_close(checkpoint);
        notice->length = 0;
        status_clear();
        result = open_newest_valid(checkpoint, run, threads, notice, &removed);
    }
    return result;
}

bool checkpoint_none_is_whole(const char *run)
{
    struct checkpoint checkpoint = {0};
    struct text notice = {0};
    const status result =
        checkpoint_open_newest_valid(&checkpoint, run, NULL, &notice);

    checkpoint_close(&checkpoint);
    text_free(&notice);
    status_clear();
    return is_damage(result);
}

status checkpoint_open_patient(struct checkpoint *checkpoint,
                               const char *directory, struct threads *threads)
{
    struct retry retry = {0};
    status result = checkpoint_open(checkpoint, directory, threads);

    while (retry_again(&retry, result)) {
        checkpoint_close(checkpoint);
        result = checkpoint_open(checkpoint, directory, threads);
    }
    return result;
}

status checkpoint_newest_grid(const char *run, struct grid *grid, bool *found)
{
    struct retry retry = {0};
    int64_t *steps = NULL;
    int count = 0;
    status result;

    *found = false;
    do {
        memory_free(steps);
        steps = NULL;
        result = list_candidates(run, &steps, &count);
    } while (retry_again(&retry, result));
    for (int i = 0; i < count && result == OK && !*found; i++) {
        struct checkpoint checkpoint = {0};
        char path[PATH_BYTES];

        TRY_GOTO(done, result, step_path(run, steps[i], path));
        result = checkpoint_open_patient(&checkpoint, path, NULL);
        *found = result == OK;
        if (*found) *grid = checkpoint.manifest.grid;
        checkpoint_close(&checkpoint);
        if (!is_damage(result)) continue;
        status_clear(); /* who restores says it */
        result = OK;
    }
done:
    memory_free(steps);
    return result;
}

/* Renamed first: a removal that is interrupted must not leave half of a
 * checkpoint under a name that is read. */
static status remove_step(const char *run, int64_t step)
{
    char directory[PATH_BYTES], from[PATH_BYTES], to[PATH_BYTES];
    char name[32], hidden[48];

    TRY(checkpoints_path(run, directory));
    step_name(name, step);
    snprintf(hidden, sizeof hidden, ".tmp-old-%s", name);
    TRY(path_join(from, sizeof from, directory, name));
    TRY(path_join(to, sizeof to, directory, hidden));
    if (file_is_link(to) || file_exists(to)) TRY(directory_remove(to));
    if (rename(from, to) != 0)
        FAIL(ERR_IO, "%s: cannot be removed: %s", from, strerror(errno));
    TRY(fault_point("checkpoint.remove"));
    return directory_remove(to);
}

/* Files that are removed or written must belong to the run. */
static status check_directory(const char *run)
{
    char directory[PATH_BYTES];

    TRY(checkpoints_path(run, directory));
    return directory_check_own(directory);
}

status checkpoint_prune(const char *run, int64_t keep_last, int64_t keep_every,
                        int64_t best)
{
    int64_t *steps = NULL;
    int64_t pointed = -1;
    char path[PATH_BYTES];
    bool found;
    int count = 0, past;
    status result;

    TRY_GOTO(done, result, check_directory(run));
    TRY_GOTO(done, result, checkpoint_steps(run, &steps, &count));
    TRY_GOTO(done, result, read_pointer(run, &pointed, &found));
    if (!found) goto done;
    /* Steps beyond the pointer are of a future that was given up; they are
     * replaced when the run gets there, and must not crowd out its past. */
    past = count;
    while (past > 0 && steps[past - 1] > pointed) past--;
    for (int i = 0; i < past - keep_last; i++) {
        const bool kept = keep_every > 0 && steps[i] % keep_every == 0;

        if (kept || steps[i] == pointed || steps[i] == best) continue;
        TRY_GOTO(done, result, step_path(run, steps[i], path));
        if (file_is_link(path)) continue; /* somebody keeps it elsewhere */
        TRY_GOTO(done, result, remove_step(run, steps[i]));
    }
    /* Finishes the removals that an earlier call began. */
    TRY_GOTO(done, result, checkpoint_clean(run));
done:
    memory_free(steps);
    return result;
}

/* A step that was set aside while another took its name (commit.c): where none
 * has the name, it comes back. */
static status settle_old(const char *directory, const char *hidden)
{
    char aside[PATH_BYTES], final[PATH_BYTES];
    bool missing;

    TRY(path_join(aside, sizeof aside, directory, hidden));
    TRY(path_join(final, sizeof final, directory,
                  hidden + sizeof CHECKPOINT_ASIDE - 1));
    TRY(is_missing(final, &missing));
    if (!missing || file_is_link(final)) return directory_remove(aside);
    if (rename(aside, final) == 0) return OK;
    FAIL(ERR_IO, "%s: cannot get its name back: %s", aside, strerror(errno));
}

static bool was_aside(const char *name)
{
    const size_t length = sizeof CHECKPOINT_ASIDE - 1;
    int64_t step;

    return strncmp(name, CHECKPOINT_ASIDE, length) == 0 &&
           step_parse(name + length, &step);
}

/* Names under which saves, removals, fetch and gather work. */
static bool is_unfinished(const char *name)
{
    static const char HIDDEN[] = ".tmp-", OLD[] = "old-";
    char of[PATH_BYTES];
    int64_t step;

    if (file_is_temporary(name, of))
        return strcmp(of, "latest") == 0 || strcmp(of, ".none") == 0;
    if (strncmp(name, HIDDEN, sizeof HIDDEN - 1) != 0) return false;
    name += sizeof HIDDEN - 1;
    if (strcmp(name, "fetched") == 0 || strcmp(name, "gathered") == 0)
        return true;
    if (strncmp(name, OLD, sizeof OLD - 1) == 0) name += sizeof OLD - 1;
    return step_parse(name, &step);
}

status checkpoint_clean(const char *run)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    char **names = NULL;
    int count = 0;
    status result = OK;

    TRY(check_directory(run));
    TRY(checkpoints_path(run, directory));
    if (!file_is_directory(directory)) return OK;
    TRY(directory_list(directory, &names, &count));
    for (int i = 0; i < count; i++) {
        if (was_aside(names[i]))
            TRY_GOTO(done, result, settle_old(directory, names[i]));
        if (!is_unfinished(names[i])) continue;
        TRY_GOTO(done, result,
                 path_join(path, sizeof path, directory, names[i]));
        TRY_GOTO(done, result, directory_remove(path));
    }
done:
    directory_list_free(names, count);
    return result;
}
