/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - writing a checkpoint: the tensors, block by block. */
#include "checkpoint/save.h"
#include <stdio.h>
#include <string.h>
#include "base/file.h"
#include "checkpoint/blocks.h"
#include "checkpoint/commit.h"
#include "checkpoint/convert.h"
#include "checkpoint/history.h"

/* Below this a copy into the block's buffer is cheaper than a write. */
static const int64_t DIRECT_BYTES_LEAST = 64 << 10;

static status check_plan(const struct checkpoint_plan *plan)
{
    if (plan->step < 0 || plan->step > 99999999999)
        FAIL(ERR_CONFIG, "a checkpoint of step %lld is impossible",
             (long long)plan->step);
    if (!plan->state_json || !plan->lockstep)
        FAIL(ERR_CONFIG, "a checkpoint needs a state and a version");
    for (int i = 0; i < plan->part_count; i++)
        TRY(part_check(&plan->parts[i]));
    for (int i = 0; i < plan->file_count; i++) {
        const char *name = plan->files[i].name;

        if (!file_name_is_safe(name) || text_ends_with(name, ".safetensors") ||
            strcmp(name, "manifest.json") == 0 ||
            strcmp(name, "state.json") == 0 ||
            strcmp(name, "model.safetensors.index.json") == 0)
            FAIL(ERR_CONFIG, "%s: cannot be the name of a file stored with a "
                 "checkpoint", name);
        for (int j = 0; j < i; j++)
            if (strcmp(plan->files[j].name, name) == 0)
                FAIL(ERR_CONFIG, "%s: is to be stored twice", name);
    }
    return OK;
}

static status take_tables(struct checkpoint_save *save)
{
    const struct checkpoint_plan *plan = save->plan;
    const size_t room = (size_t)plan->part_count + 1;
    void *memory;

    TRY(arena_take_array(&save->arena, room, sizeof *save->tensors, &memory));
    save->tensors = memory;
    TRY(arena_take_array(&save->arena, room, sizeof *save->place, &memory));
    save->place = memory;
    TRY(arena_take_array(&save->arena, room, sizeof *save->first_block,
                         &memory));
    save->first_block = memory;
    TRY(arena_take_array(&save->arena, room, sizeof *save->covered, &memory));
    save->covered = memory;
    TRY(arena_take_array(&save->arena, room, sizeof *save->places, &memory));
    save->places = memory;
    save->buffer = plan->buffer;
    if (plan->buffer) return OK;
    TRY(arena_take(&save->arena, checkpoint_buffer_bytes(plan->threads),
                   &memory));
    save->buffer = memory;
    return OK;
}

static status add_tensor(struct checkpoint_save *save, int part, int place)
{
    const struct saved_part *from = &save->plan->parts[part];
    struct safetensors_tensor *tensor = &save->tensors[place];
    char name[640];
    char *copy;

    tensor_file_name(name, from->name, from->kind);
    TRY(arena_copy_text(&save->arena, name, &copy));
    tensor->name = copy;
    tensor->dtype = from->dtype;
    tensor->dimensions = from->dimensions;
    memcpy(tensor->shape, from->shape, sizeof tensor->shape);
    save->place[part] = place;
    return OK;
}

static int64_t part_blocks(const struct saved_part *part)
{
    int64_t bytes = dtype_bytes(part->dtype);

    for (int i = 0; i < part->dimensions; i++) bytes *= part->shape[i];
    return bytes / CHECKPOINT_BLOCK_BYTES +
           (bytes % CHECKPOINT_BLOCK_BYTES != 0);
}

static status order_tensors(struct checkpoint_save *save)
{
    const struct checkpoint_plan *plan = save->plan;
    int place = 0;
    void *memory;

    for (int i = 0; i < plan->part_count; i++)
        if (part_is_weight(&plan->parts[i]))
            TRY(add_tensor(save, i, place++));
    save->weight_count = place;
    for (int i = 0; i < plan->part_count; i++)
        if (!part_is_weight(&plan->parts[i]))
            TRY(add_tensor(save, i, place++));
    for (int i = 0; i < plan->part_count; i++)
        save->first_block[i + 1] =
            save->first_block[i] + part_blocks(&plan->parts[i]);
    TRY(arena_take_array(&save->arena,
                         (size_t)save->first_block[plan->part_count] + 1,
                         sizeof *save->contributions, &memory));
    save->contributions = memory;
    return OK;
}

static status prepare(struct checkpoint_save *save,
                      const struct checkpoint_plan *plan)
{
    memset(save, 0, sizeof *save);
    save->plan = plan;
    arena_init(&save->arena, "checkpoint tables", 0);
    TRY(check_plan(plan));
    TRY(take_tables(save));
    TRY(order_tensors(save));
    return commit_name_directory(save);
}

static status open_files(struct checkpoint_save *save, bool join)
{
    const struct checkpoint_plan *plan = save->plan;

    save->model = (struct weights_writer){.stem = "model", .numbered = true,
                                          .join = join, .part = plan->part};
    save->optim = (struct weights_writer){.stem = "optim", .numbered = true,
                                          .join = join, .part = plan->part};
    TRY(weights_writer_open(&save->model, save->temporary, save->tensors,
                            save->weight_count, plan->shard_bytes));
    if (plan->part_count == save->weight_count) return OK;
    return weights_writer_open(&save->optim, save->temporary,
                               save->tensors + save->weight_count,
                               plan->part_count - save->weight_count,
                               plan->shard_bytes);
}

status checkpoint_save_begin(struct checkpoint_save *save,
                             const struct checkpoint_plan *plan)
{
    TRY(prepare(save, plan));
    TRY(commit_make_directory(save));
    return open_files(save, false);
}

status checkpoint_save_join(struct checkpoint_save *save,
                            const struct checkpoint_plan *plan)
{
    TRY(prepare(save, plan));
    return open_files(save, true);
}

struct writing {
    struct checkpoint_save *save;
    const struct saved_part *parts;
};

/* Elements [first, first + count) of a whole, ready at `bytes`. */
struct extent { int64_t first, count; const unsigned char *bytes; };

/* A block of a tensor while its stretches are joined. */
struct open_block {
    int part;
    int64_t block;         /* of the whole checkpoint */
    int64_t first, last;   /* elements of the tensor */
    unsigned char *buffer; /* the block's */
    struct extent open;    /* what was copied there and not yet written */
};

static status write_extent(struct checkpoint_save *save,
                           const struct open_block *block,
                           const struct extent *extent)
{
    const int size = dtype_bytes(save->plan->parts[block->part].dtype);
    const size_t bytes = (size_t)(extent->count * size);
    const uint64_t after =
        (uint64_t)((block->last - extent->first - extent->count) * size);
    const int place = save->place[block->part];
    const bool weight = place < save->weight_count;

    if (extent->count == 0) return OK;
    save->contributions[block->block] ^=
        crc32c_contribution(crc32c(0, extent->bytes, bytes), bytes, after);
    return weights_writer_put(weight ? &save->model : &save->optim,
                              weight ? place : place - save->weight_count,
                              extent->first, extent->count, extent->bytes);
}

/* Adds a stretch to the open extent, or begins another. Long dense ones are
 * written from where they are. */
static status add_stretch(struct writing *writing, struct open_block *block,
                        const struct saved_stretch *stretch)
{
    const struct saved_part *from = &writing->parts[block->part];
    const int64_t size = dtype_bytes(from->dtype);
    unsigned char *slot =
        block->buffer + (stretch->whole - block->first) * size;
    const bool direct = from->decode == NULL && stretch->step == 1 &&
                        stretch->count * size >= DIRECT_BYTES_LEAST;

    if (direct || block->open.first + block->open.count != stretch->whole) {
        TRY(write_extent(writing->save, block, &block->open));
        block->open = (struct extent){stretch->whole, 0, slot};
    }
    if (from->decode != NULL) {
        from->decode(from->data, stretch->local, stretch->step,
                     stretch->count, slot);
        block->open.count += stretch->count;
        return OK;
    }
    const unsigned char *source =
        (const unsigned char *)from->data + stretch->local * size;

    if (direct) {
        const struct extent whole = {stretch->whole, stretch->count, source};

        block->open.first += stretch->count;
        block->open.bytes += stretch->count * size;
        return write_extent(writing->save, block, &whole);
    }
    convert_elements((struct spacing){from->dtype, 1}, slot,
                     (struct spacing){from->dtype, stretch->step}, source,
                     stretch->count);
    block->open.count += stretch->count;
    return OK;
}

/* Block `number` of the whole checkpoint: what this holder has of it. */
static status write_block(void *argument, int64_t number,
                          unsigned char *buffer)
{
    struct writing *writing = argument;
    const struct checkpoint_save *save = writing->save;
    int low = 0, high = save->plan->part_count;

    while (high - low > 1) {
        const int middle = low + (high - low) / 2;

        if (save->first_block[middle] <= number) low = middle;
        else high = middle;
    }

    const struct saved_part *part = &writing->parts[low];
    const int64_t in_block = CHECKPOINT_BLOCK_BYTES / dtype_bytes(part->dtype);
    const int64_t first = (number - save->first_block[low]) * in_block;
    struct saved_run whole;
    const struct saved_run *runs;
    const int run_count = part_runs(part, &whole, &runs);
    struct open_block block = {.part = low, .block = number, .first = first,
                               .buffer = buffer, .open = {first, 0, buffer}};
    int64_t elements = 1;

    for (int i = 0; i < part->dimensions; i++) elements *= part->shape[i];
    block.last = elements - first < in_block ? elements : first + in_block;
    for (int i = 0; i < run_count; i++) {
        struct saved_stretch stretch;
        int64_t row = 0;

        while (run_next(&runs[i], first, block.last, &row, &stretch))
            TRY(add_stretch(writing, &block, &stretch));
    }
    return write_extent(writing->save, &block, &block.open);
}

static status check_same(const struct saved_part *mine,
                         const struct saved_part *planned)
{
    TRY(part_check(mine));
    if (strcmp(mine->name, planned->name) != 0 ||
        strcmp(mine->kind, planned->kind) != 0 ||
        mine->dtype != planned->dtype ||
        mine->dimensions != planned->dimensions ||
        memcmp(mine->shape, planned->shape,
               (size_t)mine->dimensions * sizeof *mine->shape) != 0)
        FAIL(ERR_CONFIG, "%s (%s): is not the tensor that was planned here, "
             "%s (%s)", mine->name, mine->kind, planned->name, planned->kind);
    return OK;
}

static void cover(struct checkpoint_save *save, int part,
                  const struct saved_run *run)
{
    const uint64_t length = (uint64_t)run->length;
    const uint64_t repeats = (uint64_t)run->repeats;

    save->covered[part] += run->length * run->repeats;
    save->places[part] +=
        length * repeats * (uint64_t)run->whole_first +
        length * (uint64_t)run->whole_stride * sum_below(repeats) +
        repeats * sum_below(length);
}

status checkpoint_save_write(struct checkpoint_save *save,
                             const struct saved_part *parts)
{
    const int count = save->plan->part_count;
    struct writing writing = {save, parts};

    for (int i = 0; i < count; i++) {
        struct saved_run whole;
        const struct saved_run *runs;
        const int run_count = part_runs(&parts[i], &whole, &runs);

        TRY(check_same(&parts[i], &save->plan->parts[i]));
        for (int j = 0; j < run_count; j++)
            cover(save, i, &runs[j]);
    }
    return blocks_run(save->plan->threads, save->buffer,
                      save->first_block[count], write_block, &writing);
}

/* ---- holders elsewhere ---- */

/* [blocks] contributions, then covered and places of each part. */
static size_t block_bytes(const struct checkpoint_save *save)
{
    return (size_t)save->first_block[save->plan->part_count] *
           sizeof *save->contributions;
}

size_t checkpoint_share_bytes(const struct checkpoint_save *save)
{
    return block_bytes(save) + (size_t)save->plan->part_count *
                                   (sizeof *save->covered +
                                    sizeof *save->places);
}

void checkpoint_save_share(const struct checkpoint_save *save, void *out)
{
    const size_t parts = (size_t)save->plan->part_count;
    char *at = (char *)out + block_bytes(save);

    memcpy(out, save->contributions, block_bytes(save));
    memcpy(at, save->covered, parts * sizeof *save->covered);
    memcpy(at + parts * sizeof *save->covered, save->places,
           parts * sizeof *save->places);
}

status checkpoint_save_sync(const struct checkpoint_save *save)
{
    TRY(weights_writer_sync(&save->model));
    return weights_writer_sync(&save->optim);
}

void checkpoint_save_add(struct checkpoint_save *save, const void *share)
{
    const int parts = save->plan->part_count;
    const char *at = share;
    uint32_t contribution;
    uint64_t value;

    for (int64_t i = 0; i < save->first_block[parts]; i++) {
        memcpy(&contribution, at, sizeof contribution);
        save->contributions[i] ^= contribution;
        at += sizeof contribution;
    }
    for (int i = 0; i < parts; i++, at += sizeof value) {
        memcpy(&value, at, sizeof value);
        save->covered[i] += (int64_t)value;
    }
    for (int i = 0; i < parts; i++, at += sizeof value) {
        memcpy(&value, at, sizeof value);
        save->places[i] += value;
    }
}

status checkpoint_save_keep_own(struct checkpoint_save *save)
{
    void *memory;

    TRY(arena_take(&save->arena, block_bytes(save) + 1, &memory));
    memcpy(memory, save->contributions, block_bytes(save));
    save->own = memory;
    return OK;
}

void checkpoint_save_set(struct checkpoint_save *save, const void *share)
{
    const size_t parts = (size_t)save->plan->part_count;

    memset(save->contributions, 0, block_bytes(save));
    memset(save->covered, 0, parts * sizeof *save->covered);
    memset(save->places, 0, parts * sizeof *save->places);
    checkpoint_save_add(save, share);
}

status checkpoint_save(const struct checkpoint_plan *plan)
{
    struct checkpoint_save save;
    status result;

    TRY_GOTO(done, result, checkpoint_save_begin(&save, plan));
    TRY_GOTO(done, result, checkpoint_save_write(&save, plan->parts));
    TRY_GOTO(done, result, checkpoint_save_finish(&save));
    TRY_GOTO(done, result, checkpoint_save_check(&save, 0, 1));
    TRY_GOTO(done, result, checkpoint_save_commit(&save));
done:
    checkpoint_save_free(&save);
    return result;
}
