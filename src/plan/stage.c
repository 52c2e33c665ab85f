/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - everything that is decided before the first step, and the memory
 * that it takes. */
#include "plan/stage.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/first_touch.h"
#include "base/sizes.h"
#include "nn/routes.h"
#include "nn/score_peaks.h"
#include "nn/tallies.h"
#include "optimizer/whole_tensors.h"
#include "plan/context_method.h"
#include "plan/logits_chunk.h"

/* ---- sizes ---- */

/* The shortest sequence that the grid can cut. */
static int64_t shortest(const struct grid *grid)
{
    return (grid->context > 1 ? 2 * (int64_t)grid->context : 1) * grid->tensor;
}

static status check_chunks(const struct stage_request *r)
{
    if (r->layout.grid.context <= 1) return OK;
    TRY(grid_check_length(&r->layout.grid, r->size.length));
    return context_method_check(r);
}

/* Whether each leaf has a token of the vocabulary. */
static bool cuts_vocab(const struct stage_request *r, int leaves)
{
    const int64_t block = (r->model->vocab + leaves - 1) / leaves;

    return block * (leaves - 1) < r->model->vocab;
}

/* Names fewer leaves that the ranks can have, or fewer ranks. */
static status check_vocab(const struct stage_request *r)
{
    const int leaves = r->layout.grid.tensor;
    const int ranks = r->layout.mesh.size[AXIS_TENSOR];
    int near = leaves;

    if (cuts_vocab(r, leaves)) return OK;
    while (near > 1 && !(cuts_vocab(r, near) &&
                         grid_is_cut(near, ranks > 0 ? ranks : 1)))
        near--;
    if (near > 1 || ranks < 2)
        FAIL(ERR_CONFIG, "a vocabulary of %lld tokens cannot be cut into %d "
                         "leaves; a run that begins with "
                         "numerics.grid_tensor=%d can",
             (long long)r->model->vocab, leaves, near);
    near = ranks;
    while (!cuts_vocab(r, near)) near--;
    FAIL(ERR_CONFIG, "mesh.tensor: a vocabulary of %lld tokens cannot be cut "
                     "into a leaf for each of %d ranks; at most %d ranks can "
                     "be here", (long long)r->model->vocab, ranks, near);
}

status stage_check(const struct stage_request *r)
{
    if (r->size.batch % r->size.micro_batch != 0) {
        int64_t near = r->size.micro_batch;

        while (r->size.batch % near != 0) near--;
        FAIL(ERR_CONFIG, "train.micro_batch: %lld does not divide a batch of "
                         "%lld sequences; %lld does",
             (long long)r->size.micro_batch, (long long)r->size.batch,
             (long long)near);
    }
    TRY(check_vocab(r));
    if (r->size.length < r->layout.grid.tensor)
        FAIL(ERR_CONFIG, "data.sequence: %lld tokens are fewer than the %d "
                         "tensor leaves of the grid; %lld tokens would do",
             (long long)r->size.length, r->layout.grid.tensor,
             (long long)shortest(&r->layout.grid));
    return check_chunks(r);
}

/* A weight may be read one event before its step's own: it is not gathered. */
static bool is_undivided(const struct division *division)
{
    return (division->weights | division->gradients | division->states) == 0;
}

static status build_program(struct stage *stage)
{
    const struct stage_request *r = &stage->request;
    struct program *p = &stage->program;

    program_init(p, r->mode, r->dtype, &r->layout.grid);
    p->layout = r->layout;
    if (r->layout.mesh.size[AXIS_NONE] == 0) p->layout.mesh = mesh_alone();
    p->size.batch = r->size.batch;
    p->size.sequences = r->size.micro_batch;
    p->size.length = r->size.length / r->layout.mesh.size[AXIS_CONTEXT];
    p->size.tokens = r->size.micro_batch * p->size.length;
    if (r->layout.grid.context > 1)
        p->size.context_chunks =
            2 * r->layout.grid.context / r->layout.mesh.size[AXIS_CONTEXT];
    p->layout.method = context_method_used(r);
    p->size.context = r->size.context ? r->size.context : r->size.length;
    p->later.depth = r->mtp_depth;
    p->later.block = r->model->layers;
    p->caches.latent = r->latent_cache;
    if (r->size.texts > 0) p->caches.texts = r->size.texts;
    p->size.vocab = r->model->vocab;
    if (program_tensor_ranks(p) == 1) p->layout.overlap.domino = false;
    p->size.logits_chunk = logits_chunk(r);
    p->regular = r->regular;
    p->watched.peaks = r->qk_clip > 0 || r->training.observe;
    p->watched.roundings = r->training.observe;
    p->precision = r->precision;
    p->sums = r->reduction.sums;
    p->joins_norms.sums = is_undivided(&r->divided.division);
    p->joins_norms.products =
        p->joins_norms.sums && stage_products_fast(stage);
    if (p->size.tokens > INT32_MAX / 2)
        FAIL(ERR_CONFIG, "a micro-batch of %lld tokens",
             (long long)p->size.tokens);
    TRY(r->model->kind->build(p, r->model));
    if ((r->slice.last == 0 && !r->slice.begins &&
         !r->slice.ends) ||
        slice_is_whole(&r->slice, r->model->layers)) {
        program_name_rows(p);
        return OK;
    }
    return program_slice(p, &r->slice);
}

/* ---- the table ---- */

/* Where ranks cut sequences: the documents of whole ones. */
static size_t whole_bytes(const struct program *p)
{
    if (p->layout.mesh.size[AXIS_CONTEXT] == 1) return 0;
    return arena_aligned((size_t)(p->size.sequences * program_sequence(p)) *
                   sizeof(int32_t));
}

/* ... and room for one whole sequence: inputs, targets, positions. */
static size_t room_bytes(const struct program *p)
{
    if (p->layout.mesh.size[AXIS_CONTEXT] == 1) return 0;
    return arena_aligned((size_t)program_sequence(p) * sizeof(int32_t));
}

/* The bytes of the batch in a frame. */
static size_t frame_batch_bytes(const struct program *p)
{
    return 4 * arena_aligned((size_t)p->size.tokens * sizeof(int32_t)) +
           2 * mtp_bytes(p, sizeof(int32_t)) + whole_bytes(p);
}

/* Arrays of each frame, and what one F or B needs. */
static size_t batch_bytes(const struct program *p, int frames)
{
    const size_t tokens = (size_t)p->size.tokens;

    return (size_t)frames * frame_batch_bytes(p) + 3 * room_bytes(p) +
           arena_aligned(tokens * sizeof(int32_t)) +
           (p->regular.z_loss > 0 ? 2 : 1) *
               arena_aligned(tokens * sizeof(double)) +
           mtp_bytes(p, sizeof(double)) + arena_aligned(score_peaks_bytes(p)) +
           arena_aligned(routes_bytes(p)) +
           arena_aligned(operand_peaks_bytes(p)) +
           arena_aligned(tallies_bytes(p)) +
           arena_aligned((size_t)run_segments(p) * sizeof(struct sum_segment)) +
           arena_aligned(run_peers_bytes(p));
}

static int64_t widest(const struct program *p)
{
    int64_t most = p->size.vocab;

    for (int i = 0; i < p->params.count; i++)
        if (p->params.items[i].spec.rows > most)
            most = p->params.items[i].spec.rows;
    for (int i = 0; i < p->slot_count; i++) {
        const struct slot_info *info = &p->slots[i];
        const int64_t width =
            info->width * (info->bound > 0 ? info->bound : 1);

        if (width > most) most = width;
    }
    return most;
}

static size_t gathered_bytes(const struct stage *stage)
{
    const struct stage_request *r = &stage->request;
    const int64_t elements = r->divided.gather.reshard &&
                             !r->divided.gather.once
                                 ? stage->gathered.elements
                                 : shards_rooms(&stage->shards);

    if (!stage_divides(stage, stage_reads(stage))) return 0;
    return (size_t)(elements * dtype_bytes(stage->program.dtype));
}

static size_t bucket_bytes(const struct stage *stage)
{
    if (!stage_divides(stage, MEMORY_GRADIENTS)) return 0;
    return (size_t)(stage->reduced.elements *
                    dtype_bytes(program_sum(&stage->program)));
}

static size_t blocks_bytes(const struct stage *stage)
{
    return arena_aligned((size_t)shard_blocks(&stage->program.params,
                                        &stage->holding) * sizeof(double));
}

/* Block sums of this table; sums of all parameters and leaves; room in which
 * the blocks of a class come together, where there are several. */
static size_t norm_bytes(const struct stage *stage)
{
    const struct param_table *params = &stage->program.params;
    const int64_t sums =
        (int64_t)params->orders * shard_leaves(params, &stage->holding);

    return blocks_bytes(stage) + arena_aligned((size_t)sums * sizeof(double)) +
           (stage->shards.class_count > 1 ? blocks_bytes(stage) : 0);
}

static struct memory_row state_row(const struct stage *stage, int number)
{
    return (struct memory_row){states_title(&stage->states, number), "run",
                               stage->states.bytes[number], NULL};
}

static struct memory_row weights_row(const struct stage *stage,
                                     enum memory_owner owner)
{
    return (struct memory_row){owner == MEMORY_COMPUTE ? "compute weights"
                               : stage_splits(stage)   ? "masters, split"
                                                       : "weights", "run",
                               stage_arena_bytes(stage, owner), NULL};
}

/* Rows whose sizes follow from those of others. */
static void size_derived(struct stage *stage, struct memory_row *rows)
{
    rows[MEMORY_SNAPSHOT].bytes = stage_snapshot_bytes(stage, rows);
    rows[MEMORY_STAGING].bytes = stage_staging_bytes(stage, rows);
    const struct device_choice choice = stage_device(stage, rows);

    rows[MEMORY_TOLD_HOST].bytes = rows[MEMORY_TOLD].bytes =
        device_ring_bytes(&choice);
    rows[MEMORY_PRODUCTS].bytes = device_room_bytes(&choice);
    rows[MEMORY_ATTENTION].bytes = device_attention_bytes(&choice);
}

/* Tokens of the longest call of a kernel. */
static int64_t most_tokens(const struct program_size *size)
{
    return size->tokens > size->context ? size->tokens : size->context;
}

static size_t taken_bytes(size_t bytes)
{
    return bytes > (size_t)STAGE_BYTES_MOST ? (size_t)INT64_MAX
                                            : arena_aligned(bytes);
}

static size_t cache_bytes(const struct program *p)
{
    const int64_t rows = size_product(p->caches.count * p->size.context,
                                      p->caches.texts);

    return (size_t)size_product(rows, p->caches.width * dtype_bytes(p->dtype));
}

static status add_memory(struct stage *stage)
{
    const struct program *p = &stage->program;
    const size_t real = (size_t)dtype_bytes(program_real(p));
    const bool trains = stage->request.backward != BACKWARD_NONE;
    const int frames = stage->request.size.frames;
    struct memory_row rows[MEMORY_OWNERS] = {
        weights_row(stage, MEMORY_WEIGHTS), weights_row(stage, MEMORY_COMPUTE),
        {"gradients", "run",
         trains ? stage_arena_bytes(stage, MEMORY_GRADIENTS) : 0, NULL},
        {"partial gradients", "run",
         trains ? (size_t)stage->gradients.partial_elements * real : 0, NULL},
        state_row(stage, 0), state_row(stage, 1), state_row(stage, 2),
        state_row(stage, 3), state_row(stage, STATE_AVERAGE),
        {"activations and their gradients", "micro-batch",
         (size_t)size_product(stage->frame.bytes, frames), NULL},
        {"activations inside one pass", "pass",
         (size_t)stage->frame.pass_bytes, NULL},
        {"logits and layer scratch", "call", program_scratch_bytes(p), NULL},
        {"kernel scratch", "call",
         kernels_scratch_bytes(&stage->kernels, stage->request.machine.threads,
                               widest(p), most_tokens(&p->size)), NULL},
        {"rotary tables", "run", run_rope_bytes(p), NULL},
        {"key-value cache", "run",
         p->mode == PROGRAM_GENERATE
             ? cache_bytes(p) : 0, NULL},
        {"batch", "micro-batch", batch_bytes(p, frames), NULL},
        {"batch of the next step", "step", 0, NULL},
        {"gathered weights",
         !stage->request.divided.gather.reshard ? "step"
         : stage->request.divided.gather.once   ? "stage"
                                        : "unit",
         gathered_bytes(stage), NULL},
        {"weights as codes", "step", coded_parts(&stage->coded).bytes, NULL},
        {"gradients to be reduced", "unit", trains ? bucket_bytes(stage) : 0,
         NULL},
        {"sums of the gradients' norm", "step",
         stage->request.training.optimizer ? norm_bytes(stage) : 0, NULL},
        {"gradients on their way back", "micro-batch", 0, NULL},
        {"messages between ranks", "call", 0, NULL},
        {"messages in the background", "step", 0, NULL},
        {"weights before an observed step", "step",
         stage->request.training.observe ? stage_saved_bytes(stage) : 0, NULL},
        {"whole matrices", "call", whole_room_bytes(&stage->states), NULL},
        {"masters in float32", "call", stage->masters_bytes, NULL},
        {"snapshot of a checkpoint", "save", 0, NULL},
        {"what the host sees of the device", "run", 0, NULL},
        {"what kernels are told, on the host", "run", 0, NULL},
        {"what kernels are told", "run", 0, NULL},
        {"room of the library of products", "call", 0, NULL},
        {"room of attention", "call", 0, NULL},
        {"the other gradient of a tied table", "step", 0, NULL},
    };

    size_derived(stage, rows);
    stage->bytes = 0;
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        stage->memory[i] = rows[i];
        stage->memory[i].bytes = taken_bytes(rows[i].bytes);
        stage->bytes = (size_t)size_sum((int64_t)stage->bytes,
                                        (int64_t)stage->memory[i].bytes);
    }
    if ((int64_t)stage->bytes > STAGE_BYTES_MOST)
        FAIL(ERR_CONFIG, "the plan of a rank takes more than 2^56 bytes; set "
                         "model sizes or train.micro_batch lower");
    return OK;
}

/* The gradient of a second use has shards of its own. */
static void count_levels(struct stage *stage)
{
    const struct program *p = &stage->program;
    const struct shards *s = &stage->shards;

    stage->level_elements = s->gradients;
    for (int i = 0; i < p->use_count; i++)
        if (p->uses[i].number > 0)
            stage->level_elements += param_room(
                shard_kept_gradients(s,
                                     shard_unit_of(s, p->uses[i].param)));
    stage->levels = 1;
    for (int rounds = stage->request.reduction.rounds; rounds > 1; rounds /= 2)
        stage->levels += !p->sums.integer || stage->levels < 2;
}

static status plan_residency(struct stage *stage)
{
    const struct stage_request *r = &stage->request;

    count_levels(stage);
    if (stage_divides(stage, stage_reads(stage)))
        TRY(residency_weights(&stage->gathered, &stage->program,
                              &stage->frame, &stage->shards,
                              (struct ahead){r->divided.gather.prefetch,
                                             r->divided.gather.in_flight}));
    if (r->backward != BACKWARD_NONE)
        TRY(residency_gradients(&stage->reduced, &stage->program,
                                &stage->frame, &stage->shards,
                                r->backward == BACKWARD_FUSED));
    return OK;
}

/* Every word once: "norm, activation". */
static void name_policy(struct stage *stage, const char *const *policy,
                        int count)
{
    size_t used = 0;

    stage->recompute[0] = '\0';
    for (int i = 0; i < count; i++) {
        bool before = false;

        for (int k = 0; k < i && !before; k++)
            before = strcmp(policy[k], policy[i]) == 0;
        if (before || used >= sizeof stage->recompute) continue;
        used += (size_t)snprintf(stage->recompute + used,
                                 sizeof stage->recompute - used, "%s%s",
                                 used > 0 ? ", " : "", policy[i]);
    }
}

static status plan_with(struct stage *stage, const char *const *policy,
                        int count)
{
    name_policy(stage, policy, count);
    TRY(program_recompute(&stage->program, policy, count));
    frame_plan_free(&stage->frame);
    TRY(frame_plan_build(&stage->frame, &stage->program,
                         stage->request.backward,
                         (struct frame_count){
                             stage->request.size.frames,
                             stage->request.size.shares_room}));
    TRY(plan_residency(stage));
    return add_memory(stage);
}

enum {
    MACHINE_PART = 4, /* of its memory: a run's share unless told otherwise */
    SMALL_PART = 16,  /* of that share: activations that small stay */
};

/* Nothing is computed again in a small run, nor where a limit is given and it
 * fits; norms and activations else, which cost about a hundredth of a step and
 * are a third of the activations; whole blocks if not even that fits. */
static status plan_auto(struct stage *stage)
{
    static const char *const cheap[] = {"norm", "activation"};
    static const char *const none[] = {"none"}, *const block[] = {"block"};
    double limit = stage->request.recomputation.fits, small = limit;

    if (limit <= 0) {
        limit = (double)sysconf(_SC_PHYS_PAGES) *
                (double)sysconf(_SC_PAGESIZE) / MACHINE_PART;
        small = limit / SMALL_PART;
    }
    if (stage->request.recomputation.share > 1) {
        limit /= stage->request.recomputation.share;
        small /= stage->request.recomputation.share;
    }
    TRY(plan_with(stage, none, 1));
    if (stage->request.backward == BACKWARD_NONE ||
        (double)stage->bytes <= small)
        return OK;
    TRY(plan_with(stage, cheap, 2));
    if ((double)stage->bytes <= limit ||
        (stage->coded.params != NULL && stage->coded.sets > 1))
        return OK; /* y of a block is not made again among codes of dx */
    return plan_with(stage, block, 1);
}

/* Before anything is cut: who has no gradient. */
static status mark_frozen(struct stage *stage)
{
    struct param_table *table = &stage->program.params;
    struct optimizer_rule *rules;
    void *memory = NULL;
    status result;

    TRY(memory_take((size_t)table->count + 1, sizeof *rules, &memory));
    rules = memory;
    result = rules_build(rules, table, &stage->request.training.choice);
    for (int i = 0; result == OK && i < table->count; i++)
        table->items[i].frozen = rules[i].frozen;
    memory_free(memory);
    param_place_gradients(table);
    return result;
}

static status divide(struct stage *stage)
{
    const struct stage_request *r = &stage->request;

    stage->holding = (struct holding){r->layout.mesh, r->layout.place,
                                      r->layout.grid.tensor};
    if (r->training.optimizer) TRY(mark_frozen(stage));
    TRY(shards_build(&stage->shards, &stage->program.params,
                     &stage->holding, &r->divided.division));
    if (r->reduction.bits > 0 && r->layout.mesh.size[AXIS_TENSOR] > 1)
        TRY(shard_starts_build(&stage->starts, &stage->shards,
                               &stage->program.params, &stage->holding));
    const bool kept = r->precision.kept && r->training.optimizer;
    const bool divides = stage_divides(stage, stage_reads(stage));

    if (divides ? r->divided.gather.codes : kept) {
        stage->coded.kept = kept;
        stage->coded.whole = !divides;
        TRY(coded_plan(&stage->coded, &stage->program, &stage->shards));
    }
    if (!r->training.optimizer) return OK;
    const struct states_request states = {
        .params = &stage->program.params, .holding = &stage->holding,
        .shards = &stage->shards, .choice = &r->training.choice,
        .division = r->divided.division, .real = dtype_real(r->dtype)};

    return states_plan(&stage->states, &states);
}

status stage_plan(struct stage *stage, const struct stage_request *request)
{
    *stage = (struct stage){.request = *request};
    struct stage_request *r = &stage->request;

    if (r->layout.mesh.size[AXIS_NONE] == 0) r->layout.mesh = mesh_alone();
    TRY(kernels_get_product(&stage->kernels, r->dtype, r->machine.isa,
                            r->machine.product));
    TRY(kernels_get(&stage->real, dtype_real(r->dtype), r->machine.isa));
    TRY(stage_check(r));
    if (r->size.frames == 0) r->size.frames = 1;
    TRY(build_program(stage));
    TRY(divide(stage));
    TRY(stage_check_apart(stage));
    stage->masters_bytes = stage_masters_room(stage);
    r->size.logits_chunk = stage->program.size.logits_chunk;
    if (r->backward != BACKWARD_NONE)
        TRY(gradients_plan(&stage->gradients, &stage->program,
                           r->reduction.rounds > 0));
    if (r->recomputation.count == 0 ||
        (r->recomputation.count == 1 &&
         strcmp(r->recomputation.policy[0], "auto") == 0))
        return plan_auto(stage);
    return plan_with(stage, r->recomputation.policy, r->recomputation.count);
}

status stage_plan_again(struct stage *stage, const char *const *policy,
                        int count, enum backward_mode backward)
{
    CHECK(backward != BACKWARD_NONE &&
          stage->request.backward != BACKWARD_NONE);
    stage->request.backward = backward;
    return plan_with(stage, policy, count);
}

status stage_plan_alike(struct stage *stage, const struct stage *like,
                        const struct stage_request *request)
{
    struct stage_request *r = &stage->request;

    *stage = *like;
    stage->borrowed = true;
    stage->own_gradients = false;
    r->model = request->model;
    r->slice = request->slice;
    r->size.frames = request->size.frames > 0 ? request->size.frames : 1;
    r->size.shares_room = request->size.shares_room;
    r->recomputation = request->recomputation;
    r->training.choice = request->training.choice;
    r->layout.place = stage->program.layout.place = stage->holding.place =
        request->layout.place;
    name_policy(stage, r->recomputation.policy, r->recomputation.count);
    frame_plan_count(&stage->frame, (struct frame_count){
        r->size.frames, r->size.shares_room});
    return add_memory(stage);
}

bool stage_outlives_batch(const struct stage *like,
                          const struct stage_request *request)
{
    const struct stage_request *r = request;

    return r->size.batch % r->size.micro_batch == 0 &&
           r->backward != BACKWARD_NONE &&
           mesh_ranks(&like->program.layout.mesh) > 1 && /* rows have names
                                  * where one rank has all (nn/program.c) */
           logits_chunk(r) == like->program.size.logits_chunk;
}

status stage_plan_batch(struct stage *stage, const struct stage *like,
                        int64_t batch)
{
    *stage = *like;
    stage->borrowed = stage->own_gradients = true;
    stage->request.size.batch = stage->program.size.batch = batch;
    TRY(gradients_plan(&stage->gradients, &stage->program,
                       stage->request.reduction.rounds > 0));
    return add_memory(stage);
}

void stage_reserve(struct stage *stage, enum memory_owner owner, size_t bytes)
{
    struct memory_row *row = &stage->memory[owner];

    stage->bytes = stage->bytes - row->bytes + arena_aligned(bytes);
    row->bytes = arena_aligned(bytes);
}

/* Memory that holds nothing between two calls, and tables of the model. */
static const enum memory_owner shared[] = {
    MEMORY_LAYER_SCRATCH, MEMORY_KERNEL_SCRATCH, MEMORY_ROTARY,
    MEMORY_WHOLE, MEMORY_MASTERS, MEMORY_TOLD_HOST, MEMORY_TOLD,
    MEMORY_PRODUCTS, MEMORY_ATTENTION};
enum { SHARED = sizeof shared / sizeof *shared };

void stage_use_shared(struct stage *stage, const struct stage *first)
{
    for (int i = 0; i < SHARED; i++)
        stage->memory[shared[i]].data = first->memory[shared[i]].data;
    if (stage->memory[MEMORY_PASS].bytes == 0)
        stage->memory[MEMORY_PASS].data = first->memory[MEMORY_PASS].data;
}

static void share_row(struct stage *first, struct stage *other,
                      enum memory_owner row)
{
    const size_t bytes = other->memory[row].bytes;

    if (bytes > first->memory[row].bytes) stage_reserve(first, row, bytes);
    stage_reserve(other, row, 0);
}

void stage_share(struct stage *first, struct stage *other, bool passes)
{
    stage_raise_launch(first, other);
    for (int i = 0; i < SHARED; i++) share_row(first, other, shared[i]);
    if (passes) share_row(first, other, MEMORY_PASS);
}

/* ---- opening ---- */

static void *slice(char **at, size_t bytes)
{
    void *start = *at;

    *at += arena_aligned(bytes);
    return start;
}

struct stage_batch stage_batch(const struct stage *stage, int frame)
{
    const struct program *p = &stage->program;
    const size_t bytes = (size_t)p->size.tokens * sizeof(int32_t);
    char *base = stage->memory[MEMORY_BATCH].data;
    char *at = base + (size_t)frame * frame_batch_bytes(p);
    struct stage_batch batch = {0};

    batch.inputs = slice(&at, bytes);
    batch.targets = slice(&at, bytes);
    batch.positions = slice(&at, bytes);
    batch.documents = slice(&at, bytes);
    batch.mtp_inputs = slice(&at, mtp_bytes(p, sizeof(int32_t)));
    batch.mtp_targets = slice(&at, mtp_bytes(p, sizeof(int32_t)));
    if (whole_bytes(p) == 0) return batch;
    batch.whole_documents = slice(&at, whole_bytes(p));
    at = base + (size_t)stage->request.size.frames * frame_batch_bytes(p);
    batch.whole_inputs = slice(&at, room_bytes(p));
    batch.whole_targets = slice(&at, room_bytes(p));
    batch.whole_positions = slice(&at, room_bytes(p));
    return batch;
}

size_t stage_batch_bytes(const struct stage *stage)
{
    return (size_t)stage->request.size.frames *
               frame_batch_bytes(&stage->program) +
           3 * room_bytes(&stage->program);
}

double *stage_norm_sums(const struct stage *stage)
{
    return (double *)(void *)((char *)stage->memory[MEMORY_NORM].data +
                              blocks_bytes(stage));
}

double *stage_norm_room(const struct stage *stage)
{
    const struct memory_row *row = &stage->memory[MEMORY_NORM];

    if (stage->shards.class_count < 2) return NULL;
    return (double *)(void *)((char *)row->data + norm_bytes(stage) -
                              blocks_bytes(stage));
}
