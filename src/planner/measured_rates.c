/* SPDX-License-Identifier: Apache-2.0 */
/* measured_rates.c - rates between measured sizes. */
#include "planner/measured_rates.h"

#include "kernels/math.h"

/* A mean of logarithms of rates, weighted by distance^-4: a row half as far
 * away counts 16 times as much. */
struct mean { double sum, weight; };

static const double SAME = 1e-12; /* a distance, squared */

static double apart(double a, double b)
{
    const double octaves = math_log(a / b) * 1.4426950408889634;

    return octaves * octaves;
}

/* squared: distance in octaves, squared. */
static void mean_add(struct mean *mean, double rate, double squared)
{
    const double weight = 1 / (squared * squared + 1e-6);

    mean->sum += weight * math_log(rate);
    mean->weight += weight;
}

static double mean_of(const struct mean *mean)
{
    return mean->weight > 0 ? math_exp(mean->sum / mean->weight) : 0;
}

double measured_product_rate(const struct machine *machine,
                             const struct product_size *size, int bits,
                             int threads, bool *exact)
{
    struct mean mean = {0, 0};

    *exact = false;
    for (int i = 0; i < machine->product_count; i++) {
        const struct measured_product *p = &machine->products[i];
        const double m = (double)p->m, n = (double)p->n, k = (double)p->k;
        const double squared = apart(m, size->m) + apart(n, size->n) +
                               apart(k, size->k);

        if (p->bits != bits ||
            (p->kind != size->kind && p->kind != PRODUCT_KINDS) ||
            (threads > 1) != (p->threads > 1) ||
            !accumulator_same(&p->accumulator, &size->accumulator))
            continue;
        if (squared < SAME) *exact = true;
        mean_add(&mean, 2 * m * n * k / p->seconds, squared);
    }
    return mean_of(&mean);
}

/* Rows of the table of works that a rate is read from. */
struct works {
    const struct machine *machine;
    enum work work;
    int bits;
    bool threaded;
};

static bool works_have(const struct works *of, const struct measured_work *w)
{
    return w->work == of->work && w->bits == of->bits &&
           (w->threads > 1) == of->threaded;
}

/* Two measured sizes around another one, or the nearest one twice, with the row
 * of each: the last one, where several have that size. */
struct around {
    double below, above;
    const struct measured_work *low, *high;
};

static void around_add(struct around *a, const struct measured_work *row,
                       double measured, double size)
{
    if (measured <= size && (a->low == NULL || measured >= a->below)) {
        a->below = measured;
        a->low = row;
    }
    if (measured >= size && (a->high == NULL || measured <= a->above)) {
        a->above = measured;
        a->high = row;
    }
}

static void around_end(struct around *a)
{
    if (a->low == NULL) {
        a->below = a->above;
        a->low = a->high;
    } else if (a->high == NULL) {
        a->above = a->below;
        a->high = a->low;
    }
}

/* How far a size is from `below`, as a share of the octaves between both. */
static double around_share(const struct around *a, double size)
{
    if (a->above <= a->below) return 0;
    return math_log(size / a->below) / math_log(a->above / a->below);
}

/* The logarithm of the rate with rows of a width that was measured. */
static double rate_of_width(const struct works *of, double rows, double width)
{
    struct around a = {0, 0, NULL, NULL};

    for (int i = 0; i < of->machine->work_count; i++) {
        const struct measured_work *w = &of->machine->works[i];

        if (works_have(of, w) && (double)w->width == width)
            around_add(&a, w, (double)w->rows, rows);
    }
    around_end(&a);
    const double below = math_log(a.low->amount / a.low->seconds);
    const double above = math_log(a.high->amount / a.high->seconds);

    return below + around_share(&a, rows) * (above - below);
}

/* Straight lines between logarithms, along rows and then along widths: a
 * kernel's rate goes up and down with what a width leaves of its vectors, so
 * other widths say nothing where that one was measured. */
static double work_rate(const struct machine *machine, enum work work,
                        double rows, double width, int bits, int threads)
{
    const struct works of = {machine, work, bits, threads > 1};
    struct around a = {0, 0, NULL, NULL};

    for (int i = 0; i < machine->work_count; i++) {
        const struct measured_work *w = &machine->works[i];

        if (works_have(&of, w)) around_add(&a, w, (double)w->width, width);
    }
    around_end(&a);
    if (a.low == NULL) return 0;
    const double below = rate_of_width(&of, rows, a.below);
    const double above = rate_of_width(&of, rows, a.above);

    return math_exp(below + around_share(&a, width) * (above - below));
}

double measured_work_rate(const struct machine *machine, enum work work,
                          double rows, double width, int bits, int threads)
{
    const double rate = work_rate(machine, work, rows, width, bits, threads);

    return rate > 0 || bits == 32
               ? rate : work_rate(machine, work, rows, width, 32, threads);
}

bool measured_work_is_guess(const struct machine *machine, enum work work,
                            double rows, double width, int bits, int threads)
{
    for (int i = 0; i < machine->work_count; i++) {
        const struct measured_work *w = &machine->works[i];

        if (w->work == work && w->bits == bits &&
            (threads > 1) == (w->threads > 1) &&
            apart((double)w->rows, rows) + apart((double)w->width, width) <
                SAME)
            return false;
    }
    return machine->left_out.works > 0;
}

double measured_rounding_rate(const struct machine *machine,
                              const struct rounded_size *size, bool *guess)
{
    struct mean mean = {0, 0};

    *guess = machine->left_out.roundings > 0;
    for (int i = 0; i < machine->rounding_count; i++) {
        const struct measured_rounding *r = &machine->roundings[i];
        const double a = (double)r->rows, b = (double)r->width;
        const double squared = apart(a, size->rows) + apart(b, size->width);

        if (r->code != size->code || (size->threads > 1) != (r->threads > 1))
            continue;
        if (squared < SAME) *guess = false;
        mean_add(&mean, a * b / r->seconds, squared);
    }
    return mean_of(&mean);
}
