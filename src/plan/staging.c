/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c - rows of memory on a device that is apart from the host, and what
 * the host sees of them; the device, and what its kernels are told. */
#include <stdio.h>
#include "device/attended.h"
#include "kernels/cuda_about.h"
#include "nn/choice.h"
#include "nn/expert_ranks.h"
#include "nn/quantized_operands.h"
#include "nn/sending.h"
#include "plan/stage.h"

/* A row that kernels of CUDA do not fill yet; NULL: none. */
static const char *missing_row(const struct stage *stage)
{
    struct kernels table = stage->kernels, real = stage->real;
    const char *missing = kernels_cuda(&table);

    if (missing == NULL) missing = kernels_cuda(&real);
    return missing;
}

static status check_kernels(const struct stage *stage)
{
    const char *missing = missing_row(stage);

    if (missing == NULL) return OK;
    FAIL(ERR_CONFIG, "device: cuda has no kernel yet for %s in %s "
                     "(docs/devices.md); train.dtype=float32 has, or take "
                     "device=cpu", missing, dtype_name(stage->request.dtype));
}

/* A GPU that works and has all that this stage needs, or the CPU. */
static void choose_device(struct stage *stage)
{
    enum device_kind *device = &stage->request.machine.device;
    char *why = stage->chosen;
    const size_t bytes = sizeof stage->chosen;
    const char *missing;

    *device = DEVICE_CPU;
    if (cuda_about(why, bytes) != CUDA_LOADS) return;
    missing = missing_row(stage);
    if (missing != NULL)
        snprintf(why, bytes, "cuda has no kernel yet for %s in %s", missing,
                 dtype_name(stage->request.dtype));
    else
        *device = DEVICE_CUDA;
}

static status check_attention(const struct stage *stage)
{
    const enum attention_by by = stage->request.machine.attention;
    const char *why = stage_attention(stage).why;

    if ((by != ATTENTION_BY_CUDNN && by != ATTENTION_BY_FLASH) || why == NULL)
        return OK;
    FAIL(ERR_CONFIG, "numerics.attention: %s has no attention for this "
                     "run: %s; set numerics.attention=auto",
         by == ATTENTION_BY_CUDNN ? "cudnn" : "flash", why);
}

status stage_check_apart(struct stage *stage)
{
    if (stage->request.machine.device == DEVICE_AUTO) choose_device(stage);
    if (stage->request.machine.device != DEVICE_CUDA) return OK;
    TRY(check_kernels(stage));
    return check_attention(stage);
}

bool memory_is_host(enum memory_owner owner)
{
    switch (owner) {
    case MEMORY_BATCH: case MEMORY_AHEAD: case MEMORY_NORM:
    case MEMORY_MESSAGES: case MEMORY_BACKGROUND: case MEMORY_SNAPSHOT:
    case MEMORY_STAGING: case MEMORY_OBSERVED: case MEMORY_TOLD_HOST:
        return true;
    default: return false;
    }
}

/* Outside of steps the host reads, and partly writes, these. */
static bool has_copy(const struct stage *stage, int owner)
{
    return stage_saves(stage, (enum memory_owner)owner) ||
           owner == MEMORY_GRADIENTS || owner == (int)stage_reads(stage);
}

static struct router_form form_of(const struct stage *stage)
{
    return (struct router_form){.experts = stage->request.model->moe.experts,
                                .choices = stage->request.model->moe.top_k};
}

static size_t joined_bytes(const struct stage *stage)
{
    const struct program *p = &stage->program;

    return arena_aligned((size_t)(p->size.tokens * experts_sources(p) *
                                  form_of(stage).choices) *
                         sizeof(int32_t));
}

/* Room for those of all sources, then for those of each frame. */
static size_t choice_bytes(const struct stage *stage)
{
    if (form_of(stage).experts == 0) return 0;
    return joined_bytes(stage) +
           (size_t)stage->request.size.frames *
               choice_frame_bytes(&stage->program, form_of(stage).choices);
}

static size_t counts_bytes(const struct stage *stage)
{
    const struct router_form form = form_of(stage);

    return experts_are_spread(&stage->program)
               ? arena_aligned(sending_counts_bytes(&stage->program, &form))
               : 0;
}

/* Where the host computes whole tensors of optimizers; scratch of kernels
 * behind them. */
static size_t whole_bytes(struct stage *stage, const struct memory_row *rows)
{
    const size_t bytes = stage->request.training.optimizer
                             ? arena_aligned(whole_host_bytes(&stage->states))
                             : 0;

    if (bytes == 0) return 0;
    stage->whole.scratch = arena_aligned(rows[MEMORY_KERNEL_SCRATCH].bytes);
    stage->whole.bytes = bytes + stage->whole.scratch;
    return stage->whole.bytes;
}

/* Behind the copies: room for lists that layers make, for whole tensors, for
 * choices of experts that the host reads, and for counts of their rows. */
size_t stage_staging_bytes(struct stage *stage,
                           const struct memory_row *rows)
{
    size_t bytes = 0;

    if (!device_about(stage->request.machine.device)->apart) return 0;
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (has_copy(stage, i)) bytes += arena_aligned(rows[i].bytes);
    return bytes + arena_aligned(rows[MEMORY_LAYER_SCRATCH].bytes) +
           whole_bytes(stage, rows) + choice_bytes(stage) +
           counts_bytes(stage);
}

void stage_place_staging(struct stage *stage)
{
    char *at = stage->memory[MEMORY_STAGING].data;

    for (int i = 0; i < MEMORY_OWNERS; i++) {
        const struct memory_row *row = &stage->memory[i];

        stage->host[i] = row->data;
        if (stage->device == NULL || memory_is_host((enum memory_owner)i))
            continue;
        stage->host[i] = has_copy(stage, i) && row->bytes > 0 ? at : NULL;
        if (stage->host[i] != NULL) at += row->bytes;
    }
    stage->run.lists = stage->device == NULL ? stage->run.scratch : at;
    if (stage->device == NULL) return;
    at = (char *)stage->memory[MEMORY_STAGING].data; /* from its end: what it
                                                      * begins with may vary */
    at += stage->memory[MEMORY_STAGING].bytes;
    stage->run.counts = at -= counts_bytes(stage);
    at -= choice_bytes(stage);
    stage->run.choices.joined = (int32_t *)(void *)at;
    stage->run.choices.frames = at + joined_bytes(stage);
    stage->run.choices.count = form_of(stage).choices;
    if (stage->whole.bytes > 0) stage->whole.data = at - stage->whole.bytes;
}

/* A row that has a copy on the host, in one direction. */
static status row_copy(const struct stage *stage, int owner, bool to_host)
{
    const struct memory_row *row = &stage->memory[owner];
    struct stream stream = stage->stream;
    void *host = stage->host[owner];

    if (host == row->data || host == NULL) return OK;
    return to_host ? device_read(&stream, host, row->data, row->bytes)
                   : device_write(&stream, row->data, host, row->bytes);
}

static status stages_copy(const struct stage *stages, int count, bool to_host)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < MEMORY_OWNERS && stages[i].device != NULL; j++)
            TRY(row_copy(&stages[i], j, to_host));
    return OK;
}

status stage_store_row(const struct stage *stage, enum memory_owner owner)
{
    return row_copy(stage, (int)owner, false);
}

struct whole_host stage_whole_host(const struct stage *stage)
{
    const size_t scratch = stage->whole.scratch;
    struct whole_host host = {.room = stage->whole.data,
                              .stream = stage->stream,
                              .kernels = stage->whole.kernels};

    if (host.room == NULL) return (struct whole_host){0};
    host.stream.scratch =
        (char *)host.room + stage->whole.bytes - scratch;
    host.stream.scratch_bytes = scratch;
    host.stream.device = NULL;
    return host;
}

status stages_fetch(const struct stage *stages, int count)
{
    return stages_copy(stages, count, true);
}

status stages_store(const struct stage *stages, int count)
{
    return stages_copy(stages, count, false);
}

/* ---- what kernels are told ---- */

/* Lists that go with operands in few bits, of rows or of a matrix: places of
 * rows, and spans. */
static size_t few_bytes(const struct program *p, size_t entries)
{
    size_t rows = entries + (size_t)p->size.tokens;

    if (!p->precision.on) return 0;
    for (int i = 0; i < p->params.count; i++)
        if ((size_t)p->params.items[i].rows > rows)
            rows = (size_t)p->params.items[i].rows;
    return rows * (sizeof(struct dropout_row) + sizeof(struct quantize_span)) +
           (size_t)quantized_spans(p) * 2 * sizeof(struct quantize_span);
}

/* Room for what the largest launch tells: lists of a micro-batch, the order of
 * a sum. */
static size_t launch_bytes(const struct stage *stage)
{
    enum { CALL = 16384, LISTS = 4 };
    const struct program *p = &stage->program;

    const size_t experts = (size_t)stage->request.model->moe.experts;
    const struct router_form form = {
        .experts = (int)experts, .choices = stage->request.model->moe.top_k};
    const size_t entries = /* that a rank sends, or gets */
        (size_t)(p->size.tokens * (form.choices * experts_cut(p) +
                              experts_rows_bound(p, &form)));

    return CALL + (size_t)p->size.tokens * LISTS * sizeof(uint64_t) +
           (size_t)run_segments(p) * sizeof(struct sum_segment) +
           LISTS * entries * sizeof(int32_t) + few_bytes(p, entries) +
           ((size_t)p->size.sequences + 1) * experts * sizeof(double);
}

/* Host memory that the kernels of one launch write: losses, sums of squares. */
static size_t lent_bytes(const struct stage *stage,
                         const struct memory_row *rows)
{
    enum { LISTS = 4 };
    size_t elements = 0;

    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (!memory_is_host((enum memory_owner)i) &&
            rows[i].bytes / sizeof(float) > elements)
            elements = rows[i].bytes / sizeof(float);
    return (size_t)stage->program.size.tokens * LISTS * sizeof(double) +
           (elements / SQUARES_BLOCK + 1) * sizeof(double);
}

/* ---- a library that makes products ---- */

static int64_t widest(const struct program *p)
{
    int64_t most = p->size.vocab;

    for (int i = 0; i < p->params.count; i++) {
        const struct param_spec *spec = &p->params.items[i].spec;

        if (spec->rows > most) most = spec->rows;
        if (spec->cols > most) most = spec->cols;
    }
    for (int i = 0; i < p->slot_count; i++)
        if (p->slots[i].width > most) most = p->slots[i].width;
    return most;
}

/* Whether tensor ranks, who have some leaves each, have rows that begin at
 * multiples of 16 bytes where one rank's do. */
static bool is_aligned(const struct stage *stage)
{
    enum { ELEMENTS = 8 };
    const struct model *m = stage->request.model;
    const int leaves = stage->request.layout.grid.tensor;
    const int64_t vocab_leaf = (m->vocab + leaves - 1) / leaves;

    return leaves == 1 ||
           (m->head_width % ELEMENTS == 0 && m->vocab % ELEMENTS == 0 &&
            vocab_leaf % ELEMENTS == 0 &&
            m->feed_forward % (leaves * ELEMENTS) == 0 &&
            (m->mla.nope | m->mla.rope | m->mla.value) % ELEMENTS == 0);
}

static enum gpu_number number_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16  ? GPU_BFLOAT16
           : dtype == DTYPE_F16 ? GPU_FLOAT16 : GPU_FLOAT32;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- attention on tensor cores ---- */

/* Why cuDNN has no calls of the step; NULL: it does. */
static const char *library_lacks(const struct step *step)
{
    if (step->set.attention.chunk > 0) return "attention chunks";
    if (step->set.attention.softcap > 0) return "soft caps of scores";
    if (step->set.attention.alibi > 0) return "ALiBi";
    if (step->set.attention.head_width % ATTENDED_WIDTH_STEP != 0)
        return "heads whose width is no multiple of 8";
    return step->set.attention.head_width > ATTENDED_WIDTH_MOST
               ? "heads wider than 256" : NULL;
}

/* Our own kernels, likewise. */
static const char *flash_lacks(const struct step *step)
{
    return step->set.attention.head_width % ATTENDED_WIDTH_STEP != 0
               ? "heads whose width is no multiple of 8" : NULL;
}

/* In a ring, our own kernels make a node of each rank's keys, not one of each
 * context leaf: what the ring merges shows the number of ranks. `auto` takes
 * neither them nor a library for sequences of several context leaves, in any
 * layout, also where there is no ring. */
static const char *context_lacks(const struct stage *stage)
{
    const struct program *p = &stage->program;

    if (p->layout.grid.context <= 1 && p->layout.mesh.size[AXIS_CONTEXT] <= 1)
        return NULL;
    if (stage->request.machine.attention != ATTENTION_BY_FLASH)
        return "numerics.grid_context is more than 1";
    return p->layout.method.ring && !p->layout.method.loose
               ? "keys go round in a ring, whose ranks show in the bits "
                 "(context.kind=allgather has none, numerics.mode=fast allows "
                 "it)"
               : NULL;
}

/* Why nobody computes any in this run, on any rank. */
static const char *run_lacks(const struct stage *stage)
{
    const struct program *p = &stage->program;

    if (stage->request.machine.attention == ATTENTION_BY_OWN)
        return "numerics.attention is own";
    if (p->dtype != DTYPE_BF16) return "train.dtype is not bfloat16";
    if (p->regular.attention_dropout > 0) return "dropout of weights";
    if (p->mode == PROGRAM_GENERATE) return "keys come from a cache";
    return context_lacks(stage);
}

static size_t library_room(const struct program *p, const struct step *step)
{
    const int heads = step->set.attention.heads;
    const int group = heads / step->set.attention.kv_heads;
    const int some = attended_heads(
        p->size.length, heads / (int)program_leaves(p).count, group);
    const struct attended_form form = {
        .length = p->size.length, .heads = some,
        .kv_heads = some > group ? some / group : 1,
        .width = step->set.attention.head_width,
        .backward = p->mode == PROGRAM_TRAIN};

    return attended_room(&form) + ATTENDED_ALIGNED;
}

static size_t flash_room(const struct program *p, const struct step *step)
{
    const int heads = step->set.attention.heads;
    const int numbers = p->layout.mesh.size[AXIS_CONTEXT] > 1 ? 0 : heads;
    const int shares = flash_shares(heads, step->set.attention.kv_heads,
                                    (int)program_leaves(p).count);

    if (p->mode != PROGRAM_TRAIN) return 0;
    return flash_bytes(p->size.tokens, numbers, shares,
                       step->set.attention.head_width) + ATTENDED_ALIGNED;
}

/* The largest rooms of calls. */
struct attention_rooms { size_t library, flash; };

static struct stage_attention find_attention(const struct stage *stage,
                                             struct attention_rooms *rooms)
{
    const struct program *p = &stage->program;
    const enum attention_by by = stage->request.machine.attention;
    struct stage_attention out = {.why = run_lacks(stage)};

    *rooms = (struct attention_rooms){0, 0};
    for (int i = 0; out.why == NULL && i < p->step_count; i++) {
        const struct step *step = &p->steps[i];

        if (!nn_is_attention(step)) continue;
        if (by != ATTENTION_BY_FLASH && library_lacks(step) == NULL) {
            out.library = true;
            rooms->library = larger(rooms->library, library_room(p, step));
        }
        if (flash_lacks(step) == NULL) {
            out.flash = true;
            rooms->flash = larger(rooms->flash, flash_room(p, step));
        }
    }
    return out;
}

/* The last one of the layers' reasons; NULL: there is none, as in a stage
 * without blocks. */
static const char *layers_lack(const struct stage *stage)
{
    const struct program *p = &stage->program;
    const char *why = NULL;

    for (int i = 0; i < p->step_count; i++)
        if (nn_is_attention(&p->steps[i]))
            why = stage->request.machine.attention == ATTENTION_BY_CUDNN
                      ? library_lacks(&p->steps[i])
                      : flash_lacks(&p->steps[i]);
    return why;
}

struct stage_attention stage_attention(const struct stage *stage)
{
    struct attention_rooms rooms;
    struct stage_attention out = find_attention(stage, &rooms);
    const bool needs =
        stage->request.machine.attention == ATTENTION_BY_CUDNN;

    if (out.why == NULL && (needs ? !out.library
                                  : !out.library && !out.flash))
        out.why = layers_lack(stage);
    return out;
}

void stage_raise_launch(struct stage *stage, const struct stage *other)
{
    stage->launch_bytes =
        larger(stage->launch_bytes,
               larger(other->launch_bytes, launch_bytes(other)));
}

struct device_choice stage_device(const struct stage *stage,
                                  const struct memory_row *rows)
{
    struct attention_rooms rooms = {0, 0};
    const enum attention_by by = stage->request.machine.attention;
    const bool may = stage_products_fast(stage) && run_lacks(stage) == NULL;

    if (may) find_attention(stage, &rooms);
    return (struct device_choice){.kind = stage->request.machine.device,
                                  .threads = stage->request.machine.threads,
                                  .launch_bytes = larger(stage->launch_bytes,
                                                         launch_bytes(stage)),
                                  .lent_bytes = lent_bytes(stage, rows),
                                  .local_rank =
                                      stage->request.machine.local_rank,
                                  .kernels = &cuda_kernels,
                                  .products = {
                                      .sums = stage->request.machine.fast
                                                  ? products_sums(LEAVES_MAX)
                                                  : 0,
                                      .widest = widest(&stage->program),
                                      .number =
                                          number_of(stage->request.dtype),
                                      .aligned = is_aligned(stage)},
                                  .attention = {
                                      /* As the run has it, not the stage:
                                       * others of this rank, or other ranks,
                                       * have other layers. */
                                      .is_on = may && by != ATTENTION_BY_FLASH,
                                      .flash = may,
                                      .bytes = larger(rooms.library,
                                                      rooms.flash),
                                      .length = stage->program.size.length,
                                      .needed = by == ATTENTION_BY_CUDNN}};
}
