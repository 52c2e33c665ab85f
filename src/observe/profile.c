/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c - where the time of a step went, against what this machine can
 * do. */
#include "observe/profile.h"

#include <stdlib.h>
#include <string.h>

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Products and attention are held to the rate of products, and exponentials
 * beside products in tiles to that of float32, or to memory where that takes
 * longer; the rest to memory: what a message brings is read here and written
 * there. Waits have no limit. */
static double limit_of(const struct profile_row *row,
                       const struct profile_limits *limits)
{
    double rate = 0, ms = 0, bytes = row->bytes;

    switch (row->kind) {
    case METER_MATMUL:
        rate = limits->product_flops;
        break;
    case METER_ATTENTION:
        rate = row->lane_flops > 0 ? limits->product_flops
                                   : limits->attention_flops;
        break;
    case METER_MESSAGES:
        bytes *= 2;
        break;
    case METER_MEMORY:
    case METER_OPTIMIZER:
        break;
    default:
        return 0;
    }
    if (rate > 0) ms = 1e3 * row->flops / rate;
    if (row->lane_flops > 0 && limits->attention_flops > 0)
        ms += 1e3 * row->lane_flops / limits->attention_flops;
    if (limits->memory_bytes > 0)
        ms = larger(ms, 1e3 * bytes / limits->memory_bytes);
    return ms;
}

static int by_kind_and_time(const void *left, const void *right)
{
    const struct profile_row *a = left, *b = right;

    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return a->ms > b->ms ? -1 : a->ms < b->ms;
}

/* Adds the time of all enclosing spans that no inner span covers: one row. */
static void add_unaccounted(struct profile *p, double ms)
{
    if (p->count == 0 || p->rows[p->count - 1].kind != METER_OTHER)
        p->rows[p->count++] = (struct profile_row){
            .kind = METER_OTHER, .name = meter_kind_name(METER_OTHER)};
    p->rows[p->count - 1].ms += ms;
    p->rows[p->count - 1].calls = 1;
}

/* One row, of a step; returns its milliseconds. */
static double take_row(struct profile *profile, const struct meter_row *from,
                       double steps)
{
    struct profile_row *to = &profile->rows[profile->count];

    if (from->calls == 0 || profile->count == METER_ROWS_MAX) return 0;
    *to = (struct profile_row){
        .kind = from->kind, .name = from->name,
        .calls = (double)from->calls / steps,
        .ms = 1e-6 * (double)from->own_ns / steps,
        .flops = from->flops / steps, .bytes = from->bytes / steps,
        .lane_flops = from->lane_flops / steps,
        .longest_ms = 1e-6 * (double)from->longest_ns,
        .longest_in = from->longest_in};
    memcpy(to->label, from->label, sizeof to->label);
    memcpy(to->shape, from->shape, sizeof to->shape);
    memcpy(to->turned, from->turned, sizeof to->turned);
    to->limit_ms = limit_of(to, &profile->limits);
    profile->count++;
    return to->ms;
}

/* Kernels that another thread made are those of a device apart: the rank, which
 * waits for them, has that time in no row of its own. */
static double take_kernels(struct profile *profile,
                           const struct meter_track *track, double steps)
{
    double ms = 0;

    for (int i = 0; i < track->row_count; i++) {
        const enum meter_kind kind = track->rows[i].kind;

        if (kind == METER_MATMUL || kind == METER_ATTENTION ||
            kind == METER_MEMORY || kind == METER_OPTIMIZER)
            ms += take_row(profile, &track->rows[i], steps);
    }
    return ms;
}

void profile_take(struct profile *profile, const struct meter *meter,
                  const struct profile_limits *limits)
{
    const struct meter_track *track = &meter->tracks[0];
    const double steps = track->steps > 0 ? (double)track->steps : 1;
    double unaccounted = 0;

    *profile = (struct profile){.limits = *limits, .steps = track->steps,
                                .step_ms = 1e-6 * (double)track->total_ns /
                                           steps};
    for (int i = 0; i < track->row_count; i++) {
        const struct meter_row *from = &track->rows[i];

        if (from->kind == METER_OTHER)
            unaccounted += 1e-6 * (double)from->own_ns / steps;
        else
            take_row(profile, from, steps);
    }
    for (int t = 1; t < meter->used; t++)
        unaccounted -= take_kernels(profile, &meter->tracks[t], steps);
    if (unaccounted < 0) unaccounted = 0; /* the device worked beside it */
    /* There is a step, so there is a row that was left out. */
    if (profile->count < METER_ROWS_MAX) add_unaccounted(profile, unaccounted);
    qsort(profile->rows, (size_t)profile->count, sizeof *profile->rows,
          by_kind_and_time);
}

static void add_row(struct profile_row *to, const struct profile_row *from)
{
    to->calls += from->calls;
    to->ms += from->ms;
    to->flops += from->flops;
    to->lane_flops += from->lane_flops;
    to->bytes += from->bytes;
    to->limit_ms += from->limit_ms;
    if (from->longest_ms > to->longest_ms) {
        to->longest_ms = from->longest_ms;
        to->longest_in = from->longest_in;
    }
    memset(to->shape, 0, sizeof to->shape);
}

void profile_merge(struct profile *profile)
{
    int count = 0;

    for (int k = 0; k < METER_KINDS; k++) {
        profile->kind_ms[k] = 0;
        profile->kinds[k] = (struct profile_row){
            .kind = (enum meter_kind)k,
            .name = meter_kind_name((enum meter_kind)k)};
    }
    for (int i = 0; i < profile->count; i++) {
        const struct profile_row row = profile->rows[i];
        int at = 0;

        while (at < count && (profile->rows[at].name != row.name ||
                              profile->rows[at].kind != row.kind ||
                              strcmp(profile->rows[at].label, row.label) != 0))
            at++;
        if (at < count) add_row(&profile->rows[at], &row);
        else profile->rows[count++] = row;
        profile->kind_ms[row.kind] += row.ms;
        add_row(&profile->kinds[row.kind], &row);
    }
    profile->count = count;
    qsort(profile->rows, (size_t)count, sizeof *profile->rows,
          by_kind_and_time);
}

double profile_bound_ms(const struct profile *profile)
{
    double ms = 0;

    for (int i = 0; i < profile->count; i++) ms += profile->rows[i].limit_ms;
    return ms;
}

status profile_memory_rate(const struct kernels *kernels,
                           struct stream *stream, void *const areas[3],
                           int64_t count, double *bytes_per_s)
{
    const struct tensor c = tensor_1d(areas[0], kernels->dtype, count);
    const struct tensor a = tensor_1d(areas[1], kernels->dtype, count);
    const struct tensor b = tensor_1d(areas[2], kernels->dtype, count);
    int64_t best = INT64_MAX;

    for (int i = 0; i < 5; i++) {
        const int64_t began = meter_now_ns();

        TRY(kernels->add(stream, c, a, b));
        const int64_t took = meter_now_ns() - began;

        if (took < best) best = took;
    }
    *bytes_per_s = 3.0 * dtype_bytes(kernels->dtype) * (double)count /
                   (1e-9 * (double)(best > 0 ? best : 1));
    return OK;
}
