/* SPDX-License-Identifier: Apache-2.0 */
/* bound.c - the best possible speed of this machine with the kernels of a
 * step. */
#include "bench/bound.h"

#include <string.h>

#include "bench/peer_product.h"
#include "bench/probe.h"
#include "observe/device_limits.h"

enum { ROUNDS_LEAST = 3, ROUNDS_MOST = 50, SQUARE = 512 };
static const double seconds_each = 0.05;

/* Operands of the largest product, where the stream's kernels work. */
struct room {
    struct arena arena;
    struct stream *stream;
    void *data[3]; /* c, a, b; owned on a device apart */
};

static double elements_of(const struct profile_row *row, int operand)
{
    const int64_t *s = row->shape;

    return (double)s[operand == 2 ? 1 : 0] *
           (double)s[operand == 0 ? 1 : 2];
}

static status room_take(struct room *room, double elements, size_t each,
                        void **out)
{
    const size_t bytes = (size_t)elements * each;

    if (room->stream->device != NULL) {
        TRY(device_take(room->stream->device, bytes, out));
        return device_limits_fill(room->stream, *out, bytes);
    }
    TRY(arena_take_array(&room->arena, (size_t)elements, each, out));
    memset(*out, PROFILE_ORDINARY, bytes);
    return OK;
}

static status room_open(struct room *room, struct stream *stream,
                        enum dtype dtype, const struct profile *profile)
{
    const size_t bytes = (size_t)dtype_bytes(dtype_real(dtype));

    arena_init(&room->arena, "products", 0);
    room->stream = stream;
    for (int i = 0; i < 3; i++) {
        double most = 1;

        for (int r = 0; r < profile->count; r++)
            if (profile->rows[r].kind == METER_MATMUL &&
                elements_of(&profile->rows[r], i) > most)
                most = elements_of(&profile->rows[r], i);
        TRY(room_take(room, most, bytes, &room->data[i]));
    }
    return OK;
}

static void room_close(struct room *room)
{
    struct device *device = room->stream->device;

    for (int i = 0; device != NULL && i < 3; i++)
        device_give(device, room->data[i]);
    arena_free(&room->arena);
}

/* The product of a row with operands that lie as the row's did. */
static struct matmul call_of(const struct room *room, enum dtype dtype,
                             const struct profile_row *row)
{
    const int64_t m = row->shape[0], n = row->shape[1], k = row->shape[2];
    const bool a_turned = row->turned[0], b_turned = row->turned[1];
    struct matmul call = {
        .c = tensor_2d(room->data[0], a_turned ? dtype_real(dtype) : dtype, m,
                       n),
        .a = tensor_2d(room->data[1], dtype, m, k),
        .b = tensor_2d(room->data[2], dtype, k, n)};

    if (a_turned)
        call.a = tensor_transpose(tensor_2d(room->data[1], dtype, k, m));
    if (b_turned)
        call.b = tensor_transpose(tensor_2d(room->data[2], dtype, n, k));
    return call;
}

struct own { const struct kernels *kernels; struct matmul call; };

static status own_once(struct stream *stream, void *of)
{
    const struct own *own = of;

    return own->kernels->matmul(stream, &own->call);
}

/* Best seconds of one call; on a device apart those of its clock. */
static status own_time(const struct kernels *kernels, struct stream *stream,
                       const struct matmul *shape, double *seconds)
{
    const struct sum_segment segment = {.length = shape->a.shape[1]};
    const struct sum_order order = {&segment, 1, 1};
    const double start = probe_now_s();
    struct own own = {kernels, *shape};

    own.call.order = &order;
    if (stream->device != NULL)
        return device_limits_seconds(stream, own_once, &own, seconds);
    *seconds = 1e9;
    for (int i = 0; i < ROUNDS_MOST; i++) {
        const double began = probe_now_s();

        TRY(own_once(stream, &own));
        const double took = probe_now_s() - began;

        if (took < *seconds) *seconds = took;
        if (i + 1 >= ROUNDS_LEAST && probe_now_s() - start > seconds_each)
            break;
    }
    return OK;
}

/* Best seconds of one call by oneDNN; 0: it has no such product here. */
static double peer_time(const struct probe_peer *peer,
                        const struct matmul *call)
{
    struct peer_product product = {0};
    const double start = probe_now_s();
    double best = 0;

    if (peer->library != NULL &&
        peer_product_open(&product, peer->library, call))
        for (int i = 0; i < ROUNDS_MOST; i++) {
            const double began = probe_now_s();
            const bool ran = peer_product_run(&product);
            const double took = probe_now_s() - began;

            if (!ran) break;
            if (best == 0 || took < best) best = took;
            if (i + 1 >= ROUNDS_LEAST && probe_now_s() - start > seconds_each)
                break;
        }
    peer_product_close(&product);
    return best;
}

/* Limits of the rows of products; sums over them. A product inside the step may
 * be faster than alone: its weights may lie in caches. */
static status measure_products(struct bound *bound, struct stage *stage,
                               const struct probe_peer *peer,
                               struct profile *profile)
{
    const struct kernels *kernels =
        stage->device != NULL ? &stage->kernels : &stage->inner[0];
    const enum dtype dtype = stage->program.dtype;
    struct room room = {0};
    bool peer_has_all = true;
    status result;

    TRY_GOTO(done, result, room_open(&room, &stage->stream, dtype, profile));
    for (int i = 0; i < profile->count; i++) {
        struct profile_row *row = &profile->rows[i];
        double own, theirs;

        if (row->kind != METER_MATMUL || row->shape[0] == 0) continue;
        const struct matmul call = call_of(&room, dtype, row);

        TRY_GOTO(done, result, own_time(kernels, &stage->stream, &call, &own));
        theirs = peer_time(peer, &call);
        row->limit_ms = 1e3 * row->calls *
                        (theirs > 0 && theirs < own ? theirs : own);
        if (row->limit_ms > row->ms) row->limit_ms = row->ms;
        bound->own_ms += 1e3 * row->calls * own;
        bound->peer_ms += 1e3 * row->calls * theirs;
        peer_has_all = peer_has_all && theirs > 0;
        bound->best_ms += row->limit_ms;
        bound->flops += row->flops;
    }
    if (!peer_has_all) bound->peer_ms = 0;
done:
    room_close(&room);
    return result;
}

static bool has_own_limit(const struct profile_row *row)
{
    return row->kind == METER_MATMUL && row->shape[0] > 0;
}

/* FLOPs a second of a float32 product that fits caches: attention computes in
 * float32 whatever the type of its operands is, but for products in tiles. */
static status measure_float32(struct stage *stage, double *flops)
{
    const struct profile_row row = {
        .kind = METER_MATMUL, .name = "matmul", .label = "dx = dy W",
        .shape = {SQUARE, SQUARE, SQUARE}};
    struct profile one = {.rows = {row}, .count = 1};
    struct room room = {0};
    double seconds;
    status result;

    TRY_GOTO(done, result, room_open(&room, &stage->stream, DTYPE_F32, &one));
    const struct matmul call = call_of(&room, DTYPE_F32, &row);

    TRY_GOTO(done, result, own_time(&stage->inner[1], &stage->stream, &call,
                                    &seconds));
    *flops = 2.0 * SQUARE * SQUARE * SQUARE / seconds;
done:
    room_close(&room);
    return result;
}

static status measure_attention(const struct bound *bound,
                                struct stage *stage,
                                struct profile_limits *limits)
{
    limits->attention_flops = limits->product_flops;
    if (stage->device != NULL) limits->attention_flops = bound->attention_rate;
    else if (dtype_is_narrow(stage->program.dtype))
        return measure_float32(stage, &limits->attention_flops);
    return OK;
}

/* Limits of all other rows, at the rates that are known now. */
static status measure_others(struct bound *bound, struct stage *stage,
                             const struct meter *meter,
                             struct profile *profile)
{
    struct profile_limits limits = {
        .product_flops = bound->best_ms > 0
                             ? 1e3 * bound->flops / bound->best_ms : 0,
        .memory_bytes = bound->memory_rate};
    struct profile others;

    TRY(measure_attention(bound, stage, &limits));
    profile_take(&others, meter, &limits); /* the same rows in one order */
    for (int i = 0; i < profile->count; i++)
        if (!has_own_limit(&profile->rows[i]))
            profile->rows[i].limit_ms = others.rows[i].limit_ms;
    profile->limits = limits;
    return OK;
}

/* By the kernels of the device alone. */
static status measure_there(struct bound *bound, struct stage *stage,
                            const struct meter *meter, struct profile *profile)
{
    struct profile_limits limits;

    TRY(device_limits_take(stage, &limits));
    bound->memory_rate = limits.memory_bytes;
    bound->attention_rate = limits.attention_flops;
    TRY(measure_products(bound, stage, &(struct probe_peer){0}, profile));
    return measure_others(bound, stage, meter, profile);
}

/* A stage may leave too little of the device's memory for the operands of its
 * largest product; the steps were measured all the same. */
static status measure_apart(struct bound *bound, struct stage *stage,
                            const struct meter *meter, struct profile *profile)
{
    const status result = measure_there(bound, stage, meter, profile);

    if (result != ERR_MEMORY && result != ERR_DEVICE) return result;
    *bound = (struct bound){0};
    snprintf(bound->why_not, sizeof bound->why_not, "%s", status_message());
    status_clear();
    profile_take(profile, meter, &(struct profile_limits){0});
    return OK;
}

status bound_measure(struct bound *bound, struct stage *stage,
                     const struct meter *meter, struct profile *profile)
{
    struct probe_peer peer = {0};
    status result;

    *bound = (struct bound){0};
    profile_take(profile, meter, &(struct profile_limits){0});
    if (stage->device != NULL)
        return measure_apart(bound, stage, meter, profile);
    TRY_GOTO(done, result, probe_memory_rate(&stage->inner[1], &stage->stream,
                                             PROBE_AREA_BYTES,
                                             &bound->memory_rate));
    TRY_GOTO(done, result, probe_peer_open(&peer));
    if (peer.library != NULL)
        peer_threads(peer.library, threads_count(stage->threads));
    TRY_GOTO(done, result, measure_products(bound, stage, &peer, profile));
    TRY_GOTO(done, result, measure_others(bound, stage, meter, profile));
done:
    probe_peer_close(&peer);
    return result;
}
