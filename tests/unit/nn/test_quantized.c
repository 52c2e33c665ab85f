/* SPDX-License-Identifier: Apache-2.0 */
/* test_quantized.c - mirrors src/nn/quantized.c and quantized_experts.c:
 * forward, dgrad and wgrad of one linear layer, and of the first product of
 * three experts, under each recipe are those of a float64 emulation with
 * ml_dtypes (tests/golden/make_precision.py), but for the sign of a zero. */
#include <string.h>

#include "checkpoint/safetensors.h"
#include "nn/layer.h"
#include "nn/late.h"
#include "plan/stage.h"
#include "tests/test.h"

enum { SEQUENCES = 2, LENGTH = 36, TOKENS = SEQUENCES * LENGTH, IN = 40,
       OUT = 20, VOCAB = 16 };

static const char *const path = "tests/golden/precision/layers.safetensors";

enum { EXPERTS = 3, CHOICES = 2 };

/* Embedding, experts in block 0, head. */
static status build_experts(struct program *p, const struct model *model)
{
    const struct param_spec
        table = {.name = "table", .rows = VOCAB, .cols = IN},
        router = {.name = "router", .rows = EXPERTS, .cols = IN},
        head = {.name = "head", .rows = VOCAB, .cols = IN};
    const struct experts_spec spec = {
        .form = {.score = ROUTER_SOFTMAX, .experts = EXPERTS,
                 .choices = CHOICES},
        .up = {.name = "%d.up", .rows = OUT, .cols = IN,
               .split_rows = AXIS_TENSOR},
        .down = {.name = "%d.down", .rows = IN, .cols = OUT / 2,
                 .split_cols = AXIS_TENSOR},
        .leaf = EXPERTS};
    slot x = nn_embedding(p, &table);

    (void)model;
    program_enter_block(p, 0);
    x = nn_experts(p, x, nn_choose(p, nn_router(p, x, &router, NULL),
                                   &spec.form), &spec);
    program_enter_block(p, -1);
    nn_head(p, x, &head);
    return p->error;
}

static bool after_attention;

/* Embedding, the layer in block 0, head. */
static status build(struct program *p, const struct model *model)
{
    const struct param_spec
        table = {.name = "table", .rows = VOCAB, .cols = IN},
        weight = {.name = "weight", .rows = OUT, .cols = IN,
                  .after_attention = after_attention},
        head = {.name = "head", .rows = VOCAB, .cols = OUT};
    slot x = nn_embedding(p, &table);

    (void)model;
    program_enter_block(p, 0);
    x = nn_linear(p, x, &weight, NULL);
    program_enter_block(p, -1);
    nn_head(p, x, &head);
    return p->error;
}

static float *golden(const char *recipe, const char *name)
{
    struct safetensors file = {0};
    const struct safetensors_entry *entry;
    char text[64];
    void *out;

    snprintf(text, sizeof text, "%s%s%s", recipe, recipe[0] ? "." : "", name);
    IS_OK(safetensors_open(&file, path, true));
    entry = safetensors_find(&file, text);
    CHECK(entry != NULL);
    IS_OK(memory_take((size_t)entry->elements, sizeof(float), &out));
    IS_OK(safetensors_read(&file, entry, 0, entry->elements, DTYPE_F32, out));
    safetensors_close(&file);
    return out;
}

static void fill(struct tensor view, const char *name)
{
    float *from = golden("", name);

    for (int64_t i = 0; i < tensor_count(&view); i++)
        tensor_set(&view, i, (double)from[i]);
    memory_free(from);
}

static void same(struct tensor view, const char *recipe, const char *name)
{
    float *want = golden(recipe, name);
    int64_t apart = 0;

    for (int64_t i = 0; i < tensor_count(&view); i++) {
        const double have = tensor_get(&view, i);

        if (have == (double)want[i]) continue;
        if (apart++ == 0)
            print_error("%s, %s, element %lld: %a, not %a\n", recipe, name,
                        (long long)i, have, (double)want[i]);
    }
    EQUAL_INT(apart, 0);
    memory_free(want);
}

/* Late scales: of the largest magnitudes that the emulation had. */
static void know(struct stage *stage, int param)
{
    const struct param *weight = &stage->program.params.items[param];
    float *known = golden("", "known");

    for (int i = 0; i < LATE_USES * LATE_OPERANDS; i++)
        stage->run.late[late_value(weight, i / LATE_OPERANDS,
                                   i % LATE_OPERANDS > 0)] = known[i];
    memory_free(known);
}

/* A stage with the recipe in block 0, without embedding and head. */
static void open_stage(struct stage *stage, const struct model_kind *kind,
                       const struct precision *recipe)
{
    const struct model model = {.kind = kind, .vocab = VOCAB, .layers = 3,
                                .width = IN, .context = LENGTH};
    static const char *const none[] = {"none"};
    const struct stage_request request = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_BF16,
        .grid = {.data = 1, .tensor = 1, .context = 1},
        .batch = SEQUENCES, .length = LENGTH, .seed = 7,
        .micro_batch = SEQUENCES, .backward = BACKWARD_FUSED, .threads = 2,
        .recompute = none, .recompute_count = 1, .slice = {0, 1, false, false},
        .precision = {true, *recipe, 0, 1, 0, 16}};

    IS_OK(stage_plan(stage, &request));
    IS_OK(stage_open(stage));
    stage->run.batch = (struct batch){.tokens = TOKENS};
    gradients_reset(&stage->gradients);
}

static void layer_run(const struct precision *recipe)
{
    const struct model_kind kind = {.name = "layer", .build = build};
    struct stage stage;

    open_stage(&stage, &kind, recipe);
    if (late_values(&stage.program) > 0) know(&stage, 0);
    fill(run_weight(&stage.run, &stage.program.steps[0], 0), "w");
    fill(run_entry(&stage.run), "x");
    IS_OK(run_forward(&stage.run));
    same(run_exit(&stage.run), recipe->name, "y");
    fill(run_exit_gradient(&stage.run), "dy");
    IS_OK(run_backward_input(&stage.run));
    same(run_entry_gradient(&stage.run), recipe->name, "dx");
    gradients_close(&stage.gradients);
    same(gradient_root(&stage.gradients, 0), recipe->name,
         after_attention ? "kept.dw" : "dw");
    stage_free(&stage);
}

static const struct step *step_named(const struct program *p, const char *name)
{
    for (int i = 0; i < p->step_count; i++)
        if (strcmp(p->steps[i].layer->name, name) == 0) return &p->steps[i];
    CHECK(false);
    return NULL;
}

/* B and W of the first product alone, from gradients of its rows. */
static void experts_run(const struct precision *recipe)
{
    const struct model_kind kind = {.name = "experts", .build = build_experts};
    const struct event event = {.pass = PASS_BACKWARD_INPUT};
    struct stage stage;
    struct run *run = &stage.run;

    open_stage(&stage, &kind, recipe);
    const struct step *up = step_named(&stage.program, "experts_up");
    const struct step *router = step_named(&stage.program, "router");
    float *weights = golden("", "up");

    for (int i = 0; i < EXPERTS; i++) {
        struct step one = *up;

        one.param[0] += i;
        if (late_values(&stage.program) > 0) know(&stage, one.param[0]);
        const struct tensor w = run_weight(run, &one, 0);

        for (int64_t j = 0; j < OUT * IN; j++)
            tensor_set(&w, j, (double)weights[i * OUT * IN + j]);
    }
    fill(run_weight(run, router, 0), "router");
    fill(run_entry(run), "x");
    IS_OK(run_forward(run));
    same(run_slot(run, up->output), recipe->name, "experts.h");
    fill(run_gradient(run, up->output), "dh");
    run->event = &event;
    IS_OK(up->layer->backward_input(up, run));
    IS_OK(up->layer->backward_weight(up, run));
    same(run_gradient(run, up->input), recipe->name, "experts.dx");
    float *want = golden(recipe->name, "experts.dw");

    for (int i = 0; i < EXPERTS; i++) {
        const struct tensor dw =
            gradient_root(&stage.gradients, up->use[0] + i);

        for (int64_t j = 0; j < OUT * IN; j++)
            CHECK(tensor_get(&dw, j) == (double)want[i * OUT * IN + j]);
    }
    memory_free(want);
    memory_free(weights);
    stage_free(&stage);
}

TEST(layers_equal_the_emulation)
{
    for (int i = 0; i < PRECISIONS; i++) layer_run(&precisions[i]);
}

/* E5M6 between forward and W, as DeepSeek-V3 has it. */
TEST(what_attention_writes_is_kept)
{
    const struct precision *recipe;

    IS_OK(precision_parse(&recipe, "fp8-tiles"));
    after_attention = true;
    layer_run(recipe);
    after_attention = false;
}

TEST(experts_equal_the_emulation)
{
    for (int i = 0; i < PRECISIONS; i++) experts_run(&precisions[i]);
}

TEST(recipes_are_found_by_name)
{
    const struct precision *recipe;

    for (int i = 0; i < PRECISIONS; i++) {
        IS_OK(precision_parse(&recipe, precisions[i].name));
        CHECK(recipe == &precisions[i]);
    }
    IS_OK(precision_parse(&recipe, "none"));
    CHECK(recipe == NULL);
    FAILS(precision_parse(&recipe, "nvfp5"), ERR_CONFIG, "nearest: nvfp4");
    IS_OK(precision_parse(&recipe, "nvfp4"));
    EQUAL_INT(precision_high(recipe, 62), 10);
    EQUAL_INT(precision_high(recipe, 1), 1);
}

TEST_MAIN(layers_equal_the_emulation, what_attention_writes_is_kept,
          experts_equal_the_emulation,
          recipes_are_found_by_name)
