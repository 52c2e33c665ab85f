/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - mirrors src/planner/memory.c: published memory of other
 * programs. */
#include "planner/memory.h"

#include <math.h>

#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

/* Korthikanti et al. 2022, arXiv:2205.05198, figure 1: GiB of the first stage:
 * weights, gradients and states (18 bytes for each of the 12 L h^2 parameters
 * of matrices), and activations with sequence parallelism and selective
 * recomputation. Table 5 has the layouts. */
static const struct {
    int heads, width, layers, tensor, pipe, chunks, batch, micro_batch;
    double states, activations;
} figure_1[] = {
    {64, 6144, 48, 8, 1, 1, 4, 4, 45.5625, 9.5625},
    {96, 12288, 96, 8, 8, 3, 64, 1, 45.5625, 12.3516},
    {128, 20480, 105, 8, 35, 3, 280, 1, 31.640625, 23.0762},
    {160, 25600, 128, 8, 64, 1, 512, 1, 32.958984, 26.5625},
};

TEST(megatron_figure_1)
{
    for (int i = 0; i < ROWS(figure_1); i++) {
        const double h = figure_1[i].width;
        const struct shape shape = {
            .layers = figure_1[i].layers, .heads = figure_1[i].heads,
            .kv_heads = figure_1[i].heads,
            .head_width = figure_1[i].width / figure_1[i].heads,
            .width = figure_1[i].width,
            .feed_forward = 4 * figure_1[i].width, .vocab = 51200,
            .sequence = 2048, .biased = true, .block.parameters = 12 * h * h};
        struct layout l = {
            .as = AS_MEGATRON, .pipe = figure_1[i].pipe, .data = 1,
            .shard = 1, .context = 1, .tensor = figure_1[i].tensor,
            .expert = 1, .batch = figure_1[i].batch,
            .micro_batch = figure_1[i].micro_batch,
            .microbatches = figure_1[i].batch / figure_1[i].micro_batch,
            .chunks = figure_1[i].chunks, .bits = 16,
            .recompute = RECOMPUTE_SELECTIVE, .sequence_parallel = true};
        struct memory m;
        double gib;

        snprintf(l.schedule, sizeof l.schedule, "%s",
                 l.chunks > 1 ? "interleaved" : "1f1b");
        memory_of(&l, &shape, 0, &m);
        gib = (m.weights + m.gradients + m.states) / 1073741824.0;
        CHECK(fabs(gib / figure_1[i].states - 1) < 1e-6);
        gib = m.activations / 1073741824.0;
        CHECK(fabs(gib / figure_1[i].activations - 1) < 0.02);
    }
}

/* Figure 7: activations of one micro-batch without sequence parallelism, of
 * those of tensor parallelism alone. */
TEST(megatron_figure_7)
{
    static const double published[4][2] = {
        {16.18, 49.42}, {18.49, 56.53}, {20.27, 62.04}, {20.27, 62.04}};

    for (int i = 0; i < ROWS(figure_1); i++) {
        const struct shape shape = {
            .layers = figure_1[i].layers, .heads = figure_1[i].heads,
            .width = figure_1[i].width, .sequence = 2048, .biased = true,
            .feed_forward = 4 * figure_1[i].width};
        struct layout l = {.as = AS_MEGATRON, .context = 1, .bits = 16,
                           .tensor = 8, .micro_batch = 1};
        const double whole = memory_block_activations(&l, &shape);

        l.recompute = RECOMPUTE_SELECTIVE;
        CHECK(fabs(100 * memory_block_activations(&l, &shape) / whole -
                   published[i][1]) < 0.2);
        l.sequence_parallel = true;
        CHECK(fabs(100 * memory_block_activations(&l, &shape) / whole -
                   published[i][0]) < 0.1);
    }
}

/* With inputs of products in 8 bits a block of Llama keeps for a token: both
 * norms' inputs (4 h), what they made as codes (2 h), q, k, v and attention's
 * output (4 q + 4 kv) and its codes (q), gate and up (4 f) and the codes of
 * their product (f), and the logarithm of each head's sum. Gradients of NeMo
 * have 2 bytes. */
TEST(inputs_of_products_are_kept_in_8_bits)
{
    const struct shape shape = {
        .layers = 2, .heads = 32, .kv_heads = 8, .head_width = 128,
        .width = 4096, .feed_forward = 14336, .vocab = 32000,
        .sequence = 4096, .gated = true, .block.parameters = 2e8};
    struct layout l = {.as = AS_MEGATRON_CORE, .pipe = 1, .data = 1, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .batch = 1,
                       .micro_batch = 1, .microbatches = 1, .chunks = 1,
                       .bits = 16, .schedule = "1f1b"};
    const double h = 4096, q = 4096, kv = 1024, f = 14336;
    const double wide = 8 * h + 4 * q + 4 * kv + 6 * f + 4 * 32;
    const double narrow = 6 * h + 5 * q + 4 * kv + 5 * f + 4 * 32;
    struct memory core, nemo;

    CHECK(memory_block_activations(&l, &shape) == 4096 * wide);
    l.bits = 8;
    CHECK(memory_block_activations(&l, &shape) == 4096 * narrow);
    memory_of(&l, &shape, 0, &core);
    l.as = AS_NEMO;
    CHECK(memory_block_activations(&l, &shape) == 4096 * narrow);
    memory_of(&l, &shape, 0, &nemo);
    CHECK(nemo.gradients == core.gradients / 2 && core.gradients > 0);
    CHECK(nemo.weights == core.weights && nemo.states == core.states);
    l.as = AS_TORCHTITAN; /* keeps what it rounds again */
    CHECK(memory_block_activations(&l, &shape) == 4096 * wide);
}

/* Adam on a model in bfloat16 holds weights and moments in it: 2 + 2 + 4 bytes
 * a parameter, where others have 4 + 4 + 8. */
TEST(states_of_automodel_are_narrow)
{
    const struct shape shape = {
        .layers = 2, .heads = 32, .kv_heads = 8, .head_width = 128,
        .width = 4096, .feed_forward = 14336, .vocab = 32000,
        .sequence = 4096, .gated = true, .block.parameters = 2e8};
    struct layout l = {.as = AS_TORCHTITAN, .pipe = 1, .data = 1, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .batch = 1,
                       .micro_batch = 1, .microbatches = 1, .chunks = 1,
                       .bits = 16, .schedule = "1f1b"};
    struct memory wide, narrow;

    memory_of(&l, &shape, 0, &wide);
    l.as = AS_AUTOMODEL;
    memory_of(&l, &shape, 0, &narrow);
    CHECK(wide.weights > 0 && wide.states == 2 * wide.weights);
    CHECK(narrow.weights == wide.weights / 2);
    CHECK(narrow.states == wide.states / 2);
    CHECK(narrow.gradients == wide.gradients / 2);
}

/* AutoModel's FSDP adds gradients of several micro-batches up whole, in the
 * float32 in which it sums them over ranks. KempnerForge's tensor ranks also
 * have all logits, in 8 bytes. */
TEST(gradients_of_micro_batches_are_whole)
{
    const struct shape shape = {
        .layers = 2, .heads = 32, .kv_heads = 8, .head_width = 128,
        .width = 4096, .feed_forward = 14336, .vocab = 32000,
        .sequence = 4096, .gated = true, .block.parameters = 2e8};
    struct layout l = {.as = AS_AUTOMODEL, .pipe = 1, .data = 8, .shard = 1,
                       .context = 1, .tensor = 2, .expert = 1, .batch = 8,
                       .micro_batch = 1, .microbatches = 1, .chunks = 1,
                       .bits = 16, .zero = 3, .schedule = "1f1b"};
    struct memory one, many, kempner;

    memory_of(&l, &shape, 0, &one);
    l.microbatches = 4;
    memory_of(&l, &shape, 0, &many);
    CHECK(one.gradients > 0 && many.gradients == 2 * 8 * one.gradients);
    l.as = AS_KEMPNERFORGE;
    memory_of(&l, &shape, 0, &kempner);
    CHECK(kempner.gradients == many.gradients);
    CHECK(kempner.logits - many.logits == 4096 * 32000 * (8 - 14 / 2.0));
    l.sums = SUMS_EACH;
    memory_of(&l, &shape, 0, &many);
    CHECK(many.gradients == one.gradients);
    l.sums = SUMS_AS_USUAL;
    l.data = 1;
    memory_of(&l, &shape, 0, &many);
    CHECK(many.gradients == 8 * one.gradients);
}

/* Weights that are frozen have 2 bytes, adapters 2, 4 and 8 more for their
 * copy in float32 and their moments. */
TEST(frozen_weights_have_no_copy)
{
    struct layout l = {.as = AS_NEMO, .pipe = 1, .data = 1, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .batch = 1,
                       .micro_batch = 1, .microbatches = 1, .chunks = 1,
                       .bits = 16, .schedule = "1f1b"};
    struct memory memory;
    struct shape shape;

    shape_of_text(&shape,
                  "model: {family: llama, vocab: 1000, layers: 4, width: 64, "
                  "heads: 4, kv_heads: 4, feed_forward: 160, tied: false}\n"
                  "lora: {rank: 8, targets: all}\n", 256);
    memory_of(&l, &shape, 0, &memory);
    CHECK(shape.lora.all > 0);
    CHECK(memory.states == 12 * 4 * shape.lora.all);
    CHECK(memory.weights > 2 * 4 * shape.block.parameters);
}

/* A block of width 64 and 160 keeps no input of a frozen product for W. With
 * adapters beside q, k and v it lacks what the second norm makes, and the
 * product of the gate; beside that product's matrix alone, what both norms
 * make; beside all, nothing. Attention keeps its output itself, so that the
 * codes for the product behind it are all that is left out. */
TEST(inputs_of_frozen_products_are_not_kept)
{
    static const struct {
        const char *targets;
        double wide, narrow; /* bytes of a token that are not kept */
    } cases[] = {{"all", 0, 0},
                 {"[q_proj, k_proj, v_proj]", 2 * 64 + 2 * 160, 64 + 64 + 160},
                 {"[o_proj, up_proj]", 2 * 64 + 2 * 160, 64 + 160},
                 {"[down_proj]", 2 * 2 * 64, 64 + 2 * 64}};
    static const char base[] =
        "model: {family: llama, vocab: 1000, layers: 4, width: 64, heads: 4, "
        "kv_heads: 4, feed_forward: 160, tied: false}\n";
    struct layout l = {.as = AS_NEMO, .pipe = 1, .data = 1, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .batch = 1,
                       .micro_batch = 1, .microbatches = 1, .chunks = 1,
                       .schedule = "1f1b"};
    struct shape plain, few;

    shape_of_text(&plain, base, 256);
    for (int i = 0; i < 4; i++) {
        char yaml[256];

        snprintf(yaml, sizeof yaml, "%slora: {rank: 8, targets: %s}\n", base,
                 cases[i].targets);
        shape_of_text(&few, yaml, 256);
        for (l.bits = 8; l.bits <= 16; l.bits += 8)
            CHECK(memory_block_activations(&l, &plain) -
                      memory_block_activations(&l, &few) ==
                  256 * (l.bits == 8 ? cases[i].narrow : cases[i].wide));
    }
}

/* A loss of torch that is not compiled holds 14 bytes for each logit, where 6
 * are usual; torchtitan keeps what every second product makes; FSDP keeps table
 * and head, and in a pipeline all weights and whole gradients. */
TEST(torch_holds_more_than_shards)
{
    const struct shape shape = {
        .layers = 4, .heads = 32, .kv_heads = 8, .head_width = 128,
        .width = 4096, .feed_forward = 14336, .vocab = 32000,
        .sequence = 4096, .gated = true, .block.parameters = 2e8,
        .outside = {.embedding = 32000 * 4096.0, .head = 32000 * 4096.0}};
    struct layout l = {.as = AS_TORCHTITAN, .pipe = 1, .data = 8, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .batch = 8,
                       .micro_batch = 1, .microbatches = 1, .chunks = 1,
                       .bits = 16, .zero = 3, .schedule = "1f1b"};
    const double h = 4096, q = 4096, kv = 1024, f = 14336;
    const double of_stage = 2 * 2e8 + 32000 * h;
    struct memory newer, older, plain, piped;

    memory_of(&l, &shape, 0, &newer);
    l.as = AS_TORCHTITAN_2024;
    memory_of(&l, &shape, 0, &older);
    CHECK(older.logits - newer.logits == 8 * 4096 * 32000.0);
    l.as = AS_JAX; /* no root */
    memory_of(&l, &shape, 0, &plain);
    CHECK(newer.gathered - plain.gathered == 2 * 2 * 32000 * h);
    l.recompute = RECOMPUTE_SELECTIVE;
    CHECK(memory_block_activations(&l, &shape) ==
          4096 * (4 * h + 4 * q + 4 * kv + 4 * f + 4 * 32));
    l.as = AS_TORCHTITAN;
    CHECK(memory_block_activations(&l, &shape) ==
          4096 * (4 * h + 4 * q + 2 * kv + 2 * f + 4 * 32));
    l.pipe = 2;
    l.microbatches = 8;
    memory_of(&l, &shape, 0, &piped);
    CHECK(piped.gradients == 4 * of_stage);
    CHECK(piped.gathered == 2 * of_stage + 4 * 2e8);
    l.as = AS_JAX;
    memory_of(&l, &shape, 0, &plain);
    CHECK(piped.gradients == 8 * plain.gradients);
}

/* Queries and keys of 16 heads have 192 elements, values and results 128; with
 * latents made again results and latents are left, and the norms of those. */
TEST(latents_are_kept_alone)
{
    const struct shape shape = {
        .heads = 16, .kv_heads = 16, .head_width = 192, .width = 2048,
        .feed_forward = 8192, .sequence = 4096, .gated = true,
        .model.mla = {.query_rank = 1536, .rank = 512, .nope = 128,
                      .rope = 64, .value = 128}};
    struct layout l = {.as = AS_MEGATRON_CORE, .context = 1, .bits = 16,
                       .tensor = 1, .micro_batch = 1};
    const double all = memory_block_activations(&l, &shape);

    l.again_latent = true;
    CHECK(memory_block_activations(&l, &shape) ==
          4096 * (2 * 16 * 128 + 4 * (1536 + 512) + 2 * 64 + 6 * 8192 +
                  4 * 16 + 8 * 2048.0));
    CHECK(all - memory_block_activations(&l, &shape) ==
          4096 * 2.0 * 16 * (2 * 192 + 128));
}

/* nanotron keeps what silu makes, and inputs of products whole unless it
 * gathers them again beside those. */
TEST(nanotron_keeps_what_it_gathers)
{
    const struct shape shape = {
        .heads = 32, .kv_heads = 8, .head_width = 128, .width = 4096,
        .feed_forward = 14336, .sequence = 4096, .gated = true};
    struct layout l = {.as = AS_MEGATRON_CORE, .context = 1, .bits = 16,
                       .tensor = 2, .micro_batch = 1,
                       .sequence_parallel = true};
    const double megatron = memory_block_activations(&l, &shape);
    double whole;

    l.as = AS_NANOTRON;
    whole = memory_block_activations(&l, &shape);
    CHECK(whole - megatron == 4096 * (2 * 14336 / 2 + 4 * 4096 / 2));
    l.overlap_tensor = true;
    CHECK(whole - memory_block_activations(&l, &shape) ==
          4096 * (4 * 4096 / 2));
}

TEST_MAIN(megatron_figure_1, megatron_figure_7, torch_holds_more_than_shards,
          nanotron_keeps_what_it_gathers, latents_are_kept_alone,
          gradients_of_micro_batches_are_whole,
          inputs_of_products_are_kept_in_8_bits,
          frozen_weights_have_no_copy, inputs_of_frozen_products_are_not_kept,
          states_of_automodel_are_narrow)
