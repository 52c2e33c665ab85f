/* SPDX-License-Identifier: Apache-2.0 */
/* largest_rank.c - the rank of a layout that needs the most memory. */
#include "train/largest_rank.h"

#include <string.h>

#include "train/draft.h"

typedef const int64_t *shard_numbers(const struct shards *shards, int unit);

/* The number of elements in the shards of one of the ranks that share the
 * batch. place: of that rank. */
static int64_t shard_elements(const struct pipeline *pipeline,
                              const struct mesh *mesh,
                              const struct place *place, shard_numbers *sizes)
{
    int64_t elements = 0;

    for (int i = 0; i < pipeline->count; i++) {
        const struct shards *s = &pipeline->stages[i].shards;

        for (int u = 0; u < s->count; u++)
            elements += param_room(sizes(s, u)[shard_rank_at(
                shard_class(s, u), mesh, place)]);
    }
    return elements;
}

static void place_batch(const struct mesh *mesh, int index,
                        struct place *place)
{
    for (int i = BATCH_AXES - 1; i >= 0; i--) {
        place->at[batch_axes[i]] = index % mesh->size[batch_axes[i]];
        index /= mesh->size[batch_axes[i]];
    }
}

/* Moves the place to the rank with the largest shards. */
static void find_shards(const struct pipeline *pipeline,
                        const struct mesh *mesh, shard_numbers *sizes,
                        struct place *place)
{
    int64_t most = -1;
    int best = 0;

    for (int i = 0; i < mesh_batch_ranks(mesh); i++) {
        place_batch(mesh, i, place);
        const int64_t elements = shard_elements(pipeline, mesh, place, sizes);

        if (elements > most) best = i;
        if (elements > most) most = elements;
    }
    place_batch(mesh, best, place);
}

/* Compares one rank; next, if not NULL, becomes the places with the largest
 * shards, of weights and of gradients, among those that differ in the axes of
 * the batch. */
static status try_rank(struct setup *setup, int rank, struct largest *out,
                       struct place next[2])
{
    struct draft draft;

    TRY(draft_build(&draft, setup, rank));
    if (draft.pipeline.bytes > out->bytes)
        *out = (struct largest){rank, draft.pipeline.bytes};
    for (int i = 0; i < 2 && next != NULL; i++)
        find_shards(&draft.pipeline, &setup->mesh,
                    i == 0 ? shard_sizes : shard_gradient_sizes, &next[i]);
    draft_free(&draft);
    return OK;
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

/* The rank at that place, and those with the largest shards beside it. */
static status try_next(struct setup *setup, const struct place *place,
                       struct largest *out)
{
    struct place next[2] = {*place, *place};
    int last = 0;

    TRY(try_rank(setup, mesh_rank(&setup->mesh, &setup->order, place), out,
                 next));
    for (int n = 0; n < 2; n++) {
        const int index = mesh_batch_rank(&setup->mesh, &next[n]);

        if (index == 0 || index == last) continue;
        last = index;
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
