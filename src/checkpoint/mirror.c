/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.c - checkpoints of a run in object storage. */
#include "checkpoint/mirror.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/local_stores.h"
#include "base/text.h"
#include "checkpoint/best.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/mirror_places.h"

enum { CLAIMS_MOST = 3 };

status mirror_key(char out[S3_KEY_BYTES], const char *step, const char *file)
{
    const int length = snprintf(out, S3_KEY_BYTES, "%s/%s", step, file);

    if (length > 0 && length < S3_KEY_BYTES) return OK;
    FAIL(ERR_CONFIG, "%.80s: the name is too long", file);
}

/* ---- sending ---- */

/* `there`: an object of that name may be there. */
static status send_file(struct s3 *s3, const char *directory, const char *name,
                        const char *key, bool there)
{
    char path[PATH_BYTES];
    int64_t bytes;

    TRY(path_join(path, sizeof path, directory, name));
    TRY(file_size(path, &bytes));
    TRY(fault_point("mirror.object"));
    return s3_put_file(s3, key, path, bytes, there);
}

/* Whether the storage holds this very step there: its manifest is the same. */
static status is_same(struct s3 *s3, const char *directory, const char *name,
                      bool *same)
{
    struct text here = {0}, there = {0};
    char key[S3_KEY_BYTES], path[PATH_BYTES];
    status result;

    *same = false;
    TRY(mirror_key(key, name, "manifest.json"));
    TRY(path_join(path, sizeof path, directory, "manifest.json"));
    TRY_GOTO(done, result, file_read_own(path, MANIFEST_BYTES_MAX, &here));
    result = s3_get(s3, key, MANIFEST_BYTES_MAX, &there);
    *same = result == OK && here.length == there.length &&
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

/* The manifest last: where it is, all that it names is there, too. A step that
 * was interrupted goes on where it stopped. */
static status send_step(struct s3 *s3, const struct mirror_objects *there,
                        const char *directory, const char *name)
{
    char key[S3_KEY_BYTES];
    char **names = NULL;
    int count = 0;
    status result = OK;

    TRY(directory_list(directory, &names, &count));
    for (int i = 0; i < count && result == OK; i++) {
        if (strcmp(names[i], "manifest.json") == 0) continue;
        result = mirror_key(key, name, names[i]);
        if (result == OK)
            result = send_file(s3, directory, names[i], key,
                               mirror_holds(there, key));
    }
    if (result == OK) result = mirror_key(key, name, "manifest.json");
    if (result == OK)
        result = send_file(s3, directory, "manifest.json", key, false);
    directory_list_free(names, count);
    return result;
}

static status send_own(struct s3 *s3, const char *run)
{
    char path[PATH_BYTES];

    for (int i = 0; i < STORES_MIRRORED_FILES; i++) {
        TRY(path_join(path, sizeof path, run, stores_run_files[i]));
        if (file_exists(path))
            TRY(send_file(s3, run, stores_run_files[i], stores_run_files[i],
                          false));
    }
    return OK;
}

/* ---- one writer ---- */

static const char intro[] = "checkpoints of a run of lockstep\n";

/* Not two of a pool of containers, in which all are process 1 of one name. */
static void make_writer(struct mirror_writer *writer)
{
    uint64_t number = (uint64_t)clock_ns();
    char host[64] = "";

    if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0) errno = 0;
    if (gethostname(host, sizeof host) != 0) host[0] = '\0';
    host[sizeof host - 1] = '\0';
    snprintf(writer->text, sizeof writer->text,
             "%sprocess %lld of %s, %016" PRIx64 "\n", intro,
             (long long)getpid(), host, number);
}

/* The process that claimed the place; NULL: none, or the text is not whole. */
static const char *claimed_by(const struct text *there)
{
    const size_t head = strlen(intro);

    if (there->length <= head || strncmp(there->bytes, intro, head) != 0 ||
        there->bytes[there->length - 1] != '\n')
        return NULL;
    return there->bytes + head;
}

/* *there: the text, "" where there is none or it is too long; *none: no object
 * has the name. */
static status read_claim(struct s3 *s3, struct text *there, bool *none,
                         char etag[S3_ETAG_BYTES])
{
    const size_t most = sizeof ((struct mirror_writer *)NULL)->text;
    const status result = s3_get_tagged(s3, "lockstep.txt", most, there, etag);

    *none = result == ERR_MISSING;
    if (result != ERR_MISSING && result != ERR_FORMAT) return result;
    status_clear();
    there->length = 0;
    there->bytes[0] = '\0';
    return OK;
}

/* Two runs in one place would replace each other's files. *mine false: nobody
 * has the place, nobody knows who, or that one has it still which had it
 * before. */
static status look_at_claim(struct s3 *s3, const char *url,
                            const struct mirror_writer *writer,
                            const char *before, bool *mine)
{
    struct text there = {0};
    char etag[S3_ETAG_BYTES];
    const char *who;
    bool none;
    status result = read_claim(s3, &there, &none, etag);

    *mine = result == OK && strcmp(there.bytes, writer->text) == 0;
    who = result == OK && !*mine && strcmp(there.bytes, before) != 0
              ? claimed_by(&there) : NULL;
    if (who != NULL)
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
            "checkpoint.mirror: another run (%.*s) sends its checkpoints to %s "
            "since; end one of the two, or give it another place",
            (int)strcspn(who, ",\n"), who, url);
    text_free(&there);
    return result;
}

/* Once: *mine as above. last: whatever is there. */
static status try_claim(struct s3 *s3, const char *url,
                        struct mirror_writer *writer, bool last)
{
    struct text there = {0}, own = {0};
    char etag[S3_ETAG_BYTES];
    bool none, put;
    status result;

    TRY_GOTO(done, result, read_claim(s3, &there, &none, etag));
    TRY_GOTO(done, result, text_append_string(&own, writer->text));
    TRY_GOTO(done, result, fault_point("mirror.claim"));
    TRY_GOTO(done, result, s3_put_if(s3, "lockstep.txt", &own,
                                     last ? "" : none ? NULL : etag, &put));
    result = look_at_claim(s3, url, writer, there.bytes, &writer->claimed);
done:
    text_free(&there);
    text_free(&own);
    return result;
}

/* A storage may refuse a write beside another, though neither took place; where
 * its conditions do not hold for what it says itself, the last is without. */
static status claim(struct s3 *s3, const char *url,
                    struct mirror_writer *writer)
{
    if (writer->text[0] == '\0') make_writer(writer);
    for (int i = 0; i < CLAIMS_MOST && !writer->claimed; i++)
        TRY(try_claim(s3, url, writer, i == CLAIMS_MOST - 1));
    if (writer->claimed) return OK;
    FAIL(ERR_IO, "%s/lockstep.txt: what was put there %d times is not there",
         url, CLAIMS_MOST);
}

static status check_writer(struct s3 *s3, const struct mirror_step *what)
{
    struct mirror_writer *writer = what->writer;
    bool mine;

    if (writer == NULL) return OK;
    if (!writer->claimed) return claim(s3, what->url, writer);
    TRY(look_at_claim(s3, what->url, writer, "", &mine));
    writer->claimed = mine;
    return mine ? OK : claim(s3, what->url, writer);
}

/* ---- the whole ---- */

/* Sends a step that the storage does not hold; says where it lies there. */
static status send_place(struct s3 *s3, const struct mirror_step *what,
                         const struct mirror_objects *there,
                         struct mirror_place *place)
{
    char ckpt[PATH_BYTES], directory[PATH_BYTES], local[32],
        name[MIRROR_NAME_BYTES];
    bool same = false;

    step_name(local, place->step);
    TRY(path_join(ckpt, sizeof ckpt, what->run, "ckpt"));
    TRY(path_join(directory, sizeof directory, ckpt, local));
    place->version = mirror_version(there, place->step);
    if (place->version > 0) {
        mirror_place_name(name, place);
        TRY(is_same(s3, directory, name, &same));
        if (same) return OK;
    }
    if (place->version++ == MIRROR_VERSIONS_MOST)
        FAIL(ERR_CONFIG, "%s: was sent %d times", local, place->version - 1);
    mirror_place_name(name, place);
    TRY(what->may_write(what->run, true));
    return send_step(s3, there, directory, name);
}

/* Steps that could not be sent when they were saved, and are on the disk still.
 * One that cannot be read now is left out: the newest counts. */
static status send_missing(struct s3 *s3, const struct mirror_step *what,
                           const struct mirror_objects *there)
{
    int64_t *steps = NULL;
    int count = 0;
    status result = checkpoint_steps(what->run, &steps, &count);

    for (int i = 0; i < count && result == OK; i++) {
        struct mirror_place place = {steps[i], 0};

        if (steps[i] >= what->step || mirror_version(there, steps[i]) > 0)
            continue;
        result = send_place(s3, what, there, &place);
        if (result != ERR_MISSING && result != ERR_FORMAT) continue;
        status_clear();
        result = OK;
    }
    memory_free(steps);
    return result;
}

/* One that the storage alone has stays there, too. */
static status remove_old(struct s3 *s3, const struct mirror_step *what,
                         const struct mirror_objects *there,
                         const struct mirror_place *newest)
{
    int64_t best = what->best;

    if (best >= 0 && mirror_version(there, best) == 0)
        TRY(checkpoint_best_step(what->run, best, &best));
    return mirror_prune(s3, newest, what->keep_last, what->keep_every, best);
}

static status send_all(struct s3 *s3, const struct mirror_step *what)
{
    struct mirror_objects there = {.items = NULL};
    struct mirror_place place = {what->step, 0};
    char name[MIRROR_NAME_BYTES], latest[MIRROR_LATEST_MOST];
    status result;

    TRY(what->may_write(what->run, true));
    TRY(check_writer(s3, what));
    TRY_GOTO(done, result, mirror_objects_read(&there, s3));
    TRY_GOTO(done, result, send_missing(s3, what, &there));
    TRY_GOTO(done, result, send_place(s3, what, &there, &place));
    TRY_GOTO(done, result, check_writer(s3, what));
    TRY_GOTO(done, result, send_own(s3, what->run));
    mirror_place_name(name, &place);
    snprintf(latest, sizeof latest, "%s\n", name);
    TRY_GOTO(done, result, what->may_write(what->run, true));
    TRY_GOTO(done, result, s3_put(s3, "latest", latest, strlen(latest)));
    TRY_GOTO(done, result, what->may_write(what->run, true));
    result = remove_old(s3, what, &there, &place);
done:
    mirror_objects_free(&there);
    return result;
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

void mirror_stop_soon(void) { s3_stop_soon(); }

/* ERR_CONFIG: a run has sent a checkpoint there. */
static status check_unused(struct s3 *s3, const char *url)
{
    struct text text = {0};
    const status found = s3_get(s3, "latest", MIRROR_LATEST_MOST, &text);

    text_free(&text);
    if (found != OK) status_clear(); /* what fails otherwise fails again */
    if (found != OK) return OK;
    FAIL(ERR_CONFIG, "checkpoint.mirror: %s holds checkpoints of a run; a new "
                     "run needs another prefix; lockstep fetch %s RUN, then "
                     "lockstep resume RUN, go on with that one", url, url);
}

status mirror_check(const char *url, struct mirror_writer *writer)
{
    struct s3 *s3;
    status result;

    TRY(s3_open(&s3, url));
    result = check_unused(s3, url);
    if (result == OK) result = claim(s3, url, writer);
    s3_close(s3);
    return result;
}
