/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_mup.c - 20 steps with muP, with clipping and a schedule, against
 * an oracle in float64 that divides the logits and has no factor in any gain
 * (tests/golden/make_mup.py). Losses after the first step are functions of all
 * weights, so weights are not stored. */
#include "models/mup.h"
#include "tests/golden/golden_training.h"

static const struct mup_case {
    const char *run, *optimizer;
    enum dtype dtype;
    double within; /* of losses; norms: 100 times */
} cases[] = {
    {"llama", "adamw", DTYPE_F64, 1e-10}, {"llama", "sgd", DTYPE_F64, 1e-10},
    {"gpt2", "adamw", DTYPE_F64, 1e-10},  {"gpt2", "sgd", DTYPE_F64, 1e-10},
    {"llama", "adamw", DTYPE_F32, 1e-5},  {"gpt2", "sgd", DTYPE_F32, 1e-5},
};

/* The factor that the width gives to every rate. */
static void rates_choose(struct golden_training *t, struct groups *groups)
{
    struct rate_factors *rates;
    struct program whole;
    void *memory = NULL;

    t->model.mup = golden_number(t, "wider");
    IS_OK(model_build_whole(&whole, &t->model));
    IS_OK(arena_take_array(&t->arena, (size_t)whole.params.count,
                           sizeof *rates, &memory));
    groups->rates = rates = memory;
    for (int i = 0; i < whole.params.count; i++) {
        const struct mup mup = mup_of(&t->model, &whole.params.items[i]);

        rates[i] = (struct rate_factors){mup.rate, mup.sgd, mup.gain};
    }
    program_free(&whole);
}

/* The stored model has its gains as the paper has them. */
static void gains_scale(struct golden_training *t)
{
    const struct stage *stage = &t->pipeline.stages[0];
    const struct param_table *table = &stage->program.params;
    struct tensor flat = tensor_1d(stage->memory[stage_keeps(stage)].data,
                                   stage_keeps_dtype(stage), table->elements);
    int scaled = 0;

    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        const double gain = mup_of(&t->model, param).gain;

        scaled += gain != 1;
        for (int64_t at = param->offset;
             gain != 1 && at < param->offset + param->elements; at++)
            tensor_set(&flat, at, gain * tensor_get(&flat, at));
    }
    CHECK(scaled > 0);
}

static void training_begin(struct golden_training *t,
                           const struct mup_case *row)
{
    struct pipeline_request request;
    char name[100], path[300];

    snprintf(name, sizeof name, "%s, %s, %s", row->run, row->optimizer,
             dtype_name(row->dtype));
    snprintf(path, sizeof path, "%s/training/%s/mup_%s.json", GOLDEN, row->run,
             row->optimizer);
    golden_training_read(t, name, path);
    golden_training_tokens(t, row->run, "tokens.safetensors", -1);
    IS_OK(model_from_config(&t->model, golden_model_file(t, "config.json")));
    request = golden_training_request(t, row->dtype, 3);
    request.stage.training.choice.groups.prefix = t->model.kind->layer_prefix;
    IS_OK(optimizer_find(&request.stage.training.choice.kind, row->optimizer));
    rates_choose(t, &request.stage.training.choice.groups);
    golden_training_open(t, &request);
    golden_each(&t->pipeline.stages[0],
                golden_model_file(t, "model.safetensors"), golden_load, NULL);
    gains_scale(t);
    golden_steps_begin(t);
    golden_training_settings(t);
}

TEST(twenty_steps_are_those_of_the_table_as_it_stands)
{
    for (int i = 0; i < ROWS(cases); i++) {
        struct golden_training training;

        training_begin(&training, &cases[i]);
        golden_steps_check(&training, cases[i].within);
        golden_training_end(&training);
    }
}

TEST_MAIN(twenty_steps_are_those_of_the_table_as_it_stands)
