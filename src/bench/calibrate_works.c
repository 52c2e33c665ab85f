/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_works.c - times what is no product, at several sizes. */
#include "bench/calibrate_parts.h"

/* A kernel of bench/cases.c that stands for a work; sizes of its case where
 * rows have `width` elements: the place of rows and of width among them. */
enum { WIDTHS = 5 };

struct work_row {
    enum work work;
    const char *kernel;
    int64_t widths[WIDTHS], rows[2];
};

static const struct work_row work_rows[] = {
    {WORK_ATTENTION, "attention_forward", {16, 24, 32, 64, 128}, {64, 256}},
    {WORK_ATTENTION_BACK, "attention_backward", {16, 24, 32, 64, 128},
     {64, 256}},
    {WORK_NORM, "rmsnorm_forward", {64, 256, 768, 0, 0}, {512, 2048}},
    {WORK_NORM_BACK, "rmsnorm_backward", {64, 256, 768, 0, 0}, {512, 2048}},
    {WORK_GATE, "swiglu_forward", {64, 256, 768, 0, 0}, {512, 2048}},
    {WORK_GATE_BACK, "swiglu_backward", {64, 256, 768, 0, 0}, {512, 2048}},
    {WORK_ROTATE, "rope", {16, 24, 32, 64, 128}, {512, 2048}},
    {WORK_ADD, "add", {64, 256, 768, 0, 0}, {512, 2048}},
    {WORK_LOSS, "cross_entropy", {256, 4096, 0, 0, 0}, {256, 1024}},
    {WORK_UPDATE, "adamw", {1, 0, 0, 0, 0}, {65536, 1048576}},
};

/* The job of one size. Attention has sequences of together 512 tokens; a number
 * of heads that each width's leaves divide. */
static struct bench_case job_of(const struct work_row *row, int64_t rows,
                                int64_t width)
{
    struct bench_case job = *calibrate_case(row->kernel);

    if (row->work <= WORK_ATTENTION_BACK) {
        job.size[0] = rows < 512 ? 512 / rows : 1;
        job.size[1] = rows;
        job.size[2] = 0;
        job.size[3] = width < 32 ? 16 : 1024 / width;
        job.size[4] = width;
    } else if (row->work == WORK_ROTATE) {
        job.size[0] = rows;
        job.size[1] = width < 32 ? 16 : 512 / width;
        job.size[2] = width;
    } else {
        job.size[0] = rows;
        if (row->work != WORK_UPDATE) job.size[1] = width;
    }
    return job;
}

static status measure_one(struct calibration *c, const struct work_row *row,
                          int64_t rows, int64_t width, int threads)
{
    const struct bench_case job = job_of(row, rows, width);
    const struct operands *o = c->workers[0].operands;
    struct measured_work *out = &c->machine->works[c->machine->work_count];
    double sigma;

    *out = (struct measured_work){.work = row->work, .rows = rows,
                                  .width = width, .threads = threads};
    TRY(calibrate_job(c, &job, threads, &out->seconds, &sigma));
    out->amount = row->work <= WORK_ATTENTION_BACK ? o->flops - o->lane_flops
                                                   : o->bytes;
    c->machine->work_count++;
    return OK;
}

static status measure_row(struct calibration *c, const struct work_row *row,
                          int threads)
{
    for (int w = 0; w < WIDTHS && row->widths[w] > 0; w++)
        for (int r = 0; r < 2; r++)
            TRY(measure_one(c, row, row->rows[r], row->widths[w], threads));
    return OK;
}

status calibrate_works(struct calibration *c, double seconds)
{
    enum { ROWS = sizeof work_rows / sizeof *work_rows, SIZES = 2 * WIDTHS,
           WAYS = 2 };
    const int ways = c->request->ranks > 1 ? WAYS : 1;
    void *memory = NULL;

    TRY(arena_take_array(&c->machine->arena, ROWS * SIZES * WAYS,
                         sizeof *c->machine->works, &memory));
    c->machine->works = memory;
    c->limit = seconds / (ROWS * SIZES * ways);
    for (int i = 0; i < ROWS; i++)
        for (int way = 0; way < ways; way++)
            TRY(measure_row(c, &work_rows[i], way > 0 ? c->request->ranks : 1));
    return OK;
}
