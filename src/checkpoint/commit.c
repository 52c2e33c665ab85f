/* SPDX-License-Identifier: Apache-2.0 */
/* commit.c - the directory of a checkpoint: made aside, appearing whole. */
#include "checkpoint/commit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/file.h"
#include "base/mapped_files.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"
#include "checkpoint/identity.h"

/* Beside tensors and extra files: manifest, index, headers, directories. */
static const int64_t OVERHEAD_BYTES = 1 << 20;
static const int64_t OVERHEAD_BYTES_PER_TENSOR = 512;

static int64_t bytes_needed(const struct checkpoint_plan *plan)
{
    int64_t bytes = OVERHEAD_BYTES;

    for (int i = 0; i < plan->part_count; i++) {
        int64_t part = dtype_bytes(plan->parts[i].dtype);

        for (int j = 0; j < plan->parts[i].dimensions; j++)
            part *= plan->parts[i].shape[j];
        bytes += part + OVERHEAD_BYTES_PER_TENSOR;
    }
    for (int i = 0; i < plan->file_count; i++)
        bytes += (int64_t)plan->files[i].length;
    return bytes;
}

static status check_room(const struct checkpoint_plan *plan,
                         const char *directory)
{
    const int64_t needed = bytes_needed(plan);
    struct statvfs system;
    char need[32], have[32];
    uint64_t room;

    /* Where the file system cannot tell, or others write elsewhere, the writes
     * will. */
    if (plan->part || statvfs(directory, &system) != 0) return OK;
    room = (uint64_t)system.f_bavail * (uint64_t)system.f_frsize;
    if (room >= (uint64_t)needed) return OK;
    FAIL(ERR_IO, "%s: disk full: the checkpoint of step %lld needs %s (%lld "
         "bytes), %s are free, %lld bytes are missing", directory,
         (long long)plan->step, text_bytes(need, (uint64_t)needed),
         (long long)needed, text_bytes(have, room),
         (long long)(needed - (int64_t)room));
}

status commit_name_directory(struct checkpoint_save *save)
{
    char directory[PATH_BYTES], name[32], hidden[40];

    TRY(path_join(directory, sizeof directory, save->plan->run, "ckpt"));
    step_name(name, save->plan->step);
    snprintf(hidden, sizeof hidden, ".tmp-%s", name);
    TRY(path_join(save->final, sizeof save->final, directory, name));
    return path_join(save->temporary, sizeof save->temporary, directory,
                     hidden);
}

status commit_make_directory(struct checkpoint_save *save)
{
    char directory[PATH_BYTES];

    TRY(path_join(directory, sizeof directory, save->plan->run, "ckpt"));
    TRY(directory_make_own(directory));
    TRY(check_room(save->plan, directory));
    if (file_is_link(save->temporary) || file_exists(save->temporary))
        TRY(directory_remove(save->temporary));
    TRY(directory_make_new(save->temporary));
    save->made = true;
    return OK;
}

/* Writes a small file beside the tensors and lists it. */
static status add_file(struct checkpoint_save *save,
                       struct manifest *manifest, const char *name,
                       const void *bytes, size_t length)
{
    char path[PATH_BYTES];
    struct manifest_file *listed = &manifest->files[manifest->file_count++];

    TRY(path_join(path, sizeof path, save->temporary, name));
    TRY(file_write_atomic(path, bytes, length));
    *listed = (struct manifest_file){.name = name, .bytes = (int64_t)length,
                                     .crc = crc32c(0, bytes, length)};
    return OK;
}

/* The shards of one writer, and its tensors' places in them. `first_part` is
 * the place of its first tensor among all. */
static status list_shards(struct checkpoint_save *save,
                          struct manifest *manifest,
                          const struct weights_writer *writer, int first_part)
{
    const int first_file = manifest->file_count;

    for (int i = 0; i < writer->shards; i++) {
        const struct safetensors_writer *file = &writer->files[i];
        char name[64];
        char *copy;

        shard_name(name, writer->stem, i, writer->shards, true);
        TRY(arena_copy_text(&save->arena, name, &copy));
        manifest->files[manifest->file_count++] = (struct manifest_file){
            .name = copy, .bytes = file->file_bytes,
            .crc = crc32c(0, file->header.bytes, file->header.length)};
    }
    for (int i = 0; i < writer->count; i++) {
        struct manifest_tensor *tensor = &manifest->tensors[first_part + i];

        tensor->file = first_file + writer->shard_of[i];
        tensor->first =
            writer->files[writer->shard_of[i]].first[writer->place[i]];
    }
    return OK;
}

/* Contributions become the checksums of the blocks that they make. */
static void join_zeros(uint32_t *crcs, const struct manifest_tensor *tensor)
{
    const uint32_t full = crc32c_zeros(CHECKPOINT_BLOCK_BYTES);

    for (int64_t i = 0; i < tensor->blocks; i++) {
        const int64_t left = tensor->bytes - i * CHECKPOINT_BLOCK_BYTES;

        crcs[i] ^= left < CHECKPOINT_BLOCK_BYTES ? crc32c_zeros((uint64_t)left)
                                                 : full;
    }
}

/* Joins the contributions of the holders to the checksums of the blocks. */
static status list_tensor(struct checkpoint_save *save,
                          struct manifest *manifest, int part)
{
    const struct saved_part *from = &save->plan->parts[part];
    struct manifest_tensor *tensor = &manifest->tensors[save->place[part]];
    const int64_t first = save->first_block[part];

    tensor->name = from->name;
    tensor->kind = from->kind;
    tensor->dtype = from->dtype;
    tensor->dimensions = from->dimensions;
    memcpy(tensor->shape, from->shape, sizeof tensor->shape);
    TRY(part_elements(from->name, from->dimensions, from->shape, from->dtype,
                      &tensor->elements));
    if (save->covered[part] != tensor->elements)
        FAIL(ERR_CONFIG, "%s (%s): %lld elements were given, it has %lld",
             from->name, from->kind, (long long)save->covered[part],
             (long long)tensor->elements);
    if (save->places[part] != sum_below((uint64_t)tensor->elements))
        FAIL(ERR_CONFIG, "%s (%s): some elements were given twice, others not "
                         "at all", from->name, from->kind);
    tensor->bytes = tensor->elements * dtype_bytes(from->dtype);
    tensor->blocks = save->first_block[part + 1] - first;
    tensor->crcs = save->contributions + first;
    join_zeros(tensor->crcs, tensor);
    return OK;
}

static status take_manifest(struct checkpoint_save *save,
                            struct manifest *manifest)
{
    const struct checkpoint_plan *plan = save->plan;
    const char *tokenizer = plan->tokenizer ? plan->tokenizer : "";
    const int files = 2 + plan->file_count + save->model.shards +
                      save->optim.shards + plan->beside_count;
    void *memory;

    *manifest = (struct manifest){.numerics = plan->numerics,
                                  .step = plan->step, .tokens = plan->tokens,
                                  .grid = plan->grid};
    if (strlen(plan->lockstep) >= sizeof manifest->lockstep ||
        strlen(tokenizer) >= sizeof manifest->tokenizer)
        FAIL(ERR_CONFIG, "the version or the tokenizer's digest is too long");
    snprintf(manifest->lockstep, sizeof manifest->lockstep, "%s",
             plan->lockstep);
    snprintf(manifest->tokenizer, sizeof manifest->tokenizer, "%s",
             tokenizer);
    TRY(model_digest(manifest->model, plan->parts, plan->part_count,
                     plan->config_json));
    TRY(arena_take_array(&save->arena, (size_t)files, sizeof *manifest->files,
                         &memory));
    manifest->files = memory;
    TRY(arena_take_array(&save->arena, (size_t)plan->part_count + 1,
                         sizeof *manifest->tensors, &memory));
    manifest->tensors = memory;
    manifest->tensor_count = plan->part_count;
    return OK;
}

static status write_index(struct checkpoint_save *save,
                          struct manifest *manifest)
{
    const struct weights_writer *model = &save->model;
    struct text text = {0};
    status result;

    TRY_GOTO(done, result,
             weights_index_text(&text, model->tensors, model->count,
                                model->shard_of, model->shards, "model"));
    TRY_GOTO(done, result,
             add_file(save, manifest, "model.safetensors.index.json",
                      text.bytes, text.length));
done:
    text_free(&text);
    return result;
}

static status write_manifest(const struct checkpoint_save *save,
                             const struct manifest *manifest, const char *name)
{
    struct text text = {0};
    char path[PATH_BYTES];
    status result;

    TRY(path_join(path, sizeof path, save->temporary, name));
    TRY_GOTO(done, result, manifest_write(&text, manifest));
    TRY_GOTO(done, result, file_write_atomic(path, text.bytes, text.length));
done:
    text_free(&text);
    return result;
}

/* The list of the part that lies here, and of the files beside it. */
static status write_shards(struct checkpoint_save *save,
                           struct manifest *manifest)
{
    const struct checkpoint_plan *plan = save->plan;

    CHECK(save->own != NULL);
    for (int i = 0; i < plan->part_count; i++) {
        struct manifest_tensor *tensor = &manifest->tensors[save->place[i]];

        tensor->crcs = save->own + save->first_block[i];
        join_zeros(tensor->crcs, tensor);
    }
    for (int i = 0; i < plan->beside_count; i++)
        TRY(add_file(save, manifest, plan->beside[i].name,
                     plan->beside[i].bytes, plan->beside[i].length));
    return write_manifest(save, manifest, CHECKPOINT_SHARDS);
}

/* Every file of the temporary directory, the manifest last. */
static status write_files(struct checkpoint_save *save)
{
    const struct checkpoint_plan *plan = save->plan;
    struct manifest manifest;

    TRY(take_manifest(save, &manifest));
    for (int i = 0; i < plan->part_count; i++)
        TRY(list_tensor(save, &manifest, i));
    TRY(add_file(save, &manifest, "state.json", plan->state_json,
                 strlen(plan->state_json)));
    for (int i = 0; i < plan->file_count; i++)
        TRY(add_file(save, &manifest, plan->files[i].name,
                     plan->files[i].bytes, plan->files[i].length));
    TRY(write_index(save, &manifest));
    TRY(list_shards(save, &manifest, &save->model, 0));
    TRY(list_shards(save, &manifest, &save->optim, save->weight_count));
    TRY(write_manifest(save, &manifest, CHECKPOINT_MANIFEST));
    return plan->part ? write_shards(save, &manifest) : OK;
}

static bool can_exchange(const struct checkpoint_save *save)
{
    if (fault_due("checkpoint.exchange")) return false;
    return renameat2(AT_FDCWD, save->temporary, AT_FDCWD, save->final,
                     RENAME_EXCHANGE) == 0;
}

/* Where a file system cannot exchange two names (NFS): the older one is set
 * aside under a name that checkpoint_clean brings back when we are killed
 * before the new one has its own. */
static status replace_final(struct checkpoint_save *save, const char *directory)
{
    char aside[PATH_BYTES], name[32], hidden[48];
    status result;

    step_name(name, save->plan->step);
    snprintf(hidden, sizeof hidden, CHECKPOINT_ASIDE "%s", name);
    TRY(path_join(aside, sizeof aside, directory, hidden));
    if (file_is_link(aside) || file_exists(aside)) TRY(directory_remove(aside));
    if (rename(save->final, aside) != 0)
        FAIL(ERR_IO, "%s: cannot be set aside: %s", save->final,
             strerror(errno));
    result = fault_point("checkpoint.aside");
    if (result == OK && rename(save->temporary, save->final) != 0)
        result = status_fail(ERR_IO, __FILE__, __LINE__,
                             "%s: cannot be given its name: %s", save->final,
                             strerror(errno));
    if (result != OK) {
        /* If this fails, too, checkpoint_clean does it. */
        (void)!rename(aside, save->final);
        return result;
    }
    save->made = false;
    TRY(directory_sync(directory));
    TRY(fault_point("checkpoint.replaced"));
    return directory_remove(aside);
}

/* The temporary directory takes the final name. Where that exists, the two
 * change places, so that at no moment the step is missing. */
static status appear(struct checkpoint_save *save, const char *directory)
{
    TRY(mapped_check_used()); /* a batch that was read ahead is not in it */

    const bool exists = file_is_link(save->final) ||
                        file_is_directory(save->final);

    if (exists && !can_exchange(save)) return replace_final(save, directory);
    if (!exists && rename(save->temporary, save->final) != 0)
        FAIL(ERR_IO, "%s: cannot be given its name: %s", save->final,
             strerror(errno));
    save->made = exists; /* what is there now is the one replaced */
    return directory_sync(directory);
}

status checkpoint_save_finish(struct checkpoint_save *save)
{
    TRY(weights_writer_commit_shards(&save->model));
    TRY(weights_writer_commit_shards(&save->optim));
    TRY(write_files(save));
    return directory_sync(save->temporary);
}

/* Drops the page cache of a written file, so that the next read comes from the
 * disk. This is advice: a file system that ignores it returns its own copy. */
static status drop_cache(const char *directory)
{
    char path[PATH_BYTES];
    char **names = NULL;
    int count = 0;
    status result;

    TRY(directory_list(directory, &names, &count));
    for (int i = 0; i < count; i++) {
        int descriptor;

        TRY_GOTO(done, result,
                 path_join(path, sizeof path, directory, names[i]));
        descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (descriptor < 0) continue; /* opening it again will say why */
        (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        close(descriptor);
    }
    result = OK;
done:
    directory_list_free(names, count);
    return result;
}

status checkpoint_save_check(const struct checkpoint_save *save, int share,
                             int shares)
{
    struct checkpoint checkpoint = {0};
    char why[512];
    status result;

    TRY(drop_cache(save->temporary));
    result = checkpoint_open_listed(&checkpoint, save->temporary,
                                    save->plan->part ? CHECKPOINT_SHARDS
                                                     : CHECKPOINT_MANIFEST,
                                    save->plan->threads);
    if (result == OK)
        result = checkpoint_verify_share(&checkpoint, share, shares);
    checkpoint_close(&checkpoint);
    if (result != ERR_FORMAT) return result;
    snprintf(why, sizeof why, "%s", status_message());
    status_clear();
    FAIL(ERR_FORMAT, "the checkpoint of step %lld was written, but the disk "
         "gives back something else: %s", (long long)save->plan->step, why);
}

status checkpoint_save_commit(struct checkpoint_save *save)
{
    char directory[PATH_BYTES], latest[PATH_BYTES];
    char name[32], line[40];

    step_name(name, save->plan->step);
    snprintf(line, sizeof line, "%s\n", name);
    TRY(path_join(directory, sizeof directory, save->plan->run, "ckpt"));
    TRY(path_join(latest, sizeof latest, directory, "latest"));
    TRY(fault_point("checkpoint.rename"));
    TRY(appear(save, directory));
    TRY(fault_point("checkpoint.latest"));
    TRY(file_write_atomic(latest, line, strlen(line)));
    checkpoint_announced(save->plan->run);
    return OK;
}

void checkpoint_save_free(struct checkpoint_save *save)
{
    weights_writer_free(&save->model);
    weights_writer_free(&save->optim);
    /* A failure to remove changes nothing: the name is never read, and the
     * next save or checkpoint_clean removes it. */
    if (save->made && directory_remove(save->temporary) != OK) status_clear();
    arena_free(&save->arena);
    memset(save, 0, sizeof *save);
}
