/* SPDX-License-Identifier: Apache-2.0 */
/* weights_write.c - tensors into a Hugging Face directory, in as many shards
 * as their size needs. */
#include "checkpoint/weights_write.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "checkpoint/parts.h"

static status entry_bytes(const struct safetensors_tensor *tensor,
                          int64_t *bytes)
{
    int64_t elements = 0;

    TRY(part_elements(tensor->name, tensor->dimensions, tensor->shape,
                      tensor->dtype, &elements));
    *bytes = elements * dtype_bytes(tensor->dtype);
    return OK;
}

status weights_split(const struct safetensors_tensor *tensors, int count,
                     int64_t limit_bytes, int *shard_of, int *shards)
{
    int64_t held = 0;
    int shard = 0;

    for (int i = 0; i < count; i++) {
        int64_t bytes = 0;

        TRY(entry_bytes(&tensors[i], &bytes));
        if (held > 0 && bytes > limit_bytes - held) {
            shard++;
            held = 0;
        }
        shard_of[i] = shard;
        held = bytes > limit_bytes ? limit_bytes : held + bytes;
    }
    *shards = shard + 1;
    return OK;
}

void shard_name(char out[64], const char *stem, int shard, int shards,
                bool numbered)
{
    if (shards == 1 && !numbered)
        snprintf(out, 64, "%.20s.safetensors", stem);
    else
        snprintf(out, 64, "%.20s-%05d-of-%05d.safetensors", stem, shard + 1,
                 shards);
}

struct index_row { const char *name; int shard; };

static int order_rows(const void *left, const void *right)
{
    const struct index_row *a = left, *b = right;

    return strcmp(a->name, b->name);
}

status weights_index_text(struct text *out,
                          const struct safetensors_tensor *tensors, int count,
                          const int *shard_of, int shards, const char *stem)
{
    struct index_row *rows = NULL;
    int64_t total = 0;
    char file[64];
    void *memory;
    status result = OK;

    TRY(memory_take((size_t)count + 1, sizeof *rows, &memory));
    rows = memory;
    for (int i = 0; i < count; i++) {
        int64_t bytes = 0;

        TRY_GOTO(done, result, entry_bytes(&tensors[i], &bytes));
        total += bytes;
        rows[i] = (struct index_row){tensors[i].name, shard_of[i]};
    }
    if (count > 1) qsort(rows, (size_t)count, sizeof *rows, order_rows);
    TRY_GOTO(done, result,
             text_printf(out, "{\n  \"metadata\": {\n    \"total_size\": "
                              "%lld\n  },\n  \"weight_map\": {",
                         (long long)total));
    for (int i = 0; i < count; i++) {
        shard_name(file, stem, rows[i].shard, shards, true);
        TRY_GOTO(done, result,
                 text_printf(out, "%s\n    \"%s\": \"%s\"", i ? "," : "",
                             rows[i].name, file));
    }
    TRY_GOTO(done, result, text_append_string(out, "\n  }\n}\n"));
done:
    memory_free(rows);
    return result;
}

/* The greedy split leaves the tensors of a shard neighbours. */
static status open_shards(struct weights_writer *writer)
{
    int first = 0;

    for (int shard = 0; shard < writer->shards; shard++) {
        char name[64], path[PATH_BYTES];
        int last = first;

        while (last < writer->count && writer->shard_of[last] == shard) {
            writer->place[last] = last - first;
            last++;
        }
        shard_name(name, writer->stem, shard, writer->shards,
                   writer->numbered);
        TRY(path_join(path, sizeof path, writer->directory, name));
        TRY((writer->join   ? safetensors_writer_join
             : writer->part ? safetensors_writer_open_part
                            : safetensors_writer_open)(&writer->files[shard],
                                                     path,
                                                     writer->tensors + first,
                                                     last - first));
        first = last;
    }
    return OK;
}

status weights_writer_open(struct weights_writer *writer,
                           const char *directory,
                           const struct safetensors_tensor *tensors,
                           int count, int64_t limit_bytes)
{
    const size_t room = (size_t)count + 1;
    void *memory;

    if (!writer->stem) writer->stem = "model";
    writer->tensors = tensors;
    writer->count = count;
    if (strlen(directory) >= sizeof writer->directory)
        FAIL(ERR_CONFIG, "%.100s...: the path is too long", directory);
    snprintf(writer->directory, sizeof writer->directory, "%s", directory);
    TRY(memory_take(room, sizeof *writer->shard_of, &memory));
    writer->shard_of = memory;
    TRY(memory_take(room, sizeof *writer->place, &memory));
    writer->place = memory;
    TRY(weights_split(tensors, count,
                      limit_bytes ? limit_bytes : SHARD_BYTES_DEFAULT,
                      writer->shard_of, &writer->shards));
    TRY(memory_take((size_t)writer->shards, sizeof *writer->files, &memory));
    writer->files = memory;
    memset(writer->files, 0, (size_t)writer->shards * sizeof *writer->files);
    if (!writer->join) TRY(directory_make(directory));
    return open_shards(writer);
}

status weights_writer_put(const struct weights_writer *writer, int index,
                          int64_t first, int64_t count, const void *elements)
{
    return safetensors_writer_put(&writer->files[writer->shard_of[index]],
                                  writer->place[index], first, count,
                                  elements);
}

/* A reader prefers the index, or else the single file: what an earlier export
 * left of the other kind would be read in place of ours. */
static status remove_other_kind(const struct weights_writer *writer,
                                bool indexed)
{
    char path[PATH_BYTES];

    TRY(path_join(path, sizeof path, writer->directory,
                  indexed ? "model.safetensors"
                          : "model.safetensors.index.json"));
    if (file_exists(path) && unlink(path) != 0)
        FAIL(ERR_IO, "%s: cannot be removed", path);
    return OK;
}

status weights_writer_sync(const struct weights_writer *writer)
{
    for (int i = 0; i < writer->shards; i++)
        TRY(safetensors_writer_sync(&writer->files[i]));
    return OK;
}

status weights_writer_commit_shards(struct weights_writer *writer)
{
    for (int i = 0; i < writer->shards; i++)
        TRY(safetensors_writer_commit(&writer->files[i]));
    return OK;
}

status weights_writer_commit(struct weights_writer *writer)
{
    const bool indexed = writer->shards > 1 || writer->numbered;
    char path[PATH_BYTES];
    struct text index = {0};
    status result = OK;

    TRY(weights_writer_commit_shards(writer));
    if (indexed) {
        TRY(path_join(path, sizeof path, writer->directory,
                      "model.safetensors.index.json"));
        TRY_GOTO(done, result,
                 weights_index_text(&index, writer->tensors, writer->count,
                                    writer->shard_of, writer->shards,
                                    "model"));
        TRY_GOTO(done, result,
                 file_write_atomic(path, index.bytes, index.length));
    }
    TRY_GOTO(done, result, remove_other_kind(writer, indexed));
done:
    text_free(&index);
    return result;
}

void weights_writer_free(struct weights_writer *writer)
{
    for (int i = 0; writer->files && i < writer->shards; i++)
        safetensors_writer_free(&writer->files[i]);
    memory_free(writer->files);
    memory_free(writer->shard_of);
    memory_free(writer->place);
    memset(writer, 0, sizeof *writer);
}
