/* SPDX-License-Identifier: Apache-2.0 */
/* stage_open.c - the memory of a stage, taken from the host and its device, and
 * what uses it. */
#include "plan/stage.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/first_touch.h"
#include "base/huge_pages.h"
#include "device/graphs.h"
#include "nn/routes.h"
#include "nn/score_peaks.h"
#include "nn/tallies.h"

static void *slice(char **at, size_t bytes)
{
    void *start = *at;

    *at += arena_aligned(bytes);
    return start;
}


/* Made by the host, in memory of its own where that of the device is apart. */
static status fill_rotary(struct stage *stage)
{
    const size_t bytes = run_rope_bytes(&stage->program);
    void *tables = stage->memory[MEMORY_ROTARY].data, *room = NULL;
    status result;

    if (stage->device == NULL || bytes == 0) {
        run_rope_fill(&stage->run, tables, tables);
        return OK;
    }
    TRY(memory_take(bytes, 1, &room));
    run_rope_fill(&stage->run, tables, room);
    result = device_write(&stage->stream, tables, room, bytes);
    memory_free(room);
    return result;
}

static status prepare_run(struct stage *stage)
{
    const size_t tokens = (size_t)stage->program.size.tokens;
    struct memory_row *m = stage->memory;
    char *at = (char *)m[MEMORY_BATCH].data + stage_batch_bytes(stage);

    stage->run = (struct run){
        .program = &stage->program, .plan = &stage->frame,
        .kernels = &stage->kernels, .real = &stage->real,
        .stream = &stage->stream, .frame = m[MEMORY_FRAME].data,
        .pass_room = m[MEMORY_PASS].data,
        .params.weights = m[stage_reads(stage)].data,
        .scratch = m[MEMORY_LAYER_SCRATCH].data,
        .cache = m[MEMORY_CACHE].data, .failed_step = -1,
        .poison = check_lives() != CHECK_OFF};
    stage->run.positions = slice(&at, tokens * sizeof(int32_t));
    stage->run.losses = slice(&at, tokens * sizeof(double));
    if (stage->program.regular.z_loss > 0)
        stage->run.z_losses = slice(&at, tokens * sizeof(double));
    stage->run.later.losses =
        slice(&at, mtp_bytes(&stage->program, sizeof(double)));
    if (stage->program.watched.peaks)
        stage->run.counted.peaks =
            slice(&at, score_peaks_bytes(&stage->program));
    if (routes_bytes(&stage->program) > 0)
        stage->run.counted.routes = slice(&at, routes_bytes(&stage->program));
    operand_peaks_place(&stage->run,
                        slice(&at, operand_peaks_bytes(&stage->program)));
    if (tallies_bytes(&stage->program) > 0)
        stage->run.counted.tallies = slice(&at, tallies_bytes(&stage->program));
    run_keys(&stage->run, stage->request.seed);
    run_peers_place(&stage->run,
                    slice(&at, run_peers_bytes(&stage->program)));
    stage->run.segments = (struct sum_segment *)(void *)at;
    stage_place_staging(stage);
    TRY(fill_rotary(stage));
    if (stage->request.backward == BACKWARD_NONE) return OK;
    stage->run.gradients = &stage->gradients;
    stage->gradients.kernels = &stage->kernels;
    stage->gradients.stream = &stage->stream;
    stage->gradients.root = m[MEMORY_GRADIENTS].data;
    stage->gradients.partials = m[MEMORY_PARTIALS].data;
    return OK;
}

static bool is_apart(const struct stage *stage, int owner)
{
    return stage->device != NULL &&
           !memory_is_host((enum memory_owner)owner);
}

/* The first row of the arena. */
static void *host_memory(const struct stage *stage)
{
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (stage->memory[i].bytes > 0 && !is_apart(stage, i))
            return stage->memory[i].data;
    return NULL;
}

/* Memory of their own for rows that may outlive the rank; nothing is touched,
 * as what lives longer may be mapped there. */
static status take_kept(struct stage *stage)
{
    size_t bytes = 0;
    char *at;

    if (!stage->kept.apart) return OK;
    CHECK(stage->device == NULL);
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (stage_is_apart(stage, i)) bytes += stage->memory[i].bytes;
    bytes = huge_pages_round(bytes);
    at = huge_pages_map(bytes, PROT_READ | PROT_WRITE);
    if (at == NULL)
        FAIL(ERR_MEMORY, "weights and states: the system refused %zu bytes: %s",
             bytes, strerror(errno));
    madvise(at, bytes, MADV_HUGEPAGE);
    stage->kept.data = at;
    stage->kept.bytes = bytes;
    stage->kept.sum = (struct range_sum){.base = at};
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        if (!stage_is_apart(stage, i) || stage->memory[i].bytes == 0) continue;
        stage->memory[i].data = at;
        at += stage->memory[i].bytes;
    }
    return OK;
}

/* The arena and its rows; those of a device apart lie there. */
static status take_memory(struct stage *stage)
{
    void *batches = NULL, *apart = NULL;
    size_t host = 0;

    TRY(memory_take((size_t)stage->request.size.frames, sizeof *stage->batches,
                    &batches));
    stage->batches = batches;
    TRY(take_kept(stage));
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (!is_apart(stage, i)) host += stage->memory[i].bytes;
    stage->apart.bytes = stage->bytes - host;
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (stage_is_apart(stage, i)) host -= stage->memory[i].bytes;
    TRY(arena_init_planned(&stage->arena, "plan", host));
    if (stage->device != NULL)
        TRY(device_take(stage->device, stage->apart.bytes, &apart));
    stage->apart.data = apart;
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        struct memory_row *row = &stage->memory[i];

        if (row->bytes == 0 || stage_is_apart(stage, i)) continue;
        if (is_apart(stage, i)) {
            row->data = apart;
            apart = (char *)apart + row->bytes;
        } else {
            TRY(arena_take(&stage->arena, row->bytes, &row->data));
        }
    }
    CHECK(stage->arena.used == host);
    device_pin(stage->device, host_memory(stage), host, true);
    if (stage->memory[MEMORY_TOLD].bytes > 0)
        device_ring(stage->device, stage->memory[MEMORY_TOLD_HOST].data,
                    stage->memory[MEMORY_TOLD].data,
                    stage->memory[MEMORY_TOLD].bytes);
    if (stage->memory[MEMORY_PRODUCTS].bytes > 0)
        device_room(stage->device, stage->memory[MEMORY_PRODUCTS].data,
                    stage->memory[MEMORY_PRODUCTS].bytes);
    if (stage->memory[MEMORY_ATTENTION].bytes > 0)
        device_attention_room(stage->device,
                              stage->memory[MEMORY_ATTENTION].data,
                              stage->memory[MEMORY_ATTENTION].bytes);
    return OK;
}

static status open_device(struct stage *stage)
{
    struct device_choice choice = stage_device(stage, stage->memory);

    TRY(device_environment(&choice.haste));
    TRY(device_open(&stage->device, &choice));
    return stage->request.machine.graphs ? device_gather(stage->device) : OK;
}

/* The tables measure themselves; on a device apart they are run by it. */
static void make_tables(struct stage *stage)
{
    const bool is_gpu = stage->request.machine.device == DEVICE_CUDA;

    stage->host_kernels[0] = stage->kernels;
    stage->host_kernels[1] = stage->real;
    memcpy(stage->whole.kernels, stage->host_kernels,
           sizeof stage->host_kernels);
    if (is_gpu) {
        (void)kernels_cuda(&stage->kernels);
        (void)kernels_cuda(&stage->real);
    }
    kernels_meter(&stage->kernels, &stage->real, stage->inner,
                  &stage->stream);
    if (stage->device == NULL) return;
    kernels_launch(&stage->kernels, &stage->real, stage->behind,
                   &stage->stream);
    if (!is_gpu) memcpy(stage->whole.kernels, stage->behind,
                        sizeof stage->behind);
    if (!stage->beside) device_join(stage->device, &stage->stream);
}

/* A step of training writes nearly all of it. */
static void touch_memory(struct stage *stage)
{
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (!is_apart(stage, i) && !stage_is_apart(stage, i))
            first_touch(stage->threads, stage->memory[i].data,
                        stage->memory[i].bytes);
}

status stage_open(struct stage *stage)
{
    TRY(open_device(stage));
    TRY(take_memory(stage));
    TRY(threads_build(&stage->threads, stage->request.machine.threads));
    if (stage->request.backward != BACKWARD_NONE) touch_memory(stage);
    stage->stream = (struct stream){
        .threads = stage->threads,
        .scratch = stage->memory[MEMORY_KERNEL_SCRATCH].data,
        .scratch_bytes = stage->memory[MEMORY_KERNEL_SCRATCH].bytes,
        .device = stage->device};
    make_tables(stage);
    return prepare_run(stage);
}

status stage_open_beside(struct stage *stage, const struct stage *first)
{
    stage->device = first->device;
    stage->beside = true;
    TRY(take_memory(stage));
    stage_use_shared(stage, first);
    if (stage_gathers_once(first))
        stage->memory[MEMORY_GATHERED].data =
            first->memory[MEMORY_GATHERED].data;
    stage->threads = first->threads;
    stage->stream = first->stream;
    make_tables(stage);
    return prepare_run(stage);
}

status stage_take_over(struct stage *stage, struct stage *open)
{
    void *batches = NULL;

    TRY(memory_take((size_t)stage->request.size.frames, sizeof *stage->batches,
                    &batches));
    stage->batches = batches;
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        CHECK(stage->memory[i].bytes <= open->memory[i].bytes);
        stage_reserve(stage, (enum memory_owner)i, open->memory[i].bytes);
        stage->memory[i].data = open->memory[i].data;
    }
    stage->arena = open->arena;
    stage->kept = open->kept;
    stage->threads = open->threads;
    stage->beside = open->beside;
    stage->device = open->device;
    stage->apart.data = open->apart.data;
    stage->apart.bytes = open->apart.bytes;
    stage->stream = open->stream;
    TRY(device_finish(&open->stream));
    make_tables(stage);
    TRY(prepare_run(stage));
    stage->run.probe = open->run.probe;
    open->arena = (struct arena){0};
    open->kept.data = NULL;
    open->threads = NULL;
    open->device = NULL;
    return OK;
}

void stage_free(struct stage *stage)
{
    if (stage->borrowed) {
        if (stage->own_gradients) gradients_free(&stage->gradients);
        *stage = (struct stage){0};
        return;
    }
    if (stage->device != NULL) {
        device_pin(stage->device, host_memory(stage), stage->arena.used,
                   false);
        device_give(stage->device, stage->apart.data);
    }
    if (!stage->beside) device_close(stage->device);
    if (!stage->beside) threads_free(stage->threads);
    memory_free(stage->batches);
    if (stage->kept.data != NULL) munmap(stage->kept.data, stage->kept.bytes);
    arena_free(&stage->arena);
    gradients_free(&stage->gradients);
    shards_free(&stage->shards);
    shard_starts_free(&stage->starts);
    coded_free(&stage->coded);
    states_free(&stage->states);
    residency_free(&stage->gathered);
    residency_free(&stage->reduced);
    frame_plan_free(&stage->frame);
    program_free(&stage->program);
    *stage = (struct stage){0};
}
