/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - from options or a config.json to a checked architecture. */
#include "models/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "models/kinds.h"
#include "models/lora.h"
#include "models/mla.h"
#include "models/moe.h"
#include "models/numbers.h"

enum { WHERE_BYTES = 64 };

static status check_heads(const struct model *m)
{
    const enum heads heads = m->kind->heads;

    if (m->heads < 1 || (heads != HEADS_FREE && m->width % m->heads != 0))
        FAIL(ERR_CONFIG, "model.width: %lld is not a multiple of %d heads; "
                         "%lld is", (long long)m->width, m->heads,
             m->heads < 1 ? 0 : (long long)((m->width / m->heads + 1) *
                                            m->heads));
    if (heads != HEADS_FREE && (int64_t)m->heads * m->head_width != m->width)
        FAIL(ERR_CONFIG, "model.head_width: %s takes only width / heads = "
                         "%lld", m->kind->name,
             (long long)(m->width / m->heads));
    if (heads == HEADS_ALIKE && m->kv_heads != m->heads)
        FAIL(ERR_CONFIG, "model.kv_heads: %s takes only as many as heads, %d",
             m->kind->name, m->heads);
    if (m->kv_heads < 1 || m->heads % m->kv_heads != 0) {
        int near = m->kv_heads < 1 ? 1 : m->kv_heads;

        while (near > 1 && m->heads % near != 0) near--;
        FAIL(ERR_CONFIG, "model.kv_heads: %d heads cannot be shared by %d "
                         "key-value heads; %d can", m->heads, m->kv_heads,
             near);
    }
    if (m->head_width < 1 || m->head_width > HEAD_WIDTH_MAX)
        FAIL(ERR_CONFIG, "model.head_width: %d is outside 1 to %d",
             m->head_width, HEAD_WIDTH_MAX);
    return OK;
}

/* Learned positions: nothing turns. */
static bool is_learned(const struct model_kind *kind)
{
    return kind->decoder != NULL && kind->decoder->positions != NULL;
}

/* One family tells longrope how far cos and sin are scaled. */
static status check_rope(const struct model *m)
{
    const bool near = m->kind->moe.score == ROUTER_NEAR;

    if (m->rope.scaling.near_scale > 0 && !near)
        FAIL(ERR_CONFIG, "short_mscale (model.rope_scaling): %s scales by "
                         "attention_factor; phimoe has short_mscale",
             m->kind->name);
    if (near && m->rope.scaling.kind != ROPE_PLAIN &&
        !(m->rope.scaling.near_scale > 0))
        FAIL(ERR_CONFIG, "model.rope_scaling: phimoe takes default, or "
                         "longrope with short_mscale and long_mscale");
    return OK;
}

static status check(const struct model *m)
{
    const int rotary = m->rope.rotary > 0 ? m->rope.rotary : m->head_width;

    TRY(check_heads(m));
    TRY(check_rope(m));
    TRY(moe_check(m));
    if (!is_learned(m->kind) && !m->alibi &&
        (rotary % 2 != 0 || rotary > m->head_width))
        FAIL(ERR_CONFIG, "%s of %d %s: rotary embedding needs an even number; "
                         "%d is even", m->rope.rotary > 0 ? "a turning part" :
             "a head width", rotary, rotary % 2 ? "is odd"
                                                : "is more than a head",
             rotary > m->head_width ? m->head_width / 2 * 2 : rotary + 1);
    if (m->vocab < 2)
        FAIL(ERR_CONFIG, "a vocabulary of %lld tokens; set model.vocab, or "
                         "tokenizer.from to take its own",
             (long long)m->vocab);
    if (!(m->norm_epsilon >= 0))
        FAIL(ERR_CONFIG, "a norm epsilon of %g; expected 0 or more",
             m->norm_epsilon);
    if (!(m->init_std >= 0))
        FAIL(ERR_CONFIG, "an initial deviation (initializer_range) of %g; "
                         "expected 0 or more", m->init_std);
    return OK;
}

static bool is_gated(const struct model_kind *kind)
{
    return kind->decoder == NULL || kind->decoder->ffn.gated;
}

enum activation model_activation(const struct model_kind *kind)
{
    if (!is_gated(kind)) return kind->activation;
    return kind->decoder != NULL && kind->decoder->ffn.gelu
               ? ACTIVATION_GELU_TANH : ACTIVATION_SILU;
}

/* Experts may have GeGLU instead of SwiGLU, and then dense blocks have it. */
static bool has_geglu(const struct model *m)
{
    return m->moe.experts > 0 && m->moe.swiglu_limit == 0;
}

static status gate_check(const struct model *m)
{
    const enum activation own = model_activation(m->kind);

    if (!is_gated(m->kind) || m->activation == own ||
        (has_geglu(m) && m->activation == ACTIVATION_GELU_TANH))
        return OK;
    FAIL(ERR_CONFIG, "model.activation: the gate of %s takes only %s",
         m->kind->name, own != ACTIVATION_SILU ? "gelu_tanh"
                        : has_geglu(m)         ? "silu or gelu_tanh" : "silu");
}

/* A window that no block has is none. */
status model_settle(struct model *model)
{
    if (blocks_count(&model->window.whole) == model->layers)
        model->window.tokens = 0;
    if (model->window.tokens == 0) model->window.whole = (struct blocks){{0}};
    if (model->kind->scaled.queries && model->scaled.queries == 0)
        model->scaled.queries = model->head_width;
    if (model->kind->settle != NULL) TRY(model->kind->settle(model));
    TRY(gate_check(model));
    return check(model);
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

static status tied_from(const char *text, bool family, bool *out)
{
    *out = family;
    if (strcmp(text, "auto") == 0 || options_flag(text, out)) return OK;
    FAIL(ERR_CONFIG, "model.tied: %s is not true, false or auto", text);
}

/* Whether the module of decoder.c fits: what it has are RMS norms, rows of the
 * table without positions, and the head without a bias. */
static bool predicts_later(const struct model *m)
{
    const struct decoder *d =
        m->decoder != NULL ? m->decoder : m->kind->decoder;

    return d != NULL && !d->norms.layernorm && d->positions == NULL &&
           d->head_bias == NULL;
}

/* Beside any architecture, also one of model.from. */
static status add_later(struct model *m, const struct options *o)
{
    if (o->mtp.depth > 0 && !predicts_later(m))
        FAIL(ERR_CONFIG, "mtp.depth: %s can have no modules that predict later "
                         "tokens: they need RMS norms, no learned positions "
                         "and a head without a bias, as llama, qwen3 and "
                         "deepseek_v3 have (model.family)", m->kind->name);
    m->mtp_depth = (int)o->mtp.depth;
    return OK;
}

/* Refuses options that this family does not support. */
static status check_family(const struct model *m, const struct options *o)
{
    const struct model_kind *kind = m->kind;
    const struct { const char *name; bool asked, refused; } rows[] = {
        {"attention_bias", m->biases.attention, kind->biases.no_attention},
        {"mlp_bias", m->biases.mlp, kind->biases.no_mlp},
        {"window", m->window.tokens > 0, !kind->window.may},
        {"window_skip", o->model.window_skip > 0, !kind->window.layers},
        {"window_except", o->model.window_except[0] != 0,
         !kind->window.layers},
        {"rotary", o->model.rotary > 0, kind->rope.share == 0},
        {"rope_skip", o->model.rope_skip > 0, kind->rope.skip == 0},
        {"rope_except", o->model.rope_except[0] != 0, kind->rope.skip == 0},
        {"temper", o->model.temper > 0, kind->tempered.by == 0},
        {"temper_floor", o->model.temper_floor > 0, kind->tempered.by == 0},
        {"head_bias", o->model.head_bias > 0, !kind->biases.head},
        {"parallel", o->model.parallel >= 0, !kind->beside.choice},
        {"parallel_norms", o->model.parallel_norms > 0,
         !kind->beside.norms},
        {"qk_norm", o->model.qk_norm, !kind->qk_norm},
        {"alibi", o->model.alibi, !kind->alibi},
        {"layer_scale", o->model.layer_scale, !kind->scaled.layers},
        {"rope_scaling", m->rope.scaling.kind != ROPE_PLAIN, is_learned(kind)}};

    TRY(moe_check_options(kind, o));
    TRY(mla_check_options(kind, o));
    TRY(model_numbers_check(kind, o));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].asked && rows[i].refused)
            FAIL(ERR_CONFIG, "model.%s: %s has no such choice; leave it out",
                 rows[i].name, kind->name);
    return OK;
}

enum { SIZES = 20 };

struct size_row { const char *name; int64_t value; };

static void sizes_of(const struct options *o, struct size_row rows[SIZES])
{
    const struct size_row asked[SIZES] = {
        {"vocab", o->model.vocab}, {"layers", o->model.layers},
        {"width", o->model.width}, {"heads", o->model.heads},
        {"kv_heads", o->model.kv_heads},
        {"head_width", o->model.head_width},
        {"feed_forward", o->model.feed_forward},
        {"context", o->model.context}, {"window", o->model.window},
        {"rotary", o->model.rotary}, {"rope_skip", o->model.rope_skip},
        {"window_skip", o->model.window_skip},
        {"parallel_norms", o->model.parallel_norms},
        {"qk_norm", o->model.qk_norm}, {"alibi", o->model.alibi},
        {"layer_scale", o->model.layer_scale},
        {"moe.experts", o->moe.experts}, {"moe.top_k", o->moe.top_k},
        {"moe.intermediate_size", o->moe.intermediate_size},
        {"moe.shared_intermediate_size", o->moe.shared_intermediate_size}};

    memcpy(rows, asked, sizeof asked);
}

/* A longer context than that of a config.json: positions that turn are there
 * for any length. That of dynamic scaling says how far they turn. */
static bool is_longer(const struct model *m, const struct size_row *asked)
{
    return strcmp(asked->name, "context") == 0 && asked->value > m->context &&
           !is_learned(m->kind) && m->rope.scaling.kind != ROPE_DYNAMIC;
}

/* Options that the files of a model set. */
static status check_words(const struct options *o)
{
    const struct { const char *name; bool set; } rows[] = {
        {"model.rope_scaling", o->model.rope_scaling[0] != 0},
        {"model.rope_except", o->model.rope_except[0] != 0},
        {"model.window_except", o->model.window_except[0] != 0},
        {"model.temper", o->model.temper >= 0},
        {"model.temper_floor", o->model.temper_floor > 0},
        {"moe.groups", o->moe.groups > 0},
        {"moe.groups_chosen", o->moe.groups_chosen > 0},
        {"moe.scale", o->moe.scale > 0},
        {"moe.router_noise", o->moe.router_noise > 0},
        {"model.head_bias", o->model.head_bias >= 0},
        {"moe.swiglu_alpha", o->moe.swiglu_alpha > 0},
        {"moe.swiglu_limit", o->moe.swiglu_limit > 0},
        {"moe.every", o->moe.every > 1},
        {"moe.first_dense", o->moe.first_dense > 0},
        {"moe.normalize", o->moe.normalize >= 0},
        {"moe.dense", o->moe.dense[0] != 0},
        {"mla.query_rank", o->mla.query_rank >= 0},
        {"mla.rank", o->mla.rank > 0}, {"mla.nope", o->mla.nope > 0},
        {"mla.rope", o->mla.rope > 0}, {"mla.value", o->mla.value > 0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].set)
            FAIL(ERR_CONFIG, "%s: the config.json of model.from sets it; "
                             "remove it", rows[i].name);
    for (int i = 0; i < model_number_count; i++)
        if (model_numbers[i].of_file &&
            model_number_option(&model_numbers[i], o) > 0)
            FAIL(ERR_CONFIG,
                 "model.%s: the config.json of model.from sets it; "
                 "remove it",
                 model_numbers[i].name);
    return OK;
}

/* Other choices must say the same as the files. */
static status check_choices(const struct model *m, const struct options *o,
                            const struct options *idle)
{
    const struct model_kind *kind;
    enum activation activation;
    bool tied;

    TRY(kinds_find("model.family", o->model.family, &kind));
    TRY(activation_from(o->model.activation, m->activation, &activation));
    TRY(tied_from(o->model.tied, m->tied, &tied));
    const struct { const char *name; bool other; } rows[] = {
        {"family", strcmp(o->model.family, idle->model.family) != 0 &&
                   kind != m->kind},
        {"activation", activation != m->activation}, {"tied", tied != m->tied},
        {"attention_bias", o->model.attention_bias && !m->biases.attention},
        {"mlp_bias", o->model.mlp_bias && !m->biases.mlp},
        {"parallel", o->model.parallel >= 0 &&
                     (o->model.parallel > 0) != m->beside.on},
        {"rope_base", o->model.rope_base != idle->model.rope_base &&
                      o->model.rope_base != m->rope.base},
        {"norm_epsilon", o->model.norm_epsilon != idle->model.norm_epsilon &&
                         o->model.norm_epsilon != m->norm_epsilon}};
    const char *other = NULL;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].other) other = rows[i].name;
    for (int i = 0; i < model_number_count; i++) {
        const struct model_number *n = &model_numbers[i];
        const double asked = model_number_option(n, o);

        if (asked != model_number_option(n, idle) &&
            asked != model_number_value(n, m))
            other = n->name;
    }
    if (other != NULL)
        FAIL(ERR_CONFIG, "model.%s: the config.json of model.from has another; "
                         "remove it", other);
    return OK;
}

/* With model.from a size of its own is idle at best: it must say the same, but
 * for a longer context. A default says nothing. */
static status check_same(const struct model *m, const struct options *options)
{
    const int64_t found[SIZES] = {m->vocab, m->layers, m->width, m->heads,
                                  m->kv_heads, m->head_width,
                                  m->feed_forward, m->context, m->window.tokens,
                                  m->rope.rotary,
                                  blocks_period(&m->rope.still, m->layers),
                                  blocks_period(&m->window.whole, m->layers),
                                  m->beside.norms, m->qk_norm, m->alibi,
                                  m->scaled.layers, m->moe.experts,
                                  m->moe.top_k, m->moe.width,
                                  m->moe.shared_width};
    struct size_row asked[SIZES], idle[SIZES];
    struct options_set defaults = {0};

    TRY(options_init(&defaults));
    sizes_of(&defaults.values, idle);
    const status result = check_choices(m, options, &defaults.values);

    options_free(&defaults);
    TRY(result);
    sizes_of(options, asked);
    for (int i = 0; i < SIZES; i++)
        if (asked[i].value != idle[i].value && asked[i].value != found[i] &&
            !is_longer(m, &asked[i]))
            FAIL(ERR_CONFIG, "%s%s: %lld, but the config.json of "
                             "model.from has %lld; remove it",
                 strchr(asked[i].name, '.') == NULL ? "model." : "",
                 asked[i].name, (long long)asked[i].value,
                 (long long)found[i]);
    return OK;
}

int64_t model_longest(const struct model *model)
{
    return model->rope.scaling.kind == ROPE_DYNAMIC || model->alibi
               ? MODEL_TOKENS_MAX : model->context;
}

static status check_sequence(const struct model *model,
                             const struct options *options)
{
    const bool fixed = is_learned(model->kind) && options->model.from[0] != 0;

    if (options->data.sequence <= model_longest(model)) return OK;
    FAIL(ERR_CONFIG, "data.sequence: %lld tokens are more than %s %lld; %s",
         (long long)options->data.sequence,
         fixed ? "the learned positions of model.from,"
               : "the model's context of", (long long)model->context,
         fixed ? "shorten the sequence"
               : "raise model.context or shorten the sequence");
}

/* A file says all of them. */
static void fill_multipliers(struct model *m)
{
    if (m->scaled.embedding == 0) m->scaled.embedding = 1;
    if (m->scaled.residual == 0) m->scaled.residual = 1;
    if (m->scaled.logits == 0) m->scaled.logits = 1;
    if (m->scaled.scores == 0)
        m->scaled.scores = 1 / sqrt((double)m->head_width);
}

/* Sizes that nobody gave. */
static void fill_sizes(struct model *m, const struct options *options)
{
    const struct model_kind *kind = m->kind;
    const int64_t width = m->width;

    if (m->kv_heads == 0)
        m->kv_heads = kind->kv_heads ? kind->kv_heads : m->heads;
    if (m->head_width == 0) m->head_width = (int)(width / m->heads);
    if (m->feed_forward == 0)
        m->feed_forward = is_gated(kind) ? (8 * width / 3 + 31) / 32 * 32
                                         : 4 * width;
    m->biases.head = options->model.head_bias < 0 ? kind->biases.head
                                                : options->model.head_bias;
    moe_fill(m, options);
    mla_fill(m, options);
    if (m->context == 0) m->context = options->data.sequence;
    if (m->rope.rotary == 0 && kind->rope.share > 0)
        m->rope.rotary = (int)(m->head_width * kind->rope.share) / 2 * 2;
    if (m->rope.rotary == m->head_width) m->rope.rotary = 0; /* all of it */
    m->tempered.by = options->model.temper < 0 ? kind->tempered.by
                                          : options->model.temper;
    m->tempered.floor = options->model.temper_floor > 0
                          ? options->model.temper_floor : kind->tempered.floor;
    if (m->rope.local_base == 0) m->rope.local_base = kind->rope.local_base;
    if (kind->scaled.multipliers) fill_multipliers(m);
    if (m->softcap.attention < 0)
        m->softcap.attention = kind->softcap.attention;
    if (m->softcap.head < 0) m->softcap.head = kind->softcap.head;
}

/* The blocks that differ: a list, or every n-th; -1: the family's. */
static status choose_some(struct blocks *set, int count, const char *name,
                          const char *list, const int periods[2])
{
    const int period = periods[periods[0] < 0];
    char where[WHERE_BYTES];

    blocks_every(set, count, period);
    if (list[0] == 0) return OK;
    snprintf(where, sizeof where, "model.%s_except", name);
    if (periods[0] >= 0)
        FAIL(ERR_CONFIG, "%s: model.%s_skip selects blocks, too; remove one of "
                         "them", where, name);
    return blocks_from_text(set, count, where, list);
}

static status choose_layers(struct model *m, const struct options *o)
{
    const int windows[] = {(int)o->model.window_skip, m->kind->window.skip},
              turns[] = {(int)o->model.rope_skip, m->kind->rope.skip};

    TRY(moe_choose_dense(m, o));
    if (m->window.tokens == 0 && o->model.window_except[0] != 0)
        FAIL(ERR_CONFIG, "model.window_except: there is no window; set "
                         "model.window");
    TRY(choose_some(&m->window.whole, m->layers, "window",
                    o->model.window_except, windows));
    return choose_some(&m->rope.still, m->layers, "rope", o->model.rope_except,
                       turns);
}

static status describe(struct model *model, const struct options *options,
                       int64_t vocab)
{
    const struct model_kind *kind;

    TRY(kinds_find("model.family", options->model.family, &kind));
    *model = (struct model){
        .kind = kind,
        .vocab = options->model.vocab ? options->model.vocab : vocab,
        .layers = (int)options->model.layers,
        .heads = (int)options->model.heads,
        .kv_heads = (int)options->model.kv_heads,
        .head_width = (int)options->model.head_width,
        .width = options->model.width,
        .feed_forward = options->model.feed_forward,
        .context = options->model.context,
        .biases.attention = kind->biases.attention ||
                          options->model.attention_bias,
        .biases.mlp = kind->biases.mlp || options->model.mlp_bias,
        .beside.on = options->model.parallel < 0 ? kind->beside.always
                                                : options->model.parallel > 0,
        .beside.norms = (int)options->model.parallel_norms,
        .qk_norm = options->model.qk_norm, .alibi = options->model.alibi,
        .scaled.layers = options->model.layer_scale,
        .window.tokens = options->model.window,
        .rope.rotary = (int)options->model.rotary,
        .rope.base = options->model.rope_base,
        .norm_epsilon = options->model.norm_epsilon,
        .init_std = options->model.init_std, .ends.bos = -1, .ends.eos = -1};
    model_numbers_take(model, options);
    if (model->head_width == 0 && kind->mla.rank == 0 &&
        model->width % model->heads != 0)
        FAIL(ERR_CONFIG, "model.width: %lld is not a multiple of %d heads; "
                         "%lld is", (long long)model->width, model->heads,
             (long long)((model->width / model->heads + 1) * model->heads));
    fill_sizes(model, options);
    TRY(tied_from(options->model.tied, kind->tied, &model->tied));
    TRY(rope_from_text(model, options->model.rope_scaling));
    TRY(activation_from(options->model.activation,
                        model_activation(kind),
                        &model->activation));
    TRY(check_family(model, options));
    TRY(choose_layers(model, options));
    return model_settle(model);
}

/* From a run's or checkpoint's own file; that of PEFT holds values too, which
 * nobody would read here. */
static status read_adapters(struct model *model, const char *from)
{
    char path[PATH_BYTES];
    status result;

    TRY(path_join(path, sizeof path, from, "adapter_model.safetensors"));
    if (file_exists(path)) {
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                             "lora.from: %s is a PEFT directory with adapter "
                             "weights",
                             from);
        return status_hint(result, "turn it into a run: `lockstep import BASE "
                                   "RUN --adapter %s`; then init.from and "
                                   "lora.from are RUN", from);
    }
    TRY(path_join(path, sizeof path, from, "adapter_config.json"));
    if (!file_exists(path))
        FAIL(ERR_CONFIG, "lora.from: %s has no adapter_config.json; a run with "
                         "adapters, or its checkpoint, was expected", from);
    return lora_read_config(model, path, NULL);
}

static status choose_adapters(struct model *model,
                              const struct options *options)
{
    const struct lora_wish wish = {
        .rank = (int)options->lora.rank, .alpha = options->lora.alpha,
        .root = options->lora.rslora, .targets = options->lora.targets.items,
        .count = options->lora.targets.count};

    if (options->lora.from[0] == 0) return lora_choose(model, &wish);
    if (wish.rank > 0)
        FAIL(ERR_CONFIG, "lora.rank: %d, but the adapter_config.json of "
                         "lora.from sets it; remove it", wish.rank);
    return read_adapters(model, options->lora.from);
}

status model_from_options(struct model *model, const struct options *options,
                          int64_t vocab)
{
    if (options->model.from[0] != 0) {
        TRY(model_from_config(model, options->model.from));
        TRY(check_same(model, options));
        TRY(check_words(options));
        if (options->model.context > model->context)
            model->context = options->model.context;
        TRY(moe_add_bias(model, options));
    } else {
        TRY(describe(model, options, vocab));
    }
    TRY(add_later(model, options));
    TRY(choose_adapters(model, options));
    TRY(moe_check_bias(options));
    if (options->model.mup_base_width > 0)
        model->mup = (double)model->width /
                     (double)options->model.mup_base_width;
    return check_sequence(model, options);
}

/* A model that sees images: the one of text inside text_config. */
static status read_text_part(struct model *model, const struct json *config,
                             const char *source,
                             const struct model_kind *const kinds_of[2])
{
    const struct json *text = json_get(config, "text_config");
    char where[PATH_BYTES + WHERE_BYTES];
    int64_t bos;

    TRY(config_check(kinds_of[1], config, source));
    if (text->kind != JSON_OBJECT)
        FAIL(ERR_CONFIG, "%s: text_config is not an object", source);
    snprintf(where, sizeof where, "%s: text_config", source);
    TRY(config_json_read(model, kinds_of[0], text, where));
    TRY(config_token_id(config, "bos_token_id", source, &bos));
    if (model->ends.bos < 0) model->ends.bos = bos;
    return config_end_ids(model, config, source);
}

static status model_read_json(struct model *model, const struct json *config,
                              const char *source)
{
    static const struct model_kind *const images[][2] = {
        {&model_gemma3, &model_gemma3_around},
        {&model_llama4, &model_llama4_around}};
    const struct model_kind *kind;
    const char *type;

    if (config->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: a JSON object was expected", source);
    TRY(json_get_string(config, source, "model_type", &type));
    for (int i = 0; i < 2 && json_get(config, "text_config") != NULL; i++)
        if (strcmp(type, images[i][0]->name) == 0)
            return read_text_part(model, config, source, images[i]);
    if (json_get(config, "text_config") != NULL)
        FAIL(ERR_CONFIG, "%s: text_config: %s is a model of text and something "
                         "else; of these this build takes the text part of "
                         "gemma3 and llama4", source, type);
    TRY(kinds_find(source, type, &kind));
    return config_json_read(model, kind, config, source);
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
    if (!file_exists(file)) {
        result = status_fail(ERR_MISSING, __FILE__, __LINE__,
                             "%s: no such file or directory; a model is a "
                             "directory on this machine, or its config.json; "
                             "nothing is downloaded by name", file);
        goto done;
    }
    TRY_GOTO(done, result, json_read_file(&root, &arena, file,
                                          (size_t)1 << 20));
    TRY_GOTO(done, result, model_read_json(model, root, file));
    TRY_GOTO(done, result, config_read_generation(model, &arena, file));
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
    config_json_write(model, &writer);
    json_write_key(&writer, "bos_token_id");
    if (model->ends.bos >= 0) json_write_integer(&writer, model->ends.bos);
    else json_write_null(&writer);
    config_write_ends(model, &writer);
    json_write_key(&writer, "pad_token_id"); /* its default may not fit */
    json_write_null(&writer);
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
    const struct grid grid = {1, 1, 1, 1};
    status result;

    program_init(program, PROGRAM_TRAIN, DTYPE_F32, &grid);
    program->size.batch = program->size.sequences = program->size.length = 1;
    program->size.tokens = program->size.logits_chunk = 1;
    program->size.context = model->context;
    program->size.vocab = model->vocab;
    program->later.depth = model->mtp_depth;
    program->later.block = model->layers;
    result = model->kind->build(program, model);
    if (result == OK) return OK;
    program_free(program);
    return status_pass(result, __FILE__, __LINE__);
}
