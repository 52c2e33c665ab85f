/* SPDX-License-Identifier: Apache-2.0 */
/* device_limits.c - the best rates of a device apart from the host. */
#include "observe/device_limits.h"

#include <math.h>

enum {
    CALLS_MOST = 64, ROUNDS = 4, SIZES = 3,
    AREA_LEAST = 1 << 20, AREA_MOST = 1 << 28, /* bytes */
    SQUARE_LEAST = 64, SQUARE_MOST = 4096,     /* rows of a product */
    WORDS = 4093 /* a prime: rows of a matrix are not alike */
};
static const double seconds_enough = 5e-3; /* of a round */
static const double seconds_most = 20e-3;  /* of a call */

/* ---- times ---- */

static int64_t kernels_ns(const struct meter *meter)
{
    int64_t ns = 0;

    for (int t = 1; t < meter->used; t++)
        for (int i = 0; i < meter->tracks[t].row_count; i++)
            ns += meter->tracks[t].rows[i].own_ns;
    return ns;
}

static status one_round(struct meter *meter, struct stream *stream,
                        device_work *work, void *of, int calls,
                        double *seconds)
{
    status result = OK;

    meter_clear(meter);
    meter_step_begin(meter);
    for (int i = 0; i < calls && result == OK; i++) result = work(stream, of);
    const status end = device_finish(stream); /* it counts into the meter */

    meter_step_end(meter);
    *seconds = 1e-9 * (double)kernels_ns(meter);
    return result != OK ? result : end;
}

/* Short ones are started many times, so that none has to wait for the host,
 * which waits as often whatever the device's speed is. */
status device_limits_seconds(struct stream *stream, device_work *work,
                             void *of, double *seconds)
{
    struct meter meter = {0};
    double calls = 1;
    status result;

    *seconds = 0;
    TRY_GOTO(done, result, meter_build(&meter, 1, 0));
    for (int round = 0; round < ROUNDS; round++) {
        double all;

        TRY_GOTO(done, result, one_round(&meter, stream, work, of, (int)calls,
                                         &all));
        if (round == 0 || all / calls < *seconds) *seconds = all / calls;
        if (round > 0) continue;
        calls = all > 0 ? seconds_enough / all : 1;
        calls = calls < 1 ? 1 : calls > CALLS_MOST ? CALLS_MOST : floor(calls);
    }
done:
    meter_free(&meter);
    return result;
}

/* ---- numbers ---- */

status device_limits_fill(struct stream *stream, void *at, size_t bytes)
{
    uint16_t words[WORDS];
    size_t have = bytes < sizeof words ? bytes : sizeof words;
    uint32_t word = 2463534242u;

    for (int i = 0; i < WORDS; i++) {
        word ^= word << 13, word ^= word >> 17, word ^= word << 5;
        words[i] = (uint16_t)((word & 0x80ff) | PROFILE_ORDINARY << 8);
    }
    TRY(device_write(stream, at, words, have));
    while (have < bytes) {
        const size_t part = bytes - have < have ? bytes - have : have;

        TRY(device_copy(stream, (char *)at + have, at, part));
        have += part;
    }
    return OK;
}

/* ---- rates ---- */

struct work {
    const struct kernels *kernels;
    struct tensor c, a, b;
    bool own; /* by no library of products */
};

static status add_once(struct stream *stream, void *of)
{
    const struct work *w = of;

    return w->kernels->add(stream, w->c, w->a, w->b);
}

static status multiply_once(struct stream *stream, void *of)
{
    const struct work *w = of;
    const struct sum_segment segment = {.length = w->a.shape[1]};
    const struct sum_order order = {&segment, 1, 1};

    return w->kernels->matmul(stream, &(struct matmul){
        .c = w->c, .a = w->a, .b = w->b, .order = &order, .own = w->own});
}

/* In areas that are larger than caches, where the device is so fast that it
 * adds them in some milliseconds. */
static status memory_rate(const struct device_limits_on *on,
                          struct profile_limits *limits)
{
    const size_t most = on->bytes < AREA_MOST ? on->bytes : AREA_MOST;
    const enum dtype dtype = on->real->dtype;
    size_t bytes = most < AREA_LEAST ? most : AREA_LEAST;

    for (int i = 0; i < SIZES; i++) {
        const int64_t count = (int64_t)bytes / dtype_bytes(dtype);
        struct work work = {on->real, tensor_1d(on->areas[0], dtype, count),
                            tensor_1d(on->areas[1], dtype, count),
                            tensor_1d(on->areas[2], dtype, count), false};
        double seconds;

        TRY(device_limits_seconds(on->stream, add_once, &work, &seconds));
        if (seconds <= 0) return OK;
        limits->memory_area = 3 * count * dtype_bytes(dtype);
        limits->memory_bytes = (double)limits->memory_area / seconds;
        seconds /= (double)bytes;
        for (bytes = most; bytes > AREA_LEAST; bytes /= 2)
            if (seconds * (double)bytes < seconds_most) break;
    }
    return OK;
}

/* FLOPs a second of products [n, n] x [n, n] that are likewise large. */
static status product_rate(const struct device_limits_on *on,
                           const struct kernels *kernels, bool own,
                           double *flops)
{
    const enum dtype dtype = kernels->dtype, real = dtype_real(dtype);
    int64_t most = SQUARE_MOST, n = SQUARE_LEAST;

    while (most * most * dtype_bytes(real) > (int64_t)on->bytes) most /= 2;
    for (int i = 0; i < SIZES && n <= most; i++) {
        struct work work = {kernels, tensor_2d(on->areas[0], real, n, n),
                            tensor_2d(on->areas[1], dtype, n, n),
                            tensor_2d(on->areas[2], dtype, n, n), own};
        double seconds;

        TRY(device_limits_seconds(on->stream, multiply_once, &work, &seconds));
        if (seconds <= 0) break;
        const double rate = 2.0 * (double)(n * n * n) / seconds;

        if (rate > *flops) *flops = rate;
        for (n = most; n > SQUARE_LEAST; n /= 2)
            if (2.0 * (double)(n * n * n) / rate < seconds_most) break;
    }
    return OK;
}

status device_limits_measure(const struct device_limits_on *on,
                             struct profile_limits *limits)
{
    *limits = (struct profile_limits){0};
    for (int i = 0; i < 3; i++)
        TRY(device_limits_fill(on->stream, on->areas[i], on->bytes));
    TRY(memory_rate(on, limits));
    TRY(product_rate(on, on->kernels, false, &limits->product_flops));
    return product_rate(on, on->real, true, &limits->attention_flops);
}

/* Attention computes in float32, by our own kernels, but on tensor cores; in
 * float64 in a run that is. */
static bool attends_as_products(const struct stage *stage)
{
    return stage->request.machine.fast ? stage->program.dtype == DTYPE_BF16
                                       : !dtype_is_narrow(stage->program.dtype);
}

status device_limits_take(struct stage *stage, struct profile_limits *limits)
{
    const struct memory_row *row = &stage->memory[MEMORY_GRADIENTS];
    struct device_limits_on on = {
        .kernels = &stage->kernels, .real = &stage->real,
        .stream = &stage->stream,
        .bytes = row->bytes / 3 / ARENA_ALIGN * ARENA_ALIGN};

    *limits = (struct profile_limits){0};
    if (stage->request.machine.graphs || on.bytes == 0) return OK;
    for (int i = 0; i < 3; i++)
        on.areas[i] = (char *)row->data + (size_t)i * on.bytes;
    TRY(device_limits_measure(&on, limits));
    if (attends_as_products(stage))
        limits->attention_flops = limits->product_flops;
    return OK;
}
