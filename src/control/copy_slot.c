/* SPDX-License-Identifier: Apache-2.0 */
/* copy_slot.c - whether a copy of a rank's state is whole, and where its rows
 * are. */
#include "control/copy_slot.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static bool rows_fit(const struct copy_slot *slot, size_t slot_bytes)
{
    return copy_magic_is(slot->magic) && slot_bytes >= COPY_ROWS &&
           slot->bytes <= slot_bytes - COPY_ROWS;
}

bool copy_slot_is_whole(const struct copy_slot *slot, size_t slot_bytes)
{
    return slot->magic == copy_magic && rows_fit(slot, slot_bytes) &&
           slot->twin == 0 &&
           slot->state_length < COPY_STATE_BYTES &&
           slot->state_sum == copy_sum(slot->state, slot->state_length) &&
           slot->sum == copy_sum((const char *)slot + COPY_ROWS, slot->bytes);
}

struct copy_slot *copy_slot_map(const struct copy_memory *memory,
                                uint64_t rank, int index, size_t bytes)
{
    const uint64_t number = rank * COPY_SLOTS + (uint64_t)index;
    struct stat about;
    void *mapped;

    if (rank >= memory->ranks || bytes > memory->slot_bytes ||
        fstat(memory->file, &about) != 0 ||
        (uint64_t)about.st_size < (number + 1) * memory->slot_bytes)
        return NULL;
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                  memory->file, (off_t)(number * memory->slot_bytes));
    return mapped == MAP_FAILED ? NULL : mapped;
}

bool copy_slot_has(const struct copy_slot *slot, const struct copy_rows *rows)
{
    return copy_magic_is(rows->magic) && slot->magic == rows->magic &&
           slot->twin == 0 && rows->step >= 0 &&
           atomic_load(&slot->step) == rows->step &&
           slot->ranks == rows->ranks && slot->bytes == rows->bytes &&
           slot->layout == rows->layout && slot->sum == rows->sum;
}

/* From a slot of the twin; false: it has not those rows. */
static bool fill_from(const struct copy_memory *memory, struct copy_slot *slot,
                      int index)
{
    const size_t bytes = (size_t)memory->slot_bytes;
    const struct copy_rows rows = {slot->magic, atomic_load(&slot->step),
                                   slot->ranks, slot->bytes, slot->layout,
                                   slot->sum};
    uint64_t spoilt;
    struct copy_slot *twin = copy_slot_map(memory, slot->twin - 1, index,
                                           bytes);
    bool same;

    if (twin == NULL) return false;
    spoilt = atomic_load(&twin->spoilt);
    same = copy_slot_has(twin, &rows) && rows_fit(twin, bytes) &&
           (rows.magic == copy_magic_state || copy_slot_is_whole(twin, bytes));
    if (same)
        memcpy((char *)slot + COPY_ROWS, (char *)twin + COPY_ROWS,
               (size_t)slot->bytes);
    atomic_thread_fence(memory_order_acquire); /* rows were read before */
    same = same && copy_slot_has(twin, &rows) &&
           atomic_load(&twin->spoilt) == spoilt;
    munmap(twin, bytes);
    return same;
}

void copy_slot_fill(const struct copy_memory *memory, struct copy_slot *slot)
{
    bool filled = false;

    if (!copy_magic_is(slot->magic) || slot->twin == 0) return;
    for (int i = 0; i < COPY_SLOTS && !filled &&
                    rows_fit(slot, (size_t)memory->slot_bytes); i++)
        filled = fill_from(memory, slot, i);
    if (!filled) copy_slot_spoil(slot);
    slot->twin = 0;
}
