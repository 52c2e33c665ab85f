/* SPDX-License-Identifier: Apache-2.0 */
/* two_slots.c - the state of a rank in the two slots of its copies, in turn. */
#include "train/two_slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/huge_pages.h"
#include "optimizer/carry.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { ALL_PARTS = (1 << CARRY_PARTS) - 1 };

size_t two_slots_bytes(const struct pipeline *pipeline)
{
    size_t bytes = 0;

    for (int i = 0; i < pipeline->count; i++) {
        if (pipeline->stages[i].kept.data == NULL) return 0;
        bytes += pipeline->stages[i].kept.bytes;
    }
    return bytes;
}

static struct pipeline *pipeline_of(const struct two_slots *slots)
{
    return slots->step->pipeline;
}

/* ---- pages ---- */

static status map_at(const struct two_slots *slots, char *at, size_t bytes,
                     off_t offset)
{
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             slots->file, offset) == MAP_FAILED)
        FAIL(ERR_MEMORY, "%zu bytes for copies: %s", bytes, strerror(errno));
    madvise(at, bytes, MADV_HUGEPAGE);
    return OK;
}

/* Maps both slots of all stages where they belong. */
static status map_all(const struct two_slots *slots)
{
    off_t before = 0;

    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        const struct stage *stage = &pipeline_of(slots)->stages[i];
        char *data = stage->kept.data;
        const size_t bytes = stage->kept.bytes;

        TRY(map_at(slots, data, bytes, slots->rows[slots->now] + before));
        TRY(map_at(slots, data + stage->kept.other, bytes,
                   slots->rows[1 - slots->now] + before));
        before += (off_t)bytes;
    }
    return OK;
}

/* The pages of `from` to `to`; what was there goes, in one step: another
 * thread can never map anything in between. */
static bool move_pages(char *from, char *to, size_t bytes)
{
    return mremap(from, bytes, bytes,
                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                  to) != MAP_FAILED;
}

/* The slots change places. Where the system cannot move pages of files, they
 * are mapped anew, and fault in again. */
static status change_places(struct two_slots *slots)
{
    bool moved = fault_point("slots.move") == OK;

    if (!moved) status_clear();
    slots->now = 1 - slots->now;
    for (int i = 0; i < pipeline_of(slots)->count && moved; i++) {
        const struct stage *stage = &pipeline_of(slots)->stages[i];
        const size_t bytes = stage->kept.bytes;
        char *data = stage->kept.data, *other = data + stage->kept.other;
        char *spare = other + bytes;

        moved = move_pages(data, spare, bytes) &&
                move_pages(other, data, bytes) &&
                move_pages(spare, other, bytes);
    }
    return moved ? OK : map_all(slots);
}

bool two_slots_reserve(const struct two_slots *slots)
{
    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        struct stage *stage = &pipeline_of(slots)->stages[i];
        /* For the other slot, and for pages on their way. */
        char *at = huge_pages_map(2 * stage->kept.bytes, PROT_NONE);

        if (at == NULL) return false;
        stage->kept.other = at - stage->kept.data;
    }
    return true;
}

status two_slots_open(struct two_slots *slots, int file, const off_t rows[2])
{
    *slots = (struct two_slots){.step = slots->step, .file = file,
                                .lacks = true, .rows = {rows[0], rows[1]}};
    return map_all(slots);
}

void two_slots_close(struct two_slots *slots)
{
    for (int i = 0; slots->step != NULL && i < pipeline_of(slots)->count; i++) {
        struct stage *stage = &pipeline_of(slots)->stages[i];

        if (stage->kept.other != 0)
            munmap(stage->kept.data + stage->kept.other,
                   2 * stage->kept.bytes);
        stage->kept.other = stage->kept.from = 0;
        stage->kept.counts = false;
    }
    *slots = (struct two_slots){.step = NULL};
}

/* ---- sums ---- */

static uint64_t parts_sum(const struct two_slots *slots, unsigned parts,
                          bool other)
{
    uint64_t sum = 0;

    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        struct stage *stage = &pipeline_of(slots)->stages[i];
        struct update update = train_step_update(slots->step, i);

        update.sum = &stage->kept.sum;
        sum += carry_sum(&update, parts, other ? stage->kept.other : 0);
    }
    return sum;
}

uint64_t two_slots_sum(const struct two_slots *slots, int index)
{
    return parts_sum(slots, ALL_PARTS, index != slots->now);
}

/* ---- turns ---- */

/* The other slot becomes what the state is. */
static void copy_all(struct two_slots *slots)
{
    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        const struct stage *stage = &pipeline_of(slots)->stages[i];

        memcpy(stage->kept.data + stage->kept.other, stage->kept.data,
               stage->kept.bytes);
    }
}

/* The other slot becomes what the state is, where no update writes. */
static void copy_rest(struct two_slots *slots)
{
    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        const struct stage *stage = &pipeline_of(slots)->stages[i];
        const struct update update = train_step_update(slots->step, i);

        carry_rest(&update, stage->kept.data, stage->kept.bytes);
    }
    slots->still = parts_sum(slots, 1u << CARRY_STILL, false);
    slots->lacks = false;
}

/* The next update writes there, and adds up what it writes, or not. */
static void begin_update(struct two_slots *slots, bool apart, bool counts)
{
    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        struct stage *stage = &pipeline_of(slots)->stages[i];

        stage->kept.from = apart ? stage->kept.other : 0;
        stage->kept.counts = counts;
        stage->kept.sum.total = 0;
    }
    slots->counted = counts;
    slots->updated = true;
}

status two_slots_turn(struct two_slots *slots, bool keep, bool counts)
{
    begin_update(slots, keep, counts);
    if (!keep) return OK;
    if (slots->lacks) copy_rest(slots);
    TRY(fault_point("slots.turn"));
    TRY(change_places(slots));
    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        const struct update update = train_step_update(slots->step, i);

        carry_copy(&update);
    }
    return OK;
}

status two_slots_settle(struct two_slots *slots, uint64_t *sum)
{
    TRY(fault_point("slots.settle"));
    if (!slots->updated) {
        copy_all(slots);
        TRY(change_places(slots));
    }
    if (!slots->updated || !slots->counted) {
        *sum = two_slots_sum(slots, slots->now);
    } else {
        if (slots->lacks)
            slots->still = parts_sum(slots, 1u << CARRY_STILL, false);
        *sum = slots->still + parts_sum(slots, 1u << CARRY_COPIED, false);
        for (int i = 0; i < pipeline_of(slots)->count; i++)
            *sum += pipeline_of(slots)->stages[i].kept.sum.total;
    }
    slots->updated = false;
    return OK;
}

status two_slots_take(struct two_slots *slots, int index)
{
    slots->lacks = true; /* it may be damaged */
    slots->updated = false;
    return index == slots->now ? OK : change_places(slots);
}

void two_slots_clear(struct two_slots *slots)
{
    for (int i = 0; i < pipeline_of(slots)->count; i++) {
        const struct stage *stage = &pipeline_of(slots)->stages[i];

        memset(stage->kept.data, 0, stage->kept.bytes);
    }
}
