/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - a MODEL as a Hugging Face directory that transformers opens. */
#include "inference/export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/temporaries.h"
#include "checkpoint/convert.h"
#include "inference/companions.h"
#include "inference/merge.h"
#include "inference/stacked_adapters.h"
#include "models/config.h"
#include "models/decoder.h"
#include "models/lora.h"

enum {
    PROOF_TOKENS = 64 /* of the proof, fewer when the context is shorter */
};

struct exporting {
    const struct export_request *request;
    char aside[PATH_BYTES];  /* where the files are made; "" once renamed */
    struct session session;  /* the source */
    struct stage stage;
    struct session_parts parts;
    struct text config, tokenizer;
    char *logits;            /* owned [tokens, vocab] of the source */
    size_t row;              /* bytes of one token's logits */
    int64_t tokens;
    int64_t differs;         /* token whose logits differ, -1: none */
    enum dtype dtype;        /* of the files */
    int64_t rounded;         /* weights that it changed */
};

/* ---- where ---- */

static status check_target(const char *directory)
{
    char **names;
    int count;

    if (!file_exists(directory)) return OK;
    if (!file_is_directory(directory))
        FAIL(ERR_CONFIG, "%s: is a file; export makes a directory",
             directory);
    TRY(directory_list(directory, &names, &count));
    directory_list_free(names, count);
    if (count > 0)
        FAIL(ERR_CONFIG, "%s: is not empty (%d entries); export writes only "
                         "into a new or empty directory", directory, count);
    return OK;
}

static status make_aside(struct exporting *e, const char *directory)
{
    size_t length = strlen(directory);
    const mode_t mask = umask(0);

    umask(mask);
    while (length > 1 && directory[length - 1] == '/') length--;
    if (length + sizeof ".tmp-XXXXXX" > PATH_BYTES)
        FAIL(ERR_CONFIG, "%s: the path is too long", directory);
    snprintf(e->aside, PATH_BYTES, "%.*s", (int)length, directory);
    for (size_t i = length; i-- > 1;) { /* its parent */
        if (e->aside[i] != '/') continue;
        e->aside[i] = 0;
        const status result = directory_make(e->aside);

        e->aside[i] = '/';
        TRY(result);
        break;
    }
    memcpy(e->aside + length, ".tmp-XXXXXX", sizeof ".tmp-XXXXXX");
    if (mkdtemp(e->aside) == NULL || chmod(e->aside, 0777 & ~mask) != 0) {
        e->aside[0] = 0;
        FAIL(ERR_IO, "%s: cannot make a directory beside it: %s", directory,
             strerror(errno));
    }
    temporary_note(e->aside);
    return OK;
}

/* ---- small files ---- */

static status store(const struct exporting *e, const char *name,
                    const char *bytes, size_t length)
{
    char path[PATH_BYTES];

    TRY(path_join(path, sizeof path, e->aside, name));
    return file_write_atomic(path, bytes, length);
}

static status store_json(const struct exporting *e, const char *name,
                         struct json_writer *writer)
{
    TRY(json_write_end(writer));
    TRY(text_append_string(&writer->out, "\n"));
    return store(e, name, writer->out.bytes, writer->out.length);
}

/* The added token with this id, or NULL. */
static const char *added_name(const struct json *tokenizer, int64_t id)
{
    const struct json *added = json_get(tokenizer, "added_tokens");

    if (added == NULL || added->kind != JSON_ARRAY || id < 0) return NULL;
    for (int i = 0; i < added->count; i++) {
        const struct json *number = json_get(&added->items[i], "id");
        const struct json *content = json_get(&added->items[i], "content");

        if (number == NULL || content == NULL ||
            number->kind != JSON_INTEGER || content->kind != JSON_STRING)
            continue;
        if (number->integer == id) return content->string;
    }
    return NULL;
}

/* The usual names of the token that ends a text; its id, or -1. */
static int64_t usual_end(const struct json *tokenizer)
{
    static const char *const names[] = {
        "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"};
    const struct json *added = json_get(tokenizer, "added_tokens");

    if (added == NULL || added->kind != JSON_ARRAY) return -1;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (int i = 0; i < added->count; i++) {
            const struct json *number = json_get(&added->items[i], "id");
            const struct json *content = json_get(&added->items[i], "content");

            if (number != NULL && content != NULL &&
                number->kind == JSON_INTEGER &&
                content->kind == JSON_STRING &&
                strcmp(content->string, names[n]) == 0)
                return number->integer;
        }
    }
    return -1;
}

static void write_token(struct json_writer *w, const char *key,
                        const char *name)
{
    if (name == NULL) return;
    json_write_key(w, key);
    json_write_string(w, name);
}

static status write_tokenizer_config(const struct exporting *e,
                                     const struct json *tokenizer)
{
    const struct model *m = &e->session.model;
    const char *eos = added_name(tokenizer, m->ends.eos);
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    write_token(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    write_token(&w, "bos_token", added_name(tokenizer, m->ends.bos));
    write_token(&w, "eos_token", eos);
    write_token(&w, "pad_token", eos);
    json_write_key(&w, "model_max_length");
    json_write_integer(&w, m->context);
    json_write_key(&w, "clean_up_tokenization_spaces");
    json_write_bool(&w, false);
    json_write_object_end(&w);
    result = store_json(e, "tokenizer_config.json", &w);
    json_writer_free(&w);
    return result;
}

static status write_tokenizer(struct exporting *e)
{
    struct model *m = &e->session.model;
    struct arena arena;
    const struct json *root;
    status result;

    if (e->session.tokenizer[0] == 0) return OK;
    arena_init(&arena, "tokenizer to export", 0);
    TRY_GOTO(done, result, session_read_tokenizer(&e->session,
                                                  &e->tokenizer));
    if (strcmp(session_tokenizer_name(&e->session), "tokenizer.json") != 0) {
        /* A tokenizer of another library is copied unchanged, with its
         * settings. */
        TRY_GOTO(done, result, store(e, session_tokenizer_name(&e->session),
                                     e->tokenizer.bytes,
                                     e->tokenizer.length));
        goto done;
    }
    TRY_GOTO(done, result,
             json_read(&root, &arena, e->tokenizer.bytes, e->tokenizer.length,
                       e->session.tokenizer));
    if (m->ends.eos < 0) m->ends.eos = usual_end(root);
    if (m->ends.eos >= m->vocab) m->ends.eos = -1;
    TRY_GOTO(done, result, store(e, "tokenizer.json", e->tokenizer.bytes,
                                 e->tokenizer.length));
    TRY_GOTO(done, result, write_tokenizer_config(e, root));
done:
    arena_free(&arena);
    return result;
}

static void write_id(struct json_writer *w, const char *key, int64_t id)
{
    if (id < 0) return;
    json_write_key(w, key);
    json_write_integer(w, id);
}

static status write_generation(const struct exporting *e)
{
    const struct model *m = &e->session.model;
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key(&w, "_from_model_config");
    json_write_bool(&w, true);
    write_id(&w, "bos_token_id", m->ends.bos);
    if (m->ends.eos >= 0) config_write_ends(m, &w);
    write_id(&w, "pad_token_id", m->ends.eos);
    json_write_object_end(&w);
    result = store_json(e, "generation_config.json", &w);
    json_writer_free(&w);
    return result;
}

/* Files that stood beside the tokenizer replace those made here. */
static status write_companions(struct exporting *e)
{
    struct text text = {0};
    status result = OK;

    if (e->session.tokenizer[0] == 0) return OK;
    for (int i = 0; companion_names[i] != NULL && result == OK; i++) {
        result = companion_read(e->session.tokenizer, companion_names[i],
                                &text);
        if (result == OK && text.length > 0)
            result = store(e, companion_names[i], text.bytes, text.length);
    }
    text_free(&text);
    return result;
}

/* ---- the proof ---- */

typedef status token_reader(void *argument, int64_t first,
                            const struct tensor *logits);

static status keep(void *argument, int64_t first, const struct tensor *logits)
{
    struct exporting *e = argument;

    memcpy(e->logits + (size_t)first * e->row, logits->data,
           (size_t)logits->shape[0] * e->row);
    return OK;
}

static status compare(void *argument, int64_t first,
                      const struct tensor *logits)
{
    struct exporting *e = argument;

    for (int64_t t = 0; t < logits->shape[0] && e->differs < 0; t++)
        if (memcmp(e->logits + (size_t)(first + t) * e->row,
                   (const char *)logits->data + (size_t)t * e->row,
                   e->row) != 0)
            e->differs = first + t;
    return OK;
}

/* One forward pass of an open stage over the tokens of the proof. */
static status pass(struct exporting *e, struct stage *stage,
                   token_reader *reader)
{
    const struct stage_batch batch = stage_batch(stage, 0);
    const uint64_t spread = 0x9e3779b97f4a7c15u; /* odd: visits all ids */

    for (int64_t t = 0; t < e->tokens; t++) {
        batch.inputs[t] = (int32_t)((uint64_t)(t + 1) * spread %
                                    (uint64_t)e->session.model.vocab);
        batch.targets[t] = -1;
    }
    for (int64_t t = 0; t < e->tokens * stage->program.later.depth; t++) {
        batch.mtp_inputs[t] = batch.inputs[t % e->tokens]; /* any will do */
        batch.mtp_targets[t] = -1;
    }
    stage->run.logits.read = reader;
    stage->run.logits.argument = e;
    stage->run.batch = (struct batch){.inputs = batch.inputs,
                                      .targets = batch.targets,
                                      .mtp_inputs = batch.mtp_inputs,
                                      .mtp_targets = batch.mtp_targets,
                                      .tokens = e->tokens};
    return run_forward(&stage->run);
}

static status plan_pass(const struct exporting *e,
                        const struct session *session,
                        struct stage_request *plan)
{
    TRY(session_request(session, 1, e->tokens, plan));
    plan->dtype = e->session.dtype;
    plan->mtp_depth = session->model.mtp_depth;
    if (e->tokens < plan->layout.grid.tensor) plan->layout.grid.tensor = 1;
    return OK;
}

static status prove(struct exporting *e)
{
    struct session session = {0};
    struct stage_request plan;
    struct stage stage = {0};
    status result;

    stage_free(&e->stage); /* one model in memory at a time */
    e->differs = -1;
    TRY_GOTO(done, result, session_open(&session, e->aside));
    /* The files do not say in which leaves the weights were trained. */
    session.grid_tensor = e->session.grid_tensor;
    session.grid_expert = e->session.grid_expert;
    TRY_GOTO(done, result, plan_pass(e, &session, &plan));
    TRY_GOTO(done, result, session_stage(&session, &plan, &stage));
    TRY_GOTO(done, result, pass(e, &stage, compare));
    if (e->differs >= 0)
        FAIL_GOTO(done, result, ERR_VERIFY,
                  "%s: the exported files give other logits at position %lld; "
                  "nothing was written", e->session.path,
                  (long long)e->differs);
done:
    stage_free(&stage);
    session_close(&session);
    return result;
}

/* ---- the type of the files ---- */

static bool is_finite(double value)
{
    return value - value == 0;
}

enum { AT_ONCE = 256 };

static status refuse_value(const struct exporting *e,
                           const struct param *param, int64_t index,
                           double value)
{
    const enum dtype from = e->stage.program.dtype;

    FAIL(ERR_CONFIG, "%s: element %lld is %g, beyond the range of %s; %s holds "
                     "it", param->name, (long long)index, value,
         dtype_name(e->dtype),
         e->dtype == DTYPE_F16 ? "bfloat16" : dtype_name(from));
}

/* Rounds one parameter in place; what the type cannot hold is refused. */
static status round_param(struct exporting *e, const struct param *param)
{
    const struct spacing from = {e->stage.program.dtype, 1};
    const struct spacing to = {e->dtype, 1}, wide = {DTYPE_F64, 1};
    double before[AT_ONCE], after[AT_ONCE], room[AT_ONCE];

    for (int64_t first = 0; first < param->elements; first += AT_ONCE) {
        const int64_t left = param->elements - first;
        const int64_t count = left < AT_ONCE ? left : AT_ONCE;
        char *at = (char *)e->stage.run.params.weights +
                   (param->offset + first) * dtype_bytes(from.dtype);

        convert_elements(wide, before, from, at, count);
        convert_elements(to, room, wide, before, count);
        convert_elements(wide, after, to, room, count);
        for (int64_t i = 0; i < count; i++) {
            if (is_finite(before[i]) && !is_finite(after[i]))
                return refuse_value(e, param, first + i, before[i]);
            e->rounded += is_finite(before[i]) && before[i] != after[i];
        }
        convert_elements(from, at, wide, after, count);
    }
    return OK;
}

static status round_weights(struct exporting *e)
{
    const struct param_table *params = &e->stage.program.params;

    e->dtype = e->request->typed ? e->request->dtype : e->session.dtype;
    e->parts.rounded = e->dtype != e->stage.program.dtype;
    e->parts.written = e->dtype;
    if (!e->parts.rounded) return OK;
    for (int i = 0; i < params->count; i++)
        TRY(round_param(e, &params->items[i]));
    return OK;
}

static int64_t written_bytes(const struct exporting *e)
{
    int64_t elements = 0;

    for (int i = 0; i < e->parts.count; i++) {
        const struct saved_part *part = &e->parts.items[i];
        int64_t product = 1;

        for (int j = 0; j < part->dimensions; j++) product *= part->shape[j];
        elements += product;
    }
    return elements * dtype_bytes(e->dtype);
}

/* ---- all of it ---- */

static status warn_of_dense(struct session *session)
{
    if (!lora_loses_dense(&session->model)) return OK;
    return text_printf(
        &session->notice,
        "%sPEFT 0.21 takes the targets gate_proj, up_proj and down_proj of %s "
        "for the experts that tokens choose: there the adapters of dense "
        "blocks and shared experts have no effect; export the merged model, "
        "without --adapter", session->notice.length > 0 ? "\n" : "",
        session->model.kind->name);
}

/* The names that PEFT gives them: of the model inside its own. */
static status add_adapters(struct exporting *e)
{
    if (e->session.model.lora.rank == 0)
        FAIL(ERR_CONFIG, "%s: has no adapters (lora.rank); leave --adapter "
                         "out", e->session.path);
    TRY(warn_of_dense(&e->session));
    e->parts.only = PARTS_ADAPTERS;
    e->parts.prefix = "base_model.model.";
    return session_parts_add(&e->parts, &e->stage, "weight",
                             e->stage.run.params.weights,
                             e->stage.program.dtype);
}

/* Files of most families have no place for modules that predict later
 * tokens. */
static status leave_modules(struct session *session)
{
    struct model *m = &session->model;

    if (m->mtp_depth == 0 || m->kind->files.more_blocks) return OK;
    m->mtp_depth = 0;
    return text_printf(
        &session->notice,
        "%smodules that predict later tokens (mtp.depth) stay in the "
        "checkpoint: files of %s have no place for them; those of "
        "deepseek_v3, glm4_moe and glm4_moe_lite have",
        session->notice.length > 0 ? "\n" : "", m->kind->name);
}

static status open_source(struct exporting *e, const char *model)
{
    struct stage_request plan;
    void *memory;

    TRY(session_open(&e->session, model));
    e->session.average = e->request->average;
    TRY(leave_modules(&e->session));
    const struct model *m = &e->session.model;

    e->tokens = m->context < PROOF_TOKENS ? m->context
                                                : PROOF_TOKENS;
    e->row = (size_t)m->vocab * (size_t)dtype_bytes(e->session.dtype);
    TRY(memory_take((size_t)e->tokens, e->row, &memory));
    e->logits = memory;
    TRY(plan_pass(e, &e->session, &plan));
    TRY(session_stage(&e->session, &plan, &e->stage));
    if (m->lora.rank > 0 && !e->request->adapter)
        TRY(adapters_merge(&e->stage));
    TRY(round_weights(e));
    if (e->request->adapter) return add_adapters(e);
    e->parts.only = PARTS_WEIGHTS;
    TRY(session_parts_add(&e->parts, &e->stage, "weight",
                          e->stage.run.params.weights, e->stage.program.dtype));
    return pass(e, &e->stage, keep);
}

/* Read back, every checksum of the table and every size. */
static status write_adapters(struct exporting *e)
{
    const bool joined = lora_is_joined(&e->session.model);
    struct safetensors file = {0};
    int count = e->parts.count;
    char path[PATH_BYTES];
    status result;

    TRY(lora_write_config(&e->session.model, joined, &e->config));
    TRY(store(e, "adapter_config.json", e->config.bytes, e->config.length));
    TRY(path_join(path, sizeof path, e->aside, "adapter_model.safetensors"));
    TRY(session_parts_write(&e->parts, path));
    if (joined) TRY(stacked_write(&e->session.model, path, &count));
    result = safetensors_open(&file, path, true);
    if (result == OK && file.count != count)
        result = status_fail(ERR_VERIFY, __FILE__, __LINE__,
                             "%s: %d tensors where %d were written", path,
                             file.count, count);
    safetensors_close(&file);
    return result;
}

static status write_files(struct exporting *e)
{
    if (e->request->adapter) return write_adapters(e);
    TRY(write_tokenizer(e));
    TRY(model_write_config(&e->session.model, e->dtype, &e->config));
    TRY(store(e, "config.json", e->config.bytes, e->config.length));
    TRY(write_generation(e));
    TRY(write_companions(e));
    return session_parts_export(&e->parts, e->aside);
}

/* A program that does not know of the biases would choose other experts. */
static status check_biases(const struct model *m)
{
    if (!m->moe.bias || m->kind->moe.bias) return OK;
    FAIL(ERR_CONFIG, "export: this %s was trained with selection biases "
                     "(moe.bias_rate), for which files of %s have no place; "
                     "train deepseek_v3, which has them, or with "
                     "moe.balance_loss alone", m->kind->name, m->kind->name);
}

static status finish(struct exporting *e, const char *directory)
{
    if (rename(e->aside, directory) != 0)
        FAIL(ERR_IO, "%s: cannot be put in place: %s", directory,
             strerror(errno));
    temporary_forget(e->aside);
    e->aside[0] = 0;
    return directory_sync(directory);
}

status model_export(const struct export_request *request,
                    struct export_result *result)
{
    const char *directory = request->directory;
    struct exporting e = {.request = request};
    status code;

    TRY_GOTO(done, code, check_target(directory));
    TRY_GOTO(done, code, open_source(&e, request->model));
    TRY_GOTO(done, code, check_biases(&e.session.model));
    *result = (struct export_result){
        .parameters = written_bytes(&e) / dtype_bytes(e.dtype),
        .tensors = e.parts.count, .dtype = e.dtype,
        .source = e.stage.program.dtype, .rounded = e.rounded,
        .weight_bytes = written_bytes(&e)};
    if (!request->adapter) {
        result->parameters = e.stage.program.params.parameters;
        result->proof_tokens = e.tokens;
        result->proof_logits = e.tokens * e.session.model.vocab;
        result->tokenizer = e.session.tokenizer[0] != 0;
    }
    if (e.session.notice.length > 0)
        snprintf(result->notice, sizeof result->notice, "%s",
                 e.session.notice.bytes);
    TRY_GOTO(done, code, make_aside(&e, directory));
    TRY_GOTO(done, code, write_files(&e));
    if (!request->adapter) TRY_GOTO(done, code, prove(&e));
    TRY_GOTO(done, code, finish(&e, directory));
done:
    /* The first error is what the user must see. */
    if (e.aside[0] != 0) (void)directory_remove(e.aside);
    session_parts_free(&e.parts);
    stage_free(&e.stage);
    session_close(&e.session);
    text_free(&e.config);
    text_free(&e.tokenizer);
    memory_free(e.logits);
    return code;
}

status export_print(const struct export_result *r, const char *directory,
                    struct text *out)
{
    const int64_t source_bytes =
        r->weight_bytes / dtype_bytes(r->dtype) * dtype_bytes(r->source);
    char count[32], size[32];

    TRY(text_printf(out, "exported      %s\n", directory));
    TRY(text_printf(out, "tensors       %d, %s, %s\n", r->tensors,
                    dtype_name(r->dtype),
                    text_bytes(size, (uint64_t)r->weight_bytes)));
    if (r->dtype != r->source)
        TRY(text_printf(out, "rounded       %s weights, to nearest even (%s "
                             "would be %s)\n",
                        text_count(count, r->rounded), dtype_name(r->source),
                        text_bytes(size, (uint64_t)source_bytes)));
    TRY(text_printf(out, "parameters    %s\n",
                    text_count(count, r->parameters)));
    if (r->proof_tokens == 0)
        return text_printf(out, "adapters      read back from the file: every "
                                "name, size and place\n");
    TRY(text_printf(out, "tokenizer     %s\n",
                    r->tokenizer ? "copied" : "none in the source"));
    return text_printf(out, "proof         %s logits over %lld tokens, read "
                            "back from the files: equal in every bit\n",
                       text_count(count, r->proof_logits),
                       (long long)r->proof_tokens);
}
