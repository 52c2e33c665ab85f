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

enum { SENTENCE = 1024 };

struct token_check {
    pthread_t thread;
    bool joined;
    atomic_bool stop;
    const char *cache;        /* borrowed */
    struct token_file *files; /* owned [count]: opened by the thread */
    int count;
    status result;            /* of the thread; its sentence */
    char sentence[SENTENCE];
};

/* One reads and leaves a seal. A place where nothing can be written has no
 * lock either: then each reads for itself. */
static status check_file(struct token_check *check, struct token_file *file)
{
    const struct timespec wait = {.tv_nsec = 50000000};
    char path[PATH_BYTES];
    struct file_lock lock = {0};
    status result;

    TRY(token_file_seal_path(file, check->cache, ".lock", path));
    while (check->cache == NULL || file_is_directory(check->cache)) {
        const status taken = file_lock_take(&lock, path);

        status_clear();
        if (taken != ERR_CONFIG) break;
        if (token_file_sealed(file, check->cache)) return OK;
        if (atomic_load(&check->stop)) return ERR_STOPPED;
        nanosleep(&wait, NULL);
    }
    result = token_file_sealed(file, check->cache)
                 ? OK : token_file_trust(file, check->cache, TRUST_READ);
    if (lock.descriptor > 0) unlink(path);
    file_lock_drop(&lock);
    return result;
}

static void *check_main(void *argument)
{
    struct token_check *check = argument;

    for (int i = 0; i < check->count && check->result == OK; i++) {
        struct token_file *file = &check->files[i];
        const char *path = file->path;

        if (path == NULL) continue;
        check->result = token_file_open(file, path);
        file->stop = &check->stop;
        if (check->result == OK) check->result = check_file(check, file);
        if (check->result == OK) file_map_drop(&file->map);
    }
    snprintf(check->sentence, SENTENCE, "%s", status_message());
    status_clear();
    return NULL;
}

status token_check_begin(struct token_check **out,
                         const struct token_file *files, int count,
                         const char *cache)
{
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
    check->cache = cache;
    check->count = count;
    check->joined = true;
    *out = check;
    TRY(memory_take((size_t)count, sizeof *check->files, &memory));
    check->files = memory;
    memset(memory, 0, (size_t)count * sizeof *check->files);
    for (int i = 0; i < count; i++)
        if (files[i].unread) check->files[i].path = files[i].path;
    if (pthread_create(&check->thread, NULL, check_main, check) != 0)
        FAIL(ERR_MEMORY, "no thread can be started to check token files");
    check->joined = false;
    return OK;
}

status token_check_end(struct token_check *check, struct token_file *files,
                       int count)
{
    if (!check->joined) pthread_join(check->thread, NULL);
    check->joined = true;
    if (check->result != OK) FAIL(check->result, "%s", check->sentence);
    for (int i = 0; i < count; i++) {
        if (!files[i].unread) continue;
        files[i].crc = check->files[i].crc;
        files[i].largest = check->files[i].largest;
        files[i].unread = false;
    }
    return OK;
}

void token_check_free(struct token_check *check)
{
    if (check == NULL) return;
    atomic_store(&check->stop, true);
    if (!check->joined) pthread_join(check->thread, NULL);
    for (int i = 0; check->files != NULL && i < check->count; i++)
        token_file_close(&check->files[i]);
    memory_free(check->files);
    memory_free(check);
}
