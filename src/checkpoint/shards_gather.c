/* SPDX-License-Identifier: Apache-2.0 */
/* shards_gather.c - makes a checkpoint in one directory of its shards. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"
#include "checkpoint/shards.h"
#include "checkpoint/transfer.h"

static const size_t small_most = (size_t)1 << 30;

/* Bytes before the first tensor of a file. */
static int64_t header_bytes(const struct manifest *manifest, int file)
{
    int64_t first = manifest->files[file].bytes;

    for (int i = 0; i < manifest->tensor_count; i++)
        if (manifest->tensors[i].file == file &&
            manifest->tensors[i].first < first)
            first = manifest->tensors[i].first;
    return first;
}

/* The header, from the first store that has it whole. */
static status write_header(const struct shard_set *shards, int file,
                           int descriptor, const char *path)
{
    const struct manifest_file *listed = &shards->whole.files[file];
    const int64_t bytes = header_bytes(&shards->whole, file);
    char from[STORE_PATH_BYTES], step[32];
    void *header;
    size_t got = 0;
    bool found = false;
    status result = OK;

    step_name(step, shards->whole.step);
    TRY(memory_take((size_t)bytes + 1, 1, &header));
    for (int i = 0; i < shards->count && !found; i++) {
        const struct shard_store *store = &shards->stores[i];

        snprintf(from, sizeof from, "%s/ckpt/%s/%.120s", store->name, step,
                 listed->name);
        if (store->place->read(store->place->argument, from, 0, header,
                               (size_t)bytes, &got) != OK)
            status_clear();
        found = got == (size_t)bytes &&
                crc32c(0, header, (size_t)bytes) == listed->crc;
    }
    if (!found)
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__, "%s/%s: no store "
                             "has its header whole", step, listed->name);
    else
        result = transfer_write(descriptor, path, 0, header, (size_t)bytes);
    memory_free(header);
    return result;
}

static status write_tensor(const struct shard_set *shards, int tensor,
                           int descriptor, const char *path)
{
    const struct manifest_tensor *t = &shards->whole.tensors[tensor];
    void *buffer;
    status result = OK;

    TRY(memory_take(CHECKPOINT_BLOCK_BYTES, 1, &buffer));
    for (int64_t b = 0; b < t->blocks && result == OK; b++) {
        const int64_t at = b * CHECKPOINT_BLOCK_BYTES, left = t->bytes - at;
        const size_t n = (size_t)(left < CHECKPOINT_BLOCK_BYTES
                                      ? left : CHECKPOINT_BLOCK_BYTES);

        result = shards_read_block(shards, tensor, b, buffer);
        if (result == OK)
            result = transfer_write(descriptor, path, t->first + at, buffer,
                                    n);
    }
    memory_free(buffer);
    return result;
}

static status write_tensors(const struct shard_set *shards, int file,
                            const char *path)
{
    int descriptor;
    status result;

    TRY(file_open_own(path, O_WRONLY | O_CREAT | O_EXCL, &descriptor));
    result = write_header(shards, file, descriptor, path);
    for (int i = 0; i < shards->whole.tensor_count && result == OK; i++)
        if (shards->whole.tensors[i].file == file)
            result = write_tensor(shards, i, descriptor, path);
    if (result == OK) result = transfer_sync(descriptor, path);
    close(descriptor);
    return result;
}

static status write_small(const struct shard_set *shards, const char *name,
                          const char *path)
{
    struct text text = {0};
    status result = shards_read_file(shards, name, small_most, &text);

    if (result == OK) result = file_write_atomic(path, text.bytes, text.length);
    text_free(&text);
    return result;
}

static status write_all(const struct shard_set *shards, const char *directory)
{
    const struct manifest *whole = &shards->whole;
    char path[PATH_BYTES];

    for (int i = 0; i < whole->file_count; i++) {
        const struct manifest_file *file = &whole->files[i];

        TRY(path_join(path, sizeof path, directory, file->name));
        TRY(file->holds_tensors ? write_tensors(shards, i, path)
                                : write_small(shards, file->name, path));
    }
    TRY(path_join(path, sizeof path, directory, CHECKPOINT_MANIFEST));
    TRY(file_write_atomic(path, shards->text, shards->length));
    return directory_sync(directory);
}

static status verify(const char *directory)
{
    struct checkpoint checkpoint = {0};
    status result = checkpoint_open(&checkpoint, directory, NULL);

    if (result == OK) result = checkpoint_verify(&checkpoint);
    checkpoint_close(&checkpoint);
    return result;
}

status shards_gather(const struct shard_set *shards, const char *run,
                     bool newest)
{
    char ckpt[PATH_BYTES], hidden[PATH_BYTES], final[PATH_BYTES],
        latest[PATH_BYTES], name[32], line[40];

    step_name(name, shards->whole.step);
    TRY(path_join(ckpt, sizeof ckpt, run, "ckpt"));
    TRY(directory_make_own(ckpt));
    TRY(path_join(hidden, sizeof hidden, ckpt, ".tmp-gathered"));
    if (!file_is_gone(hidden)) TRY(directory_remove(hidden));
    TRY(directory_make_new(hidden));
    TRY(write_all(shards, hidden));
    TRY(verify(hidden));
    TRY(path_join(final, sizeof final, ckpt, name));
    if (!file_is_gone(final)) TRY(directory_remove(final));
    if (rename(hidden, final) != 0)
        return file_fail("renaming", hidden, errno);
    TRY(directory_sync(ckpt));
    if (!newest) return OK;
    snprintf(line, sizeof line, "%s\n", name);
    TRY(path_join(latest, sizeof latest, ckpt, "latest"));
    TRY(file_write_atomic(latest, line, strlen(line)));
    checkpoint_announced(run);
    return OK;
}
