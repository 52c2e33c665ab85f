/* SPDX-License-Identifier: Apache-2.0 */
/* courier_slots.c - slots of copies in the memory of a node. */
#include "control/courier_slots.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Slots that stay mapped; ranks of other nodes whose copies are remembered. */
enum { MAPS = 16, KEPT = 64 };

static struct map {
    uint64_t number, bytes;
    struct copy_slot *at; /* NULL: none */
} maps[MAPS];

static int kept[KEPT], kept_count; /* the newest KEPT of kept_count */

bool head_is_sound(const struct copy_head *h)
{
    return h->ranks > 0 && h->ranks <= 1 << 20 && h->rank >= 0 &&
           h->rank < h->ranks && (h->index == 0 || h->index == 1) &&
           h->slot_bytes % COPY_PAGE == 0 && h->slot_bytes >= COPY_ROWS &&
           h->slot_bytes < ((uint64_t)1 << 62) / COPY_SLOTS /
                               (uint64_t)h->ranks &&
           h->rows <= h->slot_bytes - COPY_ROWS && h->step >= 0 &&
           h->twin <= (uint64_t)h->ranks &&
           h->state_length < COPY_STATE_BYTES;
}

void head_from_slot(struct copy_head *head, const struct copy_slot *slot)
{
    head->step = atomic_load(&slot->step);
    head->rows = slot->bytes;
    head->layout = slot->layout;
    head->crc = slot->crc;
    head->state_crc = slot->state_crc;
    head->state_length = slot->state_length;
}

static struct copy_memory memory_of(int file, const struct copy_head *head)
{
    return (struct copy_memory){file, (uint64_t)head->ranks,
                                head->slot_bytes};
}

static bool grow(const struct copy_memory *memory)
{
    const uint64_t all = memory->ranks * COPY_SLOTS * memory->slot_bytes;
    struct stat about;

    return fstat(memory->file, &about) == 0 &&
           ((uint64_t)about.st_size >= all ||
            ftruncate(memory->file, (off_t)all) == 0);
}

struct copy_slot *courier_slot(int file, const struct copy_head *head,
                               bool grows)
{
    const struct copy_memory memory = memory_of(file, head);
    const uint64_t number = (uint64_t)head->rank * COPY_SLOTS +
                            (uint64_t)head->index;
    struct map *map = &maps[number % MAPS];

    if (grows && !grow(&memory)) return NULL;
    if (map->at != NULL && map->number == number &&
        map->bytes == head->slot_bytes)
        return map->at;
    if (map->at != NULL) munmap(map->at, (size_t)map->bytes);
    *map = (struct map){number, head->slot_bytes,
                        copy_slot_map(&memory, (uint64_t)head->rank,
                                      head->index, (size_t)head->slot_bytes)};
    return map->at;
}

void courier_slot_kept(int rank)
{
    for (int i = 0; i < KEPT && i < kept_count; i++)
        if (kept[i] == rank) return;
    kept[kept_count++ % KEPT] = rank;
}

/* Whether that rank's memory has the rows of the copy. */
static bool has_rows(const struct copy_memory *memory, int rank,
                     const struct copy_head *head)
{
    const struct copy_rows rows = {head->step, memory->ranks, head->rows,
                                   head->layout, head->crc};
    bool found = false;

    for (int i = 0; i < COPY_SLOTS && !found && rank != head->rank; i++) {
        struct copy_slot *slot =
            copy_slot_map(memory, (uint64_t)rank, i, COPY_PAGE);

        if (slot == NULL) continue;
        found = copy_slot_has(slot, &rows);
        munmap(slot, COPY_PAGE);
    }
    return found;
}

static bool is_seated(const struct agent *agent, int index,
                      const struct copy_head *head)
{
    return place_is_busy(&agent->places[index]) &&
           agent->places[index].order.size == head->ranks &&
           atomic_load(&agent->board->pages[index].slot_bytes) ==
               head->slot_bytes;
}

uint64_t courier_slot_twin(const struct agent *agent,
                           const struct copy_head *head, bool *behind)
{
    const struct copy_memory memory = memory_of(agent->state_file, head);

    *behind = false;
    for (int i = 0; i < agent->count; i++) {
        const int rank = agent->places[i].order.rank;

        if (!is_seated(agent, i, head)) continue;
        if (has_rows(&memory, rank, head)) return (uint64_t)rank + 1;
        *behind = *behind ||
                  atomic_load(&agent->board->pages[i].copied) < head->step;
    }
    for (int i = 0; i < KEPT && i < kept_count; i++)
        if (has_rows(&memory, kept[i], head)) return (uint64_t)kept[i] + 1;
    return 0;
}
