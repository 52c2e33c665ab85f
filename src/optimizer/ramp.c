/* SPDX-License-Identifier: Apache-2.0 */
/* ramp.c - the global batch as a function of the step alone. */
#include "optimizer/ramp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { ROWS_MAX = 4096 };
static const int64_t number_max = INT64_C(1) << 40;

void ramp_free(struct ramp *ramp)
{
    memory_free(ramp->rows);
    *ramp = (struct ramp){0};
}

static int row_of_step(const struct ramp *ramp, int64_t step)
{
    int row = ramp->count - 1;

    while (row > 0 && ramp->rows[row].step > step) row--;
    return row;
}

int64_t ramp_batch(const struct ramp *ramp, int64_t step)
{
    return ramp->rows[row_of_step(ramp, step)].batch;
}

int64_t ramp_samples(const struct ramp *ramp, int64_t step)
{
    const struct ramp_row *row = &ramp->rows[row_of_step(ramp, step)];
    int64_t more;

    if (__builtin_mul_overflow(step - row->step, row->batch, &more) ||
        more > INT64_MAX - row->samples)
        return INT64_MAX;
    return row->samples + more;
}

int64_t ramp_steps(const struct ramp *ramp, int64_t samples)
{
    int row = ramp->count - 1;

    while (row > 0 && ramp->rows[row].samples >= samples) row--;
    const struct ramp_row *r = &ramp->rows[row];
    const int64_t left = samples - r->samples;

    return r->step + (left > 0 ? (left - 1) / r->batch + 1 : 0);
}

/* The row is the first of its batch, and after the steps. */
static bool is_further(const struct ramp *ramp, int64_t steps, int row)
{
    if (ramp->rows[row].step < steps) return false;
    for (int i = 0; i < row; i++)
        if (ramp->rows[i].batch == ramp->rows[row].batch) return false;
    return true;
}

int ramp_further(const struct ramp *ramp, int64_t steps)
{
    int count = 0;

    for (int i = 0; i < ramp->count; i++) count += is_further(ramp, steps, i);
    return count;
}

int64_t ramp_further_batch(const struct ramp *ramp, int64_t steps, int which)
{
    int row = 0;

    for (; row < ramp->count; row++)
        if (is_further(ramp, steps, row) && which-- == 0) break;
    CHECK(row < ramp->count);
    return ramp->rows[row].batch;
}

int64_t ramp_divisor(const struct ramp *ramp)
{
    int64_t divisor = ramp->rows[0].batch;

    for (int i = 1; i < ramp->count; i++) {
        int64_t other = ramp->rows[i].batch;

        while (other != 0) {
            const int64_t rest = divisor % other;

            divisor = other;
            other = rest;
        }
    }
    return divisor;
}

/* ---- rows ---- */

/* One that changes nothing is none. */
static void add_row(struct ramp *ramp, int64_t step, int64_t batch)
{
    const int64_t samples = ramp->count > 0 ? ramp_samples(ramp, step) : 0;

    if (ramp->count > 0 && ramp->rows[ramp->count - 1].batch == batch) return;
    if (ramp->count > 0 && ramp->rows[ramp->count - 1].step == step)
        ramp->count--; /* no step was made with it */
    ramp->rows[ramp->count++] = (struct ramp_row){step, batch, samples};
}

static bool read_number(const char **at, int64_t least, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(*at, &end, 10);
    if (end == *at || errno != 0 || *out < least || *out > number_max)
        return false;
    *at = end + strspn(end, " \t");
    return true;
}

static status read_steps(struct ramp *ramp, const char *const *rows,
                         int count, int64_t last)
{
    int64_t before = -1, step, batch = 0;

    for (int i = 0; i < count; i++) {
        const char *at = rows[i];

        if (!read_number(&at, 0, &step) || *at++ != '=' ||
            !read_number(&at, 1, &batch) || *at != '\0')
            FAIL(ERR_CONFIG, "train.batch_ramp, row %d: '%s' is not "
                 "STEP=BATCH; for three numbers START, INCREMENT, SAMPLES "
                 "give exactly three rows", i + 1, rows[i]);
        if (step <= before || (i == 0 && step != 0))
            FAIL(ERR_CONFIG, "train.batch_ramp, row %d: step %lld; %s", i + 1,
                 (long long)step, i == 0 ? "the first row is of step 0"
                                         : "steps ascend");
        before = step;
        add_row(ramp, step, batch);
    }
    if (batch == last) return OK;
    FAIL(ERR_CONFIG, "train.batch_ramp: ends with a batch of %lld, but "
                     "train.batch is %lld; they must be equal",
         (long long)batch, (long long)last);
}

/* Level k begins with the first step before which k / levels of the samples
 * have been read. */
static void add_levels(struct ramp *ramp, int64_t start, int64_t increment,
                       int64_t samples, int64_t levels)
{
    add_row(ramp, 0, start);
    for (int64_t k = 1; k <= levels; k++) {
        const int64_t due = (k * samples + levels - 1) / levels;

        add_row(ramp, ramp_steps(ramp, due), start + k * increment);
    }
}

static status read_levels(struct ramp *ramp, const char *const *rows,
                          int64_t last)
{
    int64_t number[3], levels;

    for (int i = 0; i < 3; i++) {
        const char *at = rows[i];

        if (!read_number(&at, 1, &number[i]) || *at != '\0')
            FAIL(ERR_CONFIG, "train.batch_ramp: '%s' is not a number from 1; "
                 "expected START, INCREMENT, SAMPLES, or rows STEP=BATCH",
                 rows[i]);
    }
    levels = (last - number[0]) / number[1];
    if (number[0] > last || number[0] + levels * number[1] != last)
        FAIL(ERR_CONFIG, "train.batch_ramp: from %lld in steps of %lld never "
                         "comes to train.batch, %lld; %lld does",
             (long long)number[0], (long long)number[1], (long long)last,
             (long long)(number[0] > last ? last
                                          : number[0] + levels * number[1]));
    if (levels >= ROWS_MAX)
        FAIL(ERR_CONFIG, "train.batch_ramp: %lld increments; %d are the most",
             (long long)levels, ROWS_MAX - 1);
    add_levels(ramp, number[0], number[1], number[2], levels);
    return OK;
}

status ramp_read(struct ramp *ramp, const char *const *rows, int count,
                 int64_t batch)
{
    void *memory;

    *ramp = (struct ramp){0};
    if (count > ROWS_MAX)
        FAIL(ERR_CONFIG, "train.batch_ramp: %d rows; %d are the most", count,
             ROWS_MAX);
    TRY(memory_take(ROWS_MAX, sizeof *ramp->rows, &memory));
    ramp->rows = memory;
    if (count == 0) add_row(ramp, 0, batch);
    else if (count == 3 && strchr(rows[0], '=') == NULL)
        return read_levels(ramp, rows, batch);
    else return read_steps(ramp, rows, count, batch);
    return OK;
}
