/* SPDX-License-Identifier: Apache-2.0 */
/* test_stage_balance.c - mirrors src/planner/stage_balance.c. */
#include "planner/stage_balance.h"

#include "plan/fit.h"
#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

static struct layout layout_with(int pipe, int chunks, const char *schedule)
{
    struct layout l = {.as = AS_LOCKSTEP, .pipe = pipe, .chunks = chunks,
                       .data = 1, .shard = 1, .context = 1, .tensor = 1,
                       .expert = 1};

    snprintf(l.schedule, sizeof l.schedule, "%s", schedule);
    return l;
}

/* Source: Llama Team 2024, arXiv:2407.21783, section 3.3.2: the first stage has
 * the embedding alone, the last one the head and the loss. */
TEST(llama_405b_has_its_published_stages)
{
    static const char yaml[] =
        "model: {family: llama, vocab: 128256, layers: 126, width: 16384, "
        "heads: 128, kv_heads: 8, feed_forward: 53248, tied: false}\n";
    struct layout l = layout_with(16, 8, "interleaved");
    struct shape shape;

    shape_of_text(&shape, yaml, 8192);
    l.head_blocks = stage_balance(&l, &shape);
    EQUAL_INT(l.head_blocks, 1);
    for (int i = 0; i < 128; i++)
        EQUAL_INT(layout_blocks(&l, &shape, i), i > 0 && i < 127);
    /* One stage a rank: 7, 14 times 8, 7. */
    l = layout_with(16, 1, "1f1b");
    l.head_blocks = stage_balance(&l, &shape);
    for (int i = 0; i < 16; i++)
        EQUAL_INT(layout_blocks(&l, &shape, i), i > 0 && i < 15 ? 8 : 7);
    /* 130 stages of 126 blocks: some would have none. */
    l = layout_with(65, 2, "interleaved");
    CHECK(stage_balance(&l, &shape) < 0);
}

/* A head of frozen weights costs what a frozen block of as many costs. */
TEST(adapters_change_no_division)
{
#define WIDE "model: {family: llama, vocab: 128256, layers: 32, width: 4096, " \
             "heads: 32, kv_heads: 8, feed_forward: 14336, tied: false}\n"
    struct shape whole, few;

    shape_of_text(&whole, WIDE, 4096);
    shape_of_text(&few, WIDE "lora: {rank: 1, targets: all}\n", 4096);
    for (int pipe = 2; pipe <= 8; pipe *= 2)
        for (int again = 0; again < 2; again++) {
            struct layout l = layout_with(pipe, 1, "1f1b");

            if (again) l.recompute = RECOMPUTE_BLOCK;
            EQUAL_INT(stage_balance(&l, &few), stage_balance(&l, &whole));
        }
}

static double busiest(const struct layout *l, const struct shape *s,
                      double head)
{
    double most = 0;

    for (int p = 0; p < l->pipe; p++) {
        double work = 0;

        for (int c = 0; c < l->chunks; c++) {
            const int stage = layout_stage(l, c, p);

            work += layout_blocks(l, s, stage) +
                    (stage == l->pipe * l->chunks - 1 ? head : 0);
        }
        if (work > most) most = work;
    }
    return most;
}

/* The trainer takes every division (mesh.layers), and none is worse than the
 * even one. */
TEST(divisions_are_legal_and_no_worse)
{
    static const char *const schedules[] = {"1f1b", "interleaved", "zb-v"};
    static const char yaml[] =
        "model: {family: llama, vocab: %d, layers: %d, width: 512, heads: 8, "
        "feed_forward: 1408, tied: false}\n";
    int better = 0;

    for (int layers = 4; layers < 40; layers++)
        for (int i = 0; i < 3 * 2 * ROWS(schedules); i++) {
            const int pipe = 2 << i % 3, vocab = 4096 << 2 * (i / 3 % 2);
            const int chunks = i / 6 == 0 ? 1 : 2;
            struct layout l = layout_with(pipe, chunks, schedules[i / 6]);
            struct layout even = l;
            struct shape shape;
            char text[200];
            int sum = 0;

            snprintf(text, sizeof text, yaml, vocab, layers);
            shape_of_text(&shape, text, 512);
            const double head =
                512.0 * vocab /
                ((shape_flops_causal(&shape) / 6 - 512.0 * vocab) / layers);

            l.head_blocks = stage_balance(&l, &shape);
            if (l.head_blocks < 0) {
                CHECK(pipe * chunks > layers);
                continue;
            }
            for (int stage = 0; stage < pipe * chunks; stage++) {
                const int blocks = layout_blocks(&l, &shape, stage);
                const bool outer = stage == 0 || stage == pipe * chunks - 1;

                CHECK(blocks >= (outer && l.head_blocks > 0 ? 0 : 1));
                sum += blocks;
            }
            EQUAL_INT(sum, layers);
            CHECK(busiest(&l, &shape, head) <=
                  busiest(&even, &shape, head) + 1e-9);
            better += l.head_blocks > 0;
        }
    print_message("%d divisions with fewer blocks beside the head\n", better);
    CHECK(better > 100);
}

TEST_MAIN(llama_405b_has_its_published_stages, adapters_change_no_division,
          divisions_are_legal_and_no_worse)
