/* SPDX-License-Identifier: Apache-2.0 */
/* schedules.c - how long it takes to make, verify and simulate schedules. */
#include "bench/schedules.h"

#include "base/clock.h"
#include "plan/simulate.h"
#include "schedule/build.h"

struct times { double make_ms, verify_ms, simulate_ms; };

static double cpu_ms(void)
{
    return 1e3 * clock_thread_s();
}

static void keep_best(double *best, double found)
{
    if (*best == 0 || found < *best) *best = found;
}

/* Making verifies as well: schedule_make returns no list that it has not
 * walked. */
static status measure(const struct schedule_request *request,
                      struct times *times, int *actions)
{
    const struct simulate_costs costs = {.time_ns = {1, 1, 1},
                                         .weight_memory = 0.5};
    struct schedule schedule = {0};
    struct simulation simulation = {0};
    double at = cpu_ms();
    status result;

    TRY_GOTO(done, result, schedule_make(&schedule, request));
    keep_best(&times->make_ms, cpu_ms() - at);
    at = cpu_ms();
    TRY_GOTO(done, result, schedule_verify(&schedule));
    keep_best(&times->verify_ms, cpu_ms() - at);
    at = cpu_ms();
    TRY_GOTO(done, result, simulate(&simulation, &schedule, &costs));
    keep_best(&times->simulate_ms, cpu_ms() - at);
    *actions = 0;
    for (int i = 0; i < schedule.ranks; i++)
        *actions += schedule.lists[i].count;
done:
    simulation_free(&simulation);
    schedule_free(&schedule);
    return result;
}

static void write_row(struct json_writer *json,
                      const struct schedule_request *r, int actions,
                      const struct times *times)
{
    json_write_object(json);
    json_write_key(json, "schedule");
    json_write_string(json, r->name);
    json_write_key_integer(json, "ranks", r->ranks);
    json_write_key_integer(json, "microbatches", r->microbatches);
    json_write_key_integer(json, "actions", actions);
    json_write_key(json, "make_and_verify_ms");
    json_write_real(json, times->make_ms);
    json_write_key(json, "verify_ms");
    json_write_real(json, times->verify_ms);
    json_write_key(json, "simulate_ms");
    json_write_real(json, times->simulate_ms);
    json_write_object_end(json);
}

/* DualPipeV wants two micro-batches a rank; the others have one. */
static int enough(const char *name, int ranks)
{
    const bool twice = name[0] == 'd';

    return twice ? 2 * ranks : ranks;
}

static status bench_all(const struct bench_schedules_settings *settings,
                        int ranks, int microbatches, FILE *out,
                        struct json_writer *json)
{
    const int repeats = settings->repeats > 0 ? settings->repeats : 3;

    for (int i = 0; i < schedule_row_count; i++) {
        const char *name = schedule_rows[i].name;
        const int count =
            microbatches > 0 ? microbatches : enough(name, ranks);
        const struct schedule_request request =
            schedule_request_default(name, ranks, count);
        struct times times = {0};
        int actions = 0;

        for (int r = 0; r < repeats; r++)
            TRY(measure(&request, &times, &actions));
        if (json != NULL)
            write_row(json, &request, actions, &times);
        else
            fprintf(out, "%-18s %5d %6d %9d %10.1f %10.1f %10.1f\n", name,
                    ranks, count, actions, times.make_ms, times.verify_ms,
                    times.simulate_ms);
    }
    return OK;
}

status bench_schedules(const struct bench_schedules_settings *settings,
                       FILE *out, struct json_writer *json)
{
    if (json != NULL)
        json_write_array(json);
    else
        fprintf(out, "%-18s %5s %6s %9s %10s %10s %10s\n", "schedule", "ranks",
                "micro", "actions", "make+check", "check", "simulate ms");
    if (settings->ranks > 0) {
        TRY(bench_all(settings, settings->ranks, settings->microbatches, out,
                      json));
    } else {
        TRY(bench_all(settings, 1000, 0, out, json));
        TRY(bench_all(settings, 64, 512, out, json));
    }
    if (json != NULL) json_write_array_end(json);
    return OK;
}
