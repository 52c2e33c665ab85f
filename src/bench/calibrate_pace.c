/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_pace.c - the same short product between every two rows tells how
 * fast the machine is at that moment; rows are brought to one pace. */
#include <math.h>
#include <string.h>

#include "base/median.h"
#include "bench/calibrate_parts.h"
#include "kernels/math.h"

#define BURST_S 1.5e-3
#define LEAST_SPREAD 1e-4 /* of squared logarithms: 1% */
#define MOST_FOLLOWED 1.25

static double middle(double *values, int count)
{
    median_sort(values, count);
    return median_of(values, count);
}

status pace_burst(struct calibration *c, double *seconds)
{
    const struct bench_case job = {"matmul", "", {256, 256, 256},
                                   case_product_nt, case_product_run};
    const int bits = c->narrow ? 16 : 32;
    const struct accumulator *sums = c->workers[0].operands->accumulator;
    const double limit = c->limit;
    const int64_t far = c->far;
    const unsigned cold = c->cold;
    double sigma;
    status result;

    calibrate_type(c, 32);
    calibrate_sums(c, NULL);
    c->limit = BURST_S;
    c->far = 0;
    c->cold = ~0u;
    result = calibrate_run(c, &job, c->request->ranks, seconds, &sigma);
    c->limit = limit;
    c->far = far;
    c->cold = cold;
    calibrate_sums(c, sums);
    calibrate_type(c, bits);
    return result;
}

status pace_begin(struct calibration *c, int rows)
{
    struct pacing *p = &c->pace;
    void *memory = NULL;
    double seconds = 0;

    p->count = 0;
    p->most = rows * CALIBRATE_ROUNDS;
    TRY(arena_take_array(&c->arena, (size_t)p->most, sizeof *p->samples,
                         &memory));
    p->samples = memory;
    if (c->request == NULL) return OK; /* of a test: its rows have no jobs */
    TRY(pace_burst(c, &seconds));
    p->last = math_log(seconds);
    return OK;
}

status pace_note(struct calibration *c, int row)
{
    struct pacing *p = &c->pace;
    const double before = p->last;
    double after = 0;

    CHECK(p->count < p->most);
    if (c->request == NULL) return OK;
    TRY(pace_burst(c, &after));
    p->last = math_log(after);
    p->samples[p->count++] = (struct paced){math_log(p->found),
                                            (before + p->last) / 2, row};
    return OK;
}

/* Least squares over all rows: how what a round adds to the mean of its row
 * follows what it adds to the mean pace of that row. */
static void fit(struct pacing *p, int rows, double *means)
{
    double together = 0, spread = 0, rest = 0;
    int freedom = 0;

    for (int row = 0; row < rows; row++) {
        double seconds = 0, pace = 0;
        int rounds = 0;

        for (int i = 0; i < p->count; i++)
            if (p->samples[i].row == row) {
                seconds += p->samples[i].seconds;
                pace += p->samples[i].pace;
                rounds++;
            }
        means[2 * row] = rounds > 0 ? seconds / rounds : 0;
        means[2 * row + 1] = rounds > 0 ? pace / rounds : 0;
        if (rounds > 0) freedom += rounds - 1;
    }
    for (int i = 0; i < p->count; i++) {
        const struct paced *s = &p->samples[i];
        const double pace = s->pace - means[2 * s->row + 1];

        together += pace * (s->seconds - means[2 * s->row]);
        spread += pace * pace;
    }
    p->follows = freedom > 0 && spread / freedom > LEAST_SPREAD
                     ? together / spread : 1;
    p->follows = p->follows < 0 ? 0 :
                 p->follows > MOST_FOLLOWED ? MOST_FOLLOWED : p->follows;
    for (int i = 0; i < p->count; i++) {
        const struct paced *s = &p->samples[i];
        const double off = s->seconds - means[2 * s->row] -
                           p->follows * (s->pace - means[2 * s->row + 1]);

        rest += off * off;
    }
    p->rest = freedom > 0 ? sqrt(rest / freedom) : 0;
}

status pace_settle(struct calibration *c, int rows)
{
    struct pacing *p = &c->pace;
    void *memory = NULL;
    double usual = 0;

    TRY(arena_take_array(&c->arena, (size_t)(2 * rows), sizeof(double),
                         &memory));
    fit(p, rows, memory);
    for (int i = 0; i < p->count; i++) usual += p->samples[i].pace / p->count;
    if (p->usual == 0) p->usual = usual;
    return OK;
}

double pace_row(const struct calibration *c, int row)
{
    const struct pacing *p = &c->pace;
    double found[CALIBRATE_ROUNDS];
    int count = 0;

    for (int i = 0; i < p->count; i++)
        if (p->samples[i].row == row)
            found[count++] = p->samples[i].seconds -
                             p->follows * (p->samples[i].pace - p->usual);
    return count > 0 ? math_exp(middle(found, count)) : INFINITY;
}
