/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_pace.c - the same short product between every two rows tells how
 * fast the machine is at that moment; rows are brought to one pace. */
#include <math.h>
#include <string.h>

#include "base/median.h"
#include "base/threads_exchange.h"
#include "bench/calibrate_parts.h"
#include "kernels/math.h"

#define BURST_S 1.5e-3
#define LEAST_SPREAD 1e-4 /* of squared logarithms: 1% */
#define MOST_FOLLOWED 1.25
enum { PACE_EXCHANGES = 5 };

status pace_burst(struct calibration *c, double *seconds)
{
    const struct bench_case job = {"matmul", "", {256, 256, 256},
                                   case_product_nt, case_product_run};
    const int bits = c->narrow ? 16 : 32;
    const struct accumulator *sums = c->workers[0].operands->accumulator;
    const double limit = c->limit;
    const struct turning turning = c->turning;
    double sigma;
    status result;

    calibrate_type(c, 32);
    calibrate_sums(c, NULL);
    c->limit = BURST_S;
    c->turning = (struct turning){0};
    result = calibrate_run(c, &job, c->request->ranks, seconds, &sigma);
    c->limit = limit;
    c->turning = turning;
    calibrate_sums(c, sums);
    calibrate_type(c, bits);
    return result;
}

/* Cores of which others take too much to tell are far from each other. */
static double exchange_now(const struct calibration *c)
{
    const double seconds = threads_exchange(c->all, PACE_EXCHANGES);

    return seconds > 0 || c->request->ranks < 2 ? seconds : INFINITY;
}

/* The pace and the exchange now. */
static status look(struct calibration *c)
{
    struct pacing *p = &c->pace;
    double seconds = 0;

    TRY(pace_burst(c, &seconds));
    p->last = math_log(seconds);
    p->exchange_s = exchange_now(c);
    if (p->near_s <= 0 || p->exchange_s < p->near_s) p->near_s = p->exchange_s;
    return OK;
}

status pace_begin(struct calibration *c, int rows)
{
    struct pacing *p = &c->pace;
    void *memory = NULL;

    p->count = 0;
    p->most = rows * CALIBRATE_ROUNDS;
    TRY(arena_take_array(&c->arena, (size_t)p->most, sizeof *p->samples,
                         &memory));
    p->samples = memory;
    TRY(arena_take_array(&c->arena, (size_t)rows, sizeof *p->nearest,
                         &memory));
    p->nearest = memory;
    if (c->request == NULL) return OK; /* of a test: its rows have no jobs */
    return look(c);
}

/* The row at hand, between the latest look and another one. */
static status sample(struct calibration *c, struct paced *out)
{
    struct pacing *p = &c->pace;
    const double before = p->last, exchange = p->exchange_s;

    TRY(look(c));
    *out = (struct paced){
        math_log(p->found), (before + p->last) / 2,
        exchange > p->exchange_s ? exchange : p->exchange_s, p->threaded,
        false};
    return OK;
}

status pace_note(struct calibration *c)
{
    struct pacing *p = &c->pace;

    CHECK(p->count < p->most);
    if (c->request == NULL) return OK;
    TRY(sample(c, &p->samples[p->count]));
    p->count++;
    return OK;
}

static bool is_far(const struct paced *sample, double near_s)
{
    return sample->threaded && near_s > 0 &&
           sentinel_is_far(sample->exchange_s / near_s);
}

bool pace_is_far(const struct calibration *c, int row, int rows)
{
    const struct pacing *p = &c->pace;

    for (int i = row; i < p->count; i += rows)
        if (!is_far(&p->samples[i], p->near_s)) return false;
    return row < p->count;
}

status pace_look(struct calibration *c, bool *near)
{
    TRY(look(c));
    *near = !sentinel_is_far(c->pace.exchange_s / c->pace.near_s);
    return OK;
}

status pace_replace(struct calibration *c, int row)
{
    return sample(c, &c->pace.samples[row]);
}

/* Rounds of several threads while their cores were far from each other do not
 * count where a row has others. Few rows that have none do no harm: the middle
 * one tells what the table holds for. */
static void leave_out_far(struct calibration *c)
{
    struct pacing *p = &c->pace;
    double middle;

    for (int i = 0; i < p->count; i++)
        if (p->near_s <= 0 || p->samples[i].exchange_s < p->near_s)
            p->near_s = p->samples[i].exchange_s;
    for (int row = 0; row < p->rows; row++) {
        const bool all = pace_is_far(c, row, p->rows);
        double nearest = INFINITY;

        for (int i = row; i < p->count; i += p->rows)
            if (p->samples[i].exchange_s < nearest)
                nearest = p->samples[i].exchange_s;
        p->nearest[row] = nearest;
        for (int i = row; i < p->count; i += p->rows)
            p->samples[i].far = is_far(&p->samples[i],
                                       all ? nearest : p->near_s);
    }
    middle = median_take(p->nearest, p->rows);
    if (middle > p->middle_s && middle < INFINITY) p->middle_s = middle;
}

/* The mean of a row's rounds. */
static struct paced row_mean(const struct pacing *p, int row)
{
    struct paced mean = {0};
    int rounds = 0;

    for (int i = row; i < p->count; i += p->rows) {
        if (p->samples[i].far) continue;
        mean.seconds += p->samples[i].seconds;
        mean.pace += p->samples[i].pace;
        rounds++;
    }
    mean.seconds /= rounds;
    mean.pace /= rounds;
    return mean;
}

/* Sums over all rounds of all rows, each beside the mean of its row. */
struct scatter {
    double pace, together, seconds;
    int rounds;
};

static struct scatter scatter_of(const struct pacing *p)
{
    struct scatter sum = {0};

    for (int row = 0; row < p->rows; row++) {
        const struct paced mean = row_mean(p, row);

        for (int i = row; i < p->count; i += p->rows) {
            const double pace = p->samples[i].pace - mean.pace;
            const double seconds = p->samples[i].seconds - mean.seconds;

            if (p->samples[i].far) continue;
            sum.rounds++;
            sum.pace += pace * pace;
            sum.together += pace * seconds;
            sum.seconds += seconds * seconds;
        }
    }
    return sum;
}

/* Least squares: how what a round adds to the mean of its row follows what it
 * adds to the mean pace of that row. */
static void fit(struct pacing *p)
{
    const struct scatter sum = scatter_of(p);
    const int freedom = sum.rounds - p->rows;
    double f = freedom > 0 && sum.pace / freedom > LEAST_SPREAD
                   ? sum.together / sum.pace : 1;
    double rest;

    f = f < 0 ? 0 : f > MOST_FOLLOWED ? MOST_FOLLOWED : f;
    rest = sum.seconds - 2 * f * sum.together + f * f * sum.pace;
    p->follows = f;
    p->rest = freedom > 0 && rest > 0 ? sqrt(rest / freedom) : 0;
}

void pace_settle(struct calibration *c, int rows)
{
    struct pacing *p = &c->pace;
    double usual = 0;

    p->rows = rows;
    if (p->count == 0) return;
    leave_out_far(c);
    fit(p);
    for (int i = 0; i < p->count; i++) usual += p->samples[i].pace / p->count;
    if (p->usual == 0) p->usual = usual;
}

double pace_row(const struct calibration *c, int row)
{
    const struct pacing *p = &c->pace;
    double found[CALIBRATE_ROUNDS];
    int count = 0;

    for (int i = row; i < p->count; i += p->rows)
        if (!p->samples[i].far)
            found[count++] = p->samples[i].seconds -
                             p->follows * (p->samples[i].pace - p->usual);
    return count > 0 ? math_exp(median_take(found, count)) : INFINITY;
}
