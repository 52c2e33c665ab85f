/* SPDX-License-Identifier: Apache-2.0 */
/* advise.c - tries changes of a layout that does not fit. */
#include "planner/advise.h"

#include <string.h>

#include "planner/memory.h"

enum { CHANGES = 16 };

struct change {
    const char *what;
    bool (*make)(struct layout *layout, const struct shape *shape);
    bool plan_only;
};

static bool less_kept(struct layout *l, const struct shape *shape)
{
    (void)shape;
    if (l->recompute != RECOMPUTE_NONE) return false;
    l->recompute = RECOMPUTE_SELECTIVE;
    l->again_latent = false; /* the list has this word alone */
    return true;
}

static bool nothing_kept(struct layout *l, const struct shape *shape)
{
    (void)shape;
    if (l->recompute == RECOMPUTE_BLOCK) return false;
    l->recompute = RECOMPUTE_BLOCK;
    l->again_latent = false;
    if (habits_of[l->as].block_whole) l->sequence_parallel = false;
    return true;
}

static bool zero_up(struct layout *l, int zero)
{
    if (l->zero >= zero || layout_sharers(l) < 2) return false;
    l->zero = zero;
    l->whole_gradients = zero < 2; /* sets of the configuration are gone */
    l->whole_shards = l->parts[1] = l->parts[2] = false;
    return true;
}
static bool zero1(struct layout *l, const struct shape *shape)
{
    (void)shape;
    return zero_up(l, 1);
}
static bool zero2(struct layout *l, const struct shape *shape)
{
    (void)shape;
    return zero_up(l, 2);
}
static bool fsdp(struct layout *l, const struct shape *shape)
{
    (void)shape;
    return zero_up(l, 3);
}

static bool half_micro_batch(struct layout *l, const struct shape *shape)
{
    (void)shape;
    if (l->micro_batch % 2 != 0) return false;
    l->micro_batch /= 2;
    l->microbatches *= 2;
    return true;
}

/* Twice as much of one axis in place of data ranks. */
static bool from_data(struct layout *l, int *axis)
{
    if (l->data % 2 != 0) return false;
    l->data /= 2;
    *axis *= 2;
    l->microbatches *= 2;
    return true;
}

static bool more_tensor(struct layout *l, const struct shape *shape)
{
    if (shape->heads % (2 * l->tensor) != 0) return false;
    if (!from_data(l, &l->tensor)) return false;
    if (l->grid_tensor % l->tensor != 0) l->grid_tensor = l->tensor;
    l->sequence_parallel = layout_divides_tokens(l);
    return true;
}

static bool more_pipe(struct layout *l, const struct shape *shape)
{
    if (2 * l->pipe * l->chunks > shape->layers) return false;
    l->blocks = NULL;
    return from_data(l, &l->pipe);
}

static bool put_away(struct layout *l, unsigned what)
{
    if (l->offload & what) return false;
    l->offload |= what;
    return true;
}

static bool states_away(struct layout *l, const struct shape *shape)
{
    (void)shape;
    return put_away(l, OFFLOAD_STATES);
}

static bool states_on_disk(struct layout *l, const struct shape *shape)
{
    if (!states_away(l, shape)) return false;
    l->offload |= OFFLOAD_DISK;
    return true;
}

static bool weights_away(struct layout *l, const struct shape *shape)
{
    (void)shape;
    return put_away(l, OFFLOAD_WEIGHTS);
}

static bool activations_away(struct layout *l, const struct shape *shape)
{
    (void)shape;
    return put_away(l, OFFLOAD_ACTIVATIONS);
}

/* The exact plan says where the optimizer has no such masters. */
static bool masters_split(struct layout *l, const struct shape *shape)
{
    (void)shape;
    if (l->as != AS_LOCKSTEP || l->bits == 32 || l->stored.split_masters)
        return false;
    l->stored.split_masters = true;
    return true;
}

static const struct change changes[] = {
    {"zero=zero1", zero1, false}, {"zero=zero2", zero2, false},
    {"zero=fsdp", fsdp, false},
    {"optimizer.masters=split", masters_split, false},
    {"train.recompute=[attention]", less_kept, false},
    {"train.recompute=[block]", nothing_kept, false},
    {"half of train.micro_batch", half_micro_batch, false},
    {"twice mesh.tensor, half of mesh.data", more_tensor, false},
    {"twice mesh.pipe, half of mesh.data", more_pipe, false},
    {"optimizer states in host memory (plan only)", states_away, true},
    {"activations in host memory (plan only)", activations_away, true},
    {"weights in host memory (plan only)", weights_away, true},
    {"optimizer states on disk (plan only)", states_on_disk, true},
};
enum { CHANGE_COUNT = (int)(sizeof changes / sizeof *changes) };

static void keep(struct advice *out, const struct advised *found)
{
    int at = out->count < ADVICES_TRIED ? out->count++ : ADVICES_TRIED;

    for (; at > 0 && out->items[at - 1].step_s > found->step_s; at--)
        if (at < ADVICES_TRIED) out->items[at] = out->items[at - 1];
    if (at < ADVICES_TRIED) out->items[at] = *found;
}

static status try_one(struct advice *out, const struct cost *cost,
                      const struct layout *layout, struct advised *found,
                      double limit)
{
    struct layout l = *layout;
    const struct cost changed = {cost->machine, cost->shape, &l};
    const struct weather weather = {.max_memory = limit};
    struct prediction prediction;
    int at;

    if (l.as == AS_LOCKSTEP && frames_of(&l.frames, &l, cost->shape) != OK) {
        status_clear();
        return OK;
    }
    found->memory_bytes = memory_largest(&l, cost->shape, &at);
    if (found->memory_bytes > limit) return OK;
    TRY(predict(&prediction, &changed, &weather));
    if (!prediction.fits) return OK; /* the host is too small for the rest */
    found->step_s = prediction.step_s;
    found->layout = l;
    keep(out, found);
    return OK;
}

struct trial {
    struct advice *out;
    const struct cost *cost;
    const struct advice *known;
    double limit;
};

/* Whether a part of it is known to be enough. */
static bool is_more_than_enough(const struct trial *t, unsigned changed)
{
    for (int i = 0; i < t->known->count; i++)
        if ((changed & t->known->items[i].changes) ==
            t->known->items[i].changes)
            return true;
    return false;
}

/* All sets of `more` changes, from number `first` on, beside those made. */
static status advise_more(const struct trial *t, const struct advised *made,
                          int first, int more)
{
    struct advised found = *made;

    if (is_more_than_enough(t, made->changes)) return OK;
    if (more == 0)
        return try_one(t->out, t->cost, &made->layout, &found, t->limit);
    for (int i = first; i < CHANGE_COUNT; i++) {
        struct advised next = *made;

        if (!changes[i].make(&next.layout, t->cost->shape)) continue;
        const size_t used = strlen(made->what);

        snprintf(next.what + used, sizeof next.what - used, "%s%s",
                 used == 0 ? "" : " and ", changes[i].what);
        next.changes |= 1u << i;
        next.plan_only |= changes[i].plan_only;
        TRY(advise_more(t, &next, i + 1, more - 1));
    }
    return OK;
}

status advise(struct advice *out, const struct cost *cost,
              const struct advice *known, double limit, int at_once)
{
    const struct advised nothing = {.layout = *cost->layout};
    const struct trial trial = {out, cost, known, limit};

    *out = (struct advice){.count = 0};
    return advise_more(&trial, &nothing, 0, at_once);
}
