/* SPDX-License-Identifier: Apache-2.0 */
/* profiler.c - the profile of a run. */
#include "observe/profiler.h"

#include <string.h>

#include "base/file.h"
#include "kernels/isa.h"
#include "observe/device_limits.h"
#include "observe/trace_file.h"

enum {
    SPANS = 1 << 17,  /* of a trace; what does not fit is counted */
    CARRIERS = 12,    /* threads with messages: one for each group */
    READER = 1,       /* the thread that reads batches ahead */
    DEVICE = 1        /* the one of a device apart that runs kernels */
};

int64_t profiler_values(const struct mesh *mesh)
{
    return (int64_t)mesh_ranks(mesh) * METER_KINDS;
}

status profiler_build(struct profiler *profiler, struct team *team,
                      int64_t steps)
{
    void *kinds = NULL;

    profiler->steps = steps;
    profiler->ranks = team_size(team);
    profiler->rank = team_rank(team);
    TRY(memory_take((size_t)profiler->ranks * METER_KINDS,
                    sizeof *profiler->kinds, &kinds));
    profiler->kinds = kinds;
    return meter_build(&profiler->meter,
                       READER + (profiler->device ? DEVICE : 0) +
                           (profiler->ranks > 1 ? CARRIERS : 0),
                       profiler->trace != NULL ? SPANS : 0);
}

void profiler_free(struct profiler *profiler)
{
    meter_free(&profiler->meter);
    memory_free(profiler->kinds);
    memory_free(profiler->profile);
    *profiler = (struct profiler){0};
}

/* Steps that the first does not stand for. */
static bool is_first_of_several(const struct profiler *profiler)
{
    return profiler->done == 0 && profiler->steps > 1;
}

void profiler_begin(struct profiler *profiler)
{
    const bool records = profiler->trace != NULL && !profiler->written &&
                         !is_first_of_several(profiler);

    meter_record(&profiler->meter, records);
    meter_step_begin(&profiler->meter);
}

static status write_trace(struct profiler *profiler)
{
    char path[PATH_BYTES];

    profiler->written = true;
    meter_record(&profiler->meter, false);
    TRY(trace_file_name(profiler->trace, profiler->rank, profiler->ranks,
                        path, sizeof path));
    return trace_file_write(&profiler->meter, profiler->rank,
                            profiler->title, path);
}

bool profiler_reads(const struct profiler *profiler)
{
    return profiler->done == 0 ||
           (profiler->trace != NULL && !profiler->written);
}

status profiler_end(struct profiler *profiler)
{
    const bool first = is_first_of_several(profiler);

    meter_step_end(&profiler->meter);
    profiler->done++;
    if (first) meter_clear(&profiler->meter);
    if (profiler->trace == NULL || profiler->written) return OK;
    if (profiler->done == profiler->steps ||
        profiler->done == PROFILER_TRACED + 1)
        return write_trace(profiler);
    return OK;
}

/* Where two areas are added into a third, and small products are made. */
struct areas {
    void *data[3];
    int64_t elements; /* of float32 */
    struct arena own;
};

enum {
    AREA_MOST = 1 << 25, /* elements: 128 MiB */
    AREA_LEAST = 1 << 19,
    PRODUCT_SMALL = 128, PRODUCT_LARGE = 512 /* in each direction */
};
static const double rate_of_large = 1e10; /* FLOPs a second that pay for one */

static status areas_open(struct areas *areas, const struct stage *stage)
{
    static const enum memory_owner owners[3] = {
        MEMORY_GRADIENTS, MEMORY_STATE_0, MEMORY_STATE_1};

    arena_init(&areas->own, "limits", 0);
    areas->elements = AREA_MOST;
    for (int i = 0; i < 3; i++) {
        const struct memory_row *row = &stage->memory[owners[i]];
        const int64_t elements = (int64_t)(row->bytes / sizeof(double));

        areas->data[i] = stage->host[owners[i]];
        if (elements < areas->elements) areas->elements = elements;
    }
    if (areas->elements >= AREA_LEAST) return OK;
    areas->elements = AREA_LEAST;
    for (int i = 0; i < 3; i++) {
        TRY(arena_take_array(&areas->own, AREA_LEAST, sizeof(double),
                             &areas->data[i]));
    }
    return OK;
}

/* FLOPs a second of a product [n, n] x [n, n] of the run's type. */
static status product_rate(const struct kernels *kernels,
                           struct stream *stream, const struct areas *areas,
                           int64_t n, double *flops)
{
    const struct sum_segment segment = {.length = n};
    const struct sum_order order = {&segment, 1, 1};
    const enum dtype dtype = kernels->dtype;
    const struct matmul call = {
        .c = tensor_2d(areas->data[0], dtype_real(dtype), n, n),
        .a = tensor_2d(areas->data[1], dtype, n, n),
        .b = tensor_2d(areas->data[2], dtype, n, n), .order = &order};
    int64_t best = INT64_MAX;

    for (int i = 0; i < 3; i++) {
        const int64_t began = meter_now_ns();

        TRY(kernels->matmul(stream, &call));
        const int64_t took = meter_now_ns() - began;

        if (took > 0 && took < best) best = took;
    }
    *flops = 2.0 * (double)(n * n * n) / (1e-9 * (double)best);
    return OK;
}

/* FLOPs a second of bare FMAs, the best of a few short probes. */
static double float32_rate(struct stage *stage)
{
    double best = 0;

    for (int i = 0; i < 4; i++) {
        const double flops =
            kernels_peak_flops(&stage->stream, stage->request.machine.isa,
                               0.005);

        if (flops > best) best = flops;
    }
    return best;
}

/* The limit of products that fit caches. If plain C computes them, a small
 * product is enough, and a large one would take long. */
static status product_limit(struct stage *stage, struct stream *stream,
                            const struct areas *areas,
                            struct profile_limits *limits)
{
    const struct kernels *kernels = &stage->host_kernels[0];
    double flops;

    TRY(product_rate(kernels, stream, areas, PRODUCT_SMALL, &flops));
    if (flops > rate_of_large)
        TRY(product_rate(kernels, stream, areas, PRODUCT_LARGE, &flops));
    /* Attention computes in float32 in any run that is not float64, but for its
     * products in tiles. */
    limits->attention_flops =
        kernels->dtype == DTYPE_F64   ? flops
        : kernels->dtype == DTYPE_F32 ? limits->product_flops
                                      : float32_rate(stage);
    if (flops > limits->product_flops || kernels->dtype != DTYPE_F32)
        limits->product_flops = flops;
    return OK;
}

static status measure_limits(struct stage *stage,
                             struct profile_limits *limits)
{
    struct areas areas = {0};
    struct stream *stream = &stage->stream;
    status result;

    if (stage->device != NULL) return device_limits_take(stage, limits);
    TRY_GOTO(done, result, areas_open(&areas, stage));
    for (int i = 0; i < 3; i++)
        memset(areas.data[i], PROFILE_ORDINARY,
               (size_t)areas.elements * sizeof(double));
    limits->memory_area = 3 * areas.elements *
                          dtype_bytes(stage->host_kernels[1].dtype);
    TRY_GOTO(done, result, profile_memory_rate(
        &stage->host_kernels[1], stream, areas.data, areas.elements,
        &limits->memory_bytes));
    TRY_GOTO(done, result, product_limit(stage, stream, &areas, limits));
done:
    arena_free(&areas.own);
    return result;
}

status profiler_finish(struct profiler *profiler, struct team *team,
                       struct stage *stage, double product_flops)
{
    struct profile_limits limits = {.product_flops = product_flops};
    void *profile = NULL;

    if (profiler->done == 0) return OK;
    TRY(device_finish(&stage->stream));
    TRY(measure_limits(stage, &limits));
    TRY(memory_take(1, sizeof *profiler->profile, &profile));
    profiler->profile = profile;
    profile_take(profile, &profiler->meter, &limits);
    profile_merge(profile);
    memcpy(profiler->kinds + profiler->rank * METER_KINDS,
           profiler->profile->kind_ms, sizeof profiler->profile->kind_ms);
    return team_join(team, profiler->kinds,
                     (int64_t)profiler->ranks * METER_KINDS);
}
