/* SPDX-License-Identifier: Apache-2.0 */
/* test_slice.c - a model cut into stages that run one after the other has the
 * bits of the whole model, and nothing of it is lost. */
#include "base/random.h"
#include "plan/stage.h"
#include "tests/test.h"

enum { SEQUENCES = 8, LENGTH = 13, TOKENS = SEQUENCES * LENGTH, MICRO = 2,
       MICRO_TOKENS = MICRO * LENGTH, COUNT = SEQUENCES / MICRO,
       STAGES_MOST = 4, LAYERS = 4 };

static const struct model llama = {
    .kind = &model_llama, .vocab = 61, .layers = LAYERS, .heads = 4,
    .kv_heads = 2, .head_width = 6, .width = 20, .feed_forward = 24,
    .context = 64, .rope.base = 10000, .norm_epsilon = 1e-5,
    .activation = ACTIVATION_SILU};
static const struct model llama_tied = {
    .kind = &model_llama, .vocab = 61, .layers = LAYERS, .heads = 4,
    .kv_heads = 2, .head_width = 6, .width = 20, .feed_forward = 24,
    .context = 64, .tied = true, .biases.attention = true, .biases.mlp = true,
    .rope.base = 10000, .norm_epsilon = 1e-5, .activation = ACTIVATION_SILU};
static const struct model gpt2 = {
    .kind = &model_gpt2, .vocab = 53, .layers = LAYERS, .heads = 4,
    .kv_heads = 4, .head_width = 6, .width = 24, .feed_forward = 36,
    .context = 32, .tied = true, .biases.attention = true, .biases.mlp = true,
    .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU_TANH};

struct variant {
    const char *name;
    int stages;
    int blocks[STAGES_MOST];    /* of each stage */
    enum backward_mode backward;
    const char *recompute;      /* NULL: none */
    bool poison;
};

static const struct variant variants[] = {
    {"two", 2, {2, 2}, BACKWARD_FUSED, NULL, false},
    {"two, split, poison", 2, {2, 2}, BACKWARD_SPLIT, NULL, true},
    {"uneven", 2, {1, 3}, BACKWARD_FUSED, NULL, true},
    {"uneven the other way, split", 2, {3, 1}, BACKWARD_SPLIT, NULL, true},
    {"three", 3, {1, 2, 1}, BACKWARD_FUSED, NULL, true},
    {"four", 4, {1, 1, 1, 1}, BACKWARD_FUSED, NULL, true},
    {"four, split", 4, {1, 1, 1, 1}, BACKWARD_SPLIT, NULL, true},
    {"no blocks at the ends", 4, {0, 2, 2, 0}, BACKWARD_FUSED, NULL, true},
    {"no blocks at the ends, split", 3, {0, 4, 0}, BACKWARD_SPLIT, NULL, true},
    {"blocks again", 2, {2, 2}, BACKWARD_FUSED, "block", true},
    {"blocks again, split", 3, {1, 2, 1}, BACKWARD_SPLIT, "block", true},
    {"norms again, split", 2, {2, 2}, BACKWARD_SPLIT, "norm", true},
    {"products again", 4, {1, 1, 1, 1}, BACKWARD_FUSED, "linear", true},
    {"attention again, split", 2, {1, 3}, BACKWARD_SPLIT, "attention", true},
};

/* ---- data and weights ---- */

static struct {
    int32_t inputs[TOKENS], targets[TOKENS], positions[TOKENS],
        documents[TOKENS];
} data;

static void data_fill(int64_t vocab)
{
    const struct random_key key = random_key_make(1, "slices");

    for (int i = 0; i < TOKENS; i++) {
        data.inputs[i] = (int32_t)random_below(key, (uint64_t)(2 * i),
                                               (uint64_t)vocab);
        data.targets[i] = (int32_t)random_below(key, (uint64_t)(2 * i + 1),
                                                (uint64_t)vocab);
        data.positions[i] = i % LENGTH;
        data.documents[i] = i / LENGTH;
    }
}

static void weights_fill(struct stage *stage)
{
    for (int i = 0; i < stage->program.params.count; i++) {
        const struct param *param = &stage->program.params.items[i];
        const struct random_key key = random_key_make(5, param->name);
        const struct tensor view =
            param_tensor(param, stage->run.params.weights,
                         stage->program.dtype);
        const double base = param->spec.init == INIT_ONE ? 1 : 0;

        for (int64_t j = 0; j < param->elements; j++)
            tensor_set(&view, j,
                       base + 0.7 * (random_uniform(key, (uint64_t)j) - 0.5));
    }
}

/* NaN into all memory that a step must write before it reads. */
static void memory_poison(struct stage *stage)
{
    static const enum memory_owner owners[] = {
        MEMORY_GRADIENTS, MEMORY_PARTIALS, MEMORY_FRAME, MEMORY_PASS,
        MEMORY_LAYER_SCRATCH, MEMORY_KERNEL_SCRATCH};

    for (int i = 0; i < ROWS(owners); i++)
        if (stage->memory[owners[i]].bytes > 0)
            memset(stage->memory[owners[i]].data, 0xff,
                   stage->memory[owners[i]].bytes);
}

/* ---- a pipeline by hand ---- */

struct pipe {
    int stages;
    struct stage stage[STAGES_MOST];
    double losses[TOKENS];
};

static void pipe_open(struct pipe *pipe, const struct model *model,
                      const struct variant *v)
{
    const char *const policy[] = {v->recompute ? v->recompute : "none"};
    int first = 0;

    pipe->stages = v->stages;
    for (int s = 0; s < v->stages; s++) {
        const struct stage_request request = {
            .model = model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
            .layout.grid = {4, 2, 1, 1}, .size.batch = SEQUENCES,
            .size.length = LENGTH,
            .size.context = model->context, .size.micro_batch = MICRO,
            .backward = v->backward, .machine.threads = 1,
            .recomputation.policy = policy,
            .recomputation.count = 1, .size.frames = COUNT,
            .slice = {first, first + v->blocks[s], s == 0,
                             s == v->stages - 1}};

        IS_OK(stage_plan(&pipe->stage[s], &request));
        IS_OK(stage_open(&pipe->stage[s]));
        EQUAL_INT(pipe->stage[s].arena.peak, pipe->stage[s].bytes);
        weights_fill(&pipe->stage[s]);
        memory_poison(&pipe->stage[s]);
        pipe->stage[s].run.poison = v->poison;
        first += v->blocks[s];
    }
    EQUAL_INT(first, model->layers);
}

static void pipe_free(struct pipe *pipe)
{
    for (int s = 0; s < pipe->stages; s++) stage_free(&pipe->stage[s]);
}

static void copy(struct tensor to, struct tensor from)
{
    EQUAL_INT(tensor_count(&to), tensor_count(&from));
    memcpy(to.data, from.data,
           (size_t)(tensor_count(&to) * dtype_bytes(to.dtype)));
}

static void forward(struct pipe *pipe, int64_t index)
{
    const int64_t at = index * MICRO_TOKENS;

    for (int s = 0; s < pipe->stages; s++) {
        struct stage *stage = &pipe->stage[s];

        stage->batches[index] = (struct batch){
            .index = index, .inputs = data.inputs + at,
            .targets = data.targets + at, .positions = data.positions + at,
            .documents = data.documents + at, .tokens = MICRO_TOKENS};
        stage_use_frame(stage, (int)index);
        if (s > 0)
            copy(run_entry(&stage->run), run_exit(&pipe->stage[s - 1].run));
        IS_OK(run_forward(&stage->run));
    }
}

static void backward(struct pipe *pipe, int64_t index)
{
    const int last = pipe->stages - 1;

    for (int s = last; s >= 0; s--) {
        struct stage *stage = &pipe->stage[s];

        stage_use_frame(stage, (int)index);
        if (s < last)
            copy(run_exit_gradient(&stage->run),
                 run_entry_gradient(&pipe->stage[s + 1].run));
        IS_OK(run_backward_input(&stage->run));
    }
    memcpy(pipe->losses + index * MICRO_TOKENS, pipe->stage[last].run.losses,
           MICRO_TOKENS * sizeof *pipe->losses);
}

/* Every F, every B, every W: all frames are in flight. */
static void pipe_step(struct pipe *pipe)
{
    const int64_t before = arena_allocations();

    for (int s = 0; s < pipe->stages; s++)
        gradients_reset(&pipe->stage[s].gradients);
    for (int64_t i = 0; i < COUNT; i++) forward(pipe, i);
    for (int64_t i = 0; i < COUNT; i++) {
        backward(pipe, i);
        for (int s = 0; s < pipe->stages; s++)
            IS_OK(run_backward_weight(&pipe->stage[s].run));
    }
    EQUAL_INT(arena_allocations(), before);
    for (int s = 0; s < pipe->stages; s++)
        IS_OK(gradients_finish(&pipe->stage[s].gradients));
}

static struct tensor gradient_of(struct stage *stage, int param)
{
    const struct tensor view =
        param_tensor(&stage->program.params.items[param],
                     stage->gradients.root, stage->program.dtype);

    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

/* The parameter's gradient over all stages: shared ones are added. */
static void gather(struct pipe *pipe, const struct param *param,
                   struct tensor out)
{
    int found = 0, originals = 0;

    for (int s = 0; s < pipe->stages; s++) {
        struct stage *stage = &pipe->stage[s];

        for (int i = 0; i < stage->program.params.count; i++) {
            const struct param *own = &stage->program.params.items[i];
            const struct tensor view = gradient_of(stage, i);

            if (own->order != param->order) continue;
            EQUAL_TEXT(own->name, param->name);
            if (found++ == 0) copy(out, view);
            else IS_OK(stage->kernels.add(&stage->stream, out, out, view));
            CHECK(own->shared == (param->uses > own->uses));
            originals += !own->copy;
        }
    }
    CHECK(found > 0);
    EQUAL_INT(originals, 1);
}

static void compare(struct pipe *whole, struct pipe *cut, const char *name)
{
    struct stage *stage = &whole->stage[0];
    void *memory;

    EQUAL_BYTES(whole->losses, cut->losses, sizeof whole->losses);
    IS_OK(memory_take((size_t)stage->program.params.elements,
                      sizeof(float), &memory));
    for (int i = 0; i < stage->program.params.count; i++) {
        const struct param *param = &stage->program.params.items[i];
        const struct tensor expected = gradient_of(stage, i);
        const struct tensor found =
            tensor_1d(memory, expected.dtype, param->elements);

        gather(cut, param, found);
        if (memcmp(memory, expected.data,
                   (size_t)param->elements * sizeof(float)) != 0) {
            print_error("%s: the gradient of %s has other bits\n", name,
                        param->name);
            fail();
        }
    }
    memory_free(memory);
}

static void check_model(const struct model *model)
{
    static const struct variant one = {"one", 1, {LAYERS}, BACKWARD_FUSED,
                                       NULL, false};
    static struct pipe whole, cut;

    data_fill(model->vocab);
    pipe_open(&whole, model, &one);
    pipe_step(&whole);
    for (int i = 0; i < ROWS(variants); i++) {
        pipe_open(&cut, model, &variants[i]);
        pipe_step(&cut);
        compare(&whole, &cut, variants[i].name);
        pipe_free(&cut);
    }
    pipe_free(&whole);
}

TEST(stages_have_the_bits_of_the_whole)
{
    check_model(&llama);
}

TEST(tied_tables_on_two_stages_sum_up)
{
    check_model(&llama_tied);
    check_model(&gpt2);
}

/* Were the tests above blind, this would pass too. */
TEST(a_swapped_gradient_is_seen)
{
    static const struct variant two = {"two", 2, {2, 2}, BACKWARD_FUSED, NULL,
                                       false};
    static struct pipe cut, other;

    data_fill(llama.vocab);
    pipe_open(&cut, &llama, &two);
    pipe_open(&other, &llama, &two);
    pipe_step(&cut);
    for (int s = 0; s < 2; s++) gradients_reset(&other.stage[s].gradients);
    for (int64_t i = 0; i < COUNT; i++) forward(&other, i);
    for (int64_t i = 0; i < COUNT; i++) {
        struct stage *late = &other.stage[1], *early = &other.stage[0];

        stage_use_frame(late, (int)i);
        IS_OK(run_backward_input(&late->run));
        stage_use_frame(early, (int)i);
        copy(run_exit_gradient(&early->run), run_entry_gradient(&late->run));
        if (i == 1) /* what another micro-batch sent */
            memset(run_exit_gradient(&early->run).data, 0, 64);
        IS_OK(run_backward_input(&early->run));
    }
    const struct tensor table = gradient_of(&cut.stage[0], 0);

    CHECK(memcmp(table.data, gradient_of(&other.stage[0], 0).data,
                 (size_t)tensor_count(&table) * sizeof(float)) != 0);
    pipe_free(&cut);
    pipe_free(&other);
}

TEST(a_stage_of_nothing_is_refused)
{
    const char *const none[] = {"none"};
    const struct stage_request request = {
        .model = &llama, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {1, 1, 1, 1}, .size.batch = 1, .size.length = LENGTH,
        .size.micro_batch = 1,
        .size.context = llama.context, .backward = BACKWARD_FUSED,
        .machine.threads = 1,
        .recomputation.policy = none, .recomputation.count = 1,
        .slice = {2, 2, false, false}};
    struct stage stage = {0};

    FAILS(stage_plan(&stage, &request), ERR_CONFIG, "nothing to compute");
    stage_free(&stage);
}

TEST_MAIN(stages_have_the_bits_of_the_whole, tied_tables_on_two_stages_sum_up,
          a_swapped_gradient_is_seen, a_stage_of_nothing_is_refused)
