/* SPDX-License-Identifier: Apache-2.0 */
/* arenas.c - how much of the weights and of their gradients a rank has, in
 * which type, and where its masters lie. */
#include "base/check.h"
#include "plan/stage.h"

enum shard_level stage_level(const struct stage *stage,
                             enum memory_owner arena)
{
    const struct division *division = &stage->request.divided.division;

    switch (shards_divide(&stage->shards) ? arena : MEMORY_OWNERS) {
    case MEMORY_COMPUTE: return division_level(division, division->weights);
    case MEMORY_WEIGHTS:
        return division_level(division,
                              stage_reads(stage) == arena ? division->weights
                                                          : division->states);
    case MEMORY_GRADIENTS:
        if (stage->request.reduction.rounds == 0) return SHARD_WHOLE;
        return division_level(division, division->gradients);
    default: return SHARD_WHOLE;
    }
}

bool stage_divides(const struct stage *stage, enum memory_owner arena)
{
    return stage_level(stage, arena) != SHARD_WHOLE;
}

bool stage_gathers_once(const struct stage *stage)
{
    return stage->request.divided.gather.reshard &&
           stage->request.divided.gather.once &&
           stage_divides(stage, stage_reads(stage));
}

int64_t stage_gather_bytes(const struct stage *stage, int unit)
{
    if (stage->coded.params != NULL)
        return coded_own_bytes(&stage->coded, &stage->shards, unit);
    return shard_all_weights(&stage->shards, unit) *
           dtype_bytes(stage->program.dtype);
}

int64_t stage_part_bytes(const struct stage *stage, int unit)
{
    if (coded_keeps(&stage->coded, unit))
        return coded_part_bytes(&stage->coded, &stage->shards, unit);
    return shard_weights(&stage->shards, unit) *
           dtype_bytes(stage->program.dtype);
}

enum memory_owner stage_reads(const struct stage *stage)
{
    return dtype_is_narrow(stage->request.dtype) ? MEMORY_COMPUTE
                                                 : MEMORY_WEIGHTS;
}

enum memory_owner stage_keeps(const struct stage *stage)
{
    return stage->request.training.optimizer ? MEMORY_WEIGHTS
                                             : stage_reads(stage);
}

enum dtype stage_keeps_dtype(const struct stage *stage)
{
    const enum dtype dtype = stage->request.dtype;

    return stage->request.training.optimizer ? dtype_real(dtype) : dtype;
}

/* Elements that this rank has of an arena of weights. */
static int64_t weight_elements(const struct stage *stage,
                               enum memory_owner arena)
{
    const int64_t kept[] = {stage->program.params.elements,
                            stage->shards.shard_elements,
                            stage->shards.elements};

    return kept[stage_level(stage, arena)];
}

/* Split: lower halves, then a bit for each (kernels/masters.h). */
static size_t split_bytes(int64_t elements)
{
    return (size_t)(elements * (int64_t)sizeof(uint16_t) + (elements + 7) / 8);
}

size_t stage_arena_bytes(const struct stage *stage, enum memory_owner arena)
{
    const struct program *p = &stage->program;
    int64_t elements = weight_elements(stage, arena);

    if ((arena == MEMORY_COMPUTE || arena == MEMORY_WEIGHTS) &&
        arena != stage_reads(stage) && arena != stage_keeps(stage))
        return 0;
    if (arena == MEMORY_WEIGHTS && stage_splits(stage))
        return split_bytes(elements);
    if (arena == MEMORY_COMPUTE) elements -= stage->coded.lacks;
    if (arena == MEMORY_GRADIENTS)
        elements = stage_divides(stage, arena)
                       ? stage->levels * stage->level_elements
                       : stage->gradients.roots.count * p->params.gradients;
    return (size_t)(elements *
                    dtype_bytes(arena == MEMORY_COMPUTE     ? p->dtype
                                : arena == MEMORY_GRADIENTS ? program_sum(p)
                                                            : program_real(p)));
}

/* ---- split masters ---- */

bool stage_splits(const struct stage *stage)
{
    return stage->request.training.optimizer &&
           stage->request.training.choice.split;
}

size_t stage_saved_bytes(const struct stage *stage)
{
    const enum memory_owner keeps = stage_keeps(stage);

    if (!stage_splits(stage)) return stage_arena_bytes(stage, keeps);
    return (size_t)weight_elements(stage, keeps) * sizeof(float);
}

size_t stage_masters_room(const struct stage *stage)
{
    enum { MOST = 1 << 18, MOST_APART = 1 << 22 };
    const int64_t bound =
        device_about(stage->request.machine.device)->apart ? MOST_APART : MOST;
    const struct param_table *params = &stage->program.params;
    int64_t most = 0;

    for (int i = 0; stage_splits(stage) && i < params->count; i++) {
        struct shard_range range;

        shard_own(&stage->shards, params, i, &range);
        if (range.last - range.first > most) most = range.last - range.first;
    }
    return (size_t)(most < bound ? most : bound) * sizeof(float);
}

struct master_arenas stage_masters(const struct stage *stage, bool host)
{
    void *const all[2] = {
        host ? stage->host[MEMORY_COMPUTE] : stage->memory[MEMORY_COMPUTE].data,
        host ? stage->host[MEMORY_WEIGHTS]
             : stage->memory[MEMORY_WEIGHTS].data};
    struct master_arenas arenas = {all[0], all[1], NULL};

    if (stage_splits(stage) && all[1] != NULL)
        arenas.ties = (unsigned char *)all[1] +
                      weight_elements(stage, MEMORY_WEIGHTS) *
                          (int64_t)sizeof(uint16_t);
    return arenas;
}

/* The elements of a parameter whose masters this rank has. */
static void held_range(const struct stage *stage, int param,
                       struct shard_range *range)
{
    const struct param_table *params = &stage->program.params;

    switch (stage_level(stage, MEMORY_WEIGHTS)) {
    case SHARD_PART: shard_own(&stage->shards, params, param, range); break;
    case SHARD_SHARD: shard_whole(&stage->shards, params, param, range); break;
    default:
        *range = (struct shard_range){.last = params->items[param].elements};
    }
}

void stage_join_masters(const struct stage *stage, void *out)
{
    const struct param_table *params = &stage->program.params;
    const struct master_arenas arenas = stage_masters(stage, true);
    struct stream stream = {.threads = stage->threads};

    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->items[i];
        struct shard_range range;

        held_range(stage, i, &range);
        const int64_t count = range.last - range.first;
        const int64_t at = shard_place(
            &range, stage_level(stage, MEMORY_WEIGHTS), param);
        struct masters masters = masters_at(
            &arenas,
            shard_place(&range, stage_level(stage, MEMORY_COMPUTE), param), at,
            count);

        masters.values = tensor_1d((float *)out + at, DTYPE_F32, count);
        if (count > 0)
            CHECK(stage->host_kernels[0].masters_join(&stream, &masters) ==
                  OK);
    }
}
