/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - the same work on many blocks, over the threads of a pool. */
#include "checkpoint/blocks.h"
#include <stdio.h>
#include <pthread.h>
#include "checkpoint/manifest.h"

struct work {
    blocks_body *body;
    void *argument;
    unsigned char *buffer;
    int64_t count;
    pthread_mutex_t lock;  /* of what follows */
    int64_t failed_at;     /* lowest block that failed */
    status failure;
    char message[1024];    /* a trace belongs to its thread: copied here */
};

static void note_failure(struct work *work, int64_t block, status failure)
{
    pthread_mutex_lock(&work->lock);
    if (work->failure == OK || block < work->failed_at) {
        work->failed_at = block;
        work->failure = failure;
        snprintf(work->message, sizeof work->message, "%s", status_message());
    }
    pthread_mutex_unlock(&work->lock);
    status_clear();
}

static void run_share(void *argument, int index, int count)
{
    struct work *work = argument;
    unsigned char *buffer =
        work->buffer + (size_t)index * CHECKPOINT_BLOCK_BYTES;
    int64_t first, last;

    threads_split(work->count, 1, index, count, &first, &last);
    for (int64_t block = first; block < last; block++) {
        const status result = work->body(work->argument, block, buffer);

        if (result == OK) continue;
        note_failure(work, block, result);
        return;
    }
}

status blocks_run(struct threads *threads, unsigned char *buffer,
                  int64_t count, blocks_body *body, void *argument)
{
    struct work work = {.body = body, .argument = argument, .buffer = buffer,
                        .count = count};

    pthread_mutex_init(&work.lock, NULL);
    if (count <= 1) run_share(&work, 0, 1);
    else threads_run(threads, run_share, &work);
    pthread_mutex_destroy(&work.lock);
    if (work.failure != OK) FAIL(work.failure, "%s", work.message);
    return OK;
}
