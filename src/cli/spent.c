/* SPDX-License-Identifier: Apache-2.0 */
/* spent.c - where the time of a supervised run went. */
#include "cli/spent.h"

#include <string.h>

static double number(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && (found->kind == JSON_REAL ||
                             found->kind == JSON_INTEGER) ? found->real : 0;
}

static bool is_event(const struct json *line, const char *name)
{
    const struct json *found = json_get(line, "event");

    return found != NULL && found->kind == JSON_STRING &&
           strcmp(found->string, name) == 0;
}

/* From the first line to the last one, or to now; what was lost. */
static void add_journal(struct spent *spent, const struct run_report *r,
                        double now_s)
{
    double begin = 0, ended = 0, last = 0;

    for (int i = 0; i < r->lines.count; i++) {
        const struct json *line = r->lines.items[i];
        const double time = number(line, "time");

        if (begin == 0) begin = time;
        if (ended > 0 && is_event(line, "start") && time > ended)
            spent->away += time - ended;
        ended = is_event(line, "end") ? time : 0;
        if (is_event(line, "recovered"))
            spent->recoveries += 1e-3 * number(line, "lost_ms");
        last = time;
    }
    if (r->state < RUN_ENDED && now_s > last) last = now_s;
    spent->all = last - begin;
}

static double seconds(double ms)
{
    return ms > 0 ? 1e-3 * ms : 0;
}

/* Steps that were made before there was a supervisor do not count. */
static void add_metrics(struct spent *spent, const struct metrics_table *table,
                        double begin)
{
    for (int64_t i = 0; i < table->count; i++) {
        const struct metrics_row *row = &table->rows[i];

        if (!(row->time_s >= begin)) continue;
        if (row->kind == METRICS_VALIDATION) {
            spent->validations += seconds(row->val_ms);
            continue;
        }
        spent->data += seconds(row->data_ms);
        /* Waiting for a batch is counted with its step, and was a part of the
         * one before. */
        spent->steps += seconds(row->step_ms) - seconds(row->data_ms);
    }
}

void spent_find(struct spent *spent, const struct run_report *report,
                const struct metrics_table *table, double now_s)
{
    *spent = (struct spent){.all = 0};
    if (report->lines.count == 0) return;
    add_journal(spent, report, now_s);
    add_metrics(spent, table, number(report->lines.items[0], "time"));
    if (spent->steps < 0) spent->steps = 0;
    spent->rest = spent->all - spent->steps - spent->data -
                  spent->validations - spent->recoveries - spent->away;
    if (spent->rest < 0) spent->rest = 0;
}
