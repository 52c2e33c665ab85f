/* SPDX-License-Identifier: Apache-2.0 */
/* largest_rank.c - the rank of a layout that needs the most memory. */
#include "train/largest_rank.h"

#include <string.h>

#include "optimizer/whole_tensors.h"
#include "train/draft.h"

/* Ranks that share the batch are compared by their shards of weights, by those
 * of gradients, and by about all bytes that depend on a rank's place. */
enum measure { WEIGHTS, GRADIENTS, BYTES, MEASURES };

/* The number of elements in the shards of one of the ranks: in its part of
 * them, where it has no more of what is asked for. */
static double shard_elements(const struct stage *stage, const struct mesh *mesh,
                             const struct place *place, enum measure measure)
{
    const struct shards *s = &stage->shards;
    const bool whole_shards =
        stage_level(stage, measure == WEIGHTS ? stage_reads(stage)
                                              : MEMORY_GRADIENTS) ==
        SHARD_SHARD;
    int64_t elements = 0;

    for (int u = 0; u < s->count; u++) {
        const struct shard_class *class = shard_class(s, u);
        const int64_t *sizes = measure == WEIGHTS ? shard_sizes(s, u)
                                                  : shard_gradient_sizes(s, u);
        const int rank = shard_rank_at(class, mesh, place);
        const int parts = whole_shards ? class->parts : 1;

        for (int i = 0; i < parts; i++)
            elements += param_room(sizes[rank - rank % parts + i]);
    }
    return (double)elements;
}

/* A state of a parameter's elements; blocks of int8 are about as many. */
static double state_bytes(const struct stage *stage,
                          const struct optimizer_state *state, int64_t elements)
{
    const enum state_type type =
        state->narrow ? stage->request.training.choice.states : STATE_REAL;
    const size_t many = (size_t)elements;

    if (type == STATE_BFLOAT16) return (double)arena_aligned(2 * many);
    if (type != STATE_INT8) return (double)arena_aligned(sizeof(float) * many);
    return (double)(arena_aligned(many) +
                    arena_aligned(sizeof(float) *
                                  ((many + SHARD_BLOCK - 1) / SHARD_BLOCK)));
}

/* States of elements, which are rounded up parameter by parameter. */
static double element_bytes(const struct stage *stage, const struct mesh *mesh,
                            const struct place *place)
{
    const struct shards *s = &stage->shards;
    const struct param_table *table = &stage->program.params;
    double bytes = 0;

    for (int i = 0; i < table->count; i++) {
        const struct shard_class *class =
            shard_class(s, shard_unit_of(s, i));
        struct shard_range range;

        shard_range(s, table, i, shard_rank_at(class, mesh, place), &range);
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            const struct optimizer_state *state =
                rule_state(&stage->states.rules[i], k);

            if (state != NULL && state->shape == STATE_ELEMENTS)
                bytes += state_bytes(stage, state, range.last - range.first);
        }
    }
    return bytes;
}

/* States of whole tensors, of which each has an owner, and the room in which it
 * works on the largest of them. */
static double owned_bytes(const struct stage *stage, const struct mesh *mesh,
                           const struct place *place)
{
    const struct matrices *m = &stage->states.matrices;
    double elements = 0;
    int64_t room = 0;

    for (int i = 0; i < m->count; i++) {
        struct place owner = {{0}};

        stage_rank_place(&m->mesh, 0, m->items[i].owner, &owner);
        if (mesh_batch_rank(mesh, &owner) != mesh_batch_rank(mesh, place) ||
            owner.at[AXIS_TENSOR] != place->at[AXIS_TENSOR])
            continue;
        const int64_t own = whole_room(&stage->states, &m->items[i]);

        if (own > room) room = own;
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            const struct optimizer_state *state =
                rule_state(&stage->states.rules[m->items[i].param], k);

            if (state != NULL && state->shape == STATE_WHOLE)
                elements += (double)state->elements(m->items[i].rows,
                                                    m->items[i].cols);
        }
    }
    return (elements + (double)room) * sizeof(float);
}

static double place_bytes(const struct stage *stage, const struct mesh *mesh,
                          const struct place *place)
{
    const struct program *p = &stage->program;
    double bytes = 0;

    if (stage_divides(stage, stage_reads(stage)))
        bytes += (double)dtype_bytes(p->dtype) *
                 shard_elements(stage, mesh, place, WEIGHTS);
    if (stage_divides(stage, MEMORY_GRADIENTS)) /* else they are whole */
        bytes += (double)(stage->levels * dtype_bytes(program_sum(p))) *
                 shard_elements(stage, mesh, place, GRADIENTS);
    if (stage->states.rules == NULL) return bytes;
    return bytes + element_bytes(stage, mesh, place) +
           owned_bytes(stage, mesh, place);
}

static double measured(const struct pipeline *pipeline, const struct mesh *mesh,
                       const struct place *place, enum measure measure)
{
    double sum = 0;

    for (int i = 0; i < pipeline->count; i++) {
        const struct stage *stage = &pipeline->stages[i];

        sum += measure == BYTES ? place_bytes(stage, mesh, place)
                                : shard_elements(stage, mesh, place, measure);
    }
    return sum;
}

static void place_batch(const struct mesh *mesh, int index,
                        struct place *place)
{
    for (int i = BATCH_AXES - 1; i >= 0; i--) {
        place->at[batch_axes[i]] = index % mesh->size[batch_axes[i]];
        index /= mesh->size[batch_axes[i]];
    }
}

/* Moves the place to the rank with the most. */
static void find_most(const struct pipeline *pipeline, const struct mesh *mesh,
                      enum measure measure, struct place *place)
{
    double most = -1;
    int best = 0;

    for (int i = 0; i < mesh_batch_ranks(mesh); i++) {
        place_batch(mesh, i, place);
        const double here = measured(pipeline, mesh, place, measure);

        if (here > most) best = i;
        if (here > most) most = here;
    }
    place_batch(mesh, best, place);
}

/* Whether all bytes of so many ranks are soon counted. */
static bool counts_bytes(const struct pipeline *pipeline,
                         const struct mesh *mesh)
{
    enum { SOON = 1 << 18 }; /* parameters and tensors of ranks: 5 ms */
    int64_t each = 0;

    for (int i = 0; i < pipeline->count; i++)
        each += pipeline->stages[i].program.params.count +
                pipeline->stages[i].states.matrices.count;
    return each * mesh_batch_ranks(mesh) <= SOON;
}

/* Whether gradients and states of a rank grow with its weights: nothing is
 * frozen, states are not of whole tensors or in blocks, no weight is a code. */
static bool weights_tell(const struct setup *setup)
{
    const struct options *o = &setup->set->values;
    const struct optimizer_choice *choice = &setup->request.training.choice;

    return setup->trained == setup->parameters && choice->kind->whole == NULL &&
           choice->states != STATE_INT8 && choice->groups.count == 0 &&
           strcmp(o->numerics.recipe, "none") == 0;
}

double largest_more(const struct setup *setup, const struct pipeline *pipeline,
                    const struct place *place)
{
    struct place most = *place;

    if (weights_tell(setup) || !counts_bytes(pipeline, &setup->mesh)) return 0;
    find_most(pipeline, &setup->mesh, BYTES, &most);
    return measured(pipeline, &setup->mesh, &most, BYTES) -
           measured(pipeline, &setup->mesh, place, BYTES);
}

/* Compares one rank; next, if not NULL, becomes the places with the most of
 * each measure among those that differ in the axes of the batch. */
static status try_rank(struct setup *setup, int rank, struct largest *out,
                       struct place next[MEASURES])
{
    struct draft draft;

    TRY(draft_build(&draft, setup, rank));
    if (draft.pipeline.bytes > out->bytes)
        *out = (struct largest){rank, draft.pipeline.bytes};
    for (int i = 0; i < MEASURES && next != NULL; i++)
        if (i != BYTES || (!weights_tell(setup) &&
                           counts_bytes(&draft.pipeline, &setup->mesh)))
            find_most(&draft.pipeline, &setup->mesh, (enum measure)i,
                      &next[i]);
    draft_free(&draft);
    return OK;
}

/* The rank at that place, and those with the most of each measure beside it. */
static status try_next(struct setup *setup, const struct place *place,
                       struct largest *out)
{
    struct place next[MEASURES] = {*place, *place, *place};
    int tried[MEASURES + 1] = {0}, count = 1;

    TRY(try_rank(setup, mesh_rank(&setup->mesh, &setup->order, place), out,
                 next));
    for (int n = 0; n < MEASURES; n++) {
        const int index = mesh_batch_rank(&setup->mesh, &next[n]);
        int i = 0;

        while (i < count && tried[i] != index) i++;
        if (i < count) continue;
        tried[count++] = index;
        TRY(try_rank(setup, mesh_rank(&setup->mesh, &setup->order, &next[n]),
                     out, NULL));
    }
    return OK;
}

static status try_batch(struct setup *setup, struct place place,
                        struct largest *out)
{
    for (int i = 0; i < mesh_batch_ranks(&setup->mesh); i++) {
        place_batch(&setup->mesh, i, &place);
        TRY(try_rank(setup, mesh_rank(&setup->mesh, &setup->order, &place),
                     out, NULL));
    }
    return OK;
}

status largest_at(struct setup *setup, int pipe, int tried,
                  struct largest *out)
{
    const int tensor = setup->mesh.size[AXIS_TENSOR];
    const bool tells = weights_tell(setup) ||
                       mesh_batch_ranks(&setup->mesh) > tried;

    for (int i = 0; i < 2 && i < tensor; i++) {
        struct place place = {{0}};

        place.at[AXIS_PIPE] = pipe;
        place.at[AXIS_TENSOR] = i * (tensor - 1);
        TRY(tells ? try_next(setup, &place, out)
                  : try_batch(setup, place, out));
    }
    return OK;
}

status largest_rank(struct setup *setup, int rank, size_t bytes,
                    struct largest *out)
{
    const int ranks = mesh_ranks(&setup->mesh);

    *out = (struct largest){rank, bytes};
    if (weights_tell(setup) || ranks > LARGEST_TRIED) {
        for (int pipe = 0; pipe < setup->mesh.size[AXIS_PIPE]; pipe++)
            TRY(largest_at(setup, pipe, 0, out));
    } else {
        for (int i = 0; i < ranks; i++)
            if (i != rank) TRY(try_rank(setup, i, out, NULL));
    }
    setup_place(setup, rank);
    return OK;
}
