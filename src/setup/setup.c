/* SPDX-License-Identifier: Apache-2.0 */
/* setup.c - from a configuration to everything that is decided before the
 * first byte of memory. */
#include "setup/setup.h"

#include <string.h>

#include "base/file.h"
#include "base/sizes.h"
#include "nn/row_codes.h"
#include "plan/context_method.h"
#include "plan/fit.h"
#include "plan/simulate.h"
#include "schedule/known_schedules.h"
#include "schedule/read.h"
#include "setup/balance.h"
#include "setup/libraries.h"
#include "setup/micro_batch.h"
#include "setup/optimizer.h"
#include "setup/recipe.h"
#include "setup/rounds.h"
#include "step/policy.h"
#include "step/qk_clip.h"

double setup_save_minutes(const struct setup *setup)
{
    const struct options *o = &setup->set->values;

    return policy_rewind_option(o) != NULL ? 0 : o->checkpoint.minutes;
}

/* Ids of the tokenizer must have a row in the embedding. */
static status check_vocab(const struct setup *setup)
{
    const struct options *o = &setup->set->values;
    const char *from = o->init.from[0] != '\0' ? o->init.from : o->model.from;
    const int64_t vocab = setup->vocabulary.size;

    if (vocab <= setup->model.vocab) return OK;
    if (from[0] != '\0')
        FAIL(ERR_CONFIG, "tokenizer.from: %s has %lld tokens, but %s has rows "
             "for %lld; take the tokenizer that this model was trained with",
             o->tokenizer.from, (long long)vocab, from,
             (long long)setup->model.vocab);
    FAIL(ERR_CONFIG, "model.vocab: %lld rows are fewer than the %lld tokens "
                     "of %s; set it to %lld or more, or to 0",
         (long long)setup->model.vocab, (long long)vocab,
         setup->set->values.tokenizer.from, (long long)vocab);
}

static status choose_isa(const char *name, enum isa *out)
{
    const char *names[ISA_CHOICES];

    for (int i = 0; i < ISA_CHOICES; i++) {
        names[i] = isa_name((enum isa)i);
        *out = (enum isa)i;
        if (strcmp(names[i], name) == 0) return OK;
    }
    FAIL(ERR_CONFIG, "numerics.isa: %s is not auto, plain, avx2, avx512 or "
                     "neon", name);
}

static status choose_product(const char *name, enum dtype dtype,
                             enum product *out)
{
    *out = strcmp(name, "tiles") == 0 ? PRODUCT_TILES : PRODUCT_PAIRS;
    if (*out == PRODUCT_PAIRS && strcmp(name, "pairs") != 0)
        FAIL(ERR_CONFIG, "numerics.bfloat16: %s is not pairs or tiles", name);
    if (*out == PRODUCT_TILES && dtype != DTYPE_BF16)
        FAIL(ERR_CONFIG, "numerics.bfloat16: tiles says what a product of "
                         "bfloat16 is, but train.dtype is %s; set "
                         "train.dtype=bfloat16", dtype_name(dtype));
    return OK;
}

/* Whether a micro-batch costs messages, as all axes but that of whole copies
 * do. */
static bool batch_costs(const struct setup *setup)
{
    return mesh_ranks(&setup->mesh) != setup->mesh.size[AXIS_DATA] ||
           setup->request.divided.division.gradients != 0;
}

/* In a pipeline, the least count of micro-batches that keeps it busy. */
static int64_t choose_micro_batch(const struct setup *setup, int64_t batch)
{
    const int ranks = setup->mesh.size[AXIS_PIPE];
    int64_t count = 2 * ranks;

    if (!batch_costs(setup))
        return micro_batch_choose(&setup->request, batch,
                                  setup->grid.data / setup->ranks);
    if (ranks == 1) return batch;
    while (count < batch && batch % count != 0) count++;
    return count < batch ? batch / count : 1;
}

static status cut_batch(struct setup *setup)
{
    struct stage_request *r = &setup->request;
    const struct options *o = &setup->set->values;
    const int64_t least = ramp_divisor(&setup->ramp) / setup->ranks;
    int64_t near;

    r->size.batch = setup->batch / setup->ranks;
    r->size.micro_batch = o->train.micro_batch;
    if (r->size.micro_batch == 0) /* the same all the time */
        r->size.micro_batch = choose_micro_batch(setup, least > 0 ? least : 1);
    if (r->size.micro_batch > r->size.batch)
        r->size.micro_batch = r->size.batch;
    for (near = r->size.micro_batch; r->size.batch % near != 0; near--)
        continue;
    if (near != r->size.micro_batch)
        FAIL(ERR_CONFIG, "train.micro_batch: %lld does not divide the %lld "
                         "sequences of a rank (a batch of %lld over %d); %lld "
                         "does", (long long)r->size.micro_batch,
             (long long)r->size.batch, (long long)setup->batch, setup->ranks,
             (long long)near);
    return OK;
}

/* In the units of lockstep schedule: F = B = W, half of what a micro-batch
 * holds is left between B and W. */
static status check_limit(const struct setup *setup, const struct schedule *s)
{
    const struct options *o = &setup->set->values;
    const struct simulate_costs costs = {.time_ns = {1, 1, 1},
                                         .weight_memory = 0.5};
    struct simulation simulation = {0};
    status result;

    if (o->schedule.memory_limit <= 0) return OK;
    TRY_GOTO(done, result, simulate(&simulation, s, &costs));
    TRY_GOTO(done, result, simulation_within(&simulation, o->schedule.name,
                                             o->schedule.memory_limit));
done:
    simulation_free(&simulation);
    return result;
}

static status read_schedule(const struct setup *setup, int microbatches,
                            struct schedule *out)
{
    const int ranks = setup->mesh.size[AXIS_PIPE];
    const char *name = setup->set->values.schedule.name;

    TRY(schedule_read_file(out, name));
    if (out->ranks == ranks && out->microbatches == microbatches) return OK;
    FAIL(ERR_CONFIG, "schedule.name: %s is for %d ranks and %d micro-batches, "
                     "the run has %d and %d", name, out->ranks,
         out->microbatches, ranks, microbatches);
}

bool setup_schedule_is_file(const char *name)
{
    return strchr(name, '/') != NULL || file_exists(name);
}

/* Before a schedule is made, which takes time for each rank and micro-batch. */
static status check_stages(const struct setup *setup,
                           const struct schedule_row *row)
{
    const struct options *o = &setup->set->values;
    const int64_t asked = o->schedule.chunks;
    const int64_t each = row->chunks > 0 ? row->chunks : asked > 0 ? asked : 2;
    const int n = setup->mesh.size[AXIS_PIPE];

    if (asked > 0 && asked != each) return OK; /* refused by its row */
    return fit_stages(&o->mesh.layers, setup->model.layers, n, n * each);
}

/* A row of the table, or a text file. One stage needs no file of more. */
static status build_schedule(const struct setup *setup, int microbatches,
                             struct schedule *out)
{
    const struct options *o = &setup->set->values;
    const int ranks = setup->mesh.size[AXIS_PIPE];
    const char *name = o->schedule.name;
    const bool file = setup_schedule_is_file(name);
    const struct schedule_row *row;
    struct schedule_request request =
        schedule_request_default(ranks > 1 ? name : "1f1b", ranks,
                                 microbatches);

    if (!file) TRY(schedule_row_find(name, &row));
    if (ranks == 1)
        return known_schedules_make(setup->schedules, out, &request);
    if (!file) TRY(check_stages(setup, row));
    request.chunks = (int)o->schedule.chunks;
    request.group = (int)o->schedule.group;
    request.memory_limit = o->schedule.memory_limit;
    if (file) TRY(read_schedule(setup, microbatches, out));
    else TRY(known_schedules_make(setup->schedules, out, &request));
    return check_limit(setup, out);
}

static status cut_blocks(struct setup *setup)
{
    const struct schedule *s = &setup->schedule;
    void *blocks = NULL;

    memory_free(setup->blocks);
    setup->blocks = NULL;
    TRY(memory_take((size_t)s->stages, sizeof *setup->blocks, &blocks));
    setup->blocks = blocks;
    return fit_blocks(&setup->set->values.mesh.layers, setup->model.layers,
                      setup->model.mtp_depth, s->ranks, s->stages,
                      setup->blocks);
}

static struct grid_facts facts_of(const struct setup *setup)
{
    const struct model *m = &setup->model;

    return (struct grid_facts){
        .batch = ramp_divisor(&setup->ramp),
        .length = setup->set->values.data.sequence, .heads = m->heads,
        .kv_heads = m->kv_heads, .head_width = m->head_width,
        .feed_forward = model_inner(m), .experts = m->moe.experts,
        .groups = m->moe.groups,
        .fast = strcmp(setup->set->values.numerics.mode, "fast") == 0};
}

static status cut_heads(struct setup *setup, const struct fit *fit)
{
    const struct options *o = &setup->set->values;
    enum context_kind kind;

    TRY(context_kind_parse(&kind, o->context.kind));
    setup->request.layout.method = (struct context_method){
        .strict = kind == CONTEXT_RING, .striped = kind == CONTEXT_STRIPED,
        .ring = kind == CONTEXT_RING || kind == CONTEXT_HYBRID,
        .loose = fit->fast};
    return fit_exchange(fit, kind, o->context.ulysses,
                        &setup->request.layout.method.exchange);
}

/* Breadth-first runs all micro-batches of a stage one after the other, so that
 * its weights need to be whole for that long only. */
static status choose_gathers(struct setup *setup)
{
    static const char *const names[] = {"auto", "each", "once"};
    const struct options *o = &setup->set->values;
    const char *near = text_nearest(o->fsdp.gather, names, 3);
    int which = 0;

    while (which < 3 && strcmp(o->fsdp.gather, names[which]) != 0) which++;
    if (which == 3)
        FAIL(ERR_CONFIG, "fsdp.gather: %s is not auto, each or once%s%s",
             o->fsdp.gather, near ? "; nearest: " : "", near ? near : "");
    setup->request.divided.gather.once =
        which == 2 ||
        (which == 0 && setup->mesh.size[AXIS_PIPE] > 1 &&
         schedule_is(o->schedule.name, SCHEDULE_WHOLE));
    return recipe_check_gathers(&setup->request, o, &setup->mesh);
}

/* Whether context ranks show in the bits: each adds what lies on it. */
static bool context_shows(const struct stage_request *r)
{
    const struct context_method method = context_method_used(r);
    const bool gpu = r->machine.device == DEVICE_CUDA ||
                     r->machine.device == DEVICE_AUTO;

    return method.striped ||
           (method.ring && r->machine.attention == ATTENTION_BY_FLASH && gpu);
}

status setup_use_grid(struct setup *setup, const struct grid *grid)
{
    const struct grid asked = *grid; /* it may be that of the setup */
    struct stage_request *r = &setup->request;
    struct fit fit = {
        .mesh = setup->mesh, .facts = facts_of(setup), .length = r->size.length,
        .copies = 1,
        .shards_first = division_copies(&r->divided.division) ||
                        division_parts(&r->divided.division)};
    bool changed, alone;

    fit.fast = fit.facts.fast;
    fit.integer = r->reduction.sums.integer;
    setup->grid = asked;
    TRY(fit_grid(&fit, &setup->grid, &changed));
    TRY(cut_heads(setup, &fit));
    TRY(cut_batch(setup));
    TRY(balance_check(setup));
    schedule_free(&setup->schedule);
    TRY(build_schedule(setup, (int)(r->size.batch / r->size.micro_batch),
                       &setup->schedule));
    TRY(cut_blocks(setup));
    if (setup->schedule.places[1] != NULL) { /* each stage on two ranks */
        fit.copies = 2;
        setup->grid = asked;
        TRY(fit_grid(&fit, &setup->grid, &changed));
    }
    setup->exact = !changed && r->reduction.bits == 0 &&
                   !row_codes_twice(&r->precision) && !context_shows(r);
    r->layout.grid = setup->grid;
    r->layout.grid.data = setup->grid.data / setup->ranks;
    TRY(choose_gathers(setup));
    TRY(rounds_choose(setup, &alone));
    if (!alone) return OK;
    schedule_free(&setup->schedule);
    return build_schedule(setup, 1, &setup->schedule);
}

status setup_take_grid(struct setup *setup, const struct grid *grid)
{
    const struct grid_facts facts = facts_of(setup);
    struct grid cut;
    const status result = grid_resolve(&cut, grid, &facts);

    if (result != OK)
        return status_fail(result, __FILE__, __LINE__, "the grid of its "
                           "checkpoint is not one of this run: %s",
                           status_message());
    return setup_use_grid(setup, &cut);
}

status setup_use_batch(struct setup *setup, int64_t batch)
{
    const bool exact = setup->exact; /* no: the grid was fitted before */

    setup->batch = batch;
    TRY(setup_use_grid(setup, &setup->grid));
    setup->exact = setup->exact && exact;
    return OK;
}

/* Every batch of the ramp can be cut; the last one stays. */
static status check_ramp(struct setup *setup)
{
    const int64_t last = setup->batch;

    if (!ramp_changes(&setup->ramp)) return OK;
    for (int i = 0; i < setup->ramp.count; i++)
        TRY(setup_use_batch(setup, setup->ramp.rows[i].batch));
    return setup_use_batch(setup, last);
}

static status check_tensor(const struct setup *setup)
{
    const struct options *o = &setup->set->values;

    if (!o->tensor.domino) return OK;
    if (o->tensor.overlap < 2)
        FAIL(ERR_CONFIG, "tensor.domino: the sub-batches are tensor.overlap, "
                         "which is 1; set it to 2 or more");
    if (setup->grid.context > 1)
        FAIL(ERR_CONFIG,
             "tensor.domino: sub-batches are whole sequences, but "
             "numerics.grid_context cuts them in %d; use "
             "tensor.overlap alone",
             setup->grid.context);
    return OK;
}

static status check_zero(struct setup *setup)
{
    const char *name = setup->set->values.zero;
    const struct options *o = &setup->set->values;
    struct division *division = &setup->request.divided.division;
    struct gather_policy *gather = &setup->request.divided.gather;
    const double element = (double)dtype_bytes(setup->request.dtype);

    TRY(division_parse(division, name));
    division->bucket = (int64_t)(o->fsdp.bucket * 0x1p20 / element);
    gather->in_flight = (int64_t)(o->fsdp.in_flight * 0x1p20 / element);
    if (o->fsdp.in_flight > 0 && gather->in_flight == 0) gather->in_flight = 1;
    if ((division_copies(division) || division_parts(division)) &&
        setup->mesh.size[AXIS_SHARD] == 1)
        FAIL(ERR_CONFIG, "zero: %s divides over mesh.shard, which has one "
                         "rank; set mesh.shard, or zero=fsdp to divide over "
                         "all ranks that share the batch", name);
    return OK;
}

static status check_observe(const struct options *o)
{
    if (o->observe.histograms > 0 && !o->observe.tensorboard)
        FAIL(ERR_CONFIG, "observe.histograms: they go into event files, and "
                         "there are none; set observe.tensorboard to true");
    return OK;
}

/* Whether there are experts that ranks can divide. */
static status check_expert(const struct setup *setup)
{
    const int ranks = mesh_expert_ranks(&setup->mesh);

    if (ranks == 1 || setup->model.moe.experts > 0) return OK;
    if (setup->mesh.folded != 0)
        FAIL(ERR_CONFIG, "mesh.expert_tensor, mesh.expert_context: no layer of "
                         "this model has experts; leave them out%s",
             setup->mesh.size[AXIS_EXPERT] > 1 ? ", and mesh.expert" : "");
    FAIL(ERR_CONFIG, "mesh.expert: %d ranks divide experts, and no layer of "
                     "this model has any; mesh.expert=1 works", ranks);
}

struct regularization setup_regular(const struct model *model,
                                    const struct options *o)
{
    return (struct regularization){
        .z_loss = o->train.z_loss, .rows_bound = o->moe.rows_bound,
        .balance = o->moe.balance_loss, .device_loss = o->moe.device_loss,
        .devices = (int)o->moe.devices, .router_z = o->moe.z_loss,
        .jitter = o->moe.jitter, .capacity = o->moe.capacity_factor,
        .bias_rate = model_bias_rate(model, o), .dropout = o->model.dropout,
        .attention_dropout = o->model.attention_dropout,
        .mtp_weight = {o->mtp.weight, o->mtp.weight_later},
        .mtp_steps = o->mtp.weight_steps};
}

status setup_precision(struct precision_use *out, const struct options *o,
                       int layers)
{
    struct stage_request r = {.training.observe = o->observe.layers > 0};
    struct options asked = *o;

    asked.fsdp.gather_format = "dtype"; /* that depends on what is gathered */
    TRY(setup_dtype(o->train.dtype, &r.dtype));
    TRY(recipe_choose(&r, &asked, layers));
    *out = r.precision;
    return OK;
}

static status check_library(const struct options *o, enum device_kind device)
{
    static const char *const names[] = {"own", "nccl", "ipc"};
    const char *name = o->comm.library, *near = text_nearest(name, names, 3);

    if (strcmp(name, "own") == 0) return OK;
    if (strcmp(name, "nccl") != 0 && strcmp(name, "ipc") != 0)
        FAIL(ERR_CONFIG, "comm.library: %s is not own, nccl or ipc%s%s", name,
             near ? "; nearest: " : "", near ? near : "");
    if (device == DEVICE_CUDA || device == DEVICE_AUTO) return OK;
    FAIL(ERR_CONFIG, "comm.library: %s moves memory of GPUs, and device is "
                     "%s; set comm.library=own or device=cuda", name,
         device_about(device)->name);
}

static status resolve_request(struct setup *setup)
{
    const struct options *o = &setup->set->values;
    struct stage_request *r = &setup->request;
    const struct grid asked = {.data = (int)o->numerics.grid_data,
                               .tensor = (int)o->numerics.grid_tensor,
                               .context = (int)o->numerics.grid_context,
                               .expert = (int)o->numerics.grid_expert};
    const struct grid_facts facts = facts_of(setup);

    if (o->train.batch > STEP_TOKENS_MOST / o->data.sequence)
        FAIL(ERR_CONFIG, "train.batch: %lld sequences of %lld tokens are more "
                         "than the 2^40 tokens that a step may have",
             (long long)o->train.batch, (long long)o->data.sequence);
    *r = (struct stage_request){
        .model = &setup->model, .mode = PROGRAM_TRAIN,
        .mtp_depth = setup->model.mtp_depth,
        .size.length = o->data.sequence,
        .size.logits_chunk = o->train.logits_chunk,
        .regular = setup_regular(&setup->model, o),
        .seed = (uint64_t)o->seed, .qk_clip = o->optimizer.qk_clip,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .training.observe = o->observe.layers > 0,
        .training.snapshot = o->checkpoint.async,
        .machine.threads = (int)o->train.threads,
        .recomputation.policy = o->train.recompute.items,
        .recomputation.count = o->train.recompute.count,
        .recomputation.fits = o->train.memory * 0x1p30,
        .layout.mesh = setup->mesh,
        .layout.overlap = {(int)o->tensor.overlap, o->tensor.domino},
        .layout.place = setup->place, .divided.gather = {
            .prefetch = (int)o->fsdp.prefetch,
            .reshard = o->fsdp.reshard}};
    if (r->machine.threads == 0)
        r->machine.threads = threads_cores() / mesh_ranks(&setup->mesh);
    if (r->machine.threads == 0) r->machine.threads = 1;
    TRY(device_parse(&r->machine.device, o->device));
    r->machine.graphs = o->device_graphs;
    TRY(check_library(o, r->machine.device));
    TRY(muon_adjust_parse(&setup->adjust, o->optimizer.adjust));
    TRY(setup_dtype(o->train.dtype, &r->dtype));
    TRY(optimizer_choose(&r->training.choice, o, r->dtype));
    r->training.choice.groups = setup->groups;
    TRY(balance_choose(&r->regular, o));
    TRY(check_observe(o));
    TRY(choose_product(o->numerics.bfloat16, r->dtype, &r->machine.product));
    TRY(libraries_choose(r, o));
    TRY(recipe_choose(r, o, setup->model.layers));
    TRY(loss_scale_parse(&setup->scaling, o->train.loss_scale, r->dtype,
                         o->train.batch * o->data.sequence));
    TRY(choose_isa(o->numerics.isa, &r->machine.isa));
    TRY(check_zero(setup));
    TRY(rounds_format(setup));
    TRY(grid_resolve(&setup->grid, &asked, &facts));
    TRY(rounds_sums(setup));
    TRY(check_tensor(setup));
    TRY(check_expert(setup));
    if (r->qk_clip > 0) TRY(qk_clip_check(&setup->model));
    return setup_use_grid(setup, &setup->grid);
}

struct pipeline_request setup_pipeline(const struct setup *setup)
{
    return (struct pipeline_request){.stage = setup->request,
                                     .schedule = &setup->schedule,
                                     .blocks = setup->blocks,
                                     .known = setup->known,
                                     .order = setup->order};
}

/* With one rank, auto is the same as any other. */
static status check_layout(const struct options *o, int ranks)
{
    const char *layout = o->mesh.layout;

    if (strcmp(layout, "given") == 0 || strcmp(layout, "chosen") == 0)
        return OK;
    if (strcmp(layout, "auto") != 0)
        FAIL(ERR_CONFIG, "mesh.layout: %s is not given or auto", layout);
    if (ranks == 1) return OK;
    FAIL(ERR_CONFIG, "mesh: auto is chosen by train, resume and plan; for this "
                     "command give the axes, or --set mesh=given");
}

/* The axes must account for every rank. What no other axis takes, and none is
 * -1, shares the batch. */
static status choose_mesh(struct setup *setup, int ranks, int rank)
{
    const struct options *o = &setup->set->values;
    struct mesh *mesh = &setup->mesh;

    TRY(check_layout(o, ranks));
    *mesh = mesh_alone();
    mesh->size[AXIS_DATA] = (int)o->mesh.data;
    mesh->size[AXIS_SHARD] = (int)o->mesh.shard;
    mesh->size[AXIS_CONTEXT] = (int)o->mesh.context;
    mesh->size[AXIS_TENSOR] = (int)o->mesh.tensor;
    mesh->size[AXIS_EXPERT] = (int)o->mesh.expert;
    mesh->size[AXIS_PIPE] = (int)o->mesh.pipe;
    if (mesh->size[AXIS_DATA] == 0) {
        mesh->size[AXIS_DATA] = MESH_AUTO;
        for (int i = 0; i < AXIS_COUNT; i++)
            if (i != AXIS_DATA && mesh->size[i] == MESH_AUTO)
                mesh->size[AXIS_DATA] = 1;
    }
    TRY(mesh_order_parse(&setup->order, o->mesh.order));
    TRY(mesh_resolve(mesh, ranks));
    TRY(mesh_fold(mesh, o->mesh.expert_tensor, o->mesh.expert_context));
    TRY(mesh_nodes(mesh, &setup->order, (int)o->mesh.node, o->moe.exchange));
    mesh_place(mesh, &setup->order, rank, &setup->place);
    setup->ranks = mesh_batch_ranks(mesh);
    return OK;
}

status setup_use_node(struct setup *setup, int node)
{
    const struct options *o = &setup->set->values;

    if (o->mesh.node != 0) return OK;
    TRY(mesh_nodes(&setup->mesh, &setup->order, node, o->moe.exchange));
    setup->request.layout.mesh = setup->mesh;
    return OK;
}

void setup_place(struct setup *setup, int rank)
{
    mesh_place(&setup->mesh, &setup->order, rank, &setup->place);
    setup->request.layout.place = setup->place;
}

static status resolve(struct setup *setup, int ranks, int rank)
{
    const struct options *o = &setup->set->values;

    if (strcmp(o->data.documents, "separate") != 0 &&
        strcmp(o->data.documents, "joined") != 0)
        FAIL(ERR_CONFIG, "data.documents: %s is not separate or joined",
             o->data.documents);
    if (strcmp(o->numerics.mode, "exact") != 0 &&
        strcmp(o->numerics.mode, "fast") != 0)
        FAIL(ERR_CONFIG, "numerics.mode: %s is not exact or fast",
             o->numerics.mode);
    TRY(choose_mesh(setup, ranks, rank));
    TRY(model_from_options(&setup->model, o, setup->vocabulary.size));
    TRY(check_vocab(setup));
    /* The tokenizer's end token, unless config.json named one. */
    if (setup->model.ends.eos < 0)
        setup->model.ends.eos = setup->vocabulary.end;
    TRY(setup_parameters(setup));
    TRY(setup_read_rate(setup, o));
    TRY(ramp_read(&setup->ramp, o->train.batch_ramp.items,
                  o->train.batch_ramp.count, o->train.batch));
    setup->batch = o->train.batch;
    TRY(resolve_request(setup));
    return check_ramp(setup);
}

status setup_resolve(struct setup *setup, const struct options_set *set,
                     const struct vocabulary *vocabulary, int ranks, int rank)
{
    *setup = (struct setup){.set = set, .vocabulary = *vocabulary};
    return resolve(setup, ranks, rank);
}

status setup_resolve_layout(struct setup *setup,
                            const struct options_set *set, int ranks,
                            const struct setup_model *known)
{
    *setup = (struct setup){
        .set = set, .vocabulary = *known->vocabulary,
        .parameters = known->parameters, .trained = known->trained,
        .schedules = known->schedules};
    return resolve(setup, ranks, 0);
}

void setup_update(const struct setup *setup, struct update *update)
{
    const struct options *o = &setup->set->values;

    update->beta1 = o->optimizer.beta1;
    update->beta2 = o->optimizer.beta2;
    update->epsilon = o->optimizer.epsilon;
    update->weight_decay = o->optimizer.weight_decay;
    update->clip = o->optimizer.clip;
    update->momentum = o->optimizer.momentum;
    update->nesterov = o->optimizer.nesterov;
    update->ns_steps = (int)o->optimizer.ns_steps;
    update->adjust = setup->adjust;
    update->frequency = (int)o->optimizer.frequency;
}

void setup_free(struct setup *setup)
{
    schedule_free(&setup->schedule);
    memory_free(setup->blocks);
    memory_free(setup->rates);
    ramp_free(&setup->ramp);
    *setup = (struct setup){0};
}
