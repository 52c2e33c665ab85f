/* SPDX-License-Identifier: Apache-2.0 */
/* test_micro_batch.c - mirrors src/setup/micro_batch.c: how many sequences a
 * device works on at once. */
#include "setup/micro_batch.h"

#include "tests/test.h"

/* 64 sequences of 1,024 tokens, with activations of 3 KB of floats, or of
 * that many for each block. */
static struct stage_request request_of(struct model *model, int layers)
{
    *model = (struct model){
        .layers = layers, .width = 256, .heads = 4, .kv_heads = 4,
        .head_width = 64, .feed_forward = 512, .vocab = 1000};
    return (struct stage_request){
        .model = model, .dtype = DTYPE_F32, .size.length = 1024,
        .machine.device = DEVICE_CPU};
}

static int64_t chosen(const struct stage_request *request,
                      enum device_kind device)
{
    struct stage_request own = *request;

    own.machine.device = device;
    return micro_batch_choose(&own, 64, 64);
}

TEST(a_small_batch_is_whole)
{
    struct model model;
    struct stage_request request = request_of(&model, 1);

    request.size.length = 16;
    EQUAL_INT(chosen(&request, DEVICE_CPU), 64);
    EQUAL_INT(chosen(&request, DEVICE_CUDA), 64);
}

/* 0.85 GB: little for a GPU. */
TEST(a_gpu_takes_more_at_once)
{
    struct model model;
    const struct stage_request request = request_of(&model, 1);

    CHECK(chosen(&request, DEVICE_CPU) < 16);
    EQUAL_INT(chosen(&request, DEVICE_CUDA), 64);
}

/* 13.6 GB: parts of 4 GiB, or of what train.memory gives room for. */
TEST(a_gpu_has_room_for_its_activations)
{
    struct model model;
    struct stage_request request = request_of(&model, 16);

    EQUAL_INT(chosen(&request, DEVICE_CUDA), 16);
    request.recomputation.fits = 64 * 0x1p30;
    EQUAL_INT(chosen(&request, DEVICE_CUDA), 64);
    request.recomputation.fits = 28 * 0x1p30;
    EQUAL_INT(chosen(&request, DEVICE_CUDA), 32);
}

/* No fewer than 8,192 tokens; and only subtrees of leaves. */
TEST(parts_of_a_gpu_are_not_small)
{
    struct model model;
    const struct stage_request request = request_of(&model, 200);

    EQUAL_INT(chosen(&request, DEVICE_CUDA), 8);
    EQUAL_INT(micro_batch_choose(
                  &(struct stage_request){.model = &model, .dtype = DTYPE_F32,
                                          .size.length = 1024,
                                          .machine.device = DEVICE_CUDA},
                  64, 4),
              16);
}

TEST_MAIN(a_small_batch_is_whole, a_gpu_takes_more_at_once,
          a_gpu_has_room_for_its_activations, parts_of_a_gpu_are_not_small)
