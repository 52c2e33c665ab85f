/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - times products, attention, memory, contention and disk. */
#include "bench/calibrate.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/median.h"
#include "bench/calibrate_parts.h"
#include "bench/probe.h"
#include "kernels/isa.h"
#include "kernels/math.h"
#include "planner/this_machine.h"

enum { SCRATCH_WIDEST = 8192, SCRATCH_TOKENS = 8192, SERIES = 8,
       COLLECTIVES = 32, DISK_BYTES = 32 << 20 };

static status worker_open(struct calibration *c, int i)
{
    struct worker *w = &c->workers[i];
    void *memory = NULL;

    for (int narrow = 0; narrow < 2; narrow++) {
        const size_t bytes = kernels_scratch_bytes(
            &c->kernels[narrow], c->request->ranks, SCRATCH_WIDEST,
            SCRATCH_TOKENS);

        if (bytes > w->stream.scratch_bytes) w->stream.scratch_bytes = bytes;
    }
    TRY(arena_take(&c->arena, w->stream.scratch_bytes, &w->stream.scratch));
    TRY(arena_take(&c->arena, sizeof *w->operands, &memory));
    w->operands = memory;
    w->operands->capacity = calibrate_far(c);
    TRY(arena_take_array(&c->arena, (size_t)w->operands->capacity,
                         sizeof(float), &memory));
    w->operands->data = memory;
    return OK;
}

void calibrate_prepare(struct operands *o, const struct bench_case *job)
{
    memset(o->t, 0, sizeof o->t);
    o->used = 0;
    o->count = 0;
    o->settle = NULL;
    o->every = 0;
    memset(o->doubles, 0, sizeof o->doubles);
    job->prepare(o, job->size);
}

void calibrate_type(struct calibration *c, int bits)
{
    c->narrow = bits < 32;
    for (int i = 0; i < c->request->ranks; i++)
        c->workers[i].operands->dtype = c->workers[i].operands->narrow =
            c->kernels[c->narrow].dtype;
}

/* Calls in a row, mean over all and deviation between series of them; one call
 * and the one before, where there is time for no more. */
static status time_calls(const struct calibration *c, struct worker *w,
                         const struct bench_case *job)
{
    const struct kernels *kernels = &c->kernels[c->narrow];
    double before, once, sum = 0, squares = 0, found[SERIES];
    struct turns turns;
    int64_t each;
    int series, first = 0;

    turns_begin(c, &turns, w->operands);
    TRY(job->run(kernels, &w->stream, w->operands)); /* warm */
    before = probe_now_s();
    TRY(job->run(kernels, &w->stream, w->operands));
    once = probe_now_s() - before + 1e-9;
    series = c->limit / once < SERIES ? (int)(c->limit / once) : SERIES;
    if (series < 2) {
        series = 2;
        first = 1;
        found[0] = sum = once;
        squares = once * once;
    }
    each = (int64_t)(c->limit / series / once);
    if (each < 1) each = 1;
    for (int one = first; one < series; one++) {
        double seconds;

        before = probe_now_s();
        for (int64_t i = 0; i < each; i++) {
            TRY(job->run(kernels, &w->stream, w->operands));
            turns_next(&turns, w->operands);
        }
        seconds = (probe_now_s() - before) / (double)each;
        found[one] = seconds;
        sum += seconds;
        squares += seconds * seconds;
    }
    w->seconds = median_take(found, series);
    const double mean = sum / series, spread = squares / series - mean * mean;

    w->sigma = spread > 0 ? sqrt(spread) : 0;
    return OK;
}

static void body(void *argument, int index, int count)
{
    struct calibration *c = argument;
    struct worker *w = &c->workers[index];
    const struct bench_case *job = c->job;

    (void)count;
    w->result = OK;
    if (index >= c->active) return;
    calibrate_prepare(w->operands, job);
    w->result = time_calls(c, w, job);
}

status calibrate_run(struct calibration *c, const struct bench_case *job,
                     int active, double *seconds, double *sigma)
{
    *seconds = *sigma = 0;
    c->job = job;
    c->active = active;
    threads_run(c->all, body, c);
    for (int i = 0; i < active; i++) {
        TRY(c->workers[i].result);
        *seconds += c->workers[i].seconds / active;
        *sigma += c->workers[i].sigma / active;
    }
    return OK;
}

static status run_threaded(struct calibration *c, const struct bench_case *job,
                           double *seconds, double *sigma)
{
    struct worker *w = &c->workers[0];

    w->stream.threads = c->all;
    calibrate_prepare(w->operands, job);
    w->result = time_calls(c, w, job);
    w->stream.threads = NULL;
    *seconds = w->seconds;
    *sigma = w->sigma;
    return w->result;
}

status calibrate_job(struct calibration *c, const struct bench_case *job,
                     int threads, double *seconds, double *sigma)
{
    double found[2];

    TRY(threads > 1
            ? run_threaded(c, job, &found[0], &found[1])
            : calibrate_run(c, job, c->request->ranks, &found[0], &found[1]));
    c->pace.found = found[0];
    c->pace.threaded = threads > 1;
    if (found[0] >= *seconds) return OK;
    *seconds = found[0];
    *sigma = found[1];
    return OK;
}

/* Rows of several threads that met far cores in every round are timed again
 * when the cores are near each other, if that is soon. */
static status sweep_far(struct calibration *c, const struct sweep *sweep)
{
    const struct timespec pause = {0, 20000000};
    const double until = probe_now_s() + sweep->seconds;

    for (int row = 0; row < *sweep->rows && probe_now_s() < until;) {
        bool near = false;

        if (!pace_is_far(c, row, *sweep->rows)) {
            row++;
            continue;
        }
        TRY(pace_look(c, &near));
        if (near) {
            TRY(sweep->measure(c, row));
            TRY(pace_replace(c, row));
        } else {
            nanosleep(&pause, NULL);
        }
    }
    return OK;
}

status calibrate_sweep(struct calibration *c, struct sweep *sweep)
{
    const double begun = probe_now_s();
    double last = 0;

    c->limit = sweep->seconds / *sweep->rows / CALIBRATE_ROUNDS;
    TRY(pace_begin(c, *sweep->rows));
    for (c->rounds = 0; c->rounds < CALIBRATE_ROUNDS; c->rounds++) {
        const double before = probe_now_s();

        if (c->rounds > 0 && before - begun + last > sweep->most) break;
        for (int i = 0; i < *sweep->rows; i++) {
            const double most = (i < sweep->asked ? 2 : 1) * sweep->most;

            if (c->rounds == 0 && i >= sweep->least &&
                probe_now_s() - begun > most) {
                sweep->left = *sweep->rows - i;
                *sweep->rows = i;
                break;
            }
            TRY(sweep->measure(c, i));
            TRY(pace_note(c));
        }
        last = probe_now_s() - before;
    }
    TRY(sweep_far(c, sweep));
    pace_settle(c, *sweep->rows);
    return OK;
}

const struct bench_case *calibrate_case(const char *kernel)
{
    for (int i = 0; i < bench_case_count; i++)
        if (strcmp(bench_cases[i].kernel, kernel) == 0)
            return &bench_cases[i];
    return NULL;
}

/* ---- constants ---- */

static void note(struct calibration *c, int constant, double value)
{
    const struct constant_row *row = &constant_rows[constant];

    if (value < row->least) value = row->least;
    if (value > row->most) value = row->most;
    c->machine->value[constant] = value;
    c->machine->mark[constant] = MARK_MEASURED;
    c->machine->source[constant] = "lockstep calibrate";
}

static status measure_floor(struct calibration *c)
{
    const struct bench_case job = {"matmul", "", {1, 8, 8}, case_product_nt,
                                   case_product_run};
    double seconds, sigma;

    TRY(calibrate_run(c, &job, c->request->ranks, &seconds, &sigma));
    note(c, M_LAUNCH, seconds);
    return OK;
}

/* The narrow type is as many times as fast as float32 as it is in one product
 * of a usual size. */
static status measure_narrow(struct calibration *c)
{
    const struct bench_case job = {"matmul", "", {512, 512, 512},
                                   case_product_nt, case_product_run};
    const double *peak = &c->machine->value[M_PEAK_32];
    double seconds[2], sigma;

    for (int narrow = 0; narrow < 2; narrow++) {
        calibrate_type(c, narrow ? 16 : 32);
        TRY(calibrate_run(c, &job, c->request->ranks, &seconds[narrow],
                          &sigma));
    }
    calibrate_type(c, 32);
    note(c, M_PEAK_16, *peak * seconds[0] / seconds[1]);
    note(c, M_PEAK_8, c->machine->value[M_PEAK_16]);
    return OK;
}

static status measure_memory(struct calibration *c)
{
    struct bench_case job = *calibrate_case("add");
    double seconds, sigma;
    const double pages = (double)sysconf(_SC_PHYS_PAGES) *
                         (double)sysconf(_SC_PAGESIZE);

    job.size[0] = 2048;
    job.size[1] = 1024;
    TRY(calibrate_run(c, &job, c->request->ranks, &seconds, &sigma));
    note(c, M_MEMORY_RATE, c->workers[0].operands->bytes / seconds);
    note(c, M_HOST_RATE, c->machine->value[M_MEMORY_RATE] / 2);
    note(c, M_MEMORY_BYTES, pages / c->request->ranks);
    note(c, M_HOST_BYTES, pages / c->request->ranks);
    return OK;
}

/* The share of the bandwidth that what is no product reaches, and that of the
 * peak which attention does, where the table of works has no row. */
static void note_works(struct calibration *c)
{
    const struct machine *m = c->machine;
    double amount[2] = {0, 0}, seconds[2] = {0, 0};

    for (int i = 0; i < m->work_count; i++) {
        const struct measured_work *w = &m->works[i];
        const int kind = w->work <= WORK_ATTENTION_BACK;

        if (w->threads > 1 || w->work == WORK_LOSS ||
            (w->bits < 32 && c->request->takes[0]))
            continue;
        amount[kind] += w->amount;
        seconds[kind] += w->seconds;
    }
    note(c, M_MEMORY, amount[0] / seconds[0] / m->value[M_MEMORY_RATE]);
    note(c, M_ATTENTION, amount[1] / seconds[1] / m->value[M_PEAK_32]);
}

static status measure_contention(struct calibration *c)
{
    double times[2];

    if (c->request->ranks < 2) return OK;
    TRY(calibrate_beside(c, times));
    note(c, M_COMPUTE_BESIDE, times[0]);
    note(c, M_COMM_BESIDE, times[1]);
    return OK;
}

static status measure_disk(struct calibration *c)
{
    void *memory = NULL;
    double before;
    status result;

    if (c->request->disk == NULL) return OK;
    TRY(memory_take(DISK_BYTES, 1, &memory));
    memset(memory, 0x3f, DISK_BYTES);
    before = probe_now_s();
    result = file_write_atomic(c->request->disk, memory, DISK_BYTES);
    if (result == OK)
        note(c, M_DISK_RATE, DISK_BYTES / (probe_now_s() - before) /
                                 c->request->ranks);
    unlink(c->request->disk);
    memory_free(memory);
    return result;
}

/* ---- products ---- */

static bool fits(const struct wanted_product *p)
{
    return p->m * p->n + p->m * p->k + p->n * p->k < CALIBRATE_FLOATS &&
           p->n <= SCRATCH_WIDEST && p->k <= SCRATCH_WIDEST &&
           p->m <= SCRATCH_WIDEST;
}

/* A row for one shape, unless there is one; `threads`: of the rank. */
static void add_product(struct machine *m, const struct wanted_product *p,
                        int threads)
{
    for (int i = 0; i < m->product_count; i++)
        if (m->products[i].m == p->m && m->products[i].n == p->n &&
            m->products[i].k == p->k && m->products[i].kind == p->kind &&
            m->products[i].bits == p->bits &&
            m->products[i].threads == threads &&
            accumulator_same(&m->products[i].accumulator, &p->accumulator))
            return;
    m->products[m->product_count++] = (struct measured_product){
        .m = p->m, .n = p->n, .k = p->k, .kind = p->kind, .bits = p->bits,
        .threads = threads, .seconds = INFINITY,
        .accumulator = p->accumulator};
}

/* Tokens of a sequence: W adds up one after the other. */
static int64_t sequence_of(const struct calibrate_request *r,
                           const struct measured_product *row)
{
    for (int i = 0; i < r->wanted_count; i++)
        if (r->wanted[i].m == row->m && r->wanted[i].n == row->n &&
            r->wanted[i].k == row->k && r->wanted[i].kind == row->kind)
            return r->wanted[i].sequence;
    return GRANULE;
}

void calibrate_sums(struct calibration *c, const struct accumulator *of)
{
    for (int i = 0; i < c->request->ranks; i++)
        c->workers[i].operands->accumulator = of;
}

static status measure_product(struct calibration *c, int number)
{
    struct measured_product *row = &c->machine->products[number];
    static void (*const prepares[])(struct operands *, const int64_t *) = {
        case_product_nt, case_product_nn, case_product_w};
    const bool integers = row->bits == 8;
    const struct bench_case job = {
        "matmul", "",
        {row->m, row->n, row->k, sequence_of(c->request, row)},
        integers ? case_integers : prepares[row->kind],
        integers                  ? case_integers_run
        : row->kind == PRODUCT_TN ? case_product_w_run : case_product_run};

    calibrate_type(c, row->bits);
    calibrate_sums(c, row->accumulator.bits > 0 ? &row->accumulator : NULL);
    calibrate_turns(c, row->threads, 0);
    return calibrate_job(c, &job, row->threads, &row->seconds, &row->sigma);
}

static void settle_products(struct calibration *c)
{
    struct machine *m = c->machine;

    for (int i = 0; i < m->product_count; i++) {
        const double settled = pace_row(c, i);

        m->products[i].sigma *= settled / m->products[i].seconds;
        m->products[i].seconds = settled;
    }
}

enum { USUAL_PRODUCTS = 4 * 3 * 2 * PRODUCT_KINDS };

static int usual_products(struct wanted_product *out, int bits)
{
    static const int64_t widths[] = {64, 128, 256, 512};
    static const int64_t tokens[] = {128, 512, 2048};
    int count = 0;

    for (int w = 0; w < 4; w++)
        for (int t = 0; t < 3; t++)
            for (int up = 1; up <= 4; up += 3) {
                const int64_t k = widths[w], n = up * k, m = tokens[t];
                const struct wanted_product uses[] = {
                    {m, n, k, PRODUCT_NT, bits, 0, ACCUMULATOR_NONE},
                    {m, k, n, PRODUCT_NN, bits, 0, ACCUMULATOR_NONE},
                    {n, k, m, PRODUCT_TN, bits, 0, ACCUMULATOR_NONE}};

                memcpy(out + count, uses, sizeof uses);
                count += PRODUCT_KINDS;
            }
    return count;
}

/* Both ways that a rank runs it; false: it is too large. */
static bool add_ways(struct calibration *c, const struct wanted_product *p)
{
    if (!fits(p)) return false;
    add_product(c->machine, p, 1);
    if (c->request->ranks > 1)
        add_product(c->machine, p, c->request->ranks);
    return true;
}

/* First one usual product of each kind, then those that are wanted, then the
 * others, small and large ones in turn: so many as there is time for. */
static status list_products(struct calibration *c, struct sweep *sweep,
                            int *large)
{
    enum { MIDDLE = 27, STRIDE = 29 };
    const struct calibrate_request *r = c->request;
    struct wanted_product usual[2 * USUAL_PRODUCTS];
    struct machine *m = c->machine;
    void *memory = NULL;
    int count = 0;

    for (int narrow = 0; narrow < 2; narrow++)
        if (r->takes[narrow])
            count += usual_products(usual + count, narrow ? 16 : 32);
    TRY(arena_take_array(&m->arena,
                         (size_t)(2 * (r->wanted_count + 2 * count)),
                         sizeof *m->products, &memory));
    m->products = memory;
    for (int type = 0; type < count / USUAL_PRODUCTS; type++)
        for (int kind = 0; kind < PRODUCT_KINDS; kind++)
            add_ways(c, &usual[type * USUAL_PRODUCTS + MIDDLE + kind]);
    sweep->least = m->product_count;
    for (int i = 0; i < r->wanted_count; i++)
        *large += !add_ways(c, &r->wanted[i]);
    sweep->asked = m->product_count;
    for (int i = 0; i < count; i++)
        add_ways(c, &usual[(i + 1) * STRIDE % count]);
    sweep->rows = &m->product_count;
    sweep->measure = measure_product;
    return OK;
}

static status measure_products(struct calibration *c, struct sweep *sweep,
                               int *large)
{
    double best = 0, spread = 0;

    TRY(list_products(c, sweep, large));
    TRY(calibrate_sweep(c, sweep));
    settle_products(c);
    for (int i = 0; i < c->machine->product_count; i++) {
        const struct measured_product *p = &c->machine->products[i];
        const double rate = 2.0 * (double)p->m * (double)p->n * (double)p->k /
                            p->seconds;

        if (p->threads == 1 && p->bits == 32 && rate > best) best = rate;
        spread += p->sigma / p->seconds / c->machine->product_count;
    }
    if (best > 0) note(c, M_GEMM, best / c->machine->value[M_PEAK_32]);
    calibrate_type(c, 32);
    calibrate_sums(c, NULL);
    c->turning = all_far;
    note(c, M_NOISE, spread / 10); /* a step is hundreds of calls */
    return OK;
}

/* ---- all of it ---- */

static status measure_messages(struct calibration *c)
{
    struct message_figures figures = {0, 0};
    void *memory = NULL;

    if (c->request->ranks < 2) return OK;
    TRY(arena_take_array(&c->machine->arena, COLLECTIVES,
                         sizeof *c->machine->collectives, &memory));
    c->machine->collectives = memory;
    TRY(calibrate_messages(memory, COLLECTIVES, c->request->ranks,
                           0.15 * c->request->seconds,
                           &c->machine->collective_count, &figures));
    note(c, M_LINK_RATE, figures.rate);
    note(c, M_LINK, 1);
    note(c, M_LINK_LATENCY, figures.latency);
    return OK;
}

/* A table's share of the time, and of what there is at most. */
static struct sweep sweep_of(const struct calibration *c, double share,
                             double of_most)
{
    const double most = CALIBRATE_OVER * c->request->seconds +
                        CALIBRATE_FIXED_S;

    return (struct sweep){.seconds = share * c->request->seconds,
                          .most = of_most * most};
}

static status measure(struct calibration *c)
{
    struct left_out *const left = &c->machine->left_out;
    struct sweep products = sweep_of(c, 0.5, 0.5);
    struct sweep works = sweep_of(c, 0.2, 0.25);
    struct sweep roundings = sweep_of(c, 0.2, 0.15);
    struct moments *moments = &c->machine->moments;

    TRY(calibrate_sentinel(c, &moments->before));
    note(c, M_DEVICES, c->request->ranks);
    note(c, M_PEAK_32, kernels_peak_flops(&c->workers[0].stream, ISA_AUTO,
                                          0.1));
    TRY(measure_narrow(c));
    TRY(measure_floor(c));
    TRY(measure_memory(c));
    TRY(measure_contention(c));
    TRY(measure_products(c, &products, &left->large));
    left->products = products.left;
    moments->pace = (struct pace){math_exp(c->pace.usual), c->pace.follows, 0,
                                  c->pace.rest, 0};
    TRY(calibrate_works(c, &works));
    left->works = works.left;
    moments->pace.works = c->pace.follows;
    note_works(c);
    TRY(calibrate_roundings(c, &roundings));
    left->roundings = roundings.left;
    moments->pace.exchange_s = c->pace.middle_s;
    c->limit = 0.02 * c->request->seconds;
    TRY(measure_messages(c));
    TRY(measure_disk(c));
    return calibrate_sentinel(c, &moments->after);
}

/* Kernels, and a worker with room for operands for each rank. */
static status open_workers(struct calibration *c)
{
    const struct calibrate_request *r = c->request;

    if (r->ranks < 1 || r->ranks > CALIBRATE_WORKERS)
        FAIL(ERR_CONFIG, "calibrate: %d cores; at most %d can be measured",
             r->ranks, CALIBRATE_WORKERS);
    TRY(kernels_get(&c->kernels[0], DTYPE_F32, ISA_AUTO));
    TRY(kernels_get_product(&c->kernels[1], r->narrow, ISA_AUTO, r->product));
    TRY(threads_build(&c->all, r->ranks));
    for (int i = 0; i < r->ranks; i++) TRY(worker_open(c, i));
    calibrate_type(c, 32);
    return OK;
}

status calibrate(struct machine *machine,
                 const struct calibrate_request *request)
{
    struct calibration c = {.request = request, .machine = machine,
                            .turning = all_far,
                            .limit = 0.02 * request->seconds};
    const struct machine_preset *preset = &machine_presets[0];
    status result;

    for (int i = 0; i < machine_preset_count; i++)
        if (strcmp(machine_presets[i].name, "cpu") == 0)
            preset = &machine_presets[i];
    machine_from_preset(machine, preset);
    snprintf(machine->name, sizeof machine->name, "this machine");
    this_machine_key(machine->key);
    arena_init(&c.arena, "calibrate", 0);
    result = open_workers(&c);
    if (result == OK) result = measure(&c);
    threads_free(c.all);
    arena_free(&c.arena);
    return result;
}

status calibrate_now(const struct calibrate_request *request,
                     struct sentinel *now)
{
    struct calibration c = {.request = request,
                            .turning = all_far};
    status result;

    arena_init(&c.arena, "calibrate", 0);
    result = open_workers(&c);
    if (result == OK) result = calibrate_sentinel(&c, now);
    threads_free(c.all);
    arena_free(&c.arena);
    return result;
}
