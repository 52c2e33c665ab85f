/* SPDX-License-Identifier: Apache-2.0 */
/* board.c - the memory that ranks and their supervisor share. */
#include "control/board.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "comm/process.h"

static const uint64_t magic = 0x6c6f636b626f6134; /* "lockboa4" */
enum { CARRY_MS = 30000 };

static struct board *mine;
static struct board_page *page;

static size_t board_bytes(int size)
{
    return sizeof(struct board) + (size_t)size * sizeof(struct board_page);
}

status board_make(struct board **out, int size, int *descriptor)
{
    const size_t bytes = board_bytes(size);
    void *mapped;

    *descriptor = memfd_create("lockstep-board", MFD_CLOEXEC);
    if (*descriptor < 0 || ftruncate(*descriptor, (off_t)bytes) != 0 ||
        fchmod(*descriptor, 0600) != 0)
        FAIL(ERR_MEMORY, "%zu bytes of shared memory: %s", bytes,
             strerror(errno));
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *descriptor,
                  0);
    if (mapped == MAP_FAILED)
        FAIL(ERR_MEMORY, "%zu bytes of shared memory: %s", bytes,
             strerror(errno));
    *out = mapped;
    (*out)->magic = magic;
    (*out)->size = size;
    atomic_store(&(*out)->state_file, -1);
    return OK;
}

static status board_map(struct board **out, const char *path, int file,
                        bool writes)
{
    struct stat about;
    struct board *board;

    if (fstat(file, &about) != 0 || about.st_size < (off_t)sizeof *board)
        FAIL(ERR_FORMAT, "%s: is no board of a run", path);
    board = mmap(NULL, (size_t)about.st_size,
                 writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file,
                 0);
    if (board == MAP_FAILED)
        FAIL(ERR_MEMORY, "%s: %s", path, strerror(errno));
    if (board->magic != magic || board->size < 1 ||
        board->size > PROCESSES_MOST ||
        (size_t)about.st_size != board_bytes(board->size)) {
        munmap(board, (size_t)about.st_size);
        FAIL(ERR_FORMAT, "%s: is no board of a run", path);
    }
    *out = board;
    return OK;
}

status board_open(struct board **out, const char *path, int *descriptor)
{
    const int mode = descriptor != NULL ? O_RDWR : O_RDONLY;
    const int file = open(path, mode | O_CLOEXEC | O_NONBLOCK);
    status result;

    if (file < 0) FAIL(ERR_MISSING, "%s: %s", path, strerror(errno));
    result = board_map(out, path, file, descriptor != NULL);
    if (result == OK && descriptor != NULL) *descriptor = file;
    else close(file);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

void board_close(struct board *board)
{
    if (board != NULL) munmap(board, board_bytes(board->size));
}

void board_clear(struct board *board)
{
    memset(board->pages, 0, (size_t)board->size * sizeof *board->pages);
}

void board_sit(struct board *board, int rank)
{
    mine = board;
    page = &board->pages[rank];
    atomic_store(&page->process, getpid());
    flight_attach(&page->flight);
}

void board_phase(enum board_phase phase)
{
    if (page == NULL) return;
    atomic_store(&page->phase, (int)phase);
    flight_beat();
}

/* How much of the last steps the rank waited: a tenth of it is the newest. */
static void note_waits(int64_t step_ns)
{
    static int64_t met_ns;
    const int64_t met = atomic_load(&page->flight.met_ns);
    const int64_t waited = met - met_ns, before = atomic_load(&page->met_ppm);
    double share = step_ns > 0 ? 1e6 * (double)waited / (double)step_ns : 0;

    met_ns = met;
    if (share < 0) share = 0; /* another generation in this process */
    if (share > 1e6) share = 1e6;
    atomic_store(&page->met_ppm,
                 (int64_t)(0.9 * (double)before + 0.1 * share));
}

void board_step(int64_t steps_done)
{
    const int64_t now = clock_ns();

    if (page == NULL) return;
    const int64_t before = atomic_load(&page->step_ns);

    if (before != 0 && now - before > atomic_load(&page->step_most_ns))
        atomic_store(&page->step_most_ns, now - before);
    if (before != 0) note_waits(now - before);
    atomic_store(&page->step, steps_done);
    atomic_store(&page->step_ns, now);
    flight_beat();
}

void board_resume(int64_t steps_done, enum board_source source)
{
    if (page == NULL) return;
    atomic_store(&page->source, (int)source);
    atomic_store(&page->from_step, steps_done);
    atomic_store(&page->step, steps_done);
    flight_beat();
}

void board_end(status result, const char *sentence)
{
    if (page == NULL) return;
    atomic_store(&page->result, (int)result);
    snprintf(page->sentence, sizeof page->sentence, "%s", sentence);
    atomic_store(&page->phase, BOARD_ENDED);
    flight_attach(NULL);
    page = NULL;
}

void board_judge(enum board_verdict verdict, const char *sentence)
{
    if (page == NULL) return;
    snprintf(page->sentence, sizeof page->sentence, "%s", sentence);
    atomic_store(&page->verdict, (int)verdict);
}

int board_state_file(void)
{
    return mine != NULL ? atomic_load(&mine->state_file) : -1;
}

void board_planned(double seconds)
{
    if (page == NULL || !(seconds > 0 && seconds < 1e6)) return;
    atomic_store(&page->planned_ns, (int64_t)(1e9 * seconds));
}

void board_limit(int64_t limit_ms)
{
    if (page != NULL) atomic_store(&page->limit_ms, limit_ms);
}

void board_plan(size_t bytes)
{
    if (page != NULL) atomic_store(&page->plan_bytes, bytes);
}

void board_slots(size_t slot_bytes)
{
    if (page != NULL) atomic_store(&page->slot_bytes, slot_bytes);
}

void board_copied(int64_t step)
{
    if (page == NULL) return;
    atomic_store(&page->copied, step);
    atomic_fetch_add(&page->copies, 1);
    flight_beat();
}

void board_copies_mirror(struct board_page *of, const struct copies_cost *cost)
{
    atomic_store(&of->copies_every, cost->every);
    atomic_store(&of->copies_ppm, cost->ppm);
    atomic_store(&of->copies_waited_ns, cost->waited_ns);
    atomic_store(&of->copies_idle_ppm, cost->idle_ppm);
}

struct copies_cost board_copies_cost(const struct board_page *of)
{
    return (struct copies_cost){atomic_load(&of->copies_every),
                                atomic_load(&of->copies_ppm),
                                atomic_load(&of->copies_waited_ns),
                                atomic_load(&of->copies_idle_ppm)};
}

void board_copies(struct copies_cost cost)
{
    const double idle = board_carried_idle();

    if (page == NULL) return;
    cost.idle_ppm = idle < 0 ? -1 : (int64_t)(1e6 * idle);
    board_copies_mirror(page, &cost);
}

int64_t board_carried(const struct board *board, const struct board_page *of)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < PARTNERS_MOST; i++) {
        const int64_t step = atomic_load(&of->carried[i]);

        if (atomic_load(&board->carries[i]) != 0 && step < least) least = step;
    }
    return least == INT64_MAX || least < 0 ? 0 : least;
}

/* A bit for each node that keeps copies and does not have that step yet; *any:
 * one does keep them. */
static int awaited_nodes(int64_t step, bool *any)
{
    int awaited = 0;

    *any = false;
    for (int i = 0; i < PARTNERS_MOST; i++) {
        if (atomic_load(&mine->carries[i]) == 0) continue;
        *any = true;
        awaited |= (atomic_load(&page->carried[i]) < step) << i;
    }
    return awaited;
}

/* A validation between two steps makes it longer once. */
static void note_need(void)
{
    const int64_t ended = atomic_load(&page->step_ns);
    const int64_t before = atomic_load(&page->needs_copy_ns);
    int64_t now = clock_ns() - ended;

    if (ended == 0) return;
    if (before > 0 && now > before)
        now = before + ((now < 2 * before ? now : 2 * before) - before) / 8;
    atomic_store(&page->needs_copy_ns, now);
}

bool board_await_carried(int64_t step)
{
    const struct timespec pause = {0, 200000};
    bool any, goes_on;
    int nodes;
    const int64_t end = clock_ns() + (int64_t)CARRY_MS * 1000000;

    if (page == NULL) return false;
    (void)awaited_nodes(step, &goes_on);
    if (!goes_on) return false;
    note_need();
    while ((nodes = awaited_nodes(step, &any)) != 0 && clock_ns() < end) {
        flight_await(nodes);
        flight_take_time(); /* of an instruction: this is no hang */
        flight_beat();
        nanosleep(&pause, NULL);
    }
    flight_await(0);
    return true;
}

double board_carrying(void)
{
    return page != NULL ? 1e-9 * (double)atomic_load(&mine->courier_ns) : 0;
}

double board_carried_idle(void)
{
    const int64_t all = mine != NULL ? atomic_load(&mine->courier_bytes) : 0;

    return all > 0 ? (double)atomic_load(&mine->courier_idle_bytes) /
                         (double)all
                   : -1;
}

void board_forget(void)
{
    if (page == NULL) return;
    atomic_store(&page->copied, 0);
    for (int i = 0; i < PARTNERS_MOST; i++)
        atomic_store(&page->carried[i], -1);
}

int board_partners(void)
{
    return page != NULL ? atomic_load(&mine->partners) : 0;
}

int board_ranks_here(int ranks)
{
    const int here = mine != NULL ? atomic_load(&mine->here) : 0;

    return here > 0 && here < ranks ? here : ranks;
}

bool board_has_agent(void)
{
    return mine != NULL && atomic_load(&mine->here) > 0;
}

uint64_t board_generation(void)
{
    return mine != NULL ? atomic_load(&mine->generation) : 0;
}

const struct board *board_mine(void)
{
    return mine;
}

const char *board_source_name(int source)
{
    static const char *const names[BOARD_SOURCES] = {"beginning", "checkpoint",
                                                     "memory", "peer memory"};

    return source >= 0 && source < BOARD_SOURCES ? names[source] : "unknown";
}

const char *board_phase_name(int phase)
{
    static const char *const names[BOARD_PHASES] = {
        "starts", "opens", "steps", "validates", "saves", "ended"};

    return phase >= 0 && phase < BOARD_PHASES ? names[phase] : "unknown";
}
