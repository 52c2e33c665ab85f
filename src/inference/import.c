/* SPDX-License-Identifier: Apache-2.0 */
/* import.c - a Hugging Face directory as a run at step 0. */
#include "inference/import.h"

#include <lockstep.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/history.h"
#include "checkpoint/save.h"
#include "inference/companions.h"
#include "models/lora.h"
#include "models/numbers.h"

enum { SETTING_BYTES = 128 };

struct importing {
    struct session session;
    struct stage stage;
    struct session_parts parts;
    struct run_dir run;
    struct text config;    /* config.json */
    struct text tokenizer; /* its file; empty if there is none */
    struct text adapter;   /* adapter_config.json; empty: none */
    struct text yaml;
    bool made;             /* RUN is new: a failure removes it */
};

/* ---- the configuration ---- */

static status set(struct options_set *set, const char *name,
                  const char *value)
{
    char assignment[SETTING_BYTES + PATH_BYTES];

    snprintf(assignment, sizeof assignment, "%s=%s", name, value);
    return options_assign(set, assignment, ORIGIN_FILE);
}

static status set_integer(struct options_set *options, const char *name,
                          int64_t value)
{
    char text[SETTING_BYTES];

    snprintf(text, sizeof text, "%lld", (long long)value);
    return set(options, name, text);
}

static status set_real(struct options_set *options, const char *name,
                       double value)
{
    char text[SETTING_BYTES];

    snprintf(text, sizeof text, "%.17g", value); /* reads back exactly */
    return set(options, name, text);
}

static const char *activation_name(enum activation activation)
{
    switch (activation) {
    case ACTIVATION_GELU_TANH: return "gelu_tanh";
    case ACTIVATION_GELU_ERF: return "gelu";
    case ACTIVATION_SILU: return "silu";
    case ACTIVATION_RELU: return "relu";
    }
    return "";
}

static status set_scaling(struct options_set *o, const struct model *m)
{
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, rope_to_text(&m->rope.scaling, &text));
    if (text.length > 0)
        TRY_GOTO(done, result, set(o, "model.rope_scaling", text.bytes));
done:
    text_free(&text);
    return result;
}

/* NAME_skip, or NAME_except where there is no period. */
static status set_layers(struct options_set *o, const char *name,
                         const struct blocks *layers, int count)
{
    const int period = blocks_period(layers, count);
    struct text key = {0}, list = {0};
    status result;

    TRY_GOTO(done, result, text_printf(&key, "%s_%s", name,
                                       period < 0 ? "except" : "skip"));
    TRY_GOTO(done, result, blocks_to_text(layers, count, &list));
    result = period < 0 ? set(o, key.bytes, list.bytes)
                        : set_integer(o, key.bytes, period);
done:
    text_free(&key);
    text_free(&list);
    return result;
}

static status set_flag(struct options_set *o, const char *name, bool value)
{
    return set(o, name, value ? "true" : "false");
}

/* Sets the options that only some families accept. */
static status set_choices(struct options_set *o, const struct model *m)
{
    const struct model_kind *kind = m->kind;

    if (kind->beside.choice)
        TRY(set_integer(o, "model.parallel", m->beside.on));
    if (kind->biases.head)
        TRY(set_integer(o, "model.head_bias", m->biases.head));
    if (kind->beside.norms)
        TRY(set_integer(o, "model.parallel_norms", m->beside.norms));
    if (kind->qk_norm) TRY(set_flag(o, "model.qk_norm", m->qk_norm));
    if (kind->alibi) TRY(set_flag(o, "model.alibi", m->alibi));
    if (kind->scaled.layers)
        TRY(set_flag(o, "model.layer_scale", m->scaled.layers));
    TRY(set_flag(o, "model.tied", m->tied));
    TRY(set_flag(o, "model.attention_bias", m->biases.attention));
    return set_flag(o, "model.mlp_bias", m->biases.mlp);
}

static status set_numbers(struct options_set *o, const struct model *m)
{
    for (int i = 0; i < model_number_count; i++) {
        const struct model_number *number = &model_numbers[i];
        char name[64];

        if (!model_number_is_of(number, m->kind)) continue;
        snprintf(name, sizeof name, "model.%s", number->name);
        TRY(set_real(o, name, model_number_value(number, m)));
    }
    return OK;
}

static status set_experts(struct options_set *o, const struct model *m)
{
    const struct moe *x = &m->moe;
    struct text list = {0};
    status result;

    if (x->experts == 0) return OK;
    TRY(set_integer(o, "moe.experts", x->experts));
    TRY(set_integer(o, "moe.top_k", x->top_k));
    TRY(set_integer(o, "moe.intermediate_size", x->width));
    if (m->kind->moe.shared)
        TRY(set_integer(o, "moe.shared_intermediate_size", x->shared_width));
    if (m->kind->moe.normalize_choice)
        TRY(set_integer(o, "moe.normalize", x->normalize));
    if (m->kind->moe.noise > 0)
        TRY(set_real(o, "moe.router_noise", x->noise));
    if (m->kind->moe.swiglu_limit > 0) {
        TRY(set_real(o, "moe.swiglu_alpha", x->swiglu_alpha));
        TRY(set_real(o, "moe.swiglu_limit", x->swiglu_limit));
    }
    if (m->kind->moe.groups > 0) {
        TRY(set_integer(o, "moe.groups", x->groups > 0 ? x->groups : 1));
        TRY(set_integer(o, "moe.groups_chosen",
                        x->groups > 0 ? x->groups_chosen : 1));
        TRY(set_real(o, "moe.scale", x->scale));
    }
    if (blocks_count(&x->dense) == 0) return OK;
    TRY_GOTO(done, result, blocks_to_text(&x->dense, m->layers, &list));
    result = set(o, "moe.dense", list.bytes);
done:
    text_free(&list);
    return result;
}

static status set_latent(struct options_set *o, const struct mla *x)
{
    TRY(set_integer(o, "mla.query_rank", x->query_rank));
    TRY(set_integer(o, "mla.rank", x->rank));
    TRY(set_integer(o, "mla.nope", x->nope));
    TRY(set_integer(o, "mla.rope", x->rope));
    return set_integer(o, "mla.value", x->value);
}

static status set_model(struct options_set *o, const struct model *m)
{
    TRY(set(o, "model.family", m->kind->name));
    TRY(set_integer(o, "model.vocab", m->vocab));
    TRY(set_integer(o, "model.layers", m->layers));
    TRY(set_integer(o, "mtp.depth", m->mtp_depth));
    TRY(set_integer(o, "model.width", m->width));
    TRY(set_integer(o, "model.heads", m->heads));
    TRY(set_integer(o, "model.kv_heads", m->kv_heads));
    if (m->mla.rank == 0)
        TRY(set_integer(o, "model.head_width", m->head_width));
    else
        TRY(set_latent(o, &m->mla));
    TRY(set_integer(o, "model.feed_forward", m->feed_forward));
    TRY(set_integer(o, "model.context", m->context));
    TRY(set_integer(o, "model.window", m->window.tokens));
    if (m->kind->rope.share > 0)
        TRY(set_integer(o, "model.rotary",
                        m->rope.rotary ? m->rope.rotary : m->head_width));
    if (m->kind->window.layers && m->window.tokens > 0)
        TRY(set_layers(o, "model.window", &m->window.whole, m->layers));
    TRY(set_numbers(o, m));
    if (m->kind->rope.skip > 0)
        TRY(set_layers(o, "model.rope", &m->rope.still, m->layers));
    if (m->kind->tempered.by > 0) {
        TRY(set_real(o, "model.temper", m->tempered.by));
        TRY(set_integer(o, "model.temper_floor", m->tempered.floor));
    }
    TRY(set_choices(o, m));
    TRY(set_experts(o, m));
    TRY(set_real(o, "model.rope_base", m->rope.base));
    TRY(set_scaling(o, m));
    TRY(set_real(o, "model.norm_epsilon", m->norm_epsilon));
    TRY(set_real(o, "model.init_std", m->init_std));
    return set(o, "model.activation", activation_name(m->activation));
}

static status write_yaml(struct importing *i, const char *run)
{
    struct options_set options = {0};
    char path[PATH_BYTES];
    status result;

    TRY_GOTO(done, result, options_init(&options));
    TRY_GOTO(done, result, set_model(&options, &i->session.model));
    TRY_GOTO(done, result, set(&options, "train.dtype",
                               dtype_name(i->session.dtype)));
    if (i->tokenizer.length > 0) {
        TRY_GOTO(done, result,
                 path_join(path, sizeof path, run,
                           session_tokenizer_name(&i->session)));
        TRY_GOTO(done, result, set(&options, "tokenizer.from", path));
    }
    if (i->adapter.length > 0)
        TRY_GOTO(done, result, set(&options, "lora.from", run));
    TRY_GOTO(done, result, set(&options, "run.dir", run));
    TRY_GOTO(done, result, options_write_yaml(&options, &i->yaml));
done:
    options_free(&options);
    return result;
}

/* ---- reading, then writing ---- */

static status read_source(struct importing *i, const char *source,
                          const char *adapter, const struct upcycle *upcycle)
{
    struct session *session = &i->session;
    struct stage_request plan;

    TRY(session_open(session, source));
    if (session->kind != MODEL_HUGGING_FACE)
        FAIL(ERR_CONFIG, "%s: is a %s already; import takes a Hugging Face "
                         "directory", source,
             session->kind == MODEL_RUN ? "run" : "checkpoint");
    if (upcycle != NULL && adapter != NULL)
        FAIL(ERR_CONFIG, "%s: adapters do not fit a mixture made of the model; "
                         "import them, export the merged model, and import "
                         "that with --set moe.experts", adapter);
    if (upcycle != NULL) TRY(session_upcycle(session, upcycle));
    if (adapter != NULL) {
        TRY(session_adapt(session, adapter));
        TRY(lora_write_config(&session->model, false, &i->adapter));
    }
    TRY(session_request(session, 1, 1, &plan));
    plan.dtype = session->dtype;
    plan.mtp_depth = session->model.mtp_depth;
    plan.layout.grid.tensor = 1; /* nothing is computed: the least frame */
    plan.machine.threads = 1;
    TRY(session_stage(session, &plan, &i->stage));
    if (upcycle != NULL)
        TRY(session_start_routers(&i->stage, upcycle->seed));
    TRY(session_parts_add(&i->parts, &i->stage, "weight",
                          i->stage.run.params.weights, i->stage.program.dtype));
    TRY(model_write_config(&session->model, session->dtype, &i->config));
    if (session->tokenizer[0] == 0) return OK;
    return session_read_tokenizer(session, &i->tokenizer);
}

static status store(const char *directory, const char *name,
                    const struct text *text)
{
    char path[PATH_BYTES];

    TRY(path_join(path, sizeof path, directory, name));
    return file_write_atomic(path, text->bytes, text->length);
}

static status save(struct importing *i, const char *run)
{
    struct checkpoint_file files[3] = {
        {"config.json", i->config.bytes, i->config.length}};
    struct stage_request facts;
    char digest[DIGEST_BYTES] = "";
    int file_count = 1;

    if (i->adapter.length > 0)
        files[file_count++] = (struct checkpoint_file){
            "adapter_config.json", i->adapter.bytes, i->adapter.length};
    if (i->tokenizer.length > 0)
        files[file_count++] = (struct checkpoint_file){
            session_tokenizer_name(&i->session), i->tokenizer.bytes,
            i->tokenizer.length};

    TRY(session_request(&i->session, 8, 1, &facts)); /* the automatic grid */
    if (i->tokenizer.length > 0)
        sha256_hex(i->tokenizer.bytes, i->tokenizer.length, digest);
    const struct checkpoint_plan plan = {
        .run = run, .grid = facts.layout.grid, .lockstep = LOCKSTEP_VERSION,
        .numerics = LOCKSTEP_NUMERICS_VERSION, .config_json = i->config.bytes,
        .tokenizer = digest, .state_json = "{\"step\": 0, \"tokens\": 0, "
                                           "\"samples\": 0, \"epoch\": 0}\n",
        .parts = i->parts.items, .part_count = i->parts.count,
        .files = files, .file_count = file_count};

    return checkpoint_save(&plan);
}

static status check_free(const char *run)
{
    char config[PATH_BYTES];

    TRY(path_join(config, sizeof config, run, "config.yaml"));
    if (!file_exists(config)) return OK;
    FAIL(ERR_CONFIG, "%s: holds a run already; import into another directory",
         run);
}

static status write_run(struct importing *i, const char *run)
{
    TRY(check_free(run));
    i->made = !file_exists(run) && !file_is_link(run);
    TRY(run_dir_create(&i->run, run));
    TRY(run_dir_clean(&i->run));
    TRY(write_yaml(i, run));
    TRY(save(i, run));
    TRY(store(run, "config.json", &i->config));
    if (i->adapter.length > 0)
        TRY(store(run, "adapter_config.json", &i->adapter));
    if (i->tokenizer.length > 0)
        TRY(store(run, session_tokenizer_name(&i->session), &i->tokenizer));
    if (i->tokenizer.length > 0)
        TRY(companions_copy(i->session.tokenizer, run,
                            i->session.model.context));
    /* Last: a directory with config.yaml is a run. */
    return file_write_atomic(i->run.config, i->yaml.bytes, i->yaml.length);
}

static status describe(const struct importing *i, const char *run,
                       struct import_result *out)
{
    int64_t step;

    *out = (struct import_result){
        .model = i->session.model, .dense = i->session.dense,
        .tensors = i->parts.count,
        .parameters = i->stage.program.params.parameters,
        .dtype = i->session.dtype, .dropout = i->session.model.dropout,
        .tokenizer = i->tokenizer.length > 0};
    snprintf(out->stored, sizeof out->stored, "%s", i->session.stored);
    return checkpoint_find_newest(run, out->checkpoint, &step);
}

status model_import(const char *source, const char *run,
                    const char *adapter, const struct upcycle *upcycle,
                    struct import_result *result)
{
    struct importing i = {0};
    status code;

    TRY_GOTO(done, code, read_source(&i, source, adapter, upcycle));
    TRY_GOTO(done, code, write_run(&i, run));
    TRY_GOTO(done, code, describe(&i, run, result));
done:
    run_dir_close(&i.run);
    /* The first error is what the user must see. */
    if (code != OK && i.made) (void)directory_remove(run);
    session_parts_free(&i.parts);
    stage_free(&i.stage);
    session_close(&i.session);
    text_free(&i.config);
    text_free(&i.tokenizer);
    text_free(&i.adapter);
    text_free(&i.yaml);
    return code;
}

status import_print(const struct import_result *r, struct text *out)
{
    const struct model *m = &r->model;
    char count[32];

    TRY(text_printf(out, "architecture  %s, %d layers, width %lld, %d heads "
                         "(%d key-value), feed-forward %lld, vocabulary %lld, "
                         "context %lld, %s head\n", m->kind->name, m->layers,
                    (long long)m->width, m->heads, m->kv_heads,
                    (long long)m->feed_forward, (long long)m->vocab,
                    (long long)m->context, m->tied ? "tied" : "own"));
    if (m->moe.experts > 0)
        TRY(text_printf(out, "experts       %d of width %lld, %d for each "
                             "token\n", m->moe.experts,
                        (long long)m->moe.width, m->moe.top_k));
    if (r->dense != NULL)
        TRY(text_printf(out, "tensors       %d; every expert begins as its "
                             "block's feed-forward part in the %s, the "
                             "routers at random\n", r->tensors,
                        r->dense->name));
    else
        TRY(text_printf(out, "tensors       %d, each used exactly once\n",
                        r->tensors));
    TRY(text_printf(out, "parameters    %s\n",
                    text_count(count, r->parameters)));
    TRY(text_printf(out, "type          %s, kept as %s\n", r->stored,
                    dtype_name(r->dtype)));
    if (m->lora.rank > 0)
        TRY(text_printf(out, "adapters      rank %d, alpha %g; merged by "
                             "`lockstep export`\n", m->lora.rank,
                        m->lora.alpha));
    if (m->lora.dropout > 0)
        TRY(text_printf(out, "adapters      were trained with dropout %g; here "
                             "they are without\n", m->lora.dropout));
    if (r->dropout > 0)
        TRY(text_printf(out, "dropout       up to %g in config.json; here it "
                             "is what model.dropout says\n", r->dropout));
    TRY(text_printf(out, "tokenizer     %s\n",
                    r->tokenizer ? "copied" : "none in the source"));
    return text_printf(out, "checkpoint    %s\n", r->checkpoint);
}
