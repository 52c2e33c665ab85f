/* SPDX-License-Identifier: Apache-2.0 */
/* ettr.c - `ettr`: the share of time that runs of many ranks train, predicted,
 * and beside published figures. */
#include "planner/ettr.h"

#include "base/file.h"
#include "cli/ettr_draw.h"
#include "cli/run.h"
#include "cli/table.h"

static const double INTERVAL_LEAST = 1e-3; /* as perturb files have it */

struct asked {
    struct ettr_way own;      /* of the flags */
    const struct ettr_way *ways;
    int way_count, per_node;
    bool is_own;
};

static status read_asked(struct asked *a, const struct arguments *arguments)
{
    static const char *const own[] = {"restart", "interval", "stall",
                                      "per-node-day", "per-node"};
    struct failures *f = &a->own.failures;
    int64_t per_node = ETTR_PER_NODE;

    *a = (struct asked){.ways = ettr_ways, .way_count = ettr_way_count};
    a->own.name = "as given";
    a->own.source = "";
    *f = (struct failures){0.0065, 180, 0, 5};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        a->is_own |= arguments_has(arguments, own[i]);
    TRY(arguments_real(arguments, "per-node-day", 1e-9, 1e3, &f->per_node_day));
    TRY(arguments_real(arguments, "restart", 0, 1e6, &f->restart_s));
    TRY(arguments_real(arguments, "interval", 0, 1e7, &f->interval_s));
    if (f->interval_s > 0 && f->interval_s < INTERVAL_LEAST)
        FAIL(ERR_USAGE, "--interval: %g is less than %g s; 0: the best one",
             f->interval_s, INTERVAL_LEAST);
    TRY(arguments_real(arguments, "stall", 0, 1e6, &f->stall_s));
    TRY(arguments_integer(arguments, "per-node", 1, 1024, &per_node));
    a->per_node = (int)per_node;
    if (!a->is_own) return OK;
    if (!arguments_has(arguments, "restart"))
        FAIL(ERR_USAGE, "ettr: --restart S is missing: how many seconds does "
                        "it take from a failure to the next step?");
    a->ways = &a->own;
    a->way_count = 1;
    return OK;
}

/* ---- predictions ---- */

static const struct table_column predicted[] = {
    {"recovery", "recovery", false}, {"ranks", "ranks", true},
    {"failure every", "mtbf_s", true},
    {"interval", "checkpoint_interval_s", true},
    {"ETTR", "ettr", true}, {"played", "ettr_monte_carlo", true},
    {"closed form", "ettr_closed_form", true},
};
enum { PREDICTED = (int)(sizeof predicted / sizeof *predicted) };

static void fill_predicted(struct table *t, const struct asked *a)
{
    for (int w = 0; w < a->way_count; w++)
        for (int i = 0; i < ettr_size_count; i++) {
            struct reliability r;

            ettr_predict(&r, &a->ways[w].failures, ettr_sizes[i],
                         a->per_node);
            table_text(t, a->ways[w].name);
            table_integer(t, ettr_sizes[i]);
            table_real(t, r.mtbf_s, 4);
            table_real(t, r.interval_s, 4);
            table_real(t, r.exact_ettr, 4);
            table_real(t, r.simulated_ettr, 4);
            table_real(t, r.ettr, 4);
        }
}

/* ---- published figures ---- */

static const struct table_column published[] = {
    {"system", "system", false}, {"published", "published", true},
    {"ETTR", "ettr", true}, {"played", "ettr_monte_carlo", true},
    {"points off", "points_off", true}, {"source", "source", false},
    {"inputs", "inputs", false},
};
enum { PUBLISHED = (int)(sizeof published / sizeof *published) };

static double points_off(const struct ettr_published *p, double predicted_ettr)
{
    const double points = 100 * (predicted_ettr - p->ettr);

    return p->at_least && points > 0 ? 0 : points;
}

static void fill_published(struct table *t)
{
    for (int i = 0; i < ettr_published_count; i++) {
        const struct ettr_published *p = &ettr_published[i];
        struct reliability r;
        char figure[32];

        ettr_predict(&r, &p->failures, p->ranks, ETTR_PER_NODE);
        snprintf(figure, sizeof figure, "%s%.2f", p->at_least ? "> " : "",
                 p->ettr);
        table_text(t, p->system);
        table_text(t, figure);
        table_real(t, r.exact_ettr, 3);
        table_real(t, r.simulated_ettr, 3);
        table_real(t, points_off(p, r.exact_ettr), 2);
        table_text(t, p->source);
        table_text(t, p->inputs);
    }
}

/* ---- the command ---- */

static status print_json(const struct asked *a, const struct table *first,
                         const struct table *second)
{
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key(&w, "predicted");
    TRY_GOTO(done, result, table_json(first, &w));
    if (!a->is_own) {
        json_write_key(&w, "published");
        TRY_GOTO(done, result, table_json(second, &w));
    }
    json_write_object_end(&w);
    result = json_print(&w, stdout);
done:
    json_writer_free(&w);
    return result;
}

static status print_text(const struct asked *a, const struct table *first,
                         const struct table *second)
{
    TRY(table_print(first, stdout));
    if (a->is_own) return OK;
    printf("\nETTR: effective training time over all time. Seconds; 8 ranks a "
           "node; a node fails\n6.5 times in 1,000 days (arXiv:2410.21680). "
           "What a failure costs:\n");
    for (int i = 0; i < a->way_count; i++)
        printf("  %s: %s\n", a->ways[i].name, a->ways[i].source);
    printf("\n");
    return table_print(second, stdout);
}

status command_ettr(struct arguments *arguments)
{
    const char *draw = arguments_text(arguments, "draw", NULL);
    struct table first = {0}, second = {0};
    struct asked asked;
    status result;

    TRY(read_asked(&asked, arguments));
    TRY(file_may_write(draw));
    table_begin(&first, predicted, PREDICTED);
    table_begin(&second, published, PUBLISHED);
    fill_predicted(&first, &asked);
    fill_published(&second);
    if (draw != NULL)
        TRY_GOTO(done, result, ettr_draw(&(struct ettr_picture){
            asked.ways, asked.way_count, asked.per_node, !asked.is_own},
            draw));
    result = arguments_has(arguments, "json")
                 ? print_json(&asked, &first, &second)
                 : print_text(&asked, &first, &second);
done:
    table_free(&first);
    table_free(&second);
    return result;
}
