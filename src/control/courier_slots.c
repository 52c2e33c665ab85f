/* SPDX-License-Identifier: Apache-2.0 */
/* courier_slots.c - slots of copies in the memory of a node. */
#include "control/courier_slots.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fault.h"

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
           h->twin <= (uint64_t)h->ranks && copy_magic_is(h->magic) &&
           h->state_length < COPY_STATE_BYTES;
}

void head_from_slot(struct copy_head *head, const struct copy_slot *slot)
{
    head->spoilt = atomic_load(&slot->spoilt); /* before the step */
    head->step = atomic_load(&slot->step);
    head->magic = slot->magic;
    head->rows = slot->bytes;
    head->layout = slot->layout;
    head->sum = slot->sum;
    head->state_sum = slot->state_sum;
    head->state_length = slot->state_length;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load(&slot->spoilt) != head->spoilt)
        head->step = -1; /* what was read may be of two */
}

/* ---- whose memory it is ---- */

bool is_page_of(const struct place_memory *place, uint64_t number)
{
    return atomic_load(&place->ordered) == number &&
           atomic_load(&place->taken) == number;
}

/* Slots of another size lie elsewhere in the file, and so across those of a
 * rank that is here. One that has not said its size may have any. */
static bool is_beside(const struct agent *agent, int index, uint64_t number,
                      const struct copy_head *head)
{
    const struct place_memory *place = &agent->places[index];

    return is_page_of(place, number) && place->order.rank != head->rank &&
           place->order.size == head->ranks &&
           atomic_load(&agent->board->pages[index].slot_bytes) ==
               head->slot_bytes;
}

bool courier_may_write(const struct agent *agent, const struct copy_head *head)
{
    for (int i = 0; i < agent->count; i++) {
        const uint64_t number = atomic_load(&agent->places[i].coming);

        if (number != 0 && atomic_load(&agent->places[i].done) != number &&
            !is_beside(agent, i, number, head))
            return false;
    }
    return true;
}

void courier_used(struct agent *agent, double *used_s)
{
    const double now = clock_thread_s(); /* it has one thread */

    atomic_fetch_add(&agent->board->courier_ns,
                     (int64_t)(1e9 * (now - *used_s)));
    *used_s = now;
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

/* ---- rows on their way ---- */

/* Behind the rows. */
struct rows_end {
    uint64_t sum, unspoilt;
};

/* Whether the slot is what the head says still, and was all the while. */
static bool is_unspoilt(const struct copy_slot *slot,
                        const struct copy_head *head)
{
    atomic_thread_fence(memory_order_acquire); /* rows were read before */
    return atomic_load(&slot->spoilt) == head->spoilt &&
           atomic_load(&slot->step) == head->step;
}

/* The sum is of what leaves, whoever writes the rows meanwhile. */
status courier_rows_send(struct wire *wire, const struct copy_slot *slot,
                         const struct copy_head *head, struct copy_pace *pace)
{
    static char part[PIECE_BYTES]; /* a courier has one thread */
    const char *rows = (const char *)slot + COPY_ROWS;
    const struct range_sum whole = {rows, 0};
    struct rows_end end = {.sum = 0};

    for (uint64_t at = 0; at < head->rows;) {
        const uint64_t left = head->rows - at;
        const size_t now = left < sizeof part ? (size_t)left : sizeof part;

        if (pace != NULL) copy_pace_piece(pace, now);
        memcpy(part, rows + at, now);
        end.sum += range_sum_of(&whole, rows + at, part, now);
        TRY(wire_put_bulk(wire, part, now));
        at += now;
    }
    end.unspoilt = is_unspoilt(slot, head);
    return wire_put_bulk(wire, &end, sizeof end);
}

status courier_rows_receive(struct wire *wire, const struct copy_head *head,
                            struct copy_slot *slot, bool *whole)
{
    char *rows = (char *)slot + COPY_ROWS;
    struct rows_end end;
    uint64_t sum;

    *whole = false;
    TRY(fault_point("courier.keep"));
    TRY(wire_get_bulk(wire, rows, (size_t)head->rows));
    TRY(wire_get_bulk(wire, &end, sizeof end));
    sum = copy_sum(rows, head->rows);
    *whole = end.unspoilt == 1 && end.sum == sum &&
             (head->magic == copy_magic_state || head->sum == sum) &&
             slot->state_sum == copy_sum(slot->state, slot->state_length);
    return OK;
}

/* ---- whose rows are the same ---- */

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
    const struct copy_rows rows = {head->magic, head->step, memory->ranks,
                                   head->rows, head->layout, head->sum};
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
