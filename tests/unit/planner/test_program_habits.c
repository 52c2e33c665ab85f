/* SPDX-License-Identifier: Apache-2.0 */
/* test_program_habits.c - programs whose steps are predicted: which of them a
 * machine has, products of 8 bits, messages that lie beside work. Mirrors
 * program_habits.c and parts of layout.c, cost.c, step_tail.c and steps.c. */
#include <math.h>
#include <string.h>

#include "planner/predict.h"
#include "planner/step_tail.h"
#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

static void open_both(struct shape *shape, struct machine *machine)
{
    static const char yaml[] =
        "model: {family: mixtral, vocab: 32768, layers: 8, width: 4096, "
        "heads: 32, kv_heads: 8, feed_forward: 8192, tied: false}\n"
        "moe: {experts: 8, top_k: 2}\n";

    shape_of_text(shape, yaml, 4096);
    IS_OK(machine_open(machine, &(struct machine_choice){.what = "h100"}));
}

static struct layout layout_with(enum program_as as, const char *schedule)
{
    struct layout l = {.as = as, .pipe = 4, .data = 4, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 4, .per_node = 8,
                       .batch = 128, .micro_batch = 1, .microbatches = 8,
                       .chunks = strcmp(schedule, "1f1b") == 0 ? 1 : 2,
                       .bits = 16, .zero = 1};

    snprintf(l.schedule, sizeof l.schedule, "%s", schedule);
    return l;
}

static double step_of(const struct cost *cost)
{
    const struct weather weather = {.slow = NULL};
    struct prediction p;

    IS_OK(predict(&p, cost, &weather));
    return p.step_s;
}

/* Published steps on H100 are of a younger Megatron-LM than those on A100. */
TEST(megatron_depends_on_the_machine)
{
    struct machine machine;

    for (int i = 0; i < machine_preset_count; i++) {
        const char *name = machine_presets[i].name;
        const bool old = name[0] == 'a' || strcmp(name, "cpu") == 0 ||
                         strcmp(name, "tpu-v4") == 0;

        machine_from_preset(&machine, &machine_presets[i]);
        CHECK(layout_program(AS_MEGATRON, &machine) ==
              (old ? AS_MEGATRON : AS_MEGATRON_CORE));
        CHECK(layout_program(AS_LOCKSTEP, &machine) == AS_LOCKSTEP);
        machine_free(&machine);
    }
}

TEST(a_recipe_has_8_bits_where_the_program_does)
{
    struct options_set set;

    IS_OK(options_init(&set));
    IS_OK(options_assign(&set, "train.dtype=bfloat16", ORIGIN_COMMAND_LINE));
    CHECK(layout_bits(&set.values, AS_MEGATRON) == 16);
    IS_OK(options_assign(&set, "numerics.recipe=fp8-tiles",
                         ORIGIN_COMMAND_LINE));
    CHECK(layout_bits(&set.values, AS_MEGATRON) == 8);
    CHECK(layout_bits(&set.values, AS_LOCKSTEP) == 16);
    CHECK(!layout_has_4_bits(&set.values, AS_MEGATRON));
    IS_OK(options_assign(&set, "numerics.recipe=nvfp4", ORIGIN_COMMAND_LINE));
    CHECK(layout_bits(&set.values, AS_MEGATRON) == 8);
    CHECK(layout_has_4_bits(&set.values, AS_MEGATRON));
    CHECK(!layout_has_4_bits(&set.values, AS_LOCKSTEP));
    IS_OK(options_assign(&set, "train.dtype=float32", ORIGIN_COMMAND_LINE));
    CHECK(layout_bits(&set.values, AS_MEGATRON) == 32);
    CHECK(!layout_has_4_bits(&set.values, AS_MEGATRON));
    options_free(&set);
}

/* Products of blocks take half of the time; attention and head take as long;
 * numbers are made narrow. */
TEST(eight_bits_make_products_of_blocks_faster)
{
    struct layout wide = layout_with(AS_MEGATRON_CORE, "1f1b"), narrow = wide;
    struct passes before, after;
    struct machine machine;
    struct shape shape;

    open_both(&shape, &machine);
    narrow.bits = 8;
    const struct cost one = {&machine, &shape, &wide};
    const struct cost two = {&machine, &shape, &narrow};

    cost_block(&one, &before);
    cost_block(&two, &after);
    for (int i = 0; i < COST_PASSES; i++) {
        const double *a = before.pass[i].seconds, *b = after.pass[i].seconds;

        CHECK(b[CAUSE_PRODUCT] < 0.6 * a[CAUSE_PRODUCT]);
        CHECK(b[CAUSE_ATTENTION] == a[CAUSE_ATTENTION]);
        CHECK(i == COST_W ? b[CAUSE_MEMORY] == a[CAUSE_MEMORY]
                          : b[CAUSE_MEMORY] > a[CAUSE_MEMORY]);
    }
    cost_head(&one, &before);
    cost_head(&two, &after);
    CHECK(after.pass[COST_F].seconds[CAUSE_PRODUCT] ==
          before.pass[COST_F].seconds[CAUSE_PRODUCT]);
    CHECK(cost_attention_rate(&one, 1024, 64, false) ==
          cost_attention_rate(&two, 1024, 64, false));
    machine_free(&machine);
}

/* Bytes that a pass of a dense block moves, beside products, with `bits` of
 * them and so many micro-batches. */
static double moved_by(enum program_as as, int pass, int bits, int microbatches)
{
    static const char yaml[] =
        "model: {family: llama, vocab: 32000, layers: 4, width: 1024, "
        "heads: 8, feed_forward: 4096}\n";
    struct layout l = layout_with(as, "1f1b");
    struct machine machine;
    struct passes block;
    struct shape shape;

    l.expert = 1;
    l.bits = bits;
    l.microbatches = microbatches;
    shape_of_text(&shape, yaml, 2048);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    cost_block(&(struct cost){&machine, &shape, &l}, &block);
    const double bytes = block.pass[pass].seconds[CAUSE_MEMORY] *
                         machine.value[M_MEMORY_RATE] * machine.value[M_MEMORY];

    machine_free(&machine);
    return bytes;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-6 * (1 + b); }

/* Products of a block read 3 x 1024 + 4096 elements of a token, make 5 x 1024 +
 * 2 x 4096, and have 4 x 1024 x 1024 + 3 x 1024 x 4096 weights: q, k and v, the
 * way back, gate and up, down. Kept codes are made once: rows with 3 bytes and
 * gradients with 4, weights once in 8 micro-batches. */
TEST(codes_are_made_once_where_they_are_kept)
{
    static const int core = AS_MEGATRON_CORE, titan = AS_TORCHTITAN;
    const double rows = 2048, weights = 4.0 * (1 << 20) + 3.0 * (4 << 20);
    double more[2][COST_PASSES];

    for (int pass = 0; pass < COST_PASSES; pass++) {
        more[0][pass] = moved_by(core, pass, 8, 8) -
                        moved_by(core, pass, 16, 8);
        more[1][pass] = moved_by(titan, pass, 8, 8) -
                        moved_by(titan, pass, 16, 8);
    }
    const double out = (more[0][COST_B]) / 4 / rows;
    const double in = (more[0][COST_F] - 4 * weights / 8) / 3 / rows;

    CHECK(near(in, 3 * 1024 + 4096));
    CHECK(near(out, 5 * 1024 + 2 * 4096));
    CHECK(moved_by(core, COST_W, 8, 1) == moved_by(core, COST_W, 16, 1));
    CHECK(near(more[1][COST_F], 3 * (in * rows + weights)));
    CHECK(near(more[1][COST_B], 3 * (out * rows + weights)));
    CHECK(near(more[1][COST_W], 3 * (in + out) * rows));
}

/* A product adds to sums of 4 bytes while it computes; other programs read and
 * write them apart. */
TEST(sums_of_gradients_are_hidden_under_products)
{
    const double weights = 4.0 * (1 << 20) + 3.0 * (4 << 20);
    const double apart = moved_by(AS_TORCHTITAN, COST_W, 16, 8) -
                         moved_by(AS_TORCHTITAN, COST_W, 16, 1);

    CHECK(moved_by(AS_MEGATRON_CORE, COST_W, 16, 8) -
              moved_by(AS_MEGATRON_CORE, COST_W, 16, 1) < 0.01 * apart);
    CHECK(fabs(apart / (8 * weights) - 1) < 0.02); /* norms have some */
    /* In 8 bits products are too short for that. */
    CHECK(moved_by(AS_MEGATRON_CORE, COST_W, 8, 8) > 0);
    CHECK(moved_by(AS_MEGATRON_CORE, COST_W, 8, 8) < 0.9 * apart);
}

/* Where torch is not compiled each operation is a kernel. A token of the block
 * above has two norms of 1024, q and k of 1024, a gate of 4096 and two sums; in
 * B the gradients of three inputs of products, and of two, are added, too. */
TEST(operations_that_are_not_compiled_move_their_own_bytes)
{
    const double f = 2 * 1024 * 18 + 2 * 1024 * 10 + 4096 * 5 + 2 * 1024 * 3;
    const double b = 2 * 1024 * 46 + 2 * 1024 * 10 + 4096 * 9 +
                     (1 + 2 + 2) * 1024 * 3;
    const double rows = 2048;

    CHECK(near(moved_by(AS_PYTORCH, COST_F, 16, 1), 2 * rows * f));
    CHECK(near(moved_by(AS_PYTORCH, COST_B, 16, 1), 2 * rows * b));
    CHECK(moved_by(AS_PYTORCH_BF16, COST_F, 16, 1) ==
          moved_by(AS_PYTORCH, COST_F, 16, 1));
    CHECK(moved_by(AS_TORCHTITAN, COST_F, 16, 1) < 0.4 * 2 * rows * f);
}

/* FSDP of single parameters reads and writes gathered weights once more in F
 * and in B, and gradients in both types. Blocks that are made again are not
 * gathered again. */
TEST(weights_are_copied_to_their_places)
{
    static const enum program_as programs[] = {AS_TORCHTITAN, AS_PYTORCH,
                                               AS_TORCHTITAN_BF16, AS_JAX};
    struct machine machine;
    struct shape shape;

    open_both(&shape, &machine);
    for (int i = 0; i < 8; i++) {
        struct layout l = layout_with(programs[i / 2], "1f1b");
        const struct cost cost = {&machine, &shape, &l};
        struct passes whole, cut;

        l.expert = 1;
        l.recompute = i % 2 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
        cost_block(&cost, &whole);
        l.zero = 3;
        cost_block(&cost, &cut);
        for (int pass = 0; pass < COST_PASSES; pass++) {
            const double more = cut.pass[pass].seconds[CAUSE_MEMORY] -
                                whole.pass[pass].seconds[CAUSE_MEMORY];
            const double bytes = more * machine.value[M_MEMORY_RATE] *
                                 machine.value[M_MEMORY];

            CHECK(near(bytes / shape.block.parameters,
                       i >= 4 ? 0 : pass == COST_W ? 6 : 4));
        }
    }
    machine_free(&machine);
}

/* Exchanges of experts lie under products of the other micro-batch. */
TEST(dualpipe_hides_exchanges_of_experts)
{
    const enum program_as programs[] = {AS_MEGATRON_CORE, AS_LOCKSTEP};
    struct passes plain, paired;
    struct machine machine;
    struct shape shape;

    open_both(&shape, &machine);
    for (int i = 0; i < 2; i++) {
        const struct layout a = layout_with(programs[i], "1f1b");
        const struct layout b = layout_with(programs[i], "dualpipe");
        const struct cost one = {&machine, &shape, &a};
        const struct cost two = {&machine, &shape, &b};

        cost_block(&one, &plain);
        cost_block(&two, &paired);
        const double shown = plain.pass[COST_F].seconds[CAUSE_EXPERT];
        const double left = paired.pass[COST_F].seconds[CAUSE_EXPERT];

        CHECK(shown > 0 && left < 0.5 * shown);
    }
    machine_free(&machine);
}

/* Older programs send sums of gradients after the last pass, and weights before
 * the next; ranks of Megatron-DeepSpeed wait longer for whole messages. */
TEST(programs_differ_in_what_waits)
{
    struct machine machine;
    struct shape shape;
    double steps[AS_COUNT];

    open_both(&shape, &machine);
    for (int as = 0; as < AS_COUNT; as++) {
        struct layout l = layout_with((enum program_as)as, "1f1b");
        const struct cost cost = {&machine, &shape, &l};

        l.expert = 1;
        l.tensor = 4;
        steps[as] = step_of(&cost);
    }
    CHECK(steps[AS_MEGATRON_CORE] < 0.97 * steps[AS_MEGATRON]);
    CHECK(steps[AS_MEGATRON_DEEPSPEED] > 1.01 * steps[AS_MEGATRON]);
    CHECK(steps[AS_PYTORCH] > steps[AS_TORCHTITAN]);
    machine_free(&machine);
}

/* Attention in Triton is as much slower as arXiv:2307.08691 found; nothing else
 * differs. */
TEST(attention_of_llm_foundry_is_slower)
{
    struct layout l = layout_with(AS_PYTORCH, "1f1b");
    struct passes fused, triton;
    struct machine machine;
    struct shape shape;

    open_both(&shape, &machine);
    const struct cost cost = {&machine, &shape, &l};

    l.expert = 1;
    cost_block(&cost, &fused);
    l.as = AS_LLM_FOUNDRY;
    cost_block(&cost, &triton);
    for (int pass = COST_F; pass <= COST_B; pass++) {
        const double *one = fused.pass[pass].seconds;
        const double *other = triton.pass[pass].seconds;
        const double times = other[CAUSE_ATTENTION] / one[CAUSE_ATTENTION];

        CHECK(pass == COST_F ? times >= 1.3 && times <= 1.5
                             : times > 1.9 && times < 2.1);
        CHECK(one[CAUSE_PRODUCT] == other[CAUSE_PRODUCT]);
    }
    machine_free(&machine);
}

/* Seconds of F, B and W of a block with so few tokens that the host is the
 * slower one; eight ranks have so many experts. */
static double host_with(int experts, int bits, bool tensor_scales)
{
    char yaml[256];
    struct layout l = layout_with(AS_MEGATRON_CORE, "1f1b");
    struct passes block;
    struct machine machine;
    struct shape shape;
    double sum = 0;

    snprintf(yaml, sizeof yaml, "model: {family: qwen3_moe, vocab: 1024, "
             "layers: 2, width: 2048, heads: 16, feed_forward: 768}\n"
             "moe: {experts: %d, top_k: 8, intermediate_size: 768}\n", experts);
    shape_of_text(&shape, yaml, 16);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    l.expert = 8;
    l.bits = bits;
    l.tensor_scales = tensor_scales;
    cost_block(&(struct cost){&machine, &shape, &l}, &block);
    for (int i = 0; i < COST_PASSES; i++) sum += spent_seconds(&block.pass[i]);
    machine_free(&machine);
    return sum;
}

/* marin-community/marin, issue 3666: a layer of experts of Megatron-LM on 8
 * H100, forward and backward, with 32, 64 and 128 experts: 11.91, 14.55 and
 * 18.05 ms, of the same products. */
TEST(each_expert_of_a_rank_keeps_the_host_busy)
{
    const double few = host_with(32, 16, false),
                 more = host_with(64, 16, false),
                 many = host_with(128, 16, false);

    print_message("%.2f and %.2f ms more\n", 1e3 * (more - few),
                  1e3 * (many - few));
    CHECK(fabs((more - few) / 2.64e-3 - 1) < 0.3);
    CHECK(fabs((many - few) / 6.14e-3 - 1) < 0.05);
}

/* Sixteen experts make rows narrow before two products in F and in B: one
 * kernel each, or four where scales are of whole tensors, of 6 microseconds. */
TEST(rows_of_each_expert_become_narrow_alone)
{
    const double wide = host_with(128, 16, false);
    const double blocks = host_with(128, 8, false);
    const double tensors = host_with(128, 8, true);

    CHECK(fabs((blocks - wide) / (16 * 2 * 2 * 6e-6) - 1) < 0.01);
    CHECK(fabs((tensors - wide) / (4 * 16 * 2 * 2 * 6e-6) - 1) < 0.01);
    CHECK(host_with(128, 16, true) == wide);
}

/* After the library's exchange the device has nothing to do but what the host
 * starts: 16 experts are in turn, where rows that go straight to them are
 * beside other work. */
TEST(a_library_lets_the_device_wait_for_the_host)
{
    static const char yaml[] =
        "model: {family: qwen3_moe, vocab: 32768, layers: 8, width: 2048, "
        "heads: 32, kv_heads: 4, feed_forward: 6144, tied: false}\n"
        "moe: {experts: 128, top_k: 8, intermediate_size: 768}\n";
    struct layout l = layout_with(AS_MEGATRON_CORE, "1f1b");
    struct passes beside, turn;
    struct machine machine;
    struct shape shape;

    l.expert = 8;
    shape_of_text(&shape, yaml, 4096);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    const struct cost cost = {&machine, &shape, &l};
    const double host = habits_of[l.as].each_expert * 15;

    cost_block(&cost, &beside);
    l.rows_straight = true;
    cost_block(&cost, &turn);
    for (int pass = 0; pass < COST_PASSES; pass++) {
        const double longer = turn.pass[pass].seconds[CAUSE_LAUNCH] -
                              beside.pass[pass].seconds[CAUSE_LAUNCH];

        CHECK(longer > -1e-12 || pass == COST_W);
        CHECK(longer <= (pass == COST_W ? 2 : 1) * host);
    }
    CHECK(turn.pass[COST_F].seconds[CAUSE_LAUNCH] >
          beside.pass[COST_F].seconds[CAUSE_LAUNCH]);
    machine_free(&machine);
}

/* Norms and products of gates that are made again take less than attention. */
TEST(parts_that_are_made_again_are_those_that_are_named)
{
    struct layout l = layout_with(AS_MEGATRON_CORE, "1f1b");
    struct passes none, moved, attends;
    struct machine machine;
    struct shape shape;

    open_both(&shape, &machine);
    const struct cost cost = {&machine, &shape, &l};

    cost_block(&cost, &none);
    l.recompute = RECOMPUTE_SELECTIVE;
    cost_block(&cost, &attends);
    l.again_moved = true;
    cost_block(&cost, &moved);
    const double *a = none.pass[COST_B].seconds;

    CHECK(attends.pass[COST_B].seconds[CAUSE_ATTENTION] >
          1.3 * a[CAUSE_ATTENTION]);
    CHECK(moved.pass[COST_B].seconds[CAUSE_ATTENTION] == a[CAUSE_ATTENTION]);
    CHECK(moved.pass[COST_B].seconds[CAUSE_MEMORY] > a[CAUSE_MEMORY]);
    machine_free(&machine);
}

/* A block of Lockstep takes a gap for each of its instructions. */
TEST(kernels_of_lockstep_have_gaps)
{
    struct layout l = layout_with(AS_LOCKSTEP, "1f1b");
    struct measured_product product = {1, 1, 1, PRODUCT_KINDS, 16, 1, 1, 0,
                                       ACCUMULATOR_NONE};
    struct spent none = {.guessed = 0};
    struct passes before, after;
    struct machine machine;
    struct shape shape;

    open_both(&shape, &machine);
    const struct cost cost = {&machine, &shape, &l};

    machine.value[M_GAP] = 0;
    cost_block(&cost, &before);
    machine.value[M_GAP] = 1e-5;
    cost_block(&cost, &after);
    const double more = spent_seconds(&after.pass[COST_F]) -
                        spent_seconds(&before.pass[COST_F]);

    CHECK(fabs(more - 1e-5 * shape.block.instructions) < 1e-12);
    CHECK(after.pass[COST_F].guessed > 0); /* the gap is not measured */
    machine.products = &product;
    machine.product_count = 1;
    cost_started(&cost, 5, &none);
    CHECK(spent_seconds(&none) == 0); /* measured products contain it */
    machine.product_count = 0;
    machine.products = NULL;
    machine_free(&machine);
}

/* Seconds of attention in F of a block on a machine. */
static double attention_on(const char *what, enum program_as as)
{
    struct layout l = layout_with(as, "1f1b");
    struct passes block;
    struct machine machine, other;
    struct shape shape;

    open_both(&shape, &other);
    machine_free(&other);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = what}));
    l.expert = 1;
    cost_block(&(struct cost){&machine, &shape, &l}, &block);
    machine_free(&machine);
    return block.pass[COST_F].seconds[CAUSE_ATTENTION];
}

/* FlashAttention-2 reaches 335 TFLOP/s on an H100, where others have kernels of
 * 0.4 of the peak; nothing is faster than its device. */
TEST(attention_of_torch_has_a_limit)
{
    const double h100 = attention_on("h100", AS_TORCHTITAN);

    CHECK(fabs(h100 / attention_on("h100", AS_JAX) - 0.4 * 989 / 335) < 1e-3);
    CHECK(h100 == attention_on("h100", AS_PYTORCH));
    CHECK(attention_on("a100-80", AS_TORCHTITAN) ==
          attention_on("a100-80", AS_JAX));
    /* With 500 W of 700 products are slower, and it as well. */
    CHECK(fabs(attention_on("h100-96", AS_TORCHTITAN) / h100 - 0.6 / 0.483) <
          1e-9);
    CHECK(attention_on("h100,gemm=0.8", AS_TORCHTITAN) == h100);
    /* of the first FlashAttention */
    CHECK(fabs(attention_on("a100-80", AS_INTERNLM) /
                   attention_on("a100-80", AS_JAX) - 2) < 1e-9);
}

/* Products of B of a block of the llama family that is made again. */
static double again(enum program_as as, enum recompute recompute)
{
    static const char yaml[] =
        "model: {family: llama, vocab: 1024, layers: 4, width: 4096, "
        "heads: 32, feed_forward: 16384}\n";
    struct layout l = layout_with(as, "1f1b");
    struct passes block;
    struct machine machine;
    struct shape shape;

    shape_of_text(&shape, yaml, 4096);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "a100-80"}));
    l.expert = 1;
    l.recompute = recompute;
    cost_block(&(struct cost){&machine, &shape, &l}, &block);
    machine_free(&machine);
    return block.pass[COST_B].seconds[CAUSE_PRODUCT];
}

/* Four of 4 + 3 x 4 units of products are last, and nothing reads again what
 * they make. */
TEST(torch_makes_no_last_product_again)
{
    const double once = again(AS_JAX, RECOMPUTE_NONE);
    const double all = again(AS_JAX, RECOMPUTE_BLOCK) - once;
    const double early = again(AS_TORCHTITAN, RECOMPUTE_BLOCK) - once;

    CHECK(fabs(early / all - 12.0 / 16) < 0.02);
    CHECK(again(AS_TORCHTITAN, RECOMPUTE_NONE) == once);
    CHECK(again(AS_PYTORCH, RECOMPUTE_BLOCK) == once + all);
}

/* Seconds of messages of four tensor ranks in F and in B. */
static void tensor_seconds(enum program_as as, int bits,
                           enum recompute recompute, double out[2])
{
    static const char yaml[] =
        "model: {family: llama, vocab: 1024, layers: 4, width: 8192, "
        "heads: 32, feed_forward: 16384}\n";
    struct layout l = layout_with(as, "1f1b");
    struct passes block;
    struct machine machine;
    struct shape shape;

    shape_of_text(&shape, yaml, 8192);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    l.expert = 1;
    l.tensor = 4;
    l.bits = bits;
    l.recompute = recompute;
    cost_block(&(struct cost){&machine, &shape, &l}, &block);
    for (int i = 0; i < 2; i++) out[i] = block.pass[i].seconds[CAUSE_TENSOR];
    machine_free(&machine);
}

/* Half of the bytes of a sum over ranks are gathered, with 8 bits half of it.
 * The last of the two sums of a block is not made again. */
TEST(tensor_ranks_of_torch_gather_codes)
{
    double wide[2], narrow[2], again[2], core[2], other[2];

    tensor_seconds(AS_TORCHTITAN, 16, RECOMPUTE_NONE, wide);
    tensor_seconds(AS_TORCHTITAN, 8, RECOMPUTE_NONE, narrow);
    tensor_seconds(AS_MEGATRON_CORE, 16, RECOMPUTE_NONE, core);
    tensor_seconds(AS_MEGATRON_CORE, 8, RECOMPUTE_NONE, other);
    CHECK(wide[0] > 0 && wide[0] == core[0] && core[0] == other[0]);
    CHECK(fabs(narrow[0] / wide[0] - 0.75) < 1e-9);
    CHECK(fabs(narrow[1] / wide[1] - 0.75) < 1e-9);
    tensor_seconds(AS_TORCHTITAN, 16, RECOMPUTE_BLOCK, again);
    CHECK(fabs((again[1] - wide[1]) / wide[0] - 0.75) < 1e-9);
    tensor_seconds(AS_TORCHTITAN, 8, RECOMPUTE_BLOCK, again);
    CHECK(fabs((again[1] - narrow[1]) / narrow[0] - 2.0 / 3) < 1e-9);
    tensor_seconds(AS_MEGATRON_CORE, 16, RECOMPUTE_BLOCK, again);
    CHECK(fabs((again[1] - core[1]) / core[0] - 1) < 1e-9);
}

/* Seconds of rows of experts in F and in B, with so many groups of experts. */
static void rows_of(enum program_as as, int groups, int ranks, double out[2])
{
    char yaml[256];
    struct layout l = layout_with(as, "1f1b");
    struct passes block;
    struct machine machine;
    struct shape shape;

    snprintf(yaml, sizeof yaml, "model: {family: solar_open, vocab: 1024, "
             "layers: 2, width: 4096, heads: 16, feed_forward: 768}\n"
             "moe: {experts: 128, top_k: 8, intermediate_size: 768, groups: "
             "%d, groups_chosen: 1, first_dense: 0}\n", groups);
    shape_of_text(&shape, yaml, 16384);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    l.expert = ranks;
    l.recompute = RECOMPUTE_BLOCK;
    cost_block(&(struct cost){&machine, &shape, &l}, &block);
    out[0] = block.pass[COST_F].seconds[CAUSE_EXPERT];
    out[1] = block.pass[COST_B].seconds[CAUSE_EXPERT];
    machine_free(&machine);
}

/* Eight choices among 128 experts of 8 ranks lie on 5.25 of them; those of one
 * group of eight on one. B makes F again, but for the way back. */
TEST(rows_go_once_to_each_rank)
{
    const double ranks = 8 * (1 - pow(7.0 / 8, 8));
    double all[2], near[2], core[2], far[2];

    rows_of(AS_AUTOMODEL, 1, 8, all);
    rows_of(AS_AUTOMODEL, 16, 8, near);
    rows_of(AS_MEGATRON_CORE, 16, 8, core);
    rows_of(AS_AUTOMODEL, 16, 64, far);
    CHECK(fabs(all[0] / near[0] / ranks - 1) < 0.04); /* latency */
    CHECK(fabs(near[1] / near[0] - 1.5) < 1e-6);
    CHECK(fabs(core[1] / core[0] - 2) < 1e-6);
    CHECK(fabs(core[0] / near[0] - 1) < 1e-6);
    CHECK(far[0] > 2 * near[0]); /* over ports */
}

/* Step with zero 1 over so many ranks, or over those of a node. */
static double zero_1(enum program_as as, int ranks, bool inside)
{
    static const char yaml[] =
        "model: {family: llama, vocab: 32768, layers: 32, width: 4096, "
        "heads: 32, feed_forward: 11008, tied: false}\n";
    struct layout l = {.as = as, .pipe = 1, .data = inside ? ranks / 8 : ranks,
                       .shard = inside ? 8 : 1, .context = 1, .tensor = 1,
                       .expert = 1, .per_node = 8, .batch = 8 * ranks,
                       .micro_batch = 2, .microbatches = 4, .chunks = 1,
                       .bits = 16, .zero = 1, .whole_shards = inside,
                       .schedule = "1f1b"};
    struct machine machine;
    struct shape shape;
    double step;

    shape_of_text(&shape, yaml, 2048);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "a100-80"}));
    step = step_of(&(struct cost){&machine, &shape, &l});
    machine_free(&machine);
    return step;
}

/* Whole tensors have owners, who tell all others in a ring: 32 blocks have 6
 * tensors each, and a ring of 128 nodes is 5.5 ms long. */
TEST(owners_of_tensors_tell_them_one_by_one)
{
    const double core = zero_1(AS_NEMO, 1024, false) -
                        zero_1(AS_NEMO, 1024, true);
    const double owners = zero_1(AS_INTERNLM, 1024, false) -
                          zero_1(AS_INTERNLM, 1024, true);
    const double few = zero_1(AS_INTERNLM, 64, false) -
                       zero_1(AS_INTERNLM, 64, true);

    print_message("nemo %.3f s, owners %.3f s; of 64 %.3f s\n", core, owners,
                  few);
    CHECK(fabs((owners - core) / (32 * 6 * 5.5e-3) - 1) < 0.1);
    CHECK(few < owners / 2);
}

/* All-reduce sends twice what a reduce-scatter sends. */
TEST(sums_are_whole_where_they_are)
{
    struct layout l = layout_with(AS_INTERNLM, "1f1b");
    struct machine machine;
    struct shape shape;
    double guessed = 0, scattered, whole;

    open_both(&shape, &machine);
    l.expert = 1;
    const struct cost cost = {&machine, &shape, &l};

    whole = cost_reduction(&cost, 4e9, 0, &guessed);
    l.as = AS_NEMO;
    scattered = cost_reduction(&cost, 4e9, 0, &guessed);
    CHECK(fabs(whole / scattered - 2) < 0.01);
    l = layout_with(AS_INTERNLM, "1f1b");
    l.tensor = 2;
    CHECK(!layout_divides_tokens(&l));
    l.as = AS_MEGATRON;
    CHECK(layout_divides_tokens(&l));
    l.recompute = RECOMPUTE_BLOCK;
    CHECK(!layout_divides_tokens(&l));
    machine_free(&machine);
}

TEST_MAIN(codes_are_made_once_where_they_are_kept,
          sums_of_gradients_are_hidden_under_products,
          operations_that_are_not_compiled_move_their_own_bytes,
          weights_are_copied_to_their_places,
          a_library_lets_the_device_wait_for_the_host,
          megatron_depends_on_the_machine,
          a_recipe_has_8_bits_where_the_program_does,
          eight_bits_make_products_of_blocks_faster,
          dualpipe_hides_exchanges_of_experts, programs_differ_in_what_waits,
          attention_of_llm_foundry_is_slower,
          each_expert_of_a_rank_keeps_the_host_busy,
          rows_of_each_expert_become_narrow_alone,
          parts_that_are_made_again_are_those_that_are_named,
          kernels_of_lockstep_have_gaps, attention_of_torch_has_a_limit,
          torch_makes_no_last_product_again,
          tensor_ranks_of_torch_gather_codes, rows_go_once_to_each_rank,
          owners_of_tensors_tell_them_one_by_one,
          sums_are_whole_where_they_are)
