/* SPDX-License-Identifier: Apache-2.0 */
/* test_glu_codes.c - mirrors src/nn/glu_codes.c: B of SwiGLU, and W of the
 * product after it, read gate and up rounded to E4M3 in blocks of 1 x 16, whose
 * numbers are found here by searching all of the format's. */
#include <math.h>
#include <string.h>

#include "nn/layer.h"
#include "plan/stage.h"
#include "tests/test.h"

enum { SEQUENCES = 2, LENGTH = 5, TOKENS = SEQUENCES * LENGTH, WIDTH = 12,
       INNER = 38, VOCAB = 16, BLOCK = 16 };

/* Embedding, SwiGLU between two products in block 0, head. */
static status build(struct program *p, const struct model *model)
{
    const struct param_spec
        table = {.name = "table", .rows = VOCAB, .cols = WIDTH},
        up = {.name = "up", .rows = 2 * INNER, .cols = WIDTH,
              .split_rows = AXIS_TENSOR, .piece_count = 2,
              .pieces = {{"gate", INNER, 1}, {"up", INNER, 1}}},
        down = {.name = "down", .rows = WIDTH, .cols = INNER,
                .split_cols = AXIS_TENSOR},
        head = {.name = "head", .rows = VOCAB, .cols = WIDTH};
    slot x = nn_embedding(p, &table);

    (void)model;
    program_enter_block(p, 0);
    x = nn_linear(p, x, &up, NULL);
    x = nn_linear(p, nn_swiglu(p, x), &down, NULL);
    program_enter_block(p, -1);
    nn_head(p, x, &head);
    return p->error;
}

/* SwiGLU reads and writes these in F, R and B. */
static struct {
    uint16_t gate_up[TOKENS * 2 * INNER], h[TOKENS * INNER];
    uint16_t again[TOKENS * INNER], dh[TOKENS * INNER];
    uint16_t dgate_up[TOKENS * 2 * INNER];
    int forward, recomputed, backward;
} seen;

static void keep(uint16_t *to, struct tensor view)
{
    CHECK(view.dtype == DTYPE_BF16);
    memcpy(to, view.data, (size_t)tensor_count(&view) * sizeof *to);
}

static status look(void *argument, const struct run *run,
                   const struct event *event)
{
    const struct step *step = &run->program->steps[event->step];

    (void)argument;
    if (strcmp(step->layer->name, "swiglu") != 0) return OK;
    if (event->pass == PASS_FORWARD) {
        keep(seen.gate_up, run_slot(run, step->input));
        keep(seen.h, run_slot(run, step->output));
        seen.forward++;
    } else if (event->pass == PASS_RECOMPUTE) {
        keep(seen.again, run_slot(run, step->output));
        seen.recomputed++;
    } else {
        keep(seen.dh, run_gradient(run, step->output));
        keep(seen.dgate_up, run_gradient(run, step->input));
        seen.backward++;
    }
    return OK;
}

static double number(const uint16_t *from, int64_t i)
{
    const struct tensor one = tensor_1d((void *)(uintptr_t)&from[i],
                                        DTYPE_BF16, 1);

    return tensor_get(&one, 0);
}

/* The number of E4M3 that is nearest to y >= 0; of two the even one. */
static double nearest(double y)
{
    double best = 0, error = y;

    for (int code = 1; code < 127; code++) {
        const double value =
            code < 8 ? ldexp(code, -9)
                     : ldexp(8 + code % 8, code / 8 - 10);
        const double away = fabs(y - value);

        if (away < error || (away == error && code % 2 == 0)) {
            best = value;
            error = away;
        }
    }
    return best;
}

/* Rounds `count` numbers of one block, or of a short one. */
static void round_block(struct tensor out, int64_t at, int count)
{
    double most = 0;

    for (int i = 0; i < count; i++)
        most = fmax(most, fabs(number(seen.gate_up, at + i)));
    const double scale = exp2(fmax(ceil(log2(most / 448)), -100));

    for (int i = 0; i < count; i++) {
        const double v = number(seen.gate_up, at + i);

        tensor_set(&out, at + i,
                   copysign(nearest(fabs(v) / scale) * scale, v));
    }
}

/* Gate and up of each token are a piece each, and begin with a block. */
static void round_all(struct tensor out)
{
    for (int64_t row = 0; row < 2 * TOKENS; row++)
        for (int first = 0; first < INNER; first += BLOCK)
            round_block(out, row * INNER + first,
                        INNER - first < BLOCK ? INNER - first : BLOCK);
}

static void open_stage(struct stage *stage, const struct model_kind *kind,
                       const char *recompute)
{
    const struct model model = {.kind = kind, .vocab = VOCAB, .layers = 1,
                                .width = WIDTH, .context = LENGTH};
    const char *const policy[] = {recompute};
    const char *const row = "glu e4m3 1x16 up";
    const struct precision *base;
    struct stage_request request = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_BF16,
        .layout.grid = {.data = 1, .tensor = 1, .context = 1},
        .size.batch = SEQUENCES, .size.length = LENGTH, .seed = 7,
        .size.micro_batch = SEQUENCES, .backward = BACKWARD_FUSED,
        .machine.threads = 1,
        .recomputation.policy = policy, .recomputation.count = 1,
        .slice = {0, 1, false, false},
        .precision = {.on = true, .end = 1, .history = 16}};

    IS_OK(precision_parse(&base, "fp8-tiles"));
    request.precision.recipe = *base;
    IS_OK(precision_change(&request.precision.recipe, &row, 1));
    IS_OK(stage_plan(stage, &request));
    IS_OK(stage_open(stage));
    stage->run.batch = (struct batch){.tokens = TOKENS};
    gradients_reset(&stage->gradients);
}

static void fill(struct tensor view, double size, int from)
{
    for (int64_t i = 0; i < tensor_count(&view); i++)
        tensor_set(&view, i, size * sin((double)(i * 37 + from)));
}

static int64_t codes_bytes(const struct stage *stage)
{
    int64_t bytes = 0;

    for (int i = 0; i < stage->frame.buffer_count; i++)
        if (stage->frame.buffers[i].codes)
            bytes += stage->frame.buffers[i].bytes;
    return bytes;
}

/* The rounded numbers through the kernels that are tested elsewhere. */
static void check_numbers(const struct run *run)
{
    static uint16_t rounded[TOKENS * 2 * INNER], d[TOKENS * 2 * INNER];
    static uint16_t h[TOKENS * INNER];
    const struct tensor
        x = tensor_2d(rounded, DTYPE_BF16, TOKENS, 2 * INNER),
        dx = tensor_2d(d, DTYPE_BF16, TOKENS, 2 * INNER),
        y = tensor_2d(h, DTYPE_BF16, TOKENS, INNER),
        dy = tensor_2d(seen.dh, DTYPE_BF16, TOKENS, INNER);

    round_all(x);
    CHECK(memcmp(rounded, seen.gate_up, sizeof rounded) != 0);
    IS_OK(run->kernels->swiglu_forward(run->stream, y, x));
    IS_OK(run->kernels->swiglu_backward(run->stream, dx, dy, x));
    CHECK(memcmp(h, seen.again, sizeof h) == 0);
    CHECK(memcmp(h, seen.h, sizeof h) != 0);
    CHECK(memcmp(d, seen.dgate_up, sizeof d) == 0);
}

static void run_with(const char *recompute)
{
    const struct model_kind kind = {.name = "glu", .build = build};
    const struct run_probe probe = {look, NULL};
    struct stage stage;
    struct run *run = &stage.run;

    memset(&seen, 0, sizeof seen);
    open_stage(&stage, &kind, recompute);
    /* A byte of a number, and of each of the blocks: 3 of gate, 3 of up. */
    EQUAL_INT(codes_bytes(&stage),
              (int64_t)arena_aligned(TOKENS * (2 * INNER + 6)));
    run->probe = &probe;
    run->poison = true;
    for (int i = 0; i < run->program->step_count; i++)
        if (strcmp(run->program->steps[i].layer->name, "linear") == 0)
            fill(run_weight(run, &run->program->steps[i], 0), 0.7, i);
    fill(run_entry(run), 3, 1);
    IS_OK(run_forward(run));
    fill(run_exit_gradient(run), 0.1, 2);
    IS_OK(run_backward_input(run));
    EQUAL_INT(seen.forward, 1);
    EQUAL_INT(seen.recomputed, 1);
    EQUAL_INT(seen.backward, 1);
    check_numbers(run);
    stage_free(&stage);
}

TEST(backward_reads_rounded_inputs)
{
    run_with("none");
    run_with("activation");
    run_with("block");
}

TEST_MAIN(backward_reads_rounded_inputs)
