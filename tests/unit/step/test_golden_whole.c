/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_whole.c - 20 steps of the optimizers that see whole matrices,
 * and of others but AdamW, with clipping and a schedule, against oracles in
 * float64 (tests/golden/make_whole.py, make_elements.py). Losses after the
 * first step are functions of all weights, so weights are not stored. */
#include "tests/golden/golden_training.h"

static const struct whole_case {
    const char *run, *file, *optimizer;
    enum dtype dtype;
    double within; /* of losses; norms: 100 times */
} cases[] = {
    {"llama", "muon", "muon", DTYPE_F64, 1e-10},
    {"llama", "muon", "muon", DTYPE_F32, 1e-4},
    {"gpt2", "muon", "muon", DTYPE_F64, 1e-10},
    {"gpt2", "muon", "muon", DTYPE_F32, 1e-4},
    {"llama", "muon_rms", "muon", DTYPE_F64, 1e-10},
    {"gpt2", "muon_rms", "muon", DTYPE_F64, 1e-10},
    {"llama", "adafactor", "adafactor", DTYPE_F64, 1e-10},
    {"llama", "adafactor", "adafactor", DTYPE_F32, 1e-4},
    {"gpt2", "adafactor", "adafactor", DTYPE_F64, 1e-10},
    {"llama", "lion", "lion", DTYPE_F64, 1e-10},
    {"llama", "lion", "lion", DTYPE_F32, 1e-4},
    {"gpt2", "lion", "lion", DTYPE_F64, 1e-10},
    {"llama", "sgd", "sgd", DTYPE_F64, 1e-10},
    {"llama", "sgd", "sgd", DTYPE_F32, 1e-5},
    {"gpt2", "sgd", "sgd", DTYPE_F64, 1e-10},
    {"llama", "schedule_free", "schedule_free", DTYPE_F64, 1e-10},
    {"llama", "schedule_free", "schedule_free", DTYPE_F32, 1e-5},
    {"gpt2", "schedule_free", "schedule_free", DTYPE_F64, 1e-10},
    {"gpt2", "schedule_free", "schedule_free", DTYPE_F32, 1e-4},
    {"llama", "soap", "soap", DTYPE_F64, 1e-10},
    {"gpt2", "soap", "soap", DTYPE_F64, 1e-9}, /* 8e-11 when it was made */
};

static void settings_read(struct golden_training *t)
{
    struct update *u = &t->step.update;

    golden_training_settings(t);
    u->momentum = golden_number_or(t, "momentum", 0);
    u->nesterov = true;
    u->frequency = (int)golden_number_or(t, "frequency", 1);
    u->ns_steps = (int)golden_number_or(t, "ns_steps", 0);
    IS_OK(muon_adjust_parse(&u->adjust, u->ns_steps > 0
                                            ? golden_text(t, "adjust")
                                            : "original"));
    IS_OK(rate_curve_parse(golden_text(t, "schedule"), &t->rate.curve));
}

static void training_begin(struct golden_training *t,
                           const struct whole_case *row)
{
    struct pipeline_request request;
    char name[100], path[300];

    snprintf(name, sizeof name, "%s, %s, %s", row->run, row->file,
             dtype_name(row->dtype));
    snprintf(path, sizeof path, "%s/training/%s/%s.json", GOLDEN, row->run,
             row->file);
    golden_training_read(t, name, path);
    golden_training_tokens(t, row->run, "tokens.safetensors", -1);
    IS_OK(model_from_config(&t->model, golden_model_file(t, "config.json")));
    request = golden_training_request(t, row->dtype, 3);
    IS_OK(optimizer_find(&request.stage.training.choice.kind, row->optimizer));
    golden_training_open(t, &request);
    golden_each(&t->pipeline.stages[0],
                golden_model_file(t, "model.safetensors"), golden_load, NULL);
    golden_steps_begin(t);
    settings_read(t);
}

/* The loss of the last batch at the average of the weights, in runs that keep
 * one. The weights that are trained come back. */
static void average_check(struct golden_training *t, double within)
{
    const struct sample_source source = golden_source(t);
    struct evaluation there, back, first;
    double sums[64], wanted;

    if (json_get(t->root, "average_loss") == NULL) return;
    t->now = STEPS - 1;
    wanted = golden_number(t, "average_loss");
    there = back = first = (struct evaluation){.sums = sums};
    IS_OK(train_evaluate(&t->step, &source, t->batch, &first));
    IS_OK(train_step_average(&t->step));
    IS_OK(train_evaluate(&t->step, &source, t->batch, &there));
    IS_OK(train_step_return(&t->step));
    IS_OK(train_evaluate(&t->step, &source, t->batch, &back));
    golden_near(t, "loss of the average", there.sum / (double)there.targets,
                wanted, within);
    CHECK(first.sum == back.sum && first.sum != there.sum);
}

TEST(twenty_steps_agree_with_the_oracles)
{
    for (int i = 0; i < ROWS(cases); i++) {
        struct golden_training training;

        training_begin(&training, &cases[i]);
        golden_steps_check(&training, cases[i].within);
        average_check(&training, cases[i].within);
        golden_training_end(&training);
    }
}

TEST_MAIN(twenty_steps_agree_with_the_oracles)
