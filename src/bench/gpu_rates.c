/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_rates.c - the best rates of the first GPU: of its kernels alone, in
 * memory that is larger than its caches. */
#include "bench/gpu_rates.h"

#include <stdio.h>
#include "base/child.h"
#include "kernels/cuda_about.h"
#include "observe/device_limits.h"

enum { AREA_BYTES = 64 << 20, LAUNCH_BYTES = 1 << 16, WIDEST = 4096 };
enum { PATIENCE_MS = 60000, WHY_BYTES = 320 };

struct bench {
    struct device_choice choice;
    struct device *device;
    struct stream stream;
    struct kernels narrow, real, inner[2], behind[2];
    void *ring;            /* owned, pinned */
    size_t ring_bytes;
};

static status open_gpu(struct bench *b)
{
    void *there, *room;

    TRY(device_open(&b->device, &b->choice));
    b->ring_bytes = device_ring_bytes(&b->choice);
    TRY(memory_take(b->ring_bytes, 1, &b->ring));
    device_pin(b->device, b->ring, b->ring_bytes, true);
    TRY(device_take(b->device, b->ring_bytes, &there));
    device_ring(b->device, b->ring, there, b->ring_bytes);
    const size_t bytes = device_room_bytes(&b->choice);

    if (bytes == 0) return OK;
    TRY(device_take(b->device, bytes, &room));
    device_room(b->device, room, bytes);
    return OK;
}

/* Tables that measure themselves, as those of a step do. */
static status make_tables(struct bench *b)
{
    TRY(kernels_get(&b->narrow, DTYPE_BF16, ISA_PLAIN));
    TRY(kernels_get(&b->real, DTYPE_F32, ISA_PLAIN));
    (void)kernels_cuda(&b->narrow);
    (void)kernels_cuda(&b->real);
    b->stream.device = b->device;
    kernels_meter(&b->narrow, &b->real, b->inner, &b->stream);
    kernels_launch(&b->narrow, &b->real, b->behind, &b->stream);
    device_join(b->device, &b->stream);
    return OK;
}

static status measure(struct bench *b, struct gpu_rates *out)
{
    struct device_limits_on on = {.kernels = &b->narrow, .real = &b->real,
                                  .stream = &b->stream, .bytes = AREA_BYTES};
    struct profile_limits limits;

    TRY(open_gpu(b));
    TRY(make_tables(b));
    for (int i = 0; i < 3; i++)
        TRY(device_take(b->device, AREA_BYTES, &on.areas[i]));
    TRY(device_limits_measure(&on, &limits));
    out->memory_bytes = limits.memory_bytes;
    out->float32_flops = limits.attention_flops;
    out->bfloat16_flops = limits.product_flops;
    return OK;
}

static status measure_once(struct gpu_rates *out)
{
    struct bench b = {.choice = {.kind = DEVICE_CUDA,
                                 .haste = DEVICE_STRAIGHT, .threads = 1,
                                 .launch_bytes = LAUNCH_BYTES,
                                 .kernels = &cuda_kernels}};
    status result;

    if (out->by_library) {
        b.choice.products.sums = products_sums(1);
        b.choice.products.widest = WIDEST;
        b.choice.products.number = GPU_BFLOAT16;
        b.choice.products.aligned = true;
    }
    result = measure(&b, out);
    if (b.ring != NULL)
        device_pin(b.device, b.ring, b.ring_bytes, false);
    device_close(b.device);
    memory_free(b.ring);
    return result;
}

/* A library that is there may not work with this GPU. */
static status measure_rates(struct gpu_rates *out)
{
    char text[320];

    *out = (struct gpu_rates){.by_library = cuda_products(text, sizeof text)};
    if (out->by_library) {
        if (measure_once(out) == OK) return OK;
        status_clear();
        out->by_library = false;
    }
    return measure_once(out);
}

struct answer {
    status result;
    struct gpu_rates rates;
    char why[WHY_BYTES];
};

static void measure_there(void *to, const void *of)
{
    struct answer *answer = to;

    (void)of;
    answer->result = measure_rates(&answer->rates);
    if (answer->result != OK)
        snprintf(answer->why, sizeof answer->why, "%s", status_message());
}

/* In a process of its own, for a GPU may not end what it was given. */
status gpu_rates_measure(struct gpu_rates *out)
{
    struct answer heard;

    *out = (struct gpu_rates){0};
    switch (child_ask(measure_there, NULL, &heard, sizeof heard,
                      PATIENCE_MS)) {
    case CHILD_ANSWERED: break;
    case CHILD_NONE:
        FAIL(ERR_DEVICE, "a process that measures cannot be started");
    case CHILD_ENDED:
        FAIL(ERR_DEVICE, "the process that measured ended without an answer");
    case CHILD_LATE:
        FAIL(ERR_DEVICE, "GPU 0 has not ended what it was given within %d s",
             PATIENCE_MS / 1000);
    }
    if (heard.result != OK) FAIL(heard.result, "%s", heard.why);
    *out = heard.rates;
    return OK;
}
