/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - builds or reads a pipeline schedule, plays it with a clock and
 * draws it. */
#include <math.h>
#include <string.h>
#include "base/file.h"
#include "cli/run.h"
#include "cli/table.h"
#include "plan/simulate.h"
#include "schedule/build.h"
#include "schedule/lower.h"
#include "schedule/read.h"

enum {
    DRAWN_RANKS = 64, DRAWN_COLUMNS = 140,
    DRAWN_ACTIONS = 50000, /* in a picture of some 10 MB */
    PEAK_LINES = 16, MANY_ACTIONS = 1000000,
    ACTIONS_MOST = 100000000 /* about 1 GB */
};
static const double ns_per_ms = 1e6;

struct asked {
    struct schedule_request request;
    struct simulate_costs costs;
    bool from_file;
    struct schedule schedule;
    struct simulation simulation;
};

static void asked_free(struct asked *asked)
{
    schedule_free(&asked->schedule);
    simulation_free(&asked->simulation);
}

static status read_ms(const struct arguments *arguments, const char *flag,
                      double other, int64_t *out)
{
    double ms = other;

    TRY(arguments_real(arguments, flag, 0, 1e9, &ms));
    *out = llround(ms * ns_per_ms);
    return OK;
}

static status read_integer(const struct arguments *arguments,
                           const char *flag, int64_t most, int *out)
{
    int64_t value = *out;

    TRY(arguments_integer(arguments, flag, 1, most, &value));
    *out = (int)value;
    return OK;
}

static status read_numbers(const struct arguments *arguments,
                           struct asked *asked)
{
    struct schedule_request *r = &asked->request;

    TRY(read_integer(arguments, "ranks", STAGES_MAX, &r->ranks));
    TRY(read_integer(arguments, "chunks", STAGES_MAX, &r->chunks));
    TRY(read_integer(arguments, "group", MICROBATCHES_MAX, &r->group));
    TRY(read_integer(arguments, "microbatches", MICROBATCHES_MAX,
                     &r->microbatches));
    TRY(read_ms(arguments, "forward", 1, &r->forward_ns));
    TRY(read_ms(arguments, "backward-input", 1, &r->backward_input_ns));
    TRY(read_ms(arguments, "backward-weight", 1, &r->backward_weight_ns));
    TRY(read_ms(arguments, "transfer", 0, &r->transfer_ns));
    TRY(read_ms(arguments, "pair", 0, &asked->costs.pair_ns));
    TRY(arguments_real(arguments, "memory-limit", 0, 1e6, &r->memory_limit));
    TRY(arguments_real(arguments, "weight-memory", 0, 1, &r->weight_memory));
    asked->costs.time_ns[ACTION_FORWARD] = r->forward_ns;
    asked->costs.time_ns[ACTION_BACKWARD_INPUT] = r->backward_input_ns;
    asked->costs.time_ns[ACTION_BACKWARD_WEIGHT] = r->backward_weight_ns;
    asked->costs.transfer_ns = r->transfer_ns;
    asked->costs.weight_memory = r->weight_memory;
    return OK;
}

/* A file says how many ranks and micro-batches it has; flags must agree. */
static status open_file(struct asked *asked, const char *path)
{
    const struct schedule_request *r = &asked->request;
    const struct schedule *s = &asked->schedule;

    TRY(schedule_read_file(&asked->schedule, path));
    if (r->ranks != 0 && r->ranks != s->ranks)
        FAIL(ERR_CONFIG, "%s has %d ranks; --ranks says %d", path, s->ranks,
             r->ranks);
    if (r->microbatches != 0 && r->microbatches != s->microbatches)
        FAIL(ERR_CONFIG, "%s has %d micro-batches; --microbatches says %d",
             path, s->microbatches, r->microbatches);
    if (r->chunks != 0 && r->chunks * s->ranks != s->stages)
        FAIL(ERR_CONFIG, "%s has %d stages on %d ranks; --chunks says %d a "
                         "rank", path, s->stages, s->ranks, r->chunks);
    if (r->group != 0)
        FAIL(ERR_USAGE, "--group belongs to interleaved; %s has its own "
                        "order", path);
    return OK;
}

static status open_schedule(struct asked *asked, const char *name)
{
    const struct schedule_row *row;
    status result;

    asked->from_file = file_exists(name);
    if (asked->from_file && strpbrk(name, "./") != NULL)
        return open_file(asked, name);
    result = schedule_row_find(name, &row);
    if (result != OK && asked->from_file) {
        status_clear();
        return open_file(asked, name);
    }
    if (result != OK && strchr(name, '/') != NULL)
        FAIL(ERR_MISSING, "%s is neither a schedule nor a file", name);
    asked->from_file = false;
    TRY(result);
    if (asked->request.ranks == 0 || asked->request.microbatches == 0)
        FAIL(ERR_USAGE, "schedule %s needs --ranks P and --microbatches M",
             name);
    return schedule_make(&asked->schedule, &asked->request);
}

static status write_picture(const struct asked *asked, const char *name,
                            const char *path)
{
    char title[256];
    struct text text = {0};
    status result;

    snprintf(title, sizeof title,
             "%s: %d ranks, %d stages, %d micro-batches; step %.4g ms, bubble "
             "rate %.4f, idle %.4f", name, asked->schedule.ranks,
             asked->schedule.stages, asked->schedule.microbatches,
             (double)asked->simulation.end_ns / ns_per_ms,
             asked->simulation.bubble_rate, asked->simulation.idle_share);
    TRY_GOTO(done, result, timeline_draw_svg(
        &(struct timeline_drawing){&asked->simulation.timeline, NULL, title},
        &asked->schedule, &text));
    TRY_GOTO(done, result, file_write_named(path, text.bytes, text.length));
done:
    text_free(&text);
    return result;
}

/* --text: what a file must hold to be this schedule. */
static status write_text(struct asked *asked, const char *path, bool lower)
{
    struct text text = {0};
    status result;

    if (lower && !asked->schedule.lowered)
        TRY(schedule_lower(&asked->schedule));
    TRY_GOTO(done, result, schedule_write(&asked->schedule, &text));
    TRY_GOTO(done, result, file_write_named(path, text.bytes, text.length));
done:
    text_free(&text);
    return result;
}

static status print_json(const struct asked *asked)
{
    struct json_writer writer = {0};
    status result;

    json_write_begin(&writer, 2);
    json_write_object(&writer);
    json_write_key(&writer, "step_ms");
    json_write_real(&writer, (double)asked->simulation.end_ns / ns_per_ms);
    json_write_key(&writer, "bubble_rate");
    json_write_real(&writer, asked->simulation.bubble_rate);
    json_write_key(&writer, "idle_share");
    json_write_real(&writer, asked->simulation.idle_share);
    json_write_key(&writer, "peak_activations");
    json_write_array(&writer);
    for (int i = 0; i < asked->simulation.ranks; i++)
        json_write_real(&writer, asked->simulation.peaks[i]);
    json_write_array_end(&writer);
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

/* "3" or "3-1023": neighbours that hold as much. */
static void add_peak(struct table *table, const double *peaks, int first,
                     int end)
{
    char ranks[32];

    snprintf(ranks, sizeof ranks, first + 1 == end ? "%d" : "%d-%d", first,
             end - 1);
    table_text(table, ranks);
    table_real(table, peaks[first], 5);
}

static int run_end(const struct simulation *found, int first)
{
    int end = first + 1;

    while (end < found->ranks && found->peaks[end] == found->peaks[first])
        end++;
    return end;
}

/* Ranks that hold as much as their neighbours share a line; of many lines
 * those in the middle are left out. */
static status print_peaks(const struct asked *asked)
{
    static const struct table_column columns[] = {
        {"ranks", "ranks", true},
        {"peak activations (micro-batches)", "peak", true}};
    const struct simulation *found = &asked->simulation;
    struct table table;
    int lines = 0, line = 0;
    status result;

    for (int first = 0; first < found->ranks; lines++)
        first = run_end(found, first);
    table_begin(&table, columns, 2);
    for (int first = 0; first < found->ranks; line++) {
        const int end = run_end(found, first);

        if (lines <= PEAK_LINES || line < PEAK_LINES / 2 ||
            line >= lines - PEAK_LINES / 2)
            add_peak(&table, found->peaks, first, end);
        else if (line == PEAK_LINES / 2) {
            table_text(&table, "...");
            table_text(&table, "...");
        }
        first = end;
    }
    result = table_print(&table, stdout);
    if (lines > PEAK_LINES)
        printf("(%d of %d lines; --json has every rank)\n", PEAK_LINES, lines);
    table_free(&table);
    return result;
}

static status print_text(const struct asked *asked, const char *name)
{
    const struct schedule *s = &asked->schedule;
    const struct simulation *found = &asked->simulation;
    struct text text = {0};
    status result;

    printf("%s: %d ranks, %d stages, %d micro-batches\n", name, s->ranks,
           s->stages, s->microbatches);
    printf("step time    %.6g ms\n", (double)found->end_ns / ns_per_ms);
    printf("bubble rate  %.4f of the longest rank's %.6g ms, from its first "
           "action to its last\n", found->bubble_rate,
           (double)found->longest_ns / ns_per_ms);
    printf("idle share   %.4f of all ranks' time, from the step's begin to its "
           "end\n", found->idle_share);
    if (!asked->from_file && strcmp(name, "interleaved") == 0)
        printf("             %.4f in the table of Qi et al. 2023, which "
               "charges fewer transfers\n",
               interleaved_published_rate(&asked->costs, s->ranks,
                                          s->stages / s->ranks,
                                          s->microbatches));
    TRY(print_peaks(asked));
    if (s->ranks > DRAWN_RANKS) return OK;
    TRY_GOTO(done, result, timeline_draw_text(&found->timeline, s,
                                              DRAWN_COLUMNS, &text));
    printf("\n%s", text.bytes);
done:
    text_free(&text);
    return result;
}

/* Without a name: what there is. */
static status print_rows(bool json)
{
    static const struct table_column columns[] = {
        {"schedule", "name", false}, {"chunks a rank", "chunks", false},
        {"what it does", "meaning", false}};
    struct json_writer writer = {0};
    struct table table;
    char chunks[16];
    status result;

    table_begin(&table, columns, 3);
    for (int i = 0; i < schedule_row_count; i++) {
        snprintf(chunks, sizeof chunks, "%d", schedule_rows[i].chunks);
        table_text(&table, schedule_rows[i].name);
        table_text(&table, schedule_rows[i].chunks ? chunks : "any (2)");
        table_text(&table, schedule_rows[i].meaning);
    }
    json_write_begin(&writer, 2);
    if (json) {
        TRY_GOTO(done, result, table_json(&table, &writer));
        TRY_GOTO(done, result, json_print(&writer, stdout));
    } else {
        TRY_GOTO(done, result, table_print(&table, stdout));
    }
done:
    json_writer_free(&writer);
    table_free(&table);
    return result;
}

/* Warns about a schedule that takes long, and refuses to draw one that is too
 * large for any viewer. */
static status check_size(const struct asked *asked, bool drawn)
{
    const struct schedule *s = &asked->schedule;
    int64_t actions = 0;

    for (int rank = 0; rank < s->ranks; rank++)
        actions += s->lists[rank].count;
    if (drawn && actions > DRAWN_ACTIONS)
        FAIL(ERR_USAGE, "--draw: a picture of %lld actions has about %lld MB, "
                        "and no viewer shows them; at most %d are drawn. Fewer "
                        "--ranks or --microbatches have the same pattern",
             (long long)actions, (long long)(actions / 5000), DRAWN_ACTIONS);
    if (actions > MANY_ACTIONS)
        fprintf(stderr, "simulating %lld actions ...\n", (long long)actions);
    return OK;
}

/* Generators plan every action, in memory. */
static status check_building(const struct schedule_request *r)
{
    const double each = 3.0 * r->ranks * (r->chunks > 0 ? r->chunks : 1);
    const double actions = each * r->microbatches;

    if (actions > ACTIONS_MOST)
        FAIL(ERR_USAGE, "--ranks %d --microbatches %d: %.0f actions, and a "
                        "schedule has at most %d; --microbatches %.0f works",
             r->ranks, r->microbatches, actions, ACTIONS_MOST,
             floor(ACTIONS_MOST / each));
    if (actions > MANY_ACTIONS)
        fprintf(stderr, "building %.0f actions ...\n", actions);
    return OK;
}

static status answer(struct asked *asked, const struct arguments *arguments,
                     const char *name)
{
    const char *draw = arguments_text(arguments, "draw", NULL);
    const char *text = arguments_text(arguments, "text", NULL);

    if (text == NULL && arguments_has(arguments, "lower"))
        FAIL(ERR_USAGE, "--lower is about the text: it goes with --text FILE");
    TRY(file_may_write(draw));
    TRY(file_may_write(text));
    TRY(read_numbers(arguments, asked));
    TRY(check_building(&asked->request));
    TRY(open_schedule(asked, name));
    TRY(check_size(asked, draw != NULL));
    TRY(simulate(&asked->simulation, &asked->schedule, &asked->costs));
    TRY(simulation_within(&asked->simulation, name,
                          asked->request.memory_limit));
    if (draw != NULL) TRY(write_picture(asked, name, draw));
    if (text != NULL)
        TRY(write_text(asked, text, arguments_has(arguments, "lower")));
    if (arguments_has(arguments, "json")) return print_json(asked);
    return print_text(asked, name);
}

status command_schedule(struct arguments *arguments)
{
    struct asked asked = {0};
    status result;

    if (arguments->operand_count == 0 || arguments_has(arguments, "list"))
        return print_rows(arguments_has(arguments, "json"));
    asked.request = schedule_request_default(arguments->operands[0], 0, 0);
    result = answer(&asked, arguments, arguments->operands[0]);
    asked_free(&asked);
    return result;
}
