/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - `lockstep status` and `lockstep incidents`: how a supervised run
 * is, and what happened to it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/run_dir.h"
#include "cli/call_table.h"
#include "cli/run.h"
#include "cli/spent.h"
#include "comm/handshake.h"
#include "control/report.h"
#include "control/straggler.h"
#include "control/watch.h"

enum { TAIL_BYTES = 1 << 16 }; /* that hold the last line of metrics */

/* ---- status ---- */

static void rank_text(const struct run_report *r, int rank, char out[160])
{
    if (r->board != NULL)
        position_text(r->board, rank, clock_ns(), out);
    else
        snprintf(out, 160, "rank %d: %s", rank,
                 r->state == RUN_ELSEWHERE ? "not known here"
                 : r->rank[rank].lives     ? "lives" : "is gone");
}

/* While steps are made. */
static struct straggler straggler_of(const struct run_report *r)
{
    if (r->board == NULL || r->state >= RUN_ENDED)
        return (struct straggler){.rank = -1};
    /* Times of other machines are corrected by when their report was read. */
    return r->agents ? straggler_by_waits(r->board)
                     : straggler_find(r->board);
}

static void print_straggler(const struct run_report *r)
{
    const struct straggler found = straggler_of(r);
    char text[120];

    straggler_text(&found, text);
    if (text[0] != '\0') printf("straggler  %s\n", text);
}

static void write_straggler(const struct run_report *r, struct json_writer *w)
{
    const struct straggler found = straggler_of(r);

    json_write_key(w, "straggler");
    if (found.rank < 0) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    json_write_key_integer(w, "rank", found.rank);
    json_write_key_real(w, "waited_share", found.share);
    json_write_key_real(w, "seconds", found.seconds);
    json_write_key_integer(w, "calls", found.calls);
    json_write_object_end(w);
}

static void write_copies(const struct run_report *r, struct json_writer *w)
{
    const struct copies_cost cost = run_report_cost(r);
    int64_t own, other;

    run_report_copies(r, &own, &other);
    json_write_key(w, "copies");
    json_write_object(w);
    json_write_key_integer(w, "step", own);
    json_write_key_integer(w, "step_on_other_nodes", other);
    json_write_key_text(w, "survives", r->survives);
    json_write_key_integer(w, "every", cost.every);
    json_write_key_real(w, "cost_share", 1e-6 * (double)cost.ppm);
    json_write_key_real(w, "exposed_s", 1e-9 * (double)cost.waited_ns);
    json_write_key(w, "idle_share");
    if (cost.idle_ppm < 0) json_write_null(w);
    else json_write_real(w, 1e-6 * (double)cost.idle_ppm);
    json_write_object_end(w);
}

static void print_copies(const struct run_report *r)
{
    const struct copies_cost cost = run_report_cost(r);
    int64_t own, other;

    run_report_copies(r, &own, &other);
    if (own > 0)
        printf("copies     all ranks have step %lld in memory\n",
               (long long)own);
    if (other > 0)
        printf("copies     other nodes have step %lld of all ranks\n",
               (long long)other);
    if (cost.ppm > 0)
        printf("copies     cost %.2f%% of the time: one after every %lld "
               "step%s\n", 1e-4 * (double)cost.ppm, (long long)cost.every,
               cost.every > 1 ? "s" : "");
    if (cost.idle_ppm >= 0)
        printf("copies     %.1f%% of their bytes travelled while the network "
               "was idle; a step waits %.1f ms for one\n",
               1e-4 * (double)cost.idle_ppm, 1e-6 * (double)cost.waited_ns);
    if (r->survives[0] != '\0') printf("survives   %s\n", r->survives);
}

static status print_status_json(const struct run_report *r, const char *run)
{
    struct json_writer w;
    char text[160];
    status result;

    json_write_begin(&w, 1);
    json_write_object(&w);
    json_write_key_text(&w, "run", run);
    json_write_key_text(&w, "state", run_state_name(r->state));
    json_write_key_text(&w, "result", r->result != NULL ? r->result : "");
    json_write_key_integer(&w, "supervisor", r->supervisor);
    json_write_key_text(&w, "host", r->host);
    json_write_key_integer(&w, "generation", r->generation);
    json_write_key_integer(&w, "step", r->step);
    json_write_key_integer(&w, "incidents", r->incidents);
    json_write_key_integer(&w, "recovered", r->recovered);
    if (r->agents) json_write_key_text(&w, "layout", r->layout);
    write_copies(r, &w);
    write_straggler(r, &w);
    json_write_key(&w, "ranks");
    json_write_array(&w);
    for (int i = 0; i < r->ranks; i++) {
        rank_text(r, i, text);
        json_write_object(&w);
        json_write_key_integer(&w, "rank", i);
        json_write_key_integer(&w, "process", r->rank[i].process);
        if (r->agents) json_write_key_text(&w, "node", r->rank[i].node);
        json_write_key(&w, "lives");
        if (r->state == RUN_ELSEWHERE) json_write_null(&w);
        else json_write_bool(&w, r->rank[i].lives);
        json_write_key_text(&w, "position", text);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    result = json_write_end(&w);
    if (result == OK) printf("%s\n", w.out.bytes);
    json_writer_free(&w);
    return result;
}

/* written_s: how long ago the metrics were written; below 0: unknown. */
static void print_status(const struct run_report *r, const char *run,
                         double written_s)
{
    static const char *const states[] = {
        [RUN_RUNS] = "runs",
        [RUN_ALONE] = ("runs, but its supervisor is gone: a rank that dies "
                       "now is not replaced"),
        [RUN_RESTARTS] = "is being restarted",
        [RUN_WAITS] = "waits for its first ranks", [RUN_ENDED] = "has ended",
        [RUN_ELSEWHERE] = "is not known here",
        [RUN_DEAD] = "is dead: nobody lives, and nobody said why"};
    char text[160];

    printf("run        %s\nstate      %s%s%s\n", run, states[r->state],
           r->result != NULL ? ": " : "", r->result != NULL ? r->result : "");
    if (r->state == RUN_ELSEWHERE)
        printf("machine    %s: its supervisor was started there, and only "
               "there lockstep status knows whether it lives\n", r->host);
    if (r->state == RUN_ELSEWHERE && written_s >= 0)
        printf("written    %s ago: the newest line of its metrics\n",
               text_duration(text, written_s));
    printf("step       %lld\ngeneration %lld\nincidents  %d, %d recovered\n",
           (long long)r->step, (long long)r->generation, r->incidents,
           r->recovered);
    if (r->agents)
        printf("layout     %d ranks: %s\n", r->ranks, r->layout);
    if (r->supervisor != 0)
        printf("supervisor process %lld\n", (long long)r->supervisor);
    for (int i = 0; i < r->ranks && r->state < RUN_ENDED; i++) {
        rank_text(r, i, text);
        printf("process    %lld  %s%s%s\n", (long long)r->rank[i].process,
               text, r->agents ? ", on " : "",
               r->agents ? r->rank[i].node : "");
    }
    if (r->state < RUN_ENDED) print_copies(r);
    print_straggler(r);
    if (r->state == RUN_DEAD)
        printf(r->agents ? "continue   with the command of its supervisor\n"
                         : "continue   lockstep resume %s --ranks %d "
                           "--supervised\n", run, r->ranks);
}

/* The step of the last whole line of a file of metrics; 0: there is none. */
static int64_t written_step(const char *path)
{
    char tail[TAIL_BYTES + 1];
    struct stat found;
    const char *line = NULL, *key;
    int file;

    if (!file_exists(path) || file_open_own(path, O_RDONLY, &file) != OK) {
        status_clear();
        return 0;
    }
    const bool known = fstat(file, &found) == 0;
    const off_t from = known && found.st_size > TAIL_BYTES
                           ? found.st_size - TAIL_BYTES : 0;
    const ssize_t got = known ? pread(file, tail, TAIL_BYTES, from) : 0;

    close(file);
    tail[got > 0 ? got : 0] = '\0';
    for (const char *at = tail; (key = strchr(at, '\n')) != NULL; at = key + 1)
        if (at > tail || from == 0) line = at;
    key = line != NULL ? strstr(line, "\"step\": ") : NULL;
    return key != NULL ? strtoll(key + strlen("\"step\": "), NULL, 10) : 0;
}

/* In seconds; below 0: nobody can say. */
static double written_ago(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0
               ? clock_wall_s() - (double)found.st_mtim.tv_sec : -1;
}

/* Reads the report of what is a run, and says where its metrics are. */
static status open_report(const char *run, char metrics[PATH_BYTES],
                          struct run_report *report)
{
    struct run_dir place = {0};
    const bool waits = run_waits(run);
    status result = run_dir_read(&place, run); /* has the paths in any case */

    if (result == ERR_MISSING && waits) {
        status_clear();
        result = OK;
    }
    if (result != OK) return status_pass(result, __FILE__, __LINE__);
    memcpy(metrics, place.metrics, sizeof place.metrics);
    run_dir_close(&place);
    return run_report_read(report, run);
}

status command_status(struct arguments *arguments)
{
    const char *run = arguments->operands[0];
    char metrics[PATH_BYTES];
    struct run_report report;
    status result = OK;

    TRY(open_report(run, metrics, &report));
    /* The journal has the steps of incidents alone. */
    if (report.board == NULL) {
        const int64_t step = written_step(metrics);

        if (step > 0) report.step = step;
    }
    if (arguments_has(arguments, "json"))
        result = print_status_json(&report, run);
    else
        print_status(&report, run, written_ago(metrics));
    run_report_free(&report);
    return result;
}

/* ---- incidents ---- */

static const char *text_of(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && found->kind == JSON_STRING ? found->string : "";
}

static double real_of(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && (found->kind == JSON_REAL ||
                             found->kind == JSON_INTEGER) ? found->real : 0;
}

static int64_t integer_of(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && found->kind == JSON_INTEGER ? found->integer : -1;
}

static void print_explained(const struct json *line)
{
    const struct json *positions = json_get(line, "positions");

    if (text_of(line, "explain")[0] != '\0')
        printf("    %s\n", text_of(line, "explain"));
    if (positions == NULL || positions->kind != JSON_ARRAY) return;
    for (int i = 0; i < positions->count; i++)
        if (positions->items[i].kind == JSON_STRING)
            printf("    %s\n", positions->items[i].string);
}

static void print_calls_hint(const struct json *line, const char *run)
{
    char path[PATH_BYTES];

    if (call_table_path(path, run, integer_of(line, "generation")))
        printf("    the last calls of all ranks: lockstep incidents %s --calls "
               "%lld\n", run, (long long)integer_of(line, "incident"));
}

static void print_line(const struct json *line, const char *run, bool explain)
{
    if (strcmp(text_of(line, "event"), "incident") == 0) {
        printf("%.0f: after step %.0f, generation %.0f: %s of rank %.0f "
               "(process %.0f): %s", real_of(line, "incident"),
               real_of(line, "step"), real_of(line, "generation"),
               text_of(line, "kind"), real_of(line, "rank"),
               real_of(line, "process"), text_of(line, "cause"));
        if (json_get(line, "noticed_ms") != NULL)
            printf("; noticed at most %.0f ms later",
                   real_of(line, "noticed_ms"));
        printf("\n");
        if (!explain) return;
        print_explained(line);
        print_calls_hint(line, run);
    } else if (strcmp(text_of(line, "event"), "recovered") == 0) {
        printf("   recovered: generation %.0f from step %.0f (%s), %.0f "
               "redone, %.0f ms from the last step to the next\n",
               real_of(line, "generation"), real_of(line, "step"),
               text_of(line, "from"), real_of(line, "redone"),
               real_of(line, "lost_ms"));
    }
}

/* Rank 0's metrics may be on another machine: then out->all is 0. */
static status read_spent(const struct run_report *report, const char *path,
                         struct spent *out)
{
    struct metrics_table table = {.count = 0};
    struct arena arena;
    status result;

    arena_init(&arena, "metrics", 0);
    result = metrics_read(&table, &arena, path);
    spent_find(out, report, &table, clock_wall_s());
    if (result != OK || table.count == 0) out->all = 0;
    arena_free(&arena);
    return result;
}

static status print_spent(const struct run_report *report, const char *path)
{
    struct spent spent;
    const status result = read_spent(report, path, &spent);

    if (spent.all > 0)
        printf("%.1f s: steps %.1f s (%.1f%%), waiting for data %.1f s, "
               "validations %.1f s, recoveries %.1f s, no supervisor %.1f s, "
               "opening, saves and the rest %.1f s\n", spent.all,
               spent.steps, 100 * spent.steps / spent.all, spent.data,
               spent.validations, spent.recoveries, spent.away, spent.rest);
    return result;
}

/* ---- incidents --json ---- */

static void copy_number(struct json_writer *w, const struct json *line,
                        const char *key)
{
    const struct json *found = json_get(line, key);

    if (found != NULL && found->kind == JSON_INTEGER)
        json_write_key_integer(w, key, found->integer);
    else if (found != NULL && found->kind == JSON_REAL)
        json_write_key_real(w, key, found->real);
    else {
        json_write_key(w, key);
        json_write_null(w);
    }
}

/* The line that says how the run went on after the incident at `at`: the next
 * one of its kind, as several in a row are recovered at once. NULL: none. */
static const struct json *recovery_of(const struct journal_lines *lines,
                                      int at)
{
    for (int i = at + 1; i < lines->count; i++)
        if (strcmp(text_of(lines->items[i], "event"), "recovered") == 0)
            return lines->items[i];
    return NULL;
}

static void write_recovery(struct json_writer *w, const struct json *line)
{
    static const char *const numbers[] = {"generation", "step", "redone",
                                          "fenced_ms", "lost_ms"};

    json_write_key(w, "recovered");
    if (line == NULL) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        copy_number(w, line, numbers[i]);
    json_write_key_text(w, "from", text_of(line, "from"));
    json_write_object_end(w);
}

static void write_incident(struct json_writer *w, const char *run,
                           const struct journal_lines *lines, int at)
{
    static const char *const numbers[] = {"incident", "time", "generation",
                                          "step", "rank", "process",
                                          "noticed_ms"};
    static const char *const texts[] = {"kind", "cause", "explain"};
    const struct json *line = lines->items[at];
    const struct json *positions = json_get(line, "positions");
    const int64_t generation = integer_of(line, "generation");
    char path[PATH_BYTES];

    json_write_object(w);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        copy_number(w, line, numbers[i]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        json_write_key_text(w, texts[i], text_of(line, texts[i]));
    json_write_key(w, "positions");
    json_write_array(w);
    for (int i = 0; positions != NULL && positions->kind == JSON_ARRAY &&
                    i < positions->count; i++)
        if (positions->items[i].kind == JSON_STRING)
            json_write_string(w, positions->items[i].string);
    json_write_array_end(w);
    json_write_key_text(w, "calls",
                        call_table_path(path, run, generation) ? path : "");
    write_recovery(w, recovery_of(lines, at));
    json_write_object_end(w);
}

static status write_spent(const struct run_report *report, const char *path,
                          struct json_writer *w)
{
    struct spent spent;
    const status result = read_spent(report, path, &spent);

    json_write_key(w, "spent");
    if (spent.all > 0) {
        json_write_object(w);
        json_write_key_real(w, "all_s", spent.all);
        json_write_key_real(w, "steps_s", spent.steps);
        json_write_key_real(w, "data_s", spent.data);
        json_write_key_real(w, "validations_s", spent.validations);
        json_write_key_real(w, "recoveries_s", spent.recoveries);
        json_write_key_real(w, "no_supervisor_s", spent.away);
        json_write_key_real(w, "rest_s", spent.rest);
        json_write_object_end(w);
    } else {
        json_write_null(w);
    }
    return result;
}

static status print_incidents_json(const struct run_report *r,
                                   const char *run, const char *metrics)
{
    struct json_writer w;
    status result;

    json_write_begin(&w, 1);
    json_write_object(&w);
    json_write_key_text(&w, "run", run);
    json_write_key_text(&w, "state", run_state_name(r->state));
    json_write_key_integer(&w, "incidents", r->incidents);
    json_write_key_integer(&w, "recovered", r->recovered);
    json_write_key(&w, "list");
    json_write_array(&w);
    for (int i = 0; i < r->lines.count; i++)
        if (strcmp(text_of(r->lines.items[i], "event"), "incident") == 0)
            write_incident(&w, run, &r->lines, i);
    json_write_array_end(&w);
    write_straggler(r, &w);
    TRY_GOTO(done, result, write_spent(r, metrics, &w));
    json_write_object_end(&w);
    TRY_GOTO(done, result, json_write_end(&w));
    printf("%s\n", w.out.bytes);
done:
    json_writer_free(&w);
    return result;
}

/* Numbers begin again with a supervisor that takes nothing over: the newest
 * of that number is meant. */
static status print_calls(const struct run_report *r, const char *run,
                          int64_t number)
{
    int64_t generation = -1;

    for (int i = 0; i < r->lines.count; i++) {
        const struct json *line = r->lines.items[i];

        if (strcmp(text_of(line, "event"), "incident") == 0 &&
            integer_of(line, "incident") == number)
            generation = integer_of(line, "generation");
    }
    if (generation < 0)
        FAIL(ERR_USAGE, "--calls %lld: the run had %d incidents; lockstep "
             "incidents %s lists them", (long long)number, r->incidents, run);
    return call_table_print(run, generation);
}

status command_incidents(struct arguments *arguments)
{
    const char *run = arguments->operands[0];
    const bool explain = arguments_has(arguments, "explain");
    struct run_report report;
    char metrics[PATH_BYTES];
    int64_t number = 0;
    status result;

    TRY(arguments_integer(arguments, "calls", 1, INT32_MAX, &number));
    TRY(arguments_not_both(arguments, "calls", "json"));
    TRY(open_report(run, metrics, &report));
    if (number > 0) {
        result = print_calls(&report, run, number);
        run_report_free(&report);
        return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
    }
    if (arguments_has(arguments, "json")) {
        result = print_incidents_json(&report, run, metrics);
        run_report_free(&report);
        return result;
    }
    for (int i = 0; i < report.lines.count; i++)
        print_line(report.lines.items[i], run, explain);
    printf("%d incidents, %d recovered\n", report.incidents,
           report.recovered);
    print_straggler(&report);
    result = print_spent(&report, metrics);
    run_report_free(&report);
    return result;
}
