/* SPDX-License-Identifier: Apache-2.0 */
/* test_execute.c - ranks that follow a schedule train what one rank trains,
 * and a micro-batch of another or a transfer that is missing is seen. */
#include <math.h>
#include "schedule/build.h"
#include "tests/test.h"
#include "step/step.h"

enum { LENGTH = 24, BATCH = 8, VOCAB = 51, STEPS = 2, LAYERS = 8,
       ELEMENTS_MAX = 1 << 16, PARAMS_MAX = 128 };

static const struct model model = {
    .kind = &model_llama, .vocab = VOCAB, .layers = LAYERS, .heads = 4,
    .kv_heads = 2, .head_width = 6, .width = 24, .feed_forward = 40,
    .context = LENGTH, .tied = true, .rope.base = 10000,
    .norm_epsilon = 1e-5, .init_std = 0.02, .activation = ACTIVATION_SILU};

/* All weights of the model after the last step, by the parameter's order. */
struct result {
    float weights[ELEMENTS_MAX];
    int64_t at[PARAMS_MAX + 1]; /* of each order */
    double loss[STEPS], norm[STEPS];
};

/* The faults that a test puts in. */
enum fault { FAULT_NONE, FAULT_SEQUENCE, FAULT_TRANSFER, FAULT_LIST,
             FAULT_SCHEDULE };

struct trained {
    const char *schedule;
    int ranks;
    enum fault fault;
    struct result *result;
    status *ends;       /* [ranks]; NULL: nobody asks */
};

/* Two documents in each sequence. argument: swaps two sequences when set. */
static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const int64_t border = 9 + index;

    if (argument != NULL && index < 2) index = 1 - index;
    for (int64_t i = 0; i < LENGTH; i++) {
        inputs[i] = (int32_t)((i * 7 + index * 13) % VOCAB);
        targets[i] = (int32_t)((i * 7 + 7 + index * 13) % VOCAB);
        positions[i] = (int32_t)(i < border ? i : i - border);
        documents[i] = i >= border;
    }
    return OK;
}

/* The first send of a rank is lost: the list has no instruction there. */
static void lose_transfer(struct step_list *list)
{
    int at = 0;

    while (at < list->count && list->items[at].kind != DO_SEND) at++;
    if (at == list->count) return;
    list->items[at].kind = DO_COUNT;
    list->items[at].calls = 0;
}

static void keep_weights(const struct pipeline *p, struct result *out)
{
    for (int i = 0; i < p->count; i++) {
        const struct stage *stage = &p->stages[i];

        for (int j = 0; j < stage->program.params.count; j++) {
            const struct param *param = &stage->program.params.items[j];
            const struct tensor view =
                param_tensor(param, stage->run.params.weights, DTYPE_F32);

            if (param->copy || p->chunks[i].copy > 0) continue;
            memcpy(out->weights + out->at[param->order], view.data,
                   (size_t)param->elements * sizeof(float));
        }
    }
}

static status make_pipeline(const struct trained *t, struct pipeline *p,
                            int rank)
{
    static const char *const none[] = {"none"};
    int blocks[2 * LAYERS];
    struct schedule schedule;
    struct pipeline_request request = {
        .stage = {.model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
                  .layout.grid = {8, 2, 1, 1}, .layout.mesh = mesh_alone(),
                  .size.batch = BATCH,
                  .size.micro_batch = 1, .size.length = LENGTH,
                  .backward = BACKWARD_FUSED, .training.optimizer = true,
                  .machine.threads = 1, .recomputation.policy = none,
                  .recomputation.count = 1},
        .schedule = &schedule, .blocks = blocks};
    status result;

    request.stage.layout.mesh.size[AXIS_PIPE] = t->ranks;
    request.stage.layout.place.at[AXIS_PIPE] = rank;
    /* A list that is right alone, and fits no other rank's. */
    TRY(schedule_build(&schedule, t->fault == FAULT_SCHEDULE && rank == 1
                                      ? "gpipe" : t->schedule,
                       t->ranks, BATCH));
    for (int i = 0; i < schedule.stages; i++)
        blocks[i] = LAYERS / schedule.stages;
    result = pipeline_plan(p, &request);
    schedule_free(&schedule);
    return result;
}

static status train(const struct trained *t, struct pipeline *p,
                    struct team *team, struct train_step *step)
{
    const bool swaps = t->fault == FAULT_SEQUENCE && p->rank == t->ranks - 1;
    int any = 0;
    const struct sample_source source = {.fill = fill,
                                         .argument = swaps ? &any : NULL};

    TRY(pipeline_open(p));
    for (int i = 0; i < p->count; i++) {
        if (p->stages[i].arena.peak != p->stages[i].bytes)
            FAIL(ERR_VERIFY, "other memory than was planned");
        TRY(stage_init_weights(&p->stages[i], &model, 11));
    }
    team_use_scratch(team, p->stages[0].memory[MEMORY_MESSAGES].data,
                     p->stages[0].memory[MEMORY_MESSAGES].bytes);
    /* The last rank's own list, and nobody else's, misses an action. */
    if (t->fault == FAULT_LIST && p->rank == t->ranks - 1)
        p->schedule.lists[p->rank].count--;
    TRY(train_step_build(step, p, team));
    if (t->fault == FAULT_TRANSFER) lose_transfer(&step->executor.step);
    step->update.beta1 = 0.9;
    step->update.beta2 = 0.95;
    step->update.epsilon = 1e-8;
    step->update.clip = 0.3;
    for (int i = 0; i < STEPS; i++) {
        struct step_result result;

        TRY(train_step_run(step, &source, 1e-2, i + 1, &result));
        if (p->rank > 0 && result.loss != result.loss) return ERR_NUMERIC;
        if (p->rank > 0) continue;
        t->result->loss[i] = result.loss;
        t->result->norm[i] = result.norm;
    }
    keep_weights(p, t->result);
    return team_agree(team, OK);
}

static status rank_body(void *argument, struct group *world)
{
    const struct trained *t = argument;
    struct pipeline pipeline = {0};
    struct train_step step = {0};
    struct team team = {0};
    struct mesh mesh = mesh_alone();
    status result;

    mesh.size[AXIS_PIPE] = t->ranks;
    TRY_GOTO(done, result, team_build(&team, world, &mesh,
                                      &mesh_order_default, 2));
    TRY_GOTO(done, result, make_pipeline(t, &pipeline,
                                         world ? world->rank : 0));
    TRY_GOTO(done, result, team_add_chunks(&team, &pipeline));
    train_step_reserve(&pipeline, &team, 1);
    result = train(t, &pipeline, &team, &step);
done:
    if (t->ends != NULL) t->ends[world->rank] = result;
    train_step_free(&step);
    pipeline_free(&pipeline);
    team_free(&team);
    return result;
}

static void lay_out(struct result *out)
{
    const struct grid grid = {8, 2, 1, 1};
    struct program whole;

    program_init(&whole, PROGRAM_TRAIN, DTYPE_F32, &grid);
    whole.size.length = whole.size.context = whole.size.tokens =
        whole.size.logits_chunk = LENGTH;
    whole.size.sequences = whole.size.batch = 1;
    whole.size.vocab = VOCAB;
    IS_OK(model.kind->build(&whole, &model));
    for (int i = 0; i < whole.params.count; i++)
        out->at[i + 1] = out->at[i] + whole.params.items[i].elements;
    CHECK(out->at[whole.params.count] <= ELEMENTS_MAX);
    program_free(&whole);
}

static status run(const char *schedule, int ranks, enum fault fault,
                  struct result *out)
{
    struct trained t = {schedule, ranks, fault, out, NULL};

    memset(out, 0, sizeof *out);
    lay_out(out);
    return ranks == 1 ? rank_body(&t, NULL) : ranks_run(ranks, rank_body, &t);
}

static struct result one, other;

TEST(every_schedule_trains_what_one_rank_trains)
{
    IS_OK(run("1f1b", 1, FAULT_NONE, &one));
    CHECK(isfinite(one.loss[1]) && one.loss[1] < one.loss[0]);
    for (int i = 0; i < schedule_row_count; i++)
        for (int ranks = 2; ranks <= 4; ranks *= 2) {
            IS_OK(run(schedule_rows[i].name, ranks, FAULT_NONE, &other));
            if (memcmp(&one, &other, sizeof one) != 0)
                print_error("%s, %d ranks\n", schedule_rows[i].name, ranks);
            EQUAL_BYTES(&one, &other, sizeof one);
        }
}

TEST(a_sequence_of_another_micro_batch_is_seen)
{
    IS_OK(run("1f1b", 1, FAULT_NONE, &one));
    IS_OK(run("1f1b", 2, FAULT_SEQUENCE, &other));
    CHECK(memcmp(one.weights, other.weights, sizeof one.weights) != 0);
    CHECK(memcmp(one.loss, other.loss, sizeof one.loss) != 0);
}

TEST(a_transfer_that_is_missing_ends_every_rank)
{
    FAILS(run("1f1b", 2, FAULT_TRANSFER, &other), ERR_PEER, "group pipe");
}

/* Guards verify and train against a rank that waits for ever for one whose list
 * was refused. */
TEST(a_list_that_one_rank_refuses_ends_every_rank_with_its_sentence)
{
    status ends[4] = {OK, OK, OK, OK};
    struct trained t = {"1f1b", 4, FAULT_LIST, &other, ends};

    lay_out(&other);
    FAILS(ranks_run(4, rank_body, &t), ERR_VERIFY, "rank 3 of the pipe");
    for (int i = 0; i < 4; i++) EQUAL_INT(ends[i], ERR_VERIFY);
    status_clear();
}

/* Without the walk through the lists of the pipe it waits forever. */
TEST(lists_that_do_not_fit_end_every_rank_before_the_first_step)
{
    status ends[2] = {OK, OK};
    struct trained t = {"1f1b", 2, FAULT_SCHEDULE, &other, ends};

    lay_out(&other);
    FAILS(ranks_run(2, rank_body, &t), ERR_VERIFY, "waits forever");
    for (int i = 0; i < 2; i++) EQUAL_INT(ends[i], ERR_VERIFY);
    status_clear();
}

TEST_MAIN(every_schedule_trains_what_one_rank_trains,
          a_sequence_of_another_micro_batch_is_seen,
          a_transfer_that_is_missing_ends_every_rank,
          a_list_that_one_rank_refuses_ends_every_rank_with_its_sentence,
          lists_that_do_not_fit_end_every_rank_before_the_first_step)
