/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor.c - starts generations of ranks until one ends the run. */
#include "control/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/oom_kills.h"
#include "base/room.h"
#include "base/text.h"
#include "control/call_record.h"
#include "control/host.h"
#include "control/report.h"
#include "control/watch.h"

/* Restarts in a row none of which got further: of a rank that fails by itself,
 * and of one that is killed from outside. */
enum { IN_VAIN_ITSELF = 3, IN_VAIN_MOST = 12, FALLS_MOST = 6,
       STARVED_S = 3600 };
/* Files open at once: the supervisor's own, and for each rank its process, the
 * meeting of a generation, and what looks at it. */
enum { DESCRIPTORS_OWN = 24, DESCRIPTORS_EACH = 3 };
static const int64_t back_off_ms[IN_VAIN_MOST + 1] = {
    0, 50, 200, 500, 1000, 1000, 2000, 2000, 4000, 4000, 8000, 8000, 8000};

/* ---- the child ---- */

static pid_t supervisor_process; /* of a rank; 0: this is none */

/* In a group of its own, so that a terminal sends its signals to the supervisor
 * alone. */
static void become_rank(struct supervisor *s, int rank, pid_t supervisor)
{
    char name[24]; /* the system keeps 15 bytes */

    supervisor_process = supervisor;
    setpgid(0, 0);
    snprintf(name, sizeof name, "lockstep:%d", rank);
    prctl(PR_SET_NAME, name);
    crew_unwatch(&s->signals);
    board_sit(s->board, rank);
    journal_forget(&s->journal);
    memory_free(s->sights);
}

void supervised_end(status result)
{
    const struct timespec pause = {0, 20000000};
    const bool waits = result == ERR_PEER;
    int null;

    if (supervisor_process == 0) return;
    board_end(result, result == OK ? "" : status_message());
    while (waits && getppid() == supervisor_process) nanosleep(&pause, NULL);
    if (getppid() != supervisor_process) return; /* nobody else says it */
    /* The supervisor says it, once for all ranks. */
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (result == OK || null < 0) return;
    dup2(null, STDERR_FILENO);
    close(null);
}

/* ---- generations ---- */

static bool has_file(const char *run, const char *name)
{
    char path[PATH_BYTES];

    if (path_join(path, sizeof path, run, name) == OK)
        return file_exists(path);
    status_clear();
    return false;
}

/* Where nodes share no file system, the run's own files are on the node of rank
 * 0, and here is what generation_of_agents announced. */
static bool run_has_begun(const char *run)
{
    return has_file(run, "config.yaml") || has_file(run, "control/generation");
}

static void tell_start(struct supervisor *s)
{
    char host[HOST_NAME_BYTES];
    struct json_writer w;

    host_name(host);
    journal_line(&w, "start");
    json_write_key_text(&w, "host", host);
    json_write_key_integer(&w, "generation", (int64_t)s->crew.generation);
    json_write_key_integer(&w, "supervisor", getpid());
    json_write_key_integer(&w, "began", (int64_t)crew_began(getpid()));
    json_write_key_integer(&w, "board", s->board_file);
    json_write_key_integer(&w, "state", s->state_file);
    json_write_key_integer(&w, "board_in_ranks", s->board_number);
    if (s->fleet != NULL) {
        json_write_key_text(&w, "layout", s->layout);
        json_write_key_integer(&w, "converts", s->converts);
        json_write_key_integer(&w, "last_order",
                               (int64_t)s->fleet->last_order);
    }
    json_write_key(&w, "ranks");
    json_write_array(&w);
    for (int i = 0; i < s->crew.size; i++) {
        json_write_object(&w);
        if (s->fleet != NULL) json_key_seat(&w, s->fleet, i);
        json_write_key_integer(&w, "process", s->crew.members[i].process);
        json_write_key_integer(&w, "began",
                               (int64_t)s->crew.members[i].began);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    journal_put(&s->journal, &w);
}

static status start_generation(struct supervisor *s, uint64_t generation,
                               bool *rank)
{
    const pid_t self = getpid();

    if (s->fleet != NULL) {
        TRY(generation_of_agents(s, generation,
                                 run_has_begun(s->how->run)));
        tell_start(s);
        return OK;
    }
    TRY(crew_begin(&s->crew, generation));
    board_clear(s->board);
    atomic_store(&s->board->generation, generation);
    /* They inherit these; until now ranks that were taken over had others. */
    s->board_number = s->board_file;
    atomic_store(&s->board->state_file, s->state_file);
    for (int i = 0; i < s->crew.size; i++) s->sights[i] = (struct sight){0};
    for (int i = 0; i < s->crew.size; i++) {
        const status started = crew_start(&s->crew, i, rank);

        if (*rank && started == OK) become_rank(s, i, self);
        if (*rank) return started;
        if (started == OK) continue;
        crew_fence(&s->crew);
        return status_pass(started, __FILE__, __LINE__);
    }
    tell_start(s);
    return OK;
}

/* ---- incidents ---- */

static const char *kind_name(enum incident_kind kind)
{
    static const char *const names[] = {"none", "death", "hang", "connection"};

    return names[kind];
}

/* Written down before anybody is killed: where all ranks are. */
static void tell_incident(struct supervisor *s, const struct incident *i)
{
    const int64_t now = clock_ns();
    const double silent_ms = sign_of_life_ms(s->board, i->rank, i->seen_ns);
    char text[256];
    struct json_writer w;

    journal_line(&w, "incident");
    json_write_key_integer(&w, "incident", s->incidents);
    json_write_key_integer(&w, "generation", (int64_t)s->crew.generation);
    json_write_key_text(&w, "kind", kind_name(i->kind));
    json_write_key_integer(&w, "rank", i->rank);
    json_write_key_integer(&w, "process", i->process);
    json_write_key_text(&w, "cause", i->cause);
    json_write_key_integer(&w, "step", s->most_steps);
    if (silent_ms >= 0) json_write_key_real(&w, "noticed_ms", silent_ms);
    explain_waits(s->board, text);
    json_write_key_text(&w, "explain", text);
    json_write_key(&w, "positions");
    json_write_array(&w);
    for (int rank = 0; rank < s->crew.size; rank++) {
        position_text(s->board, rank, now, text);
        json_write_string(&w, text);
    }
    json_write_array_end(&w);
    journal_put(&s->journal, &w);
    fprintf(stderr, "incident  rank %d (process %lld) %s\n", i->rank,
            (long long)i->process, i->cause);
}

static void open_incident(struct supervisor *s, const struct incident *i)
{
    const int64_t before = s->last_step_ns != 0 ? s->last_step_ns : i->seen_ns;

    s->incidents++;
    if (s->open_incident == 0) {
        s->open_since_ns = before;
        s->open_step = s->most_steps;
    }
    s->open_incident = s->incidents;
    s->in_vain++;
    crew_signal(&s->crew, SIGKILL);
    if (s->fleet != NULL) fleet_records(s->fleet);
    tell_incident(s, i);
    call_record_keep(s->how->run, s->board, s->crew.size, s->crew.generation,
                     i->seen_ns);
    if (s->fleet != NULL && i->kind != INCIDENT_CONNECTION)
        fleet_blame(s->fleet, i->rank);
    crew_fence(&s->crew);
    watch_verdicts(s);
    s->fenced_ms = 1e-6 * (double)(clock_ns() - i->seen_ns);
}

/* The page of a rank that says from where the generation went on: if one of
 * them had its state from another node, that one. */
static const struct board_page *source_page(const struct supervisor *s)
{
    for (int i = 0; i < s->crew.size; i++)
        if (atomic_load(&s->board->pages[i].source) == BOARD_PEER)
            return &s->board->pages[i];
    return &s->board->pages[0];
}

/* A rank's page may come later than that of another which was faster. */
static bool all_said_source(const struct supervisor *s)
{
    for (int i = 0; i < s->crew.size; i++)
        if (atomic_load(&s->board->pages[i].phase) <= BOARD_OPENS)
            return false;
    return true;
}

/* The run went back behind where a generation began before. It may make its
 * way from there again; but one that falls to the same step again and again
 * gets nowhere, however far it climbs in between. */
static void see_fall(struct supervisor *s, int64_t from)
{
    if (from > s->fallen_to) {
        s->falls = 0;
        s->fallen_to = from;
    }
    if (s->falls++ < FALLS_MOST) s->furthest_from = from;
}

/* A run that went far back, and is killed often, makes its way again. */
static void see_progress(struct supervisor *s)
{
    int64_t from;

    if (s->from_generation == s->crew.generation || !all_said_source(s))
        return;
    from = atomic_load(&source_page(s)->from_step);
    if (from < s->from_step) see_fall(s, from);
    if (from > s->furthest_from) {
        s->furthest_from = from;
        s->in_vain = 0;
    }
    s->from_step = from;
    s->from_generation = s->crew.generation;
}

/* A step beyond the last one before the incident is finished. */
static void close_incident(struct supervisor *s)
{
    const struct board_page *page = source_page(s);
    const int64_t from = atomic_load(&page->from_step);
    struct json_writer w;

    if (s->open_incident == 0 || s->most_steps <= s->open_step ||
        !all_said_source(s))
        return;
    /* The last report of a lost node may be older than its copies. */
    if (s->open_step < from) s->open_step = from;
    journal_line(&w, "recovered");
    json_write_key_integer(&w, "incident", s->open_incident);
    json_write_key_integer(&w, "generation", (int64_t)s->crew.generation);
    json_write_key_text(&w, "from", board_source_name(
        atomic_load(&page->source)));
    json_write_key_integer(&w, "step", from);
    json_write_key_integer(&w, "redone", s->open_step - from);
    json_write_key_real(&w, "fenced_ms", s->fenced_ms);
    json_write_key_real(&w, "lost_ms", 1e-6 * (double)(s->last_step_ns -
                                                      s->open_since_ns));
    journal_put(&s->journal, &w);
    fprintf(stderr, "recovered generation %llu goes on from step %lld (%s), "
                    "%lld redone, %.0f ms lost\n",
            (unsigned long long)s->crew.generation, (long long)from,
            board_source_name(atomic_load(&page->source)),
            (long long)(s->open_step - from),
            1e-6 * (double)(s->last_step_ns - s->open_since_ns));
    s->open_incident = 0;
}

static status fail_in_vain(const struct supervisor *s,
                           const struct incident *incident)
{
    status result = status_fail(
        incident->wrong ? ERR_DEVICE : ERR_PEER, __FILE__, __LINE__, "rank %d "
        "%s, %d times in a row without getting further; the checkpoints "
        "stand", incident->rank, incident->cause, s->in_vain);

    return status_hint(result, "lockstep incidents %s --explain says where "
                               "every rank was", s->how->run);
}

/* The plan is the same for the next generation: it would be killed, too. */
static status fail_starved(const struct supervisor *s,
                           const struct incident *incident)
{
    const uint64_t planned =
        atomic_load(&s->board->pages[incident->rank].plan_bytes);
    const int64_t limit = s->fleet == NULL ? oom_kills_limit() : 0;
    char takes[32], most[32], plan[96] = "", group[96] = "";

    if (planned > 0)
        snprintf(plan, sizeof plan, "; the plan of a rank is %s beside its "
                 "copies", text_bytes(takes, planned));
    if (limit > 0)
        snprintf(group, sizeof group, "; the control group of all may take %s",
                 text_bytes(most, (uint64_t)limit));
    const status result = status_fail(
        ERR_MEMORY, __FILE__, __LINE__, "rank %d %s, for the second time "
        "within an hour%s%s; the checkpoints stand", incident->rank,
        incident->cause, plan, group);

    return status_hint(result, "lockstep plan CONFIG --explain memory says "
                               "what a rank takes; --copies 0 makes no copies "
                               "in memory");
}

/* Whether it is the second such kill within an hour. */
static bool starves(struct supervisor *s, const struct incident *incident)
{
    const int64_t before = s->starved_ns;

    if (!incident->starved) return false;
    s->starved_ns = incident->seen_ns;
    return before != 0 &&
           incident->seen_ns - before < (int64_t)STARVED_S * 1000000000;
}

/* Waits, but hears signals. */
static void back_off(struct supervisor *s)
{
    const int64_t end = clock_ns() +
                        back_off_ms[s->in_vain - 1] * 1000000;
    struct pollfd poll_one = {.fd = s->signals, .events = POLLIN};

    while (clock_ns() < end && s->asked == 0)
        if (poll(&poll_one, 1, 20) > 0) return; /* heard in the next look */
}

/* ---- the run ---- */

static void tell_end(struct supervisor *s, status result)
{
    struct json_writer w;

    journal_line(&w, "end");
    json_write_key_text(&w, "result", result == OK ? "ok"
                                                   : status_name(result));
    json_write_key_integer(&w, "step", s->most_steps);
    json_write_key_integer(&w, "incidents", s->incidents);
    journal_put(&s->journal, &w);
}

/* Until the generation ends. */
static enum look watch(struct supervisor *s, struct incident *incident,
                       status *result)
{
    enum look look;

    do {
        look = watch_once(s, incident, result);
        see_progress(s);
        close_incident(s);
        generation_grow(s);
        generation_copies(s);
        generation_leases(s);
        generation_stragglers(s);
        journal_poll(&s->journal);
    } while (look == LOOK_ON);
    return look;
}

/* Whether its supervisor died, and its ranks go on. */
static bool is_alone(const char *run)
{
    struct run_report report;
    bool alone;

    if (run_report_read(&report, run) != OK) {
        status_clear();
        return false;
    }
    alone = report.state == RUN_ALONE;
    run_report_free(&report);
    return alone;
}

/* Ranks as threads or under MPI have no supervisor, and hold this lock. */
static status check_untrained(const struct supervisor *s)
{
    char path[PATH_BYTES];
    status result;

    if (is_alone(s->how->run)) return OK;
    TRY(path_join(path, sizeof path, s->how->run, "lock"));
    result = file_lock_look(path);
    if (result != ERR_CONFIG) return result;
    return status_hint(result, "it trains here without a supervisor; choose "
                       "another directory with --run, or end it first and "
                       "continue with: lockstep resume %s --ranks %d "
                       "--supervised", s->how->run, s->how->ranks);
}

static status refuse_begun(const struct supervisor *s)
{
    TRY(check_untrained(s));
    const bool saved = s->how->saved(s->how->run);
    const status result = status_fail(
        ERR_CONFIG, __FILE__, __LINE__, "%s: holds a run already%s",
        s->how->run, saved ? "" : ", which ended before its first checkpoint");

    return status_hint(result, "%s with: lockstep resume %s --ranks %d "
                       "--supervised, or choose another directory with --run",
                       saved ? "continue it"
                             : "begin it again at step 0, with its own "
                               "configuration,",
                       s->how->run, s->how->ranks);
}

/* A run that is there may have ranks that live. */
static status find_ranks(struct supervisor *s, bool resumes, bool *watches)
{
    *watches = false;
    if (!run_has_begun(s->how->run)) return OK;
    if (!resumes && (s->fleet == NULL ||
                     !has_file(s->how->run, "control/journal.jsonl")))
        return refuse_begun(s);
    TRY(journal_claim(&s->journal));
    s->journal.elsewhere = true;
    TRY(s->fleet != NULL ? supervisor_adopt_agents(s, watches)
                         : supervisor_adopt(s, watches));
    if (*watches) tell_start(s);
    else crew_fence(&s->crew);
    return OK;
}

/* *ended: the run has; otherwise another generation begins. */
static status run_generation(struct supervisor *s, bool *ended)
{
    struct incident incident;
    status result = OK;

    *ended = false;
    if (watch(s, &incident, &result) == LOOK_OVER) {
        crew_fence(&s->crew);
        if (s->fleet != NULL && generation_goes_on(s, &result)) return OK;
        *ended = true;
        return result;
    }
    open_incident(s, &incident);
    if (s->regroups || s->converts) s->asked = s->wished;
    s->regroups = s->converts = false;
    if (starves(s, &incident)) return fail_starved(s, &incident);
    if (s->in_vain > (incident.itself ? IN_VAIN_ITSELF : IN_VAIN_MOST))
        return fail_in_vain(s, &incident);
    back_off(s);
    return OK;
}

static status run_generations(struct supervisor *s, bool *rank, bool *again)
{
    bool watches, ended = false;
    status result;

    TRY(find_ranks(s, *again, &watches));
    do {
        result = OK;
        *again = run_has_begun(s->how->run);
        if (!watches)
            result = start_generation(s, s->crew.generation + 1, rank);
        watches = false;
        if (*rank) return result;
        if (result == OK) result = run_generation(s, &ended);
    } while (result == OK && !ended);
    tell_end(s, s->insists ? ERR_PEER : result);
    return result;
}

/* The ranks meet on the side of this machine where agents join. */
static status open_crew(struct supervisor *s)
{
    char meet[DOOR_ADDRESS_BYTES] = "127.0.0.1:0", *colon;

    if (s->fleet == NULL)
        return crew_open(&s->crew, s->how->ranks, meet, NULL);
    TRY(fleet_open(s->fleet, s->how->listen, s->how->token, s->how->ranks,
                   s->how->replicas));
    snprintf(meet, sizeof meet, "%s", s->fleet->door.address);
    colon = strrchr(meet, ':');
    snprintf(colon, (size_t)(meet + sizeof meet - colon), ":0");
    TRY(crew_open(&s->crew, s->how->ranks, meet, s->how->token));
    s->crew.far = &s->fleet->far;
    s->fleet->crew = &s->crew;
    s->crew.size = 0; /* no generation yet */
    return OK;
}

static status open_descriptors(const struct supervisor *s)
{
    const int64_t ranks = s->how->ranks;
    char who[64];

    snprintf(who, sizeof who, "the supervisor of %d ranks", s->how->ranks);
    return room_for_files(DESCRIPTORS_OWN + (s->fleet != NULL
                              ? 0 : DESCRIPTORS_EACH * ranks), who);
}

/* Signals are kept from the first moment on: it may wait for its port. */
static status supervisor_open(struct supervisor *s)
{
    TRY(crew_watch(&s->signals));
    TRY(open_descriptors(s));
    TRY(memory_take((size_t)s->how->ranks, sizeof *s->sights,
                    (void **)&s->sights));
    TRY(open_crew(s));
    TRY(board_make(&s->board, s->how->ranks, &s->board_file));
    s->board_number = s->board_file;
    s->state_file = memfd_create("lockstep-state", MFD_CLOEXEC);
    if (s->state_file < 0 || fchmod(s->state_file, 0600) != 0)
        FAIL(ERR_MEMORY, "no memory for the ranks' state: %s",
             strerror(errno));
    atomic_store(&s->board->state_file, s->state_file);
    journal_begin(&s->journal, s->how->run);
    return OK;
}

/* A port that stays another's is no reason for one that shall end anyway. */
static status fail_unopened(struct supervisor *s, status result)
{
    supervisor_hear(s);
    if (s->asked == 0) return status_pass(result, __FILE__, __LINE__);
    FAIL(ERR_STOPPED, "stopped by signal %d (%s) before it listened for "
         "agents: %s", s->asked, strsignal(s->asked), status_message());
}

static void supervisor_close(struct supervisor *s)
{
    if (s->fleet != NULL) {
        if (s->crew.members != NULL)
            s->crew.size = s->how->ranks; /* as it was opened */
        fleet_end(s->fleet);
        fleet_close(s->fleet);
    }
    crew_close(&s->crew);
    journal_close(&s->journal);
    board_close(s->board);
    if (s->board_file >= 0) close(s->board_file);
    if (s->state_file >= 0) close(s->state_file);
    memory_free(s->sights);
    supervisor_hear(s); /* one that came too late does not kill it */
    crew_unwatch(&s->signals);
}

/* After the run; a signal that came twice is obeyed as if there were no
 * supervisor. */
static status end_supervisor(struct supervisor *s, status result)
{
    const bool insists = s->insists;
    const int asked = s->wished != 0 ? s->wished : s->asked;

    supervisor_close(s);
    if (!insists) return result == OK ? OK
                                      : status_pass(result, __FILE__,
                                                    __LINE__);
    signal(asked, SIG_DFL);
    raise(asked);
    return result;
}

/* Agents are told where the run keeps its shards. */
static status name_stores(const struct supervision *how,
                          struct node_stores *stores)
{
    *stores = (struct node_stores){.directory = ""};
    if (how->local == NULL || how->local[0] == '\0') return OK;
    TRY(path_absolute(how->run, stores->run));
    return path_absolute(how->local, stores->directory);
}

status supervise_agents(const struct supervision *how)
{
    static struct fleet fleet;
    struct supervisor s = {.how = how, .signals = -1, .board_file = -1,
                           .state_file = -1, .fleet = &fleet};
    bool rank = false, again = how->again;
    status result = supervisor_open(&s);

    fleet.board = s.board;
    if (result != OK) result = fail_unopened(&s, result);
    if (result == OK) result = name_stores(how, &fleet.stores);
    if (result == OK) {
        fprintf(stderr, "listens   for agents at %s\n", fleet.door.address);
        result = run_generations(&s, &rank, &again);
    }
    return end_supervisor(&s, result);
}

status supervise(const struct supervision *how, bool *rank, bool *again)
{
    struct supervisor s = {.how = how, .signals = -1, .board_file = -1,
                           .state_file = -1};
    status result = supervisor_open(&s);

    *rank = false;
    if (result == OK) result = run_generations(&s, rank, again);
    if (*rank) return result; /* the board and the memory are its own now */
    return end_supervisor(&s, result);
}
