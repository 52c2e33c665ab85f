/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_works.c - times of kernels other than products, at several
 * sizes. */
#include "bench/calibrate_parts.h"

#include <math.h>

/* A kernel of bench/cases.c that stands for a work; sizes of its case where
 * rows have `width` elements: the place of rows and of width among them; which
 * of its operands are cold in a step: results that wait for the backward pass,
 * what was kept for it, weights, and states. */
enum { WIDTHS = 8, TOKENS_TURNED = 512 };

struct work_row {
    enum work work;
    const char *kernel;
    int64_t widths[WIDTHS], rows[2];
    unsigned cold;
};

#define OPERAND(i) (1u << (i))
/* 24 and 40 leave a part of a vector unused: others say nothing about them. */
#define HEADS {16, 24, 32, 40, 48, 64, 96, 128}

static const struct work_row work_rows[] = {
    {WORK_ATTENTION, "attention_forward", HEADS, {64, 256},
     OPERAND(3) | OPERAND(8)}, /* out, lse */
    {WORK_ATTENTION_BACK, "attention_backward", HEADS, {64, 256},
     OPERAND(0) | OPERAND(1) | OPERAND(2) | OPERAND(3) |
                OPERAND(8)}, /* q, k, v, out, lse */
    {WORK_NORM, "rmsnorm_forward", {64, 256, 768}, {512, 2048},
     OPERAND(0)},
    {WORK_NORM_BACK, "rmsnorm_backward", {64, 256, 768}, {512, 2048},
     OPERAND(1)},
    {WORK_GATE, "swiglu_forward", {64, 256, 768}, {512, 2048},
     OPERAND(0)},
    {WORK_GATE_BACK, "swiglu_backward", {64, 256, 768}, {512, 2048},
     OPERAND(1)},
    {WORK_ROTATE, "rope", HEADS, {8, 32}, 0}, /* rows: heads of a token */
    {WORK_ADD, "add", {64, 256, 768}, {512, 2048}, OPERAND(0)},
    {WORK_LOSS, "cross_entropy", {256, 4096}, {256, 1024}, 0},
    {WORK_UPDATE, "adamw", {1}, {65536, 1048576}, ~0u},
    {WORK_SQUARES, "sum_squares", {1}, {65536, 1048576}, ~0u},
};

enum { WORK_ROWS = sizeof work_rows / sizeof *work_rows, WAYS = 2, TYPES = 2 };

/* So many heads that each width's leaves divide them: a power of two. */
static int64_t heads_of(int64_t width)
{
    int64_t heads = 1;

    if (width < 32) return 16;
    while (2 * heads * width <= 1024) heads *= 2;
    return heads;
}

/* The job of one size. Attention has sequences of together 512 tokens. */
static struct bench_case job_of(const struct work_row *row, int64_t rows,
                                int64_t width)
{
    struct bench_case job = *calibrate_case(row->kernel);

    if (row->work <= WORK_ATTENTION_BACK) {
        job.size[0] = rows < 512 ? 512 / rows : 1;
        job.size[1] = rows;
        job.size[2] = 0;
        job.size[3] = heads_of(width);
        job.size[4] = width;
    } else if (row->work == WORK_ROTATE) {
        job.size[0] = TOKENS_TURNED;
        job.size[1] = rows;
        job.size[2] = width;
        job.size[3] = rows * width * 3 / 2; /* values beside them */
    } else {
        job.size[0] = rows;
        if (row->work == WORK_SQUARES) job.size[2] = 1; /* means */
        if (row->work != WORK_UPDATE) job.size[1] = width;
    }
    return job;
}

/* One size of each work, with one thread and with all, of each type. */
static void add_rows(struct calibration *c, int w, int r)
{
    struct machine *m = c->machine;

    for (int i = 0; i < WORK_ROWS; i++)
        for (int way = 0; way < (c->request->ranks > 1 ? WAYS : 1); way++)
            for (int narrow = 0; narrow < TYPES; narrow++)
                if (c->request->takes[narrow] && work_rows[i].widths[w] > 0)
                    m->works[m->work_count++] = (struct measured_work){
                        .work = work_rows[i].work,
                        .rows = work_rows[i].rows[r],
                        .width = work_rows[i].widths[w],
                        .bits = narrow ? 16 : 32,
                        .threads = way > 0 ? c->request->ranks : 1,
                        .seconds = INFINITY};
}

static status measure_one(struct calibration *c, int number)
{
    struct measured_work *out = &c->machine->works[number];
    const struct operands *o = c->workers[0].operands;
    const struct work_row *row = work_rows;
    double sigma = 0;

    while (row->work != out->work) row++;
    const struct bench_case job = job_of(row, out->rows, out->width);

    calibrate_type(c, out->bits);
    calibrate_turns(c, out->threads, row->cold);
    TRY(calibrate_job(c, &job, out->threads, &out->seconds, &sigma));
    out->amount = row->work <= WORK_ATTENTION_BACK ? o->flops - o->lane_flops
                                                   : o->bytes;
    return OK;
}

status calibrate_works(struct calibration *c, struct sweep *sweep)
{
    struct machine *m = c->machine;
    void *memory = NULL;

    TRY(arena_take_array(&m->arena, WORK_ROWS * 2 * WIDTHS * WAYS * TYPES,
                         sizeof *m->works, &memory));
    m->works = memory;
    for (int w = 0; w < WIDTHS; w++)
        for (int r = 0; r < 2; r++) {
            add_rows(c, w, r);
            if (sweep->least == 0) sweep->least = m->work_count;
        }
    sweep->rows = &m->work_count;
    sweep->measure = measure_one;
    TRY(calibrate_sweep(c, sweep));
    calibrate_type(c, 32);
    c->turning = all_far;
    for (int i = 0; i < m->work_count; i++)
        m->works[i].seconds = pace_row(c, i);
    return OK;
}
