/* SPDX-License-Identifier: Apache-2.0 */
/* memory_copy.c - the state of a supervised rank, in memory that outlives
 * it. */
#include "train/memory_copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/oom_kills.h"
#include "base/text.h"
#include "control/board.h"
#include "control/copy_slot.h"

/* ---- rows ---- */

static bool is_kept(int row)
{
    return row == MEMORY_WEIGHTS || row == MEMORY_COMPUTE ||
           (row >= MEMORY_STATE_0 && row <= MEMORY_STATE_4);
}

size_t memory_copy_bytes(const struct pipeline *pipeline)
{
    size_t bytes = 0;

    for (int i = 0; i < pipeline->count; i++)
        for (int row = 0; row < MEMORY_OWNERS; row++)
            if (is_kept(row)) bytes += pipeline->stages[i].memory[row].bytes;
    return bytes;
}

static size_t rows_bytes(const struct memory_copy *copy)
{
    return copy->turns.step != NULL ? two_slots_bytes(copy->pipeline)
                                    : memory_copy_bytes(copy->pipeline);
}

/* Between the rows and `at`; the checksum of all. */
static uint64_t rows_move(const struct pipeline *pipeline, char *at, bool out)
{
    const struct range_sum whole = {at, 0};
    uint64_t sum = 0;

    for (int i = 0; i < pipeline->count; i++)
        for (int row = 0; row < MEMORY_OWNERS; row++) {
            const struct memory_row *m = &pipeline->stages[i].memory[row];
            void *host = pipeline->stages[i].host[row];

            if (!is_kept(row) || m->bytes == 0) continue;
            if (out && fault_point("copy.rows") != OK) status_clear();
            if (out) memcpy(at, host, m->bytes);
            else memcpy(host, at, m->bytes);
            sum += range_sum_of(&whole, at, at, m->bytes);
            at += m->bytes;
        }
    return sum;
}

static char *slot_rows(struct copy_slot *kept)
{
    return (char *)kept + COPY_ROWS;
}

/* ---- opening ---- */

/* Bytes that the machine could still give; 0: unknown. */
static double memory_left(void)
{
    char line[128];
    double kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");

    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1) break;
    fclose(file);
    return 1024 * kib;
}

static void warn_none(const struct memory_copy *copy, const char *needs,
                      const char *has, const char *how)
{
    if (team_rank(copy->team) != 0) return;
    LOG(WARNING, "supervise", "no copies in memory: they take %s, and %s %s; a "
        "rank that dies costs the steps since the newest checkpoint", needs,
        has, how);
}

/* Bytes that the control group leaves copies beside the plans of its ranks; one
 * slot of each may be in its plan. Below 0: it has no limit, or nobody knows
 * it. */
static double group_left(const struct memory_copy *copy, int here)
{
    const double limit = (double)oom_kills_limit();
    const double planned =
        (double)copy->pipeline->bytes -
        (copy->turns.step != NULL ? (double)copy->slot_bytes : 0);

    if (limit <= 0) return -1;
    return limit > here * planned ? limit - here * planned : 0;
}

/* The file of this machine has room for all ranks, at the same place for each;
 * memory is only what is written: of the ranks that are here and, where
 * partners keep copies, of as many more for each. A process of the run before
 * may have made it already. */
static status make_room(const struct memory_copy *copy, int file, bool *enough)
{
    const int ranks = team_size(copy->team), here = board_ranks_here(ranks);
    const double each = COPY_SLOTS * (double)copy->slot_bytes;
    const int kept = here * (1 + board_partners());
    const double bytes = each * (kept < ranks ? kept : ranks);
    const off_t now = lseek(file, 0, SEEK_END);
    const double left = memory_left(), most = group_left(copy, here);
    char needs[32], has[32];

    *enough = now >= (off_t)(each * ranks);
    if (*enough) return OK;
    text_bytes(needs, (uint64_t)bytes);
    text_bytes(has, (uint64_t)left);
    if (left > 0 && bytes > 0.8 * left) {
        warn_none(copy, needs, has, "are left");
        return OK;
    }
    if (most >= 0 && bytes > most) {
        warn_none(copy, needs, text_bytes(has, (uint64_t)most),
                  "are left in the control group beside the plans of ranks");
        return OK;
    }
    *enough = ftruncate(file, (off_t)(each * ranks)) == 0;
    if (!*enough && errno != EFBIG)
        FAIL(ERR_MEMORY, "%.0f bytes for copies: %s", bytes, strerror(errno));
    if (!*enough)
        warn_none(copy, needs, "less", "may be in a file (ulimit -f)");
    return OK;
}

static off_t slot_place(const struct memory_copy *copy, int index)
{
    return (off_t)(COPY_SLOTS * team_rank(copy->team) + index) *
           (off_t)copy->slot_bytes;
}

/* Bytes of each that are mapped. */
static size_t mapped_bytes(const struct memory_copy *copy)
{
    return copy->turns.step != NULL ? COPY_ROWS : copy->slot_bytes;
}

static void close_slots(struct memory_copy *copy)
{
    for (int i = 0; i < COPY_SLOTS; i++) {
        if (copy->slots[i] != NULL)
            munmap(copy->slots[i], mapped_bytes(copy));
        copy->slots[i] = NULL;
    }
    two_slots_close(&copy->turns);
}

/* False: the system has no room in the address space. */
static bool map_slots(struct memory_copy *copy, int file)
{
    const size_t bytes = mapped_bytes(copy);
    char needs[32];

    for (int i = 0; i < COPY_SLOTS; i++) {
        void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            file, slot_place(copy, i));

        if (mapped == MAP_FAILED) break;
        copy->slots[i] = mapped;
    }
    if (fault_point("slots.map") != OK) status_clear();
    else if (copy->slots[1] != NULL &&
             (copy->turns.step == NULL || two_slots_reserve(&copy->turns)))
        return true;
    text_bytes(needs, COPY_SLOTS * copy->slot_bytes);
    warn_none(copy, needs, "less", "is left of the addresses (ulimit -v)");
    return false;
}

static void fill_slots(struct memory_copy *copy, int file)
{
    const struct copy_memory memory = {file, (uint64_t)team_size(copy->team),
                                       copy->slot_bytes};

    copy->every.used_s = board_carrying();
    for (int i = 0; i < COPY_SLOTS; i++) {
        struct copy_slot *kept =
            copy_slot_map(&memory, (uint64_t)team_rank(copy->team), i,
                          copy->slot_bytes);

        if (kept == NULL) continue; /* its rows are not used, then */
        copy_slot_fill(&memory, kept);
        munmap(kept, copy->slot_bytes);
    }
    board_slots(copy->slot_bytes);
}

/* Whether nobody has written there. Memory of an agent outlives a supervisor,
 * and a supervisor that dies before its journal has a line is followed by
 * another first generation. */
static bool slots_are_new(const struct memory_copy *copy, int file)
{
    for (int i = 0; i < COPY_SLOTS; i++) {
        const off_t at = slot_place(copy, i);
        const off_t data = lseek(file, at, SEEK_DATA);

        if (data < 0 ? errno != ENXIO : data < at + (off_t)copy->slot_bytes)
            return false;
    }
    return true;
}

bool memory_copy_turns(const struct pipeline *pipeline, int64_t every)
{
    const struct stage_request *r = &pipeline->stages[0].request;

    return board_state_file() >= 0 && every != 0 &&
           !device_about(r->machine.device)->apart &&
           !r->training.choice.split; /* weights lie in both */
}

/* The ranks agree on the size of slots, and on what is in them. */
static status agree_slots(struct memory_copy *copy)
{
    const size_t rows = two_slots_bytes(copy->pipeline);
    double most[2] = {(double)(COPY_ROWS + rows), rows == 0};

    TRY(team_largest(copy->team, most, 2));
    copy->turns.step = most[1] > 0 ? NULL : copy->step;
    if (most[1] > 0) {
        most[0] = (double)(COPY_ROWS + huge_pages_round(rows_bytes(copy)));
        TRY(team_largest(copy->team, most, 1));
    }
    copy->slot_bytes = (size_t)most[0];
    return OK;
}

static status open_turns(struct memory_copy *copy)
{
    const off_t rows[] = {slot_place(copy, 0) + COPY_ROWS,
                          slot_place(copy, 1) + COPY_ROWS};

    copy->every.in_update = copy->turns.step != NULL;
    if (copy->turns.step == NULL) return OK;
    /* To carry them costs time. */
    copy->every.measures = copy->every.measures && board_has_agent();
    if (team_rank(copy->team) == 0)
        LOG(DEBUG, "supervise", "weights and states lie in the slots of "
            "copies: an update after a copy reads one and writes the other");
    return two_slots_open(&copy->turns, board_state_file(), rows);
}

status memory_copy_open(struct memory_copy *copy,
                        const struct pipeline *pipeline, struct team *team,
                        int64_t every)
{
    const int file = board_state_file(), threads = copy->every.threads;
    double lacks;
    bool has_room = true;

    *copy = (struct memory_copy){.pipeline = pipeline, .team = team,
                                 .step = copy->step, .layout = copy->layout,
                                 .newest = -1, .lent = -1, .fenced = -1};
    copy->every = (struct copy_every){
        .team = team, .threads = threads, .measures = every == COPIES_AUTO,
        .steps = every == COPIES_AUTO ? 1 : every};
    if (file < 0 || every == 0) return OK;
    TRY(agree_slots(copy));
    copy->is_new = slots_are_new(copy, file);
    TRY(team_agree(team, make_room(copy, file, &has_room)));
    lacks = has_room && map_slots(copy, file) ? 0 : 1;
    TRY(team_largest(team, &lacks, 1));
    if (lacks > 0) {
        close_slots(copy);
        return OK;
    }
    fill_slots(copy, file);
    return team_agree(team, open_turns(copy));
}

void memory_copy_tell(struct memory_copy *copy)
{
    if (copy->slots[0] != NULL) copy_every_tell(&copy->every);
}

void memory_copy_close(struct memory_copy *copy)
{
    board_slots(0);
    close_slots(copy);
    *copy = (struct memory_copy){.newest = 0};
}

/* ---- going back ---- */

/* The slot has the rows themselves. */
static bool state_is_whole(const struct memory_copy *copy, int index)
{
    const struct copy_slot *kept = copy->slots[index];

    return kept->magic == copy_magic_state && kept->twin == 0 &&
           kept->state_length < COPY_STATE_BYTES &&
           kept->state_sum == copy_sum(kept->state, kept->state_length) &&
           kept->sum == two_slots_sum(&copy->turns, index);
}

static bool slot_is_whole(const struct memory_copy *copy, int index)
{
    const struct copy_slot *kept = copy->slots[index];

    return atomic_load(&kept->step) >= 0 &&
           kept->ranks == (uint64_t)team_size(copy->team) &&
           kept->bytes == rows_bytes(copy) && kept->layout == copy->layout &&
           (copy->turns.step != NULL
                ? state_is_whole(copy, index)
                : copy_slot_is_whole(kept, copy->slot_bytes));
}

/* Slots whose checksums hold; -1: it does not. */
static void whole_steps(const struct memory_copy *copy,
                        int64_t steps[COPY_SLOTS])
{
    for (int i = 0; i < COPY_SLOTS; i++) {
        steps[i] = -1;
        if (copy->slots[i] == NULL) continue;
        if (slot_is_whole(copy, i))
            steps[i] = atomic_load(&copy->slots[i]->step);
    }
}

/* The smallest of all ranks' values. */
static status smallest(struct team *team, double *value)
{
    *value = -*value;
    TRY(team_largest(team, value, 1));
    *value = -*value;
    return OK;
}

status memory_copy_newest(const struct memory_copy *copy, int64_t *step)
{
    int64_t steps[COPY_SLOTS];
    double newest, has;

    *step = -1;
    if (board_state_file() < 0 || copy->slots[0] == NULL) return OK;
    whole_steps(copy, steps);
    newest = (double)(steps[0] > steps[1] ? steps[0] : steps[1]);
    /* The newest of the rank that is behind; all others have it as one of
     * their two, or nobody goes back to it. */
    TRY(smallest(copy->team, &newest));
    has = steps[0] == (int64_t)newest || steps[1] == (int64_t)newest;
    TRY(smallest(copy->team, &has));
    if (newest >= 0 && has > 0) *step = (int64_t)newest;
    return OK;
}

status memory_copy_restore(struct memory_copy *copy, int64_t step,
                           const char **state, size_t *length)
{
    struct copy_slot *kept = copy->slots[0], *other = copy->slots[1];

    if (atomic_load(&kept->step) != step) {
        kept = other;
        other = copy->slots[0];
    }
    CHECK(atomic_load(&kept->step) == step);
    /* A newer one, which not all ranks have, is not of the history any more,
     * and would let the next copy be written over this one: then no step would
     * be whole on all ranks. */
    if (atomic_load(&other->step) > step) copy_slot_spoil(other);
    if (copy->turns.step != NULL)
        TRY(two_slots_take(&copy->turns, kept == copy->slots[0] ? 0 : 1));
    else if (rows_move(copy->pipeline, slot_rows(kept), false) != kept->sum)
        FAIL(ERR_MEMORY, "the copy of step %" PRId64 " changed while it was "
             "read", step);
    copy->carried = kept->carried != 0;
    copy->newest = copy->done = step;
    board_copied(copy->newest);
    *state = kept->state;
    *length = (size_t)kept->state_length;
    return OK;
}

/* ---- copying ---- */

void memory_copy_step_begins(struct memory_copy *copy, bool alike)
{
    copy->began_s = clock_s();
    copy->alike = alike;
}

/* A partner that is named may not take copies: then no rank waits for it. */
static enum copy_way way(const struct memory_copy *copy, int64_t step)
{
    if (!copy->alike) return COPY_WAY_OTHER;
    if (copy->newest != step - 1) return COPY_WAY_NONE;
    return copy->fenced == copy->newest ? COPY_WAY_TRAVELS : COPY_WAY_OTHER;
}

void memory_copy_step_ended(struct memory_copy *copy, int64_t step)
{
    if (copy->slots[0] == NULL) return;
    copy_every_step(&copy->every, clock_s() - copy->began_s, way(copy, step));
}

status memory_copy_due(struct memory_copy *copy, int64_t step, bool *due)
{
    *due = false;
    copy->done = step;
    if (copy->slots[0] == NULL) return OK;
    TRY(copy_every_look(&copy->every, step));
    *due = step % copy->every.steps == 0;
    return OK;
}

static void await_carried(struct memory_copy *copy)
{
    const double began = clock_s();

    if (copy->slots[0] == NULL || copy->newest < 0) return;
    /* Later waits for the same copy, where not every step makes one, are
     * none. */
    if (!board_await_carried(copy->newest) || copy->fenced == copy->newest)
        return;
    copy_every_waited(&copy->every, clock_s() - began);
    copy->waited_s += clock_s() - began;
    copy->fenced = copy->newest;
}

void memory_copy_note(struct memory_copy *copy, double *waited_ms,
                      double *idle_share)
{
    const double idle = board_carried_idle();

    if (copy->slots[0] != NULL && idle >= 0) {
        *waited_ms = 1e3 * copy->waited_s;
        *idle_share = idle;
    }
    copy->waited_s = 0;
}

void memory_copy_fence(struct memory_copy *copy)
{
    if (copy->turns.step == NULL) await_carried(copy);
}

void memory_copy_ready(void *argument)
{
    struct memory_copy *copy = argument;

    if (copy->turns.step == NULL || !board_has_agent()) return;
    await_carried(copy);
}

status memory_copy_turn(void *argument)
{
    struct memory_copy *copy = argument;
    const double began = clock_s();
    bool keep; /* the state is a copy */

    if (copy->turns.step == NULL) return OK;
    keep = atomic_load(&copy->slots[copy->turns.now]->step) >= 0;
    if (keep) copy_slot_spoil(copy->slots[1 - copy->turns.now]);
    TRY(two_slots_turn(&copy->turns, keep,
                       (copy->done + 1) % copy->every.steps == 0));
    copy->turn_s = clock_s() - began;
    return OK;
}

/* The slot of the step's copy, not whole yet. */
static struct copy_slot *next_slot(struct memory_copy *copy)
{
    struct copy_slot *kept = copy->slots[0], *other = copy->slots[1];

    if (copy->turns.step != NULL) {
        kept = copy->slots[copy->turns.updated ? copy->turns.now
                                               : 1 - copy->turns.now];
        copy_slot_spoil(kept);
        return kept;
    }
    /* The older one; a slot that is not whole is older than any. */
    if (atomic_load(&other->step) < atomic_load(&kept->step) ||
        other->magic != copy_magic)
        kept = other;
    if (copy->slots[0]->magic != copy_magic) kept = copy->slots[0];
    copy_slot_spoil(kept);
    return kept;
}

static status fill_rows(struct memory_copy *copy, struct copy_slot *kept)
{
    kept->bytes = rows_bytes(copy);
    kept->magic = copy->turns.step != NULL ? copy_magic_state : copy_magic;
    if (copy->turns.step != NULL)
        return two_slots_settle(&copy->turns, &kept->sum);
    kept->sum = rows_move(copy->pipeline, slot_rows(kept), true);
    return OK;
}

status memory_copy_make(struct memory_copy *copy, int64_t step,
                        const char *state, size_t length)
{
    const double began = clock_s();
    struct copy_slot *kept = next_slot(copy);

    /* A plan for another batch may have other rows. */
    if (length >= COPY_STATE_BYTES ||
        slot_rows(kept) + rows_bytes(copy) >
            (char *)kept + copy->slot_bytes) {
        LOG(WARNING, "supervise", "step %" PRId64 " is not copied: it does "
            "not fit", step);
        copy->turns.updated = false;
        return OK;
    }
    kept->ranks = (uint64_t)team_size(copy->team);
    kept->layout = copy->layout;
    kept->carried = 0;
    kept->twin = 0;
    memcpy(kept->state, state, length);
    kept->state_length = length;
    kept->state_sum = copy_sum(kept->state, length);
    TRY(fill_rows(copy, kept));
    atomic_store(&kept->step, step);
    copy->newest = step;
    board_copied(step);
    copy_every_made(&copy->every, clock_s() - began + copy->turn_s);
    copy->turn_s = 0;
    return OK;
}

void memory_copy_lend(struct memory_copy *copy, bool changes)
{
    struct copy_slot *kept;

    if (copy->turns.step == NULL || !changes) return;
    kept = copy->slots[copy->turns.now];
    copy->lent = atomic_load(&kept->step);
    if (copy->lent >= 0) copy_slot_spoil(kept);
}

void memory_copy_give_back(struct memory_copy *copy)
{
    struct copy_slot *kept;

    if (copy->turns.step == NULL || copy->lent < 0) return;
    kept = copy->slots[copy->turns.now];
    if (kept->sum == two_slots_sum(&copy->turns, copy->turns.now))
        atomic_store(&kept->step, copy->lent);
    else copy->newest = -1; /* nobody waits until it has travelled */
    copy->lent = -1;
}

void memory_copy_forget(struct memory_copy *copy)
{
    if (copy->slots[0] == NULL) return;
    for (int i = 0; i < COPY_SLOTS; i++) copy_slot_spoil(copy->slots[i]);
    /* Nobody waits until it has travelled, and no sum that an update made for
     * it is taken for that of another state. */
    copy->newest = copy->fenced = -1;
    copy->turns.updated = false;
    board_forget();
}

void memory_copy_begin(struct memory_copy *copy)
{
    memory_copy_forget(copy);
    if (copy->turns.step != NULL && !copy->is_new)
        two_slots_clear(&copy->turns);
    copy->is_new = false;
}
