/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - a layout from options, and what follows from its sizes. */
#include "planner/layout.h"

#include <string.h>

#include "mesh/shard.h"
#include "nn/precision.h"
#include "optimizer/kind.h"
#include "plan/fit.h"
#include "schedule/build.h"

const char *const recompute_names[RECOMPUTES] = {"none", "attention",
                                                 "block"};

int layout_bits(const struct options *o, enum program_as as)
{
    if (strcmp(o->train.dtype, "float32") == 0 ||
        strcmp(o->train.dtype, "float64") == 0)
        return 32;
    return as == AS_LOCKSTEP || strcmp(o->numerics.recipe, "none") == 0 ? 16
                                                                       : 8;
}

bool layout_has_4_bits(const struct options *o, enum program_as as)
{
    const char *name = o->numerics.recipe;
    const struct precision *recipe;

    if (layout_bits(o, as) != 8 || strpbrk(name, "./") != NULL) return false;
    if (precision_parse(&recipe, name) != OK) {
        status_clear(); /* check_recipe says it */
        return false;
    }
    return recipe->weights.format == FORMAT_E2M1 &&
           recipe->activations.format == FORMAT_E2M1 &&
           recipe->gradients.format == FORMAT_E2M1;
}

/* Each weight has one number beside it, and nothing of whole tensors. */
static bool has_one_state(const struct options *o)
{
    const struct optimizer_kind *kind;
    int count = 0;

    if (optimizer_find(&kind, o->optimizer.name) != OK) {
        status_clear();
        return false;
    }
    for (int i = 0; i < STATE_AVERAGE; i++) {
        if (kind->states[i].name == NULL) continue;
        if (kind->states[i].shape == STATE_WHOLE) return false;
        count += kind->states[i].shape == STATE_ELEMENTS;
    }
    return count == 1 && !kind->matrices;
}

struct stored layout_stored(const struct options *o, enum program_as as)
{
    enum state_type type = STATE_REAL;

    if (as != AS_LOCKSTEP) return (struct stored){.state_bits = 0};
    if (state_type_parse(&type, o->optimizer.state_dtype) != OK) status_clear();
    return (struct stored){
        .split_masters = strcmp(o->optimizer.masters, "split") == 0,
        .one_state = has_one_state(o),
        .state_bits = type == STATE_INT8 ? 8 : type == STATE_BFLOAT16 ? 16 : 0};
}

/* Bytes of a master beside a weight of 16 bits. */
static double master_bytes(const struct layout *l)
{
    return l->stored.split_masters ? 17.0 / 8 : 4;
}

double layout_state_bytes(const struct layout *l)
{
    return l->stored.state_bits > 0 ? l->stored.state_bits / 8.0 : 4;
}

static double states_bytes(const struct layout *l)
{
    return (l->stored.one_state ? 1 : 2) * layout_state_bytes(l);
}

struct held_bytes layout_held_bytes(const struct layout *l)
{
    const double states = states_bytes(l);
    const double narrow = habits_of[l->as].shard_bytes;

    /* With float32 weights there is no other copy of them; shards of float32
     * are 16 bits wide when they are gathered. */
    if (l->bits == 32) return (struct held_bytes){4, 0, states};
    if (narrow > 0) return (struct held_bytes){narrow, 0, states * narrow / 4};
    return (struct held_bytes){2, master_bytes(l), states};
}

/* Lockstep reads a gradient, reads and writes a weight and its states, and
 * writes a weight of 16 bits. Split masters are joined before, and split
 * again: two passes more. */
double layout_update_bytes(const struct layout *l)
{
    const double bytes = 12 + 2 * states_bytes(l);
    const double passes = 2 * (4 + 2 + master_bytes(l));

    if (l->as != AS_LOCKSTEP) return habits_of[l->as].update_bytes;
    if (l->bits == 32) return bytes;
    return bytes + 2 + (l->stored.split_masters ? passes : 0);
}

/* Megatron-LM recomputed whole blocks before it had sequence parallelism. */
bool layout_divides_tokens(const struct layout *l)
{
    const struct habits *h = &habits_of[l->as];

    return l->tensor > 1 && !h->tokens_whole &&
           !(h->block_whole && l->recompute == RECOMPUTE_BLOCK);
}

enum program_as layout_program(enum program_as as,
                               const struct machine *machine)
{
    /* Products of 8 bits are faster since Hopper. */
    const bool young = machine->value[M_PEAK_8] >
                       1.5 * machine->value[M_PEAK_16];

    return as == AS_MEGATRON && young ? AS_MEGATRON_CORE : as;
}

int layout_ranks(const struct layout *l)
{
    return l->pipe * l->data * l->shard * l->context * l->tensor * l->expert;
}

int layout_division(const struct layout *l, int zero)
{
    if (l->zero < zero || (zero == 2 && l->whole_gradients)) return 1;
    const bool shards = l->whole_shards && !(zero < 3 && l->parts[zero]);

    if (!shards) return layout_sharers(l);
    return layout_shards(l) * l->expert;
}

status layout_mesh(const struct layout *l, struct mesh *mesh)
{
    *mesh = mesh_alone();
    mesh->size[AXIS_TENSOR] = l->tensor;
    mesh->size[AXIS_CONTEXT] = l->context;
    mesh->size[AXIS_EXPERT] = l->expert;
    TRY(mesh_fold(mesh, l->expert_tensor, l->expert_context));
    if (l->as != AS_LOCKSTEP || l->rows_straight || l->per_node < 1 ||
        mesh_ranks(mesh) % l->per_node != 0)
        return OK;
    return mesh_nodes(mesh, &mesh_order_default, l->per_node, "auto");
}

static status grid_of(const struct layout *l, const struct shape *s,
                      int64_t batch, struct grid named, struct grid *grid)
{
    struct grid asked = {.data = named.data, .tensor = named.tensor,
                         .context = l->context};
    struct grid_facts facts = s->facts;

    facts.batch = batch;
    TRY(grid_resolve(grid, &asked, &facts));
    if (grid->tensor % l->tensor == 0) return OK;
    asked.tensor = l->tensor;
    return grid_resolve(grid, &asked, &facts);
}

status layout_grid(const struct layout *l, const struct shape *s,
                   int64_t batch, struct grid *grid)
{
    return grid_of(l, s, batch, (struct grid){0}, grid);
}

void layout_know_grid(struct layout *l, const struct shape *s,
                      struct grid named)
{
    struct grid grid = {0};

    if (grid_of(l, s, l->batch, named, &grid) != OK) status_clear();
    l->grid_data = grid.data;
    l->grid_tensor = grid.tensor;
}

bool layout_named_grid(const struct options *o, struct grid *named)
{
    *named = (struct grid){.data = (int)o->numerics.grid_data,
                           .tensor = (int)o->numerics.grid_tensor};
    return named->data != 0 || named->tensor != 0;
}

struct layout_leaves layout_leaves(const struct layout *l,
                                   const struct shape *s)
{
    const int ranks = layout_sharing(l);
    const int64_t share = l->batch / ranks;
    struct layout_leaves leaves = {.data = 1};
    struct grid grid = {.data = l->grid_data, .tensor = l->grid_tensor};

    if (grid.data == 0 && layout_grid(l, s, l->batch, &grid) != OK)
        status_clear();
    if (grid.data % ranks == 0 && grid.data > ranks)
        leaves.data = grid.data / ranks;
    while (share % leaves.data != 0) leaves.data--;
    leaves.tensor = grid.tensor > 0 ? grid.tensor : l->tensor;
    return leaves;
}

double layout_leaves_each(const struct layout *l, const struct shape *s)
{
    return (double)layout_leaves(l, s).data * layout_sharing(l) *
           (double)l->micro_batch / (double)l->batch;
}

struct expert_ranks layout_experts(const struct layout *l)
{
    const bool apart = l->expert_tensor > 0 && l->expert_tensor != l->tensor;
    const int contexts = l->expert_context ? l->context : 1;
    struct expert_ranks e = {
        .folded = apart && l->tensor > 1, .sources = l->expert * contexts,
        .cut = apart ? l->expert_tensor : l->tensor};

    e.ranks = e.sources * (e.folded ? l->tensor : 1);
    e.stride = e.folded ? 1 : l->tensor;
    e.places = apart ? e.ranks / l->expert_tensor : e.ranks;
    return e;
}

bool layout_defers(const struct layout *l)
{
    return l->pipe > 1 && !schedule_is(l->schedule, SCHEDULE_AT_ONCE);
}

bool layout_joins_passes(const struct layout *l)
{
    return schedule_is(l->schedule, SCHEDULE_JOINED);
}

double layout_block_experts(const struct layout *l, const struct shape *s)
{
    const struct expert_ranks e = layout_experts(l);

    return s->in_experts.parameters / (e.places * e.cut);
}

double layout_block_dense(const struct layout *l, const struct shape *s)
{
    return (s->block.parameters - s->in_experts.parameters - s->block.vectors) /
               l->tensor + s->block.vectors;
}

struct block_learns layout_block_learns(const struct layout *l,
                                        const struct shape *s)
{
    const struct expert_ranks e = layout_experts(l);
    const double dense = s->lora.all - s->lora.experts - s->lora.vectors;
    const double cut = s->lora.experts - s->lora.expert_vectors;

    if (s->lora.all <= 0)
        return (struct block_learns){layout_block_dense(l, s),
                                     layout_block_experts(l, s)};
    return (struct block_learns){dense / l->tensor + s->lora.vectors,
                                 (cut / e.cut + s->lora.expert_vectors) /
                                     e.places};
}

int layout_stage(const struct layout *l, int chunk, int position)
{
    if (chunk > 0 && schedule_is(l->schedule, SCHEDULE_V))
        return 2 * l->pipe - 1 - position;
    return chunk * l->pipe + position;
}

/* The first block of a stage. Where the head counts as blocks, the last stage
 * may have none. */
static int first_block(const struct layout *l, const struct shape *s,
                       int stages, int stage)
{
    const int64_t all = s->layers + s->mtp.depth + l->head_blocks;
    int first;

    if (l->head_blocks == 0 || stage == stages)
        return fit_first(s->layers, s->mtp.depth, stages, stage);
    first = (int)(all * stage / stages);
    return first < s->layers ? first : s->layers;
}

int layout_blocks(const struct layout *l, const struct shape *shape,
                  int stage)
{
    const int stages = l->pipe * l->chunks;

    if (l->blocks != NULL) return l->blocks[stage];
    return first_block(l, shape, stages, stage + 1) -
           first_block(l, shape, stages, stage);
}

struct stage_blocks layout_blocks_between(const struct shape *s, int first,
                                          int count)
{
    int plain = 0;

    if (s->expert_blocks <= 0) return (struct stage_blocks){count, 0, first};
    if (s->block.plain > 0)
        plain = blocks_among(&s->model.moe.dense, first, count);
    return (struct stage_blocks){count, count - plain, first};
}

struct stage_blocks layout_stage_blocks(const struct layout *l,
                                        const struct shape *s, int stage)
{
    const int stages = l->pipe * l->chunks;
    int first = 0, all;

    if (l->blocks != NULL) {
        for (int i = 0; i < stage; i++) first += l->blocks[i];
        all = l->blocks[stage];
    } else {
        first = first_block(l, s, stages, stage);
        all = first_block(l, s, stages, stage + 1) - first;
    }
    return layout_blocks_between(s, first, all);
}

struct rank_blocks layout_rank_blocks(const struct layout *l,
                                      const struct shape *s, int position)
{
    struct rank_blocks sum = {0};

    if (l->ends.known && (position == 0 || position == l->pipe - 1)) {
        const int end = position > 0;

        return (struct rank_blocks){l->ends.all[end], l->ends.mixed[end]};
    }
    for (int chunk = 0; chunk < l->chunks; chunk++) {
        const struct stage_blocks here =
            layout_stage_blocks(l, s, layout_stage(l, chunk, position));

        sum.all += here.all;
        sum.mixed += here.mixed;
    }
    return sum;
}

bool rank_blocks_grow(struct rank_blocks *seen, struct rank_blocks here)
{
    const bool more = here.all > seen->all || here.mixed > seen->mixed;

    if (here.all > seen->all) seen->all = here.all;
    if (here.mixed > seen->mixed) seen->mixed = here.mixed;
    return more;
}

const char *layout_text(const struct layout *l, char *out, size_t size)
{
    const struct { enum axis axis; int size; } axes[] = {
        {AXIS_TENSOR, l->tensor}, {AXIS_CONTEXT, l->context},
        {AXIS_EXPERT, l->expert}, {AXIS_PIPE, l->pipe},
        {AXIS_SHARD, l->shard}, {AXIS_DATA, l->data}};
    size_t used = 0;

    out[0] = 0;
    for (int i = 0; i < 6; i++)
        if (axes[i].size > 1 && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s %d, ",
                                     axis_name(axes[i].axis), axes[i].size);
    if (l->expert_tensor > 0 && used < size)
        used += (size_t)snprintf(out + used, size - used, "expert_tensor %d, ",
                                 l->expert_tensor);
    if (l->expert_context && used < size)
        used += (size_t)snprintf(out + used, size - used, "expert_context, ");
    if (used < size)
        snprintf(out + used, size - used, "micro-batch %lld, zero %d%s%s%s",
                 (long long)l->micro_batch, l->zero,
                 !l->whole_shards ? ""
                 : l->zero == 2 && l->parts[1]
                     ? " (gradients of shards, states of all)"
                 : l->parts[2] ? " (weights of shards)"
                 : l->parts[1] ? " (states of all, else of shards)"
                               : " of shards",
                 l->recompute != RECOMPUTE_NONE ? ", recompute " : "",
                 l->recompute != RECOMPUTE_NONE
                     ? recompute_names[l->recompute] : "");
    return out;
}

/* ---- from options ---- */

static status read_zero(struct layout *l, const char *name)
{
    struct division division;

    TRY(division_parse(&division, name));
    l->zero = division.weights != 0     ? 3
              : division.gradients != 0 ? 2
                                        : division.states != 0;
    l->whole_shards = division_copies(&division) || division_parts(&division);
    l->parts[1] = division.states >> AXIS_DATA & 1;
    l->parts[2] = division.gradients >> AXIS_DATA & 1;
    l->whole_gradients = division.gradients == 0;
    return OK;
}

bool layout_sums_once(const struct layout *l)
{
    return l->sums == SUMS_AS_USUAL ? habits_of[l->as].sums_once
                                          : l->sums == SUMS_ONCE;
}

static bool names_latents(const struct options *o)
{
    for (int i = 0; i < o->train.recompute.count; i++)
        if (strcmp(o->train.recompute.items[i], "latent") == 0) return true;
    return false;
}

/* Beside what is made of latents. */
static enum recompute recompute_of(const struct options *o)
{
    enum recompute found = RECOMPUTE_NONE;

    for (int i = 0; i < o->train.recompute.count; i++) {
        const char *word = o->train.recompute.items[i];

        if (strcmp(word, "block") == 0) return RECOMPUTE_BLOCK;
        if (strcmp(word, "none") != 0 && strcmp(word, "auto") != 0 &&
            strcmp(word, "latent") != 0)
            found = RECOMPUTE_SELECTIVE;
    }
    return found;
}

/* Whether parts are made again, and attention is none of them. */
static bool leaves_attention(const struct options *o)
{
    for (int i = 0; i < o->train.recompute.count; i++)
        if (strcmp(o->train.recompute.items[i], "attention") == 0)
            return false;
    return recompute_of(o) == RECOMPUTE_SELECTIVE;
}

/* One axis may take all ranks that the others leave. */
static status fill_mesh(struct layout *l, const struct options *o, int ranks)
{
    const struct { int64_t asked; int *size; } axes[] = {
        {o->mesh.pipe, &l->pipe}, {o->mesh.shard, &l->shard},
        {o->mesh.context, &l->context}, {o->mesh.tensor, &l->tensor},
        {o->mesh.expert, &l->expert},
        {o->mesh.data == 0 ? -1 : o->mesh.data, &l->data}};
    int64_t product = 1;
    int open = -1;

    for (int i = 0; i < 6; i++) {
        *axes[i].size = axes[i].asked > 0 ? (int)axes[i].asked : 1;
        if (axes[i].asked > 0) product *= axes[i].asked;
        if (axes[i].asked < 0) open = i;
        if (product > ranks) break;
    }
    if (product > ranks || ranks % product != 0 ||
        (open < 0 && product != ranks))
        FAIL(ERR_CONFIG, "--ranks %d: the mesh has %lld ranks%s; %lld %s",
             ranks, (long long)product,
             open >= 0 ? " without the open axis" : "",
             (long long)(product > ranks ? product
                                         : ranks / product * product),
             "ranks fit");
    if (open >= 0) *axes[open].size = (int)(ranks / product);
    l->expert_tensor = (int)o->mesh.expert_tensor;
    l->expert_context = o->mesh.expert_context && l->context > 1;
    return OK;
}

static int axis_ranks(const struct layout *l, enum axis axis)
{
    switch (axis) {
    case AXIS_PIPE: return l->pipe;
    case AXIS_DATA: return l->data;
    case AXIS_SHARD: return l->shard;
    case AXIS_CONTEXT: return l->context;
    case AXIS_EXPERT: return l->expert;
    default: return l->tensor;
    }
}

/* The next axis of several ranks, from place i on; AXIS_NONE: none. */
static enum axis next_axis(const struct layout *l,
                           const struct mesh_order *order, int *i)
{
    while (*i < order->count)
        if (axis_ranks(l, order->axis[(*i)++]) > 1) return order->axis[*i - 1];
    return AXIS_NONE;
}

bool layout_is_in_order(const struct layout *l, const struct mesh_order *order)
{
    int i = 0, k = 0;

    for (;;) {
        const enum axis axis = next_axis(l, order, &i);

        if (axis != next_axis(l, &mesh_order_default, &k)) return false;
        if (axis == AXIS_NONE) return true;
    }
}

status layout_check_order(const struct layout *l, const struct options *o)
{
    struct mesh_order order;

    TRY(mesh_order_parse(&order, o->mesh.order));
    if (layout_is_in_order(l, &order)) return OK;
    FAIL(ERR_CONFIG, "mesh.order: %s: the planner numbers ranks by the default "
         "order, pipe,data,shard,context,expert,tensor, alone; leave "
         "mesh.order empty", o->mesh.order);
}

static status fill_batch(struct layout *l, const struct options *o)
{
    const int64_t each = o->train.batch / layout_sharing(l);
    int64_t near;

    l->batch = o->train.batch;
    if (each < 1 || o->train.batch % layout_sharing(l) != 0)
        FAIL(ERR_CONFIG, "train.batch: %lld sequences do not divide among %d "
                         "data-parallel ranks; %lld would",
             (long long)l->batch, layout_sharing(l),
             (long long)((each < 1 ? 1 : each) * layout_sharing(l)));
    l->micro_batch = o->train.micro_batch > 0 ? o->train.micro_batch : 1;
    for (near = l->micro_batch; each % near != 0; near--) continue;
    if (near != l->micro_batch)
        FAIL(ERR_CONFIG, "train.micro_batch: %lld does not divide the %lld "
                         "sequences of a rank; %lld does",
             (long long)l->micro_batch, (long long)each, (long long)near);
    if (each / l->micro_batch > MICROBATCHES_MAX)
        FAIL(ERR_CONFIG, "train.micro_batch: %lld micro-batches; at most %d",
             (long long)(each / l->micro_batch), MICROBATCHES_MAX);
    l->microbatches = (int)(each / l->micro_batch);
    return OK;
}

static status fill_schedule(struct layout *l, const struct options *o,
                            const struct shape *shape)
{
    const struct schedule_row *row;

    l->chunks = 1;
    snprintf(l->schedule, sizeof l->schedule, "%s", o->schedule.name);
    if (l->pipe == 1) {
        snprintf(l->schedule, sizeof l->schedule, "1f1b");
        return OK;
    }
    TRY(schedule_row_find(o->schedule.name, &row));
    l->chunks = row->chunks > 0          ? row->chunks
                : o->schedule.chunks > 0 ? (int)o->schedule.chunks : 2;
    if (l->pipe * l->chunks > shape->layers +
                                  (o->mesh.layers.count > 0 ? 2 : 0))
        FAIL(ERR_CONFIG, "mesh.pipe: %d ranks with %d stages each need %d "
                         "blocks; the model has %d", l->pipe, l->chunks,
             l->pipe * l->chunks, shape->layers);
    return OK;
}

static status check_experts(const struct layout *l, const struct shape *shape)
{
    const int places = layout_experts(l).places;
    struct mesh mesh;

    TRY(layout_mesh(l, &mesh));
    if (places > 1 && shape->experts == 0)
        FAIL(ERR_CONFIG, "mesh.expert_tensor, mesh.expert_context: the model "
                         "has no experts to divide; leave them out");
    if (shape->experts % places != 0)
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks do not divide %d experts",
             places, shape->experts);
    return OK;
}

static status check_axes(const struct layout *l, const struct shape *shape)
{
    if (l->expert > 1 && shape->experts == 0)
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks divide experts, and the model "
                         "has none; 1 works", l->expert);
    TRY(check_experts(l, shape));
    if (shape->heads % l->tensor != 0)
        FAIL(ERR_CONFIG, "mesh.tensor: %d ranks do not divide %d heads",
             l->tensor, shape->heads);
    if (l->tensor * l->context > shape->sequence)
        FAIL(ERR_CONFIG, "mesh.context: %d ranks for sequences of %lld tokens",
             l->context, (long long)shape->sequence);
    return OK;
}

/* Ranks on one machine share its cores; a core is a device of a profile that
 * was measured. */
static int threads_of(const struct layout *l, const struct options *o,
                      const struct layout_request *request)
{
    const int cores = (int)request->machine->value[M_DEVICES];
    const int ranks = request->ranks < l->per_node ? request->ranks
                                                   : l->per_node;

    if (request->machine->product_count == 0 || l->as != AS_LOCKSTEP) return 1;
    if (o->train.threads > 0) return (int)o->train.threads;
    return cores / ranks > 1 ? cores / ranks : 1;
}

/* Lockstep's own step is refused by the trainer's setup. */
static status check_recipe(const struct options *o, enum program_as as)
{
    const char *name = o->numerics.recipe;
    const struct precision *recipe;

    if (as == AS_LOCKSTEP || strpbrk(name, "./") != NULL) return OK;
    return precision_parse(&recipe, name);
}

static enum sums_when sums_of(const struct options *o)
{
    return strcmp(o->zero_reduce, "each") == 0   ? SUMS_EACH
           : strcmp(o->zero_reduce, "once") == 0 ? SUMS_ONCE
                                                 : SUMS_AS_USUAL;
}

void layout_take(struct layout *l, const struct options *o)
{
    l->sums = sums_of(o);
    l->four_bits = layout_has_4_bits(o, l->as);
    l->rows_straight = strcmp(o->moe.exchange, "flat") == 0;
    l->tensor_scales = strcmp(o->numerics.recipe, "fp8-tensor") == 0;
    l->overlap_tensor = o->tensor.overlap > 1 || o->tensor.domino;
}

status layout_from_options(struct layout *l,
                           const struct layout_request *request)
{
    const struct options *o = request->options;
    const int devices = (int)request->machine->value[M_DEVICES];
    struct grid named;

    *l = (struct layout){.as = request->as};
    if (request->nodes > request->ranks ||
        (request->nodes > 0 && request->ranks % request->nodes != 0))
        FAIL(ERR_CONFIG, "--nodes %d does not divide --ranks %d",
             request->nodes, request->ranks);
    l->per_node = request->nodes > 0 ? request->ranks / request->nodes
                  : request->ranks < devices ? request->ranks : devices;
    TRY(fill_mesh(l, o, request->ranks));
    if (request->ranks > l->per_node) TRY(layout_check_order(l, o));
    TRY(fill_batch(l, o));
    TRY(fill_schedule(l, o, request->shape));
    TRY(check_axes(l, request->shape));
    TRY(read_zero(l, o->zero));
    l->recompute = recompute_of(o);
    l->again_moved = leaves_attention(o);
    l->again_latent = l->recompute != RECOMPUTE_BLOCK && names_latents(o);
    l->sequence_parallel = layout_divides_tokens(l);
    TRY(check_recipe(o, l->as));
    l->bits = layout_bits(o, l->as);
    l->stored = layout_stored(o, l->as);
    layout_take(l, o);
    l->threads = threads_of(l, o, request);
    if (l->as == AS_LOCKSTEP && layout_named_grid(o, &named))
        layout_know_grid(l, request->shape, named);
    if (request->blocks == NULL) return OK;
    if (l->pipe * l->chunks > LAYOUT_STAGES)
        FAIL(ERR_CONFIG, "mesh.pipe: %d stages; at most %d can be planned",
             l->pipe * l->chunks, LAYOUT_STAGES);
    TRY(fit_blocks(&o->mesh.layers, request->shape->layers,
                   request->shape->mtp.depth, l->pipe, l->pipe * l->chunks,
                   request->blocks));
    l->blocks = request->blocks;
    return OK;
}
