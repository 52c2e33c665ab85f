/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - one saved step of a run, opened for reading. */
#include "checkpoint/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint/blocks.h"
#include "checkpoint/convert.h"
#include "checkpoint/history.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save.h"
#include "checkpoint/shards.h"
#include "checkpoint/transfer.h"

static const int64_t STATE_BYTES_MAX = 64 << 20;

size_t checkpoint_buffer_bytes(const struct threads *threads)
{
    return (size_t)threads_count(threads) * CHECKPOINT_BLOCK_BYTES;
}

/* All of a small file of the checkpoint, in the arena. */
static status read_whole(struct checkpoint *checkpoint, const char *name,
                         int64_t bytes_max, char **out, int64_t *length)
{
    char path[PATH_BYTES];
    void *memory;
    int descriptor = -1;
    status result;

    TRY(path_join(path, sizeof path, checkpoint->directory, name));
    TRY(transfer_open(path, false, &descriptor, length));
    if (*length > bytes_max)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: has %lld bytes, at most %lld "
                  "are read", path, (long long)*length, (long long)bytes_max);
    TRY_GOTO(done, result,
             arena_take(&checkpoint->arena, (size_t)*length + 1, &memory));
    *out = memory;
    TRY_GOTO(done, result,
             transfer_read(descriptor, path, 0, memory, (size_t)*length));
done:
    close(descriptor);
    return result;
}

static status read_manifest(struct checkpoint *checkpoint, const char *name)
{
    char path[PATH_BYTES];
    char *text = NULL;
    int64_t length = 0;

    TRY(path_join(path, sizeof path, checkpoint->directory, name));
    TRY(read_whole(checkpoint, name, MANIFEST_BYTES_MAX, &text, &length));
    return manifest_read(&checkpoint->manifest, &checkpoint->arena, text,
                         (size_t)length, path);
}

/* CRC of bytes [0, length) of a file, through the block buffer. */
static status file_crc(const struct checkpoint *checkpoint, int descriptor,
                       const char *path, int64_t length, uint32_t *crc)
{
    *crc = 0;
    for (int64_t at = 0; at < length; at += CHECKPOINT_BLOCK_BYTES) {
        const int64_t left = length - at;
        const size_t n = (size_t)(left < CHECKPOINT_BLOCK_BYTES
                                      ? left : CHECKPOINT_BLOCK_BYTES);

        TRY(transfer_read(descriptor, path, at, checkpoint->buffer, n));
        *crc = crc32c(*crc, checkpoint->buffer, n);
    }
    return OK;
}

static bool same_shape(const struct manifest_tensor *tensor, int dimensions,
                       const int64_t *shape)
{
    if (tensor->dimensions != dimensions) return false;
    for (int i = 0; i < dimensions; i++)
        if (tensor->shape[i] != shape[i]) return false;
    return true;
}

/* Header and manifest say the same: neither file may be exchanged for that of
 * another step or model, even one with a valid checksum of its own. */
static status check_entries(const struct checkpoint *checkpoint, int index,
                            const struct safetensors *file)
{
    const struct manifest *manifest = &checkpoint->manifest;
    int count = 0;

    for (int i = 0; i < manifest->tensor_count; i++) {
        const struct manifest_tensor *tensor = &manifest->tensors[i];
        const struct safetensors_entry *entry;
        char name[640];

        if (tensor->file != index) continue;
        count++;
        tensor_file_name(name, tensor->name, tensor->kind);
        entry = safetensors_find(file, name);
        if (!entry || entry->dtype != tensor->dtype ||
            entry->first != tensor->first || entry->bytes != tensor->bytes ||
            !same_shape(tensor, entry->dimensions, entry->shape))
            FAIL(ERR_FORMAT, "%s: %s is not there as the manifest says",
                 file->path, name);
    }
    if (count != file->count)
        FAIL(ERR_FORMAT, "%s: has %d tensors, the manifest lists %d",
             file->path, file->count, count);
    return OK;
}

static status check_file(struct checkpoint *checkpoint, int index)
{
    const struct manifest_file *listed = &checkpoint->manifest.files[index];
    struct safetensors file = {0};
    char path[PATH_BYTES];
    int64_t bytes = 0, covered;
    int descriptor = -1;
    uint32_t crc = 0;
    status result;

    TRY(path_join(path, sizeof path, checkpoint->directory, listed->name));
    TRY(transfer_open(path, false, &descriptor, &bytes));
    checkpoint->descriptors[index] = descriptor;
    if (bytes != listed->bytes)
        FAIL(ERR_FORMAT, "%s: has %lld bytes, the manifest says %lld", path,
             (long long)bytes, (long long)listed->bytes);
    covered = bytes;
    if (listed->holds_tensors) {
        TRY_GOTO(done, result, safetensors_open(&file, path, false));
        TRY_GOTO(done, result, check_entries(checkpoint, index, &file));
        covered = file.data_first;
    }
    TRY_GOTO(done, result,
             file_crc(checkpoint, descriptor, path, covered, &crc));
    if (crc != listed->crc)
        FAIL_GOTO(done, result, ERR_FORMAT,
                  "%s: is damaged: its first %lld bytes have checksum %08x, "
                  "the manifest says %08x", path, (long long)covered, crc,
                  listed->crc);
done:
    safetensors_close(&file);
    if (!listed->holds_tensors) {
        close(descriptor);
        checkpoint->descriptors[index] = -1;
    }
    return result;
}

static status read_state(struct checkpoint *checkpoint)
{
    char path[PATH_BYTES];
    char *text = NULL;
    int64_t length = 0;
    bool listed = false;

    for (int i = 0; i < checkpoint->manifest.file_count; i++)
        listed |= strcmp(checkpoint->manifest.files[i].name,
                         "state.json") == 0;
    TRY(path_join(path, sizeof path, checkpoint->directory, "state.json"));
    if (!listed)
        FAIL(ERR_FORMAT, "%s: is not in the manifest", path);
    TRY(read_whole(checkpoint, "state.json", STATE_BYTES_MAX, &text,
                   &length));
    TRY(json_read(&checkpoint->state, &checkpoint->arena, text,
                  (size_t)length, path));
    if (checkpoint->state->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: is not an object", path);
    return OK;
}

static void begin(struct checkpoint *checkpoint, struct threads *threads)
{
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->threads = threads;
    arena_init(&checkpoint->arena, "checkpoint", (size_t)4 << 30);
}

static status take_buffer(struct checkpoint *checkpoint)
{
    void *memory;

    TRY(arena_take(&checkpoint->arena,
                   checkpoint_buffer_bytes(checkpoint->threads), &memory));
    checkpoint->buffer = memory;
    return OK;
}

status checkpoint_open(struct checkpoint *checkpoint, const char *directory,
                       struct threads *threads)
{
    return checkpoint_open_listed(checkpoint, directory, CHECKPOINT_MANIFEST,
                                  threads);
}

status checkpoint_open_listed(struct checkpoint *checkpoint,
                              const char *directory, const char *list,
                              struct threads *threads)
{
    void *memory;
    int count;

    begin(checkpoint, threads);
    if (strlen(directory) >= PATH_BYTES)
        FAIL(ERR_CONFIG, "%.100s...: the path is too long", directory);
    snprintf(checkpoint->directory, PATH_BYTES, "%s", directory);
    TRY(read_manifest(checkpoint, list));
    count = checkpoint->manifest.file_count;
    TRY(arena_take_array(&checkpoint->arena, (size_t)count + 1, sizeof(int),
                         &memory));
    checkpoint->descriptors = memory;
    for (int i = 0; i < count; i++) checkpoint->descriptors[i] = -1;
    TRY(take_buffer(checkpoint));
    for (int i = 0; i < count; i++) TRY(check_file(checkpoint, i));
    return read_state(checkpoint);
}

/* state.json, from any store. */
static status read_far_state(struct checkpoint *checkpoint)
{
    struct text text = {0};
    status result;

    TRY_GOTO(done, result,
             shards_read_file(checkpoint->shards, "state.json",
                              (size_t)STATE_BYTES_MAX, &text));
    TRY_GOTO(done, result,
             json_read(&checkpoint->state, &checkpoint->arena, text.bytes,
                       text.length, "state.json"));
    if (checkpoint->state->kind != JSON_OBJECT)
        FAIL_GOTO(done, result, ERR_FORMAT, "state.json: is not an object");
done:
    text_free(&text);
    return result;
}

status checkpoint_open_shards(struct checkpoint *checkpoint,
                              const struct shard_set *shards,
                              struct threads *threads)
{
    begin(checkpoint, threads);
    checkpoint->shards = shards;
    checkpoint->manifest = shards->whole;
    step_name(checkpoint->directory, shards->whole.step);
    TRY(take_buffer(checkpoint));
    return read_far_state(checkpoint);
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    for (int i = 0; checkpoint->descriptors &&
                    i < checkpoint->manifest.file_count; i++)
        if (checkpoint->descriptors[i] >= 0)
            close(checkpoint->descriptors[i]);
    arena_free(&checkpoint->arena);
    memset(checkpoint, 0, sizeof *checkpoint);
}

const struct manifest_tensor *
checkpoint_find(const struct checkpoint *checkpoint, const char *name,
                const char *kind)
{
    const struct manifest *manifest = &checkpoint->manifest;
    const bool weight = strcmp(kind, "weight") == 0;
    int low = 0, high = manifest->tensor_count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        const struct manifest_tensor *tensor = &manifest->tensors[middle];
        const bool middle_weight = strcmp(tensor->kind, "weight") == 0;
        int order = (int)middle_weight - (int)weight;

        if (order == 0) order = strcmp(kind, tensor->kind);
        if (order == 0) order = strcmp(name, tensor->name);
        if (order == 0) return tensor;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

struct reading {
    const struct checkpoint *checkpoint;
    const struct manifest_tensor *tensor;
    const struct saved_part *part;
    const struct saved_run *runs;
    int run_count;
    int64_t first_block; /* that any run touches */
};

static status read_block(const struct checkpoint *checkpoint,
                         const struct manifest_tensor *tensor, int64_t block,
                         unsigned char *out)
{
    const int64_t at = block * CHECKPOINT_BLOCK_BYTES;
    const int64_t left = tensor->bytes - at;
    const size_t n = (size_t)(left < CHECKPOINT_BLOCK_BYTES
                                  ? left : CHECKPOINT_BLOCK_BYTES);
    const char *file = checkpoint->manifest.files[tensor->file].name;
    uint32_t crc;

    if (checkpoint->shards != NULL)
        TRY(shards_read_block(checkpoint->shards,
                              (int)(tensor - checkpoint->manifest.tensors),
                              block, out));
    else
        TRY(transfer_read(checkpoint->descriptors[tensor->file], file,
                          tensor->first + at, out, n));
    crc = crc32c(0, out, n);
    if (crc != tensor->crcs[block])
        FAIL(ERR_FORMAT,
             "%s/%s: is damaged: block %lld of %s (%s) has checksum %08x, the "
             "manifest says %08x", checkpoint->directory, file,
             (long long)block, tensor->name, tensor->kind, crc,
             tensor->crcs[block]);
    return OK;
}

/* Where the block may be read in place: one row holds all of it, unconverted
 * and dense. NULL: it must go through the buffer. */
static unsigned char *place_of_block(const struct reading *reading,
                                     int64_t first, int64_t last)
{
    const struct saved_part *part = reading->part;

    if (part->dtype != reading->tensor->dtype) return NULL;
    for (int i = 0; i < reading->run_count; i++) {
        struct saved_stretch stretch;
        int64_t row = 0;

        if (run_next(&reading->runs[i], first, last, &row, &stretch) &&
            stretch.count == last - first && stretch.step == 1)
            return (unsigned char *)part->data +
                   stretch.local * dtype_bytes(part->dtype);
    }
    return NULL;
}

static status load_block(void *argument, int64_t number,
                         unsigned char *buffer)
{
    const struct reading *reading = argument;
    const int64_t block = reading->first_block + number;
    const struct manifest_tensor *tensor = reading->tensor;
    const struct saved_part *part = reading->part;
    const int64_t size = dtype_bytes(tensor->dtype);
    const int64_t out_size = dtype_bytes(part->dtype);
    const int64_t in_block = CHECKPOINT_BLOCK_BYTES / size;
    const int64_t first = block * in_block;
    const int64_t left = tensor->elements - first;
    const int64_t last = first + (left < in_block ? left : in_block);
    unsigned char *in_place = place_of_block(reading, first, last);
    bool read = false;

    if (in_place)
        return read_block(reading->checkpoint, tensor, block, in_place);
    for (int i = 0; i < reading->run_count; i++) {
        struct saved_stretch stretch;
        int64_t row = 0;

        while (run_next(&reading->runs[i], first, last, &row, &stretch)) {
            if (!read)
                TRY(read_block(reading->checkpoint, tensor, block, buffer));
            read = true;
            convert_elements((struct spacing){part->dtype, stretch.step},
                             (char *)part->data + stretch.local * out_size,
                             (struct spacing){tensor->dtype, 1},
                             buffer + (stretch.whole - first) * size,
                             stretch.count);
        }
    }
    return OK;
}

/* The blocks between the first and the last element of any run; a small range
 * of a large tensor must not visit all of it. */
static int64_t find_blocks(struct reading *reading)
{
    const int64_t in_block =
        CHECKPOINT_BLOCK_BYTES / dtype_bytes(reading->tensor->dtype);
    int64_t first = reading->tensor->elements, last = 0;

    for (int i = 0; i < reading->run_count; i++) {
        const struct saved_run *run = &reading->runs[i];
        const int64_t end = run->whole_first + run->length +
                            (run->repeats - 1) * run->whole_stride;

        if (run->length == 0 || run->repeats == 0) continue;
        if (run->whole_first < first) first = run->whole_first;
        if (end > last) last = end;
    }
    if (first >= last) return 0;
    reading->first_block = first / in_block;
    return (last - 1) / in_block + 1 - reading->first_block;
}

static status read_found(struct checkpoint *checkpoint,
                         const struct manifest_tensor *tensor,
                         const struct saved_part *part)
{
    struct saved_run whole;
    struct reading reading = {checkpoint, tensor, part, NULL, 0, 0};
    int64_t block_count;

    TRY(part_check(part));
    if (!convert_possible(part->dtype, tensor->dtype))
        FAIL(ERR_FORMAT, "%s: %s (%s) has type %s, which does not convert to "
             "%s", checkpoint->directory, tensor->name, tensor->kind,
             dtype_name(tensor->dtype), dtype_name(part->dtype));
    reading.run_count = part_runs(part, &whole, &reading.runs);
    block_count = find_blocks(&reading);
    return blocks_run(checkpoint->threads, checkpoint->buffer, block_count,
                      load_block, &reading);
}

status checkpoint_read_tensor(struct checkpoint *checkpoint,
                              const struct saved_part *part)
{
    const struct manifest_tensor *tensor =
        checkpoint_find(checkpoint, part->name, part->kind);
    char found[192], expected[192];

    if (!tensor)
        FAIL(ERR_FORMAT, "%s: has no tensor %s (%s)", checkpoint->directory,
             part->name, part->kind);
    if (!same_shape(tensor, part->dimensions, part->shape))
        FAIL(ERR_FORMAT, "%s: %s has shape %s, the model needs %s",
             checkpoint->directory, part->name,
             shape_text(found, tensor->dimensions, tensor->shape),
             shape_text(expected, part->dimensions, part->shape));
    return read_found(checkpoint, tensor, part);
}

status checkpoint_read_range(struct checkpoint *checkpoint,
                             const struct manifest_tensor *tensor,
                             int64_t first, int64_t count, enum dtype dtype,
                             void *out)
{
    const struct saved_run run = {.whole_first = first, .length = count,
                                  .repeats = 1};
    struct saved_part part = {.name = tensor->name, .kind = tensor->kind,
                              .dtype = dtype,
                              .dimensions = tensor->dimensions,
                              .run_count = 1, .runs = &run, .data = out};

    memcpy(part.shape, tensor->shape, sizeof part.shape);
    return read_found(checkpoint, tensor, &part);
}

/* Block of the whole checkpoint -> tensor and block of the tensor. */
struct verifying {
    const struct checkpoint *checkpoint;
    int64_t *first_block; /* [tensor_count + 1] */
    int share, shares;
};

static status verify_block(void *argument, int64_t number,
                           unsigned char *buffer)
{
    const struct verifying *verifying = argument;
    const int64_t block = number * verifying->shares + verifying->share;
    const struct manifest *manifest = &verifying->checkpoint->manifest;
    int low = 0, high = manifest->tensor_count;

    /* The last tensor whose first block is at most `block`. */
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;

        if (verifying->first_block[middle] <= block) low = middle;
        else high = middle;
    }
    return read_block(verifying->checkpoint, &manifest->tensors[low],
                      block - verifying->first_block[low], buffer);
}

status checkpoint_verify_share(struct checkpoint *checkpoint, int share,
                               int shares)
{
    const struct manifest *manifest = &checkpoint->manifest;
    struct verifying verifying = {checkpoint, NULL, share, shares};
    int64_t blocks;
    void *memory;
    status result;

    TRY(memory_take((size_t)manifest->tensor_count + 1, sizeof(int64_t),
                    &memory));
    verifying.first_block = memory;
    verifying.first_block[0] = 0;
    for (int i = 0; i < manifest->tensor_count; i++)
        verifying.first_block[i + 1] =
            verifying.first_block[i] + manifest->tensors[i].blocks;
    blocks = verifying.first_block[manifest->tensor_count];
    blocks = (blocks - share + shares - 1) / shares;
    result = blocks_run(checkpoint->threads, checkpoint->buffer,
                        blocks > 0 ? blocks : 0, verify_block, &verifying);
    memory_free(memory);
    return result;
}

status checkpoint_verify(struct checkpoint *checkpoint)
{
    return checkpoint_verify_share(checkpoint, 0, 1);
}
