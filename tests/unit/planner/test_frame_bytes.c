/* SPDX-License-Identifier: Apache-2.0 */
/* test_frame_bytes.c - mirrors src/planner/frame_bytes.c. */
#include "planner/frame_bytes.h"

#include <string.h>

#include "planner/layout.h"
#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

static void open_model(struct shape *shape)
{
    static const char yaml[] =
        "model: {family: deepseek_v3, vocab: 4096, layers: 8, width: 512, "
        "heads: 8, kv_heads: 8, feed_forward: 1024, tied: false}\n"
        "mla: {query_rank: 256, rank: 128, nope: 64, rope: 32, value: 64}\n"
        "mtp: {depth: 1}\n"
        "moe: {experts: 16, top_k: 2, groups: 1, groups_chosen: 1, "
        "first_dense: 2, intermediate_size: 256, "
        "shared_intermediate_size: 256}\n";

    shape_of_text(shape, yaml, 2048);
}

static bool same(const struct frames *a, const struct frames *b)
{
    const double *x = (const double *)a, *y = (const double *)b;
    bool all = true;

    for (size_t i = 0; i < sizeof *a / sizeof *x; i++)
        all = all && x[i] == y[i];
    return all;
}

static struct layout layout_of(enum recompute again)
{
    return (struct layout){
        .as = AS_LOCKSTEP, .pipe = 2, .data = 1, .shard = 1, .context = 1,
        .tensor = 2, .expert = 2, .per_node = 8, .batch = 64,
        .micro_batch = 1, .microbatches = 8, .chunks = 1, .bits = 16,
        .schedule = "1f1b", .recompute = again};
}

/* Models that were planned with another recomputation and another order of the
 * backward pass are planned again as new ones. */
TEST(models_are_made_once)
{
    static const char *const schedules[] = {"1f1b", "zb-h1"};
    struct frame_models *models = NULL;
    struct frames shared[2][RECOMPUTES];
    struct shape shape;

    open_model(&shape);
    for (int turn = 0; turn < 4 * RECOMPUTES; turn++) {
        const int late = turn % 2, again = turn / 2 % RECOMPUTES;
        struct layout l = layout_of((enum recompute)again);
        struct frames alone;

        snprintf(l.schedule, sizeof l.schedule, "%s", schedules[late]);
        IS_OK(frames_ask(&models, &shared[late][again], &l, &shape));
        IS_OK(frames_of(&alone, &l, &shape));
        CHECK(same(&alone, &shared[late][again]));
    }
    CHECK(shared[0][RECOMPUTE_BLOCK].joint.mixed <
          shared[0][RECOMPUTE_NONE].joint.mixed);
    for (int i = 0; i < 2; i++) {
        struct layout l = layout_of(RECOMPUTE_NONE);
        struct frames latents;

        l.again_latent = true;
        IS_OK(i == 0 ? frames_of(&latents, &l, &shape)
                     : frames_ask(&models, &latents, &l, &shape));
        /* Queries, keys and values of 4 heads of 96, and results of 64, of
         * 2048 tokens in 2 bytes; rotary keys of a rank's half of them stay
         * for that. */
        EQUAL_INT((int)(shared[0][RECOMPUTE_NONE].kept.mixed -
                        latents.kept.mixed),
                  2 * 2048 * 4 * (3 * 96 + 64) - 2 * 1024 * 32);
    }
    CHECK(shared[0][RECOMPUTE_BLOCK].kept.mixed <
          shared[0][RECOMPUTE_NONE].kept.mixed);
    CHECK(!same(&shared[0][RECOMPUTE_NONE], &shared[1][RECOMPUTE_NONE]));
    frame_models_free(&models);
    CHECK(models == NULL);
}

TEST_MAIN(models_are_made_once)
