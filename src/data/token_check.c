/* SPDX-License-Identifier: Apache-2.0 */
/* token_check.c - token files that were opened unread are read whole beside the
 * work. */
#include "data/token_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/threads.h"

enum { SENTENCE = 1024 };

struct token_check {
    pthread_t thread;
    bool joined;
    atomic_bool stop, done;
    atomic_llong read;        /* bytes so far */
    int64_t bytes;            /* of all files */
    struct token_check_request request;
    struct token_file *files; /* owned [count]: opened by the thread */
    status result;            /* of the thread; its sentence */
    char sentence[SENTENCE];
};

/* One reads and leaves a seal. A place where nothing can be written has no
 * lock either: then each reads for itself. */
static status check_file(struct token_check *check, struct token_file *file)
{
    const struct timespec wait = {.tv_nsec = 50000000};
    const char *cache = check->request.cache;
    char path[PATH_BYTES];
    struct file_lock lock = {0};
    status result;

    TRY(token_file_seal_path(file, cache, ".lock", path));
    while (cache == NULL || file_is_directory(cache)) {
        const status taken = file_lock_take(&lock, path);

        status_clear();
        if (taken != ERR_CONFIG) break;
        if (token_file_sealed(file, cache)) return OK;
        if (atomic_load(&check->stop)) return ERR_STOPPED;
        nanosleep(&wait, NULL);
    }
    result = token_file_sealed(file, cache)
                 ? OK : token_file_trust(file, cache, TRUST_READ);
    if (lock.descriptor > 0) unlink(path);
    file_lock_drop(&lock);
    return result;
}

static void count_bytes(void *argument, int64_t bytes)
{
    struct token_check *check = argument;

    atomic_fetch_add_explicit(&check->read, bytes, memory_order_relaxed);
}

/* A file that another read may hold ids that are none of this model. */
static status check_one(struct token_check *check, struct token_file *file)
{
    const char *path = file->path;

    TRY(token_file_open(file, path));
    file->model_vocab = check->request.vocab;
    file->stop = &check->stop;
    file->progress = count_bytes;
    file->argument = check;
    TRY(check_file(check, file));
    TRY(token_file_fits(file, NULL, check->request.vocab));
    file_map_drop(&file->map);
    return OK;
}

static void *check_main(void *argument)
{
    struct token_check *check = argument;

    threads_aside();
    for (int i = 0; i < check->request.count && check->result == OK; i++)
        if (check->files[i].path != NULL)
            check->result = check_one(check, &check->files[i]);
    snprintf(check->sentence, SENTENCE, "%s", status_message());
    status_clear();
    atomic_store(&check->done, true);
    return NULL;
}

status token_check_begin(struct token_check **out,
                         const struct token_check_request *request)
{
    const struct token_file *files = request->files;
    const int count = request->count;
    struct token_check *check;
    bool any = false;
    void *memory;

    *out = NULL;
    for (int i = 0; i < count; i++) any = any || files[i].unread;
    if (!any) return OK;
    TRY(memory_take(1, sizeof *check, &memory));
    check = memory;
    memset(check, 0, sizeof *check);
    atomic_init(&check->stop, false);
    atomic_init(&check->done, false);
    atomic_init(&check->read, 0);
    check->request = *request;
    check->joined = true;
    *out = check;
    TRY(memory_take((size_t)count, sizeof *check->files, &memory));
    check->files = memory;
    memset(memory, 0, (size_t)count * sizeof *check->files);
    for (int i = 0; i < count; i++) {
        if (!files[i].unread) continue;
        check->files[i].path = files[i].path;
        check->bytes += (int64_t)files[i].length;
    }
    if (pthread_create(&check->thread, NULL, check_main, check) != 0)
        FAIL(ERR_MEMORY, "no thread can be started to check token files");
    check->joined = false;
    return OK;
}

bool token_check_done(const struct token_check *check, int64_t *read,
                      int64_t *bytes)
{
    *read += atomic_load_explicit(&check->read, memory_order_relaxed);
    *bytes += check->bytes;
    return atomic_load(&check->done);
}

status token_check_end(struct token_check *check, struct token_file *files)
{
    if (!check->joined) pthread_join(check->thread, NULL);
    check->joined = true;
    if (check->result != OK) FAIL(check->result, "%s", check->sentence);
    for (int i = 0; i < check->request.count; i++) {
        if (!files[i].unread) continue;
        files[i].crc = check->files[i].crc;
        files[i].largest = check->files[i].largest;
        files[i].pages = check->files[i].pages;
        check->files[i].pages = (struct token_pages){0};
        files[i].unread = false;
    }
    return OK;
}

void token_check_free(struct token_check *check)
{
    if (check == NULL) return;
    atomic_store(&check->stop, true);
    if (!check->joined) pthread_join(check->thread, NULL);
    for (int i = 0; check->files != NULL && i < check->request.count; i++)
        token_file_close(&check->files[i]);
    memory_free(check->files);
    memory_free(check);
}
