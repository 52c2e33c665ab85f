/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c - the work of one pipeline rank: its stages of the model, and the
 * schedule that all ranks follow. */
#include "plan/pipeline.h"

#include <stdio.h>

#include "nn/tallies.h"
#include "plan/phases.h"
#include "schedule/lower.h"
#include "schedule/room.h"

enum { RETURNS_LEAST = 2 }; /* one under way, one being made */

static bool borrows(const struct pipeline_request *r)
{
    return r->known != NULL && r->schedule != NULL && r->schedule->lowered;
}

static status copy_schedule(struct schedule *out,
                            const struct pipeline_request *r)
{
    const struct stage_request *stage = &r->stage;

    if (r->schedule == NULL)
        TRY(schedule_build(out, "1f1b", 1,
                           (int)(stage->size.batch / stage->size.micro_batch)));
    else if (borrows(r))
        *out = *r->schedule;
    else
        TRY(schedule_copy(out, r->schedule));
    return out->lowered ? OK : schedule_lower(out);
}

static struct slice stage_slice(const struct pipeline_request *r, int stages,
                                int stage)
{
    struct slice slice = {.begins = stage == 0, .ends = stage == stages - 1};

    CHECK(stages == 1 || r->blocks != NULL);
    if (stages == 1) slice.last = r->stage.model->layers;
    for (int i = 0; stages > 1 && i <= stage; i++) {
        slice.first = slice.last;
        slice.last += r->blocks[i];
    }
    return slice;
}

/* ---- chunks ---- */

static bool on_two_ranks(const struct schedule *s, int stage)
{
    return s->places[1] != NULL && s->turned < s->microbatches &&
           s->places[0][stage] != s->places[1][stage];
}

/* A stage that lives on two ranks halves their leaves, in subtrees. */
static status check_halves(const struct schedule *s,
                           const struct stage_request *r)
{
    if (2 * s->turned == s->microbatches && r->layout.grid.data % 2 == 0)
        return OK;
    if (r->layout.grid.data % 2 != 0)
        FAIL(ERR_CONFIG, "schedule.name: a stage on two ranks gives each half "
                         "of the data leaves, and this share of the batch has "
                         "%d; set mesh.data lower or numerics.grid_data to %d",
             r->layout.grid.data, 2 * r->layout.grid.data);
    FAIL(ERR_CONFIG, "schedule.name: %d of %d micro-batches go the other way; "
                     "a stage on two ranks needs half of them",
         s->microbatches - s->turned, s->microbatches);
}

static int *chunk_cell(const struct pipeline *p, int stage, int direction)
{
    return &p->chunk_of[2 * stage + direction];
}

static status add_chunk(struct pipeline *p, int stage, int direction)
{
    const struct schedule *s = &p->schedule;
    const bool two = on_two_ranks(s, stage);
    struct chunk chunk = {
        .number = stage, .direction = direction, .copies = two ? 2 : 1,
        .copy = two ? direction : 0,
        .first = two && direction ? s->turned : 0,
        .count = !two ? s->microbatches
                      : direction ? s->microbatches - s->turned : s->turned};

    snprintf(chunk.label, sizeof chunk.label, "stage %d", stage);
    *chunk_cell(p, stage, direction) = p->count;
    if (!two) *chunk_cell(p, stage, 1) = p->count;
    p->chunks[p->count++] = chunk;
    return OK;
}

static status find_chunks(struct pipeline *p)
{
    const struct schedule *s = &p->schedule;
    const size_t most = 2 * (size_t)s->stages;
    void *memory = NULL;

    TRY(memory_take(most, sizeof *p->chunks, &memory));
    p->chunks = memory;
    TRY(memory_take(most, sizeof *p->chunk_of, &memory));
    p->chunk_of = memory;
    for (size_t i = 0; i < most; i++) p->chunk_of[i] = -1;
    for (int d = 0; d < 2; d++)
        for (int stage = 0; stage < s->stages; stage++)
            if ((d == 0 || on_two_ranks(s, stage)) &&
                s->places[d][stage] == p->rank)
                TRY(add_chunk(p, stage, d));
    TRY(memory_take((size_t)p->count, sizeof *p->stages, &memory));
    p->stages = memory;
    return OK;
}

/* Whether another rank waits for the gradient of the chunk's input. */
static bool chunk_returns(const struct pipeline *p, const struct chunk *c)
{
    const struct schedule *s = &p->schedule;

    return c->number > 0 &&
           (schedule_rank(s, c->number - 1, c->first) != p->rank ||
            schedule_rank(s, c->number - 1, c->first + c->count - 1) !=
                p->rank);
}

static size_t return_bytes(const struct stage *stage)
{
    const struct program *p = &stage->program;
    const size_t bytes = (size_t)(program_slot_rows(p, p->slice.entry) *
                                  p->slots[p->slice.entry].width) *
                         (size_t)dtype_bytes(
                             p->slots[p->slice.entry].gradient_dtype);

    return arena_aligned(bytes);
}

static status plan_chunk(struct pipeline *p, const struct pipeline_request *r,
                         int index, int returns)
{
    const struct schedule *s = &p->schedule;
    struct chunk *c = &p->chunks[index];
    struct stage_request request = r->stage;

    if (c->copies > 1) {
        TRY(check_halves(s, &r->stage));
        request.size.batch /= 2;
        request.layout.grid.data /= 2;
    }
    request.slice = stage_slice(r, s->stages, c->number);
    request.size.frames = schedule_held_stage(s, c->number, c->direction);
    request.size.shares_room = p->takes_turns && p->count > 1;
    request.recomputation.share = p->count;
    request.backward = schedule_fused(s, p->rank) ? BACKWARD_FUSED
                                                  : BACKWARD_SPLIT;
    TRY(known_stages_plan(r->known, &p->stages[index], &request));
    p->stages[index].gradients.halved = c->copies > 1;
    if (!chunk_returns(p, c)) return OK;
    c->returns = returns < RETURNS_LEAST ? RETURNS_LEAST : returns;
    stage_reserve(&p->stages[index], MEMORY_RETURNS,
                  (size_t)c->returns * return_bytes(&p->stages[index]));
    return OK;
}

/* ---- a shared matrix ---- */

/* Where the two directions mirror each other, the copy of the one stage is
 * beside that of the other for the other direction: nothing is sent. */
static bool mirrored(const struct schedule *s)
{
    const int last = s->stages - 1;

    return on_two_ranks(s, 0) && s->places[0][0] == s->places[1][last] &&
           s->places[1][0] == s->places[0][last];
}

static const struct param *shared_param(const struct stage *stage)
{
    const struct param_table *table = &stage->program.params;

    for (int i = 0; i < table->count; i++)
        if (table->items[i].shared) return &table->items[i];
    return NULL;
}

/* Both sides cut it alike: it is a unit of its own. */
static void find_own(const struct stage *stage, struct pipeline_share *share)
{
    const struct param_table *table = &stage->program.params;
    const int index = (int)(share->param - table->items);
    const struct shards *shards = &stage->shards;
    struct shard_range range;

    CHECK(shards->units[shard_unit_of(shards, index)].params == 1);
    shard_own(shards, table, index, &range);
    share->elements = range.last - range.first;
    share->first = stage_divides(stage, MEMORY_GRADIENTS)
                       ? range.gradient_at
                       : share->param->gradient + range.first;
}

struct pipeline_share pipeline_share(const struct pipeline *pipeline,
                                     int chunk)
{
    const struct schedule *s = &pipeline->schedule;
    const struct chunk *c = &pipeline->chunks[chunk];
    const int other = c->number == 0 ? s->stages - 1 : 0;
    const int direction = mirrored(s) ? 1 - c->copy : c->copy;
    struct pipeline_share share = {
        .param = shared_param(&pipeline->stages[chunk]), .chunk = -1};

    if (share.param != NULL && !param_has_gradient(share.param))
        share.param = NULL;
    if (share.param == NULL) return share;
    find_own(&pipeline->stages[chunk], &share);
    share.peer = s->places[direction][other];
    for (int i = 0; i < pipeline->count; i++)
        if (share.peer == pipeline->rank &&
            pipeline->chunks[i].number == other &&
            pipeline->chunks[i].copy == direction)
            share.chunk = i;
    return share;
}

static status check_share(const struct pipeline *pipeline)
{
    const struct schedule *s = &pipeline->schedule;

    for (int i = 0; i < pipeline->count; i++)
        if (shared_param(&pipeline->stages[i]) != NULL &&
            on_two_ranks(s, 0) != on_two_ranks(s, s->stages - 1))
            FAIL(ERR_CONFIG, "schedule.name: the first and the last stage "
                             "share a matrix; both must be on two ranks or "
                             "neither");
    return OK;
}

/* B of a stage beside F of another: their parts alternate. */
static bool takes_turns(const struct pipeline *p)
{
    const struct action_list *list = &p->schedule.lists[p->rank];

    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == ACTION_BACKWARD_INPUT &&
            list->items[i].joined)
            return false;
    return true;
}

static void add_up(struct pipeline *p)
{
    p->bytes = 0;
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        struct memory_row *row = &p->memory[i];

        *row = p->stages[0].memory[i];
        for (int j = 1; j < p->count; j++)
            row->bytes += p->stages[j].memory[i].bytes;
        p->bytes += row->bytes;
    }
}

/* Room for a piece of what the other rank has of a tied table's gradient. */
static void reserve_tied(struct pipeline *pipeline)
{
    struct stage *first = &pipeline->stages[0];
    size_t bytes = 0;

    for (int i = 0; i < pipeline->count; i++) {
        const struct pipeline_share share = pipeline_share(pipeline, i);
        const int64_t elements =
            share.elements < TIED_AT_ONCE ? share.elements : TIED_AT_ONCE;

        if (share.param != NULL && share.chunk < 0)
            bytes = (size_t)(elements *
                             dtype_bytes(program_real(&first->program)));
    }
    if (first->program.mode == PROGRAM_TRAIN)
        stage_reserve(first, MEMORY_TIED, bytes);
}

status pipeline_plan(struct pipeline *pipeline,
                     const struct pipeline_request *request)
{
    struct pipeline_request r = *request;
    int returns;

    *pipeline = (struct pipeline){.rank = r.stage.layout.place.at[AXIS_PIPE]};
    if (r.stage.layout.mesh.size[AXIS_NONE] == 0)
        r.stage.layout.mesh = mesh_alone();
    if (r.order.count == 0) r.order = mesh_order_default;
    pipeline->world_size = mesh_ranks(&r.stage.layout.mesh);
    pipeline->world_rank =
        mesh_rank(&r.stage.layout.mesh, &r.order, &r.stage.layout.place);
    TRY(stage_check(&r.stage));
    pipeline->borrows = borrows(&r);
    TRY(copy_schedule(&pipeline->schedule, &r));
    returns = pipeline->schedule.returns;
    if (returns == 0)
        TRY(schedule_returns(&pipeline->schedule, &returns));
    TRY(find_chunks(pipeline));
    pipeline->takes_turns = takes_turns(pipeline);
    for (int i = 0; i < pipeline->count; i++)
        TRY(plan_chunk(pipeline, &r, i, returns));
    for (int i = 1; i < pipeline->count; i++)
        stage_share(&pipeline->stages[0], &pipeline->stages[i],
                    pipeline->takes_turns);
    TRY(phases_plan(pipeline));
    TRY(check_share(pipeline));
    reserve_tied(pipeline);
    add_up(pipeline);
    return OK;
}

void pipeline_reserve_messages(struct pipeline *pipeline, size_t bytes)
{
    stage_reserve(&pipeline->stages[0], MEMORY_MESSAGES, bytes);
    add_up(pipeline);
}

/* One array of a micro-batch that is read ahead. */
static size_t ahead_bytes(const struct pipeline *pipeline)
{
    const struct program *p = &pipeline->stages[0].program;

    return arena_aligned((size_t)(p->size.sequences * program_sequence(p)) *
                         sizeof(int32_t));
}

int pipeline_microbatches(const struct pipeline *pipeline)
{
    return pipeline->schedule.microbatches *
           stage_repeats(&pipeline->stages[0]);
}

void pipeline_reserve_ahead(struct pipeline *pipeline)
{
    const int rooms = pipeline_microbatches(pipeline) + 1;

    stage_reserve(&pipeline->stages[0], MEMORY_AHEAD,
                  4 * (size_t)rooms * ahead_bytes(pipeline));
    add_up(pipeline);
}

bool pipeline_reads_ahead(const struct pipeline *pipeline)
{
    return pipeline->stages[0].memory[MEMORY_AHEAD].bytes > 0;
}

struct stage_batch pipeline_ahead(const struct pipeline *pipeline,
                                  int microbatch)
{
    const size_t each = ahead_bytes(pipeline);
    char *at = (char *)pipeline->stages[0].memory[MEMORY_AHEAD].data +
               4 * (size_t)microbatch * each;

    return (struct stage_batch){
        .inputs = (int32_t *)(void *)at,
        .targets = (int32_t *)(void *)(at + each),
        .positions = (int32_t *)(void *)(at + 2 * each),
        .documents = (int32_t *)(void *)(at + 3 * each)};
}

static status check_same_stages(const struct pipeline *a,
                                const struct pipeline *b)
{
    bool same = a->count == b->count;

    for (int i = 0; same && i < a->count; i++)
        same = a->chunks[i].number == b->chunks[i].number &&
               a->chunks[i].copies == b->chunks[i].copies;
    if (same) return OK;
    FAIL(ERR_CONFIG, "train.batch_ramp: with %d micro-batches this rank of the "
                     "pipeline has other stages than with %d; another "
                     "schedule.name has not", a->schedule.microbatches,
         b->schedule.microbatches);
}

status pipeline_reserve_as(struct pipeline *pipeline,
                           const struct pipeline *other)
{
    TRY(check_same_stages(pipeline, other));
    stage_raise_launch(&pipeline->stages[0], &other->stages[0]);
    for (int i = 0; i < pipeline->count; i++)
        for (int j = 0; j < MEMORY_OWNERS; j++) {
            const size_t bytes = other->stages[i].memory[j].bytes;

            if (bytes > pipeline->stages[i].memory[j].bytes)
                stage_reserve(&pipeline->stages[i], (enum memory_owner)j,
                              bytes);
        }
    add_up(pipeline);
    return OK;
}

status pipeline_take_over(struct pipeline *pipeline, struct pipeline *next)
{
    TRY(check_same_stages(pipeline, next));
    for (int i = 0; i < pipeline->count; i++)
        TRY(stage_take_over(&next->stages[i], &pipeline->stages[i]));
    add_up(next);
    pipeline_free(pipeline);
    *pipeline = *next;
    *next = (struct pipeline){0};
    return OK;
}

status pipeline_finish(const struct pipeline *pipeline)
{
    return device_finish(&pipeline->stages[0].stream);
}

status pipeline_open(struct pipeline *pipeline)
{
    TRY(stage_open(&pipeline->stages[0]));
    for (int i = 1; i < pipeline->count; i++)
        TRY(stage_open_beside(&pipeline->stages[i], &pipeline->stages[0]));
    return OK;
}

void pipeline_free(struct pipeline *pipeline)
{
    for (int i = pipeline->count - 1; pipeline->stages != NULL && i >= 0; i--)
        stage_free(&pipeline->stages[i]);
    memory_free(pipeline->stages);
    memory_free(pipeline->chunks);
    memory_free(pipeline->chunk_of);
    if (!pipeline->borrows) schedule_free(&pipeline->schedule);
    *pipeline = (struct pipeline){0};
}

int pipeline_chunk(const struct pipeline *pipeline, int stage, int microbatch)
{
    if (stage < 0 || stage >= pipeline->schedule.stages) return -1;
    const int chunk = *chunk_cell(
        pipeline, stage, schedule_direction(&pipeline->schedule, microbatch));

    if (chunk < 0) return -1;
    const struct chunk *c = &pipeline->chunks[chunk];

    return microbatch >= c->first && microbatch < c->first + c->count ? chunk
                                                                      : -1;
}

int pipeline_of_round(const struct pipeline *pipeline, int chunk,
                      int microbatch)
{
    const struct schedule *s = &pipeline->schedule;

    if (pipeline->stages[chunk].request.reduction.piped) return 0;
    return microbatch % s->microbatches - pipeline->chunks[chunk].first;
}

int64_t pipeline_first_sequence(const struct pipeline *pipeline, int rank,
                                int microbatch)
{
    const struct stage *stage = &pipeline->stages[0];
    const int ranks = mesh_batch_ranks(&stage->request.layout.mesh);
    const int count =
        stage->request.reduction.piped ? 1 : pipeline->schedule.microbatches;
    const int64_t share = (int64_t)(microbatch / count) * ranks + rank;

    return (share * count + microbatch % count) * stage->program.size.sequences;
}

void *pipeline_return(const struct pipeline *pipeline, int chunk, int number)
{
    const struct stage *stage = &pipeline->stages[chunk];

    return (char *)stage->memory[MEMORY_RETURNS].data +
           (size_t)number * return_bytes(stage);
}

int64_t pipeline_border_bytes(const struct pipeline *pipeline,
                              struct action action)
{
    const struct stage *stage =
        &pipeline->stages[pipeline_chunk(pipeline, action.stage,
                                         action.microbatch)];
    const struct program *p = &stage->program;
    const bool forward = action.kind == ACTION_SEND_FORWARD;
    const slot border = forward ? p->slice.exit : p->slice.entry;

    return program_slot_rows(p, border) * p->slots[border].width *
           dtype_bytes(forward ? p->slots[border].dtype
                               : p->slots[border].gradient_dtype);
}

/* ---- joined numbers ---- */

int64_t pipeline_norm_values(const struct pipeline *pipeline)
{
    const struct stage *stage = &pipeline->stages[0];
    const struct param_table *params = &stage->program.params;

    return (int64_t)params->orders * shard_leaves(params, &stage->holding);
}

int64_t pipeline_peak_values(const struct pipeline *pipeline)
{
    const struct stage_request *r = &pipeline->stages[0].request;

    return r->qk_clip > 0 || r->training.observe
               ? (int64_t)model_blocks(r->model) * r->model->heads : 0;
}

int64_t pipeline_late_values(const struct pipeline *pipeline)
{
    return operand_peaks_values(&pipeline->stages[0].program);
}

int64_t pipeline_tally_values(const struct pipeline *pipeline)
{
    return 3 * tallies_count(&pipeline->stages[0].program);
}

int64_t pipeline_route_values(const struct pipeline *pipeline)
{
    const struct model *model = pipeline->stages[0].request.model;

    return model->moe.experts == 0 /* and choices that were dropped */
               ? 0 : (int64_t)model_blocks(model) * model->moe.experts + 1;
}

int pipeline_data_leaves(const struct pipeline *pipeline)
{
    const struct stage_request *r = &pipeline->stages[0].request;

    return r->layout.grid.data * stage_rounds(&pipeline->stages[0]) *
           pipeline->chunks[0].copies * mesh_batch_ranks(&r->layout.mesh);
}

int64_t pipeline_loss_values(const struct pipeline *pipeline)
{
    const struct grid *grid = &pipeline->stages[0].request.layout.grid;

    return (int64_t)pipeline_data_leaves(pipeline) * grid->tensor *
               (grid->context > 1 ? grid->context : 1) + 2;
}

int64_t pipeline_later_values(const struct pipeline *pipeline)
{
    return pipeline->stages[0].program.later.depth *
           pipeline_loss_values(pipeline);
}
