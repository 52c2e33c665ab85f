/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - MODEL as the commands take it. */
#include "inference/session.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/history.h"
#include "tokenizer/tokenizer.h"
#include "models/lora.h"
#include "models/numbers.h"

enum { TOKENIZER_BYTES_MAX = 256 << 20 };

/* ---- what the path is ---- */

static status copy_path(char out[PATH_BYTES], const char *path)
{
    const size_t length = strlen(path);

    if (length >= PATH_BYTES)
        FAIL(ERR_CONFIG, "a path of %zu bytes, at most %d are possible",
             length, PATH_BYTES - 1);
    memcpy(out, path, length + 1);
    return OK;
}

/* RUN of RUN/ckpt/step-N, or "". */
static void run_of(char out[PATH_BYTES], const char *checkpoint)
{
    static const char *const up = "../..";

    if (path_join(out, PATH_BYTES, checkpoint, up) != OK) out[0] = 0;
}

static bool same_bytes(const char *one, const char *other)
{
    struct text a = {0}, b = {0};
    const bool same =
        file_read_regular(one, TOKENIZER_BYTES_MAX, &a) == OK &&
        file_read_regular(other, TOKENIZER_BYTES_MAX, &b) == OK &&
        a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;

    status_clear();
    text_free(&a);
    text_free(&b);
    return same;
}

/* The run's own, where it is the checkpoint's: a run that goes on removes that
 * one while a long command still wants to read it. */
static void take_lasting(struct session *session)
{
    char own[PATH_BYTES];

    if (session->kind == MODEL_RUN && tokenizer_file(session->path, own) &&
        same_bytes(own, session->tokenizer))
        memcpy(session->tokenizer, own, sizeof own);
}

static status find_tokenizer(struct session *session)
{
    char run[PATH_BYTES];

    if (tokenizer_file(session->directory, session->tokenizer)) {
        take_lasting(session);
        return OK;
    }
    session->tokenizer[0] = 0;
    if (session->kind == MODEL_HUGGING_FACE) return OK;
    run_of(run, session->directory);
    if (session->kind == MODEL_RUN) TRY(copy_path(run, session->path));
    if (run[0] == 0 || !tokenizer_file(run, session->tokenizer))
        session->tokenizer[0] = 0;
    return OK;
}

const char *session_tokenizer_name(const struct session *session)
{
    const char *slash = strrchr(session->tokenizer, '/');

    return slash == NULL ? session->tokenizer : slash + 1;
}

/* JSON of a tokenizer that Lockstep cannot use is one all the same. */
static status check_tokenizer_json(const struct session *session,
                                   const struct text *text)
{
    const char *path = session->tokenizer;
    const struct json *root, *model;
    struct arena arena;
    status result;

    arena_init(&arena, "tokenizer to copy", 0);
    TRY_GOTO(done, result,
             json_read(&root, &arena, text->bytes, text->length, path));
    model = json_get(root, "model");
    if (model == NULL || model->kind != JSON_OBJECT)
        FAIL_GOTO(done, result, ERR_FORMAT,
                  "%s: is not a tokenizer: it has no \"model\"", path);
done:
    arena_free(&arena);
    return result;
}

status session_read_tokenizer(const struct session *session, struct text *out)
{
    const char *path = session->tokenizer;
    struct tokenizer tokenizer = {0};
    status result;

    TRY(file_read_regular(path, TOKENIZER_BYTES_MAX, out));
    if (strcmp(session_tokenizer_name(session), "tokenizer.json") == 0)
        return check_tokenizer_json(session, out);
    result = tokenizer_read_text(&tokenizer, out->bytes, out->length, path);
    tokenizer_free(&tokenizer);
    if (result == OK) return OK;
    return status_hint(result, "move this file away to go on without a "
                               "tokenizer");
}

/* ---- opening ---- */

static void note_type(struct session *session, enum dtype dtype,
                      const char *name)
{
    if (dtype == DTYPE_F64) session->dtype = DTYPE_F64;
    if (session->stored == NULL)
        session->stored = name;
    else if (strcmp(session->stored, name) != 0)
        session->stored = "mixed";
}

static status open_checkpoint(struct session *session)
{
    struct checkpoint *c = &session->checkpoint;

    if (session->kind == MODEL_RUN)
        TRY(checkpoint_open_newest_valid(c, session->path, NULL,
                                         &session->notice));
    else
        TRY(checkpoint_open(c, session->path, NULL));
    TRY(copy_path(session->directory, c->directory));
    session->step = c->manifest.step;
    session->tokens = c->manifest.tokens;
    /* Only fast mode has more, and promises none of its bits. */
    session->grid_tensor = c->manifest.grid.tensor <= GRID_LEAVES_MAX
                               ? c->manifest.grid.tensor : 0;
    session->grid_expert = c->manifest.grid.expert;
    for (int i = 0; i < c->manifest.tensor_count; i++) {
        const struct manifest_tensor *tensor = &c->manifest.tensors[i];

        if (strcmp(tensor->kind, "weight") == 0)
            note_type(session, tensor->dtype,
                      safetensors_type(tensor->dtype));
    }
    return OK;
}

static status open_directory(struct session *session)
{
    struct weights *w = &session->weights;

    TRY(copy_path(session->directory, session->path));
    TRY(weights_open(w, session->directory));
    for (int i = 0; i < w->count; i++) {
        const struct safetensors_entry *tensor = w->entries[i].tensor;

        if (tensor->dtype == DTYPE_F32 || tensor->dtype == DTYPE_F64 ||
            tensor->dtype == DTYPE_BF16 || tensor->dtype == DTYPE_F16)
            note_type(session, tensor->dtype, tensor->type);
    }
    return OK;
}

/* Before a program of that many layers is built: a file of 1 KB must not cost
 * all memory. */
static status check_layers(const struct session *session)
{
    const int tensors = session->kind == MODEL_HUGGING_FACE
                            ? session->weights.count
                            : session->checkpoint.manifest.tensor_count;

    if (session->model.layers > tensors)
        FAIL(ERR_FORMAT, "%s: config.json says %d layers, but there are only "
                         "%d tensors", session->directory,
             session->model.layers, tensors);
    return OK;
}

/* A checkpoint of a run with adapters says so in a file of its own. */
static status read_adapters(struct session *session)
{
    char path[PATH_BYTES];

    if (session->kind == MODEL_HUGGING_FACE) return OK;
    TRY(path_join(path, sizeof path, session->directory,
                  "adapter_config.json"));
    return file_exists(path) ? lora_read_config(&session->model, path, NULL)
                             : OK;
}

/* Checkpoints of every family may have them, published files of few. */
static bool may_have_later(const struct session *session)
{
    return session->kind != MODEL_HUGGING_FACE ||
           session->model.kind->files.more_blocks;
}

/* Modules that predict later tokens are there where their tensors are: some
 * programs keep the number in config.json and drop the tensors. */
static void find_later(struct session *session)
{
    const struct model_kind *kind = session->model.kind;
    char name[2 * PARAM_NAME_BYTES];
    int depth = 0;

    for (bool found = may_have_later(session); found && depth < MTP_MOST; ) {
        int length = snprintf(name, sizeof name, kind->layer_prefix,
                              session->model.layers + depth);

        snprintf(name + length, sizeof name - (size_t)length, "%s",
                 "eh_proj.weight");
        found = session->kind == MODEL_HUGGING_FACE
                    ? weights_find(&session->weights, name) >= 0
                    : checkpoint_find(&session->checkpoint, name, "weight") !=
                          NULL;
        depth += found;
    }
    session->model.mtp_depth = depth;
}

static status open_once(struct session *session, const char *path)
{
    struct model_place place;

    *session = (struct session){.dtype = DTYPE_F32};
    TRY(copy_path(session->path, path));
    TRY(model_place_find(path, &place));
    session->kind = place.kind;
    if (place.kind == MODEL_CHECKPOINT) /* RUN/best is no directory */
        TRY(copy_path(session->path, place.directory));
    if (session->kind == MODEL_HUGGING_FACE)
        TRY(open_directory(session));
    else
        TRY(open_checkpoint(session));
    TRY(model_from_config(&session->model, session->directory));
    TRY(read_adapters(session));
    TRY(check_layers(session));
    find_later(session);
    if (session->stored == NULL) session->stored = "no";
    return find_tokenizer(session);
}

/* A run that goes on has removed the checkpoint meanwhile: what was not found
 * there says nothing. */
static bool was_removed(const struct session *session)
{
    return session->kind == MODEL_RUN && session->directory[0] != '\0' &&
           file_is_gone(session->directory);
}

status session_open(struct session *session, const char *path)
{
    enum { REMOVALS_MOST = 100 };
    status result = open_once(session, path);

    for (int i = 0; i < REMOVALS_MOST && was_removed(session); i++) {
        session_close(session);
        status_clear();
        result = open_once(session, path);
    }
    return result;
}

void session_close(struct session *session)
{
    weights_close(&session->weights);
    weights_close(&session->adapters);
    checkpoint_close(&session->checkpoint);
    text_free(&session->notice);
    *session = (struct session){0};
}

/* ---- a stage with its weights ---- */

status session_request(const struct session *session, int64_t batch,
                       int64_t length, struct stage_request *out)
{
    const struct model *m = &session->model;
    const struct grid_facts facts = {
        .batch = batch, .heads = m->heads, .kv_heads = m->kv_heads,
        .head_width = m->head_width, .feed_forward = model_inner(m),
        .experts = m->moe.experts,
        .groups = m->moe.groups};
    const struct grid asked = {.tensor = session->grid_tensor,
                               .expert = session->grid_expert};

    *out = (struct stage_request){
        .model = m, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .machine.isa = ISA_AUTO, .machine.device = session->device,
        .size.batch = batch, .size.micro_batch = batch,
        .size.length = length, .backward = BACKWARD_NONE,
        .machine.threads = threads_cores()};
    return grid_resolve(&out->layout.grid, &asked, &facts);
}

/* Adapters begin anew beside a model that has none. */
static status check_adapters(const struct session *session,
                             const struct model *wanted)
{
    const struct lora *a = &session->model.lora, *b = &wanted->lora;

    if (a->rank == 0 || (session->model.layers == wanted->layers &&
                         lora_same(&session->model, wanted)))
        return OK;
    if (b->rank == 0)
        FAIL(ERR_CONFIG, "%s: has adapters of rank %d, the model here none; "
                         "`lockstep export` merges them", session->path,
             a->rank);
    FAIL(ERR_CONFIG, "%s: has adapters of rank %d, alpha %g, the model here of "
                     "rank %d, alpha %g or for other matrices; lora.from: %s "
                     "takes them as they are", session->path, a->rank,
         a->alpha, b->rank, b->alpha, session->path);
}

static status check_blocks(const struct session *session,
                           const struct model *wanted)
{
    const struct model *found = &session->model;

    if (!blocks_same(&found->window.whole, &wanted->window.whole))
        FAIL(ERR_CONFIG, "%s: has the window in other blocks "
                         "(model.window_skip, model.window_except)",
             session->path);
    if (!blocks_same(&found->moe.dense, &wanted->moe.dense))
        FAIL(ERR_CONFIG, "%s: has experts in other blocks (moe.every, "
                         "moe.first_dense, moe.dense)", session->path);
    if (!blocks_same(&found->rope.still, &wanted->rope.still))
        FAIL(ERR_CONFIG, "%s: turns in other blocks (model.rope_skip, "
                         "model.rope_except)", session->path);
    return OK;
}

struct number { const char *name; double found, wanted; };

/* Numbers of one section of the options. */
static status check_numbers(const struct session *session,
                            const char *section, const struct number *rows,
                            int count)
{
    for (int i = 0; i < count; i++) {
        if (rows[i].found == rows[i].wanted) continue;
        const status result = status_fail(
            ERR_CONFIG, __FILE__, __LINE__,
            "%s: has %s.%s %.9g, the model here %.9g", session->path, section,
            rows[i].name, rows[i].found, rows[i].wanted);

        return status_hint(result, "take the architecture from there too: "
                                   "model.from: %s, or no model.* at all",
                           session->directory);
    }
    return OK;
}

static status check_sizes(const struct session *session,
                          const struct model *wanted)
{
    const struct model *found = &session->model;
    const struct number rows[] = {
        {"vocab", (double)found->vocab, (double)wanted->vocab},
        {"layers", found->layers, wanted->layers},
        {"width", (double)found->width, (double)wanted->width},
        {"heads", found->heads, wanted->heads},
        {"kv_heads", found->kv_heads, wanted->kv_heads},
        {"head_width", found->head_width, wanted->head_width},
        {"feed_forward", (double)found->feed_forward,
         (double)wanted->feed_forward},
        {"window", (double)found->window.tokens, (double)wanted->window.tokens},
        {"rotary", found->rope.rotary, wanted->rope.rotary},
        {"parallel", found->beside.on, wanted->beside.on},
        {"parallel_norms", found->beside.norms, wanted->beside.norms},
        {"qk_norm", found->qk_norm, wanted->qk_norm},
        {"alibi", found->alibi, wanted->alibi},
        {"layer_scale", found->scaled.layers, wanted->scaled.layers},
        {"tied", found->tied, wanted->tied},
        {"attention_bias", found->biases.attention, wanted->biases.attention},
        {"mlp_bias", found->biases.mlp, wanted->biases.mlp},
        {"head_bias", found->biases.head, wanted->biases.head},
        {"activation", found->activation, wanted->activation}};

    return check_numbers(session, "model", rows,
                         (int)(sizeof rows / sizeof *rows));
}

static status check_factors(const struct session *session,
                            const struct model *wanted)
{
    const struct model *found = &session->model;
    const struct number rows[] = {
        {"temper", found->tempered.by, wanted->tempered.by},
        {"temper_floor", (double)found->tempered.floor,
         (double)wanted->tempered.floor},
        {"norm_epsilon", found->norm_epsilon, wanted->norm_epsilon}};

    for (int i = 0; i < model_number_count; i++) {
        const struct model_number *at = &model_numbers[i];
        const struct number row = {at->name, model_number_value(at, found),
                                   model_number_value(at, wanted)};

        TRY(check_numbers(session, "model", &row, 1));
    }
    return check_numbers(session, "model", rows,
                         (int)(sizeof rows / sizeof *rows));
}

static status check_experts(const struct session *session,
                            const struct model *wanted)
{
    const struct moe *found = &session->model.moe, *other = &wanted->moe;
    const struct number rows[] = {
        {"experts", found->experts, other->experts},
        {"top_k", found->top_k, other->top_k},
        {"intermediate_size", (double)found->width, (double)other->width},
        {"shared_intermediate_size", (double)found->shared_width,
         (double)other->shared_width},
        {"normalize", found->normalize, other->normalize},
        {"groups", found->groups, other->groups},
        {"groups_chosen", found->groups_chosen, other->groups_chosen},
        {"scale", found->scale, other->scale},
        {"router_noise", found->noise, other->noise},
        {"swiglu_alpha", found->swiglu_alpha, other->swiglu_alpha},
        {"swiglu_limit", found->swiglu_limit, other->swiglu_limit}};

    if (other->bias && !found->bias)
        FAIL(ERR_CONFIG, "%s: has no selection biases of routers to start "
                         "from; leave moe.bias_rate out", session->path);
    return check_numbers(session, "moe", rows,
                         (int)(sizeof rows / sizeof *rows));
}

/* Every number that the arithmetic sees. */
static status check_same(const struct session *session,
                         const struct model *wanted)
{
    const struct model *found = &session->model;

    TRY(check_adapters(session, wanted));
    if (found->kind != wanted->kind)
        FAIL(ERR_CONFIG, "%s: is a %s, the model here a %s", session->path,
             found->kind->name, wanted->kind->name);
    TRY(check_sizes(session, wanted));
    TRY(check_factors(session, wanted));
    TRY(check_experts(session, wanted));
    if (found->mtp_depth < wanted->mtp_depth)
        FAIL(ERR_CONFIG, "%s: modules that predict later tokens: it has %d, "
                         "the model here %d; set mtp.depth to %d",
             session->path,
             found->mtp_depth, wanted->mtp_depth, found->mtp_depth);
    if (found->kind != &model_gpt2 && found->rope.base != wanted->rope.base)
        FAIL(ERR_CONFIG, "%s: has model.rope_base %.9g, the model here %.9g",
             session->path, found->rope.base, wanted->rope.base);
    TRY(check_blocks(session, wanted));
    if (!rope_scaling_same(&found->rope.scaling, &wanted->rope.scaling))
        FAIL(ERR_CONFIG, "%s: has another model.rope_scaling than the model "
                         "here", session->path);
    if (found->kind == &model_gpt2 && found->context != wanted->context)
        FAIL(ERR_CONFIG, "%s: has learned positions for %lld tokens "
                         "(model.context), the model here for %lld",
             session->path, (long long)found->context,
             (long long)wanted->context);
    return OK;
}

/* Frozen weights have no average: they stay. */
static status read_average(struct session *session,
                           const struct session_parts *parts,
                           struct parts_room *room, int *found)
{
    int count;
    const struct saved_part *held = session_parts_held(parts, &count);

    for (int i = 0; i < count && session->kind != MODEL_HUGGING_FACE; i++) {
        struct saved_part part;

        if (checkpoint_find(&session->checkpoint, held[i].name, "ema") == NULL)
            continue;
        TRY(parts_room_open(room, &held[i], &part));
        part.kind = "ema";
        TRY(checkpoint_read_tensor(&session->checkpoint, &part));
        ++*found;
    }
    parts_room_store(room);
    return OK;
}

static status load_average(struct session *session,
                           const struct session_parts *parts)
{
    struct parts_room room = {.codes = NULL};
    int found = 0;
    const status result = read_average(session, parts, &room, &found);

    parts_room_free(&room);
    TRY(result);
    if (found > 0) return OK;
    FAIL(ERR_CONFIG, "%s: keeps no moving average of its weights "
                     "(optimizer.ema)", session->path);
}

static status load_weights(struct session *session,
                           const struct session_parts *parts)
{
    for (int i = 0; i < session->weights.count; i++)
        session->weights.entries[i].uses = 0;
    if (session->kind == MODEL_HUGGING_FACE)
        return session_parts_import(parts, &session->model, session->dense,
                                    &session->weights);
    return session_parts_load(parts, &session->checkpoint);
}

static status load(struct session *session, const struct session_parts *parts)
{
    TRY(load_weights(session, parts));
    return session->average ? load_average(session, parts) : OK;
}

/* Modules that predict later tokens may be left out, all or the last ones. */
static void leave_later(struct session_parts *parts,
                        const struct session *session, int depth)
{
    const struct model *model = &session->model;

    if (may_have_later(session))
        parts->left = (struct tensors_left){model->kind->layer_prefix,
                                            model->layers + depth};
}

status session_load_weights(struct session *session, struct stage *stage)
{
    struct session_parts parts = {0};
    status result;

    TRY(check_same(session, stage->request.model));
    if (session_is_adapted(session)) parts.only = PARTS_WEIGHTS;
    leave_later(&parts, session, stage->program.later.depth);
    TRY_GOTO(done, result,
             session_parts_add(&parts, stage, "weight",
                               stage->host[stage_keeps(stage)],
                               stage_keeps_dtype(stage)));
    TRY_GOTO(done, result, load(session, &parts));
    if (session_is_adapted(session))
        TRY_GOTO(done, result, session_load_adapters(session, stage));
    result = stage_store_row(stage, stage_keeps(stage));
done:
    session_parts_free(&parts);
    return result;
}

status session_stage(struct session *session,
                     const struct stage_request *request, struct stage *stage)
{
    TRY(stage_plan(stage, request));
    TRY(stage_open(stage));
    return session_load_weights(session, stage);
}

/* ---- step 0 ---- */

static status start_span(const struct inventory_span *span,
                         struct weights_init *init)
{
    const size_t elements = (size_t)(span->last - span->first);
    void *memory = NULL;

    init->run_count = inventory_runs(span, false, init->runs);
    if (!span->coded) {
        weights_init(init);
        return OK;
    }
    TRY(memory_take(elements, sizeof(float), &memory));
    init->data = memory;
    weights_init(init);
    state_encode(&span->codes, memory);
    memory_free(memory);
    return OK;
}

status session_start_random(const struct inventory *inventory,
                            const struct stage *stage, uint64_t seed,
                            session_chooses *chooses)
{
    for (int i = 0; i < inventory->count; i++) {
        const struct inventory_span *span = &inventory->spans[i];
        struct weights_init init = {
            .param = span->param, .model = stage->request.model,
            .seed = seed, .dtype = inventory->dtype,
            .isa = stage->request.machine.isa, .threads = stage->threads,
            .data = span->data};

        if (span->kind != INVENTORY_WEIGHT) continue;
        if (chooses != NULL && !chooses(stage->request.model, span->param))
            continue;
        TRY(start_span(span, &init));
    }
    return OK;
}

static bool is_adapter(const struct model *model, const struct param *param)
{
    (void)model;
    return param->spec.adapter;
}

static status start_from_model(const struct inventory *inventory,
                               const struct model *model, const char *from)
{
    struct session session = {0};
    struct session_parts parts = {0};
    status result;

    TRY_GOTO(done, result, session_open(&session, from));
    if (session.notice.length > 0)
        fprintf(stderr, "%s\n", session.notice.bytes);
    TRY_GOTO(done, result, check_same(&session, model));
    if (session.model.lora.rank == 0) parts.only = PARTS_WEIGHTS;
    leave_later(&parts, &session, model->mtp_depth);
    TRY_GOTO(done, result, session_parts_divide(&parts, inventory,
                                                1u << INVENTORY_WEIGHT));
    result = load(&session, &parts);
done:
    session_parts_free(&parts);
    session_close(&session);
    return result;
}

status session_start_weights(const struct inventory_of *of,
                             const char *from, uint64_t seed)
{
    const struct model *model = of->stages->request.model;
    struct inventory inventory;
    status result;

    TRY_GOTO(done, result, inventory_build(&inventory, of));
    TRY_GOTO(done, result,
             session_start_random(&inventory, of->stages, seed,
                                  from[0] != 0 ? is_adapter : NULL));
    if (from[0] != 0)
        result = start_from_model(&inventory, model, from);
done:
    inventory_free(&inventory);
    return result;
}
