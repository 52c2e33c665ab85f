/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange.c - the closed forms of what a step sends; that they are what
 * is sent, tests/unit/proof/test_audit.c and every trial show. */
#include "plan/exchange.h"
#include "tests/test.h"

static const struct model model = {
    .kind = &model_llama, .vocab = 96, .layers = 2, .heads = 4, .kv_heads = 2,
    .head_width = 8, .width = 32, .feed_forward = 40, .context = 16,
    .rope.base = 10000, .norm_epsilon = 1e-5, .init_std = 0.02};

static void plan(struct pipeline *pipeline, const char *zero, int data,
                 int shard, int rank)
{
    struct pipeline_request request = {.stage = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {8 / (data * shard), 2, 1, 0},
        .layout.mesh = mesh_alone(),
        .size.batch = 8 / (data * shard), .size.micro_batch = 1,
        .size.length = 16,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .machine.threads = 1}};

    request.stage.layout.mesh.size[AXIS_DATA] = data;
    request.stage.layout.mesh.size[AXIS_SHARD] = shard;
    request.stage.layout.place.at[AXIS_DATA] = rank / shard;
    request.stage.layout.place.at[AXIS_SHARD] = rank % shard;
    IS_OK(division_parse(&request.stage.divided.division, zero));
    IS_OK(pipeline_plan(pipeline, &request));
}

static const struct {
    const char *zero;
    int data, shard;
    int gradients, weights; /* times (ranks - 1) parameters, all ranks */
} rows[] = {
    {"ddp", 4, 1, 2, 0},   {"ddp", 2, 4, 2, 0},   {"zero1", 4, 1, 1, 1},
    {"zero1", 8, 1, 1, 1}, {"zero1", 2, 2, 1, 1}, {"zero1", 1, 4, 1, 1},
};

TEST(all_ranks_together_send_the_closed_form)
{
    for (int i = 0; i < ROWS(rows); i++) {
        const int ranks = rows[i].data * rows[i].shard;
        int64_t gradients = 0, weights = 0, arena = 0;

        for (int rank = 0; rank < ranks; rank++) {
            struct exchanges exchanges;
            struct pipeline pipeline;

            plan(&pipeline, rows[i].zero, rows[i].data, rows[i].shard, rank);
            exchanges_of(&exchanges, &pipeline);
            for (int j = 0; j < exchanges.count; j++) {
                const struct exchange *e = &exchanges.items[j];

                if (e->what == SENT_GRADIENTS) gradients += e->bytes;
                if (e->what == SENT_WEIGHTS) weights += e->bytes;
            }
            arena = pipeline.stages[0].program.params.elements *
                    dtype_bytes(pipeline.stages[0].program.dtype);
            pipeline_free(&pipeline);
        }
        EQUAL_INT(gradients, rows[i].gradients * (ranks - 1) * arena);
        EQUAL_INT(weights, rows[i].weights * (ranks - 1) * arena);
    }
}

TEST(one_rank_sends_nothing)
{
    struct exchanges exchanges;
    struct pipeline pipeline;

    plan(&pipeline, "zero1", 1, 1, 0);
    exchanges_of(&exchanges, &pipeline);
    EQUAL_INT(exchanges.count, 0);
    pipeline_free(&pipeline);
}

TEST_MAIN(all_ranks_together_send_the_closed_form, one_rank_sends_nothing)
