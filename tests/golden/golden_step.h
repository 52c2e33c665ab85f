/* SPDX-License-Identifier: Apache-2.0 */
/* golden_step.h - forward and backward of a golden model over its stored
 * tokens, in any type and layout of memory. For tests only. */
#ifndef LOCKSTEP_TESTS_GOLDEN_STEP_H
#define LOCKSTEP_TESTS_GOLDEN_STEP_H

#include "tests/golden/golden.h"

enum { SEQUENCES = 3, LENGTH = 37, TOKENS = SEQUENCES * LENGTH };

struct golden_case {
    const char *model;      /* "models/gpt2", a folder of tests/golden */
    enum dtype dtype;
    int64_t micro_batch;
    enum backward_mode backward;
    const char *recompute;
    enum product product;   /* of bfloat16 */
};

/* Options that only some cases set. */
struct golden_extra {
    double z_loss, dropout, attention_dropout, qk_clip;
    uint64_t seed;          /* of the masks */
};

/* A path in the golden directory of the case. */
static inline const char *golden_path(const struct golden_case *row,
                                      const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/%s/%s", GOLDEN, row->model, name);
    return path;
}

static inline void golden_begin_with(struct stage *stage, struct model *model,
                                     const struct golden_case *row,
                                     const struct golden_extra *extra)
{
    const struct grid asked = {0, 0, 0, 0};

    IS_OK(model_from_config(model, golden_path(row, "config.json")));
    const struct grid_facts facts = {
        .batch = SEQUENCES, .heads = model->heads,
        .kv_heads = model->kv_heads, .head_width = model->head_width,
        .feed_forward = model->feed_forward};
    struct stage_request request = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = row->dtype,
        .machine.product = row->product,
        .size.batch = SEQUENCES, .size.micro_batch = row->micro_batch,
        .size.length = LENGTH, .size.context = model->context,
        .machine.threads = 2,
        .backward = row->backward, .recomputation.policy = &row->recompute,
        .recomputation.count = 1,
        .regular = {.z_loss = extra->z_loss, .dropout = extra->dropout,
                    .attention_dropout = extra->attention_dropout},
        .qk_clip = extra->qk_clip, .seed = extra->seed};

    IS_OK(grid_resolve(&request.layout.grid, &asked, &facts));
    IS_OK(stage_plan(stage, &request));
    IS_OK(stage_open(stage));
    golden_each(stage, golden_path(row, "model.safetensors"), golden_load,
                NULL);
}

static inline void golden_begin(struct stage *stage, struct model *model,
                                const struct golden_case *row)
{
    golden_begin_with(stage, model, row, &(struct golden_extra){0});
}

static inline void golden_tokens(const struct golden_case *row,
                                 int32_t tokens[TOKENS])
{
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "tokens", 0);
    IS_OK(json_read_file(&root, &arena, golden_path(row, "tokens.json"),
                         1 << 20));
    EQUAL_INT(root->count, SEQUENCES);
    for (int s = 0; s < SEQUENCES; s++) {
        EQUAL_INT(root->items[s].count, LENGTH);
        for (int t = 0; t < LENGTH; t++)
            tokens[s * LENGTH + t] =
                (int32_t)root->items[s].items[t].integer;
    }
    arena_free(&arena);
}

/* Where a chunk of logits is copied to. */
struct golden_copy {
    double *all;          /* [tokens of the batch, vocab] */
    int64_t first, vocab; /* first: token of the micro-batch in the batch */
    int64_t sequence;     /* number of the first one in the run */
    double z_loss;        /* found: the mean */
};

static inline status golden_logits(void *argument, int64_t first_token,
                                   const struct tensor *logits)
{
    const struct golden_copy *copy = argument;
    const int64_t count = logits->shape[0] * logits->shape[1];
    double *out = copy->all + (copy->first + first_token) * copy->vocab;

    for (int64_t i = 0; i < count; i++) out[i] = tensor_get(logits, i);
    return OK;
}

/* Every micro-batch forwards and backwards; returns the mean loss. */
static inline double golden_run(struct stage *stage, const int32_t *tokens,
                                struct golden_copy *copy)
{
    const int64_t count = stage->program.size.tokens;
    const struct stage_batch memory = stage_batch(stage, 0);
    struct run *run = &stage->run;
    double loss = 0;

    run->logits.read = golden_logits;
    run->logits.argument = copy;
    gradients_reset(&stage->gradients);
    for (int64_t i = 0; i < TOKENS / count; i++) {
        const int32_t *from = tokens + i * count;

        for (int64_t t = 0; t < count; t++) {
            memory.inputs[t] = from[t];
            memory.targets[t] = t % LENGTH == LENGTH - 1 ? -1 : from[t + 1];
        }
        run->batch = (struct batch){.index = i, .inputs = memory.inputs,
                                    .targets = memory.targets,
                                    .tokens = count,
                                    .sequence = copy->sequence +
                                                i * count / LENGTH};
        copy->first = i * count;
        IS_OK(run_forward(run));
        IS_OK(run_backward_input(run));
        IS_OK(run_backward_weight(run));
        for (int64_t t = 0; t < count; t++) loss += run->losses[t];
        for (int64_t t = 0; t < count && run->z_losses != NULL; t++)
            copy->z_loss += run->z_losses[t] / (SEQUENCES * (LENGTH - 1));
    }
    IS_OK(gradients_finish(&stage->gradients));
    return loss / (SEQUENCES * (LENGTH - 1));
}

#endif
