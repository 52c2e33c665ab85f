/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_nodes.c - `doctor --nodes`: one page of verdicts about all ranks of a
 * cluster; what is expected of each is the median of its peers. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "bench/nodes.h"
#include "cli/run.h"
#include "cli/table.h"
#include "comm/launch.h"

enum { THREADS = 16 }; /* each takes 100 MB to measure memory */

struct verdicts {
    double tolerance;
    bool json;
    int bad;                       /* rows that are not ok */
    char first[160];               /* the first of these */
    const struct nodes_page *page;
    struct table table, ranking;
};

static const struct table_column columns[] = {
    {"stage", "stage", false}, {"expected", "expected", true},
    {"worst", "worst", true}, {"unit", "unit", false},
    {"where", "where", false}, {"verdict", "verdict", false}};
static const struct table_column pace[] = {
    {"rank", "rank", true}, {"machine", "machine", false},
    {"pace", "pace", true}};

/* The median of an array, which it sorts; the larger one of the two in the
 * middle. */
static double median(double *values, int count)
{
    if (count == 0) return 0;
    median_sort(values, count);
    return values[count / 2];
}

/* `rate`: higher is better. */
static bool is_slow(const struct verdicts *v, double value, double expected,
                    bool rate)
{
    return rate ? value < (1 - v->tolerance) * expected
                : value * (1 - v->tolerance) > expected;
}

struct finding {
    const char *stage, *unit;
    double expected, worst, scale;
    char where[96];
    bool slow, wrong;
};

static void row(struct verdicts *v, const struct finding *f)
{
    const char *verdict = f->wrong ? "WRONG" : f->slow ? "slow" : "ok";

    table_text(&v->table, f->stage);
    table_real(&v->table, f->expected * f->scale, 4);
    table_real(&v->table, f->worst * f->scale, 4);
    table_text(&v->table, f->unit);
    table_text(&v->table, f->where);
    table_text(&v->table, verdict);
    if (!f->slow && !f->wrong) return;
    if (v->bad++ == 0)
        snprintf(v->first, sizeof v->first, "%s, %s: %s", f->stage, f->where,
                 f->wrong ? "wrong results" : "slow");
}

static void name_rank(const struct verdicts *v, struct finding *f, int rank)
{
    snprintf(f->where, sizeof f->where, "rank %d on %s", rank,
             v->page->names[rank]);
}

/* The worst rank of a measure (enum nodes_measure). */
static void judge(struct verdicts *v, int m, bool rate, struct finding *f)
{
    const struct nodes_page *p = v->page;
    double sorted[NODES_RANKS_MOST];
    int worst = 0;

    for (int r = 0; r < p->ranks; r++) {
        const double value = p->figures[r * NODES_MEASURES + m];
        const double least = p->figures[worst * NODES_MEASURES + m];

        sorted[r] = value;
        if (rate ? value < least : value > least) worst = r;
    }
    f->expected = median(sorted, p->ranks);
    f->worst = p->figures[worst * NODES_MEASURES + m];
    f->slow = is_slow(v, f->worst, f->expected, rate);
    name_rank(v, f, worst);
}

/* A rank with wrong results is named before slow ones. */
static void judge_proof(const struct verdicts *v, int proof,
                        struct finding *f)
{
    const struct nodes_page *p = v->page;

    for (int r = p->ranks - 1; r >= 0; r--)
        if (p->wrong[r * NODES_PROOFS + proof] > 0) {
            f->wrong = true;
            name_rank(v, f, r);
        }
}

static void judge_links(struct verdicts *v, const double *matrix, bool rate,
                        struct finding *f)
{
    const struct nodes_page *p = v->page;
    const int64_t all = (int64_t)p->ranks * p->ranks;
    double rows[NODES_RANKS_MOST], ranks[NODES_RANKS_MOST];
    int worst = -1;

    for (int64_t i = 0; i < all; i++) {
        const int a = (int)(i / p->ranks), b = (int)(i % p->ranks);

        if (a >= b) continue;
        if (worst < 0 || (rate ? matrix[i] < matrix[worst]
                               : matrix[i] > matrix[worst])) worst = (int)i;
    }
    for (int a = 0; a < p->ranks; a++) { /* the median of ranks' medians */
        int count = 0;

        for (int b = 0; b < p->ranks; b++)
            if (a != b) rows[count++] = matrix[a * p->ranks + b];
        ranks[a] = median(rows, count);
    }
    f->expected = median(ranks, p->ranks);
    f->worst = matrix[worst];
    f->slow = is_slow(v, f->worst, f->expected, rate);
    snprintf(f->where, sizeof f->where, "ranks %d and %d", worst / p->ranks,
             worst % p->ranks);
    judge_proof(v, PROOF_LINKS, f);
}

static void judge_sums(struct verdicts *v)
{
    for (int s = 0; s < NODES_SUMS; s++) {
        char stage[48];
        struct finding f = {.stage = stage, .unit = "us", .scale = 1e6};

        snprintf(stage, sizeof stage, "all-reduce of %lld KiB",
                 (long long)(nodes_sum_bytes[s] >> 10));
        judge(v, NODES_SUM + s, false, &f);
        judge_proof(v, PROOF_SUMS, &f);
        row(v, &f);
    }
}

static void judge_all(struct verdicts *v)
{
    const struct nodes_page *p = v->page;
    struct finding f = {.stage = "cores", .unit = "GFLOP/s", .scale = 1e-9};

    judge(v, NODES_CORES, true, &f);
    row(v, &f);
    f = (struct finding){.stage = "memory", .unit = "GB/s", .scale = 1e-9};
    judge(v, NODES_MEMORY, true, &f);
    row(v, &f);
    f = (struct finding){.stage = "storage", .unit = "MB/s", .scale = 1e-6};
    judge(v, NODES_STORAGE, true, &f);
    judge_proof(v, PROOF_STORAGE, &f);
    row(v, &f);
    if (p->ranks > 1) {
        f = (struct finding){.stage = "link, 64 bytes", .unit = "us",
                             .scale = 1e6};
        judge_links(v, p->latency, false, &f);
        row(v, &f);
        f = (struct finding){.stage = "link, 1 MiB", .unit = "GB/s",
                             .scale = 1e-9};
        judge_links(v, p->rate, true, &f);
        row(v, &f);
        judge_sums(v);
    }
    f = (struct finding){.stage = "burn-in", .unit = "products/s",
                         .scale = 1};
    judge(v, NODES_BURN, true, &f);
    judge_proof(v, PROOF_BURN, &f);
    row(v, &f);
}

/* The ten slowest ranks of the burn-in, slowest first; 1 is the median. */
static void rank_all(struct verdicts *v)
{
    const struct nodes_page *p = v->page;
    double sorted[NODES_RANKS_MOST];
    bool named[NODES_RANKS_MOST] = {false};
    double middle;

    for (int r = 0; r < p->ranks; r++)
        sorted[r] = p->figures[r * NODES_MEASURES + NODES_BURN];
    middle = median(sorted, p->ranks);
    for (int i = 0; i < p->ranks && i < 10; i++) {
        int slowest = -1;

        for (int r = 0; r < p->ranks; r++)
            if (!named[r] && (slowest < 0 ||
                              p->figures[r * NODES_MEASURES + NODES_BURN] <
                              p->figures[slowest * NODES_MEASURES +
                                         NODES_BURN])) slowest = r;
        named[slowest] = true;
        table_integer(&v->ranking, slowest);
        table_text(&v->ranking, p->names[slowest]);
        table_real(&v->ranking, p->figures[slowest * NODES_MEASURES +
                                           NODES_BURN] / middle, 3);
    }
}

static status print_json(struct verdicts *v)
{
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key_integer(&w, "ranks", v->page->ranks);
    json_write_key_text(&w, "back_end", v->page->back_end);
    json_write_key_real(&w, "tolerance", v->tolerance);
    json_write_key(&w, "stages");
    TRY_GOTO(done, result, table_json(&v->table, &w));
    json_write_key(&w, "slowest");
    TRY_GOTO(done, result, table_json(&v->ranking, &w));
    json_write_object_end(&w);
    result = json_print(&w, stdout);
done:
    json_writer_free(&w);
    return result;
}

static status print_page(void *argument, const struct nodes_page *page)
{
    struct verdicts *v = argument;

    v->page = page;
    table_begin(&v->table, columns, 6);
    table_begin(&v->ranking, pace, 3);
    judge_all(v);
    rank_all(v);
    if (v->json) return print_json(v);
    printf("%d ranks by %s; expected is the median of all, worse by more than "
           "%.0f%% is slow\n", page->ranks, page->back_end,
           100 * v->tolerance);
    TRY(table_print(&v->table, stdout));
    printf("\nSlowest in the burn-in of %.3g s (1: the median):\n",
           page->seconds);
    return table_print(&v->ranking, stdout);
}

status doctor_nodes(const struct arguments *arguments)
{
    struct verdicts v = {.tolerance = 0.1,
                         .json = arguments_has(arguments, "json")};
    struct nodes_request request = {
        .seconds = 5, .limit_ms = 60000, .print = print_page, .argument = &v,
        .place = arguments_text(arguments, "place", ".")};
    int64_t ranks = 0;
    status result;

    TRY(arguments_integer(arguments, "ranks", 1,
                          launch_rank() < 0 ? THREADS : NODES_RANKS_MOST,
                          &ranks));
    TRY(arguments_real(arguments, "seconds", 0.01, 86400, &request.seconds));
    TRY(arguments_real(arguments, "tolerance", 0.001, 0.999, &v.tolerance));
    if (!file_is_directory(request.place))
        FAIL(ERR_MISSING, "--place: there is no directory \"%s\"",
             request.place);
    request.ranks = (int)ranks;
    request.limit_ms += (int64_t)(1000 * request.seconds);
    result = nodes_run(&request);
    if (result == OK && v.bad > 0)
        FAIL_GOTO(done, result, ERR_DEVICE, "%d stage%s not ok; the first: %s",
                  v.bad, v.bad == 1 ? " is" : "s are", v.first);
done:
    table_free(&v.table);
    table_free(&v.ranking);
    return result;
}
