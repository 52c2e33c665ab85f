/* SPDX-License-Identifier: Apache-2.0 */
/* test_quantized_operands.c - mirrors src/nn/quantized_operands.c and
 * quantized_experts.c: forward, dgrad and wgrad of one linear layer, and of the
 * first product of three experts, under each recipe are those of a float64
 * emulation with ml_dtypes (tests/golden/make_precision.py), but for the sign
 * of a zero; with an accumulator of few bits, too
 * (tests/golden/make_accumulator.py). */
#include <math.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "nn/layer.h"
#include "nn/operand_peaks.h"
#include "plan/stage.h"
#include "tests/test.h"

enum { SEQUENCES = 2, LENGTH = 36, TOKENS = SEQUENCES * LENGTH, IN = 40,
       OUT = 36, VOCAB = 16 };

/* How products are summed; without text in float32. */
static struct { const char *text; struct accumulator of; } summed;

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
    const bool cut = recipe[0] != 0 && summed.text != NULL;
    char text[64], path[64];
    void *out;

    snprintf(path, sizeof path, "tests/golden/precision/%s.safetensors",
             cut ? "accumulator" : "layers");
    snprintf(text, sizeof text, "%s%s%s%s%s", recipe, cut ? "@" : "",
             cut ? summed.text : "", recipe[0] ? "." : "", name);
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
        stage->run.late.known[operand_peaks_value(
            weight, i / LATE_OPERANDS, i % LATE_OPERANDS > 0)] = known[i];
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
        .layout.grid = {.data = 1, .tensor = 1, .context = 1},
        .size.batch = SEQUENCES, .size.length = LENGTH, .seed = 7,
        .size.micro_batch = SEQUENCES, .backward = BACKWARD_FUSED,
        .machine.threads = 2,
        .recomputation.policy = none, .recomputation.count = 1,
        .slice = {0, 1, false, false},
        .precision = {.on = true, .recipe = *recipe, .end = 1, .history = 16,
                      .accumulator = summed.of}};

    IS_OK(stage_plan(stage, &request));
    IS_OK(stage_open(stage));
    stage->run.batch = (struct batch){.tokens = TOKENS};
    stage->run.now.number = 5; /* STEP of the emulation */
    gradients_reset(&stage->gradients);
}

static const struct step *step_named(const struct program *p, const char *name)
{
    for (int i = 0; i < p->step_count; i++)
        if (strcmp(p->steps[i].layer->name, name) == 0) return &p->steps[i];
    CHECK(false);
    return NULL;
}

static void layer_run(const struct precision *recipe)
{
    const struct model_kind kind = {.name = "layer", .build = build};
    struct stage stage;

    open_stage(&stage, &kind, recipe);
    if (operand_peaks_values(&stage.program) > 0) know(&stage, 0);
    fill(run_weight(&stage.run, step_named(&stage.program, "linear"), 0), "w");
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
        if (operand_peaks_values(&stage.program) > 0)
            know(&stage, one.param[0]);
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
    if (recipe->straight) {
        up = step_named(&stage.program, "rotate");
        IS_OK(up->layer->backward_input(up, run));
    }
    same(run_gradient(run, up->input), recipe->name, "experts.dx");
    up = step_named(&stage.program, "experts_up");
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

TEST(accumulators_equal_the_emulation)
{
    static const struct { const char *recipe, *text; struct accumulator of; }
        pairs[] = {{"fp8-tiles", "14:32:0", {14, 32, 0}},
                   {"fp8-tiles", "6:8:16", {6, 8, 16}},
                   {"mxfp4-quartet", "9:16:16", {9, 16, 16}},
                   {"nvfp4", "4:5:10", {4, 5, 10}}};

    for (int i = 0; i < ROWS(pairs); i++) {
        const struct precision *recipe;

        IS_OK(precision_parse(&recipe, pairs[i].recipe));
        summed.text = pairs[i].text;
        summed.of = pairs[i].of;
        layer_run(recipe);
        experts_run(recipe);
    }
    summed.text = NULL;
    summed.of = (struct accumulator){0};
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

/* The mean of dx and dW of the layer: of the rounded x and W, rotated as those
 * of y, in float64; then mask and rotation of the gradients without the factor,
 * which makes up for the smaller operands. */
struct expected { float dx[TOKENS * IN], dw[OUT * IN]; };

static void numbers_of(struct tensor view, double *out)
{
    for (int64_t i = 0; i < tensor_count(&view); i++)
        out[i] = tensor_get(&view, i);
}

static void set_numbers(struct tensor view, const double *from)
{
    for (int64_t i = 0; i < tensor_count(&view); i++)
        tensor_set(&view, i, from[i]);
}

static void turn_back(const struct run *run, struct tensor x, float *g)
{
    const struct precision *recipe = &run->program->precision.recipe;
    const struct quantize_span cols = {0, x.shape[1], 0, false};
    const struct tensor view =
        tensor_2d(g, DTYPE_F32, x.shape[0], x.shape[1]);
    const struct unrotate call = {
        .out = view, .gradient = view, .x = x, .cols = &cols, .col_spans = 1,
        .turn = recipe->rotate, .trust = recipe->trust,
        .format = recipe->weights.format, .scale = recipe->weights.scale,
        .factor = 1};

    IS_OK(run->kernels->unrotate(run->stream, &call));
}

static void expect(struct run *run, const double *dy, struct expected *out)
{
    static double xq[TOKENS * IN], wq[OUT * IN];
    static float wide[OUT * IN];
    static uint16_t codes[OUT * IN];
    const struct step *linear = step_named(run->program, "linear");
    const struct step *rotate = step_named(run->program, "rotate");
    const struct tensor w = run_weight(run, linear, 0);
    const struct quantize_span rows = {0, OUT, 0, false},
                               cols = {0, IN, 0, false};
    const struct rotate turn = {
        .out = tensor_2d(wide, DTYPE_F32, OUT, IN), .in = w, .rows = &rows,
        .cols = &cols, .row_spans = 1, .col_spans = 1};
    const struct quantize call = {
        .out = tensor_2d(codes, DTYPE_BF16, OUT, IN), .in = turn.out,
        .rows = &rows, .cols = &cols, .row_spans = 1, .col_spans = 1,
        .format = FORMAT_E2M1, .scale = SCALE_GAUSS, .block_rows = 1,
        .block_cols = 32};

    IS_OK(run->kernels->rotate(run->stream, &turn));
    IS_OK(run->kernels->quantize(run->stream, &call));
    numbers_of(run_slot(run, rotate->output), xq);
    numbers_of(call.out, wq);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < IN; i++) {
            double sum = 0;

            for (int o = 0; o < OUT; o++)
                sum += dy[t * OUT + o] * wq[o * IN + i];
            out->dx[t * IN + i] = (float)sum;
        }
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            double sum = 0;

            for (int t = 0; t < TOKENS; t++)
                sum += dy[t * OUT + o] * xq[t * IN + i];
            out->dw[o * IN + i] = (float)sum;
        }
    turn_back(run, run_slot(run, rotate->input), out->dx);
    turn_back(run, w, out->dw);
}

/* Sums of what the draws gave, and of squares. */
struct drawn { double sum[TOKENS * IN], squares[TOKENS * IN]; };

static void draw_add(struct drawn *to, struct tensor view)
{
    for (int64_t i = 0; i < tensor_count(&view); i++) {
        const double v = tensor_get(&view, i);

        to->sum[i] += v;
        to->squares[i] += v * v;
    }
}

/* Three sigmas leave 0.27% of so many numbers out, and none lies far off. */
static void draws_meet(const struct drawn *of, const float *want, int64_t count,
                       int64_t draws, const char *name)
{
    int64_t beyond = 0;
    double sum = 0;

    for (int64_t i = 0; i < count; i++) {
        const double mean = of->sum[i] / (double)draws;
        const double variance =
            of->squares[i] / (double)draws - mean * mean;
        const double sigma = sqrt(fmax(variance, 0) / (double)draws);
        const double away = fabs(mean - (double)want[i]);

        beyond += away > 3 * sigma;
        sum += sigma > 0 ? away * away / (sigma * sigma) : 0;
        CHECK(away <= 7 * sigma + 1e-12);
    }
    if (beyond > count / 100)
        print_error("%s: %lld of %lld beyond 3 sigma, mean square %.3f\n", name,
                    (long long)beyond, (long long)count,
                    sum / (double)count);
    CHECK(beyond <= count / 100);
}

/* Quartet's gradients are those of the rounded numbers on average, over signs
 * and draws of 10,000 steps. */
TEST(straight_gradients_are_unbiased)
{
    enum { DRAWS = 10000 };
    static struct drawn dx, dw;
    static struct expected want;
    static double x[TOKENS * IN], dy[TOKENS * OUT];
    const struct model_kind kind = {.name = "layer", .build = build};
    const struct precision *recipe;
    struct stage stage;
    struct run *run = &stage.run;

    IS_OK(precision_parse(&recipe, "mxfp4-quartet"));
    open_stage(&stage, &kind, recipe);
    fill(run_weight(run, step_named(&stage.program, "linear"), 0), "w");
    fill(run_entry(run), "x");
    numbers_of(run_entry(run), x);
    fill(run_exit_gradient(run), "dy");
    numbers_of(run_exit_gradient(run), dy);
    for (int64_t n = 0; n < DRAWS; n++) {
        run->now.number = n;
        run->batch.sequence = n * SEQUENCES;
        gradients_reset(&stage.gradients);
        set_numbers(run_entry(run), x);
        IS_OK(run_forward(run));
        set_numbers(run_exit_gradient(run), dy);
        if (n == 0) expect(run, dy, &want);
        IS_OK(run_backward_input(run));
        draw_add(&dx, run_entry_gradient(run));
        draw_add(&dw, gradient_root(&stage.gradients, 0));
    }
    stage_free(&stage);
    draws_meet(&dx, want.dx, TOKENS * IN, DRAWS, "dx");
    draws_meet(&dw, want.dw, OUT * IN, DRAWS, "dw");
}

TEST_MAIN(layers_equal_the_emulation, what_attention_writes_is_kept,
          experts_equal_the_emulation, straight_gradients_are_unbiased,
          accumulators_equal_the_emulation, recipes_are_found_by_name)
