/* SPDX-License-Identifier: Apache-2.0 */
/* score.c - the mean next-token loss of a model over given ids. */
#include "inference/score.h"

#include <math.h>

#include "checkpoint/safetensors_write.h"
#include "tokenizer/tokenizer.h"
#include "kernels/math.h"

enum {
    FILE_BYTES_MAX = 256 << 20,
    TOKENS_AT_ONCE = 8192 /* aim of a micro-batch */
};

/* ---- FILE.json ---- */

static status check_shape(const struct json *root, const char *path,
                          const struct model *model, int64_t *length)
{
    if (root->kind != JSON_ARRAY || root->count == 0)
        FAIL(ERR_FORMAT, "%s: expected an array of arrays of token ids", path);
    for (int i = 0; i < root->count; i++) {
        const struct json *row = &root->items[i];

        if (row->kind != JSON_ARRAY)
            FAIL(ERR_FORMAT, "%s: item %d is not an array of token ids",
                 path, i);
        if (row->count != root->items[0].count)
            FAIL(ERR_FORMAT, "%s: sequence %d has %d ids, the first has %d; "
                             "all must be equally long", path, i, row->count,
                 root->items[0].count);
    }
    *length = root->items[0].count;
    if (*length < 2)
        FAIL(ERR_CONFIG, "%s: sequences of %lld ids have no next token; at "
                         "least 2 are needed", path, (long long)*length);
    if (*length > model_longest(model))
        FAIL(ERR_CONFIG, "%s: sequences of %lld ids are longer than the "
                         "model's context of %lld", path, (long long)*length,
             (long long)model->context);
    return OK;
}

static status copy_ids(const struct json *root, const char *path,
                       const struct model *model, int32_t *ids)
{
    for (int i = 0; i < root->count; i++) {
        const struct json *row = &root->items[i];

        for (int j = 0; j < row->count; j++) {
            const struct json *id = &row->items[j];

            if (id->kind != JSON_INTEGER)
                FAIL(ERR_FORMAT, "%s: id %d of sequence %d is not an integer",
                     path, j, i);
            if (id->integer < 0 || id->integer >= model->vocab)
                FAIL(ERR_CONFIG, "%s: id %d of sequence %d is %lld, outside "
                                 "the vocabulary 0 to %lld", path, j, i,
                     (long long)id->integer, (long long)model->vocab - 1);
            *ids++ = (int32_t)id->integer;
        }
    }
    return OK;
}

status score_read_tokens(const char *path, const struct model *model,
                         int32_t **ids, int64_t *sequences, int64_t *length)
{
    struct arena arena;
    const struct json *root;
    void *memory = NULL;
    struct text text = {0};
    status result;

    *ids = NULL;
    arena_init(&arena, "tokens to score", 0);
    TRY_GOTO(done, result, file_read(path, FILE_BYTES_MAX, &text));
    TRY_GOTO(done, result,
             json_read(&root, &arena, text.bytes, text.length, path));
    TRY_GOTO(done, result, check_shape(root, path, model, length));
    *sequences = root->count;
    TRY_GOTO(done, result,
             memory_take((size_t)(*sequences * *length), sizeof **ids,
                         &memory));
    *ids = memory;
    TRY_GOTO(done, result, copy_ids(root, path, model, *ids));
done:
    if (result != OK) {
        memory_free(memory);
        *ids = NULL;
    }
    arena_free(&arena);
    text_free(&text);
    return result;
}

/* ---- the passes ---- */

struct scoring {
    struct session session;
    struct stage stage;
    struct safetensors_tensor tensor;
    struct safetensors_writer logits;
    int32_t *ids;              /* owned [sequences, length] */
    int64_t sequences, length;
    double loss;               /* sum */
};

static status write_logits(void *argument, int64_t first_token,
                           const struct tensor *logits)
{
    struct scoring *s = argument;
    const int64_t first =
        s->stage.run.batch.index * s->stage.program.size.tokens + first_token;
    const int64_t vocab = s->session.model.vocab;

    return safetensors_writer_put(&s->logits, 0, first * vocab,
                                  tensor_count(logits), logits->data);
}

/* The most sequences that divide the batch and stay near the aim. */
static int64_t choose_micro_batch(int64_t sequences, int64_t length)
{
    int64_t micro = TOKENS_AT_ONCE / length;

    if (micro > sequences) micro = sequences;
    if (micro < 1) micro = 1;
    while (sequences % micro != 0) micro--;
    return micro;
}

static status prepare(struct scoring *s, const struct score_request *request)
{
    struct stage_request plan;

    TRY(session_open(&s->session, request->model));
    s->session.average = request->average;
    s->session.device = request->device;
    TRY(score_read_tokens(request->tokens, &s->session.model, &s->ids,
                          &s->sequences, &s->length));
    TRY(session_request(&s->session, s->sequences, s->length, &plan));
    plan.dtype = request->dtype;
    plan.size.micro_batch = choose_micro_batch(s->sequences, s->length);
    if (request->threads > 0) plan.machine.threads = request->threads;
    if (request->gradients != NULL) plan.backward = BACKWARD_FUSED;
    /* A leaf needs a token. */
    if (s->length < plan.layout.grid.tensor) plan.layout.grid.tensor = 1;
    TRY(session_stage(&s->session, &plan, &s->stage));
    if (request->logits == NULL) return OK;
    s->tensor = (struct safetensors_tensor){
        .name = "logits", .dtype = dtype_real(request->dtype), .dimensions = 3,
        .shape = {s->sequences, s->length, s->session.model.vocab}};
    s->stage.run.logits.read = write_logits;
    s->stage.run.logits.argument = s;
    return safetensors_writer_open_alone(&s->logits, request->logits,
                                         &s->tensor, 1);
}

static void fill_batch(struct scoring *s, int64_t index)
{
    const struct stage_batch batch = stage_batch(&s->stage, 0);
    const int64_t tokens = s->stage.program.size.tokens;
    const int32_t *ids = s->ids + index * tokens;

    for (int64_t t = 0; t < tokens; t++) {
        const bool last = t % s->length == s->length - 1;

        batch.inputs[t] = ids[t];
        batch.targets[t] = last ? -1 : ids[t + 1];
    }
    s->stage.run.batch = (struct batch){.index = index,
                                        .inputs = batch.inputs,
                                        .targets = batch.targets,
                                        .tokens = tokens};
}

/* Adds the losses of the micro-batch: per sequence, sequences in order. */
static void add_losses(struct scoring *s)
{
    const double *losses = s->stage.run.losses;

    for (int64_t i = 0; i < s->stage.program.size.sequences; i++) {
        double sum = 0;

        for (int64_t t = 0; t < s->length; t++)
            sum += losses[i * s->length + t];
        s->loss += sum;
    }
}

static status run_all(struct scoring *s, bool backward)
{
    const int64_t micro_batches =
        s->sequences / s->stage.program.size.sequences;

    if (backward) gradients_reset(&s->stage.gradients);
    for (int64_t i = 0; i < micro_batches; i++) {
        fill_batch(s, i);
        TRY(run_forward(&s->stage.run));
        if (backward) TRY(run_backward_input(&s->stage.run));
        TRY(device_finish(&s->stage.stream));
        add_losses(s);
    }
    return backward ? gradients_finish(&s->stage.gradients) : OK;
}

static status write_gradients(struct scoring *s, const char *path)
{
    const struct stage *stage = &s->stage;
    const struct tensor all =
        tensor_1d(stage->gradients.root, program_real(&stage->program),
                  stage->program.params.gradients);
    const double targets = (double)(s->sequences * (s->length - 1));
    struct session_parts parts = {.gradients = true};
    status result;

    TRY(stage->kernels.scale(&s->stage.stream, all, all, 1 / targets));
    TRY(stages_fetch(stage, 1));
    TRY_GOTO(done, result,
             session_parts_add(&parts, stage, "weight",
                               stage->host[MEMORY_GRADIENTS], all.dtype));
    TRY_GOTO(done, result, session_parts_write(&parts, path));
done:
    session_parts_free(&parts);
    return result;
}

/* Bytes of text that the targets stand for; a special token is no text. */
static int64_t text_bytes_of(const struct scoring *s,
                             const struct tokenizer *tokenizer)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < s->sequences * s->length; i++) {
        size_t bytes = 0;

        if (i % s->length == 0 || s->ids[i] >= tokenizer_vocab(tokenizer) ||
            tokenizer_kind(tokenizer, s->ids[i]) == TOKEN_SPECIAL)
            continue;
        tokenizer_bytes(tokenizer, s->ids[i], &bytes);
        sum += (int64_t)bytes;
    }
    return sum;
}

/* A tokenizer that cannot be read leaves the number unknown: ids need none. */
static double bits_per_byte(const struct scoring *s)
{
    struct tokenizer tokenizer = {0};
    int64_t bytes = 0;

    if (s->session.tokenizer[0] == 0) return (double)NAN;
    if (tokenizer_read(&tokenizer, s->session.tokenizer) == OK)
        bytes = text_bytes_of(s, &tokenizer);
    else
        status_clear();
    tokenizer_free(&tokenizer);
    return bytes > 0 ? s->loss / (math_log(2) * (double)bytes) : (double)NAN;
}

status score(const struct score_request *request, struct score_result *result)
{
    struct scoring s = {0};
    const bool backward = request->gradients != NULL;
    status code;

    TRY_GOTO(done, code, prepare(&s, request));
    TRY_GOTO(done, code, run_all(&s, backward));
    if (request->logits != NULL)
        TRY_GOTO(done, code, safetensors_writer_commit(&s.logits));
    if (backward) TRY_GOTO(done, code, write_gradients(&s, request->gradients));
    *result = (struct score_result){.targets = s.sequences * (s.length - 1),
                                    .sequences = s.sequences,
                                    .length = s.length};
    result->loss = s.loss / (double)result->targets;
    result->bits_per_byte = bits_per_byte(&s);
    if (s.session.notice.length > 0)
        snprintf(result->notice, sizeof result->notice, "%s",
                 s.session.notice.bytes);
    if (!isfinite(result->loss))
        FAIL_GOTO(done, code, ERR_NUMERIC,
                  "%s: the mean loss is not a finite number", request->model);
done:
    safetensors_writer_free(&s.logits);
    stage_free(&s.stage);
    session_close(&s.session);
    memory_free(s.ids);
    return code;
}
