/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the state of a supervised run. */
#include "control/report.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "comm/crew.h"
#include "control/host.h"
#include "control/place.h"

const char *run_state_name(enum run_state state)
{
    static const char *const names[] = {"runs", "alone", "restarts", "waits",
                                        "ended", "elsewhere", "dead"};

    return names[state];
}

static bool is_event(const struct json *line, const char *event)
{
    const struct json *found = json_get(line, "event");

    return found != NULL && found->kind == JSON_STRING &&
           strcmp(found->string, event) == 0;
}

static int64_t number_of(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && found->kind == JSON_INTEGER ? found->integer : 0;
}

/* The process that had this number then, and not another since, nor one that
 * has ended and that nobody has waited for: where the first process of a
 * container waits for none, such ones stay. */
static bool lives(int64_t process, int64_t began)
{
    return process > 0 && began != 0 &&
           crew_began((pid_t)process) == (uint64_t)began &&
           strchr("ZX", crew_state((pid_t)process)) == NULL;
}

/* A process of an agent outlives the rank that it was. */
static bool is_spare(int64_t process)
{
    char name[32];

    return crew_read((pid_t)process, "comm", name, sizeof name) > 0 &&
           strcmp(name, PLACE_SPARE "\n") == 0;
}

static void find_board(struct run_report *r, int64_t process, int64_t file)
{
    char path[64];

    if (r->board != NULL) return;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)process,
             (long long)file);
    if (board_open(&r->board, path, NULL) != OK) status_clear();
    else memcpy(r->board_path, path, sizeof path);
}

/* Its supervisor, or a rank: those of agents may be anywhere. */
static bool is_somebody_here(const struct json *start)
{
    const struct json *ranks = json_get(start, "ranks");

    if (lives(number_of(start, "supervisor"), number_of(start, "began")))
        return true;
    if (json_get(start, "layout") != NULL || ranks == NULL ||
        ranks->kind != JSON_ARRAY)
        return false;
    for (int i = 0; i < ranks->count; i++)
        if (lives(number_of(&ranks->items[i], "process"),
                  number_of(&ranks->items[i], "began")))
            return true;
    return false;
}

/* Numbers of processes mean nothing on another machine. Journals of older
 * builds do not name theirs. A machine may get another name. */
static bool is_elsewhere(const struct run_report *r, const struct json *start)
{
    char here[HOST_NAME_BYTES];

    host_name(here);
    return r->host[0] != '\0' && strcmp(r->host, here) != 0 &&
           !is_somebody_here(start);
}

/* The newest start: who lives of it. */
static status read_start(struct run_report *r, const struct json *start)
{
    const struct json *ranks = json_get(start, "ranks");
    const int64_t board = number_of(start, "board");
    const int64_t began = number_of(start, "began");
    void *memory;

    r->supervisor = number_of(start, "supervisor");
    r->board_number = (int)(json_get(start, "board_in_ranks") != NULL
                                ? number_of(start, "board_in_ranks") : board);
    r->generation = number_of(start, "generation");
    TRY(json_get_string_or(start, "journal.jsonl", "host", "", &r->host));
    r->elsewhere = is_elsewhere(r, start);
    if (!r->elsewhere && !lives(r->supervisor, began)) r->supervisor = 0;
    else if (!r->elsewhere) find_board(r, r->supervisor, board);
    r->agents = json_get(start, "layout") != NULL;
    TRY(json_get_string_or(start, "journal.jsonl", "layout", "", &r->layout));
    if (ranks == NULL || ranks->kind != JSON_ARRAY) return OK;
    TRY(arena_take_array(&r->arena, (size_t)ranks->count + 1, sizeof *r->rank,
                         &memory));
    r->rank = memory;
    r->ranks = ranks->count;
    for (int i = 0; i < r->ranks; i++) {
        r->rank[i].process = number_of(&ranks->items[i], "process");
        TRY(json_get_string_or(&ranks->items[i], "journal.jsonl", "node", "",
                               &r->rank[i].node));
        r->rank[i].began = number_of(&ranks->items[i], "began");
        r->rank[i].lives = !r->elsewhere &&
                           lives(r->rank[i].process, r->rank[i].began) &&
                           !(r->agents && is_spare(r->rank[i].process));
        if (r->rank[i].lives)
            find_board(r, r->rank[i].process, r->board_number);
    }
    return OK;
}

/* Ranks of agents: their processes may be on other machines, so the page says
 * who lives. */
static void see_page(struct run_report *r, int rank)
{
    const struct board_page *page = &r->board->pages[rank];
    const int64_t process = atomic_load(&page->process);

    if (!r->agents || r->supervisor == 0) return;
    if (process != 0) r->rank[rank].process = process;
    r->rank[rank].lives = atomic_load(&page->phase) != BOARD_ENDED;
}

static enum run_state find_state(const struct run_report *r)
{
    int living = 0;

    if (r->elsewhere)
        return r->result != NULL ? RUN_ENDED : RUN_ELSEWHERE;
    for (int i = 0; i < r->ranks; i++) living += r->rank[i].lives;
    if (r->supervisor != 0) return living > 0 ? RUN_RUNS : RUN_RESTARTS;
    if (living > 0) return RUN_ALONE;
    return r->result != NULL ? RUN_ENDED : RUN_DEAD;
}

/* Whether the process has that file open. */
static bool has_open(int64_t process, const struct stat *file)
{
    char path[64];
    struct dirent *entry;
    struct stat found;
    bool has = false;

    snprintf(path, sizeof path, "/proc/%lld/fd", (long long)process);
    DIR *files = opendir(path);

    while (files != NULL && !has && (entry = readdir(files)) != NULL)
        has = fstatat(dirfd(files), entry->d_name, &found, 0) == 0 &&
              found.st_dev == file->st_dev && found.st_ino == file->st_ino;
    if (files != NULL) closedir(files);
    return has;
}

/* A supervisor that waits for agents has written no line yet, but holds the
 * run's lock, with its number in it; 0: there is none. To try the lock could
 * keep one out that begins just now. */
static int64_t lock_holder(const char *run)
{
    char path[PATH_BYTES], text[32] = "";
    struct stat found;
    int file;

    if (path_join(path, sizeof path, run, "control/lock") != OK ||
        !file_exists(path) || file_open_own(path, O_RDONLY, &file) != OK) {
        status_clear();
        return 0;
    }
    const ssize_t got = read(file, text, sizeof text - 1);
    const bool known = fstat(file, &found) == 0;
    const int64_t process = got > 0 ? strtoll(text, NULL, 10) : 0;

    close(file);
    return process > 0 && known && has_open(process, &found) ? process : 0;
}

/* The one that wrote the end says no more. */
static void see_successor(struct run_report *r, const char *run,
                          int64_t before)
{
    const int64_t process = r->state >= RUN_ENDED ? lock_holder(run) : 0;

    if (process == 0 || process == before) return;
    r->supervisor = process;
    r->result = NULL;
    r->state = RUN_RESTARTS;
}

/* The supervisor that waits for the first agents of the run; 0: none does. */
static int64_t waiting(const char *run)
{
    char path[PATH_BYTES];

    if (path_join(path, sizeof path, run, "control/journal.jsonl") == OK)
        return file_exists(path) ? 0 : lock_holder(run);
    status_clear();
    return 0;
}

bool run_waits(const char *run)
{
    return waiting(run) != 0;
}

static status read_report(struct run_report *r, const char *run)
{
    const struct json *start = NULL;
    const int64_t process = waiting(run);

    if (process != 0) {
        r->supervisor = process;
        r->state = RUN_WAITS;
        return OK;
    }
    TRY(journal_read(&r->lines, &r->arena, run));
    for (int i = 0; i < r->lines.count; i++) {
        const struct json *line = r->lines.items[i];

        if (is_event(line, "start")) {
            start = line;
            r->result = NULL;
        }
        if (is_event(line, "copies"))
            TRY(json_get_string_or(line, "journal.jsonl", "survives", "",
                                   &r->survives));
        r->incidents += is_event(line, "incident");
        if (is_event(line, "recovered")) /* from all so far */
            r->recovered = r->incidents;
        if (is_event(line, "end"))
            TRY(json_get_string_or(line, "journal.jsonl", "result", "unknown",
                                   &r->result));
        if (number_of(line, "step") > r->step && !is_event(line, "recovered"))
            r->step = number_of(line, "step");
    }
    if (start != NULL) TRY(read_start(r, start));
    if (r->board != NULL && r->board->size < r->ranks) {
        board_close(r->board);
        r->board = NULL;
    }
    for (int i = 0; r->board != NULL && i < r->ranks; i++)
        see_page(r, i);
    for (int i = 0; r->board != NULL && i < r->ranks; i++)
        if (atomic_load(&r->board->pages[i].step) > r->step)
            r->step = atomic_load(&r->board->pages[i].step);
    r->state = find_state(r);
    see_successor(r, run, start != NULL ? number_of(start, "supervisor") : 0);
    return OK;
}

status run_report_read(struct run_report *report, const char *run)
{
    status result;

    *report = (struct run_report){.survives = "", .host = ""};
    arena_init(&report->arena, "journal", 0);
    result = read_report(report, run);
    if (result == OK) return OK;
    run_report_free(report);
    return status_pass(result, __FILE__, __LINE__);
}

void run_report_copies(const struct run_report *report, int64_t *own,
                       int64_t *other)
{
    *own = *other = report->board != NULL && report->ranks > 0 ? INT64_MAX : 0;
    for (int i = 0; report->board != NULL && i < report->ranks; i++) {
        const struct board_page *page = &report->board->pages[i];
        const int64_t copied = atomic_load(&page->copied);
        const int64_t carried = report->agents
                                    ? atomic_load(&page->carried[0]) : 0;

        if (copied < *own) *own = copied;
        if (carried < *other) *other = carried;
    }
}

struct copies_cost run_report_cost(const struct run_report *report)
{
    struct copies_cost most = {.idle_ppm = -1};

    for (int i = 0; report->board != NULL && i < report->ranks; i++) {
        const struct copies_cost now =
            board_copies_cost(&report->board->pages[i]);

        if (now.every == 0) continue;
        if (i == 0) most.every = now.every;
        if (now.ppm > most.ppm) most.ppm = now.ppm;
        if (now.waited_ns > most.waited_ns) most.waited_ns = now.waited_ns;
        if (now.idle_ppm >= 0 &&
            (most.idle_ppm < 0 || now.idle_ppm < most.idle_ppm))
            most.idle_ppm = now.idle_ppm;
    }
    return most;
}

void run_report_free(struct run_report *report)
{
    board_close(report->board);
    arena_free(&report->arena);
    *report = (struct run_report){.step = 0};
}
