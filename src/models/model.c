/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - from options or a config.json to a checked architecture. */
#include "models/config.h"

#include <string.h>

#include "base/file.h"

static const struct model_kind *const kinds[] = {&model_llama, &model_gpt2,
                                               &model_qwen2, &model_mistral};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct model_kind *model_kind_find(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

static status kind_require(const char *where, const char *name,
                           const struct model_kind **out)
{
    const char *names[KINDS];

    *out = model_kind_find(name);
    if (*out != NULL) return OK;
    for (int i = 0; i < KINDS; i++) names[i] = kinds[i]->name;
    const char *near = text_nearest(name, names, KINDS);

    FAIL(ERR_CONFIG, "%s: %s is not a family of this build (llama, gpt2, "
                     "qwen2, mistral)%s%s",
         where, name, near ? "; nearest: " : "", near ? near : "");
}

status model_check(const struct model *m)
{
    if (m->heads < 1 || m->width % m->heads != 0) {
        if (m->head_width * (int64_t)m->heads != m->width &&
            m->kind == &model_gpt2)
            FAIL(ERR_CONFIG, "a width of %lld is not a multiple of %d heads; "
                             "%lld is", (long long)m->width, m->heads,
                 (long long)((m->width / m->heads + 1) * m->heads));
    }
    if (m->kv_heads < 1 || m->heads % m->kv_heads != 0) {
        int near = m->kv_heads < 1 ? 1 : m->kv_heads;

        while (near > 1 && m->heads % near != 0) near--;
        FAIL(ERR_CONFIG, "%d heads cannot be shared by %d key-value heads; "
                         "%d can", m->heads, m->kv_heads, near);
    }
    if (m->head_width < 1 || m->head_width > HEAD_WIDTH_MAX)
        FAIL(ERR_CONFIG, "a head width of %d is outside 1 to %d",
             m->head_width, HEAD_WIDTH_MAX);
    if (m->kind != &model_gpt2 && m->head_width % 2 != 0)
        FAIL(ERR_CONFIG, "a head width of %d is odd, rotary positions turn "
                         "pairs; %d is even", m->head_width,
             m->head_width + 1);
    if (m->vocab < 2)
        FAIL(ERR_CONFIG, "a vocabulary of %lld tokens; set model.vocab, or "
                         "tokenizer.from to take its own",
             (long long)m->vocab);
    if (!(m->norm_epsilon >= 0) || !(m->init_std >= 0))
        FAIL(ERR_CONFIG, "a norm epsilon of %g or an initial deviation of %g "
                         "is not a number from 0 on", m->norm_epsilon,
             m->init_std);
    return OK;
}

static status activation_from(const char *name, enum activation family,
                              enum activation *out)
{
    static const struct { const char *name; enum activation value; } rows[] = {
        {"gelu_tanh", ACTIVATION_GELU_TANH}, {"gelu", ACTIVATION_GELU_ERF},
        {"silu", ACTIVATION_SILU}, {"relu", ACTIVATION_RELU}};

    *out = family;
    if (name[0] == 0) return OK;
    for (int i = 0; i < 4; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *out = rows[i].value;
        return OK;
    }
    FAIL(ERR_CONFIG, "model.activation: %s is not gelu_tanh, gelu, silu or "
                     "relu", name);
}

/* What options ask of a family that it never has. */
static status check_family(const struct model *m)
{
    const struct { const char *name; bool asked, refused; } rows[] = {
        {"attention_bias", m->attention_bias, m->kind->no_attention_bias},
        {"mlp_bias", m->mlp_bias, m->kind->no_mlp_bias},
        {"window", m->window > 0, !m->kind->windowed}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].asked && rows[i].refused)
            FAIL(ERR_CONFIG, "model.%s: %s has none; leave it out",
                 rows[i].name, m->kind->name);
    return OK;
}

int64_t model_longest(const struct model *model)
{
    return model->window > 0 && model->window < model->context
               ? model->window : model->context;
}

enum { SIZES = 9 };

struct size_row { const char *name; int64_t value; };

static void sizes_of(const struct options *o, struct size_row rows[SIZES])
{
    const struct size_row asked[SIZES] = {
        {"vocab", o->model.vocab}, {"layers", o->model.layers},
        {"width", o->model.width}, {"heads", o->model.heads},
        {"kv_heads", o->model.kv_heads},
        {"head_width", o->model.head_width},
        {"feed_forward", o->model.feed_forward},
        {"context", o->model.context}, {"window", o->model.window}};

    memcpy(rows, asked, sizeof asked);
}

/* With model.from a size of its own is idle at best: it must say the same.
 * A default says nothing. */
static status check_same(const struct model *m, const struct options *options)
{
    const int64_t found[SIZES] = {m->vocab, m->layers, m->width, m->heads,
                                  m->kv_heads, m->head_width,
                                  m->feed_forward, m->context, m->window};
    struct size_row asked[SIZES], idle[SIZES];
    struct options_set defaults = {0};

    TRY(options_init(&defaults));
    sizes_of(&defaults.values, idle);
    options_free(&defaults);
    sizes_of(options, asked);
    for (int i = 0; i < SIZES; i++)
        if (asked[i].value != idle[i].value && asked[i].value != found[i])
            FAIL(ERR_CONFIG, "model.%s: %lld, but the config.json of "
                             "model.from says %lld; leave it out",
                 asked[i].name, (long long)asked[i].value,
                 (long long)found[i]);
    return OK;
}

static status check_sequence(const struct model *model, int64_t sequence)
{
    if (sequence <= model->context && sequence > model_longest(model))
        FAIL(ERR_CONFIG, "data.sequence: %lld tokens are more than the "
                         "sliding window of %lld, and windows shorter than a "
                         "sequence are not in this build", (long long)sequence,
             (long long)model->window);
    if (sequence > model->context)
        FAIL(ERR_CONFIG, "data.sequence: %lld tokens are more than the model's "
                         "context of %lld; raise model.context or shorten the "
                         "sequence", (long long)sequence,
             (long long)model->context);
    return OK;
}

status model_from_options(struct model *model, const struct options *options,
                          int64_t vocab)
{
    const struct model_kind *kind;
    const int64_t width = options->model.width, heads = options->model.heads;
    const int64_t sequence = options->data.sequence;

    if (options->model.from[0] != 0) {
        TRY(model_from_config(model, options->model.from));
        TRY(check_same(model, options));
        if (options->model.rope_scaling[0] != 0)
            FAIL(ERR_CONFIG, "model.rope_scaling: the config.json of "
                             "model.from says it; leave it out");
    } else {
        TRY(kind_require("model.family", options->model.family, &kind));
        const bool gpt2 = kind == &model_gpt2;
        const int64_t inner = options->model.feed_forward;

        *model = (struct model){
            .kind = kind,
            .vocab = options->model.vocab ? options->model.vocab : vocab,
            .layers = (int)options->model.layers, .heads = (int)heads,
            .kv_heads = (int)(options->model.kv_heads
                                  ? options->model.kv_heads : heads),
            .head_width = (int)(options->model.head_width
                                    ? options->model.head_width
                                    : width / heads),
            .width = width,
            .feed_forward = inner ? inner
                            : gpt2 ? 4 * width
                                   : (8 * width / 3 + 31) / 32 * 32,
            .context = options->model.context ? options->model.context
                                              : sequence,
            .tied = gpt2 || options->model.tied,
            .attention_bias = kind->attention_bias ||
                              options->model.attention_bias,
            .mlp_bias = kind->mlp_bias || options->model.mlp_bias,
            .window = options->model.window,
            .rope_base = options->model.rope_base,
            .norm_epsilon = options->model.norm_epsilon,
            .init_std = options->model.init_std, .bos = -1, .eos = -1};
        TRY(rope_from_text(model, options->model.rope_scaling));
        TRY(activation_from(options->model.activation,
                            gpt2 ? ACTIVATION_GELU_TANH : ACTIVATION_SILU,
                            &model->activation));
        if (options->model.head_width == 0 && width % heads != 0)
            FAIL(ERR_CONFIG, "model.width: %lld is not a multiple of %lld "
                             "heads; %lld is", (long long)width,
                 (long long)heads, (long long)((width / heads + 1) * heads));
        if (gpt2 && model->head_width * heads != width)
            FAIL(ERR_CONFIG, "model.head_width: gpt2 takes only width / heads "
                             "= %lld", (long long)(width / heads));
        if (gpt2 && model->rope.kind != ROPE_PLAIN)
            FAIL(ERR_CONFIG, "model.rope_scaling: gpt2 has learned "
                             "positions, nothing turns");
        if (gpt2 && model->kv_heads != heads)
            FAIL(ERR_CONFIG, "model.kv_heads: gpt2 takes only as many as "
                             "heads, %lld", (long long)heads);
        if (!gpt2 && model->activation != ACTIVATION_SILU)
            FAIL(ERR_CONFIG, "model.activation: the gate of %s takes only "
                             "silu", kind->name);
        TRY(check_family(model));
        TRY(model_check(model));
    }
    return check_sequence(model, sequence);
}

static status model_read_json(struct model *model, const struct json *config,
                              const char *source)
{
    const struct model_kind *kind;
    const char *type;

    if (config->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: a JSON object was expected", source);
    TRY(json_get_string(config, source, "model_type", &type));
    TRY(kind_require(source, type, &kind));
    return kind->read_config(model, config, source);
}

status model_from_config(struct model *model, const char *path)
{
    const struct json *root;
    char file[PATH_BYTES];
    struct arena arena;
    status result;

    arena_init(&arena, "config.json", (size_t)1 << 26);
    if (file_is_directory(path))
        TRY_GOTO(done, result, path_join(file, sizeof file, path,
                                         "config.json"));
    else
        TRY_GOTO(done, result, path_join(file, sizeof file, path, ""));
    if (!file_is_directory(path)) file[strlen(path)] = 0;
    TRY_GOTO(done, result, json_read_file(&root, &arena, file,
                                          (size_t)1 << 20));
    TRY_GOTO(done, result, model_read_json(model, root, file));
done:
    arena_free(&arena);
    return result;
}

status model_write_config(const struct model *model, enum dtype dtype,
                          struct text *out)
{
    struct json_writer writer;
    status result;

    json_write_begin(&writer, 2);
    json_write_object(&writer);
    model->kind->write_config(model, &writer);
    json_write_key(&writer, "bos_token_id");
    if (model->bos >= 0) json_write_integer(&writer, model->bos);
    else json_write_null(&writer);
    json_write_key(&writer, "eos_token_id");
    if (model->eos >= 0) json_write_integer(&writer, model->eos);
    else json_write_null(&writer);
    json_write_key(&writer, "dtype");
    json_write_string(&writer, dtype_name(dtype));
    json_write_key(&writer, "torch_dtype");
    json_write_string(&writer, dtype_name(dtype));
    json_write_key(&writer, "use_cache");
    json_write_bool(&writer, true);
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_write_end(&writer));
    TRY_GOTO(done, result, text_append(out, writer.out.bytes,
                                       writer.out.length));
    TRY_GOTO(done, result, text_append_string(out, "\n"));
done:
    json_writer_free(&writer);
    return result;
}

status model_build_whole(struct program *program, const struct model *model)
{
    const struct grid grid = {1, 1, 1};
    status result;

    program_init(program, PROGRAM_TRAIN, DTYPE_F32, &grid);
    program->batch = program->sequences = program->length = 1;
    program->tokens = program->logits_chunk = 1;
    program->context = model->context;
    program->vocab = model->vocab;
    result = model->kind->build(program, model);
    if (result == OK) return OK;
    program_free(program);
    return status_pass(result, __FILE__, __LINE__);
}
